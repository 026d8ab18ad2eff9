//! Shapes and masks as cases of the lab, and back.

use gatework_lab::Case;

use crate::{Mask, Shape};

/// The case of a shape and a mask.
pub fn case(shape: &Shape, mask: Mask) -> Case {
    let Shape { batch, heads, key_heads, rows, keys, dim } = *shape;
    let name =
        format!("{batch}x{heads}x{key_heads}x{rows}x{keys}x{dim}-{}", format!("{mask:?}").to_lowercase());
    Case::new(name)
        .with("batch", batch)
        .with("heads", heads)
        .with("key_heads", key_heads)
        .with("queries", rows)
        .with("keys", keys)
        .with("head_dim", dim)
        .with("causal", usize::from(mask == Mask::Causal))
}

/// The shape and the mask of a case; none if it is no attention.
pub fn of_case(case: &Case) -> Option<(Shape, Mask)> {
    let size = |name: &str| case.dimensions.get(name).and_then(|&size| usize::try_from(size).ok());
    let shape = Shape {
        batch: size("batch")?,
        heads: size("heads")?,
        key_heads: size("key_heads")?,
        rows: size("queries")?,
        keys: size("keys")?,
        dim: size("head_dim")?,
    };
    Some((shape, if size("causal")? == 1 { Mask::Causal } else { Mask::Full }))
}
