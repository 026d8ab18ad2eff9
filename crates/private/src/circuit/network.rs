//! A graph as a circuit.

use std::ops::Range;

use gatework_fss::backend::MatmulShape;
use gatework_fss::executor::Circuit;
use gatework_fss::formula::{Places, View};
use gatework_fss::gates::{Activation, LayerNorm, RmsNorm, Rows, Softmax, Tanh, clamp};
use gatework_fss::ops::Weights;
use gatework_fss::{Bound, Cost, Evaluator, FixedPoint, Party, Result, Ring, Share, Tensor, Wire};

use crate::graph::{ActivationKind, Graph, Node, NodeId, NormKind, Op, Part, WeightId, WeightKind};
use crate::range::{Knowledge, NormRoom, Proved, Room};

use super::rotation::turn;
use super::weights::ModelWeights;

/// A proved graph, evaluated: party 0 owns the weights, party 1 the input and the result.
///
/// It runs in two circuits. [`Network::set_up`] takes the weights, once for a model; [`Network::inference`]
/// takes the client's activations, or its tokens, one-hot, any number of times. The network itself, as a
/// circuit, is one after the other. Weights are integers with f fractional bits (2 f for a bias), in the
/// order of [`Graph::weights`].
///
/// Two parties do not notice a value that leaves its ring. Party 0 therefore asks [`Proved::holds_for`] of
/// its weights first: what was proved from stated norms, or from other weights, need not hold for them.
pub struct Network {
    proved: Proved,
}

/// One inference with weights that were taken before; its only input is the client's. The result goes to
/// party 1.
pub struct Inference<'a> {
    network: &'a Network,
    weights: &'a ModelWeights,
    begins: Option<&'a (dyn Fn(Part) + Sync)>,
}

impl<'a> Inference<'a> {
    /// Has `begins` called with every part of the model that begins.
    pub fn telling(self, begins: &'a (dyn Fn(Part) + Sync)) -> Self {
        Self { begins: Some(begins), ..self }
    }
}

impl Circuit for Network {
    type Output = Option<Vec<u64>>;

    async fn run(&self, evaluator: &Evaluator) -> Result<Self::Output> {
        let weights = self.set_up().run(evaluator).await?;
        self.inference(&weights).run(evaluator).await
    }

    fn format(&self) -> Option<FixedPoint> {
        Some(self.graph().format())
    }
}

impl Circuit for Inference<'_> {
    type Output = Option<Vec<u64>>;

    async fn run(&self, evaluator: &Evaluator) -> Result<Self::Output> {
        self.weights.expect(self.network.graph())?;
        let nodes = self.network.graph().nodes();
        let told = self.begins.filter(|_| !evaluator.is_scout());
        let begin = |part: Part| told.iter().for_each(|begins| begins(part));
        if let Some(first) = nodes.first() {
            begin(first.part);
        }
        let mut observe = |node: NodeId, _: &Wire, _| match nodes.get(node.0 + 1) {
            Some(next) if next.part != nodes[node.0].part => begin(next.part),
            _ => {}
        };
        self.network.observed(evaluator, self.weights, &mut observe).await
    }

    fn format(&self) -> Option<FixedPoint> {
        Circuit::format(self.network)
    }
}

impl Network {
    /// The network of a proved graph.
    pub fn new(proved: Proved) -> Self {
        Self { proved }
    }

    /// One inference with weights from [`Network::set_up`] of this network, or of one of another length of
    /// the same model.
    pub fn inference<'a>(&'a self, weights: &'a ModelWeights) -> Inference<'a> {
        Inference { network: self, weights, begins: None }
    }

    /// The proved ranges of its values.
    pub fn proved(&self) -> &Proved {
        &self.proved
    }

    /// Its number format.
    pub fn format(&self) -> FixedPoint {
        self.graph().format()
    }

