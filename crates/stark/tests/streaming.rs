//! Proofs whose columns are streamed from page-locked memory: the bytes of those that are not, within the
//! memory that the plan says.

mod support;

use gatework_gpu::{Device, Target};
use gatework_stark::airs::{
    self, Air, Input, Lookup, Plonk, Poseidon2, ProvesWith, StateMachine, WideFibonacci,
};
use gatework_stark::{
    Context, CudaBackend, DeviceColumn, Error, Prover, Streaming, ToDevice as _, ToSimd as _, Way, upload,
};
use stwo::core::channel::MerkleChannel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::{Column as _, ColumnOps as _};

use support::Random;
use support::airs::Offsets;

fn config(fri_config: FriConfig) -> PcsConfig {
    PcsConfig { pow_bits: 1, fri_config, lifting_log_size: None }
}

fn few_folds() -> PcsConfig {
    config(FriConfig::new(0, 1, 5, 1))
}

fn many_folds() -> PcsConfig {
    config(FriConfig::new(1, 2, 5, 3))
}

/// Proves `air` on a device of less memory than its columns need, and compares the proof with
/// `SimdBackend`'s. What the device held at most, as a part of what the plan said.
#[track_caller]
fn proved_in_less<MC: MerkleChannel, A: Air>(air: &A, config: PcsConfig) -> f64
where
    SimdBackend: ProvesWith<MC>,
    CudaBackend: ProvesWith<MC>,
    MC::H: serde::Serialize,
{
    let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
    let device = Device::emulated(3).unwrap();
    device.budget().set_limit(plan.peak_bytes() - 1);
    let Way { streaming, device_bytes, .. } = plan.way(&device).unwrap();
    assert!(streaming.is_some() && device_bytes < plan.peak_bytes(), "{device_bytes}");
    // No more than what it says that it takes, of which a smaller window may be the result.
    device.budget().set_limit(device_bytes);
    device.pinned().set_limit(0);
    let Way { device_bytes, pinned_bytes, .. } = plan.way(&device).unwrap();
    let on = |target: &Target| {
        let proved = Prover::builder().build(target).unwrap().prove_with::<MC, A>(air, config).unwrap();
        serde_json::to_string(&proved).unwrap()
    };
    assert!(on(&device.clone().into()) == on(&Target::Cpu));
    assert!(device.pinned().stats().held <= pinned_bytes + (64 << 20));
    device.budget().peak() as f64 / device_bytes as f64
}

#[test]
fn proofs_in_less_memory_than_their_columns_are_those_of_simd() {
    type Blake2s = Blake2sMerkleChannel;
    let parts = [
        proved_in_less::<Blake2s, _>(&WideFibonacci { log_rows: 9, columns: 200 }, few_folds()),
        proved_in_less::<Blake2sM31MerkleChannel, _>(
            &WideFibonacci { log_rows: 9, columns: 90 },
            many_folds(),
        ),
        proved_in_less::<Poseidon252MerkleChannel, _>(
            &WideFibonacci { log_rows: 6, columns: 250 },
            few_folds(),
        ),
        proved_in_less::<Blake2s, _>(&Lookup { log_rows: 11, salt: 1 }, few_folds()),
        proved_in_less::<Blake2s, _>(&StateMachine { log_rows: 11 }, few_folds()),
        proved_in_less::<Blake2s, _>(
            &Offsets { log_rows: 10, columns: 48, panics: false },
            config(FriConfig::new(0, 2, 5, 1)),
        ),
    ];
    for (case, part) in parts.into_iter().enumerate() {
        assert!((0.4..=1.0).contains(&part), "case {case}: {part:.3} of what was planned");
    }
}

/// Proves `air` with a window and pages of one's own.
fn streamed<A: Air>(air: &A, config: PcsConfig, streaming: Option<Streaming>) -> String
where
    CudaBackend: ProvesWith<Blake2sMerkleChannel>,
{
    let context = Context::new(&Device::emulated(5).unwrap()).unwrap();
    context.set_streaming(streaming);
    let prove = || airs::prove(air, config, Input::<CudaBackend>::new(air, config));
    serde_json::to_string(&context.scope(prove).unwrap().unwrap()).unwrap()
}

#[test]
fn windows_and_pages_change_nothing() {
    fn all_alike<A: Air>(air: &A)
    where
        CudaBackend: ProvesWith<Blake2sMerkleChannel>,
    {
        let expected = streamed(air, few_folds(), None);
        for (window, log_page) in [(0, 4), (0, 20), (1 << 15, 5), (1 << 30, 4)] {
            let found = streamed(air, few_folds(), Some(Streaming::new(window, log_page)));
            assert!(found == expected, "a window of {window} bytes, pages of 2^{log_page}");
        }
    }
    all_alike(&Lookup { log_rows: 7, salt: 2 });
    all_alike(&Plonk { log_rows: 6 });
    all_alike(&StateMachine { log_rows: 5 });
    all_alike(&WideFibonacci { log_rows: 6, columns: 33 });
}

