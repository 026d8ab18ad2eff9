//! The table of functions that kernels call, in the order of `GW_API` in gw/emulated.cuh, and their arguments.

use std::ffi::{c_char, c_void};

use super::access::Touch;
use super::block::CallSite;
use super::formats;
use super::launch::{Flow, step, with};
use super::shadow::Manner;
use super::warp::Offer;

/// An enum of C++ by its numbers; an unknown number becomes the last variant.
macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($variant),* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),*];

            pub(super) fn from_code(code: u32) -> Self {
                Self::ALL[(code as usize).min(Self::ALL.len() - 1)]
            }
        }
    )*};
}

numbered! {
    /// What a warp exchanges.
    ExchangeOp {
        Shuffle, ShuffleUp, ShuffleDown, ShuffleXor, Ballot, MatchAny, MatchAll, ReduceAdd, ReduceMinU, ReduceMaxU,
        ReduceMinS, ReduceMaxS, ReduceAnd, ReduceOr, ReduceXor,
    }
    /// What a fence orders.
    FenceKind { Block, Device, System, AsyncProxy, MbarrierInit, Wgmma }
    /// What an atomic does.
    AtomicOp {
        Load, Store, Exchange, Cas, Add, MinU, MaxU, MinS, MaxS, And, Or, Xor, AddF32, AddF64, Inc,
    }
    /// Between which formats a conversion goes.
    Conversion {
        F32ToF16, F16ToF32, F32ToBf16, Bf16ToF32, F32ToE4m3, F32ToE5m2, E4m3ToF16, E5m2ToF16, F16ToE4m3, F16ToE5m2,
    }
    /// A rule of the language that the compiler's own checks found broken.
    Rule { ArrayBounds, DivisionByZero }
    /// What is done to two pairs, or three, of f16.
    HalfPairOp { Add, Multiply, Fma, FmaRelu, Maximum }
    /// A format of the tensor cores.
    Format { F16, Bf16, E4m3, E5m2, S8 }
}

impl AtomicOp {
    pub(super) fn reads(self) -> bool {
        self != Self::Store
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Load
    }

    /// The value after, from the value before.
    pub(super) fn apply(self, before: u64, value: u64, compare: u64, bytes: usize) -> u64 {
        let signed = |x: u64| if bytes == 4 { i64::from(x as u32 as i32) } else { x as i64 };
        let float = |x: u64| f32::from_bits(x as u32);
        let after = match self {
            Self::Load => before,
            Self::Store | Self::Exchange => value,
            Self::Cas if before == compare => value,
            Self::Cas => before,
            Self::Add => before.wrapping_add(value),
            Self::MinU => before.min(value),
            Self::MaxU => before.max(value),
            Self::MinS if signed(value) < signed(before) => value,
            Self::MaxS if signed(value) > signed(before) => value,
            Self::MinS | Self::MaxS => before,
            Self::And => before & value,
            Self::Or => before | value,
            Self::Xor => before ^ value,
            Self::AddF32 => u64::from((float(before) + float(value)).to_bits()),
            Self::AddF64 => (f64::from_bits(before) + f64::from_bits(value)).to_bits(),
            Self::Inc if before >= value => 0,
            Self::Inc => before + 1,
        };
        if bytes == 4 { after & 0xFFFF_FFFF } else { after }
    }
}

impl Conversion {
    fn apply(self, bits: u32) -> u32 {
        let (float, half, byte) = (f32::from_bits(bits), bits as u16, bits as u8);
        match self {
            Self::F32ToF16 => formats::f32_to_f16(float).into(),
            Self::F16ToF32 => formats::f16_to_f32(half).to_bits(),
            Self::F32ToBf16 => formats::f32_to_bf16(float).into(),
            Self::Bf16ToF32 => formats::bf16_to_f32(half).to_bits(),
            Self::F32ToE4m3 => formats::f32_to_e4m3(float).into(),
            Self::F32ToE5m2 => formats::f32_to_e5m2(float).into(),
            Self::E4m3ToF16 => formats::f32_to_f16(formats::e4m3_to_f32(byte)).into(),
            Self::E5m2ToF16 => formats::f32_to_f16(formats::e5m2_to_f32(byte)).into(),
            Self::F16ToE4m3 => formats::f32_to_e4m3(formats::f16_to_f32(half)).into(),
            Self::F16ToE5m2 => formats::f32_to_e5m2(formats::f16_to_f32(half)).into(),
        }
    }
}

