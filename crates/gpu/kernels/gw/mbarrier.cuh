#pragma once
// Transaction barriers in shared memory: a phase ends when the expected arrivals and bytes have come. Phases alternate
// in parity, starting with 0; `mbarrier_wait(b, p)` returns once the phase of parity p has ended.

#include "gw/emulated.cuh"
#include "gw/memory.cuh"

namespace gw {

typedef u64 Mbarrier;

#ifdef GW_CUDA
GW_DEVICE void mbarrier_init(Mbarrier* b, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// After the inits of a thread and before the barrier that lets others use them: bulk copies see them too.
GW_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
GW_DEVICE void mbarrier_arrive(Mbarrier* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives, and expects `bytes` more of bulk copies in this phase.
GW_DEVICE void mbarrier_arrive_expect(Mbarrier* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
GW_DEVICE bool mbarrier_try_wait(Mbarrier* b, u32 parity) {
    u32 done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
    return done;
}
GW_DEVICE void mbarrier_wait(Mbarrier* b, u32 parity) {
    while (!mbarrier_try_wait(b, parity)) {}
}
#else
GW_DEVICE void mbarrier_init(Mbarrier* b, u32 count, GW_SITE) { emulated::call::mbarrier_init(b, count, GW_AT); }
GW_DEVICE void fence_mbarrier_init() { emulated::call::fence(emulated::FenceKind::MbarrierInit); }
GW_DEVICE void mbarrier_arrive(Mbarrier* b, GW_SITE) { emulated::call::mbarrier_arrive(b, 0, GW_AT); }
GW_DEVICE void mbarrier_arrive_expect(Mbarrier* b, u32 bytes, GW_SITE) {
    emulated::call::mbarrier_arrive(b, bytes, GW_AT);
}
GW_DEVICE bool mbarrier_try_wait(Mbarrier* b, u32 parity, GW_SITE) {
    return emulated::call::mbarrier_wait(b, parity, 0, GW_AT) != 0;
}
GW_DEVICE void mbarrier_wait(Mbarrier* b, u32 parity, GW_SITE) { emulated::call::mbarrier_wait(b, parity, 1, GW_AT); }
#endif

}  // namespace gw
