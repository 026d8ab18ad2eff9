//! Fences, scopes, atomics and transaction barriers, each used wrongly once and rightly once.

#[path = "support/planted.rs"]
mod planted;

use gatework_gpu::{FaultKind, Grid};
use planted::Twins;

fn blocks(blocks: u32, threads: u32) -> Grid {
    Grid::new([blocks, 1, 1], [threads, 1, 1]).shared(8192)
}

/// One word from block 0 to block 1: the writer's and the reader's lines are `HOLE`s of their own in the
/// tests below.
macro_rules! message {
    ($release:literal, $acquire:literal) => {
        concat!(
            "if (gw::block_x() == 0) {\nx[1] = 42;\n",
            $release,
            "\n} else {\n",
            $acquire,
            "\nx[2] = x[1];  // here\n}"
        )
    };
}

#[test]
fn a_fence_of_the_cluster_does_not_reach_the_device() {
    Twins {
        body: message!(
            "HOLE\ngw::store_relaxed(x, 1u);",
            "while (gw::load_relaxed(x) != 1) {}\ngw::fence_device();"
        ),
        bug: "gw::fence_cluster();",
        fix: "gw::fence_device();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_sequentially_consistent_fence_has_a_scope_too() {
    Twins {
        body: message!(
            "gw::fence_sc<gw::Scope::System>();\ngw::store_relaxed(x, 1u);",
            "while (gw::load_relaxed(x) != 1) {}\nHOLE"
        ),
        bug: "gw::fence_sc<gw::Scope::Block>();",
        fix: "gw::fence_sc<gw::Scope::Device>();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn an_atomic_of_the_block_does_not_meet_another_block() {
    Twins {
        body: "HOLE  // here",
        bug: "gw::atomic_add<gw::Order::Relaxed, gw::Scope::Block>(x, 1u);",
        fix: "gw::atomic_add<gw::Order::Relaxed, gw::Scope::Device>(x, 1u);",
        kind: FaultKind::Race,
        words: "an atomic of scope Block",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_flag_needs_the_scope_of_both_sides() {
    Twins {
        body: "if (gw::block_x() == 0) HOLE; else while (gw::load_acquire(x) != 1) {}  // here",
        bug: "gw::store_release<gw::Scope::Block>(x, 1u)",
        fix: "gw::store_release<gw::Scope::System>(x, 1u)",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_relaxed_store_releases_nothing() {
    Twins {
        body: message!("HOLE", "while (gw::load_acquire(x) != 1) {}"),
        bug: "gw::store_relaxed(x, 1u);",
        fix: "gw::store_release(x, 1u);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_relaxed_load_acquires_nothing() {
    Twins {
        body: message!("gw::store_release(x, 1u);", "HOLE"),
        bug: "while (gw::load_relaxed(x) != 1) {}",
        fix: "while (gw::load_acquire(x) != 1) {}",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_release_is_of_one_address() {
    Twins {
        body: message!("gw::store_release(x, 1u);\nHOLE", "while (gw::load_acquire(x + 4) != 1) {}"),
        bug: "gw::store_relaxed(x + 4, 1u);",
        fix: "gw::store_release(x + 4, 1u);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_store_by_another_thread_ends_what_was_released_and_an_update_does_not() {
    Twins {
        body: "if (gw::block_x() == 0) {\nx[1] = 42;\ngw::store_release(x, 1u);\n} else if (gw::block_x() == 1) {\n\
               while (gw::load_relaxed(x) != 1) {}\nHOLE\n} else {\nwhile (gw::load_relaxed(x) != 2) {}\n\
               gw::load_acquire(x);\nx[2] = x[1];  // here\n}",
        bug: "gw::store_relaxed(x, 2u);",
        fix: "gw::atomic_add(x, 1u);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(3, 1));
}

#[test]
fn a_lock_is_released_by_a_release() {
    Twins {
        body: "while (gw::atomic_cas<gw::Order::Acquire>(x, 7u, 1u) != 7) {}\nx[1] += 1;  // here\nHOLE",
        bug: "gw::atomic_exchange(x, 7u);",
        fix: "gw::atomic_exchange<gw::Order::Release>(x, 7u);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(3, 1));
}

#[test]
fn a_lock_is_taken_by_an_acquire() {
    Twins {
        body: "while (HOLE != 7) {}\nx[1] += 1;  // here\ngw::atomic_exchange<gw::Order::Release>(x, 7u);",
        bug: "gw::atomic_cas<gw::Order::Release>(x, 7u, 1u)",
        fix: "gw::atomic_cas<gw::Order::AcquireRelease>(x, 7u, 1u)",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(3, 1));
}

/// A bulk load of 512 bytes of `x` by one thread, with its barrier.
macro_rules! load_of_x {
    ($before:literal) => {
        concat!(
            $before,
            "\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
             gw::mbarrier_arrive_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), x, 512, b);  // here\n\
             gw::mbarrier_wait(b, 0);\nx[512] = gw::shared<u32>()[3];"
        )
    };
}

#[test]
fn a_write_to_global_memory_is_fenced_before_a_bulk_load_of_it() {
    Twins {
        body: load_of_x!("x[3] = n;\nHOLE"),
        bug: "",
        fix: "gw::fence_async_proxy_global();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_global",
    }
    .check(blocks(1, 1));
}

#[test]
fn the_fence_for_shared_memory_is_none_for_global_memory() {
    Twins {
        body: load_of_x!("x[3] = n;\nHOLE"),
        bug: "gw::fence_async_proxy_shared();",
        fix: "gw::fence_async_proxy();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_global",
    }
    .check(blocks(1, 1));
}

#[test]
fn the_fence_for_global_memory_is_none_for_shared_memory() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ns[gw::thread()] = 5;\nHOLE\ngw::sync_threads();\nif (gw::thread() == 0) {\n\
               gw::bulk_store(x, s, 128);  // here\ngw::bulk_commit();\ngw::bulk_wait<0>();\n}",
        bug: "gw::fence_async_proxy_global();",
        fix: "gw::fence_async_proxy_shared();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_shared",
    }
    .check(blocks(1, 32));
}

#[test]
fn a_write_by_another_block_is_fenced_before_a_bulk_load_of_it() {
    Twins {
        body: load_of_x!(
            "if (gw::block_x() == 0) {\nx[3] = n;\nHOLE\ngw::store_release(x + 600, 1u);\nreturn;\n}\n\
             while (gw::load_acquire(x + 600) != 1) {}"
        ),
        bug: "",
        fix: "gw::fence_async_proxy_global();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_global",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_bulk_store_by_another_block_is_fenced_before_a_bulk_load_of_it() {
    Twins {
        body: load_of_x!(
            "if (gw::block_x() == 0) {\nu32* s = gw::shared<u32>();\nfor (u32 i = 0; i < 128; ++i) s[i] = i;\n\
             gw::fence_async_proxy_shared();\ngw::bulk_store(x, s, 512);\ngw::bulk_commit();\ngw::bulk_wait<0>();\nHOLE\n\
             gw::store_release(x + 600, 1u);\nreturn;\n}\nwhile (gw::load_acquire(x + 600) != 1) {}"
        ),
        bug: "",
        fix: "gw::fence_async_proxy_global();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_global",
    }
    .check(blocks(2, 1));
}

#[test]
fn a_barrier_is_invalidated_after_its_users() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\nif (gw::thread() == 0) gw::mbarrier_init(b, 64);\n\
               gw::sync_threads();\ngw::mbarrier_arrive(b);\ngw::mbarrier_wait(b, 0);\nHOLE\n\
               if (gw::thread() == 0) gw::mbarrier_invalidate(b);  // here",
        bug: "",
        fix: "gw::sync_threads();",
        kind: FaultKind::Race,
        words: "is invalidated with nothing that orders this",
    }
    .check(blocks(1, 64));
}

#[test]
fn a_barrier_is_not_invalidated_under_a_copy() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
               gw::mbarrier_arrive_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), x, 512, b);\nHOLE\n\
               gw::mbarrier_invalidate(b);  // here",
        bug: "",
        fix: "gw::mbarrier_wait(b, 0);",
        kind: FaultKind::Race,
        words: "while copies count on it",
    }
    .check(blocks(1, 1));
}

#[test]
fn an_invalidated_barrier_is_no_barrier() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\ngw::mbarrier_init(b, 1);\nHOLE\ngw::mbarrier_arrive(b);  // here",
        bug: "gw::mbarrier_invalidate(b);",
        fix: "gw::mbarrier_invalidate(b);\ngw::mbarrier_init(b, 1);",
        kind: FaultKind::Protocol,
        words: "after it was invalidated",
    }
    .check(blocks(1, 1));
}

#[test]
fn a_barrier_is_not_initialised_over_another() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\ngw::mbarrier_init(b, 2);\nHOLE\ngw::mbarrier_init(b, 1);  // here\n\
               gw::mbarrier_arrive(b);\ngw::mbarrier_wait(b, 0);",
        bug: "",
        fix: "gw::mbarrier_invalidate(b);",
        kind: FaultKind::Protocol,
        words: "mbarrier_invalidate comes first",
    }
    .check(blocks(1, 1));
}

#[test]
fn memory_that_was_a_barrier_is_memory_again() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\ngw::mbarrier_init(b, 1);\nHOLE\n*b = 5;  // here\nx[0] = (u32)*b;",
        bug: "",
        fix: "gw::mbarrier_invalidate(b);",
        kind: FaultKind::Protocol,
        words: "holds an mbarrier",
    }
    .check(blocks(1, 1));
}

