#pragma once
// The kernel's side of the emulated device: a table of functions that the runtime fills in, and the hooks that the
// compiler's -fsanitize=thread calls before every load and store. No standard library: a kernel compiles in a blink.

#include "gw/types.cuh"

#ifndef GW_CUDA

#include "gw/abi.cuh"

// Where a call stands in the source, for messages.
#define GW_SITE const char *file = __builtin_FILE(), u32 line = __builtin_LINE()
#define GW_AT file, line

// A function that the sanitizer leaves alone. Clang would still tell of its frame, and the hook of frames of its own, for ever.
#ifdef __clang__
#define GW_UNSEEN no_sanitize("thread"), disable_sanitizer_instrumentation
#else
#define GW_UNSEEN no_sanitize("thread")
#endif

namespace gw {
namespace emulated {

template <class T> struct FormatOf;
template <> struct FormatOf<F16> { static constexpr Format code = Format::F16; };
template <> struct FormatOf<BF16> { static constexpr Format code = Format::Bf16; };
template <> struct FormatOf<E4M3> { static constexpr Format code = Format::E4m3; };
template <> struct FormatOf<E5M2> { static constexpr Format code = Format::E5m2; };
template <> struct FormatOf<S8> { static constexpr Format code = Format::S8; };

// Types of the same size as the header's own, by another name.
template <> struct ScalarOf<unsigned long> : ScalarOf<u64> {};
template <> struct ScalarOf<long> : ScalarOf<i64> {};

struct Api {
#define GW_MEMBER(result, name, parameters, arguments) result(*name) parameters;
    GW_API(GW_MEMBER)
#undef GW_MEMBER
};

static const Api* api;

// Calls through the table, without the instrumentation that a load of the table would get.
namespace call {
#define GW_TRAMPOLINE(result, name, parameters, arguments) \
    __attribute__((GW_UNSEEN, noinline, unused, section("gw_hooks"))) static result name parameters { return api->name arguments; }
GW_API(GW_TRAMPOLINE)
#undef GW_TRAMPOLINE
}  // namespace call

template <class T> struct Describe {
    static constexpr ParameterInfo get() { return {sizeof(T), 0, ScalarOf<T>::code, 0, 0}; }
};
template <class T> struct Describe<T*> {
    static constexpr ParameterInfo get() { return {sizeof(T*), sizeof(T), ScalarOf<T>::code, 1, 1}; }
};
template <class T> struct Describe<const T*> {
    static constexpr ParameterInfo get() { return {sizeof(T*), sizeof(T), ScalarOf<T>::code, 1, 0}; }
};

// What is passed for a parameter: a value, also where the kernel takes it by reference.
template <class P> struct Passed { typedef P type; };
template <class P> struct Passed<P&> { typedef P type; };

// Not instrumented: these run for the host, and the arguments they read are its memory.
#define GW_HOST __attribute__((GW_UNSEEN))
template <class... P> struct Signature {
    static constexpr u32 count = sizeof...(P);
    GW_HOST static void describe(ParameterInfo* to) {
        const ParameterInfo all[] = {Describe<typename Passed<P>::type>::get()..., ParameterInfo{}};
        for (u32 i = 0; i < count; ++i) to[i] = all[i];
    }
    template <unsigned... I> struct Indices {};
    template <unsigned N, unsigned... I> struct Count : Count<N - 1, N - 1, I...> {};
    template <unsigned... I> struct Count<0, I...> { typedef Indices<I...> type; };
    template <unsigned... I> GW_HOST static void call(void (*kernel)(P...), void** arguments, Indices<I...>) {
        kernel(*static_cast<typename Passed<P>::type*>(arguments[I])...);
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
    extern "C" GW_HOST void gw_describe_##name(gw::emulated::ParameterInfo* to) { \
        decltype(gw::emulated::signature_of(&name))::describe(to); \
    } \
    extern "C" GW_HOST void gw_invoke_##name(void** arguments) { \
        decltype(gw::emulated::signature_of(&name))::invoke(&name, arguments); \
    }

#define GW_HOOK extern "C" __attribute__((GW_UNSEEN, noinline, section("gw_hooks")))
#define GW_CALLER __builtin_return_address(0)

GW_HOOK void gw_bind(const gw::emulated::Api* table) { gw::emulated::api = table; }
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));
extern "C" char __start_gw_hooks[] __attribute__((visibility("hidden")));
extern "C" char __stop_gw_hooks[] __attribute__((visibility("hidden")));
// Where the library lies, and of that the functions of this file.
GW_HOOK void gw_image(u64* bounds) {
    bounds[0] = (u64)__ehdr_start;
    bounds[1] = (u64)_end;
    bounds[2] = (u64)__start_gw_hooks;
    bounds[3] = (u64)__stop_gw_hooks;
}

