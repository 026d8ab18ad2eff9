#pragma once
// Products of a vector with the columns of a matrix that a block owns, and the gates of a GRU.
//
// A *team* of blocks has a member of the ensemble: a thread-block cluster (CLUSTERED) or blocks of a cooperative grid. Each
// owns `width` numbers of the state, and of every matrix the columns that lead to them. It holds those in shared memory
// (RESIDENT), or reads them again in every step, from the L2 cache as long as they fit in there.
//
// A block's slab is its matrices one after another, row by row, in vectors of 16 bytes: 4 columns of f32, or 8 of bf16 (HALVED). A
// thread has a vector of columns and every n-th row; neighbours read neighbouring vectors. What threads of the same columns
// have is added up in order, so that the schedule changes no bit.

#include "functions.cuh"
#include "shared.cuh"

namespace team {

// Columns of a vector.
constexpr u32 COLUMNS = HALVED ? 8 : 4;

typedef f32 Columns[COLUMNS];

// Threads that share the rows of a product with so many vectors of columns.
GW_DEVICE u32 groups_of(u32 vectors) { return vectors < TEAM_THREADS ? TEAM_THREADS / vectors : 1; }

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

// sums += the rows group, group + groups, ... of x M in one vector of columns, for M of `rows` rows of `vectors` vectors.
GW_DEVICE void accumulate(Columns& sums, const u32* matrix, u32 vectors, u32 vector, const f32* x, u32 rows, u32 group,
                          u32 groups) {
    const u32* from = matrix + 4 * ((u64)group * vectors + vector);
    const u32 stride = 4 * groups * vectors;
    GW_UNROLL_BY(4)
    for (u32 row = group; row < rows; row += groups, from += stride) add_product(sums, load(from), x[row]);
}

// Where the rows of a matrix begin, behind so many others.
GW_DEVICE const u32* behind(const u32* matrix, u32 rows, u32 vectors) { return matrix + 4 * (u64)rows * vectors; }

// Column `column` of what groups of threads left: [group, column], rows `stride` long.
GW_DEVICE f32 total(const f32* partial, u32 stride, u32 groups, u32 column) {
    f32 sum = partial[column];
    for (u32 group = 1; group < groups; ++group) sum += partial[group * stride + column];
    return sum;
}

// Some columns of x M for two vectors one after another, [x, y] M: partial[group, column].
GW_DEVICE void product(f32* partial, const u32* matrix, u32 vectors, const f32* x, u32 rows, const f32* y, u32 more) {
    const u32 groups = groups_of(vectors);
    for (u32 item = gw::thread(); item < vectors * groups; item += TEAM_THREADS) {
        const u32 vector = item % vectors, group = item / vectors;
        Columns sums;
        clear(sums);
        accumulate(sums, matrix, vectors, vector, x, rows, group, groups);
        accumulate(sums, behind(matrix, rows, vectors), vectors, vector, y, more, group, groups);
        store(partial + (group * vectors + vector) * COLUMNS, sums);
    }
}

// What a block needs of a GRU: x is in two parts, [given, action]; gates are z, r, n, `width` columns of each.
struct Gates {
    const u32* matrix;
    // [z, r, the input's part of n, the state's part of n]
    const f32* bias;
    u32 given, action, hidden, width;
    f32* partial;

    GW_DEVICE u32 of_gate() const { return width / COLUMNS; }
    GW_DEVICE u32 groups() const { return groups_of(3 * of_gate()); }
    GW_DEVICE u32 candidate_groups() const { return groups_of(of_gate()); }

    // partial[group] <- [z, r, the input's part of n, the state's part of n]. With the reset gate before the product, the
    // last is left out: `candidate` has it.
    GW_DEVICE void products(const f32* x, const f32* a, const f32* h) const {
        const u32 vectors = 3 * of_gate(), groups = this->groups();
        for (u32 item = gw::thread(); item < vectors * groups; item += TEAM_THREADS) {
            const u32 vector = item % vectors, group = item / vectors;
            const bool is_candidate = vector >= 2 * of_gate();
            f32* to = partial + group * 4 * width + vector * COLUMNS;
            Columns sums;
            clear(sums);
            accumulate(sums, matrix, vectors, vector, x, given, group, groups);
            accumulate(sums, behind(matrix, given, vectors), vectors, vector, a, action, group, groups);
            if (is_candidate) {
                store(to, sums);
                if (RESET_BEFORE) continue;
                clear(sums);
                to += width;
            }
            accumulate(sums, behind(matrix, given + action, vectors), vectors, vector, h, hidden, group, groups);
            store(to, sums);
        }
    }

