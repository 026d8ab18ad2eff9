//! A model of SIGMA's keys, traffic, rounds and AES calls.
//!
//! What it models is the published GPU code: 64-bit words of key whatever the ring, a tree of 128-bit nodes
//! with early termination whose last level has two leaves, truth tables up to 7 bits, selections of five
//! words, faithful truncations after every matrix product and slack ones inside gates, masks of weights dealt
//! for every inference. Both parties' keys are equally long. A lookup opens a bit, a word, and where its
//! result is used further the masked result, one message each; that, and a truncation's two or four messages,
//! is what makes the rounds. How LLaMA's products and scores are divided was inferred from its printed
//! totals, which the model meets.

use crate::error::Result;
use crate::graph::{Family, Gate, Mask, Model};

use super::{Figures, Report};

/// Bits of a word of key.
const WORD: u64 = 64;
/// Bits of a masked bit's share.
const BIT: u64 = 1;

/// Cost of one element: bits of key, bits sent a direction, and AES calls; and the messages of a whole tensor
/// of them.
#[derive(Debug, Clone, Copy, Default)]
struct Element {
    key: u64,
    sent: u64,
    aes: u64,
    messages: u64,
}

impl Element {
    fn then(self, other: Self) -> Self {
        Self {
            key: self.key + other.key,
            sent: self.sent + other.sent,
            aes: self.aes + other.aes,
            messages: self.messages + other.messages,
        }
    }

    /// Shared words and one opened word of `sent` bits.
    fn words(count: u64, sent: u64) -> Self {
        Self { key: count * WORD, sent, aes: 0, messages: u64::from(sent > 0) }
    }
}

/// Key bits and AES calls of a walk down a point function of `bits` bits: a correction word and a bit a
/// level, two leaves.
fn walk(bits: u32) -> (u64, u64) {
    if bits <= 7 {
        return (1 << bits.max(3), 0);
    }
    let levels = u64::from(bits - 7);
    (levels * 128 + 256 + levels, levels)
}

/// The same for all of a domain: control bits of all levels fill a word of 32 bits.
fn expansion(bits: u32) -> (u64, u64) {
    if bits <= 7 {
        return (1 << bits.max(3), 0);
    }
    let levels = u64::from(bits - 7);
    (levels * 128 + 256 + 32, 2 * ((1 << levels) - 1))
}

/// The ring and the fractional bits, and what gates cost in them.
struct Gates {
    n: u64,
    f: u64,
}

impl Gates {
    /// After a matrix product, for any value: two comparisons, four messages.
    fn faithful(&self) -> Element {
        let (n, f) = (self.n, self.f);
        let ((low, low_aes), (high, high_aes)) = (walk(f as u32), walk((n - f) as u32));
        let key = low + high + 2 * (BIT + 2 * WORD);
        Element { key, sent: 1 + (n - f) + 1 + n, aes: low_aes + high_aes, messages: 4 }
    }

    /// Where values are hoped to leave a gap. Words of key are `word` bits.
    fn slack(&self, shift: u64, out: u64, word: u64) -> Element {
        let (key, aes) = walk(shift as u32);
        Element { key: key + BIT + 3 * word, sent: 1 + out, aes, messages: 2 }
    }

    /// max(x, 0) of `bits` bits.
    fn relu(&self, bits: u64, out: u64, word: u64) -> Element {
        let (key, aes) = walk(bits as u32 - 1);
        Element { key: key + BIT + 5 * word, sent: 1 + out, aes, messages: 2 }
    }

    /// A lookup whose result is opened once more.
    fn lookup(&self, bits: u64) -> Element {
        let (key, aes) = expansion(bits as u32);
        Element { key: key + BIT + 5 * WORD, sent: 1 + 2 * self.n, aes, messages: 3 }
    }

    /// A product with words already shared, and its slack truncation.
    fn scaled(&self, words: u64) -> Element {
        Element::words(words, self.n).then(self.slack(self.f, self.n, WORD))
    }

    fn exponential(&self) -> Element {
        let clipped = self.relu(self.n - self.f + 2, 16, 16);
        let halves = self.slack(8, 8, 8).then(self.lookup(8)).then(self.lookup(8));
        clipped.then(halves).then(self.scaled(3))
    }

    /// GELU with a table of 8 bits, SiLU with one of 10.
    fn activation(&self, family: Family) -> Element {
        let (n, f) = (self.n, self.f);
        let (index, word) = if family == Family::Llama { (10, 16) } else { (8, 8) };
        let narrow = n - 2 * f + 7;
        let truncated = self.slack(f - 6, narrow, WORD);
        let (key, aes) = walk(narrow as u32 - 1);
        // Two bits in one message, then the table's index.
        let bits = Element { key: key + 2 * BIT + 8 * word, sent: 2 + index, aes: 3 * aes, messages: 2 };
        let (table, table_aes) = expansion(index as u32);
        let looked_up = Element { key: table + BIT + 5 * WORD, sent: 1 + n, aes: table_aes, messages: 2 };
        truncated.then(bits).then(looked_up).then(Element::words(5, n))
    }
}

