//! The tuner on a made-up space with a made-up clock: no device, no noise, a known optimum.

use std::collections::BTreeMap;
use std::path::Path;

use gatework_gpu::{Device, Kind};
use gatework_lab::stats::{CONFIDENCE, Interval, Verdict, WITHIN_RUN};
use gatework_lab::tune::{
    Conclusion, Configuration, Evaluator, HeldOut, Limits, Rejection, Score, Search, Space, Strategy,
    TrialOutcome, TuneStop, TuningRecord, TuningState, tune,
};
use gatework_lab::{check_case, runtime};

fn space() -> Space {
    Space::new()
        .macro_choice("way", ["rows", "tiles", "stream"])
        .micro("side", [1, 2, 4, 8, 16, 32])
        .micro("stages", [1, 2, 3, 4, 5, 6])
        .constraint("fits", |found| found.integer("side") * found.integer("stages") <= 96)
}

fn default() -> Configuration {
    Configuration::default().with("way", "rows").with("side", 1).with("stages", 1)
}

/// The optimum of what is right: tiles, 16, 4.
fn true_time(found: &Configuration) -> f64 {
    let way = match found.choice("way") {
        "rows" => 3.0,
        "tiles" => 1.0,
        _ => 0.5,
    };
    let off =
        (found.integer("side") as f64 / 16.0).log2().abs() + (found.integer("stages") - 4).abs() as f64 / 4.0;
    way + off
}

fn ratio(of: f64) -> Interval {
    Interval { estimate: of, low: of, high: of, confidence: CONFIDENCE }
}

/// Remembers what it was asked.
#[derive(Default)]
struct Fake {
    checked: Vec<Configuration>,
    timed: BTreeMap<String, usize>,
    judged: usize,
    /// The winner on held-out shapes, over the default.
    held_out: f64,
}

impl Evaluator for Fake {
    /// The stages of "rows" are ignored by its compiler.
    fn identify(&mut self, found: &Configuration) -> Result<String, Rejection> {
        if found.integer("side") == 2 {
            return Err(Rejection { gate: "compile".into(), why: "2 is no side".into() });
        }
        let program =
            if found.choice("way") == "rows" { found.clone().with("stages", 0) } else { found.clone() };
        Ok(program.to_string())
    }

    /// "stream" is the fastest of all, and wrong.
    fn check(&mut self, found: &Configuration) -> Result<(), Rejection> {
        self.checked.push(found.clone());
        if found.choice("way") == "stream" {
            return Err(Rejection { gate: "correctness".into(), why: "a lost element".into() });
        }
        Ok(())
    }

    fn time(&mut self, found: &Configuration) -> Result<Score, Rejection> {
        assert_ne!(found.choice("way"), "stream", "an incorrect configuration was timed");
        assert!(self.checked.contains(found), "{found} was timed before it was checked");
        let program = self.identify(found)?;
        *self.timed.entry(program).or_default() += 1;
        let time = true_time(found);
        Ok(Score { ratio: time, cases: vec![("training".into(), ratio(time))] })
    }

    fn judge(&mut self, _: &Configuration, _: &Configuration) -> Result<Vec<HeldOut>, Rejection> {
        self.judged += 1;
        let ratio = Some(ratio(self.held_out));
        Ok(vec![HeldOut { case: "unseen".into(), ratio, verdict: Verdict::of(ratio, WITHIN_RUN) }])
    }
}

fn search(strategy: Strategy, seed: u64) -> Search {
    Search::new(space(), default(), strategy, seed, 5)
}

fn fresh(search: &Search) -> TuningState {
    TuningState::new("test/space", "a device", vec!["ab".into()], search)
}

fn run(
    search: &Search,
    fake: &mut Fake,
    state: &mut TuningState,
    evaluations: Option<usize>,
) -> TuningRecord {
    tune(search, fake, state, Limits { evaluations, time: None }, &mut |_| Ok(())).unwrap()
}

fn evolve(seed: u64, evaluations: usize) -> (TuningRecord, Fake) {
    let search = search(Strategy::Evolution, seed);
    let mut fake = Fake { held_out: 0.5, ..Fake::default() };
    let record = run(&search, &mut fake, &mut fresh(&search), Some(evaluations));
    (record, fake)
}

fn optimum() -> Configuration {
    Configuration::default().with("way", "tiles").with("side", 16).with("stages", 4)
}

#[test]
fn exhaustive_search_finds_the_optimum_and_ends() {
    let search = search(Strategy::Exhaustive, 0);
    let mut fake = Fake { held_out: 0.5, ..Fake::default() };
    let record = run(&search, &mut fake, &mut fresh(&search), None);
    assert_eq!(
        (record.stopped, record.trials.len()),
        (TuneStop::Exhausted, space().configurations().count())
    );
    assert_eq!((record.elite[0].configuration.clone(), record.best()), (optimum(), &optimum()));
    assert_eq!(record.elite.len(), 5);
    assert!(record.elite.is_sorted_by(|left, right| left.ratio <= right.ratio));
}

#[test]
fn evolution_finds_the_optimum_with_half_of_the_trials() {
    let all = space().configurations().count();
    let found = (0..20).filter(|&seed| evolve(seed, all / 2).0.elite[0].configuration == optimum()).count();
    assert!(found >= 18, "{found} of 20 seeds");
}

