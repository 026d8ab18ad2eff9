//! Transaction barriers and the copies that count on them.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, find_all};

#[test]
fn barriers_live_and_end() {
    find_all(
        "",
        &[
            Bug {
                name: "twice",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       HOLE\n\
                       gw::mbarrier_init(b, 1); // here\n\
                       }",
                bug: "",
                fix: "gw::mbarrier_invalidate(b);",
                kind: FaultKind::Protocol,
                words: "where there is one",
                grid: block(32),
            },
            Bug {
                name: "never",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       HOLE\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) gw::mbarrier_arrive(b); // here",
                bug: "",
                fix: "if (gw::thread() == 0) gw::mbarrier_init(b, 1);",
                kind: FaultKind::Protocol,
                words: "never initialised",
                grid: block(32),
            },
            Bug {
                name: "after_its_end",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive(b);\n\
                       HOLE\n\
                       gw::mbarrier_wait(b, 0); // here\n\
                       }",
                bug: "gw::mbarrier_invalidate(b);",
                fix: "",
                kind: FaultKind::Protocol,
                words: "after it was invalidated",
                grid: block(32),
            },
            Bug {
                name: "as_data",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 5) {\n\
                       HOLE\n\
                       *(u64*)b = 1; // here\n\
                       }",
                bug: "",
                fix: "gw::mbarrier_invalidate(b);",
                kind: FaultKind::Protocol,
                words: "holds an mbarrier",
                grid: block(32),
            },
            Bug {
                name: "read_as_data",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       if (gw::thread() < 2) s[258 + gw::thread()] = 1;\n\
                       gw::sync_threads();\n\
                       x[gw::thread()] = *((u32*)b + HOLE); // here",
                bug: "1",
                fix: "2",
                kind: FaultKind::Protocol,
                words: "holds an mbarrier",
                grid: block(32),
            },
            Bug {
                name: "over_data",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\nu32* s = gw::shared<u32>();\nif (gw::thread() != 3) {\n\
                       s[256 + gw::thread()] = 1; // here\ngw::atomic_add(x + 1020, 1u);\n} else {\n\
                       while (gw::load_relaxed(x + 1020) != 7) {}\n}\nHOLE\n\
                       if (gw::thread() == 3) gw::mbarrier_init(b, 1); // here",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "race",
                grid: block(8),
            },
            Bug {
                name: "no_count",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) gw::mbarrier_init(b, HOLE); // here",
                bug: "0",
                fix: "1",
                kind: FaultKind::Protocol,
                words: "an mbarrier of 0 arrivals",
                grid: block(1),
            },
            Bug {
                name: "too_many",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 4);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() < 3) gw::mbarrier_arrive_many(b, 1);\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) gw::mbarrier_arrive_many(b, HOLE); // here",
                bug: "2",
                fix: "1",
                kind: FaultKind::Protocol,
                words: "too many",
                grid: block(32),
            },
        ],
    );
}

