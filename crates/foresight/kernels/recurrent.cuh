#include "team.cuh"

// A block of a team, and where it has what: `mine` is shared memory, `ours` the team's place in device memory.
struct Block {
    u32 blocks, first, owned;
    // [this step or the next, number], rows in whole vectors.
    f32* h;
    // [this step or the next, number]
    f32* our_h;
    f32 *reset, *our_reset;
    // [z, the input's part of n]: what is kept until the state after its reset is known.
    f32* kept;

    GW_DEVICE f32* state(u32 step, u32 hidden) const { return h + (step & 1) * ((hidden + 3) / 4 * 4); }
};

// Puts the state that a block begins with into shared memory, and zeros behind both rows of it up to whole vectors: loads of 16
// bytes meet them.
GW_DEVICE void begin(const Block& b, const f32* start, u32 hidden) {
    team::fetch(b.h, start, hidden);
    const u32 behind = (hidden + 3) / 4 * 4 - hidden;
    if (gw::thread() < 2 * behind) b.state(gw::thread() / behind, hidden)[hidden + gw::thread() % behind] = 0.0f;
}

// h_t = GRU(h_{t-1}, x) of one member, by all blocks of its team:
//   z = sigmoid(x W_z + h U_z + b_z)      r = sigmoid(x W_r + h U_r + b_r)
//   n = tanh(x W_n + b_n + r (h U_n + c_n))       reset after the product
//   n = tanh(x W_n + b_n + (r h) U_n + c_n)       reset before it: one product waits for the other
//   h' = (1 - z) h + z n
// `meanwhile` is done before the block meets; `late` while the team meets, and counts as done at its next meeting. After this
// function, every block has all of the next state, and is done with what it read before: `keep` may store that state in the
// place of the one that the team began with.
//
// A warp has 8 columns of the block with their four parts, or fewer with more lanes to add up each: z and r are computed at the
// same time by the lanes of their parts, n and h' by all lanes of a column, each of which sends h' to some blocks. In cycles, by counting
// instructions; a step takes about twice their sum on an H200, where the rest is waited for:
//   products     a warp's row of f32 takes 5 of shared memory and 7 instructions, one of bf16 20; of those in registers 5 and 9
//                instructions. Two warps share a scheduler, and 100 go by before the first sum and after the last
//   sums         40: barrier of the block; 90: 8 loads at once, and a shuffle or two
//   activations  120: sigmoid; 25: shuffles; 130: tanh
//   exchange     450: stores into 8 blocks and the cluster's barrier, without its fence, which orders all of device memory. In a
//                grid 2800: the barrier goes through L2, and so does the state
template <class Meanwhile, class Late>
GW_DEVICE void advance(const team::Gates& gates, const team::Held& held, const Block& b, u32 step, const f32* x, u32* arrived,
                       Meanwhile meanwhile, Late late) {
    const u32 hidden = gates.hidden, width = gates.width, columns = gates.columns, next_at = (~step & 1) * hidden;
    const f32* now = b.state(step, hidden);
    f32* const next = b.state(step + 1, hidden);
    gates.products(held, x, now);
    meanwhile();
    gw::sync_threads();
    const u32 callers = 4 * gates.slices, caller = gw::lane() / columns;
    for (u32 from = gw::warp() * columns; from < b.owned; from += team::WARPS * columns) {
        const u32 j = gw::lesser(from + gates.column, b.owned - 1), at = b.first + j;
        const bool is_column = from + gates.column < b.owned;
        const f32 h = now[at], sum = gates.part_of(j), open = functions::sigmoid(sum);
        const f32 r = gates.from_part(open, 1);
        if constexpr (RESET_BEFORE) {
            if (is_column) {
                if (caller == 0) b.kept[j] = open;
                if (caller == 2) b.kept[width + j] = sum;
                team::give(b.reset + at, b.our_reset + at, b.blocks, caller, callers, r * h);
            }
        } else {
            const f32 z = gates.from_part(open, 0);
            const f32 inner = gw::fma(r, gates.from_part(sum, 3), gates.from_part(sum, 2));
            const f32 value = team::next_state(z, h, inner);
            if (is_column) team::give(next + at, b.our_h + next_at + at, b.blocks, caller, callers, value);
        }
    }
    team::arrive();
    late();
    team::wait(arrived);
    if constexpr (RESET_BEFORE) {
        if constexpr (!CLUSTERED) {
            team::fetch(b.reset, b.our_reset, hidden);
            gw::sync_threads();
        }
        gates.candidate(b.reset);
        gw::sync_threads();
        const team::Lanes& lanes = gates.of_inner;
        for (u32 from = gw::warp() * lanes.columns; from < b.owned; from += team::WARPS * lanes.columns) {
            const u32 j = gw::lesser(from + lanes.column, b.owned - 1), at = b.first + j;
            const f32 inner = gw::add(b.kept[width + j], gates.candidate_of(j));
            const f32 value = team::next_state(b.kept[j], now[at], inner);
            if (from + lanes.column < b.owned) {
                team::give(next + at, b.our_h + next_at + at, b.blocks, lanes.slice, lanes.slices, value);
            }
        }
        team::arrive();
        team::wait(arrived);
    }
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
// A slab is its rows of the state that registers alone hold, then the input's, then the rest of the state's. A step waits for a
// barrier of the team; for two with the reset gate before the product. 5 members of 256 with 70 inputs in f32: 1 MB a member,
// 125 KB a block of a cluster of 8, 98 KB of that in registers. By counting, 500 cycles of a step are products, 130 sums,
// 275 activations, 450 exchange: 1350, or 0.7 us, of the 1.8 us that it takes. In bf16 they are as many; of 512 in bf16, 1900 are
// products; of 1024, on 26 blocks a member, 2000, and 2800 exchange.
GW_KERNEL_BOUNDED(gru, TEAM_THREADS, 1)(const u32* weights, const f32* biases, const f32* x, const f32* start, f32* states,
                                        f32* exchange, u32* arrived, GruShape s) {
    const u32 member = gw::block_x() / s.blocks, members = gw::blocks_x() / s.blocks, hidden = s.hidden;
    const u32 first = gw::block_x() % s.blocks * s.width;
    f32* const inputs = gw::shared<f32>(s.inputs_at);
    f32* const bias = gw::shared<f32>(s.bias_at);
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
    const u32* settled = slab + s.held_words;
    if (RESIDENT) team::settle(gw::shared<u32>(), settled, s.words - s.held_words);
    const team::Gates gates(RESIDENT ? gw::shared<u32>() : settled, bias, s.inputs, hidden, s.width, 0,
                            gw::shared<f32>(s.partial_at), gw::shared<f32>(s.of_reset_at));
    team::Held held;
    held.take(gates.state_of(slab), gates.share, s.held_rows);
    team::fetch(bias, biases + (u64)gw::block_x() * 4 * s.width, 4 * s.width);
    begin(block, start + (u64)member * hidden, hidden);
    team::fetch(inputs, x + (u64)member * s.inputs, s.inputs);
    if (RESIDENT) gw::copy_async_wait<0>();
    if constexpr (CLUSTERED) gw::sync_cluster();
    else gw::sync_threads();

    for (u32 step = 0; step < s.steps; ++step) {
        const u64 row = (u64)step * members + member;
        if (step + 1 < s.steps) {
            f32* const to = inputs + (~step & 1) * s.inputs;
            const f32* from = x + (row + members) * s.inputs;
            for (u32 i = gw::thread(); i < s.inputs; i += TEAM_THREADS) gw::copy_async<4>(to + i, from + i);
            gw::copy_async_commit();
        }
        advance(gates, held, block, step, inputs + (step & 1) * s.inputs, arrived, [] { gw::copy_async_wait<0>(); }, [] {});
        keep(states + row * hidden, block, block.state(step + 1, hidden));
    }
}

// What every member makes of ticks that were seen (ENCODED), and what it imagines from there on, tick by tick.
// For each of `history` ticks of a ring, the oldest first:
//   x = the tick's features on the scale of those so far; h = GRU(h, [z, a]); z = softmax([h, x] Q + b); a = the tick's action.
// What came of it takes the place of what there was: hidden, stochastic, action, normaliser. Then, for each of `ticks` actions:
//   h = GRU(h, [z, a]); logits = h P + b; z = softmax(logits), or one class of each category (SAMPLED);
//   features, mean and ln variance of the change of ln loss = [z, h] O + c; the latter two are cumulated.
// ring: [place, FEATURES], [place, ACTION]; normaliser: means, variances, count.
// told: the members' streams of random numbers, and behind them the actions, [tick, ACTION].
// paths: [tick, member, (mean, variance, |h|^2, entropy)]; features: [tick, member, FEATURES];
// chosen, margins: [tick, member, category]; exchange: [member, (h, h, reset, z, entropies of three ticks)].
//
// Two barriers of the team a tick, three with the reset gate before the product. A tick's heads are columns beside the gates of
// the next tick, which read the same z and h; those of the last tick are computed once more in the end. Nothing waits for heads,
// lengths, entropies and noise: they are computed while the team meets, by warps that have no categories where there are few.
// So an entropy is told two ticks late.
//
// 5 members of 256 with 32 x 8 categories in bf16: 125 KB a block of a cluster of 8, 72 KB of that in registers. By counting,
// 1000 cycles of a tick are the products of gates and heads, 130 sums, 275 activations, 450 exchange; 100 the product of the prior,
// 150 its sums, 100 the choice, 450 exchange: 2650, or 1.4 us, of the 4 us that it takes.
GW_KERNEL_BOUNDED(rollout, TEAM_THREADS, 1)(const u32* weights, const f32* biases, const u64* told, f32* hidden_states,
                                            f32* stochastic_states, f32* own_actions, const f64* ring_features,
                                            const f32* ring_actions, const f64* normaliser, f64* next_normaliser,
                                            f32* exchange, u32* arrived, f64* paths, f32* features, u32* chosen,
                                            f32* margins, RolloutShape s) {
    const u32 member = gw::block_x() / s.blocks, members = gw::blocks_x() / s.blocks, rank = gw::block_x() % s.blocks;
    const u32 hidden = s.hidden, stochastic = s.categories * s.classes, first = rank * s.width;
    f32* const z = gw::shared<f32>(s.given_at);
    f32* const action = z + stochastic;
    f32* const logits = gw::shared<f32>(s.logits_at);
    f32* const noise = gw::shared<f32>(s.noise_at);
    u32* const own_chosen = gw::shared<u32>(s.choices_at);
    f32* const own_margins = gw::shared<f32>(s.choices_at) + s.own_categories;
    f32* const partial = gw::shared<f32>(s.partial_at);
    f32* const of_logits = gw::shared<f32>(s.of_logits_at);
    f32* const ours = exchange + (u64)member * (3 * hidden + stochastic + 3 * s.categories);
    f32* const our_z = ours + 3 * hidden;
    // [tick % 3, category], of the last block where blocks reach each other's shared memory.
    f32* const entropies = CLUSTERED ? gw::shared<f32>(s.entropies_at) : our_z + stochastic;
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
    const u32* settled = slab + s.held_words;
    if (RESIDENT) team::settle(gw::shared<u32>(), settled, s.words - s.held_words);
    const u32* matrices = RESIDENT ? gw::shared<u32>() : settled;
    f32* const bias = gw::shared<f32>(s.bias_at);
    const f32* head_bias = bias + 4 * s.width;
    const f32* prior_bias = head_bias + s.head_width;
    const f32* posterior_bias = prior_bias + s.prior_width;
    const u32 biases_of_block = 4 * s.width + s.head_width + 2 * s.prior_width;
    const team::Gates gates(matrices, bias, stochastic + ACTION, hidden, s.width, s.head_width / team::COLUMNS, partial,
                            of_logits);
    team::Held held;
    held.take(gates.state_of(slab), gates.share, s.held_rows);
    const team::Share of_prior = team::share_of(s.prior_width / team::COLUMNS);
    const team::Lanes of_heads = team::lanes_of(s.head_width);
    const team::Classes own = team::classes_of(categories, s.classes, false);
    const team::Classes packed = team::classes_of(categories, s.classes, true);
    // What need not be told at once is for the last warps: the first ones have the categories, where there are few.
    const u32 from_last = team::WARPS - 1 - gw::warp();
    const u64 base = SAMPLED ? told[member] : 0;
    const f32* actions = reinterpret_cast<const f32*>(told + members);

    const u32 history = ENCODED ? s.history : 0, steps = history + s.ticks;
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
    team::fetch(bias, biases + (u64)gw::block_x() * biases_of_block, biases_of_block);
    begin(block, hidden_states + (u64)member * hidden, hidden);
    team::fetch(z, stochastic_states + (u64)member * stochastic, stochastic);
    team::fetch(action, action_of(0), ACTION);
    if (RESIDENT) gw::copy_async_wait<0>();
    if constexpr (CLUSTERED) gw::sync_cluster();
    else gw::sync_threads();

    // Several lanes have a head. The first of them adds up over ticks what the mean and the variance are.
    f64 cumulated = 0.0;
    const u32 column = gw::warp() * of_heads.columns + of_heads.column, head = rank * s.head_width + column;
    const auto tell_heads = [&](u32 tick) {
        if (gw::warp() * of_heads.columns >= s.head_width) return;
        const u32 shown = gw::lesser(column, s.head_width - 1);
        const f32 output = team::total(partial + 4 * s.width + shown, gates.stride(), gates.share.groups, of_heads.slice,
                                       of_heads.slices) + head_bias[shown];
        if (of_heads.slice > 0 || column >= s.head_width || head >= FEATURES + 2) return;
        const u64 row = (u64)tick * members + member;
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
    };
    const auto add_up = [](f64 sum) {
        GW_UNROLL
        for (u32 lanes = 16; lanes > 0; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
        return sum;
    };
    const auto tell_length = [&](u32 tick, const f32* h) {
        f64 squares = 0.0;
        GW_UNROLL_BY(4)
        for (u32 i = gw::lane(); i < hidden; i += 32) squares = gw::fma((f64)h[i], (f64)h[i], squares);
        squares = add_up(squares);
        if (gw::lane() == 0) paths[4 * ((u64)tick * members + member) + 2] = squares;
    };
    // Entropies of the block's categories, to the last block: after a barrier behind their logits.
    const auto give_entropies = [&](u32 tick) {
        const u32 of_tick = (tick & 1) * s.prior_width;
        for (u32 from = from_last * packed.at_once; from < categories; from += team::WARPS * packed.at_once) {
            const u32 c = gw::lesser(from + packed.category, categories - 1);
            const auto logit = [&](u32 i) { return logits[of_tick + c * s.classes + i]; };
            const team::Softmax softmax = team::soften(packed.lane, packed.lanes, s.classes, logit);
            f64 entropy = 0.0;
            for (u32 i = packed.lane; i < s.classes; i += packed.lanes) {
                const f32 share = softmax.of(logit(i));
                entropy -= (f64)share * (f64)functions::ln(gw::maximum(share, 1e-20f));
            }
            for (u32 apart = packed.lanes / 2; apart > 0; apart /= 2) entropy += gw::shuffle_xor(entropy, apart);
            if (from + packed.category < categories && packed.lane == 0) {
                f32* const place = entropies + tick % 3 * s.categories + first_category + c;
                *(CLUSTERED ? gw::cluster_map(place, s.blocks - 1) : place) = (f32)entropy;
            }
        }
    };
    // Their sum, by the last block: after a barrier behind those.
    const auto tell_entropy = [&](u32 tick) {
        f64 entropy = 0.0;
        for (u32 i = gw::lane(); i < s.categories; i += 32) entropy += (f64)entropies[tick % 3 * s.categories + i];
        entropy = add_up(entropy);
        if (gw::lane() == 0) paths[4 * ((u64)tick * members + member) + 3] = entropy;
    };
    const auto make_noise = [&](u32 tick) {
        // The warps of the first half have the categories, where there are few.
        for (u32 j = (gw::thread() + TEAM_THREADS / 2) % TEAM_THREADS; j < categories * s.classes; j += TEAM_THREADS) {
            const u64 bits = functions::random_bits(base, (u64)tick * stochastic + first_class + j);
            noise[(tick & 1) * s.prior_width + j] = functions::gumbel(bits);
        }
    };
    if (SAMPLED) make_noise(0);

    for (u32 step = 0; step < steps; ++step) {
        const bool looks_back = step < history;
        const u32 tick = step - history;
        if (looks_back && gw::thread() < FEATURES) {
            const u64 place = (s.first_place + step) % s.places;
            count = count + 1.0 < FEATURE_MEMORY ? count + 1.0 : FEATURE_MEMORY;
            seen[gw::thread()] = running.take(ring_features[place * FEATURES + gw::thread()], 1.0 / count);
        }
        f32 next_action = 0.0f;
        if (step + 1 < steps && gw::thread() < ACTION) next_action = action_of(step + 1)[gw::thread()];
        advance(gates, held, block, step, z, arrived, [] {}, [&] {
            if (gw::thread() < ACTION) action[gw::thread()] = next_action;
            if (step > history) tell_heads(tick - 1);
        });
        const f32* h = block.state(step + 1, hidden);
        // Not earlier: with one tick to look back on, the team has only now read all of the state that this replaces.
        if (step + 1 == history) keep(hidden_states + (u64)member * hidden, block, h);

        team::product(of_logits, matrices + (looks_back ? s.posterior_word : s.prior_word), of_prior, h, hidden, seen,
                      looks_back ? FEATURES : 0);
        gw::sync_threads();
        const u32 of_tick = (tick & 1) * s.prior_width;
        for (u32 from = gw::warp() * own.at_once; from < categories; from += team::WARPS * own.at_once) {
            const u32 c = gw::lesser(from + own.category, categories - 1), of_category = c * s.classes;
            const bool is_category = from + own.category < categories;
            // What is a lane's last logit stays in a register: mostly it is the only one.
            f32 last = gw::bits<f32>(team::NONE);
            team::Choice choice = {last, last, 0};
            for (u32 first_of = 0; first_of < s.classes; first_of += own.lanes) {
                const u32 i = first_of + own.lane, j = of_category + gw::lesser(i, s.classes - 1);
                const f32 logit = team::total(of_logits + j, team::stride_of(s.prior_width), of_prior.groups, own.slice,
                                              own.slices) + (looks_back ? posterior_bias : prior_bias)[j];
                if (i >= s.classes) continue;
                last = logit;
                if (is_category && own.slice == 0) logits[of_tick + j] = logit;
                if (SAMPLED && !looks_back) choice.see(gw::add(logit, noise[of_tick + j]), i);
            }
            team::Softmax softmax = {0.0f, 1.0f};
            const auto logit = [&](u32 i) { return i + own.lanes < s.classes ? logits[of_tick + of_category + i] : last; };
            if (SAMPLED && !looks_back) {
                choice.join(own.lanes);
                if (is_category && own.slice == 0 && own.lane == 0) {
                    own_chosen[c] = choice.chosen;
                    own_margins[c] = choice.margin();
                }
            } else {
                softmax = team::soften(own.lane, own.lanes, s.classes, logit);
            }
            for (u32 i = own.lane; i < s.classes && is_category; i += own.lanes) {
                const u32 at = first_class + of_category + i;
                const f32 value = SAMPLED && !looks_back ? (i == choice.chosen ? 1.0f : 0.0f) : softmax.of(logit(i));
                team::give(z + at, our_z + at, s.blocks, own.slice, own.slices, value);
                if (step + 1 == history && own.slice == 0) stochastic_states[(u64)member * stochastic + at] = value;
            }
        }
        team::arrive();
        if (!looks_back) {
            const u64 row = ((u64)tick * members + member) * s.categories + first_category;
            for (u32 from = gw::warp() * own.at_once; SAMPLED && from < categories; from += team::WARPS * own.at_once) {
                const u32 c = from + own.category;
                if (c >= categories || own.slice > 0 || own.lane > 0) continue;
                chosen[row + c] = own_chosen[c];
                margins[row + c] = own_margins[c];
            }
            if (SAMPLED && step + 1 < steps) make_noise(tick + 1);
            if (tick > 0) give_entropies(tick - 1);
            if (rank == s.blocks - 1 && from_last == 1) tell_length(tick, h);
            if (rank == s.blocks - 1 && from_last == 2 && tick > 1) tell_entropy(tick - 2);
        }
        team::wait(arrived);
        if constexpr (!CLUSTERED) {
            team::fetch(z, our_z, stochastic);
            gw::sync_threads();
        }
        if (step + 1 == history) {
            const u64 place = (s.first_place + step) % s.places;
            if (rank == 0 && gw::thread() < ACTION) {
                own_actions[member * ACTION + gw::thread()] = ring_actions[place * ACTION + gw::thread()];
            }
            if (gw::block_x() == 0 && gw::thread() < FEATURES) {
                next_normaliser[gw::thread()] = running.mean;
                next_normaliser[FEATURES + gw::thread()] = running.variance;
                if (gw::thread() == 0) next_normaliser[2 * FEATURES] = count;
            }
        }
    }

    gates.products(held, z, block.state(steps, hidden));
    give_entropies(s.ticks - 1);
    team::arrive();
    team::wait(arrived);
    tell_heads(s.ticks - 1);
    if (rank == s.blocks - 1 && from_last == 1 && s.ticks > 1) tell_entropy(s.ticks - 2);
    if (rank == s.blocks - 1 && from_last == 2) tell_entropy(s.ticks - 1);
}
