//! Copies that run beside the threads, and the barriers by which threads and blocks hand data to each other.

use gatework_gpu::{Device, Grid, Kind, args};

use crate::kernels;
use crate::tensor::Tensor;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// `gpu/async-copy`.
pub(super) struct AsyncCopy;

/// Threads of a pipeline's block, and elements of its tiles.
const PIPELINE_THREADS: u32 = 128;
const PIPELINE_ENTRIES: [&str; 3] = ["copy_pipeline_4", "copy_pipeline_8", "copy_pipeline_16"];

/// One warp that loads and four that turn tiles of 128 elements of 16 bytes round.
const RING_THREADS: u32 = 160;
const RING_TILE_BYTES: usize = 128 * 16;
/// Two stages in, two buffers out, four barriers.
const RING_SHARED_BYTES: u32 = 4 * RING_TILE_BYTES as u32 + 4 * 8;

/// Threads of each half of a relay: one computes, one stores.
const RELAY_HALF: usize = 64;

const GRID_RING_THREADS: usize = 64;

/// What a case checks.
#[derive(Clone, Copy)]
enum Subject {
    /// `cp.async` of `element` bytes a thread; the input ends `missing` bytes before the last tile does.
    Pipeline { element: usize, tiles: usize, missing: usize },
    /// Bulk loads and stores around a ring of barriers.
    Ring { tiles: usize },
    /// Named barriers between two halves of a block.
    Relay { turns: usize },
    /// Barriers of the whole grid.
    GridRing { blocks: usize, rounds: usize },
}

impl Subject {
    fn case(self) -> Case {
        match self {
            Self::Pipeline { element, tiles, missing } => Case::new(format!("cp-async-{element}"))
                .with("element", element)
                .with("tiles", tiles)
                .with("missing", missing),
            Self::Ring { tiles } => Case::new("bulk-ring").with("ring_tiles", tiles),
            Self::Relay { turns } => Case::new("named-barriers").with("turns", turns),
            Self::GridRing { blocks, rounds } => {
                Case::new("grid-ring").with("blocks", blocks).with("rounds", rounds)
            }
        }
    }

    fn of(case: &Case) -> Self {
        let has = |dimension: &str| case.dimensions.contains_key(dimension);
        if has("element") {
            let [element, tiles, missing] = ["element", "tiles", "missing"].map(|name| case.dimension(name));
            Self::Pipeline { element, tiles, missing }
        } else if has("ring_tiles") {
            Self::Ring { tiles: case.dimension("ring_tiles") }
        } else if has("turns") {
            Self::Relay { turns: case.dimension("turns") }
        } else {
            Self::GridRing { blocks: case.dimension("blocks"), rounds: case.dimension("rounds") }
        }
    }

    fn run(self, device: &Device, seed: u64) -> Result<Tensor, RunError> {
        match self {
            Self::Pipeline { element, tiles, missing } => {
                let input = bytes(pipeline_bytes(element, tiles) - missing, seed);
                Ok(run_pipeline(device, &input, element, tiles)?.into())
            }
            Self::Ring { tiles } => {
                Ok(run_ring(device, &bytes(tiles * RING_TILE_BYTES, seed), tiles)?.into())
            }
            Self::Relay { turns } => Ok(run_relay(device, &RelayInputs::new(turns, seed), turns)?.into()),
            Self::GridRing { blocks, rounds } => {
                let values = Inputs::new(seed).words(blocks * GRID_RING_THREADS);
                Ok(run_grid_ring(device, &values, blocks, rounds)?.into())
            }
        }
    }

    fn reference(self, seed: u64) -> Tensor {
        match self {
            Self::Pipeline { element, tiles, missing } => {
                let mut padded = bytes(pipeline_bytes(element, tiles) - missing, seed);
                padded.resize(padded.len() + missing, 0);
                reversed_tiles(&padded, self.tile_bytes(), element).into()
            }
            Self::Ring { tiles } => {
                reversed_tiles(&bytes(tiles * RING_TILE_BYTES, seed), RING_TILE_BYTES, 16).into()
            }
            Self::Relay { turns } => RelayInputs::new(turns, seed).relayed().into(),
            Self::GridRing { blocks, rounds } => {
                grid_ring(Inputs::new(seed).words(blocks * GRID_RING_THREADS), blocks, rounds).into()
            }
        }
    }

    /// Bytes of output that one turn writes: what a stage of shared memory holds.
    fn tile_bytes(self) -> usize {
        match self {
            Self::Pipeline { element, .. } => PIPELINE_THREADS as usize * element,
            Self::Ring { .. } => RING_TILE_BYTES,
            Self::Relay { .. } => 4 * RELAY_HALF,
            Self::GridRing { .. } => 4 * GRID_RING_THREADS,
        }
    }

