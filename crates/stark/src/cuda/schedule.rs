//! How a transform is cut into passes.

use gatework_gpu::Module;

use crate::kernels;
use crate::shared::LOWEST;

/// Layers that one launch runs on tiles in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The lowest layer.
    pub(crate) first: u32,
    /// How many.
    pub(crate) layers: u32,
}

/// Most layers of every other pass: then 16 neighbours go into a tile together.
const MOST: u32 = 10;
/// Layers that a pass on tiles of full size may have.
#[cfg(any(test, feature = "lab"))]
pub(crate) const PASSES: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, LOWEST];

impl Pass {
    /// Whether its tiles are of full size.
    pub(crate) fn is_full(&self) -> bool {
        self.first > 0 || self.layers == LOWEST
    }

    /// Passes of as many layers on tiles of full size.
    pub(crate) fn module(&self) -> Module {
        kernels::CIRCLE_PASS
            .define("LAYERS", self.layers)
            .define("LOG_TILE", self.log_tile())
            .define("THREADS", self.threads())
    }

    /// The pass on tiles of full size that has so many layers, wherever it begins.
    pub(crate) fn full(layers: u32) -> Self {
        Self { first: if layers == LOWEST { 0 } else { LOWEST }, layers }
    }

    /// Threads of a block, with eight values each on tiles that are smaller.
    pub(crate) fn threads(&self) -> u32 {
        match self.log_tile() {
            log_tile if !self.is_full() => 1 << (log_tile - 3),
            LOWEST => 256,
            _ => 512,
        }
    }

    /// Values of a tile, as a logarithm.
    pub(crate) fn log_tile(&self) -> u32 {
        match (self.first, self.layers) {
            (0, layers) => layers,
            (_, ..=8) => LOWEST,
            (_, layers) => layers + 4,
        }
    }
}

/// The passes of a transform of `layers` layers, lowest first. `layers` is at least three.
pub(crate) fn passes(layers: u32) -> Vec<Pass> {
    let lowest = layers.min(LOWEST);
    let mut passes = vec![Pass { first: 0, layers: lowest }];
    let mut first = lowest;
    // As few more passes as there can be, of even length.
    let mut turns = (layers - lowest).div_ceil(MOST);
    while first < layers {
        let here = (layers - first).div_ceil(turns);
        passes.push(Pass { first, layers: here });
        first += here;
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
                assert!(!pass.is_full() || PASSES.contains(&pass.layers));
                if pass.first > 0 {
                    let log_width = pass.log_tile() - pass.layers;
                    assert!((4..=pass.first).contains(&log_width));
                }
                next += pass.layers;
            }
            assert_eq!(next, layers);
        }
    }

    #[test]
    fn four_million_rows_take_two_passes() {
        assert_eq!(passes(12).len(), 1);
        assert_eq!(passes(13).len(), 2);
        assert_eq!(passes(22).len(), 2);
        assert_eq!(passes(24).len(), 3);
    }
}
