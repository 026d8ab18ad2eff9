//! A transformer that learns on the emulated device, against the one on the CPU.

use std::sync::Arc;

use gatework_gpu::Stream;

use super::{stream, upload};
use crate::cuda::pass::{Frozen, Pass, Weights};
use crate::cuda::trainee::shards_of;
use crate::cuda::{DeviceTrainee, ProductsBy, mixed};
use crate::data::{Data, Text, Tokens, digits};
use crate::network::{Architecture, Transformer, transformer};
use crate::optimiser::{Method, OptimiserOptions};
use crate::random::Random;
use crate::trainee::{Step, Trainee, Which};
use crate::{Native, NativeOptions, NativeSnapshot};

const VOCABULARY: usize = 29;

/// Tokens, each of which depends on the one before.
fn text() -> Arc<Text> {
    let mut random = Random::new(1, "chain");
    let mut tokens = |count: usize| -> Vec<u16> {
        let mut token = 0;
        let mut next = || {
            token =
                if random.below(10) == 0 { random.below(VOCABULARY) } else { (5 * token + 3) % VOCABULARY };
            token as u16
        };
        (0..count).map(|_| next()).collect()
    };
    let tokens = Tokens::new(VOCABULARY as u32, tokens(400), tokens(80)).unwrap();
    Arc::new(Text::new(tokens, 3))
}

fn options(context: usize, sides: [usize; 3], batch: usize) -> NativeOptions {
    let architecture = Architecture::Transformer(Transformer::new(VOCABULARY, context, sides).unwrap());
    let optimiser = OptimiserOptions { clip: 1.0, ..OptimiserOptions::default() };
    NativeOptions { architecture, optimiser, average_decay: 0.98, batch, seed: 1 }
}

fn tiny() -> NativeOptions {
    options(6, [16, 2, 2], 5)
}

fn with_muon() -> NativeOptions {
    let options = tiny();
    NativeOptions { optimiser: OptimiserOptions { method: Method::Muon, ..options.optimiser }, ..options }
}

fn trainee_on(stream: &Stream, options: NativeOptions) -> crate::Result<DeviceTrainee> {
    DeviceTrainee::new(stream, options, &text().into(), ProductsBy::Own)
}

fn trainee(seed: u64) -> DeviceTrainee {
    trainee_on(&stream(seed), tiny()).unwrap()
}

/// How far apart two lists are, over the length of the second.
fn apart(found: &[f32], wanted: &[f32]) -> f64 {
    let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = length(&mut found.iter().zip(wanted).map(|(a, b)| f64::from(a - b)));
    difference / length(&mut wanted.iter().map(|x| f64::from(*x)))
}

