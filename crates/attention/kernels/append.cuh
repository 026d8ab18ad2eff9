#include "images.cuh"

// Rows of keys and values go into pages of a cache, whose images are made anew.
//
// A page is 128 keys of every key head. Of each head it has what consumer.cuh reads: an image of keys and one of values, a scale for
// each, and marks. A page that is not full is *open*: beside its images its rows are kept in f16, so that each append quantises
// numbers that were never quantised before. A page that is full is quantised for good. Rows are rounded to f16 first, so that
// n rows at once and n single rows give the same bytes.
//
// Of a head of a page with r rows, an append reads r rows (those from before in f16), and writes both images, 2 x 128 x DIM bytes
// and 1024 for the sums of weights, and the new rows in f16. It is a block for the keys and one for the values.
//
// Open pages: [place, head, keys or values, row, DIM] in f16. IN_FORMAT is the format of the rows that come in, [row, head, DIM].

static_assert(VALUE_DIM == DIM && PANEL == DIM, "a cache has values as long as its keys, of one panel");
constexpr u32 THREADS = QUANTISE_THREADS;
constexpr u32 OPEN_ELEMENTS = KEY_TILE * DIM;
constexpr u32 K_BYTES = KEY_TILE * DIM;
constexpr u32 V_BYTES = (DIM + SUM_ROWS) * KEY_TILE;

// A head's rows of a page: those that were kept, then those that come.
struct PageRows {
    static constexpr u32 THREADS = QUANTISE_THREADS, WIDTH = DIM;
    const u16* kept;
    const In* added;
    u64 stride;
    u32 first_added, rows;

    GW_DEVICE u32 thread() const { return gw::thread(); }
    GW_DEVICE bool has(u32 row) const { return row < rows; }
    GW_DEVICE void load(u32 row, u32 column, f32 (&run)[RUN]) const {
        if (row < first_added) {
            load_neighbours<Number::F16>(kept + row * DIM + column, true, run);
            return;
        }
        load_neighbours<IN_NUMBER>(added + (row - first_added) * stride + column, has(row), run);
        GW_UNROLL
        for (u32 i = 0; i < RUN; ++i) run[i] = gw::f16_to_f32(gw::f32_to_f16(run[i]));
    }
    GW_DEVICE f32 number(u32 row, u32 column) const {
        if (row < first_added) return gw::f16_to_f32(kept[row * DIM + column]);
        return gw::f16_to_f32(gw::f32_to_f16(number_at<IN_NUMBER>(added + (row - first_added) * stride + column)));
    }
    GW_DEVICE f32 largest(f32 value, u32 reduction) const {
        static_assert(2 * THREADS / 32 * sizeof(u32) <= QUANTISE_WORDS_BYTES, "words of both reductions");
        return largest_over<THREADS>(value, gw::warp(), gw::shared<u32>(), reduction, [] { gw::sync_threads(); });
    }
};

// Shared memory: the words of reductions, and at byte QUANTISE_WORDS_BYTES the codes of values.
GW_DEVICE Quantised quantise_values(const PageRows& source, u8* image, u32* marks) {
    constexpr u32 RUNS = VALUE_RUNS / THREADS;
    f32 runs[RUNS][RUN], largest = 0.0f;
    GW_UNROLL
    for (u32 i = 0; i < RUNS; ++i) {
        load_of(source, gw::thread() + i * THREADS, runs[i]);
        largest = gw::maximum_or_nan(largest, largest_of(runs[i]));
    }
    largest = source.largest(largest, 0);
    const bool marked = !is_finite(largest);
    if (marked) largest = source.largest(mark_values(source, marks), 1);
    const f32 factor = factor_for(largest, LARGEST_CODE);
    u8* codes = gw::shared<u8>(QUANTISE_WORDS_BYTES);
    if (marked) {
        encode_marked(source, codes, factor);
    } else {
        GW_UNROLL
        for (u32 i = 0; i < RUNS; ++i) gw::store_128(codes + (gw::thread() + i * THREADS) * RUN, encode(runs[i], factor));
    }
    gw::sync_threads();
    write_transposed<THREADS>(gw::shared<u32>(QUANTISE_WORDS_BYTES), image);
    return {factor, marked};
}

// Keeps rows from `first` on in f16.
GW_DEVICE void keep(const PageRows& source, u32 first, u16* to) {
    f32 numbers[RUN];
    for (u32 run = first * (DIM / RUN) + gw::thread(); run < source.rows * (DIM / RUN); run += THREADS) {
        load_of(source, run, numbers);
        GW_UNROLL
        for (u32 i = 0; i < RUN; i += 8) {
            gw::store_128(to + run * RUN + i, {gw::f32_to_f16x2(numbers[i], numbers[i + 1]), gw::f32_to_f16x2(numbers[i + 2], numbers[i + 3]),
                                               gw::f32_to_f16x2(numbers[i + 4], numbers[i + 5]), gw::f32_to_f16x2(numbers[i + 6], numbers[i + 7])});
        }
    }
}

