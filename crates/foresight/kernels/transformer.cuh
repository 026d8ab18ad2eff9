#include "four.cuh"
#include "functions.cuh"
#include "shared.cuh"

// What a transformer's step has beside its products, on rows of numbers. No float is added atomically: sums are the same bits
// under every schedule. All of these wait for memory.
//
// A warp a row unless something else is said; a lane takes every 32nd number of it, and lanes are added up in a tree.

constexpr u32 WARPS = REDUCE_THREADS / 32;

GW_DEVICE f32 over_warp(f32 value) {
    GW_UNROLL
    for (u32 lanes = 16; lanes > 0; lanes /= 2) value = value + gw::shuffle_xor(value, lanes);
    return value;
}

GW_DEVICE u32 own_row() { return gw::block_x() * WARPS + gw::warp(); }

// y <- bf16((x - mean) scale gain + shift) with scale = 1 / sqrt(variance + e). gains: gains, then shifts. moments: [row] mean, scale.
GW_KERNEL_BOUNDED(normalise, REDUCE_THREADS, 4)(const f32* x, const f32* gains, u16* y, f32* moments, u32 rows, u32 width) {
    const u32 row = own_row();
    if (row >= rows) return;
    x += (u64)row * width;
    y += (u64)row * width;
    f32 sum = 0.0f, squares = 0.0f;
    for (u32 i = gw::lane(); i < width; i += 32) sum += x[i];
    const f32 mean = over_warp(sum) / (f32)width;
    for (u32 i = gw::lane(); i < width; i += 32) squares = gw::fma(x[i] - mean, x[i] - mean, squares);
    const f32 scale = 1.0f / gw::sqrt(over_warp(squares) / (f32)width + NORM_EPSILON);
    for (u32 i = gw::lane(); i < width; i += 32) {
        y[i] = gw::f32_to_bf16(gw::fma((x[i] - mean) * scale, gains[i], gains[width + i]));
    }
    if (gw::lane() == 0) {
        moments[2 * row] = mean;
        moments[2 * row + 1] = scale;
    }
}

// dx <- dx + (g - mean(g) - n mean(g n)) scale with g = dy gain and n = (x - mean) scale.
GW_KERNEL_BOUNDED(normalise_back, REDUCE_THREADS, 4)(const f32* x, const f32* gains, const f32* moments, const f32* dy,
                                                     f32* dx, u32 rows, u32 width) {
    const u32 row = own_row();
    if (row >= rows) return;
    x += (u64)row * width;
    dy += (u64)row * width;
    dx += (u64)row * width;
    const f32 mean = moments[2 * row], scale = moments[2 * row + 1];
    f32 whole = 0.0f, along = 0.0f;
    for (u32 i = gw::lane(); i < width; i += 32) {
        const f32 g = dy[i] * gains[i];
        whole += g;
        along = gw::fma(g, (x[i] - mean) * scale, along);
    }
    whole = over_warp(whole) / (f32)width;
    along = over_warp(along) / (f32)width;
    for (u32 i = gw::lane(); i < width; i += 32) {
        const f32 n = (x[i] - mean) * scale;
        dx[i] += (dy[i] * gains[i] - whole - n * along) * scale;
    }
}

