//! The engine's phases, on a real network whose probes and batches can be tampered with.

use std::cell::Cell;

use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::data::Tokens;
use gatework_foresight::engine::{Action, Alarm, Engine, Event};
use gatework_foresight::{
    Error, Evaluation, Group, Learner, Ledger, NativeSnapshot, Phase, Probe, Result, Step, Taken, Trainee,
    Which,
};

/// A network, some of whose probes and batches are not what they should be.
struct Tampered {
    inner: Learner,
    /// What the probe says, by how often it was asked; the truth where this says nothing.
    probe: fn(u64) -> Option<f64>,
    probes: Cell<u64>,
    /// Whether the batch of this number is bad.
    bad: fn(u64) -> Option<Fault>,
    /// Batches that were drawn: as the data order, it stays where it is on a rollback.
    batches: u64,
}

#[derive(Clone, Copy)]
enum Fault {
    /// Weights and loss become no numbers.
    NotANumber,
    /// Weights and gradient become no numbers, and this batch's loss does not show it.
    Hidden,
    /// The loss is this many times what it is, and the weights are thrown far off.
    Factor(f64),
}

#[derive(Clone, serde::Serialize, serde::Deserialize, PartialEq)]
struct Snapshot(NativeSnapshot, u64);

impl Trainee for Tampered {
    type Snapshot = Snapshot;
    type Weights = Vec<f32>;

    fn fingerprint(&self) -> String {
        self.inner.fingerprint()
    }

    fn groups(&self) -> &[Group] {
        self.inner.groups()
    }

    fn step(&mut self, step: &Step) -> Result<Taken> {
        let mut taken = self.inner.step(step)?;
        let fault = (self.bad)(self.batches);
        self.batches += 1;
        let weights = self.inner.weights()?;
        match fault {
            Some(Fault::NotANumber) => {
                taken.loss = f64::NAN;
                self.inner.combine(&[(f32::NAN, &weights)])?;
            }
            Some(Fault::Hidden) => {
                taken.gradient = f64::INFINITY;
                self.inner.combine(&[(f32::NAN, &weights)])?;
            }
            Some(Fault::Factor(factor)) => {
                taken.loss *= factor;
                self.inner.combine(&[(3.0, &weights)])?;
            }
            None => {}
        }
        Ok(taken)
    }

    fn probe(&self, which: Which) -> Result<Probe> {
        let asked = self.probes.get();
        self.probes.set(asked + 1);
        let said = (self.probe)(asked).map(|loss| Ok(Probe { loss, parts: vec![loss; 7] }));
        said.unwrap_or_else(|| self.inner.probe(which))
    }

    fn evaluate(&self, which: Which) -> Result<Evaluation> {
        self.inner.evaluate(which)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot(self.inner.snapshot()?, self.batches))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.batches = snapshot.1;
        self.inner.restore(&snapshot.0)
    }

    fn roll_back(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.inner.roll_back(&snapshot.0)
    }

    fn weights(&self) -> Result<Vec<f32>> {
        self.inner.weights()
    }

    fn combine(&mut self, terms: &[(f32, &Vec<f32>)]) -> Result<()> {
        self.inner.combine(terms)
    }

    fn step_work(&self) -> f64 {
        self.inner.step_work()
    }

    fn probe_cost(&self) -> f64 {
        self.inner.probe_cost()
    }
}

fn config(actions: &str) -> Config {
    let text = format!(
        "steps = 320\n[model]\nhidden = [24, 16]\n[engine.options]\nwarmup_steps = 48\ndecide_every = 16\nexplore_every = 1\nrisk = 100\npredictor_share = 1\n\
         max_predict_steps = 24\nsnapshot_every = 4\nsafe_every = 20\nactions = {actions}\n[world]\nmembers = 2\n\
         hidden = 12\ncategories = 3\nclasses = 3"
    );
    Config::preset("digits").unwrap().with_text("test", &text).unwrap()
}

const FREEZE: &str = "{ freeze = true, jump = false, stop = false }";
const JUMP: &str = "{ freeze = false, jump = true, stop = false }";
const NOTHING: &str = "{ freeze = false, jump = false, stop = false }";

