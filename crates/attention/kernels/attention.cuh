#include "consumer.cuh"
#include "numbers.cuh"

// o <- softmax(scale q k^T + mask) v for e4m3 q, k, v.
//
// Images (made by the quantiser, one bulk copy a tile, rows swizzled as wgmma reads them):
//   q  tiles of 64 query rows x DIM bytes, in panels of PANEL columns;
//   k  tiles of 128 keys x DIM bytes, the same;
//   v  tiles of (VALUE_DIM + 8) rows x 128 keys: v transposed, and below it a row of ones and seven of zeros, so that the
//      product p v also gives the sum of p. The keys of each 16 stand in the order in which q k^T leaves them in
//      registers: p is never shuffled.
//
// A block is CONSUMERS warpgroups of 64 query rows each and one more that copies, through a ring of STAGES pairs: the keys
// of a tile and the values of the one before. Each consumer issues q k^T of the one and p v of the other together, and works
// on the softmax as soon as the scores are there; consumers take turns in issuing. A block that is done with its rows
// goes on with others from the list of items, whose first tiles are copied meanwhile.
//
// Products of 8-bit numbers are added up with 14 bits of significand: a sum over thousands of keys would lose what each
// tile adds. So the tensor cores add up a GROUP of tiles at a time, and the rest is added in f32. A group of tiles of
// values has one scale.
//
// Rows of the output have VALUE_COLUMNS numbers, those of the images VALUE_DIM: the others are zeros there.
//
// DIM, VALUE_COLUMNS, GROUP (tiles that the tensor cores add up before f32 does; they share a scale of values), OUT_FORMAT, CONSUMERS, STAGES
// are the host's (cuda/schedule.rs), and so is SHARED_BYTES, which it launches with. Of FEATURES,
//   TURNS     and CURVE are what they are there;
//   WINDOW    rows do not see keys before some place either: an item starts with the first tile that its rows see;
//   SINKS     a row's sum has the weight of its head's sink, a logit without a value (in the first part of the keys);
//   SEQUENCES rows and keys are those of packed sequences, each with tiles of its own: what a block works on, and sequences, come
//             after the list of items;
//   SOFT_CAP  scores become cap tanh(score / cap): f16 of at most 1, which all tiles multiply with one factor.
// Where they are 0, nothing of them is compiled.

constexpr Number OUT_NUMBER = (Number)OUT_FORMAT;
typedef Bits<OUT_NUMBER> Out;
static_assert(BARRIERS_AT + BARRIER_BYTES * (2 + 2 * STAGES) == SHARED_BYTES, "the host's shared memory");

// Scales and marks (marks.cuh) of the images, and the heads' sinks.
struct Beside {
    const f32 *q_scales, *k_scales, *v_scales, *sinks;
    const u8 *q_marks, *k_marks;
    const u32* v_marks;
};

// The item's tiles follow each other.
struct Where {
    const Beside& beside;
    const f32 *k_scales, *v_scales;
    const u32* v_marks;
};

GW_DEVICE f32 scale_of_keys(const Where& where, u32 t) { return gw::load_readonly(where.k_scales + t); }
GW_DEVICE f32 scale_of_values(const Where& where, u32 group) { return gw::load_readonly(where.v_scales + group); }
GW_DEVICE const u8* marks_of_queries(const Where& where, const Consumer& x) {
    return where.beside.q_marks + (u64)x.q_marks * QUERY_TILE;
}
GW_DEVICE const u8* marks_of_keys(const Where& where, u32 t) {
    return where.beside.k_marks + ((u64)(where.k_scales - where.beside.k_scales) + t) * KEY_TILE;
}
GW_DEVICE const u32* marks_of_values(const Where& where, u32 t) { return where.v_marks + t * VALUE_DIM; }
GW_DEVICE void prepare_value_scales(const Where&, u32, u32) {}
GW_DEVICE f32 value_scale(const Where& where, u32 t) { return scale_of_values(where, t / GROUP); }

// What a block works on at a time: rows of one head, and some of its keys.
struct Item {
    // Tiles count from first_tile, with which a group of values starts: from `start` up to `tiles`.
    u32 first_row, first_tile, start, tiles, split;
    u32 batch, head;
    u64 q_head, k_head;
    const PackedSequence* sequence;
};

// What an item's rows and keys are part of: a head, or a sequence of a head.
struct Extent {
    u32 rows, keys, key_tiles;
    i32 diagonal, first_diagonal;
    // The first tile of queries, of keys, and the first group of values; the first row in the output, and in the log-sum-exp.
    u64 q_tile, k_tile, v_group, output, lse;
};

