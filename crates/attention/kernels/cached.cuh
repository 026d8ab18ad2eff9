#include "consumer.cuh"
#include "images.cuh"
#include "parts.cuh"

// o <- softmax(scale q k^T + mask) v of the last rows of sequences over keys and values that lie in pages of a cache, in one launch.
//
// All query heads of a key head see the same keys. Their rows are *packed*: row r of head h of a group of G is packed row G r + h, and a
// warpgroup's tile is 64 of those. So one row of each of 4 heads reads keys and values once, and 16 rows do too. A block
// quantises its queries itself, a tile with one scale.
//
// An *item* is a block of packed rows of one sequence and key head over a part of its keys. Up to 16 rows, parts are 8 pages each,
// counted from the first key: they depend on the sequence alone. More rows have one part. Where there are several, each block writes
// what its part gives, and the one that is done last combines all of them, in their order.
//
// Floor: one row of each of G heads over n keys reads n (2 DIM + 8) bytes of images and computes 4 G n DIM useful operations: with
// G of 4, 8 operations a byte. The tensor cores do 64 rows all the same, 128 operations a byte, at a seventh of what an H200's
// would have time for while memory delivers: copies bound it. STAGES pairs of pages are in flight.
//
// Pages (made by append.cuh): images, scales and marks are [page, key head]. The plan says which items there are, and which pages
// sequences have; it lies in memory, so that a graph that was captured once attends whatever the plan says. FEATURES and the rest are
// as in attention.cuh; GROUP is 1, since a page has its own scale of values.

constexpr Number OUT_NUMBER = (Number)OUT_FORMAT;
typedef Bits<OUT_NUMBER> Out;
static_assert(GROUP == 1, "a page of values has a scale of its own");
static_assert(VALUE_DIM == DIM, "a cache has values as long as its keys");
constexpr u32 CONSUMER_THREADS = WARPGROUP * CONSUMERS;
constexpr u32 BLOCK_ROWS = QUERY_TILE * CONSUMERS;
// Shared memory after the barriers: a word a warp for two reductions, the marks of queries, whether this block is the last, scales of
// values of 32 tiles a warp.
constexpr u32 WORDS_AT = BARRIERS_AT + BARRIER_BYTES * (2 + 2 * STAGES);
constexpr u32 MARKS_AT = WORDS_AT + 2 * sizeof(u32) * CONSUMER_THREADS / 32;
constexpr u32 LAST_AT = MARKS_AT + BLOCK_ROWS;
constexpr u32 SCALES_AT = LAST_AT + CACHED_FLAG_BYTES;
static_assert(SCALES_AT + sizeof(f32) * CONSUMER_THREADS == SHARED_BYTES, "the host's shared memory");
// Two consumers take 8 registers each from the warpgroup that copies: they also find pages.
constexpr u32 MOVED_REGISTERS = CONSUMERS == 2 ? 8 : 0;
// Named barriers after those of the turns: one a consumer, and one of all.
constexpr u32 CONSUMER_BARRIER = 4, CONSUMERS_BARRIER = 8;

// The plan, and where what pages hold lies.
struct Where {
    const u32* plan;
    const CacheProblem& problem;
    const u8 *k_images, *v_images;
    const f32 *k_scales, *v_scales;
    const u8* k_marks;
    const u32* v_marks;
};

