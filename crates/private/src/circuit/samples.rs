//! Small networks for tests: every family, ordinary and adversarial weights.

use crate::graph::{Family, Graph, Head, Model, Op, Weight, WeightKind};

/// How weights and inputs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Noise.
    Noise,
    /// Every matrix is constant: rank one, aligned with constant rows.
    Constant,
    /// Every matrix passes columns on.
    Identity,
    /// Signs alternate along rows and columns: rank one, aligned with alternating rows.
    Alternating,
    /// Inputs have one large element a row, which a normalisation makes as large as it can; matrices pass
    /// columns on.
    Spike,
}

impl Style {
    pub(crate) const ALL: [Self; 5] =
        [Self::Noise, Self::Constant, Self::Identity, Self::Alternating, Self::Spike];
}

/// Two layers of a family, small.
pub(crate) fn small(family: Family, bits: u32) -> Model {
    Model {
        name: "small",
        family,
        layers: 2,
        heads: 2,
        width: 16,
        inner: 24,
        vocabulary: 11,
        types: if family == Family::Bert { 2 } else { 0 },
        context: 16,
        head: if family == Family::Bert { Head::Classes(2) } else { Head::NextWord },
        epsilon: 1e-5,
        bits,
    }
}

pub(crate) fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A weight's integers: matrices of spectral norm about `norm`, gains up to 2, biases up to ½.
fn weight(
    graph: &Graph,
    weight: &Weight,
    style: Style,
    norm: f64,
    draw: &mut impl FnMut() -> f64,
) -> Vec<i64> {
    let f = graph.format().fraction;
    let fraction = if weight.kind == WeightKind::Bias { 2 * f } else { f };
    let unit = (1u64 << fraction) as f64;
    let (rows, columns) = (weight.rows, weight.columns);
    let even = norm / ((rows * columns) as f64).sqrt();
    let sign = |index: usize| if index.is_multiple_of(2) { 1.0 } else { -1.0 };
    let mut cell = |row: usize, column: usize| match (weight.kind, style) {
        (WeightKind::Matrix, Style::Noise) => even * draw() * 1.2,
        (WeightKind::Matrix, Style::Constant) => even,
        (WeightKind::Matrix, Style::Alternating) => even * sign(row + column),
        (WeightKind::Matrix, Style::Identity | Style::Spike) => {
            if row % columns == column % rows {
                norm
            } else {
                0.0
            }
        }
        (WeightKind::Gain, Style::Noise) => 1.0 + draw(),
        (WeightKind::Gain, _) => 2.0,
        (WeightKind::Bias | WeightKind::Shift, Style::Alternating) => 0.5 * sign(column),
        (WeightKind::Bias | WeightKind::Shift, _) => 0.5,
        (WeightKind::Table, Style::Constant) => 1.0,
        (WeightKind::Table, _) => draw(),
    };
    let cells = (0..rows * columns).map(|index| cell(index / columns, index % columns));
    cells.map(|value| (value * unit).round() as i64).collect()
}

pub(crate) fn weights(graph: &Graph, style: Style, norm: f64, seed: u64) -> Vec<Vec<i64>> {
    let mut draw = noise(seed);
    graph.weights().iter().map(|tensor| weight(graph, tensor, style, norm, &mut draw)).collect()
}

/// What the client gives: activations within the declared magnitude, or one-hot tokens.
pub(crate) fn client(graph: &Graph, style: Style, seed: u64) -> Vec<i64> {
    let mut draw = noise(seed ^ 0x5555);
    let node = &graph.nodes()[0];
    match &node.op {
        Op::Input { magnitude } => {
            let columns = node.segments[0].columns;
            let of = |index: usize| match style {
                Style::Noise => (draw() * *magnitude as f64) as i64,
                Style::Constant | Style::Identity => *magnitude,
                Style::Alternating => {
                    if (index % columns).is_multiple_of(2) {
                        *magnitude
                    } else {
                        -magnitude
                    }
                }
                Style::Spike => {
                    if index % columns == 3 {
                        *magnitude
                    } else {
                        0
                    }
                }
            };
            (0..node.len()).map(of).collect()
        }
        Op::Embed { table, types, .. } => {
            let rows = graph.weight(*table).rows;
            let words = rows - types;
            let token = |row: usize| (row * 7 + seed as usize) % words;
            let kind = |row: usize| words + (row * 5 + seed as usize) % types.max(&1);
            let is_hot = |row: usize, place: usize| place == token(row) || place == kind(row);
            (0..graph.tokens())
                .flat_map(|row| (0..rows).map(move |place| i64::from(is_hot(row, place))))
                .collect()
        }
        other => panic!("a graph begins with its input, not with {other:?}"),
    }
}
