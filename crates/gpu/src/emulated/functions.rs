//! The functions that kernels call, and the table of them.

use std::ffi::{c_char, c_void};

use super::access::{Atomic, Touch};
use super::block::CallSite;
use super::launch::{Flow, step, with};
use super::print::Argument;
use super::shadow::Manner;
use super::transfer::Reduction;
use super::warp::Offer;
use crate::abi::{Conversion, Format, HalfPairOp, Index, Printed, WgmmaCall, functions};
use crate::shared::Code;
use crate::types::FaultKind;

macro_rules! table {
    ($($name:ident($($argument:ident: $type:ty $(=> $theirs:literal)?),*) $(-> $result:ty)?;)*) => {
        /// The table as kernels know it.
        #[repr(C)]
        pub(super) struct Api {
            $($name: extern "C" fn($($type),*) $(-> $result)?,)*
        }

        /// The one table; every kernel library is bound to it.
        pub(super) static API: Api = Api { $($name),* };
    };
}
functions!(table);

/// The variant of a code that a kernel gave. One that the runtime does not know is a fault, and does not
/// return.
fn known<T: Code>(code: u32) -> T {
    T::from_code(code).unwrap_or_else(|| {
        step(|launch| {
            let name = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
            let message = format!("{code} is no {name} that the runtime knows");
            Err(launch.fault(FaultKind::Protocol, None, None, message))
        });
        unreachable!("a thread that faulted never runs again")
    })
}

extern "C" fn index(which: u32, axis: u32) -> u32 {
    let which = known(which);
    with(|launch| {
        let of = match which {
            Index::Thread => launch.thread().index,
            Index::Block => launch.block().index,
            Index::Threads => launch.grid.threads,
            Index::Blocks => launch.grid.blocks,
            Index::Cluster => {
                let block = launch.block().index;
                launch.clusters.index(block)
            }
            Index::Clusters => launch.clusters.extent(),
            Index::Rank => [launch.block().rank; 3],
            Index::ClusterSize => [launch.clusters.size() as u32; 3],
        };
        of[axis as usize]
    })
}

extern "C" fn shared() -> *mut u8 {
    with(|launch| launch.block().shared.bytes_mut().as_mut_ptr())
}

/// Bit 0 of `flags`: a write; bit 1: no alignment is promised; bit 2: through the read-only path; bit 3:
/// volatile.
extern "C" fn access(address: *const c_void, bytes: u64, flags: u32, pc: *const c_void) {
    let is_volatile = flags & 8 != 0;
    if is_volatile {
        // Another thread's turn comes before, and not between what is passed on here and the access itself.
        step(|launch| Ok(launch.may_preempt()));
    }
    step(|launch| {
        let pc = launch.entry.offset(pc as usize);
        let touch = Touch {
            address: address as usize,
            bytes: bytes as usize,
            write: flags & 1 != 0,
            updates: false,
            alignment: if flags & 2 != 0 { 1 } else { bytes as usize },
            manner: if flags & 4 != 0 { Manner::ReadOnly } else { Manner::Generic },
            pc,
        };
        if is_volatile { launch.touch_volatile(touch) } else { launch.touch(touch) }
    });
}

extern "C" fn enter(frame: *const c_void) {
    step(|launch| launch.enter(frame as usize));
}

extern "C" fn leave() {
    with(|launch| launch.leave());
}

extern "C" fn misuse(rule: u32, file: *const c_char, line: u32, pc: *const c_void) {
    let rule = known(rule);
    step(|launch| {
        let site = launch.line_at(pc as usize).or_else(|| CallSite { file, line }.site());
        launch.misuse(rule, site)
    });
}

extern "C" fn misaligned(address: *const c_void, alignment: u64, pc: *const c_void) {
    step(|launch| {
        let site = launch.line_at(pc as usize);
        let message = format!("uses {address:p}, but the address is no multiple of {alignment}");
        Err(launch.fault(FaultKind::Misaligned, Some(address as usize), site, message))
    });
}

extern "C" fn fail(message: *const c_char, file: *const c_char, line: u32) {
    step(|launch| {
        let site = CallSite { file, line };
        let message = launch.constant_text(message as usize, site)?;
        Err(launch.fault_at(FaultKind::Assertion, site, format!("the kernel asserts {message}")))
    });
}

