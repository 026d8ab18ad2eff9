//! `Bits::BatchInvariant`: a row's bits depend on its own sequence and head alone.

use gatework_attention::cuda::schedule::Schedule;
use gatework_attention::{Attention, Bits, Mask, Output, Result, Shape};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::f16;

/// Queries, keys and values of one sequence.
struct Sequence {
    tensors: [Vec<f16>; 3],
}

impl Sequence {
    fn new(shape: &Shape, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let one = Shape { batch: 1, ..*shape };
        let lengths = [one.query_elements(), one.key_elements(), one.value_elements()];
        Self { tensors: lengths.map(|count| inputs.normal(count).into_iter().map(f16::from_f32).collect()) }
    }
}

/// Attends sequences together.
fn attend(
    target: &Target,
    shape: &Shape,
    mask: Mask,
    bits: Bits,
    batch: &[&Sequence],
) -> Result<Output<f32>> {
    let shape = Shape { batch: batch.len(), ..*shape };
    let [q, k, v] =
        [0, 1, 2].map(|tensor| batch.iter().flat_map(|one| one.tensors[tensor].clone()).collect::<Vec<_>>());
    Attention::builder(shape).mask(mask).bits(bits).build(target)?.forward_to(&q, &k, &v)
}

fn of_sequence(Output { o, lse }: &Output<f32>, index: usize, count: usize) -> (Vec<u32>, Vec<u32>) {
    let part =
        |x: &[f32]| x.chunks(x.len() / count).nth(index).unwrap().iter().map(|x| x.to_bits()).collect();
    (part(o), part(lse))
}

#[test]
fn a_batch_changes_no_bit_of_its_sequences() -> Result<()> {
    let mut cut = 0;
    for (seed, (rows, keys, dim, mask)) in [
        (1, 2049, 128, Mask::Causal),
        (5, 2200, 64, Mask::Causal),
        (70, 300, 64, Mask::Full),
        (3, 100, 64, Mask::Full),
    ]
    .into_iter()
    .enumerate()
    {
        let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows, keys, dim, value_dim: dim };
        let sequences: Vec<Sequence> = (0..3).map(|i| Sequence::new(&shape, seed as u64 * 10 + i)).collect();
        let all: Vec<&Sequence> = sequences.iter().collect();
        for target in [Target::Cpu, Target::Gpu(Device::emulated(seed as u64)?)] {
            let run = |batch: &[&Sequence]| attend(&target, &shape, mask, Bits::BatchInvariant, batch);
            let together = run(&all)?;
            // The first alone, the last in another place.
            let moved = of_sequence(&run(&[all[2], all[1]])?, 0, 2);
            assert!(moved == of_sequence(&together, 2, 3), "{rows} over {keys} on {}", target.id());
            for (index, sequence) in sequences.iter().enumerate().take(1) {
                let alone = of_sequence(&run(&[sequence])?, 0, 1);
                assert!(alone == of_sequence(&together, index, 3), "{rows} over {keys} on {}", target.id());
            }
        }
        let device = Device::emulated(0)?;
        let built = Attention::builder(shape).bits(Bits::BatchInvariant).build_on(&device)?;
        cut += usize::from(built.schedule().splits(&shape, mask) > 1);
    }
    assert!(cut >= 2, "{cut} of the shapes are cut into parts");
    Ok(())
}

/// The control: what is chosen for the device gives other bits in another batch.
#[test]
fn without_the_contract_a_batch_changes_bits() -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 1, keys: 4200, dim: 64, value_dim: 64 };
    let device = Device::emulated(1)?;
    let properties = device.properties();
    let parts =
        |batch: usize| Schedule::suited(&Shape { batch, ..shape }, Mask::Full, Bits::Repeatable, properties);
    assert_ne!(parts(1)?.parts, parts(4)?.parts, "the emulated device has few multiprocessors");
    let sequences: Vec<Sequence> = (0..4).map(|seed| Sequence::new(&shape, seed)).collect();
    let target = Target::Gpu(device);
    let run = |batch: &[&Sequence]| attend(&target, &shape, Mask::Full, Bits::Repeatable, batch);
    let together = run(&sequences.iter().collect::<Vec<_>>())?;
    assert!(of_sequence(&run(&[&sequences[0]])?, 0, 1) != of_sequence(&together, 0, 4));
    Ok(())
}
