// Words packed to the bits of their ring, least significant bit first, and back. Every part starts at a byte.
//
// A word of n bits costs 8 bytes on one side and n/8 on the other: bound by memory.

#include "gw/gw.cuh"
#include "shared.cuh"

// bytes[first..] <- the low bits of words[i] - minus[i], of every part. A thread makes eight bytes; parts in y.
GW_KERNEL_BOUNDED(pack, PACKING_THREADS, 1)(PackParts parts, u8* bytes) {
    const PackPart part = parts.at[gw::block_y()];
    const u64 group = gw::global_thread(), total = (part.len * part.bits + 7) / 8;
    if (8 * group >= total) return;
    u64 packed = 0;
    u64 word = 64 * group / part.bits;
    // Negative for the first word, whose low bits belong to the group before.
    i32 place = (i32)(word * part.bits - 64 * group);
    for (; place < 64 && word < part.len; ++word, place += (i32)part.bits) {
        u64 value = part.words[word];
        if (part.minus) value -= part.minus[word];
        value &= ~0ull >> (64 - part.bits);
        packed |= place < 0 ? value >> -place : value << place;
    }
    u8* const to = bytes + part.first + 8 * group;
    if (8 * group + 8 <= total && part.first % 8 == 0) {
        *reinterpret_cast<u64*>(to) = packed;
        return;
    }
    for (u32 i = 0; i < 8 && 8 * group + i < total; ++i) to[i] = (u8)(packed >> (8 * i));
}

// sums[i] <- own[i] + word i of the packed bytes, in the ring, of every part; where there are no own words, the packed ones
// alone. `packed` is filled up to a whole word. One thread a word; parts in y.
GW_KERNEL_BOUNDED(open, PACKING_THREADS, 1)(OpenParts parts, const u64* packed) {
    const OpenPart part = parts.at[gw::block_y()];
    const u64 i = gw::global_thread();
    if (i >= part.len) return;
    const u64 bit = 8 * part.first + i * part.bits, place = bit / 64;
    const u32 shift = bit % 64;
    u64 word = packed[place] >> shift;
    if (shift + part.bits > 64) word |= packed[place + 1] << (64 - shift);
    if (part.own) word += part.own[i];
    part.sums[i] = word & (~0ull >> (64 - part.bits));
}