/// Adds up elements.
#[derive(Default)]
struct Sum {
    key_bits: u64,
    sent_bits: u64,
    aes: u64,
    messages: u64,
}

impl Sum {
    fn add(&mut self, count: u64, element: Element) {
        self.key_bits += count * element.key;
        self.sent_bits += count * element.sent;
        self.aes += count * element.aes;
        self.messages += element.messages;
    }

    fn layers(&self, layers: u64) -> Figures {
        let figures = Figures {
            key_bytes: self.key_bits.div_ceil(8),
            traffic_bytes: (2 * self.sent_bits).div_ceil(8),
            rounds: self.messages,
            prg_blocks: self.aes,
        };
        figures.times(layers)
    }
}

/// Messages of a reciprocal root: its interval, the scaled mantissa, a truncation, a lookup. It runs on rows,
/// so that its keys and traffic do not show.
const ROOT_MESSAGES: u64 = 7;

/// The cost of SIGMA for a model and a sequence.
pub fn sigma(model: &Model, tokens: usize) -> Result<Report> {
    model.check(tokens)?;
    let format = model.format()?;
    let gates = Gates { n: u64::from(format.ring.bits()), f: u64::from(format.fraction) };
    let (n, f) = (gates.n, gates.f);
    let size = |count: usize| count as u64;
    let (t, d, inner) = (size(tokens), size(model.width), size(model.inner));
    let heads = size(model.heads);
    let scores = match model.attention() {
        Mask::Full => heads * t * t,
        Mask::Causal => heads * (t * (t + 1) / 2),
    };
    let rows = heads * t;
    let gated = model.family == Family::Llama;
    let fed = if gated { 2 * inner } else { inner };

    let mut products = Sum::default();
    // Left factor, right factor if it is an activation, and product. LLaMA's projections are products of
    // their own, the others' one.
    let projections = if gated { vec![(t * d, 0, t * d); 3] } else { vec![(t * d, 0, 3 * t * d)] };
    let rises = vec![(t * d, 0, t * inner); if gated { 2 } else { 1 }];
    let attention = [(t * d, t * d, scores), (rows * t, t * d, t * d), (t * d, 0, t * d)];
    let falls = [(t * inner, 0, t * d)];
    let matrices: Vec<(u64, u64, u64)> =
        projections.into_iter().chain(attention).chain(rises).chain(falls).collect();
    for &(left, right, product) in &matrices {
        products.add(left + right, Element::words(1, 0));
        products.add(product, Element::words(1, n));
    }
    let mut masks = Sum::default();
    masks.add(4 * d * d + (fed + inner) * d, Element::words(1, 0));
    let mut truncations = Sum::default();
    for &(_, _, product) in &matrices {
        truncations.add(product, gates.faithful());
    }
    if gated {
        // Rotations; and scores are scaled by a root that is no power of two, which takes a truncation of its
        // own.
        truncations.add(2 * t * d, gates.slack(f - 3, n, WORD));
        truncations.add(scores, gates.faithful());
        products.add(t * inner, Element::words(3, n));
        truncations.add(t * inner, gates.faithful());
    }

    let mut softmax = Sum::default();
    let levels = u64::from(usize::BITS - (tokens - 1).leading_zeros());
    let maximum = gates.relu(n - f + 1, n - f + 2, WORD);
    softmax.add(scores - rows, Element { messages: levels * maximum.messages, ..maximum });
    softmax.add(scores, gates.exponential());
    let index = f + levels - 6;
    softmax.add(rows, gates.slack(6, index, 16).then(gates.lookup(index)));
    softmax.add(scores, gates.scaled(2));

    let mut activations = Sum::default();
    activations.add(t * inner, gates.activation(model.family));

    let mut norms = Sum::default();
    for _ in 0..2 {
        norms.add(t * d, Element::words(2, 0));
        if !gated {
            norms.add(t, gates.faithful());
        }
        norms.add(0, Element { messages: ROOT_MESSAGES, ..Element::default() });
        norms.add(t * d, gates.scaled(2));
        norms.add(t * d, gates.scaled(2));
    }

    let layers = size(model.layers);
    let gates: Vec<(Gate, Figures)> = [
        (Gate::Products, products),
        (Gate::WeightMasks, masks),
        (Gate::Truncations, truncations),
        (Gate::Softmax, softmax),
        (Gate::Activations, activations),
        (Gate::Norms, norms),
    ]
    .into_iter()
    .map(|(gate, sum)| (gate, sum.layers(layers)))
    .collect();
    let total = gates.iter().fold(Figures::default(), |total, (_, figures)| total + *figures);
    let truncated: u64 = matrices.iter().map(|(_, _, product)| product).sum();
    let extra = if gated { t * inner + scores } else { 0 };
    Ok(Report {
        total,
        gates,
        apart: None,
        gap_truncations: if gated { layers * 2 * t * d } else { 0 },
        faithful_truncations: layers * (truncated + extra),
        clamps: Vec::new(),
    })
}
