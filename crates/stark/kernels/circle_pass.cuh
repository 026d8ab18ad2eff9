#include "butterfly.cuh"

// LAYERS layers of the circle transform and of its inverse, on tiles of full size, for many columns at once.
//
// The low pass has the layers 0 to 11, on tiles of 2^12 neighbours. Every other one has the layers first .. first + LAYERS, on
// tiles of 2^LAYERS runs of 2^WIDTH neighbours, which lie 2^first apart. A thread has 16 values of the tile in registers and does up
// to four layers on them; between such rounds the tile is exchanged through shared memory, where one word in 33 is unused: then no
// two lanes fall on one bank. THREADS threads a block, tiles in x, columns in y, 132 bytes of shared memory for 32 values.

// LAYERS, LOG_TILE and THREADS are the host's (cuda/schedule.rs).
constexpr u32 WIDTH = LOG_TILE - LAYERS;
constexpr u32 ROUNDS = (LAYERS + LOG_THREAD_VALUES - 1) / LOG_THREAD_VALUES;
static_assert(LAYERS != LOWEST || WIDTH == 0, "the lowest pass has tiles of neighbours");
static_assert(1u << LOG_TILE >= THREADS << LOG_THREAD_VALUES, "every thread has work");

// Layers of a round, and how many come before it.
GW_DEVICE constexpr u32 round_layers(u32 round) { return LAYERS / ROUNDS + (round < LAYERS % ROUNDS); }
GW_DEVICE constexpr u32 layers_before(u32 round) { return round == 0 ? 0 : layers_before(round - 1) + round_layers(round - 1); }

// Unused words included.
GW_DEVICE u32 padded(u32 i) { return i + (i >> 5); }

// Where a tile's value lies in its column.
GW_DEVICE u32 place(u32 first, u32 tile, u32 i) {
    const u32 runs = first - WIDTH;
    const u32 run = tile & ((1u << runs) - 1), high = tile >> runs;
    const u32 across = i >> WIDTH, along = i & ((1u << WIDTH) - 1);
    return (high << (first + LAYERS)) | (across << first) | (run << WIDTH) | along;
}

// 2^K values, 2^AT apart in the tile and 2^layer in the column.
template <u32 AT, u32 K>
GW_DEVICE void load_values(const u32* from, u32 layer, u32 (&v)[1 << K]) {
    if constexpr (AT == 0) {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; m += 4) {
            const u32x4 four = gw::load_128(from + m);
            v[m] = four.x, v[m + 1] = four.y, v[m + 2] = four.z, v[m + 3] = four.w;
        }
    } else {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) v[m] = from[m << layer];
    }
}
template <u32 AT, u32 K>
GW_DEVICE void store_values(u32* to, u32 layer, const u32 (&v)[1 << K]) {
    if constexpr (AT == 0) {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; m += 4) gw::store_128(to + m, {v[m], v[m + 1], v[m + 2], v[m + 3]});
    } else {
        GW_UNROLL
        for (u32 m = 0; m < 1u << K; ++m) to[m << layer] = v[m];
    }
}

// K layers of the tile, from its layer AT on.
template <bool INVERSE, u32 AT, u32 K, bool LOADS, bool STORES>
GW_DEVICE void round(const FullPass& pass, const Table& table, const u32* from, u32* to) {
    static_assert(AT == 0 || AT >= 4, "values of a thread are all of 16 neighbours or one");
    const u32 layer = LAYERS == LOWEST ? AT : pass.first + AT - WIDTH;
    GW_UNROLL
    for (u32 turn = 0; turn < (1u << (LOG_TILE - K)) / THREADS; ++turn) {
        u32 unit = turn * THREADS + gw::thread_x();
        if constexpr (AT == 4) {
            // The upper half of a warp works 512 values away: 16 banks.
            const u32 flip = (unit >> 4 ^ unit >> (9 - K)) & 1;
            unit ^= flip << 4 | flip << (9 - K);
        }
        const u32 base = (unit >> AT << (AT + K)) | (unit & ((1u << AT) - 1));
        const u32 at = LAYERS == LOWEST ? gw::block_x() << LOG_TILE | base : place(pass.first, gw::block_x(), base);
        u32* shared = gw::shared<u32>() + padded(base);
        u32 v[1 << K];
        if constexpr (LOADS) {
            load_values<AT, K>(from + (at & pass.mask), layer, v);
        } else {
            GW_UNROLL
            for (u32 m = 0; m < 1u << K; ++m) v[m] = shared[padded(m << AT)];
        }
        const u32 group = at >> (layer + K);
        if constexpr (AT == 0) lowest_layers<INVERSE, K>(v, table, group);
        else line_layers<INVERSE, K>(v, table, layer, group);
        if constexpr (STORES) {
            if (pass.factor) {
                GW_UNROLL
                for (u32 m = 0; m < 1u << K; ++m) v[m] = m31::halve(v[m], pass.factor);
            }
            store_values<AT, K>(to + at, layer, v);
        } else {
            GW_UNROLL
            for (u32 m = 0; m < 1u << K; ++m) shared[padded(m << AT)] = v[m];
        }
    }
}

template <bool INVERSE, u32 TURN = 0>
GW_DEVICE void rounds(const FullPass& pass, const Table& table, const u32* from, u32* to) {
    constexpr u32 ROUND = INVERSE ? TURN : ROUNDS - 1 - TURN;
    if (TURN > 0) gw::sync_threads();
    round<INVERSE, WIDTH + layers_before(ROUND), round_layers(ROUND), TURN == 0, TURN == ROUNDS - 1>(pass, table, from, to);
    if constexpr (TURN + 1 < ROUNDS) rounds<INVERSE, TURN + 1>(pass, table, from, to);
}

template <bool INVERSE>
GW_DEVICE void run_pass(const Columns& sources, const Columns& targets, const u32* words, const FullPass& pass) {
    gw::await_stream();
    const Table table = {words, pass.log_table, pass.log_domain};
    rounds<INVERSE>(pass, table, column(sources, gw::block_y()), column(targets, gw::block_y()));
}

GW_KERNEL_BOUNDED(pass_forward, THREADS, 1024 / THREADS)(
    Columns sources, Columns targets, const u32* table, FullPass pass) {
    run_pass<false>(sources, targets, table, pass);
}

GW_KERNEL_BOUNDED(pass_inverse, THREADS, 1024 / THREADS)(
    Columns sources, Columns targets, const u32* table, FullPass pass) {
    run_pass<true>(sources, targets, table, pass);
}
