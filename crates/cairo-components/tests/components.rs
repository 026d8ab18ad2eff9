//! The constraints of every component of `cairo-air`, on the emulated device and as `SimdBackend` has them.

#[path = "../../stark/tests/support/mod.rs"]
mod support;

use cairo_air::relations::CommonLookupElements;
use gatework_cairo_components::{Resized, Visit, visit};
use gatework_gpu::Device;
use gatework_stark::{Context, CudaBackend, Tier};
use itertools::Itertools as _;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
use stwo::core::channel::Blake2sChannel;
use stwo::prover::EvaluationMode;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::{FrameworkEval, InfoEvaluator};

use support::quotients::quotients;

const MODE: EvaluationMode = EvaluationMode::SubDomain { log_expansion: 0 };
/// Most constraints of a component whose kernels are compiled here.
const MOST_COMPILED: usize = 60;

type Trial = (&'static str, usize, Box<dyn Fn(Tier) + Send + Sync>);

/// A comparison for each component.
struct Trials(Vec<Trial>);

impl Visit for Trials {
    fn component<E: FrameworkEval + Sync + Send + 'static>(&mut self, name: &'static str, eval: Resized<E>) {
        let info = eval.evaluate(InfoEvaluator::new(eval.log_size(), vec![], Default::default()));
        let constraints = info.n_constraints;
        let preprocessed =
            info.preprocessed_columns.into_iter().unique_by(|column| column.id.clone()).collect_vec();
        let compare = move |tier: Tier| {
            let expected = quotients::<_, SimdBackend>(&preprocessed, eval.clone(), MODE).to_vec();
            let context = Context::new(&Device::emulated(5).unwrap()).unwrap();
            context.set_tier(tier);
            let found =
                context.scope(|| quotients::<_, CudaBackend>(&preprocessed, eval.clone(), MODE)).unwrap();
            assert!(found.to_vec() == expected, "{name} by {tier:?}");
        };
        self.0.push((name, constraints, Box::new(compare)));
    }
}

fn trials(log_rows: u32) -> Vec<Trial> {
    let mut trials = Trials(Vec::new());
    let elements = CommonLookupElements::draw(&mut Blake2sChannel::default());
    visit(log_rows, &elements, &mut trials).unwrap();
    trials.0
}

#[test]
fn quotients_of_every_component_match_simd() {
    for log_rows in [4, 5] {
        let trials = trials(log_rows);
        assert_eq!(trials.len(), 68);
        trials.par_iter().for_each(|(_, _, compare)| compare(Tier::Interpreted));
    }
}

#[test]
fn quotients_by_generated_kernels_match_simd() {
    let trials = trials(4);
    let small: Vec<&Trial> =
        trials.iter().filter(|(_, constraints, _)| *constraints <= MOST_COMPILED).collect();
    assert!(small.len() >= 30, "{} components are small", small.len());
    small.par_iter().for_each(|(_, _, compare)| compare(Tier::Generated));
}
