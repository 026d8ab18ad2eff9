#pragma once
// What a kernel says of itself: words on standard output, and conditions that must hold.

#include "gw/emulated.cuh"

namespace gw {

// Prints as C's printf does, from any thread. On the card the words appear when the host next waits for the device, and
// the oldest are lost when there are too many.
#ifdef GW_CUDA
template <class... A>
GW_DEVICE void print(const char* format, A... arguments) {
    printf(format, arguments...);
}
#else
namespace emulated {
template <class T> struct PrintedAs;
#define GW_PRINTED(type, kind, widened, bits_of) \
    template <> struct PrintedAs<type> { \
        static constexpr Printed code = Printed::kind; \
        GW_DEVICE static u64 word(type value) { return bits_of((widened)value); } \
    };
#define GW_AS_WORD(value) (u64)(value)
GW_PRINTED(i8, Signed, i64, GW_AS_WORD)
GW_PRINTED(char, Signed, i64, GW_AS_WORD)
GW_PRINTED(i16, Signed, i64, GW_AS_WORD)
GW_PRINTED(i32, Signed, i64, GW_AS_WORD)
GW_PRINTED(long, Signed, i64, GW_AS_WORD)
GW_PRINTED(i64, Signed, i64, GW_AS_WORD)
GW_PRINTED(bool, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(u8, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(u16, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(u32, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(unsigned long, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(u64, Unsigned, u64, GW_AS_WORD)
GW_PRINTED(f32, Float, f64, bits<u64>)
GW_PRINTED(f64, Float, f64, bits<u64>)
GW_PRINTED(const char*, Text, u64, GW_AS_WORD)
GW_PRINTED(char*, Text, u64, GW_AS_WORD)
#undef GW_PRINTED
#undef GW_AS_WORD
template <class T> struct PrintedAs<T*> {
    static constexpr Printed code = Printed::Pointer;
    GW_DEVICE static u64 word(T* value) { return (u64)value; }
};

// A format, and where it stands in the source: a parameter pack leaves no room for defaults after it.
struct PrintFormat {
    const char* text;
    const char* file;
    u32 line;
    GW_DEVICE PrintFormat(const char* format, GW_SITE) : text(format), file(file), line(line) {}
};
}  // namespace emulated
template <class... A>
GW_DEVICE void print(emulated::PrintFormat format, A... arguments) {
    const emulated::Printed kinds[] = {emulated::PrintedAs<A>::code..., emulated::Printed::Unsigned};
    const u64 values[] = {emulated::PrintedAs<A>::word(arguments)..., 0};
    emulated::call::print(format.text, kinds, values, sizeof...(A), format.file, format.line);
}
#endif

}  // namespace gw

// Stops the kernel where the condition does not hold, and says which it is. On the card the launch, and with it the context,
// fails with CUDA_ERROR_ASSERT, and the line is on standard error.
#ifdef GW_CUDA
#define GW_ASSERT(condition) \
    ((condition) ? (void)0 : __assertfail(#condition, __FILE__, __LINE__, __func__, sizeof(char)))
#else
#define GW_ASSERT(condition) ((condition) ? (void)0 : gw::emulated::call::fail(#condition, __FILE__, __LINE__))
#endif
