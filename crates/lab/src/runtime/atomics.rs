//! Atomic operations whose outcome does not depend on the order of the threads, and messages that atomics
//! order.

use gatework_gpu::{Device, Grid, args};

use crate::kernels;
use crate::{Control, Inputs, KernelSpec, Outputs, RunError, Work, poisoned};

/// Threads of a block that changes cells.
const THREADS: usize = 64;
/// Cells, as numbered in the kernel; two of them hold what exchanges returned.
const CELLS: usize = 21;
/// Where `atomic_inc` starts again.
const INC_PERIOD: u32 = 10;

/// Cells that every thread changes in every way.
pub(super) struct Atomics {
    blocks: usize,
    words: Vec<u32>,
    longs: Vec<u64>,
    initial: [u64; CELLS],
}

impl Atomics {
    pub(super) fn new(blocks: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let count = blocks * THREADS;
        let words = inputs.words(count);
        let longs = inputs.words(2 * count);
        let longs = longs.chunks_exact(2).map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])).collect();
        // 32-bit operations must leave the high half alone.
        let high = u64::from(inputs.words(1)[0]) << 32;
        let initial = [
            high | 7,
            high | 7,
            7,
            high | u64::from(7f32.to_bits()),
            7f64.to_bits(),
            high,
            high | u64::from(u32::MAX),
            high | i32::MAX as u64,
            u64::MAX,
            high,
            high | u64::from(i32::MIN as u32),
            0,
            high | u64::from(u32::MAX),
            high,
            high | 7,
            high | 7,
            high,
            7,
            0,
            high | 7,
            7,
        ];
        Self { blocks, words, longs, initial }
    }

    pub(super) fn spec() -> KernelSpec {
        KernelSpec::new(kernels::ATOMIC_WORDS.source())
            .require("ATOMS")
            .require("ATOMG")
            .threads(THREADS as u32)
    }

    /// The cells after some threads have changed them. Exchanges leave the last word that was put in, which
    /// is any: its cell is added to the sum of what came out, and is zero itself.
    fn changed(&self, threads: std::ops::Range<usize>) -> Vec<u64> {
        let (words, longs) = (&self.words[threads.clone()], &self.longs[threads]);
        let half = |cell: usize| self.initial[cell] as u32;
        let small: i32 = words.iter().map(|word| (word % 201) as i32 - 100).sum();
        let sum = words.iter().fold(0, |sum: u32, word| sum.wrapping_add(*word));
        let long_sum = longs.iter().fold(0, |sum: u64, long| sum.wrapping_add(*long));
        let bits =
            words.iter().filter(|&word| word % 256 < 32).fold(0, |bits, word| bits | 1u32 << (word % 256));
        let signed = words.iter().map(|&word| word as i32);
        let low = |cell: usize, value: u32| self.initial[cell] >> 32 << 32 | u64::from(value);
        vec![
            low(0, half(0).wrapping_add(sum)),
            low(1, half(1).wrapping_add_signed(small)),
            self.initial[2].wrapping_add(long_sum),
            low(3, (f32::from_bits(half(3)) + small as f32).to_bits()),
            (f64::from_bits(self.initial[4]) + f64::from(small)).to_bits(),
            low(5, words.len() as u32 % INC_PERIOD),
            low(6, words.iter().copied().min().unwrap_or(u32::MAX)),
            low(7, signed.clone().min().unwrap_or(i32::MAX) as u32),
            longs.iter().copied().min().unwrap_or(u64::MAX),
            low(9, words.iter().copied().max().unwrap_or(0)),
            low(10, signed.max().unwrap_or(i32::MIN) as u32),
            longs.iter().copied().max().unwrap_or(0),
            low(12, !bits),
            low(13, bits),
            low(14, words.iter().fold(half(14), |all, word| all ^ word)),
            0,
            low(16, half(15).wrapping_add(sum)),
            0,
            self.initial[17].wrapping_add(long_sum),
            low(19, half(19).wrapping_add(sum)),
            self.initial[20].wrapping_add(long_sum),
        ]
    }

    /// What the kernel left, with exchanged words brought together with those that came out.
    fn settled(&self, mut cells: Vec<u64>) -> Vec<u64> {
        for cells in cells.chunks_exact_mut(CELLS) {
            let sum = (cells[16] as u32).wrapping_add(cells[15] as u32);
            // The high half of the exchanged cell must be as it was: if not, it shows.
            cells[15] = (cells[15] ^ self.initial[15]) >> 32;
            cells[16] = cells[16] >> 32 << 32 | u64::from(sum);
            cells[18] = cells[18].wrapping_add(cells[17]);
            cells[17] = 0;
        }
        cells
    }

    fn outputs(&self, block_cells: Vec<u64>, cells: Vec<u64>, tickets: Vec<u32>) -> Outputs {
        Outputs::new().with("block cells", block_cells).with("cells", cells).with("tickets", tickets)
    }

    pub(super) fn run(&self, device: &Device) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::ATOMIC_WORDS, "atomic_words")?;
        let (words, longs) = (stream.upload(&self.words)?, stream.upload(&self.longs)?);
        let initial = stream.upload(&self.initial)?;
        let mut block_cells = poisoned::<u64>(&stream, self.blocks * CELLS)?;
        let mut cells = stream.upload(&self.initial)?;
        let mut tickets = poisoned::<u32>(&stream, self.words.len())?;
        let mut next_ticket = stream.alloc_zeros::<u32>(1)?;
        let grid = Grid::new([self.blocks as u32, 1, 1], [THREADS as u32, 1, 1]).shared(8 * CELLS as u32);
        let arguments =
            args![&words, &longs, &initial, &mut block_cells, &mut cells, &mut tickets, &mut next_ticket];
        kernel.launch(&stream, &grid, &arguments)?;
        let block_cells = self.settled(stream.download(&block_cells)?);
        let cells = self.settled(stream.download(&cells)?);
        Ok(self.outputs(block_cells, cells, stream.download(&tickets)?))
    }

    pub(super) fn reference(&self) -> Outputs {
        let blocks = (0..self.blocks).flat_map(|block| self.changed(block * THREADS..(block + 1) * THREADS));
        let tickets = (0..self.words.len() as u32).collect();
        self.outputs(blocks.collect(), self.changed(0..self.words.len()), tickets)
    }

    pub(super) fn controls(&self, reference: &Outputs) -> Vec<Control> {
        let blocks: Vec<u64> =
            (0..self.blocks).flat_map(|block| self.changed(block * THREADS..(block + 1) * THREADS)).collect();
        let tickets: Vec<u32> = (0..self.words.len() as u32).collect();
        let lost = self.changed(0..self.words.len() - 1);
        vec![
            Control::new(
                "one thread's updates are lost",
                self.outputs(blocks.clone(), lost, tickets.clone()),
            ),
            Control::new(
                "blocks share nothing",
                self.outputs(blocks.clone(), blocks[..CELLS].to_vec(), tickets),
            ),
            Control::one_off(reference, "tickets", 1, -1.0),
        ]
    }

    pub(super) fn work(&self) -> Work {
        let threads = self.words.len() as u64;
        Work {
            operations: (2 * CELLS as u64 + 1) * threads,
            bytes: (4 + 8 + 4) * threads + 8 * (CELLS * (self.blocks + 2)) as u64,
        }
    }
}

