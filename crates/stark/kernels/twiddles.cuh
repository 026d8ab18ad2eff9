#include "circle.cuh"

// Fills the table of the coset initial + step Z of 2^log_table points, and the table of inverses; see circle.cuh. One
// thread a word.
GW_KERNEL(make_twiddles)(const u32* powers, u32 initial, u32 step, u32 log_table, u32* table, u32* inverses) {
    const u32 i = (u32)gw::global_thread(), len = 1u << log_table;
    if (i >= len) return;
    const u32 from_end = len - i;
    if (from_end == 1) {
        table[i] = inverses[i] = 2;
        return;
    }
    // Layer l ends where 2^(log_table - l - 1) words are left.
    const u32 log_left = 32 - gw::leading_zeros(from_end - 1), layer = log_table - log_left;
    const u32 index = i - (len - (1u << log_left));
    const u32 natural = log_left == 1 ? 0 : gw::reverse_bits(index) >> (33 - log_left);
    const u32 number = (initial + natural * step) << layer;
    const u32 x = circle::point(powers, number & m31::P).re;
    table[i] = x << 1;
    inverses[i] = m31::inverse(x) << 1;
}
