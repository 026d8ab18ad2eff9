//! Warps: who meets whom, and what that orders.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, find_all};

#[test]
fn lanes_meet_under_their_mask() {
    find_all(
        "",
        &[
            Bug {
                name: "not_named",
                body: "if (gw::lane() < 16) x[gw::lane()] = gw::shuffle(gw::lane(), 0, HOLE); // here",
                bug: "0xFFF0",
                fix: "0xFFFF",
                kind: FaultKind::Divergence,
                words: "does not name it",
                grid: block(32),
            },
            Bug {
                name: "some_lanes",
                body: "u32 v = gw::lane();\n\
                       if (gw::lane() < HOLE) {\n\
                       v = gw::shuffle_xor(v, 1); // here\n\
                       }\n\
                       v += gw::ballot(v > 3); // here\n\
                       x[gw::lane()] = v;",
                bug: "16",
                fix: "32",
                kind: FaultKind::Divergence,
                words: "different calls",
                grid: block(32),
            },
            Bug {
                name: "other_mask",
                body: "const u32 mask = gw::lane() < 16 ? HOLE : 0xFFFF0000u;\n\
                       x[gw::lane()] = gw::reduce_add(1u, mask); // here",
                bug: "0x1FFFF",
                fix: "0xFFFF",
                kind: FaultKind::Divergence,
                words: "different calls",
                grid: block(32),
            },
            Bug {
                name: "returned",
                body: "if (gw::lane() >= HOLE) return;\n\
                       if (gw::lane() > 40) gw::sync_warp();\n\
                       x[gw::lane()] = gw::ballot(true, 0xFFFF0000u | gw::lane()); // here",
                bug: "16",
                fix: "0",
                kind: FaultKind::Divergence,
                words: "mask",
                grid: block(32),
            },
            Bug {
                name: "no_warp_barrier",
                body: "u32* s = gw::shared<u32>();\n\
                       s[gw::lane()] = 1; // here\n\
                       HOLE\n\
                       x[gw::lane()] = s[31 - gw::lane()]; // here",
                bug: "gw::shuffle(0u, 0);",
                fix: "gw::sync_warp();",
                kind: FaultKind::Race,
                words: "race",
                grid: block(32),
            },
            Bug {
                name: "half_a_warp",
                body: "u32* s = gw::shared<u32>();\n\
                       s[gw::lane()] = 1; // here\n\
                       gw::sync_warp(HOLE);\n\
                       x[gw::lane()] = s[31 - gw::lane()]; // here",
                bug: "0xFFFFu << (gw::lane() & 16)",
                fix: "~0u",
                kind: FaultKind::Race,
                words: "race",
                grid: block(32),
            },
            Bug {
                name: "matrix_alone",
                body: "u32 r[4];\n\
                       if (gw::lane() < HOLE) gw::load_matrix<4>(r, gw::shared<u8>() + 16 * gw::lane()); // here\n\
                       x[gw::lane()] = 1;",
                bug: "16",
                fix: "32",
                kind: FaultKind::Divergence,
                words: "needs all 32 lanes",
                grid: block(32),
            },
        ],
    );
}

#[test]
fn barriers_are_met_by_all() {
    find_all(
        "",
        &[
            Bug {
                name: "in_a_branch",
                body: "if (gw::thread() < HOLE) gw::sync_threads(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "32",
                fix: "64",
                kind: FaultKind::Divergence,
                words: "has ended",
                grid: block(64),
            },
            Bug {
                name: "two_places",
                body: "if (gw::thread() < HOLE) {\n\
                       gw::sync_threads(); // here\n\
                       } else {\n\
                       gw::sync_threads(); // here\n\
                       }",
                bug: "32",
                fix: "64",
                kind: FaultKind::Divergence,
                words: "wait",
                grid: block(64),
            },
            Bug {
                name: "early_return",
                body: "if (gw::thread() >= HOLE) return;\n\
                       gw::sync_threads(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "48",
                fix: "64",
                kind: FaultKind::Divergence,
                words: "has ended",
                grid: block(64),
            },
            Bug {
                name: "named_count",
                body: "if (gw::warp() < 2) gw::barrier_sync(1, HOLE); // here",
                bug: "96",
                fix: "64",
                kind: FaultKind::Deadlock,
                words: "named barrier 1",
                grid: block(96),
            },
            Bug {
                name: "named_odd",
                body: "gw::barrier_sync(1, HOLE); // here",
                bug: "40",
                fix: "64",
                kind: FaultKind::Protocol,
                words: "multiples of 32",
                grid: block(64),
            },
            Bug {
                name: "named_id",
                body: "gw::barrier_sync(HOLE, 64); // here",
                bug: "16",
                fix: "15",
                kind: FaultKind::Protocol,
                words: "ids are 1 to 15",
                grid: block(64),
            },
            Bug {
                name: "ping_pong",
                body: "if (gw::warp() == 0) {\n\
                       gw::barrier_sync(1, 64); // here\n\
                       gw::barrier_sync(2, 64); // here\n\
                       } else {\n\
                       gw::barrier_sync(HOLE, 64); // here\n\
                       gw::barrier_sync(3 - HOLE, 64); // here\n\
                       }",
                bug: "2",
                fix: "1",
                kind: FaultKind::Deadlock,
                words: "named barrier",
                grid: block(64),
            },
            Bug {
                name: "one_barrier_short",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = 0; i < 2; ++i) {\n\
                       s[gw::thread()] = i; // here\n\
                       gw::sync_threads();\n\
                       x[gw::thread()] = s[gw::thread() ^ 33]; // here\n\
                       HOLE\n\
                       }",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "race",
                grid: block(64),
            },
        ],
    );
}
