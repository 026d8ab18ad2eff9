//! Other backends: one behind opaque handles with nothing done when a call returns, and the emulated device.
//! The same bits, for every pair of backends.

use std::sync::Arc;
use std::thread;

use gatework_fss::backend::{Backend, MatmulShape};
use gatework_fss::executor::{
    Channel, Circuit, Inputs, Limits, MemoryChannel, Plan, deal_on, estimate, evaluate, join, run_clear,
    run_in_process_on,
};
use gatework_fss::gates::{Activation, LayerNorm, Rows, Softmax, Tanh};
use gatework_fss::ops::Payload;
use gatework_fss::{
    Bound, CpuBackend, Error, Evaluator, FixedPoint, Message, Party, Randomness, Result, Ring, Wire,
    backend_on,
};
use gatework_gpu::{Device, Target};

use crate::support::opaque::Opaque;

const ROWS: usize = 5;
const WIDTH: usize = 7;
const LEN: usize = ROWS * WIDTH;

fn format() -> FixedPoint {
    FixedPoint::new(50, 12).unwrap()
}

/// Every primitive and every composite gate, one after the other on one input, in a ring that no power of two
/// divides.
async fn everything(evaluator: &Evaluator) -> Result<Option<Vec<u64>>> {
    let ring = format().ring;
    let x = evaluator.input(Party::One, ring, LEN, -(6 << 12)..=6 << 12).await?;
    let gain = evaluator.weights(Party::Zero, ring, WIDTH, -8192..=8192).await?;
    let matrix = evaluator.weights(Party::Zero, ring, WIDTH * WIDTH, -8192..=8192).await?;
    let norm = LayerNorm::new(WIDTH, 12, 1e-5, 40)?;
    let normal = evaluator.open(norm.apply(evaluator, &x, &gain, &gain).await?).await?;
    let mask = evaluator.mask_share(&normal)?;
    let shape = MatmulShape { batch: 1, rows: ROWS, inner: WIDTH, columns: WIDTH };
    let bound = Bound::proved(-(1 << 40), 1 << 40);
    let product = evaluator.matmul_within(&normal, &mask, matrix.wire(), matrix.mask(), shape, bound)?;
    let turned = evaluator.matmul_transposed(&normal, &mask, matrix.wire(), matrix.mask(), shape, bound)?;
    let (product, turned) = join(evaluator.open(product), evaluator.open(turned)).await?;
    let product =
        evaluator.open(evaluator.faithful_truncate(&product.plus(&turned)?, 14, ring).await?).await?;
    let gelu = Activation::gelu(12)?.apply(evaluator, &product).await?;
    let softmax = Softmax::new(Rows::ragged(vec![1, 9, 2, 23])?, 12)?.apply(evaluator, &x, ring).await?;
    let tanh = Tanh::new(12)?.apply(evaluator, &x).await?;
    let (gelu, (softmax, tanh)) =
        join(evaluator.open(gelu), join(evaluator.open(softmax), evaluator.open(tanh))).await?;
    let piece = |start: u64| Payload { start, words: vec![start + 3, 5] };
    let pieces: Vec<Payload> = [0, 77, 1 << 13, 1 << 49].map(piece).to_vec();
    let line = evaluator.piecewise(&x, &pieces, ring).await?;
    let line = evaluator.open(evaluator.polynomial(&line, 0, 1, &x, Bound::unsigned(ring))?).await?;
    let sums = x.column_sums(WIDTH, Bound::proved(-(40 << 12), 40 << 12))?;
    let all = Wire::concat(&[&gelu, &softmax, &tanh, &sums])?;
    let revealed = [evaluator.reveal(&all, Party::One)?, evaluator.reveal(&line, Party::One)?];
    Ok(revealed.into_iter().flatten().reduce(|all, line| [all, line].concat()))
}

