#include "gw/gw.cuh"

// out <- `from`, padded with zeros to whole tiles of THREADS elements, each tile in reverse order.
//
// A tile is copied by `cp.async`, BYTES by each thread, into one of two stages of shared memory, while the tile before
// it is read from the other. `bytes` need not be a multiple of anything: the copy that crosses the end reads what there
// is, those behind it read nothing, and the rest becomes zeros.
#define THREADS 128

template <u32 BYTES>
struct ElementOf;
template <>
struct ElementOf<4> {
    typedef u32 type;
};
template <>
struct ElementOf<8> {
    typedef u32x2 type;
};
template <>
struct ElementOf<16> {
    typedef u32x4 type;
};

template <u32 BYTES>
GW_DEVICE void copy_tile(u8* stage, const u8* from, u64 bytes, u32 tile) {
    const u64 at = ((u64)tile * THREADS + gw::thread()) * BYTES;
    const u64 left = at < bytes ? bytes - at : 0;
    gw::copy_async<BYTES>(stage + gw::thread() * BYTES, left ? from + at : from, left < BYTES ? (u32)left : BYTES);
    gw::copy_async_commit();
}

template <u32 BYTES>
GW_DEVICE void pipeline(const u8* from, u8* out, u64 bytes, u32 tiles) {
    typedef typename ElementOf<BYTES>::type Element;
    u8* stages = gw::shared<u8>();
    copy_tile<BYTES>(stages, from, bytes, 0);
    for (u32 tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) {
            copy_tile<BYTES>(stages + (tile + 1) % 2 * THREADS * BYTES, from, bytes, tile + 1);
            gw::copy_async_wait<1>();
        } else {
            gw::copy_async_wait<0>();
        }
        gw::sync_threads();
        const Element* stage = reinterpret_cast<const Element*>(stages + tile % 2 * THREADS * BYTES);
        reinterpret_cast<Element*>(out)[(u64)tile * THREADS + gw::thread()] = stage[THREADS - 1 - gw::thread()];
        // The next turn copies into the stage that this one has read.
        gw::sync_threads();
    }
}

GW_KERNEL_BOUNDED(copy_pipeline_4, THREADS, 1)(const u8* from, u8* out, u64 bytes, u32 tiles) {
    pipeline<4>(from, out, bytes, tiles);
}
GW_KERNEL_BOUNDED(copy_pipeline_8, THREADS, 1)(const u8* from, u8* out, u64 bytes, u32 tiles) {
    pipeline<8>(from, out, bytes, tiles);
}
GW_KERNEL_BOUNDED(copy_pipeline_16, THREADS, 1)(const u8* from, u8* out, u64 bytes, u32 tiles) {
    pipeline<16>(from, out, bytes, tiles);
}
