//! The largest of a few values, by comparing all of them with each other.
//!
//! With ℓ_j = 1 for each of the others that is larger, a value is the largest if all ℓ_j are 0. Opened, ℓ̂_j
//! = ℓ_j ⊕ ρ_j, that is where the pattern ℓ̂ is the pattern ρ, which the dealer knows. So of each value x̂ =
//! x + r and each pattern p the dealer shares 1[p = ρ] and 1[p = ρ] r, and 1[x is the largest] x = x̂ ⟨1[ℓ̂ =
//! ρ]⟩ − ⟨1[ℓ̂ = ρ] r⟩: one round after the comparisons, whatever the number of values.

use std::sync::{Arc, LazyLock};

use crate::backend::{Sums, Words};
use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::evaluator::{Evaluator, Role};
use crate::formula::{Tape, View, Word};
use crate::ring::Ring;
use crate::tensor::{Share, Wire};

/// Bits of a pattern: with how many others a value is compared.
pub(crate) const OTHERS: usize = 3;
/// Values of a group.
pub(crate) const GROUP: usize = OTHERS + 1;
const PATTERNS: usize = 1 << OTHERS;

/// The patterns as numbers.
static NUMBERS: LazyLock<Arc<[u64]>> = LazyLock::new(|| (0..PATTERNS as u64).collect());

impl Evaluator {
    /// The sums of what is the largest: `x` has the first values of all groups, then all second ones, up to
    /// the last, and of each value `larger` says which of its others are. Values that are not there are
    /// public zeros, and their bits too.
    pub(crate) fn largest(&self, x: &Wire, larger: [&Wire; OTHERS], groups: usize) -> Result<Share> {
        const GATE: &str = "the largest of a group";
        let (ring, len) = (x.ring(), x.len());
        if larger.iter().any(|bit| bit.ring() != Ring::BIT || bit.len() != len) || len != GROUP * groups {
            return Err(Error::Shape { gate: GATE, what: format!("{x:?} in {groups} groups") });
        }
        let (word, larger) = (x.words(), larger.map(Wire::words));
        // All values' words of the first pattern, then of the second.
        let all = PATTERNS * len;
        let patterns = &match &self.role {
            Role::Dealer(_) => self.constants(&NUMBERS)?,
            _ => Words::absent(PATTERNS),
        };
        let units = &self.deal(all, ring, |w| unit(w, larger, patterns, len))?;
        let masks = &self
            .deal(all, ring, |w| unit(w, larger, patterns, len) * w.read_as(word, View::Cycle(len.max(1))))?;
        let fresh = &self.fresh(groups, ring)?;
        // Terms may be any residue; what is proved is their sums.
        let terms: Wire = self.compute(
            GATE,
            (ring, len),
            Bound::unsigned(ring),
            |w| {
                let [first, second, third] = w.read_all(larger);
                (first + second + third).below(w.number(1)) * w.read(word)
            },
            |w| w.number(0),
            |w, _| {
                let bits = w.read_all(larger);
                let of = |words: &Words| {
                    let row = |pattern: usize| w.read_as(words, View::From(pattern * len));
                    let mut rows: Vec<Word<'_>> = (0..PATTERNS).map(row).collect();
                    // The first bit chooses between neighbours.
                    for bit in bits {
                        rows = rows.chunks(2).map(|pair| bit.choose(pair[0], pair[1])).collect();
                    }
                    rows[0]
                };
                w.read(word) * of(units) - of(masks)
            },
        )?;
        let sums = &terms.words().sums(Sums::Columns(groups), ring)?;
        self.compute(
            GATE,
            (ring, groups),
            Bound::unsigned(ring),
            |w| w.read(sums),
            |w| w.read(fresh),
            |w, _| w.read(fresh) + w.read(sums),
        )
    }
}

/// The dealer's 1[p = ρ], for all values of every pattern in turn.
fn unit<'t>(w: &'t Tape, larger: [&Words; OTHERS], patterns: &Words, len: usize) -> Word<'t> {
    let rho = larger
        .iter()
        .rev()
        .fold(w.number(0), |rho, bits| (rho << 1) + w.read_as(*bits, View::Cycle(len.max(1))));
    (rho ^ w.read_as(patterns, View::Each(len.max(1)))).below(w.number(1))
}