fn inputs() -> [Inputs; 2] {
    let ring = format().ring;
    let wave = |len: usize, height: f64| {
        let word = |i: usize| ring.encode(((i as f64 * 0.77 + 0.3).sin() * height) as i128);
        Some((0..len).map(word).collect::<Vec<u64>>())
    };
    let (x, gain, matrix) = (wave(LEN, 20_000.0), wave(WIDTH, 5_000.0), wave(WIDTH * WIDTH, 7_000.0));
    [vec![None, gain, matrix], vec![x, None, None]]
}

fn in_clear() -> Vec<u64> {
    let [zero, one] = inputs();
    let all = zero.into_iter().zip(one).map(|(zero, one)| zero.or(one)).collect();
    run_clear(&everything, all).unwrap().output.unwrap()
}

fn cpu() -> Arc<dyn Backend> {
    Arc::new(CpuBackend)
}

#[test]
fn every_pair_of_backends_gives_the_clear_result() {
    let expected = in_clear();
    let opaque = Arc::new(Opaque::new());
    let other: Arc<dyn Backend> = opaque.clone();
    for backends in [[cpu(), other.clone()], [other.clone(), cpu()], [other.clone(), other.clone()]] {
        let [zero, one] = run_in_process_on(backends, format(), everything, inputs()).unwrap();
        assert_eq!(one.output.as_ref(), Some(&expected));
        assert_eq!(zero.output, None);
    }
    drop(other);
    assert_eq!(opaque.kept(), 0, "everything was let go of");
}

fn emulated() -> (Device, Arc<dyn Backend>) {
    let device = Device::emulated(5).unwrap();
    let backend = backend_on(&Target::Gpu(device.clone())).unwrap();
    (device, backend)
}

#[test]
fn every_pair_with_the_emulated_device_gives_the_clear_result() {
    let expected = in_clear();
    let (device, emulated) = emulated();
    let another = backend_on(&Target::Gpu(device.clone())).unwrap();
    for backends in [[cpu(), emulated.clone()], [emulated.clone(), cpu()], [emulated, another]] {
        let [zero, one] = run_in_process_on(backends, format(), everything, inputs()).unwrap();
        assert_eq!(one.output.as_ref(), Some(&expected));
        assert_eq!(zero.output, None);
    }
    assert_eq!(device.budget().held(), 0, "everything was let go of");
}

#[test]
fn a_dealer_on_another_backend_deals_the_same_keys() {
    deals_the_same_keys(Arc::new(Opaque::new()));
}

#[test]
fn a_dealer_on_the_emulated_device_deals_the_same_keys() {
    deals_the_same_keys(emulated().1);
}

fn deals_the_same_keys(other: Arc<dyn Backend>) {
    let circuits = [everything];
    let dealt = [cpu(), other].map(|backend| {
        let mut randomness = Randomness::insecure_from_seed_for_tests(4);
        deal_on(&backend, &mut randomness, format(), &circuits).unwrap()
    });
    let [ours, theirs] = dealt;
    // Party 0's keys of one deal and party 1's of the other work together only if they are the same.
    let [zero_keys, _] = ours.streams;
    let [_, one_keys] = theirs.streams;
    let plan = Plan::new(Limits::default(), &[estimate(&everything).unwrap()]);
    let [zero_inputs, one_inputs] = inputs();
    let [mut zero, mut one] = MemoryChannel::pair();
    let output = thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let jobs = vec![(&circuits[0], zero_inputs)];
            evaluate(Party::Zero, zero_keys, &cpu(), &mut zero, &plan, jobs).map(|_| ())
        });
        let jobs = vec![(&circuits[0], one_inputs)];
        let mut outputs = evaluate(Party::One, one_keys, &cpu(), &mut one, &plan, jobs).unwrap();
        peer.join().unwrap().unwrap();
        outputs.remove(0).output
    });
    assert_eq!(output, Some(in_clear()));
}

/// Several super-batches, whose messages leave late.
#[test]
fn super_batches_of_a_late_backend_stay_in_step() {
    super_batches_stay_in_step(Arc::new(Opaque::new()));
}

#[test]
fn super_batches_on_the_emulated_device_stay_in_step() {
    super_batches_stay_in_step(emulated().1);
}