#[test]
fn what_does_not_fit_even_so_is_refused_with_numbers() {
    let (air, config) = (WideFibonacci { log_rows: 9, columns: 200 }, few_folds());
    let device = Device::emulated(3).unwrap();
    let plan = airs::plan(&air, config);
    device.budget().set_limit(plan.peak_bytes() - 1);
    let least = plan.way(&device).unwrap().device_bytes;
    device.budget().set_limit(least / 2);
    let error = plan.way(&device).unwrap_err();
    let Error::TooLarge { needed, limit, .. } = error else { panic!("{error}") };
    assert!(needed > limit && needed <= least && limit == least / 2, "{needed} of {limit}, {least}");
    let refused = Prover::builder().build(&device.clone().into()).unwrap().prove(&air, config).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    // Nothing was begun.
    assert_eq!(device.budget().peak(), 0);
}

/// Whatever a refusal names, a device that has it has enough.
#[test]
fn what_a_refusal_names_is_enough_also_for_small_proofs() {
    fn check<A: Air>(air: &A, config: PcsConfig) {
        let device = Device::emulated(3).unwrap();
        device.budget().set_limit(1);
        let prove = || Prover::builder().build(&device.clone().into()).unwrap().prove(air, config);
        let Err(Error::TooLarge { needed, .. }) = prove() else { panic!("one byte is too little") };
        device.budget().set_limit(needed);
        let proved = prove();
        assert!(proved.is_ok(), "{needed} bytes of {}: {:?}", std::any::type_name::<A>(), proved.err());
    }
    fn check_all(log_rows: u32, config: PcsConfig) {
        check(&StateMachine { log_rows }, config);
        check(&Plonk { log_rows }, config);
        check(&Lookup { log_rows, salt: 1 }, config);
        check(&WideFibonacci { log_rows, columns: 12 }, config);
        check(&Offsets { log_rows, columns: 9, panics: false }, config);
    }
    check_all(5, few_folds());
    check_all(8, few_folds());
    check_all(6, many_folds());
    check(&Poseidon2 { log_rows: 5 }, few_folds());
    check(&Poseidon2 { log_rows: 7 }, few_folds());
    check(&Poseidon2 { log_rows: 4 }, many_folds());
}

/// With a window that is larger than all columns, or smaller than pages of them: neither is what a proof
/// takes.
#[test]
fn a_streaming_of_ones_own_is_counted_as_it_is_used() {
    let (air, config) = (WideFibonacci { log_rows: 8, columns: 60 }, few_folds());
    let proved = |streaming: Streaming, limit: u64| {
        let device = Device::emulated(3).unwrap();
        let context = Context::new(&device).unwrap();
        context.set_streaming(Some(streaming));
        device.budget().set_limit(limit);
        let prove = || airs::prove(&air, config, Input::<CudaBackend>::new(&air, config));
        (context.scope(prove).flatten().map(|_| ()), device.budget().peak())
    };
    let (done, peak) = proved(Streaming::new(1 << 40, 4), u64::MAX);
    assert!(done.is_ok() && proved(Streaming::new(1 << 40, 4), 2 * peak).0.is_ok(), "{done:?}");
    // Pages of all rows are refused before constraints are begun, and not in the middle.
    let (done, peak) = proved(Streaming::new(0, 20), u64::MAX);
    let refused = proved(Streaming::new(0, 20), peak - 1).0.unwrap_err();
    assert!(done.is_ok() && matches!(refused, Error::TooLarge { .. }), "{refused}");
}

#[test]
fn a_plan_that_fits_streams_nothing() {
    let plan = airs::plan(&WideFibonacci { log_rows: 8, columns: 20 }, few_folds());
    let device = Device::emulated(3).unwrap();
    device.budget().set_limit(plan.peak_bytes());
    let way = plan.way(&device).unwrap();
    assert_eq!((way.streaming, way.device_bytes, way.pinned_bytes), (None, plan.peak_bytes(), 0));
}

/// Those of the size that is to be proved on a card, by the plan alone.
#[test]
fn four_hundred_columns_of_sixteen_million_rows_fit_into_32_gibibytes() {
    let plan = airs::plan(&WideFibonacci { log_rows: 24, columns: 400 }, few_folds());
    let device = Device::emulated(3).unwrap();
    device.budget().set_limit(32 << 30);
    assert!(plan.peak_bytes() > 64 << 30, "{}", plan.peak_bytes());
    let way = plan.way(&device).unwrap();
    assert!(way.device_bytes <= 32 << 30 && way.pinned_bytes < 85 << 30, "{way:?}");
    assert_eq!(way.streaming.map(|streaming| streaming.log_page()), Some(20));
}

