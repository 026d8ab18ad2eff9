//! Thread-block clusters, each call used wrongly once and rightly once, and launches that cannot be.

#[path = "support/planted.rs"]
mod planted;

use gatework_gpu::{Device, Error, FaultKind, Grid, Result, Source, args};
use planted::Twins;

/// Two clusters of two blocks.
fn pairs(threads: u32) -> Grid {
    Grid::new([4, 1, 1], [threads, 1, 1]).shared(4096).cluster([2, 1, 1])
}

#[test]
fn a_block_that_may_not_have_started_is_not_touched() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[0] = n;\nHOLE\n*gw::cluster_map(s + 1, 1 - gw::cluster_rank()) = 5;  // here\n\
               gw::sync_cluster();",
        bug: "",
        fix: "gw::sync_cluster();",
        kind: FaultKind::Race,
        words: "may not have started",
    }
    .check(pairs(1));
}

#[test]
fn a_block_that_may_have_ended_is_not_touched() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[0] = n;\ngw::sync_cluster();\n\
               if (gw::cluster_rank() == 1) x[gw::block_x()] = *gw::cluster_map(s, 0);  // here\nHOLE",
        bug: "",
        fix: "gw::sync_cluster();",
        kind: FaultKind::FreedMemory,
        words: "shared memory of block number",
    }
    .check(pairs(1));
}

#[test]
fn a_remote_store_is_seen_after_a_cluster_barrier() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::sync_cluster();\n*gw::cluster_map(s + gw::thread(), 1 - gw::cluster_rank()) = n;\n\
               HOLE\nx[gw::global_thread()] = s[gw::thread()];  // here\ngw::sync_cluster();",
        bug: "gw::sync_threads();",
        fix: "gw::sync_cluster();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(32));
}

#[test]
fn wide_atomics_on_another_blocks_memory_are_of_the_clusters_scope() {
    for (bug, fix) in [
        (
            "gw::atomic_add(met, 1ull);  // here",
            "gw::atomic_add<gw::Order::Relaxed, gw::Scope::Cluster>(met, 1ull);",
        ),
        (
            "gw::atomic_or(met, 1ull);  // here",
            "gw::atomic_or<gw::Order::Release, gw::Scope::Cluster>(met, 1ull);",
        ),
        (
            "gw::atomic_add((f32*)met, 1.0f);  // here",
            "gw::atomic_add<gw::Order::Relaxed, gw::Scope::Cluster>((f32*)met, 1.0f);",
        ),
        (
            "gw::atomic_add_f16_pair((u32*)met, 1u);  // here",
            "gw::atomic_add_f16_pair<gw::Order::Relaxed, gw::Scope::Cluster>((u32*)met, 1u);",
        ),
        // What the hardware has: the default scope will do.
        ("gw::atomic_exchange(met, 1ull);  // here", "gw::atomic_add((u32*)met, 1u);"),
    ] {
        Twins {
            body: "u64* s = gw::shared<u64>();\nif (gw::thread() == 0) s[0] = n;\ngw::sync_cluster();\n\
                   u64* met = gw::cluster_map(s, 1 - gw::cluster_rank());\nHOLE\ngw::sync_cluster();",
            bug,
            fix,
            kind: FaultKind::Protocol,
            words: "give it Scope::Cluster",
        }
        .check(pairs(32));
    }
}

#[test]
fn a_relaxed_arrival_tells_nothing_of_memory() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[gw::thread()] = n;\nHOLE\ngw::cluster_wait();\n\
               x[gw::global_thread()] = gw::cluster_map(s, 1 - gw::cluster_rank())[gw::thread()];  // here\ngw::sync_cluster();",
        bug: "gw::cluster_arrive_relaxed();",
        fix: "gw::cluster_arrive();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(32));
}

#[test]
fn what_comes_between_arrival_and_wait_is_not_told() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::cluster_arrive();\ns[gw::thread()] = n;\ngw::cluster_wait();\nHOLE\n\
               x[gw::global_thread()] = gw::cluster_map(s, 1 - gw::cluster_rank())[gw::thread()];  // here\ngw::sync_cluster();",
        bug: "",
        fix: "gw::sync_cluster();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(32));
}

