#include "gw/gw.cuh"

// mailbox[i] <- mailbox[i] + blocks, one block after another, each of which loads the mailbox in bulk. A cooperative launch
// of blocks of 128 threads, one a word; `turn` is zero before.
//
// Even blocks write it back by ordinary stores, odd ones in bulk: both are fenced for the bulk load of the next block, which
// the asynchronous proxy makes, and which knows nothing of either by the release alone.
#define WORDS 128
#define BYTES 512

GW_KERNEL(proxy_relay)(u32* mailbox, u32* turn) {
    u32* words = gw::shared<u32>();
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(BYTES);
    const u32 block = gw::block_x();
    if (gw::thread() == 0) {
        gw::mbarrier_init(full, 1);
        gw::fence_mbarrier_init();
        while (gw::load_acquire(turn) != block) gw::pause();
        gw::mbarrier_arrive_expect(full, BYTES);
        gw::bulk_load(words, mailbox, BYTES, full);
    }
    gw::sync_threads();
    gw::mbarrier_wait(full, 0);
    const u32 next = words[gw::thread()] + 1;
    if (block % 2 == 0) {
        mailbox[gw::thread()] = next;
        gw::fence_async_proxy_global();
        gw::sync_threads();
    } else {
        words[gw::thread()] = next;
        gw::fence_async_proxy_shared();
        gw::sync_threads();
        if (gw::thread() == 0) {
            gw::bulk_store(mailbox, words, BYTES);
            gw::bulk_commit();
            gw::bulk_wait<0>();
            gw::fence_async_proxy_global();
        }
    }
    if (gw::thread() == 0) gw::store_release(turn, block + 1);
}
