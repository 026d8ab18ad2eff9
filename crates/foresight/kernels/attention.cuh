#include "gw/gw.cuh"
#include "shared.cuh"

// Causal attention of bf16 with sums in f32, and its gradient, without a matrix of scores in memory (Dao et al., FlashAttention-2,
// 2023). Of one head, with c = scale / ln 2 and rows that see columns up to their own:
//   o = softmax(scale q k^T) v        l_i = log2 of sum over j of 2^(c q_i k_j)       p_ij = 2^(c q_i k_j - l_i)
//   dv = p^T do       dp = do v^T       ds_ij = p_ij (dp_ij - d_i) with d_i = do_i o_i       dq = scale ds k       dk = scale ds^T q
//
// `read` has queries, keys and values of a token beside each other, the heads of each in turn; `heads`, `of_heads` one of these.
// l and d: [window, head, place]. A block of four warps has 64 places of one head of one window, a warp 16 of them: queries in
// `attend` and `attend_queries`, which walk along the keys, and keys in `attend_keys`, which walks along the queries. Nothing is
// added atomically: that is why there are two kernels for one gradient, and scores are computed in both.
//
// Tiles of 64 rows lie in shared memory with rows 16 bytes longer than their numbers, so that eight rows fall on different banks. The
// next tile is on its way meanwhile. HEAD is the length of rows in whole products, 16 to 128; WIDE: rows begin at multiples of
// eight numbers and have so many.
//
// 16 rows of a warp read each tile of the other side: 16 cycles of shared memory for 8 of the tensor cores, which is what it waits for.

constexpr u32 TILE = ATTEND_TILE, THREADS = ATTEND_THREADS, GROUP = 8;
constexpr u32 STRIDE = HEAD + GROUP, TILE_NUMBERS = TILE * STRIDE;
// Depths of 16 of a product over a row, and of one over the rows of a tile.
constexpr u32 DEEP = HEAD / 16, LONG = TILE / 16;

// Sums of 16 rows of a warp and COLUMNS columns: rows lane / 4 and 8 more, columns 2 (lane % 4) and its neighbour of each eight.
template <u32 COLUMNS>
struct Sums {
    f32 of[COLUMNS / 8][4];
    GW_DEVICE void clear() {
        GW_UNROLL
        for (u32 i = 0; i < COLUMNS / 2; ++i) of[i / 4][i % 4] = 0.0f;
    }
};

// One kind of numbers of a head: where its first place is, and from one place to the next.
template <class Number>
struct Side {
    Number* numbers;
    u64 row;
};

// Queues the copy of rows from `first` on; zeros beyond the window and beyond the head.
GW_DEVICE void fetch(u16* tile, Side<const u16> side, u32 first, const AttendShape& s) {
    for (u32 group = gw::thread(); group < TILE * HEAD / GROUP; group += THREADS) {
        const u32 line = group / (HEAD / GROUP), column = group % (HEAD / GROUP) * GROUP, place = first + line;
        u16* to = tile + line * STRIDE + column;
        const u16* from = side.numbers + place * side.row + column;
        const bool is_there = place < s.context && column < s.head;
        if constexpr (WIDE) {
            gw::copy_async<16>(to, is_there ? from : side.numbers, is_there ? 16 : 0);
        } else {
            GW_UNROLL
            for (u32 i = 0; i < GROUP; ++i) to[i] = is_there && column + i < s.head ? from[i] : (u16)0;
        }
    }
}

// 16 rows from `row` on as the left factor, at a depth of 16 k.
GW_DEVICE void load_left(u32 (&fragment)[4], const u16* tile, u32 row, u32 k) {
    const u32 part = gw::lane() / 8, line = gw::lane() % 8;
    gw::load_matrix<4>(fragment, tile + (row + part % 2 * 8 + line) * STRIDE + 16 * k + part / 2 * 8);
}

// to <- to + x y^T: the rows of a tile as columns, COLUMNS of them.
template <class Left, u32 COLUMNS>
GW_DEVICE void add_crossed(Sums<COLUMNS>& to, Left left, const u16* tile) {
    const u32 part = gw::lane() / 8, line = gw::lane() % 8;
    GW_UNROLL
    for (u32 k = 0; k < DEEP; ++k) {
        u32 x[4];
        left(x, k);
        GW_UNROLL
        for (u32 pair = 0; pair < COLUMNS / 16; ++pair) {
            u32 y[4];
            gw::load_matrix<4>(y, tile + (16 * pair + part / 2 * 8 + line) * STRIDE + 16 * k + part % 2 * 8);
            const u32 low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
            gw::mma(gw::BF16{}, to.of[2 * pair], x, low, to.of[2 * pair]);
            gw::mma(gw::BF16{}, to.of[2 * pair + 1], x, high, to.of[2 * pair + 1]);
        }
    }
}

