#pragma once
// Products of a vector with the columns of a matrix that a block owns, and the gates of a GRU.
//
// A *team* of blocks has a member of the ensemble: a thread-block cluster (CLUSTERED) or blocks of a cooperative grid. Each
// owns `width` numbers of the state, and of every matrix the columns that lead to them. It holds those in registers and in
// shared memory (RESIDENT), or reads what is not in registers again in every step, from the L2 cache as long as it fits there.
//
// A block's slab is its matrices one after another, row by row, in vectors of 16 bytes: 4 columns of f32, or 8 of bf16
// (HALVED). A thread has a vector of columns and every n-th row; neighbours read neighbouring vectors. What threads of the same
// columns have goes to shared memory, where as many lanes of a warp as there are for a column add it up, in an order that
// depends on nothing but sizes: the schedule changes no bit.

#include "functions.cuh"
#include "shared.cuh"

namespace team {

constexpr u32 WARPS = TEAM_THREADS / 32;
// Columns of a vector.
constexpr u32 COLUMNS = HALVED ? 8 : 4;
// Rows whose loads a thread has under way at once: one from L2 takes 600 cycles, one from shared memory 30. More do not fit
// beside the rows that registers hold.
constexpr u32 AT_ONCE = RESIDENT ? 4 : 6;
constexpr u32 HELD_ROWS = HALVED ? HELD_ROWS_BF16 : HELD_ROWS_F32;
// Lanes that add up a column, at most.
constexpr u32 MOST_SLICES = 8;

typedef f32 Columns[COLUMNS];

// Threads that share the rows of a product with so many vectors of columns.
GW_DEVICE u32 groups_of(u32 vectors) { return vectors < TEAM_THREADS ? TEAM_THREADS / vectors : 1; }

// From what one group leaves of so many columns to what the next leaves: an odd number of vectors, so that lanes of several
// groups and few columns read different banks.
GW_DEVICE u32 stride_of(u32 columns) { return (columns + 7) / 8 * 8 + 4; }

// Lanes that share the groups of a column, of so many columns.
GW_DEVICE u32 slices_of(u32 columns) {
    u32 slices = 1;
    while (slices < MOST_SLICES && 2 * slices * columns <= TEAM_THREADS) slices *= 2;
    return slices;
}

// What a thread has of a product: vectors from `vector` on, TEAM_THREADS apart, of rows group, group + groups, ...
struct Share {
    u32 vectors, vector, group, groups;

    GW_DEVICE bool has(u32 vector) const { return group < groups && vector < vectors; }
};

GW_DEVICE Share share_of(u32 vectors) {
    if (vectors >= TEAM_THREADS) return {vectors, gw::thread(), 0, 1};
    return {vectors, gw::thread() % vectors, gw::thread() / vectors, groups_of(vectors)};
}

// What a lane adds up: of columns `column`, column + WARPS * columns, ..., every `slices`-th group from `slice` on.
struct Lanes {
    u32 slices, slice, columns, column;
};

GW_DEVICE Lanes lanes_of(u32 columns) {
    const u32 slices = slices_of(columns), of_warp = 32 / slices;
    return {slices, gw::lane() / of_warp, of_warp, gw::lane() % of_warp};
}

GW_DEVICE u32x4 load(const u32* vector) {
    if constexpr (RESIDENT) return gw::load_128(vector);
    else return gw::load_readonly(reinterpret_cast<const u32x4*>(vector));
}

GW_DEVICE void add_product(Columns& sums, u32x4 vector, f32 x) {
    const u32 words[4] = {vector.x, vector.y, vector.z, vector.w};
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) {
        if constexpr (HALVED) {
            sums[2 * i] = gw::fma(x, gw::bits<f32>(words[i] << 16), sums[2 * i]);
            sums[2 * i + 1] = gw::fma(x, gw::bits<f32>(words[i] & 0xFFFF0000u), sums[2 * i + 1]);
        } else {
            sums[i] = gw::fma(x, gw::bits<f32>(words[i]), sums[i]);
        }
    }
}