#[test]
fn a_wait_follows_an_arrival_and_an_arrival_a_wait() {
    Twins {
        body: "HOLE\ngw::cluster_wait();  // here\nx[gw::global_thread()] = 1;",
        bug: "",
        fix: "gw::cluster_arrive();",
        kind: FaultKind::Protocol,
        words: "without a cluster_arrive",
    }
    .check(pairs(32));
    Twins {
        body: "gw::cluster_arrive();\nHOLE\ngw::cluster_arrive();  // here\ngw::cluster_wait();",
        bug: "",
        fix: "gw::cluster_wait();",
        kind: FaultKind::Protocol,
        words: "a second time",
    }
    .check(pairs(32));
}

#[test]
fn a_cluster_barrier_waits_for_every_thread_that_has_not_ended() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\nif (gw::cluster_rank() == 1 && gw::thread() == 0) {\n\
               gw::mbarrier_init(b, 1);\nHOLE\n}\ngw::sync_cluster();",
        bug: "gw::mbarrier_wait(b, 0);  // here",
        fix: "return;",
        kind: FaultKind::Deadlock,
        words: "wait for cluster_wait",
    }
    .check(pairs(32));
}

#[test]
fn ranks_end_where_the_cluster_does() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::sync_cluster();\n\
               *gw::cluster_map(s, gw::cluster_rank() ^ HOLE) = 5;  // here\ngw::sync_cluster();",
        bug: "2",
        fix: "1",
        kind: FaultKind::Protocol,
        words: "of a cluster of 2",
    }
    .check(pairs(1));
}

#[test]
fn only_shared_memory_is_mapped() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::sync_cluster();\n\
               *gw::cluster_map(HOLE, gw::cluster_rank() ^ 1) = 5;  // here\ngw::sync_cluster();",
        bug: "x",
        fix: "s",
        kind: FaultKind::Protocol,
        words: "no address of the block's shared memory",
    }
    .check(pairs(1));
}

#[test]
fn remote_shared_memory_ends_where_the_block_s_own_does() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::sync_cluster();\nu32* other = gw::cluster_map(s, gw::cluster_rank() ^ 1);\n\
               other[HOLE] = 5;  // here\ngw::sync_cluster();",
        bug: "1024",
        fix: "1023",
        kind: FaultKind::OutOfBounds,
        words: "writes 4 bytes",
    }
    .check(pairs(1));
}

#[test]
fn shared_memory_of_another_cluster_is_out_of_reach() {
    Twins {
        body: "u32* s = gw::shared<u32>();\nu64* place = (u64*)x;\ngw::sync_cluster();\n\
               if (gw::cluster_rank() == 0) gw::atomic_exchange(place + 8 + gw::cluster_x(), (u64)(s + 4));\n\
               if (gw::cluster_rank() == 1) {\nu64 other = 0;\n\
               while ((other = gw::load_relaxed(place + 8 + HOLE)) == 0x700000007) gw::pause();\n*(u32*)other = 1;  // here\n}\n\
               if (gw::cluster_rank() == 1) gw::atomic_add(x + 100, 1u);\n\
               while (gw::load_relaxed(x + 100) < 9) gw::pause();\ngw::sync_cluster();",
        bug: "1 - gw::cluster_x()",
        fix: "gw::cluster_x()",
        kind: FaultKind::OutOfBounds,
        words: "writes 4 bytes",
    }
    .check(pairs(1));
}

/// Block 0 of a cluster writes into block 1 and arrives at a barrier there.
macro_rules! remote_arrival {
    ($init:literal, $wait:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\n\
             if (gw::cluster_rank() == 1) gw::mbarrier_init(b, 1);\n",
            $init,
            "\ngw::cluster_wait();\nif (gw::cluster_rank() == 0) {\n*gw::cluster_map(s, 1) = n;\n\
             gw::mbarrier_arrive_at(b, 1);ARRIVAL\n} else {\n",
            $wait,
            "\nx[gw::block_x()] = s[0];READ\n}\ngw::sync_cluster();"
        )
    };
}

