#pragma once
// Plain CUDA C++ on the emulated device: the names that kernels use which know nothing of the portable header. What is not
// here is the compiler's error, by its name and line.

#include "gw/cuda_math.cuh"
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

// What the compiler of kernels for sm_90 says of itself.
#define __CUDA_ARCH__ 900
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
namespace std {}

// Vectors of one, two, three and four.
#define GW_VECTORS(name, type, two, four) \
    struct name##1 { type x; }; \
    struct alignas(two) name##2 { type x, y; }; \
    struct name##3 { type x, y, z; }; \
    struct alignas(four) name##4 { type x, y, z, w; }; \
    GW_FUNCTION name##1 make_##name##1(type x) { return {x}; } \
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
GW_VECTORS(long, long, 16, 16)
GW_VECTORS(ulong, unsigned long, 16, 16)
GW_VECTORS(longlong, long long, 16, 16)
GW_VECTORS(ulonglong, unsigned long long, 16, 16)
GW_VECTORS(double, double, 16, 16)
#undef GW_VECTORS
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
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
__attribute__((GW_UNSEEN, noinline, unused)) static u32 find_place(u32 id, u32 bytes, u32 align) {
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

// What the threads of a block add up, or where they all have it.
GW_FUNCTION u32 count(u32 addend, GW_SITE) {
    u32* sum = static_cast<u32*>(place(~0u, sizeof(u32), alignof(u32), GW_AT));
    sync_threads(GW_AT);
    if (thread() == 0) *sum = 0;
    sync_threads(GW_AT);
    atomic_add(sum, addend);
    sync_threads(GW_AT);
    const u32 all = *sum;
    sync_threads(GW_AT);
    return all;
}

// Values of one and two bytes travel in a word.
template <class T>
GW_FUNCTION T exchanged(T value, u32 lane, u32 mask, GW_SITE) {
    if constexpr (sizeof(T) == 1) return bits<T>((u8)shuffle((u32)bits<u8>(value), lane, mask, GW_AT));
    else if constexpr (sizeof(T) == 2) return bits<T>((u16)shuffle((u32)bits<u16>(value), lane, mask, GW_AT));
    else return shuffle(value, lane, mask, GW_AT);
}

GW_FUNCTION u32 segment(int width) { return lane() & ~(u32)(width - 1); }

GW_FUNCTION uint3 thread_index() { return {thread_x(), thread_y(), thread_z()}; }
GW_FUNCTION uint3 block_index() { return {block_x(), block_y(), block_z()}; }
GW_FUNCTION dim3 block_extent() { return {threads_x(), threads_y(), threads_z()}; }
GW_FUNCTION dim3 grid_extent() { return {blocks_x(), blocks_y(), blocks_z()}; }

// Registers of inline PTX have a size and no meaning: their bits as another type of the size, or integers cut or extended.
template <class To, class From>
GW_FUNCTION To as(From value) {
    if constexpr (sizeof(To) == sizeof(From)) return bits<To>(value);
    else return (To)value;
}
template <class T> struct Pointed { static constexpr bool is = false; };
template <class T> struct Pointed<T*> { static constexpr bool is = true; };
// What a register that is bound to an expression holds, and the other way round.
template <class Register, class T>
GW_FUNCTION Register held(T value) {
    if constexpr (Pointed<T>::is) return (Register)(u64)value;
    else return as<Register>(value);
}
template <class T, class Register>
GW_FUNCTION void give(T& to, Register value) {
    if constexpr (Pointed<T>::is) to = (T)(u64)value;
    else to = as<T>(value);
}
// COUNT neighbours of memory, in one access.
template <class T, u32 COUNT> struct alignas(sizeof(T) * COUNT) Run {
    T of[COUNT];
};
template <class T, u32 COUNT>
GW_FUNCTION Run<T, COUNT> load(const void* from) {
    return *static_cast<const Run<T, COUNT>*>(from);
}
template <class T, u32 COUNT>
GW_FUNCTION Run<T, COUNT> load_constant(const void* from) {
    typedef Run<T, COUNT> R;
    if constexpr (sizeof(R) == 4 || sizeof(R) == 8 || sizeof(R) == 16) return load_readonly(static_cast<const R*>(from));
    else return load<T, COUNT>(from);
}
template <class T, u32 COUNT>
GW_FUNCTION void store(void* to, Run<T, COUNT> value) {
    *static_cast<Run<T, COUNT>*>(to) = value;
}
// `length` bits from bit `at` on.
GW_FUNCTION u32 field(u32 value, u32 at, u32 length) {
    const u32 mask = (length & 255) < 32 ? (1u << (length & 255)) - 1 : ~0u;
    return shift_right(value, at & 255) & mask;
}
// `shfl.sync`: MODE is 0 for a lane by its number, 1 for lanes below, 2 for lanes above, 3 for the exclusive or.
struct Shuffled {
    u32 value;
    bool in_range;
};
template <u32 MODE>
GW_FUNCTION Shuffled shuffled(u32 value, u32 argument, u32 clamp, u32 mask, GW_SITE) {
    const u32 mine = lane(), segments = clamp >> 8 & 31, b = argument & 31, end = clamp & 31;
    const u32 least = mine & segments, most = least | (end & ~segments);
    const u32 from = MODE == 0 ? least | (b & ~segments) : MODE == 1 ? mine - b : MODE == 2 ? mine + b : mine ^ b;
    const bool in_range = MODE == 1 ? (i32)from >= (i32)most : from <= most;
    return {shuffle(value, in_range ? from : mine, mask, GW_AT), in_range};
}

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
GW_FUNCTION int __syncthreads_count(int predicate, GW_SITE) { return (int)gw::cuda::count(predicate != 0, GW_AT); }
GW_FUNCTION int __syncthreads_or(int predicate, GW_SITE) { return gw::cuda::count(predicate != 0, GW_AT) != 0; }
GW_FUNCTION int __syncthreads_and(int predicate, GW_SITE) { return gw::cuda::count(predicate == 0, GW_AT) == 0; }
GW_FUNCTION void __syncwarp(unsigned mask = ~0u, GW_SITE) { gw::sync_warp(mask, GW_AT); }
GW_FUNCTION void __threadfence_block() { gw::fence_block(); }
GW_FUNCTION void __threadfence() { gw::fence_device(); }
GW_FUNCTION void __threadfence_system() { gw::fence_system(); }
GW_FUNCTION void __nanosleep(unsigned) { gw::pause(); }
GW_FUNCTION long long clock64() { return (long long)gw::clock(); }
GW_FUNCTION int clock() { return (int)gw::clock(); }
GW_FUNCTION void __trap(GW_SITE) { gw::trap(GW_AT); }
GW_FUNCTION void cudaGridDependencySynchronize() { gw::await_stream(); }
GW_FUNCTION void cudaTriggerProgrammaticLaunchCompletion() { gw::admit_next(); }
GW_FUNCTION size_t __cvta_generic_to_shared(const void* pointer) { return gw::shared_address(pointer); }
template <class T>
GW_FUNCTION T __ldg(const T* pointer) {
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16) return gw::load_readonly(pointer);
    else return *pointer;
}

