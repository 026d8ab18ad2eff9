// Formulas of any gate, read as data: to[i] is the last step of the formula over word i of its operands.
//
// A thread has a word at a time and a slot of shared memory for every step that is still needed, a stride of threads apart. Every
// step is one load of an instruction, up to two loads of slots and one store: for formulas that are not compiled, or not yet.

#include "operands.cuh"

GW_KERNEL_BOUNDED(interpret, ARITHMETIC_THREADS, 1)(const Instruction* program, u32 length, Operands operands, u32 n, u64* to) {
    u64* const slots = gw::shared<u64>() + gw::thread_x();
    const u32 stride = gw::threads_x();
    for (u64 at = gw::global_thread(); at < n; at += gw::global_threads()) {
        u64 result = 0;
        for (u32 step = 0; step < length; ++step) {
            const Instruction i = gw::bits<Instruction>(gw::load_128(program + step));
            const u32 a = i.a * stride, b = i.b * stride;
            switch (i.operation) {
                case Operation::Operand: result = operands::read(operands.at[i.a], (u32)at); break;
                case Operation::Constant: result = i.a | (u64)i.b << 32; break;
                case Operation::Add: result = slots[a] + slots[b]; break;
                case Operation::Subtract: result = slots[a] - slots[b]; break;
                case Operation::Multiply: result = slots[a] * slots[b]; break;
                case Operation::Xor: result = slots[a] ^ slots[b]; break;
                case Operation::And: result = slots[a] & slots[b]; break;
                case Operation::ShiftLeft: result = slots[a] << i.b; break;
                case Operation::ShiftRight: result = slots[a] >> i.b; break;
                case Operation::Below: result = slots[a] < slots[b]; break;
                default: gw::trap();
            }
            if (step + 1 < length) slots[i.slot * stride] = result;
        }
        to[at] = result;
    }
}
