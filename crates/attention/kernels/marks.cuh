#pragma once
// What is not finite, between the quantiser, which writes it, and attention.cuh, which reads it.
//
// A tile of queries or keys, or a group of tiles of values, that holds a NaN or an infinity is *marked*: the sign bit of its
// scale is set. Its finite numbers are quantised as ever, and marks beside its image say what is not finite:
//   q, k  a row with a NaN, or with several infinities, has NaN codes; a row with one infinity has +-448 there and zeros
//         elsewhere, so that its scores have the right signs, and a byte of 1 among the marks, which are a byte a row;
//   v     has zeros there, and a word a column among the marks.
// Marks of tiles that are not marked are not written.

#include "gw/gw.cuh"

constexpr f32 LARGEST_FINITE = 3.402823466e38f;
constexpr u32 NOT_A_NUMBER = 0x7FFFFFFFu;

GW_DEVICE bool is_finite(f32 x) { return gw::absolute(x) <= LARGEST_FINITE; }

GW_DEVICE f32 marked_scale(f32 scale) { return gw::bits<f32>(gw::bits<u32>(scale) | 0x80000000u); }
GW_DEVICE bool is_marked(f32 scale) { return gw::bits<u32>(scale) >> 31; }

// Keys of a tile whose values in one column are not finite.
struct ColumnMark {
    enum Kind : u32 { FINITE, NAN_OR_SEVERAL, INFINITY_ABOVE, INFINITY_BELOW } kind;
    // Of the keys that it is of.
    u32 first, last;
};

GW_DEVICE u32 to_word(const ColumnMark& mark) { return mark.kind | mark.first << 8 | mark.last << 16; }
GW_DEVICE ColumnMark from_word(u32 word) { return {(ColumnMark::Kind)(word & 0xFF), word >> 8 & 0xFF, word >> 16}; }

// What a column's sum becomes by adding it.
GW_DEVICE f32 addend(ColumnMark::Kind kind) {
    return gw::bits<f32>(kind == ColumnMark::INFINITY_ABOVE   ? 0x7F800000u
                         : kind == ColumnMark::INFINITY_BELOW ? 0xFF800000u
                                                              : NOT_A_NUMBER);
}
