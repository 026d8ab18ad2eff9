//! Memory that nobody has written, read by code that tolerates what is there: a maximum over poison that is
//! not a number, a minimum or a mask over ones.

use crate::bugs::{Bug, block, blocks, find_all};
use gatework_gpu::FaultKind;

const KIND: FaultKind = FaultKind::Uninitialised;

#[test]
fn shared_memory_that_nobody_wrote() {
    let words = "of shared memory, which nobody has written";
    find_all(
        "",
        &[
            Bug {
                name: "maximum",
                body: "f32* s = gw::shared<f32>();\nif (gw::thread() < HOLE) s[gw::thread()] = 1.0f;\ngw::sync_threads();\n\
                       f32 m = 0;\nfor (u32 i = 0; i < 32; ++i)\nif (s[i] > m) m = 1; // here\nx[gw::thread()] = (u32)m;",
                bug: "31",
                fix: "32",
                kind: KIND,
                words,
                grid: block(32),
            },
            Bug {
                name: "minimum",
                body: "u32* s = gw::shared<u32>();\nif (gw::thread() HOLE) s[gw::thread()] = gw::thread();\ngw::sync_threads();\n\
                       u32 m = ~0u;\nfor (u32 i = 0; i < 64; ++i) {\nconst u32 v = s[i]; // here\nif (v < m) m = v;\n}\n\
                       x[gw::thread()] = m;",
                bug: "!= 40",
                fix: "< 64",
                kind: KIND,
                words,
                grid: block(64),
            },
            Bug {
                name: "mask",
                body: "u32* s = gw::shared<u32>(64);\nif (gw::lane() == 0 && gw::warp() < HOLE) s[gw::warp()] = ~0u;\ngw::sync_threads();\n\
                       u32 all = ~0u;\nfor (u32 i = 0; i < 4; ++i)\nall &= s[i]; // here\nx[gw::thread()] = all;",
                bug: "3",
                fix: "4",
                kind: KIND,
                words: "at byte 76 of shared memory",
                grid: block(128),
            },
            Bug {
                name: "bytes",
                body: "u8* s = gw::shared<u8>();\ns[2 * gw::thread()] = 1;\nHOLE\ngw::sync_threads();\n\
                       x[gw::thread()] = s[2 * gw::thread() + 1] & 1; // here",
                bug: "",
                fix: "s[2 * gw::thread() + 1] = 1;",
                kind: KIND,
                words: "reads 1 bytes",
                grid: block(32),
            },
            Bug {
                name: "double_word",
                body: "u32* s = gw::shared<u32>();\nif (gw::thread() == 0) {\ns[0] = 1;\nHOLE\n}\ngw::sync_threads();\n\
                       x[gw::thread()] = (u32)(((u64*)s)[1]); // here",
                bug: "",
                fix: "s[2] = 0;",
                kind: KIND,
                words: "reads 8 bytes at byte 8",
                grid: block(32),
            },
            Bug {
                name: "counter",
                body: "u32* s = gw::shared<u32>();\nif (gw::thread() == 0) {\nHOLE\n}\ngw::sync_threads();\n\
                       gw::atomic_max(s, gw::thread()); // here\ngw::sync_threads();\nx[gw::thread()] = s[0];",
                bug: "",
                fix: "s[0] = 0;",
                kind: KIND,
                words,
                grid: block(64),
            },
            Bug {
                name: "second_stage",
                body: "u32* s = gw::shared<u32>();\nfor (u32 stage = 0; stage < HOLE; ++stage)\n\
                       s[32 * stage + gw::thread()] = stage;\ngw::sync_threads();\nu32 most = 0;\n\
                       for (u32 stage = 0; stage < 2; ++stage) {\nconst u32 v = s[32 * stage + (gw::thread() ^ 1)]; // here\n\
                       most = v & 1 ? 1 : most;\n}\nx[gw::thread()] = most;",
                bug: "1",
                fix: "2",
                kind: KIND,
                words,
                grid: block(32),
            },
            Bug {
                name: "padding",
                body: "u32* s = gw::shared<u32>();\nfor (u32 i = gw::thread(); i < 32 * 32; i += 32)\ns[i / 32 * 33 + i % 32] = i;\n\
                       gw::sync_threads();\nu32 sum = 0;\nfor (u32 i = 0; i < HOLE; ++i)\nsum |= s[gw::thread() * 33 + i]; // here\n\
                       x[gw::thread()] = sum;",
                bug: "33",
                fix: "32",
                kind: KIND,
                words,
                grid: block(32),
            },
        ],
    );
}

