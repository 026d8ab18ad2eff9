//! Order between threads and proxies: atomics of every scope, bulk copies of what other blocks wrote, bulk
//! reductions, and barriers that are made and ended again.

use bytemuck::{Pod, Zeroable};
use gatework_gpu::{Device, Grid, Kind, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// `gpu/order`.
pub(super) struct Order;

/// Threads of a block of atomics, and elements of a reduction's tile.
const THREADS: usize = 64;
/// Cells of one set, as numbered in the kernel.
const CELLS: usize = 13;
/// Where `atomic_dec` starts again.
const DEC_PERIOD: usize = 10;
/// Blocks of a cluster.
const CLUSTER: usize = 2;
/// Words of a relay's mailbox, one a thread.
const MAILBOX: usize = 128;
/// Quads of words of one turn of a barrier.
const QUADS: usize = 64;

/// What a case checks.
#[derive(Clone, Copy)]
enum Subject {
    /// Atomics of every scope and order.
    Atomics { blocks: usize },
    /// Bulk reductions.
    Reductions { blocks: usize },
    /// A mailbox that goes from block to block through both proxies.
    Relay { blocks: usize },
    /// Barriers in one place, one after another.
    Barriers { turns: usize },
}

impl Subject {
    fn case(self) -> Case {
        match self {
            Self::Atomics { blocks } => Case::new("scoped-atomics").with("atomic_blocks", blocks),
            Self::Reductions { blocks } => Case::new("bulk-reduce").with("reduced_blocks", blocks),
            Self::Relay { blocks } => Case::new("proxy-relay").with("relay_blocks", blocks),
            Self::Barriers { turns } => Case::new("barrier-life").with("turns", turns),
        }
    }

    fn of(case: &Case) -> Self {
        let has = |name: &str| case.dimensions.contains_key(name);
        if has("atomic_blocks") {
            Self::Atomics { blocks: case.dimension("atomic_blocks") }
        } else if has("reduced_blocks") {
            Self::Reductions { blocks: case.dimension("reduced_blocks") }
        } else if has("relay_blocks") {
            Self::Relay { blocks: case.dimension("relay_blocks") }
        } else {
            Self::Barriers { turns: case.dimension("turns") }
        }
    }

    fn run(self, device: &Device, seed: u64) -> Result<Outputs, RunError> {
        match self {
            Self::Atomics { blocks } => Words::new(blocks, seed).run_atomics(device),
            Self::Reductions { blocks } => Words::new(blocks, seed).run_reductions(device),
            Self::Relay { blocks } => run_relay(device, blocks, seed),
            Self::Barriers { turns } => Barriers::new(turns, seed).run(device),
        }
    }

    fn reference(self, seed: u64) -> Outputs {
        match self {
            Self::Atomics { blocks } => Words::new(blocks, seed).atomics(),
            Self::Reductions { blocks } => {
                let words = Words::new(blocks, seed);
                Outputs::new().with("cells", words.reduced(words.words.len()))
            }
            Self::Relay { blocks } => Outputs::new().with("mailbox", relayed(blocks, seed)),
            Self::Barriers { turns } => Outputs::new().with("out", Barriers::new(turns, seed).combined()),
        }
    }

    /// Wrong outputs that only this subject could have.
    fn controls(self, seed: u64) -> Vec<Control> {
        match self {
            Self::Atomics { blocks } => {
                let words = Words::new(blocks, seed);
                let apart = words.changed(0..THREADS);
                vec![Control::new("clusters are blocks", words.outputs(&|block| block, apart))]
            }
            Self::Reductions { blocks } => {
                let words = Words::new(blocks, seed);
                let short = words.reduced(words.words.len() - THREADS);
                vec![Control::new("one block is lost", Outputs::new().with("cells", short))]
            }
            Self::Relay { blocks } => {
                let stale = relayed(blocks - 1, seed);
                vec![Control::new("one block loads what was before", Outputs::new().with("mailbox", stale))]
            }
            Self::Barriers { turns } => {
                let mut barriers = Barriers::new(turns, seed);
                barriers.other.rotate_right(4 * QUADS);
                vec![Control::new("a turn too early", Outputs::new().with("out", barriers.combined()))]
            }
        }
    }
}

/// What every thread brings.
struct Words {
    words: Vec<u32>,
    longs: Vec<u64>,
}

/// The f16 and bf16 codes of a small integer, in which it is exact.
fn codes(value: i32) -> [u64; 2] {
    [half::f16::from_f32(value as f32).to_bits().into(), half::bf16::from_f32(value as f32).to_bits().into()]
}

impl Words {
    fn new(blocks: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let words = inputs.words(blocks * THREADS);
        let longs = inputs.words(2 * words.len());
        let longs = longs.chunks_exact(2).map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])).collect();
        Self { words, longs }
    }

    fn blocks(&self) -> usize {
        self.words.len() / THREADS
    }

    fn initial() -> [u64; CELLS] {
        let high = 0x0123_4567_u64 << 32;
        [high | 7, 7, i64::MAX as u64, i64::MIN as u64, u64::MAX, 0, 7, high, high, high, 7, high, 0]
    }

    /// The cells after some threads have changed them.
    fn changed(&self, threads: std::ops::Range<usize>) -> Vec<u64> {
        let (words, longs) = (&self.words[threads.clone()], &self.longs[threads]);
        let initial = Self::initial();
        let high = initial[0] >> 32 << 32;
        let sum = words.iter().fold(7u32, |sum, word| sum.wrapping_add(*word));
        let long_sum = longs.iter().fold(7u64, |sum, long| sum.wrapping_add(*long));
        let signed = || longs.iter().map(|&long| long as i64);
        let bits =
            words.iter().filter(|&word| word % 256 < 64).fold(0, |bits, word| bits | 1u64 << (word % 256));
        let small = |part: &dyn Fn(u32) -> u32| words.iter().map(|&word| part(word) as i32 - 1).sum::<i32>();
        let (low, upper) = (small(&|word| word % 3), small(&|word| word / 3 % 3));
        let pair = |format: usize| high | codes(low)[format] | codes(upper)[format] << 16;
        vec![
            high | u64::from(sum),
            long_sum,
            signed().min().unwrap_or(i64::MAX) as u64,
            signed().max().unwrap_or(i64::MIN) as u64,
            !bits,
            bits,
            longs.iter().fold(7, |all, long| all ^ long),
            high | ((DEC_PERIOD - words.len() % DEC_PERIOD) % DEC_PERIOD) as u64,
            pair(0),
            pair(1),
            long_sum,
            high | u64::from((low as f32).to_bits()),
            f64::from(upper).to_bits(),
        ]
    }

    /// All sets of cells, with clusters that start at a block and `all` for both of the device's.
    fn outputs(&self, cluster_start: &dyn Fn(usize) -> usize, all: Vec<u64>) -> Outputs {
        let of = |block: usize, count: usize| self.changed(block * THREADS..(block + count) * THREADS);
        let blocks: Vec<u64> = (0..self.blocks()).flat_map(|block| of(block, 1)).collect();
        let clusters = (0..self.blocks() / CLUSTER).map(cluster_start);
        let clusters: Vec<u64> = clusters.flat_map(|block| of(block, CLUSTER)).collect();
        Outputs::new()
            .with("block cells", blocks)
            .with("cluster cells", clusters)
            .with("device cells", all.clone())
            .with("system cells", all)
    }

    fn atomics(&self) -> Outputs {
        self.outputs(&|cluster| cluster * CLUSTER, self.changed(0..self.words.len()))
    }

    fn run_atomics(&self, device: &Device) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::SCOPED_ATOMICS, "scoped_atomics")?;
        let (words, longs) = (stream.upload(&self.words)?, stream.upload(&self.longs)?);
        let initial = stream.upload(&Self::initial())?;
        let mut of_blocks = poisoned::<u64>(&stream, self.blocks() * CELLS)?;
        let mut of_clusters = poisoned::<u64>(&stream, self.blocks() / CLUSTER * CELLS)?;
        let mut of_device = stream.upload(&Self::initial())?;
        let mut of_system = stream.upload(&Self::initial())?;
        let grid = Grid::new([self.blocks() as u32, 1, 1], [THREADS as u32, 1, 1])
            .shared(2 * 8 * CELLS as u32)
            .cluster([CLUSTER as u32, 1, 1]);
        let arguments =
            args![&words, &longs, &initial, &mut of_blocks, &mut of_clusters, &mut of_device, &mut of_system];
        kernel.launch(&stream, &grid, &arguments)?;
        Ok(Outputs::new()
            .with("block cells", stream.download(&of_blocks)?)
            .with("cluster cells", stream.download(&of_clusters)?)
            .with("device cells", stream.download(&of_device)?)
            .with("system cells", stream.download(&of_system)?))
    }

    fn run_reductions(&self, device: &Device) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::BULK_REDUCE, "bulk_reduce")?;
        let (words, longs) = (stream.upload(&self.words)?, stream.upload(&self.longs)?);
        let mut cells = stream.upload(&[Tiles::INITIAL])?;
        let grid =
            Grid::new([self.blocks() as u32, 1, 1], [THREADS as u32, 1, 1]).shared(size_of::<Tiles>() as u32);
        kernel.launch(&stream, &grid, &args![&words, &longs, &mut cells])?;
        Ok(Outputs::new().with("cells", bytemuck::bytes_of(&stream.download(&cells)?[0]).to_vec()))
    }

    /// The shared tile after the first `count` threads have been combined with it.
    fn reduced(&self, count: usize) -> Vec<u8> {
        let mut tiles = Tiles::INITIAL;
        for (at, (&word, &long)) in self.words.iter().zip(&self.longs).take(count).enumerate() {
            let at = at % THREADS;
            let small = (word % 3) as f32 - 1.0;
            tiles.sum[at] = tiles.sum[at].wrapping_add(word);
            tiles.least[at] = tiles.least[at].min(word as i32);
            tiles.sum_f32[at] += small;
            tiles.sum_64[at] = tiles.sum_64[at].wrapping_add(long);
            tiles.largest_64[at] = tiles.largest_64[at].max(long);
            tiles.sum_f16[at] =
                half::f16::from_f32(half::f16::from_bits(tiles.sum_f16[at]).to_f32() + small).to_bits();
            tiles.sum_bf16[at] =
                half::bf16::from_f32(half::bf16::from_bits(tiles.sum_bf16[at]).to_f32() + small).to_bits();
        }
        bytemuck::bytes_of(&tiles).to_vec()
    }
}

