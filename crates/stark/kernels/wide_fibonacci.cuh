#include "rows.cuh"

// The constraints c - (a^2 + b^2) of neighbouring columns, written by hand: what generated kernels are held against. Squares
// are used twice, and two columns are kept while the next is loaded. One thread a row.
GW_KERNEL_BOUNDED(wide_fibonacci, 256, 2)(Rows component, u32 columns) {
    const u32 row = (u32)gw::global_thread();
    if (row >> component.log_rows) return;
    qm31::Sum products = qm31::sum();
    u32 a_square = m31::square(component.columns[0][row]), b = component.columns[1][row];
    GW_UNROLL_BY(6)
    for (u32 i = 2; i < columns; ++i) {
        const u32 c = component.columns[i][row], b_square = m31::square(b);
        const u32 constraint = m31::sub(c, m31::add(a_square, b_square));
        qm31::add_product(products, qm31::load(component.coefficients + (i - 2)), constraint);
        a_square = b_square;
        b = c;
    }
    add_row(component, row, qm31::total(products));
}
