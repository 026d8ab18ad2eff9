#include "gw/gw.cuh"

// to[i] <- OPERATION(... OPERATION(OPERATION(x[0][i], x[1][i]), x[2][i]) ..., x[rows - 1][i]), for elements of type ELEMENT.
// Row r of x starts at element r * n. One thread an element of the result.
template <typename T>
GW_DEVICE T sum(T left, T right) {
    return left + right;
}

template <typename T>
GW_DEVICE T smaller(T left, T right) {
    return left < right ? left : right;
}

template <typename T>
GW_DEVICE T larger(T left, T right) {
    return left < right ? right : left;
}

template <typename T>
GW_DEVICE T exclusive_or(T left, T right) {
    return left ^ right;
}

GW_KERNEL(fold)(const ELEMENT* x, ELEMENT* to, u64 rows, u64 n) {
    const u64 i = gw::global_thread();
    if (i >= n) return;
    ELEMENT folded = x[i];
    for (u64 row = 1; row < rows; ++row) folded = OPERATION(folded, x[row * n + i]);
    to[i] = folded;
}
