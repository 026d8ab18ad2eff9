// Correct ways for the threads of a block to work together. Each kernel asserts what it computed. `x` has 1024 words: all 7 but
// for the last eight, which are 0; nobody has written `fresh`.
#include "gw/gw.cuh"

GW_DEVICE void init(gw::Mbarrier* barriers, u32 count, u32 arrivals) {
    if (gw::thread() == 0) {
        for (u32 i = 0; i < count; ++i) gw::mbarrier_init(barriers + i, arrivals);
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
}

// A tree of sums with a barrier for each level.
GW_KERNEL(tree)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    s[gw::thread()] = x[gw::thread()];
    gw::sync_threads();
    for (u32 half = gw::threads() / 2; half > 0; half /= 2) {
        if (gw::thread() < half) s[gw::thread()] += s[gw::thread() + half];
        gw::sync_threads();
    }
    GW_ASSERT(s[0] == 7 * gw::threads());
}

// The same in one warp, whose barriers are its own.
GW_KERNEL(warp_tree)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>() + 32 * gw::warp();
    s[gw::lane()] = x[gw::thread()];
    gw::sync_warp();
    for (u32 half = 16; half > 0; half /= 2) {
        if (gw::lane() < half) s[gw::lane()] += s[gw::lane() + half];
        gw::sync_warp();
    }
    GW_ASSERT(s[0] == 7 * 32);
}

// Sums by exchanges alone.
GW_KERNEL(butterfly)(u32* x, u32* fresh, u32 n) {
    u32 sum = x[gw::thread()];
    for (u32 lanes = 16; lanes > 0; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
    GW_ASSERT(sum == 7 * 32);
    GW_ASSERT(gw::all(sum == 7 * 32) && !gw::any(sum == 0));
}

// A part of a warp that names exactly itself.
GW_KERNEL(part_of_a_warp)(u32* x, u32* fresh, u32 n) {
    const u32 mask = gw::ballot(gw::lane() < 10);
    if (gw::lane() >= 10) return;
    const u32 lanes = gw::reduce_add(1u, mask), first = gw::shuffle(gw::lane(), 0, mask);
    GW_ASSERT(lanes == 10 && first == 0);
    gw::sync_warp(mask);
}

// A scan between two buffers, with one barrier a step.
GW_KERNEL(scan_of_two_buffers)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 t = gw::thread(), count = gw::threads();
    u32 from = 0;
    s[t] = 1;
    gw::sync_threads();
    for (u32 step = 1; step < count; step *= 2) {
        const u32 to = count - from;
        s[to + t] = s[from + t] + (t >= step ? s[from + t - step] : 0);
        from = to;
        gw::sync_threads();
    }
    GW_ASSERT(s[from + t] == t + 1);
}

// Ping-pong: a step reads what the last one wrote.
GW_KERNEL(ping_pong)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 t = gw::thread(), next = (t + 1) % gw::threads();
    s[t] = t;
    for (u32 step = 0; step < 5; ++step) {
        gw::sync_threads();
        s[gw::threads() * (~step & 1) + t] = s[gw::threads() * (step & 1) + next];
    }
    gw::sync_threads();
    GW_ASSERT(s[gw::threads() + t] == (t + 5) % gw::threads());
}

// A transposed tile with a row of padding, which nobody writes or reads.
GW_KERNEL(transpose)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 row = gw::thread() / 8, column = gw::thread() % 8;
    s[9 * row + column] = gw::thread();
    gw::sync_threads();
    GW_ASSERT(s[9 * column + row] == 8 * column + row);
}

// Exchanges of a bitonic sort.
GW_KERNEL(bitonic)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 t = gw::thread();
    s[t] = (t * 37 + 11) % 64;
    for (u32 size = 2; size <= 64; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            gw::sync_threads();
            const u32 other = t ^ step;
            if (other > t && (s[t] > s[other]) == ((t & size) == 0)) {
                const u32 kept = s[t];
                s[t] = s[other];
                s[other] = kept;
            }
        }
    }
    gw::sync_threads();
    GW_ASSERT(s[t] == t);
}

