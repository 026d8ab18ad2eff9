// Products by a warp: tensor cores through ldmatrix and mma.sync, and through the fragments of mma.h.
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    uint32_t a;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(a) : "l"(p));
    return a;
}

__device__ float a_at(int row, int column) { return (row * 7 + column * 3) % 13 - 6.0f; }
__device__ float b_at(int row, int column) { return (row * 5 + column) % 11 - 5.0f; }
__device__ float expected(int row, int column) {
    float sum = 0;
    for (int k = 0; k < 16; ++k) sum += a_at(row, k) * b_at(k, column);
    return sum;
}

namespace tensor_cores {
namespace {

__global__ void __launch_bounds__(32) by_instructions(float* out) {
    __shared__ __align__(16) half a[16 * 16], b[16 * 8];
    for (int i = threadIdx.x; i < 256; i += 32) a[i] = __float2half(a_at(i / 16, i % 16));
    for (int i = threadIdx.x; i < 128; i += 32) b[i] = __float2half(b_at(i / 8, i % 8));
    __syncwarp();
    uint32_t x[4], y[2];
    float d[4] = {0.f, 0.f, 0.f, 0.f};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(&a[threadIdx.x % 16 * 16 + threadIdx.x / 16 * 8])));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(y[0]), "=r"(y[1]) : "r"(shared_address(&b[threadIdx.x % 16 * 8])));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; ++i) assert(d[i] == expected(row + 8 * (i / 2), column + i % 2));
    reinterpret_cast<float2*>(out)[row * 4 + column / 2] = make_float2(d[0], d[1]);
}

}  // namespace

template <class LayoutA, class LayoutB>
__device__ void multiply(const half* a, const half* b, float* c, wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, LayoutA> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, LayoutB> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
    wmma::fill_fragment(d, 1.0f);
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, b, 16);
    wmma::mma_sync(d, x, y, d);
    for (int i = 0; i < d.num_elements; ++i) d.x[i] -= 1.0f;
    wmma::store_matrix_sync(c, d, 16, layout);
}

template <int FORMS = 4>
__global__ void __launch_bounds__(32) by_fragments(float* out) {
    __shared__ half a[256], b[256], a_turned[256], b_turned[256];
    __shared__ float c[256];
    for (int i = threadIdx.x; i < 256; i += 32) {
        a[i] = a_turned[i % 16 * 16 + i / 16] = __float2half(a_at(i / 16, i % 16));
        b[i] = b_turned[i % 16 * 16 + i / 16] = __float2half(b_at(i / 16, i % 16));
    }
    __syncwarp();
    for (int form = 0; form < FORMS; ++form) {
        const bool turned = form % 2;
        if (form == 0) multiply<wmma::row_major, wmma::row_major>(a, b, c, wmma::mem_row_major);
        if (form == 1) multiply<wmma::col_major, wmma::row_major>(a_turned, b, c, wmma::mem_col_major);
        if (form == 2) multiply<wmma::row_major, wmma::col_major>(a, b_turned, c, wmma::mem_row_major);
        if (form == 3) multiply<wmma::col_major, wmma::col_major>(a_turned, b_turned, c, wmma::mem_col_major);
        __syncwarp();
        for (int i = threadIdx.x; i < 256; i += 32) {
            const float found = c[turned ? i % 16 * 16 + i / 16 : i];
            assert(found == expected(i / 16, i % 16));
            out[i] = found;
        }
        __syncwarp();
    }
}

}  // namespace tensor_cores
