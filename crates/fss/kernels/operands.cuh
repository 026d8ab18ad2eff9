#pragma once
// Words of operands of a formula.

#include "gw/gw.cuh"
#include "shared.cuh"

namespace operands {

GW_DEVICE u64 whole(const Operand& operand, u32 i) { return operand.words[i]; }
GW_DEVICE u64 from(const Operand& operand, u32 i) { return operand.words[(u64)operand.number + i]; }
GW_DEVICE u64 each(const Operand& operand, u32 i) { return operand.words[i / operand.number]; }
GW_DEVICE u64 cycle(const Operand& operand, u32 i) { return operand.words[i % operand.number]; }
GW_DEVICE u64 places(const Operand& operand, u32 i) {
    const u32 place = operand.places[i];
    return place == NOWHERE ? 0 : operand.words[place];
}

// The word of an operand that belongs to word i of the result.
GW_DEVICE u64 read(const Operand& operand, u32 i) {
    switch (operand.view) {
        case ViewKind::Whole: return whole(operand, i);
        case ViewKind::From: return from(operand, i);
        case ViewKind::Each: return each(operand, i);
        case ViewKind::Cycle: return cycle(operand, i);
        case ViewKind::Places: return places(operand, i);
    }
    gw::trap();
    return 0;
}

}  // namespace operands