GW_DEVICE void clear(Columns& sums) {
    GW_UNROLL
    for (u32 i = 0; i < COLUMNS; ++i) sums[i] = 0.0f;
}

GW_DEVICE void store(f32* to, const Columns& sums) {
    GW_UNROLL
    for (u32 i = 0; i < COLUMNS; i += 4) {
        gw::store_128(to + i, {gw::bits<u32>(sums[i]), gw::bits<u32>(sums[i + 1]), gw::bits<u32>(sums[i + 2]),
                               gw::bits<u32>(sums[i + 3])});
    }
}

// sums += AT_ONCE rows of x M from `row` on, `groups` apart: those below `rows`, or all of them (WHOLE).
template <bool WHOLE>
GW_DEVICE void add_rows(Columns& sums, const u32* from, u32 stride, const f32* x, u32 row, u32 rows, u32 groups) {
    u32x4 vectors[AT_ONCE];
    f32 factors[AT_ONCE];
    GW_UNROLL
    for (u32 i = 0; i < AT_ONCE; ++i) {
        const bool there = WHOLE || row + i * groups < rows;
        vectors[i] = {0, 0, 0, 0};
        factors[i] = 0.0f;
        if (there) {
            vectors[i] = load(from + i * stride);
            factors[i] = x[row + i * groups];
        }
    }
    GW_UNROLL
    for (u32 i = 0; i < AT_ONCE; ++i) add_product(sums, vectors[i], factors[i]);
}

// sums += the rows group, group + groups, ... of x M in one vector of columns, for M of `rows` rows. What is left over in the end
// is loaded at once too.
GW_DEVICE void accumulate(Columns& sums, const u32* matrix, const Share& share, u32 vector, const f32* x, u32 rows) {
    const u32 groups = share.groups, stride = 4 * groups * share.vectors;
    const u32* from = matrix + 4 * (share.group * share.vectors + vector);
    u32 row = share.group;
    GW_UNROLL_BY(1)
    for (; row + (AT_ONCE - 1) * groups < rows; row += AT_ONCE * groups, from += AT_ONCE * stride) {
        add_rows<true>(sums, from, stride, x, row, rows, groups);
    }
    if (row < rows) add_rows<false>(sums, from, stride, x, row, rows, groups);
}

// Where the rows of a matrix begin, behind so many others.
GW_DEVICE const u32* behind(const u32* matrix, u32 rows, u32 vectors) { return matrix + 4 * (u64)rows * vectors; }

