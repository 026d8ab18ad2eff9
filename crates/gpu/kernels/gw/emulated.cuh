#pragma once
// The kernel's side of the emulated device: a table of functions that the runtime fills in, and the hooks that the
// compiler's -fsanitize=thread calls before every load and store. No standard library: a kernel compiles in a blink.
#ifndef GW_CUDA

#include "gw/types.cuh"

// Where a call stands in the source, for messages.
#define GW_SITE const char *file = __builtin_FILE(), u32 line = __builtin_LINE()
#define GW_AT file, line

namespace gw {
namespace emulated {

// Operations of `exchange`, `fence`, `atomic` and the rest are numbered as in the runtime's `abi.rs`.
enum Exchange : u32 {
    SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, MATCH_ANY, MATCH_ALL,
    REDUCE_ADD, REDUCE_MIN_U, REDUCE_MAX_U, REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_AND, REDUCE_OR, REDUCE_XOR,
};
enum Fence : u32 { FENCE_BLOCK, FENCE_DEVICE, FENCE_SYSTEM, FENCE_ASYNC_PROXY, FENCE_MBARRIER_INIT, FENCE_WGMMA };
enum Atomic : u32 {
    ATOMIC_LOAD, ATOMIC_STORE, ATOMIC_EXCHANGE, ATOMIC_CAS, ATOMIC_ADD, ATOMIC_MIN_U, ATOMIC_MAX_U, ATOMIC_MIN_S,
    ATOMIC_MAX_S, ATOMIC_AND, ATOMIC_OR, ATOMIC_XOR, ATOMIC_ADD_F32, ATOMIC_ADD_F64, ATOMIC_INC,
};
enum Convert : u32 {
    F32_TO_F16, F16_TO_F32, F32_TO_BF16, BF16_TO_F32, F32_TO_E4M3, F32_TO_E5M2, E4M3_TO_F16, E5M2_TO_F16,
    F16_TO_E4M3, F16_TO_E5M2,
};
enum HalfPair : u32 { HALF_ADD, HALF_MULTIPLY, HALF_FMA, HALF_FMA_RELU, HALF_MAXIMUM };
enum Format : u32 { FORMAT_F16, FORMAT_BF16, FORMAT_E4M3, FORMAT_E5M2, FORMAT_S8 };

template <class T> struct FormatOf;
template <> struct FormatOf<F16> { static const u32 code = FORMAT_F16; };
template <> struct FormatOf<BF16> { static const u32 code = FORMAT_BF16; };
template <> struct FormatOf<E4M3> { static const u32 code = FORMAT_E4M3; };
template <> struct FormatOf<E5M2> { static const u32 code = FORMAT_E5M2; };
template <> struct FormatOf<S8> { static const u32 code = FORMAT_S8; };

struct WgmmaCall {
    u32 format, n, a_in_registers, accumulate, transpose_a, transpose_b, half_accumulators;
    u64 a_descriptor, b_descriptor;
    u32 a[4];
    u32* accumulators;
};

// Every function of the runtime: result, name, parameters, arguments.
#define GW_API(F) \
    F(u32, index, (u32 which), (which)) \
    F(u8*, shared, (), ()) \
    F(void, access, (const void* address, u64 bytes, u32 write, const void* pc), (address, bytes, write, pc)) \
    F(void, enter, (const void* frame), (frame)) \
    F(void, leave, (), ()) \
    F(void, misuse, (u32 rule, const char* file, u32 line), (rule, file, line)) \
    F(void, barrier, (u32 id, u32 threads, u32 wait, const char* file, u32 line), (id, threads, wait, file, line)) \
    F(void, sync_warp, (u32 mask, const char* file, u32 line), (mask, file, line)) \
    F(void, sync_grid, (const char* file, u32 line), (file, line)) \
    F(u64, exchange, (u32 operation, u32 mask, u64 value, u32 argument, u32 width, const char* file, u32 line), (operation, mask, value, argument, width, file, line)) \
    F(void, fence, (u32 kind), (kind)) \
    F(u64, atomic, (u32 operation, void* address, u32 bytes, u64 value, u64 compare, const void* pc), (operation, address, bytes, value, compare, pc)) \
    F(void, mbarrier_init, (void* barrier, u32 count, const char* file, u32 line), (barrier, count, file, line)) \
    F(void, mbarrier_arrive, (void* barrier, u32 expect_bytes, u32 arrive, const char* file, u32 line), (barrier, expect_bytes, arrive, file, line)) \
    F(u32, mbarrier_wait, (void* barrier, u32 parity, u32 block, const char* file, u32 line), (barrier, parity, block, file, line)) \
    F(void, copy_async, (void* to, const void* from, u32 bytes, u32 source_bytes, const char* file, u32 line), (to, from, bytes, source_bytes, file, line)) \
    F(void, copy_async_commit, (), ()) \
    F(void, copy_async_wait, (u32 pending), (pending)) \
    F(void, bulk_load, (void* to, const void* from, u32 bytes, void* barrier, const char* file, u32 line), (to, from, bytes, barrier, file, line)) \
    F(void, bulk_store, (void* to, const void* from, u32 bytes, const char* file, u32 line), (to, from, bytes, file, line)) \
    F(void, bulk_commit, (), ()) \
    F(void, bulk_wait, (u32 pending, u32 read_only), (pending, read_only)) \
    F(void, load_matrix, (u32* registers, const void* row, u32 count, u32 transpose, const char* file, u32 line), (registers, row, count, transpose, file, line)) \
    F(void, store_matrix, (void* row, const u32* registers, u32 count, u32 transpose, const char* file, u32 line), (row, registers, count, transpose, file, line)) \
    F(void, mma, (u32 format, u32* d, const u32* a, const u32* b, const u32* c, const char* file, u32 line), (format, d, a, b, c, file, line)) \
    F(void, wgmma, (const WgmmaCall* call, const char* file, u32 line), (call, file, line)) \
    F(void, wgmma_commit, (), ()) \
    F(void, wgmma_wait, (u32 pending, const char* file, u32 line), (pending, file, line)) \
    F(u32, convert, (u32 kind, u32 value), (kind, value)) \
    F(u32, half_pair, (u32 operation, u32 a, u32 b, u32 c), (operation, a, b, c)) \
    F(u32, shared_address, (const void* address), (address)) \
    F(void, await_stream, (), ()) \
    F(void, pause, (), ()) \
    F(u64, clock, (), ())

struct Api {
#define GW_MEMBER(result, name, parameters, arguments) result(*name) parameters;
    GW_API(GW_MEMBER)
#undef GW_MEMBER
};

static const Api* api;

// Calls through the table, without the instrumentation that a load of the table would get.
namespace call {
#define GW_TRAMPOLINE(result, name, parameters, arguments) \
    __attribute__((no_sanitize("thread"), noinline, unused)) static result name parameters { return api->name arguments; }
GW_API(GW_TRAMPOLINE)
#undef GW_TRAMPOLINE
}  // namespace call

// The element types that the runtime can tell apart, by the numbers of `Scalar` in `kernel/args.rs`.
template <class T> struct Scalar { static const u8 code = 0; };
template <class T> struct Scalar<const T> { static const u8 code = Scalar<T>::code; };
template <> struct Scalar<u8> { static const u8 code = 1; };
template <> struct Scalar<i8> { static const u8 code = 2; };
template <> struct Scalar<u16> { static const u8 code = 3; };
template <> struct Scalar<i16> { static const u8 code = 4; };
template <> struct Scalar<u32> { static const u8 code = 5; };
template <> struct Scalar<i32> { static const u8 code = 6; };
template <> struct Scalar<u64> { static const u8 code = 7; };
template <> struct Scalar<unsigned long> { static const u8 code = 7; };
template <> struct Scalar<i64> { static const u8 code = 8; };
template <> struct Scalar<long> { static const u8 code = 8; };
template <> struct Scalar<f32> { static const u8 code = 9; };
template <> struct Scalar<f64> { static const u8 code = 10; };

// One parameter: its size, its scalar, and for a pointer the size of the element and whether it may be written.
struct Parameter {
    u32 bytes;
    u32 element_bytes;
    u8 scalar, is_pointer, is_mutable, reserved;
};
template <class T> struct Describe {
    static constexpr Parameter get() { return {sizeof(T), 0, Scalar<T>::code, 0, 0, 0}; }
};
template <class T> struct Describe<T*> {
    static constexpr Parameter get() { return {sizeof(T*), sizeof(T), Scalar<T>::code, 1, 1, 0}; }
};
template <class T> struct Describe<const T*> {
    static constexpr Parameter get() { return {sizeof(T*), sizeof(T), Scalar<T>::code, 1, 0, 0}; }
};

// Not instrumented: these run for the host, and the arguments they read are its memory.
#define GW_HOST __attribute__((no_sanitize("thread")))
template <class... P> struct Signature {
    static constexpr u32 count = sizeof...(P);
    GW_HOST static void describe(Parameter* to) {
        const Parameter all[] = {Describe<P>::get()..., Parameter{}};
        for (u32 i = 0; i < count; ++i) to[i] = all[i];
    }
    template <unsigned... I> struct Indices {};
    template <unsigned N, unsigned... I> struct Count : Count<N - 1, N - 1, I...> {};
    template <unsigned... I> struct Count<0, I...> { typedef Indices<I...> type; };
    template <unsigned... I> GW_HOST static void call(void (*kernel)(P...), void** arguments, Indices<I...>) {
        kernel(*static_cast<P*>(arguments[I])...);
    }
    GW_HOST static void invoke(void (*kernel)(P...), void** arguments) {
        call(kernel, arguments, typename Count<sizeof...(P)>::type());
    }
};
template <class... P> Signature<P...> signature_of(void (*)(P...));

}  // namespace emulated
}  // namespace gw

