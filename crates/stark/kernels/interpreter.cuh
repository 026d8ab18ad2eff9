#include "rows.cuh"

// Runs a program of constraints on every row, without compiling it.
//
// A thread has a row at a time and `slots` words for values, a stride apart: in shared memory, of as many threads as a block
// has, or in `scratch`, of as many as the grid has.
struct Slots {
    u32* first;
    u64 stride;

    GW_DEVICE u32 base(u32 place) const { return first[place * stride]; }
    GW_DEVICE QM31 secure(u32 place) const { return {base(place), base(place + 1), base(place + 2), base(place + 3)}; }
    GW_DEVICE void set(u32 place, u32 x) const { first[place * stride] = x; }
    GW_DEVICE void set(u32 place, QM31 x) const {
        set(place, x.a);
        set(place + 1, x.b);
        set(place + 2, x.c);
        set(place + 3, x.d);
    }
};

GW_KERNEL_BOUNDED(interpret, 256, 1)(
    const Instruction* program, u32 length, Rows component, u32* const* outputs, u32 constrains, u32* scratch,
    u32 in_shared) {
    const Slots slots = in_shared ? Slots{gw::shared<u32>() + gw::thread_x(), gw::threads_x()}
                                  : Slots{scratch + gw::global_thread(), gw::global_threads()};
    for (u64 at = gw::global_thread(); at >> component.log_rows == 0; at += gw::global_threads()) {
        const u32 row = (u32)at;
        QM31 sum = qm31::zero();
        for (u32 step = 0; step < length; ++step) {
            const Instruction i = gw::bits<Instruction>(gw::load_128(program + step));
            const u32 to = i.code >> 8;
            switch ((Operation)(i.code & 0xff)) {
                case Operation::Column: {
                    const i32 offset = (i32)i.b;
                    const u32 from = offset ? row_ahead(row, offset, component.log_trace, component.log_rows) : row;
                    slots.set(to, component.columns[i.a][from]);
                    break;
                }
                case Operation::Constant: slots.set(to, i.a); break;
                case Operation::Add: slots.set(to, m31::add(slots.base(i.a), slots.base(i.b))); break;
                case Operation::Sub: slots.set(to, m31::sub(slots.base(i.a), slots.base(i.b))); break;
                case Operation::Mul: slots.set(to, m31::mul(slots.base(i.a), slots.base(i.b))); break;
                case Operation::Neg: slots.set(to, m31::neg(slots.base(i.a))); break;
                case Operation::Inverse: slots.set(to, m31::inverse(slots.base(i.a))); break;
                case Operation::Parameter: slots.set(to, qm31::load(component.parameters + i.a)); break;
                case Operation::Lift: slots.set(to, qm31::lift(slots.base(i.a))); break;
                case Operation::Combine:
                    slots.set(to, QM31{slots.base(i.a & 0xffff), slots.base(i.a >> 16), slots.base(i.b & 0xffff),
                                       slots.base(i.b >> 16)});
                    break;
                case Operation::SecureAdd: slots.set(to, qm31::add(slots.secure(i.a), slots.secure(i.b))); break;
                case Operation::SecureSub: slots.set(to, qm31::sub(slots.secure(i.a), slots.secure(i.b))); break;
                case Operation::SecureMul: slots.set(to, qm31::mul(slots.secure(i.a), slots.secure(i.b))); break;
                case Operation::SecureNeg: slots.set(to, qm31::neg(slots.secure(i.a))); break;
                case Operation::SecureAddBase: slots.set(to, qm31::add_m31(slots.secure(i.a), slots.base(i.b))); break;
                case Operation::SecureMulBase: slots.set(to, qm31::mul_m31(slots.secure(i.a), slots.base(i.b))); break;
                case Operation::Constrain:
                    sum = qm31::add(sum, qm31::mul_m31(qm31::load(component.coefficients + i.a), slots.base(i.b)));
                    break;
                case Operation::SecureConstrain:
                    sum = qm31::add(sum, qm31::mul(qm31::load(component.coefficients + i.a), slots.secure(i.b)));
                    break;
                case Operation::Output:
                case Operation::SecureOutput: {
                    const bool secure = (Operation)(i.code & 0xff) == Operation::SecureOutput;
                    const QM31 x = secure ? slots.secure(i.b) : qm31::lift(slots.base(i.b));
                    u32* const* columns = outputs + 4 * i.a;
                    columns[0][row] = x.a;
                    columns[1][row] = x.b;
                    columns[2][row] = x.c;
                    columns[3][row] = x.d;
                    break;
                }
                default: gw::trap();
            }
        }
        if (constrains) add_row(component, row, sum);
    }
}
