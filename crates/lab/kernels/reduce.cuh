#include "gw/gw.cuh"

// out[0] <- sum of x[0..n), bitwise the same at every run.
//
// Each thread adds every (blocks x threads)-th run of four, four at a time, each block adds its threads in a tree and
// stores one partial, and the last block to finish (a ticket tells) adds the partials in the same tree. x starts at a
// multiple of 16 bytes. `ticket` is 0 before and after.
// 256 threads a block, 36 bytes of shared memory.
#define WARPS 8

// The sum over the block, in thread 0. A barrier must follow before the next one.
GW_DEVICE f32 block_sum(f32 value) {
    f32* warp_sums = gw::shared<f32>();
    for (u32 lanes = 16; lanes > 0; lanes >>= 1) value += gw::shuffle_xor(value, lanes);
    if (gw::lane() == 0) warp_sums[gw::warp()] = value;
    gw::sync_threads();
    value = gw::lane() < WARPS ? warp_sums[gw::lane()] : 0.0f;
    for (u32 lanes = WARPS / 2; lanes > 0; lanes >>= 1) value += gw::shuffle_xor(value, lanes);
    return value;
}

// The sum of this thread's runs. Four accumulators, and as many loads in flight as the loop is unrolled.
GW_DEVICE f32 thread_sum(const f32* x, u64 n) {
    f32x4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
    const u64 runs = n / 4;
    GW_UNROLL_BY(4)
    for (u64 run = gw::global_thread(); run < runs; run += gw::global_threads()) {
        const f32x4 four = gw::bits<f32x4>(gw::load_128(x + 4 * run));
        sums.x += four.x;
        sums.y += four.y;
        sums.z += four.z;
        sums.w += four.w;
    }
    const u64 rest = 4 * runs + gw::global_thread();
    const f32 last = rest < n ? x[rest] : 0.0f;
    return (sums.x + sums.y) + (sums.z + sums.w) + last;
}

GW_KERNEL_BOUNDED(reduce, 256, 1)(const f32* x, f32* partials, u32* ticket, f32* out, u64 n) {
    u32* last = gw::shared<u32>(4 * WARPS);
    f32 sum = block_sum(thread_sum(x, n));
    if (gw::thread() == 0) {
        partials[gw::block_x()] = sum;
        gw::fence_device();
        *last = gw::atomic_inc(ticket, gw::blocks_x() - 1) == gw::blocks_x() - 1;
        gw::fence_device();
    }
    gw::sync_threads();
    if (!*last) return;
    sum = 0.0f;
    for (u32 i = gw::thread(); i < gw::blocks_x(); i += gw::threads()) sum += partials[i];
    sum = block_sum(sum);
    if (gw::thread() == 0) out[0] = sum;
}
