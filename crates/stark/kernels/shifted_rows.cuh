#include "rows.cuh"

// The rows `first` .. of a chunk of 2^log_chunk, each as the one of a column that is `offset` rows of the trace ahead. A chunk of rows
// in bit-reversed order has all points whose indices have the same low bits, so that its even rows are ahead in one chunk and
// its odd rows in another: those are given. One thread a row, columns in y.
GW_KERNEL_BOUNDED(shift_rows, 256, 1)(
    const ShiftedColumn* columns, u32 first, u32 log_chunk, u32 log_trace, u32 log_rows) {
    const u32 row = (u32)gw::global_thread();
    if (row >> log_chunk) return;
    const ShiftedColumn column = columns[gw::block_y()];
    const u32 ahead = row_ahead(first + row, column.offset, log_trace, log_rows) & ((1u << log_chunk) - 1);
    column.target[row] = row & 1 ? column.odd[ahead] : column.even[ahead];
}
