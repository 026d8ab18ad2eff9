#pragma once
// Attention over all keys from attention over each part of them, by a warp:
//   o = sum over parts of w o_part with w = exp(lse_part) / sum exp(lse_part)        lse = log sum exp(lse_part)
// Parts are added up in their order, whoever was done first.

#include "numbers.cuh"

// How what parts gave is read: in the launch that wrote it, or in a later one.
struct ReadPlainly {
    template <class T>
    GW_DEVICE T operator()(const T* from) const { return *from; }
};
struct ReadUnchanged {
    template <class T>
    GW_DEVICE T operator()(const T* from) const { return gw::load_readonly(from); }
};

// ROWS rows of WIDTH numbers: a lane has runs of VECTOR neighbours of each, in one access.
//
// Memory is waited for twice up to 32 parts, whatever their number: for logarithms, a lane a part, and for what the parts gave, AT_ONCE
// parts of all rows at a time.
template <u32 WIDTH, u32 ROWS>
struct Combined {
    static constexpr u32 VECTOR = WIDTH % 128 == 0 ? 4 : WIDTH % 64 == 0 ? 2 : 1, RUNS = (WIDTH + 32 * VECTOR - 1) / (32 * VECTOR);
    static constexpr u32 PER_LANE = VECTOR * RUNS;
    // What registers have room for.
    static constexpr u32 AT_ONCE = WIDTH > 64 ? 4 : 8;
    struct alignas(4 * VECTOR) Run {
        f32 of[VECTOR];
    };
    f32 top[ROWS], sum[ROWS], values[ROWS][PER_LANE];

    // Where the lane's number i of a row is, and whether there is one: all lanes have as many where runs fill the row.
    GW_DEVICE static u32 column(u32 i) { return (i / VECTOR * 32 + gw::lane()) * VECTOR + i % VECTOR; }
    GW_DEVICE static bool has(u32 i) { return WIDTH % (32 * VECTOR) == 0 || column(i) < WIDTH; }
    GW_DEVICE static f32 none() { return gw::bits<f32>(0xFF800000u); }

    // The first `there` rows. `place(row, part)` is where a part's row is among those of all; `load` reads what a pointer points to.
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
            for (u32 part = 0; part < here; part += AT_ONCE) add(parts, lse, weight, first, part, here, there, place, load);
        }
    }

    GW_DEVICE f32 value(u32 row, u32 i) const { return sum[row] == 0.0f ? 0.0f : values[row][i] / sum[row]; }
    GW_DEVICE f32 log_sum(u32 row) const { return sum[row] == 0.0f ? none() : top[row] + 0.69314718f * gw::log2(sum[row]); }

   private:
    // Parts `part` to `part + AT_ONCE` of those from `first` on, of which there are `here`: the last once more, without weight, for what
    // there is not.
    template <class Place, class Load>
    GW_DEVICE void add(const f32* parts, const f32 (&lse)[ROWS], const f32 (&weight)[ROWS], u32 first, u32 part, u32 here, u32 there,
                       Place place, Load load) {
        Run runs[AT_ONCE][ROWS][RUNS];
        GW_UNROLL
        for (u32 number = 0; number < AT_ONCE * ROWS * RUNS; ++number) {
            const u32 i = number / (ROWS * RUNS), row = number / RUNS % ROWS, run = number % RUNS;
            const u64 line = place(row, first + gw::lesser(part + i, here - 1));
            const Run* from = reinterpret_cast<const Run*>(parts + line * WIDTH + column(run * VECTOR));
            if (row < there && has(run * VECTOR)) runs[i][row][run] = load(from);
            else runs[i][row][run] = {};
        }
        GW_UNROLL
        for (u32 number = 0; number < AT_ONCE * ROWS; ++number) {
            const u32 i = number / ROWS, row = number % ROWS;
            const bool saw = gw::shuffle(lse[row], part + i) != none();
            const f32 own = gw::shuffle(weight[row], part + i);
            sum[row] += own;
            GW_UNROLL
            for (u32 j = 0; j < PER_LANE; ++j) {
                f32& value = values[row][j];
                value = saw ? gw::fma(own, runs[i][row][j / VECTOR].of[j % VECTOR], value) : value;
            }
        }
    }
};
