// Correct ways for blocks to work together. Each kernel asserts what it computed. `x` has 1024 words: all 7 but for the last
// eight, which are 0; nobody has written `fresh`.
#include "gw/gw.cuh"

constexpr u32 ZEROS = 1016;

// Blocks take their numbers when they start, so that who is waited for has started.
GW_DEVICE u32 ticket(u32* counter) {
    u32* s = gw::shared<u32>();
    if (gw::thread() == 0) s[0] = gw::atomic_add(counter, 1u);
    gw::sync_threads();
    return s[0];
}

// Decoupled look-back: a block's status and its sum are one word, so that no order is needed.
GW_KERNEL(look_back_packed)(u32* x, u32* fresh, u32 n) {
    constexpr u32 SUM = 1u << 30, PREFIX = 2u << 30, VALUE = SUM - 1;
    const u32 number = ticket(x + ZEROS);
    u32* status = x + ZEROS + 1;
    const u32 sum = gw::reduce_add(x[32 * number + gw::lane()]);
    if (gw::thread() != 0) return;
    u32 before = 0;
    if (number > 0) {
        gw::store_relaxed(status + number, SUM | sum);
        for (u32 i = number; i > 0;) {
            const u32 word = gw::load_relaxed(status + i - 1);
            if (word == 0) continue;
            before += word & VALUE;
            if (word & PREFIX) break;
            --i;
        }
    }
    gw::store_relaxed(status + number, PREFIX | (before + sum));
    GW_ASSERT(before == 7 * 32 * number);
    fresh[number] = before;
}

// The same with the sum in another word, which the status releases.
GW_KERNEL(look_back_released)(u32* x, u32* fresh, u32 n) {
    const u32 number = ticket(x + ZEROS);
    u32* ready = x + ZEROS + 1;
    const u32 sum = gw::reduce_add(x[32 * number + gw::lane()]);
    if (gw::thread() != 0) return;
    u32 before = 0;
    if (number > 0) {
        while (gw::load_acquire(ready + number - 1) == 0) {}
        before = fresh[number - 1];
    }
    fresh[number] = before + sum;
    gw::store_release(ready + number, 1u);
    GW_ASSERT(before == 7 * 32 * number);
}

// A lock that is acquired by comparing and released by a store.
GW_KERNEL(spin_lock)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    for (u32 i = 0; i < 4; ++i) {
        while (gw::atomic_cas<gw::Order::Acquire>(x + ZEROS, 0u, 1u) != 0) gw::pause();
        x[0] += 1;
        gw::store_release(x + ZEROS, 0u);
    }
}

// A lock of relaxed atomics between fences, held by one thread for its whole block.
GW_KERNEL(block_lock)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() == 0) {
        while (gw::atomic_cas(x + ZEROS, 0u, 1u) != 0) gw::pause();
        gw::fence_device();
    }
    gw::sync_threads();
    x[gw::thread()] += 1;
    gw::sync_threads();
    if (gw::thread() == 0) {
        gw::fence_device();
        gw::atomic_exchange(x + ZEROS, 0u);
    }
}

// Whoever comes is served in the order of tickets.
GW_KERNEL(ticket_lock)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    const u32 mine = gw::atomic_add(x + ZEROS, 1u);
    while (gw::load_acquire(x + ZEROS + 1) != mine) gw::pause();
    x[0] += mine;
    gw::store_release(x + ZEROS + 1, mine + 1);
}

// The block that comes last adds up what all wrote: one thread's fences are enough for its block, between barriers.
GW_KERNEL(last_block)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    fresh[64 * gw::block_x() + gw::thread()] = gw::thread();
    gw::sync_threads();
    if (gw::thread() == 0) {
        gw::fence_device();
        s[0] = gw::atomic_add(x + ZEROS, 1u);
        gw::fence_device();
    }
    gw::sync_threads();
    if (s[0] != gw::blocks_x() - 1) return;
    u32 sum = 0;
    for (u32 block = 0; block < gw::blocks_x(); ++block) sum += fresh[64 * block + gw::thread()];
    GW_ASSERT(sum == gw::blocks_x() * gw::thread());
}