#[test]
fn global_memory_that_nobody_wrote() {
    let words = "of parameter 1, which nobody has written";
    find_all(
        "",
        &[
            Bug {
                name: "maximum",
                body: "const f32 v = ((f32*)HOLE)[gw::thread()]; // here\nx[gw::thread()] = v > 0 ? 1 : 0;",
                bug: "fresh",
                fix: "x",
                kind: KIND,
                words,
                grid: block(32),
            },
            Bug {
                name: "one_short",
                body: "for (u32 i = gw::thread(); i < HOLE; i += 32) fresh[i] = 1;\ngw::sync_threads();\nu32 m = ~0u;\n\
                       for (u32 i = 0; i < 100; ++i)\nm &= fresh[i]; // here\nx[gw::thread()] = m;",
                bug: "99",
                fix: "100",
                kind: KIND,
                words: "reads 4 bytes at byte 396 of parameter 1",
                grid: block(32),
            },
            Bug {
                name: "sum",
                body: "if (gw::thread() == 0) HOLE;\ngw::sync_threads();\ngw::atomic_add(fresh + 3, 1u); // here",
                bug: "fresh[2] = 0",
                fix: "fresh[3] = 0",
                kind: KIND,
                words: "at byte 12 of parameter 1",
                grid: block(32),
            },
            Bug {
                name: "by_cp_async",
                body: "u32* s = gw::shared<u32>();\ngw::copy_async<16>(s + 4 * gw::thread(), HOLE + 4 * gw::thread());\n\
                       gw::copy_async_commit();\ngw::copy_async_wait<0>();\n\
                       x[512 + gw::thread()] = s[4 * gw::thread()] & 3; // here",
                bug: "fresh",
                fix: "x",
                kind: KIND,
                words: "of shared memory",
                grid: block(32),
            },
            Bug {
                name: "by_bulk_copy",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\nif (gw::thread() == 0) {\ngw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\ngw::mbarrier_arrive_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), HOLE, 512, b);\n}\n\
                       gw::sync_threads();\ngw::mbarrier_wait(b, 0);\nx[gw::thread()] = gw::shared<u32>()[gw::thread()] & 1; // here",
                bug: "fresh",
                fix: "x",
                kind: KIND,
                words: "of shared memory",
                grid: block(64),
            },
            Bug {
                name: "through_a_store",
                body: "u32* s = gw::shared<u32>();\nif (gw::thread() < HOLE) s[gw::thread()] = 2;\ngw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\nif (gw::thread() == 0) {\ngw::bulk_store(fresh, s, 128);\ngw::bulk_commit();\n\
                       gw::bulk_wait<0>();\n}\ngw::sync_threads();\nx[gw::thread()] = fresh[gw::thread()] & 1; // here",
                bug: "30",
                fix: "32",
                kind: KIND,
                words: "at byte 12",
                grid: block(32),
            },
            Bug {
                name: "another_block",
                body: "if (gw::block_x() HOLE) fresh[gw::block_x()] = 1;\n\
                       gw::sync_grid(x + 1020);\nu32 m = 0;\nfor (u32 i = 0; i < 4; ++i)\nm |= fresh[i]; // here\n\
                       x[gw::block_x()] = m;",
                bug: "!= 2",
                fix: "< 4",
                kind: KIND,
                words: "at byte 8 of parameter 1",
                grid: blocks(4, 1).cooperative(),
            },
        ],
    );
}

#[test]
fn a_missing_barrier_is_told_as_a_race() {
    find_all(
        "",
        &[Bug {
            name: "barrier",
            body: "u32* s = gw::shared<u32>();\ns[gw::thread()] = gw::thread(); // here\nHOLE\n\
                   x[gw::thread()] = s[gw::thread() ^ 32]; // here",
            bug: "",
            fix: "gw::sync_threads();",
            kind: FaultKind::Race,
            words: "race",
            grid: block(64),
        }],
    );
}
