#include "shared.cuh"
#include "sums.cuh"

// Multilinear extensions on the hypercube, and the layers and sums of GKR. Elements lie in bit-reversed order.

// to[i] <- a[i] + x (b[i] - a[i]), a the first half of the evaluations and b the second. One thread an element of `to`.
GW_KERNEL(fix_first_m31)(const u32* from, QM31* to, QM31 x, u64 n) {
    const u64 i = gw::global_thread();
    if (i >= n) return;
    const u32 left = from[i], right = from[i + n];
    qm31::store(to + i, qm31::add_m31(qm31::mul_m31(x, m31::sub(right, left)), left));
}
GW_KERNEL(fix_first_qm31)(const QM31* from, QM31* to, QM31 x, u64 n) {
    const u64 i = gw::global_thread();
    if (i >= n) return;
    const QM31 left = qm31::load(from + i), right = qm31::load(from + i + n);
    qm31::store(to + i, qm31::add(qm31::mul(x, qm31::sub(right, left)), left));
}

// to[i] <- v x product over bits k of i of y[n - 1 - k], or 1 - y[n - 1 - k] where the bit is clear. One thread an element.
GW_KERNEL(eq_evaluations)(const QM31* y, u32 n, QM31 v, QM31* to) {
    const u32 i = (u32)gw::global_thread();
    if (i >> n) return;
    for (u32 bit = 0; bit < n; ++bit) {
        const QM31 factor = qm31::load(y + (n - 1 - bit));
        v = qm31::mul(v, i >> bit & 1 ? factor : qm31::sub(qm31::one(), factor));
    }
    qm31::store(to + i, v);
}

GW_DEVICE QM31 numerator(LayerKind kind, const u32* numerators, u64 i) {
    if (kind == LayerKind::Singles) return qm31::one();
    if (kind == LayerKind::Multiplicities) return qm31::lift(numerators[i]);
    return qm31::load(reinterpret_cast<const QM31*>(numerators) + i);
}

// The next layer: products of neighbours, or sums of neighbouring fractions. One thread an element of the result.
GW_KERNEL(next_layer)(
    const u32* numerators, const QM31* denominators, QM31* next_numerators, QM31* next_denominators, LayerKind kind, u64 n) {
    if (!known(kind)) gw::trap();
    const u64 i = gw::global_thread();
    if (i >= n) return;
    const QM31 d0 = qm31::load(denominators + 2 * i), d1 = qm31::load(denominators + 2 * i + 1);
    qm31::store(next_denominators + i, qm31::mul(d0, d1));
    if (kind == LayerKind::Product) return;
    const QM31 n0 = numerator(kind, numerators, 2 * i), n1 = numerator(kind, numerators, 2 * i + 1);
    qm31::store(next_numerators + i, qm31::add(qm31::mul(n0, d1), qm31::mul(n1, d0)));
}

// The value of a gate at t = 2, by its values at 0 and 1.
GW_DEVICE QM31 at_two(QM31 at_zero, QM31 at_one) { return qm31::sub(qm31::add(at_one, at_one), at_zero); }

// n0 d1 + n1 d0 + lambda d0 d1, or the product d0 d1.
GW_DEVICE QM31 gate(LayerKind kind, QM31 n0, QM31 n1, QM31 d0, QM31 d1, QM31 lambda) {
    const QM31 product = qm31::mul(d0, d1);
    if (kind == LayerKind::Product) return product;
    return qm31::add(qm31::add(qm31::mul(n0, d1), qm31::mul(n1, d0)), qm31::mul(lambda, product));
}

// partials[b] and partials[blocks + b] <- the block's part of the sum over i of eq[i] x gate(t, i) at t = 0 and t = 2. One
// thread a term; 256 threads a block, 256 bytes of shared memory.
GW_KERNEL_BOUNDED(gate_sums, 256, 1)(
    const QM31* eq, const u32* numerators, const QM31* denominators, QM31 lambda, LayerKind kind, u64 terms, QM31* partials) {
    if (!known(kind)) gw::trap();
    QM31* of_warps = gw::shared<QM31>();
    const u32 warps = gw::threads_x() / 32;
    const u64 i = gw::global_thread();
    QM31 at_0 = qm31::zero(), at_2 = qm31::zero();
    if (i < terms) {
        QM31 d[4], n[4];
        for (u32 k = 0; k < 4; ++k) {
            const u64 place = 2 * (k < 2 ? i : terms + i) + (k & 1);
            d[k] = qm31::load(denominators + place);
            n[k] = kind == LayerKind::Product ? qm31::zero() : numerator(kind, numerators, place);
        }
        const QM31 weight = qm31::load(eq + i);
        at_0 = qm31::mul(weight, gate(kind, n[0], n[1], d[0], d[1], lambda));
        at_2 = qm31::mul(weight, gate(kind, at_two(n[0], n[2]), at_two(n[1], n[3]), at_two(d[0], d[2]),
                                      at_two(d[1], d[3]), lambda));
    }
    at_0 = sums::over_warp(at_0);
    at_2 = sums::over_warp(at_2);
    if (gw::lane() == 0) {
        qm31::store(of_warps + gw::warp(), at_0);
        qm31::store(of_warps + warps + gw::warp(), at_2);
    }
    gw::sync_threads();
    if (gw::thread_x() >= 2) return;
    const QM31 total = sums::of_warps(of_warps + gw::thread_x() * warps, warps);
    qm31::store(partials + (u64)gw::thread_x() * gw::blocks_x() + gw::block_x(), total);
}
