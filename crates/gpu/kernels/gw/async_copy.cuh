#pragma once
// `cp.async`: a thread's own small copies from global to shared memory, in groups.
// After `copy_async_wait` the thread that copied sees the bytes; others need a barrier too.

#include "gw/emulated.cuh"
#include "gw/mbarrier.cuh"
#include "gw/memory.cuh"

namespace gw {

#ifdef GW_CUDA
// Copies BYTES (4, 8 or 16); of these the last `BYTES - source_bytes` become zeros and are not read.
template <u32 BYTES>
GW_DEVICE void copy_async(void* to, const void* from, u32 source_bytes = BYTES) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(source_bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES),
                     "r"(source_bytes) : "memory");
    }
}
GW_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's groups are under way.
template <u32 PENDING>
GW_DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
// Arrives at `barrier` once this thread's copies so far are done, as one of the arrivals that it was initialised for. Who
// waits for the phase sees the bytes; no group is needed.
GW_DEVICE void copy_async_arrive(Mbarrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// The same beside those arrivals: the phase waits for one more.
GW_DEVICE void copy_async_arrive_besides(Mbarrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
#else
template <u32 BYTES>
GW_DEVICE void copy_async(void* to, const void* from, u32 source_bytes = BYTES, GW_SITE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "4, 8 or 16 bytes");
    emulated::call::copy_async(to, from, BYTES, source_bytes, GW_AT);
}
GW_DEVICE void copy_async_commit() { emulated::call::copy_async_commit(); }
template <u32 PENDING>
GW_DEVICE void copy_async_wait() {
    emulated::call::copy_async_wait(PENDING);
}
GW_DEVICE void copy_async_arrive(Mbarrier* barrier, GW_SITE) { emulated::call::copy_async_arrive(barrier, 1, GW_AT); }
GW_DEVICE void copy_async_arrive_besides(Mbarrier* barrier, GW_SITE) {
    emulated::call::copy_async_arrive(barrier, 0, GW_AT);
}
#endif

}  // namespace gw
