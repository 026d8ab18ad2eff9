//! A transformer as a typed graph of fixed-point operations.
//!
//! A tensor is a list of segments, one after the other, each `rows × columns`, row by row. Activations have f
//! fractional bits; a product of two has 2 f until a truncation takes f off again. The graph says what is
//! computed and nothing about secrets: which truncation a node needs follows from [`crate::range`], and what
//! it costs from [`crate::cost`].

mod builder;
mod model;

pub use builder::GraphBuilder;
pub(crate) use model::FRACTION;
pub use model::{Family, Head, Model};

use gatework_fss::FixedPoint;
use gatework_fss::gates::Rows;

/// A node of a graph, by its place. Nodes only read nodes before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// A secret tensor of the model's owner, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightId(pub(crate) usize);

/// The use of a weight tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// Multiplies rows from the right.
    Matrix,
    /// A vector that is added to a product of 2 f fractional bits.
    Bias,
    /// The gain γ of a normalisation.
    Gain,
    /// The shift β of a normalisation.
    Shift,
    /// Rows that are looked up.
    Table,
}

/// A weight tensor's name and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// For people.
    pub name: String,
    /// Its use.
    pub kind: WeightKind,
    /// Rows; one for a vector.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Which part of the model uses it.
    pub part: Part,
}

impl Weight {
    /// Elements.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where in the model a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Before the first layer.
    Embedding,
    /// One of the layers.
    Layer(usize),
    /// Behind the last layer.
    Head,
}

/// The keys that a row attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Every token.
    Full,
    /// Tokens up to its own.
    Causal,
}

impl Mask {
    /// The rows of a softmax over `heads` heads.
    pub(crate) fn rows(self, heads: usize, tokens: usize) -> gatework_fss::Result<Rows> {
        match self {
            Self::Full => Rows::full(heads * tokens, tokens),
            Self::Causal => Rows::causal(heads, tokens),
        }
    }

    /// Scores of all heads.
    pub(crate) fn scores(self, heads: usize, tokens: usize) -> usize {
        match self {
            Self::Full => heads * tokens * tokens,
            Self::Causal => heads * (tokens * (tokens + 1) / 2),
        }
    }
}

/// Which normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// Rows are centred, scaled, and shifted.
    Layer,
    /// Rows are scaled.
    RootMeanSquare,
}

/// Which activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// x Φ(x).
    Gelu,
    /// GELU as GPT-2 approximates it: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
    GeluTanh,
    /// x / (1 + e^−x).
    Silu,
    /// tanh x.
    Tanh,
}

/// The operation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// The client's activations, |x| ≤ `magnitude` as integers with f fractional bits.
    Input {
        /// The largest magnitude.
        magnitude: i64,
    },
    /// The client's tokens, one-hot, times a table; and a row of a second table for each position.
    Embed {
        /// Vocabulary and types × width.
        table: WeightId,
        /// Places × width; there may be more places than tokens, of which the first are used.
        positions: Option<WeightId>,
        /// Rows of the table behind the words, one of which is added to every token's: its type. None if
        /// there are 0.
        types: usize,
    },
    /// x W + b for each weight: one segment each. 2 f fractional bits.
    Linear {
        /// W and b, a segment each.
        weights: Vec<(WeightId, Option<WeightId>)>,
    },
    /// x Tᵀ: how much each row is like each row of a table that is also looked up. 2 f fractional bits.
    Tied {
        /// Vocabulary × width.
        table: WeightId,
    },
    /// q kᵀ within each head, of rows as [`Mask`] sees them. 2 f fractional bits.
    Scores {
        /// Heads.
        heads: usize,
        /// What a row sees.
        attention: Mask,
    },
    /// Probabilities of each row of scores.
    Softmax {
        /// Heads.
        heads: usize,
        /// What a row sees.
        attention: Mask,
    },
    /// p v within each head. 2 f fractional bits.
    Mix {
        /// Heads.
        heads: usize,
        /// What a row sees.
        attention: Mask,
    },
    /// Rotations of pairs of columns by the token's place, by public angles; segments 0 and 1. 2 f fractional
    /// bits.
    Rotate {
        /// Heads.
        heads: usize,
    },
    /// ⌊x / 2^f⌋.
    Truncate,
    /// Elementwise x y. 2 f fractional bits.
    Multiply,
    /// An activation function.
    Activate(ActivationKind),
    /// A normalisation of rows.
    Normalise {
        /// Which.
        kind: NormKind,
        /// γ.
        gain: WeightId,
        /// β.
        shift: Option<WeightId>,
        /// d ε with 2 f fractional bits, at least one unit.
        epsilon: u64,
    },
    /// x + y.
    Add,
    /// One segment of a tensor.
    Segment(usize),
    /// One row of a tensor of one segment.
    Row(usize),
    /// The sum of all rows of a tensor of one segment.
    SumRows,
    /// min(max(x, −`magnitude`), `magnitude`): inserted where nothing else proves a bound.
    Clamp {
        /// As an integer with f fractional bits.
        magnitude: i64,
    },
}

/// The gates by which costs are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Products of matrices and of elements.
    Products,
    /// Shares of the masks of weights, where they are dealt for every inference.
    WeightMasks,
    /// Truncations after products.
    Truncations,
    /// Softmax, with all that is inside.
    Softmax,
    /// GELU, SiLU or tanh.
    Activations,
    /// LayerNorm or RMSNorm, with all that is inside.
    Norms,
    /// Clamps where nothing is proved.
    Clamps,
}

impl Gate {
    /// All, in the order of a layer.
    pub const ALL: [Self; 7] = [
        Self::Products,
        Self::WeightMasks,
        Self::Truncations,
        Self::Softmax,
        Self::Activations,
        Self::Norms,
        Self::Clamps,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Products => "products",
            Self::WeightMasks => "weight masks",
            Self::Truncations => "truncations",
            Self::Softmax => "softmax",
            Self::Activations => "activations",
            Self::Norms => "norms",
            Self::Clamps => "clamps",
        }
    }
}

impl Op {
    /// Under which gate its cost is shown; none for what is local.
    pub fn gate(&self) -> Option<Gate> {
        Some(match self {
            Self::Embed { .. } | Self::Linear { .. } | Self::Tied { .. } => Gate::Products,
            Self::Scores { .. } => Gate::Products,
            Self::Mix { .. } | Self::Multiply | Self::Input { .. } => Gate::Products,
            Self::Truncate => Gate::Truncations,
            Self::Softmax { .. } => Gate::Softmax,
            Self::Activate(_) => Gate::Activations,
            Self::Normalise { .. } => Gate::Norms,
            Self::Clamp { .. } => Gate::Clamps,
            Self::Rotate { .. } | Self::Add | Self::Segment(_) | Self::Row(_) | Self::SumRows => return None,
        })
    }
}

/// Rows × columns of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows. Of scores and probabilities: their elements, packed, each a row of its own.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl Shape {
    /// Elements.
    pub fn len(self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// For people: `layer 3 scores`.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// From what.
    pub inputs: Vec<NodeId>,
    /// Where it is.
    pub part: Part,
    /// Its segments.
    pub segments: Vec<Shape>,
    /// Its fractional bits.
    pub fraction: u32,
}

impl Node {
    /// Elements of all segments.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A network: nodes in an order in which they can be computed, the last one its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    pub(crate) format: FixedPoint,
    pub(crate) tokens: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) weights: Vec<Weight>,
}

impl Graph {
    /// Its number format.
    pub fn format(&self) -> FixedPoint {
        self.format
    }

    /// Tokens of a sequence.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Its nodes in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its weights in the order in which a network asks for them.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// A weight.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0]
    }
}
