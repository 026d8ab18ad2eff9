#include "gw/gw.cuh"

// Integer instructions, elementwise: out[call][i] of a[i], b[i] and c[i], in the order of the calls below. Shifts are
// i mod 64, or by more than the width. Threads stride over the elements.
GW_KERNEL(integer_words)(const u32* a, const u32* b, const u32* c, u32* out, u32 n) {
    for (u32 i = gw::global_thread(); i < n; i += gw::global_threads()) {
        const u32 x = a[i], y = b[i], z = c[i];
        const u64 product = gw::multiply_high((u64)y << 32 | x, (u64)z << 32 | y);
        const u32 results[] = {
            gw::multiply_high(x, y),
            (u32)product,
            (u32)(product >> 32),
            gw::logic3<0x00>(x, y, z),
            gw::logic3<0x96>(x, y, z),
            gw::logic3<0xE8>(x, y, z),
            gw::logic3<0xCA>(x, y, z),
            gw::logic3<0x2D>(x, y, z),
            gw::logic3<0x40>(x, y, z),
            gw::logic3<0xFF>(x, y, z),
            gw::funnel_left(x, y, i % 64),
            gw::funnel_right(x, y, i % 64),
            gw::reverse_bits(x),
            gw::count_ones(x),
            gw::leading_zeros(x),
            gw::shift_left(x, i % 67),
            gw::shift_right(x, i % 67),
            (u32)gw::shift_right((i32)x, i % 67),
            (u32)(gw::shift_left((u64)y << 32 | x, i % 131) >> 32),
            (u32)gw::shift_right((u64)y << 32 | x, i % 131),
            (u32)gw::f32_to_i32(gw::bits<f32>(y)),
            gw::f32_to_u32(gw::bits<f32>(z)),
        };
        GW_UNROLL
        for (u32 call = 0; call < sizeof(results) / sizeof(u32); ++call) out[(u64)call * n + i] = results[call];
    }
}

// out[s] <- bytes of a[s] and b[s] picked by selector s, for all 65536 selectors. Bits above the low 16 are ignored.
GW_KERNEL(permute_words)(const u32* a, const u32* b, u32* out) {
    for (u32 s = gw::global_thread(); s < 65536; s += gw::global_threads()) {
        out[s] = gw::permute_bytes(a[s], b[s], s | s << 16);
    }
}