fn super_batches_stay_in_step(backend: Arc<dyn Backend>) {
    let circuits = [everything, everything, everything];
    let dealt = deal_on(&cpu(), &mut Randomness::from_os().unwrap(), format(), &circuits).unwrap();
    let plan = Plan::new(Limits { jobs: 1, ..Limits::default() }, &dealt.costs());
    assert_eq!(plan.batches().len(), 3);
    let [zero_keys, one_keys] = dealt.streams;
    let [mut zero, mut one] = MemoryChannel::pair();
    let jobs = |party: usize| circuits.iter().map(|circuit| (circuit, inputs()[party].clone())).collect();
    let outputs = thread::scope(|scope| {
        let peer =
            scope.spawn(|| evaluate(Party::Zero, zero_keys, &cpu(), &mut zero, &plan, jobs(0)).map(|_| ()));
        let outputs = evaluate(Party::One, one_keys, &backend, &mut one, &plan, jobs(1)).unwrap();
        peer.join().unwrap().unwrap();
        outputs
    });
    let expected = in_clear();
    assert!(outputs.into_iter().all(|local| local.output.as_ref() == Some(&expected)));
}

/// A budget that is too small, by a little and by much.
#[test]
fn a_device_without_room_is_an_error_and_the_next_run_works() {
    let (device, emulated) = emulated();
    let run = || run_in_process_on([emulated.clone(), cpu()], format(), everything, inputs());
    let expected = run().unwrap()[1].output.clone();
    let (peak, usual) = (device.budget().peak(), device.budget().limit());
    for part in 1..=6 {
        device.budget().set_limit(peak * part / 7);
        let error = run().err().unwrap();
        let out_of_memory = matches!(error, Error::Device(gatework_gpu::Error::OutOfMemory { .. }));
        assert!(out_of_memory, "{part} sevenths of {peak} bytes: {error}");
    }
    device.budget().set_limit(usual);
    assert_eq!(run().unwrap()[1].output, expected);
    drop(emulated);
    assert_eq!(device.budget().held(), 0, "everything was let go of");
}

/// A peer that says nothing.
struct Silent;

impl Channel for Silent {
    fn send(&mut self, _: Message) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        Err(Error::Closed)
    }
}

#[test]
fn a_failure_lets_go_of_everything() {
    let opaque = Arc::new(Opaque::new());
    ends_with_a_silent_peer(opaque.clone());
    assert_eq!(opaque.kept(), 0);
    let (device, emulated) = emulated();
    ends_with_a_silent_peer(emulated);
    assert_eq!(device.budget().held(), 0);
}

fn ends_with_a_silent_peer(backend: Arc<dyn Backend>) {
    let circuits = [everything];
    let dealt = deal_on(&cpu(), &mut Randomness::from_os().unwrap(), format(), &circuits).unwrap();
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let [zero_keys, _] = dealt.streams;
    let [zero_inputs, _] = inputs();
    let jobs = vec![(&circuits[0], zero_inputs)];
    let ended = evaluate(Party::Zero, zero_keys, &backend, &mut Silent, &plan, jobs);
    assert!(matches!(ended, Err(Error::Closed)));
}

#[test]
fn words_of_another_backend_are_refused() {
    let ring = Ring::new(20).unwrap();
    // Weights that were masked on one backend and are used on another.
    let made = async |evaluator: &Evaluator| evaluator.weights(Party::Zero, ring, 4, -100..=100).await;
    let words = Some(vec![1, 2, 3, 4]);
    let [ours, _] = run_in_process_on([cpu(), cpu()], format(), made, [vec![words], vec![None]]).unwrap();
    let weights = ours.output;
    let used = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, ring, 4, 0..=1).await?;
        let sum = x.plus(weights.wire())?;
        evaluator.reveal(&sum, Party::One)
    };
    assert!(used.format().is_none());
    let opaque: Arc<dyn Backend> = Arc::new(Opaque::new());
    let ended =
        run_in_process_on([opaque.clone(), opaque], format(), used, [vec![None], vec![Some(vec![0; 4])]]);
    assert!(matches!(ended, Err(Error::OtherBackend)));
}