// One column of what groups of threads left: those of a lane's slice, `stride` apart from `partial` on, and then those of the
// warp's other lanes of the column. Every lane has the sum. All lanes of the warp come here.
GW_DEVICE f32 total(const f32* partial, u32 stride, u32 groups, u32 slice, u32 slices) {
    f32 sum = 0.0f;
    for (u32 first = slice; first < groups; first += 8 * slices) {
        f32 x[8];
        GW_UNROLL
        for (u32 i = 0; i < 8; ++i) {
            x[i] = 0.0f;
            if (first + i * slices < groups) x[i] = partial[(first + i * slices) * stride];
        }
        sum += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    }
    for (u32 lanes = 16; lanes * slices >= 32; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
    return sum;
}

// Some columns of x M for two vectors one after another, [x, y] M: partial[group, column].
GW_DEVICE void product(f32* partial, const u32* matrix, const Share& share, const f32* x, u32 rows, const f32* y, u32 more) {
    const u32 stride = stride_of(share.vectors * COLUMNS);
    for (u32 vector = share.vector; share.has(vector); vector += TEAM_THREADS) {
        Columns sums;
        clear(sums);
        accumulate(sums, matrix, share, vector, x, rows);
        if (more > 0) accumulate(sums, behind(matrix, rows, share.vectors), share, vector, y, more);
        store(partial + share.group * stride + vector * COLUMNS, sums);
    }
}

// The first `count` rows of the state's matrix, in registers for the whole launch: rows 4 (k groups + group) to 4 (k groups +
// group) + 3 of a thread's vector for each k, so that four of the state's numbers come in one load.
struct Held {
    u32x4 rows[HELD_ROWS];
    u32 count;

    GW_DEVICE void take(const u32* matrix, const Share& share, u32 count_) {
        count = count_;
        GW_UNROLL
        for (u32 i = 0; i < HELD_ROWS; ++i) {
            const u32 row = 4 * (i / 4 * share.groups + share.group) + i % 4;
            const u32* from = matrix + 4 * (row * share.vectors + share.vector);
            rows[i] = {0, 0, 0, 0};
            if (share.has(share.vector) && row < count) rows[i] = gw::load_readonly(reinterpret_cast<const u32x4*>(from));
        }
    }

    GW_DEVICE void add(Columns& sums, const f32* h, const Share& share) const {
        GW_UNROLL
        for (u32 i = 0; i < HELD_ROWS; i += 4) {
            // The same for all threads. Between two such branches the loads of eight rows are under way at once.
            if (i % 8 == 0 && i * share.groups >= count) break;
            // Behind the last row are zeros for any number of the state.
            const u32 row = gw::lesser(4 * (i / 4 * share.groups + share.group), (count - 1) / 4 * 4);
            const u32x4 x = gw::load_128(h + row);
            add_product(sums, rows[i], gw::bits<f32>(x.x));
            add_product(sums, rows[i + 1], gw::bits<f32>(x.y));
            add_product(sums, rows[i + 2], gw::bits<f32>(x.z));
            add_product(sums, rows[i + 3], gw::bits<f32>(x.w));
        }
    }
};

// What a block needs of a GRU: gates are z, r, n, `width` columns of each, and behind them in every row are vectors of other
// columns that the same numbers lead to.
struct Gates {
    // Rows of what is given, then those of the state: from `Held::count` on, or all of them with the reset gate before the
    // product, as `candidate` reads its part of them by other threads.
    const u32* matrix;
    // As `partial` has the columns of a group.
    const f32* bias;
    u32 given, hidden, width, beside;
    // [group, (columns, part, column), column of those beside] with the parts z, r, the input's part of n, the state's part of n.
    f32* partial;
    // [group, column] of the candidate, apart from those: who is late may still read them.
    f32* of_reset;
    Share share, of_candidate;
    // Of a warp's `columns` columns: the lane's slice, part and column.
    u32 slices, slice, columns, part, column;
    // Those that add up the candidate alone.
    Lanes of_inner;

    GW_DEVICE Gates(const u32* matrix, const f32* bias, u32 given, u32 hidden, u32 width, u32 beside, f32* partial,
                     f32* of_reset)
        : matrix(matrix),
          bias(bias),
          given(given),
          hidden(hidden),
          width(width),
          beside(beside),
          partial(partial),
          of_reset(of_reset),
          share(share_of(3 * (width / COLUMNS) + beside)),
          of_candidate(share_of(width / COLUMNS)),
          slices(slices_of(4 * width)),
          columns(8 / slices),
          of_inner(lanes_of(width)) {
        slice = gw::lane() / (4 * columns);
        part = gw::lane() / columns % 4;
        column = gw::lane() % columns;
    }

    // Where the rows of the state begin in a slab in device memory.
    GW_DEVICE const u32* state_of(const u32* slab) const {
        return RESET_BEFORE ? behind(slab, given, share.vectors) : slab;
    }
    GW_DEVICE u32 of_gate() const { return width / COLUMNS; }
    GW_DEVICE u32 stride() const { return stride_of(4 * width + beside * COLUMNS); }
    // Where number j of the block has a part.
    GW_DEVICE u32 place(u32 part, u32 j) const { return (j / COLUMNS * 4 + part) * COLUMNS + j % COLUMNS; }

    // partial <- the products of [x, h]. With the reset gate before the product, the state's part of n is left out: `candidate`
    // has it.
    GW_DEVICE void products(const Held& held, const f32* x, const f32* h) const {
        const u32* of_state = behind(matrix, given + (RESET_BEFORE ? held.count : 0), share.vectors);
        for (u32 vector = share.vector; share.has(vector); vector += TEAM_THREADS) {
            const u32 gate = (vector >= of_gate()) + (vector >= 2 * of_gate()) + (vector >= 3 * of_gate());
            const u32 first = gate < 3 ? place(gate, (vector - gate * of_gate()) * COLUMNS) : (vector + of_gate()) * COLUMNS;
            f32* to = partial + share.group * stride() + first;
            Columns sums;
            clear(sums);
            accumulate(sums, matrix, share, vector, x, given);
            if (gate == 2) {
                store(to, sums);
                if (RESET_BEFORE) continue;
                clear(sums);
                to += COLUMNS;
            }
            held.add(sums, h, share);
            accumulate(sums, of_state, share, vector, h + held.count, hidden - held.count);
            store(to, sums);
        }
    }

    // of_reset[group] <- the state's part of n, of the state after its reset.
    GW_DEVICE void candidate(const f32* reset) const {
        const u32* of_state = behind(matrix, given, share.vectors);
        const Share all = {share.vectors, 0, of_candidate.group, of_candidate.groups};
        for (u32 vector = of_candidate.vector; of_candidate.has(vector); vector += TEAM_THREADS) {
            Columns sums;
            clear(sums);
            accumulate(sums, of_state, all, 2 * of_gate() + vector, reset, hidden);
            store(of_reset + of_candidate.group * stride_of(width) + vector * COLUMNS, sums);
        }
    }

    // The lane's part of number j of the block, from what `products` left; the one before in place of one that it left out.
    GW_DEVICE f32 part_of(u32 j) const {
        const u32 at = place(RESET_BEFORE && part == 3 ? 2 : part, j);
        return total(partial + at, stride(), share.groups, slice, slices) + bias[at];
    }
    // The same part of the same number, from the lane that has it.
    GW_DEVICE f32 from_part(f32 value, u32 of) const { return gw::shuffle(value, of * columns + column); }
    GW_DEVICE f32 candidate_of(u32 j) const {
        return total(of_reset + j, stride_of(width), of_candidate.groups, of_inner.slice, of_inner.slices) + bias[place(3, j)];
    }
};

// (1 - z) h + z tanh(inner).
GW_DEVICE f32 next_state(f32 z, f32 h, f32 inner) {
    return gw::fma(z, functions::tanh(inner), gw::multiply(gw::add(1.0f, -z), h));
}

// Gives a number to all blocks of the team: at `mine` in the shared memory of each, or at `place` in device memory. The caller is
// one of `callers` that have the number, and sees to some of the blocks.
GW_DEVICE void give(f32* mine, f32* place, u32 blocks, u32 caller, u32 callers, f32 value) {
    if constexpr (CLUSTERED) {
        for (u32 rank = caller; rank < blocks; rank += callers) *gw::cluster_map(mine, rank) = value;
    } else {
        if (caller == 0) *place = value;
    }
}

// The barrier of the team, in two halves where it is a cluster's: what was given before the first is there after the second. What
// a block does between them is for its own threads, and is seen by others after the next barrier.
GW_DEVICE void arrive() {
    if constexpr (CLUSTERED) gw::cluster_arrive();
}
GW_DEVICE void wait(u32* arrived) {
    if constexpr (CLUSTERED) gw::cluster_wait();
    else gw::sync_grid(arrived);
}

// From device memory into shared memory, four loads of a thread at once.
GW_DEVICE void fetch(f32* mine, const f32* place, u32 count) {
    for (u32 first = gw::thread(); first < count; first += 4 * TEAM_THREADS) {
        f32 x[4];
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            x[i] = 0.0f;
            if (first + i * TEAM_THREADS < count) x[i] = place[first + i * TEAM_THREADS];
        }
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            if (first + i * TEAM_THREADS < count) mine[first + i * TEAM_THREADS] = x[i];
        }
    }
}

