//! One rule for each operation: bounds of the result from bounds of the operands.

use gatework_fss::table::LARGEST_TABLE_BITS;

use crate::graph::{ActivationKind, Graph, Node, NormKind, Op, Shape, WeightId};

use super::upper::Upper;
use super::weights::{Facts, WeightFacts};
use super::{Room, Trust};

/// Upper bounds of one segment, in units of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    /// The largest magnitude.
    pub(crate) peak: Upper,
    /// The largest ℓ2 norm of a row.
    pub(crate) norm: Upper,
}

impl Span {
    /// Each bound is at most what the other implies; without norms only magnitudes count.
    fn settled(self, columns: usize, trust: Trust) -> Self {
        let spread = root_of(columns).times(self.peak);
        match trust {
            Trust::Norms => Self { peak: self.peak.min(self.norm), norm: self.norm.min(spread) },
            Trust::Intervals | Trust::RingOnly => Self { peak: self.peak, norm: spread },
        }
    }

    /// At most `magnitude`.
    pub(super) fn clamped(self, magnitude: Upper, columns: usize) -> Self {
        let peak = self.peak.min(magnitude);
        Self { peak, norm: self.norm.min(root_of(columns).times(peak)) }
    }

    fn both(self, change: impl Fn(Upper) -> Upper) -> Self {
        Self { peak: change(self.peak), norm: change(self.norm) }
    }

    /// An error of at most `units` units of the last of `fraction` bits in every element.
    fn rounded(self, units: f64, fraction: u32, columns: usize) -> Self {
        self.off(Upper::exactly(units).times(Upper::power(-(fraction as i32))), columns)
    }

    /// An error of at most that in every element.
    fn off(self, error: Upper, columns: usize) -> Self {
        Self { peak: self.peak.plus(error), norm: self.norm.plus(root_of(columns).times(error)) }
    }

    fn plus(self, other: Self) -> Self {
        Self { peak: self.peak.plus(other.peak), norm: self.norm.plus(other.norm) }
    }
}

fn root_of(count: usize) -> Upper {
    Upper::exactly(count as f64).root()
}

/// log2 of what GELU and SiLU may be off, beside one unit of the last bit: a table's entry is the middle of a
/// run of 2^−6, over which max(x, 0) − g(x) changes by at most half of that; what is dropped outside the
/// table is less.
const ACTIVATION_ERROR: i32 = -8;

/// log2 of the relative error that the table of reciprocal roots may have: it has seven mantissa bits or
/// more.
const ROOT_TABLE_ERROR: i32 = -9;

/// What the rules need beside the operands.
pub(super) struct Rules<'a> {
    pub(super) graph: &'a Graph,
    pub(super) weights: &'a Facts,
    pub(super) trust: Trust,
}