impl HalfPairOp {
    fn apply(self, a: u16, b: u16, c: u16) -> u16 {
        let value = |bits| f64::from(formats::f16_to_f32(bits));
        let (a, b, c) = (value(a), value(b), value(c));
        // Products of two f16 are exact in f64, and so are their sums but for sizes that differ by over 2^31.
        let exact = match self {
            Self::Add => a + b,
            Self::Multiply => a * b,
            Self::Fma => a * b + c,
            Self::FmaRelu => (a * b + c).max(0.0),
            Self::Maximum => a.max(b),
        };
        formats::f64_to_f16(exact)
    }
}

/// `WgmmaCall` of gw/emulated.cuh.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct WgmmaCall {
    format: u32,
    pub(super) n: u32,
    pub(super) a_in_registers: u32,
    pub(super) accumulate: u32,
    pub(super) transpose_a: u32,
    pub(super) transpose_b: u32,
    pub(super) half_accumulators: u32,
    pub(super) a_descriptor: u64,
    pub(super) b_descriptor: u64,
    pub(super) a: [u32; 4],
    pub(super) accumulators: *mut u32,
}

impl WgmmaCall {
    /// 32-bit registers that hold a lane's accumulators.
    pub(super) fn registers(&self) -> usize {
        if self.half_accumulators != 0 { self.n as usize / 4 } else { self.n as usize / 2 }
    }

    pub(super) fn format(&self) -> Format {
        Format::from_code(self.format)
    }

    /// Whether two lanes issue the same instruction; registers are each lane's own.
    pub(super) fn same_instruction(&self, other: &Self) -> bool {
        let fields = |call: &Self| {
            (
                (call.format, call.n, call.a_in_registers, call.accumulate),
                (call.transpose_a, call.transpose_b, call.half_accumulators),
                (call.a_descriptor, call.b_descriptor),
            )
        };
        fields(self) == fields(other)
    }
}

/// `Api` of gw/emulated.cuh.
#[repr(C)]
pub(super) struct Api {
    index: extern "C" fn(u32) -> u32,
    shared: extern "C" fn() -> *mut u8,
    access: extern "C" fn(*const c_void, u64, u32, *const c_void),
    enter: extern "C" fn(*const c_void),
    leave: extern "C" fn(),
    misuse: extern "C" fn(u32, *const c_char, u32),
    barrier: extern "C" fn(u32, u32, u32, *const c_char, u32),
    sync_warp: extern "C" fn(u32, *const c_char, u32),
    sync_grid: extern "C" fn(*const c_char, u32),
    exchange: extern "C" fn(u32, u32, u64, u32, u32, *const c_char, u32) -> u64,
    fence: extern "C" fn(u32),
    atomic: extern "C" fn(u32, *mut c_void, u32, u64, u64, *const c_void) -> u64,
    mbarrier_init: extern "C" fn(*mut c_void, u32, *const c_char, u32),
    mbarrier_arrive: extern "C" fn(*mut c_void, u32, u32, *const c_char, u32),
    mbarrier_wait: extern "C" fn(*mut c_void, u32, u32, *const c_char, u32) -> u32,
    copy_async: extern "C" fn(*mut c_void, *const c_void, u32, u32, *const c_char, u32),
    copy_async_commit: extern "C" fn(),
    copy_async_wait: extern "C" fn(u32),
    bulk_load: extern "C" fn(*mut c_void, *const c_void, u32, *mut c_void, *const c_char, u32),
    bulk_store: extern "C" fn(*mut c_void, *const c_void, u32, *const c_char, u32),
    bulk_commit: extern "C" fn(),
    bulk_wait: extern "C" fn(u32, u32),
    load_matrix: extern "C" fn(*mut u32, *const c_void, u32, u32, *const c_char, u32),
    store_matrix: extern "C" fn(*mut c_void, *const u32, u32, u32, *const c_char, u32),
    mma: extern "C" fn(u32, *mut u32, *const u32, *const u32, *const u32, *const c_char, u32),
    wgmma: extern "C" fn(*const WgmmaCall, *const c_char, u32),
    wgmma_commit: extern "C" fn(),
    wgmma_wait: extern "C" fn(u32, *const c_char, u32),
    convert: extern "C" fn(u32, u32) -> u32,
    half_pair: extern "C" fn(u32, u32, u32, u32) -> u32,
    shared_address: extern "C" fn(*const c_void) -> u32,
    await_stream: extern "C" fn(),
    pause: extern "C" fn(),
    clock: extern "C" fn() -> u64,
}

