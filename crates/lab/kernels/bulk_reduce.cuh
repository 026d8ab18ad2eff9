#include "gw/gw.cuh"

// Every block combines its tile of 64 elements with one that all share, by bulk reductions: sums of u32, u64, f32, f16 and
// bf16, the least of i32 and the largest of u64. Blocks of 64 threads, one an element.
#define TILE 64

struct Cells {
    u32 sum[TILE];
    i32 least[TILE];
    f32 sum_f32[TILE];
    u64 sum_64[TILE];
    u64 largest_64[TILE];
    u16 sum_f16[TILE];
    u16 sum_bf16[TILE];
};

GW_KERNEL(bulk_reduce)(const u32* words, const u64* longs, Cells* cells) {
    Cells* mine = gw::shared<Cells>();
    const u32 t = gw::thread();
    const u32 word = words[gw::global_thread()];
    const u64 wide = longs[gw::global_thread()];
    // Small integers: sums of them are exact in any order.
    const f32 small = (f32)(word % 3) - 1.0f;
    mine->sum[t] = word;
    mine->least[t] = (i32)word;
    mine->sum_f32[t] = small;
    mine->sum_64[t] = wide;
    mine->largest_64[t] = wide;
    mine->sum_f16[t] = (u16)gw::f32_to_f16(small);
    mine->sum_bf16[t] = (u16)gw::f32_to_bf16(small);
    gw::fence_async_proxy_shared();
    gw::sync_threads();
    if (t == 0) {
        gw::bulk_add(cells->sum, mine->sum, sizeof mine->sum);
        gw::bulk_min(cells->least, mine->least, sizeof mine->least);
        gw::bulk_add(cells->sum_f32, mine->sum_f32, sizeof mine->sum_f32);
        gw::bulk_add(cells->sum_64, mine->sum_64, sizeof mine->sum_64);
        gw::bulk_max(cells->largest_64, mine->largest_64, sizeof mine->largest_64);
        gw::bulk_add_f16(cells->sum_f16, mine->sum_f16, sizeof mine->sum_f16);
        gw::bulk_add_bf16(cells->sum_bf16, mine->sum_bf16, sizeof mine->sum_bf16);
        gw::bulk_commit();
        gw::bulk_wait<0>();
    }
}
