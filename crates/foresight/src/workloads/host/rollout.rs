//! `foresight/rollout-host`: what an ensemble imagines after some ticks that it has seen.

use gatework_lab::{Case, Inputs, Outputs, RunError, Work};

use super::{Job, Ready};
use crate::state::FEATURES;
use crate::workloads::plain::PlainMember;
use crate::world::{ACTION, Ensemble, Reset, Tick, WorldOptions};

/// Ticks that are seen before.
const SEEN: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Rollout;

fn case(members: usize, hidden: usize, ticks: usize, reset: Reset) -> Case {
    let (name, before) = match reset {
        Reset::After => ("after", 0),
        Reset::Before => ("before", 1),
    };
    Case::new(format!("{members}x{hidden}x{ticks}-{name}"))
        .with("members", members)
        .with("hidden", hidden)
        .with("ticks", ticks)
        .with("reset_before", before)
}

struct Told {
    options: WorldOptions,
    ensemble: Ensemble,
    seen: Vec<Tick>,
    actions: Vec<[f32; ACTION]>,
}

impl Told {
    fn new(case: &Case, seed: u64) -> Result<Self, RunError> {
        let reset = if case.dimension("reset_before") == 1 { Reset::Before } else { Reset::After };
        let (members, hidden) = (case.dimension("members"), case.dimension("hidden"));
        let options = WorldOptions { members, hidden, reset, ..WorldOptions::default() };
        let mut inputs = Inputs::new(seed);
        let mut action = || {
            let numbers = inputs.uniform(ACTION, -2.0..2.0);
            std::array::from_fn(|i| numbers[i])
        };
        let actions: Vec<[f32; ACTION]> = (0..SEEN + case.dimension("ticks")).map(|_| action()).collect();
        let (before, ahead) = actions.split_at(SEEN);
        let seen = before
            .iter()
            .map(|&action| Tick { features: inputs.normal(FEATURES), action, level: 0.0 })
            .collect();
        Ok(Self { options, ensemble: Ensemble::new(options, seed)?, seen, actions: ahead.to_vec() })
    }

    fn plain(&self, actions: &[[f32; ACTION]]) -> Outputs {
        let mut members: Vec<PlainMember<'_>> =
            self.ensemble.parameters().map(|member| PlainMember::new(member, self.options)).collect();
        for tick in &self.seen {
            members.iter_mut().for_each(|member| member.observe(&tick.features, &tick.action));
        }
        let mut sums = vec![[0.0; 2]; members.len()];
        let (mut means, mut deviations) = (Vec::new(), Vec::new());
        for action in actions {
            for (sum, member) in sums.iter_mut().zip(&mut members) {
                let [change, variance] = member.imagine(action);
                (sum[0], sum[1]) = (sum[0] + change, sum[1] + variance);
            }
            let count = sums.len() as f64;
            let mean = sums.iter().map(|sum| sum[0]).sum::<f64>() / count;
            let between = sums.iter().map(|sum| (sum[0] - mean).powi(2)).sum::<f64>() / count;
            means.push(mean);
            deviations.push((between + sums.iter().map(|sum| sum[1]).sum::<f64>() / count).sqrt());
        }
        Outputs::new().with("means", means).with("deviations", deviations)
    }
}

impl Job for Rollout {
    fn name(&self) -> &'static str {
        "foresight/rollout-host"
    }

    fn summary(&self) -> &'static str {
        "mean and deviation of the loss that an ensemble imagines, tick by tick"
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            case(5, 64, 50, Reset::After),
            case(2, 16, 7, Reset::Before),
            case(1, 33, 3, Reset::After),
            case(5, 256, 50, Reset::After),
        ]
    }

    fn timed(&self) -> Case {
        case(5, 256, 50, Reset::After)
    }

    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError> {
        let Told { mut ensemble, seen, actions, .. } = Told::new(case, seed)?;
        seen.iter().for_each(|tick| ensemble.observe(tick));
        Ok(Box::new(move || {
            let imagined = ensemble.imagine(&actions);
            Ok(Outputs::new().with("means", imagined.means).with("deviations", imagined.deviations))
        }))
    }

    fn plain(&self, case: &Case, seed: u64) -> Ready {
        let told = Told::new(case, seed);
        Box::new(move || match &told {
            Ok(told) => Ok(told.plain(&told.actions)),
            Err(error) => Err(error.to_string().into()),
        })
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-4, 5e-4]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready) {
        let told = Told::new(case, seed);
        let wrong = move || match &told {
            Ok(told) => Ok(told.plain(&vec![told.actions[0]; told.actions.len()])),
            Err(error) => Err(error.to_string().into()),
        };
        ("the first action for all ticks", Box::new(wrong))
    }

    fn work(&self, case: &Case) -> Work {
        let [members, hidden, ticks] = ["members", "hidden", "ticks"].map(|name| case.dimension(name) as u64);
        let stochastic = 64;
        let of_gru = hidden * (3 * (stochastic + ACTION as u64) + 3 * hidden + 6);
        let heads = (hidden + 1) * stochastic + 2 * (hidden + stochastic + 1);
        let weights = members * (of_gru + heads);
        Work { operations: 2 * ticks * weights, bytes: 4 * (weights + members * (hidden + stochastic)) }
    }

    fn promise(&self) -> f64 {
        0.5
    }
}