    // partial[group] <- the state's part of n, of the state after its reset.
    GW_DEVICE void candidate(const f32* reset) const {
        const u32 vectors = of_gate(), groups = candidate_groups();
        const u32* of_state = behind(matrix, given + action, 3 * vectors);
        for (u32 item = gw::thread(); item < vectors * groups; item += TEAM_THREADS) {
            const u32 vector = item % vectors, group = item / vectors;
            Columns sums;
            clear(sums);
            accumulate(sums, of_state, 3 * vectors, 2 * vectors + vector, reset, hidden, group, groups);
            store(partial + (group * vectors + vector) * COLUMNS, sums);
        }
    }

    // Part 0 to 3 of what `products` left, number j of the block's.
    GW_DEVICE f32 part(u32 place, u32 j) const {
        return total(partial, 4 * width, groups(), place * width + j) + bias[place * width + j];
    }
    GW_DEVICE f32 candidate_part(u32 j) const {
        return total(partial, width, candidate_groups(), j) + bias[3 * width + j];
    }
    GW_DEVICE f32 update(u32 j) const { return functions::sigmoid(part(0, j)); }
    GW_DEVICE f32 reset(u32 j) const { return functions::sigmoid(part(1, j)); }
};

// (1 - z) h + z tanh(inner).
GW_DEVICE f32 next_state(f32 z, f32 h, f32 inner) {
    return gw::fma(z, functions::tanh(inner), gw::multiply(gw::add(1.0f, -z), h));
}

// Gives a number to all blocks of the team: at `mine` in the shared memory of each, or at `place` in device memory.
GW_DEVICE void give(f32* mine, f32* place, u32 blocks, f32 value) {
    if constexpr (CLUSTERED) {
        for (u32 rank = 0; rank < blocks; ++rank) *gw::cluster_map(mine, rank) = value;
    } else {
        *place = value;
    }
}

// What the team gave by way of device memory, into shared memory.
GW_DEVICE void fetch(f32* mine, const f32* place, u32 count) {
    for (u32 i = gw::thread(); i < count; i += TEAM_THREADS) mine[i] = place[i];
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

// Softmax of a category's logits in place, and its entropy in nats.
GW_DEVICE f32 soften(f32* row, u32 classes) {
    f32 top = row[0], sum = 0.0f;
    for (u32 i = 1; i < classes; ++i) top = gw::maximum(top, row[i]);
    for (u32 i = 0; i < classes; ++i) {
        row[i] = functions::exp(gw::add(row[i], -top));
        sum += row[i];
    }
    f64 entropy = 0.0;
    for (u32 i = 0; i < classes; ++i) {
        row[i] = row[i] / sum;
        entropy -= (f64)row[i] * (f64)functions::ln(gw::maximum(row[i], 1e-20f));
    }
    return (f32)entropy;
}

struct Choice {
    u32 chosen;
    // How far its perturbed logit is above the next.
    f32 margin;
};

// The class with the largest logit + Gumbel noise, by the numbers from `first` on of a stream.
GW_DEVICE Choice choose(const f32* logits, u32 classes, u64 base, u64 first) {
    const f32 none = gw::bits<f32>(0xFF800000u);
    f32 best = none, second = none;
    u32 chosen = 0;
    for (u32 i = 0; i < classes; ++i) {
        const f32 perturbed = gw::add(logits[i], functions::gumbel(functions::random_bits(base, first + i)));
        if (perturbed > best) {
            second = best;
            best = perturbed;
            chosen = i;
        } else if (perturbed > second) {
            second = perturbed;
        }
    }
    return {chosen, best - second};
}

// The block's slab, if it stays in shared memory.
GW_DEVICE void settle(u32* to, const u32* slab, u32 words) {
    for (u32 i = 4 * gw::thread(); i < words; i += 4 * TEAM_THREADS) {
        gw::store_128(to + i, gw::load_readonly(reinterpret_cast<const u32x4*>(slab + i)));
    }
}

}  // namespace team