impl Rules<'_> {
    fn fraction(&self) -> u32 {
        self.graph.format().fraction
    }

    fn bits(&self) -> u32 {
        self.graph.format().ring.bits()
    }

    /// What holds of a node's result, if its own requirements are met.
    pub(super) fn apply(&self, node: &Node, inputs: &[&[Span]]) -> Vec<Span> {
        let f = self.fraction();
        let first = |index: usize| inputs.first().and_then(|spans| spans.get(index)).copied();
        let x = first(0).unwrap_or(Span { peak: Upper::ZERO, norm: Upper::ZERO });
        let y = inputs.get(1).and_then(|spans| spans.first()).copied().unwrap_or(x);
        let spans: Vec<Span> = match &node.op {
            Op::Input { magnitude } => {
                let peak = Upper::integer(i128::from(*magnitude)).times(Upper::power(-(f as i32)));
                vec![Span { peak, norm: Upper::exactly(f64::INFINITY) }]
            }
            Op::Embed { table, positions, types } => {
                let rows = |id: &WeightId| {
                    let facts = self.weights[id];
                    Span { peak: facts.entry, norm: facts.row_norm }
                };
                let mut table = rows(table);
                if *types > 0 {
                    // A word's row and a type's.
                    table = table.plus(table);
                }
                vec![positions.as_ref().map_or(table, |positions| table.plus(rows(positions)))]
            }
            Op::Linear { weights } => weights.iter().map(|pair| self.linear(x, pair)).collect(),
            Op::Tied { table } => {
                // A column of Tᵀ is a row of T.
                let facts = self.weights[table];
                let sum = Upper::exactly(self.graph.weight(*table).columns as f64).times(facts.entry);
                let peak = x.norm.times(facts.row_norm).min(x.peak.times(sum));
                vec![Span { peak, norm: x.norm.times(facts.spectral) }]
            }
            Op::Scores { .. } => {
                let columns = node_columns(self.graph, node);
                let by_norms = x.norm.times(y.norm);
                let by_peaks = Upper::exactly(columns as f64).times(x.peak.times(y.peak));
                vec![single(by_norms.min(by_peaks))]
            }
            Op::Softmax { .. } => vec![single(self.row_sum())],
            Op::Mix { heads, .. } => {
                let alpha = self.row_sum();
                vec![Span { peak: alpha.times(y.peak), norm: alpha.times(root_of(*heads).times(y.norm)) }]
            }
            Op::Rotate { .. } => {
                // Four rounded entries of half a unit each are a matrix of norm 2^−f; twice that leaves room
                // for how they are computed.
                let stretch = Upper::exactly(1.0).plus(Upper::power(1 - f as i32));
                let diagonal = Upper::exactly(2.0).root();
                let turn = |span: Span| Span {
                    peak: stretch.times(diagonal.times(span.peak)),
                    norm: stretch.times(span.norm),
                };
                inputs[0].iter().take(2).map(|&span| turn(span)).collect()
            }
            Op::Truncate => {
                let pairs = inputs[0].iter().zip(&node.segments);
                pairs.map(|(span, shape)| span.rounded(1.0, f, shape.columns)).collect()
            }
            Op::Multiply => {
                let norm = x.norm.times(y.peak).min(y.norm.times(x.peak));
                vec![Span { peak: x.peak.times(y.peak), norm }]
            }
            Op::SumRows => {
                let rows = self.graph.node(node.inputs[0]).segments[0].rows;
                vec![x.both(|bound| Upper::exactly(rows as f64).times(bound))]
            }
            Op::Activate(ActivationKind::Tanh) => {
                // A rounded number between −1 and 1, and |tanh x| ≤ |x|.
                let columns = node.segments[0].columns;
                let one = Upper::exactly(1.0);
                let limited = x.clamped(one, columns);
                vec![limited.rounded(0.5, f, columns).clamped(one, columns)]
            }
            Op::Activate(_) => {
                let columns = node.segments[0].columns;
                vec![x.rounded(1.0, f, columns).off(Upper::power(ACTIVATION_ERROR), columns)]
            }
            Op::Normalise { kind, gain, shift, .. } => {
                vec![self.normalised(
                    x,
                    node.segments[0],
                    *kind,
                    self.weights[gain],
                    shift.map(|id| self.weights[&id]),
                )]
            }
            Op::Add => vec![x.plus(y)],
            Op::Segment(index) => vec![first(*index).unwrap_or(x)],
            Op::Row(_) => vec![x],
            Op::Clamp { magnitude } => {
                let limit = Upper::integer(i128::from(*magnitude)).times(Upper::power(-(f as i32)));
                let pairs = inputs[0].iter().zip(&node.segments);
                pairs.map(|(span, shape)| span.clamped(limit, shape.columns)).collect()
            }
        };
        let pairs = spans.into_iter().zip(&node.segments);
        pairs.map(|(span, shape)| span.settled(shape.columns, self.trust)).collect()
    }

    fn linear(&self, x: Span, (matrix, bias): &(WeightId, Option<WeightId>)) -> Span {
        let facts = self.weights[matrix];
        let by_sums = x.peak.times(facts.column_sum);
        let product =
            Span { peak: by_sums.min(x.norm.times(facts.column_norm)), norm: x.norm.times(facts.spectral) };
        match bias.map(|bias| self.weights[&bias]) {
            None => product,
            Some(bias) => product.plus(Span { peak: bias.entry, norm: bias.row_norm }),
        }
    }

    /// What a row of probabilities adds up to, at most.
    ///
    /// The reciprocal of a sum S ≥ 1 is that of the first number of its run of 2^s, and half a unit more; S
    /// is less than a run above. So the products add up to less than 1 + (2^s − 1 + w / 2) 2^−f, and each is
    /// rounded by half a unit.
    fn row_sum(&self) -> Upper {
        let f = self.fraction();
        let longest = self.graph.tokens() as u64;
        let bits = f + (u64::BITS - longest.leading_zeros());
        let left_out = bits.saturating_sub(LARGEST_TABLE_BITS);
        let units = Upper::exactly(((1u64 << left_out) - 1) as f64).plus(Upper::exactly(longest as f64));
        Upper::exactly(1.0).plus(units.times(Upper::power(-(f as i32))))
    }

    /// ‖x − μ‖ with the mean as it is computed, off by a relative 2^−(f+1) and one unit.
    fn centred(&self, norm: Upper, columns: usize) -> Upper {
        let f = self.fraction() as i32;
        let off = norm.times(Upper::power(-(f + 1))).plus(root_of(columns).times(Upper::power(-f)));
        norm.plus(off)
    }

    fn normalised(
        &self,
        x: Span,
        shape: Shape,
        kind: NormKind,
        gain: WeightFacts,
        shift: Option<WeightFacts>,
    ) -> Span {
        let (f, columns) = (self.fraction(), shape.columns);
        let given = match kind {
            NormKind::Layer => self.centred(x.norm, columns),
            NormKind::RootMeanSquare => x.norm,
        };
        let exact = root_of(columns);
        let table =
            exact.times(Upper::power(ROOT_TABLE_ERROR)).plus(given.times(Upper::power(-(f as i32) - 1)));
        let normal = exact.plus(table);
        let normal = Span { peak: normal, norm: normal }.rounded(1.0, f, columns);
        let gained = normal.both(|bound| gain.entry.times(bound)).rounded(1.0, f, columns);
        match shift {
            None => gained,
            Some(shift) => gained.plus(Span { peak: shift.entry, norm: shift.row_norm }),
        }
    }

    /// How much room a node's result is proved to leave; none if it is not proved to stay in the ring.
    pub(super) fn room(&self, node: &Node, spans: &[Span]) -> Option<Room> {
        let peak = spans.iter().map(|span| span.peak).fold(Upper::ZERO, Upper::max);
        let (bits, f) = (self.bits(), self.fraction());
        // With one fractional bit or none a truncation leaves as much as a gap, or more.
        if node.fraction == f && f > 1 && bits > f + 1 && peak.below(f, bits - 1 - f) {
            return Some(Room::Narrow);
        }
        let gap = peak.below(node.fraction, self.bits() - 2);
        if gap && !(self.trust == Trust::RingOnly && node.fraction > self.fraction()) {
            return Some(Room::Gap);
        }
        peak.below(node.fraction, self.bits() - 1).then_some(Room::Ring)
    }

    /// Whether the operands of a node meet its requirements. Only a normalisation has any: see [`NormRoom`].
    pub(super) fn admits(&self, node: &Node, inputs: &[&[Span]]) -> bool {
        let Op::Normalise { kind, .. } = node.op else { return true };
        let (columns, x) = (node.segments[0].columns, inputs[0][0]);
        let Some(room) = NormRoom::new(self.graph, kind, columns) else { return false };
        let norm = match kind {
            NormKind::Layer => self.centred(x.norm, columns),
            NormKind::RootMeanSquare => x.norm,
        };
        x.peak.below(self.fraction(), room.peak_bits)
            && norm.times(norm).below(2 * self.fraction(), room.square_bits)
    }
}

