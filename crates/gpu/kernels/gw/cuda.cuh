#pragma once
// Plain CUDA C++ on the emulated device: the names that kernels use which know nothing of the portable header. What is not
// here is the compiler's error, by its name and line.

#include "gw/gw.cuh"
#include "gw/wgmma.cuh"

#ifndef GW_CUDA

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef unsigned long uintptr_t;
typedef long ptrdiff_t;
typedef unsigned int uint;

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) alignas(bytes)
#define __builtin_align__(bytes) alignas(bytes)
#define __grid_constant__
#define GW_FUNCTION static inline __attribute__((always_inline, unused))

// Vectors of two, three and four.
#define GW_VECTORS(name, type, two, four) \
    struct alignas(two) name##2 { type x, y; }; \
    struct name##3 { type x, y, z; }; \
    struct alignas(four) name##4 { type x, y, z, w; }; \
    GW_FUNCTION name##2 make_##name##2(type x, type y) { return {x, y}; } \
    GW_FUNCTION name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    GW_FUNCTION name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
GW_VECTORS(char, signed char, 2, 4)
GW_VECTORS(uchar, unsigned char, 2, 4)
GW_VECTORS(short, short, 4, 8)
GW_VECTORS(ushort, unsigned short, 4, 8)
GW_VECTORS(int, int, 8, 16)
GW_VECTORS(uint, unsigned int, 8, 16)
GW_VECTORS(float, float, 8, 16)
GW_VECTORS(longlong, long long, 16, 16)
GW_VECTORS(ulonglong, unsigned long long, 16, 16)
GW_VECTORS(double, double, 16, 16)
#undef GW_VECTORS
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

namespace gw {
namespace cuda {

// Where `__shared__` variables lie: below the dynamic shared memory, in the order in which they are first met. All blocks
// have them in the same places.
struct Places {
    u32 id[64], bytes[64], at[64], count, end;
    bool taken;
};
static Places places;
__attribute__((no_sanitize("thread"), noinline, unused)) static u32 find_place(u32 id, u32 bytes, u32 align) {
    while (__atomic_test_and_set(&places.taken, __ATOMIC_ACQUIRE)) {}
    u32 i = 0;
    while (i < places.count && (places.id[i] != id || places.bytes[i] != bytes)) ++i;
    if (i == places.count && i < 64) {
        places.id[i] = id;
        places.bytes[i] = bytes;
        places.at[i] = (places.end + align - 1) / align * align;
        places.end = places.at[i] + bytes;
        ++places.count;
    }
    const u32 at = i < 64 ? places.at[i] : ~0u;
    __atomic_clear(&places.taken, __ATOMIC_RELEASE);
    return at;
}
GW_FUNCTION void* place(u32 id, u32 bytes, u32 align, GW_SITE) {
    const u32 at = find_place(id, bytes, align);
    if (at > GW_STATIC_BYTES || bytes > GW_STATIC_BYTES - at) emulated::call::fail("the __shared__ variables fit", GW_AT);
    return shared<u8>(at);
}

// A 32-bit address of shared memory, as `__cvta_generic_to_shared` gives it, as a pointer again.
GW_FUNCTION void* at(u64 address) { return shared<u8>((u32)address); }
GW_FUNCTION Mbarrier* barrier(u64 address) { return static_cast<Mbarrier*>(at(address)); }

GW_FUNCTION u32 segment(int width) { return lane() & ~(u32)(width - 1); }

GW_FUNCTION uint3 thread_index() { return {thread_x(), thread_y(), thread_z()}; }
GW_FUNCTION uint3 block_index() { return {block_x(), block_y(), block_z()}; }
GW_FUNCTION dim3 block_extent() { return {threads_x(), threads_y(), threads_z()}; }
GW_FUNCTION dim3 grid_extent() { return {blocks_x(), blocks_y(), blocks_z()}; }

// `first` to `last` are the operands of a product in the order of the instruction: they must be one array.
template <class Format, u32 N, u32 REGISTERS, class D>
GW_FUNCTION void wgmma(D* first, D* last, u64 a, const u32* registers, u64 b, bool accumulate, u32 ta, u32 tb, u32 half, GW_SITE) {
    if (last - first != (long)REGISTERS - 1) emulated::call::fail("the accumulators of a wgmma are one array in order", GW_AT);
    emulated::WgmmaCall call = {
        emulated::FormatOf<Format>::code, N, registers != nullptr, accumulate, ta, tb, half, 0, a, b, {0, 0, 0, 0}, (u32*)first, registers};
    if (registers) {
        for (u32 i = 0; i < 4; ++i) call.a[i] = registers[i];
    }
    emulated::call::wgmma(&call, GW_AT);
}

}  // namespace cuda
}  // namespace gw

