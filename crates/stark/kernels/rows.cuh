#pragma once
// Rows of a trace on a domain, and what a component's constraints add up to on each.

#include "shared.cuh"

// The row that is `offset` rows of the trace ahead, on a domain in bit-reversed order that may be larger than the trace's. In
// the order of the coset a step of the trace is 2^(log_rows - log_trace) points; a circle domain has the even points of the
// coset in its first half and the odd ones, backwards, in its second.
GW_DEVICE u32 row_ahead(u32 row, i32 offset, u32 log_trace, u32 log_rows) {
    const u32 mask = (1u << log_rows) - 1, half = 1u << (log_rows - 1);
    const u32 natural = gw::reverse_bits(row) >> (32 - log_rows);
    const u32 in_coset = natural < half ? 2 * natural : 2 * (mask - natural) + 1;
    const u32 ahead = (in_coset + ((u32)offset << (log_rows - log_trace))) & mask;
    const u32 there = ahead & 1 ? mask - (ahead >> 1) : ahead >> 1;
    return gw::reverse_bits(there) >> (32 - log_rows);
}

// Adds a row's sum of constraints, divided by the vanishing polynomial, to the component's.
GW_DEVICE void add_row(const Rows& component, u32 row, QM31 sum) {
    const QM31 quotient = qm31::mul_m31(sum, component.denominators[row >> component.log_trace]);
    qm31::store(component.sums, row, qm31::add(qm31::load(component.sums, row), quotient));
}

// A row of an output, whose coordinates are given.
GW_DEVICE QM31 read_output(u32* const* output, u32 row) {
    return {output[0][row], output[1][row], output[2][row], output[3][row]};
}

GW_DEVICE void write_output(u32* const* output, u32 row, QM31 x) {
    output[0][row] = x.a;
    output[1][row] = x.b;
    output[2][row] = x.c;
    output[3][row] = x.d;
}
