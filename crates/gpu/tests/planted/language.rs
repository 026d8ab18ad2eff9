//! What C++ leaves open: addresses, overflows, returns, shifts, casts.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, find_all};

#[test]
fn addresses_are_multiples() {
    find_all(
        "struct alignas(8) Pair { f32 a, b; };\n\
         struct Row { u32x4 words[2]; };",
        &[
            Bug {
                name: "u64",
                body: "*(u64*)(x + HOLE) = 5; // here",
                bug: "1",
                fix: "2",
                kind: FaultKind::Misaligned,
                words: "no multiple of 8",
                grid: block(1),
            },
            Bug {
                name: "vector_load",
                body: "const u32x4 v = *(const u32x4*)(x + HOLE); // here\n\
                       x[100] = v.w;",
                bug: "3",
                fix: "4",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(1),
            },
            Bug {
                name: "vector_store",
                body: "*(f32x4*)(x + HOLE) = f32x4{1, 2, 3, 4}; // here",
                bug: "2",
                fix: "8",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(1),
            },
            Bug {
                name: "vector_part",
                body: "x[100] = ((const u32x4*)(x + HOLE))->y; // here",
                bug: "6",
                fix: "4",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(1),
            },
            Bug {
                name: "shared_vector",
                body: "u32* s = gw::shared<u32>();\n\
                       s[gw::thread()] = 1;\n\
                       gw::sync_threads();\n\
                       x[gw::thread()] = ((u32x4*)(s + HOLE))->x; // here",
                bug: "1",
                fix: "4",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(32),
            },
            Bug {
                name: "pair",
                body: "*(Pair*)(x + HOLE) = Pair{1, 2}; // here",
                bug: "5",
                fix: "6",
                kind: FaultKind::Misaligned,
                words: "no multiple of 8",
                grid: block(1),
            },
            Bug {
                name: "row",
                body: "((Row*)(x + HOLE))->words[1].z = 5; // here",
                bug: "4 * 3 + 2",
                fix: "4 * 3",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(1),
            },
            Bug {
                name: "half",
                body: "((u16*)((u8*)x + HOLE))[0] = 1; // here",
                bug: "1",
                fix: "2",
                kind: FaultKind::Misaligned,
                words: "no multiple of 2",
                grid: block(1),
            },
        ],
    );
}

#[test]
fn signed_integers_do_not_overflow() {
    find_all(
        "",
        &[
            Bug {
                name: "sum",
                body: "volatile i32 a = 2147483647;\n\
                       x[0] = (u32)(a + HOLE); // here",
                bug: "1",
                fix: "0",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "difference",
                body: "volatile i32 a = -2147483647;\n\
                       x[0] = (u32)(a - HOLE); // here",
                bug: "2",
                fix: "1",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "product",
                body: "volatile i32 a = 65536;\n\
                       x[0] = (u32)(a * HOLE); // here",
                bug: "32768",
                fix: "32767",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "negative",
                body: "volatile i32 a = -2147483647 - HOLE;\n\
                       x[0] = (u32)-a; // here",
                bug: "1",
                fix: "0",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "index",
                body: "const i32 i = (i32)n * HOLE; // here\n\
                       x[i > 0 ? 1 : 0] = 1;",
                bug: "4000000",
                fix: "4",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
            Bug {
                name: "long",
                body: "volatile i64 a = 9223372036854775807ll;\n\
                       volatile i64 b = a + HOLE; // here\nx[0] = (u32)b;",
                bug: "1",
                fix: "0",
                kind: FaultKind::Overflow,
                words: "overflows",
                grid: block(1),
            },
        ],
    );
}

#[test]
fn results_are_defined() {
    find_all(
        "__attribute__((noinline)) static u32 pick(u32 n) {\n\
         if (n == 7) return 1;\n\
         }",
        &[
            Bug {
                name: "shift",
                body: "x[0] = n << (x[1] + HOLE); // here",
                bug: "25",
                fix: "24",
                kind: FaultKind::OutOfRange,
                words: "a shift",
                grid: block(1),
            },
            Bug {
                name: "shift_right",
                body: "x[0] = n >> (x[1] * HOLE); // here",
                bug: "5",
                fix: "4",
                kind: FaultKind::OutOfRange,
                words: "a shift",
                grid: block(1),
            },
            Bug {
                name: "cast",
                body: "const f32 v = (f32)x[1] * HOLE;\n\
                       x[0] = (u32)v; // here",
                bug: "1e9f",
                fix: "1e8f",
                kind: FaultKind::OutOfRange,
                words: "the integer cannot hold",
                grid: block(1),
            },
            Bug {
                name: "negative_cast",
                body: "const f32 v = (f32)x[1] * HOLE;\n\
                       x[0] = (u32)v; // here",
                bug: "-1.0f",
                fix: "1.0f",
                kind: FaultKind::OutOfRange,
                words: "the integer cannot hold",
                grid: block(1),
            },
            Bug {
                name: "division",
                body: "x[0] = n / (x[1] - HOLE); // here",
                bug: "7",
                fix: "6",
                kind: FaultKind::DivisionByZero,
                words: "divided by zero",
                grid: block(1),
            },
            Bug {
                name: "remainder",
                body: "x[0] = n % (x[1] - HOLE); // here",
                bug: "7",
                fix: "5",
                kind: FaultKind::DivisionByZero,
                words: "divided by zero",
                grid: block(1),
            },
            Bug {
                name: "array",
                body: "u32 a[8];\n\
                       for (u32 i = 0; i < 8; ++i) a[i] = x[i];\n\
                       x[0] = a[x[1] + HOLE]; // here",
                bug: "1",
                fix: "0",
                kind: FaultKind::OutOfBounds,
                words: "end of an array",
                grid: block(1),
            },
            Bug {
                name: "array_below",
                body: "i32 at = (i32)x[1] - HOLE;\n\
                       u32 a[8];\n\
                       for (u32 i = 0; i < 8; ++i) a[i] = x[i];\n\
                       x[0] = a[at]; // here",
                bug: "8",
                fix: "7",
                kind: FaultKind::OutOfBounds,
                words: "end of an array",
                grid: block(1),
            },
            Bug {
                name: "assertion",
                body: "GW_ASSERT(x[gw::thread()] == HOLE); // here",
                bug: "8",
                fix: "7",
                kind: FaultKind::Assertion,
                words: "the kernel asserts",
                grid: block(32),
            },
        ],
    );
}
