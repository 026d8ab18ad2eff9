//! What the lab may gate: `private/*`, parts of a layer as two parties evaluate them.
//!
//! Both parties are threads of one process on one device, with keys in host memory, and messages go by way of
//! the host. The weights are masked before the clock starts. What is timed is one inference with keys ahead
//! of the gates, against the same without.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use gatework_fss::backend::Backend;
use gatework_fss::cuda::Schedule;
use gatework_fss::executor::{
    Channel, Circuit, Inputs, Limits, MemoryChannel, Plan, deal, estimate, evaluate, rehearse, run_clear,
};
use gatework_fss::{Cost, CudaBackend, KeyStream, Party, Randomness};
use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Evidence, Inputs as Random, KernelSpec, Outputs, RunError, Side,
    Timing, Work, Workload,
};

use crate::circuit::{ModelWeights, Network};
use crate::error::Result;
use crate::graph::{Graph, Model, WeightKind};
use crate::range::{Knowledge, Proved, StatedNorms, Trust, Unproved};

/// All of them.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    vec![Box::new(Block::Attention), Box::new(Block::FeedForward)]
}

/// A part of a layer of BERT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Attention,
    FeedForward,
}

/// The largest input, with 12 fractional bits.
const MAGNITUDE: i64 = 2 << 12;
/// The seed of what is timed.
const SEED: u64 = 1;

fn case([tokens, width, heads, inner]: [usize; 4]) -> Case {
    let case = Case::new(format!("{tokens}x{width}-{heads}")).with("tokens", tokens).with("width", width);
    case.with("heads", heads).with("inner", inner)
}

impl Block {
    fn network(self, case: &Case) -> Result<Network> {
        let [tokens, width, heads, inner] =
            ["tokens", "width", "heads", "inner"].map(|name| case.dimension(name));
        let model = Model { width, heads, inner, ..Model::named("bert-base")? };
        let graph = match self {
            Self::Attention => model.attention_block(tokens, MAGNITUDE)?,
            Self::FeedForward => model.feed_forward_block(tokens, MAGNITUDE)?,
        };
        let stated = Knowledge::Stated(StatedNorms::default());
        Ok(Network::new(Proved::new(&graph, &stated, Trust::Norms, Unproved::Refuse)?))
    }

    /// What each party gives: the weights, and the activations.
    fn inputs(self, case: &Case, seed: u64) -> Result<(Inputs, Inputs)> {
        let network = self.network(case)?;
        let graph = network.proved().graph();
        let weights = graph.weights().iter().enumerate().map(|(index, weight)| {
            // Spectral norms of about 2.4 at most, which the stated ones allow.
            let deviation = 0.8 / (case.dimension("width") as f64).sqrt();
            let scale = if weight.kind == WeightKind::Bias { 0.02 * 4096.0 } else { deviation };
            Some(normal(graph, weight.len(), seed + 1 + index as u64, scale, i64::MAX))
        });
        let weights = weights.collect();
        let len = case.dimension("tokens") * case.dimension("width");
        Ok((weights, vec![Some(normal(graph, len, seed, 0.5, MAGNITUDE))]))
    }

    fn clear(self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let (network, (weights, activations)) = (self.network(case)?, self.inputs(case, seed)?);
        let weights = run_clear(&network.set_up(), weights)?.output;
        Ok(run_clear(&network.inference(&weights), activations)?.output.unwrap_or_default())
    }

    fn cost(self, case: &Case) -> Result<Cost> {
        let network = self.network(case)?;
        let shapes = rehearse(&network.set_up())?.output;
        Ok(estimate(&network.inference(&shapes))?)
    }
}

/// Normally distributed numbers with 12 fractional bits, as words of the graph's ring.
fn normal(graph: &Graph, len: usize, seed: u64, deviation: f64, limit: i64) -> Vec<u64> {
    let ring = graph.format().ring;
    let number = |x: f32| (f64::from(x) * deviation * 4096.0).round() as i64;
    let numbers = Random::new(seed).normal(len).into_iter().map(number);
    numbers.map(|x| ring.encode(x.clamp(-limit, limit).into())).collect()
}

/// Both parties of a block, whose weights are masked, and which run again and again with the same keys.
struct Parties {
    network: Network,
    activations: Inputs,
    backends: [Arc<dyn Backend>; 2],
    weights: [ModelWeights; 2],
    keys: [KeyStream; 2],
    plan: Plan,
    output: Option<Vec<u64>>,
}

/// Runs both parties of a circuit, each on a thread.
fn both<T: Send>(run: impl Fn(Party, &mut dyn Channel) -> gatework_fss::Result<T> + Sync) -> Result<[T; 2]> {
    let [mut zero, mut one] = MemoryChannel::pair();
    let (zero, one) = thread::scope(|scope| {
        let peer = scope.spawn(|| run(Party::One, &mut one));
        let own = run(Party::Zero, &mut zero);
        drop(zero);
        (own, peer.join().unwrap_or(Err(gatework_fss::Error::Closed)))
    });
    Ok([zero?, one?])
}

