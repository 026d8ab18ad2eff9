//! Putting graphs together.

use gatework_fss::FixedPoint;

use crate::error::{Error, Result};

use super::{
    ActivationKind, Graph, Mask, Node, NodeId, NormKind, Op, Part, Shape, Weight, WeightId, WeightKind,
};

/// The longest sequence and the widest row of a graph. Their products fit into machine words.
pub(super) const MOST_TOKENS: usize = 1 << 16;
pub(super) const MOST_COLUMNS: usize = 1 << 24;
/// The narrowest ring.
pub(super) const LEAST_BITS: u32 = 8;
/// Most fractional bits of a graph.
const MOST_FRACTION: u32 = 28;

/// Builds a [`Graph`] node by node, and refuses what does not fit together.
pub struct GraphBuilder {
    graph: Graph,
    part: Part,
}

impl GraphBuilder {
    /// An empty graph for sequences of `tokens` tokens.
    pub fn new(format: FixedPoint, tokens: usize) -> Result<Self> {
        if !(1..=MOST_TOKENS).contains(&tokens) {
            return Err(refused(format!("{tokens} tokens: a sequence has 1 to {MOST_TOKENS}")));
        }
        if format.ring.bits() < LEAST_BITS {
            return Err(refused(format!(
                "a ring of {} bits: at least {LEAST_BITS} are needed",
                format.ring.bits()
            )));
        }
        // A bias has twice the fraction, and its largest value must still be an i64.
        if format.fraction > MOST_FRACTION {
            return Err(refused(format!(
                "{} fractional bits: there may be up to {MOST_FRACTION}",
                format.fraction
            )));
        }
        let graph = Graph { format, tokens, nodes: Vec::new(), weights: Vec::new() };
        Ok(Self { graph, part: Part::Embedding })
    }

    /// Assigns the nodes that follow to `part`.
    pub fn part(&mut self, part: Part) {
        self.part = part;
    }

    /// The graph.
    pub fn finish(self) -> Result<Graph> {
        if self.graph.nodes.is_empty() {
            return Err(refused("a graph has at least one node".into()));
        }
        Ok(self.graph)
    }

    fn named(&self, name: &str) -> String {
        match self.part {
            Part::Embedding => format!("embedding {name}"),
            Part::Layer(layer) => format!("layer {layer} {name}"),
            Part::Head => format!("head {name}"),
        }
    }

    fn push(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<NodeId>,
        segments: Vec<Shape>,
        fraction: u32,
    ) -> NodeId {
        let (name, part) = (self.named(name), self.part);
        self.graph.nodes.push(Node { name, op, inputs, part, segments, fraction });
        NodeId(self.graph.nodes.len() - 1)
    }

    fn weight(&mut self, name: &str, kind: WeightKind, rows: usize, columns: usize) -> WeightId {
        let (name, part) = (self.named(name), self.part);
        self.graph.weights.push(Weight { name, kind, rows, columns, part });
        WeightId(self.graph.weights.len() - 1)
    }

    fn f(&self) -> u32 {
        self.graph.format.fraction
    }

    /// A node of this graph, not of another one.
    fn node(&self, x: NodeId) -> Result<&Node> {
        self.graph.nodes.get(x.0).ok_or_else(|| refused(format!("there is no node {}", x.0)))
    }

    fn single(&self, x: NodeId) -> Result<Shape> {
        let node = self.node(x)?;
        match node.segments[..] {
            [shape] => Ok(shape),
            _ => Err(refused(format!("'{}' has several segments", node.name))),
        }
    }

    /// The single segment of `x`, which must have f fractional bits.
    fn activation(&self, x: NodeId) -> Result<Shape> {
        self.expect_fraction(x, self.f())?;
        self.single(x)
    }

    fn expect_fraction(&self, x: NodeId, fraction: u32) -> Result<()> {
        let node = self.node(x)?;
        if node.fraction == fraction {
            return Ok(());
        }
        let found = node.fraction;
        Err(refused(format!("'{}' has {found} fractional bits where {fraction} belong", node.name)))
    }

    /// Activations that the client gives.
    pub fn input(&mut self, columns: usize, magnitude: i64) -> Result<NodeId> {
        expect_columns(columns)?;
        if magnitude < 0 {
            return Err(refused(format!("a magnitude of {magnitude}")));
        }
        let shape = Shape { rows: self.graph.tokens, columns };
        Ok(self.push("input", Op::Input { magnitude }, vec![], vec![shape], self.f()))
    }