fn marked(body: &str, here: &str) -> &'static str {
    let marked = body.replace(here, "  // here").replace("ARRIVAL", "").replace("READ", "");
    Box::leak(marked.into_boxed_str())
}

#[test]
fn a_remote_arrival_is_acquired_by_a_wait_of_the_cluster() {
    Twins {
        body: marked(remote_arrival!("gw::cluster_arrive();", "HOLE"), "READ"),
        bug: "gw::mbarrier_wait(b, 0);",
        fix: "gw::mbarrier_wait<gw::Scope::Cluster>(b, 0);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(1));
}

#[test]
fn a_barrier_is_known_to_the_cluster_behind_its_fence() {
    Twins {
        body: marked(
            remote_arrival!(
                "HOLE\ngw::cluster_arrive_relaxed();",
                "gw::mbarrier_wait<gw::Scope::Cluster>(b, 0);"
            ),
            "ARRIVAL",
        ),
        bug: "",
        fix: "gw::fence_mbarrier_init();",
        kind: FaultKind::Race,
        words: "after its initialisation",
    }
    .check(pairs(1));
}

#[test]
fn a_remote_barrier_takes_as_many_arrivals_as_it_expects() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\ngw::mbarrier_init(b, 4);\ngw::sync_cluster();\n\
               if (gw::cluster_rank() == 0) gw::mbarrier_arrive_at(b, 1, HOLE);  // here\n\
               else gw::mbarrier_wait<gw::Scope::Cluster>(b, 0);\ngw::sync_cluster();",
        bug: "5",
        fix: "4",
        kind: FaultKind::Protocol,
        words: "too many",
    }
    .check(pairs(1));
}

#[test]
fn a_message_inside_a_cluster_needs_a_fence_of_the_cluster() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[1] = 0;\ngw::sync_cluster();\nif (gw::cluster_rank() == 0) {\n\
               u32* other = gw::cluster_map(s, 1);\nother[0] = n;\nHOLE\n\
               gw::atomic_exchange<gw::Order::Relaxed, gw::Scope::Cluster>(other + 1, 1u);\n} else {\n\
               while (gw::load_relaxed<gw::Scope::Cluster>(s + 1) == 0) {}\ngw::fence_cluster();\n\
               x[gw::block_x()] = s[0];  // here\n}\ngw::sync_cluster();",
        bug: "gw::fence_block();",
        fix: "gw::fence_cluster();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(1));
}

#[test]
fn an_atomic_of_the_block_does_not_meet_its_cluster() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[0] = 0;\ngw::sync_cluster();\n\
               gw::atomic_add<gw::Order::Relaxed, HOLE>(gw::cluster_map(s, 0), 1u);  // here\ngw::sync_cluster();",
        bug: "gw::Scope::Block",
        fix: "gw::Scope::Cluster",
        kind: FaultKind::Race,
        words: "an atomic of scope Block",
    }
    .check(pairs(1));
}

#[test]
fn clusters_are_apart() {
    Twins {
        body: "if (gw::cluster_rank() == 0) gw::atomic_add<gw::Order::Relaxed, HOLE>(x, 1u);  // here",
        bug: "gw::Scope::Cluster",
        fix: "gw::Scope::Device",
        kind: FaultKind::Race,
        words: "an atomic of scope Cluster",
    }
    .check(pairs(1));
}

/// 512 bytes of `x` for both blocks of a cluster, loaded by the first.
macro_rules! multicast {
    ($mask:literal, $end:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\n\
             gw::fence_mbarrier_init();\ngw::mbarrier_arrive_expect(b, 512);\ngw::sync_cluster();\n\
             if (gw::cluster_rank() == 0) gw::bulk_load_multicast(s, x, 512, b, ",
            $mask,
            ");  // here\n",
            $end
        )
    };
}

