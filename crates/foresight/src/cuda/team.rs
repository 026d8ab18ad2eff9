//! Teams of blocks, each with a member of an ensemble: how many, how they meet, and where their weights are.

use gatework_gpu::{Device, DeviceProperties, Grid};
use half::bf16;

use super::shared::{HELD_ROWS_BF16, HELD_ROWS_F32, TEAM_THREADS};
use crate::error::{Error, Result};

/// The largest state that a team takes.
pub const MOST_HIDDEN: usize = 4096;
/// Blocks of a cluster that every device with clusters takes.
const PORTABLE_CLUSTER: usize = 8;
/// A slab that is through shared memory in 250 cycles: smaller ones do not pay for another block at the
/// barrier.
const SMALL_SLAB: usize = 32 << 10;
/// Threads that the emulated device keeps at once in a cooperative grid.
const EMULATED_THREADS: usize = 8192;
/// Threads that a multiprocessor of Hopper keeps at once.
const MULTIPROCESSOR_THREADS: usize = 2048;
/// Shared memory that a block takes beside its own.
const BLOCK_BYTES: usize = 1 << 10;

/// The format of weights on the device. Sums are of f32 in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 32 bits.
    F32,
    /// The upper half of 32 bits, rounded to nearest.
    Bf16,
}

impl WeightFormat {
    /// Columns of a vector of 16 bytes.
    pub(super) fn columns(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 8,
        }
    }

    /// Rows of the state's matrix that a thread has in registers.
    pub(super) fn held_rows(self) -> usize {
        match self {
            Self::F32 => HELD_ROWS_F32 as usize,
            Self::Bf16 => HELD_ROWS_BF16 as usize,
        }
    }

    /// A weight as the device has it.
    pub fn rounded(self, weight: f32) -> f32 {
        match self {
            Self::F32 => weight,
            Self::Bf16 => bf16::from_f32(weight).to_f32(),
        }
    }

    /// Appends columns, which fill whole vectors, as words of 32 bits.
    fn append(self, words: &mut Vec<u32>, columns: &[f32]) {
        match self {
            Self::F32 => words.extend(columns.iter().map(|x| x.to_bits())),
            Self::Bf16 => words.extend(columns.chunks_exact(2).map(|pair| {
                let [low, high] = [pair[0], pair[1]].map(|x| u32::from(bf16::from_f32(x).to_bits()));
                low | high << 16
            })),
        }
    }
}

/// How the blocks of a team meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Team {
    /// As a thread-block cluster, by distributed shared memory and the cluster's barrier.
    Cluster,
    /// As blocks of a cooperative grid, by device memory and a barrier of the whole grid.
    Grid,
}

/// Where weights are between steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// In shared memory for the whole launch, but for those that registers hold.
    Shared,
    /// In device memory, but for those that registers hold: they are read in every step, from the L2 cache
    /// where they fit.
    Streamed,
}

/// How a recurrent kernel is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Blocks of a team.
    pub blocks: usize,
    /// How they meet.
    pub team: Team,
    /// Where the weights are.
    pub residence: Residence,
}

/// What a block needs: for its slab in all, of that in registers, and beside it in shared memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) slab: usize,
    pub(super) held: usize,
    pub(super) rest: usize,
}

impl Needs {
    /// Shared memory.
    fn shared(&self, residence: Residence) -> usize {
        match residence {
            Residence::Shared => self.slab - self.held + self.rest,
            Residence::Streamed => self.rest,
        }
    }
}

impl Schedule {
    /// The one that suits a device: the smallest cluster whose slabs are small, else the largest that holds
    /// them, else as many blocks as the device has multiprocessors for every member. `useful` is how many
    /// blocks have something to do.
    pub(super) fn suited(
        device: &Device,
        members: usize,
        useful: usize,
        needs: impl Fn(usize) -> Needs,
    ) -> Result<Self> {
        let properties = device.properties();
        let room = room_of(properties);
        let fits = |blocks: usize| needs(blocks).shared(Residence::Shared) <= room;
        let clusters = [1, 2, 4, PORTABLE_CLUSTER].into_iter().filter(|blocks| *blocks <= useful);
        let holding: Vec<usize> = clusters.filter(|blocks| fits(*blocks)).collect();
        let small = holding.iter().find(|blocks| needs(**blocks).slab <= SMALL_SLAB);
        let found = match small.or(holding.last()) {
            Some(&blocks) => Self { blocks, team: Team::Cluster, residence: Residence::Shared },
            None => {
                let of_team = |bytes: usize| (most_blocks(device, bytes) / members).min(useful);
                let whole = of_team(room);
                if whole > 0 && fits(whole) {
                    Self { blocks: whole, team: Team::Grid, residence: Residence::Shared }
                } else {
                    // The rest grows with the columns of a block: it is largest where one has them all.
                    let blocks = of_team(needs(1).rest);
                    Self { blocks, team: Team::Grid, residence: Residence::Streamed }
                }
            }
        };
        found.check(device, members, &needs)?;
        Ok(found)
    }

