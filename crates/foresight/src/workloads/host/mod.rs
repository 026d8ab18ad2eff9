//! Work of the host: what ships is held against plain loops in double precision, and timed against them. The
//! device that the lab hands over is not asked for anything.

mod encode;
mod gru;
mod rollout;
mod statistics;
mod update;

use std::cell::RefCell;
use std::rc::Rc;

pub(super) use self::update::{AVERAGE, RATE, Trained};

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{
    Bench, Bounds, Case, Control, ErrorBudget, Evidence, KernelSpec, Outputs, RunError, Side, Timing, Work,
    Workload,
};

/// All of them.
pub(super) fn workloads() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(OnHost(gru::Step)),
        Box::new(OnHost(rollout::Rollout)),
        Box::new(OnHost(encode::Encode)),
        Box::new(OnHost(statistics::Statistics)),
        Box::new(OnHost(update::Update)),
    ]
}

/// A job, its inputs in memory, that can be run again and again.
type Ready = Box<dyn FnMut() -> Result<Outputs, RunError>>;

/// A job of the host.
trait Job: Send + Sync + Copy + 'static {
    fn name(&self) -> &'static str;
    fn summary(&self) -> &'static str;
    /// Small ones and odd ones.
    fn cases(&self) -> Vec<Case>;
    /// The one that is timed.
    fn timed(&self) -> Case;
    /// The code that ships.
    fn shipped(&self, case: &Case, seed: u64) -> Result<Ready, RunError>;
    /// The same in plain loops and double precision.
    fn plain(&self, case: &Case, seed: u64) -> Ready;
    /// How far apart they may be: relative to the root mean square, and of a single number.
    fn within(&self, case: &Case) -> [f64; 2];
    /// A mistake that this job invites.
    fn mistaken(&self, case: &Case, seed: u64) -> (&'static str, Ready);
    fn work(&self, case: &Case) -> Work;
    /// The part of the plain loops' time that it may take.
    fn promise(&self) -> f64;
}

struct OnHost<J>(J);

impl<J: Job> Workload for OnHost<J> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        self.0.cases()
    }

    fn run(&self, _: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        self.0.shipped(case, seed)?()
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        // Plain loops have nothing that could fail; an empty reference is refused by the gate.
        self.0.plain(case, seed)().unwrap_or_default()
    }

    fn budget(&self, case: &Case) -> ErrorBudget {
        let [relative_frobenius, max_abs] = self.0.within(case);
        ErrorBudget::Bounded(Bounds { relative_frobenius, max_abs, mean_bias: max_abs })
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let off = 4.0 * self.0.within(case)[1];
        let mut controls = vec![Control::zeros(reference), Control::unwritten_tail(reference, 1)];
        controls.extend(reference.iter().map(|(name, _)| Control::one_off(reference, name, 0, off)));
        let (name, mut wrong) = self.0.mistaken(case, seed);
        // One that cannot be made is missing, and the suite counts.
        controls.extend(wrong().ok().map(|outputs| Control::new(name, outputs)));
        controls
    }

    fn work(&self, case: &Case) -> Work {
        self.0.work(case)
    }

    fn bench_cases(&self, _: Kind) -> Vec<Case> {
        vec![self.0.timed()]
    }

    fn bench(&self, _: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        const SEED: u64 = 1;
        let (job, case) = (self.0, case.clone());
        let found: Rc<RefCell<Option<Outputs>>> = Rc::default();
        let (mut shipped, mut plain) = (job.shipped(&case, SEED)?, job.plain(&case, SEED));
        let kept = found.clone();
        let candidate = Side::new(job.name(), move |_: &Stream| -> Result<(), RunError> {
            *kept.borrow_mut() = Some(shipped()?);
            Ok(())
        });
        let baseline = Side::new("plain loops", move |_: &Stream| -> Result<(), RunError> {
            std::hint::black_box(plain()?);
            Ok(())
        });
        let spoilt = found.clone();
        let expected = self.reference(&case, SEED);
        let evidence = Evidence::new(
            self.budget(&case),
            move |_| {
                *spoilt.borrow_mut() = None;
                Ok(())
            },
            move |_| found.borrow().clone().ok_or_else(|| "nothing was computed".into()),
            move |_| Ok(expected.clone()),
        );
        let why = "vector instructions against plain loops on the same core";
        let bench = Bench::new(job.work(&case), candidate, baseline).timing(Timing::Wall);
        Ok(Some(bench.shown_by(evidence).expect_at_most(job.promise(), why)))
    }
}
