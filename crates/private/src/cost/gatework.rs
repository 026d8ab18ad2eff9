//! Our own cost: the circuit itself, in the role that only counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use gatework_fss::executor::estimate;
use gatework_fss::{Cost, Evaluator, Party, Wire};

use crate::circuit::{ModelWeights, Network};
use crate::error::{Error, Result};
use crate::graph::{Gate, Graph, Model, Node, NodeId, Op, Part, WeightId};
use crate::range::{Knowledge, Proved, Room, Truncation, Trust, Unproved};

use super::{Apart, Figures, Report};

/// Scores of one layer up to which a model is counted: counting lists the places of every one.
pub const LARGEST_SCORES: usize = 1 << 26;

/// What a model costs here for a sequence: with what `knowledge` proves under `trust`, and clamps where it
/// proves nothing.
pub fn gatework(model: &Model, tokens: usize, knowledge: &Knowledge, trust: Trust) -> Result<Report> {
    model.check(tokens)?;
    let scores = model.attention().scores(model.heads, tokens);
    if scores > LARGEST_SCORES {
        let what = format!(
            "{tokens} tokens of {}: {scores} scores a layer, up to {LARGEST_SCORES} are counted",
            model.name
        );
        return Err(Error::Unsupported { gate: "cost", what });
    }
    report(Proved::new(&model.graph(tokens)?, knowledge, trust, Unproved::Clamp)?)
}

/// What a proved graph costs.
pub(crate) fn report(proved: Proved) -> Result<Report> {
    let network = Network::new(proved);
    let setup = Counted::setup(&network)?;
    let (mut embedding, mut body, mut head) = (Counted::default(), Counted::default(), Counted::default());
    let mut seen: HashMap<Vec<Likeness>, Counted> = HashMap::new();
    for part in parts(network.proved().graph()) {
        let key = likeness(&network, &part);
        let counted = match seen.get(&key) {
            Some(counted) => counted.clone(),
            None => {
                let counted = Counted::part(&network, &part)?;
                seen.insert(key, counted.clone());
                counted
            }
        };
        match network.proved().graph().nodes()[part.start].part {
            Part::Embedding => embedding.add(&counted),
            Part::Layer(_) => body.add(&counted),
            Part::Head => head.add(&counted),
        }
    }
    head.add(&Counted::result(&network)?);
    let larger = |cost: &Cost| usize::from(cost.key_bytes[1] > cost.key_bytes[0]);
    let party = larger(&body.total);
    let of = |counted: &Counted| Figures::of(&counted.total, larger(&counted.total));
    let gates =
        Gate::ALL.into_iter().filter_map(|gate| Some((gate, Figures::of(body.gates.get(&gate)?, party))));
    let graph = network.proved().graph();
    let truncated = |kind: Truncation| {
        let layers = graph.nodes().iter().filter(|node| matches!(node.part, Part::Layer(_)));
        let truncations = layers.filter(|node| node.op == Op::Truncate);
        let chosen = |node: &&Node| match network.proved().room(node.inputs[0]) {
            Room::Narrow | Room::Gap => kind == Truncation::Gap,
            Room::Ring => kind == Truncation::Faithful,
        };
        truncations.filter(chosen).map(|node| node.len() as u64).sum()
    };
    Ok(Report {
        total: Figures::of(&body.total, party),
        gates: gates.collect(),
        apart: Some(Apart { setup: of(&setup), embedding: of(&embedding), head: of(&head) }),
        gap_truncations: truncated(Truncation::Gap),
        faithful_truncations: truncated(Truncation::Faithful),
        clamps: network.proved().clamps().map(|(name, limit)| (name.to_owned(), limit)).collect(),
    })
}

/// Runs of nodes of one part.
fn parts(graph: &Graph) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        match parts.last_mut() {
            Some(part) if graph.nodes()[part.start].part == node.part => part.end = index + 1,
            _ => parts.push(index..index + 1),
        }
    }
    parts
}

/// All of a node that its cost depends on, with operands and weights counted from the part's own first ones.
#[derive(PartialEq, Eq, Hash)]
struct Likeness {
    op: Op,
    inputs: Vec<usize>,
    segments: Vec<(usize, usize)>,
    room: Room,
}

