//! Proofs that no value of a network leaves its ring, or the gap of a truncation.
//!
//! Each tensor carries two upper bounds in units of one: the largest magnitude, and the largest ℓ2 norm of a
//! row. Intervals alone fail on transformers, since q kᵀ of anything but tiny intervals leaves every ring;
//! norms do not, since a normalisation makes rows of norm √d whatever it is given:
//!
//! | node | magnitude | row norm |
//! |---|---|---|
//! | x W + b | min(‖x‖_∞ max Σ\|w\|, ‖x‖ max ‖w‖) + ‖b‖_∞, over columns w | ‖x‖ ‖W‖₂ + ‖b‖ |
//! | x Tᵀ | min(‖x‖ max ‖t‖, ‖x‖_∞ d ‖T‖_∞), over rows t | ‖x‖ ‖T‖₂ |
//! | q kᵀ | ‖q‖ ‖k‖ | |
//! | softmax | α | its rows sum to at most α = 1 + (2^s − 1 + w) 2^−f |
//! | p v | α ‖v‖_∞ | α √heads ‖v‖ |
//! | ⌊x / 2^f⌋ | ‖x‖_∞ + 2^−f | ‖x‖ + √d 2^−f |
//! | LN(x) | γ (√d (1 + 2^−9) + ‖x‖ 2^−(f+1) + √d 2^−f) + 2^−f + β | the same with √d 2^−f, and norms of γ and β |
//! | g(x) | ‖x‖_∞ + 2^−8 + 2^−f | ‖x‖ + √d (2^−8 + 2^−f) |
//! | tanh x | min(‖x‖_∞, 1) + 2^−(f+1), at most 1 | the same with √d |
//! | sum of rows | their number times ‖x‖_∞ | the same with ‖x‖ |
//! | rotation | √2 (1 + 2^(1−f)) ‖x‖_∞ | (1 + 2^(1−f)) ‖x‖ |
//! | x + y | sum | sum |
//! | x y | product | ‖x‖ ‖y‖_∞ |
//!
//! w is the longest row of the softmax and s the bits that its reciprocal's table leaves out. Different heads
//! may look at different tokens, which costs p v the root of their number. The bounds are of the integers
//! that are really computed, with the rounding of every gate, and are themselves rounded up. Each is also at
//! most what the other implies.
//!
//! What a proof says is one of three things ([`Room`]): an activation is no wider than what a truncation
//! leaves of the ring, so that comparisons of it are as short as after one; the tensor is below a quarter of
//! the ring, so that a short truncation is enough; or it stays in the ring. That choice is public, since it
//! decides which keys are dealt. Norms are not: the runtime is given the room's bound, never the proved one.
//! Where none can be proved the analysis inserts a clamp, or refuses and names the tensor ([`Unproved`]). A
//! clamp's limit is public too: a power of two that follows from shapes, except before a product with
//! weights, where it follows from their norm.

mod analysis;
mod rules;
mod spectral;
#[cfg(test)]
mod tests;
mod upper;
mod weights;

pub use analysis::{Proved, Truncation};
pub(crate) use rules::NormRoom;
pub(crate) use weights::Facts;
pub use weights::{Knowledge, StatedNorms};

use gatework_fss::{Bound, FixedPoint};
use serde::{Deserialize, Serialize};

/// How much of its ring a tensor is proved to leave free, most first: all that becomes public of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Room {
    /// |v| < 2^(n−1−f), of an activation.
    Narrow,
    /// |v| < 2^(n−2).
    Gap,
    /// −2^(n−1) ≤ v < 2^(n−1).
    Ring,
}

impl Room {
    /// The bound that the runtime is given, which depends on the number format and on nothing else.
    pub(crate) fn bound(self, format: FixedPoint) -> Bound {
        let below = |limit: i128| Bound::proved(1 - limit, limit - 1);
        match self {
            Self::Narrow => below(format.ring.size() >> (1 + format.fraction)),
            Self::Gap => below(format.ring.size() / 4),
            Self::Ring => Bound::signed(format.ring),
        }
    }
}

/// A clamp of the operands of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clamped {
    /// The node, by its place in the graph that was given.
    pub node: usize,
    /// log2 of the limit, as an integer with f fractional bits.
    pub exponent: u32,
}

/// The public part of a proof: it decides which keys are dealt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    /// How much room every tensor has, clamps included.
    pub rooms: Vec<Room>,
    /// Where operands are clamped, in the order of the nodes.
    pub clamps: Vec<Clamped>,
}

/// The facts that proofs may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Magnitudes and norms.
    #[default]
    Norms,
    /// Magnitudes.
    Intervals,
    /// Magnitudes, and those only for staying in the ring: every truncation after a product is faithful.
    RingOnly,
}

/// How to continue where nothing proves a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unproved {
    /// Clamp the operands, at the cost of a clamp.
    Clamp,
    /// End with an error that names the tensor.
    Refuse,
}