#[test]
fn every_block_waits_for_what_is_sent_to_it() {
    Twins {
        body: multicast!("3", "HOLE gw::mbarrier_wait(b, 0);"),
        bug: "if (gw::cluster_rank() == 0)",
        fix: "",
        kind: FaultKind::FreedMemory,
        words: "block number",
    }
    .check(pairs(1));
}

#[test]
fn a_multicast_is_for_blocks_of_the_cluster() {
    Twins {
        body: multicast!("HOLE", "gw::mbarrier_wait(b, 0);"),
        bug: "5",
        fix: "3",
        kind: FaultKind::Protocol,
        words: "block 2 of a cluster of 2",
    }
    .check(pairs(1));
}

#[test]
fn a_multicast_does_not_write_what_another_block_reads() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\n\
               gw::fence_mbarrier_init();\ngw::mbarrier_arrive_expect(b, 512);\ns[3] = 1;\ngw::fence_async_proxy();\n\
               gw::sync_cluster();\nx[gw::block_x()] = s[3];\n\
               HOLE\nif (gw::cluster_rank() == 0) gw::bulk_load_multicast(s, x + 128, 512, b, 3);  // here\n\
               gw::mbarrier_wait(b, 0);",
        bug: "gw::cluster_arrive_relaxed();\ngw::cluster_wait();",
        fix: "gw::cluster_arrive();\ngw::cluster_wait();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(pairs(1));
}

/// Block 0 of a cluster sends 128 bytes to block 1.
macro_rules! send {
    ($before:literal, $after:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\n\
             gw::fence_mbarrier_init();\nif (gw::cluster_rank() == 1) gw::mbarrier_arrive_expect(b, 128);\ns[0] = n;\n",
            $before,
            "\ngw::sync_cluster();\nif (gw::cluster_rank() == 0) gw::bulk_send(s + 64, 1, s, 128, b);  // here\n\
             if (gw::cluster_rank() == 1) gw::mbarrier_wait(b, 0);\n",
            $after
        )
    };
}

#[test]
fn a_block_does_not_end_before_what_it_sends_has_left() {
    Twins {
        body: send!("gw::fence_async_proxy_shared();", "HOLE"),
        bug: "",
        fix: "gw::sync_cluster();",
        kind: FaultKind::FreedMemory,
        words: "block number",
    }
    .check(pairs(1));
}

#[test]
fn what_is_sent_was_fenced() {
    Twins {
        body: send!("HOLE", "gw::sync_cluster();"),
        bug: "",
        fix: "gw::fence_async_proxy_shared();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_shared",
    }
    .check(pairs(1));
}

#[test]
fn what_another_block_stored_is_fenced_for_the_cluster() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::sync_cluster();\n\
               if (gw::cluster_rank() == 0) {\nfor (u32 i = 0; i < 4; ++i) gw::cluster_map(s, 1)[i] = n;\nHOLE\n}\n\
               gw::sync_cluster();\nif (gw::cluster_rank() == 1) {\ngw::bulk_store(x + 4 * gw::block_x(), s, 16);  // here\n\
               gw::bulk_commit();\ngw::bulk_wait<0>();\n}",
        bug: "gw::fence_async_proxy_shared();",
        fix: "gw::fence_async_proxy_cluster();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_cluster",
    }
    .check(pairs(1));
}

#[test]
fn bytes_may_be_expected_at_another_block_s_barrier() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\n\
               gw::fence_mbarrier_init();\ngw::sync_cluster();\nif (gw::cluster_rank() == 0) {\n\
               gw::mbarrier_arrive_expect_at(b, 1, HOLE);\n} else {\ngw::bulk_load(s, x, 512, b);\n\
               gw::mbarrier_wait<gw::Scope::Cluster>(b, 0);  // here\nx[512 + gw::block_x()] = s[1];\n}\ngw::sync_cluster();",
        bug: "256",
        fix: "512",
        kind: FaultKind::Deadlock,
        words: "the phase of parity 0",
    }
    .check(pairs(1));
}