// Sums over the rows of a chunk, a lane a column: warps take every WARPS-th row, and are added up in order.
// partials: [chunk, place, column]. `of(row, column, values)` gives a row's values of a column.
template <u32 PLACES, class Of>
GW_DEVICE void columns(f32* partials, u32 rows, u32 width, u32 chunk_rows, Of of) {
    f32* of_warps = gw::shared<f32>();
    const u32 column = gw::block_x() * 32 + gw::lane();
    const u32 from = gw::block_y() * chunk_rows;
    const u32 end = from + chunk_rows < rows ? from + chunk_rows : rows;
    f32 sums[PLACES];
    GW_UNROLL
    for (u32 place = 0; place < PLACES; ++place) sums[place] = 0.0f;
    if (column < width) {
        for (u32 row = from + gw::warp(); row < end; row += WARPS) {
            f32 values[PLACES];
            of(row, column, values);
            GW_UNROLL
            for (u32 place = 0; place < PLACES; ++place) sums[place] += values[place];
        }
    }
    GW_UNROLL
    for (u32 place = 0; place < PLACES; ++place) of_warps[(place * WARPS + gw::warp()) * 32 + gw::lane()] = sums[place];
    gw::sync_threads();
    if (gw::warp() >= PLACES || column >= width) return;
    f32 sum = 0.0f;
    for (u32 warp = 0; warp < WARPS; ++warp) sum += of_warps[(gw::warp() * WARPS + warp) * 32 + gw::lane()];
    partials[((u64)gw::block_y() * PLACES + gw::warp()) * width + column] = sum;
}

// Gradients of gains, sum of dy n, and of shifts, sum of dy.
GW_KERNEL_BOUNDED(normalise_sums, REDUCE_THREADS, 4)(const f32* x, const f32* moments, const f32* dy, f32* partials, u32 rows,
                                                     u32 width, u32 chunk_rows) {
    columns<2>(partials, rows, width, chunk_rows, [&](u32 row, u32 column, f32 (&values)[2]) {
        const u64 at = (u64)row * width + column;
        values[0] = dy[at] * ((x[at] - moments[2 * row]) * moments[2 * row + 1]);
        values[1] = dy[at];
    });
}

// The gradient of a bias, sum of dy, which is rounded for the products.
GW_KERNEL_BOUNDED(bias_sums, REDUCE_THREADS, 4)(const u16* dy, f32* partials, u32 rows, u32 width, u32 chunk_rows) {
    columns<1>(partials, rows, width, chunk_rows, [&](u32 row, u32 column, f32 (&values)[1]) {
        values[0] = gw::bf16_to_f32(dy[(u64)row * width + column]);
    });
}

// to[i] <- to[i] + partials[0, i] + partials[1, i] + ...
GW_KERNEL_BOUNDED(add_chunks, REDUCE_THREADS, 4)(const f32* partials, f32* to, u32 chunks, u32 count) {
    const u32 i = (u32)gw::global_thread();
    if (i >= count) return;
    f32 sum = 0.0f;
    for (u32 chunk = 0; chunk < chunks; ++chunk) sum += partials[(u64)chunk * count + i];
    to[i] += sum;
}

// What part of a row comes to: its largest number, where that is first, and the sum of e^(x - largest).
struct Peak {
    f32 top, sum;
    u32 first;
    // Of nothing: below every number.
    GW_DEVICE static Peak none() { return {gw::bits<f32>(0xFF7FFFFFu), 0.0f, 0}; }
    // The first of neighbours from `at` on.
    template <u32 COUNT>
    GW_DEVICE void take(const f32 (&x)[COUNT], u32 at) {
        f32 most = x[0];
        GW_UNROLL
        for (u32 i = 1; i < COUNT; ++i) most = gw::maximum(most, x[i]);
        if (most > top) {
            sum *= functions::exp(top - most);
            top = most;
            GW_UNROLL
            for (u32 i = COUNT; i > 0; --i) first = x[i - 1] == most ? at + i - 1 : first;
        }
        GW_UNROLL
        for (u32 i = 0; i < COUNT; ++i) sum += functions::exp(x[i] - top);
    }
    GW_DEVICE void take(const Peak& other) {
        // Nothing has no largest number.
        if (other.sum == 0.0f) return;
        if (sum == 0.0f) {
            *this = other;
            return;
        }
        const bool higher = other.top > top || (other.top == top && other.first < first);
        const f32 above = higher ? other.top : top;
        sum = sum * functions::exp(top - above) + other.sum * functions::exp(other.top - above);
        first = higher ? other.first : first;
        top = above;
    }
};