fn likeness(network: &Network, part: &Range<usize>) -> Vec<Likeness> {
    let graph = network.proved().graph();
    let first_weight = first_weight(&graph.nodes()[part.clone()]);
    let relative = |id: WeightId| WeightId(id.0 - first_weight);
    let of = |index: usize| {
        let node = &graph.nodes()[index];
        let op = match &node.op {
            Op::Embed { table, positions, types } => {
                Op::Embed { table: relative(*table), positions: positions.map(relative), types: *types }
            }
            Op::Linear { weights } => {
                let pairs = weights.iter().map(|(matrix, bias)| (relative(*matrix), bias.map(relative)));
                Op::Linear { weights: pairs.collect() }
            }
            Op::Tied { table } => Op::Tied { table: relative(*table) },
            Op::Normalise { kind, gain, shift, epsilon } => Op::Normalise {
                kind: *kind,
                gain: relative(*gain),
                shift: shift.map(relative),
                epsilon: *epsilon,
            },
            other => other.clone(),
        };
        // Operands from before the part all enter it in the same way.
        let inputs = node.inputs.iter().map(|input| (input.0 + 1).saturating_sub(part.start)).collect();
        let segments = node.segments.iter().map(|shape| (shape.rows, shape.columns)).collect();
        Likeness { op, inputs, segments, room: network.proved().room(NodeId(index)) }
    };
    part.clone().map(of).collect()
}

fn first_weight(nodes: &[Node]) -> usize {
    let of = |node: &Node| match &node.op {
        Op::Embed { table, .. } | Op::Tied { table } => Some(table.0),
        Op::Linear { weights } => weights.iter().map(|(matrix, _)| matrix.0).min(),
        Op::Normalise { gain, .. } => Some(gain.0),
        _ => None,
    };
    nodes.iter().filter_map(of).min().unwrap_or(0)
}

/// Costs of some nodes, in all and by gate.
#[derive(Clone, Default)]
struct Counted {
    total: Cost,
    gates: HashMap<Gate, Cost>,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.total += other.total;
        for (gate, cost) in &other.gates {
            *self.gates.entry(*gate).or_default() += *cost;
        }
    }

    /// All weights, taken once.
    fn setup(network: &Network) -> Result<Self> {
        Ok(Self { total: estimate(&network.set_up())?, gates: HashMap::new() })
    }

    /// The client is given the mask of the result.
    fn result(network: &Network) -> Result<Self> {
        let graph = network.proved().graph();
        let circuit = async |evaluator: &Evaluator| {
            let (ring, last) = (graph.format().ring, graph.nodes().len() - 1);
            let bound = network.boundary(NodeId(last));
            let wire = Wire::shape(ring, graph.nodes()[last].len(), bound);
            evaluator.reveal(&wire, Party::One).map(|_| ())
        };
        Ok(Self { total: estimate(&circuit)?, gates: HashMap::new() })
    }

    fn part(network: &Network, part: &Range<usize>) -> Result<Self> {
        let counted = RefCell::new(Self::default());
        let circuit = async |evaluator: &Evaluator| {
            let graph = network.proved().graph();
            let ring = graph.format().ring;
            let weights = ModelWeights::shapes(network);
            let mut wires = vec![None; graph.nodes().len()];
            for (index, node) in graph.nodes()[..part.start].iter().enumerate() {
                wires[index] = Some(Wire::shape(ring, node.len(), network.boundary(NodeId(index))));
            }
            let mut before = evaluator.cost();
            let mut observe = |node: NodeId, _: &Wire, cost: Cost| {
                let spent = since(cost, before);
                before = cost;
                let mut counted = counted.borrow_mut();
                counted.total += spent;
                if let Some(gate) = graph.node(node).op.gate() {
                    *counted.gates.entry(gate).or_default() += spent;
                }
            };
            network.nodes(evaluator, &weights, part.clone(), &mut wires, &mut observe).await?;
            Ok(())
        };
        estimate(&circuit)?;
        Ok(counted.into_inner())
    }
}

/// What was counted between two readings.
fn since(after: Cost, before: Cost) -> Cost {
    let each = |after: [u64; 2], before: [u64; 2]| [after[0] - before[0], after[1] - before[1]];
    Cost {
        key_bytes: each(after.key_bytes, before.key_bytes),
        sent_bytes: each(after.sent_bytes, before.sent_bytes),
        sent_bits: each(after.sent_bits, before.sent_bits),
        rounds: after.rounds - before.rounds,
        prg_blocks: each(after.prg_blocks, before.prg_blocks),
        opened_words: after.opened_words - before.opened_words,
    }
}