    /// BLAKE3 of what is computed: every node with its shapes, its operands and its room. Two networks with
    /// the same hash take the same keys.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("gatework-fss 2026 network");
        let mut line = |what: String| {
            hasher.update(&(what.len() as u64).to_le_bytes());
            hasher.update(what.as_bytes());
        };
        let graph = self.graph();
        line(format!("{:?} {}", graph.format(), graph.tokens()));
        graph.weights().iter().for_each(|weight| line(format!("{weight:?}")));
        let rooms = &self.proved.choices().rooms;
        graph.nodes().iter().zip(rooms).for_each(|(node, room)| line(format!("{node:?} {room:?}")));
        hasher.finalize().into()
    }

    pub(super) fn graph(&self) -> &Graph {
        self.proved.graph()
    }

    fn ring(&self) -> Ring {
        self.format().ring
    }

    fn fraction(&self) -> u32 {
        self.format().fraction
    }

    /// The largest weight, as an integer: a function of the number format alone.
    pub(super) fn reach(&self, kind: WeightKind) -> i64 {
        let fraction = if kind == WeightKind::Bias { 2 * self.fraction() } else { self.fraction() };
        (Knowledge::ENTRY as i64) << fraction
    }

    /// Evaluates every node, shows each result to `observe` with what was counted so far, and reveals the
    /// last one to party 1.
    pub(crate) async fn observed(
        &self,
        evaluator: &Evaluator,
        weights: &ModelWeights,
        observe: &mut impl FnMut(NodeId, &Wire, Cost),
    ) -> Result<Option<Vec<u64>>> {
        let all = 0..self.graph().nodes().len();
        let mut wires = vec![None; all.len()];
        self.nodes(evaluator, weights, all, &mut wires, observe).await?;
        let last = wires.pop().flatten();
        let missing = || crate::Error::NoOperand { node: "result".into() };
        evaluator.reveal(&last.ok_or_else(missing)?, Party::One)
    }

    /// Evaluates some nodes, whose operands from before are in `wires`.
    pub(crate) async fn nodes(
        &self,
        evaluator: &Evaluator,
        weights: &ModelWeights,
        range: Range<usize>,
        wires: &mut [Option<Wire>],
        observe: &mut impl FnMut(NodeId, &Wire, Cost),
    ) -> Result<()> {
        let nodes = self.graph().nodes();
        let mut last_use = vec![usize::MAX; nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            node.inputs.iter().for_each(|input| last_use[input.0] = index);
        }
        // What a truncation opened for the activation behind it.
        let mut coarse: Option<Wire> = None;
        for index in range {
            let node = &nodes[index];
            let operands: Vec<Wire> = node
                .inputs
                .iter()
                .map(|input| {
                    let missing = || crate::Error::NoOperand { node: nodes[input.0].name.clone() };
                    wires[input.0].clone().ok_or_else(missing)
                })
                .collect::<crate::Result<_>>()?;
            let step = Step { network: self, evaluator, weights, node, id: NodeId(index) };
            let mut wire = match (step.activation_behind(nodes.get(index + 1))?, coarse.take()) {
                (Some(activation), _) => {
                    let (wire, y) = activation.truncated(evaluator, &operands[0], self.fraction()).await?;
                    coarse = Some(y);
                    wire
                }
                (None, Some(y)) => step.activate_at(&operands[0], &y).await?,
                (None, None) => step.evaluate(&operands).await?,
            };
            // A part's result is as wide as its room says, not as what happened to come before: parts of one
            // shape cost the same.
            if nodes.get(index + 1).is_none_or(|next| next.part != node.part) {
                wire = evaluator.claim("the result of a part", wire, self.boundary(NodeId(index)))?;
            }
            observe(NodeId(index), &wire, evaluator.cost());
            wires[index] = Some(wire);
            for input in &node.inputs {
                if last_use[input.0] == index {
                    wires[input.0] = None;
                }
            }
        }
        Ok(())
    }

    /// The bound with which a part's result enters the next part.
    pub(crate) fn boundary(&self, node: NodeId) -> Bound {
        self.proved.room(node).bound(self.graph().format())
    }
}

/// One node under evaluation.
struct Step<'a> {
    network: &'a Network,
    evaluator: &'a Evaluator,
    weights: &'a ModelWeights,
    node: &'a Node,
    id: NodeId,
}

