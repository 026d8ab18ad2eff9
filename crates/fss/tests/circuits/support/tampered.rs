//! The CPU with masks that a test chooses, and with a memory of what was opened.

use std::sync::{Arc, Mutex, MutexGuard};

use gatework_fss::backend::{
    Backend, DealerKeys, Download, Handle, Layout, MatmulShape, Part, PartyKeys, Sums,
};
use gatework_fss::formula::{Formula, Operand};
use gatework_fss::key::{KeySection, KeySink};
use gatework_fss::secret::Secret;
use gatework_fss::table::Table;
use gatework_fss::{CpuBackend, Party, Result, Ring};

use super::Given;

/// Which fresh masks are zero, as if a gate had forgotten them. The results stay right, so that nothing but a
/// test of what is opened can find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Nothing,
    /// All masks of bits.
    Bits,
    /// All masks of wider words.
    Words,
    /// The tensor of masks of this number.
    Only(usize),
    /// Two tensors of masks.
    Both(usize, usize),
}

/// What a party learns from one request.
pub struct OpenedWords {
    pub ring: Ring,
    /// Whether only one party sent, as for an input.
    pub from_one: bool,
    /// What the party itself sent.
    pub own: Vec<u64>,
    /// The sums of both parties' words, modulo the ring: of bits, their exclusive or.
    pub words: Vec<u64>,
}

/// What a test changes, and what it wants to know.
struct State {
    missing: Missing,
    /// Masks of inputs that are left, with the owner of each input.
    forced: Vec<(Party, Vec<u64>)>,
    fresh_masks: usize,
    opened: Vec<OpenedWords>,
}

impl State {
    /// A fresh mask, or zeros if the test wants it missing. Dealer and parties come here in the same order.
    fn weakened(&mut self, mask: Handle, len: usize, ring: Ring) -> Result<Handle> {
        let number = self.fresh_masks;
        self.fresh_masks += 1;
        let missing = match self.missing {
            Missing::Nothing => false,
            Missing::Bits => ring == Ring::BIT,
            Missing::Words => ring != Ring::BIT,
            Missing::Only(only) => number == only,
            Missing::Both(one, two) => number == one || number == two,
        };
        if missing { CpuBackend.upload(Secret::new(vec![0; len])) } else { Ok(mask) }
    }

    /// The mask of the owner's next input, if the test chooses it.
    fn forced(&mut self, owner: Party, mask: Handle, ring: Ring) -> Result<Handle> {
        match self.forced.iter().position(|(party, _)| *party == owner) {
            Some(next) => {
                let words = self.forced.remove(next).1;
                CpuBackend.upload(words.into_iter().map(|word| ring.reduce(word)).collect())
            }
            None => Ok(mask),
        }
    }
}

/// The CPU, tampered with.
pub struct Tampered(Arc<Mutex<State>>);

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

impl Tampered {
    /// `masks` are those of the inputs, in their order.
    pub fn new(missing: Missing, given: &[Given], masks: Option<Vec<Vec<u64>>>) -> Self {
        let owners = given.iter().map(|(owner, _)| *owner);
        let forced = masks.map(|masks| owners.zip(masks).collect()).unwrap_or_default();
        Self(Arc::new(Mutex::new(State { missing, forced, fresh_masks: 0, opened: Vec::new() })))
    }

    /// Tensors of fresh masks that were drawn.
    pub fn fresh_masks(&self) -> usize {
        locked(&self.0).fresh_masks
    }

    /// Everything that was opened, in order.
    pub fn take_opened(&self) -> Vec<OpenedWords> {
        std::mem::take(&mut locked(&self.0).opened)
    }
}

impl Backend for Tampered {
    fn name(&self) -> String {
        "the CPU, tampered with".into()
    }

    fn upload(&self, words: Secret<u64>) -> Result<Handle> {
        CpuBackend.upload(words)
    }

    fn download(&self, words: &Handle) -> Result<Secret<u64>> {
        CpuBackend.download(words)
    }

    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle> {
        CpuBackend.compute(formula, operands, len)
    }

