#include "gw/gw.cuh"

// to[i] <- from[indices[i]], for elements of ELEMENT_BYTES bytes. One thread an element.
// An index past the end of `from` gives an element of all ones: nothing outside `from` is ever read.
#if ELEMENT_BYTES == 16
typedef u32x4 Word;
#elif ELEMENT_BYTES % 8 == 0
typedef u64 Word;
#elif ELEMENT_BYTES % 4 == 0
typedef u32 Word;
#else
typedef u8 Word;
#endif

GW_DEVICE Word all_ones() {
    Word word;
    for (u32 i = 0; i < sizeof(Word); ++i) reinterpret_cast<u8*>(&word)[i] = 0xFF;
    return word;
}

GW_KERNEL(gather)(const u8* from, const u32* indices, u8* to, u64 from_len, u64 n) {
    const u64 i = gw::global_thread();
    if (i >= n) return;
    const u64 index = indices[i];
    const Word* source = reinterpret_cast<const Word*>(from + index * ELEMENT_BYTES);
    Word* target = reinterpret_cast<Word*>(to + i * ELEMENT_BYTES);
    for (u32 word = 0; word < ELEMENT_BYTES / sizeof(Word); ++word) {
        target[word] = index < from_len ? source[word] : all_ones();
    }
}