fn start(
    config: &Config,
    probe: fn(u64) -> Option<f64>,
    bad: fn(u64) -> Option<Fault>,
) -> (Tampered, Engine<Tampered>) {
    let prepared = Prepared::of(config, |_| ()).unwrap();
    let inner = prepared.trainee(config).unwrap();
    let trainee = Tampered { inner, probe, probes: Cell::new(0), bad, batches: 0 };
    let engine = Engine::new(
        config.engine.options,
        config.world,
        config.schedule(),
        prepared.replay,
        config.seed,
        &trainee,
    );
    (trainee, engine.unwrap())
}

#[test]
fn weights_move_in_predict_and_an_accepted_action_stays() {
    // Every probe is better than the one before.
    let (mut trainee, mut engine) =
        start(&config(FREEZE), |asked| Some((-0.5 * asked as f64).exp()), |_| None);
    let mut ledger = Ledger::default();
    let mut phases = vec![engine.phase()];
    let (mut moved, mut kept, mut accepted) = (0usize, 0usize, 0u64);
    while !engine.is_finished() {
        let before = trainee.weights().unwrap();
        let report = engine.tick(&mut trainee, &mut ledger).unwrap();
        if report.phase == Phase::Predict {
            let after = trainee.weights().unwrap();
            let first = trainee.groups()[0].parameters;
            moved += usize::from(after != before);
            kept += usize::from(after[..first] == before[..first]);
        }
        for event in &report.events {
            assert!(!matches!(event, Event::Rejected { .. }), "{event:?}");
            accepted += u64::from(matches!(event, Event::Accepted { action: Action::Freeze { .. }, .. }));
        }
        if phases.last() != Some(&engine.phase()) {
            phases.push(engine.phase());
        }
    }
    assert!(accepted >= 2 && engine.counts().freezes == [accepted, 0], "{:?}", engine.counts());
    let steps = ledger.of(Phase::Predict).steps;
    assert!(steps > 0 && moved as u64 == steps && kept as u64 == steps, "{moved} {kept} {steps}");
    assert_eq!(phases[..4], [Phase::Warmup, Phase::Full, Phase::Predict, Phase::Correct]);
    for pair in phases.windows(2) {
        let allowed = [
            (Phase::Warmup, Phase::Full),
            (Phase::Full, Phase::Predict),
            (Phase::Predict, Phase::Correct),
            (Phase::Correct, Phase::Full),
        ];
        assert!(allowed.contains(&(pair[0], pair[1])), "{pair:?}");
    }
    let total = ledger.total();
    assert_eq!(total.steps, 320);
    // Frozen steps cost less, and probes are counted.
    let frozen = ledger.of(Phase::Predict);
    assert!(frozen.equivalents < 0.95 * frozen.steps as f64, "{frozen:?}");
    assert!(ledger.of(Phase::Correct).equivalents > ledger.of(Phase::Correct).steps as f64);
}

#[test]
fn a_rejected_action_leaves_no_trace_bit_for_bit() {
    for actions in [FREEZE, JUMP] {
        // Every second probe is terrible.
        let (mut trainee, mut engine) =
            start(&config(actions), |asked| Some(if asked % 2 == 0 { 1.0 } else { 50.0 }), |_| None);
        let mut ledger = Ledger::default();
        let (mut before, mut rejected) = (None, 0);
        while !engine.is_finished() {
            let report = engine.tick(&mut trainee, &mut ledger).unwrap();
            for event in &report.events {
                match event {
                    Event::Chosen { .. } => before = Some((trainee.snapshot().unwrap(), engine.step())),
                    Event::Rejected { .. } => {
                        let (snapshot, step) = before.take().unwrap();
                        assert!(trainee.snapshot().unwrap() == snapshot && engine.step() == step);
                        rejected += 1;
                    }
                    other => assert!(!matches!(other, Event::Accepted { .. }), "{other:?}"),
                }
            }
        }
        assert!(rejected > 0, "{actions}");
        // The weights are those of a run that never tried anything.
        let (mut plain, mut guard) = start(&config(NOTHING), |_| None, |_| None);
        while !guard.is_finished() {
            guard.tick(&mut plain, &mut Ledger::default()).unwrap();
        }
        assert!(
            plain.weights().unwrap() == trainee.weights().unwrap()
                && plain.snapshot().unwrap().0 == trainee.snapshot().unwrap().0,
            "{actions}"
        );
    }
}

