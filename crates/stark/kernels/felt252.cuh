#pragma once
// The field of Starknet, integers modulo p = 2^251 + 17 * 2^192 + 1, in Montgomery form: x stands for x / 2^256 mod p. Eight
// words, lowest first.
//
// Values are reduced late. That a value is "below b" is short for below b p. As 2^256 is 31.9 p, a value may be up to 31 where
// nothing is said. One that is "above -b" is kept modulo 2^256, and something must be added to it before it is a factor.

#include "shared.cuh"

namespace felt252 {

struct Felt {
    u32 w[8];
};
struct Wide {
    u32 w[16];
};

// Words that are not zero: the lowest is 1.
const u32 P6 = 17, P7 = 0x08000000;

#ifdef GW_CUDA
// The same for products: known to be a power of two, it would be two shifts and sums of the unit that is busier.
__constant__ u32 HIDDEN_P7 = P7;

// Pairs of words, lowest first, with a product each: (h:l) += a * b and the carry of the pair before. The result is the carry of
// the last. Two instructions of PTX for a product become one of the machine.
GW_DEVICE u32 add_product(u32& l0, u32& h0, u32 a0, u32 b) {
    u32 carry;
    asm("mad.lo.cc.u32 %0, %3, %4, %0;\n\tmadc.hi.cc.u32 %1, %3, %4, %1;\n\taddc.u32 %2, 0, 0;"
        : "+r"(l0), "+r"(h0), "=r"(carry)
        : "r"(a0), "r"(b));
    return carry;
}
GW_DEVICE u32 add_products(u32& l0, u32& h0, u32& l1, u32& h1, u32 a0, u32 a1, u32 b) {
    u32 carry;
    asm("mad.lo.cc.u32 %0, %5, %7, %0;\n\tmadc.hi.cc.u32 %1, %5, %7, %1;\n\t"
        "madc.lo.cc.u32 %2, %6, %7, %2;\n\tmadc.hi.cc.u32 %3, %6, %7, %3;\n\taddc.u32 %4, 0, 0;"
        : "+r"(l0), "+r"(h0), "+r"(l1), "+r"(h1), "=r"(carry)
        : "r"(a0), "r"(a1), "r"(b));
    return carry;
}
GW_DEVICE u32 add_products(u32& l0, u32& h0, u32& l1, u32& h1, u32& l2, u32& h2, u32 a0, u32 a1, u32 a2, u32 b) {
    u32 carry;
    asm("mad.lo.cc.u32 %0, %7, %10, %0;\n\tmadc.hi.cc.u32 %1, %7, %10, %1;\n\t"
        "madc.lo.cc.u32 %2, %8, %10, %2;\n\tmadc.hi.cc.u32 %3, %8, %10, %3;\n\t"
        "madc.lo.cc.u32 %4, %9, %10, %4;\n\tmadc.hi.cc.u32 %5, %9, %10, %5;\n\taddc.u32 %6, 0, 0;"
        : "+r"(l0), "+r"(h0), "+r"(l1), "+r"(h1), "+r"(l2), "+r"(h2), "=r"(carry)
        : "r"(a0), "r"(a1), "r"(a2), "r"(b));
    return carry;
}
GW_DEVICE u32 add_products(
    u32& l0, u32& h0, u32& l1, u32& h1, u32& l2, u32& h2, u32& l3, u32& h3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b) {
    u32 carry;
    asm("mad.lo.cc.u32 %0, %9, %13, %0;\n\tmadc.hi.cc.u32 %1, %9, %13, %1;\n\t"
        "madc.lo.cc.u32 %2, %10, %13, %2;\n\tmadc.hi.cc.u32 %3, %10, %13, %3;\n\t"
        "madc.lo.cc.u32 %4, %11, %13, %4;\n\tmadc.hi.cc.u32 %5, %11, %13, %5;\n\t"
        "madc.lo.cc.u32 %6, %12, %13, %6;\n\tmadc.hi.cc.u32 %7, %12, %13, %7;\n\taddc.u32 %8, 0, 0;"
        : "+r"(l0), "+r"(h0), "+r"(l1), "+r"(h1), "+r"(l2), "+r"(h2), "+r"(l3), "+r"(h3), "=r"(carry)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b));
    return carry;
}
// Adds the squares of words to their places, word i to words 2 i and 2 i + 1; nothing is carried out.
GW_DEVICE void add_squares(Wide& t, const Felt& a) {
    u32* w = t.w;
    asm("mad.lo.cc.u32 %0, %16, %16, %0;\n\tmadc.hi.cc.u32 %1, %16, %16, %1;\n\t"
        "madc.lo.cc.u32 %2, %17, %17, %2;\n\tmadc.hi.cc.u32 %3, %17, %17, %3;\n\t"
        "madc.lo.cc.u32 %4, %18, %18, %4;\n\tmadc.hi.cc.u32 %5, %18, %18, %5;\n\t"
        "madc.lo.cc.u32 %6, %19, %19, %6;\n\tmadc.hi.cc.u32 %7, %19, %19, %7;\n\t"
        "madc.lo.cc.u32 %8, %20, %20, %8;\n\tmadc.hi.cc.u32 %9, %20, %20, %9;\n\t"
        "madc.lo.cc.u32 %10, %21, %21, %10;\n\tmadc.hi.cc.u32 %11, %21, %21, %11;\n\t"
        "madc.lo.cc.u32 %12, %22, %22, %12;\n\tmadc.hi.cc.u32 %13, %22, %22, %13;\n\t"
        "madc.lo.cc.u32 %14, %23, %23, %14;\n\tmadc.hi.u32 %15, %23, %23, %15;"
        : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3]), "+r"(w[4]), "+r"(w[5]), "+r"(w[6]), "+r"(w[7]), "+r"(w[8]),
          "+r"(w[9]), "+r"(w[10]), "+r"(w[11]), "+r"(w[12]), "+r"(w[13]), "+r"(w[14]), "+r"(w[15])
        : "r"(a.w[0]), "r"(a.w[1]), "r"(a.w[2]), "r"(a.w[3]), "r"(a.w[4]), "r"(a.w[5]), "r"(a.w[6]), "r"(a.w[7]));
}
// a + b and a - b modulo 2^256.
#define FELT252_CHAIN(first, next, last)                                                                             \
    Felt r;                                                                                                          \
    asm(first " %0, %8, %16;\n\t" next " %1, %9, %17;\n\t" next " %2, %10, %18;\n\t" next " %3, %11, %19;\n\t"       \
        next " %4, %12, %20;\n\t" next " %5, %13, %21;\n\t" next " %6, %14, %22;\n\t" last " %7, %15, %23;"          \
        : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3]), "=r"(r.w[4]), "=r"(r.w[5]), "=r"(r.w[6]),          \
          "=r"(r.w[7])                                                                                               \
        : "r"(a.w[0]), "r"(a.w[1]), "r"(a.w[2]), "r"(a.w[3]), "r"(a.w[4]), "r"(a.w[5]), "r"(a.w[6]), "r"(a.w[7]),    \
          "r"(b.w[0]), "r"(b.w[1]), "r"(b.w[2]), "r"(b.w[3]), "r"(b.w[4]), "r"(b.w[5]), "r"(b.w[6]), "r"(b.w[7]));   \
    return r;
