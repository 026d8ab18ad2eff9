//! What host code and kernels share.

use bytemuck::{Pod, Zeroable};

gatework_gpu::shared! {
    /// Included by the engine's kernels.
    pub(crate) header SHARED = "shared.cuh" after "field.cuh";

    /// Layers of the lowest pass of a transform of several, and of the whole of one that is just as long.
    pub(crate) const LOWEST: u32 = 12;
    /// Values of M31 that a thread of a transform on tiles of full size has, as a logarithm.
    pub(crate) const LOG_THREAD_VALUES: u32 = 4;
    /// Neighbouring monomials that one thread computes, as a logarithm.
    pub(crate) const LOG_RUN: u32 = 4;
    /// Rows that one thread multiplies with weights.
    pub(crate) const DOT_ROWS: u32 = 8;
    /// Rows that one thread of a scan adds up.
    pub(crate) const SCAN_ROWS: u32 = 8;
    /// Columns that go into one block of the hash.
    pub(crate) const BLOCK_COLUMNS: u32 = 16;
    /// Low bits of a nonce that are tried before its high word moves on.
    pub(crate) const NONCE_LOW_BITS: u32 = 20;
    /// The same for nonces of Poseidon252.
    pub(crate) const NONCE252_LOW_BITS: u32 = 14;
    /// Threads of the block that folds the small layers of FRI.
    pub(crate) const TAIL_THREADS: u32 = 512;

    /// The type of a digest's words.
    pub enum DigestWords {
        /// As Blake2s gives them.
        Plain,
        /// Reduced modulo the prime of M31.
        M31,
    }

    /// Where columns of one length are.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Columns {
        /// The first, where a stride tells where the others are.
        pub(crate) first: u64,
        /// Bytes from one to the next, all ones where that differs.
        pub(crate) stride: u64,
        /// Addresses, where it does.
        pub(crate) table: u64 => "const u64*",
    }

    /// A pass of the transform on tiles of full size.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct FullPass {
        pub(crate) log_table: u32,
        pub(crate) log_domain: u32,
        /// The lowest layer.
        pub(crate) first: u32,
        /// Value i is read from i & mask: so a short source is repeated.
        pub(crate) mask: u32,
        /// Results are multiplied with half of this, if it is not 0: a power of two.
        pub(crate) factor: u32,
    }

    /// The only pass of a transform on smaller tiles.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct SmallPass {
        pub(crate) log_table: u32,
        pub(crate) log_domain: u32,
        pub(crate) layers: u32,
        /// Value i is read from i & mask, and is zero if that is `limit` or more: so a short source is padded
        /// and repeated.
        pub(crate) mask: u32,
        pub(crate) limit: u32,
        /// As that of a pass.
        pub(crate) factor: u32,
    }

    /// A column that leaves of a tree are made of.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct LeafColumn {
        pub(crate) values: u64 => "const u32*",
        pub(crate) log_size: u32,
        pub(crate) unused: u32,
    }

    /// Some columns of one length.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct FewColumns {
        pub(crate) at: [u64; BLOCK_COLUMNS as usize] => "const u32* {}[BLOCK_COLUMNS]",
    }

    /// Where a fold also puts the leaves of a tree over what it folds to.
    #[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
    pub(crate) struct Leaves {
        /// Nowhere if it is 0.
        pub(crate) address: u64,
        pub(crate) words: u32 => "DigestWords",
        pub(crate) unused: u32,
    }

    /// A layer of the line: its values, and the place of its tree, in breadth-first order, root first.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct LineLayer {
        pub(crate) values: [u64; 4] => "Coordinates",
        pub(crate) tree: u64 => "u32*",
        pub(crate) unused: u64,
    }

    /// The sums of one sampled point p: its real and imaginary parts over CM31, and what the sums of its
    /// columns are.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Sampled {
        pub(crate) real_x: [u32; 2] => "CM31",
        pub(crate) real_y: [u32; 2] => "CM31",
        pub(crate) imaginary_x: [u32; 2] => "CM31",
        pub(crate) imaginary_y: [u32; 2] => "CM31",
        pub(crate) linear: [u32; 4] => "QM31",
        pub(crate) numerators: [u64; 4] => "Coordinates",
        /// By how much rows are lifted, in bits.
        pub(crate) shift: u32,
        pub(crate) unused: u32,
    }

    /// What every kernel of constraints is given.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Rows {
        /// Columns of all interactions, as the program numbers them.
        pub(crate) columns: u64 => "const u32* const*",
        /// Constants of the proof.
        pub(crate) parameters: u64 => "const QM31*",
        /// The random coefficient of each constraint.
        pub(crate) coefficients: u64 => "const QM31*",
        /// Inverses of the vanishing polynomial of the trace: one for each run of 2^log_trace rows.
        pub(crate) denominators: u64 => "const u32*",
        pub(crate) sums: [u64; 4] => "Coordinates",
        pub(crate) log_trace: u32,
        pub(crate) log_rows: u32,
    }

    /// Rows of a column that are ahead of those of a chunk, and where they go.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct ShiftedColumn {
        /// The chunk that even rows are ahead in.
        pub(crate) even: u64 => "const u32*",
        /// The same for odd rows.
        pub(crate) odd: u64 => "const u32*",
        pub(crate) target: u64 => "u32*",
        /// How far, in rows of the trace.
        pub(crate) offset: i32,
        pub(crate) unused: u32,
    }

    /// What the instances of a kernel work on, where it goes through several: tables with a part for each.
    /// While nothing lies on the device: places in the tables, counted in elements.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Instances {
        pub(crate) columns: u64 => "const u32* const*",
        pub(crate) parameters: u64 => "const QM31*",
        pub(crate) constants: u64 => "const u32*",
        /// The first constraint or output of instance 0.
        pub(crate) first: u32,
        /// And from there to the first of the next.
        pub(crate) stride: u32,
        pub(crate) count: u32,
        pub(crate) unused: u32,
    }

    /// One step of the interpreter.
    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    pub(crate) struct Instruction {
        /// The operation in the low byte, the place of the result above.
        pub(crate) code: u32,
        pub(crate) a: u32,
        pub(crate) b: u32,
        pub(crate) unused: u32,
    }

    /// What the interpreter does in one step.
    pub(crate) enum Operation {
        Column,
        Constant,
        Add,
        Sub,
        Mul,
        Neg,
        Inverse,
        Parameter,
        Lift,
        Combine,
        SecureAdd,
        SecureSub,
        SecureMul,
        SecureNeg,
        SecureAddBase,
        SecureMulBase,
        Constrain,
        SecureConstrain,
        Output,
        SecureOutput,
    }

    /// What a layer of GKR is made of: denominators alone are a product, or fractions over one; numerators
    /// are of either field.
    pub(crate) enum LayerKind {
        Product,
        Fractions,
        Multiplicities,
        Singles,
    }
}

impl DigestWords {
    /// What stwo's hashers of Blake2s, which know it as a constant, give.
    pub(crate) const fn of(is_m31_output: bool) -> Self {
        if is_m31_output { Self::M31 } else { Self::Plain }
    }
}
