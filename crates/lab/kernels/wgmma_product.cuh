#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

// d[0] <- c + A[0] B[0] and d[1] <- A[1] B[1], for A of 64 x K and B of K x N, where A[i] and B[i] are the halves of
// an A and a B of 128 bytes in K: two products of 32 bytes each a half. c and d[i] are row-major, 64 x N.
//
// A (unless it comes from registers) and B come as images of shared memory, in any layout that a descriptor names: the
// operands of product s start at (s / 2) * outer + (s % 2) * inner. A for registers comes row-major, 128 bytes a row.
//
// One block, one warpgroup. Up to N = 128 both halves are in flight at once, each with its own accumulators; wider ones
// have no registers for that, and take turns.
//
// FORMAT, A_IN_REGISTERS, TRANSPOSE_A and TRANSPOSE_B (0 or 1) say which instruction; there is a kernel for each N.
struct Layout {
    u32 swizzle, stride, leading, inner, outer, bytes;
};

#define ROW_BYTES 128
#define THREADS 128

template <class T>
struct Accumulator {
    typedef f32 type;
};
template <>
struct Accumulator<gw::S8> {
    typedef i32 type;
};
typedef Accumulator<gw::FORMAT>::type Element;

GW_DEVICE u64 operand(const u8* image, Layout layout, u32 product) {
    const u8* start = image + (product / 2) * layout.outer + (product % 2) * layout.inner;
    return gw::wgmma_descriptor(start, (gw::Swizzle)layout.swizzle, layout.stride, layout.leading);
}

// A for each of the four products: as registers, or as descriptors.
#if A_IN_REGISTERS
struct Left {
    u32 fragments[4][4];
};

GW_DEVICE void prepare(Left& left, const u8* rows) {
    GW_UNROLL
    for (u32 product = 0; product < 4; ++product) {
        const u8* row = rows + (16 * gw::warp() + gw::lane() / 4) * ROW_BYTES + 32 * product + 4 * (gw::lane() % 4);
        left.fragments[product][0] = *reinterpret_cast<const u32*>(row);
        left.fragments[product][1] = *reinterpret_cast<const u32*>(row + 8 * ROW_BYTES);
        left.fragments[product][2] = *reinterpret_cast<const u32*>(row + 16);
        left.fragments[product][3] = *reinterpret_cast<const u32*>(row + 8 * ROW_BYTES + 16);
    }
}
#else
struct Left {
    u64 descriptors[4];
};
#endif

template <u32 PRODUCT, u32 WIDTH>
GW_DEVICE void multiply(Element (&d)[WIDTH / 2], const Left& left, const u8* b, Layout b_layout, bool accumulate) {
    const u64 right = operand(b, b_layout, PRODUCT);
#if A_IN_REGISTERS && TRANSPOSE_B
    gw::Wgmma<gw::FORMAT, WIDTH>::template rs<gw::TRANSPOSED>(d, left.fragments[PRODUCT], right, accumulate);
#elif A_IN_REGISTERS
    gw::Wgmma<gw::FORMAT, WIDTH>::rs(d, left.fragments[PRODUCT], right, accumulate);
#elif TRANSPOSE_A || TRANSPOSE_B
    gw::Wgmma<gw::FORMAT, WIDTH>::template ss<(gw::Transpose)TRANSPOSE_A, (gw::Transpose)TRANSPOSE_B>(
        d, left.descriptors[PRODUCT], right, accumulate);
#else
    gw::Wgmma<gw::FORMAT, WIDTH>::ss(d, left.descriptors[PRODUCT], right, accumulate);
#endif
}

// This thread's first element of a row-major 64 x N matrix.
template <u32 WIDTH>
GW_DEVICE u32 corner() { return (16 * gw::warp() + gw::lane() / 4) * WIDTH + 2 * (gw::lane() % 4); }

template <u32 WIDTH>
GW_DEVICE void load(Element (&d)[WIDTH / 2], const Element* from) {
    from += corner<WIDTH>();
    GW_UNROLL
    for (u32 j = 0; j < WIDTH / 8; ++j) {
        d[4 * j] = from[8 * j];
        d[4 * j + 1] = from[8 * j + 1];
        d[4 * j + 2] = from[8 * WIDTH + 8 * j];
        d[4 * j + 3] = from[8 * WIDTH + 8 * j + 1];
    }
}