// The same with an atomic that acquires and releases.
GW_KERNEL(last_block_ordered)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    fresh[64 * gw::block_x() + gw::thread()] = 3;
    gw::sync_threads();
    if (gw::thread() == 0) s[0] = gw::atomic_add<gw::Order::AcquireRelease>(x + ZEROS, 1u);
    gw::sync_threads();
    if (s[0] == gw::blocks_x() - 1) GW_ASSERT(fresh[64 * (gw::thread() % gw::blocks_x()) + gw::thread()] == 3);
}

// A grid barrier by hand: a counter that only grows.
GW_KERNEL(grid_barrier)(u32* x, u32* fresh, u32 n) {
    const u32 blocks = gw::blocks_x(), next = (gw::block_x() + 1) % blocks;
    for (u32 round = 0; round < 3; ++round) {
        fresh[32 * gw::block_x() + gw::thread()] = round;
        for (u32 half = 1; half <= 2; ++half) {
            gw::sync_threads();
            if (gw::thread() == 0) {
                gw::fence_device();
                gw::atomic_add(x + ZEROS, 1u);
                while (gw::load_relaxed(x + ZEROS) < blocks * (2 * round + half)) {}
                gw::fence_device();
            }
            gw::sync_threads();
            if (half == 1) GW_ASSERT(fresh[32 * next + gw::thread()] == round);
        }
    }
}

// A grid barrier that turns a sense and needs no counter that grows.
GW_KERNEL(sense_barrier)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    for (u32 round = 0; round < 4; ++round) {
        const u32 sense = ~round & 1;
        if (gw::block_x() == 0) fresh[round] = 5 + round;
        if (gw::atomic_add<gw::Order::AcquireRelease>(x + ZEROS, 1u) == gw::blocks_x() - 1) {
            gw::store_relaxed(x + ZEROS, 0u);
            gw::store_release(x + ZEROS + 1, sense);
        } else {
            while (gw::load_acquire(x + ZEROS + 1) != sense) {}
        }
        GW_ASSERT(fresh[round] == 5 + round);
    }
}

// Two barriers of the grid around words that change hands.
GW_KERNEL(grid_exchange)(u32* x, u32* fresh, u32 n) {
    const u32 next = (gw::block_x() + 1) % gw::blocks_x();
    fresh[gw::block_x()] = gw::block_x();
    gw::sync_grid(x + ZEROS);
    const u32 got = fresh[next];
    gw::sync_grid(x + ZEROS);
    fresh[gw::block_x()] = got;
    GW_ASSERT(got == next);
}

// One block writes, the other waits for its flag.
GW_KERNEL(message)(u32* x, u32* fresh, u32 n) {
    if (gw::block_x() == 0) {
        fresh[gw::thread()] = gw::thread();
        gw::sync_threads();
        if (gw::thread() == 0) gw::store_release(x + ZEROS, 1u);
    } else {
        if (gw::thread() == 0) while (gw::load_acquire(x + ZEROS) == 0) {}
        gw::sync_threads();
        GW_ASSERT(fresh[gw::thread() ^ 1] == (gw::thread() ^ 1));
    }
}

// A ring of four words between two blocks, with a head and a tail.
GW_KERNEL(ring_of_two)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    u32 *head = x + ZEROS, *tail = x + ZEROS + 1;
    for (u32 i = 0; i < 11; ++i) {
        if (gw::block_x() == 0) {
            while (i - gw::load_acquire(tail) >= 4) {}
            fresh[i % 4] = 100 + i;
            gw::store_release(head, i + 1);
        } else {
            while (gw::load_acquire(head) <= i) {}
            GW_ASSERT(fresh[i % 4] == 100 + i);
            gw::store_release(tail, i + 1);
        }
    }
}

