//! What kernels and the emulated device say to each other: the functions that a kernel calls, their codes and
//! their structs. `gw/emulated.cuh` includes all of it as `gw/abi.cuh`.

use std::fmt::Write as _;

crate::shared! {
    /// How memory is ordered, on both devices.
    pub(crate) header ORDER = "gw/order.cuh" in "gw";

    /// Whose threads an atomic or a fence speaks to: a narrow scope is quicker, and others see nothing of it.
    pub(crate) enum Scope {
        Block,
        Cluster,
        Device,
        System,
    }

    /// What an atomic does for the accesses around it.
    pub(crate) enum Order {
        /// Nothing.
        Relaxed,
        /// Those after it see what the release saw whose value it reads.
        Acquire,
        /// Those before it are seen by who acquires its value.
        Release,
        AcquireRelease,
    }
}

crate::shared! {
    /// The kernel's side.
    pub(crate) header ABI = "gw/abi.cuh" after "gw/order.cuh" in "gw::emulated";

    /// What a thread asks for the number of.
    pub(crate) enum Index {
        Thread,
        Block,
        Threads,
        Blocks,
        /// The cluster, and how many there are.
        Cluster,
        Clusters,
        /// The block's number in its cluster, and how many that has; they have one axis.
        Rank,
        ClusterSize,
    }

    /// What a warp exchanges.
    pub(crate) enum ExchangeOp {
        Shuffle,
        ShuffleUp,
        ShuffleDown,
        ShuffleXor,
        Ballot,
        MatchAny,
        MatchAll,
        ReduceAdd,
        ReduceMinU,
        ReduceMaxU,
        ReduceMinS,
        ReduceMaxS,
        ReduceAnd,
        ReduceOr,
        ReduceXor,
    }

    /// What a fence orders.
    pub(crate) enum FenceKind {
        Block,
        Cluster,
        Device,
        System,
        /// Ordinary accesses to the block's shared memory, with those of the asynchronous proxy.
        AsyncShared,
        /// Those to shared memory of the cluster.
        AsyncCluster,
        /// Those to global memory.
        AsyncGlobal,
        /// Those to all of them.
        AsyncAll,
        MbarrierInit,
        Wgmma,
    }

    /// What an atomic does.
    pub(crate) enum AtomicOp {
        Load,
        Store,
        Exchange,
        Cas,
        Add,
        MinU,
        MaxU,
        MinS,
        MaxS,
        And,
        Or,
        Xor,
        AddF32,
        AddF64,
        AddF16Pair,
        AddBf16Pair,
        Inc,
        Dec,
    }

    /// Between which formats a conversion goes.
    pub(crate) enum Conversion {
        F32ToF16,
        F16ToF32,
        F32ToBf16,
        Bf16ToF32,
        F32ToE4m3,
        F32ToE5m2,
        E4m3ToF16,
        E5m2ToF16,
        F16ToE4m3,
        F16ToE5m2,
    }

    /// A rule of the language that the compiler's own checks found broken, or that the kernel found broken
    /// itself.
    pub(crate) enum Rule {
        ArrayBounds,
        DivisionByZero,
        Shift,
        Conversion,
        Overflow,
        MissingReturn,
        Trap,
    }

    /// What an argument of `gw::print` is.
    pub(crate) enum Printed {
        Signed,
        Unsigned,
        Float,
        Text,
        Pointer,
    }

    /// What is done to two pairs, or three, of f16.
    pub(crate) enum HalfPairOp {
        Add,
        Multiply,
        Fma,
        FmaRelu,
        Maximum,
    }

    /// A format of the tensor cores.
    pub(crate) enum Format {
        F16,
        Bf16,
        E4m3,
        E5m2,
        S8,
    }

    /// Element types that both sides of a launch can name.
    pub(crate) enum Scalar {
        /// A struct, or a 16-bit float that C++ sees as one: compared by size alone.
        Other,
        U8,
        I8,
        U16,
        I16,
        U32,
        I32,
        U64,
        I64,
        F32,
        F64,
    }

    /// One parameter of a kernel: its size, its scalar, and for a pointer the size of the element and whether
    /// it may be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct ParameterInfo {
        pub(crate) bytes: u32,
        pub(crate) element_bytes: u32,
        pub(crate) scalar: u32 => "Scalar",
        pub(crate) is_pointer: u32,
        pub(crate) is_mutable: u32,
    }

    /// One product of a warpgroup.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct WgmmaCall {
        pub(crate) format: u32 => "Format",
        pub(crate) n: u32,
        pub(crate) a_in_registers: u32,
        pub(crate) accumulate: u32,
        pub(crate) transpose_a: u32,
        pub(crate) transpose_b: u32,
        pub(crate) half_accumulators: u32,
        pub(crate) unused: u32,
        pub(crate) a_descriptor: u64,
        pub(crate) b_descriptor: u64,
        pub(crate) a: [u32; 4],
        pub(crate) accumulators: *mut u32,
        /// Where the four registers of A came from.
        pub(crate) a_source: *const u32,
    }

    text scalars_of_types;
    text list_of_functions;
}