/// Gradients of every matrix and every vector, on the device and on the CPU, with all that is not of the first
/// `frozen` groups.
#[test]
fn gradients_match_cpu_within_bf16() {
    // Sizes that can be read in groups and odd ones; windows of one token; more than one tile.
    let cases = [
        (8, [16, 2, 2], 3, 0),
        (7, [10, 2, 2], 2, 0),
        (1, [8, 1, 4], 2, 0),
        (70, [8, 1, 1], 1, 0),
        (8, [16, 2, 2], 2, 2),
    ];
    for (seed, (context, sides, windows, frozen)) in (0..).zip(cases) {
        let options = options(context, sides, windows);
        let architecture = &options.architecture;
        let shape = architecture.transformer().unwrap();
        let cut = text().cut(context).unwrap();
        // Larger than at the start, so that every part has its say.
        let weights: Vec<f32> =
            architecture.initial(3).iter().map(|w| if *w == 1.0 { 1.0 } else { 6.0 * w }).collect();
        let indices: Vec<u32> = (0..windows as u32).map(|window| 11 * window).collect();
        let mut wanted = vec![0.0; weights.len()];
        let tally =
            transformer::Pass::new(shape, windows).learn(&weights, &cut.train, &indices, frozen, &mut wanted);
        let stream = stream(seed);
        let tokens = |of: fn(&crate::data::Windows, usize) -> &[u16]| -> Vec<u32> {
            indices.iter().flat_map(|i| of(&cut.train, *i as usize)).map(|token| u32::from(*token)).collect()
        };
        // Room for one more window than there is, and logits of some tokens at a time.
        let mut pass = Pass::with_chunks(&stream, shape, windows + 1, ProductsBy::Own, 9).unwrap();
        let (master, mut rounded) = (upload(&stream, &weights), stream.alloc(weights.len()).unwrap());
        mixed::round(&stream, &master, &mut rounded).unwrap();
        let there = Weights { master: &master, rounded: &rounded };
        let mut gradient = stream.alloc_zeros(weights.len()).unwrap();
        pass.forward(there, tokens(crate::data::Windows::inputs)).unwrap();
        let embedding = if frozen > 0 { Frozen::Embedding } else { Frozen::Nothing };
        let targets = tokens(crate::data::Windows::targets);
        let found = pass.judge(there, &targets, 1.0, Some((&mut gradient, embedding))).unwrap();
        pass.back(there, frozen, &mut gradient).unwrap();
        let loss: f64 = found.losses.iter().map(|loss| f64::from(*loss)).sum();
        assert!((loss - tally.loss).abs() < 5e-3 * tally.loss, "{loss} {}", tally.loss);
        let found = stream.download(&gradient).unwrap();
        for parameters in architecture.parameters() {
            for range in [parameters.matrix.clone(), parameters.bias.clone()] {
                let (found, wanted) = (&found[range.clone()], &wanted[range.clone()]);
                let what =
                    format!("{context} {sides:?}, frozen {frozen}: group {} at {range:?}", parameters.layer);
                if parameters.layer < frozen || wanted.iter().all(|x| *x == 0.0) {
                    assert!(found.iter().all(|x| *x == 0.0), "{what}");
                } else {
                    assert!(apart(found, wanted) < 0.025, "{what}: {}", apart(found, wanted));
                }
            }
        }
        // Rows that stand for no token, so that they stay zero.
        let rows = VOCABULARY * shape.width()..VOCABULARY.next_multiple_of(64) * shape.width();
        assert!(found[rows].iter().all(|x| *x == 0.0));
    }
}

#[test]
fn the_first_loss_is_that_of_guessing_and_it_falls_as_on_the_cpu() {
    falls_as_on_the_cpu(tiny());
}

#[test]
fn it_falls_as_on_the_cpu_with_muon() {
    falls_as_on_the_cpu(with_muon());
}

fn falls_as_on_the_cpu(options: NativeOptions) {
    let mut there = trainee_on(&stream(1), options.clone()).unwrap();
    let mut here = Native::new(options, text()).unwrap();
    let step = Step { measure: true, ..Step::full(1e-2) };
    let mut last = (0.0, 0.0);
    for number in 0..12 {
        let (found, wanted) = (there.step(&step).unwrap(), here.step(&step).unwrap());
        if number == 0 {
            assert!((found.loss - (VOCABULARY as f64).ln()).abs() < 0.2, "{}", found.loss);
            let (found, wanted) = (found.statistics.unwrap(), wanted.statistics.unwrap());
            for (found, wanted) in found.groups.iter().zip(&wanted.groups) {
                assert_eq!(found.parameters, wanted.parameters);
                for (found, wanted) in [(found.gradient, wanted.gradient), (found.weight, wanted.weight)] {
                    assert!((found - wanted).abs() < 0.05 * wanted, "{found} {wanted}");
                }
            }
            assert_eq!(found.groups.len(), wanted.groups.len());
            // Two shards of so few windows may disagree completely.
            let agree = found.noise_scale == wanted.noise_scale
                || (found.noise_scale / wanted.noise_scale - 1.0).abs() < 0.2;
            assert!(agree, "{found:?}\n{wanted:?}");
        }
        last = (found.loss, wanted.loss);
    }
    assert!(last.0 < 3.0 && (last.0 - last.1).abs() < 0.05, "{last:?}");
    for which in [Which::Trained, Which::Averaged] {
        let (found, wanted) = (there.evaluate(which).unwrap(), here.evaluate(which).unwrap());
        assert!((found.loss - wanted.loss).abs() < 0.05, "{found:?} {wanted:?}");
        let (found, wanted) = (there.probe(which).unwrap(), here.probe(which).unwrap());
        assert_eq!((found.parts.len(), wanted.parts.len()), (3, 3));
        assert!(
            found.parts.iter().zip(&wanted.parts).all(|(a, b)| (a - b).abs() < 0.1),
            "{found:?} {wanted:?}"
        );
    }
}