GW_FUNCTION void __syncthreads(GW_SITE) { gw::sync_threads(GW_AT); }
GW_FUNCTION void __syncwarp(unsigned mask = ~0u, GW_SITE) { gw::sync_warp(mask, GW_AT); }
GW_FUNCTION void __threadfence_block() { gw::fence_block(); }
GW_FUNCTION void __threadfence() { gw::fence_device(); }
GW_FUNCTION void __threadfence_system() { gw::fence_system(); }
GW_FUNCTION void __nanosleep(unsigned) { gw::pause(); }
GW_FUNCTION long long clock64() { return (long long)gw::clock(); }
GW_FUNCTION void __trap(GW_SITE) { gw::trap(GW_AT); }
GW_FUNCTION void cudaGridDependencySynchronize() { gw::await_stream(); }
GW_FUNCTION void cudaTriggerProgrammaticLaunchCompletion() { gw::admit_next(); }
GW_FUNCTION size_t __cvta_generic_to_shared(const void* pointer) { return gw::shared_address(pointer); }
template <class T>
GW_FUNCTION T __ldg(const T* pointer) {
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16) return gw::load_readonly(pointer);
    else return *pointer;
}

// Shuffles in segments of `width` lanes.
template <class T>
GW_FUNCTION T __shfl_sync(unsigned mask, T value, int source, int width = 32, GW_SITE) {
    return gw::shuffle(value, gw::cuda::segment(width) + ((unsigned)source & (unsigned)(width - 1)), mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane();
    return gw::shuffle(value, (lane & (unsigned)(width - 1)) < distance ? lane : lane - distance, mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane();
    return gw::shuffle(value, (lane & (unsigned)(width - 1)) + distance >= (unsigned)width ? lane : lane + distance, mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane(), other = lane ^ (unsigned)lanes;
    return gw::shuffle(value, other >= gw::cuda::segment(width) + (unsigned)width ? lane : other, mask, GW_AT);
}
GW_FUNCTION unsigned __ballot_sync(unsigned mask, int predicate, GW_SITE) { return gw::ballot(predicate != 0, mask, GW_AT); }
GW_FUNCTION int __any_sync(unsigned mask, int predicate, GW_SITE) { return gw::any(predicate != 0, mask, GW_AT); }
GW_FUNCTION int __all_sync(unsigned mask, int predicate, GW_SITE) { return gw::all(predicate != 0, mask, GW_AT); }
GW_FUNCTION unsigned __match_any_sync(unsigned mask, unsigned value, GW_SITE) { return gw::match_any(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_add_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_add(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_min_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_min(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_max_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_max(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_and_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_and(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_or_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_or(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_xor_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_xor(value, mask, GW_AT); }

#define GW_CUDA_ATOMIC(name, type, function) \
    GW_FUNCTION type name(type* p, type v) { return gw::function(p, v); }
GW_CUDA_ATOMIC(atomicAdd, int, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, unsigned, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, unsigned long long, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, float, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, double, atomic_add)
GW_CUDA_ATOMIC(atomicMin, int, atomic_min)
GW_CUDA_ATOMIC(atomicMin, unsigned, atomic_min)
GW_CUDA_ATOMIC(atomicMax, int, atomic_max)
GW_CUDA_ATOMIC(atomicMax, unsigned, atomic_max)
GW_CUDA_ATOMIC(atomicExch, unsigned, atomic_exchange)
GW_CUDA_ATOMIC(atomicAnd, unsigned, atomic_and)
GW_CUDA_ATOMIC(atomicOr, unsigned, atomic_or)
GW_CUDA_ATOMIC(atomicXor, unsigned, atomic_xor)
GW_CUDA_ATOMIC(atomicInc, unsigned, atomic_inc)
GW_CUDA_ATOMIC(atomicDec, unsigned, atomic_dec)
#undef GW_CUDA_ATOMIC
GW_FUNCTION int atomicSub(int* p, int v) { return gw::atomic_add(p, -v); }
GW_FUNCTION unsigned atomicSub(unsigned* p, unsigned v) { return gw::atomic_add(p, 0u - v); }
GW_FUNCTION int atomicExch(int* p, int v) { return (int)gw::atomic_exchange((unsigned*)p, (unsigned)v); }
GW_FUNCTION int atomicOr(int* p, int v) { return (int)gw::atomic_or((unsigned*)p, (unsigned)v); }
GW_FUNCTION int atomicAnd(int* p, int v) { return (int)gw::atomic_and((unsigned*)p, (unsigned)v); }
GW_FUNCTION unsigned atomicCAS(unsigned* p, unsigned expected, unsigned v) { return gw::atomic_cas(p, expected, v); }
GW_FUNCTION int atomicCAS(int* p, int expected, int v) {
    return (int)gw::atomic_cas((unsigned*)p, (unsigned)expected, (unsigned)v);
}
GW_FUNCTION unsigned long long atomicCAS(unsigned long long* p, unsigned long long expected, unsigned long long v) {
    return gw::atomic_cas(p, expected, v);
}

#define GW_MATH_1(name) GW_FUNCTION float name(float x) { return __builtin_##name(x); }
GW_MATH_1(sqrtf)
GW_MATH_1(expf)
GW_MATH_1(exp2f)
GW_MATH_1(logf)
GW_MATH_1(log2f)
GW_MATH_1(fabsf)
GW_MATH_1(floorf)
GW_MATH_1(ceilf)
GW_MATH_1(sinf)
GW_MATH_1(cosf)
GW_MATH_1(tanhf)
GW_MATH_1(rintf)
#undef GW_MATH_1
GW_FUNCTION float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
GW_FUNCTION float __expf(float x) { return __builtin_expf(x); }
GW_FUNCTION float __logf(float x) { return __builtin_logf(x); }
GW_FUNCTION float __fdividef(float x, float y) { return x / y; }
GW_FUNCTION float powf(float x, float y) { return __builtin_powf(x, y); }
GW_FUNCTION float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
GW_FUNCTION float fminf(float x, float y) { return __builtin_fminf(x, y); }
GW_FUNCTION float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
template <class T, class U>
GW_FUNCTION auto min(T a, U b) -> decltype(a + b) { return a < b ? a : b; }
template <class T, class U>
GW_FUNCTION auto max(T a, U b) -> decltype(a + b) { return a > b ? a : b; }
GW_FUNCTION unsigned __float_as_uint(float x) { return gw::bits<unsigned>(x); }
GW_FUNCTION int __float_as_int(float x) { return gw::bits<int>(x); }
GW_FUNCTION float __uint_as_float(unsigned x) { return gw::bits<float>(x); }
GW_FUNCTION float __int_as_float(int x) { return gw::bits<float>(x); }
GW_FUNCTION int __popc(unsigned x) { return __builtin_popcount(x); }
GW_FUNCTION int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
GW_FUNCTION int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
GW_FUNCTION int __ffs(int x) { return __builtin_ffs(x); }

// `__device__` variables lie together in a section, which the runtime watches as it does buffers.
#define GW_VARIABLES \
    extern "C" char __start_gw_variables[] __attribute__((visibility("hidden"))); \
    extern "C" char __stop_gw_variables[] __attribute__((visibility("hidden"))); \
    extern "C" GW_HOST void gw_variables_at(u64* ends) { \
        ends[0] = (u64)__start_gw_variables; \
        ends[1] = (u64)__stop_gw_variables; \
    }

#define printf gw::print
#define assert GW_ASSERT
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define warpSize 32

#endif  // GW_CUDA
