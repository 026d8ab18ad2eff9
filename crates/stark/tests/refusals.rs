//! What is refused, what fails, and what goes on afterwards.

mod support;

use gatework_gpu::{Device, Notice};
use gatework_stark::airs::{
    self, Air, HostColumn, Input, Lookup, Plonk, Poseidon2, Proved, StateMachine, WideFibonacci,
};
use gatework_stark::{Context, CudaBackend, Error, Stage, Tier};
use itertools::Itertools as _;
use serde_json::Value;
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::FrameworkComponent;

use support::context;

const CONFIG: PcsConfig = PcsConfig {
    pow_bits: 2,
    fri_config: FriConfig {
        log_blowup_factor: 1,
        log_last_layer_degree_bound: 0,
        n_queries: 3,
        fold_step: 1,
    },
    lifting_log_size: None,
};

fn prove_trace<A: Air>(context: &Context, air: &A, traces: &[Vec<HostColumn>]) -> Result<Proved, Error>
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
{
    prove_trace_with(context, air, traces, CONFIG)
}

fn prove_trace_with<A: Air>(
    context: &Context,
    air: &A,
    traces: &[Vec<HostColumn>],
    config: PcsConfig,
) -> Result<Proved, Error>
where
    FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
{
    context
        .scope(|| airs::prove(air, config, Input::<CudaBackend>::of(air.preprocessed(), traces, config)))?
}

fn json(proved: &Proved) -> Value {
    serde_json::to_value(proved).unwrap()
}

#[test]
fn a_mutated_trace_is_refused() {
    fn refused<A: Air>(air: &A)
    where
        FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
    {
        let traces = air.traces();
        prove_trace(context(), air, &traces).unwrap();
        for (part, column, row) in [(0, 0, 0), (0, 1, 7), (0, traces[0].len() - 1, 15)] {
            let mut traces = traces.clone();
            traces[part][column][row] += BaseField::from_u32_unchecked(1);
            match prove_trace(context(), air, &traces) {
                Err(Error::ConstraintsNotSatisfied) => (),
                // Lookups that do not balance are proved with a sum that the verifier does not take.
                Ok(proved) => assert!(airs::verify(air, CONFIG, proved).is_err(), "{part}, {column}, {row}"),
                Err(other) => panic!("{other}"),
            }
        }
    }
    refused(&WideFibonacci { log_rows: 4, columns: 5 });
    refused(&Lookup { log_rows: 4, salt: 3 });
    refused(&Plonk { log_rows: 4 });
    refused(&StateMachine { log_rows: 5 });
}

/// Pointers to all numbers of a document.
fn numbers(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(path),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| numbers(item, format!("{path}/{index}"), found));
        }
        Value::Object(items) => {
            items.iter().for_each(|(key, item)| numbers(item, format!("{path}/{key}"), found));
        }
        _ => (),
    }
}

#[test]
fn a_proof_with_one_number_changed_is_refused() {
    let air = Lookup { log_rows: 4, salt: 1 };
    let proved = prove_trace(context(), &air, &air.traces()).unwrap();
    airs::verify(&air, CONFIG, proved.clone()).unwrap();
    let document = json(&proved);
    let mut paths = Vec::new();
    numbers(&document, String::new(), &mut paths);
    // An altered nonce may by chance do as much work.
    paths.retain(|path| !path.contains("proof_of_work"));
    assert!(paths.len() > 500, "{} numbers", paths.len());
    for path in paths.iter().step_by(7) {
        let mut changed = document.clone();
        let number = changed.pointer_mut(path).unwrap();
        let value = number.as_u64().unwrap();
        // Bytes of a hash stay bytes, elements of the field stay elements.
        let is_byte = path.contains("commitment") || path.contains("hash_witness");
        let modulus = if is_byte { 256 } else { u64::from(P) };
        *number = ((value + 1) % modulus).into();
        let changed: Proved = serde_json::from_value(changed).unwrap();
        assert!(airs::verify(&air, CONFIG, changed).is_err(), "{path}");
    }
}

