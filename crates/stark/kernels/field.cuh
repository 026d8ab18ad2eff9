#pragma once
// The fields of the protocol. M31 is the integers modulo P = 2^31 - 1; CM31 = M31[i] with i^2 = -1; QM31 = CM31[u] with
// u^2 = 2 + i. Elements of M31 are kept in [0, P). A "doubled" factor 2t makes the halves of a product fall on the halves
// of a 64-bit word: a t mod P = (2 a t >> 32) + ((2 a t mod 2^32) >> 1), up to one subtraction.

#include "gw/gw.cuh"

namespace m31 {

const u32 P = 0x7fffffffu;

// x mod P for x < 2 P: the difference wraps to something large exactly where it must not be taken.
GW_DEVICE u32 fold(u32 x) { return gw::lesser(x, x - P); }
GW_DEVICE u32 add(u32 a, u32 b) { return fold(a + b); }
GW_DEVICE u32 sub(u32 a, u32 b) {
    const u32 d = a - b;
    return gw::lesser(d, d + P);
}
GW_DEVICE u32 neg(u32 a) { return sub(0, a); }
GW_DEVICE u32 mul_doubled(u32 a, u32 doubled) {
    const u64 product = (u64)a * doubled;
    return fold((u32)(product >> 32) + ((u32)product >> 1));
}
GW_DEVICE u32 mul(u32 a, u32 b) { return mul_doubled(a, b << 1); }
GW_DEVICE u32 square(u32 a) { return mul(a, a); }
// x mod P for any 64-bit x.
GW_DEVICE u32 reduce(u64 x) {
    x = (x & P) + (x >> 31);
    return fold((u32)(x & P) + (u32)(x >> 31));
}
// x / 2^k for the factor 2^(32 - k), 0 < k < 31: a rotation of 31 bits, whose parts do not overlap.
GW_DEVICE u32 halve(u32 x, u32 factor) {
    const u64 product = (u64)x * factor;
    return (u32)(product >> 32) + ((u32)product >> 1);
}

GW_DEVICE u32 square_times(u32 a, u32 count) {
    for (u32 i = 0; i < count; ++i) a = square(a);
    return a;
}
// a^(P - 2), which is 1 / a, and 0 for 0.
GW_DEVICE u32 inverse(u32 a) {
    const u32 e5 = mul(square_times(a, 2), a);
    const u32 e15 = mul(square(e5), e5);
    const u32 e125 = mul(square_times(e15, 3), e5);
    const u32 e255 = mul(square(e125), e5);
    const u32 e65535 = mul(square_times(e255, 8), e255);
    const u32 e16777215 = mul(square_times(e65535, 8), e255);
    return mul(square_times(e16777215, 7), e125);
}

}  // namespace m31

// re + im i.
struct CM31 {
    u32 re, im;
};

namespace cm31 {

GW_DEVICE CM31 sub(CM31 a, CM31 b) { return {m31::sub(a.re, b.re), m31::sub(a.im, b.im)}; }
GW_DEVICE CM31 mul(CM31 a, CM31 b) {
    return {m31::reduce((u64)a.re * b.re + (u64)(m31::P - a.im) * b.im), m31::reduce((u64)a.re * b.im + (u64)a.im * b.re)};
}
GW_DEVICE CM31 inverse(CM31 a) {
    const u32 norm = m31::inverse(m31::reduce((u64)a.re * a.re + (u64)a.im * a.im));
    return {m31::mul(a.re, norm), m31::mul(m31::neg(a.im), norm)};
}

}  // namespace cm31

// (a + b i) + (c + d i) u: four words, which lie at multiples of 16 bytes where columns of them do.
struct QM31 {
    u32 a, b, c, d;
};

