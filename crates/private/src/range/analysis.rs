//! The analysis of a whole graph.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, NodeId, Op};

use super::rules::{Rules, Span};
use super::upper::Upper;
use super::weights::Facts;
use super::{Choices, Clamped, Knowledge, Room, Trust, Unproved};

/// How a truncation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// With one short comparison, since the value is proved to leave a gap.
    Gap,
    /// With a short and a long comparison, for any value.
    Faithful,
}

/// A graph whose every tensor is proved to stay where it should, with the clamps that this takes.
#[derive(Debug, Clone)]
pub struct Proved {
    graph: Graph,
    choices: Choices,
    /// Norms are secret, as the weights are: outside tests they end with the analysis.
    #[cfg(test)]
    spans: Vec<Vec<Span>>,
}

impl Proved {
    /// Proves what can be proved of `graph`.
    pub fn new(graph: &Graph, knowledge: &Knowledge, trust: Trust, unproved: Unproved) -> Result<Self> {
        Self::from_facts(graph, &knowledge.facts(graph)?, trust, unproved)
    }

    /// The same from facts that were measured before, on a graph with the same weights and the same fraction.
    pub(crate) fn from_facts(
        graph: &Graph,
        weights: &Facts,
        trust: Trust,
        unproved: Unproved,
    ) -> Result<Self> {
        let mut prover = Prover {
            rules: Rules { graph, weights, trust },
            unproved,
            nodes: Vec::new(),
            choices: Choices::default(),
            spans: Vec::new(),
            places: Vec::new(),
        };
        for node in graph.nodes() {
            prover.prove(node)?;
        }
        let graph = Graph { nodes: prover.nodes, ..graph.clone() };
        Ok(Self {
            graph,
            choices: prover.choices,
            #[cfg(test)]
            spans: prover.spans,
        })
    }

    /// A graph with choices that someone else has proved, of a graph of this shape and as many tokens or
    /// more.
    ///
    /// Nothing is proved here, since that takes the weights: whoever owns them asks [`Self::holds_for`].
    /// Every rule grows with the number of tokens, if with it at all, so that choices for the longest
    /// sequence are good for all shorter ones.
    pub fn claimed(graph: &Graph, choices: &Choices) -> Result<Self> {
        let refused = |what: String| Error::Unsupported { gate: "claimed proof", what };
        let format = graph.format();
        let mut clamps = choices.clamps.iter().peekable();
        let (mut nodes, mut places): (Vec<Node>, Vec<NodeId>) = (Vec::new(), Vec::new());
        for (index, given) in graph.nodes().iter().enumerate() {
            let mut inputs: Vec<NodeId> = given.inputs.iter().map(|input| places[input.0]).collect();
            if let Some(clamp) = clamps.next_if(|clamp| clamp.node == index) {
                if !(format.fraction..format.ring.bits() - 1).contains(&clamp.exponent) {
                    return Err(refused(format!("a clamp to 2^{} units", clamp.exponent)));
                }
                let clampable = clampable(&nodes, &inputs);
                if clampable.is_empty() {
                    return Err(refused(format!("'{}' has nothing to clamp", given.name)));
                }
                for input in clampable {
                    nodes.push(clamped(&nodes, input, 1 << clamp.exponent));
                    let clamped = NodeId(nodes.len() - 1);
                    inputs.iter_mut().filter(|place| **place == input).for_each(|place| *place = clamped);
                }
            }
            nodes.push(Node { inputs, ..given.clone() });
            places.push(NodeId(nodes.len() - 1));
        }
        if let Some(clamp) = clamps.next() {
            return Err(refused(format!(
                "a clamp before node {}, out of order or beyond the last",
                clamp.node
            )));
        }
        if nodes.len() != choices.rooms.len() {
            return Err(refused(format!("{} rooms for {} nodes", choices.rooms.len(), nodes.len())));
        }
        Ok(Self {
            #[cfg(test)]
            spans: vec![Vec::new(); nodes.len()],
            graph: Graph { nodes, ..graph.clone() },
            choices: choices.clone(),
        })
    }

    /// Fails unless these weights leave every tensor at least the room that is proved here.
    ///
    /// A proof from stated norms is worth what they are: whoever owns the weights asks this of them before it
    /// evaluates. A proof from measured weights holds for those and asks the same of others.
    pub fn holds_for(&self, weights: Vec<Vec<i64>>) -> Result<()> {
        self.holds_with(&Knowledge::Measured(weights).facts(&self.graph)?)
    }

    pub(crate) fn holds_with(&self, facts: &Facts) -> Result<()> {
        let measured = Self::from_facts(&self.graph, facts, Trust::Norms, Unproved::Refuse)?;
        let rooms = self.choices.rooms.iter().zip(&measured.choices.rooms);
        match self.graph.nodes().iter().zip(rooms).find(|(_, (claimed, found))| found > claimed) {
            None => Ok(()),
            Some((node, _)) => Err(Error::Unproved {
                tensor: node.name.clone(),
                operands: "the weights that are given".into(),
                bits: self.graph.format().ring.bits(),
            }),
        }
    }

    /// All that becomes public of the proof.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    /// The graph, with clamps.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The proved room of a node's result.
    pub fn room(&self, node: NodeId) -> Room {
        self.choices.rooms[node.0]
    }

    #[cfg(test)]
    pub(super) fn spans(&self, node: NodeId) -> &[Span] {
        &self.spans[node.0]
    }

    /// Every truncation by its name, and how it is done.
    pub fn truncations(&self) -> impl Iterator<Item = (&str, Truncation)> {
        let truncations = self.graph.nodes().iter().filter(|node| node.op == Op::Truncate);
        truncations.map(|node| {
            let kind = match self.room(node.inputs[0]) {
                Room::Narrow | Room::Gap => Truncation::Gap,
                Room::Ring => Truncation::Faithful,
            };
            (node.name.as_str(), kind)
        })
    }