/// A proof that says the same in other words would be a second one of the same statement; and stwo's verifier
/// evaluates the last layer by the number of coefficients that it says, here 2^4294967232 modulo the width of
/// a word.
#[test]
fn a_proof_that_no_prover_makes_is_refused_before_it_is_verified() {
    let air = WideFibonacci { log_rows: 4, columns: 3 };
    let proved = airs::prove(&air, CONFIG, Input::<SimdBackend>::new(&air, CONFIG)).unwrap();
    let document = json(&proved);
    let mut paths = Vec::new();
    numbers(&document, String::new(), &mut paths);
    let path_of = |part: &str| paths.iter().find(|path| path.contains(part)).unwrap().as_str();
    for (path, value, told) in [
        (path_of("sampled_values"), u64::from(P), "no element of the field"),
        (path_of("queried_values"), u64::from(u32::MAX), "no element of the field"),
        (path_of("fri_witness"), u64::from(P) + 7, "no element of the field"),
        (path_of("last_layer_poly/log_size"), u64::from(u32::MAX) - 63, "number of coefficients"),
        (path_of("config/pow_bits"), 0, "configuration"),
    ] {
        let mut changed = document.clone();
        *changed.pointer_mut(path).unwrap() = value.into();
        let changed: Proved = serde_json::from_value(changed).unwrap();
        let refused = airs::verify(&air, CONFIG, changed).unwrap_err();
        assert!(
            matches!(refused, airs::VerifyError::Malformed { what } if what.contains(told)),
            "{path}: {refused}"
        );
    }
}

#[test]
fn a_proof_against_another_table_is_refused() {
    let air = Lookup { log_rows: 4, salt: 3 };
    let config = PcsConfig::default();
    // The same values from a table in another order: true, and not what is claimed.
    let mut preprocessed = air.preprocessed();
    let mut traces = air.traces();
    preprocessed[0].1.reverse();
    traces[0][2].reverse();
    let input = Input::<SimdBackend>::of(preprocessed, &traces, config);
    let proved = airs::prove(&air, config, input).unwrap();
    assert!(matches!(airs::verify(&air, config, proved), Err(airs::VerifyError::Preprocessed)));
    let proved = airs::prove(&air, config, Input::<SimdBackend>::new(&air, config)).unwrap();
    airs::verify(&air, config, proved).unwrap();
}

#[test]
fn a_last_layer_that_is_longer_than_the_first_is_an_error() {
    let air = WideFibonacci { log_rows: 4, columns: 3 };
    for (log_last_degree, log_blowup, fold_step) in [(4, 1, 1), (3, 2, 2), (5, 1, 1)] {
        let fri_config = FriConfig::new(log_last_degree, log_blowup, 3, fold_step);
        let config = PcsConfig { pow_bits: 0, fri_config, lifting_log_size: None };
        let prove = || airs::prove(&air, config, Input::<CudaBackend>::new(&air, config));
        let error = context().scope(prove).unwrap().err();
        assert!(
            matches!(&error, Some(Error::Unsupported { what }) if what.contains("last layer")),
            "{error:?}"
        );
    }
}

/// Proves while the allocation with that number is refused, and wants an error. Columns that happen to lie
/// evenly spaced need no table of their addresses: a proof may take a few allocations less than the `usual`,
/// and is then as `expected`.
fn refuse(
    context: &Context,
    number: u64,
    usual: u64,
    expected: &Value,
    prove: impl FnOnce() -> Result<Value, Error>,
) {
    let before = context.allocations();
    context.refuse_allocation(number);
    match prove() {
        Err(Error::Gpu(gatework_gpu::Error::OutOfMemory { .. })) => (),
        Ok(proof) if context.allocations() - before <= number && number + 3 >= usual => {
            assert!(proof == *expected, "allocation {number} was never asked for, and the proof differs");
        }
        other => panic!("allocation {number}: {:?}", other.map(|_| "a proof")),
    }
    context.refuse_allocation(u64::MAX);
}

#[test]
fn out_of_memory_at_every_allocation_is_an_error_and_the_next_proof_succeeds() {
    let device = Device::emulated(3).unwrap();
    let context = Context::new(&device).unwrap();
    let air = Lookup { log_rows: 4, salt: 2 };
    let traces = air.traces();
    // What is kept from one proof to the next is there after the first.
    let expected = json(&prove_trace(&context, &air, &traces).unwrap());
    let (before, kept) = (context.allocations(), device.budget().held());
    prove_trace(&context, &air, &traces).unwrap();
    let allocations = context.allocations() - before;
    assert!(allocations > 60, "{allocations} allocations");
    for number in 0..allocations {
        let prove = || prove_trace(&context, &air, &traces).map(|proof| json(&proof));
        refuse(&context, number, allocations, &expected, prove);
        assert_eq!(device.budget().held(), kept, "allocation {number} left memory behind");
    }
    assert_eq!(json(&prove_trace(&context, &air, &traces).unwrap()), expected);
}

