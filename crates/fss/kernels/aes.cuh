#pragma once
// AES-128 of two blocks at a time, under round keys that the host has expanded. A block is the little-endian number of its
// 16 bytes, so its low word holds the first column, row 0 lowest.
//
// Four forms, chosen by AES_BITSLICED and AES_TABLES (1, 2 or 4):
//
// * Tables. One round of a column is four lookups in T[x] = (2 S(x), S(x), S(x), 3 S(x)), turned by whole bytes, and the last
//   round takes S(x) from the second byte of the same table: 160 loads of shared memory a block, and about 530 other
//   instructions as compiled for sm_90a. The table lies AES_COPIES times side by side, entry by entry, so that with 32 copies every lane has a bank of its
//   own. Which entry is read depends on secrets.
// * Pairs of tables. T[x] and T[x] turned by two bytes, 32 times each, in 256 bytes an entry: a byte of the state and the lane's place
//   make an address by one permutation of bytes, and two of the four turns of a column are in the table. 8 other instructions a column
//   instead of 13, and 64 KiB: for blocks of threads that have much to do.
// * All four turns. 7 other instructions a column, and 128 KiB: a multiprocessor holds one such block of threads.
// * Bit planes. Eight words hold the 32 bytes of both blocks, bit i of every byte in word i; the S-box is the circuit of Boyar
//   and Peralta, 113 gates. About 2800 instructions for two blocks as compiled for sm_90a, none of which loads at a place
//   that depends on a secret.

#include "gw/gw.cuh"
#include "shared.cuh"

struct Block {
    u64 lo, hi;
};

GW_DEVICE Block operator^(Block a, Block b) { return {a.lo ^ b.lo, a.hi ^ b.hi}; }
GW_DEVICE Block operator&(Block a, Block b) { return {a.lo & b.lo, a.hi & b.hi}; }

// Block `place` of an array whose address is a multiple of 16.
GW_DEVICE Block load_block(const u64* blocks, u64 place) {
    const u32x4 words = gw::load_128(blocks + 2 * place);
    return {words.x | (u64)words.y << 32, words.z | (u64)words.w << 32};
}
GW_DEVICE void store_block(u64* blocks, u64 place, Block block) {
    gw::store_128(blocks + 2 * place, u32x4{(u32)block.lo, (u32)(block.lo >> 32), (u32)block.hi, (u32)(block.hi >> 32)});
}

namespace aes {

#if AES_BITSLICED

constexpr u32 SHARED_BYTES = 0;

GW_DEVICE u32 rotate_right(u32 x, u32 by) { return gw::funnel_right(x, x, by); }

// Exchanges the bits of x above `low` with the bits of y below, `by` apart.
GW_DEVICE void swap_bits(u32& x, u32& y, u32 low, u32 by) {
    const u32 a = x, b = y;
    x = (a & low) | ((b & low) << by);
    y = ((a & ~low) >> by) | (b & ~low);
}

// Words to bit planes, and back: it is its own inverse.
GW_DEVICE void transpose(u32 (&q)[8]) {
    GW_UNROLL
    for (u32 i = 0; i < 8; i += 2) swap_bits(q[i], q[i + 1], 0x55555555, 1);
    GW_UNROLL
    for (u32 i = 0; i < 8; i += i % 4 == 1 ? 3 : 1) swap_bits(q[i], q[i + 2], 0x33333333, 2);
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) swap_bits(q[i], q[i + 4], 0x0F0F0F0F, 4);
}

