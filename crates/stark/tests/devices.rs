//! One proof over several devices: the bytes of a proof on one, what goes over the links, and what is wrong.

mod support;

use gatework_gpu::{Device, Target};
use gatework_stark::airs::{self, Air, Input, Lookup, Plonk, ProvesWith, StateMachine, WideFibonacci};
use gatework_stark::{Context, CudaBackend, Error, Prover, Streaming, ToSimd as _, upload};
use stwo::core::channel::MerkleChannel;
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleChannel, Blake2sMerkleChannel};
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{Column as _, ColumnOps as _};

use support::Random;
use support::airs::{Many, Offsets};

fn config(log_blowup: u32) -> PcsConfig {
    PcsConfig { pow_bits: 1, fri_config: FriConfig::new(0, log_blowup, 5, 1), lifting_log_size: None }
}

fn group(count: usize) -> Vec<Device> {
    Device::emulated_group(7, count).unwrap()
}

/// What each device holds.
fn held(devices: &[Device]) -> Vec<u64> {
    devices.iter().map(|device| device.budget().held()).collect()
}

fn prove_in<MC: MerkleChannel, A: Air>(context: &Context, air: &A, config: PcsConfig) -> Result<String, Error>
where
    CudaBackend: ProvesWith<MC>,
    MC::H: serde::Serialize,
{
    let prove = || airs::prove_with::<MC, _, _>(air, config, Input::<CudaBackend>::new(air, config));
    Ok(serde_json::to_string(&context.scope(prove)??).unwrap())
}

fn by_simd<MC: MerkleChannel, A: Air>(air: &A, config: PcsConfig) -> String
where
    SimdBackend: ProvesWith<MC>,
    CudaBackend: ProvesWith<MC>,
    MC::H: serde::Serialize,
{
    let prover = Prover::builder().build(&Target::Cpu).unwrap();
    serde_json::to_string(&prover.prove_with::<MC, A>(air, config).unwrap()).unwrap()
}

/// Proves `air` over 1, 2, 4 and 8 devices, twice on two of them: in a window that takes all and in the
/// least.
#[track_caller]
fn all_alike<MC: MerkleChannel, A: Air>(air: &A, config: PcsConfig)
where
    SimdBackend: ProvesWith<MC>,
    CudaBackend: ProvesWith<MC>,
    MC::H: serde::Serialize,
{
    let expected = by_simd::<MC, A>(air, config);
    for count in [1, 2, 4, 8] {
        let devices = group(count);
        let context = Context::over(&devices).unwrap();
        assert!(prove_in::<MC, A>(&context, air, config).unwrap() == expected, "{count} devices");
        if count == 2 {
            context.set_window(0);
            assert!(prove_in::<MC, A>(&context, air, config).unwrap() == expected, "again, in no window");
        }
        assert_eq!(context.traffic().total() > 0, count > 1);
        drop(context);
        assert_eq!(held(&devices), vec![0; count]);
    }
}

#[test]
fn proofs_over_several_devices_are_those_of_simd() {
    type Blake2s = Blake2sMerkleChannel;
    all_alike::<Blake2s, _>(&WideFibonacci { log_rows: 6, columns: 40 }, config(1));
    // Fewer columns than devices.
    all_alike::<Blake2sM31MerkleChannel, _>(&WideFibonacci { log_rows: 5, columns: 3 }, config(2));
    all_alike::<Poseidon252MerkleChannel, _>(&WideFibonacci { log_rows: 4, columns: 20 }, config(1));
    // Interactions, preprocessed columns, rows that are ahead.
    all_alike::<Blake2s, _>(&Lookup { log_rows: 5, salt: 2 }, config(1));
    all_alike::<Blake2sM31MerkleChannel, _>(&StateMachine { log_rows: 5 }, config(1));
}

#[test]
fn virtual_devices_of_one_are_devices_too() {
    let (air, config) = (Plonk { log_rows: 5 }, config(1));
    let context = Context::over(&Device::open_all("emulated*4").unwrap()).unwrap();
    let expected = by_simd::<Blake2sMerkleChannel, _>(&air, config);
    assert!(prove_in::<Blake2sMerkleChannel, _>(&context, &air, config).unwrap() == expected);
}

