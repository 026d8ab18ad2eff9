// Sums of words in a ring. Every word is read once: bound by memory.

#include "gw/gw.cuh"
#include "shared.cuh"

// sums[r] <- Σ of row r. Rows have `width` words, or end where `ends` says, one after the other. One warp a row.
GW_KERNEL_BOUNDED(row_sums, SUMS_THREADS, 1)(const u64* words, const u64* ends, u32 ragged, u64 width, u64 rows, u64 mask, u64* sums) {
    const u64 row = gw::global_thread() / 32;
    if (row >= rows) return;
    const u64 begin = ragged ? (row ? ends[row - 1] : 0) : row * width;
    const u64 end = ragged ? ends[row] : begin + width;
    u64 sum = 0;
    for (u64 i = begin + gw::lane(); i < end; i += 32) sum += words[i];
    GW_UNROLL
    for (u32 lanes = 16; lanes > 0; lanes /= 2) sum += gw::shuffle_xor(sum, lanes);
    if (gw::lane() == 0) sums[row] = sum & mask;
}

// sums[c] <- Σ of column c of rows of `columns` words. One thread a column.
GW_KERNEL_BOUNDED(column_sums, SUMS_THREADS, 1)(const u64* words, u64 columns, u64 rows, u64 mask, u64* sums) {
    const u64 column = gw::global_thread();
    if (column >= columns) return;
    u64 sum = 0;
    for (u64 row = 0; row < rows; ++row) sum += words[row * columns + column];
    sums[column] = sum & mask;
}