fn index_kernel() -> Source {
    Source::new(
        "where",
        "#include \"gw/gw.cuh\"\nGW_KERNEL(where)(u32* x) {\n\
         u32* to = x + 4 * (gw::block_x() + gw::blocks_x() * (gw::block_y() + gw::blocks_y() * gw::block_z()));\n\
         to[0] = gw::cluster_rank();\nto[1] = gw::cluster_size();\n\
         to[2] = gw::cluster_x() + 10 * gw::cluster_y() + 100 * gw::cluster_z();\n\
         to[3] = gw::clusters_x() + 10 * gw::clusters_y() + 100 * gw::clusters_z();\n}",
    )
}

#[test]
fn a_block_knows_where_it_is_in_its_cluster() -> Result<()> {
    let device = Device::emulated(3)?;
    let stream = device.stream()?;
    let mut x = stream.alloc::<u32>(4 * 24)?;
    let grid = Grid::new([4, 3, 2], [1, 1, 1]);
    let kernel = device.kernel(&index_kernel())?;
    kernel.launch(&stream, &grid.cluster([2, 3, 1]), &args![&mut x])?;
    let told = stream.download(&x)?;
    for (block, told) in told.chunks(4).enumerate() {
        let (x, y, z) = (block % 4, block / 4 % 3, block / 12);
        assert_eq!(
            told,
            [x % 2 + 2 * y, 6, x / 2 + 100 * z, 2 + 10 + 200].map(|n| n as u32),
            "block {block}"
        );
    }
    kernel.launch(&stream, &grid, &args![&mut x])?;
    assert_eq!(stream.download(&x)?[4..8], [0, 1, 1, 4 + 30 + 200], "a launch without clusters");
    Ok(())
}

#[test]
fn a_cluster_that_cannot_be_is_refused_with_a_sentence() -> Result<()> {
    let device = Device::emulated(0)?;
    let stream = device.stream()?;
    let kernel = device.kernel(&index_kernel())?;
    let mut x = stream.alloc::<u32>(4 * 64)?;
    let grid = Grid::new([64, 1, 1], [1, 1, 1]);
    for (cluster, words) in [
        ([3, 1, 1], "do not divide the grid of [64, 1, 1] in x"),
        ([1, 2, 1], "do not divide the grid of [64, 1, 1] in y"),
        ([2, 1, 0], "do not divide the grid of [64, 1, 1] in z"),
        ([32, 1, 1], "32 blocks, 16 at most"),
    ] {
        let grid = grid.cluster(cluster);
        for refused in
            [kernel.launch(&stream, &grid, &args![&mut x]), kernel.max_active_clusters(&grid).map(|_| ())]
        {
            let Err(Error::Launch { message, .. }) = refused else { panic!("{cluster:?} was taken") };
            assert!(message.contains(words), "{message}");
        }
    }
    let huge = Grid::new([u32::MAX; 3], [u32::MAX; 3]).cluster([u32::MAX; 3]);
    assert!(matches!(kernel.launch(&stream, &huge, &args![&mut x]), Err(Error::Launch { .. })));
    kernel.launch(&stream, &grid.cluster([16, 1, 1]), &args![&mut x])?;
    assert_eq!(stream.download(&x)?[4 * 17..4 * 17 + 3], [1, 16, 1]);
    Ok(())
}

#[test]
fn clusters_that_fit_are_counted() -> Result<()> {
    let device = Device::emulated(0)?;
    let kernel = device.kernel(&index_kernel())?;
    let active = |grid: Grid| kernel.max_active_clusters(&grid);
    let grid = Grid::new([64, 1, 1], [1024, 1, 1]);
    // Four multiprocessors, each with room for 2048 threads and 228 KiB.
    assert_eq!(active(grid)?, 8);
    assert_eq!(active(grid.cluster([2, 1, 1]))?, 4);
    assert_eq!(active(grid.cluster([8, 1, 1]))?, 1);
    assert_eq!(active(grid.cluster([16, 1, 1]))?, 0);
    assert_eq!(active(Grid::new([64, 1, 1], [32, 1, 1]).shared(113 << 10).cluster([4, 1, 1]))?, 2);
    Ok(())
}