#[test]
fn a_wrong_configuration_is_tried_and_never_timed() {
    let (record, fake) = evolve(1, 50);
    let wrong = record.trials.iter().filter(|trial| trial.configuration.choice("way") == "stream");
    let rejected = |outcome: &TrialOutcome| matches!(outcome, TrialOutcome::Rejected { rejection } if ["correctness", "compile"].contains(&rejection.gate.as_str()));
    assert!(wrong.clone().count() > 0 && wrong.clone().all(|trial| rejected(&trial.outcome)));
    assert!(fake.timed.keys().all(|program| !program.contains("stream")));
}

#[test]
fn identical_programs_are_timed_once_and_reported_as_one() {
    let search = search(Strategy::Exhaustive, 0);
    let mut fake = Fake { held_out: 1.0, ..Fake::default() };
    let record = run(&search, &mut fake, &mut fresh(&search), None);
    assert!(fake.timed.values().all(|&times| times == 1), "{:?}", fake.timed);
    let same = record.trials.iter().find(|trial| trial.configuration == default().with("stages", 3)).unwrap();
    assert_eq!(same.outcome, TrialOutcome::SameAs { trial: 0 });
    let rows = search_member(&record, "rows");
    assert!(rows.is_none_or(|also| also == 5), "six numbers of stages are one program");
}

/// Other configurations of the first elite member that goes that way.
fn search_member(record: &TuningRecord, way: &str) -> Option<usize> {
    record
        .elite
        .iter()
        .find(|member| member.configuration.choice("way") == way)
        .map(|member| member.also.len())
}

#[test]
fn a_search_that_was_stopped_goes_on_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let search = search(Strategy::Evolution, 3);
    let whole = evolve(3, 40).0;

    let mut state = fresh(&search);
    let limits = Limits { evaluations: Some(13), time: None };
    let mut fake = Fake { held_out: 0.5, ..Fake::default() };
    tune(&search, &mut fake, &mut state, limits, &mut |state| state.write(&file)).unwrap();

    let mut resumed = fresh(&search).resumed_from(&file).unwrap();
    assert_eq!(resumed.trials.len(), 13);
    let mut fake = Fake { held_out: 0.5, ..Fake::default() };
    let record = run(&search, &mut fake, &mut resumed, Some(40));
    assert_eq!((record.elite, record.trials), (whole.elite, whole.trials));
    assert_eq!(fake.timed.values().sum::<usize>(), record_timed(&resumed, 13), "nothing is timed again");
}

fn record_timed(state: &TuningState, from: usize) -> usize {
    state.trials[from..].iter().filter(|trial| trial.score().is_some()).count()
}

#[test]
fn a_state_of_another_search_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let search = search(Strategy::Evolution, 3);
    fresh(&search).write(&file).unwrap();
    let refusal = |state: TuningState| state.resumed_from(&file).unwrap_err().to_string();
    let other_device = TuningState::new("test/space", "another", vec!["ab".into()], &search);
    assert!(refusal(other_device).contains("its device is a device, not another"));
    let other_kernel = TuningState::new("test/space", "a device", vec!["cd".into()], &search);
    assert!(refusal(other_kernel).contains("the kernels have changed"));
    std::fs::write(&file, "{").unwrap();
    assert!(refusal(fresh(&search)).contains("remove it or name another"));
    assert!(fresh(&search).resumed_from(Path::new("no/such/file")).unwrap().trials.is_empty());
}

#[test]
fn the_winner_is_judged_on_what_it_never_saw() {
    let conclusion = |held_out: f64| {
        let search = search(Strategy::Exhaustive, 0);
        let mut fake = Fake { held_out, ..Fake::default() };
        let record = run(&search, &mut fake, &mut fresh(&search), None);
        assert_eq!(fake.judged, 1);
        (matches!(record.conclusion, Conclusion::WinnerBeatsDefault { .. }), record.best().clone())
    };
    assert_eq!(conclusion(0.9), (true, optimum()));
    assert_eq!(conclusion(1.0), (false, default()));
    assert_eq!(conclusion(1.1), (false, default()));
}

#[test]
fn a_default_that_wins_stays_without_a_judgement() {
    let search = Search::new(space(), optimum(), Strategy::Exhaustive, 0, 5);
    let mut fake = Fake::default();
    let record = run(&search, &mut fake, &mut fresh(&search), None);
    assert!(
        matches!(&record.conclusion, Conclusion::DefaultStays { why, .. } if why.contains("faster than the default"))
    );
    assert_eq!((fake.judged, record.best()), (0, &optimum()));
}

#[test]
fn every_configuration_of_the_transpose_is_right_on_every_kind_of_case() {
    let workloads = runtime::workloads();
    let workload = workloads.iter().find(|workload| workload.name() == "gpu/transpose").unwrap();
    let tunable = workload.tunable().unwrap();
    let device = Device::emulated(0).unwrap();
    let space = tunable.space();
    assert!(space.contains(&tunable.default_configuration()));
    for configuration in space.configurations() {
        let configured = tunable.configured(&configuration);
        let cases = [tunable.training_cases(Kind::Emulated), tunable.held_out_cases(Kind::Emulated)].concat();
        for case in cases {
            let outcome = check_case(configured.as_ref(), &device, &case, 0).outcome;
            assert!(outcome.is_passed(), "{configuration} {}: {outcome}", case.name);
        }
    }
    let held_out = tunable.held_out_cases(Kind::Cuda);
    assert!(tunable.training_cases(Kind::Cuda).iter().all(|case| !held_out.contains(case)));
}