// A queue of slots with a turn each: any block puts, any takes.
GW_KERNEL(queue_of_slots)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    u32* turn = x + ZEROS + 2;
    const u32 place = gw::atomic_add(x + ZEROS + gw::block_x() % 2, 1u);
    const u32 slot = place % 2, lap = place / 2;
    if (gw::block_x() % 2 == 0) {
        while (gw::load_acquire(turn + slot) != 2 * lap) {}
        fresh[slot] = 40 + place;
        gw::store_release(turn + slot, 2 * lap + 1);
    } else {
        while (gw::load_acquire(turn + slot) != 2 * lap + 1) {}
        GW_ASSERT(fresh[slot] == 40 + place);
        gw::store_release(turn + slot, 2 * lap + 2);
    }
}

// A writer that readers never stop: they read again where the number changed.
GW_KERNEL(sequence_lock)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    u32 *number = x + ZEROS, *pair = x + ZEROS + 1;
    if (gw::block_x() == 0) {
        for (u32 i = 1; i <= 3; ++i) {
            gw::store_relaxed(number, 2 * i - 1);
            gw::fence_device();
            gw::store_relaxed(pair, i);
            gw::store_relaxed(pair + 1, i);
            gw::store_release(number, 2 * i);
        }
        return;
    }
    for (u32 tries = 0; tries < 5; ++tries) {
        const u32 before = gw::load_acquire(number);
        const u32 first = gw::load_relaxed(pair), second = gw::load_relaxed(pair + 1);
        gw::fence_device();
        if (before % 2 == 0 && gw::load_relaxed(number) == before) GW_ASSERT(first == second);
    }
}

// Initialised once, by whoever comes first.
GW_KERNEL(once)(u32* x, u32* fresh, u32 n) {
    if (gw::thread() != 0) return;
    u32* state = x + ZEROS;
    if (gw::load_acquire(state) != 2) {
        if (gw::atomic_cas(state, 0u, 1u) == 0) {
            fresh[0] = 77;
            gw::store_release(state, 2u);
        } else {
            while (gw::load_acquire(state) != 2) {}
        }
    }
    GW_ASSERT(fresh[0] == 77);
}

// A sum by comparing and exchanging, and a maximum.
GW_KERNEL(compare_and_exchange)(u32* x, u32* fresh, u32 n) {
    u32 seen = gw::load_relaxed(x + ZEROS);
    while (true) {
        const u32 before = gw::atomic_cas(x + ZEROS, seen, seen + gw::thread());
        if (before == seen) break;
        seen = before;
    }
    gw::atomic_max(x + ZEROS + 1, gw::thread());
    GW_ASSERT(gw::load_relaxed(x + ZEROS + 1) >= gw::thread());
}

// A histogram of the block in shared memory, added to the grid's.
GW_KERNEL(histogram)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    if (gw::thread() < 4) s[gw::thread()] = 0;
    gw::sync_threads();
    gw::atomic_add(s + (gw::thread() & 3), 1u);
    gw::sync_threads();
    GW_ASSERT(s[gw::thread() & 3] == gw::threads() / 4);
    if (gw::thread() < 4) gw::atomic_add(x + ZEROS + gw::thread(), s[gw::thread()]);
}

// One atomic for all lanes of a warp that want a place.
GW_KERNEL(warp_aggregated)(u32* x, u32* fresh, u32 n) {
    const bool wants = gw::lane() % 3 == 0;
    const u32 all = gw::ballot(wants);
    u32 base = 0;
    if (gw::lane() == 0) base = gw::atomic_add(x + ZEROS, gw::count_ones(all));
    base = gw::shuffle(base, 0);
    if (wants) fresh[base + gw::count_ones(all & ((1u << gw::lane()) - 1))] = 1;
}

// Blocks of a cluster add up each other's shared memory, and none ends before all have read.
GW_KERNEL(cluster_sum)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    s[gw::thread()] = gw::cluster_rank() + 1;
    gw::sync_cluster();
    u32 sum = 0;
    for (u32 rank = 0; rank < gw::cluster_size(); ++rank) sum += gw::cluster_map(s, rank)[gw::thread()];
    gw::sync_cluster();
    GW_ASSERT(sum == 3);
}

// A launch that starts early, and waits before it looks.
GW_KERNEL(early)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    s[gw::thread()] = gw::thread();
    gw::await_stream();
    fresh[gw::global_thread()] = x[s[gw::thread()]];
}
