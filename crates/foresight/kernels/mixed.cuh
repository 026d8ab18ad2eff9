#include "four.cuh"
#include "functions.cuh"
#include "shared.cuh"

// What lies between products of bf16 in a step whose sums, stream and master weights are f32: roundings, biases, GELU, and the
// average of master weights. All of these wait for memory.

// GPT-2's form of GELU, x (1 + t) / 2 with t = tanh(inner) and inner = sqrt(2 / pi) (x + 0.044715 x^3), and its slope.
struct Gelu {
    f32 value, slope;
    GW_DEVICE static Gelu of(f32 x) {
        const f32 t = functions::tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x));
        const f32 inner = GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * x * x);
        return {0.5f * x * (1.0f + t), 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner};
    }
};

GW_DEVICE u64 own_four() { return 4 * gw::global_thread(); }

// to <- bf16(x)
GW_KERNEL_BOUNDED(rounded, REDUCE_THREADS, 4)(const f32* x, u16* to, u64 count) {
    const u64 at = own_four();
    if (at < count) Four::load(x, at, count).store(to, at, count);
}

// to <- bf16(x + bias). There are less than 2^32 numbers.
GW_KERNEL_BOUNDED(round_with_bias, REDUCE_THREADS, 4)(const f32* x, const f32* bias, u16* to, u64 count, u32 width) {
    const u64 at = own_four();
    if (at >= count) return;
    Four four = Four::load(x, at, count);
    four.add(bias, at, width);
    four.store(to, at, count);
}

// to <- x + bias
GW_KERNEL_BOUNDED(with_bias, REDUCE_THREADS, 4)(const f32* x, const f32* bias, f32* to, u64 count, u32 width) {
    const u64 at = own_four();
    if (at >= count) return;
    Four four = Four::load(x, at, count);
    four.add(bias, at, width);
    four.store(to, at, count);
}

// x <- x + bias and to <- bf16(gelu(x))
GW_KERNEL_BOUNDED(bias_gelu, REDUCE_THREADS, 4)(f32* x, const f32* bias, u16* to, u64 count, u32 width) {
    const u64 at = own_four();
    if (at >= count) return;
    Four four = Four::load(x, at, count);
    four.add(bias, at, width);
    four.store(x, at, count);
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) four.of[i] = Gelu::of(four.of[i]).value;
    four.store(to, at, count);
}

// to <- bf16(gelu(x))
GW_KERNEL_BOUNDED(round_gelu, REDUCE_THREADS, 4)(const f32* x, u16* to, u64 count) {
    const u64 at = own_four();
    if (at >= count) return;
    Four four = Four::load(x, at, count);
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) four.of[i] = Gelu::of(four.of[i]).value;
    four.store(to, at, count);
}

// to <- bf16(d gelu'(x))
GW_KERNEL_BOUNDED(gelu_back, REDUCE_THREADS, 4)(const f32* x, const f32* d, u16* to, u64 count) {
    const u64 at = own_four();
    if (at >= count) return;
    const Four four = Four::load(x, at, count);
    Four back = Four::load(d, at, count);
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) back.of[i] *= Gelu::of(four.of[i]).slope;
    back.store(to, at, count);
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
