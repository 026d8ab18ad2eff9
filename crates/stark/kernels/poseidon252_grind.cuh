#include "poseidon252.cuh"

// found <- the smallest try in first .. first + count whose digest, as a number, ends in `bits` zeros, at most 32. Try t is the nonce
// with low word t mod 2^NONCE252_LOW_BITS and high word t >> NONCE252_LOW_BITS, so that the order of tries is that of nonces. One
// thread a try.
GW_KERNEL_BOUNDED(poseidon252_grind, 128, 8)(felt252::Felt prefix, u64 first, u64 count, u32 bits, u64* found) {
    const u64 index = gw::global_thread();
    if (index >= count) return;
    const u64 attempt = first + index;
    const u32 low = (u32)attempt & ((1u << NONCE252_LOW_BITS) - 1), high = (u32)(attempt >> NONCE252_LOW_BITS);
    poseidon252::State state = {{prefix, felt252::enter({{low, high, 0, 0, 0, 0, 0, 0}}), felt252::two()}};
    poseidon252::permute(state);
    const u32 word = felt252::leave(state.s[0]).w[0];
    const u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
    if ((word & mask) == 0) gw::atomic_min(found, attempt);
}
