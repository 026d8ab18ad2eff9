#include "team.cuh"

// A block of a team, and where it has what: `mine` is shared memory, `ours` the team's place in device memory.
struct Block {
    u32 blocks, first, owned;
    // [this step or the next, number]
    f32 *h, *our_h;
    f32 *reset, *our_reset;
    // [z, the input's part of n]: what is kept until the state after its reset is known.
    f32* kept;
};

// h_t = GRU(h_{t-1}, [x, a]) of one member, by all blocks of its team:
//   z = sigmoid(x W_z + h U_z + b_z)      r = sigmoid(x W_r + h U_r + b_r)
//   n = tanh(x W_n + b_n + r (h U_n + c_n))       reset after the product
//   n = tanh(x W_n + b_n + (r h) U_n + c_n)       reset before it: one product waits for the other
//   h' = (1 - z) h + z n
// `meanwhile` is done while the team computes. After it, every block has all of the next state, and is done with what it read
// before: `keep` may store that state in the place of the one that the team began with.
template <class Meanwhile>
GW_DEVICE void advance(const team::Gates& gates, const Block& b, u32 step, const f32* x, const f32* a, u32* arrived,
                       Meanwhile meanwhile) {
    const u32 hidden = gates.hidden, width = gates.width, next_at = (~step & 1) * hidden;
    const f32* now = b.h + (step & 1) * hidden;
    f32* const next = b.h + next_at;
    gates.products(x, a, now);
    meanwhile();
    gw::sync_threads();
    if constexpr (RESET_BEFORE) {
        for (u32 j = gw::thread(); j < b.owned; j += TEAM_THREADS) {
            b.kept[j] = gates.update(j);
            b.kept[width + j] = gates.part(2, j);
            const u32 at = b.first + j;
            team::give(b.reset + at, b.our_reset + at, b.blocks, gates.reset(j) * now[at]);
        }
        if constexpr (CLUSTERED) gw::sync_cluster();
        else gw::sync_grid(arrived);
        if constexpr (!CLUSTERED) {
            team::fetch(b.reset, b.our_reset, hidden);
            gw::sync_threads();
        }
        gates.candidate(b.reset);
        gw::sync_threads();
    }
    for (u32 j = gw::thread(); j < b.owned; j += TEAM_THREADS) {
        f32 z, inner;
        if constexpr (RESET_BEFORE) {
            z = b.kept[j];
            inner = gw::add(b.kept[width + j], gates.candidate_part(j));
        } else {
            z = gates.update(j);
            inner = gw::fma(gates.reset(j), gates.part(3, j), gates.part(2, j));
        }
        const u32 at = b.first + j;
        team::give(next + at, b.our_h + next_at + at, b.blocks, team::next_state(z, now[at], inner));
    }
    if constexpr (CLUSTERED) gw::sync_cluster();
    else gw::sync_grid(arrived);
    if constexpr (!CLUSTERED) {
        team::fetch(next, b.our_h + next_at, hidden);
        gw::sync_threads();
    }
}

// Stores the block's numbers of the state h of its member; the other blocks of the team store theirs.
GW_DEVICE void keep(f32* to, const Block& b, const f32* h) {
    for (u32 i = b.first + gw::thread(); i < b.first + b.owned; i += TEAM_THREADS) to[i] = h[i];
}

