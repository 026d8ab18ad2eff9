#include "gw/gw.cuh"

// What the lanes of a warp tell each other, one result for each kind of call and thread: out[call][thread], in the order
// of the calls below. Only the lanes of `mask` call; the others' results are 0.

struct Results {
    u64* out;
    u64 pitch;

    GW_DEVICE void add(u64 value) {
        *out = value;
        out += pitch;
    }
};

GW_DEVICE bool is_in(u32 mask) { return mask >> gw::lane() & 1; }
GW_DEVICE u64 widened(f32 value) { return gw::bits<u32>(value); }

// Shuffles of 4 and 8 bytes: from lane `sources[thread]`, then up, down and across by `distance`.
GW_KERNEL(warp_shuffle)(const u32* words, const u64* longs, const f32* floats, const u32* sources, u64* out, u32 mask,
                        u32 distance) {
    const u64 thread = gw::global_thread();
    const u32 word = words[thread], source = sources[thread];
    const u64 wide = longs[thread];
    const f32 number = floats[thread];
    Results results = {out + thread, gw::global_threads()};
    if (!is_in(mask)) {
        for (u32 call = 0; call < 12; ++call) results.add(0);
        return;
    }
    results.add(gw::shuffle(word, source, mask));
    results.add(gw::shuffle(wide, source, mask));
    results.add(widened(gw::shuffle(number, source, mask)));
    results.add(gw::shuffle_up(word, distance, mask));
    results.add(gw::shuffle_up(wide, distance, mask));
    results.add(widened(gw::shuffle_up(number, distance, mask)));
    results.add(gw::shuffle_down(word, distance, mask));
    results.add(gw::shuffle_down(wide, distance, mask));
    results.add(widened(gw::shuffle_down(number, distance, mask)));
    results.add(gw::shuffle_xor(word, distance, mask));
    results.add(gw::shuffle_xor(wide, distance, mask));
    results.add(widened(gw::shuffle_xor(number, distance, mask)));
}

// Votes, matches and reductions; and last the word of the next lane of the mask, by way of shared memory, which holds one
// word a thread.
GW_KERNEL(warp_vote)(const u32* words, u64* out, u32 mask) {
    const u64 thread = gw::global_thread();
    const u32 word = words[thread];
    Results results = {out + thread, gw::global_threads()};
    if (!is_in(mask)) {
        for (u32 call = 0; call < 17; ++call) results.add(0);
        return;
    }
    const bool odd = word & 1;
    const bool below = gw::lane() < 32;
    results.add(gw::ballot(odd, mask));
    results.add(gw::any(odd, mask));
    results.add(gw::all(odd, mask));
    results.add(gw::any(!below, mask));
    results.add(gw::all(below, mask));
    results.add(gw::match_any(word % 4, mask));
    results.add(gw::match_all(word % 4, mask));
    results.add(gw::match_all(mask, mask));
    results.add(gw::reduce_add(word, mask));
    results.add(gw::reduce_min(word, mask));
    results.add(gw::reduce_max(word, mask));
    results.add((u32)gw::reduce_min((i32)word, mask));
    results.add((u32)gw::reduce_max((i32)word, mask));
    // Each lane clears, or sets, one bit: which ones are left shows who took part.
    results.add(gw::reduce_and(~(1u << word % 32), mask));
    results.add(gw::reduce_or(1u << word % 32, mask));
    results.add(gw::reduce_xor(word, mask));

    u32* slots = gw::shared<u32>() + 32 * gw::warp();
    const u32 rank = gw::count_ones(mask & ((1u << gw::lane()) - 1)), lanes = gw::count_ones(mask);
    slots[rank] = word;
    gw::sync_warp(mask);
    results.add(slots[(rank + 1) % lanes]);
}