template <u32 WIDTH>
GW_DEVICE void store(Element* to, const Element (&d)[WIDTH / 2]) {
    to += corner<WIDTH>();
    GW_UNROLL
    for (u32 j = 0; j < WIDTH / 8; ++j) {
        to[8 * j] = d[4 * j];
        to[8 * j + 1] = d[4 * j + 1];
        to[8 * WIDTH + 8 * j] = d[4 * j + 2];
        to[8 * WIDTH + 8 * j + 1] = d[4 * j + 3];
    }
}

GW_DEVICE void copy(u8* to, const u8* from, u32 bytes) {
    for (u32 at = 16 * gw::thread(); at < bytes; at += 16 * THREADS) gw::store_128(to + at, gw::load_128(from + at));
}

template <u32 WIDTH>
GW_DEVICE void product(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout, Layout b_layout) {
    u8* b_image = gw::shared<u8>();
    copy(b_image, b, b_layout.bytes);
    Left left;
#if A_IN_REGISTERS
    prepare(left, a);
#else
    // B takes whole swizzle atoms, so that A starts at one too.
    u8* a_image = b_image + b_layout.bytes;
    copy(a_image, a, a_layout.bytes);
    GW_UNROLL
    for (u32 product = 0; product < 4; ++product) left.descriptors[product] = operand(a_image, a_layout, product);
#endif
    gw::fence_async_proxy_shared();
    gw::sync_threads();

    Element first[WIDTH / 2];
    load<WIDTH>(first, c);
    if constexpr (WIDTH <= 128) {
        // The second half starts from zero: what its accumulators held before must not show.
        Element second[WIDTH / 2];
        load<WIDTH>(second, c);
        gw::wgmma_fence();
        multiply<0, WIDTH>(first, left, b_image, b_layout, true);
        multiply<1, WIDTH>(first, left, b_image, b_layout, true);
        gw::wgmma_commit();
        multiply<2, WIDTH>(second, left, b_image, b_layout, false);
        multiply<3, WIDTH>(second, left, b_image, b_layout, true);
        gw::wgmma_commit();
        gw::wgmma_wait<1>();
        store<WIDTH>(d, first);
        gw::wgmma_wait<0>();
        store<WIDTH>(d + 64 * WIDTH, second);
    } else {
        gw::wgmma_fence();
        multiply<0, WIDTH>(first, left, b_image, b_layout, true);
        multiply<1, WIDTH>(first, left, b_image, b_layout, true);
        gw::wgmma_commit();
        gw::wgmma_wait<0>();
        store<WIDTH>(d, first);
        gw::wgmma_fence();
        multiply<2, WIDTH>(first, left, b_image, b_layout, false);
        multiply<3, WIDTH>(first, left, b_image, b_layout, true);
        gw::wgmma_commit();
        gw::wgmma_wait<0>();
        store<WIDTH>(d + 64 * WIDTH, first);
    }
}

GW_KERNEL_BOUNDED(wgmma_product_8, THREADS, 1)(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
                                               Layout b_layout) {
    product<8>(a, b, c, d, a_layout, b_layout);
}
GW_KERNEL_BOUNDED(wgmma_product_24, THREADS, 1)(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
                                                Layout b_layout) {
    product<24>(a, b, c, d, a_layout, b_layout);
}
GW_KERNEL_BOUNDED(wgmma_product_64, THREADS, 1)(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
                                                Layout b_layout) {
    product<64>(a, b, c, d, a_layout, b_layout);
}
GW_KERNEL_BOUNDED(wgmma_product_128, THREADS, 1)(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
                                                 Layout b_layout) {
    product<128>(a, b, c, d, a_layout, b_layout);
}
GW_KERNEL_BOUNDED(wgmma_product_256, THREADS, 1)(const u8* a, const u8* b, const Element* c, Element* d, Layout a_layout,
                                                 Layout b_layout) {
    product<256>(a, b, c, d, a_layout, b_layout);
}