// to <- to + x y, for what sums became, rounded, and the rows of a tile.
GW_DEVICE void add_along(Sums<HEAD>& to, const Sums<TILE>& x, const u16* tile) {
    const u32 part = gw::lane() / 8, line = gw::lane() % 8;
    GW_UNROLL
    for (u32 k = 0; k < LONG; ++k) {
        const f32(&left)[4] = x.of[2 * k], (&right)[4] = x.of[2 * k + 1];
        const u32 rounded[4] = {gw::f32_to_bf16x2(left[0], left[1]), gw::f32_to_bf16x2(left[2], left[3]),
                                gw::f32_to_bf16x2(right[0], right[1]), gw::f32_to_bf16x2(right[2], right[3])};
        GW_UNROLL
        for (u32 pair = 0; pair < DEEP; ++pair) {
            u32 y[4];
            gw::load_matrix<4, gw::TRANSPOSED>(y, tile + (16 * k + part % 2 * 8 + line) * STRIDE + 16 * pair + part / 2 * 8);
            const u32 low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
            gw::mma(gw::BF16{}, to.of[2 * pair], rounded, low, to.of[2 * pair]);
            gw::mma(gw::BF16{}, to.of[2 * pair + 1], rounded, high, to.of[2 * pair + 1]);
        }
    }
}

// Over the four lanes that share a row.
GW_DEVICE f32 over_row(f32 sum) {
    sum += gw::shuffle_xor(sum, 1);
    return sum + gw::shuffle_xor(sum, 2);
}

// Row `half` of this lane's two, and column `i` of its two, of eights number `eight`.
GW_DEVICE u32 row_of(u32 half) { return gw::warp() * 16 + gw::lane() / 4 + 8 * half; }
GW_DEVICE u32 column_of(u32 eight, u32 i) { return 8 * eight + gw::lane() % 4 * 2 + i; }

// Stores this warp's rows times a factor each, rounded.
GW_DEVICE void store(Side<u16> side, const Sums<HEAD>& sums, const f32 (&factor)[2], u32 first, const AttendShape& s) {
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        const u32 place = first + row_of(half);
        if (place >= s.context) continue;
        u16* to = side.numbers + place * side.row;
        GW_UNROLL
        for (u32 eight = 0; eight < HEAD / 8; ++eight) {
            const u32 column = column_of(eight, 0);
            const u32 pair = gw::f32_to_bf16x2(sums.of[eight][2 * half] * factor[half], sums.of[eight][2 * half + 1] * factor[half]);
            if constexpr (WIDE) {
                if (column < s.head) *reinterpret_cast<u32*>(to + column) = pair;
            } else {
                if (column < s.head) to[column] = (u16)pair;
                if (column + 1 < s.head) to[column + 1] = (u16)(pair >> 16);
            }
        }
    }
}

// Where a block works: a tile of places of one head of one window.
struct Place {
    u32 tile, first, column;
    u64 first_token, of_rows;

    GW_DEVICE static Place of_tile(u32 tile, const AttendShape& s) {
        const u64 head = gw::block_y(), window = gw::block_z();
        return {tile, tile * TILE, (u32)head * s.head, window * s.context, (window * gw::blocks_y() + head) * s.context};
    }
    // Queries, keys or values, which lie beside each other.
    template <class Number>
    GW_DEVICE Side<Number> read(Number* numbers, u32 kind, const AttendShape& s) const {
        const u64 row = 3ull * s.width;
        return {numbers + first_token * row + kind * s.width + column, row};
    }
    // What heads give.
    template <class Number>
    GW_DEVICE Side<Number> given(Number* numbers, const AttendShape& s) const {
        return {numbers + first_token * s.width + column, s.width};
    }
};

// The tile that sees most begins.
GW_DEVICE u32 last_tile() { return gw::blocks_x() - 1 - gw::block_x(); }

