//! Correct ways to work together that look like bugs: no schedule raises an alarm, and all compute what they
//! should.

use gatework_gpu::{Grid, Source};

use crate::bugs::{block, blocks, run};

const SEEDS: u64 = 20;
const BLOCKS: &str = include_str!("idioms/blocks.cuh");
const GRIDS: &str = include_str!("idioms/grids.cuh");

/// A kernel of one of the files, and how it is launched.
type Idiom = (&'static str, Grid);

fn of_blocks() -> Vec<Idiom> {
    let names = [
        "tree",
        "butterfly",
        "warp_tree",
        "part_of_a_warp",
        "scan_of_two_buffers",
        "ping_pong",
        "transpose",
        "bitonic",
        "bytes",
        "reused",
        "read_only",
        "named_full_and_empty",
        "mbarrier_of_all",
        "ring_of_stages",
        "polled_copy",
        "two_groups",
        "copies_that_arrive",
        "stores_in_turn",
        "retired_mbarrier",
        "flag_in_the_block",
    ];
    let all = names.into_iter().map(|name| (name, block(64)));
    all.chain([("named_turns", block(128))]).collect()
}

fn of_grids() -> Vec<Idiom> {
    vec![
        ("look_back_packed", blocks(6, 32)),
        ("look_back_released", blocks(6, 32)),
        ("spin_lock", blocks(5, 32)),
        ("block_lock", blocks(5, 64)),
        ("ticket_lock", blocks(6, 1)),
        ("last_block", blocks(3, 64)),
        ("last_block_ordered", blocks(3, 64)),
        ("grid_barrier", blocks(4, 32).cooperative()),
        ("sense_barrier", blocks(5, 1).cooperative()),
        ("grid_exchange", blocks(3, 1).cooperative()),
        ("message", blocks(2, 64)),
        ("ring_of_two", blocks(2, 1)),
        ("queue_of_slots", blocks(8, 1).cooperative()),
        ("sequence_lock", blocks(3, 1)),
        ("once", blocks(4, 1)),
        ("compare_and_exchange", blocks(2, 32)),
        ("histogram", blocks(3, 64)),
        ("warp_aggregated", blocks(2, 64)),
        ("cluster_sum", blocks(4, 32).cluster([2, 1, 1])),
        ("early", blocks(2, 32).early()),
    ]
}

/// Says every alarm at once.
#[track_caller]
fn pass_all(text: &'static str, idioms: &[Idiom]) {
    let source = Source::new("idioms", text);
    let kernels = text.lines().filter(|line| line.starts_with("GW_KERNEL(")).count();
    assert_eq!(kernels, idioms.len(), "kernels of the file that are not launched");
    let alarm = |(name, grid): &Idiom| {
        (0..SEEDS).find_map(|seed| run(&source, name, grid, seed)).map(|fault| format!("{name}: {fault}"))
    };
    let alarms: Vec<String> = idioms.iter().filter_map(alarm).collect();
    assert!(alarms.is_empty(), "{} of {}:\n{}", alarms.len(), idioms.len(), alarms.join("\n"));
}

#[test]
fn threads_of_a_block_raise_no_alarm() {
    pass_all(BLOCKS, &of_blocks());
}

#[test]
fn blocks_of_a_grid_raise_no_alarm() {
    pass_all(GRIDS, &of_grids());
}
