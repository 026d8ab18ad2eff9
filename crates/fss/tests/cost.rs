//! What gates cost, by formulas that are written out here again, beside what SIGMA's gates cost.

use gatework_fss::executor::{WireShape, estimate_gate};
use gatework_fss::gates::{Activation, relu};
use gatework_fss::ring::packed_bytes;
use gatework_fss::{Cost, Evaluator, Result, Ring, Wire};

const LEN: usize = 1000;

fn wire(bits: u32, magnitude_bits: u32) -> WireShape {
    let limit = i64::MAX >> (63 - magnitude_bits);
    WireShape { ring: Ring::new(bits).unwrap(), len: LEN, range: -limit..=limit }
}

fn cost<T>(wire: WireShape, gate: impl AsyncFn(&Evaluator, &Wire) -> Result<T>) -> Cost {
    estimate_gate(&[wire], async |evaluator: &Evaluator, wires: &[Wire]| gate(evaluator, &wires[0]).await)
        .unwrap()
}

/// Half of `words` sharings of `bits` bits, which is what a party stores of them.
fn stored(words: usize, bits: u32) -> u64 {
    words as u64 * packed_bytes(LEN / 2, bits) as u64
}

/// 128-bit correction words of trees over `bits` bits.
fn trees(bits: u64) -> u64 {
    (bits - 6) * 16 * LEN as u64
}

/// Truth tables of `bits` bits, of which a party stores half.
fn tables(bits: u32) -> u64 {
    (LEN as u64 / 2) * (1 << bits) / 8
}

#[test]
fn a_gap_truncation_is_a_short_tree_and_two_sharings() {
    let ring = Ring::new(50).unwrap();
    let cost = cost(wire(50, 47), async |evaluator, x| {
        evaluator.open(evaluator.gap_truncate(x, 12, ring).await?).await
    });
    let expected = trees(12) + stored(1, 50) + stored(1, 12);
    assert_eq!(cost.key_bytes, [expected; 2]);
    assert_eq!(cost.sent_bits, [LEN as u64 * 51; 2]);
    assert_eq!(cost.sent_bytes, [(packed_bytes(LEN, 1) + packed_bytes(LEN, 50)) as u64; 2]);
    assert_eq!(cost.rounds, 2);
    println!("gap truncation: {} B; SIGMA 137", expected as f64 / LEN as f64);
}

#[test]
fn a_faithful_truncation_is_two_trees() {
    let ring = Ring::new(50).unwrap();
    let cost = cost(wire(50, 49), async |evaluator, x| {
        evaluator.open(evaluator.faithful_truncate(x, 12, ring).await?).await
    });
    let expected = trees(12) + stored(1, 38) + trees(38) + stored(1, 12);
    assert_eq!(cost.key_bytes, [expected; 2]);
    assert_eq!(cost.sent_bits, [LEN as u64 * (1 + 38 + 1 + 50); 2]);
    assert_eq!(cost.rounds, 4);
    println!("faithful truncation: {} B; SIGMA 677", expected as f64 / LEN as f64);
}

#[test]
fn a_relu_compares_as_many_bits_as_its_bound_has() {
    for (magnitude, bits) in [(36, 37), (20, 21), (12, 13)] {
        let cost =
            cost(wire(50, magnitude), async |evaluator, x| evaluator.open(relu(evaluator, x).await?).await);
        assert_eq!(cost.key_bytes, [trees(bits - 1) + stored(2, 50); 2], "{magnitude} bits");
        assert_eq!(cost.rounds, 2);
    }
}

#[test]
fn a_gelu_is_one_tree_two_tables_and_six_sharings() {
    let gelu = Activation::gelu(12).unwrap();
    let cost = cost(wire(50, 36), async |evaluator, x| evaluator.open(gelu.apply(evaluator, x).await?).await);
    // x ± 4 has 38 bits, y of them 32; its comparison is a tree of 31.
    let expected = tables(6) + stored(1, 32) + trees(31) + tables(9) + stored(5, 50);
    assert_eq!(cost.key_bytes, [expected; 2]);
    assert_eq!(cost.sent_bits, [LEN as u64 * (1 + 32 + 2 + 50 + 50); 2]);
    assert_eq!(cost.rounds, 4);
    println!("GELU: {} B; SIGMA 608", expected as f64 / LEN as f64);
}

#[test]
fn a_lookup_opens_one_word_and_never_its_sign() {
    for bits in [8, 9, 10, 13] {
        let table = gatework_fss::table::Table::new(bits, |x| x as i64).unwrap();
        let shape = WireShape { ring: Ring::new(bits).unwrap(), len: LEN, range: 0..=(1 << bits) - 1 };
        let cost = cost(shape, async |evaluator, x| evaluator.lookup(x, &table, Ring::new(50)?).await);
        let keys = if bits <= 9 { tables(bits) } else { trees(bits.into()) };
        assert_eq!(cost.key_bytes, [keys; 2]);
        assert_eq!((cost.sent_bits, cost.rounds), ([LEN as u64 * 50; 2], 1));
    }
}