/// What goes from one device to another for a proof of `columns` columns of 2^`log_rows` rows that are read
/// at their own row alone, and sampled at one point.
fn expected_bytes(
    (columns, log_rows): (usize, u32),
    log_blowup: u32,
    devices: usize,
    (from, to): (usize, usize),
) -> u64 {
    let owned = (from..columns).step_by(devices).count() as u64;
    // Rows of a tree and of the domain of constraints, for each device.
    let leaves = (1u64 << (log_rows + log_blowup)) / devices as u64;
    let rows = (1u64 << (log_rows + 1)) / devices as u64;
    // Each device fetches its rows of the columns of all others, to hash them and to evaluate constraints.
    let columns = owned * 4 * (leaves + rows);
    if to > 0 {
        return columns;
    }
    // The lead fetches subtrees, sums of constraints, and numerators where there are columns.
    let numerators = if owned > 0 { 16 << log_rows } else { 0 };
    columns + 32 * (2 * leaves - 1) + 16 * rows + numerators
}

#[test]
fn what_goes_over_each_link_is_what_is_computed_beforehand() {
    for (columns, log_rows, log_blowup, count) in [(10, 6, 1, 2), (10, 6, 2, 4), (33, 5, 1, 8), (3, 5, 1, 8)]
    {
        let air = WideFibonacci { log_rows, columns };
        let context = Context::over(&group(count)).unwrap();
        for repeat in 1..=2 {
            prove_in::<Blake2sMerkleChannel, _>(&context, &air, config(log_blowup)).unwrap();
            let traffic = context.traffic();
            for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
                let expected = expected_bytes((columns, log_rows), log_blowup, count, (from, to));
                let expected = if from == to { 0 } else { repeat * expected };
                assert_eq!(traffic.bytes(from, to), expected, "{air:?}: {from} to {to} of {count}");
            }
        }
    }
}

#[test]
fn devices_that_cannot_work_together_are_refused() {
    let refused = |devices: &[Device]| Context::over(devices).unwrap_err().to_string();
    let apart = [1, 2].map(|seed| Device::emulated(seed).unwrap());
    assert!(refused(&apart).contains("open devices that work together at once"), "{}", refused(&apart));
    assert!(refused(&group(3)).contains("a proof over 3 devices: use 1, 2, 4, 8 and so on"));
    assert!(refused(&[]).contains("0 devices"));
}

#[test]
fn columns_are_not_streamed_on_several_devices() {
    let context = Context::over(&group(2)).unwrap();
    context.set_streaming(Some(Streaming::new(0, 4)));
    let values = Random::new(1).bases(32);
    let error = context.scope(|| upload(&[&values])).unwrap_err();
    assert!(error.to_string().contains("in a context of 2 devices: use one"), "{error}");
    context.set_streaming(None);
    assert_eq!(context.scope(|| upload(&[&values])[0].to_cpu()).unwrap(), values);
}

#[test]
fn a_device_without_memory_ends_the_proof_and_not_the_context() {
    let (air, config) = (WideFibonacci { log_rows: 6, columns: 12 }, config(1));
    let devices = group(4);
    let context = Context::over(&devices).unwrap();
    let expected = prove_in::<Blake2sMerkleChannel, _>(&context, &air, config).unwrap();
    let before = held(&devices);
    for (rank, device) in devices.iter().enumerate() {
        let (limit, peak) = (device.budget().limit(), device.budget().peak());
        // Before anything is there, and in the middle.
        for part in [0, peak / 2, peak - 1] {
            device.budget().set_limit(part);
            let error = prove_in::<Blake2sMerkleChannel, _>(&context, &air, config).unwrap_err();
            let memory =
                matches!(error, Error::Gpu(gatework_gpu::Error::OutOfMemory { .. }) | Error::TooLarge { .. });
            assert!(memory, "device {rank}, {part} of {peak}: {error}");
            assert_eq!(held(&devices), before, "device {rank}, {part} of {peak}");
        }
        device.budget().set_limit(limit);
        assert!(prove_in::<Blake2sMerkleChannel, _>(&context, &air, config).unwrap() == expected);
    }
}

