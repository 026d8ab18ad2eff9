#pragma once
// Points of the circle and tables of twiddles.
//
// A table for a coset of 2^log_table points holds the x coordinates of its halves: layer 0 has 2^(log_table - 1), each next
// one half as many, each in bit-reversed order; one unused word makes the length a power of two. Counted from the end the
// layers of every smaller domain of the tower lie at the same place: those of a circle domain of 2^log_domain points, from
// layer 1 of its transform on, start 2^(log_domain - layer) words before the end. Words are doubled, see field.cuh.

#include "field.cuh"

namespace circle {

// Twiddles of a layer of the transform over 2^log_domain points; layer 1 is the first of the line.
GW_DEVICE const u32* layer(const u32* table, u32 log_table, u32 log_domain, u32 layer) {
    return table + ((1u << log_table) - (1u << (log_domain - layer)));
}

// A domain's points in bit-reversed order come in eights (±x, ±y), (±y, ±x) with x and y two neighbours of layer 1, so that
// the twiddles of layer 0, the y coordinates of the even ones, are y, -y, -x, x. Holds for inverses too. `pair` is the
// number of a pair of conjugate points.
GW_DEVICE u32 y_doubled(const u32* layer_1, u32 pair) {
    const u32 doubled = layer_1[(pair >> 2 << 1) | (~pair >> 1 & 1)];
    const u32 flip = (pair & 1) ^ (pair >> 1 & 1);
    return flip ? 2 * m31::P - doubled : doubled;
}
GW_DEVICE u32 x_doubled(const u32* layer_1, u32 pair) {
    const u32 doubled = layer_1[(pair >> 2 << 1) | (pair >> 1 & 1)];
    return pair & 1 ? 2 * m31::P - doubled : doubled;
}

// The point with that number on the circle of 2^31 points; powers[k] is point 2^k.
GW_DEVICE CM31 point(const u32* powers, u32 number) {
    CM31 sum = {1, 0};
    for (u32 bit = 0; bit < 31; ++bit) {
        if (number >> bit & 1) sum = cm31::mul(sum, {powers[2 * bit], powers[2 * bit + 1]});
    }
    return sum;
}

}  // namespace circle