namespace qm31 {

GW_DEVICE QM31 zero() { return {0, 0, 0, 0}; }
GW_DEVICE QM31 one() { return {1, 0, 0, 0}; }
GW_DEVICE QM31 lift(u32 a) { return {a, 0, 0, 0}; }
GW_DEVICE QM31 add(QM31 x, QM31 y) {
    return {m31::add(x.a, y.a), m31::add(x.b, y.b), m31::add(x.c, y.c), m31::add(x.d, y.d)};
}
GW_DEVICE QM31 sub(QM31 x, QM31 y) {
    return {m31::sub(x.a, y.a), m31::sub(x.b, y.b), m31::sub(x.c, y.c), m31::sub(x.d, y.d)};
}
GW_DEVICE QM31 neg(QM31 x) { return {m31::neg(x.a), m31::neg(x.b), m31::neg(x.c), m31::neg(x.d)}; }
GW_DEVICE QM31 add_m31(QM31 x, u32 y) { return {m31::add(x.a, y), x.b, x.c, x.d}; }
GW_DEVICE QM31 mul_m31(QM31 x, u32 y) {
    const u32 doubled = y << 1;
    return {m31::mul_doubled(x.a, doubled), m31::mul_doubled(x.b, doubled), m31::mul_doubled(x.c, doubled),
            m31::mul_doubled(x.d, doubled)};
}
GW_DEVICE QM31 mul_cm31(QM31 x, CM31 y) {
    const CM31 low = cm31::mul({x.a, x.b}, y), high = cm31::mul({x.c, x.d}, y);
    return {low.re, low.im, high.re, high.im};
}
// Sums of at most four products of reduced factors stay below 2^64.
GW_DEVICE QM31 mul(QM31 x, QM31 y) {
    const u64 nb = m31::P - x.b, nd = m31::P - x.d;
    const u32 re = m31::reduce((u64)x.c * y.c + nd * y.d);
    const u32 im = m31::reduce((u64)x.c * y.d + (u64)x.d * y.c);
    return {m31::reduce((u64)x.a * y.a + nb * y.b + 2 * (u64)re + (m31::P - im)),
            m31::reduce((u64)x.a * y.b + (u64)x.b * y.a + re + 2 * (u64)im),
            m31::reduce((u64)x.a * y.c + nb * y.d + (u64)x.c * y.a + nd * y.b),
            m31::reduce((u64)x.a * y.d + (u64)x.b * y.c + (u64)x.c * y.b + (u64)x.d * y.a)};
}
GW_DEVICE QM31 square(QM31 x) { return mul(x, x); }
// 1 / (A + B u) = (A - B u) / (A^2 - (2 + i) B^2).
GW_DEVICE QM31 inverse(QM31 x) {
    const CM31 aa = cm31::mul({x.a, x.b}, {x.a, x.b}), bb = cm31::mul({x.c, x.d}, {x.c, x.d});
    const CM31 norm = cm31::sub(aa, cm31::mul({2, 1}, bb));
    return mul_cm31({x.a, x.b, m31::neg(x.c), m31::neg(x.d)}, cm31::inverse(norm));
}

GW_DEVICE QM31 load(const QM31* pointer) { return gw::bits<QM31>(gw::load_128(pointer)); }
GW_DEVICE void store(QM31* pointer, QM31 x) { gw::store_128(pointer, gw::bits<u32x4>(x)); }

}  // namespace qm31

// Four columns of coordinates, as the protocol keeps columns of QM31.
struct Coordinates {
    u32* at[4];
};

namespace qm31 {

GW_DEVICE QM31 load(const Coordinates& columns, u64 row) {
    return {columns.at[0][row], columns.at[1][row], columns.at[2][row], columns.at[3][row]};
}
GW_DEVICE void store(const Coordinates& columns, u64 row, QM31 x) {
    columns.at[0][row] = x.a;
    columns.at[1][row] = x.b;
    columns.at[2][row] = x.c;
    columns.at[3][row] = x.d;
}

// sum of factor x value with values of M31, reduced late: a product is below 2^62, so that three of them and what a
// reduction leaves fit into 64 bits.
struct Sum {
    u64 a, b, c, d;
    u32 pending;
};
GW_DEVICE Sum sum() { return {0, 0, 0, 0, 0}; }
GW_DEVICE u64 shorten(u64 x) { return (x & m31::P) + (x >> 31); }
GW_DEVICE void add_product(Sum& sum, QM31 factor, u32 value) {
    sum.a += (u64)factor.a * value;
    sum.b += (u64)factor.b * value;
    sum.c += (u64)factor.c * value;
    sum.d += (u64)factor.d * value;
    if (++sum.pending == 3) {
        sum = {shorten(sum.a), shorten(sum.b), shorten(sum.c), shorten(sum.d), 0};
    }
}
GW_DEVICE QM31 total(const Sum& sum) {
    return {m31::reduce(sum.a), m31::reduce(sum.b), m31::reduce(sum.c), m31::reduce(sum.d)};
}

}  // namespace qm31

// The row of a column of 2^(log - shift) elements that a row of 2^log lifts to: in bit-reversed order of a circle domain
// the lowest bit tells a point from its conjugate and stays.
GW_DEVICE u32 lifted_row(u32 row, u32 shift) { return (row >> (shift + 1) << 1) | (row & 1); }
