#include "gw/gw.cuh"

// Every conversion between number formats, elementwise. Values travel as their bits, small ones packed into words, the
// first in the lowest bits. Threads stride over the words.

// f32 -> f16, bf16, e4m3, e5m2: four values a thread and turn; n is their number, a multiple of four.
GW_KERNEL(convert_f32)(const f32* from, u32* f16, u32* bf16, u32* e4m3, u32* e5m2, u32 n) {
    for (u32 i = gw::global_thread(); i < n / 4; i += gw::global_threads()) {
        const f32 a = from[4 * i], b = from[4 * i + 1], c = from[4 * i + 2], d = from[4 * i + 3];
        f16[2 * i] = gw::f32_to_f16x2(a, b);
        f16[2 * i + 1] = gw::f32_to_f16x2(c, d);
        bf16[2 * i] = gw::f32_to_bf16x2(a, b);
        bf16[2 * i + 1] = gw::f32_to_bf16x2(c, d);
        e4m3[i] = gw::f32_to_e4m3x4(a, b, c, d);
        e5m2[i] = (u32)gw::f32_to_e5m2x2(a, b) | (u32)gw::f32_to_e5m2x2(c, d) << 16;
    }
}

// Each half of the n words, as f16 -> f32, e4m3, e5m2 and as bf16 -> f32.
GW_KERNEL(convert_halves)(const u32* from, f32* f16, f32* bf16, u16* e4m3, u16* e5m2, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        const u16 low = (u16)from[i], high = (u16)(from[i] >> 16);
        f16[2 * i] = gw::f16_to_f32(low);
        f16[2 * i + 1] = gw::f16_to_f32(high);
        bf16[2 * i] = gw::bf16_to_f32(low);
        bf16[2 * i + 1] = gw::bf16_to_f32(high);
        e4m3[i] = gw::f16x2_to_e4m3x2(from[i]);
        e5m2[i] = gw::f16x2_to_e5m2x2(from[i]);
    }
}

// Each byte of the n pairs, as e4m3 -> f16 and as e5m2 -> f16.
GW_KERNEL(convert_bytes)(const u16* from, u32* e4m3, u32* e5m2, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        e4m3[i] = gw::e4m3x2_to_f16x2(from[i]);
        e5m2[i] = gw::e5m2x2_to_f16x2(from[i]);
    }
}
