//! Launches: early ones, cooperative ones, and barriers of the whole grid.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, blocks, find_all};

#[test]
fn early_launches_wait_for_the_stream() {
    find_all(
        "",
        &[
            Bug {
                name: "not_all",
                body: "if (gw::thread() HOLE) gw::await_stream();\n\
                       if (gw::thread() < 16) x[gw::thread()] = 1;",
                bug: "< 16",
                fix: "< 32",
                kind: FaultKind::Protocol,
                words: "ends without gw::await_stream()",
                grid: block(32).early(),
            },
            Bug {
                name: "returned",
                body: "if (gw::thread() >= HOLE) return;\n\
                       gw::await_stream();\n\
                       x[gw::thread()] = 1;",
                bug: "24",
                fix: "32",
                kind: FaultKind::Protocol,
                words: "ends without gw::await_stream()",
                grid: block(32).early(),
            },
            Bug {
                name: "too_late",
                body: "HOLE\n\
                       const u32 v = x[gw::thread()]; // here\n\
                       gw::await_stream();\n\
                       x[gw::thread()] = v;",
                bug: "",
                fix: "gw::await_stream();",
                kind: FaultKind::Protocol,
                words: "before gw::await_stream()",
                grid: block(32).early(),
            },
            Bug {
                name: "by_copy",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       gw::mbarrier_arrive_expect(b, 64);\n\
                       HOLE\n\
                       gw::bulk_load(gw::shared<u8>(), x, 64, b); // here\n\
                       gw::await_stream();\n\
                       gw::mbarrier_wait(b, 0);",
                bug: "",
                fix: "gw::await_stream();",
                kind: FaultKind::Protocol,
                words: "before gw::await_stream()",
                grid: block(1).early(),
            },
        ],
    );
}

#[test]
fn grid_barriers_need_their_word() {
    find_all(
        "",
        &[
            Bug {
                name: "null",
                body: "gw::sync_grid(HOLE); // here",
                bug: "nullptr",
                fix: "x + 1020",
                kind: FaultKind::OutOfBounds,
                words: "in no buffer",
                grid: blocks(2, 32).cooperative(),
            },
            Bug {
                name: "stale",
                body: "gw::sync_grid(x + HOLE); // here",
                bug: "100",
                fix: "1020",
                kind: FaultKind::Protocol,
                words: "must be zeroed before the launch",
                grid: blocks(2, 32).cooperative(),
            },
            Bug {
                name: "unwritten",
                body: "gw::sync_grid(HOLE); // here",
                bug: "fresh",
                fix: "x + 1021",
                kind: FaultKind::Protocol,
                words: "must be zeroed before the launch",
                grid: blocks(2, 32).cooperative(),
            },
            Bug {
                name: "shared",
                body: "if (gw::thread() == 0) gw::shared<u32>()[0] = 0;\n\
                       gw::sync_threads();\n\
                       gw::sync_grid(HOLE); // here",
                bug: "gw::shared<u32>()",
                fix: "x + 1020",
                kind: FaultKind::Protocol,
                words: "must lie in device memory",
                grid: blocks(2, 32).cooperative(),
            },
            Bug {
                name: "two_words",
                body: "gw::sync_grid(x + 1016 + HOLE); // here",
                bug: "gw::block_x()",
                fix: "1",
                kind: FaultKind::Divergence,
                words: "different words",
                grid: blocks(2, 32).cooperative(),
            },
            Bug {
                name: "zeroed_inside",
                body: "HOLE // here\n\
                       gw::sync_grid(x + 1020); // here\n\
                       x[gw::block_x()] = 1;",
                bug: "x[1020] = 0;",
                fix: "",
                kind: FaultKind::Race,
                words: "race",
                grid: blocks(4, 1).cooperative(),
            },
            Bug {
                name: "not_cooperative",
                body: "if (gw::blocks_x() == HOLE) gw::sync_grid(x + 1020); // here\n\
                       x[gw::block_x()] = 1;",
                bug: "2",
                fix: "3",
                kind: FaultKind::Protocol,
                words: "not cooperative",
                grid: blocks(2, 1),
            },
        ],
    );
}