GW_DEVICE Felt add(const Felt& a, const Felt& b) { FELT252_CHAIN("add.cc.u32", "addc.cc.u32", "addc.u32") }
GW_DEVICE Felt sub(const Felt& a, const Felt& b) { FELT252_CHAIN("sub.cc.u32", "subc.cc.u32", "subc.u32") }
#undef FELT252_CHAIN
// a * b, by its instruction: a factor that the compiler widens outside of a loop would make it a product of twice the size.
GW_DEVICE u64 product(u32 a, u32 b) {
    u64 r;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(r) : "r"(a), "r"(b));
    return r;
}
// (h:l) -= (b:a), and all ones where that is negative.
GW_DEVICE u32 subtract(u32& l, u32& h, u32 a, u32 b) {
    u32 borrow;
    asm("sub.cc.u32 %0, %0, %3;\n\tsubc.cc.u32 %1, %1, %4;\n\tsubc.u32 %2, 0, 0;"
        : "+r"(l), "+r"(h), "=r"(borrow)
        : "r"(a), "r"(b));
    return borrow;
}
// a - o 2^32 modulo 2^256.
GW_DEVICE Felt subtract_odd(const Felt& a, u64 o0, u64 o1, u64 o2) {
    Felt r = a;
    asm("{\n\t.reg .u32 a0, b0, a1, b1, a2, b2;\n\t"
        "mov.b64 {a0, b0}, %7;\n\tmov.b64 {a1, b1}, %8;\n\tmov.b64 {a2, b2}, %9;\n\t"
        "sub.cc.u32 %0, %0, a0;\n\tsubc.cc.u32 %1, %1, b0;\n\tsubc.cc.u32 %2, %2, a1;\n\tsubc.cc.u32 %3, %3, b1;\n\t"
        "subc.cc.u32 %4, %4, a2;\n\tsubc.cc.u32 %5, %5, b2;\n\tsubc.u32 %6, %6, 0;\n\t}"
        : "+r"(r.w[1]), "+r"(r.w[2]), "+r"(r.w[3]), "+r"(r.w[4]), "+r"(r.w[5]), "+r"(r.w[6]), "+r"(r.w[7])
        : "l"(o0), "l"(o1), "l"(o2));
    return r;
}
// t += o 2^32: nothing is carried out.
GW_DEVICE void add_odd(u32 (&t)[16], const u32 (&o)[15]) {
    asm("add.cc.u32 %0, %0, %15;\n\taddc.cc.u32 %1, %1, %16;\n\taddc.cc.u32 %2, %2, %17;\n\t"
        "addc.cc.u32 %3, %3, %18;\n\taddc.cc.u32 %4, %4, %19;\n\taddc.cc.u32 %5, %5, %20;\n\t"
        "addc.cc.u32 %6, %6, %21;\n\taddc.cc.u32 %7, %7, %22;\n\taddc.cc.u32 %8, %8, %23;\n\t"
        "addc.cc.u32 %9, %9, %24;\n\taddc.cc.u32 %10, %10, %25;\n\taddc.cc.u32 %11, %11, %26;\n\t"
        "addc.cc.u32 %12, %12, %27;\n\taddc.cc.u32 %13, %13, %28;\n\taddc.u32 %14, %14, %29;"
        : "+r"(t[1]), "+r"(t[2]), "+r"(t[3]), "+r"(t[4]), "+r"(t[5]), "+r"(t[6]), "+r"(t[7]), "+r"(t[8]), "+r"(t[9]),
          "+r"(t[10]), "+r"(t[11]), "+r"(t[12]), "+r"(t[13]), "+r"(t[14]), "+r"(t[15])
        : "r"(o[0]), "r"(o[1]), "r"(o[2]), "r"(o[3]), "r"(o[4]), "r"(o[5]), "r"(o[6]), "r"(o[7]), "r"(o[8]),
          "r"(o[9]), "r"(o[10]), "r"(o[11]), "r"(o[12]), "r"(o[13]), "r"(o[14]));
}
#else
const u32 HIDDEN_P7 = P7;

