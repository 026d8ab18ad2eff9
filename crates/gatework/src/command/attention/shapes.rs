//! Shapes as they are typed: `4x16x4096x64`, `1x64/8x4096x128`, `1x16x4096x192/128`.

use gatework_attention::{Attention, Mask, Shape};
use gatework_gpu::Target;

/// Rows and batches of 16384 tokens together.
const LONG: [(usize, usize); 4] = [(8, 2048), (4, 4096), (2, 8192), (1, 16384)];

/// What is timed on a GPU if nothing else is asked for.
pub(super) fn for_gpu() -> Vec<Shape> {
    let mut shapes =
        vec![Shape::square(1, 8, 128, 64), Shape::square(1, 8, 512, 64), Shape::square(2, 8, 512, 64)];
    for dim in [64, 128] {
        shapes.extend(LONG.map(|(batch, rows)| Shape::square(batch, 16, rows, dim)));
    }
    shapes.extend(LONG.map(|(_, rows)| Shape { key_heads: 8, ..Shape::square(1, 64, rows, 128) }));
    // One row over many keys: what decoding does.
    shapes.push(Shape { key_heads: 8, keys: 16384, ..Shape::square(1, 32, 1, 128) });
    shapes
}

/// What is timed on a CPU, which would take minutes for the long ones of a GPU.
pub(super) fn for_cpu() -> Vec<Shape> {
    let mut shapes = vec![Shape::square(1, 8, 128, 64)];
    for dim in [64, 128] {
        shapes.extend([512, 1024, 2048].map(|rows| Shape::square(1, 8, rows, dim)));
    }
    shapes
}

/// Reads a shape and refuses what the engine does not do.
pub(crate) fn parse(given: &str) -> Result<Shape, String> {
    let shape = sizes(given).ok_or_else(|| {
        "write BATCHxHEADSxROWSxDIM, as 4x16x4096x64; with fewer key heads, other keys or values of another \
         length, as 1x64/8x4096x128, 1x16x1/4096x64 or 1x16x4096x192/128"
            .to_owned()
    })?;
    // On the CPU nothing is allocated: what is left of building is the check.
    Attention::builder(shape).build(&Target::Cpu).map_err(|error| error.to_string())?;
    Ok(shape)
}

fn sizes(given: &str) -> Option<Shape> {
    let parts: Vec<&str> = given.trim().split('x').collect();
    let [batch, heads, rows, dim] = parts.try_into().ok()?;
    let number = |text: &str| text.parse::<usize>().ok();
    let pair = |text: &str| match text.split_once('/') {
        Some((first, second)) => Some((number(first)?, number(second)?)),
        None => number(text).map(|both| (both, both)),
    };
    let ((heads, key_heads), (rows, keys), (dim, value_dim)) = (pair(heads)?, pair(rows)?, pair(dim)?);
    Some(Shape { batch: number(batch)?, heads, key_heads, rows, keys, dim, value_dim })
}

/// The shape as [`parse`] reads it.
pub(super) fn text(shape: &Shape) -> String {
    let pair = |first: usize, second: usize| {
        if first == second { first.to_string() } else { format!("{first}/{second}") }
    };
    let Shape { batch, heads, key_heads, rows, keys, dim, value_dim } = *shape;
    format!("{batch}x{}x{}x{}", pair(heads, key_heads), pair(rows, keys), pair(dim, value_dim))
}

/// `full`, `causal`, or the keys of a window.
pub(super) fn mask_name(mask: Mask) -> String {
    match mask {
        Mask::Full => "full".into(),
        Mask::Causal => "causal".into(),
        Mask::Window { left, right: 0 } => format!("window of {}", left + 1),
        Mask::Window { left, right } => format!("window of {left} before, {right} after"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        let grouped = Shape { key_heads: 8, ..Shape::square(1, 64, 4096, 128) };
        let single = Shape { keys: 4096, ..Shape::square(1, 16, 1, 64) };
        for (typed, shape) in [
            ("4x16x4096x64", Shape::square(4, 16, 4096, 64)),
            ("1x64/8x4096x128", grouped),
            ("1x16x1/4096x64", single),
            ("1x16x4096x192/128", Shape { value_dim: 128, ..Shape::square(1, 16, 4096, 192) }),
        ] {
            assert_eq!(parse(typed), Ok(shape));
            assert_eq!(text(&shape), typed);
        }
        for shape in for_gpu().into_iter().chain(for_cpu()) {
            assert_eq!(parse(&text(&shape)), Ok(shape));
        }
    }

    #[test]
    fn what_is_no_shape_is_told_how_to_be_one() {
        for wrong in
            ["", "4x16x4096", "4x16x4096x64x1", "4,16", "axbxcxd", "1x8x-5x64", "1x8/x512x64", "1x8x5 12x64"]
        {
            assert!(parse(wrong).unwrap_err().contains("as 4x16x4096x64"), "{wrong}");
        }
        assert!(parse("1x8x512x300").unwrap_err().contains("head dimension 300; 1 to 256 are supported"));
        assert!(parse("1x8/3x512x64").unwrap_err().contains("8 query heads over 3 key heads"));
        assert!(parse("1x8x0x64").unwrap_err().contains("empty"));
        assert!(parse("60000x60000x1000000000x64").unwrap_err().contains("2^40 rows"));
    }
}