/// One evaluation of one circuit.
fn evaluate_one<C: Circuit>(
    party: Party,
    keys: &KeyStream,
    backend: &Arc<dyn Backend>,
    channel: &mut dyn Channel,
    plan: &Plan,
    (circuit, inputs): (&C, Inputs),
) -> gatework_fss::Result<C::Output> {
    let keys = keys.insecure_copy_for_measurements()?;
    let mut outputs = evaluate(party, keys, backend, channel, plan, vec![(circuit, inputs)])?;
    outputs.pop().map(|local| local.output).ok_or(gatework_fss::Error::Closed)
}

impl Parties {
    fn new(block: Block, case: &Case, seed: u64, backends: [Arc<dyn Backend>; 2]) -> Result<Self> {
        let (network, (weights, activations)) = (block.network(case)?, block.inputs(case, seed)?);
        let (randomness, format) = (&mut Randomness::from_os()?, network.format());
        let set_up = deal(randomness, format, &[network.set_up()])?;
        let set_up_plan = Plan::new(Limits::default(), &set_up.costs());
        let dealt = deal(randomness, format, &[network.inference(&set_up.outputs[0].output)])?;
        let plan = Plan::new(Limits::default(), &dealt.costs());
        let masked = both(|party, channel| {
            let (keys, backend) = (&set_up.streams[party.index()], &backends[party.index()]);
            let given = match party {
                Party::Zero => weights.clone(),
                Party::One => vec![None; weights.len()],
            };
            evaluate_one(party, keys, backend, channel, &set_up_plan, (&network.set_up(), given))
        })?;
        let keys = dealt.streams;
        Ok(Self { network, activations, backends, weights: masked, keys, plan, output: None })
    }

    fn run(&mut self) -> Result<()> {
        let [_, output] = both(|party, channel| {
            let (keys, backend) = (&self.keys[party.index()], &self.backends[party.index()]);
            let circuit = self.network.inference(&self.weights[party.index()]);
            let given = match party {
                Party::Zero => vec![None],
                Party::One => self.activations.clone(),
            };
            evaluate_one(party, keys, backend, channel, &self.plan, (&circuit, given))
        })?;
        self.output = output;
        Ok(())
    }
}

type Made = Rc<RefCell<Option<Parties>>>;

/// A side that makes its parties the first time: party 0 on the stream that is timed, party 1 on one of its
/// own.
fn side(
    name: &'static str,
    (block, case): (Block, Case),
    made: Made,
    schedule: fn(&Device) -> Schedule,
) -> Side {
    Side::new(name, move |stream: &Stream| -> Result<()> {
        let mut made = made.borrow_mut();
        let parties = match &mut *made {
            Some(parties) => parties,
            none => {
                let schedule = schedule(stream.device());
                let backends: [Arc<dyn Backend>; 2] = [
                    Arc::new(CudaBackend::on(stream.clone(), schedule)?),
                    Arc::new(CudaBackend::with(stream.device(), schedule)?),
                ];
                none.insert(Parties::new(block, &case, SEED, backends)?)
            }
        };
        parties.run()
    })
}

impl Workload for Block {
    fn name(&self) -> &str {
        match self {
            Self::Attention => "private/attention-block",
            Self::FeedForward => "private/mlp-block",
        }
    }

    fn summary(&self) -> &str {
        match self {
            Self::Attention => "attention of a layer by two parties: products, softmax, truncations",
            Self::FeedForward => {
                "the feed-forward part of a layer by two parties: products, GELU, truncations"
            }
        }
    }

    /// Those of `fss/*`, which are gated there.
    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = vec![case([3, 16, 2, 24])];
        if kind == Kind::Cuda {
            cases.push(case([21, 96, 4, 160]));
        }
        cases
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => self.cases(kind),
            Kind::Cuda => vec![case([128, 768, 12, 3072])],
        }
    }

    fn bench(&self, _: &Device, case: &Case) -> std::result::Result<Option<Bench>, RunError> {
        let (block, made) = (*self, Made::default());
        let candidate = side("keys ahead of the gates", (block, case.clone()), made.clone(), Schedule::of);
        let baseline =
            side("keys when a gate asks", (block, case.clone()), Made::default(), Schedule::without_overlap);
        let (seen, own) = (made.clone(), case.clone());
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
            move |_| Ok(Outputs::new().with("y", block.clear(&own, SEED)?)),
        );
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Wall);
        let why =
            "keys that are made ready while a message is on its way take no longer than keys that are not";
        Ok(Some(bench.expect_at_most(1.0, why).shown_by(evidence)))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> std::result::Result<Outputs, RunError> {
        let backend = || CudaBackend::new(device).map(|backend| Arc::new(backend) as Arc<dyn Backend>);
        let mut parties = Parties::new(*self, case, seed, [backend()?, backend()?])?;
        parties.run()?;
        Ok(Outputs::new().with("y", parties.output.unwrap_or_default()))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("y", self.clear(case, seed).unwrap_or_default())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let mut turned = self.clear(case, seed).unwrap_or_default();
        turned.rotate_left(1);
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "y", case.dimension("width") / 2, 1.0),
            Control::new("columns out of place", Outputs::new().with("y", turned)),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let cost = self.cost(case).unwrap_or_default();
        Work { operations: cost.prg_blocks[0], bytes: cost.larger_key_bytes() + cost.traffic_bytes() }
    }
}