#[test]
fn to_expect_is_not_to_arrive() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
               gw::mbarrier_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), x, 512, b);\nHOLE\n\
               gw::mbarrier_wait(b, 0);  // here",
        bug: "",
        fix: "gw::mbarrier_arrive(b);",
        kind: FaultKind::Deadlock,
        words: "the phase of parity 0",
    }
    .check(blocks(1, 1));
}

#[test]
fn a_barrier_expects_less_than_a_mebibyte() {
    Twins {
        body: "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
               gw::mbarrier_expect(b, HOLE);  // here\ngw::bulk_load(gw::shared<u8>(), x, 512, b);\ngw::mbarrier_arrive(b);\n\
               gw::mbarrier_wait(b, 0);",
        bug: "1u << 20",
        fix: "512",
        kind: FaultKind::Protocol,
        words: "expects 1048576 bytes",
    }
    .check(blocks(1, 1));
}

#[test]
fn one_thread_arrives_for_as_many_as_are_missing() {
    let body = "gw::Mbarrier* b = gw::shared<gw::Mbarrier>();\ngw::mbarrier_init(b, 3);\ngw::mbarrier_arrive(b);\n\
                gw::mbarrier_arrive_many(b, HOLE);MANY\ngw::mbarrier_wait(b, 0);FEW";
    let many: &'static str = Box::leak(body.replace("MANY", "  // here").replace("FEW", "").into_boxed_str());
    let few: &'static str = Box::leak(body.replace("FEW", "  // here").replace("MANY", "").into_boxed_str());
    let (kind, words) = (FaultKind::Protocol, "too many");
    Twins { body: many, bug: "3", fix: "2", kind, words }.check(blocks(1, 1));
    let (kind, words) = (FaultKind::Deadlock, "the phase of parity 0");
    Twins { body: few, bug: "1", fix: "2", kind, words }.check(blocks(1, 1));
}

