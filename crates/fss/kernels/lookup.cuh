// Σ_j e(j) T((x - j) mod 2^k) modulo 2^64 for a party's unit vectors e and one public x a key.
//
// The table lies reversed and twice, so that T(x), T(x - 1), ... is a run of words that starts at place (-x) mod 2^k. A key is
// 1.5 2^(k - 7) - 1 cipher calls and 2^k masked additions of words that every key reads: bound by those additions, one load of
// the cache each.

#include "tree.cuh"

// A warp adds up one key's window under the bits of its vector. No load and no branch depends on a bit.
GW_DEVICE u64 masked_sum(const u32* vector, const u64* window, u32 domain) {
    u64 sum = 0;
    for (u32 j = gw::lane(); j < 1u << domain; j += 32) sum += window[j] & spread(vector[j / 32] >> (j % 32));
    GW_UNROLL
    for (u32 lanes = 16; lanes > 0; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
    return sum;
}

GW_DEVICE u64 window_start(u64 x, u32 domain) { return (0 - x) & ((1ull << domain) - 1); }

// Expands `keys_each` trees a block of threads, level by level in shared memory behind the cipher's table: two arrays of as many
// blocks as these trees have leaves, in turns.
GW_KERNEL_BOUNDED(lookup_trees, LOOKUP_THREADS, 1)(
    const u32* table, RoundKeys keys, const u64* roots, const u64* corrections, const u64* x, const u64* values,
    u32 domain, u32 keys_each, u64 count, u64* sums) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    const u32 inner = domain - LEAF_BITS - 1, leaves = keys_each << (inner + 1);
    u64* nodes = gw::shared<u64>(aes::SHARED_BYTES);
    u64* children = nodes + 2 * leaves;
    const u64 first = (u64)gw::block_x() * keys_each;
    const u32 here = (u32)(count - first < keys_each ? count - first : keys_each);
    for (u32 key = gw::thread_x(); key < here; key += gw::threads_x())
        store_block(nodes, key, load_block(roots, first + key));
    gw::sync_threads();
    for (u32 level = 0; level < inner; ++level) {
        const u32 size = here << level;
        for (u32 at = 2 * gw::thread_x(); at < size; at += 2 * gw::threads_x()) {
            const u32 pair[2] = {at, at + 1 < size ? at + 1 : at};
            const Block seed[2] = {load_block(nodes, pair[0]), load_block(nodes, pair[1])};
            Block hashed[2] = {seed[0], seed[1]};
            hash(cipher, hashed);
            for (u32 i = 0; i < 2; ++i) {
                if (i == 1 && pair[1] == at) break;
                const CorrectionPlaces places(first + (pair[i] >> level), count, domain);
                const Block word = spread_block(seed[i].lo) & load_block(corrections, places.row(level));
                const Block left = hashed[i] ^ word;
                store_block(children, 2 * pair[i], left);
                store_block(children, 2 * pair[i] + 1, left ^ seed[i]);
            }
        }
        gw::sync_threads();
        u64* const swap = nodes;
        nodes = children;
        children = swap;
    }
    for (u32 at = gw::thread_x(); at < here << inner; at += gw::threads_x()) {
        const Block seed = load_block(nodes, at);
        Block leaf[2] = {{seed.lo & ~1ull, seed.hi}, {seed.lo | 1, seed.hi}};
        hash(cipher, leaf);
        const CorrectionPlaces places(first + (at >> inner), count, domain);
        for (u32 side = 0; side < 2; ++side) {
            const Block word = spread_block(seed.lo) & load_block(corrections, places.row(inner + side));
            store_block(children, 2 * at + side, leaf[side] ^ word);
        }
    }
    gw::sync_threads();
    const u32* vectors = reinterpret_cast<const u32*>(children);
    for (u32 key = gw::warp(); key < here; key += gw::threads_x() / 32) {
        const u64* window = values + window_start(x[first + key], domain);
        const u64 sum = masked_sum(vectors + (key << (domain - 5)), window, domain);
        if (gw::lane() == 0) sums[first + key] = sum;
    }
}

// The same of unit vectors that are shared as they are. One warp a key.
GW_KERNEL_BOUNDED(lookup_tables, LOOKUP_THREADS, 1)(
    const u64* vectors, const u64* x, const u64* values, u32 domain, u64 count, u64* sums) {
    const u64 key = gw::global_thread() / 32;
    if (key >= count) return;
    const u32 width = domain > 6 ? 1u << (domain - 6) : 1;
    const u32* vector = reinterpret_cast<const u32*>(vectors + key * width);
    const u64 sum = masked_sum(vector, values + window_start(x[key], domain), domain);
    if (gw::lane() == 0) sums[key] = sum;
}