// o and l. The tile of keys of which rows see some comes last.
GW_KERNEL_BOUNDED(attend, ATTEND_THREADS, 2)(const u16* read, u16* heads, f32* l, AttendShape s) {
    u16* const own_queries = gw::shared<u16>();
    u16* const keys = own_queries + TILE_NUMBERS;
    u16* const values = keys + 2 * TILE_NUMBERS;
    const Place own = Place::of_tile(last_tile(), s);
    const auto k = own.read(read, 1, s), v = own.read(read, 2, s);
    fetch(own_queries, own.read(read, 0, s), own.first, s);
    fetch(keys, k, 0, s);
    fetch(values, v, 0, s);
    gw::copy_async_commit();
    const f32 none = gw::bits<f32>(0xFF800000u);
    f32 top[2] = {none, none}, sum[2] = {0.0f, 0.0f};
    Sums<HEAD> o;
    o.clear();
    for (u32 tile = 0; tile <= own.tile; ++tile) {
        const u32 now = tile % 2 * TILE_NUMBERS, next = TILE_NUMBERS - now;
        gw::copy_async_wait<0>();
        gw::sync_threads();
        if (tile < own.tile) {
            fetch(keys + next, k, (tile + 1) * TILE, s);
            fetch(values + next, v, (tile + 1) * TILE, s);
            gw::copy_async_commit();
        }
        Sums<TILE> p;
        p.clear();
        add_crossed(p, [&](u32(&x)[4], u32 depth) { load_left(x, own_queries, gw::warp() * 16, depth); }, keys + now);
        GW_UNROLL
        for (u32 half = 0; half < 2; ++half) {
            f32 above = top[half];
            GW_UNROLL
            for (u32 i = 0; i < TILE / 4; ++i) {
                f32& score = p.of[i / 2][2 * half + i % 2];
                if (tile == own.tile && column_of(i / 2, i % 2) > row_of(half)) score = none;
                above = gw::maximum(above, score);
            }
            above = gw::maximum(above, gw::shuffle_xor(above, 1));
            above = gw::maximum(above, gw::shuffle_xor(above, 2));
            // Of the first tile every row sees a column, so there is a largest score from there on.
            const f32 shift = above * s.power, keep = gw::exp2(gw::fma(top[half], s.power, -shift));
            top[half] = above;
            sum[half] *= keep;
            GW_UNROLL
            for (u32 i = 0; i < TILE / 4; ++i) {
                f32& score = p.of[i / 2][2 * half + i % 2];
                score = gw::exp2(gw::fma(score, s.power, -shift));
                sum[half] += score;
            }
            GW_UNROLL
            for (u32 i = 0; i < HEAD / 4; ++i) o.of[i / 2][2 * half + i % 2] *= keep;
        }
        add_along(o, p, values + now);
    }
    f32 share[2];
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        const f32 whole = over_row(sum[half]);
        share[half] = 1.0f / whole;
        const u32 place = own.first + row_of(half);
        if (gw::lane() % 4 == 0 && place < s.context) l[own.of_rows + place] = gw::fma(top[half], s.power, gw::log2(whole));
    }
    store(own.given(heads, s), o, share, own.first, s);
}

// d, and dq in the place of queries in `of_read`.
GW_KERNEL_BOUNDED(attend_queries, ATTEND_THREADS, 2)(const u16* read, const u16* heads, const u16* of_heads, const f32* l,
                                                     f32* d, u16* of_read, AttendShape s) {
    u16* const own_queries = gw::shared<u16>();
    u16* const own_deltas = own_queries + TILE_NUMBERS;
    u16* const keys = own_deltas + TILE_NUMBERS;
    u16* const values = keys + 2 * TILE_NUMBERS;
    const Place own = Place::of_tile(last_tile(), s);
    const auto k = own.read(read, 1, s), v = own.read(read, 2, s);
    fetch(own_queries, own.read(read, 0, s), own.first, s);
    fetch(own_deltas, own.given(of_heads, s), own.first, s);
    // For d, before the second tile of keys comes there.
    fetch(keys + TILE_NUMBERS, own.given(heads, s), own.first, s);
    fetch(keys, k, 0, s);
    fetch(values, v, 0, s);
    gw::copy_async_commit();
    gw::copy_async_wait<0>();
    gw::sync_threads();
    f32 of_row[2] = {0.0f, 0.0f}, level[2];
    const f32 scale[2] = {s.scale, s.scale};
    GW_UNROLL
    for (u32 depth = 0; depth < DEEP; ++depth) {
        u32 delta[4], output[4];
        load_left(delta, own_deltas, gw::warp() * 16, depth);
        load_left(output, keys + TILE_NUMBERS, gw::warp() * 16, depth);
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            f32& sum = of_row[i % 2];
            sum = gw::fma(gw::bf16_to_f32((u16)delta[i]), gw::bf16_to_f32((u16)output[i]), sum);
            sum = gw::fma(gw::bf16_to_f32((u16)(delta[i] >> 16)), gw::bf16_to_f32((u16)(output[i] >> 16)), sum);
        }
    }
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        of_row[half] = over_row(of_row[half]);
        const u32 place = own.first + row_of(half);
        level[half] = place < s.context ? l[own.of_rows + place] : 0.0f;
        if (gw::lane() % 4 == 0 && place < s.context) d[own.of_rows + place] = of_row[half];
    }
    Sums<HEAD> dq;
    dq.clear();
    for (u32 tile = 0; tile <= own.tile; ++tile) {
        const u32 now = tile % 2 * TILE_NUMBERS, next = TILE_NUMBERS - now;
        gw::copy_async_wait<0>();
        gw::sync_threads();
        if (tile < own.tile) {
            fetch(keys + next, k, (tile + 1) * TILE, s);
            fetch(values + next, v, (tile + 1) * TILE, s);
            gw::copy_async_commit();
        }
        Sums<TILE> p, dp;
        p.clear();
        dp.clear();
        add_crossed(p, [&](u32(&x)[4], u32 depth) { load_left(x, own_queries, gw::warp() * 16, depth); }, keys + now);
        add_crossed(dp, [&](u32(&x)[4], u32 depth) { load_left(x, own_deltas, gw::warp() * 16, depth); }, values + now);
        GW_UNROLL
        for (u32 i = 0; i < TILE / 2; ++i) {
            const u32 eight = i / 4, half = i / 2 % 2;
            const bool is_seen = tile < own.tile || column_of(eight, i % 2) <= row_of(half);
            const f32 share = gw::exp2(gw::fma(p.of[eight][i % 4], s.power, -level[half]));
            p.of[eight][i % 4] = is_seen ? share * (dp.of[eight][i % 4] - of_row[half]) : 0.0f;
        }
        add_along(dq, p, keys + now);
    }
    store(own.read(of_read, 0, s), dq, scale, own.first, s);
}

