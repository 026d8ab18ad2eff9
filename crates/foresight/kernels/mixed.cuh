#include "functions.cuh"
#include "shared.cuh"

// What lies between products of bf16 in a step whose sums, stream and master weights are f32: roundings, biases, transposes, and
// the average of master weights. All of these wait for memory.

// to <- bf16(x), four a thread.
GW_KERNEL_BOUNDED(rounded, REDUCE_THREADS, 4)(const f32* x, u16* to, u64 count) {
    const u64 at = 4 * gw::global_thread();
    if (at + 4 <= count) {
        const u32x4 four = gw::load_128(x + at);
        const u32x2 pairs = {gw::f32_to_bf16x2(gw::bits<f32>(four.x), gw::bits<f32>(four.y)),
                             gw::f32_to_bf16x2(gw::bits<f32>(four.z), gw::bits<f32>(four.w))};
        *reinterpret_cast<u32x2*>(to + at) = pairs;
        return;
    }
    for (u64 i = at; i < count; ++i) to[i] = gw::f32_to_bf16(x[i]);
}

// to <- bf16(x + bias), with the bias of a row's columns. There are less than 2^32 numbers.
GW_KERNEL_BOUNDED(round_with_bias, REDUCE_THREADS, 4)(const f32* x, const f32* bias, u16* to, u64 count, u32 width) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    to[i] = gw::f32_to_bf16(x[i] + bias[(u32)i % width]);
}

// to <- x + bias.
GW_KERNEL_BOUNDED(with_bias, REDUCE_THREADS, 4)(const f32* x, const f32* bias, f32* to, u64 count, u32 width) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    to[i] = x[i] + bias[(u32)i % width];
}

// to <- bf16(x (1 + tanh(inner)) / 2), GPT-2's form of GELU.
GW_KERNEL_BOUNDED(round_gelu, REDUCE_THREADS, 4)(const f32* x, u16* to, u64 count) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    const f32 at = x[i], inner = GELU_SCALE * (at + GELU_CUBIC * at * at * at);
    to[i] = gw::f32_to_bf16(0.5f * at * (1.0f + functions::tanh(inner)));
}

// to[column][row] <- from[row][column], by way of a tile in shared memory, so that both sides are read and written in rows.
GW_KERNEL_BOUNDED(turn, TURN_SIDE * TURN_LINES, 4)(const u16* from, u16* to, u32 rows, u32 columns) {
    // One number more a row: a column falls on different banks.
    u16(*tile)[TURN_SIDE + 1] = reinterpret_cast<u16(*)[TURN_SIDE + 1]>(gw::shared<u16>());
    const u32 x = gw::thread() % TURN_SIDE, y = gw::thread() / TURN_SIDE;
    const u32 top = gw::block_y() * TURN_SIDE, left = gw::block_x() * TURN_SIDE;
    for (u32 line = y; line < TURN_SIDE; line += TURN_LINES) {
        if (top + line < rows && left + x < columns) tile[line][x] = from[(u64)(top + line) * columns + left + x];
    }
    gw::sync_threads();
    for (u32 line = y; line < TURN_SIDE; line += TURN_LINES) {
        if (left + line < columns && top + x < rows) to[(u64)(left + line) * rows + top + x] = tile[x][line];
    }
}

// average <- keep average + rest x, each operation rounded once, as on the CPU.
GW_KERNEL_BOUNDED(average, REDUCE_THREADS, 4)(f32* average, const f32* x, f32 keep, f32 rest, u64 count) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    average[i] = gw::add(gw::multiply(keep, average[i]), gw::multiply(rest, x[i]));
}

// to <- to + factor x, each operation rounded once.
GW_KERNEL_BOUNDED(add_scaled, REDUCE_THREADS, 4)(f32* to, const f32* x, f32 factor, u64 count) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    to[i] = gw::add(to[i], gw::multiply(factor, x[i]));
}
