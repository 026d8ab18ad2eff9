#pragma once
// Attention over all keys from attention over each part of them, by a warp:
//   o = sum over parts of w o_part with w = exp(lse_part) / sum exp(lse_part)        lse = log sum exp(lse_part)
// Parts are added up in their order, whoever was done first.

#include "numbers.cuh"

// ROWS rows of WIDTH numbers: lane l has numbers l, l + 32, ... of each.
//
// Memory is waited for twice, whatever the number of parts: for logarithms, a lane a part, and for what the parts gave, a few parts of
// all rows at a time.
template <u32 WIDTH, u32 ROWS>
struct Combined {
    static constexpr u32 PER_LANE = (WIDTH + 31) / 32;
    f32 top[ROWS], sum[ROWS], values[ROWS][PER_LANE];

    // Whether a row has the lane's number i: all lanes have as many where WIDTH is a multiple of 32.
    GW_DEVICE static bool has(u32 i) { return WIDTH % 32 == 0 || gw::lane() + 32 * i < WIDTH; }
    GW_DEVICE static f32 none() { return gw::bits<f32>(0xFF800000u); }

    // The first `there` rows. `place(row, part)` is where a part's row is among those of all; `load` reads a number.
    template <class Place, class Load>
    GW_DEVICE void take(const f32* parts, const f32* parts_lse, u32 count, u32 there, Place place, Load load) {
        f32 lse[ROWS];
        GW_UNROLL
        for (u32 row = 0; row < ROWS; ++row) {
            lse[row] = row < there && gw::lane() < count ? load(parts_lse + place(row, gw::lane())) : none();
            top[row] = lse[row];
            for (u32 part = gw::lane() + 32; row < there && part < count; part += 32) {
                top[row] = gw::maximum(top[row], load(parts_lse + place(row, part)));
            }
            GW_UNROLL
            for (u32 lanes = 16; lanes > 0; lanes /= 2) top[row] = gw::maximum(top[row], gw::shuffle_xor(top[row], lanes));
            sum[row] = 0.0f;
            GW_UNROLL
            for (u32 i = 0; i < PER_LANE; ++i) values[row][i] = 0.0f;
        }
        for (u32 first = 0; first < count; first += 32) {
            f32 weight[ROWS];
            GW_UNROLL
            for (u32 row = 0; row < ROWS; ++row) {
                const u32 own = first + gw::lane();
                if (first > 0) lse[row] = row < there && own < count ? load(parts_lse + place(row, own)) : none();
                // A part that saw nothing has no weight; one that is not a number makes the row not a number.
                weight[row] = lse[row] == none() ? 0.0f : gw::exp2(1.4426950408f * (lse[row] - top[row]));
            }
            const u32 here = gw::lesser(count - first, 32u);
            GW_UNROLL_BY(4)
            for (u32 part = 0; part < here; ++part) {
                GW_UNROLL
                for (u32 row = 0; row < ROWS; ++row) {
                    const bool saw = gw::shuffle(lse[row], part) != none();
                    const f32 own = gw::shuffle(weight[row], part);
                    const f32* from = parts + place(row, first + part) * WIDTH + gw::lane();
                    sum[row] += own;
                    GW_UNROLL
                    for (u32 i = 0; i < PER_LANE; ++i) {
                        const f32 added = row < there && has(i) ? gw::fma(own, load(from + 32 * i), values[row][i]) : 0.0f;
                        values[row][i] = saw ? added : values[row][i];
                    }
                }
            }
        }
    }

    GW_DEVICE f32 value(u32 row, u32 i) const { return sum[row] == 0.0f ? 0.0f : values[row][i] / sum[row]; }
    GW_DEVICE f32 log_sum(u32 row) const { return sum[row] == 0.0f ? none() : top[row] + 0.69314718f * gw::log2(sum[row]); }
};
