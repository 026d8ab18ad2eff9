#include "rows.cuh"
#include "sums.cuh"

// Interaction traces: column k of a row is the sum of its first k + 1 fractions; the last column is summed up over the rows
// too, in the order of the coset, less a shift that makes the whole of it zero.

// Fractions that one inverse serves: 1 / (a b) times b is 1 / a.
constexpr u32 FRACTIONS = 4;

// Fractions into sums, in place of the numerators: numerator k is at coordinates 8 k, its denominator at 8 k + 4. The sums of
// the last column over the rows of a block go to `partials`. One thread a row; 256 threads a block, 128 bytes of shared memory.
GW_KERNEL_BOUNDED(sum_fractions, 256, 1)(u32* const* fractions, u32 count, u32 rows, QM31* partials) {
    const u32 row = (u32)gw::global_thread();
    QM31 sum = qm31::zero();
    if (row < rows) {
        for (u32 first = 0; first < count; first += FRACTIONS) {
            const u32 end = gw::lesser(count - first, FRACTIONS);
            // Denominators, then their inverses; and products of those up to each.
            QM31 under[FRACTIONS], products[FRACTIONS];
            GW_UNROLL
            for (u32 k = 0; k < FRACTIONS; ++k) {
                if (k < end) under[k] = read_output(fractions + 8 * (first + k) + 4, row);
                products[k] = k == 0 ? under[0] : k < end ? qm31::mul(products[k - 1], under[k]) : products[k - 1];
            }
            QM31 inverse = qm31::inverse(products[FRACTIONS - 1]);
            GW_UNROLL
            for (u32 k = FRACTIONS - 1; k > 0; --k) {
                if (k < end) {
                    const QM31 others = qm31::mul(inverse, under[k]);
                    under[k] = qm31::mul(inverse, products[k - 1]);
                    inverse = others;
                }
            }
            under[0] = inverse;
            GW_UNROLL
            for (u32 k = 0; k < FRACTIONS; ++k) {
                if (k < end) {
                    u32* const* over = fractions + 8 * (first + k);
                    sum = qm31::add(sum, qm31::mul(read_output(over, row), under[k]));
                    write_output(over, row, sum);
                }
            }
        }
    }
    QM31* of_warps = gw::shared<QM31>();
    sum = sums::over_warp(sum);
    if (gw::lane() == 0) qm31::store(of_warps + gw::warp(), sum);
    gw::sync_threads();
    if (gw::thread_x() == 0) qm31::store(partials + gw::block_x(), sums::of_warps(of_warps, gw::threads_x() / 32));
}

// The row that comes `place`th in the order of the coset.
GW_DEVICE u32 row_in_coset(u32 place, u32 log_rows) {
    const u32 mask = (1u << log_rows) - 1;
    const u32 natural = place & 1 ? mask - (place >> 1) : place >> 1;
    return gw::reverse_bits(natural) >> (32 - log_rows);
}

// The sum over the block of what came before each thread, and of all. `shared` has 16 bytes for each warp, and is used once.
GW_DEVICE QM31 exclusive_sum(QM31 mine, QM31* shared, QM31& all) {
    QM31 sum = mine;
    for (u32 lanes = 1; lanes < 32; lanes <<= 1) {
        const QM31 before = {gw::shuffle_up(sum.a, lanes), gw::shuffle_up(sum.b, lanes), gw::shuffle_up(sum.c, lanes),
                             gw::shuffle_up(sum.d, lanes)};
        if (gw::lane() >= lanes) sum = qm31::add(sum, before);
    }
    if (gw::lane() == 31) qm31::store(shared + gw::warp(), sum);
    gw::sync_threads();
    QM31 before = qm31::zero();
    all = qm31::zero();
    for (u32 warp = 0; warp < gw::threads_x() / 32; ++warp) {
        if (warp == gw::warp()) before = all;
        all = qm31::add(all, qm31::load(shared + warp));
    }
    return qm31::add(before, qm31::sub(sum, mine));
}

// Sums of value - shift over runs of 2048 rows in the order of the coset, one a block. 256 threads, 128 bytes of shared memory.
GW_KERNEL_BOUNDED(scan_blocks, 256, 1)(Coordinates column, QM31 shift, u32 log_rows, QM31* block_sums) {
    const u32 first = (gw::block_x() * gw::threads_x() + gw::thread_x()) * SCAN_ROWS;
    QM31 sum = qm31::zero(), all;
    for (u32 i = 0; i < SCAN_ROWS && (first + i) >> log_rows == 0; ++i) {
        sum = qm31::add(sum, qm31::sub(qm31::load(column, row_in_coset(first + i, log_rows)), shift));
    }
    exclusive_sum(sum, gw::shared<QM31>(), all);
    if (gw::thread_x() == 0) qm31::store(block_sums + gw::block_x(), all);
}

// block_sums[b] <- the sum of those before b, in place; a thread has neighbours. One block of 256 threads, 128 bytes of shared
// memory.
GW_KERNEL_BOUNDED(scan_sums, 256, 1)(QM31* block_sums, u32 count) {
    const u32 each = (count + gw::threads_x() - 1) / gw::threads_x();
    const u32 first = gw::lesser(gw::thread_x() * each, count), end = gw::lesser(first + each, count);
    QM31 sum = qm31::zero(), all;
    for (u32 i = first; i < end; ++i) sum = qm31::add(sum, qm31::load(block_sums + i));
    QM31 before = exclusive_sum(sum, gw::shared<QM31>(), all);
    for (u32 i = first; i < end; ++i) {
        const QM31 mine = qm31::load(block_sums + i);
        qm31::store(block_sums + i, before);
        before = qm31::add(before, mine);
    }
}

// column <- the sums of value - shift up to and with each row, in the order of the coset, in place. As `scan_blocks`.
GW_KERNEL_BOUNDED(scan_rows, 256, 1)(Coordinates column, QM31 shift, u32 log_rows, const QM31* block_sums) {
    const u32 first = (gw::block_x() * gw::threads_x() + gw::thread_x()) * SCAN_ROWS;
    QM31 sum = qm31::zero(), all;
    for (u32 i = 0; i < SCAN_ROWS && (first + i) >> log_rows == 0; ++i) {
        sum = qm31::add(sum, qm31::sub(qm31::load(column, row_in_coset(first + i, log_rows)), shift));
    }
    QM31 running = qm31::add(exclusive_sum(sum, gw::shared<QM31>(), all), qm31::load(block_sums + gw::block_x()));
    for (u32 i = 0; i < SCAN_ROWS && (first + i) >> log_rows == 0; ++i) {
        const u32 row = row_in_coset(first + i, log_rows);
        running = qm31::add(running, qm31::sub(qm31::load(column, row), shift));
        qm31::store(column, row, running);
    }
}
