#pragma once
// Warpgroup matrix products, D += A B with D of 64 x N in registers: issued by all 128 threads of a warpgroup, carried
// out by the tensor cores while the threads go on.
//
// The protocol: `wgmma_fence` before the first product and whenever the registers were touched since; the products;
// `wgmma_commit`; `wgmma_wait<n>`. Accumulators (and A in registers) belong to the hardware until the wait.
//
// Accumulators of warp w, lane l, g = l / 4, t = l % 4: d[4j], d[4j+1] = D[16w+g][8j+2t..], d[4j+2], d[4j+3] = 8 rows on.
// A in registers: as for `mma` in gw/matrix.cuh, rows 16w...
//
// A shared-memory operand is described by 64 bits:
//   [ 0,14) address / 16
//   [16,30) leading offset / 16: between neighbours along the contiguous direction that one swizzle row does not hold
//   [32,46) stride offset / 16: between groups of 8 rows
//   [49,52) base offset, 0: tiles start at a multiple of 8 swizzle rows
//   [62,64) swizzle: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32
// Operands are K-major: a row of A, or of B transposed, is contiguous in K. 16-bit formats may also be MN-major
// (TRANSPOSED). The swizzle permutes the 16-byte chunks of a row: address bits [4, 4+b) ^= bits [7, 7+b), b = 3, 2, 1.

#include "gw/emulated.cuh"
#include "gw/matrix.cuh"
#include "gw/memory.cuh"
#include "gw/swizzle.cuh"

