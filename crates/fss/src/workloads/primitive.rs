//! A call of the backend alone: on a device and plainly, and timed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::measure::Arithmetic;
use gatework_lab::tune::{Configuration, Space, Tunable};
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Evidence, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload,
};

use crate::Result;
use crate::backend::Backend;
use crate::cuda::{AesForm, CudaBackend, Schedule};

/// Words that a seed decides.
pub(super) fn random_words(len: usize, bits: u32, seed: u64) -> Vec<u64> {
    let word = |i: u64| {
        let x = (i + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let x = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ x >> 29) & (u64::MAX >> (64 - bits))
    };
    (0..len as u64).map(word).collect()
}

/// What is done again and again, with all that it needs on the device.
pub(super) trait Run {
    fn run(&mut self) -> Result<()>;
    /// What the last run left.
    fn words(&mut self) -> Result<Vec<u64>>;
    /// Lets go of what the last run left.
    fn spoil(&mut self);
}

/// A baseline: nobody looks at what it leaves.
pub(super) type Repeated = Box<dyn FnMut() -> Result<()>>;

/// Something that a backend does in one call.
pub(super) trait Primitive: Send + Sync + Copy + 'static {
    fn name(&self) -> &'static str;
    fn kernels(&self) -> Vec<KernelSpec>;
    fn summary(&self) -> &'static str;
    fn cases(&self, kind: Kind) -> Vec<Case>;
    /// Shapes that are timed on a card; the first of the others is tried out on the emulated device.
    fn bench_cases(&self) -> Vec<Case>;
    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>>;
    /// The plainest code that is right.
    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>>;
    /// A mistake that it invites.
    fn mistaken(&self, case: &Case, seed: u64, right: &[u64]) -> (&'static str, Vec<u64>);
    fn work(&self, case: &Case) -> Work;
    fn candidate(&self, backend: Arc<dyn Backend>, case: &Case) -> Result<Box<dyn Run>>;
    /// The same on a stream.
    fn candidate_on(&self, stream: &Stream, case: &Case) -> Result<Box<dyn Run>> {
        let schedule = self.schedule(stream.device());
        self.candidate(Arc::new(CudaBackend::on(stream.clone(), schedule)?), case)
    }
    /// What it is held against, how many times whose time it may take, and why.
    fn baseline(&self, stream: &Stream, case: &Case) -> Result<Repeated>;
    fn promise(&self, case: &Case) -> (&'static str, f64, &'static str);
    /// The backend's choices.
    fn schedule(&self, device: &Device) -> Schedule {
        Schedule::of(device)
    }
    /// The same with a form of AES, if it uses AES.
    fn in_form(&self, _: AesForm) -> Option<Self> {
        None
    }
    /// How it is timed.
    fn timing(&self) -> Timing {
        Timing::Launches { count: 1 }
    }
}

/// A primitive as a workload.
pub(super) struct Alone<P>(pub(super) P);

type Made = Rc<RefCell<Option<Box<dyn Run>>>>;

impl<P: Primitive> Workload for Alone<P> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summary(&self) -> &str {
        self.0.summary()
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        self.0.kernels()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        self.0.cases(kind)
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> std::result::Result<Outputs, RunError> {
        let backend: Arc<dyn Backend> = Arc::new(CudaBackend::with(device, self.0.schedule(device))?);
        Ok(Outputs::new().with("words", self.0.on_backend(&backend, case, seed)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("words", self.0.plain(case, seed).unwrap_or_default())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let right = self.0.plain(case, seed).unwrap_or_default();
        let (mistake, words) = self.0.mistaken(case, seed, &right);
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "words", right.len() / 2, 1.0),
            Control::new(mistake, Outputs::new().with("words", words)),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        self.0.work(case)
    }

    fn tunable(&self) -> Option<&dyn Tunable> {
        self.0.in_form(AesForm::OF_A_CARD).is_some().then_some(self)
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => self.0.cases(kind).into_iter().take(1).collect(),
            Kind::Cuda => self.0.bench_cases(),
        }
    }

