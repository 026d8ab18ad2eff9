#pragma once
// Cooperative groups on the emulated device: blocks, tiles of a warp, lanes that are together, clusters, the grid.

#include "gw/cuda.cuh"

#ifndef GW_CUDA

namespace gw {
namespace cuda {
// Where the blocks of a cooperative launch meet.
__attribute__((section("gw_variables"), used)) static u32 grid_barrier;
}  // namespace cuda
}  // namespace gw

namespace cooperative_groups {

struct thread_block {
    GW_INLINE static void sync(GW_SITE) { gw::sync_threads(GW_AT); }
    GW_INLINE static unsigned thread_rank() { return gw::thread(); }
    GW_INLINE static unsigned size() { return gw::threads(); }
    GW_INLINE static unsigned num_threads() { return gw::threads(); }
    GW_INLINE static dim3 group_index() { return gw::cuda::block_index(); }
    GW_INLINE static dim3 thread_index() { return gw::cuda::thread_index(); }
    GW_INLINE static dim3 group_dim() { return gw::cuda::block_extent(); }
    GW_INLINE static dim3 dim_threads() { return gw::cuda::block_extent(); }
};
GW_FUNCTION thread_block this_thread_block() { return {}; }

struct grid_group {
    GW_INLINE static void sync(GW_SITE) { gw::sync_grid(&gw::cuda::grid_barrier, GW_AT); }
    GW_INLINE static bool is_valid() { return true; }
    GW_INLINE static unsigned long long block_rank() {
        return gw::block_x() + gw::blocks_x() * (gw::block_y() + (unsigned long long)gw::blocks_y() * gw::block_z());
    }
    GW_INLINE static unsigned long long num_blocks() { return (unsigned long long)gw::blocks_x() * gw::blocks_y() * gw::blocks_z(); }
    GW_INLINE static unsigned long long thread_rank() { return block_rank() * gw::threads() + gw::thread(); }
    GW_INLINE static unsigned long long num_threads() { return num_blocks() * gw::threads(); }
    GW_INLINE static unsigned long long size() { return num_threads(); }
    GW_INLINE static dim3 group_dim() { return gw::cuda::grid_extent(); }
    GW_INLINE static dim3 dim_blocks() { return gw::cuda::grid_extent(); }
    GW_INLINE static dim3 block_index() { return gw::cuda::block_index(); }
};
GW_FUNCTION grid_group this_grid() { return {}; }

struct cluster_group {
    GW_INLINE static void sync(GW_SITE) { gw::sync_cluster(GW_AT); }
    GW_INLINE static void barrier_arrive(GW_SITE) { gw::cluster_arrive(GW_AT); }
    GW_INLINE static void barrier_wait(GW_SITE) { gw::cluster_wait(GW_AT); }
    GW_INLINE static unsigned block_rank() { return gw::cluster_rank(); }
    GW_INLINE static unsigned num_blocks() { return gw::cluster_size(); }
    GW_INLINE static unsigned thread_rank() { return gw::cluster_rank() * gw::threads() + gw::thread(); }
    GW_INLINE static unsigned num_threads() { return gw::cluster_size() * gw::threads(); }
    template <class T>
    GW_INLINE static T* map_shared_rank(T* mine, int rank, GW_SITE) { return gw::cluster_map(mine, (u32)rank, GW_AT); }
};
GW_FUNCTION cluster_group this_cluster() { return {}; }

// Lanes of a warp, by their bits.
class coalesced_group {
  protected:
    u32 mask;
    GW_INLINE u32 lane_of(u32 rank) const {
        u32 rest = mask;
        for (u32 i = 0; i < rank; ++i) rest &= rest - 1;
        return (u32)__builtin_ctz(rest | 0x80000000u);
    }
    // The bits of lanes as bits of ranks.
    GW_INLINE u32 ranks_of(u32 lanes) const {
        u32 ranks = 0, rank = 0;
        for (u32 lane = 0; lane < 32; ++lane) {
            if (mask >> lane & 1) ranks |= (lanes >> lane & 1) << rank++;
        }
        return ranks;
    }