// The compiler of the runtime appends one of these for each kernel of a source.
#define GW_EXPORT(name) \
    extern "C" GW_HOST u32 gw_parameter_count_##name() { return decltype(gw::emulated::signature_of(&name))::count; } \
    extern "C" GW_HOST void gw_describe_##name(gw::emulated::Parameter* to) { \
        decltype(gw::emulated::signature_of(&name))::describe(to); \
    } \
    extern "C" GW_HOST void gw_invoke_##name(void** arguments) { \
        decltype(gw::emulated::signature_of(&name))::invoke(&name, arguments); \
    }

#define GW_HOOK extern "C" __attribute__((no_sanitize("thread"), noinline))
#define GW_CALLER __builtin_return_address(0)

GW_HOOK void gw_bind(const gw::emulated::Api* table) { gw::emulated::api = table; }
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));
GW_HOOK void gw_image(u64* begin, u64* end) {
    *begin = (u64)__ehdr_start;
    *end = (u64)_end;
}

#define GW_HOOK_SIZE(n) \
    GW_HOOK void __tsan_read##n(void* p) { gw::emulated::api->access(p, n, 0, GW_CALLER); } \
    GW_HOOK void __tsan_write##n(void* p) { gw::emulated::api->access(p, n, 1, GW_CALLER); } \
    GW_HOOK void __tsan_volatile_read##n(void* p) { gw::emulated::api->access(p, n, 0, GW_CALLER); } \
    GW_HOOK void __tsan_volatile_write##n(void* p) { gw::emulated::api->access(p, n, 1, GW_CALLER); } \
    GW_HOOK void __tsan_unaligned_read##n(void* p) { gw::emulated::api->access(p, n, 2, GW_CALLER); } \
    GW_HOOK void __tsan_unaligned_write##n(void* p) { gw::emulated::api->access(p, n, 3, GW_CALLER); }
