#include "functions.cuh"
#include "shared.cuh"

// Backward through time for an ensemble of recurrent state-space models, as src/world/member.rs has it:
//
//     h = GRU(h', [z', a'])    p = softmax(h P)    q = softmax([h, x] Q)    z ~ q    [h, z] -> heads
//
// `learn`: a block follows one window of one member from its first tick to its last, and back. Windows have nothing to say to
// each other but what is added up in the gradient, so blocks need no barrier but their own. It leaves what every layer read and
// the gradients of what every layer wrote, a row a tick and window. `gradients` then multiplies these, for all layers of all
// members in one launch: x^T dy, with the rows added up in their order. Every sum has one order, whatever the schedule.
//
// A member's parameters are those of the CPU, layer after layer, each a matrix of inputs x outputs and then its bias. A member's
// trace is arrays of rows: number tick * windows + window. `state` has the rows of one tick more in front, zeros.
//
// Weights are read where they lie, from the L2 cache where they fit: a forward product has a thread a column and every n-th row,
// a backward one a warp a row. Several rows are asked for at a time, since a block waits for nothing else.

constexpr u32 WARPS = LEARN_THREADS / 32;

// Threads that share the rows of a product with so many columns.
GW_DEVICE u32 groups_of(u32 columns) { return columns < LEARN_THREADS ? LEARN_THREADS / columns : 1; }

// partial[group, column] <- of(column, group, groups).
template <class Column>
GW_DEVICE void columns(f32* partial, u32 count, Column of) {
    const u32 groups = groups_of(count);
    for (u32 item = gw::thread(); item < count * groups; item += LEARN_THREADS) {
        partial[item] = of(item % count, item / count, groups);
    }
}

// sum + the rows group, group + groups, ... of a column of x M.
GW_DEVICE f32 down(f32 sum, const f32* x, const f32* matrix, u32 rows, u32 width, u32 column, u32 group, u32 groups) {
    GW_UNROLL_BY(8)
    for (u32 row = group; row < rows; row += groups) sum = gw::fma(x[row], matrix[(u64)row * width + column], sum);
    return sum;
}

// What the groups left of a column.
GW_DEVICE f32 total(const f32* partial, u32 count, u32 column) {
    const u32 groups = groups_of(count);
    f32 sum = partial[column];
    for (u32 group = 1; group < groups; ++group) sum += partial[group * count + column];
    return sum;
}

// sum + this lane's numbers of dy . row.
GW_DEVICE f32 along(f32 sum, const f32* dy, const f32* row, u32 count) {
    GW_UNROLL_BY(4)
    for (u32 j = gw::lane(); j < count; j += 32) sum = gw::fma(dy[j], row[j], sum);
    return sum;
}