/// What bulk reductions combine, as the kernel declares it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Tiles {
    sum: [u32; THREADS],
    least: [i32; THREADS],
    sum_f32: [f32; THREADS],
    sum_64: [u64; THREADS],
    largest_64: [u64; THREADS],
    sum_f16: [u16; THREADS],
    sum_bf16: [u16; THREADS],
}

impl Tiles {
    /// Where sums start at 0 they start so that a zero from nowhere shows; halves are 4.0.
    const INITIAL: Self = Self {
        sum: [7; THREADS],
        least: [i32::MAX; THREADS],
        sum_f32: [7.0; THREADS],
        sum_64: [7; THREADS],
        largest_64: [0; THREADS],
        sum_f16: [0x4400; THREADS],
        sum_bf16: [0x4080; THREADS],
    };
}

fn relayed(blocks: usize, seed: u64) -> Vec<u32> {
    let words = Inputs::new(seed).words(MAILBOX);
    words.into_iter().map(|word| word.wrapping_add(blocks as u32)).collect()
}

fn run_relay(device: &Device, blocks: usize, seed: u64) -> Result<Outputs, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::PROXY_RELAY, "proxy_relay")?;
    let mut mailbox = stream.upload(&relayed(0, seed))?;
    let mut turn = stream.alloc_zeros::<u32>(1)?;
    let grid = Grid::new([blocks as u32, 1, 1], [MAILBOX as u32, 1, 1]).shared(4 * MAILBOX as u32 + 8);
    kernel.launch(&stream, &grid.cooperative(), &args![&mut mailbox, &mut turn])?;
    Ok(Outputs::new().with("mailbox", stream.download(&mailbox)?))
}

