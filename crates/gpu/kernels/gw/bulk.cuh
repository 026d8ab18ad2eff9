#pragma once
// Bulk copies between global and shared memory by the copy engine. Addresses and sizes are multiples of 16 bytes.

#include "gw/emulated.cuh"
#include "gw/mbarrier.cuh"

namespace gw {

#ifdef GW_CUDA
// Global to shared; `bytes` count towards the current phase of `barrier` when they have landed.
GW_DEVICE void bulk_load(void* to, const void* from, u32 bytes, Mbarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
// Shared to global, in groups of the issuing thread.
GW_DEVICE void bulk_store(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
                 "r"(bytes) : "memory");
}
GW_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most PENDING groups are not yet written.
template <u32 PENDING>
GW_DEVICE void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
// Waits until at most PENDING groups have not yet read their shared memory, which may then be reused.
template <u32 PENDING>
GW_DEVICE void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
#else
GW_DEVICE void bulk_load(void* to, const void* from, u32 bytes, Mbarrier* barrier, GW_SITE) {
    emulated::call::bulk_load(to, from, bytes, barrier, GW_AT);
}
GW_DEVICE void bulk_store(void* to, const void* from, u32 bytes, GW_SITE) {
    emulated::call::bulk_store(to, from, bytes, GW_AT);
}
GW_DEVICE void bulk_commit() { emulated::call::bulk_commit(); }
template <u32 PENDING>
GW_DEVICE void bulk_wait() {
    emulated::call::bulk_wait(PENDING, 0);
}
template <u32 PENDING>
GW_DEVICE void bulk_wait_read() {
    emulated::call::bulk_wait(PENDING, 1);
}
#endif

}  // namespace gw
