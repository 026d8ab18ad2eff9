//! `foresight/gru-host`: a step of several gated recurrent units, each with weights of its own.

use gatework_lab::{Case, Inputs, Outputs, RunError, Work};

use super::{Job, Ready};
use crate::workloads::plain::gru;
use crate::world::inside::{Gru, Scratch};
use crate::world::{ACTION, Reset};

/// Numbers that go in beside the state: what a world model of 8 times 8 classes is given.
const INPUTS: usize = 64 + ACTION;

#[derive(Clone, Copy)]
pub(super) struct Step;

fn case(members: usize, hidden: usize, reset: Reset) -> Case {
    let (name, before) = match reset {
        Reset::After => ("after", 0),
        Reset::Before => ("before", 1),
    };
    Case::new(format!("{members}x{hidden}-{name}"))
        .with("members", members)
        .with("hidden", hidden)
        .with("reset_before", before)
}

struct Units {
    gru: Gru,
    hidden: usize,
    reset: Reset,
    /// Parameters, inputs and state of each.
    members: Vec<[Vec<f32>; 3]>,
}

impl Units {
    fn new(case: &Case, seed: u64) -> Self {
        let hidden = case.dimension("hidden");
        let reset = if case.dimension("reset_before") == 1 { Reset::Before } else { Reset::After };
        let mut parameters = 0;
        let gru = Gru::place(INPUTS, hidden, reset, &mut parameters);
        let mut inputs = Inputs::new(seed);
        let scale = 1.0 / (hidden as f32).sqrt();
        let mut member = || {
            let weights = inputs.normal(parameters).into_iter().map(|w| scale * w).collect();
            [weights, inputs.normal(INPUTS), inputs.uniform(hidden, -1.0..1.0)]
        };
        Self { members: (0..case.dimension("members")).map(|_| member()).collect(), gru, hidden, reset }
    }

    fn plain(&self, reset: Reset) -> Outputs {
        let double = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<f64>>();
        let next =
            |[parameters, x, h]: &[Vec<f32>; 3]| gru(parameters, &mut 0, &double(x), &double(h), reset);
        let h: Vec<f32> = self.members.iter().flat_map(next).map(|h| h as f32).collect();
        Outputs::new().with("h", h)
    }
}

impl Job for Step {
    fn name(&self) -> &'static str {
        "foresight/gru-host"
    }

    fn summary(&self) -> &'static str {
        "one step of several gated recurrent units, the reset gate before or after the product"
    }

    fn cases(&self) -> Vec<Case> {
        [(5, 64), (2, 5), (3, 37), (5, 256)]
            .into_iter()
            .flat_map(|(members, hidden)| {
                [Reset::After, Reset::Before].map(|reset| case(members, hidden, reset))
            })
            .collect()
    }

    fn timed(&self) -> Case {
        case(5, 256, Reset::After)
    }

    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError> {
        let units = Units::new(case, seed);
        let mut scratch = Scratch::default();
        Ok(Box::new(move || {
            let mut next = Vec::with_capacity(units.members.len() * units.hidden);
            for [parameters, x, h] in &units.members {
                let mut h = h.clone();
                units.gru.advance(parameters, x, &mut h, &mut scratch);
                next.extend(h);
            }
            Ok(Outputs::new().with("h", next))
        }))
    }

    fn plain(&self, case: &Case, seed: u64) -> Ready {
        let units = Units::new(case, seed);
        Box::new(move || Ok(units.plain(units.reset)))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [1e-5, 5e-5]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready) {
        let units = Units::new(case, seed);
        let other = match units.reset {
            Reset::After => Reset::Before,
            Reset::Before => Reset::After,
        };
        ("the reset gate in the other place", Box::new(move || Ok(units.plain(other))))
    }

    fn work(&self, case: &Case) -> Work {
        let (members, hidden) = (case.dimension("members") as u64, case.dimension("hidden") as u64);
        let weights = members * hidden * (3 * INPUTS as u64 + 3 * hidden + 6);
        Work { operations: 2 * weights, bytes: 4 * (weights + members * (2 * hidden + INPUTS as u64)) }
    }

    fn promise(&self) -> f64 {
        0.5
    }
}