    /// Wrong outputs that only this subject could have.
    fn controls(self, seed: u64, reference: &Tensor) -> Vec<(&'static str, Tensor)> {
        let altered = |alter: &dyn Fn(&mut [u8])| {
            let mut tensor = reference.clone();
            alter(tensor.bytes_mut());
            tensor
        };
        let tile = self.tile_bytes();
        // Every stage is used again after two turns: a wait too few shows the tile that was there before.
        let stale = altered(&|bytes| {
            let last = bytes.len() - tile;
            bytes.copy_within(last - 2 * tile..last - tile, last);
        });
        match self {
            Self::Pipeline { missing, .. } => {
                // The last tile is reversed: what is missing is at its start.
                let unfilled = altered(&|bytes| {
                    let start = bytes.len() - tile;
                    bytes[start..start + missing].fill(0xff);
                });
                vec![("a stale stage", stale), ("the tail is not zeros", unfilled)]
            }
            Self::Ring { tiles } => {
                let straight = bytes(tiles * RING_TILE_BYTES, seed).into();
                vec![("a stale stage", stale), ("tiles are not turned round", straight)]
            }
            Self::Relay { .. } => {
                let shifted = altered(&|bytes| bytes.rotate_left(4));
                vec![("a stale stage", stale), ("elements are one off", shifted)]
            }
            Self::GridRing { blocks, rounds } => {
                let values = Inputs::new(seed).words(blocks * GRID_RING_THREADS);
                let early = grid_ring(values, blocks, rounds - 1).into();
                vec![("one round too few", early), ("a block is stale", stale)]
            }
        }
    }
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let words = Inputs::new(seed).words(count.div_ceil(4));
    words.into_iter().flat_map(u32::to_le_bytes).take(count).collect()
}

/// Each tile with its elements in reverse order.
fn reversed_tiles(input: &[u8], tile_bytes: usize, element_bytes: usize) -> Vec<u8> {
    let tiles = input.chunks_exact(tile_bytes);
    tiles.flat_map(|tile| tile.chunks_exact(element_bytes).rev().flatten().copied()).collect()
}

fn pipeline_bytes(element: usize, tiles: usize) -> usize {
    element * tiles * PIPELINE_THREADS as usize
}

/// The kernel that copies elements of so many bytes.
fn pipeline_entry(element: usize) -> &'static str {
    let [four, eight, sixteen] = PIPELINE_ENTRIES;
    match element {
        4 => four,
        8 => eight,
        16 => sixteen,
        other => unreachable!("cp.async copies 4, 8 or 16 bytes, not {other}"),
    }
}

fn run_pipeline(device: &Device, input: &[u8], element: usize, tiles: usize) -> Result<Vec<u8>, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::COPY_PIPELINE, pipeline_entry(element))?;
    // Memory checkers count a copy's whole element as read, also where it asks for fewer bytes: the buffer
    // has room for one more. The emulated device counts what is really read, and there it has none.
    let mut from =
        stream.alloc::<u8>(if device.is_emulated() { input.len() } else { input.len() + element })?;
    stream.copy_from_host(input, &mut from.slice_mut(..input.len()))?;
    let mut out = poisoned::<u8>(&stream, pipeline_bytes(element, tiles))?;
    let shared = 2 * PIPELINE_THREADS * element as u32;
    let grid = Grid::new([1, 1, 1], [PIPELINE_THREADS, 1, 1]).shared(shared);
    kernel.launch(&stream, &grid, &args![&from, &mut out, input.len() as u64, tiles as u32])?;
    Ok(stream.download(&out)?)
}

fn run_ring(device: &Device, input: &[u8], tiles: usize) -> Result<Vec<u8>, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::BULK_RING, "bulk_ring")?;
    let from = stream.upload(input)?;
    let mut out = poisoned::<u8>(&stream, input.len())?;
    let grid = Grid::new([1, 1, 1], [RING_THREADS, 1, 1]).shared(RING_SHARED_BYTES);
    kernel.launch(&stream, &grid, &args![&from, &mut out, tiles as u32])?;
    Ok(stream.download(&out)?)
}

/// What each element of a relay is computed from.
struct RelayInputs {
    words: Vec<u32>,
    longs: Vec<u64>,
    quads: Vec<[u32; 4]>,
}

impl RelayInputs {
    fn new(turns: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let count = turns * RELAY_HALF;
        let words = inputs.words(count);
        let long = |pair: &[u32]| u64::from(pair[0]) << 32 | u64::from(pair[1]);
        let longs = inputs.words(2 * count).chunks_exact(2).map(long).collect();
        let quad = |quad: &[u32]| [quad[0], quad[1], quad[2], quad[3]];
        let quads = inputs.words(4 * count).chunks_exact(4).map(quad).collect();
        Self { words, longs, quads }
    }

    fn value(&self, at: usize) -> u32 {
        let times = |factor: u64, value: u64| u128::from(factor) * u128::from(value);
        let [x, y, z, w] = self.quads[at].map(u64::from);
        let quad = x + 11 * y + 13 * z + 17 * w;
        (times(3, self.words[at].into()) + times(5, self.longs[at]) + times(7, quad)) as u32
    }

