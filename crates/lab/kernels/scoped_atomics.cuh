#include "gw/gw.cuh"

// Atomic operations of every scope and order on the same cells, with results that do not depend on the order of threads.
//
// A cell is 8 bytes. Every thread applies its words to every cell of four sets: of its block, in shared memory; of its
// cluster, in the shared memory of its block 0; of the device; and once more of the device, in the system's scope.
// block_cells[block] and cluster_cells[cluster] get the first two. All start as `initial`.
#define ADD 0
#define ADD_64 1
#define MIN_I64 2
#define MAX_I64 3
#define AND_64 4
#define OR_64 5
#define XOR_64 6
#define DEC 7
#define ADD_F16 8
#define ADD_BF16 9
#define CAS_64 10
#define ADD_F32 11
#define ADD_F64 12
#define CELLS 13
#define DEC_LIMIT 9

template <class T>
GW_DEVICE T* as(u64* cell) {
    return reinterpret_cast<T*>(cell);
}

template <gw::Order ORDER, gw::Scope SCOPE>
GW_DEVICE void apply(u64* cells, u32 word, u64 wide, u32 operation) {
    // Small integers: sums of them are exact in any order.
    const f32 low = (f32)(word % 3) - 1.0f, high = (f32)(word / 3 % 3) - 1.0f;
    const u64 bit = word % 256 < 64 ? 1ull << word % 256 : 0;
    u64* cell = cells + operation;
    switch (operation) {
        case ADD: gw::atomic_add<ORDER, SCOPE>(as<u32>(cell), word); break;
        case ADD_64: gw::atomic_add<ORDER, SCOPE>(cell, wide); break;
        case MIN_I64: gw::atomic_min<ORDER, SCOPE>(as<i64>(cell), (i64)wide); break;
        case MAX_I64: gw::atomic_max<ORDER, SCOPE>(as<i64>(cell), (i64)wide); break;
        case AND_64: gw::atomic_and<ORDER, SCOPE>(cell, ~bit); break;
        case OR_64: gw::atomic_or<ORDER, SCOPE>(cell, bit); break;
        case XOR_64: gw::atomic_xor<ORDER, SCOPE>(cell, wide); break;
        case DEC: gw::atomic_dec<ORDER, SCOPE>(as<u32>(cell), DEC_LIMIT); break;
        case ADD_F16:
            gw::atomic_add_f16_pair<ORDER, SCOPE>(as<u32>(cell), gw::f32_to_f16(low) | gw::f32_to_f16(high) << 16);
            break;
        case ADD_BF16:
            gw::atomic_add_bf16_pair<ORDER, SCOPE>(as<u32>(cell), gw::f32_to_bf16(low) | gw::f32_to_bf16(high) << 16);
            break;
        case ADD_F32: gw::atomic_add<ORDER, SCOPE>(as<f32>(cell), low); break;
        case ADD_F64: gw::atomic_add<ORDER, SCOPE>(as<f64>(cell), (f64)high); break;
        case CAS_64: {
            u64 seen = gw::load_relaxed<SCOPE>(cell);
            for (;;) {
                const u64 before = gw::atomic_cas<ORDER, SCOPE>(cell, seen, seen + wide);
                if (before == seen) return;
                seen = before;
            }
        }
    }
}

GW_KERNEL(scoped_atomics)
(const u32* words, const u64* longs, const u64* initial, u64* block_cells, u64* cluster_cells, u64* device_cells,
 u64* system_cells) {
    u64* of_block = gw::shared<u64>();
    u64* of_cluster = of_block + CELLS;
    const u64 thread = gw::global_thread();
    const u32 word = words[thread];
    const u64 wide = longs[thread];
    const u32 first = gw::thread() % CELLS;
    if (gw::thread() < CELLS) of_block[gw::thread()] = of_cluster[gw::thread()] = initial[gw::thread()];
    gw::sync_cluster();
    u64* met = gw::cluster_map(of_cluster, 0);
    for (u32 i = 0; i < CELLS; ++i) {
        const u32 operation = (first + i) % CELLS;
        apply<gw::Order::Relaxed, gw::Scope::Block>(of_block, word, wide, operation);
        apply<gw::Order::AcquireRelease, gw::Scope::Cluster>(met, word, wide, operation);
        apply<gw::Order::Release, gw::Scope::Device>(device_cells, word, wide, operation);
        apply<gw::Order::Acquire, gw::Scope::System>(system_cells, word, wide, operation);
    }
    gw::sync_cluster();
    if (gw::thread() < CELLS) {
        block_cells[gw::block_x() * CELLS + gw::thread()] = of_block[gw::thread()];
        if (gw::cluster_rank() == 0) cluster_cells[gw::cluster_x() * CELLS + gw::thread()] = of_cluster[gw::thread()];
    }
}