namespace gw {

// `tile` starts at a multiple of 8 swizzle rows (1024, 512 or 256 bytes; 16 without swizzle).
// Stepping by 32 bytes in K inside a swizzle row adds 2 to the descriptor.
GW_DEVICE u64 wgmma_descriptor(const void* tile, Swizzle swizzle, u32 stride_bytes, u32 leading_bytes = 16) {
    return (u64)((shared_address(tile) & 0x3FFFF) >> 4) | (u64)((leading_bytes & 0x3FFFF) >> 4) << 16 |
           (u64)((stride_bytes & 0x3FFFF) >> 4) << 32 | (u64)swizzle << 62;
}

// Wgmma<E4M3, N>: `ss` takes both operands from shared memory, `rs` takes A from registers. With `accumulate` false D
// starts from zero. Accumulators are f32, i32 for S8. Sums of 8-bit floats keep 13 bits below their leading one, and terms
// 13 bits below the largest: add long ones up in parts.
template <class Format, u32 N>
struct Wgmma;

// The same for e4m3 with f16 accumulators, two a register: d[2j] = D[16w+g][8j+2t..], d[2j+1] = 8 rows on. N is a
// multiple of 16. Half the registers, and sums round to f16: scores are fine with that, long sums are not.
template <u32 N>
struct WgmmaHalf;

#ifdef GW_CUDA
// Ties registers to this place, so that the compiler moves no use of them across it. For accumulators after the wait
// that covers them, and for accumulators and A registers before the fence of the next products: without it the compiler
// may hoist a use over the wait, and the assembler then waits after every product (C7513, C7514).
template <u32 COUNT>
GW_DEVICE void wgmma_settle(u32 (&registers)[COUNT]) {
    GW_UNROLL
    for (u32 i = 0; i < COUNT; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
template <u32 COUNT>
GW_DEVICE void wgmma_settle(f32 (&registers)[COUNT]) {
    GW_UNROLL
    for (u32 i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

GW_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GW_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING groups are under way.
template <u32 PENDING>
GW_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Placeholders and operands of the accumulators, four at a time.
#define GW_D4(c, d, i) "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3])
#define GW_P8 "%0, %1, %2, %3"
#define GW_O8(c, d) GW_D4(c, d, 0)
#define GW_P16 GW_P8 ", %4, %5, %6, %7"
#define GW_O16(c, d) GW_O8(c, d), GW_D4(c, d, 4)
#define GW_P24 GW_P16 ", %8, %9, %10, %11"
#define GW_O24(c, d) GW_O16(c, d), GW_D4(c, d, 8)
#define GW_P32 GW_P24 ", %12, %13, %14, %15"
#define GW_O32(c, d) GW_O24(c, d), GW_D4(c, d, 12)
#define GW_P40 GW_P32 ", %16, %17, %18, %19"
#define GW_O40(c, d) GW_O32(c, d), GW_D4(c, d, 16)
#define GW_P48 GW_P40 ", %20, %21, %22, %23"
#define GW_O48(c, d) GW_O40(c, d), GW_D4(c, d, 20)
#define GW_P56 GW_P48 ", %24, %25, %26, %27"
#define GW_O56(c, d) GW_O48(c, d), GW_D4(c, d, 24)
#define GW_P64 GW_P56 ", %28, %29, %30, %31"
#define GW_O64(c, d) GW_O56(c, d), GW_D4(c, d, 28)
#define GW_P72 GW_P64 ", %32, %33, %34, %35"
#define GW_O72(c, d) GW_O64(c, d), GW_D4(c, d, 32)
#define GW_P80 GW_P72 ", %36, %37, %38, %39"
#define GW_O80(c, d) GW_O72(c, d), GW_D4(c, d, 36)
#define GW_P88 GW_P80 ", %40, %41, %42, %43"
#define GW_O88(c, d) GW_O80(c, d), GW_D4(c, d, 40)
#define GW_P96 GW_P88 ", %44, %45, %46, %47"
#define GW_O96(c, d) GW_O88(c, d), GW_D4(c, d, 44)
#define GW_P104 GW_P96 ", %48, %49, %50, %51"
#define GW_O104(c, d) GW_O96(c, d), GW_D4(c, d, 48)
#define GW_P112 GW_P104 ", %52, %53, %54, %55"
#define GW_O112(c, d) GW_O104(c, d), GW_D4(c, d, 52)
#define GW_P120 GW_P112 ", %56, %57, %58, %59"
#define GW_O120(c, d) GW_O112(c, d), GW_D4(c, d, 56)
#define GW_P128 GW_P120 ", %60, %61, %62, %63"
#define GW_O128(c, d) GW_O120(c, d), GW_D4(c, d, 60)
#define GW_P136 GW_P128 ", %64, %65, %66, %67"
#define GW_O136(c, d) GW_O128(c, d), GW_D4(c, d, 64)
#define GW_P144 GW_P136 ", %68, %69, %70, %71"
#define GW_O144(c, d) GW_O136(c, d), GW_D4(c, d, 68)
#define GW_P152 GW_P144 ", %72, %73, %74, %75"
#define GW_O152(c, d) GW_O144(c, d), GW_D4(c, d, 72)
#define GW_P160 GW_P152 ", %76, %77, %78, %79"
#define GW_O160(c, d) GW_O152(c, d), GW_D4(c, d, 76)
#define GW_P168 GW_P160 ", %80, %81, %82, %83"
#define GW_O168(c, d) GW_O160(c, d), GW_D4(c, d, 80)
#define GW_P176 GW_P168 ", %84, %85, %86, %87"
#define GW_O176(c, d) GW_O168(c, d), GW_D4(c, d, 84)
#define GW_P184 GW_P176 ", %88, %89, %90, %91"
#define GW_O184(c, d) GW_O176(c, d), GW_D4(c, d, 88)
#define GW_P192 GW_P184 ", %92, %93, %94, %95"
#define GW_O192(c, d) GW_O184(c, d), GW_D4(c, d, 92)
#define GW_P200 GW_P192 ", %96, %97, %98, %99"
#define GW_O200(c, d) GW_O192(c, d), GW_D4(c, d, 96)
#define GW_P208 GW_P200 ", %100, %101, %102, %103"
#define GW_O208(c, d) GW_O200(c, d), GW_D4(c, d, 100)
#define GW_P216 GW_P208 ", %104, %105, %106, %107"
#define GW_O216(c, d) GW_O208(c, d), GW_D4(c, d, 104)
#define GW_P224 GW_P216 ", %108, %109, %110, %111"
#define GW_O224(c, d) GW_O216(c, d), GW_D4(c, d, 108)
#define GW_P232 GW_P224 ", %112, %113, %114, %115"
#define GW_O232(c, d) GW_O224(c, d), GW_D4(c, d, 112)
#define GW_P240 GW_P232 ", %116, %117, %118, %119"
#define GW_O240(c, d) GW_O232(c, d), GW_D4(c, d, 116)
#define GW_P248 GW_P240 ", %120, %121, %122, %123"
#define GW_O248(c, d) GW_O240(c, d), GW_D4(c, d, 120)
#define GW_P256 GW_P248 ", %124, %125, %126, %127"
#define GW_O256(c, d) GW_O248(c, d), GW_D4(c, d, 124)

// The operands after the accumulators are numbered from N / 2. Products of 8-bit formats know no transposition.
#define GW_WGMMA_8(format, n, instruction, type, c, scales, A0, A1, A2, A3, A4, A5) \
    template <> \
    struct Wgmma<format, n> { \
        static GW_DEVICE void ss(type(&d)[n / 2], u64 a, u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n instruction \
                         " {" GW_P##n "}, " A0 ", " A1 ", p" scales ";\n}" \
                         : GW_O##n(c, d) : "l"(a), "l"(b), "r"((u32)accumulate)); \
        } \
        static GW_DEVICE void rs(type(&d)[n / 2], const u32(&a)[4], u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n instruction \
                         " {" GW_P##n "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p" scales ";\n}" \
                         : GW_O##n(c, d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate)); \
        } \
    };
#define GW_WGMMA_16(format, n, instruction, A0, A1, A2, A3, A4, A5, A6) \
    template <> \
    struct Wgmma<format, n> { \
        template <Transpose TA = AS_STORED, Transpose TB = AS_STORED> \
        static GW_DEVICE void ss(f32(&d)[n / 2], u64 a, u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n instruction \
                         " {" GW_P##n "}, " A0 ", " A1 ", p, 1, 1, " A3 ", " A4 ";\n}" \
                         : GW_O##n("f", d) : "l"(a), "l"(b), "r"((u32)accumulate), "n"((u32)TA), "n"((u32)TB)); \
        } \
        template <Transpose TB = AS_STORED> \
        static GW_DEVICE void rs(f32(&d)[n / 2], const u32(&a)[4], u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n instruction \
                         " {" GW_P##n "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p, 1, 1, " A6 ";\n}" \
                         : GW_O##n("f", d) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate), "n"((u32)TB)); \
        } \
    };
#define GW_WGMMA_ALL(n, A0, A1, A2, A3, A4, A5, A6) \
    GW_WGMMA_16(F16, n, "k16.f32.f16.f16", A0, A1, A2, A3, A4, A5, A6) \
    GW_WGMMA_16(BF16, n, "k16.f32.bf16.bf16", A0, A1, A2, A3, A4, A5, A6) \
    GW_WGMMA_8(E4M3, n, "k32.f32.e4m3.e4m3", f32, "f", ", 1, 1", A0, A1, A2, A3, A4, A5) \
    GW_WGMMA_8(E5M2, n, "k32.f32.e5m2.e5m2", f32, "f", ", 1, 1", A0, A1, A2, A3, A4, A5)
// Integer products exist for fewer widths.
#define GW_WGMMA_S8(n, A0, A1, A2, A3, A4, A5) GW_WGMMA_8(S8, n, "k32.s32.s8.s8", i32, "r", "", A0, A1, A2, A3, A4, A5)

GW_WGMMA_ALL(8, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
GW_WGMMA_ALL(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
GW_WGMMA_ALL(24, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
GW_WGMMA_ALL(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
GW_WGMMA_ALL(40, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
GW_WGMMA_ALL(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
GW_WGMMA_ALL(56, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
GW_WGMMA_ALL(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
GW_WGMMA_ALL(72, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
GW_WGMMA_ALL(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
GW_WGMMA_ALL(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
GW_WGMMA_ALL(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
GW_WGMMA_ALL(104, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
GW_WGMMA_ALL(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
GW_WGMMA_ALL(120, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
GW_WGMMA_ALL(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
GW_WGMMA_ALL(136, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
GW_WGMMA_ALL(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
GW_WGMMA_ALL(152, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
GW_WGMMA_ALL(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
GW_WGMMA_ALL(168, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
GW_WGMMA_ALL(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
GW_WGMMA_ALL(184, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
GW_WGMMA_ALL(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
GW_WGMMA_ALL(200, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
GW_WGMMA_ALL(208, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
GW_WGMMA_ALL(216, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
GW_WGMMA_ALL(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
GW_WGMMA_ALL(232, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
GW_WGMMA_ALL(240, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
GW_WGMMA_ALL(248, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
GW_WGMMA_ALL(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
GW_WGMMA_S8(8, "%4", "%5", "%6", "%7", "%8", "%9")
GW_WGMMA_S8(16, "%8", "%9", "%10", "%11", "%12", "%13")
GW_WGMMA_S8(24, "%12", "%13", "%14", "%15", "%16", "%17")
GW_WGMMA_S8(32, "%16", "%17", "%18", "%19", "%20", "%21")
GW_WGMMA_S8(48, "%24", "%25", "%26", "%27", "%28", "%29")
GW_WGMMA_S8(64, "%32", "%33", "%34", "%35", "%36", "%37")
GW_WGMMA_S8(80, "%40", "%41", "%42", "%43", "%44", "%45")
GW_WGMMA_S8(96, "%48", "%49", "%50", "%51", "%52", "%53")
GW_WGMMA_S8(112, "%56", "%57", "%58", "%59", "%60", "%61")
GW_WGMMA_S8(128, "%64", "%65", "%66", "%67", "%68", "%69")
GW_WGMMA_S8(144, "%72", "%73", "%74", "%75", "%76", "%77")
GW_WGMMA_S8(160, "%80", "%81", "%82", "%83", "%84", "%85")
GW_WGMMA_S8(176, "%88", "%89", "%90", "%91", "%92", "%93")
GW_WGMMA_S8(192, "%96", "%97", "%98", "%99", "%100", "%101")
GW_WGMMA_S8(208, "%104", "%105", "%106", "%107", "%108", "%109")
GW_WGMMA_S8(224, "%112", "%113", "%114", "%115", "%116", "%117")
GW_WGMMA_S8(240, "%120", "%121", "%122", "%123", "%124", "%125")
GW_WGMMA_S8(256, "%128", "%129", "%130", "%131", "%132", "%133")
// As GW_WGMMA_8 with `half` = N / 2, which has as many f32 accumulators as N has pairs.
#define GW_WGMMA_HALF(n, half, A0, A1, A2, A3, A4, A5) \
    template <> \
    struct WgmmaHalf<n> { \
        static GW_DEVICE void ss(u32(&d)[n / 4], u64 a, u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
                         "k32.f16.e4m3.e4m3 {" GW_P##half "}, " A0 ", " A1 ", p, 1, 1;\n}" \
                         : GW_O##half("r", d) : "l"(a), "l"(b), "r"((u32)accumulate)); \
        } \
        static GW_DEVICE void rs(u32(&d)[n / 4], const u32(&a)[4], u64 b, bool accumulate) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " A5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
                         "k32.f16.e4m3.e4m3 {" GW_P##half "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p, 1, 1;\n}" \
                         : GW_O##half("r", d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate)); \
        } \
    };
GW_WGMMA_HALF(16, 8, "%4", "%5", "%6", "%7", "%8", "%9")
GW_WGMMA_HALF(32, 16, "%8", "%9", "%10", "%11", "%12", "%13")
GW_WGMMA_HALF(48, 24, "%12", "%13", "%14", "%15", "%16", "%17")
GW_WGMMA_HALF(64, 32, "%16", "%17", "%18", "%19", "%20", "%21")
GW_WGMMA_HALF(80, 40, "%20", "%21", "%22", "%23", "%24", "%25")
GW_WGMMA_HALF(96, 48, "%24", "%25", "%26", "%27", "%28", "%29")
GW_WGMMA_HALF(112, 56, "%28", "%29", "%30", "%31", "%32", "%33")
GW_WGMMA_HALF(128, 64, "%32", "%33", "%34", "%35", "%36", "%37")
GW_WGMMA_HALF(144, 72, "%36", "%37", "%38", "%39", "%40", "%41")
GW_WGMMA_HALF(160, 80, "%40", "%41", "%42", "%43", "%44", "%45")
GW_WGMMA_HALF(176, 88, "%44", "%45", "%46", "%47", "%48", "%49")
GW_WGMMA_HALF(192, 96, "%48", "%49", "%50", "%51", "%52", "%53")
GW_WGMMA_HALF(208, 104, "%52", "%53", "%54", "%55", "%56", "%57")
GW_WGMMA_HALF(224, 112, "%56", "%57", "%58", "%59", "%60", "%61")
GW_WGMMA_HALF(240, 120, "%60", "%61", "%62", "%63", "%64", "%65")
GW_WGMMA_HALF(256, 128, "%64", "%65", "%66", "%67", "%68", "%69")
#else
template <class T, u32 COUNT>
GW_DEVICE void wgmma_settle(T (&)[COUNT]) {}

GW_DEVICE void wgmma_fence() { emulated::call::fence(emulated::FenceKind::Wgmma); }
GW_DEVICE void wgmma_commit() { emulated::call::wgmma_commit(); }
template <u32 PENDING>
GW_DEVICE void wgmma_wait(GW_SITE) {
    emulated::call::wgmma_wait(PENDING, GW_AT);
}

template <class Format, u32 N>
struct Wgmma {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "N is a multiple of 8 up to 256");

    template <Transpose TA = AS_STORED, Transpose TB = AS_STORED, class D>
    static GW_DEVICE void ss(D (&d)[N / 2], u64 a, u64 b, bool accumulate, GW_SITE) {
        const emulated::WgmmaCall call = {
            emulated::FormatOf<Format>::code, N, 0, accumulate, TA, TB, 0, 0, a, b, {0, 0, 0, 0}, (u32*)d, nullptr};
        emulated::call::wgmma(&call, GW_AT);
    }
    template <Transpose TB = AS_STORED, class D>
    static GW_DEVICE void rs(D (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate, GW_SITE) {
        const emulated::WgmmaCall call = {
            emulated::FormatOf<Format>::code, N, 1, accumulate, 0, TB, 0, 0, 0, b, {a[0], a[1], a[2], a[3]}, (u32*)d, a};
        emulated::call::wgmma(&call, GW_AT);
    }
};

template <u32 N>
struct WgmmaHalf {
    static_assert(N % 16 == 0 && N >= 16 && N <= 256, "N is a multiple of 16 up to 256");

    static GW_DEVICE void ss(u32 (&d)[N / 4], u64 a, u64 b, bool accumulate, GW_SITE) {
        const emulated::WgmmaCall call = {emulated::Format::E4m3, N, 0, accumulate, 0, 0, 1, 0, a, b, {0, 0, 0, 0}, d, nullptr};
        emulated::call::wgmma(&call, GW_AT);
    }
    static GW_DEVICE void rs(u32 (&d)[N / 4], const u32 (&a)[4], u64 b, bool accumulate, GW_SITE) {
        const emulated::WgmmaCall call = {
            emulated::Format::E4m3, N, 1, accumulate, 0, 0, 1, 0, 0, b, {a[0], a[1], a[2], a[3]}, d, a};
        emulated::call::wgmma(&call, GW_AT);
    }
};
#endif

}  // namespace gw
