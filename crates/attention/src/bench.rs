//! Shapes that a user chose, for the lab to time.

use std::collections::BTreeMap;

use gatework_gpu::{Device, Kind, Target};
use gatework_lab::measure::HostBench;
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, PeerRequest, RunError, Work, Workload,
};

use crate::cuda::value_group;
pub use crate::workloads::case::{case, of_case};
use crate::workloads::{of_shapes, workloads};
use crate::{Attention, HeadDimension, Result, Shape};

/// What peers call the same on the CPU.
const CPU_OPERATION: &str = "attention-f32-cpu";

/// Workloads that time these cases on a device, each gated as the engine's own that launches the same
/// kernels, or else as one of the same head dimension. Those of other dimensions are workloads of their own; a
/// head dimension that no kernel is made for is an error.
pub fn on_device(cases: &[Case]) -> Result<Vec<Box<dyn Workload>>> {
    for (shape, _) in cases.iter().filter_map(of_case) {
        HeadDimension::of(shape.dim, shape.value_dim)?;
    }
    let engines = workloads();
    let dimensions = |shape: &Shape| (shape.dim, shape.value_dim);
    let kernels = |case: &Case| of_case(case).map(|(shape, _)| (dimensions(&shape), value_group(shape.keys)));
    let known: Vec<_> =
        engines.iter().map(|engine| engine.bench_cases(Kind::Cuda).first().and_then(kernels)).collect();
    let engine_of = |case: &Case| {
        let wanted = kernels(case)?;
        let same = known.iter().position(|&found| found == Some(wanted));
        same.or_else(|| {
            known.iter().position(|found| found.is_some_and(|(dimensions, _)| dimensions == wanted.0))
        })
    };
    let chosen = |(index, engine): (usize, Box<dyn Workload>)| -> Option<Box<dyn Workload>> {
        let cases: Vec<Case> = cases.iter().filter(|case| engine_of(case) == Some(index)).cloned().collect();
        let name = engine.name().replace('/', "/chosen-");
        if cases.is_empty() { None } else { Some(Box::new(Chosen { name, engine, cases })) }
    };
    let of_engines: Vec<_> = engines.into_iter().enumerate().filter_map(chosen).collect();
    let mut others: BTreeMap<(usize, usize), Vec<Case>> = BTreeMap::new();
    for case in cases.iter().filter(|case| engine_of(case).is_none()) {
        if let Some((shape, _)) = of_case(case) {
            others.entry(dimensions(&shape)).or_default().push(case.clone());
        }
    }
    Ok(of_engines.into_iter().chain(others.into_iter().map(of_dimension)).collect())
}

/// A workload of these cases, which no workload of the engine is like.
fn of_dimension(((dim, value_dim), cases): ((usize, usize), Vec<Case>)) -> Box<dyn Workload> {
    let length = if value_dim == dim { dim.to_string() } else { format!("{dim}-{value_dim}") };
    let name = format!("attention/chosen-dim-{length}");
    let shapes = cases.iter().filter_map(of_case).map(|(shape, _)| shape).collect();
    let engine = of_shapes(&name, shapes);
    Box::new(Chosen { name, engine, cases })
}

/// A case on the CPU, in f32, with random inputs.
pub fn on_cpu(case: &Case) -> Result<HostBench, RunError> {
    let (shape, mask) = of_case(case).ok_or("the case is no attention")?;
    let attention = Attention::builder(shape).mask(mask).build(&Target::Cpu)?;
    let mut inputs = Inputs::new(1);
    let mut normal = |count: usize| inputs.normal(count);
    let (q, k) = (normal(shape.query_elements()), normal(shape.key_elements()));
    let v = normal(shape.value_elements());
    let elements = q.len() + k.len() + v.len() + shape.output_elements();
    let work = Work { operations: shape.operations(mask) as u64, bytes: 4 * elements as u64 };
    let bench = HostBench::new("f32", work, move || {
        std::hint::black_box(attention.forward(&q, &k, &v)?);
        Ok(())
    });
    let peer = PeerRequest { operation: CPU_OPERATION.into(), shape: case.dimensions.clone() };
    // Peers know values that are as long as keys.
    Ok(if shape.value_dim == shape.dim { bench.peers(vec![peer]) } else { bench })
}

