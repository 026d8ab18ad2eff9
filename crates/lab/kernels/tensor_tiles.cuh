#include "gw/gw.cuh"

// images[b] <- the box of `from` at corner b, as it lies in shared memory; the box with all bits inverted goes to the tensor
// `to`, at another corner. One block of 64 threads a box; corners[b] holds three coordinates of the one and three of the
// other, the innermost first. Shared memory for two boxes, each at a multiple of 1024, and a barrier.

template <u32 RANK>
GW_DEVICE void load(u32* box, const gw::TensorMap& from, gw::Mbarrier* full, const i32* at) {
    if constexpr (RANK == 1) gw::bulk_tensor_load(box, from, full, at[0]);
    if constexpr (RANK == 2) gw::bulk_tensor_load(box, from, full, at[0], at[1]);
    if constexpr (RANK == 3) gw::bulk_tensor_load(box, from, full, at[0], at[1], at[2]);
}

template <u32 RANK>
GW_DEVICE void store(const gw::TensorMap& to, const u32* box, const i32* at) {
    if constexpr (RANK == 1) gw::bulk_tensor_store(to, box, at[0]);
    if constexpr (RANK == 2) gw::bulk_tensor_store(to, box, at[0], at[1]);
    if constexpr (RANK == 3) gw::bulk_tensor_store(to, box, at[0], at[1], at[2]);
}

template <u32 RANK>
GW_DEVICE void prefetch(const gw::TensorMap& from, const i32* at) {
    gw::tensor_map_prefetch(from);
    if constexpr (RANK == 1) gw::bulk_tensor_prefetch(from, at[0]);
    if constexpr (RANK == 2) gw::bulk_tensor_prefetch(from, at[0], at[1]);
    if constexpr (RANK == 3) gw::bulk_tensor_prefetch(from, at[0], at[1], at[2]);
}

template <u32 RANK>
GW_DEVICE void tiles(const gw::TensorMap& from, const gw::TensorMap& to, const i32* corners, u32* images, u32 box_bytes) {
    const u32 room = (box_bytes + 1023) / 1024 * 1024;
    u32* box = gw::shared<u32>();
    u32* inverted = gw::shared<u32>(room);
    gw::Mbarrier* full = gw::shared<gw::Mbarrier>(2 * room);
    const i32* at = corners + 6 * gw::block_x();
    if (gw::thread() == 0) {
        prefetch<RANK>(from, at);
        gw::mbarrier_init(full, 1);
        gw::fence_mbarrier_init();
    }
    gw::sync_threads();
    if (gw::thread() == 0) {
        gw::mbarrier_arrive_expect(full, box_bytes);
        load<RANK>(box, from, full, at);
    }
    gw::mbarrier_wait(full, 0);
    for (u32 i = gw::thread(); i < box_bytes / 4; i += gw::threads()) {
        images[(u64)gw::block_x() * (box_bytes / 4) + i] = box[i];
        inverted[i] = ~box[i];
    }
    gw::fence_async_proxy_shared();
    gw::sync_threads();
    if (gw::thread() == 0) {
        store<RANK>(to, inverted, at + 3);
        gw::bulk_commit();
        gw::bulk_wait<0>();
    }
}

GW_KERNEL(tensor_tiles_1)(GW_TENSOR_MAP(from), GW_TENSOR_MAP(to), const i32* corners, u32* images, u32 box_bytes) {
    tiles<1>(from, to, corners, images, box_bytes);
}
GW_KERNEL(tensor_tiles_2)(GW_TENSOR_MAP(from), GW_TENSOR_MAP(to), const i32* corners, u32* images, u32 box_bytes) {
    tiles<2>(from, to, corners, images, box_bytes);
}
GW_KERNEL(tensor_tiles_3)(GW_TENSOR_MAP(from), GW_TENSOR_MAP(to), const i32* corners, u32* images, u32 box_bytes) {
    tiles<3>(from, to, corners, images, box_bytes);
}