GW_DEVICE const CachedItem& item_of(const Where& where) {
    return reinterpret_cast<const CachedItem*>(where.plan + where.problem.items_at)[gw::block_x()];
}
GW_DEVICE const CachedSequence& sequence_of(const Where& where) {
    return reinterpret_cast<const CachedSequence*>(where.plan + where.problem.sequences_at)[item_of(where).sequence];
}
// The item's pages, found anew each time: scales are read before the loop and every 32 tiles of it, whose registers are all in use.
GW_DEVICE const u32* pages_of(const Where& where) {
    return where.plan + where.problem.tables_at + sequence_of(where).table + item_of(where).first_page;
}
GW_DEVICE u64 tile_of(u32 page, const Where& where) { return (u64)page * where.problem.key_heads + gw::block_y(); }
GW_DEVICE u64 tile_at(const Where& where, u32 t) { return tile_of(pages_of(where)[t], where); }
GW_DEVICE f32 scale_of_keys(const Where& where, u32 t) { return gw::load_readonly(where.k_scales + tile_at(where, t)); }
GW_DEVICE f32 scale_of_values(const Where& where, u32 t) { return gw::load_readonly(where.v_scales + tile_at(where, t)); }
GW_DEVICE const u8* marks_of_queries(const Where&, const Consumer& x) { return gw::shared<u8>(MARKS_AT + x.group * QUERY_TILE); }
GW_DEVICE const u8* marks_of_keys(const Where& where, u32 t) { return where.k_marks + tile_at(where, t) * KEY_TILE; }
GW_DEVICE const u32* marks_of_values(const Where& where, u32 t) { return where.v_marks + tile_at(where, t) * DIM; }
// The warp's 32 words hold the scale of tile t - 1 at place t % 32: memory would answer too late in each step.
GW_DEVICE f32* value_scales() { return gw::shared<f32>(SCALES_AT) + 32 * gw::warp(); }
GW_DEVICE void prepare_value_scales(const Where& where, u32 t, u32 end) {
    const u32 place = t + gw::lane();
    const f32 scale = scale_of_values(where, place == 0 ? 0 : gw::lesser(place - 1, end - 1));
    gw::sync_warp();
    value_scales()[gw::lane()] = scale;
    gw::sync_warp();
}
GW_DEVICE f32 value_scale(const Where&, u32 t) { return value_scales()[(t + 1) % 32]; }

// What a block works on.
struct Work {
    CachedItem item;
    CachedSequence sequence;
    // Query heads of a key head, packed rows of the sequence, rows of all sequences.
    u32 group, packed, all_rows;
};

GW_DEVICE Work work_at(const Where& where) {
    const u32 group = where.problem.heads / where.problem.key_heads;
    const CachedSequence sequence = sequence_of(where);
    return {item_of(where), sequence, group, sequence.rows * group, where.plan[PLAN_ROWS]};
}

// A warpgroup's queries, quantised by its threads.
struct Queries {
    static constexpr u32 THREADS = WARPGROUP, WIDTH = DIM;
    const In* q;
    const CacheProblem& problem;
    const Work& work;
    u32 consumer, first;

    GW_DEVICE u32 thread() const { return gw::thread() % WARPGROUP; }
    GW_DEVICE void load(u32 row, u32 column, f32 (&run)[RUN]) const {
        const u32 packed = first + row;
        const u64 line = (u64)(work.sequence.first_row + packed / work.group) * problem.heads + gw::block_y() * work.group + packed % work.group;
        load_neighbours<IN_NUMBER>(q + line * DIM + column, packed < work.packed, run);
    }
    GW_DEVICE f32 largest(f32 value, u32 reduction) const {
        u32* words = gw::shared<u32>(WORDS_AT) + consumer * (2 * WARPGROUP / 32);
        return largest_over<THREADS>(value, gw::warp() % 4, words, reduction, [&] { meet(); });
    }
    GW_DEVICE void meet() const { gw::barrier_sync(CONSUMER_BARRIER + consumer, WARPGROUP); }
};

GW_DEVICE void produce(const Where& where, u32 tiles) {
    const Barriers b = barriers();
    Place place = {0, 0};
    const u32* pages = pages_of(where);
    u64 tile = 0;
    for (u32 t = 0; t <= tiles; ++t) {
        const bool has_keys = t < tiles, has_values = t > 0;
        const u64 before = tile;
        if (has_keys) tile = tile_of(gw::load_readonly(pages + t), where);
        const u32 s = place.stage;
        gw::Mbarrier* full = b.full + s;
        gw::mbarrier_wait(b.empty + s, place.phase ^ 1);
        gw::mbarrier_arrive_expect(full, (has_keys ? K_BYTES : 0) + (has_values ? V_BYTES : 0));
        if (has_keys) gw::bulk_load(gw::shared<u8>(K_AT + s * K_BYTES), where.k_images + tile * K_BYTES, K_BYTES, full);
        if (has_values) gw::bulk_load(gw::shared<u8>(V_AT + s * V_BYTES), where.v_images + before * V_BYTES, V_BYTES, full);
        advance(place);
    }
}