// GRUs of all members for `steps` steps, each with weights of its own.
// x: [step, member, input]; start: [member, hidden]; states: [step, member, hidden]; exchange: [member, 3, hidden].
//
// A step waits for the slab once through shared memory (128 bytes a cycle and multiprocessor) or from L2, and for a barrier of
// the team; for two with the reset gate before the product. 5 members of 256 with 70 inputs in f32: 1 MB a member, 125 KB a
// block of a cluster of 8, 980 cycles a step.
GW_KERNEL_BOUNDED(gru, TEAM_THREADS, 1)(const u32* weights, const f32* biases, const f32* x, const f32* start, f32* states,
                                        f32* exchange, u32* arrived, GruShape s) {
    const u32 member = gw::block_x() / s.blocks, members = gw::blocks_x() / s.blocks, hidden = s.hidden;
    const u32 first = gw::block_x() % s.blocks * s.width;
    f32* const inputs = gw::shared<f32>(s.inputs_at);
    f32* const ours = exchange + (u64)member * 3 * hidden;
    const Block block = {s.blocks,
                         first,
                         first < hidden ? gw::lesser(s.width, hidden - first) : 0,
                         gw::shared<f32>(s.state_at),
                         ours,
                         gw::shared<f32>(s.reset_at),
                         ours + 2 * hidden,
                         gw::shared<f32>(s.kept_at)};
    const u32* slab = weights + (u64)gw::block_x() * s.words;
    if (RESIDENT) team::settle(gw::shared<u32>(), slab, s.words);
    const team::Gates gates = {RESIDENT ? gw::shared<u32>() : slab,
                               biases + (u64)gw::block_x() * 4 * s.width,
                               s.inputs,
                               0,
                               hidden,
                               s.width,
                               gw::shared<f32>(s.partial_at)};
    team::fetch(block.h, start + (u64)member * hidden, hidden);
    team::fetch(inputs, x + (u64)member * s.inputs, s.inputs);
    if constexpr (CLUSTERED) gw::sync_cluster();
    else gw::sync_threads();

    for (u32 step = 0; step < s.steps; ++step) {
        const u64 row = (u64)step * members + member;
        advance(gates, block, step, inputs + (step & 1) * s.inputs, inputs, arrived, [&] {
            if (step + 1 < s.steps) {
                team::fetch(inputs + (~step & 1) * s.inputs, x + (row + members) * s.inputs, s.inputs);
            }
        });
        keep(states + row * hidden, block, block.h + (~step & 1) * hidden);
    }
}