/// What turns of barriers bring together.
struct Barriers {
    from: Vec<u32>,
    other: Vec<u32>,
}

impl Barriers {
    fn new(turns: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let count = 4 * turns * QUADS;
        Self { from: inputs.words(count), other: inputs.words(count) }
    }

    fn combined(&self) -> Vec<u32> {
        let turned = self.from.chunks(4 * QUADS).flat_map(|turn| turn.chunks(4).rev().flatten());
        turned.zip(&self.other).map(|(a, b)| a ^ b).collect()
    }

    fn run(&self, device: &Device) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::BARRIER_LIFE, "barrier_life")?;
        let quads = |words: &[u32]| -> Vec<[u32; 4]> {
            words.chunks_exact(4).map(|quad| [quad[0], quad[1], quad[2], quad[3]]).collect()
        };
        let (from, other) = (stream.upload(&quads(&self.from))?, stream.upload(&quads(&self.other))?);
        let mut out = poisoned::<[u32; 4]>(&stream, from.len())?;
        let turns = (from.len() / QUADS) as u32;
        // What each thread copies, the barrier, and every bulk copy in a place of its own.
        let shared = 16 * QUADS as u32 * (1 + turns) + 16;
        let grid = Grid::new([1, 1, 1], [QUADS as u32, 1, 1]).shared(shared);
        kernel.launch(&stream, &grid, &args![&from, &other, &mut out, turns])?;
        Ok(Outputs::new().with("out", stream.download(&out)?.concat()))
    }
}

