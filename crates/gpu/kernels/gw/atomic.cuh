#pragma once
// Atomics on shared and global memory. Each takes its order and its scope: `atomic_add(p, 1u)` is relaxed and for the whole
// device, `atomic_add<Order::Release, Scope::Cluster>(p, 1u)` says otherwise. Relaxed ones order nothing around them: use a
// fence, or `load_acquire` and `store_release`. Two atomics race unless the scope of each holds the other's thread.
//
// The hardware updates another block's shared memory (`cluster_map`) by 32-bit integer operations, exchanges and
// comparisons. All others do it by comparing and exchanging, and only in the cluster's scope: say `Scope::Cluster` there.

#include "gw/emulated.cuh"
#include "gw/order.cuh"

namespace gw {

#ifdef GW_CUDA
// One instruction for each order and scope: `text` has the words before and after them.
#define GW_IN_SCOPE(order, before, after, ...) \
    if constexpr (SCOPE == Scope::Block) asm volatile(before "." order ".cta" after __VA_ARGS__); \
    if constexpr (SCOPE == Scope::Cluster) asm volatile(before "." order ".cluster" after __VA_ARGS__); \
    if constexpr (SCOPE == Scope::Device) asm volatile(before "." order ".gpu" after __VA_ARGS__); \
    if constexpr (SCOPE == Scope::System) asm volatile(before "." order ".sys" after __VA_ARGS__);
#define GW_IN_ORDER(before, after, ...) \
    if constexpr (ORDER == Order::Relaxed) { GW_IN_SCOPE("relaxed", before, after, __VA_ARGS__) } \
    if constexpr (ORDER == Order::Acquire) { GW_IN_SCOPE("acquire", before, after, __VA_ARGS__) } \
    if constexpr (ORDER == Order::Release) { GW_IN_SCOPE("release", before, after, __VA_ARGS__) } \
    if constexpr (ORDER == Order::AcquireRelease) { GW_IN_SCOPE("acq_rel", before, after, __VA_ARGS__) }

#define GW_ACCESSES(type, register_, bits_) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE type atomic_cas(type* p, type expected, type v) { \
        if constexpr (ORDER == Order::Relaxed && SCOPE == Scope::Device) return atomicCAS(p, expected, v); \
        type before; \
        GW_IN_ORDER("atom", ".cas." bits_ " %0, [%1], %2, %3;", \
                    : "=" register_(before) : "l"(p), register_(expected), register_(v) : "memory") \
        return before; \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE type load_relaxed(const type* p) { \
        type v; \
        GW_IN_SCOPE("relaxed", "ld", "." bits_ " %0, [%1];", : "=" register_(v) : "l"(p) : "memory") \
        return v; \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE type load_acquire(const type* p) { \
        type v; \
        GW_IN_SCOPE("acquire", "ld", "." bits_ " %0, [%1];", : "=" register_(v) : "l"(p) : "memory") \
        return v; \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE void store_relaxed(type* p, type v) { \
        GW_IN_SCOPE("relaxed", "st", "." bits_ " [%0], %1;", ::"l"(p), register_(v) : "memory") \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE void store_release(type* p, type v) { \
        GW_IN_SCOPE("release", "st", "." bits_ " [%0], %1;", ::"l"(p), register_(v) : "memory") \
    }
GW_ACCESSES(u32, "r", "b32")
GW_ACCESSES(u64, "l", "b64")
#undef GW_ACCESSES

// `next` of the value there takes its place: what no instruction does on another block's shared memory.
template <Order ORDER, class Word, class Next>
GW_DEVICE Word update_in_cluster(Word* p, Next next) {
    for (Word seen = load_relaxed<Scope::Cluster>(p);;) {
        const Word before = atomic_cas<ORDER, Scope::Cluster>(p, seen, next(seen));
        if (before == seen) return before;
        seen = before;
    }
}

// `name(p, v)`: the value before. `register_` is the constraint of a register that holds a `type`. Where the compiler has a
// function of its own, that one is used: it knows which memory a pointer is to, and whether the value is wanted.
#define GW_ATOMIC(name, type, register_, operation, builtin) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE type name(type* p, type v) { \
        if constexpr (ORDER == Order::Relaxed && SCOPE == Scope::Device) return builtin; \
        type before; \
        GW_IN_ORDER("atom", "." operation " %0, [%1], %2;", : "=" register_(before) : "l"(p), register_(v) : "memory") \
        return before; \
    }
// The same for what another block's shared memory has no instruction for: `next` is the new value of the bits `seen`.
#define GW_ATOMIC_UPDATE(name, type, word, register_, operation, builtin, next) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE type name(type* p, type v) { \
        if constexpr (SCOPE == Scope::Cluster) { \
            return bits<type>(update_in_cluster<ORDER>(reinterpret_cast<word*>(p), [=](word seen) -> word { return next; })); \
        } \
        if constexpr (ORDER == Order::Relaxed && SCOPE == Scope::Device) return builtin; \
        type before; \
        GW_IN_ORDER("atom", "." operation " %0, [%1], %2;", : "=" register_(before) : "l"(p), register_(v) : "memory") \
        return before; \
    }
GW_ATOMIC(atomic_add, u32, "r", "add.u32", atomicAdd(p, v))
GW_ATOMIC(atomic_add, i32, "r", "add.s32", atomicAdd(p, v))
GW_ATOMIC(atomic_and, u32, "r", "and.b32", atomicAnd(p, v))
GW_ATOMIC(atomic_or, u32, "r", "or.b32", atomicOr(p, v))
GW_ATOMIC(atomic_xor, u32, "r", "xor.b32", atomicXor(p, v))
GW_ATOMIC(atomic_min, u32, "r", "min.u32", atomicMin(p, v))
GW_ATOMIC(atomic_min, i32, "r", "min.s32", atomicMin(p, v))
GW_ATOMIC(atomic_max, u32, "r", "max.u32", atomicMax(p, v))
GW_ATOMIC(atomic_max, i32, "r", "max.s32", atomicMax(p, v))
GW_ATOMIC(atomic_exchange, u32, "r", "exch.b32", atomicExch(p, v))
// Counts up to `v` and wraps to 0; counts down from `v` to 0 and starts there again.
GW_ATOMIC(atomic_inc, u32, "r", "inc.u32", atomicInc(p, v))
GW_ATOMIC(atomic_dec, u32, "r", "dec.u32", atomicDec(p, v))
GW_ATOMIC_UPDATE(atomic_add, u64, u64, "l", "add.u64", atomicAdd(p, v), seen + v)
GW_ATOMIC_UPDATE(atomic_add, f32, u32, "f", "add.f32", atomicAdd(p, v), bits<u32>(__fadd_rn(bits<f32>(seen), v)))
GW_ATOMIC_UPDATE(atomic_add, f64, u64, "d", "add.f64", atomicAdd(p, v), bits<u64>(__dadd_rn(bits<f64>(seen), v)))
GW_ATOMIC_UPDATE(atomic_min, u64, u64, "l", "min.u64", atomicMin(p, v), seen < v ? seen : v)
GW_ATOMIC_UPDATE(atomic_min, i64, u64, "l", "min.s64", atomicMin(p, v), (u64)((i64)seen < v ? (i64)seen : v))
GW_ATOMIC_UPDATE(atomic_max, u64, u64, "l", "max.u64", atomicMax(p, v), seen > v ? seen : v)
GW_ATOMIC_UPDATE(atomic_max, i64, u64, "l", "max.s64", atomicMax(p, v), (u64)((i64)seen > v ? (i64)seen : v))
GW_ATOMIC_UPDATE(atomic_and, u64, u64, "l", "and.b64", atomicAnd(p, v), seen & v)
GW_ATOMIC_UPDATE(atomic_or, u64, u64, "l", "or.b64", atomicOr(p, v), seen | v)
GW_ATOMIC_UPDATE(atomic_xor, u64, u64, "l", "xor.b64", atomicXor(p, v), seen ^ v)
GW_ATOMIC_UPDATE(atomic_exchange, u64, u64, "l", "exch.b64", atomicExch(p, v), v)
#undef GW_ATOMIC_UPDATE
// Two f16 or bf16 in one word, low half first: each half by itself is atomic, rounded once.
#define GW_ATOMIC_PAIR(name, format) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE u32 name(u32* p, u32 v) { \
        if constexpr (SCOPE == Scope::Cluster) { \
            return update_in_cluster<ORDER>(p, [=](u32 seen) -> u32 { \
                u32 sum; \
                asm("add.rn." format " %0, %1, %2;" : "=r"(sum) : "r"(seen), "r"(v)); \
                return sum; \
            }); \
        } \
        u32 before; \
        GW_IN_ORDER("atom", ".add.noftz." format " %0, [%1], %2;", : "=r"(before) : "l"(p), "r"(v) : "memory") \
        return before; \
    }
GW_ATOMIC_PAIR(atomic_add_f16_pair, "f16x2")
GW_ATOMIC_PAIR(atomic_add_bf16_pair, "bf16x2")
#undef GW_ATOMIC_PAIR
#undef GW_ATOMIC

#undef GW_IN_ORDER
#undef GW_IN_SCOPE
#else
namespace emulated {
// `noinline`, so that the return address is the caller's line.
template <class T>
__attribute__((noinline)) T atomic(AtomicOp operation, Order order, Scope scope, const T* p, T value, T compare = T()) {
    void* address = const_cast<T*>(p);
    if constexpr (sizeof(T) == 4) {
        return bits<T>((u32)call::atomic(operation, address, 4, bits<u32>(value), bits<u32>(compare), order, scope, GW_CALLER));
    } else {
        return bits<T>(call::atomic(operation, address, 8, bits<u64>(value), bits<u64>(compare), order, scope, GW_CALLER));
    }
}
}  // namespace emulated

#define GW_ATOMIC(name, type, operation) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE type name(type* p, type v) { \
        return emulated::atomic(emulated::AtomicOp::operation, ORDER, SCOPE, p, v); \
    }
