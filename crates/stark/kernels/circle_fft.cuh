#include "butterfly.cuh"

// The circle transform and its inverse on tiles of less than full size, for many columns at once.
//
// A pass runs the layers below `layers` on tiles of 2^layers neighbours, at least eight. A thread has eight values of a tile in
// registers and does three layers on them, in one turn or more; between those the tile is exchanged through shared memory. At most
// 2^(layers - 3) threads a block, tiles in x, columns in y; shared memory for the tile with one word in nine unused, so that strides
// of eight fall on different banks.

GW_DEVICE u32 padded(u32 i) { return i + (i >> 3); }

// K layers of the tile, from layer `at` on, which is 0 or at least 3.
template <bool INVERSE, u32 K>
GW_DEVICE void round(
    const SmallPass& pass, const Table& table, const u32* from, u32* to, u32 at, bool loads, bool stores) {
    // In shared memory neighbours in this layer are as far apart as in the tile, and one word more for every eight.
    const u32 step = at == 0 ? 1 : 9u << (at - 3);
    for (u32 unit = gw::thread_x(); unit < 1u << (pass.layers - K); unit += gw::threads_x()) {
        const u32 base = (unit >> at << (at + K)) | (unit & ((1u << at) - 1));
        const u32 place = gw::block_x() << pass.layers | base;
        u32* shared = gw::shared<u32>() + padded(base);
        u32 v[1 << K];
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) {
            const u32 source = (place | m << at) & pass.mask;
            if (!loads) v[m] = shared[m * step];
            else v[m] = source < pass.limit ? from[source] : 0;
        }
        const u32 group = place >> (at + K);
        if constexpr (K == 3) {
            if (at == 0) lowest_layers<INVERSE, K>(v, table, group);
            else line_layers<INVERSE, K>(v, table, at, group);
        } else {
            line_layers<INVERSE, K>(v, table, at, group);
        }
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) {
            if (!stores) shared[m * step] = v[m];
            else to[place | m << at] = pass.factor ? m31::halve(v[m], pass.factor) : v[m];
        }
    }
}

// Rounds of three layers from the bottom of the tile on; what is left over is a round at the top.
template <bool INVERSE>
GW_DEVICE void run_pass(const Columns& sources, const Columns& targets, const u32* words, const SmallPass& pass) {
    gw::await_stream();
    const Table table = {words, pass.log_table, pass.log_domain};
    const u32* from = column(sources, gw::block_y());
    u32* to = column(targets, gw::block_y());
    const u32 rounds = (pass.layers + 2) / 3;
    for (u32 turn = 0; turn < rounds; ++turn) {
        const u32 at = INVERSE ? 3 * turn : 3 * (rounds - 1 - turn);
        const u32 count = gw::lesser(3u, pass.layers - at);
        const bool loads = turn == 0, stores = turn == rounds - 1;
        if (turn > 0) gw::sync_threads();
        if (count == 3) round<INVERSE, 3>(pass, table, from, to, at, loads, stores);
        else if (count == 2) round<INVERSE, 2>(pass, table, from, to, at, loads, stores);
        else round<INVERSE, 1>(pass, table, from, to, at, loads, stores);
    }
}

GW_KERNEL_BOUNDED(fft_forward, 256, 4)(
    Columns sources, Columns targets, const u32* table, SmallPass pass) {
    run_pass<false>(sources, targets, table, pass);
}

GW_KERNEL_BOUNDED(fft_inverse, 256, 4)(
    Columns sources, Columns targets, const u32* table, SmallPass pass) {
    run_pass<true>(sources, targets, table, pass);
}

// Both transforms over two or four points, whose twiddles are in no table: x and y, doubled, are those of the first point
// of the half coset, or their inverses. One thread a column.
GW_KERNEL(fft_small)(
    Columns sources, Columns targets, u32 columns, u32 log_size, u32 source_len, u32 x, u32 y, u32 inverse,
    u32 factor) {
    const u32 i = (u32)gw::global_thread();
    if (i >= columns) return;
    const u32* from = column(sources, i);
    u32* to = column(targets, i);
    const u32 n = 1u << log_size;
    u32 v[4];
    GW_UNROLL
    for (u32 k = 0; k < 4; ++k) v[k] = k < source_len ? from[k] : 0;
    if (inverse) {
        butterfly<true>(v[0], v[1], y);
        if (log_size == 2) {
            butterfly<true>(v[2], v[3], y, true);
            butterfly<true>(v[0], v[2], x);
            butterfly<true>(v[1], v[3], x);
        }
    } else {
        if (log_size == 2) {
            butterfly<false>(v[0], v[2], x);
            butterfly<false>(v[1], v[3], x);
            butterfly<false>(v[2], v[3], y, true);
        }
        butterfly<false>(v[0], v[1], y);
    }
    GW_UNROLL
    for (u32 k = 0; k < 4; ++k) {
        if (k < n) to[k] = factor ? m31::halve(v[k], factor) : v[k];
    }
}