// dk and dv, in the places of keys and values in `of_read`. Its own places are keys: rows are keys, and columns queries.
GW_KERNEL_BOUNDED(attend_keys, ATTEND_THREADS, 2)(const u16* read, const u16* of_heads, const f32* l, const f32* d,
                                                  u16* of_read, AttendShape s) {
    u16* const own_keys = gw::shared<u16>();
    u16* const own_values = own_keys + TILE_NUMBERS;
    u16* const queries = own_values + TILE_NUMBERS;
    u16* const deltas = queries + 2 * TILE_NUMBERS;
    // l, then d of both tiles.
    f32* const of_rows = reinterpret_cast<f32*>(deltas + 2 * TILE_NUMBERS);
    const u32 tiles = gw::blocks_x();
    // The first tile is seen by most.
    const Place own = Place::of_tile(gw::block_x(), s);
    const auto q = own.read(read, 0, s), of_q = own.given(of_heads, s);
    const auto fetch_queries = [&](u32 tile, u32 place) {
        fetch(queries + place * TILE_NUMBERS, q, tile * TILE, s);
        fetch(deltas + place * TILE_NUMBERS, of_q, tile * TILE, s);
        const f32* from = gw::thread() < TILE ? l : d;
        const u32 row = tile * TILE + gw::thread() % TILE;
        const bool is_there = row < s.context;
        gw::copy_async<4>(of_rows + place * 2 * TILE + gw::thread(), from + (is_there ? own.of_rows + row : 0),
                          is_there ? 4 : 0);
        gw::copy_async_commit();
    };
    fetch(own_keys, own.read(read, 1, s), own.first, s);
    fetch(own_values, own.read(read, 2, s), own.first, s);
    fetch_queries(own.tile, 0);
    Sums<HEAD> dk, dv;
    dk.clear();
    dv.clear();
    for (u32 tile = own.tile; tile < tiles; ++tile) {
        const u32 place = (tile - own.tile) % 2, now = place * TILE_NUMBERS;
        gw::copy_async_wait<0>();
        gw::sync_threads();
        if (tile + 1 < tiles) fetch_queries(tile + 1, 1 - place);
        const f32* level = of_rows + place * 2 * TILE;
        Sums<TILE> p, ds;
        p.clear();
        ds.clear();
        add_crossed(p, [&](u32(&x)[4], u32 depth) { load_left(x, own_keys, gw::warp() * 16, depth); }, queries + now);
        GW_UNROLL
        for (u32 i = 0; i < TILE / 2; ++i) {
            const u32 column = column_of(i / 4, i % 2);
            // Queries beyond the window have no level.
            const bool is_seen = tile * TILE + column < s.context && (tile > own.tile || column >= row_of(i / 2 % 2));
            const f32 share = gw::exp2(gw::fma(p.of[i / 4][i % 4], s.power, -level[column]));
            p.of[i / 4][i % 4] = is_seen ? share : 0.0f;
        }
        add_along(dv, p, deltas + now);
        add_crossed(ds, [&](u32(&x)[4], u32 depth) { load_left(x, own_values, gw::warp() * 16, depth); }, deltas + now);
        GW_UNROLL
        for (u32 i = 0; i < TILE / 2; ++i) {
            f32& score = ds.of[i / 4][i % 4];
            score = p.of[i / 4][i % 4] * (score - level[TILE + column_of(i / 4, i % 2)]);
        }
        add_along(dk, ds, queries + now);
    }
    const f32 scale[2] = {s.scale, s.scale}, one[2] = {1.0f, 1.0f};
    store(own.read(of_read, 1, s), dk, scale, own.first, s);
    store(own.read(of_read, 2, s), dv, one, own.first, s);
}