impl Workload for Order {
    fn name(&self) -> &str {
        "gpu/order"
    }

    fn summary(&self) -> &str {
        "atomics of every scope and order, bulk reductions, proxy fences between blocks, barriers that end"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::SCOPED_ATOMICS.source()).require("ATOM").threads(THREADS as u32),
            KernelSpec::new(kernels::BULK_REDUCE.source()).require("UBLKRED").threads(THREADS as u32),
            KernelSpec::new(kernels::PROXY_RELAY.source()).require("UBLKCP").threads(MAILBOX as u32),
            KernelSpec::new(kernels::BARRIER_LIFE.source()).require("ARRIVES").threads(QUADS as u32),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (blocks, turns) = match kind {
            Kind::Emulated => (4, 3),
            Kind::Cuda => (96, 101),
        };
        // Few threads, so that sums of halves stay exact.
        let subjects = [
            Subject::Atomics { blocks: 4 },
            Subject::Reductions { blocks },
            Subject::Relay { blocks },
            Subject::Barriers { turns },
        ];
        subjects.into_iter().map(Subject::case).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Subject::of(case).run(device, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Subject::of(case).reference(seed)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let mut controls = Subject::of(case).controls(seed);
        controls.push(Control::zeros(reference));
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let bytes = |bytes: usize| Work { operations: 0, bytes: bytes as u64 };
        match Subject::of(case) {
            Subject::Atomics { blocks } => Work {
                operations: (4 * CELLS * blocks * THREADS) as u64,
                bytes: ((4 + 8) * blocks * THREADS) as u64,
            },
            Subject::Reductions { blocks } => bytes(blocks * (THREADS * (4 + 8) + size_of::<Tiles>())),
            Subject::Relay { blocks } => bytes(2 * 4 * blocks * MAILBOX),
            Subject::Barriers { turns } => bytes(3 * 16 * turns * QUADS),
        }
    }
}
