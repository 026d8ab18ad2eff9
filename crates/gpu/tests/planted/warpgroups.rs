//! Products of warpgroups, and the registers they share out.

use gatework_gpu::FaultKind;

use crate::bugs::{Bug, block, find_all};

#[test]
fn products_are_of_the_whole_warpgroup() {
    find_all(
        "#include \"gw/wgmma.cuh\"",
        &[
            Bug {
                name: "three_warps",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       if (gw::warp() HOLE) {\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       }\n\
                       gw::wgmma_wait<0>(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "!= 3",
                fix: "< 4",
                kind: FaultKind::Deadlock,
                words: "the rest of the warpgroup to issue its wgmma",
                grid: block(128),
            },
            Bug {
                name: "other_descriptor",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t + HOLE, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "(gw::warp() == 2 ? 16 : 0)",
                fix: "16",
                kind: FaultKind::Divergence,
                words: "the same descriptors",
                grid: block(128),
            },
            Bug {
                name: "other_flag",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       for (u32 i = 0; i < 4; ++i) d[i] = 0;\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, HOLE); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "gw::warp() == 1",
                fix: "true",
                kind: FaultKind::Divergence,
                words: "warps of a warpgroup",
                grid: block(128),
            },
            Bug {
                name: "other_shape",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       f32 e[8];\n\
                       gw::wgmma_fence();\n\
                       if (gw::warp() HOLE)\n\
                       gw::Wgmma<gw::E4M3, 16>::ss(e, t, t, false); // here\n\
                       else\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = 1;",
                bug: "== 0",
                fix: "< 4",
                kind: FaultKind::Divergence,
                words: "warps of a warpgroup",
                grid: block(128),
            },
            Bug {
                name: "other_lane",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t + HOLE, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "(gw::lane() == 9 ? 2 : 0)",
                fix: "2",
                kind: FaultKind::Divergence,
                words: "different wgmma",
                grid: block(128),
            },
            Bug {
                name: "half_a_group",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       if (gw::thread() < HOLE) {\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       }\n\
                       x[gw::thread()] = 1;",
                bug: "192",
                fix: "128",
                kind: FaultKind::Protocol,
                words: "whole warpgroups",
                grid: block(192),
            },
        ],
    );
}

