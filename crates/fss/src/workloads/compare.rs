//! `fss/compare`: walks down trees, and truth tables.

use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{Case, KernelSpec, Work};

use super::primitive::{BENCH_SEED, Primitive, Repeated, Run, random_words};
use crate::backend::{Backend, Handle};
use crate::cuda::{AesForm, Published, Schedule, specs};
use crate::dpf;
use crate::key::KeySection;
use crate::secret::{Secret, SharedBytes};
use crate::{CpuBackend, Error, Party, Result};

#[derive(Clone, Copy, Default)]
pub(super) struct Compare {
    /// Another form of AES than the device's own.
    form: Option<AesForm>,
}

const SEEDS: [u128; 2] = [3, 5];
const PUBLIC_KEY: u128 = 77;

fn case(bits: usize, elements: usize, shifts: usize) -> Case {
    let case = Case::new(format!("{elements}x{bits}-{shifts}"));
    case.with("bits", bits).with("elements", elements).with("shifts", shifts)
}

/// Secret places, public points, and what is added to them.
struct Given {
    domain: u32,
    places: Vec<u64>,
    points: Vec<u64>,
    shifts: Vec<u64>,
}

impl Given {
    fn new(case: &Case, seed: u64) -> Self {
        let (domain, len) = (case.dimension("bits") as u32, case.dimension("elements"));
        let places = random_words(len, domain, seed);
        let mut points = random_words(len, domain, seed + 1);
        // Neighbours of the places too.
        let near = points.iter_mut().zip(&places).enumerate().filter(|(index, _)| index % 4 == 0);
        near.for_each(|(index, (point, place))| {
            *point = place.wrapping_add(index as u64 / 4 % 3).wrapping_sub(1);
        });
        points.iter_mut().for_each(|point| *point &= u64::MAX >> (64 - domain));
        Self { domain, places, points, shifts: random_words(case.dimension("shifts"), 64, seed + 2) }
    }

    /// Each party's keys, dealt on the CPU.
    fn deal(&self) -> Result<[Secret<u8>; 2]> {
        let (mut keys, mut bytes) =
            (CpuBackend.dealer_keys(SEEDS, PUBLIC_KEY)?, [Secret::default(), Secret::default()]);
        let places = CpuBackend.upload(Secret::new(self.places.clone()))?;
        keys.points(self.domain, &places, self.places.len())?;
        let [zero, one] = &mut bytes;
        keys.write(&mut [zero, one])?;
        Ok(bytes)
    }

    /// A party's keys and the points, where they are compared.
    fn keys(&self, backend: &dyn Backend, party: Party, bytes: Secret<u8>) -> Result<[Handle; 2]> {
        let (seed, length) = (SEEDS[party.index()], bytes.len() as u64);
        let section = KeySection::new(seed, PUBLIC_KEY, length, Box::new(SharedBytes::new(bytes)));
        let keys = backend.party_keys(party, section)?.points(self.domain, self.places.len())?;
        Ok([keys, backend.upload(Secret::new(self.points.clone()))?])
    }

    fn bits(&self, backend: &dyn Backend, [keys, points]: &[Handle; 2]) -> Result<Vec<u64>> {
        Ok(backend.download(&backend.less_than(keys, points, &self.shifts)?)?.to_vec())
    }
}

/// Party 0 on the device, again and again.
struct Walks {
    backend: Arc<dyn Backend>,
    given: Given,
    zero: [Handle; 2],
    /// The other party's bits, which the host computes.
    one: Vec<u64>,
    made: Option<Handle>,
}

impl Run for Walks {
    fn run(&mut self) -> Result<()> {
        self.made = None;
        self.made = Some(self.backend.less_than(&self.zero[0], &self.zero[1], &self.given.shifts)?);
        Ok(())
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        let made = self.made.as_ref().ok_or(Error::Absent)?;
        let bits = self.backend.download(made)?;
        Ok(bits.iter().zip(&self.one).map(|(zero, one)| zero ^ one).collect())
    }