#[test]
fn copies_are_counted_and_waited_for() {
    find_all(
        "",
        &[
            Bug {
                name: "too_many_bytes",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, HOLE);\n\
                       gw::bulk_load(s, x, 512, b);\n\
                       }\n\
                       gw::mbarrier_wait(b, 0); // here\n\
                       x[512 + gw::thread()] = s[gw::thread()];",
                bug: "528",
                fix: "512",
                kind: FaultKind::Deadlock,
                words: "the phase of parity 0",
                grid: block(32),
            },
            Bug {
                name: "wrong_parity",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, 512);\n\
                       gw::bulk_load(s, x, 512, b); // here\n\
                       }\n\
                       gw::mbarrier_wait(b, HOLE);\n\
                       x[512 + gw::thread()] = s[gw::thread()]; // here",
                bug: "1",
                fix: "0",
                kind: FaultKind::Race,
                words: "race",
                grid: block(32),
            },
            Bug {
                name: "stuck_parity",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       for (u32 i = 0; i < 2; ++i) {\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, 512);\n\
                       gw::bulk_load(s, x, 512, b); // here\n\
                       }\n\
                       gw::mbarrier_wait(b, HOLE); // here\n\
                       x[512 + gw::thread()] = s[gw::thread()]; // here\n\
                       gw::sync_threads();\n\
                       }",
                bug: "0",
                fix: "i & 1",
                kind: FaultKind::Race,
                words: "race",
                grid: block(32),
            },
            Bug {
                name: "no_init_fence",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       HOLE\n\
                       gw::mbarrier_arrive_expect(b, 512);\n\
                       gw::bulk_load(s, x, 512, b); // here\n\
                       }\n\
                       gw::sync_threads();\n\
                       gw::mbarrier_wait(b, 0);",
                bug: "",
                fix: "gw::fence_mbarrier_init();",
                kind: FaultKind::Protocol,
                words: "fence_mbarrier_init",
                grid: block(32),
            },
            Bug {
                name: "odd_size",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, HOLE);\n\
                       gw::bulk_load(s, x, HOLE, b); // here\n\
                       }\n\
                       gw::mbarrier_wait(b, 0);",
                bug: "24",
                fix: "32",
                kind: FaultKind::Misaligned,
                words: "multiples of 16",
                grid: block(32),
            },
            Bug {
                name: "odd_address",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, 64);\n\
                       gw::bulk_load(s, x + HOLE, 64, b); // here\n\
                       }\n\
                       gw::mbarrier_wait(b, 0);",
                bug: "2",
                fix: "4",
                kind: FaultKind::Misaligned,
                words: "no multiple of 16",
                grid: block(32),
            },
            Bug {
                name: "nobody_waits",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, 512);\n\
                       gw::bulk_load(s, x, 512, b); // here\n\
                       }\n\
                       HOLE",
                bug: "",
                fix: "gw::mbarrier_wait(b, 0);",
                kind: FaultKind::FreedMemory,
                words: "nobody there waited for it",
                grid: block(32),
            },
            Bug {
                name: "refilled",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       for (u32 i = 0; i < 2; ++i) {\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_arrive_expect(b, 512);\n\
                       gw::bulk_load(s, x, 512, b); // here\n\
                       }\n\
                       gw::mbarrier_wait(b, i & 1);\n\
                       x[512 + gw::thread()] = s[gw::thread()]; // here\n\
                       HOLE\n\
                       }",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "race",
                grid: block(64),
            },
            Bug {
                name: "nobody_arrives",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, 1);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       HOLE(b, 512);\n\
                       gw::bulk_load(s, x, 512, b);\n\
                       }\n\
                       gw::mbarrier_wait(b, 0); // here",
                bug: "gw::mbarrier_expect",
                fix: "gw::mbarrier_arrive_expect",
                kind: FaultKind::Deadlock,
                words: "the phase of parity 0",
                grid: block(32),
            },
            Bug {
                name: "count_of_warps",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       if (gw::thread() == 0) {\n\
                       gw::mbarrier_init(b, HOLE);\n\
                       gw::fence_mbarrier_init();\n\
                       }\n\
                       gw::sync_threads();\n\
                       if (gw::lane() == 0) gw::mbarrier_arrive(b);\n\
                       gw::mbarrier_wait(b, 0); // here",
                bug: "3",
                fix: "2",
                kind: FaultKind::Deadlock,
                words: "the mbarrier at shared offset 1024",
                grid: block(64),
            },
            Bug {
                name: "store_not_fenced",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       s[gw::thread()] = 1; // here\n\
                       HOLE\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::bulk_store(x, s, 128); // here\n\
                       gw::bulk_commit();\n\
                       gw::bulk_wait<0>();\n\
                       }",
                bug: "",
                fix: "gw::fence_async_proxy_shared();",
                kind: FaultKind::Race,
                words: "fence_async_proxy_shared",
                grid: block(32),
            },
            Bug {
                name: "store_not_read",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       s[gw::thread()] = 1;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::bulk_store(x, s, 128); // here\n\
                       gw::bulk_commit();\n\
                       HOLE\n\
                       }\n\
                       gw::sync_threads();\n\
                       s[gw::thread()] = 2; // here\n\
                       if (gw::thread() == 0) gw::bulk_wait<0>();",
                bug: "",
                fix: "gw::bulk_wait_read<0>();",
                kind: FaultKind::Race,
                words: "a bulk store of thread",
                grid: block(32),
            },
            Bug {
                name: "store_not_committed",
                body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
                       u32* s = gw::shared<u32>();\n\
                       s[gw::thread()] = 1;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       if (gw::thread() == 0) {\n\
                       gw::bulk_store(x, s, 128); // here\n\
                       HOLE\n\
                       gw::bulk_wait<0>();\n\
                       }",
                bug: "",
                fix: "gw::bulk_commit();",
                kind: FaultKind::Protocol,
                words: "never committed",
                grid: block(32),
            },
            Bug {
                name: "group_not_waited",
                body: "u32* s = gw::shared<u32>();\n\
                       gw::copy_async<4>(s + gw::thread(), x + gw::thread()); // here\n\
                       gw::copy_async_commit();\n\
                       HOLE",
                bug: "",
                fix: "gw::copy_async_wait<0>();",
                kind: FaultKind::Protocol,
                words: "never waited for",
                grid: block(32),
            },
            Bug {
                name: "group_too_early",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = 0; i < 2; ++i) {\n\
                       gw::copy_async<4>(s + 32 * i + gw::thread(), x + 32 * i + gw::thread());\n\
                       gw::copy_async_commit();\n\
                       }\n\
                       gw::copy_async_wait<HOLE>();\n\
                       x[512 + gw::thread()] = s[32 + gw::thread()]; // here\n\
                       gw::copy_async_wait<0>();",
                bug: "1",
                fix: "0",
                kind: FaultKind::Race,
                words: "a cp.async group",
                grid: block(32),
            },
            Bug {
                name: "no_barrier_after_wait",
                body: "u32* s = gw::shared<u32>();\n\
                       gw::copy_async<4>(s + gw::thread(), x + gw::thread()); // here\n\
                       gw::copy_async_commit();\n\
                       gw::copy_async_wait<0>();\n\
                       HOLE\n\
                       x[512 + gw::thread()] = s[gw::thread() ^ 1]; // here",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "race",
                grid: block(32),
            },
        ],
    );
}
