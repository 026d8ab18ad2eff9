#include "gw/gw.cuh"

// out[0] <- sum of x[0..n), bitwise the same at every run.
//
// Each thread adds every (blocks x threads)-th element, each block adds its threads in a tree and stores one partial,
// and the last block to finish (a ticket tells) adds the partials in the same tree. `ticket` is 0 before and after.
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

GW_KERNEL_BOUNDED(reduce, 256, 1)(const f32* x, f32* partials, u32* ticket, f32* out, u64 n) {
    u32* last = gw::shared<u32>(4 * WARPS);
    f32 sum = 0.0f;
    for (u64 i = gw::global_thread(); i < n; i += gw::global_threads()) sum += x[i];
    sum = block_sum(sum);
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