GW_DEVICE f32 over_warp(f32 sum) {
    GW_UNROLL
    for (u32 lanes = 16; lanes > 0; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
    return sum;
}

GW_DEVICE void soften(f32* row, u32 classes) {
    f32 top = row[0], sum = 0.0f;
    for (u32 i = 1; i < classes; ++i) top = gw::maximum(top, row[i]);
    for (u32 i = 0; i < classes; ++i) {
        row[i] = functions::exp(gw::add(row[i], -top));
        sum += row[i];
    }
    for (u32 i = 0; i < classes; ++i) row[i] = row[i] / sum;
}

// The class that a number in [0, 1) falls to.
GW_DEVICE u32 draw(const f32* row, u32 classes, u64 bits) {
    f32 left = (f32)((f64)(bits >> 11) * 0x1p-53);
    for (u32 i = 0; i < classes; ++i) {
        left = gw::add(left, -row[i]);
        if (left < 0.0f) return i;
    }
    return classes - 1;
}

GW_DEVICE f32 log_ratio(f32 q, f32 p) { return functions::ln(gw::maximum(q, 1e-20f) / gw::maximum(p, 1e-20f)); }

// Adds -ln N(target; mean, variance) up to a constant to the loss, and leaves its gradient in mean and log variance.
GW_DEVICE f64 normal(f32 mean, f32 log_variance, const f32* target, f32 scale, f32* delta) {
    delta[0] = 0.0f;
    delta[1] = 0.0f;
    if (target[1] == 0.0f) return 0.0;
    // Variances stay between e^-12 and e^4; what is no number stays that.
    const f32 bounded = log_variance < -12.0f ? -12.0f : log_variance > 4.0f ? 4.0f : log_variance;
    const f32 rest = mean - target[0], precision = functions::exp(-bounded);
    delta[0] = scale * rest * precision;
    if (bounded == log_variance) delta[1] = scale * 0.5f * (1.0f - rest * rest * precision);
    return (f64)(scale * 0.5f * (bounded + rest * rest * precision));
}

// lessons: [member, tick, window, LESSON], of which LESSON is features, action, the change and whether there is one, the end and
// whether there is one. losses: [member, window, 4]. bases: [member], of random numbers.
GW_KERNEL_BOUNDED(learn, LEARN_THREADS, 2)(const f32* all_parameters, const f32* all_lessons, const u64* bases, f32* traces,
                                           f64* losses, WorldShape s) {
    f64* sums = gw::shared<f64>();
    f32* partial = gw::shared<f32>(s.partial_at);
    // Gradients of the state before, and of the stochastic one.
    f32* dh = gw::shared<f32>(s.dh_at);
    f32* dz = gw::shared<f32>(s.dz_at);
    const u32 window = gw::block_x(), member = gw::block_y(), hidden = s.hidden;
    const u32 stochastic = s.categories * s.classes, both = hidden + stochastic, heads = FEATURES + 4;
    const u32 given_width = stochastic + ACTION, seen_width = hidden + FEATURES;
    const f32* parameters = all_parameters + member * s.parameters;
    const f32* lessons = all_lessons + (u64)member * s.ticks * s.windows * LESSON;
    f32* trace = traces + member * s.trace;
    auto matrix = [&](u32 place) { return parameters + place; };
    auto row_of = [&](u32 array, u32 tick, u32 width) { return trace + array + (u64)(tick * s.windows + window) * width; };
    const u32 states[3] = {s.state_z, s.state_r, s.state_n};
    const u32 square = hidden * hidden;

    f64 of_heads = 0.0, of_divergence = 0.0;
    for (u32 tick = 0; tick < s.ticks; ++tick) {
        const f32* lesson = lessons + (u64)(tick * s.windows + window) * LESSON;
        const f32* before = row_of(s.state_at, tick, both);
        f32* state = row_of(s.state_at, tick + 1, both);
        f32* given = row_of(s.given_at, tick, given_width);
        f32* seen = row_of(s.seen_at, tick, seen_width);
        f32* inner = row_of(s.inner_at, tick, hidden);
        f32* gates = row_of(s.gates_at, tick, 3 * hidden);
        f32* p = row_of(s.prior_at, tick, stochastic);
        f32* q = row_of(s.posterior_at, tick, stochastic);
        f32* delta = row_of(s.dheads_at, tick, heads);
        for (u32 i = gw::thread(); i < given_width; i += LEARN_THREADS) {
            const f32 action = tick == 0 || i < stochastic ? 0.0f : (lesson - s.windows * LESSON)[FEATURES + i - stochastic];
            given[i] = i < stochastic ? before[hidden + i] : action;
        }
        for (u32 i = gw::thread(); i < FEATURES; i += LEARN_THREADS) seen[hidden + i] = lesson[i];
        gw::sync_threads();

        // Columns of z, of r, of the input's part of n, and of the state's part where the reset comes after it.
        const u32 gate_columns = (RESET_BEFORE ? 3 : 4) * hidden;
        columns(partial, gate_columns, [&](u32 column, u32 group, u32 groups) {
            const u32 gate = column / hidden, j = column % hidden;
            f32 sum = 0.0f;
            if (gate < 3) sum = down(sum, given, matrix(s.input), given_width, 3 * hidden, column, group, groups);
            if (gate != 2) {
                sum = down(sum, before, matrix(gate == 0 ? s.state_z : gate == 1 ? s.state_r : s.state_n), hidden, hidden, j,
                           group, groups);
            }
            return sum;
        });
        gw::sync_threads();
        const f32* input_bias = matrix(s.input) + (u64)given_width * 3 * hidden;
        auto state_bias = [&](u32 gate, u32 j) { return (matrix(states[gate]) + square)[j]; };
        auto step = [&](u32 j, f32 n) {
            const f32 z = gates[j], candidate = functions::tanh(n);
            const f32 next = gw::fma(z, candidate, gw::multiply(gw::add(1.0f, -z), before[j]));
            gates[2 * hidden + j] = candidate;
            state[j] = next;
            seen[j] = next;
        };
        for (u32 j = gw::thread(); j < hidden; j += LEARN_THREADS) {
            auto part = [&](u32 gate) { return total(partial, gate_columns, gate * hidden + j); };
            const f32 z = functions::sigmoid(part(0) + (input_bias[j] + state_bias(0, j)));
            const f32 r = functions::sigmoid(part(1) + (input_bias[hidden + j] + state_bias(1, j)));
            const f32 n = part(2) + input_bias[2 * hidden + j];
            gates[j] = z;
            gates[hidden + j] = r;
            if constexpr (RESET_BEFORE) {
                gates[2 * hidden + j] = n;
                inner[j] = gw::multiply(r, before[j]);
            } else {
                const f32 of_state = part(3) + state_bias(2, j);
                inner[j] = of_state;
                step(j, gw::fma(r, of_state, n));
            }
        }
        gw::sync_threads();
        if constexpr (RESET_BEFORE) {
            columns(partial, hidden, [&](u32 column, u32 group, u32 groups) {
                return down(0.0f, inner, matrix(s.state_n), hidden, hidden, column, group, groups);
            });
            gw::sync_threads();
            for (u32 j = gw::thread(); j < hidden; j += LEARN_THREADS) {
                step(j, gates[2 * hidden + j] + (total(partial, hidden, j) + state_bias(2, j)));
            }
            gw::sync_threads();
        }

        columns(partial, 2 * stochastic, [&](u32 column, u32 group, u32 groups) {
            return column < stochastic
                       ? down(0.0f, seen, matrix(s.prior), hidden, stochastic, column, group, groups)
                       : down(0.0f, seen, matrix(s.posterior), seen_width, stochastic, column - stochastic, group, groups);
        });
        gw::sync_threads();
        // A thread a category: its logits, both distributions, its choice.
        for (u32 category = gw::thread(); category < s.categories; category += LEARN_THREADS) {
            const u32 first = category * s.classes;
            for (u32 i = first; i < first + s.classes; ++i) {
                p[i] = total(partial, 2 * stochastic, i) + (matrix(s.prior) + hidden * stochastic)[i];
                q[i] = total(partial, 2 * stochastic, stochastic + i) + (matrix(s.posterior) + seen_width * stochastic)[i];
            }
            soften(p + first, s.classes);
            soften(q + first, s.classes);
            const u64 number = (u64)(tick * s.windows + window) * s.categories + category;
            const u32 chosen = draw(q + first, s.classes, functions::random_bits(bases[member], number));
            for (u32 i = 0; i < s.classes; ++i) {
                const f32 probability = q[first + i];
                state[hidden + first + i] = !s.sampled ? probability : i == chosen ? 1.0f : 0.0f;
                of_divergence += (f64)probability * (f64)log_ratio(probability, p[first + i]);
            }
        }
        gw::sync_threads();

        columns(partial, heads, [&](u32 column, u32 group, u32 groups) {
            if (column < FEATURES) return down(0.0f, state, matrix(s.features), both, FEATURES, column, group, groups);
            const u32 place = column < FEATURES + 2 ? s.change : s.end;
            return down(0.0f, state, matrix(place), both, 2, column % 2, group, groups);
        });
        gw::sync_threads();
        if (gw::thread() < FEATURES) {
            const u32 j = gw::thread();
            const f32 guess = total(partial, heads, j) + (matrix(s.features) + both * FEATURES)[j], off = guess - lesson[j];
            delta[j] = off * s.of_feature;
            of_heads += (f64)(off * off);
        } else if (gw::thread() < FEATURES + 2) {
            const u32 head = gw::thread() - FEATURES, first = FEATURES + 2 * head;
            const f32* bias = matrix(head == 0 ? s.change : s.end) + both * 2;
            of_heads += normal(total(partial, heads, first) + bias[0], total(partial, heads, first + 1) + bias[1],
                               lesson + FEATURES + ACTION + 2 * head, s.scale, delta + first);
        }
    }

    sums[gw::thread()] = of_heads;
    sums[LEARN_THREADS + gw::thread()] = of_divergence;
    for (u32 i = gw::thread(); i < hidden; i += LEARN_THREADS) dh[i] = 0.0f;
    for (u32 i = gw::thread(); i < stochastic; i += LEARN_THREADS) dz[i] = 0.0f;
    gw::sync_threads();
    if (gw::thread() < 4) {
        // Features, change, end, divergence.
        const u32 part = gw::thread(), from = part == 0 ? 0 : part < 3 ? FEATURES + part - 1 : LEARN_THREADS;
        const u32 count = part == 0 ? FEATURES : part < 3 ? 1 : LEARN_THREADS;
        f64 sum = 0.0;
        for (u32 i = 0; i < count; ++i) sum += sums[from + i];
        const f64 factor = part == 0 ? 0.5 * (f64)s.of_feature : part < 3 ? 1.0 : (f64)s.scale;
        losses[((u64)member * s.windows + window) * 4 + part] = factor * sum;
    }

    for (u32 tick = s.ticks; tick-- > 0;) {
        const f32* before = row_of(s.state_at, tick, both);
        const f32* inner = row_of(s.inner_at, tick, hidden);
        const f32* gates = row_of(s.gates_at, tick, 3 * hidden);
        const f32* p = row_of(s.prior_at, tick, stochastic);
        const f32* q = row_of(s.posterior_at, tick, stochastic);
        const f32* delta = row_of(s.dheads_at, tick, heads);
        f32* dgates = row_of(s.dgates_at, tick, 3 * hidden);
        f32* dinner = row_of(s.dinner_at, tick, hidden);
        f32* dprior = row_of(s.dprior_at, tick, stochastic);
        f32* dposterior = row_of(s.dposterior_at, tick, stochastic);
        auto of_heads = [&](u32 row) {
            f32 sum = along(0.0f, delta, matrix(s.features) + (u64)row * FEATURES, FEATURES);
            sum = along(sum, delta + FEATURES, matrix(s.change) + row * 2, 2);
            return along(sum, delta + FEATURES + 2, matrix(s.end) + row * 2, 2);
        };
        // In the probabilities: what the heads and the next tick have, and KL(q || p) = sum q (ln q - ln p).
        for (u32 i = gw::warp(); i < stochastic; i += WARPS) {
            const f32 sum = over_warp(of_heads(hidden + i));
            if (gw::lane() != 0) continue;
            dz[i] = (sum + dz[i]) + s.posterior_weight * (log_ratio(q[i], p[i]) + 1.0f);
            dprior[i] = s.prior_weight * (p[i] - q[i]);
        }
        gw::sync_threads();
        // In the logits.
        for (u32 category = gw::thread(); category < s.categories; category += LEARN_THREADS) {
            const u32 first = category * s.classes;
            f32 mean = 0.0f;
            for (u32 i = first; i < first + s.classes; ++i) mean = gw::fma(q[i], dz[i], mean);
            for (u32 i = first; i < first + s.classes; ++i) dposterior[i] = q[i] * (dz[i] - mean);
        }
        gw::sync_threads();
        // In the state, and in what the gates came from.
        for (u32 i = gw::warp(); i < hidden; i += WARPS) {
            f32 sum = of_heads(i);
            sum = along(sum, dprior, matrix(s.prior) + (u64)i * stochastic, stochastic);
            sum = over_warp(along(sum, dposterior, matrix(s.posterior) + (u64)i * stochastic, stochastic));
            if (gw::lane() != 0) continue;
            const f32 d = sum + dh[i], z = gates[i], r = gates[hidden + i], n = gates[2 * hidden + i];
            const f32 dn = d * z * (1.0f - n * n);
            dgates[i] = d * (n - before[i]) * z * (1.0f - z);
            dgates[2 * hidden + i] = dn;
            if constexpr (RESET_BEFORE) {
                dinner[i] = dn;
            } else {
                dinner[i] = dn * r;
                dgates[hidden + i] = dn * inner[i] * r * (1.0f - r);
            }
            dh[i] = d * (1.0f - z);
        }
        gw::sync_threads();
        if constexpr (RESET_BEFORE) {
            for (u32 i = gw::warp(); i < hidden; i += WARPS) {
                const f32 d = over_warp(along(0.0f, dinner, matrix(s.state_n) + (u64)i * hidden, hidden));
                if (gw::lane() != 0) continue;
                const f32 r = gates[hidden + i];
                dgates[hidden + i] = d * before[i] * r * (1.0f - r);
                dh[i] += d * r;
            }
            gw::sync_threads();
        }
        // Nothing was before the first tick.
        if (tick == 0) break;
        for (u32 i = gw::warp(); i < both; i += WARPS) {
            f32 sum = 0.0f;
            if (i < hidden) {
                sum = along(sum, dgates, matrix(s.state_z) + (u64)i * hidden, hidden);
                sum = along(sum, dgates + hidden, matrix(s.state_r) + (u64)i * hidden, hidden);
                if constexpr (!RESET_BEFORE) sum = along(sum, dinner, matrix(s.state_n) + (u64)i * hidden, hidden);
            } else {
                sum = along(sum, dgates, matrix(s.input) + (u64)(i - hidden) * 3 * hidden, 3 * hidden);
            }
            sum = over_warp(sum);
            if (gw::lane() != 0) continue;
            if (i < hidden) dh[i] += sum;
            else dz[i - hidden] = sum;
        }
        gw::sync_threads();
    }
}

// gradient <- x^T dy of every layer, and sums of dy for its bias, which lies behind its matrix: a row of x more, of ones. A block
// has a tile of one layer of one member; a thread a column of it and some of its rows.
GW_KERNEL_BOUNDED(gradients, LEARN_THREADS, 4)(const f32* traces, f32* gradients, const WorldLayer* layers, u64 trace,
                                               u64 parameters, u32 rows) {
    constexpr u32 OWN = OUTER_ROWS * OUTER_COLUMNS / LEARN_THREADS;
    u32 place = 0;
    while (gw::block_x() >= layers[place].end_block) ++place;
    const WorldLayer layer = layers[place];
    const u32 tile = gw::block_x() - layer.first_block, across = (layer.outputs + OUTER_COLUMNS - 1) / OUTER_COLUMNS;
    const u32 column = tile % across * OUTER_COLUMNS + gw::thread() % OUTER_COLUMNS;
    const u32 top = tile / across * OUTER_ROWS + gw::thread() / OUTER_COLUMNS * OWN;
    if (column >= layer.outputs) return;
    const f32* x = traces + gw::block_y() * trace + layer.from;
    const f32* dy = traces + gw::block_y() * trace + layer.delta + column;
    f32 sums[OWN];
    GW_UNROLL
    for (u32 i = 0; i < OWN; ++i) sums[i] = 0.0f;
    for (u32 row = 0; row < rows; ++row) {
        const f32 d = dy[(u64)row * layer.delta_row];
        GW_UNROLL
        for (u32 i = 0; i < OWN; ++i) {
            const f32 of_row = top + i < layer.inputs ? x[(u64)row * layer.from_row + top + i] : 1.0f;
            sums[i] = gw::fma(of_row, d, sums[i]);
        }
    }
    f32* to = gradients + gw::block_y() * parameters + layer.matrix + column;
    GW_UNROLL
    for (u32 i = 0; i < OWN; ++i) {
        if (top + i <= layer.inputs) to[(u64)(top + i) * layer.outputs] = sums[i];
    }
}