    /// Tokens looked up in a table of words and `types` types, each a row; with the rows of a second table of
    /// `places` rows added, if there is one.
    ///
    /// The second table may have more rows than there are tokens, so that one set of weights serves every
    /// length.
    pub fn embed(
        &mut self,
        vocabulary: usize,
        types: usize,
        width: usize,
        places: Option<usize>,
    ) -> Result<NodeId> {
        expect_columns(vocabulary)?;
        expect_columns(vocabulary.saturating_add(types))?;
        expect_columns(width)?;
        let tokens = self.graph.tokens;
        if let Some(places) = places.filter(|places| !(tokens..=MOST_TOKENS).contains(places)) {
            return Err(refused(format!(
                "{places} places for {tokens} tokens: there are up to {MOST_TOKENS}"
            )));
        }
        let table = self.weight("table", WeightKind::Table, vocabulary + types, width);
        let positions = places.map(|places| self.weight("positions", WeightKind::Table, places, width));
        let shape = Shape { rows: tokens, columns: width };
        Ok(self.push("rows", Op::Embed { table, positions, types }, vec![], vec![shape], self.f()))
    }

    /// x W + b, truncated: a segment for each of `outputs`, which are names and columns.
    pub fn linear(&mut self, x: NodeId, outputs: &[(&str, usize)], biased: bool) -> Result<NodeId> {
        let Shape { rows, columns: inner } = self.activation(x)?;
        let mut weights = Vec::new();
        if outputs.is_empty() {
            return Err(refused("a linear map without an output".into()));
        }
        for (name, columns) in outputs {
            expect_columns(*columns)?;
            let matrix = self.weight(name, WeightKind::Matrix, inner, *columns);
            let bias = biased.then(|| self.weight(&format!("{name} bias"), WeightKind::Bias, 1, *columns));
            weights.push((matrix, bias));
        }
        let segments: Vec<Shape> = outputs.iter().map(|&(_, columns)| Shape { rows, columns }).collect();
        let name = outputs.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let product =
            self.push(&format!("{name} product"), Op::Linear { weights }, vec![x], segments, 2 * self.f());
        self.truncate(product, &name)
    }

    /// x Tᵀ, truncated, with the table that the graph begins with.
    pub fn tied(&mut self, x: NodeId, name: &str) -> Result<NodeId> {
        let Shape { rows, columns } = self.activation(x)?;
        let Some(Op::Embed { table, types: 0, .. }) = self.graph.nodes.first().map(|node| &node.op) else {
            return Err(refused("there is no table of words alone to tie to".into()));
        };
        let (table, weight) = (*table, self.graph.weight(*table));
        if weight.columns != columns {
            return Err(refused(format!("rows of {columns} for a table of {} columns", weight.columns)));
        }
        let segments = vec![Shape { rows, columns: weight.rows }];
        let op = Op::Tied { table };
        let product = self.push(&format!("{name} product"), op, vec![x], segments, 2 * self.f());
        self.truncate(product, name)
    }

    /// ⌊x / 2^f⌋.
    pub fn truncate(&mut self, x: NodeId, name: &str) -> Result<NodeId> {
        self.expect_fraction(x, 2 * self.f())?;
        let segments = self.node(x)?.segments.clone();
        Ok(self.push(name, Op::Truncate, vec![x], segments, self.f()))
    }

    /// One of several segments.
    pub fn segment(&mut self, x: NodeId, index: usize, name: &str) -> Result<NodeId> {
        let node = self.node(x)?;
        let fraction = node.fraction;
        let shape = node.segments.get(index).copied();
        let shape = shape.ok_or_else(|| refused(format!("'{}' has no segment {index}", node.name)))?;
        Ok(self.push(name, Op::Segment(index), vec![x], vec![shape], fraction))
    }

    /// One row.
    pub fn row(&mut self, x: NodeId, row: usize) -> Result<NodeId> {
        let Shape { rows, columns } = self.activation(x)?;
        if row >= rows {
            return Err(refused(format!("'{}' has no row {row}", self.graph.node(x).name)));
        }
        Ok(self.push("row", Op::Row(row), vec![x], vec![Shape { rows: 1, columns }], self.f()))
    }

    /// The sum of all rows.
    pub fn sum_rows(&mut self, x: NodeId) -> Result<NodeId> {
        let Shape { columns, .. } = self.activation(x)?;
        Ok(self.push("sum of rows", Op::SumRows, vec![x], vec![Shape { rows: 1, columns }], self.f()))
    }

