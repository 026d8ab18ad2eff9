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
// Combines words of global memory with those of shared memory, each atomically for the device, in groups like stores.
// Sums of f16 and bf16 are rounded once for each addition, in any order.
#define GW_BULK_REDUCE(name, type, operation) \
    GW_DEVICE void name(type* to, const type* from, u32 bytes) { \
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." operation " [%0], [%1], %2;" ::"l"(to), \
                     "r"(shared_address(from)), "r"(bytes) : "memory"); \
    }
GW_BULK_REDUCE(bulk_add, u32, "add.u32")
GW_BULK_REDUCE(bulk_add, i32, "add.s32")
GW_BULK_REDUCE(bulk_add, u64, "add.u64")
GW_BULK_REDUCE(bulk_add, f32, "add.f32")
GW_BULK_REDUCE(bulk_add, f64, "add.f64")
GW_BULK_REDUCE(bulk_add_f16, u16, "add.noftz.f16")
GW_BULK_REDUCE(bulk_add_bf16, u16, "add.noftz.bf16")
GW_BULK_REDUCE(bulk_min, u32, "min.u32")
GW_BULK_REDUCE(bulk_min, i32, "min.s32")
GW_BULK_REDUCE(bulk_min, u64, "min.u64")
GW_BULK_REDUCE(bulk_min, i64, "min.s64")
GW_BULK_REDUCE(bulk_max, u32, "max.u32")
GW_BULK_REDUCE(bulk_max, i32, "max.s32")
GW_BULK_REDUCE(bulk_max, u64, "max.u64")
GW_BULK_REDUCE(bulk_max, i64, "max.s64")
GW_BULK_REDUCE(bulk_and, u32, "and.b32")
GW_BULK_REDUCE(bulk_or, u32, "or.b32")
GW_BULK_REDUCE(bulk_xor, u32, "xor.b32")
#undef GW_BULK_REDUCE
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
#define GW_BULK_REDUCE(name, type, operation, word) \
    GW_DEVICE void name(type* to, const type* from, u32 bytes, GW_SITE) { \
        emulated::call::bulk_reduce(emulated::AtomicOp::operation, word, to, from, bytes, GW_AT); \
    }
GW_BULK_REDUCE(bulk_add, u32, Add, 4)
GW_BULK_REDUCE(bulk_add, i32, Add, 4)
GW_BULK_REDUCE(bulk_add, u64, Add, 8)
GW_BULK_REDUCE(bulk_add, f32, AddF32, 4)
GW_BULK_REDUCE(bulk_add, f64, AddF64, 8)
GW_BULK_REDUCE(bulk_add_f16, u16, AddF16Pair, 4)
GW_BULK_REDUCE(bulk_add_bf16, u16, AddBf16Pair, 4)
GW_BULK_REDUCE(bulk_min, u32, MinU, 4)
GW_BULK_REDUCE(bulk_min, i32, MinS, 4)
GW_BULK_REDUCE(bulk_min, u64, MinU, 8)
GW_BULK_REDUCE(bulk_min, i64, MinS, 8)
GW_BULK_REDUCE(bulk_max, u32, MaxU, 4)
GW_BULK_REDUCE(bulk_max, i32, MaxS, 4)
GW_BULK_REDUCE(bulk_max, u64, MaxU, 8)
GW_BULK_REDUCE(bulk_max, i64, MaxS, 8)
GW_BULK_REDUCE(bulk_and, u32, And, 4)
GW_BULK_REDUCE(bulk_or, u32, Or, 4)
GW_BULK_REDUCE(bulk_xor, u32, Xor, 4)
#undef GW_BULK_REDUCE
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