#[test]
fn without_actions_the_weights_are_those_of_the_plain_loop() {
    let config = config(NOTHING).with_setting("engine.options.sampled=0").unwrap();
    let (mut trainee, mut engine) = start(&config, |_| None, |_| None);
    while !engine.is_finished() {
        engine.tick(&mut trainee, &mut Ledger::default()).unwrap();
    }
    let mut plain = Prepared::of(&config, |_| ()).unwrap().trainee(&config).unwrap();
    for step in 0..config.steps {
        plain.step(&Step::full(config.schedule().rate(step))).unwrap();
    }
    assert_eq!(plain.weights().unwrap(), trainee.weights().unwrap());
}

#[test]
fn an_accepted_jump_is_to_the_mean_of_recent_weights() {
    let (mut trainee, mut engine) = start(&config(JUMP), |asked| Some((-0.9 * asked as f64).exp()), |_| None);
    let mut jumped = 0;
    let mut seen: Vec<Vec<f32>> = Vec::new();
    while !engine.is_finished() {
        let report = engine.tick(&mut trainee, &mut Ledger::default()).unwrap();
        if report.phase == Phase::Predict && report.step.is_none() {
            let mean: Vec<f32> = (0..seen[0].len())
                .map(|i| seen[seen.len() - 6..].iter().fold(0.0, |sum, weights| sum + 1.0 / 6.0 * weights[i]))
                .collect();
            assert_eq!(trainee.weights().unwrap(), mean);
            jumped += 1;
        } else if report.phase != Phase::Predict && report.step.is_some_and(|step| (step + 1) % 4 == 0) {
            seen.push(trainee.weights().unwrap());
        }
    }
    assert!(jumped > 0 && engine.counts().jumps[0] == jumped, "{:?}", engine.counts());
}

/// Faults by the number of the batch: no numbers, a ten-fold loss, and a gradient that is no number.
fn faults(batch: u64) -> Option<Fault> {
    match batch {
        70 | 71 | 200 => Some(Fault::NotANumber),
        130 => Some(Fault::Factor(1e4)),
        // The twentieth step of twenty: the state to roll back to would be of these weights.
        240..=260 if batch % 20 == 3 => Some(Fault::Hidden),
        _ => None,
    }
}

#[test]
fn bad_batches_are_passed_and_the_run_goes_on_at_a_lower_rate() {
    let run = || {
        let (mut trainee, mut engine) = start(&config(NOTHING), |_| None, faults);
        let (mut alarms, mut lowered) = (Vec::new(), 0);
        while !engine.is_finished() {
            let step = engine.step();
            let report = engine.tick(&mut trainee, &mut Ledger::default()).unwrap();
            let full = config(NOTHING).schedule().rate(step);
            lowered += u32::from(report.step.is_some() && report.rate < 0.9 * full);
            for event in report.events {
                if let Event::RolledBack { to, alarm } = event {
                    assert!(to <= step && to % 20 == 0);
                    assert!(trainee.weights().unwrap().iter().all(|w| w.is_finite()));
                    alarms.push(alarm);
                }
            }
        }
        (trainee, alarms, lowered)
    };
    let (trainee, alarms, lowered) = run();
    assert_eq!(alarms.iter().filter(|alarm| **alarm == Alarm::NotANumber).count(), 4, "{alarms:?}");
    assert!(matches!(alarms[2], Alarm::TenFold { .. }), "{alarms:?}");
    assert!(lowered >= 100, "{lowered}");
    let evaluation = trainee.evaluate(Which::Averaged).unwrap();
    assert!(evaluation.accuracy > 0.8, "{evaluation:?}");
    let (again, ..) = run();
    assert_eq!(trainee.weights().unwrap(), again.weights().unwrap());
}

