#include "gw/gw.cuh"

// out[turn][t] <- from[turn][63 - t] xor other[turn][t], for quads of words. One block of 64 threads, one a quad.
//
// In every turn a barrier is made and ended in the same place. It waits for each thread's cp.async of a quad of `from`, for a
// bulk copy of `other` whose bytes are expected apart from any arrival, and for 32 arrivals that one thread makes at once.
// Between two turns the barrier's place holds a number. Each bulk copy has a place of its own: racecheck forgets with a barrier
// what was waited for on it.
#define QUADS 64
#define BYTES 1024

GW_KERNEL(barrier_life)(const u32x4* from, const u32x4* other, u32x4* out, u32 turns) {
    u32x4* copied = gw::shared<u32x4>();
    gw::Mbarrier* barrier = gw::shared<gw::Mbarrier>(BYTES);
    u32x4* all_loaded = gw::shared<u32x4>(BYTES + 16);
    const u32 t = gw::thread();
    for (u32 turn = 0; turn < turns; ++turn) {
        u32x4* loaded = all_loaded + turn * QUADS;
        if (t == 0) {
            gw::mbarrier_init(barrier, QUADS + 32);
            gw::fence_mbarrier_init();
        }
        gw::sync_threads();
        gw::copy_async<16>(copied + t, from + turn * QUADS + t);
        gw::copy_async_arrive(barrier);
        if (t == 0) {
            gw::mbarrier_expect(barrier, BYTES);
            // A 64-bit index: with one of 32 bits ptxas 13.0 loses the upper half of this address.
            gw::bulk_load(loaded, other + (u64)turn * QUADS, BYTES, barrier);
            gw::mbarrier_arrive_many(barrier, 32);
        }
        gw::mbarrier_wait(barrier, 0);
        const u32x4 a = copied[QUADS - 1 - t], b = loaded[t];
        out[turn * QUADS + t] = u32x4{a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w};
        gw::sync_threads();
        if (t == 0) gw::mbarrier_invalidate(barrier);
        gw::sync_threads();
        if (t == 1) *barrier = turn;
        gw::sync_threads();
    }
}
