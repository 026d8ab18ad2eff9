#include "blake2s.cuh"
#include "butterfly.cuh"
#include "poseidon252.cuh"

// How fast the arithmetic is with everything in registers: what stages are held against.

struct Twiddles {
    u32 of_step[4];
};

// Thread t has the values 16 t to 16 t + 15 and does all butterflies among them, step by step from the widest, `turns` times.
GW_KERNEL_BOUNDED(rate_butterflies, 256, 4)(u32* values, u32 threads, u32 turns, Twiddles doubled) {
    const u32 thread = (u32)gw::global_thread();
    if (thread >= threads) return;
    u32 v[16];
    GW_UNROLL
    for (u32 i = 0; i < 16; ++i) v[i] = values[16 * (u64)thread + i];
    for (u32 turn = 0; turn < turns; ++turn) {
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            const u32 s = 3 - i;
            GW_UNROLL
            for (u32 q = 0; q < 8; ++q) {
                const u32 low = (q >> s << (s + 1)) | (q & ((1u << s) - 1));
                butterfly<false>(v[low], v[low | 1u << s], doubled.of_step[s]);
            }
        }
    }
    GW_UNROLL
    for (u32 i = 0; i < 16; ++i) values[16 * (u64)thread + i] = v[i];
}

// Thread t replaces digest t by the digest of it and itself, `turns` times.
GW_KERNEL_BOUNDED(rate_compressions, 256, 4)(u32* digests, u32 threads, u32 turns) {
    const u32 thread = (u32)gw::global_thread();
    if (thread >= threads) return;
    blake2s::State state = blake2s::load(digests + 8 * (u64)thread);
    for (u32 turn = 0; turn < turns; ++turn) state = blake2s::parent(state, state, DigestWords::Plain);
    blake2s::store(digests + 8 * (u64)thread, state);
}

// The same with digests of Poseidon252.
GW_KERNEL_BOUNDED(rate_permutations, 128, 8)(u32* digests, u32 threads, u32 turns) {
    const u32 thread = (u32)gw::global_thread();
    if (thread >= threads) return;
    felt252::Felt digest = felt252::load(digests + 8 * (u64)thread);
    for (u32 turn = 0; turn < turns; ++turn) digest = poseidon252::parent(digest, digest);
    felt252::store(digests + 8 * (u64)thread, digest);
}