// Neighbouring bytes of a word, each of its own thread.
GW_KERNEL(bytes)(u32* x, u32* fresh, u32 n) {
    u8* s = gw::shared<u8>();
    s[gw::thread()] = (u8)gw::thread();
    gw::sync_threads();
    GW_ASSERT(gw::shared<u32>()[0] == 0x03020100);
}

// Shared memory that is one thing first and another after a barrier.
GW_KERNEL(reused)(u32* x, u32* fresh, u32 n) {
    f32* before = gw::shared<f32>();
    before[gw::thread()] = 1.0f;
    gw::sync_threads();
    const f32 got = before[gw::thread() ^ 1];
    gw::sync_threads();
    u64* after = gw::shared<u64>();
    if (gw::thread() < 32) after[gw::thread()] = gw::thread();
    gw::sync_threads();
    GW_ASSERT(got == 1.0f && after[gw::thread() / 2] == gw::thread() / 2);
}

// Words that no thread of the kernel writes, by the read-only path.
GW_KERNEL(read_only)(u32* x, u32* fresh, u32 n) {
    const u32 v = gw::load_readonly(x + gw::thread());
    x[512 + gw::thread()] = v + gw::load_readonly(x + (gw::thread() ^ 1));
    GW_ASSERT(v == 7);
}

// Two halves of a block take turns by named barriers.
GW_KERNEL(named_turns)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 half = gw::thread() / 64, t = gw::thread() % 64;
    if (half == 1) gw::barrier_arrive(1, 128);
    for (u32 step = 0; step < 3; ++step) {
        gw::barrier_sync(1 + half, 128);
        if (half == 0) s[t] = 10 + step;
        if (half == 1) GW_ASSERT(s[t ^ 1] == 10 + step);
        if (half == 0 || step < 2) gw::barrier_arrive(2 - half, 128);
    }
}

// A producer warp and a consumer warp: one barrier says full, one empty.
GW_KERNEL(named_full_and_empty)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    for (u32 i = 0; i < 4; ++i) {
        if (gw::warp() == 0) {
            if (i > 0) gw::barrier_sync(2, 64);
            s[gw::lane()] = i;
            gw::barrier_arrive(1, 64);
        } else {
            gw::barrier_sync(1, 64);
            GW_ASSERT(s[31 - gw::lane()] == i);
            if (i < 3) gw::barrier_arrive(2, 64);
        }
    }
}

// An mbarrier instead of a barrier of the block.
GW_KERNEL(mbarrier_of_all)(u32* x, u32* fresh, u32 n) {
    gw::Mbarrier* b = gw::shared<gw::Mbarrier>(4096);
    u32* s = gw::shared<u32>();
    init(b, 1, gw::threads());
    for (u32 step = 0; step < 4; ++step) {
        s[gw::threads() * (step & 1) + gw::thread()] = step;
        gw::mbarrier_arrive(b);
        gw::mbarrier_wait(b, step & 1);
        GW_ASSERT(s[gw::threads() * (step & 1) + (gw::thread() ^ 33)] == step);
    }
}