// Hints of where to cache change nothing here.
#define GW_CACHED(name) \
    template <class T> \
    GW_FUNCTION T __ld##name(const T* pointer) { return *pointer; }
GW_CACHED(cg)
GW_CACHED(ca)
GW_CACHED(cs)
GW_CACHED(lu)
GW_CACHED(cv)
#undef GW_CACHED
#define GW_CACHED(name) \
    template <class T> \
    GW_FUNCTION void __st##name(T* pointer, T value) { *pointer = value; }
GW_CACHED(wb)
GW_CACHED(cg)
GW_CACHED(cs)
GW_CACHED(wt)
#undef GW_CACHED

// Shuffles in segments of `width` lanes.
template <class T>
GW_FUNCTION T __shfl_sync(unsigned mask, T value, int source, int width = 32, GW_SITE) {
    return gw::cuda::exchanged(value, gw::cuda::segment(width) + ((unsigned)source & (unsigned)(width - 1)), mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane();
    return gw::cuda::exchanged(value, (lane & (unsigned)(width - 1)) < distance ? lane : lane - distance, mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane();
    return gw::cuda::exchanged(value, (lane & (unsigned)(width - 1)) + distance >= (unsigned)width ? lane : lane + distance, mask, GW_AT);
}
template <class T>
GW_FUNCTION T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, GW_SITE) {
    const unsigned lane = gw::lane(), other = lane ^ (unsigned)lanes;
    return gw::cuda::exchanged(value, other >= gw::cuda::segment(width) + (unsigned)width ? lane : other, mask, GW_AT);
}
GW_FUNCTION unsigned __ballot_sync(unsigned mask, int predicate, GW_SITE) { return gw::ballot(predicate != 0, mask, GW_AT); }
GW_FUNCTION int __any_sync(unsigned mask, int predicate, GW_SITE) { return gw::any(predicate != 0, mask, GW_AT); }
GW_FUNCTION int __all_sync(unsigned mask, int predicate, GW_SITE) { return gw::all(predicate != 0, mask, GW_AT); }
// The lanes that execute this together: the caller is one, and no more is promised.
GW_FUNCTION unsigned __activemask() { return 1u << gw::lane(); }
GW_FUNCTION unsigned __match_all_sync(unsigned mask, unsigned value, int* same, GW_SITE) {
    const unsigned lanes = gw::match_all(value, mask, GW_AT);
    *same = lanes != 0;
    return lanes;
}
GW_FUNCTION unsigned __match_any_sync(unsigned mask, unsigned value, GW_SITE) { return gw::match_any(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_add_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_add(value, mask, GW_AT); }
GW_FUNCTION int __reduce_add_sync(unsigned mask, int value, GW_SITE) { return (int)gw::reduce_add((u32)value, mask, GW_AT); }
GW_FUNCTION int __reduce_min_sync(unsigned mask, int value, GW_SITE) { return gw::reduce_min(value, mask, GW_AT); }
GW_FUNCTION int __reduce_max_sync(unsigned mask, int value, GW_SITE) { return gw::reduce_max(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_min_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_min(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_max_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_max(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_and_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_and(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_or_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_or(value, mask, GW_AT); }
GW_FUNCTION unsigned __reduce_xor_sync(unsigned mask, unsigned value, GW_SITE) { return gw::reduce_xor(value, mask, GW_AT); }

// Each for the device, for the block and for the system.
#define GW_CUDA_ATOMIC(name, type, word, function) \
    GW_FUNCTION type name(type* p, type v) { return (type)gw::function((word*)p, (word)v); } \
    GW_FUNCTION type name##_block(type* p, type v) { \
        return (type)gw::function<gw::Order::Relaxed, gw::Scope::Block>((word*)p, (word)v); \
    } \
    GW_FUNCTION type name##_system(type* p, type v) { \
        return (type)gw::function<gw::Order::Relaxed, gw::Scope::System>((word*)p, (word)v); \
    }
GW_CUDA_ATOMIC(atomicAdd, int, i32, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, unsigned, u32, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, unsigned long long, u64, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, float, f32, atomic_add)
GW_CUDA_ATOMIC(atomicAdd, double, f64, atomic_add)
GW_CUDA_ATOMIC(atomicMin, int, i32, atomic_min)
GW_CUDA_ATOMIC(atomicMin, unsigned, u32, atomic_min)
GW_CUDA_ATOMIC(atomicMin, long long, i64, atomic_min)
GW_CUDA_ATOMIC(atomicMin, unsigned long long, u64, atomic_min)
GW_CUDA_ATOMIC(atomicMax, int, i32, atomic_max)
GW_CUDA_ATOMIC(atomicMax, unsigned, u32, atomic_max)
GW_CUDA_ATOMIC(atomicMax, long long, i64, atomic_max)
GW_CUDA_ATOMIC(atomicMax, unsigned long long, u64, atomic_max)
GW_CUDA_ATOMIC(atomicExch, int, u32, atomic_exchange)
GW_CUDA_ATOMIC(atomicExch, unsigned, u32, atomic_exchange)
GW_CUDA_ATOMIC(atomicExch, unsigned long long, u64, atomic_exchange)
GW_CUDA_ATOMIC(atomicAnd, int, u32, atomic_and)
GW_CUDA_ATOMIC(atomicAnd, unsigned, u32, atomic_and)
GW_CUDA_ATOMIC(atomicAnd, unsigned long long, u64, atomic_and)
GW_CUDA_ATOMIC(atomicOr, int, u32, atomic_or)
GW_CUDA_ATOMIC(atomicOr, unsigned, u32, atomic_or)
GW_CUDA_ATOMIC(atomicOr, unsigned long long, u64, atomic_or)
GW_CUDA_ATOMIC(atomicXor, int, u32, atomic_xor)
GW_CUDA_ATOMIC(atomicXor, unsigned, u32, atomic_xor)
GW_CUDA_ATOMIC(atomicXor, unsigned long long, u64, atomic_xor)
GW_CUDA_ATOMIC(atomicInc, unsigned, u32, atomic_inc)
GW_CUDA_ATOMIC(atomicDec, unsigned, u32, atomic_dec)
#undef GW_CUDA_ATOMIC
GW_FUNCTION int atomicSub(int* p, int v) { return (int)gw::atomic_add((u32*)p, 0u - (u32)v); }
GW_FUNCTION unsigned atomicSub(unsigned* p, unsigned v) { return gw::atomic_add(p, 0u - v); }
GW_FUNCTION float atomicExch(float* p, float v) { return gw::bits<f32>(gw::atomic_exchange((u32*)p, gw::bits<u32>(v))); }
#define GW_CUDA_CAS(name, type, word, scope) \
    GW_FUNCTION type name(type* p, type expected, type v) { \
        return (type)gw::atomic_cas<gw::Order::Relaxed, gw::Scope::scope>((word*)p, (word)expected, (word)v); \
    }
#define GW_CUDA_CAS_SCOPES(type, word) \
    GW_CUDA_CAS(atomicCAS, type, word, Device) \
    GW_CUDA_CAS(atomicCAS_block, type, word, Block) \
    GW_CUDA_CAS(atomicCAS_system, type, word, System)
GW_CUDA_CAS_SCOPES(int, u32)
GW_CUDA_CAS_SCOPES(unsigned, u32)
GW_CUDA_CAS_SCOPES(unsigned long long, u64)
#undef GW_CUDA_CAS_SCOPES
#undef GW_CUDA_CAS

// `__constant__` variables that host code would fill: small numbers of either sign, integers from 0 to 63, and 64 for a
// single one, which is most often the size of something.
namespace gw {
namespace cuda {
template <class T> GW_HOST void fill_many(T* at, u64 count) {
    u32 state = 1;
    for (u64 i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        const bool is_integer = T(1) / T(2) == T(0);
        at[i] = is_integer ? T(state >> 26) : T((int)(state >> 16) - 32768) / T(32768);
    }
}
template <class T> GW_HOST void fill_one(T* at, u64 count) {
    const bool is_integer = T(1) / T(2) == T(0);
    if (is_integer && count == 1) *at = T(64);
    else fill_many(at, count);
}
}  // namespace cuda
}  // namespace gw

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
#define warpSize 32
// In macros of the file: elsewhere, each is a call of its own.
#define threadIdx (gw::cuda::thread_index())
#define blockIdx (gw::cuda::block_index())
#define blockDim (gw::cuda::block_extent())
#define gridDim (gw::cuda::grid_extent())

#endif  // GW_CUDA
