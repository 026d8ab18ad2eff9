#include "transcript.cuh"

// Leaves and layers of lifted Merkle trees. A leaf is the Blake2s digest of one row of all columns, shortest first; columns
// that are shorter than the tree are read at the row that a row lifts to. `form` is what the words of a digest are.

// Hashes blocks first_block .. end_block (of BLOCK_COLUMNS columns each) of 2^log_rows rows. Before the first block the state is that of
// `states`, of 2^log_states rows, if there are blocks before; after the last, the digest is final if the columns end there.
// One thread a row.
GW_KERNEL_BOUNDED(merkle_leaves, 256, 1)(
    const LeafColumn* columns, u32 column_count, u32 first_block, u32 end_block, u32 log_rows, const u32* states,
    u32 log_states, u32* digests, DigestWords form) {
    gw::await_stream();
    const u32 row = (u32)gw::global_thread();
    if (row >> log_rows) return;
    blake2s::State state = blake2s::initial();
    if (first_block > 0) state = blake2s::load(states + 8 * (u64)lifted_row(row, log_rows - log_states));
    for (u32 block = first_block; block < end_block; ++block) {
        u32 m[BLOCK_COLUMNS];
        GW_UNROLL
        for (u32 i = 0; i < BLOCK_COLUMNS; ++i) {
            const u32 column = BLOCK_COLUMNS * block + i;
            m[i] = 0;
            if (column < column_count) {
                const LeafColumn source = columns[column];
                m[i] = source.values[lifted_row(row, log_rows - source.log_size)];
            }
        }
        const u32 words = gw::lesser(BLOCK_COLUMNS * (block + 1), column_count);
        blake2s::compress(state, m, 4 * (u64)words, words == column_count);
    }
    if (form == DigestWords::M31 && BLOCK_COLUMNS * end_block >= column_count) blake2s::reduce(state);
    blake2s::store(digests + 8 * (u64)row, state);
}

// Leaves of a tree over few columns that are as long as it, as those of FRI: one block each, and no table. One thread a row.
GW_KERNEL_BOUNDED(merkle_rows, 256, 1)(FewColumns columns, u32 column_count, u32 log_rows, u32* digests, DigestWords form) {
    gw::await_stream();
    const u32 row = (u32)gw::global_thread();
    if (row >> log_rows) return;
    u32 m[BLOCK_COLUMNS];
    GW_UNROLL
    for (u32 i = 0; i < BLOCK_COLUMNS; ++i) m[i] = i < column_count ? columns.at[i][row] : 0;
    blake2s::State state = blake2s::initial();
    blake2s::compress(state, m, 4 * (u64)column_count, true);
    if (form == DigestWords::M31) blake2s::reduce(state);
    blake2s::store(digests + 8 * (u64)row, state);
}

// The parents of a layer that is in no tree. One thread a parent.
GW_KERNEL_BOUNDED(merkle_parents, 256, 1)(const u32* children, u32* parents, u32 count, DigestWords form) {
    const u32 node = (u32)gw::global_thread();
    if (node >= count) return;
    const u32* below = children + 16 * (u64)node;
    const blake2s::State state = blake2s::parent(blake2s::load(below), blake2s::load(below + 8), form);
    blake2s::store(parents + 8 * (u64)node, state);
}

// Computes `layers` layers above the one of 2^log_children nodes, in a tree in breadth-first order, root first: the layer of n nodes
// starts at node n - 1. A block of T threads has 2 T children, T of their parents, and on
// as long as there are two; 32 T bytes of shared memory. What thread 0 of a block gets is the last that the block computed.
GW_DEVICE blake2s::State tree_layers(u32* tree, u32 log_children, u32 layers, DigestWords form) {
    gw::await_stream();
    u32* shared = gw::shared<u32>();
    const u32 thread = gw::thread_x(), threads = gw::threads_x();
    const u32 children = 1u << log_children;
    u64 node = (u64)gw::block_x() * threads + thread;
    const u32* below = tree + 8 * ((u64)children - 1 + 2 * node);
    blake2s::State state = blake2s::parent(blake2s::load(below), blake2s::load(below + 8), form);
    blake2s::store(tree + 8 * ((u64)children / 2 - 1 + node), state);
    for (u32 layer = 1; layer < layers; ++layer) {
        // Words of one digest lie `threads` apart, so that neighbours use different banks.
        if (thread < threads >> (layer - 1)) {
            GW_UNROLL
            for (u32 i = 0; i < 8; ++i) shared[i * threads + thread] = state.h[i];
        }
        gw::sync_threads();
        const bool works = thread < threads >> layer;
        if (works) {
            blake2s::State left, right;
            GW_UNROLL
            for (u32 i = 0; i < 8; ++i) {
                left.h[i] = shared[i * threads + 2 * thread];
                right.h[i] = shared[i * threads + 2 * thread + 1];
            }
            state = blake2s::parent(left, right, form);
            node = (u64)gw::block_x() * (threads >> layer) + thread;
            blake2s::store(tree + 8 * (((u64)children >> (layer + 1)) - 1 + node), state);
        }
        gw::sync_threads();
    }
    return state;
}

// `tree_layers`, by blocks of at most 256 threads.
GW_KERNEL_BOUNDED(merkle_layers, 256, 1)(u32* tree, u32 log_children, u32 layers, DigestWords form) {
    tree_layers(tree, log_children, layers, form);
}

// The layers above 2^log_children nodes, up to the root, which is taken into the transcript: a challenge comes back. One block of a
// thread for each pair of nodes, 32 bytes of shared memory for each.
GW_KERNEL_BOUNDED(finish_tree, 256, 1)(u32* tree, u32 log_children, u32* digest, QM31* alpha, DigestWords form) {
    const blake2s::State root = tree_layers(tree, log_children, log_children, form);
    if (gw::thread_x() == 0) qm31::store(alpha, mix_and_draw(digest, root, form));
}

// Column 4 k + c of the packed columns has coordinate c of rows k, k + 4, k + 8, ... One thread an element of the sources.
GW_KERNEL(merkle_pack)(const u32* const* coordinates, u32* const* packed, u32 rows) {
    const u32 row = (u32)gw::global_thread(), coordinate = gw::block_y();
    if (row < rows) packed[4 * (row & 3) + coordinate][row >> 2] = coordinates[coordinate][row];
}