// A warpgroup's rows over the item's pages. Keys are relative to the first of these.
GW_DEVICE void attend(Consumer& x, const Where& where, const Work& work, const CacheProblem& problem) {
    const u32 first = work.item.tile * BLOCK_ROWS + QUERY_TILE * x.group;
    const i32 base = (i32)(work.item.first_page * KEY_TILE), end = (i32)work.sequence.keys - 1 - base;
    const i32 place = (i32)work.sequence.keys - (i32)work.sequence.rows - base;
    const i32 diagonal = place + gw::lesser(problem.right, (i32)work.sequence.rows);
    const u32 last_packed = work.packed - 1;
    const i32 first_row = (i32)(first / work.group), last_row = (i32)(gw::lesser(first + QUERY_TILE - 1, last_packed) / work.group);
    const u32 packed = first + 16 * (gw::warp() % 4) + gw::lane() / 4;
    const i32 rows[2] = {(i32)(gw::lesser(packed, last_packed) / work.group), (i32)(gw::lesser(packed + 8, last_packed) / work.group)};
    x.last[0] = gw::lesser(rows[0] + diagonal, end);
    x.last[1] = gw::lesser(rows[1] + diagonal, end);
    const i32 seen = gw::lesser(last_row + diagonal, end) + 1;
    Tiles tiles = {0, 0, (gw::lesser(first_row + diagonal, end) + 1) / (i32)KEY_TILE};
    tiles.end = seen <= 0 || first > last_packed ? 0 : gw::lesser((u32)(seen + KEY_TILE - 1) / KEY_TILE, work.item.pages);
    x.start = 0;
    if (WINDOW) {
        const i32 first_diagonal = place - gw::lesser(problem.left, (i32)work.sequence.keys);
        x.first[0] = rows[0] + first_diagonal;
        x.first[1] = rows[1] + first_diagonal;
        const i32 unseen = first_row + first_diagonal, all_see = last_row + first_diagonal + (i32)(KEY_TILE - 1);
        if (unseen > 0) x.start = (u32)unseen / KEY_TILE;
        tiles.clear = all_see <= 0 ? 0 : all_see / (i32)KEY_TILE;
        if (tiles.end <= x.start) tiles.end = 0;
    }
    if (tiles.end > 0) {
        if (WINDOW) skip_pairs(x, 0, x.start);
        accumulate(x, where, tiles, {problem.cap, problem.cap_factor});
        skip_pairs(x, tiles.end + 1, work.item.pages + 1);
    } else {
        skip_pairs(x, 0, work.item.pages + 1);
    }
}

// Where a packed row's output lies, and its log-sum-exp.
struct Line {
    u64 output, lse;
    u32 head;
};

GW_DEVICE Line line_of(u32 packed, const Work& work, const CacheProblem& problem) {
    const u32 row = work.sequence.first_row + packed / work.group, head = gw::block_y() * work.group + packed % work.group;
    return {((u64)row * problem.heads + head) * DIM, (u64)head * work.all_rows + row, head};
}

// The row of the item's part among those of all parts.
GW_DEVICE u64 part_row(u32 part, u32 row, const Work& work, const CacheProblem& problem) {
    return ((u64)(work.item.first_part + part) * problem.key_heads + gw::block_y()) * BLOCK_ROWS + row;
}

