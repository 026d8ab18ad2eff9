#include "gw/gw.cuh"

// values[i] of block b, `rounds` times: 2 v + b + 1, modulo 2^32, where v is values[i] of block b + 1 before the round.
//
// A cooperative launch. `values` and `next` hold one element for each thread of the grid and change places after every
// round; `arrived` is a zero word. The result is in `values` after an even number of rounds, else in `next`.
GW_KERNEL(grid_ring)(u32* values, u32* next, u32* arrived, u32 rounds) {
    const u32 block = gw::block_x(), neighbour = (block + 1) % gw::blocks_x();
    for (u32 round = 0; round < rounds; ++round) {
        const u32* from = round % 2 ? next : values;
        u32* to = round % 2 ? values : next;
        to[block * gw::threads() + gw::thread()] = 2 * from[neighbour * gw::threads() + gw::thread()] + block + 1;
        gw::sync_grid(arrived);
    }
}
