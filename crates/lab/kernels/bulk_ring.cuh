#include "gw/gw.cuh"

// out <- `from`, each tile of CONSUMERS elements of 16 bytes in reverse order, by bulk copies in both directions.
//
// Warp 0 loads tiles into a ring of STAGES, as far ahead as the ring goes: full[s] ends when stage s has landed,
// empty[s] when all consumers have read it. The consumers turn a tile round on its way to one of two outgoing buffers,
// from which one of them stores it.
#define STAGES 2
#define CONSUMERS 128
#define TILE_BYTES (16 * CONSUMERS)
#define CONSUMERS_MET 1

GW_DEVICE void produce(const u8* from, u8* stages, gw::Mbarrier* full, gw::Mbarrier* empty, u32 tiles) {
    for (u32 tile = 0; tile < tiles; ++tile) {
        const u32 s = tile % STAGES, round = tile / STAGES;
        if (round > 0) gw::mbarrier_wait(empty + s, (round - 1) & 1);
        gw::mbarrier_arrive_expect(full + s, TILE_BYTES);
        // Two copies for one phase: it ends with the second, whichever that is.
        gw::bulk_load(stages + s * TILE_BYTES, from + (u64)tile * TILE_BYTES, TILE_BYTES / 2, full + s);
        gw::bulk_load(stages + s * TILE_BYTES + TILE_BYTES / 2, from + (u64)tile * TILE_BYTES + TILE_BYTES / 2,
                      TILE_BYTES / 2, full + s);
    }
}

GW_DEVICE void consume(u8* out, const u8* stages, u8* outgoing, gw::Mbarrier* full, gw::Mbarrier* empty, u32 tiles) {
    const u32 consumer = gw::thread() - 32;
    for (u32 tile = 0; tile < tiles; ++tile) {
        const u32 s = tile % STAGES;
        u8* buffer = outgoing + tile % 2 * TILE_BYTES;
        // The store before last has read the buffer that is written next.
        if (consumer == 0) gw::bulk_wait_read<1>();
        gw::barrier_sync(CONSUMERS_MET, CONSUMERS);
        while (!gw::mbarrier_try_wait(full + s, (tile / STAGES) & 1)) gw::pause();
        const u32x4 element = gw::load_128(stages + s * TILE_BYTES + 16 * (CONSUMERS - 1 - consumer));
        gw::mbarrier_arrive(empty + s);
        gw::store_128(buffer + 16 * consumer, element);
        gw::fence_async_proxy_shared();
        gw::barrier_sync(CONSUMERS_MET, CONSUMERS);
        if (consumer == 0) {
            gw::bulk_store(out + (u64)tile * TILE_BYTES, buffer, TILE_BYTES);
            gw::bulk_commit();
        }
    }
    if (consumer == 0) gw::bulk_wait<0>();
}

GW_KERNEL_BOUNDED(bulk_ring, 160, 1)(const u8* from, u8* out, u32 tiles) {
    u8* stages = gw::shared<u8>();
    u8* outgoing = stages + STAGES * TILE_BYTES;
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>((STAGES + 2) * TILE_BYTES);
    gw::Mbarrier* empty = full + STAGES;
    if (gw::thread() == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            gw::mbarrier_init(full + s, 1);
            gw::mbarrier_init(empty + s, CONSUMERS);
        }
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    if (gw::warp() > 0) consume(out, stages, outgoing, full, empty, tiles);
    else if (gw::thread() == 0) produce(from, stages, full, empty, tiles);
}