#[test]
fn any_allocation_may_fail_and_the_next_proof_is_right() {
    let (air, config) = (Lookup { log_rows: 5, salt: 1 }, few_folds());
    let device = Device::emulated(3).unwrap();
    let context = Context::new(&device).unwrap();
    context.set_streaming(Some(Streaming::new(1 << 12, 4)));
    let prove =
        || context.scope(|| airs::prove(&air, config, Input::<CudaBackend>::new(&air, config))).flatten();
    let expected = serde_json::to_string(&prove().unwrap()).unwrap();
    let before = context.allocations();
    prove().unwrap();
    let (count, held) = (context.allocations() - before, device.budget().held());
    let (mut of_device, mut of_host) = (0, 0);
    for number in 0..count {
        context.refuse_allocation(number);
        match prove() {
            Err(Error::Gpu(gatework_gpu::Error::OutOfMemory { .. })) => of_device += 1,
            Err(Error::Gpu(gatework_gpu::Error::OutOfPinnedMemory { .. })) => of_host += 1,
            other => panic!("allocation {number} of {count}: {:?}", other.map(|_| "a proof")),
        }
        assert_eq!(device.budget().held(), held, "after allocation {number}");
    }
    assert!(of_device > 50 && of_host > 50, "{of_device} of the device, {of_host} of the host");
    context.refuse_allocation(u64::MAX);
    assert!(serde_json::to_string(&prove().unwrap()).unwrap() == expected);
}

#[test]
fn page_locked_memory_that_is_not_there_is_an_error() {
    let device = Device::emulated(3).unwrap();
    device.pinned().set_limit(1 << 20);
    let context = Context::new(&device).unwrap();
    context.set_streaming(Some(Streaming::new(0, 10)));
    let values = Random::new(1).bases(1 << 19);
    let error = context.scope(|| upload(&[&values])).unwrap_err();
    assert!(matches!(error, Error::Gpu(gatework_gpu::Error::OutOfPinnedMemory { .. })), "{error}");
}

/// What was lent for a proof is the host's again.
#[test]
fn the_bound_on_page_locked_memory_is_what_it_was_after_a_proof() {
    let air = WideFibonacci { log_rows: 9, columns: 200 };
    let device = Device::emulated(3).unwrap();
    device.pinned().set_limit(1 << 20);
    device.budget().set_limit(airs::plan(&air, few_folds()).peak_bytes() - 1);
    let prover = Prover::builder().build(&device.clone().into()).unwrap();
    prover.prove(&air, few_folds()).unwrap();
    let stats = device.pinned().stats();
    assert!(stats.limit == 1 << 20 && stats.held <= 1 << 20, "{stats:?}");
}

fn base_column(values: &[BaseField]) -> BaseColumn {
    values.iter().copied().collect()
}

#[test]
fn streamed_columns_are_columns_like_others() {
    let device = Device::emulated(3).unwrap();
    let context = Context::new(&device).unwrap();
    context.set_streaming(Some(Streaming::new(0, 4)));
    // Shorter than a page, as long, and of many; with P where zero is meant.
    for len in [2usize, 16, 256] {
        let mut values = Random::new(len as u64).bases(len);
        let lanes: Vec<_> = values
            .iter()
            .map(|&value| if value.0 == 0 { BaseField::from_u32_unchecked((1 << 31) - 1) } else { value })
            .collect();
        context
            .scope(|| {
                let mut column = [base_column(&lanes)].to_device().pop().unwrap();
                assert_eq!((column.len(), column.to_cpu()), (len, values.clone()));
                assert!((0..len).all(|index| column.at(index) == values[index]));
                assert_eq!([column.clone()].to_simd()[0].to_cpu(), values);
                assert_eq!(column.to_memory().view().len(), len);
                let copy = column.clone();
                column.set(1, BaseField::from(7));
                assert_eq!((column.at(1), copy.at(1)), (BaseField::from(7), values[1]));
                let mut reversed = copy.clone();
                CudaBackend::bit_reverse_column(&mut reversed);
                let (left, right) = copy.split_at_mid();
                assert_eq!([left.to_cpu(), right.to_cpu()].concat(), values);
                stwo::core::utils::bit_reverse(&mut values);
                assert_eq!(reversed.to_cpu(), values);
            })
            .unwrap();
    }
}

/// Columns of no domain may have any length.
#[test]
fn streamed_columns_may_end_within_a_page() {
    let context = Context::new(&Device::emulated(3).unwrap()).unwrap();
    context.set_streaming(Some(Streaming::new(0, 4)));
    for len in [1usize, 3, 24, 100] {
        let values = Random::new(len as u64).bases(len);
        let found = context.scope(|| {
            let column = DeviceColumn::upload(&values);
            let on_device = column.to_memory().to_cpu();
            let last = column.at(len - 1);
            (column.to_cpu(), on_device, last, [column].to_simd()[0].to_cpu())
        });
        assert_eq!(found.unwrap(), (values.clone(), values.clone(), values[len - 1], values), "{len} values");
    }
}

#[test]
fn a_kernel_of_ones_own_is_told_that_a_column_is_streamed() {
    let context = Context::new(&Device::emulated(3).unwrap()).unwrap();
    context.set_streaming(Some(Streaming::new(0, 4)));
    let values = Random::new(1).bases(32);
    let error = context.scope(|| DeviceColumn::upload(&values).view().len()).unwrap_err();
    assert!(error.to_string().contains("DeviceColumn::to_memory"), "{error}");
}