// Mean and variance of one feature, at weights of 1/n up to a bound on n, as src/state/normaliser.rs has them.
struct Running {
    f64 mean, variance;
    // Takes in x, and gives it on the scale of what came so far; `weight` is 1/n.
    GW_DEVICE f32 take(f64 x, f64 weight) {
        const f64 before = x - mean;
        mean += weight * before;
        variance += weight * (before * (x - mean) - variance);
        const f64 deviation = functions::root(variance > 0.0 ? variance : 0.0);
        if (!(deviation > 1e-9)) return 0.0f;
        const f64 scaled = (x - mean) / deviation;
        return (f32)(scaled < -FEATURE_BOUND ? -FEATURE_BOUND : scaled > FEATURE_BOUND ? FEATURE_BOUND : scaled);
    }
};

// Top and sum of e^(x - top) of a category's logits.
struct Softmax {
    f32 top, sum;

    GW_DEVICE f32 of(f32 logit) const { return functions::exp(gw::add(logit, -top)) / sum; }
};

constexpr u32 NONE = 0xFF800000u;

// Of `logit` of class i: for the lane's classes i = lane, lane + lanes, ..., and then for those of `lanes` neighbours. All lanes
// of the warp come here.
template <class Logit>
GW_DEVICE Softmax soften(u32 lane, u32 lanes, u32 classes, Logit logit) {
    Softmax s = {gw::bits<f32>(NONE), 0.0f};
    for (u32 i = lane; i < classes; i += lanes) s.top = gw::maximum(s.top, logit(i));
    for (u32 apart = lanes / 2; apart > 0; apart /= 2) s.top = gw::maximum(s.top, gw::shuffle_xor(s.top, apart));
    for (u32 i = lane; i < classes; i += lanes) s.sum += functions::exp(gw::add(logit(i), -s.top));
    for (u32 apart = lanes / 2; apart > 0; apart /= 2) s.sum += gw::shuffle_xor(s.sum, apart);
    return s;
}

