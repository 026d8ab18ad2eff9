#include <cuda_runtime.h>
#define N 32
namespace kernels {
extern "C" __global__ void __launch_bounds__(128, 2) scale(float* x, const int n = 3) {
    __shared__ __align__(16) float tile[4][N], sum;
    extern __shared__ char more[];
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(b), "r"(phase) : "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm("ld.acquire.gpu.global.u32 %0, [%1 + 4];" : "=r"(v) : "l"(p));
    x[blockIdx.x * blockDim.x + threadIdx.x] = 'c' + 0x1F; // the end
}
}
int main() { /* host */ kernels::scale<<<1, 2>>>(0, 1); }
