//! Proofs whose columns are streamed from page-locked memory: the bytes of those that are not, within the
//! memory that the plan says.

mod support;

use gatework_gpu::{Device, Target};
use gatework_stark::airs::{self, Air, Input, Lookup, Plonk, ProvesWith, StateMachine, WideFibonacci};
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
