#pragma once
// The transcript of the protocol on the device.

#include "blake2s.cuh"

// stwo's Blake2s channel: takes a root in, digest <- H(digest root), and draws a challenge, H(digest counter 0) with a counter of
// four bytes, the first whose eight words are all below 2 P.
GW_DEVICE QM31 mix_and_draw(u32* digest, blake2s::State root, DigestWords form) {
    const blake2s::State mixed = blake2s::parent(blake2s::load(digest), root, form);
    blake2s::store(digest, mixed);
    for (u32 counter = 0;; ++counter) {
        u32 m[16] = {};
        GW_UNROLL
        for (u32 i = 0; i < 8; ++i) m[i] = mixed.h[i];
        m[8] = counter;
        blake2s::State drawn = blake2s::initial();
        blake2s::compress(drawn, m, 37, true);
        if (form == DigestWords::M31) blake2s::reduce(drawn);
        bool all_below = true;
        GW_UNROLL
        for (u32 i = 0; i < 8; ++i) all_below = all_below && drawn.h[i] < 2 * m31::P;
        if (all_below) return {m31::fold(drawn.h[0]), m31::fold(drawn.h[1]), m31::fold(drawn.h[2]), m31::fold(drawn.h[3])};
    }
}
