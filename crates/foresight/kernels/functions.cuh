#pragma once
// exp, ln, sigmoid and tanh as src/dense/function.rs computes them, bit for bit: additions, products, quotients and shifts
// alone, with every multiply-add fused that is fused there.

#include "gw/gw.cuh"

namespace functions {

// e^x = 2^n e^r. Below -87.3 it is e^-87.3, above 88 it is e^88.
GW_DEVICE f32 exp(f32 x) {
    const f32 shift = 12582912.0f, high = 0.6933594f, low = -2.1219444e-4f;
    f32 bounded = x < -87.3f ? -87.3f : x;
    bounded = bounded > 88.0f ? 88.0f : bounded;
    const f32 shifted = gw::fma(bounded, 1.44269504f, shift);
    const f32 n = gw::add(shifted, -shift);
    const f32 r = gw::fma(n, -low, gw::fma(n, -high, bounded));
    f32 p = gw::fma(1.9875691e-4f, r, 1.3981999e-3f);
    p = gw::fma(p, r, 8.333452e-3f);
    p = gw::fma(p, r, 4.1665796e-2f);
    p = gw::fma(p, r, 1.6666665e-1f);
    p = gw::fma(p, r, 0.5f);
    const f32 power = gw::add(gw::fma(p, gw::multiply(r, r), r), 1.0f);
    const u32 exponent = (gw::bits<u32>(shifted) - gw::bits<u32>(shift) + 127u) << 23;
    return gw::multiply(power, gw::bits<f32>(exponent));
}

// ln x = n ln 2 + 2 artanh(f / (2 + f)) with x = 2^n (1 + f). What is not above the least normal number is taken for that.
GW_DEVICE f32 ln(f32 x) {
    const u32 border = 0x3F3504F3u;
    const f32 least = gw::bits<f32>(0x00800000u), high = 0.6933594f, low = -2.1219444e-4f;
    const f32 bounded = x < least ? least : x;
    const u32 moved = gw::bits<u32>(bounded) + (0x3F800000u - border);
    const f32 n = gw::add((f32)(moved >> 23), -127.0f);
    const f32 f = gw::add(gw::bits<f32>((moved & 0x007FFFFFu) + border), -1.0f);
    const f32 s = f / gw::add(2.0f, f);
    const f32 square = gw::multiply(s, s);
    f32 p = gw::fma(1.0f / 9.0f, square, 1.0f / 7.0f);
    p = gw::fma(p, square, 1.0f / 5.0f);
    p = gw::fma(p, square, 1.0f / 3.0f);
    const f32 twice = gw::multiply(2.0f, s);
    const f32 found = gw::fma(n, high, gw::fma(n, low, gw::fma(gw::multiply(p, square), twice, twice)));
    return x != x ? x : found;
}

GW_DEVICE f32 sigmoid(f32 x) { return 1.0f / gw::add(1.0f, exp(-x)); }

// 1 - 2 / (e^2|x| + 1) with the sign of x; near zero a polynomial.
GW_DEVICE f32 tanh(f32 x) {
    const f32 size = gw::absolute(x), square = gw::multiply(x, x);
    f32 p = gw::fma(-5.7049887e-3f, square, 2.063909e-2f);
    p = gw::fma(p, square, -5.3739715e-2f);
    p = gw::fma(p, square, 1.3331442e-1f);
    p = gw::fma(p, square, -3.333328e-1f);
    const f32 near = gw::fma(gw::multiply(p, square), x, x);
    const f32 bounded = size > 10.0f ? 10.0f : size;
    const f32 far = gw::add(1.0f, -(2.0f / gw::add(exp(gw::multiply(2.0f, bounded)), 1.0f)));
    const f32 with_sign = gw::bits<f32>(gw::bits<u32>(far) | (gw::bits<u32>(x) & 0x80000000u));
    // What is no number is neither.
    return x != x ? x : size < 0.625f ? near : with_sign;
}

// The square root in double precision, to a unit or two in the last place: from that in single precision by Newton's step.
GW_DEVICE f64 root(f64 x) {
    // Powers of two that keep the estimate within single precision.
    const bool large = x > 1e30, small = x < 1e-30;
    const f64 scaled = x * (large ? 0x1p-128 : small ? 0x1p128 : 1.0);
    f64 estimate = (f64)gw::sqrt((f32)scaled);
    if (estimate > 0.0) estimate = 0.5 * (estimate + scaled / estimate);
    if (estimate > 0.0) estimate = 0.5 * (estimate + scaled / estimate);
    return estimate * (large ? 0x1p64 : small ? 0x1p-64 : 1.0);
}

// 64 random bits: number n of a stream of src/random.rs is mix(base + (n + 1) phi).
GW_DEVICE u64 random_bits(u64 base, u64 n) {
    u64 x = base + (n + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// -ln(-ln u) with u from the highest 23 bits, in the middle between two of them.
GW_DEVICE f32 gumbel(u64 bits) {
    const f32 u = gw::multiply(gw::add((f32)(u32)(bits >> 41), 0.5f), 1.0f / 8388608.0f);
    return -ln(-ln(u));
}

}  // namespace functions