// Blocks in x: keys and values of each append of the plan, and none past its last. Blocks in y: key heads.
GW_KERNEL_BOUNDED(append, THREADS, 2)
(const In* k, const In* v, u8* k_images, u8* v_images, f32* k_scales, f32* v_scales, u8* k_marks, u32* v_marks, u16* open,
 const u32* plan, CacheShape shape) {
    gw::await_stream();
    gw::admit_next();
    const u32 number = gw::block_x() / 2, head = gw::block_y(), is_values = gw::block_x() % 2;
    if (number >= gw::load_readonly(plan + PLAN_APPENDS)) return;
    const AppendItem item = reinterpret_cast<const AppendItem*>(plan + shape.appends_at)[number];
    const u64 tile = (u64)item.page * shape.key_heads + head;
    const auto open_at = [&](u32 place) { return open + (((u64)place * shape.key_heads + head) * 2 + is_values) * OPEN_ELEMENTS; };
    const u64 stride = (u64)shape.key_heads * DIM;
    const PageRows source = {item.kept > 0 ? open_at(item.from) : nullptr, (is_values ? v : k) + item.first_row * stride + head * DIM,
                             stride, item.kept, item.kept + item.added};
    if (is_values) {
        const Quantised made = quantise_values(source, v_images + tile * V_BYTES, v_marks + tile * DIM);
        if (gw::thread() == 0) v_scales[tile] = scale_of(made, 1.0f);
    } else {
        const Quantised made = quantise_rows<KEY_TILE>(source, shape.limit, k_images + tile * K_BYTES, k_marks + tile * KEY_TILE);
        if (gw::thread() == 0) k_scales[tile] = scale_of(made, 1.0f);
    }
    if (item.to != NO_PLACE) keep(source, item.from == item.to ? item.kept : 0, open_at(item.to));
}

// Where a key's byte stands in a row of a tile of values: `key_at` undone.
GW_DEVICE u32 place_of(u32 key) {
    const u32 n = key % 16;
    return key - n + 4 * (n % 8 / 2) + 2 * (n / 8) + n % 2;
}

// The first rows of full pages as rows in f16 again: the values of their codes. Of values that are not finite between the first and the
// last key of a column, marks say nothing; they become zeros.
// Blocks in x: pages. Blocks in y: key heads.
GW_KERNEL_BOUNDED(reopen, THREADS, 2)
(const u8* k_images, const u8* v_images, const f32* k_scales, const f32* v_scales, const u8* k_marks, const u32* v_marks, u16* open,
 const ReopenItem* items, CacheShape shape) {
    gw::await_stream();
    gw::admit_next();
    const ReopenItem item = items[gw::block_x()];
    const u32 head = gw::block_y();
    const u64 tile = (u64)item.page * shape.key_heads + head;
    u16* rows = open + ((u64)item.to * shape.key_heads + head) * (2 * OPEN_ELEMENTS);
    const f32 k_scale = gw::load_readonly(k_scales + tile), v_scale = gw::load_readonly(v_scales + tile);
    for (u32 i = gw::thread(); i < item.kept * DIM; i += THREADS) {
        const u32 row = i / DIM, column = i % DIM;
        const f32 key = widen<Number::E4m3>(k_images[tile * K_BYTES + gw::swizzled(i, SWIZZLE)]);
        const bool unbounded = is_marked(k_scale) && k_marks[tile * KEY_TILE + row] != 0 && key != 0.0f;
        rows[i] = gw::f32_to_f16(unbounded ? addend(key > 0.0f ? ColumnMark::INFINITY_ABOVE : ColumnMark::INFINITY_BELOW)
                                           : key * gw::absolute(k_scale));
        const f32 value = widen<Number::E4m3>(v_images[tile * V_BYTES + gw::swizzled(column * KEY_TILE + place_of(row), gw::SWIZZLE_128)]);
        const ColumnMark finite = {ColumnMark::FINITE, 0, 0};
        const ColumnMark mark = is_marked(v_scale) ? from_word(gw::load_readonly(v_marks + tile * DIM + column)) : finite;
        const bool not_finite = mark.kind != ColumnMark::FINITE && (row == mark.first || row == mark.last);
        rows[OPEN_ELEMENTS + i] = gw::f32_to_f16(not_finite ? addend(mark.kind) : value * gw::absolute(v_scale));
    }
}
