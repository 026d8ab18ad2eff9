// Comparisons as published GPU code does them, for comparisons to be held against: the cipher is keyed anew with every node's
// seed, only the child on the path is computed, and the parity of a leaf is a loop over its bits. E. Boyle, N. Gilboa, Y. Ishai,
// "Function secret sharing: improvements and extensions", 2016; N. Jawalkar, K. Gupta, A. Basu, N. Chandran, D. Gupta, R. Sharma,
// "Orca" (2024) and "SIGMA" (2024).
//
// k - 7 key schedules and cipher calls a comparison, and the same correction words.

#include "tree.cuh"

#if AES_BITSLICED
#error "keys change with every call: there is no form in bit planes"
#else

// AES under a key that is expanded while it is used. `table` is one copy of the table of a round.
GW_DEVICE Block encrypt_under(const u32* table, Block key, Block block) {
    u32 k[4] = {(u32)key.lo, (u32)(key.lo >> 32), (u32)key.hi, (u32)(key.hi >> 32)};
    u32 s[4] = {(u32)block.lo ^ k[0], (u32)(block.lo >> 32) ^ k[1], (u32)block.hi ^ k[2], (u32)(block.hi >> 32) ^ k[3]};
    u32 constant = 1;
    GW_UNROLL
    for (u32 round = 1; round < 11; ++round) {
        const u32 last = gw::funnel_right(k[3], k[3], 8);
        u32 mixed = constant;
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) mixed ^= (table[(last >> (8 * i) & 0xFF) * AES_COPIES] >> 8 & 0xFF) << (8 * i);
        constant = constant << 1 ^ (constant >> 7) * 0x11b;
        k[0] ^= mixed;
        k[1] ^= k[0];
        k[2] ^= k[1];
        k[3] ^= k[2];
        u32 next[4];
        GW_UNROLL
        for (u32 c = 0; c < 4; ++c) {
            next[c] = k[c];
            GW_UNROLL
            for (u32 r = 0; r < 4; ++r) {
                const u32 entry = table[(s[(c + r) % 4] >> (8 * r) & 0xFF) * AES_COPIES];
                next[c] ^= round < 10 ? gw::funnel_left(entry, entry, 8 * r) : (entry >> 8 & 0xFF) << (8 * r);
            }
        }
        GW_UNROLL
        for (u32 c = 0; c < 4; ++c) s[c] = next[c];
    }
    return {s[0] | (u64)s[1] << 32, s[2] | (u64)s[3] << 32};
}

// bits[key] for one point a key. One thread a key.
GW_KERNEL_BOUNDED(compare_rekeyed, COMPARE_THREADS, 1)(
    const u32* table, const u64* roots, const u64* corrections, const u64* x, u32 domain, u64 count, u64* bits) {
    const u32* own = aes::prepare_tables(table).table;
    gw::sync_threads();
    const u64 key = gw::global_thread();
    if (key >= count) return;
    const u64 point = x[key] & (~0ull >> (64 - domain));
    const CorrectionPlaces places(key, count, domain);
    Block seed = load_block(roots, key);
    u32 sum = 0, before = 0;
    const u32 levels = domain - LEAF_BITS;
    for (u32 level = 0; level < levels; ++level) {
        const u32 turn = point >> (domain - 1 - level) & 1;
        const Block word = load_block(corrections, places.row(level));
        const Block child = encrypt_under(own, seed, Block{turn, 0}) ^ (spread_block(seed.lo) & word);
        // The control bit counts whenever the direction changes.
        if (turn != before) sum ^= (u32)child.lo & 1;
        before = turn;
        seed = child;
    }
    Block leaf = seed ^ (spread_block(seed.lo) & load_block(corrections, places.row(levels)));
    for (u32 bit = 0; bit < 128; ++bit) {
        if (bit > (point & 127)) sum ^= (u32)leaf.lo & 1;
        leaf.lo = leaf.lo >> 1 | leaf.hi << 63;
        leaf.hi >>= 1;
    }
    bits[key] = sum;
}

#endif
