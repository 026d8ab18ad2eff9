//! Nothing hangs and nothing dies: loops without an end, traps and wild pointers are faults with their line.

#[path = "support/bugs.rs"]
mod bugs;

use std::time::Duration;

use bugs::{Bug, block, blocks, find_all, find_all_under};
use gatework_gpu::{Device, Emulation, Error, FaultKind, Grid, Result, Source, args};

/// Loops, each of which uses up its time: few schedules suffice, since none of them matters.
#[test]
fn a_loop_without_an_end_is_stopped_at_its_line() {
    let kind = FaultKind::TimeLimit;
    let words = "runs for more than 0.4 s";
    find_all_under(
        2,
        "",
        &[
            Bug {
                name: "registers_only",
                body: "u32 a = x[gw::thread()];\nwhile (a HOLE) // here\na = a * 3 + 2; // here\nx[gw::thread()] = a;",
                bug: "!= 0",
                fix: "== 0",
                kind,
                words,
                grid: block(1),
            },
            Bug {
                name: "empty",
                body: "if (x[0] == HOLE)\nfor (;;) asm volatile(\"\"); // here\nx[0] = 1;",
                bug: "7",
                fix: "8",
                kind,
                words,
                grid: block(1),
            },
            Bug {
                name: "loads_only",
                body: "u32 i = 0;\nwhile (x[i & 7] != HOLE) // here\n++i; // here\nx[gw::thread()] = i;",
                bug: "9",
                fix: "7",
                kind,
                words,
                grid: block(1),
            },
            Bug {
                name: "stores",
                body: "for (u32 i = 0; i HOLE 100; i += 0u + (i < 50)) // here\nx[gw::thread()] = i; // here",
                bug: "<",
                fix: ">",
                kind,
                words,
                grid: block(32),
            },
            Bug {
                name: "clock",
                body: "const u64 end = gw::clock() + HOLE;\nwhile (gw::clock() < end) {} // here\nx[0] = 1;",
                bug: "100000000000000ull",
                fix: "10",
                kind,
                words,
                grid: block(1),
            },
            Bug {
                name: "barriers",
                body: "do {\ngw::sync_threads(); // here\n} while (n HOLE 1024); // here",
                bug: "==",
                fix: "!=",
                kind,
                words,
                grid: block(64),
            },
            Bug {
                name: "shuffles",
                body: "u32 v = gw::lane();\ndo {\nv = gw::shuffle_xor(v, 1); // here\n} while (n HOLE 1024); // here\nx[gw::lane()] = v;",
                bug: "==",
                fix: "!=",
                kind,
                words,
                grid: block(32),
            },
            Bug {
                name: "atomics",
                body: "do {\ngw::atomic_add(x, 1u); // here\n} while (n HOLE 1024); // here",
                bug: "==",
                fix: "!=",
                kind,
                words,
                grid: blocks(2, 1),
            },
        ],
    );
}

#[test]
fn what_the_processor_refuses_is_a_fault() {
    find_all(
        "__attribute__((noinline)) static u32 smash(u32* at, u32 n) {\nfor (u32 i = 0; i < n; ++i) at[i] = 0x11111111u * i;\n\
         return at[0];\n}\ntypedef void (*Function)();",
        &[
            Bug {
                name: "trap",
                body: "if (x[0] == HOLE)\n__builtin_trap(); // here\nx[0] = 1;",
                bug: "7",
                fix: "8",
                kind: FaultKind::Trap,
                words: "trap",
                grid: block(1),
            },
            Bug {
                name: "smallest_by_minus_one",
                body: "volatile i32 a = -2147483647 - 1;\nvolatile i32 b = HOLE;\nx[0] = (u32)(a / b); // here",
                bug: "-1",
                fix: "-2",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "remainder_by_minus_one",
                body: "volatile i64 a = -9223372036854775807ll - 1;\nvolatile i64 b = HOLE;\nx[0] = (u32)(a % b); // here",
                bug: "-1",
                fix: "-2",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "no_address",
                body: "x[0] = *(volatile u32*)(HOLE); // here",
                bug: "0x123456789000ull * (n & 1024)",
                fix: "x + 1",
                kind: FaultKind::OutOfBounds,
                words: "in no buffer",
                grid: block(1),
            },
        ],
    );
}

/// What a wild pointer does to its own stack cannot have a line of its own, but it ends nothing.
#[test]
fn a_stack_that_is_written_over_does_not_end_the_process() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\n\
        __attribute__((noinline)) static void smash(u32* at, u32 n) {\nfor (u32 i = 0; i < n; ++i) at[i] = 0x11111111u * i;\n}\n\
        GW_KERNEL(smashes)(u32* x, u32 n) {\nu32 mine[4] = {1, 2, 3, 4};\nsmash(mine, n);\nx[0] = mine[x[1] & 3];\n}\n\
        GW_KERNEL(jumps)(u32* x, u32 n) {\ntypedef void (*Function)();\n((Function)(u64)(n * 8))();\nx[0] = 1;\n}\n";
    let source = Source::new("wild", text);
    for (kernel, harmless, wild) in [("smashes", 4, 200), ("smashes", 4, 64), ("jumps", 0, 1)] {
        for seed in 0..5 {
            let device = Device::emulated_as(Emulation::seeded(seed).limit(Duration::from_secs(1)))?;
            let stream = device.stream()?;
            let mut x = stream.upload(&[0u32; 16])?;
            let kernel = device.kernel_named(&source, kernel)?;
            let one = Grid::new([1, 1, 1], [1, 1, 1]);
            kernel.launch(&stream, &one, &args![&mut x, wild as u32])?;
            let error = stream.synchronize().expect_err("the wild pointer goes unseen");
            assert!(matches!(&error, Error::Fault(fault) if fault.kind == FaultKind::OutOfBounds), "{error}");
            if harmless > 0 {
                kernel.launch(&stream, &one, &args![&mut x, harmless as u32])?;
                stream.synchronize()?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_launch_in_time_follows_one_that_was_stopped() -> Result<()> {
    let device = Device::emulated_as(Emulation::seeded(3).limit(Duration::from_millis(200)))?;
    let stream = device.stream()?;
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(spin)(u32* x, u32 rounds) {\nu32 v = gw::thread();\n\
                for (u32 i = 0; i < rounds; ++i) v = v * 1664525u + 1013904223u;\nx[gw::thread()] = v;\n}";
    let kernel = device.kernel(&Source::new("spin", text))?;
    let grid = Grid::new([1, 1, 1], [32, 1, 1]);
    let mut x = stream.alloc::<u32>(32)?;
    for _ in 0..3 {
        kernel.launch(&stream, &grid, &args![&mut x, 4_000_000_000u32])?;
        let error = stream.synchronize().expect_err("out of time");
        assert!(matches!(&error, Error::Fault(fault) if fault.kind == FaultKind::TimeLimit), "{error}");
        kernel.launch(&stream, &grid, &args![&mut x, 10u32])?;
        stream.synchronize()?;
    }
    Ok(())
}