#[test]
fn registers_belong_to_a_product_until_the_wait() {
    find_all(
        "#include \"gw/wgmma.cuh\"",
        &[
            Bug {
                name: "a_written",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       u32 a[4] = {};\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::rs(d, a, t, false);\n\
                       gw::wgmma_commit();\n\
                       HOLE\n\
                       a[1] = x[0]; // here\n\
                       gw::wgmma_wait<0>();\n\
                       x[512 + gw::thread()] = a[1] + gw::bits<u32>(d[0]);",
                bug: "",
                fix: "gw::wgmma_wait<0>();",
                kind: FaultKind::Protocol,
                words: "A registers",
                grid: block(128),
            },
            Bug {
                name: "d_read",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       HOLE\n\
                       const f32 early = d[1]; // here\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(early);",
                bug: "",
                fix: "gw::wgmma_wait<0>();",
                kind: FaultKind::Protocol,
                words: "has not been waited for",
                grid: block(128),
            },
            Bug {
                name: "d_written",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       HOLE\n\
                       d[2] = 1; // here\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[2]);",
                bug: "",
                fix: "gw::wgmma_wait<0>();",
                kind: FaultKind::Protocol,
                words: "has not been waited for",
                grid: block(128),
            },
            Bug {
                name: "one_group_late",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       f32 e[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(e, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<1>();\n\
                       x[gw::thread()] = gw::bits<u32>(HOLE[0]); // here\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(e[0]) + gw::bits<u32>(d[0]);",
                bug: "e",
                fix: "d",
                kind: FaultKind::Protocol,
                words: "has not been waited for",
                grid: block(128),
            },
            Bug {
                name: "no_fence",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       HOLE\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "",
                fix: "gw::wgmma_fence();",
                kind: FaultKind::Protocol,
                words: "wgmma_fence",
                grid: block(128),
            },
            Bug {
                name: "no_commit",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       HOLE\n\
                       gw::wgmma_wait<0>();",
                bug: "",
                fix: "gw::wgmma_commit();",
                kind: FaultKind::Protocol,
                words: "never waited for",
                grid: block(128),
            },
            Bug {
                name: "no_wait",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       HOLE",
                bug: "",
                fix: "gw::wgmma_wait<0>();",
                kind: FaultKind::Protocol,
                words: "never waited for",
                grid: block(128),
            },
        ],
    );
}

#[test]
fn operands_belong_to_a_product_until_the_wait() {
    find_all(
        "#include \"gw/wgmma.cuh\"",
        &[
            Bug {
                name: "no_proxy_fence",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += 128) s[i] = 0; // here\n\
                       HOLE\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "",
                fix: "gw::fence_async_proxy_shared();",
                kind: FaultKind::Race,
                words: "fence_async_proxy_shared",
                grid: block(128),
            },
            Bug {
                name: "fence_after_barrier",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += 128) s[i] = 0; // here\n\
                       HOLE\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "gw::sync_threads(); gw::fence_async_proxy_shared();",
                fix: "gw::fence_async_proxy_shared(); gw::sync_threads();",
                kind: FaultKind::Race,
                words: "fence_async_proxy_shared",
                grid: block(128),
            },
            Bug {
                name: "overwritten",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       HOLE\n\
                       gw::sync_threads();\n\
                       s[gw::thread()] = 1; // here\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "",
                fix: "gw::wgmma_wait<0>();",
                kind: FaultKind::Race,
                words: "a wgmma of warp",
                grid: block(128),
            },
            Bug {
                name: "own_wait_only",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       HOLE\n\
                       s[gw::thread()] = 1; // here\n\
                       x[gw::thread()] = gw::bits<u32>(d[0]);",
                bug: "",
                fix: "gw::sync_threads();",
                kind: FaultKind::Race,
                words: "a wgmma of warp",
                grid: block(128),
            },
            Bug {
                name: "beyond_shared",
                body: "u32* s = gw::shared<u32>();\n\
                       for (u32 i = gw::thread(); i < 2048; i += gw::threads()) s[i] = 0;\n\
                       gw::fence_async_proxy_shared();\n\
                       gw::sync_threads();\n\
                       const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\n\
                       f32 d[4];\n\
                       f32 e[8];\n\
                       const u64 b = gw::wgmma_descriptor(s + HOLE, gw::SWIZZLE_32, 256);\n\
                       gw::wgmma_fence();\n\
                       gw::Wgmma<gw::E4M3, 16>::ss(e, t, b, false); // here\n\
                       gw::wgmma_commit();\n\
                       gw::wgmma_wait<0>();\n\
                       x[gw::thread()] = 1;",
                bug: "1984",
                fix: "1920",
                kind: FaultKind::OutOfBounds,
                words: "a wgmma operand reaches",
                grid: block(128),
            },
        ],
    );
}

#[test]
fn registers_are_shared_out() {
    find_all(
        "",
        &[
            Bug {
                name: "too_many",
                body: "BOUNDED if (gw::thread() < 128) {\n\
                       gw::registers_release<HOLE>();\n\
                       } else {\n\
                       gw::registers_acquire<256>(); // here\n\
                       }\n\
                       x[gw::thread()] = 1;",
                bug: "248",
                fix: "240",
                kind: FaultKind::Deadlock,
                words: "256 registers a thread",
                grid: block(256),
            },
            Bug {
                name: "nobody_releases",
                body: "BOUNDED if (gw::thread() >= 128) {\n\
                       gw::registers_acquire<HOLE>(); // here\n\
                       }\n\
                       x[gw::thread()] = 1;",
                bug: "256",
                fix: "248",
                kind: FaultKind::Deadlock,
                words: "that others must release",
                grid: block(256),
            },
            Bug {
                name: "differ",
                body: "BOUNDED if (gw::warp() == HOLE)\n\
                       gw::registers_release<40>(); // here\n\
                       else if (gw::thread() < 128)\n\
                       gw::registers_release<24>(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "1",
                fix: "9",
                kind: FaultKind::Divergence,
                words: "in the same warpgroup",
                grid: block(256),
            },
            Bug {
                name: "wrong_way",
                body: "BOUNDED gw::registers_HOLE<40>(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "acquire",
                fix: "release",
                kind: FaultKind::Protocol,
                words: "holds 248",
                grid: block(256),
            },
            Bug {
                name: "odd_count",
                body: "BOUNDED gw::registers_release<HOLE>(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "44",
                fix: "40",
                kind: FaultKind::Protocol,
                words: "in steps of 8",
                grid: block(256),
            },
            Bug {
                name: "one_warp",
                body: "BOUNDED if (gw::warp() HOLE) gw::registers_release<24>();\n\
                       if (gw::thread() >= 128)\n\
                       gw::registers_acquire<256>(); // here\n\
                       x[gw::thread()] = 1;",
                bug: "== 0",
                fix: "< 4",
                kind: FaultKind::Deadlock,
                words: "that others must release",
                grid: block(256),
            },
        ],
    );
}