impl Step<'_> {
    fn weight(&self, id: WeightId) -> Result<&Weights> {
        self.weights.get(id)
    }

    /// The bound of this node's room.
    fn room(&self) -> Bound {
        self.network.proved.room(self.id).bound(self.network.graph().format())
    }

    /// The activation that reads what this truncation with a gap gives, if that is the next node.
    fn activation_behind(&self, next: Option<&Node>) -> Result<Option<Activation>> {
        let (Op::Truncate, Some(next)) = (&self.node.op, next) else { return Ok(None) };
        let (Op::Activate(kind), [operand]) = (&next.op, &next.inputs[..]) else { return Ok(None) };
        match self.network.proved.room(self.node.inputs[0]) {
            Room::Narrow | Room::Gap if *operand == self.id => activation(*kind, self.network.fraction()),
            _ => Ok(None),
        }
    }

    /// This activation, of which the truncation before it has opened y.
    async fn activate_at(&self, x: &Wire, y: &Wire) -> Result<Wire> {
        let Op::Activate(kind) = &self.node.op else {
            return Err(crate::Error::NoOperand { node: self.node.name.clone() }.into());
        };
        let activation = activation(*kind, self.network.fraction())?;
        let missing = || crate::Error::NoOperand { node: self.node.name.clone() };
        let share = activation.ok_or_else(missing)?.apply_at(self.evaluator, x, y).await?;
        self.evaluator.open(share).await
    }

    async fn evaluate(&self, operands: &[Wire]) -> Result<Wire> {
        let (evaluator, ring, fraction) = (self.evaluator, self.network.ring(), self.network.fraction());
        match &self.node.op {
            Op::Input { magnitude } => {
                evaluator.input(Party::One, ring, self.node.len(), -magnitude..=*magnitude).await
            }
            Op::Embed { table, positions, types } => self.embed(*table, *positions, *types).await,
            Op::Linear { weights } => self.linear(&operands[0], weights).await,
            Op::Tied { table } => self.tied(&operands[0], *table).await,
            Op::Scores { heads, attention } => {
                let rows = attention.rows(*heads, self.network.graph().tokens())?;
                self.scores(&operands[0], &operands[1], *heads, &rows).await
            }
            Op::Softmax { heads, attention } => {
                let rows = attention.rows(*heads, self.network.graph().tokens())?;
                let softmax = Softmax::new(rows, fraction)?;
                evaluator.open(softmax.apply(evaluator, &operands[0], ring).await?).await
            }
            Op::Mix { heads, attention } => {
                let rows = attention.rows(*heads, self.network.graph().tokens())?;
                self.mix(&operands[0], &operands[1], *heads, &rows).await
            }
            Op::Rotate { heads } => self.rotate(&operands[0], *heads),
            Op::Truncate => {
                let share = match self.network.proved.room(self.node.inputs[0]) {
                    Room::Narrow | Room::Gap => evaluator.gap_truncate(&operands[0], fraction, ring).await?,
                    Room::Ring => evaluator.faithful_truncate(&operands[0], fraction, ring).await?,
                };
                evaluator.open(share).await
            }
            Op::Multiply => {
                let masks = [evaluator.mask_share(&operands[0])?, evaluator.mask_share(&operands[1])?];
                let [left, right] = [&operands[0], &operands[1]];
                let share = evaluator.product_within(left, &masks[0], right, &masks[1], self.room())?;
                evaluator.open(share).await
            }
            Op::Activate(kind) => {
                let x = &operands[0];
                let share = match activation(*kind, fraction)? {
                    Some(activation) => activation.apply(evaluator, x).await?,
                    None => Tanh::new(fraction)?.apply(evaluator, x).await?,
                };
                evaluator.open(share).await
            }
            Op::Normalise { kind, gain, shift, epsilon } => {
                self.normalise(&operands[0], *kind, (*gain, *shift), *epsilon).await
            }
            Op::Add => evaluator.claim("a residual sum", operands[0].plus(&operands[1])?, self.room()),
            Op::Segment(index) => {
                let lengths = &self.network.graph().node(self.node.inputs[0]).segments;
                let start: usize = lengths[..*index].iter().map(|shape| shape.len()).sum();
                operands[0].part(start, self.node.len())
            }
            Op::Row(row) => {
                let columns = self.node.segments[0].columns;
                operands[0].part(row * columns, columns)
            }
            Op::SumRows => self.sum_rows(&operands[0]),
            Op::Clamp { magnitude } => {
                evaluator.open(clamp(evaluator, &operands[0], -magnitude, *magnitude).await?).await
            }
        }
    }

    async fn embed(&self, table: WeightId, positions: Option<WeightId>, types: usize) -> Result<Wire> {
        let (evaluator, weight) = (self.evaluator, self.network.graph().weight(table));
        let (rows, inner, columns) = (self.node.segments[0].rows, weight.rows, weight.columns);
        let groups = [inner - types, types];
        let groups = if types > 0 { &groups[..] } else { &groups[..1] };
        let tokens = evaluator.one_hot_input(Party::One, self.network.ring(), rows, groups).await?;
        let mask = evaluator.mask_share(&tokens)?;
        let table = self.weight(table)?;
        // Each group of a row picks one entry of each column.
        let reach = groups.len() as i128 * i128::from(self.network.reach(WeightKind::Table));
        let shape = MatmulShape { batch: 1, rows, inner, columns };
        let entry = Bound::proved(-reach, reach);
        let mut share = evaluator.matmul_within(&tokens, &mask, table.wire(), table.mask(), shape, entry)?;
        if let Some(positions) = positions {
            let first = self.weight(positions)?.wire().part(0, rows * columns)?;
            share = evaluator.add_wire(&share, &first)?;
        }
        evaluator.open(share).await
    }

    async fn linear(&self, x: &Wire, weights: &[(WeightId, Option<WeightId>)]) -> Result<Wire> {
        let mask = self.evaluator.mask_share(x)?;
        let mut segments = Vec::with_capacity(weights.len());
        for ((matrix, bias), segment) in weights.iter().zip(&self.node.segments) {
            let (rows, inner) = (segment.rows, self.network.graph().weight(*matrix).rows);
            let shape = MatmulShape { batch: 1, rows, inner, columns: segment.columns };
            let matrix = self.weight(*matrix)?;
            let mut share =
                self.evaluator.matmul_within(x, &mask, matrix.wire(), matrix.mask(), shape, self.room())?;
            if let Some(bias) = bias {
                let bias = self.weight(*bias)?.wire().repeat_all(rows)?;
                let sum = self.evaluator.add_wire_in_ring(&share, &bias)?;
                share = self.evaluator.claim("a product with a bias", sum, self.room())?;
            }
            segments.push(share);
        }
        let all = Tensor::concat(&segments.iter().collect::<Vec<&Share>>())?;
        self.evaluator.open(all).await
    }

    async fn tied(&self, x: &Wire, table: WeightId) -> Result<Wire> {
        let (rows, weight) = (self.node.segments[0].rows, self.network.graph().weight(table));
        let shape = MatmulShape { batch: 1, rows, inner: weight.columns, columns: weight.rows };
        let (mask, table) = (self.evaluator.mask_share(x)?, self.weight(table)?);
        let share =
            self.evaluator.matmul_transposed(x, &mask, table.wire(), table.mask(), shape, self.room())?;
        self.evaluator.open(share).await
    }

    /// Local: a sum of masked values is the sum under the sum of their masks.
    fn sum_rows(&self, x: &Wire) -> Result<Wire> {
        let columns = self.node.segments[0].columns;
        self.evaluator.claim("a sum of rows", x.column_sums(columns, self.room())?, self.room())
    }

    async fn scores(&self, query: &Wire, key: &Wire, heads: usize, rows: &Rows) -> Result<Wire> {
        let tokens = self.network.graph().tokens();
        let width = query.len() / tokens;
        let head = width / heads;
        let (query, key) =
            (query.gather(&by_head(tokens, width, heads)?)?, key.gather(&transposed(tokens, width, heads)?)?);
        let (query_mask, key_mask) = (self.evaluator.mask_share(&query)?, self.evaluator.mask_share(&key)?);
        let shape = MatmulShape { batch: heads, rows: tokens, inner: head, columns: tokens };
        let share = self.evaluator.matmul_within(&query, &query_mask, &key, &key_mask, shape, self.room())?;
        self.evaluator.open(share.gather(&rows.places_in(tokens)?)?).await
    }

    async fn mix(&self, packed: &Wire, value: &Wire, heads: usize, rows: &Rows) -> Result<Wire> {
        let (evaluator, tokens) = (self.evaluator, self.network.graph().tokens());
        let width = value.len() / tokens;
        let head = width / heads;
        let value = value.gather(&by_head(tokens, width, heads)?)?;
        let value_mask = evaluator.mask_share(&value)?;
        let packed_mask = evaluator.mask_share(packed)?;
        // What a row does not see is a public zero, which has no mask and needs no share of one.
        let (probabilities, mask) = if packed.len() == heads * tokens * tokens {
            (packed.clone(), packed_mask)
        } else {
            let full = rows.elements_of(tokens)?;
            (packed.gather(&full)?, packed_mask.gather(&full)?)
        };
        let shape = MatmulShape { batch: heads, rows: tokens, inner: tokens, columns: head };
        let share =
            evaluator.matmul_within(&probabilities, &mask, &value, &value_mask, shape, self.room())?;
        let back = |index: usize| {
            let (row, column) = (index / width, index % width);
            (column / head * tokens + row) * head + column % head
        };
        let places = Places::of_shape("heads side by side", &[tokens, width, heads], || {
            Places::new((0..tokens * width).map(back))
        })?;
        evaluator.open(share.gather(&places)?).await
    }

    /// Local: the angles are public, and a public multiple of a masked value is one under the multiple of its
    /// mask.
    fn rotate(&self, x: &Wire, heads: usize) -> Result<Wire> {
        let fraction = self.network.fraction();
        let (tokens, columns) = (self.network.graph().tokens(), self.node.segments[0].columns);
        let head = columns / heads;
        let half = head / 2;
        let mut angles = Vec::with_capacity(tokens * half);
        for token in 0..tokens {
            angles.extend((0..half).map(|pair| turn(token, pair, head, fraction)));
        }
        let len = self.node.len();
        let turn_of = |index: usize| {
            let (token, column) = (index / columns % tokens, index % head);
            let (cosine, sine) = angles[token * half + column % half];
            if column < half { (cosine, -sine, index + half) } else { (cosine, sine, index - half) }
        };
        let (turns, words) = (|| (0..len).map(turn_of), x.words());
        let cosines = &self.evaluator.public(turns().map(|(cosine, _, _)| cosine as u64).collect())?;
        let sines = &self.evaluator.public(turns().map(|(_, sine, _)| sine as u64).collect())?;
        let places = Places::of_shape("halves of rotated heads", &[tokens, columns, heads, len], || {
            Places::new(turns().map(|(_, _, other)| other))
        })?;
        let others = View::Places(places);
        self.evaluator.compute_linear("a rotation", (x.ring(), len), self.room(), |w| {
            let [x, cosine, sine] = w.read_all([words, cosines, sines]);
            x * cosine + w.read_as(words, others.clone()) * sine
        })
    }

    async fn normalise(
        &self,
        x: &Wire,
        kind: NormKind,
        (gain, shift): (WeightId, Option<WeightId>),
        epsilon: u64,
    ) -> Result<Wire> {
        const GATE: &str = "the operand of a normalisation";
        let (evaluator, columns) = (self.evaluator, self.node.segments[0].columns);
        let fraction = self.network.fraction();
        let room = NormRoom::new(self.network.graph(), kind, columns);
        let refused = || crate::Error::Unproved {
            tensor: self.node.name.clone(),
            operands: self.network.graph().node(self.node.inputs[0]).name.clone(),
            bits: self.network.ring().bits(),
        };
        let room = room.ok_or_else(refused)?;
        let peak = (1i128 << room.peak_bits) - 1;
        let x = evaluator.claim(GATE, x.clone(), Bound::proved(-peak, peak))?;
        let squares = Some(Bound::proved(0, (1i128 << room.square_bits) - 1));
        let gain = self.weight(gain)?;
        let share = match (kind, shift) {
            (NormKind::Layer, Some(shift)) => {
                let norm = LayerNorm::with_units(columns, fraction, epsilon, room.square_bits)?;
                norm.apply_within(evaluator, &x, gain, self.weight(shift)?, squares).await?
            }
            (NormKind::RootMeanSquare, _) | (NormKind::Layer, None) => {
                let norm = RmsNorm::with_units(columns, fraction, epsilon, room.square_bits)?;
                norm.apply_within(evaluator, &x, gain, squares).await?
            }
        };
        evaluator.open(share).await
    }
}

