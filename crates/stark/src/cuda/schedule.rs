//! How a transform is cut into passes.

/// Layers that one launch runs on tiles in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The lowest layer.
    pub(crate) first: u32,
    /// How many.
    pub(crate) layers: u32,
    /// Values of a tile.
    pub(crate) log_tile: u32,
    /// Neighbours in memory that go into a tile together; one run where the tile is one.
    pub(crate) log_width: u32,
}

/// Values of a usual tile: 18 KiB of shared memory, 512 threads.
const LOG_TILE: u32 = 12;
/// Values of the largest tile, which saves a pass at some sizes.
const LOG_LARGEST_TILE: u32 = 13;
/// Fewest neighbours that are read together: 64 bytes, two sectors.
const LOG_LEAST_WIDTH: u32 = 4;

/// The passes of a transform of `layers` layers, lowest first. `layers` is at least three.
pub(crate) fn passes(layers: u32) -> Vec<Pass> {
    if layers <= LOG_TILE {
        return vec![Pass { first: 0, layers, log_tile: layers, log_width: 0 }];
    }
    let high_of = |log_tile: u32| log_tile - LOG_LEAST_WIDTH;
    let log_tile = if layers <= LOG_TILE + high_of(LOG_TILE) { LOG_TILE } else { LOG_LARGEST_TILE };
    let mut passes = vec![Pass { first: 0, layers: log_tile, log_tile, log_width: 0 }];
    let mut left = layers - log_tile;
    // As few more passes as the width allows, of even length.
    let mut turns = left.div_ceil(high_of(log_tile));
    while left > 0 {
        let layers_here = left.div_ceil(turns);
        let first = layers - left;
        passes.push(Pass { first, layers: layers_here, log_tile, log_width: log_tile - layers_here });
        left -= layers_here;
        turns -= 1;
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_cover_every_layer_once_and_read_whole_sectors() {
        for layers in 3..=30 {
            let passes = passes(layers);
            let mut next = 0;
            for pass in &passes {
                assert_eq!(pass.first, next, "{layers} layers");
                assert!(pass.layers <= pass.log_tile && pass.log_tile <= LOG_LARGEST_TILE);
                if pass.first > 0 {
                    assert_eq!(pass.log_tile, pass.layers + pass.log_width);
                    assert!(pass.log_width >= LOG_LEAST_WIDTH && pass.log_width <= pass.first);
                }
                next += pass.layers;
            }
            assert_eq!(next, layers);
        }
    }

    #[test]
    fn a_million_rows_take_two_passes() {
        assert_eq!(passes(12).len(), 1);
        assert_eq!(passes(20).len(), 2);
        assert_eq!(passes(22).len(), 2);
        assert_eq!(passes(24).len(), 3);
    }
}
