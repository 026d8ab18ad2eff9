#include "reduce.cuh"

// to <- 0 + c_0 x_0 + c_1 x_1 + ..., in this order: a mean of snapshots, an average of weights, a jump.
// Snapshots: [snapshot, parameter], rows `stride` apart. Four parameters a thread. (1 + snapshots) 4 bytes a parameter.

GW_KERNEL_BOUNDED(combine, REDUCE_THREADS, 4)(const f32* snapshots, const f32* coefficients, f32* to, u64 stride, u32 count,
                                              u64 parameters) {
    const u64 at = 4 * gw::global_thread();
    if (at >= parameters) return;
    f32 sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const u32 here = parameters - at < 4 ? (u32)(parameters - at) : 4;
    for (u32 snapshot = 0; snapshot < count; ++snapshot) {
        const f32* from = snapshots + snapshot * stride + at;
        const f32 factor = gw::load_readonly(coefficients + snapshot);
        f32 x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (here == 4) {
            reduce::load_four(from, x);
        } else {
            GW_UNROLL
            for (u32 i = 0; i < 4; ++i) {
                if (i < here) x[i] = from[i];
            }
        }
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) sums[i] = sums[i] + factor * x[i];
    }
    if (here == 4) {
        reduce::store_four(to + at, sums);
    } else {
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            if (i < here) to[at + i] = sums[i];
        }
    }
}