#[test]
fn a_transformer_whose_weights_are_no_numbers_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |count: usize| (0..count).map(|i| (i * i % 61) as u16).collect();
    let tokens = Tokens::new(61, tokens(2000), tokens(100)).unwrap();
    std::fs::write(folder.path().join("text.tokens"), tokens.bytes()).unwrap();
    let text = format!(
        "batch = 6\n[data]\nkind = \"text\"\nprobe = 12\nfolder = {:?}\n[model]\nkind = \"gpt\"\ncontext = 9\n\
         width = 12\nlayers = 1\nheads = 3",
        folder.path().display().to_string()
    );
    let config = config(NOTHING).with_text("text", &text).unwrap();
    let (mut trainee, mut engine) = start(&config, |_| None, faults);
    let mut alarms = Vec::new();
    while !engine.is_finished() {
        let report = engine.tick(&mut trainee, &mut Ledger::default()).unwrap();
        let events = report.events.into_iter();
        alarms.extend(events.filter_map(|event| match event {
            Event::RolledBack { alarm, .. } => Some(alarm),
            _ => None,
        }));
    }
    assert_eq!(alarms.iter().filter(|alarm| **alarm == Alarm::NotANumber).count(), 4, "{alarms:?}");
    let evaluation = trainee.evaluate(Which::Averaged).unwrap();
    assert!(evaluation.loss < 61f64.ln() - 1.0, "{evaluation:?}");
}

#[test]
fn a_run_that_only_diverges_is_given_up_with_a_sentence() {
    let (mut trainee, mut engine) =
        start(&config(NOTHING), |_| None, |batch| (batch > 60).then_some(Fault::NotANumber));
    let error = loop {
        if let Err(error) = engine.tick(&mut trainee, &mut Ledger::default()) {
            break error;
        }
    };
    assert!(matches!(error, Error::Diverged { times: 21, .. }), "{error}");
    assert!(error.to_string().contains("optimiser.learning_rate"));
}

#[test]
fn a_fault_during_an_action_rejects_it_exactly() {
    let (mut trainee, mut engine) = start(
        &config(FREEZE),
        |asked| Some((-0.5 * asked as f64).exp()),
        |batch| (batch == 70).then_some(Fault::NotANumber),
    );
    let mut events = Vec::new();
    while !engine.is_finished() {
        events.extend(engine.tick(&mut trainee, &mut Ledger::default()).unwrap().events);
    }
    let place = |wanted: fn(&Event) -> bool| events.iter().position(wanted);
    let rejected =
        place(|event| matches!(event, Event::Rejected { .. })).expect("the frozen steps hit the batch");
    let rolled_back =
        place(|event| matches!(event, Event::RolledBack { .. })).expect("full steps hit it again");
    assert!(rejected < rolled_back);
    assert!(trainee.weights().unwrap().iter().all(|w| w.is_finite()));
}

/// Backward passes over samples cost less, are counted as what they are, and train as well.
#[test]
fn samples_of_batches_train_for_less() {
    let train = |times: f64| {
        let config = config(NOTHING).with_setting(&format!("engine.options.sampled={times}")).unwrap();
        let (mut trainee, mut engine) = start(&config, |_| None, |_| None);
        let mut ledger = Ledger::default();
        while !engine.is_finished() {
            engine.tick(&mut trainee, &mut ledger).unwrap();
        }
        (ledger.total().equivalents, trainee.evaluate(Which::Averaged).unwrap().loss)
    };
    let ((whole, loss), (sampled, sampled_loss)) = (train(0.0), train(3.0));
    assert_eq!(whole, 320.0);
    assert!(sampled < 0.97 * whole, "{sampled}");
    assert!((sampled_loss / loss).ln().abs() < 0.1, "{sampled_loss} for {loss}");
    assert_eq!(train(3.0), (sampled, sampled_loss));
}

#[test]
fn a_run_whose_actions_all_fail_costs_no_more_than_its_risk() {
    let config = config(FREEZE)
        .with_setting("engine.options.risk=0.05")
        .and_then(|config| config.with_setting("engine.options.sampled=0"))
        .unwrap();
    let (mut trainee, mut engine) =
        start(&config, |asked| Some(if asked % 2 == 0 { 1.0 } else { 50.0 }), |_| None);
    let mut ledger = Ledger::default();
    while !engine.is_finished() {
        engine.tick(&mut trainee, &mut ledger).unwrap();
    }
    let cost = ledger.total().equivalents;
    assert!(engine.counts().freezes[1] > 0 && cost > 320.0, "{cost} {:?}", engine.counts());
    assert!(cost <= 320.0 * 1.05 / (1.0 - 0.05) + 1e-9, "{cost}");
}
