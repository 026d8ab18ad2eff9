#pragma once
// Where a thread is: in its warp, its block and the grid.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
GW_DEVICE u32 thread_x() { return threadIdx.x; }
GW_DEVICE u32 thread_y() { return threadIdx.y; }
GW_DEVICE u32 thread_z() { return threadIdx.z; }
GW_DEVICE u32 block_x() { return blockIdx.x; }
GW_DEVICE u32 block_y() { return blockIdx.y; }
GW_DEVICE u32 block_z() { return blockIdx.z; }
GW_DEVICE u32 threads_x() { return blockDim.x; }
GW_DEVICE u32 threads_y() { return blockDim.y; }
GW_DEVICE u32 threads_z() { return blockDim.z; }
GW_DEVICE u32 blocks_x() { return gridDim.x; }
GW_DEVICE u32 blocks_y() { return gridDim.y; }
GW_DEVICE u32 blocks_z() { return gridDim.z; }
#else
GW_DEVICE u32 thread_x() { return emulated::call::index(emulated::Index::Thread, 0); }
GW_DEVICE u32 thread_y() { return emulated::call::index(emulated::Index::Thread, 1); }
GW_DEVICE u32 thread_z() { return emulated::call::index(emulated::Index::Thread, 2); }
GW_DEVICE u32 block_x() { return emulated::call::index(emulated::Index::Block, 0); }
GW_DEVICE u32 block_y() { return emulated::call::index(emulated::Index::Block, 1); }
GW_DEVICE u32 block_z() { return emulated::call::index(emulated::Index::Block, 2); }
GW_DEVICE u32 threads_x() { return emulated::call::index(emulated::Index::Threads, 0); }
GW_DEVICE u32 threads_y() { return emulated::call::index(emulated::Index::Threads, 1); }
GW_DEVICE u32 threads_z() { return emulated::call::index(emulated::Index::Threads, 2); }
GW_DEVICE u32 blocks_x() { return emulated::call::index(emulated::Index::Blocks, 0); }
GW_DEVICE u32 blocks_y() { return emulated::call::index(emulated::Index::Blocks, 1); }
GW_DEVICE u32 blocks_z() { return emulated::call::index(emulated::Index::Blocks, 2); }
#endif

// The thread's number in its block, x fastest.
GW_DEVICE u32 thread() { return thread_x() + threads_x() * (thread_y() + threads_y() * thread_z()); }
GW_DEVICE u32 lane() { return thread() & 31; }
GW_DEVICE u32 warp() { return thread() >> 5; }
GW_DEVICE u32 threads() { return threads_x() * threads_y() * threads_z(); }
// The thread's number in a grid that is a line.
GW_DEVICE u64 global_thread() { return (u64)block_x() * threads_x() + thread_x(); }
GW_DEVICE u64 global_threads() { return (u64)blocks_x() * threads_x(); }

}  // namespace gw
