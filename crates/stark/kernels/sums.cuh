#pragma once
// Sums modulo P over the threads of a warp or a block.

#include "field.cuh"

namespace sums {

// Over the warp, in every lane. Halves of words are added apart, since their sums do not wrap.
GW_DEVICE u32 over_warp(u32 x) {
    const u32 low = gw::reduce_add(x & 0xffff), high = gw::reduce_add(x >> 16);
    return m31::reduce(((u64)high << 16) + low);
}
GW_DEVICE QM31 over_warp(QM31 x) { return {over_warp(x.a), over_warp(x.b), over_warp(x.c), over_warp(x.d)}; }

// What the warps of a block leave in `shared`, 16 bytes each, added up.
GW_DEVICE QM31 of_warps(const QM31* shared, u32 warps) {
    QM31 sum = qm31::zero();
    for (u32 warp = 0; warp < warps; ++warp) sum = qm31::add(sum, qm31::load(shared + warp));
    return sum;
}

}  // namespace sums
