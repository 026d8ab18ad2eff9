//! Shapes and masks as cases of the lab, and back.

use gatework_lab::Case;

use crate::{Mask, Shape};

/// The length of values that are not as long as keys.
const VALUE_DIM: &str = "value_dim";
/// Dimensions of a case with a window.
const LEFT: &str = "window_left";
const RIGHT: &str = "window_right";
/// Those of cases with sinks or a soft cap.
const SINKS: &str = "sinks";
const SOFT_CAP: &str = "soft_cap";

/// The case of a shape and a mask.
pub fn case(shape: &Shape, mask: Mask) -> Case {
    let Shape { batch, heads, key_heads, rows, keys, dim, value_dim } = *shape;
    let seen = match mask {
        Mask::Full => "full".to_owned(),
        Mask::Causal => "causal".to_owned(),
        Mask::Window { left, right } => format!("window-{left}-{right}"),
    };
    let length = if value_dim == dim { dim.to_string() } else { format!("{dim}-{value_dim}") };
    let case = Case::new(format!("{batch}x{heads}x{key_heads}x{rows}x{keys}x{length}-{seen}"))
        .with("batch", batch)
        .with("heads", heads)
        .with("key_heads", key_heads)
        .with("queries", rows)
        .with("keys", keys)
        .with("head_dim", dim)
        .with("causal", usize::from(mask == Mask::Causal));
    // Records and peers know the dimension of values by its own name only where it is another.
    let case = if value_dim == dim { case } else { case.with(VALUE_DIM, value_dim) };
    match mask {
        Mask::Full | Mask::Causal => case,
        Mask::Window { left, right } => case.with(LEFT, left).with(RIGHT, right),
    }
}

/// A case whose heads have sinks.
pub(super) fn with_sinks(case: Case) -> Case {
    Case { name: format!("{}-{SINKS}", case.name), ..case }.with(SINKS, 1)
}

/// A case whose scores are capped.
pub(super) fn with_soft_cap(case: Case, cap: u16) -> Case {
    Case { name: format!("{}-cap-{cap}", case.name), ..case }.with(SOFT_CAP, cap.into())
}

/// The shape and the mask of a case; none if it is no attention, or one with sinks or a soft cap.
pub fn of_case(case: &Case) -> Option<(Shape, Mask)> {
    let is_plain = ![SINKS, SOFT_CAP].iter().any(|&name| case.dimensions.contains_key(name));
    shape_and_mask(case).filter(|_| is_plain)
}

/// The shape and the mask of a case, whatever becomes of its scores.
pub(super) fn shape_and_mask(case: &Case) -> Option<(Shape, Mask)> {
    let size = |name: &str| case.dimensions.get(name).and_then(|&size| usize::try_from(size).ok());
    let shape = Shape {
        batch: size("batch")?,
        heads: size("heads")?,
        key_heads: size("key_heads")?,
        rows: size("queries")?,
        keys: size("keys")?,
        dim: size("head_dim")?,
        value_dim: size(VALUE_DIM).or_else(|| size("head_dim"))?,
    };
    let mask = match (size("causal")?, size(LEFT), size(RIGHT)) {
        (0, None, None) => Mask::Full,
        (1, None, None) => Mask::Causal,
        (0, Some(left), Some(right)) => Mask::Window { left, right },
        _ => return None,
    };
    Some((shape, mask))
}
