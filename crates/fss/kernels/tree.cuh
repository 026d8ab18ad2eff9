#pragma once
// Half-trees with 128-bit leaves, as `src/dpf/tree.rs` has them.
//
// A node has a seed s whose lowest bit is its control bit t. With H(x) = AES_k(σ(x)) ⊕ σ(x), σ(x) = (x_hi ⊕ x_lo) ∥ x_hi,
// under the deal's public key, and CW the correction word of the level,
//
//   child x of s  =  H(s) ⊕ x s ⊕ t CW
//   leaf x of s   =  H(s with lowest bit x) ⊕ t CW_x
//
// Correction words lie in tiles of 32 keys, and within a tile level by level: neighbouring threads read neighbouring words.

#include "aes.cuh"

// All ones if the lowest bit is one.
GW_DEVICE u64 spread(u64 bit) { return 0 - (bit & 1); }
GW_DEVICE Block spread_block(u64 bit) { return {spread(bit), spread(bit)}; }

GW_DEVICE u32 parity(Block x) {
    const u64 folded = x.lo ^ x.hi;
    return gw::count_ones((u32)folded ^ (u32)(folded >> 32)) & 1;
}

GW_DEVICE Block sigma(Block x) { return {x.hi, x.lo ^ x.hi}; }

// H of both blocks, where they are.
GW_DEVICE void hash(const aes::Cipher& cipher, Block (&blocks)[2]) {
    const Block inputs[2] = {sigma(blocks[0]), sigma(blocks[1])};
    blocks[0] = inputs[0];
    blocks[1] = inputs[1];
    cipher.encrypt(blocks);
    blocks[0] = blocks[0] ^ inputs[0];
    blocks[1] = blocks[1] ^ inputs[1];
}

// Where the correction words of one key lie: that of row r is the block first + r stride.
struct CorrectionPlaces {
    u64 first;
    u32 stride;

    GW_DEVICE CorrectionPlaces(u64 key, u64 keys, u32 domain) {
        const u64 tile = key / TILE_KEYS, left = keys - tile * TILE_KEYS;
        stride = left < TILE_KEYS ? (u32)left : TILE_KEYS;
        first = tile * TILE_KEYS * (domain - LEAF_BITS + 1) + key % TILE_KEYS;
    }
    GW_DEVICE u64 row(u32 r) const { return first + (u64)r * stride; }
};
