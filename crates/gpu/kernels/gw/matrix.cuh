#pragma once
// Warp-wide matrix instructions: 8x8 tiles of 16-bit elements between shared memory and registers, and small products.
//
// Fragments, for lane l with g = l / 4, t = l % 4:
//   mma, 16-bit (16 x 8 x 16): a0 = A[g][2t..], a1 = A[g+8][2t..], a2 = A[g][2t+8..], a3 = A[g+8][2t+8..] (two each);
//                              b0 = B[2t..][g], b1 = B[2t+8..][g]; d0, d1 = D[g][2t..], d2, d3 = D[g+8][2t..]
//   mma,  8-bit (16 x 8 x 32): the same with four elements a register: 4t.. and 4t+16.. for 2t.. and 2t+8..

#include "gw/emulated.cuh"
#include "gw/memory.cuh"

namespace gw {

enum Transpose : u32 { AS_STORED = 0, TRANSPOSED = 1 };

#ifdef GW_CUDA
// COUNT (1, 2 or 4) tiles; lane i gives the address of row i % 8 of tile i / 8. Register j of lane l holds elements
// 2t and 2t+1 of row g of tile j, or of column g when transposed.
template <u32 COUNT, Transpose T = AS_STORED>
GW_DEVICE void load_matrix(u32 (&r)[COUNT], const void* row) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "1, 2 or 4 tiles");
    const u32 a = shared_address(row);
    if constexpr (COUNT == 1 && T == AS_STORED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(a) : "memory");
    else if constexpr (COUNT == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(a) : "memory");
    else if constexpr (COUNT == 2 && T == AS_STORED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
    else if constexpr (COUNT == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory");
    else if constexpr (T == AS_STORED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
// The inverse of `load_matrix`.
template <u32 COUNT, Transpose T = AS_STORED>
GW_DEVICE void store_matrix(void* row, const u32 (&r)[COUNT]) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "1, 2 or 4 tiles");
    const u32 a = shared_address(row);
    if constexpr (COUNT == 1 && T == AS_STORED)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(a), "r"(r[0]) : "memory");
    else if constexpr (COUNT == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(a), "r"(r[0]) : "memory");
    else if constexpr (COUNT == 2 && T == AS_STORED)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(a), "r"(r[0]), "r"(r[1]) : "memory");
    else if constexpr (COUNT == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(a), "r"(r[0]), "r"(r[1]) : "memory");
    else if constexpr (T == AS_STORED)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3]) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3]) : "memory");
}

#define GW_MMA(tag, instruction, type, constraint) \
    GW_DEVICE void mma(tag, type(&d)[4], const u32(&a)[4], const u32(&b)[2], const type(&c)[4]) { \
        asm volatile("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
                     : "=" constraint(d[0]), "=" constraint(d[1]), "=" constraint(d[2]), "=" constraint(d[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), constraint(c[0]), \
                       constraint(c[1]), constraint(c[2]), constraint(c[3])); \
    }
// D = A B + C. The first argument names the format: mma(F16{}, d, a, b, c).
GW_MMA(F16, "m16n8k16.row.col.f32.f16.f16.f32", f32, "f")
GW_MMA(BF16, "m16n8k16.row.col.f32.bf16.bf16.f32", f32, "f")
GW_MMA(E4M3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", f32, "f")
GW_MMA(E5M2, "m16n8k32.row.col.f32.e5m2.e5m2.f32", f32, "f")
GW_MMA(S8, "m16n8k32.row.col.s32.s8.s8.s32", i32, "r")
#undef GW_MMA
#else
template <u32 COUNT, Transpose T = AS_STORED>
GW_DEVICE void load_matrix(u32 (&r)[COUNT], const void* row, GW_SITE) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "1, 2 or 4 tiles");
    emulated::call::load_matrix(r, row, COUNT, T, GW_AT);
}
template <u32 COUNT, Transpose T = AS_STORED>
GW_DEVICE void store_matrix(void* row, const u32 (&r)[COUNT], GW_SITE) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "1, 2 or 4 tiles");
    emulated::call::store_matrix(row, r, COUNT, T, GW_AT);
}
template <class Tag, class D>
GW_DEVICE void mma(Tag, D (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const D (&c)[4], GW_SITE) {
    static_assert(sizeof(D) == 4, "f32, or i32 for S8");
    emulated::call::mma(emulated::FormatOf<Tag>::code, (u32*)d, a, b, (const u32*)c, GW_AT);
}
#endif

}  // namespace gw
