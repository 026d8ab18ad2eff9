//! Words that several threads touch: read-only loads, atomics, fences and scopes.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, blocks, find_all};

#[test]
fn read_only_words_do_not_change() {
    find_all(
        "",
        &[
            Bug {
                name: "own_write",
                body: "x[gw::thread()] = 3;\n\
                       x[512 + gw::thread()] = gw::load_readonly(x + HOLE + gw::thread()); // here",
                bug: "0",
                fix: "256",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: block(32),
            },
            Bug {
                name: "other_thread",
                body: "x[gw::thread()] = 3;\n\
                       gw::sync_threads();\n\
                       x[512 + gw::thread()] = gw::load_readonly(x + HOLE + (gw::thread() ^ 1)); // here",
                bug: "0",
                fix: "256",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: block(32),
            },
            Bug {
                name: "written_after",
                body: "const u32 v = gw::load_readonly(x + gw::thread()); // here\n\
                       gw::sync_threads();\n\
                       x[HOLE + gw::thread()] = v; // here",
                bug: "0",
                fix: "64",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: block(64),
            },
            Bug {
                name: "wide",
                body: "x[gw::thread()] = 3;\n\
                       gw::sync_threads();\n\
                       x[512 + gw::thread()] = gw::load_readonly((u32x4*)(x + HOLE)).w; // here",
                bug: "0",
                fix: "256",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: block(32),
            },
            Bug {
                name: "double_word",
                body: "x[gw::thread()] = 3;\n\
                       gw::sync_threads();\n\
                       x[512 + gw::thread()] = (u32)gw::load_readonly((u64*)(x + HOLE)); // here",
                bug: "30",
                fix: "256",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: block(32),
            },
            Bug {
                name: "over_the_grid",
                body: "if (gw::block_x() == 0) x[0] = 3; // here\n\
                       gw::sync_grid(x + 1020);\n\
                       x[512 + gw::block_x()] = gw::load_readonly(x + HOLE); // here",
                bug: "0",
                fix: "1",
                kind: FaultKind::Race,
                words: "read-only path",
                grid: blocks(2, 1).cooperative(),
            },
        ],
    );
}

#[test]
fn atomics_are_atomic_to_their_like() {
    find_all(
        "",
        &[
            Bug {
                name: "two_sizes",
                body: "if (gw::thread() == 0) gw::atomic_add(x + HOLE, 1u); // here\n\
                       else gw::atomic_add((u64*)x, (u64)1); // here",
                bug: "1",
                fix: "2",
                kind: FaultKind::Race,
                words: "atomics of two sizes",
                grid: block(2),
            },
            Bug {
                name: "two_sizes_over_blocks",
                body: "if (gw::block_x() == 0) gw::atomic_max(x + HOLE, 9u); // here\n\
                       else gw::atomic_or((u64*)x, (u64)1); // here",
                bug: "0",
                fix: "4",
                kind: FaultKind::Race,
                words: "atomics of two sizes",
                grid: blocks(2, 1),
            },
            Bug {
                name: "plain_read",
                body: "if (gw::thread() == 0) gw::atomic_add(x, 1u); // here\n\
                       else x[512] = HOLE; // here",
                bug: "x[0]",
                fix: "gw::load_relaxed(x)",
                kind: FaultKind::Race,
                words: "race",
                grid: block(2),
            },
            Bug {
                name: "plain_write",
                body: "if (gw::thread() == 0) gw::atomic_add(x, 1u); // here\n\
                       else HOLE; // here",
                bug: "x[0] = 1",
                fix: "gw::store_relaxed(x, 1u)",
                kind: FaultKind::Race,
                words: "race",
                grid: block(2),
            },
            Bug {
                name: "narrow",
                body: "gw::atomic_add<gw::Order::Relaxed, gw::Scope::HOLE>(x, 1u); // here",
                bug: "Block",
                fix: "Device",
                kind: FaultKind::Race,
                words: "reaches no further",
                grid: blocks(2, 1),
            },
            Bug {
                name: "increment",
                body: "HOLE; // here",
                bug: "x[0] += 1",
                fix: "gw::atomic_add(x, 1u)",
                kind: FaultKind::Race,
                words: "race",
                grid: block(64),
            },
            Bug {
                name: "histogram",
                body: "u32* s = gw::shared<u32>();\n\
                       if (gw::thread() < 8) s[gw::thread()] = 0;\n\
                       gw::sync_threads();\n\
                       HOLE; // here",
                bug: "++s[x[gw::thread()] & 7]",
                fix: "gw::atomic_add(s + (x[gw::thread()] & 7), 1u)",
                kind: FaultKind::Race,
                words: "race",
                grid: block(64),
            },
        ],
    );
}

#[test]
fn messages_are_released_and_acquired() {
    find_all(
        "",
        &[
            Bug {
                name: "no_release",
                body: "if (gw::block_x() == 0) {\n\
                       x[1] = 42; // here\n\
                       HOLE(x, 1u);\n\
                       } else {\n\
                       while (gw::load_acquire(x) != 1) {}\n\
                       x[2] = x[1]; // here\n\
                       }",
                bug: "gw::store_relaxed",
                fix: "gw::store_release",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(2, 1),
            },
            Bug {
                name: "no_acquire",
                body: "if (gw::block_x() == 0) {\n\
                       x[1] = 42; // here\n\
                       gw::store_release(x, 1u);\n\
                       } else {\n\
                       while (HOLE(x) != 1) {}\n\
                       x[2] = x[1]; // here\n\
                       }",
                bug: "gw::load_relaxed",
                fix: "gw::load_acquire",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(2, 1),
            },
            Bug {
                name: "fence_of_a_block",
                body: "if (gw::block_x() == 0) {\n\
                       x[1] = 42; // here\n\
                       gw::HOLE();\n\
                       gw::atomic_exchange(x, 1u);\n\
                       } else {\n\
                       while (gw::load_relaxed(x) != 1) {}\n\
                       gw::fence_device();\n\
                       x[2] = x[1]; // here\n\
                       }",
                bug: "fence_block",
                fix: "fence_device",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(2, 1),
            },
            Bug {
                name: "one_thread_s_fence",
                body: "x[64 * gw::block_x() + gw::thread()] = 1; // here\n\
                       HOLE\n\
                       if (gw::thread() == 0) {\n\
                       gw::fence_device();\n\
                       if (gw::atomic_add(x + 1020, 1u) == 1) {\n\
                       gw::fence_device();\n\
                       u32 sum = 0;\n\
                       for (u32 i = 0; i < 128; ++i)\n\
                       sum += x[i]; // here\n\
                       x[512] = sum;\n\
                       }\n\
                       }",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(2, 64),
            },
            Bug {
                name: "lock_not_released",
                body: "while (gw::atomic_cas(x + 1020, 0u, 1u) != 0) gw::pause();\n\
                       gw::fence_device();\n\
                       x[0] += 1; // here\n\
                       HOLE\n\
                       gw::store_relaxed(x + 1020, 0u);",
                bug: "",
                fix: "gw::fence_device();",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(3, 1),
            },
        ],
    );
}
