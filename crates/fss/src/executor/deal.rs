//! The dealer.

use std::cell::RefCell;
use std::sync::Arc;

use crate::backend::Backend;
use crate::cpu::CpuBackend;
use crate::error::Result;
use crate::evaluator::{Evaluator, Role};
use crate::key::{KeySink, KeyStream};
use crate::party::Party;
use crate::prg::section_key;
use crate::random::Randomness;
use crate::ring::FixedPoint;
use crate::secret::{Secret, SharedBytes};
use crate::tally::Cost;

use super::alone::run_stepwise;
use super::plan::on_plan;
use super::{Circuit, Local, estimate};

/// The dealer's output.
pub struct Dealt<T> {
    /// Each party's stream.
    pub streams: [KeyStream; 2],
    /// The dealer's view of each circuit's output, and its cost.
    pub outputs: Vec<Local<T>>,
}

impl<T> Dealt<T> {
    /// The costs of the circuits, as a plan takes them.
    pub fn costs(&self) -> Vec<Cost> {
        self.outputs.iter().map(|local| local.cost).collect()
    }
}

/// Makes keys section by section.
pub struct Dealer<'a> {
    randomness: &'a mut Randomness,
    backend: Arc<dyn Backend>,
    public_key: u128,
    /// Sections that were made.
    sections: u64,
}

impl<'a> Dealer<'a> {
    /// A dealer with a public key that no other has.
    pub fn new(randomness: &'a mut Randomness, backend: Arc<dyn Backend>) -> Self {
        let public_key = randomness.block();
        Self { randomness, backend, public_key, sections: 0 }
    }

    /// The public key of this deal, from which those of all trees are derived.
    pub fn public_key(&self) -> u128 {
        self.public_key
    }

    /// Both parties' seeds of a section.
    pub fn seeds(&mut self) -> [u128; 2] {
        [self.randomness.block(), self.randomness.block()]
    }

    /// Writes a circuit's key material, as long as `planned` says, while it is made. Sections have numbers in
    /// the order of the calls.
    pub fn section<C: Circuit>(
        &mut self,
        circuit: &C,
        planned: &Cost,
        seeds: [u128; 2],
        mut sinks: [&mut dyn KeySink; 2],
    ) -> Result<Local<C::Output>> {
        let public_key = section_key(self.public_key, self.sections);
        self.sections += 1;
        let keys = self.backend.dealer_keys(seeds, public_key)?;
        let evaluator = Evaluator::new(Role::Dealer(RefCell::new(keys)), self.backend.clone(), Vec::new());
        let mut written = [0u64; 2];
        let local = run_stepwise(&evaluator, circuit, |evaluator| {
            let Role::Dealer(keys) = &evaluator.role else { return Ok(()) };
            let bytes = keys.borrow_mut().write(&mut sinks)?;
            written = [written[0] + bytes[0], written[1] + bytes[1]];
            Ok(())
        })?;
        if let Role::Dealer(keys) = &evaluator.role {
            let bytes = keys.borrow_mut().finish(&mut sinks)?;
            written = [written[0] + bytes[0], written[1] + bytes[1]];
        }
        for party in Party::BOTH.map(Party::index) {
            on_plan(0, "key bytes", written[party], planned.key_bytes[party])?;
        }
        Ok(local)
    }
}

/// Deals keys for circuits, one section each, on the CPU.
pub fn deal<C: Circuit>(
    randomness: &mut Randomness,
    format: FixedPoint,
    circuits: &[C],
) -> Result<Dealt<C::Output>> {
    deal_on(&(Arc::new(CpuBackend) as Arc<dyn Backend>), randomness, format, circuits)
}

/// The same, with masks and keys computed by a backend.
pub fn deal_on<C: Circuit>(
    backend: &Arc<dyn Backend>,
    randomness: &mut Randomness,
    format: FixedPoint,
    circuits: &[C],
) -> Result<Dealt<C::Output>> {
    let _span = tracing::info_span!("deal", circuits = circuits.len()).entered();
    let mut dealer = Dealer::new(randomness, backend.clone());
    let mut sections = [Vec::new(), Vec::new()];
    let mut outputs = Vec::new();
    for circuit in circuits {
        circuit.fits(format)?;
        let (planned, seeds) = (estimate(circuit)?, dealer.seeds());
        let room = |party: usize| Secret::with_capacity(planned.key_bytes[party] as usize);
        let [mut zero, mut one] = [0, 1].map(room);
        outputs.push(dealer.section(circuit, &planned, seeds, [&mut zero, &mut one])?);
        for (party, bytes) in [zero, one].into_iter().enumerate() {
            sections[party].push((seeds[party], SharedBytes::new(bytes)));
        }
    }
    let [zero, one] = sections;
    let stream = |party: Party, sections| KeyStream::in_memory(party, format, dealer.public_key, sections);
    Ok(Dealt { streams: [stream(Party::Zero, zero), stream(Party::One, one)], outputs })
}
