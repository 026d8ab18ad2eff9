#include "gw/gw.cuh"

// Three ways in which the blocks of a cluster hand tiles of 64 words to each other. Blocks have 64 threads, one a word.
#define TILE 64
#define TILE_BYTES 256

// Every block takes the words x of the next block of its cluster, over and over: x <- 2 x + rank + 1. In the end
// out <- the next block's words. By reads of distributed shared memory between cluster barriers.
GW_KERNEL(cluster_ring)(const u32* values, u32* out, u32 rounds) {
    u32* mine = gw::shared<u32>();
    const u32 rank = gw::cluster_rank();
    const u32* next = gw::cluster_map(mine, (rank + 1) % gw::cluster_size());
    mine[gw::thread()] = values[gw::global_thread()];
    gw::cluster_arrive();
    for (u32 round = 0; round < rounds; ++round) {
        gw::cluster_wait();
        const u32 taken = next[gw::thread()];
        gw::sync_cluster();
        mine[gw::thread()] = 2 * taken + rank + 1;
        gw::cluster_arrive();
    }
    gw::cluster_wait();
    out[gw::global_thread()] = next[gw::thread()];
    gw::sync_cluster();
}

// out[block][tile] <- tiles[cluster][tile], turned round, plus the block's rank. Block 0 of a cluster loads each tile for
// all of them, in two stages; every thread tells it when it has read a stage.
GW_KERNEL(cluster_multicast)(const u32* tiles, u32* out, u32 count) {
    u32* stages = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(2 * TILE_BYTES);
    gw::Mbarrier* empty = full + 2;
    const u32 rank = gw::cluster_rank();
    const u32 size = gw::cluster_size();
    if (gw::thread() == 0) {
        for (u32 s = 0; s < 2; ++s) {
            gw::mbarrier_init(full + s, 1);
            gw::mbarrier_init(empty + s, size * TILE);
        }
        gw::fence_mbarrier_init();
    }
    gw::cluster_arrive_relaxed();
    gw::cluster_wait();
    const u32* from = tiles + (u64)gw::cluster_x() * count * TILE;
    for (u32 tile = 0; tile < count; ++tile) {
        const u32 s = tile % 2;
        if (gw::thread() == 0) {
            if (rank == 0 && tile >= 2) gw::mbarrier_wait<gw::Scope::Cluster>(empty + s, (tile / 2 - 1) & 1);
            gw::mbarrier_arrive_expect(full + s, TILE_BYTES);
            if (rank == 0) {
                gw::bulk_load_multicast(stages + s * TILE, from + tile * TILE, TILE_BYTES, full + s, (u16)((1u << size) - 1));
            }
        }
        gw::mbarrier_wait(full + s, (tile / 2) & 1);
        const u32 word = stages[s * TILE + TILE - 1 - gw::thread()];
        out[((u64)gw::block_x() * count + tile) * TILE + gw::thread()] = word + rank;
        gw::mbarrier_arrive_at(empty + s, 0);
    }
    gw::sync_cluster();
}

// Words go round the cluster, each block sending what it has to the next: x <- x received + rank + 1. By bulk copies from
// shared to shared memory; who has received says so to who sent.
GW_KERNEL(cluster_send)(const u32* values, u32* out, u32 rounds) {
    u32* outbox = gw::shared<u32>();
    u32* inbox = outbox + TILE;
    gw::Mbarrier* received = gw::shared<gw::Mbarrier>(2 * TILE_BYTES);
    gw::Mbarrier* taken = received + 1;
    const u32 rank = gw::cluster_rank();
    const u32 size = gw::cluster_size();
    if (gw::thread() == 0) {
        gw::mbarrier_init(received, 1);
        gw::mbarrier_init(taken, 1);
        gw::fence_mbarrier_init();
    }
    gw::sync_cluster();
    u32 value = values[gw::global_thread()];
    for (u32 round = 0; round < rounds; ++round) {
        if (round > 0) gw::mbarrier_wait<gw::Scope::Cluster>(taken, (round - 1) & 1);
        outbox[gw::thread()] = value;
        gw::fence_async_proxy_shared();
        gw::sync_threads();
        if (gw::thread() == 0) {
            gw::mbarrier_arrive_expect(received, TILE_BYTES);
            gw::bulk_send(inbox, (rank + 1) % size, outbox, TILE_BYTES, received);
        }
        gw::mbarrier_wait(received, round & 1);
        value = inbox[gw::thread()] + rank + 1;
        gw::sync_threads();
        if (gw::thread() == 0) gw::mbarrier_arrive_at(taken, (rank + size - 1) % size);
    }
    out[gw::global_thread()] = value;
    gw::sync_cluster();
}
