#pragma once
// Poseidon on felts as Starknet has it: the Hades permutation of three elements, with 8 full rounds, 83 partial ones, the cube and the
// matrix (3 1 1, 1 -1 1, 1 1 -2).

#include "poseidon252_constants.cuh"

namespace poseidon252 {

using felt252::Felt;

struct State {
    Felt s[3];
};

// Above -1. A factor of a bound of at most 7 has a square below 3.54, and a cube below 0.78.
GW_DEVICE Felt cube(const Felt& a) { return felt252::mul<0>(felt252::square(a), a); }

GW_DEVICE Felt with_constant(const Felt& a, u32 index) { return felt252::fold(felt252::add(a, CONSTANTS[index])); }

// Four full rounds, with constants from a place of the table. Sums of at most five cubes are above -5 and below 4, so that with
// 6 p they can be folded. Elements are cubed in turn, since three at once would need more flags for carries than there are.
GW_DEVICE void full_rounds(State& state, u32 constants) {
    GW_UNROLL_BY(1)
    for (u32 round = 0; round < 4; ++round) {
        GW_UNROLL_BY(1)
        for (u32 turn = 0; turn < 3; ++turn) {
            const Felt cubed = cube(state.s[0]);
            state.s[0] = state.s[1];
            state.s[1] = state.s[2];
            state.s[2] = cubed;
        }
        const Felt x = state.s[0], y = state.s[1], z = state.s[2];
        const Felt xz = felt252::add(x, z), sum = felt252::add(xz, y);
        state.s[0] = with_constant(felt252::add(sum, felt252::twice(x)), constants);
        state.s[1] = with_constant(felt252::sub(xz, y), constants + 1);
        state.s[2] = with_constant(felt252::sub(sum, felt252::add(felt252::twice(z), z)), constants + 2);
        constants += 3;
    }
}

// A round in which only the last element z is cubed. With c its cube, the matrix makes of (x, y, z)
//     x' = 3 x + y + c,   y' = x - y + c,   z' = x + y - 2 c.
// With h = (x + y) / 2 and e = (x - h) / 2, so that x = h + 2 e, it is
//     h' = 2 h + 4 e + c,   e' = h,   z' = 2 (h - c):
// h and e are two successive values of one sequence. Each is folded to between 1 and 2, so that 2 h + 4 e + c is above 4.9 and
// below 13, and z' with a constant between 0.4 and 7. Puts h' in the place of e, and gives z'.
GW_DEVICE Felt partial_round(Felt& e, const Felt& h, const Felt& z) {
    const Felt c = cube(z);
    const Felt x = felt252::add(h, felt252::twice(e));
    e = felt252::fold(felt252::add(felt252::twice(x), c));
    return felt252::twice(felt252::sub(h, c));
}

// 83 of them: two at a time, so that the sequence stays where it is, and the last.
GW_DEVICE void partial_rounds(State& state) {
    Felt z = state.s[2];
    const Felt xy = felt252::add(state.s[0], state.s[1]);
    Felt h = felt252::fold(felt252::half(felt252::add(xy, felt252::multiple_of_p(2))));
    Felt e = felt252::fold(felt252::half(felt252::sub(felt252::add(state.s[0], felt252::multiple_of_p(4)), h)));
    GW_UNROLL_BY(1)
    for (u32 constants = BETWEEN_PARTIAL; constants < AFTER_PARTIAL; constants += 2) {
        z = felt252::add(partial_round(e, h, z), CONSTANTS[constants]);
        z = felt252::add(partial_round(h, e, z), CONSTANTS[constants + 1]);
    }
    z = partial_round(e, h, z);
    const Felt twice = felt252::twice(h);
    state.s[0] = with_constant(felt252::add(e, twice), AFTER_PARTIAL);
    state.s[1] = with_constant(felt252::sub(e, twice), AFTER_PARTIAL + 1);
    state.s[2] = with_constant(z, AFTER_PARTIAL + 2);
}

// Of elements below 4, elements below 2.
GW_DEVICE void permute(State& state) {
    GW_UNROLL
    for (u32 i = 0; i < 3; ++i) state.s[i] = felt252::add(state.s[i], CONSTANTS[BEFORE + i]);
    // One loop, so that the code of full rounds is there once.
    GW_UNROLL_BY(1)
    for (u32 constants = AFTER_FULL;; constants = AFTER_LAST_FULL) {
        full_rounds(state, constants);
        if (constants == AFTER_LAST_FULL) break;
        partial_rounds(state);
    }
}

// The digest of two digests.
GW_DEVICE Felt parent(const Felt& left, const Felt& right) {
    State state = {{left, right, felt252::two()}};
    permute(state);
    return felt252::canonical(state.s[0]);
}

}  // namespace poseidon252