/// A workload of the engine, timed on other shapes.
struct Chosen {
    name: String,
    engine: Box<dyn Workload>,
    cases: Vec<Case>,
}

impl Workload for Chosen {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        self.engine.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        self.engine.kernels()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        self.engine.cases(kind)
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        self.engine.run(device, case, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        self.engine.reference(case, seed)
    }

    fn budget(&self, case: &Case) -> ErrorBudget {
        self.engine.budget(case)
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        self.engine.controls(case, seed, reference)
    }

    fn work(&self, case: &Case) -> Work {
        self.engine.work(case)
    }

    fn bench_cases(&self, _kind: Kind) -> Vec<Case> {
        self.cases.clone()
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        self.engine.bench(device, case)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gatework_lab::measure::{PerformanceOptions, Station};

    use super::*;
    use crate::Mask;

    #[test]
    fn cases_are_those_of_the_workloads() {
        let mut checked = 0;
        for workload in workloads() {
            for theirs in workload.bench_cases(Kind::Cuda) {
                // Those with sinks or a soft cap are no plain attention.
                let Some((found, mask)) = of_case(&theirs) else { continue };
                assert_eq!(case(&found, mask), theirs);
                checked += 1;
            }
        }
        assert!(checked > 30, "{checked}");
    }

    #[test]
    fn each_head_dimension_is_timed_by_a_workload_of_its_kernels() {
        let square = |rows, dim| case(&Shape::square(1, 2, rows, dim), Mask::Causal);
        let latent = case(&Shape { value_dim: 72, ..Shape::square(1, 2, 90, 130) }, Mask::Causal);
        let chosen = [square(100, 64), square(200, 128), square(90, 72), square(300, 64), latent];
        let chosen = on_device(&chosen).unwrap();
        let timed: Vec<(String, usize)> =
            chosen.iter().map(|w| (w.name().to_owned(), w.bench_cases(Kind::Cuda).len())).collect();
        assert_eq!(
            timed,
            [("chosen-small", 2), ("chosen-long-128", 1), ("chosen-dim-72", 1), ("chosen-dim-130-72", 1)]
                .map(|(name, cases)| (format!("attention/{name}"), cases))
        );
        let device = Device::emulated(0).unwrap();
        for workload in chosen {
            let text: Vec<String> =
                workload.kernels().iter().map(|spec| spec.source.name().to_owned()).collect();
            assert!(text.contains(&"attention".to_owned()));
            for case in workload.bench_cases(Kind::Cuda) {
                let bench = workload.bench(&device, &case).unwrap().unwrap();
                // It runs: on the emulated device nothing is timed, but everything is checked.
                bench.into_candidate().run(&device.stream().unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn a_head_dimension_that_no_kernel_is_made_for_is_an_error_with_the_way_out() {
        let cases: Vec<Case> =
            [64, 300].map(|dim| case(&Shape::square(1, 2, 50, dim), Mask::Full)).into_iter().collect();
        let said = on_device(&cases).err().expect("300 is too long").to_string();
        assert!(said.contains("head dimension 300; 1 to 256 are supported"), "{said}");
    }

    #[test]
    fn the_cpu_runs_what_the_case_says() {
        let shape = Shape { keys: 50, ..Shape::square(1, 2, 30, 64) };
        let case = case(&shape, Mask::Causal);
        let options = PerformanceOptions { samples: 5, longest: Duration::ZERO, ..Default::default() };
        let bench = on_cpu(&case).unwrap();
        assert_eq!(bench.requests()[0].shape["keys"], 50);
        let record = Station::new(options).measure_on_host(&case, bench, &()).unwrap();
        assert_eq!(record.work.operations, shape.operations(Mask::Causal) as u64);
        assert!(record.summary.samples >= 5 && record.dimensions["keys"] == 50);
        assert!(on_cpu(&Case::new("none")).is_err());
    }
}
