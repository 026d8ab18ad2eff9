// Roots of a party's trees, from the same stream as its words. One cipher call and 16 bytes of stores each: bound by the cipher.

#include "aes.cuh"

// blocks[i] <- AES_k(counter + i) with `lowest` as its lowest bit: roots of a party's trees. One thread two blocks at a time.
GW_KERNEL_BOUNDED(derive_roots, PRG_THREADS, 1)(
    const u32* table, RoundKeys keys, u64 counter, u32 lowest, u64 count, u64* blocks) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    gw::sync_threads();
    for (u64 at = 2 * gw::global_thread(); at < count; at += 2 * gw::global_threads()) {
        Block pair[2] = {{counter + at, 0}, {counter + at + 1, 0}};
        cipher.encrypt(pair);
        for (u32 i = 0; i < 2; ++i) pair[i].lo = (pair[i].lo & ~1ull) | lowest;
        store_block(blocks, at, pair[0]);
        if (at + 1 < count) store_block(blocks, at + 1, pair[1]);
    }
}