GW_DEVICE void add_one(u32& l, u32& h, u32 a, u32 b, u32& carry) {
    const unsigned __int128 sum = (unsigned __int128)((u64)a * b) + (((u64)h << 32) | l) + carry;
    l = (u32)sum;
    h = (u32)(sum >> 32);
    carry = (u32)(sum >> 64);
}
GW_DEVICE u32 add_product(u32& l0, u32& h0, u32 a0, u32 b) {
    u32 carry = 0;
    add_one(l0, h0, a0, b, carry);
    return carry;
}
GW_DEVICE u32 add_products(u32& l0, u32& h0, u32& l1, u32& h1, u32 a0, u32 a1, u32 b) {
    u32 carry = 0;
    add_one(l0, h0, a0, b, carry);
    add_one(l1, h1, a1, b, carry);
    return carry;
}
GW_DEVICE u32 add_products(u32& l0, u32& h0, u32& l1, u32& h1, u32& l2, u32& h2, u32 a0, u32 a1, u32 a2, u32 b) {
    u32 carry = 0;
    add_one(l0, h0, a0, b, carry);
    add_one(l1, h1, a1, b, carry);
    add_one(l2, h2, a2, b, carry);
    return carry;
}
GW_DEVICE u32 add_products(
    u32& l0, u32& h0, u32& l1, u32& h1, u32& l2, u32& h2, u32& l3, u32& h3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b) {
    u32 carry = 0;
    add_one(l0, h0, a0, b, carry);
    add_one(l1, h1, a1, b, carry);
    add_one(l2, h2, a2, b, carry);
    add_one(l3, h3, a3, b, carry);
    return carry;
}
GW_DEVICE void add_squares(Wide& t, const Felt& a) {
    u32 carry = 0;
    add_one(t.w[0], t.w[1], a.w[0], a.w[0], carry);
    add_one(t.w[2], t.w[3], a.w[1], a.w[1], carry);
    add_one(t.w[4], t.w[5], a.w[2], a.w[2], carry);
    add_one(t.w[6], t.w[7], a.w[3], a.w[3], carry);
    add_one(t.w[8], t.w[9], a.w[4], a.w[4], carry);
    add_one(t.w[10], t.w[11], a.w[5], a.w[5], carry);
    add_one(t.w[12], t.w[13], a.w[6], a.w[6], carry);
    add_one(t.w[14], t.w[15], a.w[7], a.w[7], carry);
}
GW_DEVICE void add_word(u32& r, u32 a, u32 b, u64& carry) {
    carry += (u64)a + b;
    r = (u32)carry;
    carry >>= 32;
}
GW_DEVICE Felt add(const Felt& a, const Felt& b) {
    Felt r;
    u64 carry = 0;
    add_word(r.w[0], a.w[0], b.w[0], carry);
    add_word(r.w[1], a.w[1], b.w[1], carry);
    add_word(r.w[2], a.w[2], b.w[2], carry);
    add_word(r.w[3], a.w[3], b.w[3], carry);
    add_word(r.w[4], a.w[4], b.w[4], carry);
    add_word(r.w[5], a.w[5], b.w[5], carry);
    add_word(r.w[6], a.w[6], b.w[6], carry);
    add_word(r.w[7], a.w[7], b.w[7], carry);
    return r;
}
GW_DEVICE Felt sub(const Felt& a, const Felt& b) {
    Felt r;
    u64 carry = 1;
    add_word(r.w[0], a.w[0], ~b.w[0], carry);
    add_word(r.w[1], a.w[1], ~b.w[1], carry);
    add_word(r.w[2], a.w[2], ~b.w[2], carry);
    add_word(r.w[3], a.w[3], ~b.w[3], carry);
    add_word(r.w[4], a.w[4], ~b.w[4], carry);
    add_word(r.w[5], a.w[5], ~b.w[5], carry);
    add_word(r.w[6], a.w[6], ~b.w[6], carry);
    add_word(r.w[7], a.w[7], ~b.w[7], carry);
    return r;
}
GW_DEVICE u64 product(u32 a, u32 b) { return (u64)a * b; }
GW_DEVICE u32 subtract(u32& l, u32& h, u32 a, u32 b) {
    const u64 from = ((u64)h << 32) | l, what = ((u64)b << 32) | a;
    l = (u32)(from - what);
    h = (u32)((from - what) >> 32);
    return from < what ? ~0u : 0;
}
GW_DEVICE Felt subtract_odd(const Felt& a, u64 o0, u64 o1, u64 o2) {
    const Felt odd = {{0, (u32)o0, (u32)(o0 >> 32), (u32)o1, (u32)(o1 >> 32), (u32)o2, (u32)(o2 >> 32), 0}};
    return sub(a, odd);
}
GW_DEVICE void add_odd(u32 (&t)[16], const u32 (&o)[15]) {
    u64 carry = 0;
    add_word(t[1], t[1], o[0], carry);
    add_word(t[2], t[2], o[1], carry);
    add_word(t[3], t[3], o[2], carry);
    add_word(t[4], t[4], o[3], carry);
    add_word(t[5], t[5], o[4], carry);
    add_word(t[6], t[6], o[5], carry);
    add_word(t[7], t[7], o[6], carry);
    add_word(t[8], t[8], o[7], carry);
    add_word(t[9], t[9], o[8], carry);
    add_word(t[10], t[10], o[9], carry);
    add_word(t[11], t[11], o[10], carry);
    add_word(t[12], t[12], o[11], carry);
    add_word(t[13], t[13], o[12], carry);
    add_word(t[14], t[14], o[13], carry);
    add_word(t[15], t[15], o[14], carry);
}
#endif