// loss <- -ln softmax(logits)_target and deltas <- bf16((softmax - target) weight); columns from `vocabulary` to `stride` stand for
// no token, and become 0. right <- whether the target is the first of the largest. A block a row, which reads it twice, by fours where
// rows begin at multiples of them.
GW_KERNEL_BOUNDED(cross_entropy, REDUCE_THREADS, 4)(const f32* logits, const u32* targets, u16* deltas, f32* losses, u32* right,
                                                    u32 vocabulary, u32 stride, f32 weight) {
    Peak* peaks = gw::shared<Peak>();
    const u32 row = gw::block_x(), target = targets[row];
    logits += (u64)row * stride;
    deltas += (u64)row * stride;
    const u32 fours = stride % 4 == 0 ? vocabulary / 4 * 4 : 0;
    Peak own = Peak::none();
    for (u32 i = 4 * gw::thread(); i < fours; i += 4 * REDUCE_THREADS) own.take(Four::load(logits, i, fours).of, i);
    for (u32 i = fours + gw::thread(); i < vocabulary; i += REDUCE_THREADS) {
        const f32 one[1] = {logits[i]};
        own.take(one, i);
    }
    peaks[gw::thread()] = own;
    gw::sync_threads();
    for (u32 half = REDUCE_THREADS / 2; half > 0; half /= 2) {
        if (gw::thread() < half) {
            own.take(peaks[gw::thread() + half]);
            peaks[gw::thread()] = own;
        }
        gw::sync_threads();
    }
    const Peak peak = peaks[0];
    if (gw::thread() == 0) {
        losses[row] = functions::ln(peak.sum) + (peak.top - logits[target]);
        right[row] = peak.first == target ? 1 : 0;
    }
    const f32 part = 1.0f / peak.sum;
    const auto delta = [&](f32 logit, u32 i) {
        return (functions::exp(logit - peak.top) * part - (i == target ? 1.0f : 0.0f)) * weight;
    };
    for (u32 i = 4 * gw::thread(); i < fours; i += 4 * REDUCE_THREADS) {
        Four four = Four::load(logits, i, fours);
        GW_UNROLL
        for (u32 j = 0; j < 4; ++j) four.of[j] = delta(four.of[j], i + j);
        four.store(deltas, i, fours);
    }
    for (u32 i = fours + gw::thread(); i < stride; i += REDUCE_THREADS) {
        deltas[i] = i < vocabulary ? gw::f32_to_bf16(delta(logits[i], i)) : (u16)0;
    }
}

// x[row] <- tokens' row of the table + the row of its place in its window.
GW_KERNEL_BOUNDED(embed, REDUCE_THREADS, 4)(const u32* tokens, const f32* table, const f32* places, f32* x, u32 rows, u32 width,
                                            u32 context) {
    const u32 row = own_row();
    if (row >= rows) return;
    const f32* token = table + (u64)tokens[row] * width;
    const f32* place = places + (u64)(row % context) * width;
    for (u32 i = gw::lane(); i < width; i += 32) x[(u64)row * width + i] = token[i] + place[i];
}

// table[key] <- table[key] + sum of the rows of a group, in their order. A warp has 32 columns of a group: its key, and where its rows
// begin and end in `order`, in which rows are sorted by their keys. A token that is every second one of a text is one group: its
// columns are what there is to do side by side.
GW_KERNEL_BOUNDED(embed_back, REDUCE_THREADS, 4)(const RowGroup* groups, const u32* order, const f32* dx, f32* table, u32 count,
                                                 u32 width) {
    const u32 parts = (width + 31) / 32, number = own_row();
    if (number / parts >= count) return;
    const RowGroup group = groups[number / parts];
    const u32 i = number % parts * 32 + gw::lane();
    if (i >= width) return;
    f32 sum = 0.0f;
    GW_UNROLL_BY(8)
    for (u32 at = group.from; at < group.end; ++at) sum += dx[(u64)order[at] * width + i];
    table[(u64)group.key * width + i] += sum;
}
