//! A perceptron of burn, trained by the engine.

#![cfg(feature = "ndarray")]

use std::sync::Arc;

use burn::backend::{Autodiff, NdArray};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::{AutodiffBackend, Backend};
use gatework_foresight::data::digits;
use gatework_foresight::engine::{Engine, EngineOptions};
use gatework_foresight::optimiser::{Decay, OptimiserOptions, Schedule};
use gatework_foresight::world::{Replay, WorldOptions};
use gatework_foresight::{Step, Trainee as _, Trainer, Which};
use gatework_foresight_burn::{BurnOptions, BurnTrainee, Classifier};

type Cpu = Autodiff<NdArray>;

#[derive(Module, Debug)]
struct Perceptron<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
}

impl<B: AutodiffBackend> Classifier<B> for Perceptron<B> {
    fn logits(&self, inputs: Tensor<B, 2>) -> Tensor<B, 2> {
        self.second.forward(relu(self.first.forward(inputs)))
    }
}

fn trainee() -> BurnTrainee<Cpu, Perceptron<Cpu>> {
    let device = Default::default();
    <Cpu as Backend>::seed(&device, 7);
    let model = Perceptron {
        first: LinearConfig::new(64, 32).init(&device),
        second: LinearConfig::new(32, 10).init(&device),
    };
    let options =
        BurnOptions { optimiser: OptimiserOptions::default(), average_decay: 0.98, batch: 64, seed: 1 };
    BurnTrainee::new(model, device, Arc::new(digits(200, 1).unwrap()), options).unwrap()
}

const STEPS: u64 = 300;

fn trainer() -> Trainer<BurnTrainee<Cpu, Perceptron<Cpu>>> {
    let schedule = Schedule { peak: 4e-3, warmup: 20, decay: Decay::Linear, decay_share: 0.2, steps: STEPS };
    let trainee = trainee();
    let options =
        EngineOptions { warmup_steps: 40, explore_every: 1, risk: 10.0, ..EngineOptions::default() };
    let world = WorldOptions { members: 2, hidden: 12, ..WorldOptions::default() };
    let engine = Engine::new(options, world, schedule, Replay::default(), 1, &trainee).unwrap();
    Trainer::new(trainee, Some(engine), schedule)
}

#[test]
fn the_engine_trains_it_and_a_saved_run_goes_on_bit_for_bit() {
    let mut whole = trainer();
    let mut saved = None;
    while !whole.is_finished() {
        whole.advance().unwrap();
        if saved.is_none() && whole.step() > STEPS / 2 {
            saved = Some(whole.save().unwrap());
        }
    }
    let evaluation = whole.trainee().evaluate(Which::Averaged).unwrap();
    assert!(evaluation.accuracy > 0.93, "{evaluation:?}");
    let mut resumed = trainer();
    resumed.restore(saved.unwrap()).unwrap();
    while !resumed.is_finished() {
        resumed.advance().unwrap();
    }
    assert!(resumed.save().unwrap().goes_on_as(&whole.save().unwrap()));
}

#[test]
fn a_frozen_group_keeps_its_weights_and_a_snapshot_comes_back() {
    let mut trainee = trainee();
    assert_eq!(trainee.groups().len(), 2);
    trainee.step(&Step::full(1e-2)).unwrap();
    let (snapshot, before) = (trainee.snapshot().unwrap(), trainee.weights().unwrap());
    let first = trainee.groups()[0].parameters;
    assert_eq!(first, 64 * 32 + 32);
    let taken = trainee.step(&Step { frozen: 1, measure: true, ..Step::full(1e-2) }).unwrap();
    let after = trainee.weights().unwrap();
    assert!(after[..first] == before[..first] && after[first..] != before[first..]);
    let groups = taken.statistics.unwrap().groups;
    assert!(groups[0].gradient == 0.0 && groups[1].gradient > 0.0);
    trainee.restore(&snapshot).unwrap();
    assert_eq!(trainee.snapshot().unwrap(), snapshot);
    let again = trainee.step(&Step { frozen: 1, ..Step::full(1e-2) }).unwrap();
    assert_eq!((again.loss.to_bits(), trainee.weights().unwrap()), (taken.loss.to_bits(), after));
}

/// Burn's gradients, by the loss that a small step along them changes.
#[test]
fn a_step_lowers_the_loss_by_what_its_gradient_says() {
    let mut trainee = trainee();
    let before = trainee.probe(Which::Trained).unwrap().loss;
    (0..30).for_each(|_| drop(trainee.step(&Step::full(3e-3)).unwrap()));
    let after = trainee.probe(Which::Trained).unwrap();
    assert!(after.loss < 0.8 * before, "{before} {}", after.loss);
    assert_eq!(after.parts.len(), 200usize.div_ceil(32));
}