GW_DEVICE Extent extent_of(const Item& item, const Problem& problem) {
    if constexpr (PACKED) {
        const PackedSequence sequence = *item.sequence;
        const i32 rows = (i32)sequence.rows, keys = (i32)sequence.keys;
        return {sequence.rows,
                sequence.keys,
                (sequence.keys + KEY_TILE - 1) / KEY_TILE,
                keys - rows + gw::lesser(problem.diagonal, rows),
                keys - rows - gw::lesser(problem.first_diagonal, keys),
                item.q_head * problem.query_tiles + sequence.query_tile,
                item.k_head * problem.key_tiles + sequence.key_tile,
                item.k_head * problem.value_groups + sequence.value_group,
                sequence.first_row * problem.row_stride,
                item.q_head * problem.rows + sequence.first_row};
    }
    const u32 value_groups = (problem.key_tiles + GROUP - 1) / GROUP;
    return {problem.rows,
            problem.keys,
            problem.key_tiles,
            problem.diagonal,
            problem.first_diagonal,
            item.q_head * problem.query_tiles,
            item.k_head * problem.key_tiles,
            item.k_head * value_groups,
            item.batch * problem.batch_stride,
            item.q_head * problem.rows};
}

GW_DEVICE Item item_at(const u32* items, u32 number, const Problem& problem) {
    Item item;
    if constexpr (PACKED) {
        const PackedWork work = reinterpret_cast<const PackedWork*>(items + problem.work_at)[number];
        item.sequence = reinterpret_cast<const PackedSequence*>(items + problem.sequences_at) + work.sequence;
        item.split = 0;
        item.q_head = work.head;
        item.first_row = work.first_row;
    } else {
        const u32 blocks = problem.query_tiles / CONSUMERS, rows_number = number / problem.splits;
        item.split = number % problem.splits;
        item.q_head = rows_number / blocks;
        item.first_row = (blocks - 1 - rows_number % blocks) * (QUERY_TILE * CONSUMERS);
    }
    item.batch = (u32)item.q_head / problem.heads;
    item.head = (u32)item.q_head % problem.heads;
    item.k_head = item.batch * problem.key_heads + item.head / (problem.heads / problem.key_heads);
    const Extent extent = extent_of(item, problem);
    const i32 seen = (i32)(item.first_row + QUERY_TILE * CONSUMERS) + extent.diagonal;
    const u32 tiles = seen <= 0 ? 0 : gw::lesser((u32)(seen + KEY_TILE - 1) / KEY_TILE, extent.key_tiles);
    const i32 unseen = WINDOW ? (i32)item.first_row + extent.first_diagonal : 0;
    const u32 from = unseen <= 0 ? 0 : (u32)unseen / KEY_TILE, base = from / GROUP * GROUP;
    item.first_tile = base + item.split * problem.split_tiles;
    item.start = item.split == 0 ? from - base : 0;
    item.tiles = tiles <= item.first_tile + item.start ? 0 : gw::lesser(tiles - item.first_tile, problem.split_tiles);
    return item;
}

// The block's next item from place i of the list on, or NO_ITEM.
GW_DEVICE u32 item_number(const u32* items, u32 i, const Problem& problem) {
    if (i >= problem.items) return NO_ITEM;
    return problem.items == gw::blocks_x() ? i : gw::load_readonly(items + i);
}

GW_DEVICE void produce(const u8* q, const u8* k, const u8* v, const u32* items, const Problem& problem) {
    const Barriers b = barriers();
    Place place = {0, 0};
    // A barrier that has not been used passes for the phase before its first.
    u32 q_phase = 1;
    for (u32 i = gw::block_x();; i += gw::blocks_x()) {
        const u32 number = item_number(items, i, problem);
        if (number == NO_ITEM) break;
        const Item item = item_at(items, number, problem);
        if (item.tiles == 0) continue;
        const Extent extent = extent_of(item, problem);
        const u64 first_tile = extent.k_tile + item.first_tile;
        const u8* from_k = k + first_tile * K_BYTES;
        const u8* from_v = v + first_tile * V_BYTES;
        gw::mbarrier_wait(b.q_empty, q_phase);
        q_phase ^= 1;
        gw::mbarrier_arrive_expect(b.q_full, CONSUMERS * Q_BYTES);
        gw::bulk_load(gw::shared<u8>(), q + (extent.q_tile + item.first_row / QUERY_TILE) * Q_BYTES,
                      CONSUMERS * Q_BYTES, b.q_full);
        for (u32 t = item.start; t <= item.tiles; ++t) {
            const bool has_keys = t < item.tiles, has_values = t > item.start;
            const u32 s = place.stage;
            gw::Mbarrier* full = b.full + s;
            gw::mbarrier_wait(b.empty + s, place.phase ^ 1);
            gw::mbarrier_arrive_expect(full, (has_keys ? K_BYTES : 0) + (has_values ? V_BYTES : 0));
            if (has_keys) gw::bulk_load(gw::shared<u8>(K_AT + s * K_BYTES), from_k + (u64)t * K_BYTES, K_BYTES, full);
            if (has_values) {
                gw::bulk_load(gw::shared<u8>(V_AT + s * V_BYTES), from_v + (u64)(t - 1) * V_BYTES, V_BYTES, full);
            }
            advance(place);
        }
    }
}

