#include "circle.cuh"

// The circle transform and its inverse, in passes of several layers, for many columns at once.
//
// Values lie in bit-reversed order of their domain. Layer i pairs the values at distance 2^i: the inverse takes (a, b) to
// (a + b, (a - b) / t) from layer 0 up, the transform takes (a, b) to (a + t b, a - t b) from the top down, with the t of
// circle.cuh for the number of the pair's group. (The transform with the inverse's table is the transpose of the inverse.)
//
// A pass runs layers first .. first + layers on tiles of 2^log_tile values: runs of 2^log_width neighbours, 2^first apart.
// A thread has eight values of a tile in registers and does three layers on them, in one turn or more; between those the tile is
// exchanged through shared memory. At most 2^(log_tile - 3) threads a block, tiles in x, columns in y; shared memory for the tile
// with one word in nine unused, so that strides of eight fall on different banks.
struct Pass {
    u32 log_table;
    // The domain whose layers the table is read for.
    u32 log_domain;
    u32 first, layers, log_tile, log_width;
    // Values at or past `limit` are zero, if it is not all ones; else value i is read from i & mask: so a short source is padded
    // or repeated.
    u32 limit, mask;
    // Results are divided by two to this.
    u32 halvings;
};

GW_DEVICE u32 padded(u32 i) { return i + (i >> 3); }

template <bool INVERSE>
GW_DEVICE void butterfly(u32& a, u32& b, u32 doubled) {
    if (INVERSE) {
        const u32 sum = m31::add(a, b);
        b = m31::mul_doubled(m31::sub(a, b), doubled);
        a = sum;
    } else {
        const u32 product = m31::mul_doubled(b, doubled);
        b = m31::sub(a, product);
        a = m31::add(a, product);
    }
}

// Step `s` of K layers on 2^K values: groups of 2^(s + 1) values, with one twiddle each.
template <bool INVERSE, u32 K>
GW_DEVICE void layer_step(u32 (&v)[1 << K], const u32* twiddles, u32 s) {
    GW_UNROLL
    for (u32 q = 0; q < 1u << (K - 1); ++q) {
        const u32 group = q >> s, low = (group << (s + 1)) | (q & ((1u << s) - 1));
        butterfly<INVERSE>(v[low], v[low | 1u << s], gw::load_readonly(twiddles + group));
    }
}

// K layers from `layer` on; `group` is the number of the 2^(layer + K) values that these are among.
template <bool INVERSE, u32 K>
GW_DEVICE void line_layers(u32 (&v)[1 << K], const Pass& pass, const u32* table, u32 layer, u32 group) {
    GW_UNROLL
    for (u32 i = 0; i < K; ++i) {
        const u32 s = INVERSE ? i : K - 1 - i;
        const u32* twiddles = circle::layer(table, pass.log_table, pass.log_domain, layer + s);
        layer_step<INVERSE, K>(v, twiddles + (group << (K - 1 - s)), s);
    }
}

// Layers 0, 1 and 2 on eight neighbours.
template <bool INVERSE>
GW_DEVICE void circle_layers(u32 (&v)[8], const Pass& pass, const u32* table, u32 group) {
    const u32* layer_1 = circle::layer(table, pass.log_table, pass.log_domain, 1) + 2 * group;
    const u32 x = gw::load_readonly(layer_1), y = gw::load_readonly(layer_1 + 1);
    const u32 layer_0[4] = {y, 2 * m31::P - y, 2 * m31::P - x, x};
    const u32 layer_2 = gw::load_readonly(circle::layer(table, pass.log_table, pass.log_domain, 2) + group);
    GW_UNROLL
    for (u32 i = 0; i < 3; ++i) {
        const u32 s = INVERSE ? i : 2 - i;
        GW_UNROLL
        for (u32 q = 0; q < 4; ++q) {
            const u32 pair = q >> s, low = (pair << (s + 1)) | (q & ((1u << s) - 1));
            const u32 twiddle = s == 0 ? layer_0[q] : s == 1 ? (pair ? y : x) : layer_2;
            butterfly<INVERSE>(v[low], v[low | 1u << s], twiddle);
        }
    }
}

// Where a tile's value lies in its column.
GW_DEVICE u32 place(const Pass& pass, u32 tile, u32 i) {
    const u32 runs = pass.first - pass.log_width;
    const u32 run = tile & ((1u << runs) - 1), high = tile >> runs;
    const u32 across = i >> pass.log_width, along = i & ((1u << pass.log_width) - 1);
    return (high << (pass.first + pass.layers)) | (across << pass.first) | (run << pass.log_width) | along;
}

// 2^K values of a column, 2^layer apart.
template <u32 K>
GW_DEVICE void load_values(const Pass& pass, const u32* from, u32 place, u32 layer, u32 (&v)[1 << K]) {
    if (pass.limit != ~0u) {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) {
            const u32 i = place | m << layer;
            v[m] = i < pass.limit ? from[i] : 0;
        }
        return;
    }
    // The bits that tell the values apart are below those that a repeated source lacks.
    from += place & pass.mask;
    if constexpr (K == 3) {
        if (layer == 0) {
            const u32x4 low = gw::load_128(from), high = gw::load_128(from + 4);
            v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
            v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
            return;
        }
    }
    const u32 step = 1u << layer;
    GW_UNROLL
    for (u32 m = 0; m < 1u << K; ++m) v[m] = from[m * step];
}

