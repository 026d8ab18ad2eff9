// One block writes a message and raises a flag; another polls the flag and has the copy engine fetch the message. Flag and
// message agree for ordinary loads, and the copy engine may still see what was there before.
#include "gw/gw.cuh"

GW_KERNEL(exhibit)(u32* out, const u32* in) {
    u32* message = out + 512;
    u32* flag = out + 1024;
    u32* tile = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(1024);
    if (gw::block_x() == 0) {
        for (u32 i = 0; i < 32; ++i) message[i] = in[i];
#if MENDED
        gw::fence_async_proxy_global();
#endif
        gw::store_release(flag, 1u);
        return;
    }
    while (gw::load_acquire(flag) == 0) gw::pause();
    gw::mbarrier_init(full, 1);
    gw::fence_mbarrier_init();
    gw::mbarrier_arrive_expect(full, 128);
    gw::bulk_load(tile, message, 128, full);
    gw::mbarrier_wait(full, 0);
    out[0] = tile[31];
}
