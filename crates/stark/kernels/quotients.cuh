#include "circle.cuh"
#include "shared.cuh"

// Quotients of FRI: sums of (c f(p) - a y(p) - b) / line(p) over columns f and the points at which they were sampled.

// numerators <- sum of factor x value over columns - constant. One thread a row.
GW_KERNEL_BOUNDED(numerators, 256, 2)(
    const u32* const* columns, const QM31* factors, u32 column_count, QM31 constant, Coordinates numerators, u32 rows) {
    const u32 row = (u32)gw::global_thread();
    if (row >= rows) return;
    qm31::Sum sum = qm31::sum();
    GW_UNROLL_BY(6)
    for (u32 column = 0; column < column_count; ++column) {
        qm31::add_product(sum, qm31::load(factors + column), columns[column][row]);
    }
    qm31::store(numerators, row, qm31::sub(qm31::total(sum), constant));
}

// quotients <- sum over points of (numerator - linear y(q)) / line(q), where the line goes through the point and its
// conjugate and q is the row's point: the prefix of the domain of 2^log_domain points whose table is given. Points of domains
// below eight points are in no table and lie in `few`: x and y, doubled. One thread a row.
GW_KERNEL(combine_quotients)(
    const Sampled* points, u32 point_count, const u32* table, u32 log_table, u32 log_domain, u32x4 few, Coordinates quotients,
    u32 rows) {
    const u32 row = (u32)gw::global_thread();
    if (row >= rows) return;
    const u32 pair = row >> 1;
    u32 x = few.x, y = few.y;
    if (log_domain >= 3) {
        const u32* layer_1 = circle::layer(table, log_table, log_domain, 1);
        x = circle::x_doubled(layer_1, pair);
        y = circle::y_doubled(layer_1, pair);
    } else if (pair == 1) {
        x = few.z;
        y = few.w;
    }
    x = m31::fold(x >> 1);
    y = m31::fold(y >> 1);
    if (row & 1) y = m31::neg(y);
    QM31 sum = qm31::zero();
    for (u32 i = 0; i < point_count; ++i) {
        const Sampled& point = points[i];
        const CM31 run = cm31::mul(cm31::sub(point.real_x, {x, 0}), point.imaginary_y);
        const CM31 rise = cm31::mul(cm31::sub(point.real_y, {y, 0}), point.imaginary_x);
        const CM31 inverse = cm31::inverse(cm31::sub(run, rise));
        const QM31 numerator = qm31::load(point.numerators, lifted_row(row, point.shift));
        const QM31 full = qm31::sub(numerator, qm31::mul_m31(point.linear, y));
        sum = qm31::add(sum, qm31::mul_cm31(full, inverse));
    }
    qm31::store(quotients, row, sum);
}