// A ring of two stages: a thread fills them by bulk copies, a warp empties them.
GW_KERNEL(ring_of_stages)(u32* x, u32* fresh, u32 n) {
    gw::Mbarrier *full = gw::shared<gw::Mbarrier>(4096), *empty = full + 2;
    u32* s = gw::shared<u32>();
    if (gw::thread() == 0) {
        for (u32 i = 0; i < 2; ++i) {
            gw::mbarrier_init(full + i, 1);
            gw::mbarrier_init(empty + i, 32);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    for (u32 i = 0; i < 7; ++i) {
        const u32 stage = i % 2, lap = i / 2;
        if (gw::thread() == 32) {
            if (lap > 0) gw::mbarrier_wait(empty + stage, ~lap & 1);
            gw::mbarrier_arrive_expect(full + stage, 128);
            gw::bulk_load(s + 32 * stage, x + 32 * i, 128, full + stage);
        }
        if (gw::warp() == 0) {
            gw::mbarrier_wait(full + stage, lap & 1);
            GW_ASSERT(s[32 * stage + gw::lane()] == 7);
            gw::mbarrier_arrive(empty + stage);
        }
    }
}

// Polls instead of a wait.
GW_KERNEL(polled_copy)(u32* x, u32* fresh, u32 n) {
    gw::Mbarrier* b = gw::shared<gw::Mbarrier>(4096);
    u32* s = gw::shared<u32>();
    init(b, 1, 1);
    if (gw::thread() == 0) {
        gw::mbarrier_arrive_expect(b, 128);
        gw::bulk_load(s, x, 128, b);
    }
    while (!gw::mbarrier_try_wait(b, 0)) {}
    GW_ASSERT(s[gw::lane()] == 7);
}

// cp.async with two groups under way.
GW_KERNEL(two_groups)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    const u32 t = gw::thread(), count = gw::threads();
    gw::copy_async<4>(s + t, x + t);
    gw::copy_async_commit();
    for (u32 i = 1; i <= 4; ++i) {
        if (i < 4) gw::copy_async<4>(s + count * (i & 1) + t, x + count * i + t);
        gw::copy_async_commit();
        gw::copy_async_wait<1>();
        gw::sync_threads();
        GW_ASSERT(s[count * (~i & 1) + (t ^ 1)] == 7);
        gw::sync_threads();
    }
}

// cp.async that arrives at an mbarrier when it is done.
GW_KERNEL(copies_that_arrive)(u32* x, u32* fresh, u32 n) {
    gw::Mbarrier* b = gw::shared<gw::Mbarrier>(4096);
    u32* s = gw::shared<u32>();
    init(b, 1, gw::threads());
    gw::copy_async<4>(s + gw::thread(), x + gw::thread());
    gw::copy_async_arrive(b);
    gw::mbarrier_wait(b, 0);
    GW_ASSERT(s[gw::thread() ^ 5] == 7);
}

// Bulk stores from one buffer, again and again.
GW_KERNEL(stores_in_turn)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    for (u32 i = 0; i < 3; ++i) {
        s[gw::thread()] = i;
        gw::fence_async_proxy_shared();
        gw::sync_threads();
        if (gw::thread() == 0) {
            gw::bulk_store(fresh + 64 * i, s, 256);
            gw::bulk_commit();
            gw::bulk_wait_read<0>();
        }
        gw::sync_threads();
    }
    if (gw::thread() == 0) gw::bulk_wait<0>();
}

// An mbarrier whose memory is data again.
GW_KERNEL(retired_mbarrier)(u32* x, u32* fresh, u32 n) {
    gw::Mbarrier* b = gw::shared<gw::Mbarrier>();
    init(b, 1, gw::threads());
    gw::mbarrier_arrive(b);
    gw::mbarrier_wait(b, 0);
    gw::sync_threads();
    if (gw::thread() == 0) gw::mbarrier_invalidate(b);
    gw::sync_threads();
    u32* s = gw::shared<u32>();
    s[gw::thread()] = gw::thread();
    gw::sync_threads();
    GW_ASSERT(s[gw::thread() ^ 1] == (gw::thread() ^ 1));
}

// A message inside of a block, by atomics of its scope.
GW_KERNEL(flag_in_the_block)(u32* x, u32* fresh, u32 n) {
    u32* s = gw::shared<u32>();
    if (gw::thread() == 0) s[0] = 0;
    gw::sync_threads();
    if (gw::thread() == 0) {
        s[1] = 9;
        gw::store_release<gw::Scope::Block>(s, 1u);
    } else {
        while (gw::load_acquire<gw::Scope::Block>(s) == 0) {}
        GW_ASSERT(s[1] == 9);
    }
}
