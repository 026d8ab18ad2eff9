// Two stages in a ring: a load is issued into a stage when at most one store is pending, but the one that is pending may be
// the store that reads this very stage.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(2048);
    u8* stages = gw::shared<u8>();
    gw::mbarrier_init(full, 1);
    gw::mbarrier_init(full + 1, 1);
    gw::fence_mbarrier_init();
    for (u32 i = 0; i < 2; ++i) {
        gw::mbarrier_arrive_expect(full + i, 512);
        gw::bulk_load(stages + 512 * i, in + 128 * i, 512, full + i);
    }
    for (u32 i = 0; i < 4; ++i) {
        gw::mbarrier_wait(full + i % 2, i / 2 % 2);
        gw::bulk_store(out + 128 * i, stages + 512 * (i % 2), 512);
        gw::bulk_commit();
        if (i + 2 < 4) {
#if MENDED
            gw::bulk_wait_read<0>();
#else
            gw::bulk_wait_read<1>();
#endif
            gw::mbarrier_arrive_expect(full + i % 2, 512);
            gw::bulk_load(stages + 512 * (i % 2), in + 128 * (i + 2), 512, full + i % 2);
        }
    }
    gw::bulk_wait<0>();
}
