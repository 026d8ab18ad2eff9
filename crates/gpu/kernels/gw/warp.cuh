#pragma once
// What the threads of a warp tell each other without memory. None of it orders memory: `sync_warp` does.

#include "gw/emulated.cuh"

namespace gw {

#ifdef GW_CUDA
template <class T>
GW_DEVICE T shuffle(T value, u32 lane, u32 mask = ~0u) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return bits<T>(__shfl_sync(mask, bits<u32>(value), lane));
    else return bits<T>(__shfl_sync(mask, bits<u64>(value), lane));
}
template <class T>
GW_DEVICE T shuffle_xor(T value, u32 lanes, u32 mask = ~0u) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return bits<T>(__shfl_xor_sync(mask, bits<u32>(value), lanes));
    else return bits<T>(__shfl_xor_sync(mask, bits<u64>(value), lanes));
}
template <class T>
GW_DEVICE T shuffle_up(T value, u32 lanes, u32 mask = ~0u) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return bits<T>(__shfl_up_sync(mask, bits<u32>(value), lanes));
    else return bits<T>(__shfl_up_sync(mask, bits<u64>(value), lanes));
}
template <class T>
GW_DEVICE T shuffle_down(T value, u32 lanes, u32 mask = ~0u) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return bits<T>(__shfl_down_sync(mask, bits<u32>(value), lanes));
    else return bits<T>(__shfl_down_sync(mask, bits<u64>(value), lanes));
}
GW_DEVICE u32 ballot(bool predicate, u32 mask = ~0u) { return __ballot_sync(mask, predicate); }
GW_DEVICE bool any(bool predicate, u32 mask = ~0u) { return __any_sync(mask, predicate); }
GW_DEVICE bool all(bool predicate, u32 mask = ~0u) { return __all_sync(mask, predicate); }
// The lanes that hold the same value.
GW_DEVICE u32 match_any(u32 value, u32 mask = ~0u) { return __match_any_sync(mask, value); }
// `mask` if all lanes hold the same value, else 0.
GW_DEVICE u32 match_all(u32 value, u32 mask = ~0u) {
    int same;
    return __match_all_sync(mask, value, &same);
}
GW_DEVICE u32 reduce_add(u32 value, u32 mask = ~0u) { return __reduce_add_sync(mask, value); }
GW_DEVICE u32 reduce_min(u32 value, u32 mask = ~0u) { return __reduce_min_sync(mask, value); }
GW_DEVICE u32 reduce_max(u32 value, u32 mask = ~0u) { return __reduce_max_sync(mask, value); }
GW_DEVICE i32 reduce_min(i32 value, u32 mask = ~0u) { return __reduce_min_sync(mask, value); }
GW_DEVICE i32 reduce_max(i32 value, u32 mask = ~0u) { return __reduce_max_sync(mask, value); }
GW_DEVICE u32 reduce_and(u32 value, u32 mask = ~0u) { return __reduce_and_sync(mask, value); }
GW_DEVICE u32 reduce_or(u32 value, u32 mask = ~0u) { return __reduce_or_sync(mask, value); }
GW_DEVICE u32 reduce_xor(u32 value, u32 mask = ~0u) { return __reduce_xor_sync(mask, value); }
#else
namespace emulated {
template <class T>
GW_DEVICE T exchange(ExchangeOp operation, T value, u32 argument, u32 mask, GW_SITE) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
    if constexpr (sizeof(T) == 4) return bits<T>((u32)call::exchange(operation, mask, bits<u32>(value), argument, 4, GW_AT));
    else return bits<T>(call::exchange(operation, mask, bits<u64>(value), argument, 8, GW_AT));
}
}  // namespace emulated

template <class T>
GW_DEVICE T shuffle(T value, u32 lane, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::Shuffle, value, lane, mask, GW_AT);
}
template <class T>
GW_DEVICE T shuffle_xor(T value, u32 lanes, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::ShuffleXor, value, lanes, mask, GW_AT);
}
template <class T>
GW_DEVICE T shuffle_up(T value, u32 lanes, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::ShuffleUp, value, lanes, mask, GW_AT);
}
template <class T>
GW_DEVICE T shuffle_down(T value, u32 lanes, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::ShuffleDown, value, lanes, mask, GW_AT);
}
GW_DEVICE u32 ballot(bool predicate, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::Ballot, (u32)predicate, 0, mask, GW_AT);
}
GW_DEVICE bool any(bool predicate, u32 mask = ~0u, GW_SITE) { return ballot(predicate, mask, GW_AT) != 0; }
GW_DEVICE bool all(bool predicate, u32 mask = ~0u, GW_SITE) { return ballot(!predicate, mask, GW_AT) == 0; }
GW_DEVICE u32 match_any(u32 value, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::MatchAny, value, 0, mask, GW_AT);
}
GW_DEVICE u32 match_all(u32 value, u32 mask = ~0u, GW_SITE) {
    return emulated::exchange(emulated::ExchangeOp::MatchAll, value, 0, mask, GW_AT);
}
#define GW_WARP_REDUCE(name, type, operation) \
    GW_DEVICE type name(type value, u32 mask = ~0u, GW_SITE) { \
        return emulated::exchange(emulated::ExchangeOp::operation, value, 0, mask, GW_AT); \
    }
GW_WARP_REDUCE(reduce_add, u32, ReduceAdd)
GW_WARP_REDUCE(reduce_min, u32, ReduceMinU)
GW_WARP_REDUCE(reduce_max, u32, ReduceMaxU)
GW_WARP_REDUCE(reduce_min, i32, ReduceMinS)
GW_WARP_REDUCE(reduce_max, i32, ReduceMaxS)
GW_WARP_REDUCE(reduce_and, u32, ReduceAnd)
GW_WARP_REDUCE(reduce_or, u32, ReduceOr)
GW_WARP_REDUCE(reduce_xor, u32, ReduceXor)
#undef GW_WARP_REDUCE
#endif

}  // namespace gw