template <u32 K>
GW_DEVICE void store_values(const Pass& pass, u32* to, u32 place, u32 layer, u32 (&v)[1 << K]) {
    if (pass.halvings) {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) v[m] = m31::halve(v[m], pass.halvings);
    }
    to += place;
    if constexpr (K == 3) {
        if (layer == 0) {
            gw::store_128(to, {v[0], v[1], v[2], v[3]});
            gw::store_128(to + 4, {v[4], v[5], v[6], v[7]});
            return;
        }
    }
    const u32 step = 1u << layer;
    GW_UNROLL
    for (u32 m = 0; m < 1u << K; ++m) to[m * step] = v[m];
}

// K layers of the tile, from its layer `at` on, which is 0 or at least 3.
template <bool INVERSE, u32 K>
GW_DEVICE void round(const Pass& pass, const u32* table, const u32* from, u32* to, u32 at, bool loads, bool stores) {
    const u32 layer = pass.first + at - pass.log_width;
    // In shared memory neighbours in this layer are as far apart as in the tile, and one word more for every eight.
    const u32 step = at == 0 ? 1 : 9u << (at - 3);
    for (u32 unit = gw::thread_x(); unit < 1u << (pass.log_tile - K); unit += gw::threads_x()) {
        const u32 base = (unit >> at << (at + K)) | (unit & ((1u << at) - 1));
        const u32 first_place = place(pass, gw::block_x(), base);
        u32* shared = gw::shared<u32>() + padded(base);
        u32 v[1 << K];
        if (loads) {
            load_values<K>(pass, from, first_place, layer, v);
        } else {
            GW_UNROLL
            for (u32 m = 0; m < 1u << K; ++m) v[m] = shared[m * step];
        }
        const u32 group = first_place >> (layer + K);
        if constexpr (K == 3) {
            if (layer == 0) circle_layers<INVERSE>(v, pass, table, group);
            else line_layers<INVERSE, K>(v, pass, table, layer, group);
        } else {
            line_layers<INVERSE, K>(v, pass, table, layer, group);
        }
        if (stores) {
            store_values<K>(pass, to, first_place, layer, v);
        } else {
            GW_UNROLL
            for (u32 m = 0; m < 1u << K; ++m) shared[m * step] = v[m];
        }
    }
}

template <bool INVERSE>
GW_DEVICE void some_layers(
    const Pass& pass, const u32* table, const u32* from, u32* to, u32 at, u32 count, bool loads, bool stores) {
    if (count == 3) round<INVERSE, 3>(pass, table, from, to, at, loads, stores);
    else if (count == 2) round<INVERSE, 2>(pass, table, from, to, at, loads, stores);
    else round<INVERSE, 1>(pass, table, from, to, at, loads, stores);
}

// Rounds of three layers from the bottom of the tile on; what is left over is a round at the top.
template <bool INVERSE>
GW_DEVICE void run_pass(const Pass& pass, const u32* table, const u32* const* sources, u32* const* targets) {
    const u32* from = sources[gw::block_y()];
    u32* to = targets[gw::block_y()];
    const u32 rounds = (pass.layers + 2) / 3;
    for (u32 turn = 0; turn < rounds; ++turn) {
        const u32 done = INVERSE ? 3 * turn : 3 * (rounds - 1 - turn);
        const u32 count = gw::lesser(3u, pass.layers - done);
        if (turn > 0) gw::sync_threads();
        some_layers<INVERSE>(
            pass, table, from, to, pass.log_width + done, count, turn == 0, turn == rounds - 1);
    }
}

GW_KERNEL_BOUNDED(fft_forward, 512, 3)(const u32* const* sources, u32* const* targets, const u32* table, Pass pass) {
    run_pass<false>(pass, table, sources, targets);
}

GW_KERNEL_BOUNDED(fft_inverse, 512, 3)(const u32* const* sources, u32* const* targets, const u32* table, Pass pass) {
    run_pass<true>(pass, table, sources, targets);
}

// Both transforms over two or four points, whose twiddles are in no table: x and y, doubled, are those of the first point
// of the half coset, or their inverses. One thread a column.
GW_KERNEL(fft_small)(
    const u32* const* sources, u32* const* targets, u32 columns, u32 log_size, u32 source_len, u32 x, u32 y, u32 inverse,
    u32 halvings) {
    const u32 column = (u32)gw::global_thread();
    if (column >= columns) return;
    const u32 n = 1u << log_size, minus_y = 2 * m31::P - y;
    u32 v[4];
    for (u32 i = 0; i < 4; ++i) v[i] = i < source_len ? sources[column][i] : 0;
    if (inverse) {
        butterfly<true>(v[0], v[1], y);
        if (log_size == 2) {
            butterfly<true>(v[2], v[3], minus_y);
            butterfly<true>(v[0], v[2], x);
            butterfly<true>(v[1], v[3], x);
        }
    } else {
        if (log_size == 2) {
            butterfly<false>(v[0], v[2], x);
            butterfly<false>(v[1], v[3], x);
            butterfly<false>(v[2], v[3], minus_y);
        }
        butterfly<false>(v[0], v[1], y);
    }
    for (u32 i = 0; i < n; ++i) targets[column][i] = halvings ? m31::halve(v[i], halvings) : v[i];
}
