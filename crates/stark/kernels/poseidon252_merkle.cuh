#include "poseidon252.cuh"

// Leaves and layers of lifted Merkle trees of Poseidon on felts, whose digests lie in Montgomery form. A leaf is the hash of one row
// of all columns, shortest first: eight elements of M31 make a felt, two felts are added to the state before a permutation, and
// after the last of them a one. Columns that are shorter than the tree are read at the row that a row lifts to.

// Elements first .. first + count of a row, at most eight, as a felt: 31 bits each, the first highest, and above eight of them
// their number if they are fewer.
GW_DEVICE felt252::Felt pack(const LeafColumn* columns, u32 first, u32 count, u32 row, u32 log_rows) {
    u32 x[9];
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) {
        x[i] = 0;
        if (i < count) {
            const LeafColumn source = columns[first + count - 1 - i];
            x[i] = source.values[lifted_row(row, log_rows - source.log_size)];
        }
    }
    x[8] = count < 8 ? count : 0;
    felt252::Felt packed;
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) packed.w[i] = (x[i] >> i) | (x[i + 1] << (31 - i));
    return felt252::enter(packed);
}

// Takes steps first_step .. end_step, of two felts each, of 2^log_rows rows. Before the first step the state is that of `states`, of
// 2^log_states rows and 24 words each, if there are steps before. After the last step of all, which has one felt or none,
// `results` are digests for each of the 2^log_leaves rows that the rows are lifted to; otherwise they are states. One thread a row.
GW_KERNEL_BOUNDED(poseidon252_leaves, 128, 7)(
    const LeafColumn* columns, u32 column_count, u32 first_step, u32 end_step, u32 log_rows, const u32* states, u32 log_states,
    u32* results, u32 log_leaves) {
    gw::await_stream();
    const u32 row = (u32)gw::global_thread();
    if (row >> log_rows) return;
    const u32 felts = (column_count + 7) / 8;
    poseidon252::State state = {};
    if (first_step > 0) {
        const u32* before = states + 24 * (u64)lifted_row(row, log_rows - log_states);
        GW_UNROLL
        for (u32 i = 0; i < 3; ++i) state.s[i] = felt252::load(before + 8 * i);
    }
    for (u32 step = first_step; step < end_step; ++step) {
        felt252::Felt added[2] = {felt252::one(), {}};
        if (2 * step < felts) {
            added[1] = added[0];
            added[0] = pack(columns, 16 * step, gw::lesser(column_count - 16 * step, 8u), row, log_rows);
        }
        if (2 * step + 1 < felts) {
            added[1] = pack(columns, 16 * step + 8, gw::lesser(column_count - 16 * step - 8, 8u), row, log_rows);
        }
        state.s[0] = felt252::add(state.s[0], added[0]);
        state.s[1] = felt252::add(state.s[1], added[1]);
        poseidon252::permute(state);
    }
    if (2 * end_step <= felts) {
        GW_UNROLL
        for (u32 i = 0; i < 3; ++i) felt252::store(results + 24 * (u64)row + 8 * i, state.s[i]);
        return;
    }
    const felt252::Felt digest = felt252::canonical(state.s[0]);
    const u32 shift = log_leaves - log_rows;
    for (u64 copy = 0; copy >> shift == 0; ++copy) {
        felt252::store(results + 8 * ((((u64)row >> 1 << shift | copy) << 1) | (row & 1)), digest);
    }
}

// The parents of nodes. One thread a parent.
GW_KERNEL_BOUNDED(poseidon252_parents, 128, 8)(const u32* children, u32* parents, u32 count) {
    gw::await_stream();
    const u32 node = (u32)gw::global_thread();
    if (node >= count) return;
    const u32* below = children + 16 * (u64)node;
    felt252::store(parents + 8 * (u64)node, poseidon252::parent(felt252::load(below), felt252::load(below + 8)));
}