    /// Queries and keys, the first two of the segments of `x`, rotated by the tokens' places.
    pub fn rotate(&mut self, x: NodeId, heads: usize) -> Result<NodeId> {
        self.expect_fraction(x, self.f())?;
        let segments: Vec<Shape> = self.graph.node(x).segments.iter().copied().take(2).collect();
        let even = segments.iter().all(|shape| heads > 0 && shape.columns.is_multiple_of(2 * heads));
        if segments.len() != 2 || !even {
            return Err(refused(format!("'{}' cannot be rotated in pairs", self.graph.node(x).name)));
        }
        let turned = self.push("rotation", Op::Rotate { heads }, vec![x], segments, 2 * self.f());
        self.truncate(turned, "rotated query, key")
    }

    /// softmax(q kᵀ) v of every head. Queries hold the scale, in their weights.
    pub fn attend(
        &mut self,
        [query, key, value]: [NodeId; 3],
        heads: usize,
        attention: Mask,
    ) -> Result<NodeId> {
        let shapes = [self.activation(query)?, self.activation(key)?, self.activation(value)?];
        let tokens = self.graph.tokens;
        let fits = shapes.iter().all(|&shape| shape == shapes[0]) && shapes[0].rows == tokens;
        if !fits || heads == 0 || !shapes[0].columns.is_multiple_of(heads) {
            return Err(refused(format!("attention of {shapes:?} with {heads} heads")));
        }
        let f = self.f();
        let packed = vec![Shape { rows: attention.scores(heads, tokens), columns: 1 }];
        let scores = Op::Scores { heads, attention };
        let scores = self.push("scores product", scores, vec![query, key], packed.clone(), 2 * f);
        let scores = self.truncate(scores, "scores")?;
        let softmax = Op::Softmax { heads, attention };
        let probabilities = self.push("probabilities", softmax, vec![scores], packed, f);
        let mix = Op::Mix { heads, attention };
        let mixed = self.push("mixed product", mix, vec![probabilities, value], vec![shapes[0]], 2 * f);
        self.truncate(mixed, "mixed")
    }

    /// An activation function.
    pub fn activate(&mut self, x: NodeId, kind: ActivationKind) -> Result<NodeId> {
        let shape = self.activation(x)?;
        Ok(self.push("activation", Op::Activate(kind), vec![x], vec![shape], self.f()))
    }

    /// x y, truncated.
    pub fn multiply(&mut self, x: NodeId, y: NodeId) -> Result<NodeId> {
        let shape = self.same(x, y)?;
        let product = self.push("gated product", Op::Multiply, vec![x, y], vec![shape], 2 * self.f());
        self.truncate(product, "gated")
    }

    /// x + y.
    pub fn add(&mut self, x: NodeId, y: NodeId, name: &str) -> Result<NodeId> {
        let shape = self.same(x, y)?;
        Ok(self.push(name, Op::Add, vec![x, y], vec![shape], self.f()))
    }

    fn same(&self, x: NodeId, y: NodeId) -> Result<Shape> {
        let (first, second) = (self.activation(x)?, self.activation(y)?);
        if first == second {
            return Ok(first);
        }
        Err(refused(format!("{first:?} and {second:?} are not the same")))
    }

    /// A normalisation with ε = `epsilon`, to the precision of sums of squares and at least its last unit.
    pub fn normalise(&mut self, x: NodeId, kind: NormKind, epsilon: f64, name: &str) -> Result<NodeId> {
        let shape = self.activation(x)?;
        let unit = (1u64 << (2 * self.f())) as f64;
        let units = (epsilon * shape.columns as f64 * unit).round().max(1.0);
        if !(0.0..=1.0).contains(&epsilon) || units >= (1u64 << 62) as f64 {
            return Err(refused(format!("an epsilon of {epsilon}: it is between 0 and 1")));
        }
        let epsilon = units as u64;
        let gain = self.weight(&format!("{name} gain"), WeightKind::Gain, 1, shape.columns);
        let shift = match kind {
            NormKind::Layer => {
                Some(self.weight(&format!("{name} shift"), WeightKind::Shift, 1, shape.columns))
            }
            NormKind::RootMeanSquare => None,
        };
        let op = Op::Normalise { kind, gain, shift, epsilon };
        Ok(self.push(name, op, vec![x], vec![shape], self.f()))
    }
}

fn expect_columns(columns: usize) -> Result<()> {
    if (1..=MOST_COLUMNS).contains(&columns) {
        return Ok(());
    }
    Err(refused(format!("{columns} columns: a tensor has 1 to {MOST_COLUMNS}")))
}

fn refused(what: String) -> Error {
    Error::Unsupported { gate: "layer graph", what }
}