    fn relayed(&self) -> Vec<u32> {
        let turn = |start: usize| (start..start + RELAY_HALF).rev().map(|at| self.value(at));
        (0..self.words.len()).step_by(RELAY_HALF).flat_map(turn).collect()
    }
}

fn run_relay(device: &Device, inputs: &RelayInputs, turns: usize) -> Result<Vec<u32>, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::BARRIER_RELAY, "barrier_relay")?;
    let words = stream.upload(&inputs.words)?;
    let longs = stream.upload(&inputs.longs)?;
    let quads = stream.upload(&inputs.quads)?;
    let mut out = poisoned::<u32>(&stream, inputs.words.len())?;
    let shared = (4 * RELAY_HALF * turns) as u32;
    let grid = Grid::new([1, 1, 1], [2 * RELAY_HALF as u32, 1, 1]).shared(shared);
    kernel.launch(&stream, &grid, &args![&words, &longs, &quads, &mut out, turns as u32])?;
    Ok(stream.download(&out)?)
}

fn grid_ring(mut values: Vec<u32>, blocks: usize, rounds: usize) -> Vec<u32> {
    for _ in 0..rounds {
        let before = values.clone();
        for block in 0..blocks {
            for thread in 0..GRID_RING_THREADS {
                let neighbour = before[(block + 1) % blocks * GRID_RING_THREADS + thread];
                values[block * GRID_RING_THREADS + thread] =
                    neighbour.wrapping_mul(2).wrapping_add(block as u32 + 1);
            }
        }
    }
    values
}

fn run_grid_ring(
    device: &Device,
    values: &[u32],
    blocks: usize,
    rounds: usize,
) -> Result<Vec<u32>, RunError> {
    let stream = device.stream()?;
    let kernel = device.kernel_of(&kernels::GRID_RING, "grid_ring")?;
    let mut values = stream.upload(values)?;
    let mut next = poisoned::<u32>(&stream, values.len())?;
    let mut arrived = stream.alloc_zeros::<u32>(1)?;
    let grid = Grid::new([blocks as u32, 1, 1], [GRID_RING_THREADS as u32, 1, 1]).cooperative();
    kernel.launch(&stream, &grid, &args![&mut values, &mut next, &mut arrived, rounds as u32])?;
    Ok(stream.download(if rounds.is_multiple_of(2) { &values } else { &next })?)
}

impl Workload for AsyncCopy {
    fn name(&self) -> &str {
        "gpu/async-copy"
    }

    fn summary(&self) -> &str {
        "cp.async pipelines, rings of bulk copies, named barriers and barriers of the whole grid"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::COPY_PIPELINE.source())
                .entries(PIPELINE_ENTRIES)
                .require("LDGSTS")
                .threads(PIPELINE_THREADS),
            KernelSpec::new(kernels::BULK_RING.source())
                .require("UBLKCP")
                .require("SYNCS")
                .threads(RING_THREADS),
            KernelSpec::new(kernels::BARRIER_RELAY.source()).require("BAR").threads(2 * RELAY_HALF as u32),
            KernelSpec::new(kernels::GRID_RING.source()).require("ATOMG").threads(GRID_RING_THREADS as u32),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (turns, blocks) = match kind {
            Kind::Emulated => (5, 4),
            Kind::Cuda => (101, 100),
        };
        // The end lies inside an element, several elements before the end of the last tile.
        let pipeline = |element| Subject::Pipeline { element, tiles: turns, missing: 7 * element + 3 };
        let subjects = [
            pipeline(4),
            pipeline(8),
            pipeline(16),
            Subject::Ring { tiles: turns },
            Subject::Relay { turns },
            Subject::GridRing { blocks, rounds: 5 },
        ];
        subjects.into_iter().map(Subject::case).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Outputs::new().with("out", Subject::of(case).run(device, seed)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        Outputs::new().with("out", Subject::of(case).reference(seed))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let subject = Subject::of(case);
        let wrong = subject.controls(seed, &subject.reference(seed));
        let wrong =
            wrong.into_iter().map(|(name, tensor)| Control::new(name, Outputs::new().with("out", tensor)));
        [Control::zeros(reference), Control::one_off(reference, "out", 1, 1.0)]
            .into_iter()
            .chain(wrong)
            .collect()
    }

    fn work(&self, case: &Case) -> Work {
        let bytes = |bytes: usize| Work { operations: 0, bytes: bytes as u64 };
        match Subject::of(case) {
            Subject::Pipeline { element, tiles, missing } => {
                bytes(2 * pipeline_bytes(element, tiles) - missing)
            }
            Subject::Ring { tiles } => bytes(2 * tiles * RING_TILE_BYTES),
            Subject::Relay { turns } => bytes(turns * RELAY_HALF * (4 + 8 + 16 + 4)),
            Subject::GridRing { blocks, rounds } => bytes(2 * 4 * rounds * blocks * GRID_RING_THREADS),
        }
    }
}