#define GW_HOOK_SIZE(n) \
    GW_HOOK void __tsan_read##n(void* p) { gw::emulated::api->access(p, n, 0, GW_CALLER); } \
    GW_HOOK void __tsan_write##n(void* p) { gw::emulated::api->access(p, n, 1, GW_CALLER); } \
    GW_HOOK void __tsan_volatile_read##n(void* p) { gw::emulated::api->access(p, n, 8, GW_CALLER); } \
    GW_HOOK void __tsan_volatile_write##n(void* p) { gw::emulated::api->access(p, n, 9, GW_CALLER); } \
    GW_HOOK void __tsan_unaligned_volatile_read##n(void* p) { gw::emulated::api->access(p, n, 2, GW_CALLER); } \
    GW_HOOK void __tsan_unaligned_volatile_write##n(void* p) { gw::emulated::api->access(p, n, 3, GW_CALLER); } \
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
// Objects outside of functions that are destroyed in the end: a source with any is refused before it is loaded.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle = nullptr;
GW_HOOK int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
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

// Called by the compiler's own checks (array bounds, divisors, shifts, conversions), which start their description with the
// place.
namespace gw {
namespace emulated {
struct Place {
    const char* file;
    u32 line, column;
};
struct Mismatch {
    Place place;
    const void* type;
    u8 log_alignment, kind;
};
}  // namespace emulated
}  // namespace gw
#define GW_MISUSE(rule) gw::emulated::api->misuse(gw::emulated::Rule::rule, place->file, place->line, GW_CALLER)
GW_HOOK void __ubsan_handle_out_of_bounds(gw::emulated::Place* place, void*) { GW_MISUSE(ArrayBounds); }
// Division by zero, or of the smallest integer by -1. Values of up to 64 bits are passed as they are.
GW_HOOK void __ubsan_handle_divrem_overflow(gw::emulated::Place* place, void*, void* divisor) {
    if (divisor) GW_MISUSE(Overflow);
    else GW_MISUSE(DivisionByZero);
}
GW_HOOK void __ubsan_handle_shift_out_of_bounds(gw::emulated::Place* place, void*, void*) { GW_MISUSE(Shift); }
GW_HOOK void __ubsan_handle_float_cast_overflow(gw::emulated::Place* place, void*) { GW_MISUSE(Conversion); }
GW_HOOK void __ubsan_handle_add_overflow(gw::emulated::Place* place, void*, void*) { GW_MISUSE(Overflow); }
GW_HOOK void __ubsan_handle_sub_overflow(gw::emulated::Place* place, void*, void*) { GW_MISUSE(Overflow); }
GW_HOOK void __ubsan_handle_mul_overflow(gw::emulated::Place* place, void*, void*) { GW_MISUSE(Overflow); }
GW_HOOK void __ubsan_handle_negate_overflow(gw::emulated::Place* place, void*) { GW_MISUSE(Overflow); }
GW_HOOK void __ubsan_handle_missing_return(gw::emulated::Place* place) { GW_MISUSE(MissingReturn); }
#undef GW_MISUSE
GW_HOOK void __ubsan_handle_type_mismatch_v1(gw::emulated::Mismatch* mismatch, void* address) {
    gw::emulated::api->misaligned(address, 1ull << mismatch->log_alignment, GW_CALLER);
}

#endif  // GW_CUDA