// The first class with the largest logit + Gumbel noise.
struct Choice {
    f32 best, second;
    u32 chosen;

    GW_DEVICE void see(f32 perturbed, u32 i) {
        if (perturbed > best) {
            second = best;
            best = perturbed;
            chosen = i;
        } else if (perturbed > second) {
            second = perturbed;
        }
    }
    // Of the lane's classes and of those of `lanes` neighbours. All lanes of the warp come here.
    GW_DEVICE void join(u32 lanes) {
        for (u32 apart = lanes / 2; apart > 0; apart /= 2) {
            const f32 other_best = gw::shuffle_xor(best, apart), other_second = gw::shuffle_xor(second, apart);
            const u32 other = gw::shuffle_xor(chosen, apart);
            const bool is_other = other_best > best || (other_best == best && other < chosen);
            const f32 lesser = is_other ? best : other_best;
            second = gw::maximum(lesser, is_other ? other_second : second);
            best = is_other ? other_best : best;
            chosen = is_other ? other : chosen;
        }
    }
    // How far its perturbed logit is above the next.
    GW_DEVICE f32 margin() const { return best - second; }
};

// Which categories and classes a lane has: `lanes` lanes have a category, lane `lane` of them classes lane, lane + lanes, ...; a
// warp has `at_once` categories at a time, and so many slices of lanes that all do the same, but for adding up products.
struct Classes {
    u32 lanes, lane, at_once, category, slices, slice;
};

// As many categories in a warp as there is room for (`packed`), or as few as all warps of the block leave to it.
GW_DEVICE Classes classes_of(u32 categories, u32 classes, bool packed) {
    u32 lanes = 1, at_once = 1;
    while (lanes < classes && lanes < 32) lanes *= 2;
    while ((packed || at_once * WARPS < categories) && at_once * lanes < 32) at_once *= 2;
    return {lanes,   gw::lane() % lanes,           at_once, gw::lane() / lanes % at_once, 32 / (lanes * at_once),
            gw::lane() / (lanes * at_once)};
}

// The block's slab, if it stays in shared memory. The copies are under way at once; the caller waits for its own, and then meets
// the others.
GW_DEVICE void settle(u32* to, const u32* slab, u32 words) {
    for (u32 i = 4 * gw::thread(); i < words; i += 4 * TEAM_THREADS) gw::copy_async<16>(to + i, slab + i);
    gw::copy_async_commit();
}

}  // namespace team
