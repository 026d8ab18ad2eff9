// Sums of blocks, as in a hundred tutorials, with one barrier forgotten. Nothing of ours is included.
#include <cuda_runtime.h>
#include <cstdio>

#define BLOCK 128

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

__global__ void __launch_bounds__(BLOCK) reduce(const float* __restrict__ in, float* out, int n) {
    __shared__ float partial[BLOCK / 32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0.0f;
    v = warp_sum(v);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    // MISSING __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int w = 0; w < BLOCK / 32; ++w) sum += partial[w];
        atomicAdd(out, sum);
    }
}

int main() {
    float *in, *out;
    cudaMalloc(&in, 4096);
    cudaMalloc(&out, 4);
    reduce<<<8, BLOCK>>>(in, out, 1024);
    printf("%d\n", (int)cudaDeviceSynchronize());
    return 0;
}
