#include "gw/gw.cuh"

// out[i] <- messages[i], one warp's worth at a time, from block 0 to warp 0 of block 1, and on to its warp 1. A
// cooperative launch of two blocks of two warps.
//
// Between blocks a message lies in `mailbox`; `sent` and `taken` count messages. Even ones are ordered by release and
// acquire on the counts, odd ones by a fence around relaxed accesses. Between the warps of block 1 a message lies in the
// first 32 words of `relay`, which its last two words count, and the fence is the block's. (In device memory and not in
// shared memory: race checkers know only barriers there.) All counts are zero before.

// The count of one direction is ordered by the fence of the device, that of the other by the system's.
GW_DEVICE void fence_for(const u32*) { gw::fence_device(); }
GW_DEVICE void fence_for(const u64*) { gw::fence_system(); }

template <class Count>
GW_DEVICE void wait_for(const Count* count, Count value, bool fenced) {
    if (gw::lane() == 0) {
        if (fenced) {
            while (gw::load_relaxed(count) < value) gw::pause();
            fence_for(count);
        } else {
            while (gw::load_acquire(count) < value) gw::pause();
        }
    }
    gw::sync_warp();
}

template <class Count>
GW_DEVICE void announce(Count* count, Count value, bool fenced) {
    gw::sync_warp();
    if (gw::lane() == 0) {
        if (fenced) {
            fence_for(count);
            gw::store_relaxed(count, value);
        } else {
            gw::store_release(count, value);
        }
    }
}

GW_DEVICE void wait_in_block(const u32* count, u32 value) {
    if (gw::lane() == 0) {
        while (gw::load_relaxed(count) < value) gw::pause();
        gw::fence_block();
    }
    gw::sync_warp();
}

GW_DEVICE void announce_in_block(u32* count, u32 value) {
    gw::sync_warp();
    if (gw::lane() == 0) {
        gw::fence_block();
        gw::store_relaxed(count, value);
    }
}

GW_KERNEL(message_passing)
(const u32* messages, u32* mailbox, u32* sent, u64* taken, u32* relay, u32* out, u32 count) {
    u32* passed = relay + 32;
    u32* stored = relay + 33;
    for (u32 i = 0; i < count; ++i) {
        const bool fenced = i % 2;
        if (gw::block_x() == 0 && gw::warp() == 0) {
            wait_for<u64>(taken, i, fenced);
            mailbox[gw::lane()] = messages[32 * i + gw::lane()];
            announce<u32>(sent, i + 1, fenced);
        } else if (gw::block_x() == 1 && gw::warp() == 0) {
            wait_for<u32>(sent, i + 1, fenced);
            const u32 message = mailbox[31 - gw::lane()];
            announce<u64>(taken, i + 1, fenced);
            wait_in_block(stored, i);
            relay[gw::lane()] = message;
            announce_in_block(passed, i + 1);
        } else if (gw::block_x() == 1) {
            wait_in_block(passed, i + 1);
            out[32 * i + gw::lane()] = relay[31 - gw::lane()];
            announce_in_block(stored, i + 1);
        }
    }
}
