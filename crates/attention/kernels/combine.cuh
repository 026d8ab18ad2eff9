#include "parts.cuh"

// o and lse of all rows from those of parts of the keys. A warp a row.
// Parts: [part, head, row, COLUMNS] in f32, and [part, head, row].

constexpr Number OUT_NUMBER = (Number)OUT_FORMAT;
typedef Bits<OUT_NUMBER> Out;
typedef Combined<COLUMNS, 1> Row;

GW_KERNEL(combine)(const f32* parts, const f32* parts_lse, Out* o, f32* lse, Parts p) {
    gw::await_stream();
    gw::admit_next();
    const u64 index = gw::global_thread() / 32;
    if (index >= p.total) return;
    Row row;
    row.take(parts, parts_lse, p.count, 1, [&](u32, u32 part) { return part * p.total + index; },
             ReadUnchanged{});
    const u32 head = (u32)(index / p.rows);
    Out* to = o + head / p.heads * p.batch_stride + head % p.heads * p.head_stride + index % p.rows * p.row_stride;
    GW_UNROLL
    for (u32 i = 0; i < Row::PER_LANE; ++i) {
        if (Row::has(i)) store<OUT_NUMBER>(to + Row::column(i), row.value(0, i));
    }
    if (gw::lane() == 0) lse[index] = row.log_sum(0);
}