fn single(bound: Upper) -> Span {
    Span { peak: bound, norm: bound }
}

fn node_columns(graph: &Graph, node: &Node) -> usize {
    graph.node(node.inputs[0]).segments[0].columns
}

/// What a normalisation needs of its rows: a function of shapes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NormRoom {
    /// Elements are below 2^this as integers, so that their sum times 2^t / d leaves a gap.
    pub(crate) peak_bits: u32,
    /// Sums of squares are below 2^this as integers.
    pub(crate) square_bits: u32,
}

impl NormRoom {
    /// None if the ring is too small for any row.
    pub(crate) fn new(graph: &Graph, kind: NormKind, columns: usize) -> Option<Self> {
        let (bits, f) = (graph.format().ring.bits(), graph.format().fraction);
        // Narrower ones leave the table of roots fewer mantissa bits than its error is bounded for.
        let square_bits = bits.checked_sub(2).filter(|&square_bits| square_bits >= 10)?;
        let peak_bits = match kind {
            NormKind::Layer => {
                let shift = f + (usize::BITS - columns.saturating_sub(1).leading_zeros());
                bits.checked_sub(3 + shift)?
            }
            NormKind::RootMeanSquare => square_bits.div_ceil(2),
        };
        Some(Self { peak_bits, square_bits })
    }
}
