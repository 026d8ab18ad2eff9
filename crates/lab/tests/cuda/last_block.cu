// The sum of an array by the block that ends last, as CUDA's own sample has it: shared memory and a counter
// outside of functions, results that are volatile, and a macro that makes the kernel.
#include <cuda_runtime.h>
#include <stdio.h>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define SUM_KERNEL(name, type, threads)                                                       \
    extern "C" __global__ void __launch_bounds__(threads)                                     \
    name##_##type(const type* array, unsigned int count, volatile type* partial, type* sum) { \
        sum_of_block<type, threads>(array, count, partial, sum);                              \
    }

__device__ unsigned int blocks_done = 0;
__shared__ bool is_last;

template <typename T, int THREADS>
__device__ void sum_of_block(const T* array, unsigned int count, volatile T* partial, T* sum) {
    __shared__ T shared[THREADS];
    T mine = 0;
    for (unsigned int i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) mine += array[i];
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = shared[0];
        __threadfence();
        is_last = atomicInc(&blocks_done, gridDim.x) == gridDim.x - 1;
        if (blockIdx.x == 0) printf("block 0 has %f\n", (double)shared[0]);
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        T all = 0;
        for (unsigned int block = 0; block < gridDim.x; ++block) all += partial[block];
        *sum = all;
    }
}

SUM_KERNEL(sum, float, 64)

int main() {
    const int n = 500;
    float *array, *partial, *sum;
    dim3 block(64), grid(CEIL_DIV(n, 128));
    cudaMalloc((void**)&array, n * sizeof(float));
    cudaMalloc((void**)&partial, 4 * sizeof(float));
    cudaMalloc(&sum, sizeof(float));
    sum_float<<<grid, block>>>(array, n, partial, sum);
    return cudaDeviceSynchronize();
}
