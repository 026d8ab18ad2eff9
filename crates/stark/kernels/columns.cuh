#include "sums.cuh"

// Whole columns: reordered, gathered, summed.

// Puts 2^log_size elements of `words` words into bit-reversed order, in place. One thread an element.
GW_KERNEL(bit_reverse)(u32* column, u32 log_size, u32 words) {
    const u32 i = (u32)gw::global_thread();
    if (i >> log_size) return;
    const u32 j = gw::reverse_bits(i) >> (32 - log_size);
    if (i >= j) return;
    for (u32 word = 0; word < words; ++word) {
        const u64 left = (u64)i * words + word, right = (u64)j * words + word;
        const u32 kept = column[left];
        column[left] = column[right];
        column[right] = kept;
    }
}

// Elements of `words` words from many places, one after the other. One thread a word.
GW_KERNEL(collect)(const u64* addresses, u32* out, u32 words, u32 count) {
    const u32 i = (u32)gw::global_thread();
    if (i >= count * words) return;
    const u32* element = reinterpret_cast<const u32*>(addresses[i / words]);
    out[i] = element[i % words];
}

// partials[b] <- sum of sign x over the rows of block b, where sign is -1 from row `turn` on. Blocks of 256 threads, 128
// bytes of shared memory.
GW_KERNEL_BOUNDED(sum_signed, 256, 1)(Coordinates column, u64 rows, u64 turn, QM31* partials) {
    QM31 sum = qm31::zero();
    for (u64 row = gw::global_thread(); row < rows; row += gw::global_threads()) {
        const QM31 x = qm31::load(column, row);
        sum = row < turn ? qm31::add(sum, x) : qm31::sub(sum, x);
    }
    QM31* of_warps = gw::shared<QM31>();
    sum = sums::over_warp(sum);
    if (gw::lane() == 0) qm31::store(of_warps + gw::warp(), sum);
    gw::sync_threads();
    if (gw::thread() == 0) qm31::store(partials + gw::block_x(), sums::of_warps(of_warps, gw::threads() / 32));
}
