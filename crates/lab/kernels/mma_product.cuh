#include "gw/gw.cuh"

// d <- c + A B by `mma`, for A of 16 x K and B of K x 8, both of 64 bytes in K: two products of 32 bytes each.
// A and B transposed are row-major, c and d too (16 x 8). One warp a product; block i takes the i-th of each.
// FORMAT says which instruction.
#define ROW_WORDS 16
#define A_WORDS (16 * ROW_WORDS)
#define B_WORDS (8 * ROW_WORDS)

template <class T>
struct Accumulator {
    typedef f32 type;
};
template <>
struct Accumulator<gw::S8> {
    typedef i32 type;
};
typedef Accumulator<gw::FORMAT>::type Element;

GW_KERNEL(mma_product)(const u32* a, const u32* b, const Element* c, Element* d) {
    const u32 g = gw::lane() / 4, t = gw::lane() % 4;
    a += gw::block_x() * A_WORDS + g * ROW_WORDS + t;
    b += gw::block_x() * B_WORDS + g * ROW_WORDS + t;
    c += gw::block_x() * 128 + g * 8 + 2 * t;
    d += gw::block_x() * 128 + g * 8 + 2 * t;

    const u32 a_first[4] = {a[0], a[8 * ROW_WORDS], a[4], a[8 * ROW_WORDS + 4]};
    const u32 b_first[2] = {b[0], b[4]};
    const Element start[4] = {c[0], c[1], c[64], c[65]};
    Element sum[4];
    gw::mma(gw::FORMAT{}, sum, a_first, b_first, start);

    // In place, as a loop over K does it.
    const u32 a_second[4] = {a[8], a[8 * ROW_WORDS + 8], a[12], a[8 * ROW_WORDS + 12]};
    const u32 b_second[2] = {b[8], b[12]};
    gw::mma(gw::FORMAT{}, sum, a_second, b_second, sum);
    d[0] = sum[0];
    d[1] = sum[1];
    d[64] = sum[2];
    d[65] = sum[3];
}
