#include "field.cuh"

// Sums of columns of QM31, by coordinates. One thread a row.

// column <- column + other.
GW_KERNEL(accumulate)(Coordinates column, Coordinates other, u64 rows) {
    const u64 row = gw::global_thread();
    if (row < rows) qm31::store(column, row, qm31::add(qm31::load(column, row), qm31::load(other, row)));
}

// column <- column + the lift of `other`, which has 2^shift times fewer rows.
GW_KERNEL(accumulate_lifted)(Coordinates column, Coordinates other, u32 shift, u32 rows) {
    const u32 row = (u32)gw::global_thread();
    if (row >= rows) return;
    const QM31 lifted = qm31::load(other, lifted_row(row, shift));
    qm31::store(column, row, qm31::add(qm31::load(column, row), lifted));
}