    fn sums(&self, words: &Handle, sums: Sums<'_>, ring: Ring) -> Result<Handle> {
        CpuBackend.sums(words, sums, ring)
    }

    fn concat(&self, parts: &[&Handle]) -> Result<Handle> {
        CpuBackend.concat(parts)
    }

    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle> {
        CpuBackend.products(shape, layout, ring, pairs, start)
    }

    fn less_than(&self, keys: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle> {
        CpuBackend.less_than(keys, x, shifts)
    }

    fn lookup(&self, keys: &Handle, x: &Handle, table: &Table) -> Result<Handle> {
        CpuBackend.lookup(keys, x, table)
    }

    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
        CpuBackend.pack(header, parts)
    }

    fn open(&self, parts: Vec<Part>, bytes: &[u8]) -> Result<Vec<Handle>> {
        let words = |handle: &Handle| CpuBackend.download(handle).map(|words| words.to_vec());
        let own = |part: &Part| {
            let from_one = part.words.is_none() || !part.in_message;
            Ok((part.ring, from_one, part.words.as_ref().map(words).transpose()?.unwrap_or_default()))
        };
        let owned = parts.iter().map(own).collect::<Result<Vec<_>>>()?;
        let opened = CpuBackend.open(parts, bytes)?;
        for ((ring, from_one, own), opened) in owned.into_iter().zip(&opened) {
            let words = words(opened)?;
            locked(&self.0).opened.push(OpenedWords { ring, from_one, own, words });
        }
        Ok(opened)
    }

    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>> {
        let keys = CpuBackend.party_keys(party, section)?;
        Ok(Box::new(TamperedParty { party, keys, state: self.0.clone() }))
    }

    fn dealer_keys(&self, seeds: [u128; 2], public_key: u128) -> Result<Box<dyn DealerKeys>> {
        let keys = CpuBackend.dealer_keys(seeds, public_key)?;
        Ok(Box::new(TamperedDealer { keys, state: self.0.clone() }))
    }
}

struct TamperedParty {
    party: Party,
    keys: Box<dyn PartyKeys>,
    state: Arc<Mutex<State>>,
}

impl PartyKeys for TamperedParty {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mask = self.keys.derived(len, ring)?;
        locked(&self.state).weakened(mask, len, ring)
    }

    fn derived_alone(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mask = self.keys.derived_alone(len, ring)?;
        locked(&self.state).forced(self.party, mask, ring)
    }

    fn shares(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.keys.shares(len, ring)
    }

    fn given(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        self.keys.given(len, ring)
    }

    fn points(&mut self, domain: u32, len: usize) -> Result<Handle> {
        self.keys.points(domain, len)
    }

    fn used(&self) -> u64 {
        self.keys.used()
    }

    fn left(&self) -> u64 {
        self.keys.left()
    }

    fn calls(&self) -> u64 {
        self.keys.calls()
    }
}

struct TamperedDealer {
    keys: Box<dyn DealerKeys>,
    state: Arc<Mutex<State>>,
}

impl DealerKeys for TamperedDealer {
    fn derived(&mut self, len: usize, ring: Ring) -> Result<Handle> {
        let mask = self.keys.derived(len, ring)?;
        locked(&self.state).weakened(mask, len, ring)
    }

    fn derived_by(&mut self, party: Party, len: usize, ring: Ring) -> Result<Handle> {
        let mask = self.keys.derived_by(party, len, ring)?;
        locked(&self.state).forced(party, mask, ring)
    }

    fn share(&mut self, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        self.keys.share(values, len, ring)
    }

    fn give(&mut self, party: Party, values: &Handle, len: usize, ring: Ring) -> Result<()> {
        self.keys.give(party, values, len, ring)
    }

    fn points(&mut self, domain: u32, places: &Handle, len: usize) -> Result<Handle> {
        self.keys.points(domain, places, len)
    }

    fn write(&mut self, sinks: &mut [&mut dyn KeySink; 2]) -> Result<[u64; 2]> {
        self.keys.write(sinks)
    }
}