/// A blowup of 4, folds by 8 and packed leaves, with lookups, in contexts that have nothing prepared.
#[test]
fn out_of_memory_in_a_fresh_context_is_an_error_and_the_next_proof_succeeds() {
    let config = PcsConfig { fri_config: FriConfig::new(1, 2, 3, 3), ..CONFIG };
    let device = Device::emulated(3).unwrap();
    let air = Plonk { log_rows: 5 };
    let traces = air.traces();
    let context = Context::new(&device).unwrap();
    let expected = json(&prove_trace_with(&context, &air, &traces, config).unwrap());
    let allocations = context.allocations();
    assert!(allocations > 50, "{allocations} allocations");
    drop(context);
    assert_eq!(device.budget().held(), 0, "a context left memory behind");
    for number in 0..allocations {
        let context = Context::new(&device).unwrap();
        let prove = || prove_trace_with(&context, &air, &traces, config).map(|proof| json(&proof));
        refuse(&context, number, allocations, &expected, prove);
        // Every tenth: what was prepared until then must be whole.
        if number % 10 == 0 {
            assert!(
                json(&prove_trace_with(&context, &air, &traces, config).unwrap()) == expected,
                "{number}"
            );
        }
        drop(context);
        assert_eq!(device.budget().held(), 0, "allocation {number} left memory behind");
    }
}

#[test]
fn a_fault_outside_of_a_scope_is_a_panic_with_its_message() {
    use stwo::prover::backend::{Col, Column as _};

    let context = Context::new(&Device::emulated(4).unwrap()).unwrap();
    let column = context.scope(|| Col::<CudaBackend, BaseField>::zeros(8)).unwrap();
    context.refuse_allocation(0);
    let fault = std::thread::spawn(move || [column.clone(), column]).join().unwrap_err();
    let message = fault.downcast_ref::<String>().expect("a panic has a message");
    assert!(message.contains("out of") && message.contains("Context::scope"), "{message}");
}

#[test]
fn a_budget_that_is_too_small_is_an_error_with_numbers() {
    let device = Device::emulated(4).unwrap();
    device.budget().set_limit(10_000);
    let context = Context::new(&device).unwrap();
    let air = WideFibonacci { log_rows: 6, columns: 10 };
    let error = prove_trace(&context, &air, &air.traces()).unwrap_err().to_string();
    assert!(error.contains("out of") && error.contains("10000"), "{error}");
}

#[test]
fn generated_and_interpreted_constraints_are_equal() {
    fn equal<A: Air>(air: &A)
    where
        FrameworkComponent<A::Eval>: ComponentProver<CudaBackend>,
    {
        let proofs = [Tier::Interpreted, Tier::Generated].map(|tier| {
            let context = Context::new(&Device::emulated(5).unwrap()).unwrap();
            context.set_tier(tier);
            json(&prove_trace(&context, air, &air.traces()).unwrap())
        });
        assert!(proofs.iter().all_equal());
    }
    equal(&WideFibonacci { log_rows: 5, columns: 30 });
    equal(&Lookup { log_rows: 4, salt: 1 });
    equal(&Plonk { log_rows: 5 });
    equal(&StateMachine { log_rows: 5 });
    equal(&Poseidon2 { log_rows: 4 });
}

#[test]
fn several_provers_run_at_once() {
    let air = Lookup { log_rows: 5, salt: 9 };
    let device = Device::emulated(6).unwrap();
    let proofs = std::thread::scope(|threads| {
        let prove = || {
            let context = Context::new(&device).unwrap();
            json(&prove_trace(&context, &air, &air.traces()).unwrap())
        };
        let provers = [(); 3].map(|()| threads.spawn(prove));
        provers.map(|prover| prover.join().unwrap())
    });
    assert!(proofs.iter().all_equal());
}

#[test]
fn stages_are_told_in_their_order_and_timed() {
    use std::sync::{Arc, Mutex};

    let context = Context::new(&Device::emulated(9).unwrap()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    context.watch(Arc::new(move |notice: Notice<'_>| {
        let named = |name: &str| Stage::ALL.into_iter().find(|stage| stage.name() == name).unwrap();
        match notice {
            Notice::Started { stage } => list.lock().unwrap().push((named(stage), "started")),
            Notice::Ended { stage } => list.lock().unwrap().push((named(stage), "ended")),
            other => panic!("{other:?}"),
        }
    }));
    context.keep_times();
    let air = WideFibonacci { log_rows: 4, columns: 4 };
    prove_trace(&context, &air, &air.traces()).unwrap();
    let told = told.lock().unwrap().clone();
    for pair in told.chunks(2) {
        assert!(matches!(pair, [(first, "started"), (second, "ended")] if first == second), "{pair:?}");
    }
    let mut told: Vec<Stage> = told.into_iter().map(|(stage, _)| stage).collect();
    told.dedup();
    assert!(Stage::ALL.iter().all(|stage| told.contains(stage)), "{told:?}");
    let position = |stage| told.iter().position(|&of| of == stage);
    assert!(
        position(Stage::Constraints) < position(Stage::Fri)
            && position(Stage::Fri) < position(Stage::Openings)
    );
    let times = context.take_times();
    assert!(Stage::ALL.iter().all(|stage| times.iter().any(|(of, _)| of == stage)), "{times:?}");
}
