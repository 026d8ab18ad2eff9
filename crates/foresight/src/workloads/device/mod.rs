//! Work of a device, held against plain loops in double precision or against the CPU's code.

mod attention;
mod gru;
mod muon;
mod product;
mod rollout;
mod statistics;
mod transformer;
mod update;
mod world;

use gatework_gpu::{Device, Kind};
use gatework_lab::{
    Bench, Bounds, Case, Control, ErrorBudget, KernelSpec, Outputs, RunError, Work, Workload,
};

/// What is promised where nothing else does the same work.
const AS_BEFORE: &str = "the same launches on the same card, with a tenth for its power and its clocks";

pub(super) fn workloads() -> Vec<Box<dyn Workload>> {
    all(Cases::All)
}

/// Without `foresight/rollout`, all of whose calls `foresight/encode` makes too.
pub(super) fn hunted() -> Vec<Box<dyn Workload>> {
    let mut few = all(Cases::Few);
    few.retain(|workload| workload.name() != rollout::Rollout::Imagine.name());
    few
}

fn all(cases: Cases) -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(OnDevice { job: attention::Attention, cases }),
        Box::new(OnDevice { job: gru::Units, cases }),
        Box::new(OnDevice { job: muon::Muon, cases }),
        Box::new(OnDevice { job: product::Product, cases }),
        Box::new(OnDevice { job: rollout::Rollout::Encode, cases }),
        Box::new(OnDevice { job: rollout::Rollout::Imagine, cases }),
        Box::new(OnDevice { job: statistics::Statistics, cases }),
        Box::new(OnDevice { job: transformer::Transformer, cases }),
        Box::new(OnDevice { job: update::Update, cases }),
        Box::new(OnDevice { job: world::WorldStep, cases }),
    ]
}

#[derive(Clone, Copy)]
enum Cases {
    All,
    /// The job's first ones, which are small and in which every kernel takes part.
    Few,
}

/// Work of a device.
trait Job: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn summary(&self) -> &'static str;
    fn kernels(&self) -> Vec<KernelSpec>;
    /// Small ones and odd ones; the first `few` are enough to run every synchronising call.
    fn cases(&self) -> Vec<Case>;
    fn few(&self) -> usize;
    /// Those that are timed on a card, and checked there too.
    fn large(&self) -> Vec<Case>;
    /// A small one on which the benchmark is tried out without a card; none where there is no benchmark.
    fn tried(&self) -> Option<Case>;
    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError>;
    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError>;
    /// How far apart they may be: relative to the root mean square, and of a single number.
    fn within(&self, case: &Case) -> [f64; 2];
    /// A mistake that this job invites.
    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError>;
    fn work(&self, case: &Case) -> Work;
    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError>;
}

struct OnDevice<J> {
    job: J,
    cases: Cases,
}

impl<J: Job> Workload for OnDevice<J> {
    fn name(&self) -> &str {
        self.job.name()
    }

    fn summary(&self) -> &str {
        self.job.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        self.job.kernels()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = self.job.cases();
        match (self.cases, kind) {
            (Cases::Few, _) => cases.truncate(self.job.few()),
            (Cases::All, Kind::Cuda) => cases.extend(self.job.large()),
            (Cases::All, Kind::Emulated) => {}
        }
        cases
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        self.job.run(device, case, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        // An empty reference is refused by the gate.
        self.job.reference(case, seed).unwrap_or_default()
    }

    fn budget(&self, case: &Case) -> ErrorBudget {
        let [relative_frobenius, max_abs] = self.job.within(case);
        ErrorBudget::Bounded(Bounds { relative_frobenius, max_abs, mean_bias: max_abs })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let off = 4.0 * self.job.within(case)[1];
        let mut controls = vec![Control::zeros(reference), Control::unwritten_tail(reference, 1)];
        controls.extend(reference.iter().map(|(name, _)| Control::one_off(reference, name, 0, off.max(1.0))));
        // One that cannot be made is missing, and the suite counts.
        controls
            .extend(self.job.mistaken(case, seed).ok().map(|(name, outputs)| Control::new(name, outputs)));
        controls
    }

    fn work(&self, case: &Case) -> Work {
        self.job.work(case)
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Cuda => self.job.large(),
            Kind::Emulated => self.job.tried().into_iter().collect(),
        }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        self.job.bench(device, case).map(Some)
    }
}