  public:
    GW_INLINE explicit coalesced_group(u32 mask) : mask(mask) {}
    GW_INLINE unsigned size() const { return (unsigned)__builtin_popcount(mask); }
    GW_INLINE unsigned num_threads() const { return size(); }
    GW_INLINE unsigned thread_rank() const { return (unsigned)__builtin_popcount(mask & ((1u << gw::lane()) - 1)); }
    GW_INLINE void sync(GW_SITE) const { gw::sync_warp(mask, GW_AT); }
    template <class T>
    GW_INLINE T shfl(T value, int rank, GW_SITE) const { return gw::cuda::exchanged(value, lane_of((u32)rank % size()), mask, GW_AT); }
    template <class T>
    GW_INLINE T shfl_up(T value, unsigned distance, GW_SITE) const {
        const u32 rank = thread_rank();
        return gw::cuda::exchanged(value, lane_of(rank < distance ? rank : rank - distance), mask, GW_AT);
    }
    template <class T>
    GW_INLINE T shfl_down(T value, unsigned distance, GW_SITE) const {
        const u32 rank = thread_rank();
        return gw::cuda::exchanged(value, lane_of(rank + distance >= size() ? rank : rank + distance), mask, GW_AT);
    }
    GW_INLINE int any(int predicate, GW_SITE) const { return gw::any(predicate != 0, mask, GW_AT); }
    GW_INLINE int all(int predicate, GW_SITE) const { return gw::all(predicate != 0, mask, GW_AT); }
    GW_INLINE unsigned ballot(int predicate, GW_SITE) const { return ranks_of(gw::ballot(predicate != 0, mask, GW_AT)); }
    template <class T>
    GW_INLINE unsigned match_any(T value, GW_SITE) const {
        static_assert(sizeof(T) == 4, "values of 32 bits");
        return ranks_of(gw::match_any(gw::bits<u32>(value), mask, GW_AT));
    }
};
// The caller is one of them, and no more is promised.
GW_FUNCTION coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// SIZE neighbours of a warp.
template <unsigned SIZE, class Parent = thread_block>
class thread_block_tile : public coalesced_group {
    static_assert(SIZE <= 32 && (SIZE & (SIZE - 1)) == 0 && SIZE > 0, "tiles of 1, 2, 4, 8, 16 or 32 threads");
    GW_INLINE static u32 first() { return gw::lane() & ~(SIZE - 1); }

  public:
    GW_INLINE thread_block_tile() : coalesced_group((SIZE == 32 ? ~0u : (1u << (SIZE % 32)) - 1) << first()) {}
    GW_INLINE static constexpr unsigned size() { return SIZE; }
    GW_INLINE static constexpr unsigned num_threads() { return SIZE; }
    GW_INLINE static unsigned thread_rank() { return gw::lane() & (SIZE - 1); }
    GW_INLINE static unsigned meta_group_size() { return (gw::threads() + SIZE - 1) / SIZE; }
    GW_INLINE static unsigned meta_group_rank() { return gw::thread() / SIZE; }
    template <class T>
    GW_INLINE T shfl_xor(T value, unsigned lanes, GW_SITE) const {
        return gw::cuda::exchanged(value, first() + ((thread_rank() ^ lanes) & (SIZE - 1)), mask, GW_AT);
    }
};
template <unsigned SIZE, class Parent>
GW_FUNCTION thread_block_tile<SIZE, Parent> tiled_partition(const Parent&) {
    return {};
}

template <class Group>
GW_FUNCTION void sync(const Group& group, GW_SITE) { group.sync(GW_AT); }
template <class Group>
GW_FUNCTION auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group>
GW_FUNCTION auto group_size(const Group& group) { return group.size(); }

template <class T> struct plus { GW_INLINE T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { GW_INLINE T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { GW_INLINE T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { GW_INLINE T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { GW_INLINE T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { GW_INLINE T operator()(T a, T b) const { return a ^ b; } };

// What all threads of the group have, combined in the order of their ranks.
template <class Group, class T, class Operation>
GW_FUNCTION T reduce(const Group& group, T value, Operation operation, GW_SITE) {
    T all = group.shfl(value, 0, GW_AT);
    for (u32 rank = 1; rank < group.size(); ++rank) all = operation(all, group.shfl(value, (int)rank, GW_AT));
    return all;
}

}  // namespace cooperative_groups

#endif  // GW_CUDA