    /// Every clamp by its name and its limit, in units of one.
    pub fn clamps(&self) -> impl Iterator<Item = (&str, f64)> {
        let unit = 2f64.powi(-(self.graph.format().fraction as i32));
        self.graph.nodes().iter().filter_map(move |node| match node.op {
            Op::Clamp { magnitude } => Some((node.name.as_str(), magnitude as f64 * unit)),
            _ => None,
        })
    }
}

struct Prover<'a> {
    rules: Rules<'a>,
    unproved: Unproved,
    nodes: Vec<Node>,
    choices: Choices,
    spans: Vec<Vec<Span>>,
    /// Where each node of the given graph went.
    places: Vec<NodeId>,
}

impl Prover<'_> {
    fn push(&mut self, node: Node, room: Room, spans: Vec<Span>) -> NodeId {
        self.nodes.push(node);
        self.choices.rooms.push(room);
        self.spans.push(spans);
        NodeId(self.nodes.len() - 1)
    }

    fn attempt(&self, node: &Node, inputs: &[&[Span]]) -> Option<(Room, Vec<Span>)> {
        if !self.rules.admits(node, inputs) {
            return None;
        }
        let spans = self.rules.apply(node, inputs);
        Some((self.rules.room(node, &spans)?, spans))
    }

    fn prove(&mut self, given: &Node) -> Result<()> {
        let inputs: Vec<NodeId> = given.inputs.iter().map(|input| self.places[input.0]).collect();
        // Rules look operands' shapes up in the given graph, so the node keeps its own inputs until it is
        // proved.
        let spans: Vec<&[Span]> = inputs.iter().map(|input| self.spans[input.0].as_slice()).collect();
        if let Some((room, spans)) = self.attempt(given, &spans) {
            let place = self.push(Node { inputs, ..given.clone() }, room, spans);
            self.places.push(place);
            return Ok(());
        }
        let clamps = match self.unproved {
            Unproved::Clamp => self.clamps_for(given, &inputs),
            Unproved::Refuse => None,
        };
        let (magnitude, clampable) = clamps.ok_or_else(|| self.refusal(given, &inputs))?;
        self.choices.clamps.push(Clamped { node: self.places.len(), exponent: magnitude.trailing_zeros() });
        let mut places = HashMap::new();
        for &input in &clampable {
            let node = clamped(&self.nodes, input, magnitude);
            let Some((room, spans)) = self.attempt(&node, &[&self.spans[input.0]]) else {
                return Err(self.refusal(given, &inputs));
            };
            places.insert(input, self.push(node, room, spans));
        }
        let inputs: Vec<NodeId> = inputs.iter().map(|input| *places.get(input).unwrap_or(input)).collect();
        let spans: Vec<&[Span]> = inputs.iter().map(|input| self.spans[input.0].as_slice()).collect();
        let Some((room, spans)) = self.attempt(given, &spans) else {
            return Err(self.refusal(given, &inputs));
        };
        let place = self.push(Node { inputs, ..given.clone() }, room, spans);
        self.places.push(place);
        Ok(())
    }

    /// The largest power of two to which clamping the operands proves the node, leaving a gap where a gap is
    /// wanted.
    fn clamps_for(&self, node: &Node, inputs: &[NodeId]) -> Option<(i64, Vec<NodeId>)> {
        let format = self.rules.graph.format();
        let clampable = clampable(&self.nodes, inputs);
        let wanted = if self.rules.trust == Trust::RingOnly { Room::Ring } else { Room::Gap };
        let proves = |magnitude: i64| {
            let limit = Upper::integer(i128::from(magnitude)).times(Upper::power(-(format.fraction as i32)));
            let spans: Vec<Vec<Span>> = inputs
                .iter()
                .map(|input| {
                    let spans = self.spans[input.0].iter().zip(&self.nodes[input.0].segments);
                    let clamped = clampable.contains(input);
                    spans
                        .map(|(span, shape)| if clamped { span.clamped(limit, shape.columns) } else { *span })
                        .collect()
                })
                .collect();
            let spans: Vec<&[Span]> = spans.iter().map(Vec::as_slice).collect();
            self.attempt(node, &spans).is_some_and(|(room, _)| room != Room::Ring || room == wanted)
        };
        // Below one there is nothing left of an activation: better to refuse.
        let exponents = (format.fraction..format.ring.bits() - 1).rev();
        let magnitude = exponents.map(|exponent| 1i64 << exponent).find(|&magnitude| proves(magnitude))?;
        (!clampable.is_empty()).then_some((magnitude, clampable))
    }

    fn refusal(&self, node: &Node, inputs: &[NodeId]) -> Error {
        let bits = self.rules.graph.format().ring.bits();
        let operands: Vec<&str> = inputs.iter().map(|input| self.nodes[input.0].name.as_str()).collect();
        Error::Unproved { tensor: node.name.clone(), operands: operands.join(", "), bits }
    }
}

/// Operands that a clamp may bound, each once: probabilities are bounded as they are.
fn clampable(nodes: &[Node], inputs: &[NodeId]) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    for &input in inputs {
        if !matches!(nodes[input.0].op, Op::Softmax { .. }) && !found.contains(&input) {
            found.push(input);
        }
    }
    found
}

fn clamped(nodes: &[Node], input: NodeId, magnitude: i64) -> Node {
    let node = &nodes[input.0];
    Node {
        name: format!("{} clamped", node.name),
        op: Op::Clamp { magnitude },
        inputs: vec![input],
        ..node.clone()
    }
}
