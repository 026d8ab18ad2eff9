// Keys of point functions, as the dealer makes them.
//
// A tree is 2 (k - 6) cipher calls, both parties' seeds side by side, and k - 6 correction words of 16 bytes to store. Bound by
// the cipher. Places are secret: words are chosen by masks, and no address depends on a place.

#include "tree.cuh"

// One at place α mod 128.
GW_DEVICE Block unit(u64 alpha) {
    const u64 one = 1ull << (alpha & 63), upper = spread(alpha >> 6);
    return {one & ~upper, one & upper};
}

// Correction words for places modulo 2^k, given both parties' roots, whose lowest bits are 0 and 1; and party 0's bit at each
// place. One thread a key.
//
//   CW = H(s_0) ⊕ H(s_1) ⊕ ¬α_i Δ        CW_x = H(..) ⊕ H(..) ⊕ [x is on the path] e_α
GW_KERNEL_BOUNDED(generate_trees, GENERATE_THREADS, 3)(
    const u32* table, RoundKeys keys, const u64* roots_zero, const u64* roots_one, const u64* alphas, u32 domain, u64 count,
    u64* corrections, u64* signs) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    gw::sync_threads();
    const u64 key = gw::global_thread();
    if (key >= count) return;
    const u64 alpha = alphas[key] & (~0ull >> (64 - domain));
    Block seed[2] = {load_block(roots_zero, key), load_block(roots_one, key)};
    const Block difference = seed[0] ^ seed[1];
    const CorrectionPlaces places(key, count, domain);
    const u32 inner = domain - LEAF_BITS - 1;
    GW_UNROLL_BY(1)
    for (u32 level = 0; level < inner; ++level) {
        Block hashed[2] = {seed[0], seed[1]};
        hash(cipher, hashed);
        const Block right = spread_block(alpha >> (domain - 1 - level));
        const Block left = right ^ Block{~0ull, ~0ull};
        const Block word = hashed[0] ^ hashed[1] ^ (left & difference);
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i)
            seed[i] = hashed[i] ^ (right & seed[i]) ^ (spread_block(seed[i].lo) & word);
        store_block(corrections, places.row(level), word);
    }
    u32 sign = 0;
    GW_UNROLL_BY(1)
    for (u32 side = 0; side < 2; ++side) {
        Block leaf[2] = {{(seed[0].lo & ~1ull) | side, seed[0].hi}, {(seed[1].lo & ~1ull) | side, seed[1].hi}};
        hash(cipher, leaf);
        const Block place = spread_block(~(alpha >> LEAF_BITS ^ side)) & unit(alpha);
        const Block word = leaf[0] ^ leaf[1] ^ place;
        sign ^= parity((leaf[0] ^ (spread_block(seed[0].lo) & word)) & place);
        store_block(corrections, places.row(inner + side), word);
    }
    signs[key] = sign;
}

// Word w of all unit vectors of 2^k bits at places modulo 2^k: party 0 has zero[w], and what party 1 stores of its share is
// one[w - half] for the words from `half` on. Words below `half` are derived by party 1, the others by party 0. One thread a word.
GW_KERNEL_BOUNDED(generate_tables, GENERATE_THREADS, 1)(
    const u64* alphas, const u64* derived_by_one, const u64* derived_by_zero, u32 domain, u64 half, u64 words, u64* zero,
    u64* one) {
    const u64 at = gw::global_thread();
    if (at >= words) return;
    const u32 log_width = domain > 6 ? domain - 6 : 0;
    const u64 alpha = alphas[at >> log_width] & (~0ull >> (64 - domain));
    const u64 here = (alpha >> 6) == (at & ((1ull << log_width) - 1));
    const u64 word = here << (alpha & 63);
    if (at < half) {
        zero[at] = word ^ derived_by_one[at];
    } else {
        zero[at] = derived_by_zero[at - half];
        one[at - half] = word ^ derived_by_zero[at - half];
    }
}

// Party 0's bit at each place, from its vectors. One thread a key.
GW_KERNEL_BOUNDED(table_signs, GENERATE_THREADS, 1)(const u64* alphas, const u64* zero, u32 domain, u64 count, u64* signs) {
    const u64 key = gw::global_thread();
    if (key >= count) return;
    const u32 width = domain > 6 ? 1u << (domain - 6) : 1;
    const u64 alpha = alphas[key] & (~0ull >> (64 - domain));
    u64 bit = 0;
    for (u32 i = 0; i < width; ++i) bit |= spread((alpha >> 6) == i) & (zero[key * width + i] >> (alpha & 63));
    signs[key] = bit & 1;
}