GW_DEVICE Wide wide(const u32 (&t)[16]) {
    return {{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15]}};
}
GW_DEVICE void product(u32& l, u32& h, u32 a, u32 b) {
    const u64 r = product(a, b);
    l = (u32)r;
    h = (u32)(r >> 32);
}

// a b + OFFSET 2^256. Products of words i and j go to words i + j and i + j + 1: those of an even place into t, the others into o,
// which starts at word 1, so that in each the pairs of words do not overlap. Where the last pair of a row lies on one of the row
// before, its carry is kept as the word above; where it is the first at its place, it has none, since a product with two carries
// fits into a pair.
template <u32 OFFSET>
GW_DEVICE Wide multiply(const Felt& x, const Felt& y) {
    const u32(&a)[8] = x.w;
    const u32(&b)[8] = y.w;
    u32 t[16], o[15];
    product(t[0], t[1], a[0], b[0]);
    product(t[2], t[3], a[2], b[0]);
    product(t[4], t[5], a[4], b[0]);
    product(t[6], t[7], a[6], b[0]);
    product(o[0], o[1], a[1], b[0]);
    product(o[2], o[3], a[3], b[0]);
    product(o[4], o[5], a[5], b[0]);
    product(o[6], o[7], a[7], b[0]);

    t[8] = OFFSET;
    t[9] = 0;
    add_products(t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], a[1], a[3], a[5], a[7], b[1]);
    o[8] = add_products(o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7], a[0], a[2], a[4], a[6], b[1]);

    o[9] = 0;
    t[10] = add_products(t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], a[0], a[2], a[4], a[6], b[2]);
    add_products(o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], a[1], a[3], a[5], a[7], b[2]);

    t[11] = 0;
    add_products(t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], a[1], a[3], a[5], a[7], b[3]);
    o[10] = add_products(o[2], o[3], o[4], o[5], o[6], o[7], o[8], o[9], a[0], a[2], a[4], a[6], b[3]);

    o[11] = 0;
    t[12] = add_products(t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], a[0], a[2], a[4], a[6], b[4]);
    add_products(o[4], o[5], o[6], o[7], o[8], o[9], o[10], o[11], a[1], a[3], a[5], a[7], b[4]);

    t[13] = 0;
    add_products(t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], a[1], a[3], a[5], a[7], b[5]);
    o[12] = add_products(o[4], o[5], o[6], o[7], o[8], o[9], o[10], o[11], a[0], a[2], a[4], a[6], b[5]);

    o[13] = 0;
    t[14] = add_products(t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], a[0], a[2], a[4], a[6], b[6]);
    add_products(o[6], o[7], o[8], o[9], o[10], o[11], o[12], o[13], a[1], a[3], a[5], a[7], b[6]);

    t[15] = 0;
    add_products(t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15], a[1], a[3], a[5], a[7], b[7]);
    o[14] = add_products(o[6], o[7], o[8], o[9], o[10], o[11], o[12], o[13], a[0], a[2], a[4], a[6], b[7]);
    add_odd(t, o);
    return wide(t);
}

