#pragma once
// Shared memory, and accesses wider or weaker than a plain load.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
extern __shared__ __align__(1024) u8 dynamic_shared[];

// The block's dynamic shared memory, from byte `offset`. Its start is aligned to 1024 bytes.
template <class T>
GW_DEVICE T* shared(u32 offset = 0) {
    return reinterpret_cast<T*>(dynamic_shared + offset);
}
// The address of shared memory as the hardware's descriptors want it.
GW_DEVICE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// A load through the read-only path: the data must not change while the kernel runs.
template <class T>
GW_DEVICE T load_readonly(const T* pointer) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    T value;
    if constexpr (sizeof(T) == 4) {
        u32 x;
        asm("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(pointer));
        value = bits<T>(x);
    } else if constexpr (sizeof(T) == 8) {
        u64 x;
        asm("ld.global.nc.b64 %0, [%1];" : "=l"(x) : "l"(pointer));
        value = bits<T>(x);
    } else {
        u32x4 x;
        asm("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(pointer));
        value = bits<T>(x);
    }
    return value;
}
#else
template <class T>
GW_DEVICE T* shared(u32 offset = 0) {
    return reinterpret_cast<T*>(emulated::call::shared() + offset);
}
namespace emulated {
// The compiler may split a 16-byte access into words; this one is seen whole, with its alignment, before it is made.
__attribute__((GW_UNSEEN, noinline, unused)) static void whole_access(const void* pointer, u32 bytes, u32 flags) {
    api->access(pointer, bytes, flags, GW_CALLER);
}
template <class T>
__attribute__((GW_UNSEEN, no_sanitize("alignment"))) T unseen(const T* pointer) {
    return *pointer;
}
}  // namespace emulated
GW_DEVICE u32 shared_address(const void* pointer) { return emulated::call::shared_address(pointer); }

template <class T>
GW_DEVICE T load_readonly(const T* pointer) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
    emulated::whole_access(pointer, sizeof(T), 4);
    return emulated::unseen(pointer);
}
#endif

// 128 bits in one access; the address must be a multiple of 16.
GW_DEVICE u32x4 load_128(const void* pointer) {
#ifndef GW_CUDA
    emulated::whole_access(pointer, 16, 0);
#endif
    return *static_cast<const u32x4*>(pointer);
}
GW_DEVICE void store_128(void* pointer, u32x4 value) {
#ifndef GW_CUDA
    emulated::whole_access(pointer, 16, 1);
#endif
    *static_cast<u32x4*>(pointer) = value;
}

}  // namespace gw