// S of every byte: J. Boyar and R. Peralta, "A new combinational logic minimization technique with applications to
// cryptology", 2010. Plane 7 is their x0.
GW_DEVICE void substitute(u32 (&q)[8]) {
    const u32 x0 = q[7], x1 = q[6], x2 = q[5], x3 = q[4], x4 = q[3], x5 = q[2], x6 = q[1], x7 = q[0];
    const u32 y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2;
    const u32 y1 = t0 ^ x7, y4 = y1 ^ x3, y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8;
    const u32 t1 = x4 ^ y12, y15 = t1 ^ x5, y20 = t1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ t0, y11 = y20 ^ y9;
    const u32 y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8, y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;
    const u32 t2 = y12 & y15, t3 = y3 & y6, t4 = t3 ^ t2, t5 = y4 & x7, t6 = t5 ^ t2, t7 = y13 & y16, t8 = y5 & y1;
    const u32 t9 = t8 ^ t7, t10 = y2 & y7, t11 = t10 ^ t7, t12 = y9 & y11, t13 = y14 & y17, t14 = t13 ^ t12;
    const u32 t15 = y8 & y10, t16 = t15 ^ t12, t17 = t4 ^ t14, t18 = t6 ^ t16, t19 = t9 ^ t14, t20 = t11 ^ t16;
    const u32 t21 = t17 ^ y20, t22 = t18 ^ y19, t23 = t19 ^ y21, t24 = t20 ^ y18;
    const u32 t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t28 = t25 & t27, t29 = t28 ^ t22, t30 = t23 ^ t24;
    const u32 t31 = t22 ^ t26, t32 = t31 & t30, t33 = t32 ^ t24, t34 = t23 ^ t33, t35 = t27 ^ t33, t36 = t24 & t35;
    const u32 t37 = t36 ^ t34, t38 = t27 ^ t36, t39 = t29 & t38, t40 = t25 ^ t39;
    const u32 t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41;
    const u32 z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7;
    const u32 z6 = t42 & y11, z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4;
    const u32 z12 = t43 & y13, z13 = t40 & y5, z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;
    const u32 t46 = z15 ^ z16, t47 = z10 ^ z11, t48 = z5 ^ z13, t49 = z9 ^ z10, t50 = z2 ^ z12, t51 = z2 ^ z5;
    const u32 t52 = z7 ^ z8, t53 = z0 ^ z3, t54 = z6 ^ z7, t55 = z16 ^ z17, t56 = z12 ^ t48, t57 = t50 ^ t53;
    const u32 t58 = z4 ^ t46, t59 = z3 ^ t54, t60 = t46 ^ t57, t61 = z14 ^ t57, t62 = t52 ^ t58, t63 = t49 ^ t58;
    const u32 t64 = z4 ^ t59, t65 = t61 ^ t62, t66 = z1 ^ t63, t67 = t64 ^ t65, s3 = t53 ^ t66;
    q[7] = t59 ^ t63;
    q[6] = t64 ^ ~s3;
    q[5] = t55 ^ ~t67;
    q[4] = s3;
    q[3] = t51 ^ t66;
    q[2] = t47 ^ t65;
    q[1] = t56 ^ ~t62;
    q[0] = t48 ^ ~t60;
}

// Byte r of a plane holds row r: four columns of two blocks. Row r turns by r columns.
GW_DEVICE void shift_rows(u32 (&q)[8]) {
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) {
        const u32 x = q[i];
        q[i] = (x & 0x000000FF) | ((x & 0x0000FC00) >> 2) | ((x & 0x00000300) << 6) | ((x & 0x00F00000) >> 4) |
               ((x & 0x000F0000) << 4) | ((x & 0xC0000000) >> 6) | ((x & 0x3F000000) << 2);
    }
}

// Every column times the polynomial 3 x^3 + x^2 + x + 2.
GW_DEVICE void mix_columns(u32 (&q)[8]) {
    u32 sum[8], next[8];
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) {
        next[i] = rotate_right(q[i], 8);
        sum[i] = q[i] ^ next[i];
    }
    GW_UNROLL
    for (u32 i = 0; i < 8; ++i) {
        const u32 doubled = (i ? sum[i - 1] : 0) ^ (i == 0 || i == 1 || i == 3 || i == 4 ? sum[7] : 0);
        q[i] = doubled ^ next[i] ^ rotate_right(sum[i], 16);
    }
}

