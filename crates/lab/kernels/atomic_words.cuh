#include "gw/gw.cuh"

// Atomic operations by many threads on the same cells, with results that do not depend on the order.
//
// A cell is 8 bytes; operations on 4 use the low half. Every thread applies its word to every cell, in an order of its
// own, first on cells of its block's shared memory, then on `cells`, which all blocks share. block_cells[block] gets the
// former. Both start as `initial`.
//
// Exchanges are checked by what they return: each value put in comes out once, so that all that came out and what is left
// add up to what was put in. EXCHANGED + 1 and EXCHANGED_64 + 1 hold the sums of what came out.
#define ADD 0
#define ADD_I32 1
#define ADD_64 2
#define ADD_F32 3
#define ADD_F64 4
#define INC 5
#define MIN 6
#define MIN_I32 7
#define MIN_64 8
#define MAX 9
#define MAX_I32 10
#define MAX_64 11
#define AND 12
#define OR 13
#define XOR 14
#define EXCHANGED 15
#define EXCHANGED_64 17
#define CAS 19
#define CAS_64 20
#define CELLS 21
#define INC_LIMIT 9

template <class T>
GW_DEVICE T* as(u64* cell) {
    return reinterpret_cast<T*>(cell);
}

template <class T>
GW_DEVICE void add_by_cas(T* cell, T value) {
    T seen = gw::load_relaxed(cell);
    for (;;) {
        const T before = gw::atomic_cas(cell, seen, (T)(seen + value));
        if (before == seen) return;
        seen = before;
    }
}

GW_DEVICE void apply(u64* cells, u32 word, u64 wide, u32 operation) {
    // Small integers: floating-point sums of them are exact in any order.
    const i32 small = (i32)(word % 201) - 100;
    // Few threads have a bit, so that not all bits are taken in the end.
    const u32 bit = word % 256 < 32 ? 1u << word % 256 : 0;
    u64* cell = cells + operation;
    switch (operation) {
        case ADD: gw::atomic_add(as<u32>(cell), word); break;
        case ADD_I32: gw::atomic_add(as<i32>(cell), small); break;
        case ADD_64: gw::atomic_add(cell, wide); break;
        case ADD_F32: gw::atomic_add(as<f32>(cell), (f32)small); break;
        case ADD_F64: gw::atomic_add(as<f64>(cell), (f64)small); break;
        case INC: gw::atomic_inc(as<u32>(cell), INC_LIMIT); break;
        case MIN: gw::atomic_min(as<u32>(cell), word); break;
        case MIN_I32: gw::atomic_min(as<i32>(cell), (i32)word); break;
        case MIN_64: gw::atomic_min(cell, wide); break;
        case MAX: gw::atomic_max(as<u32>(cell), word); break;
        case MAX_I32: gw::atomic_max(as<i32>(cell), (i32)word); break;
        case MAX_64: gw::atomic_max(cell, wide); break;
        case AND: gw::atomic_and(as<u32>(cell), ~bit); break;
        case OR: gw::atomic_or(as<u32>(cell), bit); break;
        case XOR: gw::atomic_xor(as<u32>(cell), word); break;
        case EXCHANGED: gw::atomic_add(as<u32>(cell + 1), gw::atomic_exchange(as<u32>(cell), word)); break;
        case EXCHANGED_64: gw::atomic_add(cell + 1, gw::atomic_exchange(cell, wide)); break;
        case CAS: add_by_cas(as<u32>(cell), word); break;
        case CAS_64: add_by_cas(cell, wide); break;
    }
}

GW_KERNEL(atomic_words)(const u32* words, const u64* longs, const u64* initial, u64* block_cells, u64* cells, u32* tickets,
                        u32* next_ticket) {
    u64* shared_cells = gw::shared<u64>();
    const u64 thread = gw::global_thread();
    const u32 word = words[thread];
    const u64 wide = longs[thread];
    if (gw::thread() < CELLS) shared_cells[gw::thread()] = initial[gw::thread()];
    gw::sync_threads();
    for (u32 i = 0; i < CELLS; ++i) apply(shared_cells, word, wide, (i + gw::thread()) % CELLS);
    gw::sync_threads();
    if (gw::thread() < CELLS) block_cells[gw::block_x() * CELLS + gw::thread()] = shared_cells[gw::thread()];
    for (u32 i = 0; i < CELLS; ++i) apply(cells, word, wide, (i + gw::thread()) % CELLS);
    // Every number is drawn once.
    const u32 ticket = gw::atomic_add(next_ticket, 1u);
    tickets[ticket] = ticket;
}