#[test]
fn a_restored_snapshot_goes_on_bit_for_bit_under_another_schedule() {
    goes_on_bit_for_bit(&tiny());
}

#[test]
fn one_of_muon_goes_on_bit_for_bit() {
    goes_on_bit_for_bit(&with_muon());
}

fn goes_on_bit_for_bit(options: &NativeOptions) {
    let trainee = |seed: u64| trainee_on(&stream(seed), options.clone()).unwrap();
    let step = Step::full(3e-3);
    let losses = |trainee: &mut DeviceTrainee| -> Vec<u64> {
        (0..3).map(|_| trainee.step(&step).unwrap().loss.to_bits()).collect()
    };
    let mut whole = trainee(1);
    losses(&mut whole);
    let saved = whole.snapshot().unwrap();
    // In the memory of an older one it is the same.
    let mut older = trainee(3).snapshot().unwrap();
    assert!(older != saved);
    whole.snapshot_into(&mut older).unwrap();
    assert!(older == saved);
    let bytes = postcard::to_stdvec(&saved).unwrap();
    let after = losses(&mut whole);
    let end = whole.snapshot().unwrap();
    let read: NativeSnapshot = postcard::from_bytes(&bytes).unwrap();
    let mut resumed = trainee(2);
    resumed.restore(&read).unwrap();
    // A probe between two steps changes nothing.
    resumed.probe(Which::Averaged).unwrap();
    assert_eq!(losses(&mut resumed), after);
    assert!(resumed.snapshot().unwrap() == end);
    // Measuring does not either, and a rollback sees other batches.
    resumed.restore(&read).unwrap();
    let measured = resumed.step(&Step { measure: true, ..step }).unwrap();
    assert_eq!(measured.loss.to_bits(), after[0]);
    whole.roll_back(&read).unwrap();
    assert_eq!(whole.weights().unwrap(), read.weights());
    assert_ne!(losses(&mut whole), after);
    whole.restore(&read).unwrap();
    whole.step(&step).unwrap();
    assert!(whole.weights().unwrap() == resumed.weights().unwrap());
    // The CPU goes on from it in single precision.
    let mut here = Native::new(options.clone(), text()).unwrap();
    here.restore(&read).unwrap();
    let loss = here.step(&step).unwrap().loss;
    assert!((loss - f64::from_bits(after[0])).abs() < 0.02, "{loss}");
}

#[test]
fn frozen_groups_stay_and_combinations_have_the_bits_of_the_cpu() {
    let mut trainee = trainee_on(&stream(3), with_muon()).unwrap();
    trainee.step(&Step::full(3e-3)).unwrap();
    let ends: Vec<usize> = trainee
        .groups()
        .iter()
        .scan(0, |end, group| {
            *end += group.parameters;
            Some(*end)
        })
        .collect();
    for frozen in [1, 2, ends.len()] {
        let before = trainee.weights().unwrap();
        let taken = trainee.step(&Step { frozen, measure: true, share: 0.5, ..Step::full(3e-3) }).unwrap();
        let (moved, end) = (trainee.weights().unwrap(), ends[frozen - 1]);
        assert_eq!(moved[..end], before[..end], "{frozen}");
        assert!(frozen == ends.len() || moved[end..] != before[end..], "{frozen}");
        let groups = taken.statistics.unwrap().groups;
        assert_eq!(groups.iter().filter(|sums| sums.parameters == 0.0).count(), frozen);
    }
    let first = trainee.weights().unwrap();
    trainee.step(&Step::full(1e-2)).unwrap();
    let second = trainee.weights().unwrap();
    trainee.combine(&[(0.25, &first), (0.75, &second)]).unwrap();
    let wanted: Vec<f32> = first.iter().zip(&second).map(|(a, b)| 0.0 + 0.25 * a + 0.75 * b).collect();
    assert_eq!(trainee.weights().unwrap(), wanted);
    let said = trainee.combine(&[(1.0, &vec![0.0; 3])]).unwrap_err().to_string();
    assert!(said.contains("do not fit"), "{said}");
    // What is no number shows in the loss at once, and is gone with a rollback.
    let saved = trainee.snapshot().unwrap();
    trainee.combine(&[(f32::NAN, &second)]).unwrap();
    let taken = trainee.step(&Step::full(1e-3)).unwrap();
    assert!(taken.loss.is_nan() && !taken.gradient.is_finite(), "{taken:?}");
    trainee.roll_back(&saved).unwrap();
    assert!(trainee.step(&Step::full(1e-3)).unwrap().loss.is_finite());
}