// What every member makes of ticks that were seen (ENCODED), and what it imagines from there on, tick by tick.
// For each of `history` ticks of a ring, the oldest first:
//   x = the tick's features on the scale of those so far; h = GRU(h, [z, a]); z = softmax([h, x] Q + b); a = the tick's action.
// What came of it takes the place of what there was: hidden, stochastic, action, normaliser. Then, for each of `ticks` actions:
//   h = GRU(h, [z, a]); logits = h P + b; z = softmax(logits), or one class of each category (SAMPLED);
//   features, mean and ln variance of the change of ln loss = [h, z] O + c; the latter two are cumulated.
// ring: [place, FEATURES], [place, ACTION]; normaliser: means, variances, count. actions: [tick, ACTION]; paths: [tick, member, (mean, variance, |h|^2, entropy)]; features: [tick, member, FEATURES];
// chosen, margins: [tick, member, category]; exchange: [member, (h, h, reset, z, entropies)].
//
// Two barriers of the team a tick, three with the reset gate before the product. A tick's heads run while the team is on its
// way to the next tick's first barrier. 5 members of 256 with 32 x 8 categories in f32: 2.0 MB a member, 250 KB a block of a
// cluster of 8 (bf16: 125 KB, 980 cycles a tick).
GW_KERNEL_BOUNDED(rollout, TEAM_THREADS, 1)(const u32* weights, const f32* biases, const f32* actions, const u64* bases,
                                            f32* hidden_states, f32* stochastic_states, f32* own_actions,
                                            const f64* ring_features, const f32* ring_actions, const f64* normaliser,
                                            f64* next_normaliser, f32* exchange, u32* arrived, f64* paths, f32* features,
                                            u32* chosen, f32* margins, RolloutShape s) {
    const u32 member = gw::block_x() / s.blocks, members = gw::blocks_x() / s.blocks, rank = gw::block_x() % s.blocks;
    const u32 hidden = s.hidden, stochastic = s.categories * s.classes, first = rank * s.width;
    f32* const z = gw::shared<f32>(s.stochastic_at);
    f32* const action = gw::shared<f32>(s.action_at);
    f32* const logits = gw::shared<f32>(s.logits_at);
    f32* const entropies = gw::shared<f32>(s.entropies_at);
    f32* const partial = gw::shared<f32>(s.partial_at);
    f32* const of_heads = gw::shared<f32>(s.heads_at);
    f32* const ours = exchange + (u64)member * (3 * hidden + stochastic + s.categories);
    f32* const our_z = ours + 3 * hidden;
    f32* const our_entropies = our_z + stochastic;
    const Block block = {s.blocks,
                         first,
                         first < hidden ? gw::lesser(s.width, hidden - first) : 0,
                         gw::shared<f32>(s.state_at),
                         ours,
                         gw::shared<f32>(s.reset_at),
                         ours + 2 * hidden,
                         gw::shared<f32>(s.kept_at)};
    const u32 first_category = rank * s.own_categories;
    const u32 categories =
        first_category < s.categories ? gw::lesser(s.own_categories, s.categories - first_category) : 0;
    const u32 first_class = first_category * s.classes;
    const u32* slab = weights + (u64)gw::block_x() * s.words;
    if (RESIDENT) team::settle(gw::shared<u32>(), slab, s.words);
    const u32* matrices = RESIDENT ? gw::shared<u32>() : slab;
    const f32* bias = biases + (u64)gw::block_x() * (4 * s.width + 2 * s.prior_width + s.head_width);
    const f32* prior_bias = bias + 4 * s.width;
    const f32* head_bias = prior_bias + s.prior_width;
    const f32* posterior_bias = head_bias + s.head_width;
    const team::Gates gates = {matrices, bias, stochastic, ACTION, hidden, s.width, partial};
    const u32 prior_vectors = s.prior_width / team::COLUMNS, head_vectors = s.head_width / team::COLUMNS;
    const u64 base = SAMPLED ? bases[member] : 0;

    const u32 history = ENCODED ? s.history : 0;
    // The action of a step: while it looks back, that of the tick before.
    const auto action_of = [&](u32 step) {
        if (step >= history) return actions + (u64)(step - history) * ACTION;
        return step == 0 ? (const f32*)own_actions + member * ACTION
                         : ring_actions + (u64)((s.first_place + step - 1) % s.places) * ACTION;
    };
    f32* const seen = gw::shared<f32>(s.seen_at);
    team::Running running = {0.0, 0.0};
    f64 count = 0.0;
    if (ENCODED && gw::thread() < FEATURES) {
        running = {normaliser[gw::thread()], normaliser[FEATURES + gw::thread()]};
        count = normaliser[2 * FEATURES];
    }
    team::fetch(block.h, hidden_states + (u64)member * hidden, hidden);
    team::fetch(z, stochastic_states + (u64)member * stochastic, stochastic);
    team::fetch(action, action_of(0), ACTION);
    if constexpr (CLUSTERED) gw::sync_cluster();
    else gw::sync_threads();

    // The thread's own head, of mean or of variance, adds up over ticks.
    f64 cumulated = 0.0;
    for (u32 step = 0; step < history + s.ticks; ++step) {
        const bool looks_back = step < history;
        const u32 tick = step - history;
        const u64 row = (u64)tick * members + member;
        if (looks_back && gw::thread() < FEATURES) {
            const u64 place = (s.first_place + step) % s.places;
            count = count + 1.0 < FEATURE_MEMORY ? count + 1.0 : FEATURE_MEMORY;
            seen[gw::thread()] = running.take(ring_features[place * FEATURES + gw::thread()], 1.0 / count);
        }
        advance(gates, block, step, z, action + (step & 1) * ACTION, arrived, [&] {
            if (step + 1 < history + s.ticks) team::fetch(action + (~step & 1) * ACTION, action_of(step + 1), ACTION);
        });
        const f32* h = block.h + (~step & 1) * hidden;
        // Not earlier: with one tick to look back on, the team has only now read all of the state that this replaces.
        if (step + 1 == history) keep(hidden_states + (u64)member * hidden, block, h);

        team::product(partial, matrices + (looks_back ? s.posterior_word : s.prior_word), prior_vectors, h, hidden, seen,
                      looks_back ? FEATURES : 0);
        gw::sync_threads();
        for (u32 j = gw::thread(); j < categories * s.classes; j += TEAM_THREADS) {
            logits[j] = team::total(partial, s.prior_width, team::groups_of(prior_vectors), j) +
                        (looks_back ? posterior_bias : prior_bias)[j];
        }
        gw::sync_threads();
        for (u32 c = gw::thread(); c < categories; c += TEAM_THREADS) {
            f32* of_category = logits + c * s.classes;
            const u32 category = first_category + c;
            team::Choice choice = {0, 0.0f};
            if (SAMPLED && !looks_back) {
                const u64 number = (u64)tick * stochastic + category * s.classes;
                choice = team::choose(of_category, s.classes, base, number);
                chosen[row * s.categories + category] = choice.chosen;
                margins[row * s.categories + category] = choice.margin;
            }
            const f32 entropy = team::soften(of_category, s.classes);
            if (SAMPLED && !looks_back) {
                for (u32 i = 0; i < s.classes; ++i) of_category[i] = i == choice.chosen ? 1.0f : 0.0f;
            }
            team::give(entropies + category, our_entropies + category, s.blocks, entropy);
        }
        gw::sync_threads();
        for (u32 j = gw::thread(); j < categories * s.classes; j += TEAM_THREADS) {
            team::give(z + first_class + j, our_z + first_class + j, s.blocks, logits[j]);
            if (step + 1 == history) stochastic_states[(u64)member * stochastic + first_class + j] = logits[j];
        }
        if constexpr (CLUSTERED) gw::sync_cluster();
        else gw::sync_grid(arrived);
        if constexpr (!CLUSTERED) {
            team::fetch(z, our_z, stochastic);
            team::fetch(entropies, our_entropies, s.categories);
            gw::sync_threads();
        }
        if (looks_back) {
            if (step + 1 < history) continue;
            const u64 place = (s.first_place + step) % s.places;
            if (rank == 0 && gw::thread() < ACTION) {
                own_actions[member * ACTION + gw::thread()] = ring_actions[place * ACTION + gw::thread()];
            }
            if (gw::block_x() == 0 && gw::thread() < FEATURES) {
                next_normaliser[gw::thread()] = running.mean;
                next_normaliser[FEATURES + gw::thread()] = running.variance;
                if (gw::thread() == 0) next_normaliser[2 * FEATURES] = count;
            }
            continue;
        }

        team::product(of_heads, matrices + s.heads_word, head_vectors, h, hidden, z, stochastic);
        if (rank == s.blocks - 1 && gw::warp() == 0) {
            f64 squares = 0.0, entropy = 0.0;
            for (u32 i = gw::lane(); i < hidden; i += 32) squares = gw::fma((f64)h[i], (f64)h[i], squares);
            for (u32 i = gw::lane(); i < s.categories; i += 32) entropy += (f64)entropies[i];
            GW_UNROLL
            for (u32 lanes = 16; lanes > 0; lanes /= 2) {
                squares += gw::shuffle_xor(squares, lanes);
                entropy += gw::shuffle_xor(entropy, lanes);
            }
            if (gw::lane() == 0) {
                paths[4 * row + 2] = squares;
                paths[4 * row + 3] = entropy;
            }
        }
        gw::sync_threads();
        const u32 head = rank * s.head_width + gw::thread();
        if (gw::thread() < s.head_width && head < FEATURES + 2) {
            const f32 output =
                team::total(of_heads, s.head_width, team::groups_of(head_vectors), gw::thread()) + head_bias[gw::thread()];
            if (head < FEATURES) {
                features[row * FEATURES + head] = output;
            } else if (head == FEATURES) {
                cumulated += (f64)output;
                paths[4 * row] = cumulated;
            } else {
                // Variances stay between e^-12 and e^4.
                cumulated += (f64)functions::exp(output < -12.0f ? -12.0f : output > 4.0f ? 4.0f : output);
                paths[4 * row + 1] = cumulated;
            }
        }
    }
}