// A warpgroup's part of an item.
GW_DEVICE void attend(Consumer& x, u32 q_phase, const Beside& beside, const Problem& problem, const Item& item) {
    const Extent extent = extent_of(item, problem);
    const u64 q_tile = extent.q_tile + item.first_row / QUERY_TILE + x.group;
    const u64 k_tile = extent.k_tile + item.first_tile;
    const f32* v_scales = beside.v_scales + extent.v_group + item.first_tile / GROUP;
    const Where where = {beside, beside.k_scales + k_tile, v_scales, beside.v_marks + k_tile * VALUE_DIM};
    const f32 q_scale = gw::load_readonly(beside.q_scales + q_tile);
    // Keys from here on are relative to the item's first.
    const i32 end = (i32)extent.keys - 1 - (i32)(item.first_tile * KEY_TILE);
    const i32 diagonal = extent.diagonal - (i32)(item.first_tile * KEY_TILE);
    const i32 first_row = (i32)(item.first_row + QUERY_TILE * x.group), row = first_row + 16 * (gw::warp() % 4) + gw::lane() / 4;
    x.last[0] = gw::lesser(row + diagonal, end);
    x.last[1] = gw::lesser(row + 8 + diagonal, end);
    x.q_scale = 8.0f * problem.log2_scale * gw::absolute(q_scale);
    x.q_marks = is_marked(q_scale) ? (u32)q_tile : NO_MARKS;
    // Tiles of which the warpgroup's rows see anything, and those of which all of them see every key.
    const i32 seen = gw::lesser(first_row + (i32)QUERY_TILE - 1 + diagonal, end) + 1;
    Tiles tiles = {0, 0, (gw::lesser(first_row + diagonal, end) + 1) / (i32)KEY_TILE};
    tiles.end = seen <= 0 ? 0 : gw::lesser((u32)(seen + KEY_TILE - 1) / KEY_TILE, item.tiles);
    x.start = item.start;
    if (WINDOW) {
        const i32 first_diagonal = extent.first_diagonal - (i32)(item.first_tile * KEY_TILE);
        x.first[0] = row + first_diagonal;
        x.first[1] = row + 8 + first_diagonal;
        const i32 unseen = first_row + first_diagonal, all_see = unseen + (i32)(QUERY_TILE - 1 + KEY_TILE - 1);
        if (unseen > 0 && (u32)unseen / KEY_TILE > x.start) x.start = (u32)unseen / KEY_TILE;
        tiles.clear = all_see <= 0 ? 0 : all_see / (i32)KEY_TILE;
        if (tiles.end <= x.start) tiles.end = 0;
    }
    gw::mbarrier_wait(barriers().q_full, q_phase);
    if (tiles.end > 0) {
        if (WINDOW) skip_pairs(x, item.start, x.start);
        accumulate(x, where, tiles, {problem.cap, problem.cap_factor});
        skip_pairs(x, tiles.end + 1, item.tiles + 1);
    } else {
        release(barriers().q_empty);
        skip_pairs(x, item.start, item.tiles + 1);
    }
}

// Two neighbours of a row of the output, as far as it has them.
GW_DEVICE void store_columns(Out* to, u32 column, f32 left, f32 right) {
    if constexpr (VALUE_COLUMNS == VALUE_DIM) {
        store_pair<OUT_NUMBER>(to, left, right);
    } else if constexpr (VALUE_COLUMNS % 2 == 0) {
        if (column < VALUE_COLUMNS) store_pair<OUT_NUMBER>(to, left, right);
    } else {
        if (column < VALUE_COLUMNS) store<OUT_NUMBER>(to, left);
        if (column + 1 < VALUE_COLUMNS) store<OUT_NUMBER>(to + 1, right);
    }
}

