#pragma once
// Transaction barriers in shared memory: a phase ends when the expected arrivals and bytes have come. Phases alternate
// in parity, starting with 0; `mbarrier_wait(b, p)` returns once the phase of parity p has ended.

#include "gw/emulated.cuh"
#include "gw/memory.cuh"
#include "gw/order.cuh"

namespace gw {

typedef u64 Mbarrier;

#ifdef GW_CUDA
GW_DEVICE void mbarrier_init(Mbarrier* b, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// After the inits of a thread and before the barrier that lets others use them: bulk copies see them too.
GW_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// The barrier is no more, and its memory free for other uses. All that was done with it must have happened before.
GW_DEVICE void mbarrier_invalidate(Mbarrier* b) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
GW_DEVICE void mbarrier_arrive(Mbarrier* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives for `count` threads at once.
GW_DEVICE void mbarrier_arrive_many(Mbarrier* b, u32 count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// Expects `bytes` more of bulk copies in this phase, and does not arrive: somebody must do so after it.
GW_DEVICE void mbarrier_expect(Mbarrier* b, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Arrives, and expects `bytes` more of bulk copies in this phase.
GW_DEVICE void mbarrier_arrive_expect(Mbarrier* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Arrivals from other blocks of the cluster are acquired by a wait of the cluster's scope only.
template <Scope SCOPE = Scope::Block>
GW_DEVICE bool mbarrier_try_wait(Mbarrier* b, u32 parity) {
    static_assert(SCOPE == Scope::Block || SCOPE == Scope::Cluster, "a block's or a cluster's");
    u32 done;
    if constexpr (SCOPE == Scope::Block) {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
    } else {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
    }
    return done;
}
template <Scope SCOPE = Scope::Block>
GW_DEVICE void mbarrier_wait(Mbarrier* b, u32 parity) {
    while (!mbarrier_try_wait<SCOPE>(b, parity)) {}
}
#else
GW_DEVICE void mbarrier_init(Mbarrier* b, u32 count, GW_SITE) { emulated::call::mbarrier_init(b, count, GW_AT); }
GW_DEVICE void fence_mbarrier_init() { emulated::call::fence(emulated::FenceKind::MbarrierInit); }
GW_DEVICE void mbarrier_invalidate(Mbarrier* b, GW_SITE) { emulated::call::mbarrier_invalidate(b, GW_AT); }
GW_DEVICE void mbarrier_arrive(Mbarrier* b, GW_SITE) { emulated::call::mbarrier_arrive(b, 1, 0, GW_AT); }
GW_DEVICE void mbarrier_arrive_many(Mbarrier* b, u32 count, GW_SITE) {
    emulated::call::mbarrier_arrive(b, count, 0, GW_AT);
}
GW_DEVICE void mbarrier_expect(Mbarrier* b, u32 bytes, GW_SITE) { emulated::call::mbarrier_arrive(b, 0, bytes, GW_AT); }
GW_DEVICE void mbarrier_arrive_expect(Mbarrier* b, u32 bytes, GW_SITE) {
    emulated::call::mbarrier_arrive(b, 1, bytes, GW_AT);
}
template <Scope SCOPE = Scope::Block>
GW_DEVICE bool mbarrier_try_wait(Mbarrier* b, u32 parity, GW_SITE) {
    return emulated::call::mbarrier_wait(b, parity, 0, SCOPE, GW_AT) != 0;
}
template <Scope SCOPE = Scope::Block>
GW_DEVICE void mbarrier_wait(Mbarrier* b, u32 parity, GW_SITE) {
    emulated::call::mbarrier_wait(b, parity, 1, SCOPE, GW_AT);
}
#endif

}  // namespace gw