/// Words of one message: one for each lane of a warp.
const MESSAGE_WORDS: usize = 32;

/// Messages from one block to another.
pub(super) struct Messages {
    words: Vec<u32>,
}

impl Messages {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        Self { words: Inputs::new(seed).words(count * MESSAGE_WORDS) }
    }

    pub(super) fn spec() -> KernelSpec {
        KernelSpec::new(kernels::MESSAGE_PASSING.source()).require("MEMBAR").threads(2 * MESSAGE_WORDS as u32)
    }

    /// What is sent is what should arrive: two warps read it back to front.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    pub(super) fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::MESSAGE_PASSING, "message_passing")?;
        let messages = stream.upload(&self.words)?;
        let mut mailbox = poisoned::<u32>(&stream, MESSAGE_WORDS)?;
        let mut sent = stream.alloc_zeros::<u32>(1)?;
        let mut taken = stream.alloc_zeros::<u64>(1)?;
        let mut relay = stream.alloc_zeros::<u32>(MESSAGE_WORDS + 2)?;
        let mut out = poisoned::<u32>(&stream, self.words.len())?;
        let count = (self.words.len() / MESSAGE_WORDS) as u32;
        let grid = Grid::new([2, 1, 1], [2 * MESSAGE_WORDS as u32, 1, 1]);
        let arguments = args![&messages, &mut mailbox, &mut sent, &mut taken, &mut relay, &mut out, count];
        kernel.launch(&stream, &grid.cooperative(), &arguments)?;
        Ok(stream.download(&out)?)
    }

    pub(super) fn controls(&self, reference: &Outputs) -> Vec<Control> {
        let wrong = |name, words: Vec<u32>| Control::new(name, Outputs::new().with("out", words));
        let mut stale = self.words.clone();
        let last = stale.len() - MESSAGE_WORDS;
        stale.copy_within(last - MESSAGE_WORDS..last, last);
        let backwards = self.words.chunks(MESSAGE_WORDS).flat_map(|message| message.iter().rev().copied());
        vec![
            wrong("the message before is read again", stale),
            wrong("one warp reads in order", backwards.collect()),
            Control::one_off(reference, "out", MESSAGE_WORDS, 1.0),
        ]
    }
}
