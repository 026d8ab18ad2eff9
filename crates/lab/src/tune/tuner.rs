//! The loop: propose, gate, time, keep the best, and judge the winner on what it never saw.

use std::time::{Duration, Instant};

use super::evaluation::{Evaluator, try_out};
use super::search::Search;
use super::state::TuningState;
use crate::Result;
use crate::record::tuning::{Conclusion, EliteMember, Rejection, Trial, TuneStop, TuningRecord};
use crate::space::Configuration;
use crate::stats::Verdict;

/// When a search ends, whatever it has found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Trials, those of a resumed state included.
    pub evaluations: Option<usize>,
    /// Time of this run.
    pub time: Option<Duration>,
}

/// Searches until the limits or the end of the space. `after_trial` gets the state after every trial, to keep
/// it.
pub fn tune(
    search: &Search,
    evaluator: &mut dyn Evaluator,
    state: &mut TuningState,
    limits: Limits,
    after_trial: &mut dyn FnMut(&TuningState) -> Result<()>,
) -> Result<TuningRecord> {
    let started = Instant::now();
    let stopped = loop {
        if limits.evaluations.is_some_and(|most| state.trials.len() >= most) {
            break TuneStop::Evaluations;
        }
        if limits.time.is_some_and(|longest| started.elapsed() >= longest) {
            break TuneStop::Time;
        }
        let Some(configuration) = search.propose(&state.trials) else { break TuneStop::Exhausted };
        let trial = try_out(configuration, evaluator, &state.trials);
        state.trials.push(trial);
        after_trial(state)?;
    };
    let elite = elite(search, &state.trials);
    let conclusion = conclude(search, evaluator, &elite);
    Ok(TuningRecord {
        knobs: search.space().knobs().to_vec(),
        constraints: search.space().constraint_names(),
        strategy: search.strategy(),
        seed: search.seed(),
        default: search.default_configuration().clone(),
        trials: state.trials.clone(),
        elite,
        stopped,
        conclusion,
    })
}

fn elite(search: &Search, trials: &[Trial]) -> Vec<EliteMember> {
    let same_program = |of: &Trial| -> Vec<Configuration> {
        let same = trials
            .iter()
            .filter(|other| other.identity == of.identity && other.configuration != of.configuration);
        same.map(|other| other.configuration.clone()).collect()
    };
    search
        .elite(trials)
        .into_iter()
        .filter_map(|(_, trial)| {
            Some(EliteMember {
                configuration: trial.configuration.clone(),
                identity: trial.identity.clone(),
                also: same_program(trial),
                ratio: trial.score()?.ratio,
            })
        })
        .collect()
}

fn conclude(search: &Search, evaluator: &mut dyn Evaluator, elite: &[EliteMember]) -> Conclusion {
    let stays = |why: &str, held_out| Conclusion::DefaultStays { why: why.to_owned(), held_out };
    let default = search.default_configuration();
    let Some(winner) = elite.first() else {
        return stays("no configuration passed its gates", Vec::new());
    };
    if winner.configuration == *default || winner.also.contains(default) {
        return stays("nothing that was tried is faster than the default", Vec::new());
    }
    match evaluator.judge(&winner.configuration, default) {
        Err(Rejection { gate, why }) => {
            stays(&format!("the winner failed on what it never saw: {gate}: {why}"), Vec::new())
        }
        Ok(held_out) => {
            let any = |verdict| held_out.iter().any(|case| case.verdict == verdict);
            match (any(Verdict::Slower), any(Verdict::Faster)) {
                (false, true) => Conclusion::WinnerBeatsDefault { held_out },
                (true, _) => stays("the winner is slower than the default on a shape it never saw", held_out),
                (false, false) => {
                    stays("on shapes it never saw the winner is no faster than the default", held_out)
                }
            }
        }
    }
}