// o <- the item's sums, normalised, and the log-sum-exp of its scores.
GW_DEVICE void finish(const Consumer& x, Out* o, f32* lse, u32 rows, const Problem& problem, const Item& item, const Beside& beside) {
    const u32 row = item.first_row + QUERY_TILE * x.group + 16 * (gw::warp() % 4) + gw::lane() / 4;
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        // Column VALUE_DIM of the product, the sum of p, is with the first lane of each four.
        Weight weight = {gw::shuffle(x.out[VALUE_DIM / 2 + 2 * half], gw::lane() & ~3u), x.rows.level[half], 1.0f};
        if (SINKS && item.split == 0) {
            const f32 sink = gw::load_readonly(beside.sinks + item.head);
            // Minus infinity is no sink.
            if (is_finite(sink)) weight = with_sink(weight.sum, weight.level, sink);
        }
        const f32 sum = weight.sum, scale = sum > 0.0f ? weight.correction / sum : 0.0f;
        if (row + 8 * half >= rows) continue;
        const u32 first = 2 * (gw::lane() % 4);
        Out* line = o + (u64)(row + 8 * half) * problem.row_stride + first;
        GW_UNROLL
        for (u32 j = 0; j < VALUE_DIM / 8; ++j) {
            store_columns(line + 8 * j, first + 8 * j, x.out[4 * j + 2 * half] * scale, x.out[4 * j + 2 * half + 1] * scale);
        }
        if (gw::lane() % 4 == 0) {
            lse[row + 8 * half] = log_of(weight);
        }
    }
}

GW_DEVICE void consume(const Beside& beside, const u32* items, Out* o, f32* lse, const Problem& problem) {
    Consumer x;
    // The same in all lanes, and the compiler should know.
    x.group = gw::shuffle(gw::warp() / 4, 0);
    x.q_operand = gw::wgmma_descriptor(gw::shared<u8>(x.group * Q_BYTES), SWIZZLE, 8 * PANEL);
    x.k_operand = gw::wgmma_descriptor(gw::shared<u8>(K_AT), SWIZZLE, 8 * PANEL);
    x.v_operand = gw::wgmma_descriptor(gw::shared<u8>(V_AT), gw::SWIZZLE_128, 1024);
    x.place = {0, 0};
    u32 q_phase = 0;
    // The last consumer lets the first begin.
    if (x.group == CONSUMERS - 1) pass_turn(x.group);
    for (u32 i = gw::block_x();; i += gw::blocks_x()) {
        const u32 number = item_number(items, i, problem);
        if (number == NO_ITEM) break;
        const Item item = item_at(items, number, problem);
        clear(x);
        if (item.tiles > 0) {
            attend(x, q_phase, beside, problem, item);
            q_phase ^= 1;
        }
        const Extent extent = extent_of(item, problem);
        finish(x, o + item.split * problem.split_stride + extent.output + item.head * problem.head_stride,
               lse + item.split * problem.split_lse_stride + extent.lse, extent.rows, problem, item, beside);
    }
    // The turn that the last consumer passed last.
    if (x.group == 0) take_turn(0);
}

GW_KERNEL_BOUNDED(attention, THREADS, BlockForm::resident)
(const u8* q, const u8* k, const u8* v, const f32* q_scales, const f32* k_scales, const f32* v_scales, const u8* q_marks,
 const u8* k_marks, const u32* v_marks, const f32* sinks, const u32* items, Out* o, f32* lse, Problem problem) {
    if (gw::thread() == 0) {
        const Barriers b = barriers();
        gw::mbarrier_init(b.q_full, 1);
        gw::mbarrier_init(b.q_empty, 4 * CONSUMERS);
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(b.full + s, 1);
            gw::mbarrier_init(b.empty + s, 4 * CONSUMERS);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    gw::await_stream();
    gw::admit_next();

    if (gw::warp() >= 4 * CONSUMERS) {
        gw::registers_release<BlockForm::producer_registers>();
        if (gw::thread() == WARPGROUP * CONSUMERS) produce(q, k, v, items, problem);
    } else {
        gw::registers_acquire<BlockForm::consumer_registers>();
        consume({q_scales, k_scales, v_scales, sinks, q_marks, k_marks, v_marks}, items, o, lse, problem);
    }
}
