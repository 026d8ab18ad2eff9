#pragma once
// Atomics on shared and global memory. All are relaxed: order other accesses around them with a fence, or use
// `load_acquire` and `store_release`.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
GW_DEVICE u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
GW_DEVICE i32 atomic_add(i32* p, i32 v) { return atomicAdd(p, v); }
GW_DEVICE u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
GW_DEVICE f32 atomic_add(f32* p, f32 v) { return atomicAdd(p, v); }
GW_DEVICE f64 atomic_add(f64* p, f64 v) { return atomicAdd(p, v); }
// Counts up to `limit` and wraps to 0; returns the value before.
GW_DEVICE u32 atomic_inc(u32* p, u32 limit) { return atomicInc(p, limit); }
GW_DEVICE u32 atomic_min(u32* p, u32 v) { return atomicMin(p, v); }
GW_DEVICE i32 atomic_min(i32* p, i32 v) { return atomicMin(p, v); }
GW_DEVICE u64 atomic_min(u64* p, u64 v) { return atomicMin(p, v); }
GW_DEVICE u32 atomic_max(u32* p, u32 v) { return atomicMax(p, v); }
GW_DEVICE i32 atomic_max(i32* p, i32 v) { return atomicMax(p, v); }
GW_DEVICE u64 atomic_max(u64* p, u64 v) { return atomicMax(p, v); }
GW_DEVICE u32 atomic_and(u32* p, u32 v) { return atomicAnd(p, v); }
GW_DEVICE u32 atomic_or(u32* p, u32 v) { return atomicOr(p, v); }
GW_DEVICE u32 atomic_xor(u32* p, u32 v) { return atomicXor(p, v); }
GW_DEVICE u32 atomic_exchange(u32* p, u32 v) { return atomicExch(p, v); }
GW_DEVICE u64 atomic_exchange(u64* p, u64 v) { return atomicExch(p, v); }
GW_DEVICE u32 atomic_cas(u32* p, u32 expected, u32 v) { return atomicCAS(p, expected, v); }
GW_DEVICE u64 atomic_cas(u64* p, u64 expected, u64 v) { return atomicCAS(p, expected, v); }

GW_DEVICE u32 load_relaxed(const u32* p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GW_DEVICE u64 load_relaxed(const u64* p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
GW_DEVICE void store_relaxed(u32* p, u32 v) { asm volatile("st.relaxed.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
GW_DEVICE void store_relaxed(u64* p, u64 v) { asm volatile("st.relaxed.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
GW_DEVICE u32 load_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GW_DEVICE u64 load_acquire(const u64* p) {
    u64 v;
    asm volatile("ld.acquire.gpu.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
GW_DEVICE void store_release(u32* p, u32 v) { asm volatile("st.release.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
GW_DEVICE void store_release(u64* p, u64 v) { asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
#else
namespace emulated {
// `noinline`, so that the return address is the caller's line.
template <class T>
__attribute__((noinline)) T atomic(AtomicOp operation, const T* p, T value, T compare = T()) {
    void* address = const_cast<T*>(p);
    if constexpr (sizeof(T) == 4) {
        return bits<T>((u32)call::atomic(operation, address, 4, bits<u32>(value), bits<u32>(compare), GW_CALLER));
    } else {
        return bits<T>(call::atomic(operation, address, 8, bits<u64>(value), bits<u64>(compare), GW_CALLER));
    }
}
}  // namespace emulated

#define GW_ATOMIC(name, type, operation) \
    GW_DEVICE type name(type* p, type v) { return emulated::atomic(emulated::AtomicOp::operation, p, v); }
GW_ATOMIC(atomic_add, u32, Add)
GW_ATOMIC(atomic_add, i32, Add)
GW_ATOMIC(atomic_add, u64, Add)
GW_ATOMIC(atomic_add, f32, AddF32)
GW_ATOMIC(atomic_add, f64, AddF64)
GW_ATOMIC(atomic_inc, u32, Inc)
GW_ATOMIC(atomic_min, u32, MinU)
GW_ATOMIC(atomic_min, i32, MinS)
GW_ATOMIC(atomic_min, u64, MinU)
GW_ATOMIC(atomic_max, u32, MaxU)
GW_ATOMIC(atomic_max, i32, MaxS)
GW_ATOMIC(atomic_max, u64, MaxU)
GW_ATOMIC(atomic_and, u32, And)
GW_ATOMIC(atomic_or, u32, Or)
GW_ATOMIC(atomic_xor, u32, Xor)
GW_ATOMIC(atomic_exchange, u32, Exchange)
GW_ATOMIC(atomic_exchange, u64, Exchange)
#undef GW_ATOMIC
template <class T>
GW_DEVICE T atomic_cas(T* p, T expected, T v) {
    return emulated::atomic(emulated::AtomicOp::Cas, p, v, expected);
}
template <class T>
GW_DEVICE T load_relaxed(const T* p) {
    return emulated::atomic(emulated::AtomicOp::Load, p, T());
}
template <class T>
GW_DEVICE void store_relaxed(T* p, T v) {
    emulated::atomic(emulated::AtomicOp::Store, p, v);
}
template <class T>
GW_DEVICE T load_acquire(const T* p) {
    const T v = load_relaxed(p);
    emulated::call::fence(emulated::FenceKind::Device);
    return v;
}
template <class T>
GW_DEVICE void store_release(T* p, T v) {
    emulated::call::fence(emulated::FenceKind::Device);
    store_relaxed(p, v);
}
#endif

}  // namespace gw