/// The one table; every kernel library is bound to it.
pub(super) static API: Api = Api {
    index,
    shared,
    access,
    enter,
    leave,
    misuse,
    barrier,
    sync_warp,
    sync_grid,
    exchange,
    fence,
    atomic,
    mbarrier_init,
    mbarrier_arrive,
    mbarrier_wait,
    copy_async,
    copy_async_commit,
    copy_async_wait,
    bulk_load,
    bulk_store,
    bulk_commit,
    bulk_wait,
    load_matrix,
    store_matrix,
    mma,
    wgmma,
    wgmma_commit,
    wgmma_wait,
    convert,
    half_pair,
    shared_address,
    await_stream,
    pause,
    clock,
};

extern "C" fn index(which: u32) -> u32 {
    with(|launch| {
        let axis = which as usize % 3;
        match which / 3 {
            0 => launch.thread().index[axis],
            1 => launch.block().index[axis],
            2 => launch.grid.threads[axis],
            _ => launch.grid.blocks[axis],
        }
    })
}

extern "C" fn shared() -> *mut u8 {
    with(|launch| launch.block().shared.bytes_mut().as_mut_ptr())
}

/// Bit 0 of `flags`: a write; bit 1: no alignment is promised.
extern "C" fn access(address: *const c_void, bytes: u64, flags: u32, pc: *const c_void) {
    step(|launch| {
        let pc = launch.entry.offset(pc as usize);
        launch.touch(Touch {
            address: address as usize,
            bytes: bytes as usize,
            write: flags & 1 != 0,
            alignment: if flags & 2 != 0 { 1 } else { bytes as usize },
            manner: Manner::Generic,
            pc,
        })
    });
}

extern "C" fn enter(frame: *const c_void) {
    step(|launch| launch.enter(frame as usize));
}

extern "C" fn leave() {
    with(|launch| launch.leave());
}

extern "C" fn misuse(rule: u32, file: *const c_char, line: u32) {
    step(|launch| launch.misuse(Rule::from_code(rule), CallSite { file, line }));
}

extern "C" fn barrier(id: u32, threads: u32, wait: u32, file: *const c_char, line: u32) {
    step(|launch| launch.barrier(id, threads, wait != 0, CallSite { file, line }));
}

extern "C" fn sync_warp(mask: u32, file: *const c_char, line: u32) {
    step(|launch| launch.meet(mask, Offer::Sync, CallSite { file, line }));
}

extern "C" fn sync_grid(file: *const c_char, line: u32) {
    step(|launch| launch.sync_grid(CallSite { file, line }));
}

extern "C" fn exchange(
    op: u32,
    mask: u32,
    value: u64,
    argument: u32,
    width: u32,
    file: *const c_char,
    line: u32,
) -> u64 {
    let offer = Offer::Exchange { op: ExchangeOp::from_code(op), value, argument, wide: width == 8 };
    step(|launch| launch.meet(mask, offer, CallSite { file, line }));
    with(|launch| launch.thread().result)
}

extern "C" fn fence(kind: u32) {
    with(|launch| launch.fence(FenceKind::from_code(kind)));
}

extern "C" fn atomic(
    op: u32,
    address: *mut c_void,
    bytes: u32,
    value: u64,
    compare: u64,
    pc: *const c_void,
) -> u64 {
    let op = AtomicOp::from_code(op);
    step(|launch| {
        let touch = Touch {
            address: address as usize,
            bytes: bytes as usize,
            write: op.writes(),
            alignment: bytes as usize,
            manner: Manner::Atomic,
            pc: launch.entry.offset(pc as usize),
        };
        let (before, flow) = launch.atomic(op, touch, value, compare)?;
        launch.thread().result = before;
        Ok(flow)
    });
    with(|launch| launch.thread().result)
}

