//! Which form of a kernel runs where, and how work is cut: every choice of the backend that could have been
//! another.

use gatework_gpu::{Device, Module};

/// How AES is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AesForm {
    /// Lookups in a table of 1 KiB in shared memory, which lies there in so many copies: 1 to 32, a power of
    /// two. Which entries are read depends on secrets.
    Table {
        /// Copies, side by side.
        copies: u32,
    },
    /// Lookups in two tables of 1 KiB, 32 copies of each; where a block of threads has little to do, in one.
    Pairs,
    /// Lookups in four tables of 1 KiB, 32 copies of each: for a block of threads that has a multiprocessor
    /// to itself.
    Quads,
    /// A circuit over bit planes of two blocks: constant time.
    BitPlanes,
}

/// How element-wise formulas run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormulaTier {
    /// By one kernel that reads them as data: nothing is compiled.
    Interpreted,
    /// By a kernel of their own, which the first call of a formula compiles.
    Generated,
    /// By the interpreter while a thread compiles a kernel, then by that. The results are the same.
    Adaptive,
}

/// How products of matrices are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductForm {
    /// Word by word.
    Words,
    /// In limbs of 8 bits, on integer tensor cores.
    Limbs,
    /// In limbs where all sides are at least this long, word by word elsewhere.
    LimbsFrom(usize),
}

/// How far key material is ahead of the gates that ask for it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAhead {
    /// Bytes of one copy.
    pub chunk: usize,
    /// Bytes that may wait in page-locked memory.
    pub staged: u64,
    /// Bytes that may wait on the device, at least four chunks.
    pub copied: u64,
    /// Chunks whose copies are queued at once.
    pub under_way: usize,
}

/// What is copied at once, at least.
const LEAST_CHUNK: usize = 4 << 10;

/// So many bytes at most, as page-locked blocks come: in powers of two.
fn block_size(bytes: u64) -> usize {
    1 << bytes.max(1).ilog2()
}

impl KeyAhead {
    /// The share of one of so many sections that are used together.
    pub(super) fn shared_by(self, sections: usize) -> Self {
        let share = |bytes: u64| bytes / sections.max(1) as u64;
        // There are four chunks on the device at least.
        let chunk = block_size(share(self.copied) / 4).clamp(LEAST_CHUNK.min(self.chunk), self.chunk);
        let staged = share(self.staged).max(chunk as u64);
        Self { chunk, staged, copied: share(self.copied).max(chunk as u64), ..self }
    }

    /// Chunks of so many bytes, at least one.
    pub(super) fn chunks(&self, bytes: u64) -> usize {
        bytes.div_ceil(self.chunk.max(1) as u64).max(1) as usize
    }
}

/// The choices of one backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How AES is computed.
    pub aes: AesForm,
    /// How formulas run.
    pub formulas: FormulaTier,
    /// How products of matrices are computed.
    pub products: ProductForm,
    /// How far key material is ahead of the gates that ask for it.
    pub keys: KeyAhead,
    /// Bytes of a message, at most, that kernels read from the host's memory.
    pub direct: usize,
    /// Words of key material that are made ready before a gate asks for them, of all jobs together.
    pub words_ahead: usize,
    /// Leaves that a block of threads expands together, where trees have fewer.
    pub leaves_each: u32,
}

impl Schedule {
    /// The choices for a device. The emulated one has no banks, and its compiler would be asked for every
    /// formula.
    pub fn of(device: &Device) -> Self {
        // Of a small budget keys get a small part.
        let copied = (512u64 << 20).min(device.budget().limit() / 8).max(2 << 20);
        let card = Self {
            aes: AesForm::OF_A_CARD,
            formulas: FormulaTier::Adaptive,
            products: ProductForm::LimbsFrom(16),
            keys: KeyAhead {
                chunk: block_size(copied / 4).min(8 << 20),
                staged: 256 << 20,
                copied,
                under_way: 2,
            },
            direct: 16 << 20,
            words_ahead: (device.budget().limit() / 64).min(1 << 26) as usize,
            leaves_each: 256,
        };
        if !device.is_emulated() {
            return card;
        }
        Self {
            aes: AesForm::Table { copies: 1 },
            formulas: FormulaTier::Interpreted,
            products: ProductForm::Words,
            direct: 1 << 10,
            keys: KeyAhead { chunk: 64 << 10, staged: 256 << 10, copied: 128 << 10, under_way: 2 },
            ..card
        }
    }
}

impl Schedule {
    /// The same without overlap, to measure what it is worth: no key is made ready before a gate asks for it,
    /// and keys are copied one chunk at a time, as few ahead as there can be.
    pub fn without_overlap(device: &Device) -> Self {
        let card = Self::of(device);
        let chunk = card.keys.chunk as u64;
        let keys = KeyAhead { staged: chunk, copied: 4 * chunk, under_way: 1, ..card.keys };
        Self { keys, words_ahead: 0, ..card }
    }
}

/// Threads of a multiprocessor that compare, from which on twice the tables are worth their copies.
const THREADS_WORTH_QUADS: usize = 160;

impl AesForm {
    /// The default on a card: a copy of the tables for every bank.
    pub const OF_A_CARD: Self = Self::Pairs;

    /// The form for blocks of threads that have so little to do that copies of tables count.
    pub(super) fn for_short_work(self) -> Self {
        match self {
            Self::Pairs | Self::Quads => Self::Table { copies: 32 },
            other => other,
        }
    }

    /// The form for comparisons by so many threads of a multiprocessor.
    pub(super) fn for_comparisons(self, threads: usize) -> Self {
        match self {
            Self::Pairs if threads >= THREADS_WORTH_QUADS => Self::Quads,
            other => other,
        }
    }

    /// A module whose kernels use AES, in this form.
    pub(super) fn module(self, module: &Module) -> Module {
        match self {
            Self::Table { copies } => {
                module.define("AES_BITSLICED", 0u32).define("AES_TABLES", 1u32).define("AES_COPIES", copies)
            }
            Self::Pairs => module.define("AES_BITSLICED", 0u32).define("AES_TABLES", 2u32),
            Self::Quads => module.define("AES_BITSLICED", 0u32).define("AES_TABLES", 4u32),
            Self::BitPlanes => module.define("AES_BITSLICED", 1u32),
        }
    }

    /// Shared memory that the form takes in a block of threads.
    pub(super) fn shared_bytes(self) -> u32 {
        match self {
            Self::Table { copies } => 1024 * copies,
            Self::Pairs => 64 << 10,
            Self::Quads => 128 << 10,
            Self::BitPlanes => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_a_batch_share_what_is_ahead() {
        let ahead = KeyAhead { chunk: 2 << 20, staged: 256 << 20, copied: 512 << 20, under_way: 2 };
        assert_eq!(ahead.shared_by(1), ahead);
        for sections in [2, 16, 24, 31, 300, 4096] {
            let share = ahead.shared_by(sections);
            assert!(share.copied * sections as u64 <= ahead.copied, "{sections}: {share:?}");
            assert!(share.chunk as u64 <= share.copied && share.chunk.is_power_of_two(), "{share:?}");
        }
        // Never more than it was.
        let small = KeyAhead { chunk: 100, staged: 100, copied: 100, under_way: 2 };
        assert_eq!(small.shared_by(9), small);
    }
}
