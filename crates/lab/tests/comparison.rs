//! Comparing records of two runs.

mod support;

use gatework_lab::stats::Verdict;
use gatework_lab::{Basis, Comparison, compare};
use support::benched;

const H200: &str = "NVIDIA H200";

fn single(comparison: &Comparison) -> (Basis, Verdict) {
    let [case] = comparison.cases.as_slice() else { panic!("{comparison:?}") };
    (case.basis, case.verdict)
}

#[test]
fn the_same_times_are_the_same_and_ten_percent_are_slower() {
    let first = [benched("gpu/saxpy", H200, 500e3, 550e3, 1)];
    let again = compare(&first, &[benched("gpu/saxpy", H200, 500e3, 550e3, 2)]);
    assert_eq!(single(&again), (Basis::Time, Verdict::Same));
    assert!(!again.has_slower());
    let slowed = compare(&first, &[benched("gpu/saxpy", H200, 500e3, 605e3, 3)]);
    assert_eq!(single(&slowed), (Basis::Time, Verdict::Slower));
    assert!(slowed.has_slower());
    let improved = compare(&first, &[benched("gpu/saxpy", H200, 500e3, 495e3, 4)]);
    assert_eq!(single(&improved), (Basis::Time, Verdict::Faster));
}

#[test]
fn across_devices_ratios_are_compared_and_never_times() {
    let here = [benched("gpu/saxpy", H200, 500e3, 550e3, 1)];
    let there = [benched("gpu/saxpy", "NVIDIA L40S", 2500e3, 2750e3, 2)];
    let comparison = compare(&here, &there);
    assert_eq!(single(&comparison), (Basis::RatioToBaseline, Verdict::Same));
    assert_eq!(comparison.cases[0].devices, "NVIDIA H200, then NVIDIA L40S");
    let worse = [benched("gpu/saxpy", "NVIDIA L40S", 2500e3, 3250e3, 3)];
    assert_eq!(single(&compare(&here, &worse)), (Basis::RatioToBaseline, Verdict::Slower));
}

#[test]
fn the_newest_record_counts() {
    let first = [benched("gpu/saxpy", H200, 500e3, 900e3, 1), benched("gpu/saxpy", H200, 500e3, 550e3, 2)];
    let comparison = compare(&first, &[benched("gpu/saxpy", H200, 500e3, 550e3, 3)]);
    assert_eq!(single(&comparison), (Basis::Time, Verdict::Same));
}

#[test]
fn a_benchmark_that_vanished_is_no_sound_comparison() {
    let first = [benched("gpu/saxpy", H200, 500e3, 550e3, 1), benched("gpu/reduce", H200, 500e3, 550e3, 2)];
    let whole = compare(
        &first,
        &[benched("gpu/saxpy", H200, 500e3, 550e3, 3), benched("gpu/reduce", H200, 500e3, 550e3, 4)],
    );
    assert!(whole.is_sound());
    // Dropping the slow benchmark is no way to pass.
    let dropped = compare(&first, &[benched("gpu/saxpy", H200, 500e3, 550e3, 5)]);
    assert!(!dropped.has_slower() && !dropped.is_sound(), "{dropped:?}");
    // One that is new is no regression.
    assert!(compare(&first[..1], &first).is_sound());
}

#[test]
fn what_one_side_lacks_and_what_changed_shape_is_said() {
    let first = [benched("gpu/saxpy", H200, 500e3, 550e3, 1), benched("gpu/reduce", H200, 500e3, 550e3, 2)];
    let mut other_size = benched("gpu/saxpy", H200, 500e3, 550e3, 3);
    let bench = &mut other_size.performance.as_mut().unwrap().cases[0];
    bench.dimensions.insert("n".into(), 1 << 20);
    let comparison = compare(&first, &[other_size]);
    assert!(comparison.cases.is_empty());
    let said = [comparison.left_out.join("\n"), comparison.vanished.join("\n")].join("\n");
    assert!(
        said.contains("gpu/saxpy n134217728 on NVIDIA H200 cannot be compared: its sizes were"),
        "{said}"
    );
    assert!(said.contains("gpu/reduce n134217728 on NVIDIA H200 is in the first only"), "{said}");
}