GW_ATOMIC(atomic_add, u32, Add)
GW_ATOMIC(atomic_add, i32, Add)
GW_ATOMIC(atomic_add, u64, Add)
GW_ATOMIC(atomic_add, f32, AddF32)
GW_ATOMIC(atomic_add, f64, AddF64)
GW_ATOMIC(atomic_add_f16_pair, u32, AddF16Pair)
GW_ATOMIC(atomic_add_bf16_pair, u32, AddBf16Pair)
GW_ATOMIC(atomic_inc, u32, Inc)
GW_ATOMIC(atomic_dec, u32, Dec)
GW_ATOMIC(atomic_min, u32, MinU)
GW_ATOMIC(atomic_min, i32, MinS)
GW_ATOMIC(atomic_min, u64, MinU)
GW_ATOMIC(atomic_min, i64, MinS)
GW_ATOMIC(atomic_max, u32, MaxU)
GW_ATOMIC(atomic_max, i32, MaxS)
GW_ATOMIC(atomic_max, u64, MaxU)
GW_ATOMIC(atomic_max, i64, MaxS)
GW_ATOMIC(atomic_and, u32, And)
GW_ATOMIC(atomic_and, u64, And)
GW_ATOMIC(atomic_or, u32, Or)
GW_ATOMIC(atomic_or, u64, Or)
GW_ATOMIC(atomic_xor, u32, Xor)
GW_ATOMIC(atomic_xor, u64, Xor)
GW_ATOMIC(atomic_exchange, u32, Exchange)
GW_ATOMIC(atomic_exchange, u64, Exchange)
#undef GW_ATOMIC

#define GW_ACCESSES(type) \
    template <Order ORDER = Order::Relaxed, Scope SCOPE = Scope::Device> \
    GW_DEVICE type atomic_cas(type* p, type expected, type v) { \
        return emulated::atomic(emulated::AtomicOp::Cas, ORDER, SCOPE, p, v, expected); \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE type load_relaxed(const type* p) { \
        return emulated::atomic(emulated::AtomicOp::Load, Order::Relaxed, SCOPE, p, type()); \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE type load_acquire(const type* p) { \
        return emulated::atomic(emulated::AtomicOp::Load, Order::Acquire, SCOPE, p, type()); \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE void store_relaxed(type* p, type v) { \
        emulated::atomic(emulated::AtomicOp::Store, Order::Relaxed, SCOPE, p, v); \
    } \
    template <Scope SCOPE = Scope::Device> \
    GW_DEVICE void store_release(type* p, type v) { \
        emulated::atomic(emulated::AtomicOp::Store, Order::Release, SCOPE, p, v); \
    }
GW_ACCESSES(u32)
GW_ACCESSES(u64)
#undef GW_ACCESSES
#endif

}  // namespace gw