    fn bench(&self, _: &Device, case: &Case) -> std::result::Result<Option<Bench>, RunError> {
        let made = Made::default();
        let (primitive, own, runs) = (self.0, case.clone(), made.clone());
        let candidate = Side::new(primitive.name(), move |stream: &Stream| -> Result<()> {
            let mut made = runs.borrow_mut();
            let run = match &mut *made {
                Some(run) => run,
                none => none.insert(primitive.candidate_on(stream, &own)?),
            };
            run.run()
        });
        let (baseline_name, at_most, why) = primitive.promise(case);
        let (own, mut other) = (case.clone(), None::<Repeated>);
        let baseline = Side::new(baseline_name, move |stream: &Stream| -> Result<()> {
            match &mut other {
                Some(run) => run(),
                none => none.insert(primitive.baseline(stream, &own)?)(),
            }
        });
        let (seen, own) = (made.clone(), case.clone());
        let evidence = Evidence::new(
            ErrorBudget::Exact,
            move |_| {
                if let Some(run) = &mut *made.borrow_mut() {
                    run.spoil();
                }
                Ok(())
            },
            move |_| {
                let words = match &mut *seen.borrow_mut() {
                    Some(run) => run.words()?,
                    None => Vec::new(),
                };
                Ok(Outputs::new().with("words", words))
            },
            move |_| Ok(Outputs::new().with("words", primitive.plain(&own, BENCH_SEED)?)),
        );
        let bench = Bench::new(self.work(case), candidate, baseline).expect_at_most(at_most, why);
        let bench = bench.timing(primitive.timing());
        Ok(Some(bench.arithmetic(Arithmetic::Integer32).shown_by(evidence)))
    }
}

/// The form of AES that a configuration names.
fn form(configuration: &Configuration) -> AesForm {
    match configuration.choice("AES") {
        "planes" => AesForm::BitPlanes,
        "pairs" => AesForm::Pairs,
        "quads" => AesForm::Quads,
        _ => AesForm::Table { copies: configuration.integer("COPIES") as u32 },
    }
}

impl<P: Primitive> Tunable for Alone<P> {
    fn space(&self) -> Space {
        Space::new()
            .macro_choice("AES", ["table", "pairs", "quads", "planes"])
            .micro("COPIES", [1, 4, 8, 16, 32])
            .constraint("pairs, quads and planes have no choice of copies", |found| {
                found.choice("AES") == "table" || found.integer("COPIES") == 32
            })
    }

    fn default_configuration(&self) -> Configuration {
        Configuration::default().with("AES", "pairs").with("COPIES", 32)
    }

    fn configured(&self, configuration: &Configuration) -> Box<dyn Workload> {
        Box::new(Self(self.0.in_form(form(configuration)).unwrap_or(self.0)))
    }

    fn training_cases(&self, kind: Kind) -> Vec<Case> {
        self.bench_cases(kind).into_iter().take(1).collect()
    }

    fn held_out_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => self.0.cases(kind).into_iter().skip(1).take(1).collect(),
            Kind::Cuda => self.0.cases(kind).into_iter().rev().take(1).collect(),
        }
    }
}

/// The seed of what is timed.
pub(super) const BENCH_SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::super::prg::Prg;
    use super::*;

    #[test]
    fn every_form_of_the_cipher_passes() {
        let workload = Alone(Prg::default());
        let tunable = workload.tunable().unwrap();
        let configurations: Vec<Configuration> = tunable.space().configurations().collect();
        assert_eq!(configurations.len(), 8);
        assert!(configurations.contains(&tunable.default_configuration()));
        for configuration in configurations {
            let configured = tunable.configured(&configuration);
            for case in workload.cases(Kind::Emulated).iter().take(2) {
                let found = configured.run(&Device::emulated(1).unwrap(), case, 3).unwrap();
                let judged = configured.budget(case).judge(&found, &configured.reference(case, 3));
                assert_eq!(judged.refused, None, "{configuration}");
            }
        }
    }
}
