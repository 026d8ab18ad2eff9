#pragma once
// `cuda_pipeline.h` on the emulated device: a thread's own asynchronous copies to shared memory.

#include "gw/cuda.cuh"

#ifndef GW_CUDA

// The last `zeros` of 4, 8 or 16 bytes are not copied but zero.
GW_FUNCTION void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0, GW_SITE) {
    gw::emulated::call::copy_async(to, from, (u32)bytes, (u32)(bytes - zeros), GW_AT);
}
GW_FUNCTION void __pipeline_commit() { gw::copy_async_commit(); }
// Waits until at most so many of this thread's groups are under way.
GW_FUNCTION void __pipeline_wait_prior(size_t pending) { gw::emulated::call::copy_async_wait((u32)pending); }

#endif  // GW_CUDA
