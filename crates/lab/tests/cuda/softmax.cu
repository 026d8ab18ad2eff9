// A row a warp, as code that uses cooperative groups has it, with the host code that starts it.
#include <algorithm>
#include <cfloat>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cublas_v2.h>
#include <iostream>
#include <vector>

namespace cg = cooperative_groups;
#define CHECK(call) do { if ((call) != cudaSuccess) { std::cerr << #call << std::endl; std::abort(); } } while (0)
#define ROW (blockIdx.x * warp.meta_group_size() + warp.meta_group_rank())

struct Timer { std::vector<float> times; cudaEvent_t start, stop; void begin() { cudaEventRecord(start); } };
std::vector<float> reference(const std::vector<float>& x, int columns);
constexpr int ceiling(int a, int b) { return (a + b - 1) / b; }

__global__ void softmax(float* out, const float* in, int rows, int columns) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    if (ROW >= rows) return;
    const float* x = in + ROW * columns;
    float top = -FLT_MAX, sum = 0.0f;
    for (int i = warp.thread_rank(); i < columns; i += warp.size()) top = std::max(top, x[i]);
    top = cg::reduce(warp, top, cg::greater<float>{});
    for (int i = warp.thread_rank(); i < columns; i += warp.size()) sum += std::exp(x[i] - top);
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    for (int i = warp.thread_rank(); i < columns; i += warp.size()) out[ROW * columns + i] = expf(x[i] - top) / sum;
    assert(std::abs(-sum) == sum && std::abs(-3) == 3 && std::min(4u, 5u) == 4);
    for (int i = warp.thread_rank(); i < columns; i += warp.size()) assert(out[ROW * columns + i] <= 1.0f);
}

int main(int argc, char** argv) {
    const int rows = 64, columns = 100;
    const int block_size = 4 * 32;
    Timer timer;
    float *in, *out;
    CHECK(cudaMalloc(&in, rows * columns * sizeof(float)));
    CHECK(cudaMalloc(&out, rows * columns * sizeof(float)));
    softmax<<<ceiling(rows * 32, block_size), block_size>>>(out, in, rows, columns);
    std::cout << reference({}, columns).size() << std::endl;
    return 0;
}
