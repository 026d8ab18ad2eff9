#pragma once
// Barriers of threads, and fences of memory.

#include "gw/emulated.cuh"
#include "gw/order.cuh"

namespace gw {

#ifdef GW_CUDA
// All threads of the block, from the same place in the code.
GW_DEVICE void sync_threads() { asm volatile("barrier.sync 0;" ::: "memory"); }
// The warp's threads in `mask`; orders their memory accesses.
GW_DEVICE void sync_warp(u32 mask = ~0u) { asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory"); }
// Named barrier `id` (1 to 15): meets when `threads` threads (a multiple of 32) have synced or arrived.
GW_DEVICE void barrier_sync(u32 id, u32 threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
GW_DEVICE void barrier_arrive(u32 id, u32 threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// What this thread wrote before is visible to the block, the cluster, the device, the system before what it writes after.
GW_DEVICE void fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
GW_DEVICE void fence_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
#else
    asm volatile("fence.acq_rel.cta;" ::: "memory");
#endif
}
GW_DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
GW_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// The same, and all such fences of the scope are in one order that every thread agrees on: what two threads need that each
// write a word and then read the other's.
template <Scope SCOPE>
GW_DEVICE void fence_sc() {
    if constexpr (SCOPE == Scope::Block) asm volatile("fence.sc.cta;" ::: "memory");
    if constexpr (SCOPE == Scope::Cluster) asm volatile("fence.sc.cluster;" ::: "memory");
    if constexpr (SCOPE == Scope::Device) asm volatile("fence.sc.gpu;" ::: "memory");
    if constexpr (SCOPE == Scope::System) asm volatile("fence.sc.sys;" ::: "memory");
}
// What this thread wrote by ordinary accesses before is ordered with bulk copies and wgmma after it: in its block's shared
// memory, in all of the cluster's, in global memory, in all of them.
GW_DEVICE void fence_async_proxy_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
GW_DEVICE void fence_async_proxy_cluster() { asm volatile("fence.proxy.async.shared::cluster;" ::: "memory"); }
GW_DEVICE void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
GW_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }
// Stops the kernel: it was given what it does not know.
GW_DEVICE void trap() { asm volatile("trap;"); }
// Registers: `setmaxnreg`. The kernel needs GW_KERNEL_BOUNDED, and each warpgroup's role one branch of an if.
template <u32 N>
GW_DEVICE void registers_release() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <u32 N>
GW_DEVICE void registers_acquire() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
// A launch with Grid::early starts while the work before it in the stream is still running: every thread waits here before
// it first touches device memory. Elsewhere it returns at once.
GW_DEVICE void await_stream() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch in the stream may start, if it is an early one, once every block has come here or ended.
GW_DEVICE void admit_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
GW_DEVICE void pause() { __nanosleep(32); }
GW_DEVICE u64 clock() { return clock64(); }

// All blocks of a cooperative launch. `arrived` is a zeroed word of device memory that the launch's blocks share.
//
// Block 0 adds what fills the count up to the top bit, every other block adds 1: the top bit flips once a round.
GW_DEVICE void sync_grid(u32* arrived) {
    sync_threads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const u32 blocks = gridDim.x * gridDim.y * gridDim.z;
        const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
        const u32 step = first ? 0x80000000u - (blocks - 1) : 1;
        u32 before, now;
        fence_device();
        asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(arrived), "r"(step) : "memory");
        do {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
        } while (((before ^ now) & 0x80000000u) == 0);
        fence_device();
    }
    sync_threads();
}
#else
GW_DEVICE void sync_threads(GW_SITE) { emulated::call::barrier(0, 0, 1, GW_AT); }
GW_DEVICE void sync_warp(u32 mask = ~0u, GW_SITE) { emulated::call::sync_warp(mask, GW_AT); }
GW_DEVICE void barrier_sync(u32 id, u32 threads, GW_SITE) { emulated::call::barrier(id, threads, 1, GW_AT); }
GW_DEVICE void barrier_arrive(u32 id, u32 threads, GW_SITE) { emulated::call::barrier(id, threads, 0, GW_AT); }
GW_DEVICE void trap(GW_SITE) { emulated::call::misuse(emulated::Rule::Trap, GW_AT, nullptr); }
GW_DEVICE void fence_block() { emulated::call::fence(emulated::FenceKind::Block); }
GW_DEVICE void fence_cluster() { emulated::call::fence(emulated::FenceKind::Cluster); }
GW_DEVICE void fence_device() { emulated::call::fence(emulated::FenceKind::Device); }
GW_DEVICE void fence_system() { emulated::call::fence(emulated::FenceKind::System); }
template <Scope SCOPE>
GW_DEVICE void fence_sc() {
    emulated::call::fence(SCOPE == Scope::Block     ? emulated::FenceKind::Block
                          : SCOPE == Scope::Cluster ? emulated::FenceKind::Cluster
                          : SCOPE == Scope::Device  ? emulated::FenceKind::Device
                                                    : emulated::FenceKind::System);
}
GW_DEVICE void fence_async_proxy_shared() { emulated::call::fence(emulated::FenceKind::AsyncShared); }
GW_DEVICE void fence_async_proxy_cluster() { emulated::call::fence(emulated::FenceKind::AsyncCluster); }
GW_DEVICE void fence_async_proxy_global() { emulated::call::fence(emulated::FenceKind::AsyncGlobal); }
GW_DEVICE void fence_async_proxy() { emulated::call::fence(emulated::FenceKind::AsyncAll); }
template <u32 N>
GW_DEVICE void registers_release(GW_SITE) {
    emulated::call::registers(N, 0, GW_AT);
}
template <u32 N>
GW_DEVICE void registers_acquire(GW_SITE) {
    emulated::call::registers(N, 1, GW_AT);
}
GW_DEVICE void await_stream() { emulated::call::await_stream(); }
GW_DEVICE void admit_next() {}
GW_DEVICE void pause() { emulated::call::pause(); }
GW_DEVICE u64 clock() { return emulated::call::clock(); }
GW_DEVICE void sync_grid(u32* arrived, GW_SITE) { emulated::call::sync_grid(arrived, GW_AT); }
#endif

}  // namespace gw
