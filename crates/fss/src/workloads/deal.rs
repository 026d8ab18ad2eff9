//! `fss/deal`: keys of point functions and shares, made for both parties.

use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{Case, KernelSpec, Timing, Work};

use super::primitive::{BENCH_SEED, Primitive, Repeated, Run, random_words};
use crate::backend::{Backend, Handle};
use crate::cuda::{AesForm, Schedule, specs};
use crate::dpf;
use crate::key::KeySink;
use crate::secret::Secret;
use crate::{CpuBackend, Party, Result, Ring};

#[derive(Clone, Copy, Default)]
pub(super) struct Deal {
    /// Another form of AES than the device's own.
    form: Option<AesForm>,
}

fn case(bits: usize, elements: usize) -> Case {
    Case::new(format!("{elements}x{bits}")).with("bits", bits).with("elements", elements)
}

/// A section with trees or tables at secret places and shares of them, as long as both parties' material is.
struct Section {
    backend: Arc<dyn Backend>,
    ring: Ring,
    len: usize,
    places: Handle,
    seed: u64,
    dealt: [Secret<u8>; 2],
}

impl Section {
    fn new(backend: Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Self> {
        let (ring, len) = (Ring::new(case.dimension("bits") as u32)?, case.dimension("elements"));
        let places = backend.upload(Secret::new(random_words(len, ring.bits(), seed)))?;
        Ok(Self { backend, ring, len, places, seed, dealt: [Secret::default(), Secret::default()] })
    }
}

impl Run for Section {
    fn run(&mut self) -> Result<()> {
        self.dealt.iter_mut().for_each(|bytes| bytes.clear());
        let seeds = [self.seed.into(), u128::from(self.seed) + 1];
        let mut keys = self.backend.dealer_keys(seeds, 77)?;
        keys.points(self.ring.bits(), &self.places, self.len)?;
        keys.share(&self.places, self.len, self.ring)?;
        let [zero, one] = &mut self.dealt;
        let sinks: &mut [&mut dyn KeySink; 2] = &mut [zero, one];
        keys.write(sinks)?;
        keys.finish(sinks)?;
        Ok(())
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok(self.dealt.iter().flat_map(|bytes| bytes.chunks(8)).map(word).collect())
    }

    fn spoil(&mut self) {
        self.dealt.iter_mut().for_each(Secret::wipe);
    }
}

impl Primitive for Deal {
    fn name(&self) -> &'static str {
        "fss/deal"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        specs::deal(self.form.unwrap_or(AesForm::OF_A_CARD))
    }

    fn summary(&self) -> &'static str {
        "keys of point functions and shares for both parties, into host memory"
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = vec![case(50, 35), case(7, 33), case(11, 5)];
        if kind == Kind::Cuda {
            cases.extend([case(50, 10_007), case(9, 50_001)]);
        }
        cases
    }

    fn bench_cases(&self) -> Vec<Case> {
        vec![case(50, 128 * 768)]
    }

    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let mut section = Section::new(backend.clone(), case, seed)?;
        section.run()?;
        section.words()
    }

    /// The dealer on the host, whose keys are held against the function itself by its own tests.
    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        self.on_backend(&(Arc::new(CpuBackend) as Arc<dyn Backend>), case, seed)
    }

    fn mistaken(&self, case: &Case, seed: u64, right: &[u64]) -> (&'static str, Vec<u64>) {
        let mut other = self.plain(case, seed + 2).unwrap_or_default();
        other.resize(right.len(), 0);
        ("the keys of other seeds", other)
    }

    /// Key bytes of both parties once; 400 instructions a cipher call.
    fn work(&self, case: &Case) -> Work {
        let (domain, len) = (case.dimension("bits") as u32, case.dimension("elements"));
        let bytes = |party: Party| {
            let [points, shares] =
                [crate::key::point_cost(party, domain, len), crate::key::share_cost(party, len, domain)];
            points.0 + shares.0
        };
        let calls = 2 * len as u64 * (dpf::correction_words(domain) as u64 + 1);
        Work { operations: 400 * calls, bytes: bytes(Party::Zero) + bytes(Party::One) }
    }

    fn candidate(&self, backend: Arc<dyn Backend>, case: &Case) -> Result<Box<dyn Run>> {
        Ok(Box::new(Section::new(backend, case, BENCH_SEED)?))
    }

    fn baseline(&self, _: &Stream, case: &Case) -> Result<Repeated> {
        // The host's dealer works on one core.
        let mut section = Section::new(Arc::new(CpuBackend), case, BENCH_SEED)?;
        Ok(Box::new(move || section.run()))
    }

    fn promise(&self, _: &Case) -> (&'static str, f64, &'static str) {
        (
            "one core of the host",
            1.0 / 20.0,
            "10 G cipher calls a second, and copies at the speed of the link",
        )
    }

    fn timing(&self) -> Timing {
        Timing::Wall
    }

    fn in_form(&self, form: AesForm) -> Option<Self> {
        Some(Self { form: Some(form) })
    }

    fn schedule(&self, device: &Device) -> Schedule {
        let usual = Schedule::of(device);
        Schedule { aes: self.form.unwrap_or(usual.aes), ..usual }
    }
}
