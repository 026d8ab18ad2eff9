#include "numbers.cuh"

// o <- sum over parts of w o_part, with w = exp(lse_part) / sum exp(lse_part); lse <- log sum exp(lse_part): attention over all keys
// from attention over each part of them. A warp a row.
// Parts: [part, head, row, COLUMNS] in f32, and [part, head, row].

constexpr Number OUT_NUMBER = (Number)OUT_FORMAT;
typedef Bits<OUT_NUMBER> Out;
constexpr u32 PER_LANE = (COLUMNS + 31) / 32;

// Whether a row has the lane's number i: all lanes have as many where COLUMNS is a multiple of 32.
GW_DEVICE bool has(u32 i) { return COLUMNS % 32 == 0 || gw::lane() + 32 * i < COLUMNS; }

GW_KERNEL(combine)(const f32* parts, const f32* parts_lse, Out* o, f32* lse, Parts p) {
    gw::await_stream();
    gw::admit_next();
    const u64 index = gw::global_thread() / 32;
    if (index >= p.total) return;
    const f32 none = gw::bits<f32>(0xFF800000u);
    f32 top = none;
    for (u32 part = 0; part < p.count; ++part) top = gw::maximum(top, gw::load_readonly(parts_lse + part * p.total + index));
    f32 sum = 0.0f, values[PER_LANE];
    GW_UNROLL
    for (u32 i = 0; i < PER_LANE; ++i) values[i] = 0.0f;
    for (u32 part = 0; part < p.count; ++part) {
        const u64 row = part * p.total + index;
        const f32 part_lse = gw::load_readonly(parts_lse + row);
        // A part that saw nothing; one that is not a number makes the row not a number.
        if (part_lse == none) continue;
        const f32 weight = gw::exp2(1.4426950408f * (part_lse - top));
        sum += weight;
        GW_UNROLL
        for (u32 i = 0; i < PER_LANE; ++i) {
            if (has(i)) values[i] = gw::fma(weight, gw::load_readonly(parts + row * COLUMNS + gw::lane() + 32 * i), values[i]);
        }
    }
    const u32 head = (u32)(index / p.rows);
    Out* to = o + head / p.heads * p.batch_stride + head % p.heads * p.head_stride + index % p.rows * p.row_stride;
    GW_UNROLL
    for (u32 i = 0; i < PER_LANE; ++i) {
        if (has(i)) store<OUT_NUMBER>(to + gw::lane() + 32 * i, sum == 0.0f ? 0.0f : values[i] / sum);
    }
    if (gw::lane() == 0) lse[index] = sum == 0.0f ? none : top + 0.69314718f * gw::log2(sum);
}
