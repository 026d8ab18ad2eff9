//! Packed sequences against each sequence alone, on the CPU and on the emulated device.

use gatework_attention::reference::{self, Scores};
use gatework_attention::{Attention, Layout, Lengths, Mask, Output, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;

const SHAPE: Shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };

fn normal(count: usize, seed: u64) -> Vec<f32> {
    Inputs::new(seed).normal(count)
}

/// Random lengths, of which one is zero.
fn starts(sequences: usize, longest: usize, empty: usize, seed: u64) -> Vec<usize> {
    let lengths = Inputs::new(seed).uniform(sequences, 0.0..1.0);
    let ends = lengths.iter().enumerate().scan(0, |end, (sequence, length)| {
        *end += if sequence == empty { 0 } else { 1 + (length * longest as f32) as usize };
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[test]
fn each_sequence_is_as_if_it_were_alone() -> Result<()> {
    let sinks = [0.5, f32::NEG_INFINITY, -2.0, 3.0];
    for (seed, mask) in [(0, Mask::Causal), (1, Mask::Full), (2, Mask::Window { left: 20, right: 2 })] {
        let (rows, keys) = (starts(5, 80, 1, seed), starts(5, 150, 3, seed + 50));
        let lengths = Lengths::new(&rows, &keys)?;
        assert_eq!(lengths.sequences(), 5);
        let (query, key) = (4 * 64, 2 * 64);
        let q = normal(lengths.rows() * query, seed + 1);
        let (k, v) = (normal(lengths.keys() * key, seed + 2), normal(lengths.keys() * key, seed + 3));
        let builder = || Attention::builder(SHAPE).mask(mask).sinks(sinks).scale(0.2);
        // The emulated device takes its time.
        let device = (seed == 0).then(|| Device::emulated(seed)).transpose()?;
        for target in std::iter::once(Target::Cpu).chain(device.map(Target::Gpu)) {
            let packed = builder().build_packed(&lengths, &target)?;
            let Output { o, lse } = packed.forward_to::<f32, _>(&q, &k, &v)?;
            assert_eq!((o.len(), lse.len()), (q.len(), 4 * lengths.rows()));
            for sequence in 0..5 {
                let (of_rows, of_keys) =
                    (rows[sequence]..rows[sequence + 1], keys[sequence]..keys[sequence + 1]);
                let got = &o[of_rows.start * query..of_rows.end * query];
                let row_lse = |head: usize| &lse[head * lengths.rows()..][of_rows.clone()];
                if of_keys.is_empty() {
                    assert!(got.iter().all(|x| *x == 0.0));
                    assert!((0..4).all(|head| row_lse(head).iter().all(|x| *x == sinks[head])));
                } else if !of_rows.is_empty() {
                    let shape = Shape { rows: of_rows.len(), keys: of_keys.len(), ..SHAPE };
                    let alone = Attention::builder(shape).mask(mask).sinks(sinks).scale(0.2);
                    let alone = alone.layout(Layout::RowsFirst).build(&target)?;
                    let part = of_keys.start * key..of_keys.end * key;
                    let queries = &q[of_rows.start * query..of_rows.end * query];
                    let wanted = alone.forward_to::<f32, _>(queries, &k[part.clone()], &v[part])?;
                    assert_eq!(got, wanted.o, "sequence {sequence} on {}", target.id());
                    let wanted_lse = |head: usize| &wanted.lse[head * shape.rows..][..shape.rows];
                    assert!((0..4).all(|head| row_lse(head) == wanted_lse(head)));
                }
            }
        }
    }
    Ok(())
}

/// Against the oracle itself, with one head, where layouts are the same.
#[test]
fn packed_sequences_match_reference() -> Result<()> {
    let shape = Shape { heads: 1, key_heads: 1, ..SHAPE };
    let starts = [0, 33, 33, 34, 120];
    let lengths = Lengths::square(&starts)?;
    let [q, k, v] = [1, 2, 3].map(|seed| normal(120 * 64, seed));
    let packed = Attention::builder(shape).mask(Mask::Causal).build_packed(&lengths, &Target::Cpu)?;
    let o = packed.forward(&q, &k, &v)?;
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    for pair in starts.windows(2).filter(|pair| pair[0] < pair[1]) {
        let part = pair[0] * 64..pair[1] * 64;
        let shape = Shape::square(1, 1, pair[1] - pair[0], 64);
        let scores = Scores { mask: Mask::Causal, scale: 0.125, soft_cap: None, sinks: &[] };
        let [q, k, v] = [&q, &k, &v].map(|x| wide(&x[part.clone()]));
        let (wanted, _) = reference::attention_of(&shape, &scores, &q, &k, &v);
        assert!(reference::relative_error(o[part].iter().copied(), &wanted) < 1e-6);
    }
    Ok(())
}

#[test]
fn lengths_that_are_none_are_refused_with_a_sentence() -> Result<()> {
    let told = |rows: &[usize], keys: &[usize]| Lengths::new(rows, keys).unwrap_err().to_string();
    assert!(told(&[], &[0]).contains("rows are empty; without a sequence they are [0]"));
    assert!(told(&[0, 4], &[1, 4]).contains("keys begin with 1; they must begin with 0"));
    assert!(told(&[0, 7, 3], &[0, 1, 2]).contains("rows go down from 7 to 3 after sequence 1"));
    assert!(told(&[0, 7], &[0, 1, 2]).contains("rows of 1 sequences and keys of 2"));
    let lengths = Lengths::square(&[0, 3, 5])?;
    let wrong =
        Attention::builder(Shape { dim: 300, ..SHAPE }).build_packed(&Lengths::square(&[0])?, &Target::Cpu);
    assert!(wrong.unwrap_err().to_string().contains("head dimension 300"));
    let packed = Attention::builder(SHAPE).build_packed(&lengths, &Target::Cpu)?;
    let (q, k) = (vec![0.0f32; 5 * 256], vec![0.0f32; 5 * 128]);
    assert_eq!(
        packed.forward(&q, &k[1..], &k).unwrap_err().to_string(),
        "'k' has 639 elements, the shape needs 640"
    );
    assert_eq!(packed.forward(&q, &k, &k)?.len(), q.len());
    let none = Attention::builder(SHAPE).build_packed(&Lengths::square(&[0])?, &Target::Cpu)?;
    assert!(none.forward::<f32>(&[], &[], &[])?.is_empty());
    Ok(())
}