/// Every function of the runtime that kernels call, handed to the macro `$with`: from this list come the
/// table's type, the table, and what kernels see of it. `=>` gives the kernel's name of a type where that is
/// another.
macro_rules! functions {
    ($with:ident) => {
        $with! {
            index(which: u32 => "Index", axis: u32) -> u32;
            shared() -> *mut u8;
            access(address: *const c_void, bytes: u64, flags: u32, pc: *const c_void);
            enter(frame: *const c_void);
            leave();
            misuse(rule: u32 => "Rule", file: *const c_char => "const char*", line: u32, pc: *const c_void);
            misaligned(address: *const c_void, alignment: u64, pc: *const c_void);
            fail(message: *const c_char => "const char*", file: *const c_char => "const char*", line: u32);
            print(
                format: *const c_char => "const char*", kinds: *const u32 => "const Printed*", values: *const u64,
                count: u32, file: *const c_char => "const char*", line: u32
            );
            barrier(id: u32, threads: u32, wait: u32, file: *const c_char => "const char*", line: u32);
            sync_warp(mask: u32, file: *const c_char => "const char*", line: u32);
            sync_grid(word: *mut c_void, file: *const c_char => "const char*", line: u32);
            cluster_arrive(releases: u32, file: *const c_char => "const char*", line: u32);
            cluster_wait(file: *const c_char => "const char*", line: u32);
            cluster_map(
                address: *mut c_void, rank: u32, file: *const c_char => "const char*", line: u32
            ) -> *mut c_void;
            exchange(
                operation: u32 => "ExchangeOp", mask: u32, value: u64, argument: u32, width: u32,
                file: *const c_char => "const char*", line: u32
            ) -> u64;
            fence(kind: u32 => "FenceKind");
            atomic(
                operation: u32 => "AtomicOp", address: *mut c_void, bytes: u32, value: u64, compare: u64,
                order: u32 => "Order", scope: u32 => "Scope", pc: *const c_void
            ) -> u64;
            mbarrier_init(barrier: *mut c_void, count: u32, file: *const c_char => "const char*", line: u32);
            mbarrier_invalidate(barrier: *mut c_void, file: *const c_char => "const char*", line: u32);
            mbarrier_arrive(
                barrier: *mut c_void, arrivals: u32, expect_bytes: u32,
                file: *const c_char => "const char*", line: u32
            );
            mbarrier_wait(
                barrier: *mut c_void, parity: u32, block: u32, scope: u32 => "Scope",
                file: *const c_char => "const char*", line: u32
            ) -> u32;
            copy_async(
                to: *mut c_void, from: *const c_void, bytes: u32, source_bytes: u32,
                file: *const c_char => "const char*", line: u32
            );
            copy_async_arrive(
                barrier: *mut c_void, counted: u32, file: *const c_char => "const char*", line: u32
            );
            copy_async_commit();
            copy_async_wait(pending: u32);
            bulk_load(
                to: *mut c_void, from: *const c_void, bytes: u32, barrier: *mut c_void,
                file: *const c_char => "const char*", line: u32
            );
            bulk_load_multicast(
                to: *mut c_void, from: *const c_void, bytes: u32, barrier: *mut c_void, blocks: u32,
                file: *const c_char => "const char*", line: u32
            );
            bulk_send(
                to: *mut c_void, from: *const c_void, bytes: u32, barrier: *mut c_void,
                file: *const c_char => "const char*", line: u32
            );
            bulk_store(
                to: *mut c_void, from: *const c_void, bytes: u32, file: *const c_char => "const char*", line: u32
            );
            bulk_reduce(
                operation: u32 => "AtomicOp", word: u32, to: *mut c_void, from: *const c_void, bytes: u32,
                file: *const c_char => "const char*", line: u32
            );
            tensor_load(
                map: *const c_void, to: *mut c_void, barrier: *mut c_void, corner: *const i32, rank: u32, blocks: u32,
                file: *const c_char => "const char*", line: u32
            );
            tensor_store(
                map: *const c_void, from: *const c_void, corner: *const i32, rank: u32,
                file: *const c_char => "const char*", line: u32
            );
            tensor_prefetch(
                map: *const c_void, corner: *const i32, rank: u32, file: *const c_char => "const char*", line: u32
            );
            bulk_commit();
            bulk_wait(pending: u32, read_only: u32);
            load_matrix(
                registers: *mut u32, row: *const c_void, count: u32, transpose: u32,
                file: *const c_char => "const char*", line: u32
            );
            store_matrix(
                row: *mut c_void, registers: *const u32, count: u32, transpose: u32,
                file: *const c_char => "const char*", line: u32
            );
            mma(
                format: u32 => "Format", d: *mut u32, a: *const u32, b: *const u32, c: *const u32,
                file: *const c_char => "const char*", line: u32
            );
            wgmma(call: *const WgmmaCall, file: *const c_char => "const char*", line: u32);
            wgmma_commit();
            wgmma_wait(pending: u32, file: *const c_char => "const char*", line: u32);
            convert(kind: u32 => "Conversion", value: u32) -> u32;
            half_pair(operation: u32 => "HalfPairOp", a: u32, b: u32, c: u32) -> u32;
            registers(
                count: u32, acquires: u32, file: *const c_char => "const char*", line: u32
            );
            shared_address(address: *const c_void) -> u32;
            await_stream();
            pause();
            clock() -> u64;
        }
    };
}
pub(crate) use functions;