extern "C" fn mbarrier_init(barrier: *mut c_void, count: u32, file: *const c_char, line: u32) {
    step(|launch| launch.mbarrier_init(barrier as usize, count, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn mbarrier_arrive(
    barrier: *mut c_void,
    expect: u32,
    _arrive: u32,
    file: *const c_char,
    line: u32,
) {
    step(|launch| {
        launch.mbarrier_arrive(barrier as usize, expect, CallSite { file, line }).map(|()| Flow::Go)
    });
}

extern "C" fn mbarrier_wait(
    barrier: *mut c_void,
    parity: u32,
    block: u32,
    file: *const c_char,
    line: u32,
) -> u32 {
    step(|launch| launch.mbarrier_wait(barrier as usize, parity, block != 0, CallSite { file, line }));
    with(|launch| launch.thread().result as u32)
}

extern "C" fn copy_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    source: u32,
    file: *const c_char,
    line: u32,
) {
    let (to, from) = (to as usize, from as usize);
    step(|launch| {
        launch
            .copy_async(to, from, bytes as usize, source as usize, CallSite { file, line })
            .map(|()| Flow::Go)
    });
}

extern "C" fn copy_async_commit() {
    with(|launch| launch.copy_async_commit());
}

extern "C" fn copy_async_wait(pending: u32) {
    with(|launch| launch.copy_async_wait(pending));
}

extern "C" fn bulk_load(
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    barrier: *mut c_void,
    file: *const c_char,
    line: u32,
) {
    let (to, from, barrier) = (to as usize, from as usize, barrier as usize);
    step(|launch| {
        launch.bulk_load(to, from, bytes as usize, barrier, CallSite { file, line }).map(|()| Flow::Go)
    });
}

extern "C" fn bulk_store(to: *mut c_void, from: *const c_void, bytes: u32, file: *const c_char, line: u32) {
    let (to, from) = (to as usize, from as usize);
    step(|launch| launch.bulk_store(to, from, bytes as usize, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn bulk_commit() {
    with(|launch| launch.bulk_commit());
}

extern "C" fn bulk_wait(pending: u32, read_only: u32) {
    with(|launch| launch.bulk_wait(pending, read_only != 0));
}

extern "C" fn load_matrix(
    registers: *mut u32,
    row: *const c_void,
    count: u32,
    transpose: u32,
    file: *const c_char,
    line: u32,
) {
    let offer =
        Offer::Load { registers, row: row as usize, count: count as usize, transpose: transpose != 0 };
    step(|launch| launch.meet(u32::MAX, offer, CallSite { file, line }));
}

extern "C" fn store_matrix(
    row: *mut c_void,
    registers: *const u32,
    count: u32,
    transpose: u32,
    file: *const c_char,
    line: u32,
) {
    let offer =
        Offer::Store { registers, row: row as usize, count: count as usize, transpose: transpose != 0 };
    step(|launch| launch.meet(u32::MAX, offer, CallSite { file, line }));
}

extern "C" fn mma(
    format: u32,
    d: *mut u32,
    a: *const u32,
    b: *const u32,
    c: *const u32,
    file: *const c_char,
    line: u32,
) {
    let offer = Offer::Mma { format: Format::from_code(format), d, a, b, c };
    step(|launch| launch.meet(u32::MAX, offer, CallSite { file, line }));
}

extern "C" fn wgmma(call: *const WgmmaCall, file: *const c_char, line: u32) {
    // SAFETY: the kernel passes a pointer to a call on its own stack.
    let call = unsafe { &*call };
    step(|launch| launch.wgmma(call, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn wgmma_commit() {
    with(|launch| launch.wgmma_commit());
}

extern "C" fn wgmma_wait(pending: u32, file: *const c_char, line: u32) {
    loop {
        step(|launch| {
            launch.thread().result = 0;
            launch.wgmma_wait(pending, CallSite { file, line })
        });
        // Not 0: other lanes had yet to issue; they have by now, and the wait is tried again.
        if with(|launch| launch.thread().result) == 0 {
            return;
        }
    }
}

extern "C" fn convert(kind: u32, value: u32) -> u32 {
    Conversion::from_code(kind).apply(value)
}

extern "C" fn half_pair(op: u32, a: u32, b: u32, c: u32) -> u32 {
    let op = HalfPairOp::from_code(op);
    let [low, high] =
        [0, 16].map(|at| u32::from(op.apply((a >> at) as u16, (b >> at) as u16, (c >> at) as u16)));
    low | high << 16
}

extern "C" fn shared_address(address: *const c_void) -> u32 {
    with(|launch| (address as usize).wrapping_sub(launch.block().shared.base()) as u32)
}

extern "C" fn await_stream() {
    with(|launch| launch.thread().awaited = true);
}

extern "C" fn pause() {
    step(|launch| {
        launch.count_quiet()?;
        Ok(launch.preempt())
    });
}

/// Nanoseconds: time means nothing here, but it moves.
extern "C" fn clock() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}
