#include "gw/gw.cuh"

// out[k][i] <- 3 words[j] + 5 longs[j] + 7 (x + 11 y + 13 z + 17 w of quads[j]), modulo 2^32, where j is element
// HALF - 1 - i of turn k.
//
// One half of the block computes, the other stores. They hand over through shared memory by named barriers alone, which take
// turns in pairs: FULL + s is met when a turn's words have been written, EMPTY + s when they have been read. Each side arrives at
// the one and waits at the other. Every turn has words of its own: racecheck takes no arrival for the end of a read.
#define HALF 64
#define FULL 1
#define EMPTY 3

GW_KERNEL_BOUNDED(barrier_relay, 128, 1)(const u32* words, const u64* longs, const u32x4* quads, u32* out, u32 turns) {
    u32* stages = gw::shared<u32>();
    const u32 i = gw::thread() % HALF;
    const bool computes = gw::thread() < HALF;
    for (u32 turn = 0; turn < turns; ++turn) {
        const u32 s = turn % 2;
        u32* stage = stages + turn * HALF;
        const u64 at = (u64)turn * HALF + i;
        if (computes) {
            const u32x4 quad = gw::load_readonly(quads + at);
            const u32 sum = quad.x + 11 * quad.y + 13 * quad.z + 17 * quad.w;
            const u32 value = 3 * gw::load_readonly(words + at) + 5 * (u32)gw::load_readonly(longs + at) + 7 * sum;
            if (turn >= 2) gw::barrier_sync(EMPTY + s, 2 * HALF);
            stage[i] = value;
            gw::barrier_arrive(FULL + s, 2 * HALF);
        } else {
            gw::barrier_sync(FULL + s, 2 * HALF);
            out[at] = stage[HALF - 1 - i];
            // Nobody waits for the last two turns.
            if (turn + 2 < turns) gw::barrier_arrive(EMPTY + s, 2 * HALF);
        }
    }
}