#[test]
fn what_a_device_cannot_train_is_refused_with_a_sentence() {
    let said = |options: NativeOptions, data: Data| {
        let refused = DeviceTrainee::new(&stream(0), options, &data, ProductsBy::Own);
        refused.expect_err("it is refused").to_string()
    };
    let layers = NativeOptions { architecture: Architecture::mlp([1, 8, 8], &[4], 10).unwrap(), ..tiny() };
    let splits: Data = Arc::new(digits(200, 1).unwrap()).into();
    assert!(said(layers, splits.clone()).contains("trains on the CPU: only a network of 'model.kind"));
    assert!(said(tiny(), splits).contains("learns from a text"));
    let other = Architecture::Transformer(Transformer::new(28, 6, [16, 1, 1]).unwrap());
    assert!(
        said(NativeOptions { architecture: other, ..tiny() }, text().into())
            .contains("knows 28 tokens, the text has 29")
    );
    let mut trainee = trainee(0);
    let said = trainee.step(&Step { sampled: 3.0, ..Step::full(1e-3) }).unwrap_err().to_string();
    assert!(said.contains("'engine.options.sampled' is 3"), "{said}");
    assert!(
        trainee.fingerprint().contains("in bf16 on the emulated device with kernels by "),
        "{}",
        trainee.fingerprint()
    );
}

#[test]
fn memory_is_planned_and_what_does_not_fit_is_an_error_with_numbers() {
    let mut plans = Vec::new();
    for options in [tiny(), with_muon()] {
        let there = stream(0);
        let planned: usize = DeviceTrainee::bytes(&options, ProductsBy::Own).unwrap().iter().sum();
        let mut trainee = trainee_on(&there, options.clone()).unwrap();
        trainee.step(&Step { measure: true, ..Step::full(1e-3) }).unwrap();
        // What sums are left in on their way is beside it.
        let held = there.device().budget().held() as usize;
        assert!(held >= planned && held < planned + planned / 4, "{held} {planned}");
        drop(trainee);
        there.device().budget().set_limit(planned as u64 / 2);
        let said = trainee_on(&there, options).unwrap_err().to_string();
        assert!(said.contains("of the device's memory") && said.contains("lower 'batch'"), "{said}");
        plans.push(planned);
    }
    // A direction of every number; a matrix of 16 x 64 and four squares of 16 x 16 on the way.
    let parameters = tiny().architecture.parameter_count();
    assert_eq!(plans[1] - plans[0], 4 * parameters + 2 * 1024 + 10 * 256);
}

#[test]
fn a_shard_has_no_more_tokens_than_are_meant() {
    for (context, batch) in [(1, 600), (4, 90_000), (64, 16), (1, 1), (1024, 16), (40_000, 3)] {
        let shape = Transformer::new(VOCABULARY, context, [256, 1, 4]).unwrap();
        let [count, windows] = shards_of(&shape, batch);
        assert!(windows == 1 || windows * context <= 16_384, "{context} {batch}");
        assert!(
            count * windows >= batch && count <= batch && (windows - 1) * count < batch,
            "{context} {batch}"
        );
    }
}

#[test]
fn heads_that_no_kernel_takes_are_refused_with_a_way_out() {
    let shape = Transformer::new(VOCABULARY, 4, [300, 1, 2]).unwrap();
    let options = NativeOptions { architecture: Architecture::Transformer(shape), ..tiny() };
    let said = DeviceTrainee::bytes(&options, ProductsBy::Own).unwrap_err().to_string();
    assert!(
        said.contains("heads of 150 numbers") && said.contains("set 'model.heads' to 3 or more"),
        "{said}"
    );
    assert_eq!(trainee_on(&stream(0), options).unwrap_err().to_string(), said);
}
