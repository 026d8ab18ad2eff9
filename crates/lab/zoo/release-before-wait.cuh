// The consumer tells the producer that a stage is free before its product, which reads the stage, was waited for.
#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u8* tile = gw::shared<u8>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(8192);
    gw::Mbarrier* empty = full + 1;
    if (gw::thread() == 0) {
        gw::mbarrier_init(full, 1);
        gw::mbarrier_init(empty, 128);
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    if (gw::warp() == 4) {
        for (u32 k = 0; k < 2 && gw::lane() == 0; ++k) {
            if (k > 0) gw::mbarrier_wait(empty, 0);
            gw::mbarrier_arrive_expect(full, 8192);
            gw::bulk_load(tile, in, 8192, full);
        }
        return;
    }
    f32 d[4];
    const u64 operand = gw::wgmma_descriptor(tile, gw::SWIZZLE_32, 256);
    for (u32 k = 0; k < 2; ++k) {
        gw::mbarrier_wait(full, k);
        gw::wgmma_fence();
        gw::Wgmma<gw::E4M3, 8>::ss(d, operand, operand, k > 0);
        gw::wgmma_commit();
#if MENDED
        gw::wgmma_wait<0>();
        gw::mbarrier_arrive(empty);
#else
        gw::mbarrier_arrive(empty);
        gw::wgmma_wait<0>();
#endif
    }
    out[gw::thread()] = gw::bits<u32>(d[0]);
}
