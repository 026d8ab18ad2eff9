#include "gw/gw.cuh"

// x[i] <- pattern, for elements of ELEMENT_BYTES bytes. One thread an element.
struct Pattern {
    u32 words[16];
};

GW_KERNEL(fill)(u8* x, Pattern pattern, u64 n) {
    const u64 i = gw::global_thread();
    if (i >= n) return;
    u8* element = x + i * ELEMENT_BYTES;
    for (u32 byte = 0; byte < ELEMENT_BYTES; ++byte) element[byte] = (u8)(pattern.words[byte / 4] >> (8 * (byte % 4)));
}
