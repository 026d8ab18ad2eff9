#include "functions.cuh"
#include "shared.cuh"

// What a Newton-Schulz iteration X <- a X + (b G + c G^2) X, G = X X^T, has beside its products. Products are of bf16 with sums
// in f32; X itself stays in f32, so that an iteration rounds what it multiplies and not what it adds to. Where X is tall, G is
// X^T X and stands on the right. All of these wait for memory; matrices lie as they are, row after row.

// rounded <- bf16(s x), x <- a s x, with s = 1 / (|x| + tiny) before the first iteration and 1 before the others. A thread a
// number: a matrix begins wherever it lies among all parameters.
GW_KERNEL_BOUNDED(begin_iteration, REDUCE_THREADS, 4)(f32* x, u16* rounded, const f64* squared_length, u32 first, u64 count) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    const f32 s = first ? 1.0f / ((f32)functions::root(*squared_length) + MUON_TINY) : 1.0f;
    const f32 scaled = gw::multiply(x[i], s);
    rounded[i] = gw::f32_to_bf16(scaled);
    x[i] = gw::multiply(MUON_A, scaled);
}

// to <- bf16(b gram + c square).
GW_KERNEL_BOUNDED(polynomial, REDUCE_THREADS, 4)(const f32* gram, const f32* square, u16* to, u64 count) {
    const u64 i = gw::global_thread();
    if (i >= count) return;
    to[i] = gw::f32_to_bf16(gw::fma(MUON_C, square[i], gw::multiply(MUON_B, gram[i])));
}
