#pragma once
// What host and kernel share.
#include <string>
#include <vector>
#define THREADS 64
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

struct Range { int first, count; };
struct Step { float* x; const float* v; Range range; float dt; };
struct Scene { std::vector<std::string> names; };
std::vector<int> order(const Scene& scene);

__device__ __forceinline__ int place(const Step& step, int i) {
    return step.range.first + i;
}
