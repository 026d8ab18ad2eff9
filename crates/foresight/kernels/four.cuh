#pragma once
// Lists of numbers by four neighbours, in one access where there are four.

#include "gw/gw.cuh"

// Four neighbours, or those of them that there are, and zeros. Lists begin at multiples of four numbers.
struct Four {
    f32 of[4];
    GW_DEVICE static Four load(const f32* x, u64 at, u64 count) {
        Four four = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (at + 4 <= count) {
            const u32x4 words = gw::load_128(x + at);
            four = {{gw::bits<f32>(words.x), gw::bits<f32>(words.y), gw::bits<f32>(words.z), gw::bits<f32>(words.w)}};
        } else {
            for (u32 i = 0; at + i < count; ++i) four.of[i] = x[at + i];
        }
        return four;
    }
    GW_DEVICE void store(f32* to, u64 at, u64 count) const {
        if (at + 4 <= count) {
            gw::store_128(to + at, {gw::bits<u32>(of[0]), gw::bits<u32>(of[1]), gw::bits<u32>(of[2]), gw::bits<u32>(of[3])});
        } else {
            for (u32 i = 0; at + i < count; ++i) to[at + i] = of[i];
        }
    }
    // Rounded.
    GW_DEVICE void store(u16* to, u64 at, u64 count) const {
        if (at + 4 <= count) {
            const u32x2 pairs = {gw::f32_to_bf16x2(of[0], of[1]), gw::f32_to_bf16x2(of[2], of[3])};
            *reinterpret_cast<u32x2*>(to + at) = pairs;
        } else {
            for (u32 i = 0; at + i < count; ++i) to[at + i] = gw::f32_to_bf16(of[i]);
        }
    }
    // With the bias of a row's columns.
    GW_DEVICE void add(const f32* bias, u64 at, u32 width) {
        u32 column = (u32)at % width;
        GW_UNROLL
        for (u32 i = 0; i < 4; ++i) {
            of[i] += bias[column];
            column = column + 1 < width ? column + 1 : 0;
        }
    }
};