// a^2 + OFFSET 2^256, for an even OFFSET. Products of two different words as in `multiply`, but once and doubled at the end.
template <u32 OFFSET>
GW_DEVICE Wide multiply_by_itself(const Felt& x) {
    static_assert(OFFSET % 2 == 0, "half of it is doubled");
    const u32(&a)[8] = x.w;
    u32 t[16], o[15];
    t[0] = t[1] = t[14] = t[15] = o[14] = 0;
    product(t[2], t[3], a[2], a[0]);
    product(t[4], t[5], a[4], a[0]);
    product(t[6], t[7], a[6], a[0]);
    product(o[0], o[1], a[1], a[0]);
    product(o[2], o[3], a[3], a[0]);
    product(o[4], o[5], a[5], a[0]);
    product(o[6], o[7], a[7], a[0]);

    t[8] = OFFSET / 2;
    t[9] = 0;
    add_products(t[4], t[5], t[6], t[7], t[8], t[9], a[3], a[5], a[7], a[1]);
    o[8] = add_products(o[2], o[3], o[4], o[5], o[6], o[7], a[2], a[4], a[6], a[1]);

    o[9] = 0;
    t[10] = add_products(t[6], t[7], t[8], t[9], a[4], a[6], a[2]);
    add_products(o[4], o[5], o[6], o[7], o[8], o[9], a[3], a[5], a[7], a[2]);

    t[11] = 0;
    add_products(t[8], t[9], t[10], t[11], a[5], a[7], a[3]);
    o[10] = add_products(o[6], o[7], o[8], o[9], a[4], a[6], a[3]);

    o[11] = 0;
    t[12] = add_product(t[10], t[11], a[6], a[4]);
    add_products(o[8], o[9], o[10], o[11], a[5], a[7], a[4]);

    t[13] = 0;
    add_product(t[12], t[13], a[7], a[5]);
    o[12] = add_product(o[10], o[11], a[6], a[5]);

    o[13] = 0;
    add_product(o[12], o[13], a[7], a[6]);
    add_odd(t, o);

    Wide r;
    r.w[0] = 0;
    r.w[1] = t[1] << 1;
    r.w[2] = gw::funnel_left(t[1], t[2], 1);
    r.w[3] = gw::funnel_left(t[2], t[3], 1);
    r.w[4] = gw::funnel_left(t[3], t[4], 1);
    r.w[5] = gw::funnel_left(t[4], t[5], 1);
    r.w[6] = gw::funnel_left(t[5], t[6], 1);
    r.w[7] = gw::funnel_left(t[6], t[7], 1);
    r.w[8] = gw::funnel_left(t[7], t[8], 1);
    r.w[9] = gw::funnel_left(t[8], t[9], 1);
    r.w[10] = gw::funnel_left(t[9], t[10], 1);
    r.w[11] = gw::funnel_left(t[10], t[11], 1);
    r.w[12] = gw::funnel_left(t[11], t[12], 1);
    r.w[13] = gw::funnel_left(t[12], t[13], 1);
    r.w[14] = gw::funnel_left(t[13], t[14], 1);
    r.w[15] = gw::funnel_left(t[14], t[15], 1);
    add_squares(r, x);
    return r;
}

