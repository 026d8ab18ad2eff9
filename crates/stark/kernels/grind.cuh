#include "blake2s.cuh"

// found <- the smallest try in first .. first + count whose digest ends in `bits` zeros. Try t is the nonce with low word
// t mod 2^NONCE_LOW_BITS and high word t >> NONCE_LOW_BITS, so that the order of tries is that of nonces. One thread a try.
GW_KERNEL_BOUNDED(grind, 256, 1)(blake2s::State prefix, u64 first, u64 count, u32 bits, DigestWords form, u64* found) {
    const u64 index = gw::global_thread();
    if (index >= count) return;
    const u64 attempt = first + index;
    u32 m[16] = {};
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) m[i] = prefix.h[i];
    m[8] = (u32)attempt & ((1u << NONCE_LOW_BITS) - 1);
    m[9] = (u32)(attempt >> NONCE_LOW_BITS);
    blake2s::State state = blake2s::initial();
    blake2s::compress(state, m, 40, true);
    const u32 word = form == DigestWords::M31 ? m31::reduce(state.h[0]) : state.h[0];
    const u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
    if ((word & mask) == 0) gw::atomic_min(found, attempt);
}