#[test]
fn allocations_on_any_device_may_fail_and_the_next_proof_is_right() {
    let (air, config) = (Lookup { log_rows: 4, salt: 1 }, config(1));
    let devices = group(2);
    let context = Context::over(&devices).unwrap();
    let prove = || prove_in::<Blake2sMerkleChannel, _>(&context, &air, config);
    let expected = prove().unwrap();
    let before = context.allocations();
    prove().unwrap();
    let (count, held_before) = (context.allocations() - before, held(&devices));
    for number in (0..count).step_by(3) {
        context.refuse_allocation(number);
        let error = prove().unwrap_err();
        assert!(matches!(error, Error::Gpu(gatework_gpu::Error::OutOfMemory { .. })), "{error}");
        assert_eq!(held(&devices), held_before, "after {number} of {count}");
    }
    context.refuse_allocation(u64::MAX);
    assert!(prove().unwrap() == expected);
}

#[test]
fn columns_on_other_devices_are_columns_like_others() {
    let context = Context::over(&group(4)).unwrap();
    for len in [2usize, 16, 256] {
        let values: Vec<_> = (0..6).map(|seed| Random::new(seed).bases(len)).collect();
        let slices: Vec<_> = values.iter().map(Vec::as_slice).collect();
        context
            .scope(|| {
                let columns = upload(&slices);
                assert_eq!(columns.iter().map(|column| column.to_cpu()).collect::<Vec<_>>(), values);
                assert!(
                    columns.to_simd().iter().zip(&values).all(|(column, values)| column.to_cpu() == *values)
                );
                for (column, values) in columns.into_iter().zip(&values) {
                    let mut column = column;
                    assert!((0..len).all(|index| column.at(index) == values[index]));
                    assert_eq!(column.to_memory().view().len(), len);
                    let copy = column.clone();
                    column.set(1, 7.into());
                    assert_eq!((column.at(1), copy.at(1)), (7.into(), values[1]));
                    let mut reversed = copy.clone();
                    CudaBackend::bit_reverse_column(&mut reversed);
                    let (left, right) = copy.split_at_mid();
                    assert_eq!([left.to_cpu(), right.to_cpu()].concat(), *values);
                    let mut expected = values.clone();
                    stwo::core::utils::bit_reverse(&mut expected);
                    assert_eq!(reversed.to_cpu(), expected);
                }
            })
            .unwrap();
    }
}

#[test]
fn a_kernel_of_ones_own_is_told_that_a_column_lies_elsewhere() {
    let context = Context::over(&group(2)).unwrap();
    let values = Random::new(1).bases(32);
    let error = context.scope(|| upload(&[&values, &values])[1].view().len()).unwrap_err();
    assert!(error.to_string().contains("DeviceColumn::to_memory"), "{error}");
}

/// Proves `air` on devices each of which has what its share of the plan says and no more. What each held at
/// most, as a part of its share.
#[track_caller]
fn proved_within_shares<A: Air>(air: &A, config: PcsConfig, count: usize, expected: &str) -> Vec<f64> {
    let devices = group(count);
    let shares = airs::plan(air, config).shares(count);
    let share = |rank: usize| if rank == 0 { shares.first } else { shares.other };
    let prover = Prover::builder().build_over(&devices).unwrap();
    let limits: Vec<u64> = devices.iter().map(|device| device.budget().limit()).collect();
    // With less nothing is begun, and the device that has too little is named.
    for (rank, device) in devices.iter().enumerate() {
        device.budget().set_limit(share(rank) - 1);
        let error = prover.prove(air, config).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "device {rank} of {count}: {error}");
        assert!(error.to_string().contains(&format!("on {}, where", device.properties().id)), "{error}");
        assert_eq!(device.budget().peak(), 0);
        device.budget().set_limit(share(rank).min(limits[rank]));
    }
    let proved = prover.prove(air, config).unwrap();
    assert!(serde_json::to_string(&proved).unwrap() == expected, "{count} devices");
    let held = |(rank, device): (usize, &Device)| device.budget().peak() as f64 / share(rank) as f64;
    devices.iter().enumerate().map(held).collect()
}

#[test]
fn a_prover_over_several_devices_keeps_to_what_its_plan_says() {
    fn check<A: Air>(air: &A, config: PcsConfig) {
        let expected = by_simd::<Blake2sMerkleChannel, _>(air, config);
        let held = [2, 4, 8].map(|count| proved_within_shares(air, config, count, &expected));
        // Some may hold less than the one that holds most, of which the plan speaks.
        let most = |held: &Vec<f64>| held[1..].iter().copied().fold(0.0, f64::max);
        assert!(held.iter().all(|held| held[0] > 0.75 && most(held) > 0.75), "{held:.3?}");
    }
    check(&WideFibonacci { log_rows: 10, columns: 48 }, config(1));
    check(&WideFibonacci { log_rows: 9, columns: 203 }, config(1));
    check(&Lookup { log_rows: 11, salt: 2 }, config(2));
    check(&Offsets { log_rows: 10, columns: 24, panics: false }, config(1));
}