extern "C" fn print(
    format: *const c_char,
    kinds: *const u32,
    values: *const u64,
    count: u32,
    file: *const c_char,
    line: u32,
) {
    // SAFETY: `gw::print` passes arrays of so many words on the kernel's own stack.
    let (kinds, values) = unsafe {
        (
            std::slice::from_raw_parts(kinds, count as usize),
            std::slice::from_raw_parts(values, count as usize),
        )
    };
    let arguments: Vec<Argument> = kinds
        .iter()
        .zip(values)
        .map(|(kind, bits)| Argument { kind: known::<Printed>(*kind), bits: *bits })
        .collect();
    step(|launch| launch.print(format as usize, &arguments, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn barrier(id: u32, threads: u32, wait: u32, file: *const c_char, line: u32) {
    step(|launch| launch.barrier(id, threads, wait != 0, CallSite { file, line }));
}

extern "C" fn sync_warp(mask: u32, file: *const c_char, line: u32) {
    step(|launch| launch.meet(mask, Offer::Sync, CallSite { file, line }));
}

extern "C" fn sync_grid(word: *mut c_void, file: *const c_char, line: u32) {
    step(|launch| launch.sync_grid(word as usize, CallSite { file, line }));
}

extern "C" fn cluster_arrive(releases: u32, file: *const c_char, line: u32) {
    step(|launch| launch.cluster_arrive(releases != 0, CallSite { file, line }));
}

extern "C" fn cluster_wait(file: *const c_char, line: u32) {
    step(|launch| launch.cluster_wait(CallSite { file, line }));
}

extern "C" fn cluster_map(address: *mut c_void, rank: u32, file: *const c_char, line: u32) -> *mut c_void {
    step(|launch| {
        let mapped = launch.map_to_peer(address as usize, rank, CallSite { file, line })?;
        launch.thread().result = mapped as u64;
        Ok(Flow::Go)
    });
    with(|launch| launch.thread().result as usize as *mut c_void)
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
    let offer = Offer::Exchange { op: known(op), value, argument, wide: width == 8 };
    step(|launch| launch.meet(mask, offer, CallSite { file, line }));
    with(|launch| launch.thread().result)
}

extern "C" fn fence(kind: u32) {
    let kind = known(kind);
    with(|launch| launch.fence(kind));
}

extern "C" fn atomic(
    op: u32,
    address: *mut c_void,
    bytes: u32,
    value: u64,
    compare: u64,
    order: u32,
    scope: u32,
    pc: *const c_void,
) -> u64 {
    let atomic = Atomic { op: known(op), value, compare, order: known(order), scope: known(scope) };
    step(|launch| {
        let touch = Touch {
            address: address as usize,
            bytes: bytes as usize,
            write: atomic.op.writes(),
            updates: atomic.op.reads(),
            alignment: bytes as usize,
            manner: Manner::Atomic(atomic.scope.into(), bytes as u8),
            pc: launch.entry.offset(pc as usize),
        };
        let (before, flow) = launch.atomic(atomic, touch)?;
        launch.thread().result = before;
        Ok(flow)
    });
    with(|launch| launch.thread().result)
}

extern "C" fn mbarrier_init(barrier: *mut c_void, count: u32, file: *const c_char, line: u32) {
    step(|launch| launch.mbarrier_init(barrier as usize, count, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn mbarrier_invalidate(barrier: *mut c_void, file: *const c_char, line: u32) {
    step(|launch| launch.mbarrier_invalidate(barrier as usize, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn mbarrier_arrive(
    barrier: *mut c_void,
    arrivals: u32,
    expect: u32,
    file: *const c_char,
    line: u32,
) {
    let site = CallSite { file, line };
    step(|launch| launch.mbarrier_arrive(barrier as usize, arrivals, expect, site).map(|()| Flow::Go));
}

extern "C" fn mbarrier_wait(
    barrier: *mut c_void,
    parity: u32,
    block: u32,
    scope: u32,
    file: *const c_char,
    line: u32,
) -> u32 {
    let (scope, site) = (known(scope), CallSite { file, line });
    step(|launch| launch.mbarrier_wait(barrier as usize, parity, block != 0, scope, site));
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

extern "C" fn copy_async_arrive(barrier: *mut c_void, counted: u32, file: *const c_char, line: u32) {
    let site = CallSite { file, line };
    step(|launch| launch.copy_async_arrive(barrier as usize, counted != 0, site).map(|()| Flow::Go));
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

extern "C" fn bulk_load_multicast(
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    barrier: *mut c_void,
    blocks: u32,
    file: *const c_char,
    line: u32,
) {
    let (to, from, barrier) = (to as usize, from as usize, barrier as usize);
    let site = CallSite { file, line };
    step(|launch| {
        launch.bulk_load_multicast(to, from, bytes as usize, barrier, blocks, site).map(|()| Flow::Go)
    });
}

extern "C" fn bulk_send(
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    barrier: *mut c_void,
    file: *const c_char,
    line: u32,
) {
    let (to, from, barrier) = (to as usize, from as usize, barrier as usize);
    step(|launch| {
        launch.bulk_send(to, from, bytes as usize, barrier, CallSite { file, line }).map(|()| Flow::Go)
    });
}

extern "C" fn bulk_store(to: *mut c_void, from: *const c_void, bytes: u32, file: *const c_char, line: u32) {
    let (to, from) = (to as usize, from as usize);
    step(|launch| launch.bulk_store(to, from, bytes as usize, CallSite { file, line }).map(|()| Flow::Go));
}

extern "C" fn bulk_reduce(
    op: u32,
    word: u32,
    to: *mut c_void,
    from: *const c_void,
    bytes: u32,
    file: *const c_char,
    line: u32,
) {
    let reduction = Reduction { op: known(op), bytes: if word == 8 { 8 } else { 4 } };
    let (to, from, site) = (to as usize, from as usize, CallSite { file, line });
    step(|launch| launch.bulk_reduce(reduction, to, from, bytes as usize, site).map(|()| Flow::Go));
}

/// The coordinates that a kernel gives.
///
/// # Safety
/// `corner` points to `rank` of them.
unsafe fn coordinates<'a>(corner: *const i32, rank: u32) -> &'a [i32] {
    // SAFETY: as the caller promises; the header has ranks of 1 to 3.
    unsafe { std::slice::from_raw_parts(corner, rank as usize) }
}

extern "C" fn tensor_load(
    map: *const c_void,
    to: *mut c_void,
    barrier: *mut c_void,
    corner: *const i32,
    rank: u32,
    blocks: u32,
    file: *const c_char,
    line: u32,
) {
    let (map, to, barrier, site) = (map as usize, to as usize, barrier as usize, CallSite { file, line });
    // SAFETY: the header passes an array of its own.
    let corner = unsafe { coordinates(corner, rank) };
    step(|launch| launch.tensor_load(map, to, barrier, corner, blocks, site).map(|()| Flow::Go));
}

extern "C" fn tensor_store(
    map: *const c_void,
    from: *const c_void,
    corner: *const i32,
    rank: u32,
    file: *const c_char,
    line: u32,
) {
    // SAFETY: the header passes an array of its own.
    let corner = unsafe { coordinates(corner, rank) };
    let site = CallSite { file, line };
    step(|launch| launch.tensor_store(map as usize, from as usize, corner, site).map(|()| Flow::Go));
}

extern "C" fn tensor_prefetch(
    map: *const c_void,
    corner: *const i32,
    rank: u32,
    file: *const c_char,
    line: u32,
) {
    // SAFETY: the header passes an array of its own.
    let corner = unsafe { coordinates(corner, rank) };
    step(|launch| launch.tensor_prefetch(map as usize, corner, CallSite { file, line }).map(|()| Flow::Go));
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
    let offer = Offer::Mma { format: known(format), d, a, b, c };
    step(|launch| launch.meet(u32::MAX, offer, CallSite { file, line }));
}

extern "C" fn wgmma(call: *const WgmmaCall, file: *const c_char, line: u32) {
    // SAFETY: the kernel passes a pointer to a call on its own stack.
    let call = unsafe { &*call };
    known::<Format>(call.format);
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
    known::<Conversion>(kind).apply(value)
}

extern "C" fn half_pair(op: u32, a: u32, b: u32, c: u32) -> u32 {
    let op = known::<HalfPairOp>(op);
    let [low, high] =
        [0, 16].map(|at| u32::from(op.apply((a >> at) as u16, (b >> at) as u16, (c >> at) as u16)));
    low | high << 16
}

extern "C" fn registers(count: u32, acquires: u32, file: *const c_char, line: u32) {
    step(|launch| launch.set_registers(count, acquires != 0, CallSite { file, line }));
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
