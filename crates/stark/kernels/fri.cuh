#include "circle.cuh"
#include "transcript.cuh"

// Folds: with f(p) and f(-p) at a pair of points and t the coordinate that tells them apart,
//     2 f(p) = f0 + t f1,   f0 = f(p) + f(-p),   f1 = (f(p) - f(-p)) / t,
// the folded value is f0 + alpha f1. Pairs are neighbours in bit-reversed order; one thread a pair. The challenge lies in device
// memory, since the transcript may be there; a later fold of one challenge takes its square, and so on.

GW_DEVICE QM31 challenge(const QM31* alpha, u32 squarings) {
    QM31 power = qm31::load(alpha);
    for (u32 i = 0; i < squarings; ++i) power = qm31::square(power);
    return power;
}

GW_DEVICE QM31 folded(const Coordinates& from, u64 pair, u32 inverse_doubled, QM31 alpha) {
    const QM31 left = qm31::load(from, 2 * pair), right = qm31::load(from, 2 * pair + 1);
    const QM31 difference = qm31::sub(left, right);
    const QM31 f1 = {m31::mul_doubled(difference.a, inverse_doubled), m31::mul_doubled(difference.b, inverse_doubled),
                     m31::mul_doubled(difference.c, inverse_doubled), m31::mul_doubled(difference.d, inverse_doubled)};
    return qm31::add(qm31::add(left, right), qm31::mul(alpha, f1));
}

// The leaf of a tree over one column of QM31.
GW_DEVICE blake2s::State leaf(QM31 value, DigestWords form) {
    const u32 m[16] = {value.a, value.b, value.c, value.d};
    blake2s::State state = blake2s::initial();
    blake2s::compress(state, m, 16, true);
    if (form == DigestWords::M31) blake2s::reduce(state);
    return state;
}

GW_DEVICE void store_folded(const Coordinates& to, u64 row, QM31 value, const Leaves& leaves) {
    qm31::store(to, row, value);
    if (leaves.address) blake2s::store(reinterpret_cast<u32*>(leaves.address) + 8 * row, leaf(value, leaves.words));
}

// A circle polynomial over 2^log_domain points to one of the line over half as many. Twiddles of domains below eight points
// are in no table and lie in `few`, two at most.
GW_KERNEL(fold_circle)(
    Coordinates from, Coordinates to, const u32* inverses, u32 log_table, u32 log_domain, u32x2 few,
    const QM31* alpha, Leaves leaves) {
    gw::await_stream();
    const u32 pair = (u32)gw::global_thread();
    if (pair >> (log_domain - 1)) return;
    u32 twiddle = pair == 0 ? few.x : few.y;
    if (log_domain >= 3) twiddle = circle::y_doubled(circle::layer(inverses, log_table, log_domain, 1), pair);
    store_folded(to, pair, folded(from, pair, twiddle, qm31::load(alpha)), leaves);
}

// A polynomial of the line over 2^log_size points to one over half as many.
GW_KERNEL(fold_line)(
    Coordinates from, Coordinates to, const u32* inverses, u32 log_table, u32 log_size, const QM31* alpha, u32 squarings,
    Leaves leaves) {
    gw::await_stream();
    const u32 pair = (u32)gw::global_thread();
    if (pair >> (log_size - 1)) return;
    const u32 twiddle = circle::layer(inverses, log_table, log_size, 0)[pair];
    store_folded(to, pair, folded(from, pair, twiddle, challenge(alpha, squarings)), leaves);
}

// to <- from - lambda on the first half of the rows, from + lambda on the second.
GW_KERNEL(decompose)(Coordinates from, Coordinates to, QM31 lambda, u64 rows) {
    const u64 row = gw::global_thread();
    if (row >= rows) return;
    const QM31 x = qm31::load(from, row);
    qm31::store(to, row, row < rows / 2 ? qm31::sub(x, lambda) : qm31::add(x, lambda));
}

// One thread.
GW_KERNEL(draw_challenge)(u32* digest, const u32* root, QM31* alpha, DigestWords form) {
    qm31::store(alpha, mix_and_draw(digest, blake2s::load(root), form));
}

// The layers of 2^log_first points down to those of 2^(log_last + 1), each hashed, taken into the transcript and folded into the
// next. They are small: one block, with barriers where launches would be. TAIL_THREADS threads, 16 bytes of shared memory.
GW_KERNEL_BOUNDED(fold_to_last, TAIL_THREADS, 1)(
    const LineLayer* layers, u32 log_first, u32 log_last, const u32* inverses, u32 log_table, u32* digest, DigestWords form) {
    gw::await_stream();
    QM31* alpha = gw::shared<QM31>();
    const u32 thread = gw::thread_x(), threads = gw::threads_x();
    for (u32 log_size = log_first; log_size > log_last; --log_size) {
        const LineLayer& layer = layers[log_first - log_size];
        const u32 points = 1u << log_size;
        for (u32 row = thread; row < points; row += threads) {
            blake2s::store(layer.tree + 8 * (points - 1 + row), leaf(qm31::load(layer.values, row), form));
        }
        gw::sync_threads();
        for (u32 nodes = points / 2; nodes > 0; nodes /= 2) {
            for (u32 node = thread; node < nodes; node += threads) {
                const u32* below = layer.tree + 8 * (2 * nodes - 1 + 2 * node);
                const blake2s::State left = blake2s::load(below), right = blake2s::load(below + 8);
                blake2s::store(layer.tree + 8 * (nodes - 1 + node), blake2s::parent(left, right, form));
            }
            gw::sync_threads();
        }
        if (thread == 0) qm31::store(alpha, mix_and_draw(digest, blake2s::load(layer.tree), form));
        gw::sync_threads();
        const u32* twiddles = circle::layer(inverses, log_table, log_size, 0);
        const Coordinates& next = layers[log_first - log_size + 1].values;
        for (u32 pair = thread; pair < points / 2; pair += threads) {
            // The same thread hashes this value next.
            qm31::store(next, pair, folded(layer.values, pair, twiddles[pair], qm31::load(alpha)));
        }
    }
}