    /// Whether a device can run it.
    pub(super) fn check(
        &self,
        device: &Device,
        members: usize,
        needs: impl Fn(usize) -> Needs,
    ) -> Result<()> {
        let Self { blocks, team, residence } = *self;
        let (room, name) = (room_of(device.properties()), &device.properties().name);
        if blocks == 0 {
            return Err(Error::shape(format!(
                "{members} members leave no block for a team on {name}: split the ensemble into several launches"
            )));
        }
        let needed = needs(blocks).shared(residence);
        let (most, what) = match team {
            Team::Cluster => (2 * PORTABLE_CLUSTER, "a cluster"),
            Team::Grid => (most_blocks(device, needed) / members, "each team of a cooperative grid"),
        };
        if blocks > most {
            return Err(Error::shape(format!("{blocks} blocks where {what} has {most} at most on {name}")));
        }
        if needed > room {
            return Err(Error::shape(format!(
                "{needed} bytes of shared memory a block where {name} has {room}: take more blocks, or stream the weights"
            )));
        }
        Ok(())
    }

    /// One team a member.
    pub(super) fn grid(&self, members: usize, shared_bytes: usize) -> Grid {
        let grid = Grid::new([(members * self.blocks) as u32, 1, 1], [TEAM_THREADS, 1, 1]);
        let grid = grid.shared(shared_bytes as u32);
        match self.team {
            Team::Cluster => grid.cluster([self.blocks as u32, 1, 1]),
            Team::Grid => grid.cooperative(),
        }
    }
}

/// Dynamic shared memory that a block may have: what aligns its start is not for it.
pub(super) fn room_of(properties: &DeviceProperties) -> usize {
    (properties.shared_memory_per_block as usize).saturating_sub(BLOCK_BYTES)
}

/// Blocks with that much shared memory that may wait for each other: one a multiprocessor, which has
/// registers for no more. The emulated device has few multiprocessors and any number of registers.
fn most_blocks(device: &Device, shared_bytes: usize) -> usize {
    let properties = device.properties();
    let multiprocessors = properties.multiprocessors as usize;
    if !device.is_emulated() {
        return multiprocessors;
    }
    let of_one = properties.shared_memory_per_multiprocessor as usize / (shared_bytes + BLOCK_BYTES);
    let resident = of_one.min(MULTIPROCESSOR_THREADS / TEAM_THREADS as usize);
    (multiprocessors * resident).min(EMULATED_THREADS / TEAM_THREADS as usize)
}

/// Threads that share the rows of a product with so many vectors of columns, as the kernels have it.
pub(super) fn groups_of(vectors: usize) -> usize {
    (TEAM_THREADS as usize / vectors).max(1)
}

/// From what one group leaves of so many columns to what the next leaves, as the kernels have it.
fn stride_of(columns: usize) -> usize {
    columns.next_multiple_of(8) + 4
}

/// Room for what groups of threads leave of a product: with so many vectors of columns, which leave
/// `columns` numbers.
pub(super) fn partials_of(vectors: usize, columns: usize) -> usize {
    groups_of(vectors) * stride_of(columns)
}

/// Appends rows of a block's columns, zeros where there is none.
pub(super) fn append_rows(
    words: &mut Vec<u32>,
    format: WeightFormat,
    [rows, columns]: [usize; 2],
    weight: impl Fn(usize, usize) -> Option<f32>,
) {
    let mut row_of_columns = vec![0.0; columns];
    for row in 0..rows {
        let numbered = row_of_columns.iter_mut().enumerate();
        numbered.for_each(|(column, place)| *place = weight(row, column).unwrap_or(0.0));
        format.append(words, &row_of_columns);
    }
}

/// Places in shared memory, one after another, each at a multiple of 16 bytes.
#[derive(Debug)]
pub(super) struct Places(usize);

impl Places {
    pub(super) fn after(bytes: usize) -> Self {
        Self(bytes.next_multiple_of(16))
    }

    /// Room for so many f32.
    pub(super) fn floats(&mut self, count: usize) -> u32 {
        let at = self.0;
        self.0 = (at + count * size_of::<f32>()).next_multiple_of(16);
        at as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.0
    }
}

/// Refuses weights that are no numbers: one of them makes a whole path none.
pub(super) fn require_finite(member: usize, weights: &[f32]) -> Result<()> {
    match weights.iter().position(|w| !w.is_finite()) {
        None => Ok(()),
        Some(at) => Err(Error::shape(format!(
            "weight {at} of member {member} is {}: take a sound snapshot of the model",
            weights[at]
        ))),
    }
}
