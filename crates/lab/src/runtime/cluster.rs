//! Tiles that the blocks of a cluster hand to each other.

use gatework_gpu::{Device, Grid, Kind, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const ENTRIES: [&str; 3] = ["cluster_ring", "cluster_multicast", "cluster_send"];
/// Threads of a block, and words of a tile.
const TILE: usize = 64;
/// Two tiles and four barriers.
const SHARED_BYTES: u32 = 2 * 4 * TILE as u32 + 4 * 8;

/// `gpu/cluster`.
pub(super) struct Cluster;

/// What the blocks do.
#[derive(Clone, Copy)]
enum Way {
    /// Read each other's shared memory.
    Ring,
    /// Load a tile for all.
    Multicast,
    /// Send tiles on.
    Send,
}

const WAYS: [Way; 3] = [Way::Ring, Way::Multicast, Way::Send];

/// One case: so many clusters of so many blocks, for so many rounds.
#[derive(Clone, Copy)]
struct Subject {
    way: Way,
    clusters: usize,
    size: usize,
    rounds: usize,
}

impl Subject {
    fn case(self) -> Case {
        let name = ["ring", "multicast", "send"][self.way as usize];
        Case::new(format!("{name}-of-{}", self.size))
            .with("way", self.way as usize)
            .with("clusters", self.clusters)
            .with("size", self.size)
            .with("rounds", self.rounds)
    }

    fn of(case: &Case) -> Self {
        let [way, clusters, size, rounds] =
            ["way", "clusters", "size", "rounds"].map(|name| case.dimension(name));
        Self { way: WAYS[way], clusters, size, rounds }
    }

    fn blocks(self) -> usize {
        self.clusters * self.size
    }

    /// Words that go in: tiles of a cluster for a multicast, else one tile a block.
    fn words(self, seed: u64) -> Vec<u32> {
        let tiles = match self.way {
            Way::Multicast => self.clusters * self.rounds,
            Way::Ring | Way::Send => self.blocks(),
        };
        Inputs::new(seed).words(tiles * TILE)
    }

    fn out_words(self) -> usize {
        match self.way {
            Way::Multicast => self.blocks() * self.rounds * TILE,
            Way::Ring | Way::Send => self.blocks() * TILE,
        }
    }

    fn run(self, device: &Device, seed: u64) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::CLUSTER_EXCHANGE, ENTRIES[self.way as usize])?;
        let words = stream.upload(&self.words(seed))?;
        let mut out = poisoned::<u32>(&stream, self.out_words())?;
        let grid = Grid::new([self.blocks() as u32, 1, 1], [TILE as u32, 1, 1])
            .shared(SHARED_BYTES)
            .cluster([self.size as u32, 1, 1]);
        kernel.launch(&stream, &grid, &args![&words, &mut out, self.rounds as u32])?;
        Ok(stream.download(&out)?)
    }

    fn reference(self, seed: u64) -> Vec<u32> {
        let words = self.words(seed);
        match self.way {
            Way::Multicast => self.multicast(&words),
            Way::Ring => {
                let step = |taken: u32, rank: usize| taken.wrapping_mul(2).wrapping_add(rank as u32 + 1);
                let turned = (0..self.rounds).fold(words, |words, _| self.turned(&words, 1, step));
                self.turned(&turned, 1, |taken, _| taken)
            }
            Way::Send => {
                let step = |received: u32, rank: usize| received.wrapping_add(rank as u32 + 1);
                (0..self.rounds).fold(words, |words, _| self.turned(&words, self.size - 1, step))
            }
        }
    }

    /// What each block makes of the words of the block `distance` ranks on.
    fn turned(self, words: &[u32], distance: usize, step: impl Fn(u32, usize) -> u32) -> Vec<u32> {
        let value = |at: usize| {
            let (block, thread) = (at / TILE, at % TILE);
            let (cluster, rank) = (block / self.size, block % self.size);
            let other = cluster * self.size + (rank + distance) % self.size;
            step(words[other * TILE + thread], rank)
        };
        (0..words.len()).map(value).collect()
    }

    fn multicast(self, words: &[u32]) -> Vec<u32> {
        let value = |at: usize| {
            let (block, tile, thread) = (at / TILE / self.rounds, at / TILE % self.rounds, at % TILE);
            let from = (block / self.size * self.rounds + tile) * TILE + TILE - 1 - thread;
            words[from].wrapping_add((block % self.size) as u32)
        };
        (0..self.out_words()).map(value).collect()
    }
}

impl Workload for Cluster {
    fn name(&self) -> &str {
        "gpu/cluster"
    }

    fn summary(&self) -> &str {
        "thread-block clusters: their barrier, distributed shared memory, remote arrivals, multicast and sent copies"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::CLUSTER_EXCHANGE.source())
                .entries(ENTRIES)
                .require("UCGABAR_ARV")
                .threads(TILE as u32),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (clusters, sizes): (usize, &[usize]) = match kind {
            Kind::Emulated => (2, &[2, 3]),
            Kind::Cuda => (24, &[2, 4, 8, 16]),
        };
        let subject = |way, size| Subject { way, clusters, size, rounds: 5 };
        sizes.iter().flat_map(|&size| WAYS.map(|way| subject(way, size).case())).collect()
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
        let wrong = |name, words: Vec<u32>| Control::new(name, Outputs::new().with("out", words));
        let mut apart = subject.reference(seed);
        apart.rotate_left(TILE);
        let mut stale = subject.reference(seed);
        let last = stale.len() - TILE;
        stale.copy_within(last - TILE..last, last);
        vec![
            Control::zeros(reference),
            Control::one_off(reference, "out", 1, 1.0),
            wrong("blocks are one rank off", apart),
            wrong("a tile is that of before", stale),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let subject = Subject::of(case);
        let tiles = subject.out_words() + subject.words(0).len();
        Work { operations: 0, bytes: 4 * tiles as u64 }
    }
}
