#include "shared.cuh"
#include "sums.cuh"

// Values of polynomials at a point outside of their domain: dot products of columns with weights.

// basis[i] <- product of the factors whose bit in i is set: the monomial of coefficient i at a point, for the point's factors
// y, x, 2 x^2 - 1, ... A thread has 2^LOG_RUN neighbours, or all if they are fewer.
GW_KERNEL(monomials)(const QM31* factors, u32 log_size, Coordinates basis) {
    const u32 log_run = gw::lesser(LOG_RUN, log_size);
    const u32 run = (u32)gw::global_thread();
    if (run >> (log_size - log_run)) return;
    QM31 values[1 << LOG_RUN];
    values[0] = qm31::one();
    for (u32 bit = log_run; bit < log_size; ++bit) {
        if (run >> (bit - log_run) & 1) values[0] = qm31::mul(values[0], qm31::load(factors + bit));
    }
    GW_UNROLL
    for (u32 bit = 0; bit < LOG_RUN; ++bit) {
        if (bit < log_run) {
            const QM31 factor = qm31::load(factors + bit);
            GW_UNROLL
            for (u32 i = 0; i < 1u << bit; ++i) values[i | 1u << bit] = qm31::mul(values[i], factor);
        }
    }
    GW_UNROLL
    for (u32 i = 0; i < 1u << LOG_RUN; ++i) {
        if (i < 1u << log_run) qm31::store(basis, ((u64)run << log_run) | i, values[i]);
    }
}

// Weights by coordinates into weights one after the other. One thread a row.
GW_KERNEL(interleave)(Coordinates from, QM31* to, u64 rows) {
    const u64 row = gw::global_thread();
    if (row < rows) qm31::store(to + row, qm31::load(from, row));
}

// A block's rows of a column, as many apart as it has threads; zero past the last.
GW_DEVICE void load_rows(const u32* column, u64 first, u64 rows, u32 (&values)[DOT_ROWS]) {
    GW_UNROLL
    for (u32 i = 0; i < DOT_ROWS; ++i) {
        const u64 row = first + (u64)i * gw::threads_x();
        values[i] = row < rows ? column[row] : 0;
    }
}

// partials[c][b] <- sum of weight x value over the 2048 rows of block b in column c. 256 threads a block, eight rows a
// thread; blocks of rows in x, groups of some columns, 256 at most, in y. 128 bytes of shared memory for each column of the group.
GW_KERNEL_BOUNDED(dot_products, 256, 2)(
    const u32* const* columns, u32 column_count, u32 group, Coordinates weights, u64 rows, QM31* partials) {
    QM31* of_warps = gw::shared<QM31>();
    const u32 warps = gw::threads_x() / 32;
    QM31 w[DOT_ROWS];
    const u64 first = (u64)gw::block_x() * DOT_ROWS * gw::threads_x() + gw::thread_x();
    GW_UNROLL
    for (u32 i = 0; i < DOT_ROWS; ++i) {
        const u64 row = first + (u64)i * gw::threads_x();
        w[i] = row < rows ? qm31::load(weights, row) : qm31::zero();
    }
    const u32 begin = gw::block_y() * group, end = gw::lesser(begin + group, column_count);
    // The values of the next column are on their way while this one's are added up.
    u32 next[DOT_ROWS];
    load_rows(columns[begin], first, rows, next);
    for (u32 column = begin; column < end; ++column) {
        u32 values[DOT_ROWS];
        GW_UNROLL
        for (u32 i = 0; i < DOT_ROWS; ++i) values[i] = next[i];
        if (column + 1 < end) load_rows(columns[column + 1], first, rows, next);
        qm31::Sum sum = qm31::sum();
        GW_UNROLL
        for (u32 i = 0; i < DOT_ROWS; ++i) qm31::add_product(sum, w[i], values[i]);
        const QM31 of_warp = sums::over_warp(qm31::total(sum));
        if (gw::lane() == 0) qm31::store(of_warps + (column - begin) * warps + gw::warp(), of_warp);
    }
    gw::sync_threads();
    const u32 column = begin + gw::thread_x();
    if (column >= end) return;
    const QM31 total = sums::of_warps(of_warps + gw::thread_x() * warps, warps);
    qm31::store(partials + (u64)column * gw::blocks_x() + gw::block_x(), total);
}

// values[c] <- sum of the partials of column c. One warp a column.
GW_KERNEL_BOUNDED(dot_totals, 32, 1)(const QM31* partials, u32 count, QM31* values) {
    QM31 sum = qm31::zero();
    const QM31* of_column = partials + (u64)gw::block_x() * count;
    for (u32 i = gw::thread_x(); i < count; i += 32) sum = qm31::add(sum, qm31::load(of_column + i));
    sum = sums::over_warp(sum);
    if (gw::thread_x() == 0) qm31::store(values + gw::block_x(), sum);
}

// values[0] <- sum of weight x value, for weights one after the other. One block of 256 threads, 128 bytes of shared memory.
GW_KERNEL_BOUNDED(dot_interleaved, 256, 1)(const u32* column, const QM31* weights, u64 rows, QM31* value) {
    QM31* of_warps = gw::shared<QM31>();
    QM31 sum = qm31::zero();
    for (u64 row = gw::thread_x(); row < rows; row += gw::threads_x()) {
        sum = qm31::add(sum, qm31::mul_m31(qm31::load(weights + row), column[row]));
    }
    sum = sums::over_warp(sum);
    if (gw::lane() == 0) qm31::store(of_warps + gw::warp(), sum);
    gw::sync_threads();
    if (gw::thread_x() == 0) qm31::store(value, sums::of_warps(of_warps, gw::threads_x() / 32));
}
