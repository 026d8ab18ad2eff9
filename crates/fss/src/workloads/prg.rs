//! `fss/prg`: words of a party's own stream.

use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{Case, KernelSpec, Work};

use super::primitive::{BENCH_SEED, Primitive, Repeated, Run};
use crate::backend::{Backend, Handle};
use crate::cuda::{AesForm, Schedule, specs};
use crate::key::KeySection;
use crate::prg::{Cipher, Stream as Derived};
use crate::secret::{Secret, SharedBytes};
use crate::{Party, Result, Ring};

#[derive(Clone, Copy, Default)]
pub(super) struct Prg {
    /// Another form of AES than the device's own.
    form: Option<AesForm>,
}

fn case(bits: usize, words: usize) -> Case {
    Case::new(format!("{words}x{bits}")).with("bits", bits).with("words", words)
}

fn sizes(case: &Case) -> Result<(Ring, usize)> {
    Ok((Ring::new(case.dimension("bits") as u32)?, case.dimension("words")))
}

fn derived(backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Handle> {
    let (ring, words) = sizes(case)?;
    let nothing = Box::new(SharedBytes::new(Secret::default()));
    let mut keys = backend.party_keys(Party::Zero, KeySection::new(seed.into(), 0, 0, nothing))?;
    keys.derived(words, ring)
}

/// The bits of AES(first), AES(first + 1), .. in order.
fn stream_of(case: &Case, seed: u64, first: u128) -> Result<Vec<u64>> {
    let (ring, words) = sizes(case)?;
    let bits = ring.bits() as usize;
    let mut blocks: Vec<u128> =
        (0..=Derived::blocks_for(words, ring.bits()) as u128).map(|i| first + i).collect();
    Cipher::portable(seed.into()).encrypt(&mut blocks);
    let word = |index: usize| {
        let (place, shift) = (index * bits / 128, (index * bits % 128) as u32);
        let above = blocks[place + 1].checked_shl(128 - shift).unwrap_or(0);
        ring.reduce((blocks[place] >> shift | above) as u64)
    };
    Ok((0..words).map(word).collect())
}

struct Streams {
    backend: Arc<dyn Backend>,
    case: Case,
    made: Option<Handle>,
}

impl Run for Streams {
    fn run(&mut self) -> Result<()> {
        self.made = None;
        self.made = Some(derived(&self.backend, &self.case, BENCH_SEED)?);
        Ok(())
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        self.made.as_ref().map_or(Ok(Vec::new()), |made| Ok(self.backend.download(made)?.to_vec()))
    }

    fn spoil(&mut self) {
        self.made = None;
    }
}

impl Primitive for Prg {
    fn name(&self) -> &'static str {
        "fss/prg"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        specs::prg(self.form.unwrap_or(AesForm::OF_A_CARD))
    }

    fn summary(&self) -> &'static str {
        "words that a party derives: AES-128 in counter mode"
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        // The last has more tiles than blocks are resident.
        let mut cases = vec![case(50, 1001), case(1, 3000), case(64, 40_001)];
        if kind == Kind::Cuda {
            cases.extend([case(50, 1 << 20), case(37, 1_000_003)]);
        }
        cases
    }

    fn bench_cases(&self) -> Vec<Case> {
        vec![case(64, 1 << 25), case(64, 1 << 21)]
    }

    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>> {
        Ok(backend.download(&derived(backend, case, seed)?)?.to_vec())
    }

    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        stream_of(case, seed, 0)
    }

    fn mistaken(&self, case: &Case, seed: u64, _: &[u64]) -> (&'static str, Vec<u64>) {
        ("a stream that begins one block late", stream_of(case, seed, 1).unwrap_or_default())
    }

    /// Every word stored once; 160 lookups and 240 other instructions a block.
    fn work(&self, case: &Case) -> Work {
        let (bits, words) = (case.dimension("bits") as u32, case.dimension("words"));
        Work { operations: 400 * Derived::blocks_for(words, bits), bytes: 8 * words as u64 }
    }

    fn candidate(&self, backend: Arc<dyn Backend>, case: &Case) -> Result<Box<dyn Run>> {
        Ok(Box::new(Streams { backend, case: case.clone(), made: None }))
    }

    fn baseline(&self, stream: &Stream, case: &Case) -> Result<Repeated> {
        let (stream, words) = (stream.clone(), case.dimension("words"));
        let (from, mut to) = (stream.alloc_zeros::<u64>(words)?, stream.alloc::<u64>(words)?);
        Ok(Box::new(move || Ok(stream.copy(&from, &mut to)?)))
    }

    fn promise(&self, _: &Case) -> (&'static str, f64, &'static str) {
        (
            "device-to-device copy",
            8.5,
            "15 G blocks a second, where a copy moves 16 bytes 125 G times a second",
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