/// Appends the list as a macro over macros, one line a function: result, name, parameters, arguments.
fn list_of_functions(text: &mut String) {
    use std::ffi::{c_char, c_void};

    use crate::shared::{Shared, field};
    macro_rules! lines {
        ($($name:ident($($argument:ident: $type:ty $(=> $theirs:literal)?),*) $(-> $result:ty)?;)*) => {
            $({
                let parameters: &[String] = &[$(field::<$type>(stringify!($argument), &[$($theirs)?])),*];
                let arguments: &[&str] = &[$(stringify!($argument)),*];
                let results: &[String] = &[$(<$result as Shared>::declare("").trim().to_owned())?];
                let result = results.first().map_or("void", String::as_str);
                let (parameters, arguments) = (parameters.join(", "), arguments.join(", "));
                let name = stringify!($name);
                let _ = write!(text, " \\\n    F({result}, {name}, ({parameters}), ({arguments}))");
            })*
        };
    }
    text.push_str("#define GW_API(F)");
    functions!(lines);
    text.push('\n');
}

/// Appends the scalar that each type of a parameter is.
fn scalars_of_types(text: &mut String) {
    use crate::shared::Code as _;

    text.push_str("template <class T> struct ScalarOf { static constexpr Scalar code = Scalar::Other; };\n");
    text.push_str("template <class T> struct ScalarOf<const T> : ScalarOf<T> {};\n");
    for scalar in Scalar::ALL.iter().filter(|scalar| **scalar != Scalar::Other) {
        let type_ = format!("{scalar:?}").to_lowercase();
        let _ = writeln!(
            text,
            "template <> struct ScalarOf<{type_}> {{ static constexpr Scalar code = Scalar::{scalar:?}; }};"
        );
    }
}
