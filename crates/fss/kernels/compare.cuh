// Shares of 1[(x + shift) mod 2^k < α], one public x a key: the parity of a party's unit vector above the point.
//
// A walk down a tree is k - 7 cipher calls and reads k - 6 correction words of 16 bytes; the parity of everything right of it
// is that of the right siblings it passes, t(parent) ⊕ t(child) each, and of the leaf's bits above the point, which is one
// population count. Bound by the cipher.

#include "tree.cuh"

// Bits above the point in its leaf; if the leaf is a left one, all the others instead: its sibling's parity is their
// parent's control bit and this leaf's parity together.
GW_DEVICE Block leaf_mask(u64 point) {
    const u32 place = point & 127;
    // 2 << 63 is 0, as it should be.
    const u64 above = (~0ull << 1) << (place & 63);
    const Block mask = place < 64 ? Block{above, ~0ull} : Block{0, above};
    return mask ^ spread_block(~(point >> LEAF_BITS));
}

// As many threads of a multiprocessor as three blocks with a pair of tables each, or one with all four turns.
#if AES_BITSLICED || AES_TABLES < 4
#define WALKERS COMPARE_THREADS
#define WALKING_BLOCKS 3
#else
#define WALKERS COMPARE_MOST_THREADS
#define WALKING_BLOCKS 1
#endif

// bits[s count + key] for every shift s of a batch of `count` trees. One thread walks down two paths.
GW_KERNEL_BOUNDED(compare_trees, WALKERS, WALKING_BLOCKS)(
    const u32* table, RoundKeys keys, const u64* roots, const u64* corrections, const u64* x, Shifts shifts, u32 domain,
    u64 count, u64* bits) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    gw::sync_threads();
    const u64 first = 2 * gw::global_thread(), paths = count * shifts.count;
    if (first >= paths) return;
    const bool both = first + 1 < paths;
    u64 key[2], point[2];
    u32 sum[2];
    Block seed[2];
    GW_UNROLL
    for (u32 i = 0; i < 2; ++i) {
        const u64 path = first + (both ? i : 0), shift = path / count;
        key[i] = path - shift * count;
        point[i] = (x[key[i]] + shifts.at[shift]) & (~0ull >> (64 - domain));
        seed[i] = load_block(roots, key[i]);
        sum[i] = 0;
    }
    const CorrectionPlaces places[2] = {{key[0], count, domain}, {key[1], count, domain}};
    const u32 inner = domain - LEAF_BITS - 1;
    GW_UNROLL_BY(1)
    for (u32 level = 0; level < inner; ++level) {
        Block hashed[2] = {seed[0], seed[1]};
        hash(cipher, hashed);
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i) {
            const Block right = spread_block(point[i] >> (domain - 1 - level));
            const Block word = spread_block(seed[i].lo) & load_block(corrections, places[i].row(level));
            const Block child = hashed[i] ^ (right & seed[i]) ^ word;
            sum[i] ^= (u32)(~right.lo & (seed[i].lo ^ child.lo)) & 1;
            seed[i] = child;
        }
    }
    Block leaf[2];
    GW_UNROLL
    for (u32 i = 0; i < 2; ++i) leaf[i] = {(seed[i].lo & ~1ull) | (point[i] >> LEAF_BITS & 1), seed[i].hi};
    hash(cipher, leaf);
    GW_UNROLL
    for (u32 i = 0; i < 2; ++i) {
        const u32 side = point[i] >> LEAF_BITS & 1;
        leaf[i] = leaf[i] ^ (spread_block(seed[i].lo) & load_block(corrections, places[i].row(inner + side)));
        const u32 above = parity(leaf[i] & leaf_mask(point[i]));
        const u32 bit = above ^ sum[i] ^ ((side ^ 1) & (u32)seed[i].lo & 1);
        if (i == 0 || both) bits[first + i] = bit;
    }
}

// The same of unit vectors that are shared as they are: 2^k bits a key, in words of 64.
GW_KERNEL_BOUNDED(compare_tables, COMPARE_THREADS, 1)(
    const u64* vectors, const u64* x, Shifts shifts, u32 domain, u64 count, u64* bits) {
    const u64 path = gw::global_thread();
    if (path >= count * shifts.count) return;
    const u64 shift = path / count, key = path - shift * count;
    const u64 point = (x[key] + shifts.at[shift]) & (~0ull >> (64 - domain));
    const u32 width = domain > 6 ? 1u << (domain - 6) : 1;
    const u64* vector = vectors + key * width;
    // The point is public: where the vector is read tells nothing.
    u64 folded = vector[point / 64] & (~0ull << 1) << (point & 63);
    for (u32 i = (u32)(point / 64) + 1; i < width; ++i) folded ^= vector[i];
    bits[path] = gw::count_ones((u32)folded ^ (u32)(folded >> 32)) & 1;
}