/// Every thread copies 16 bytes; all wait at one barrier and read a neighbour's.
macro_rules! copies {
    ($wait:literal, $read:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(4096);\n\
             if (gw::thread() == 0) gw::mbarrier_init(b, 32);\ngw::sync_threads();\n\
             gw::copy_async<16>(s + 4 * gw::thread(), x + 4 * gw::thread());\nHOLE\ngw::mbarrier_wait(b, 0);",
            $wait,
            "\nx[512 + gw::thread()] = s[4 * (gw::thread() ^ 1)];",
            $read
        )
    };
}

#[test]
fn an_arrival_that_does_not_wait_for_copies() {
    Twins {
        body: copies!("", "  // here"),
        bug: "gw::mbarrier_arrive(b);",
        fix: "gw::copy_async_arrive(b);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(1, 32));
}

#[test]
fn an_arrival_besides_the_count_leaves_the_count_as_it_was() {
    Twins {
        body: copies!("  // here", ""),
        bug: "gw::copy_async_arrive_besides(b);",
        fix: "gw::copy_async_arrive_besides(b);\ngw::mbarrier_arrive(b);",
        kind: FaultKind::Deadlock,
        words: "the phase of parity 0",
    }
    .check(blocks(1, 32));
}

#[test]
fn a_copy_after_the_arrival_is_not_waited_for() {
    Twins {
        body: "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(4096);\ngw::mbarrier_init(b, 1);\n\
               gw::copy_async<4>(s, x);\ngw::copy_async_arrive(b);\ngw::copy_async<4>(s + 1, x + 1);\n\
               gw::mbarrier_wait(b, 0);\nx[512] = s[0];\nHOLE\nx[513] = s[1];  // here\ngw::copy_async_wait<0>();",
        bug: "gw::copy_async_commit();",
        fix: "gw::copy_async_commit();\ngw::copy_async_wait<0>();",
        kind: FaultKind::Race,
        words: "cp.async group",
    }
    .check(blocks(1, 1));
}

#[test]
fn an_assertion_names_its_condition() {
    Twins {
        body: "GW_ASSERT(HOLE);  // here\nx[0] = 1;",
        bug: "n == 7",
        fix: "n == 1024",
        kind: FaultKind::Assertion,
        words: "asserts n == 7",
    }
    .check(blocks(1, 1));
}

#[test]
fn what_is_printed_fits_its_format() {
    Twins {
        body: "gw::print(HOLE, gw::thread(), 1.5f);  // here\nx[0] = 1;",
        bug: "\"thread %d has %s\\n\"",
        fix: "\"thread %d has %g\\n\"",
        kind: FaultKind::Protocol,
        words: "%s is given a value of kind Float",
    }
    .check(blocks(1, 1));
}

/// Every block adds its 64 words to those of `x`.
macro_rules! reduction {
    ($add:literal, $after:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ns[gw::thread()] = gw::thread();\ngw::fence_async_proxy_shared();\n\
             gw::sync_threads();\nif (gw::thread() == 0) {\n",
            $add,
            "\ngw::bulk_commit();\n",
            $after,
            "\n}"
        )
    };
}

#[test]
fn bulk_reductions_meet_and_bulk_stores_do_not() {
    Twins {
        body: reduction!("HOLE  // here", "gw::bulk_wait<0>();"),
        bug: "gw::bulk_store(x, s, 256);",
        fix: "gw::bulk_add(x, s, 256);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(3, 64));
}

#[test]
fn bulk_reductions_and_atomics_are_not_atomic_to_each_other() {
    Twins {
        body: reduction!("gw::bulk_max(x, s, 256); HOLE  // here", "gw::bulk_wait<0>();"),
        bug: "gw::atomic_add(x + 3, 1u);",
        fix: "gw::atomic_add(x + 64, 1u);",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    }
    .check(blocks(3, 64));
}

#[test]
fn a_bulk_reduction_is_waited_for_before_its_result_is_read() {
    Twins {
        body: reduction!(
            "gw::bulk_add((u64*)x, (u64*)s, 256);",
            "HOLE\nx[100] = x[3];  // here\ngw::bulk_wait<0>();"
        ),
        bug: "gw::bulk_wait_read<0>();",
        fix: "gw::bulk_wait<0>();",
        kind: FaultKind::Race,
        words: "a bulk store",
    }
    .check(blocks(1, 64));
}