GW_HOOK_SIZE(1)
GW_HOOK_SIZE(2)
GW_HOOK_SIZE(4)
GW_HOOK_SIZE(8)
GW_HOOK_SIZE(16)
GW_HOOK void __tsan_read_range(void* p, unsigned long n) { gw::emulated::api->access(p, n, 2, GW_CALLER); }
GW_HOOK void __tsan_write_range(void* p, unsigned long n) { gw::emulated::api->access(p, n, 3, GW_CALLER); }
// Frames are told, so that a stack that runs out is a fault, and registers of a function that has returned are known.
GW_HOOK void __tsan_func_entry(void*) { gw::emulated::api->enter(__builtin_frame_address(0)); }
GW_HOOK void __tsan_func_exit() { gw::emulated::api->leave(); }
GW_HOOK void __tsan_init() {}
GW_HOOK void __tsan_vptr_read(void*) {}
GW_HOOK void __tsan_vptr_update(void*, void*) {}

// The compiler calls these for large structs and for __builtin_memcpy and its like. Without them the C library's would
// move bytes unseen. Volatile, because the compiler would make the loop a call to the function it is in.
GW_HOOK void* memmove(void* to, const void* from, __SIZE_TYPE__ bytes) {
    if (bytes == 0) return to;
    gw::emulated::api->access(from, bytes, 2, GW_CALLER);
    gw::emulated::api->access(to, bytes, 3, GW_CALLER);
    volatile u8* target = (volatile u8*)to;
    const volatile u8* source = (const volatile u8*)from;
    if ((u64)to <= (u64)from) {
        for (__SIZE_TYPE__ i = 0; i < bytes; ++i) target[i] = source[i];
    } else {
        for (__SIZE_TYPE__ i = bytes; i > 0; --i) target[i - 1] = source[i - 1];
    }
    return to;
}
GW_HOOK void* memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) { return memmove(to, from, bytes); }
GW_HOOK void* memset(void* to, int value, __SIZE_TYPE__ bytes) {
    if (bytes == 0) return to;
    gw::emulated::api->access(to, bytes, 3, GW_CALLER);
    for (__SIZE_TYPE__ i = 0; i < bytes; ++i) ((volatile u8*)to)[i] = (u8)value;
    return to;
}
GW_HOOK void* __tsan_memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) { return memmove(to, from, bytes); }
GW_HOOK void* __tsan_memmove(void* to, const void* from, __SIZE_TYPE__ bytes) { return memmove(to, from, bytes); }
GW_HOOK void* __tsan_memset(void* to, int value, __SIZE_TYPE__ bytes) { return memset(to, value, bytes); }

// Called by -fsanitize=bounds and -fsanitize=integer-divide-by-zero, which start their description with the place.
namespace gw {
namespace emulated {
enum Rule : u32 { RULE_ARRAY_BOUNDS, RULE_DIVISION_BY_ZERO };
struct Place {
    const char* file;
    u32 line, column;
};
}  // namespace emulated
}  // namespace gw
GW_HOOK void __ubsan_handle_out_of_bounds(gw::emulated::Place* place, void*) {
    gw::emulated::api->misuse(gw::emulated::RULE_ARRAY_BOUNDS, place->file, place->line);
}
GW_HOOK void __ubsan_handle_divrem_overflow(gw::emulated::Place* place, void*, void*) {
    gw::emulated::api->misuse(gw::emulated::RULE_DIVISION_BY_ZERO, place->file, place->line);
}

#endif  // GW_CUDA