// The item's sums, normalised, and the log-sum-exp of its scores: the output if there is but one part.
GW_DEVICE void finish(const Consumer& x, const f32* sinks, f32* parts, f32* parts_lse, Out* o, f32* lse, const Work& work,
                      const CacheProblem& problem) {
    const u32 row = QUERY_TILE * x.group + 16 * (gw::warp() % 4) + gw::lane() / 4;
    GW_UNROLL
    for (u32 half = 0; half < 2; ++half) {
        Weight weight = {gw::shuffle(x.out[DIM / 2 + 2 * half], gw::lane() & ~3u), x.rows.level[half], 1.0f};
        const u32 packed = work.item.tile * BLOCK_ROWS + row + 8 * half;
        if (packed >= work.packed) continue;
        const Line line = line_of(packed, work, problem);
        if (SINKS && work.item.part == 0) {
            const f32 sink = gw::load_readonly(sinks + line.head);
            // Minus infinity is no sink.
            if (is_finite(sink)) weight = with_sink(weight.sum, weight.level, sink);
        }
        const f32 scale = weight.sum > 0.0f ? weight.correction / weight.sum : 0.0f;
        const u64 of_part = part_row(work.item.part, row + 8 * half, work, problem);
        GW_UNROLL
        for (u32 j = 0; j < DIM / 8; ++j) {
            const u32 column = 8 * j + 2 * (gw::lane() % 4);
            const f32 left = x.out[4 * j + 2 * half] * scale, right = x.out[4 * j + 2 * half + 1] * scale;
            if (work.item.parts == 1) store_pair<OUT_NUMBER>(o + line.output + column, left, right);
            else store_pair<Number::F32>(parts + of_part * DIM + column, left, right);
        }
        if (gw::lane() % 4 == 0) *(work.item.parts == 1 ? lse + line.lse : parts_lse + of_part) = log_of(weight);
    }
}

// Whether this block's part is the last that is done: then all of them can be read.
GW_DEVICE bool is_last(u32* counters, const Work& work, const CacheProblem& problem) {
    u32* last = gw::shared<u32>(LAST_AT);
    gw::barrier_sync(CONSUMERS_BARRIER, CONSUMER_THREADS);
    if (gw::thread() == 0) {
        // Counts from 0 to the number of parts, and is 0 again for the next launch.
        u32* counter = counters + work.item.counter * problem.key_heads + gw::block_y();
        *last = gw::atomic_inc<gw::Order::AcquireRelease>(counter, work.item.parts - 1) == work.item.parts - 1;
    }
    gw::barrier_sync(CONSUMERS_BARRIER, CONSUMER_THREADS);
    return *last;
}

// The output of a warp's rows `own`, `own + WARPS`, ... of the tile, ROWS at most, from what all parts gave.
template <u32 ROWS>
GW_DEVICE void combine(const f32* parts, const f32* parts_lse, Out* o, f32* lse, u32 own, u32 rows, const Work& work,
                       const CacheProblem& problem) {
    constexpr u32 WARPS = CONSUMER_THREADS / 32;
    typedef Combined<DIM, ROWS> Rows;
    const u32 there = gw::lesser((rows - own + WARPS - 1) / WARPS, ROWS);
    const auto place = [&](u32 i, u32 part) { return part_row(part, own + i * WARPS, work, problem); };
    Rows combined;
    combined.take(parts, parts_lse, work.item.parts, there, place, ReadPlainly{});
    GW_UNROLL
    for (u32 i = 0; i < ROWS; ++i) {
        if (i >= there) break;
        const Line line = line_of(work.item.tile * BLOCK_ROWS + own + i * WARPS, work, problem);
        GW_UNROLL
        for (u32 j = 0; j < Rows::PER_LANE; ++j) store<OUT_NUMBER>(o + line.output + Rows::column(j), combined.value(i, j));
        if (gw::lane() == 0) lse[line.lse] = combined.log_sum(i);
    }
}