#[test]
fn many_components_are_no_more_than_the_first_devices_share() {
    let (air, config) = (Many { log_rows: 8, components: 48 }, config(1));
    let proved = Prover::builder().build(&group(1)[0].clone().into()).unwrap().prove(&air, config).unwrap();
    let expected = serde_json::to_string(&proved).unwrap();
    assert!(airs::verify(&air, config, proved).is_ok());
    for count in [2, 8] {
        let held = proved_within_shares(&air, config, count, &expected);
        assert!(held.iter().all(|held| (0.7..=1.0).contains(held)), "{count} devices: {held:.3?}");
    }
    // Of two lengths, with rows that are ahead.
    let air = StateMachine { log_rows: 9 };
    proved_within_shares(&air, config, 4, &by_simd::<Blake2sMerkleChannel, _>(&air, config));
}

/// Chunks of rows are cut to the window; 2^24 rows of 400 columns are a proof for cards.
#[test]
fn shares_of_wide_traces_are_about_a_part_of_what_one_device_holds() {
    for (log_rows, columns) in [(20, 1000), (22, 400), (24, 400)] {
        let plan = airs::plan(&WideFibonacci { log_rows, columns }, config(1));
        for count in [2, 4, 8] {
            let least = (plan.column_bytes() << 1) / count as u64;
            let shares = plan.shares(count);
            assert!((least..2 * least).contains(&shares.other), "2^{log_rows}, {count}: {shares:?}");
            assert!(shares.first < plan.peak_bytes(), "2^{log_rows}, {count}: {shares:?}");
        }
    }
}

#[test]
fn more_devices_than_rows_are_no_fewer_than_the_proof_takes() {
    let air = WideFibonacci { log_rows: 4, columns: 4 };
    let prover = Prover::builder().build_over(&group(64)).unwrap();
    let proved = prover.prove(&air, config(1)).unwrap();
    assert!(serde_json::to_string(&proved).unwrap() == by_simd::<Blake2sMerkleChannel, _>(&air, config(1)));
}

#[test]
fn columns_that_are_brought_one_at_a_time_are_dealt_out_too() {
    let devices = group(4);
    let context = Context::over(&devices).unwrap();
    let values = Random::new(1).bases(64);
    let bring = || context.scope(|| upload(&[&values]).remove(0)).unwrap();
    let mut columns: Vec<_> = (0..40).map(|_| bring()).collect();
    assert_eq!(held(&devices), [10 * 256; 4]);
    // Every fourth goes, all of one device, and the next come there.
    let mut number = 0;
    columns.retain(|_| {
        number += 1;
        number % 4 != 3
    });
    assert_eq!(held(&devices), [10 * 256, 10 * 256, 0, 10 * 256]);
    columns.extend((0..8).map(|_| bring()));
    assert_eq!(held(&devices), [10 * 256, 10 * 256, 8 * 256, 10 * 256]);
}

#[test]
fn one_device_is_no_two() {
    let device = group(1).remove(0);
    let error = Context::over(&[device.clone(), device]).unwrap_err().to_string();
    assert!(error.contains("Device::split"), "{error}");
}

#[test]
fn a_trace_that_panics_leaves_the_context_as_it_was() {
    let good = Offsets { log_rows: 5, columns: 9, panics: false };
    let bad = Offsets { panics: true, ..good };
    let expected = by_simd::<Blake2sMerkleChannel, _>(&good, config(1));
    for count in [1, 4] {
        let devices = group(count);
        let prover = Prover::builder().build_over(&devices).unwrap();
        let prove = |air: &Offsets| serde_json::to_string(&prover.prove(air, config(1)).unwrap()).unwrap();
        assert!(prove(&good) == expected);
        let before = held(&devices);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| prove(&bad)));
        assert!(panicked.is_err() && held(&devices) == before, "{count} devices");
        assert!(prove(&good) == expected, "{count} devices");
    }
}