struct Cipher {
    const RoundKeys& keys;

    GW_DEVICE void add_round_key(u32 (&q)[8], u32 round) const {
        GW_UNROLL
        for (u32 i = 0; i < 8; ++i) q[i] ^= keys.words[round][i];
    }

    GW_DEVICE void encrypt(Block (&blocks)[2]) const {
        u32 q[8];
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i) {
            q[i] = (u32)blocks[i].lo;
            q[i + 2] = (u32)(blocks[i].lo >> 32);
            q[i + 4] = (u32)blocks[i].hi;
            q[i + 6] = (u32)(blocks[i].hi >> 32);
        }
        transpose(q);
        add_round_key(q, 0);
        GW_UNROLL_BY(1)
        for (u32 round = 1; round < 10; ++round) {
            substitute(q);
            shift_rows(q);
            mix_columns(q);
            add_round_key(q, round);
        }
        substitute(q);
        shift_rows(q);
        add_round_key(q, 10);
        transpose(q);
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i) blocks[i] = {q[i] | (u64)q[i + 2] << 32, q[i + 4] | (u64)q[i + 6] << 32};
    }
};

// All threads of the block call this, and then wait for each other, before any of them encrypts.
GW_DEVICE Cipher prepare(const RoundKeys& keys, const u32*) { return {keys}; }

#else

#if AES_TABLES > 1

// Two turns of an entry are 256 bytes; pairs of turns lie one after the other.
constexpr u32 PAIR_BYTES = 256 * 256;
constexpr u32 SHARED_BYTES = AES_TABLES / 2 * PAIR_BYTES;

struct Tables {
    // Of the block, and the lane's bytes in an entry.
    const u8* table;
    u32 lane;

    // Turn TURN of T of byte ROW of a column: by TURN bytes of four tables, by twice as many of two.
    template <u32 ROW, u32 TURN>
    GW_DEVICE u32 entry(u32 column) const {
        constexpr u32 PLACE = TURN / 2 * PAIR_BYTES + TURN % 2 * 128;
        return *(const u32*)(table + gw::permute_bytes(column, lane, 0x5504 | ROW << 4) + PLACE);
    }
    // One column of the next state, from the columns that its rows come from.
    GW_DEVICE u32 column(u32 a, u32 b, u32 c, u32 d) const {
#if AES_TABLES == 4
        return entry<0, 0>(a) ^ entry<1, 1>(b) ^ entry<2, 2>(c) ^ entry<3, 3>(d);
#else
        const u32 odd = entry<1, 0>(b) ^ entry<3, 1>(d);
        return entry<0, 0>(a) ^ entry<2, 1>(c) ^ gw::permute_bytes(odd, odd, 0x2103);
#endif
    }
    GW_DEVICE u32 last_column(u32 a, u32 b, u32 c, u32 d) const {
        const u32 low = gw::permute_bytes(entry<0, 0>(a), entry<1, 0>(b), 0x0051);
        const u32 high = gw::permute_bytes(entry<2, 0>(c), entry<3, 0>(d), 0x0051);
        return gw::permute_bytes(low, high, 0x5410);
    }
};

GW_DEVICE Tables prepare_tables(const u32* table) {
    u8* bytes = gw::shared<u8>();
    // Copies are written four at a time.
    GW_UNROLL_BY(16)
    for (u32 i = gw::thread_x(); i < SHARED_BYTES / 16; i += gw::threads_x()) {
        const u32 pair = i / (PAIR_BYTES / 16), turn = 2 * pair + i / 8 % 2;
        const u32 entry = table[i / 16 % 256];
        const u32 turned = gw::funnel_left(entry, entry, 32 / AES_TABLES * turn);
        gw::store_128(bytes + 16 * i, u32x4{turned, turned, turned, turned});
    }
    return {bytes, 4 * (gw::thread_x() % 32)};
}

