// Inline PTX with registers, predicates, labels and bits of its own.
#include <cstdint>
#include <cuda_fp16.h>
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    uint32_t a;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
    return a;
}
__device__ __forceinline__ bool elect_one() {
    uint32_t pred = 0;
    asm volatile("{\n .reg .b32 %%rx;\n .reg .pred %%px;\n elect.sync %%rx|%%px, %1;\n @%%px mov.s32 %0, 1;\n}\n" : "+r"(pred) : "r"(0xFFFFFFFF));
    return pred;
}
__device__ float fast_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ void cp16(uint32_t dst, const void* src, bool pred) {
    asm volatile("{\n  .reg .pred p;\n  setp.ne.b32 p, %0, 0;\n  @p cp.async.cg.shared.global [%1], [%2], %3;\n}\n" :: "r"((int)pred), "r"(dst), "l"(src), "n"(16));
}
__device__ float4 ldg_stream(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
__device__ void red(float* p, float v) { asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(p), "f"(v) : "memory"); }
__global__ void words(const float4* in, float4* out, float* sum, unsigned* all) {
    __shared__ __align__(16) float4 tile[64];
    const uint32_t base = smem_u32(tile);
    cp16(base + threadIdx.x * 16, in + threadIdx.x, true);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4+16];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(base + (threadIdx.x % 63) * 16));
    float4 w = ldg_stream(in + threadIdx.x);
    out[threadIdx.x] = make_float4(v.x + w.x, fast_exp2(v.y), v.z, v.w);
    if (elect_one()) red(sum, 1.0f);
    uint32_t h;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(w.y), "f"(w.x));
    half2 expect = __floats2half2_rn(w.x, w.y);
    uint32_t bits; asm("mov.b32 %0, %1;" : "=r"(bits) : "r"(*reinterpret_cast<uint32_t*>(&expect)));
    float asf; asm("mov.b32 %0, %1;" : "=f"(asf) : "r"(0x3F800000));
    uint32_t lo, hi; uint64_t pair;
    asm("mov.b64 %0, {%1, %2};" : "=l"(pair) : "r"(7u), "r"(9u));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(lo), "=r"(hi) : "l"(pair));
    uint32_t moved; asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, -1;" : "=r"(moved) : "r"(threadIdx.x));
    uint32_t up; asm volatile("{.reg .pred q; shfl.sync.up.b32 %0|q, %1, 2, 0, 0xffffffff; @!q mov.u32 %0, 99;}" : "=r"(up) : "r"(threadIdx.x));
    uint32_t n = 0;
    asm volatile("{\n .reg .pred p;\n .reg .u32 c;\n mov.u32 c, 0;\nLOOP:\n add.u32 c, c, 3;\n setp.lt.u32 p, c, %1;\n @p bra LOOP;\n mov.u32 %0, c;\n}" : "=r"(n) : "r"(10));
    bool ok = h == bits && asf == 1.0f && lo == 7 && hi == 9 && moved == (threadIdx.x ^ 1) && n == 12
        && up == (threadIdx.x % 32 < 2 ? 99u : threadIdx.x - 2);
    assert(ok);
    all[threadIdx.x] = __popc(h);
}
void run(const float4* in, float4* out, float* sum, unsigned* all) {
    words<<<1, 64>>>(in, out, sum, all);
}
