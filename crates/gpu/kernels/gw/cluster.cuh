#pragma once
// Thread-block clusters (`Grid::cluster`): where a block is in its cluster, the cluster's barrier, and the shared memory of
// its other blocks. A launch without clusters has clusters of one block.
//
// A block's shared memory is there from when the block has started until it ends: the blocks meet at a cluster barrier
// before they first touch each other's, and again after the last time.

#include "gw/bulk.cuh"
#include "gw/emulated.cuh"
#include "gw/mbarrier.cuh"
#include "gw/memory.cuh"

namespace gw {

#ifdef GW_CUDA
#define GW_SPECIAL_REGISTER(name, text) \
    GW_DEVICE u32 name() { \
        u32 value; \
        asm("mov.u32 %0, %%" text ";" : "=r"(value)); \
        return value; \
    }
// The block's number in its cluster, and how many blocks that has.
GW_SPECIAL_REGISTER(cluster_rank, "cluster_ctarank")
GW_SPECIAL_REGISTER(cluster_size, "cluster_nctarank")
// The cluster's place in the grid, and how many there are.
GW_SPECIAL_REGISTER(cluster_x, "clusterid.x")
GW_SPECIAL_REGISTER(cluster_y, "clusterid.y")
GW_SPECIAL_REGISTER(cluster_z, "clusterid.z")
GW_SPECIAL_REGISTER(clusters_x, "nclusterid.x")
GW_SPECIAL_REGISTER(clusters_y, "nclusterid.y")
GW_SPECIAL_REGISTER(clusters_z, "nclusterid.z")
#undef GW_SPECIAL_REGISTER

// Every thread of the cluster arrives and then waits; what it did before it arrived is seen by all after they waited. Those
// that have ended are not waited for.
GW_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
// Arrives without a word on memory: mbarriers alone, behind `fence_mbarrier_init`, are known to all after it.
GW_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
GW_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// Where `mine`, an address in this block's shared memory, lies in the block of that rank: to be read, written and updated
// like any other.
template <class T>
GW_DEVICE T* cluster_map(T* mine, u32 rank) {
    u64 mapped;
    asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(mine), "r"(rank));
    return reinterpret_cast<T*>(mapped);
}
GW_DEVICE u32 cluster_shared_address(const void* mine, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(mine)), "r"(rank));
    return mapped;
}
// Arrives at the barrier that lies in the block of that rank where `b` lies in this one. It waits by
// `mbarrier_wait<Scope::Cluster>`.
GW_DEVICE void mbarrier_arrive_at(Mbarrier* b, u32 rank, u32 count = 1) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(cluster_shared_address(b, rank)),
                 "r"(count) : "memory");
}
GW_DEVICE void mbarrier_arrive_expect_at(Mbarrier* b, u32 rank, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     cluster_shared_address(b, rank)), "r"(bytes) : "memory");
}
// Bulk copy from this block's shared memory to the place of `to` in the block of that rank, whose `barrier` counts it.
GW_DEVICE void bulk_send(void* to, u32 rank, const void* from, u32 bytes, Mbarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     cluster_shared_address(to, rank)), "r"(shared_address(from)), "r"(bytes),
                 "r"(cluster_shared_address(barrier, rank)) : "memory");
}
// Bulk copy from global memory to the place of `to` in every block whose bit is set in `blocks`, each with its own `barrier`.
GW_DEVICE void bulk_load_multicast(void* to, const void* from, u32 bytes, Mbarrier* barrier, u16 blocks) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
            shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(blocks) : "memory");
}
#else
GW_DEVICE u32 cluster_rank() { return emulated::call::index(emulated::Index::Rank, 0); }
GW_DEVICE u32 cluster_size() { return emulated::call::index(emulated::Index::ClusterSize, 0); }
GW_DEVICE u32 cluster_x() { return emulated::call::index(emulated::Index::Cluster, 0); }
GW_DEVICE u32 cluster_y() { return emulated::call::index(emulated::Index::Cluster, 1); }
GW_DEVICE u32 cluster_z() { return emulated::call::index(emulated::Index::Cluster, 2); }
GW_DEVICE u32 clusters_x() { return emulated::call::index(emulated::Index::Clusters, 0); }
GW_DEVICE u32 clusters_y() { return emulated::call::index(emulated::Index::Clusters, 1); }
GW_DEVICE u32 clusters_z() { return emulated::call::index(emulated::Index::Clusters, 2); }

GW_DEVICE void cluster_arrive(GW_SITE) { emulated::call::cluster_arrive(1, GW_AT); }
GW_DEVICE void cluster_arrive_relaxed(GW_SITE) { emulated::call::cluster_arrive(0, GW_AT); }
GW_DEVICE void cluster_wait(GW_SITE) { emulated::call::cluster_wait(GW_AT); }

template <class T>
GW_DEVICE T* cluster_map(T* mine, u32 rank, GW_SITE) {
    return static_cast<T*>(emulated::call::cluster_map(const_cast<void*>(static_cast<const void*>(mine)), rank, GW_AT));
}
GW_DEVICE void mbarrier_arrive_at(Mbarrier* b, u32 rank, u32 count = 1, GW_SITE) {
    emulated::call::mbarrier_arrive(cluster_map(b, rank, GW_AT), count, 0, GW_AT);
}
GW_DEVICE void mbarrier_arrive_expect_at(Mbarrier* b, u32 rank, u32 bytes, GW_SITE) {
    emulated::call::mbarrier_arrive(cluster_map(b, rank, GW_AT), 1, bytes, GW_AT);
}
GW_DEVICE void bulk_send(void* to, u32 rank, const void* from, u32 bytes, Mbarrier* barrier, GW_SITE) {
    emulated::call::bulk_send(emulated::call::cluster_map(to, rank, GW_AT), from, bytes, cluster_map(barrier, rank, GW_AT), GW_AT);
}
GW_DEVICE void bulk_load_multicast(void* to, const void* from, u32 bytes, Mbarrier* barrier, u16 blocks, GW_SITE) {
    emulated::call::bulk_load_multicast(to, from, bytes, barrier, blocks, GW_AT);
}
#endif

// All threads of the cluster.
#ifdef GW_CUDA
GW_DEVICE void sync_cluster() {
    cluster_arrive();
    cluster_wait();
}
#else
GW_DEVICE void sync_cluster(GW_SITE) {
    cluster_arrive(GW_AT);
    cluster_wait(GW_AT);
}
#endif

}  // namespace gw