// What word i of C m is with `before`, from words i and i - 1 of m.
GW_DEVICE u64 times_c(u64 before, u32 word, u32 lower) { return product(word, P6) + (product(lower, HIDDEN_P7) + before); }

// (u - m p) / 2^256 + OFFSET p for u = t - OFFSET 2^256, with the m below 2^256 that makes it whole: above OFFSET - 1, and at most
// u / 2^256 above OFFSET.
//
// With C = 17 + 2^59, p is 1 + C 2^192, and 1 / p is 1 - C 2^192 modulo 2^256. So m has the words of t but for the two highest,
// which are less by C (t1:t0); and m p = m + C m 2^192 agrees with t up to word 7, with a carry from there exactly where that
// difference borrows. What is left is to subtract (C m) >> 64 and that carry from the high half of t. Here p's own lowest word, as
// often as OFFSET says, is in t already. A product of a word with a word of C is below 2^59, so that two of them and a carry fit
// into a pair of words.
template <u32 OFFSET>
GW_DEVICE Felt reduce(const Wide& t) {
    const u64 c0 = product(t.w[0], P6);
    const u64 c1 = times_c(c0 >> 32, t.w[1], t.w[0]);
    u32 m6 = t.w[6], m7 = t.w[7];
    const u32 borrow = subtract(m6, m7, (u32)c0, (u32)c1);
    const u64 c2 = times_c((u32)(c1 >> 32) - borrow, t.w[2], t.w[1]);
    const u64 c3 = times_c(0, t.w[3], t.w[2]);
    const u64 c4 = times_c(0, t.w[4], t.w[3]);
    const u64 c5 = times_c(0, t.w[5], t.w[4]);
    const u64 c6 = times_c(0, m6, t.w[5]);
    const u64 c7 = times_c(0, m7, m6);
    const u64 c8 = product(m7, HIDDEN_P7) - OFFSET * (((u64)P7 << 32) + P6);
    const Felt high = {{t.w[8], t.w[9], t.w[10], t.w[11], t.w[12], t.w[13], t.w[14], t.w[15]}};
    const Felt even = {{(u32)c2, (u32)(c2 >> 32), (u32)c4, (u32)(c4 >> 32), (u32)c6, (u32)(c6 >> 32), (u32)c8,
                        (u32)(c8 >> 32)}};
    return subtract_odd(sub(high, even), c3, c5, c7);
}