/// The gate of an activation that has one of a table and comparisons: all but the hyperbolic tangent.
fn activation(kind: ActivationKind, fraction: u32) -> Result<Option<Activation>> {
    Ok(match kind {
        ActivationKind::Gelu => Some(Activation::gelu(fraction)?),
        ActivationKind::GeluTanh => Some(Activation::gelu_tanh(fraction)?),
        ActivationKind::Silu => Some(Activation::silu(fraction)?),
        ActivationKind::Tanh => None,
    })
}

/// Places of heads one after the other, in rows that hold all heads.
fn by_head(tokens: usize, width: usize, heads: usize) -> Result<Places> {
    let head = width / heads;
    let of_head = |index: usize| {
        (0..tokens).flat_map(move |row| (0..head).map(move |k| row * width + index * head + k))
    };
    Places::of_shape("heads one after the other", &[tokens, width, heads], || {
        Places::new((0..heads).flat_map(of_head))
    })
}

/// The same with each head transposed.
fn transposed(tokens: usize, width: usize, heads: usize) -> Result<Places> {
    let head = width / heads;
    let of_head = |index: usize| {
        (0..head).flat_map(move |k| (0..tokens).map(move |row| row * width + index * head + k))
    };
    Places::of_shape("transposed heads", &[tokens, width, heads], || {
        Places::new((0..heads).flat_map(of_head))
    })
}
