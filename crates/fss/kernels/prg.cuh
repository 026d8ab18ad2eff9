// AES-128 in counter mode under a secret seed: words that a party derives instead of storing them.
//
// Words of n bits cost n/128 cipher calls and 8 bytes of stores each: bound by the cipher.

#include "aes.cuh"

// words[i] <- bits i n to (i + 1) n - 1 of the stream AES_k(counter), AES_k(counter + 1), ...
//
// A tile is `runs` runs of 128 words, which are n blocks of the stream each: first the stream in shared memory, behind the cipher's
// table, then the words. A block of threads makes tile after tile.
GW_KERNEL_BOUNDED(derive_words, PRG_THREADS, 1)(
    const u32* table, RoundKeys keys, u64 counter, u32 bits, u32 runs, u64 count, u64* words) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    gw::sync_threads();
    u64* stream = gw::shared<u64>(aes::SHARED_BYTES);
    const u64 mask = ~0ull >> (64 - bits);
    const u64 tile_words = (u64)runs * RUN_WORDS;
    for (u64 tile = gw::block_x(); tile * tile_words < count; tile += gw::blocks_x()) {
        const u64 first = tile * tile_words, start = counter + tile * runs * bits;
        const u32 here = (u32)(count - first < tile_words ? count - first : tile_words);
        const u32 blocks = (here * bits + 127) / 128;
        for (u32 at = 2 * gw::thread_x(); at < blocks; at += 2 * gw::threads_x()) {
            Block pair[2] = {{start + at, 0}, {start + at + 1, 0}};
            cipher.encrypt(pair);
            store_block(stream, at, pair[0]);
            if (at + 1 < blocks) store_block(stream, at + 1, pair[1]);
        }
        gw::sync_threads();
        for (u32 i = gw::thread_x(); i < here; i += gw::threads_x()) {
            const u32 bit = i * bits, place = bit / 64, shift = bit % 64;
            u64 word = stream[place] >> shift;
            if (shift + bits > 64) word |= stream[place + 1] << (64 - shift);
            words[first + i] = word & mask;
        }
        // The next tile's stream goes where this one's is.
        gw::sync_threads();
    }
}