#else

constexpr u32 SHARED_BYTES = 256 * AES_COPIES * 4;

struct Tables {
    // The thread's own copy.
    const u32* table;

    GW_DEVICE u32 entry(u32 byte) const { return table[(byte & 0xFF) * AES_COPIES]; }
    GW_DEVICE u32 substituted(u32 byte) const { return entry(byte) >> 8 & 0xFF; }

    // One column of the next state, from the columns that its rows come from.
    GW_DEVICE u32 column(u32 a, u32 b, u32 c, u32 d) const {
        const u32 x = entry(a), y = entry(b >> 8), z = entry(c >> 16), w = entry(d >> 24);
        return x ^ gw::funnel_left(y, y, 8) ^ gw::funnel_left(z, z, 16) ^ gw::funnel_left(w, w, 24);
    }
    GW_DEVICE u32 last_column(u32 a, u32 b, u32 c, u32 d) const {
        return substituted(a) | substituted(b >> 8) << 8 | substituted(c >> 16) << 16 | substituted(d >> 24) << 24;
    }
};

GW_DEVICE Tables prepare_tables(const u32* table) {
    u32* copies = gw::shared<u32>();
#if AES_COPIES % 4 == 0
    GW_UNROLL_BY(4)
    for (u32 i = gw::thread_x(); i < 64 * AES_COPIES; i += gw::threads_x()) {
        const u32 entry = table[i / (AES_COPIES / 4)];
        gw::store_128(copies + 4 * i, u32x4{entry, entry, entry, entry});
    }
#else
    for (u32 i = gw::thread_x(); i < 256 * AES_COPIES; i += gw::threads_x()) copies[i] = table[i / AES_COPIES];
#endif
    return {copies + gw::thread_x() % AES_COPIES};
}

#endif

struct Cipher {
    const RoundKeys& keys;
    Tables tables;

    GW_DEVICE void encrypt(Block (&blocks)[2]) const {
        u32 s[2][4];
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i) {
            s[i][0] = (u32)blocks[i].lo ^ keys.words[0][0];
            s[i][1] = (u32)(blocks[i].lo >> 32) ^ keys.words[0][1];
            s[i][2] = (u32)blocks[i].hi ^ keys.words[0][2];
            s[i][3] = (u32)(blocks[i].hi >> 32) ^ keys.words[0][3];
        }
        GW_UNROLL
        for (u32 round = 1; round < 10; ++round) {
            GW_UNROLL
            for (u32 i = 0; i < 2; ++i) {
                const u32 a = s[i][0], b = s[i][1], c = s[i][2], d = s[i][3];
                s[i][0] = tables.column(a, b, c, d) ^ keys.words[round][0];
                s[i][1] = tables.column(b, c, d, a) ^ keys.words[round][1];
                s[i][2] = tables.column(c, d, a, b) ^ keys.words[round][2];
                s[i][3] = tables.column(d, a, b, c) ^ keys.words[round][3];
            }
        }
        GW_UNROLL
        for (u32 i = 0; i < 2; ++i) {
            const u32 a = s[i][0], b = s[i][1], c = s[i][2], d = s[i][3];
            const u32 last[4] = {
                tables.last_column(a, b, c, d), tables.last_column(b, c, d, a), tables.last_column(c, d, a, b),
                tables.last_column(d, a, b, c)};
            blocks[i].lo = (last[0] ^ keys.words[10][0]) | (u64)(last[1] ^ keys.words[10][1]) << 32;
            blocks[i].hi = (last[2] ^ keys.words[10][2]) | (u64)(last[3] ^ keys.words[10][3]) << 32;
        }
    }
};

// Copies the tables into the block's shared memory. All threads of the block call this, and then wait for each other, before any of
// them encrypts.
GW_DEVICE Cipher prepare(const RoundKeys& keys, const u32* table) { return {keys, prepare_tables(table)}; }

#endif

}  // namespace aes