    fn spoil(&mut self) {
        self.made = None;
    }
}

impl Primitive for Compare {
    fn name(&self) -> &'static str {
        "fss/compare"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        specs::compare(self.form.unwrap_or(AesForm::OF_A_CARD))
    }

    fn summary(&self) -> &'static str {
        "1[x + shift < α] of secret α: one walk down a tree, or a truth table, for each shift"
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = vec![case(50, 35, 1), case(7, 65, 2), case(10, 33, 3), case(64, 5, 18)];
        if kind == Kind::Cuda {
            cases.extend([case(50, 10_007, 2), case(37, 98_304, 1)]);
        }
        cases
    }

    /// As many as a layer of bert-base truncates and applies GELU to, at 128 tokens.
    fn bench_cases(&self) -> Vec<Case> {
        vec![case(50, 128 * 768, 1), case(50, 128 * 3072, 1)]
    }

    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let given = Given::new(case, seed);
        let [zero, one] = given.deal()?;
        let zero = given.bits(backend.as_ref(), &given.keys(backend.as_ref(), Party::Zero, zero)?)?;
        let one = given.bits(backend.as_ref(), &given.keys(backend.as_ref(), Party::One, one)?)?;
        Ok(zero.into_iter().zip(one).map(|(zero, one)| zero ^ one).collect())
    }

    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let Given { domain, places, points, shifts } = Given::new(case, seed);
        let mask = u64::MAX >> (64 - domain);
        let below = |shift: u64| {
            let pairs = points.iter().zip(&places);
            pairs.map(move |(point, &place)| u64::from(point.wrapping_add(shift) & mask < place))
        };
        Ok(shifts.iter().flat_map(|&shift| below(shift)).collect())
    }

    fn mistaken(&self, _: &Case, _: u64, right: &[u64]) -> (&'static str, Vec<u64>) {
        ("complement", right.iter().map(|bit| bit ^ 1).collect())
    }

    /// Correction words, roots and points read once, bits stored once; 400 instructions a cipher call.
    fn work(&self, case: &Case) -> Work {
        let (domain, elements) = (case.dimension("bits") as u32, case.dimension("elements") as u64);
        let paths = elements * case.dimension("shifts") as u64;
        let (bytes, _) = crate::key::point_cost(Party::Zero, domain, elements as usize);
        let calls = (paths * dpf::walk_blocks(domain)).max(paths);
        Work { operations: 400 * calls, bytes: bytes + 24 * elements + 8 * paths }
    }

    fn candidate(&self, backend: Arc<dyn Backend>, case: &Case) -> Result<Box<dyn Run>> {
        let given = Given::new(case, BENCH_SEED);
        let [zero, one] = given.deal()?;
        let one = given.bits(&CpuBackend, &given.keys(&CpuBackend, Party::One, one)?)?;
        let zero = given.keys(backend.as_ref(), Party::Zero, zero)?;
        Ok(Box::new(Walks { backend, given, zero, one, made: None }))
    }

    fn baseline(&self, stream: &Stream, case: &Case) -> Result<Repeated> {
        let paths = case.dimension("elements") * case.dimension("shifts");
        let mut published = Published::new(stream, case.dimension("bits") as u32, paths)?;
        Ok(Box::new(move || published.run()))
    }

    /// Smaller batches spend a larger part of their time on preparing tables.
    fn promise(&self, case: &Case) -> (&'static str, f64, &'static str) {
        (
            "a kernel that keys the cipher anew with every node",
            if case.dimension("elements") < 300_000 { 0.36 } else { 1.0 / 3.0 },
            "no key schedule, and a population count, against 14 G calls a second of a cipher that is keyed anew",
        )
    }

    fn in_form(&self, form: AesForm) -> Option<Self> {
        Some(Self { form: Some(form) })
    }

    fn schedule(&self, device: &Device) -> Schedule {
        let usual = Schedule::of(device);
        Schedule { aes: self.form.unwrap_or(usual.aes), ..usual }
    }
}
