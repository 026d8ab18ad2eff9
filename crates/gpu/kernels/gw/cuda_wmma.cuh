#pragma once
// `mma.h` on the emulated device: products of 16 x 16 x 16 numbers of 16 bits by a warp.
//
// Which lane holds which element is not specified by CUDA. Here it is as `mma.sync` has it (gw/matrix.cuh), for two products side by
// side: columns 0 to 7 and 8 to 15 of B and of the accumulator.

#include "gw/cuda_half.cuh"

#ifndef GW_CUDA

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment;
#define GW_FRAGMENT(use, layout) \
    template <class T, class Layout> struct fragment<use, 16, 16, 16, T, Layout> { \
        static_assert(sizeof(T) == 2, "factors of 16 bits"); \
        static constexpr int num_elements = 8; \
        typedef T element_type; \
        T x[8]; \
    };
GW_FRAGMENT(matrix_a, Layout)
GW_FRAGMENT(matrix_b, Layout)
#undef GW_FRAGMENT
template <class T> struct fragment<accumulator, 16, 16, 16, T, void> {
    static constexpr int num_elements = 8;
    typedef T element_type;
    T x[8];
};

// Row and column of element i of this lane, in A, and in B and the accumulator: of the four registers of A the second is eight rows
// further down, and the third eight columns to the right.
GW_FUNCTION unsigned row_of_a(int i) { return gw::lane() / 4 + 8 * (i / 2 % 2); }
GW_FUNCTION unsigned column_of_a(int i) { return 2 * (gw::lane() % 4) + i % 2 + 8 * (i / 4); }
GW_FUNCTION unsigned row_of_b(int i) { return 2 * (gw::lane() % 4) + i % 2 + 8 * (i / 2 % 2); }
GW_FUNCTION unsigned column_of_b(int i) { return gw::lane() / 4 + 8 * (i / 4); }
GW_FUNCTION unsigned row_of_sum(int i) { return gw::lane() / 4 + 8 * (i / 2 % 2); }
GW_FUNCTION unsigned column_of_sum(int i) { return 2 * (gw::lane() % 4) + i % 2 + 8 * (i / 4); }

template <class Use, class T, class Layout>
GW_FUNCTION void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& to, T value) {
    for (int i = 0; i < to.num_elements; ++i) to.x[i] = value;
}
template <class T, class Layout>
GW_FUNCTION void load_matrix_sync(fragment<matrix_a, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride, GW_SITE) {
    gw::sync_warp(~0u, GW_AT);
    constexpr bool ROWS = __is_same(Layout, row_major);
    for (int i = 0; i < 8; ++i) to.x[i] = from[ROWS ? row_of_a(i) * stride + column_of_a(i) : column_of_a(i) * stride + row_of_a(i)];
}
template <class T, class Layout>
GW_FUNCTION void load_matrix_sync(fragment<matrix_b, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride, GW_SITE) {
    gw::sync_warp(~0u, GW_AT);
    constexpr bool ROWS = __is_same(Layout, row_major);
    for (int i = 0; i < 8; ++i) to.x[i] = from[ROWS ? row_of_b(i) * stride + column_of_b(i) : column_of_b(i) * stride + row_of_b(i)];
}
template <class T>
GW_FUNCTION void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& to, const T* from, unsigned stride, layout_t layout, GW_SITE) {
    gw::sync_warp(~0u, GW_AT);
    for (int i = 0; i < 8; ++i) {
        to.x[i] = from[layout == mem_row_major ? row_of_sum(i) * stride + column_of_sum(i) : column_of_sum(i) * stride + row_of_sum(i)];
    }
}
template <class T>
GW_FUNCTION void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& from, unsigned stride, layout_t layout, GW_SITE) {
    gw::sync_warp(~0u, GW_AT);
    for (int i = 0; i < 8; ++i) {
        to[layout == mem_row_major ? row_of_sum(i) * stride + column_of_sum(i) : column_of_sum(i) * stride + row_of_sum(i)] = from.x[i];
    }
}

template <class T> struct FormatOf;
template <> struct FormatOf<__half> { typedef gw::F16 type; };
template <> struct FormatOf<__nv_bfloat16> { typedef gw::BF16 type; };

// d <- a b + c, added up in f32.
template <class T, class LayoutA, class LayoutB, class D, class C>
GW_FUNCTION void mma_sync(fragment<accumulator, 16, 16, 16, D>& d, const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
                          const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b, const fragment<accumulator, 16, 16, 16, C>& c, GW_SITE) {
    u32 left[4];
    for (int i = 0; i < 4; ++i) left[i] = (u32)a.x[2 * i].bits | (u32)a.x[2 * i + 1].bits << 16;
    for (int side = 0; side < 2; ++side) {
        u32 right[2];
        f32 add[4], sum[4];
        for (int i = 0; i < 2; ++i) right[i] = (u32)b.x[4 * side + 2 * i].bits | (u32)b.x[4 * side + 2 * i + 1].bits << 16;
        for (int i = 0; i < 4; ++i) add[i] = (f32)c.x[4 * side + i];
        gw::mma(typename FormatOf<T>::type(), sum, left, right, add, GW_AT);
        for (int i = 0; i < 4; ++i) d.x[4 * side + i] = (D)sum[i];
    }
}

}  // namespace wmma
}  // namespace nvcuda

#endif  // GW_CUDA
