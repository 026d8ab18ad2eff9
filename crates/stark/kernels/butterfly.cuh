#pragma once
// Layers of the circle transform and of its inverse on values in registers.
//
// Values lie in bit-reversed order of their domain. Layer i pairs the values at distance 2^i: the inverse takes (a, b) to
// (a + b, (a - b) / t) from layer 0 up, the transform takes (a, b) to (a + t b, a - t b) from the top down, with the t of
// circle.cuh for the number of the pair's group. (The transform with the inverse's table is the transpose of the inverse.)

#include "circle.cuh"
#include "shared.cuh"

// With t, or with -t where `negated`.
template <bool INVERSE>
GW_DEVICE void butterfly(u32& a, u32& b, u32 doubled, bool negated = false) {
    if (INVERSE) {
        const u32 sum = m31::add(a, b);
        b = m31::mul_doubled(negated ? m31::sub(b, a) : m31::sub(a, b), doubled);
        a = sum;
    } else {
        const u32 product = m31::mul_doubled(b, doubled);
        const u32 plus = m31::add(a, product), minus = m31::sub(a, product);
        a = negated ? minus : plus;
        b = negated ? plus : minus;
    }
}

// Neighbouring twiddles in as few loads as there can be: tables are aligned as layers are long.
template <u32 N>
GW_DEVICE void load_twiddles(const u32* from, u32 (&t)[N]) {
    if constexpr (N >= 4) {
        GW_UNROLL
        for (u32 i = 0; i < N; i += 4) {
            const u32x4 four = gw::load_readonly(reinterpret_cast<const u32x4*>(from + i));
            t[i] = four.x, t[i + 1] = four.y, t[i + 2] = four.z, t[i + 3] = four.w;
        }
    } else if constexpr (N == 2) {
        const u32x2 two = gw::load_readonly(reinterpret_cast<const u32x2*>(from));
        t[0] = two.x, t[1] = two.y;
    } else {
        t[0] = gw::load_readonly(from);
    }
}

// Step S of K layers on 2^K values: groups of 2^(S + 1) values, with one twiddle each.
template <bool INVERSE, u32 K, u32 S>
GW_DEVICE void layer_step(u32 (&v)[1 << K], const u32* twiddles) {
    u32 t[1 << (K - 1 - S)];
    load_twiddles(twiddles, t);
    GW_UNROLL
    for (u32 q = 0; q < 1u << (K - 1); ++q) {
        const u32 group = q >> S, low = (group << (S + 1)) | (q & ((1u << S) - 1));
        butterfly<INVERSE>(v[low], v[low | 1u << S], t[group]);
    }
}

// A column that lies a fixed number of bytes from the first, or, where they do not, is in a table.
GW_DEVICE u32* column(const Columns& columns, u32 i) {
    return reinterpret_cast<u32*>(columns.stride == ~0ull ? columns.table[i] : columns.first + i * columns.stride);
}

// Where the twiddles of a layer are.
struct Table {
    const u32* words;
    u32 log_words;
    // The domain whose layers are read.
    u32 log_domain;
};

// Step I and those after it of K layers from `layer` on; `group` is the number of the 2^(layer + K) values that these are among.
template <bool INVERSE, u32 K, u32 I = 0>
GW_DEVICE void line_layers(u32 (&v)[1 << K], const Table& table, u32 layer, u32 group) {
    constexpr u32 S = INVERSE ? I : K - 1 - I;
    const u32* twiddles = circle::layer(table.words, table.log_words, table.log_domain, layer + S);
    layer_step<INVERSE, K, S>(v, twiddles + (group << (K - 1 - S)));
    if constexpr (I + 1 < K) line_layers<INVERSE, K, I + 1>(v, table, layer, group);
}

// Layers 0 and 1 on 2^K neighbours.
template <bool INVERSE, u32 K>
GW_DEVICE void circle_layers(u32 (&v)[1 << K], const u32* layer_1) {
    u32 t[1 << (K - 2)];
    load_twiddles(layer_1, t);
    GW_UNROLL
    for (u32 i = 0; i < 2; ++i) {
        const u32 s = INVERSE ? i : 1 - i;
        GW_UNROLL
        for (u32 q = 0; q < 1u << (K - 1); ++q) {
            const u32 group = q >> s, low = (group << (s + 1)) | (q & ((1u << s) - 1));
            // In layer 0 the twiddles are y, -y, -x, x for two neighbours x, y of layer 1.
            const u32 twiddle = s == 1 ? t[group] : t[(q >> 2 << 1) | (~q >> 1 & 1)];
            butterfly<INVERSE>(v[low], v[low | 1u << s], twiddle, s == 0 && ((q ^ q >> 1) & 1));
        }
    }
}

// The K lowest layers on 2^K neighbours, K > 2.
template <bool INVERSE, u32 K>
GW_DEVICE void lowest_layers(u32 (&v)[1 << K], const Table& table, u32 group) {
    const u32* layer_1 = circle::layer(table.words, table.log_words, table.log_domain, 1) + (group << (K - 2));
    if (INVERSE) circle_layers<INVERSE, K>(v, layer_1);
    const u32* layer_2 = circle::layer(table.words, table.log_words, table.log_domain, 2) + (group << (K - 3));
    if constexpr (K == 3) {
        layer_step<INVERSE, K, 2>(v, layer_2);
    } else {
        const u32* layer_3 = circle::layer(table.words, table.log_words, table.log_domain, 3) + group;
        if (INVERSE) layer_step<INVERSE, K, 2>(v, layer_2);
        layer_step<INVERSE, K, 3>(v, layer_3);
        if (!INVERSE) layer_step<INVERSE, K, 2>(v, layer_2);
    }
    if (!INVERSE) circle_layers<INVERSE, K>(v, layer_1);
}
