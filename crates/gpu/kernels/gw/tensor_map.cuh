#pragma once
// Bulk copies of boxes of a tensor, which a `TensorMap` of the host describes: one to three dimensions, the innermost first.
// Coordinates are those of the box's first element, and may lie outside: what is loaded from there is zero, what is stored
// there is lost. The innermost stands for a multiple of 16 bytes, and those of a store are not negative. A box lies in shared memory at a multiple of 128 bytes, of 8
// rows if it is swizzled.

#include "gw/bulk.cuh"
#include "gw/emulated.cuh"
#include "gw/mbarrier.cuh"

namespace gw {

#ifdef GW_CUDA
struct alignas(64) TensorMap {
    u64 words[16];
};
// A parameter of a kernel: the hardware reads it where the launch put it.
#define GW_TENSOR_MAP(name) const __grid_constant__ gw::TensorMap name

#define GW_TENSOR_COPIES(rank, coordinates, corner, load_at, store_at, ...) \
    /* Global to shared; the whole box's bytes count towards the current phase of `barrier`. */ \
    GW_DEVICE void bulk_tensor_load(void* to, const TensorMap& map, Mbarrier* barrier, GW_LIST coordinates) { \
        asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " load_at \
                     "], [%2];" ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), GW_LIST corner : "memory"); \
    } \
    /* The same to every block of the cluster whose bit is set, each with its own `barrier`. */ \
    GW_DEVICE void bulk_tensor_load_multicast(void* to, const TensorMap& map, Mbarrier* barrier, u16 blocks, \
                                              GW_LIST coordinates) { \
        asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster " \
                     "[%0], [%1, " __VA_ARGS__ "], [%2], %3;" ::"r"(shared_address(to)), "l"(&map), \
                     "r"(shared_address(barrier)), "h"(blocks), GW_LIST corner : "memory"); \
    } \
    /* Shared to global, in groups of the issuing thread. */ \
    GW_DEVICE void bulk_tensor_store(const TensorMap& map, const void* from, GW_LIST coordinates) { \
        asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group [%0, " store_at "], [%1];" ::"l"(&map), \
                     "r"(shared_address(from)), GW_LIST corner : "memory"); \
    } \
    /* Brings the box into the level-2 cache. Operand 1 is there so that coordinates are numbered as for a store. */ \
    GW_DEVICE void bulk_tensor_prefetch(const TensorMap& map, GW_LIST coordinates) { \
        asm volatile("cp.async.bulk.prefetch.tensor." rank ".L2.global [%0, " store_at "];" ::"l"(&map), "r"(0), \
                     GW_LIST corner : "memory"); \
    }
#define GW_LIST(...) __VA_ARGS__
GW_TENSOR_COPIES("1d", (i32 x), ("r"(x)), "{%3}", "{%2}", "{%4}")
GW_TENSOR_COPIES("2d", (i32 x, i32 y), ("r"(x), "r"(y)), "{%3, %4}", "{%2, %3}", "{%4, %5}")
GW_TENSOR_COPIES("3d", (i32 x, i32 y, i32 z), ("r"(x), "r"(y), "r"(z)), "{%3, %4, %5}", "{%2, %3, %4}", "{%4, %5, %6}")
#undef GW_LIST
#undef GW_TENSOR_COPIES
// Brings the map itself near, ahead of its first copy.
GW_DEVICE void tensor_map_prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
#else
struct TensorMap {
    u64 words[16];
};
#define GW_TENSOR_MAP(name) const gw::TensorMap& name

#define GW_TENSOR_COPIES(rank, coordinates, corner) \
    GW_DEVICE void bulk_tensor_load(void* to, const TensorMap& map, Mbarrier* barrier, GW_LIST coordinates, GW_SITE) { \
        const i32 at[] = {GW_LIST corner}; \
        emulated::call::tensor_load(&map, to, barrier, at, rank, 0, GW_AT); \
    } \
    GW_DEVICE void bulk_tensor_load_multicast(void* to, const TensorMap& map, Mbarrier* barrier, u16 blocks, \
                                              GW_LIST coordinates, GW_SITE) { \
        const i32 at[] = {GW_LIST corner}; \
        emulated::call::tensor_load(&map, to, barrier, at, rank, blocks == 0 ? ~0u : blocks, GW_AT); \
    } \
    GW_DEVICE void bulk_tensor_store(const TensorMap& map, const void* from, GW_LIST coordinates, GW_SITE) { \
        const i32 at[] = {GW_LIST corner}; \
        emulated::call::tensor_store(&map, from, at, rank, GW_AT); \
    } \
    GW_DEVICE void bulk_tensor_prefetch(const TensorMap& map, GW_LIST coordinates, GW_SITE) { \
        const i32 at[] = {GW_LIST corner}; \
        emulated::call::tensor_prefetch(&map, at, rank, GW_AT); \
    }
#define GW_LIST(...) __VA_ARGS__
GW_TENSOR_COPIES(1, (i32 x), (x))
GW_TENSOR_COPIES(2, (i32 x, i32 y), (x, y))
GW_TENSOR_COPIES(3, (i32 x, i32 y, i32 z), (x, y, z))
#undef GW_LIST
#undef GW_TENSOR_COPIES
GW_DEVICE void tensor_map_prefetch(const TensorMap&) {}
#endif

}  // namespace gw
