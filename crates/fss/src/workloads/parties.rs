//! A gate as it is timed: both parties as threads, keys in host memory, every message by way of the host.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use gatework_gpu::Stream;
use gatework_lab::{Bench, ErrorBudget, Evidence, Outputs, Side, Timing, Work};

use super::{Gate, circuit, encode, format_of};
use crate::backend::Backend;
use crate::cuda::{CudaBackend, Schedule};
use crate::executor::{Limits, MemoryChannel, Plan, deal, evaluate};
use crate::key::KeyStream;
use crate::{CpuBackend, Error, Party, Randomness, Result, Ring};

const SEED: u64 = 1;

/// Both parties of a gate, which run again and again with the same keys.
struct Parties<G> {
    gate: G,
    ring: Ring,
    words: Vec<u64>,
    limit: i64,
    backends: [Arc<dyn Backend>; 2],
    keys: [KeyStream; 2],
    plan: Plan,
    output: Option<Vec<u64>>,
}

impl<G: Gate> Parties<G> {
    fn new(gate: G, ring: Ring, len: usize, backends: [Arc<dyn Backend>; 2]) -> Result<Self> {
        let (values, limit) = gate.inputs(ring, len, SEED);
        let circuits = [circuit(&gate, ring, len, limit)];
        let dealt = deal(&mut Randomness::from_os()?, format_of(ring)?, &circuits)?;
        let plan = Plan::new(Limits::default(), &dealt.costs());
        let (keys, words) = (dealt.streams, encode(ring, values));
        Ok(Self { gate, ring, words, limit, backends, keys, plan, output: None })
    }

    fn run(&mut self) -> Result<()> {
        let circuit = circuit(&self.gate, self.ring, self.words.len(), self.limit);
        let [zero, one] = MemoryChannel::pair();
        let (plan, words) = (&self.plan, &self.words);
        let party =
            |party: Party, keys: &KeyStream, backend: &Arc<dyn Backend>, mut channel: MemoryChannel| {
                let inputs = vec![(party == Party::One).then(|| words.clone())];
                let keys = keys.insecure_copy_for_measurements()?;
                let jobs = vec![(&circuit, inputs)];
                let mut outputs = evaluate(party, keys, backend, &mut channel, plan, jobs)?;
                Ok::<_, Error>(outputs.pop().and_then(|local| local.output))
            };
        let [zero_backend, one_backend] = &self.backends;
        let [zero_keys, one_keys] = &self.keys;
        let (found, peer) = thread::scope(|scope| {
            let peer = scope.spawn(|| party(Party::One, one_keys, one_backend, one));
            (party(Party::Zero, zero_keys, zero_backend, zero), peer.join().unwrap_or(Err(Error::Closed)))
        });
        peer?;
        self.output = found?;
        Ok(())
    }
}

/// A gate on the device, with the host's own cores as the baseline.
pub(super) fn bench<G: Gate>(gate: G, ring: Ring, len: usize, work: Work) -> Bench {
    let made: Rc<RefCell<Option<Parties<G>>>> = Rc::default();
    let parties = made.clone();
    let candidate = Side::new(gate.name(), move |stream: &Stream| -> Result<()> {
        let mut parties = parties.borrow_mut();
        match &mut *parties {
            Some(parties) => parties.run(),
            none => {
                let (device, schedule) = (stream.device(), Schedule::of(stream.device()));
                let backends: [Arc<dyn Backend>; 2] = [
                    Arc::new(CudaBackend::on(stream.clone(), schedule)?),
                    Arc::new(CudaBackend::new(device)?),
                ];
                none.insert(Parties::new(gate, ring, len, backends)?).run()
            }
        }
    });
    let mut host: Option<Parties<G>> = None;
    let baseline = Side::new("the cores of the host", move |_: &Stream| match &mut host {
        Some(parties) => parties.run(),
        none => {
            none.insert(Parties::new(gate, ring, len, [Arc::new(CpuBackend), Arc::new(CpuBackend)])?).run()
        }
    });
    let seen = made.clone();
    let evidence = Evidence::new(
        ErrorBudget::Exact,
        move |_| {
            if let Some(parties) = &mut *made.borrow_mut() {
                parties.output = None;
            }
            Ok(())
        },
        move |_| {
            let output = seen.borrow().as_ref().and_then(|parties| parties.output.clone());
            Ok(Outputs::new().with("y", output.unwrap_or_default()))
        },
        move |_| Ok(Outputs::new().with("y", gate.plain(ring, &gate.inputs(ring, len, SEED).0))),
    );
    Bench::new(work, candidate, baseline)
        .timing(Timing::Wall)
        .expect_at_most(1.0, "a card is no slower than the cores beside it, keys and messages with it")
        .shown_by(evidence)
}
