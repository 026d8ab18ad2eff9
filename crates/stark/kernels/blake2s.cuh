#pragma once
// Blake2s-256 without a key, RFC 7693, on words.

#include "shared.cuh"

namespace blake2s {

struct State {
    u32 h[8];
};

GW_DEVICE State initial() {
    return {{0x6a09e667u ^ 0x01010020u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu,
             0x5be0cd19u}};
}

GW_DEVICE u32 rotate(u32 x, u32 bits) { return gw::funnel_right(x, x, bits); }

GW_DEVICE void mix(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y) {
    a = a + b + x;
    d = rotate(d ^ a, 16);
    c = c + d;
    b = rotate(b ^ c, 12);
    a = a + b + y;
    d = rotate(d ^ a, 8);
    c = c + d;
    b = rotate(b ^ c, 7);
}

// One round, with the message words in the order of the permutation of that round.
#define BLAKE2S_ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15) \
    mix(v0, v4, v8, v12, m[s0], m[s1]);                                                     \
    mix(v1, v5, v9, v13, m[s2], m[s3]);                                                     \
    mix(v2, v6, v10, v14, m[s4], m[s5]);                                                    \
    mix(v3, v7, v11, v15, m[s6], m[s7]);                                                    \
    mix(v0, v5, v10, v15, m[s8], m[s9]);                                                    \
    mix(v1, v6, v11, v12, m[s10], m[s11]);                                                  \
    mix(v2, v7, v8, v13, m[s12], m[s13]);                                                   \
    mix(v3, v4, v9, v14, m[s14], m[s15]);

// Takes the block `m` in; `bytes` is the length of the message up to and with it.
GW_DEVICE void compress(State& state, const u32 (&m)[16], u64 bytes, bool last) {
    u32 v0 = state.h[0], v1 = state.h[1], v2 = state.h[2], v3 = state.h[3];
    u32 v4 = state.h[4], v5 = state.h[5], v6 = state.h[6], v7 = state.h[7];
    u32 v8 = 0x6a09e667u, v9 = 0xbb67ae85u, v10 = 0x3c6ef372u, v11 = 0xa54ff53au;
    u32 v12 = 0x510e527fu ^ (u32)bytes, v13 = 0x9b05688cu ^ (u32)(bytes >> 32);
    u32 v14 = last ? ~0x1f83d9abu : 0x1f83d9abu, v15 = 0x5be0cd19u;
    BLAKE2S_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    BLAKE2S_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
    BLAKE2S_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
    BLAKE2S_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
    BLAKE2S_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
    BLAKE2S_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
    BLAKE2S_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
    BLAKE2S_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
    BLAKE2S_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
    BLAKE2S_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
    state.h[0] ^= v0 ^ v8;
    state.h[1] ^= v1 ^ v9;
    state.h[2] ^= v2 ^ v10;
    state.h[3] ^= v3 ^ v11;
    state.h[4] ^= v4 ^ v12;
    state.h[5] ^= v5 ^ v13;
    state.h[6] ^= v6 ^ v14;
    state.h[7] ^= v7 ^ v15;
}

// Digests of the M31 variant have each word reduced modulo P.
GW_DEVICE void reduce(State& state) {
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) state.h[i] = m31::reduce(state.h[i]);
}

GW_DEVICE State load(const u32* pointer) {
    const u32x4 low = gw::load_128(pointer), high = gw::load_128(pointer + 4);
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}
GW_DEVICE void store(u32* pointer, const State& state) {
    gw::store_128(pointer, {state.h[0], state.h[1], state.h[2], state.h[3]});
    gw::store_128(pointer + 4, {state.h[4], state.h[5], state.h[6], state.h[7]});
}

// The digest of two digests.
GW_DEVICE State parent(const State& left, const State& right, DigestWords form) {
    u32 m[16];
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) {
        m[i] = left.h[i];
        m[8 + i] = right.h[i];
    }
    State state = initial();
    compress(state, m, 64, true);
    if (form == DigestWords::M31) reduce(state);
    return state;
}

}  // namespace blake2s