// Of all rows of the tile, which are dealt to warps one by one, so that few are on many warps. Four at a time, but one alone: it would
// wait for the code of three.
GW_DEVICE void combine(const f32* parts, const f32* parts_lse, Out* o, f32* lse, const Work& work, const CacheProblem& problem) {
    constexpr u32 WARPS = CONSUMER_THREADS / 32;
    const u32 rows = gw::lesser(BLOCK_ROWS, work.packed - work.item.tile * BLOCK_ROWS);
    if (rows <= WARPS) {
        if (gw::warp() < rows) combine<1>(parts, parts_lse, o, lse, gw::warp(), rows, work, problem);
        return;
    }
    for (u32 own = gw::warp(); own < rows; own += 4 * WARPS) combine<4>(parts, parts_lse, o, lse, own, rows, work, problem);
}

GW_DEVICE void consume(const In* q, const Where& where, const f32* sinks, f32* parts, f32* parts_lse, u32* counters, Out* o, f32* lse) {
    const CacheProblem& problem = where.problem;
    Work work = work_at(where);
    Consumer x;
    // The same in all lanes, and the compiler should know.
    x.group = gw::shuffle(gw::warp() / 4, 0);
    u8* image = gw::shared<u8>(x.group * Q_BYTES);
    u8* marks = gw::shared<u8>(MARKS_AT + x.group * QUERY_TILE);
    const Queries queries = {q, problem, work, x.group, work.item.tile * BLOCK_ROWS + QUERY_TILE * x.group};
    const Quantised made = quantise_rows<QUERY_TILE>(queries, problem.limit, image, marks);
    // What the threads wrote is read by products, and marks by each other.
    gw::fence_async_proxy_shared();
    queries.meet();
    x.q_scale = 8.0f * problem.log2_scale * gw::absolute(scale_of(made, 1.0f));
    x.q_marks = made.marked ? 0 : NO_MARKS;
    x.q_operand = gw::wgmma_descriptor(image, SWIZZLE, 8 * PANEL);
    x.k_operand = gw::wgmma_descriptor(gw::shared<u8>(K_AT), SWIZZLE, 8 * PANEL);
    x.v_operand = gw::wgmma_descriptor(gw::shared<u8>(V_AT), gw::SWIZZLE_128, 1024);
    x.place = {0, 0};
    clear(x);
    // The last consumer lets the first begin.
    if (x.group == CONSUMERS - 1) pass_turn(x.group);
    if (work.item.pages > 0) attend(x, where, work, problem);
    // The turn that the last consumer passed last.
    if (x.group == 0) take_turn(0);
    // Read again: registers that would keep it through the loop are wanted there.
    work = work_at(where);
    finish(x, sinks, parts, parts_lse, o, lse, work, problem);
    if (work.item.parts > 1 && is_last(counters, work, problem)) combine(parts, parts_lse, o, lse, work, problem);
}

// Blocks in x: the items of the plan, and none past its last. Blocks in y: key heads.
GW_KERNEL_BOUNDED(cached, THREADS, BlockForm::resident)
(const In* q, const u8* k_images, const u8* v_images, const f32* k_scales, const f32* v_scales, const u8* k_marks, const u32* v_marks,
 const f32* sinks, const u32* plan, f32* parts, f32* parts_lse, u32* counters, Out* o, f32* lse, CacheProblem problem) {
    if (gw::thread() == 0) {
        const Barriers b = barriers();
        // Nobody waits for the queries' barriers; consumers still arrive.
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
    if (gw::block_x() >= gw::load_readonly(plan + PLAN_ITEMS)) return;
    const Where where = {plan, problem, k_images, v_images, k_scales, v_scales, k_marks, v_marks};
    if (gw::warp() >= 4 * CONSUMERS) {
        gw::registers_release<BlockForm::producer_registers - 2 * MOVED_REGISTERS>();
        const u32 pages = item_of(where).pages;
        if (gw::thread() == CONSUMER_THREADS && pages > 0) produce(where, pages);
    } else {
        gw::registers_acquire<BlockForm::consumer_registers + MOVED_REGISTERS>();
        consume(q, where, sinks, parts, parts_lse, counters, o, lse);
    }
}