// a b, above OFFSET - 1 and below OFFSET + (bound of a) (bound of b) / 32 + 0.01.
template <u32 OFFSET>
GW_DEVICE Felt mul(const Felt& a, const Felt& b) {
    return reduce<OFFSET>(multiply<OFFSET>(a, b));
}
// a^2, above 1 and below 2 + (bound of a)^2 / 32 + 0.01.
GW_DEVICE Felt square(const Felt& a) { return reduce<2>(multiply_by_itself<2>(a)); }

GW_DEVICE Felt twice(const Felt& a) { return add(a, a); }

GW_DEVICE Felt multiple_of_p(u32 times) { return {{times, 0, 0, 0, 0, 0, times * P6, times * P7}}; }

// x / 2 mod p, of any x below 30: the half of x or of x + p, which is even.
GW_DEVICE Felt half(const Felt& a) {
    const u32 odd = a.w[0] & 1;
    const Felt even = add(a, multiple_of_p(odd));
    return {{gw::funnel_right(even.w[0], even.w[1], 1), gw::funnel_right(even.w[1], even.w[2], 1),
             gw::funnel_right(even.w[2], even.w[3], 1), gw::funnel_right(even.w[3], even.w[4], 1),
             gw::funnel_right(even.w[4], even.w[5], 1), gw::funnel_right(even.w[5], even.w[6], 1),
             gw::funnel_right(even.w[6], even.w[7], 1), even.w[7] >> 1}};
}

// Subtracts p as often as leaves something between 1 and 2, of something from 1 on: less than 2^252, and not less than p by more
// than 2^202.
GW_DEVICE Felt fold(const Felt& a) {
    return sub(a, multiple_of_p((a.w[7] >> 27) - 1));
}

// The one value below p, of something below 2 p.
GW_DEVICE Felt canonical(const Felt& a) {
    const Felt less = sub(a, multiple_of_p(1));
    const bool negative = less.w[7] >> 31;
    return {{negative ? a.w[0] : less.w[0], negative ? a.w[1] : less.w[1], negative ? a.w[2] : less.w[2],
             negative ? a.w[3] : less.w[3], negative ? a.w[4] : less.w[4], negative ? a.w[5] : less.w[5],
             negative ? a.w[6] : less.w[6], negative ? a.w[7] : less.w[7]}};
}

// In Montgomery form, for any number below 2^256: below 2.
GW_DEVICE Felt enter(const Felt& number) {
    return mul<1>(number, {{0x7e000401, 0xfffffd73, 0x330fffff, 0x00000001, 0xff6f8000, 0xffffffff, 0x5e008810, 0x07ffd4ab}});
}
// The number below p that x stands for.
GW_DEVICE Felt leave(const Felt& x) {
    const u32(&w)[8] = x.w;
    return canonical(reduce<1>({{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], 1, 0, 0, 0, 0, 0, 0, 0}}));
}

// 1 and 2 in Montgomery form.
GW_DEVICE Felt one() { return {{0xffffffe1, ~0u, ~0u, ~0u, ~0u, ~0u, 0xfffffdf0, 0x07ffffff}}; }
GW_DEVICE Felt two() { return {{0xffffffc1, ~0u, ~0u, ~0u, ~0u, ~0u, 0xfffffbd0, 0x07ffffff}}; }

GW_DEVICE Felt load(const u32* pointer) {
    const u32x4 low = gw::load_128(pointer), high = gw::load_128(pointer + 4);
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}
GW_DEVICE void store(u32* pointer, const Felt& x) {
    gw::store_128(pointer, {x.w[0], x.w[1], x.w[2], x.w[3]});
    gw::store_128(pointer + 4, {x.w[4], x.w[5], x.w[6], x.w[7]});
}

}  // namespace felt252
