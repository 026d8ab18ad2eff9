//! Whether a proof fits into the memory of this machine, before it is begun.

use std::fs;

use crate::command::ending::Failure;

/// Refuses to prove what needs more bytes than the machine has available, or the container, where it says how
/// many those are.
pub(super) fn require_to_prove(needed: u64) -> Result<(), Failure> {
    require(needed, "prove fewer rows or columns")
}

/// The same for a verification.
pub(super) fn require_to_verify(needed: u64) -> Result<(), Failure> {
    require(needed, "verify it on a machine with more")
}

fn require(needed: u64, way_out: &str) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let of_machine = read("/proc/meminfo").as_deref().and_then(available);
    let of_container = read("/sys/fs/cgroup/memory.max")
        .zip(read("/sys/fs/cgroup/memory.current"))
        .and_then(|(most, used)| left(&most, &used));
    of_machine.into_iter().chain(of_container).min().map_or(Ok(()), |free| fit(needed, free, way_out))
}

/// Bytes that a container may still have; none where it has no limit.
fn left(most: &str, used: &str) -> Option<u64> {
    let (most, used): (u64, u64) = (most.trim().parse().ok()?, used.trim().parse().ok()?);
    Some(most.saturating_sub(used))
}

fn fit(needed: u64, free: u64, way_out: &str) -> Result<(), Failure> {
    if needed <= free {
        return Ok(());
    }
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(Failure::input(format!(
        "the proof needs about {:.1} GiB of this machine's memory and {:.1} GiB are available: {way_out}",
        gibibytes(needed),
        gibibytes(free)
    )))
}

/// Bytes that can be had without others being moved out, by what Linux says of its memory.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_and_compared() {
        let meminfo =
            "MemTotal:       8000000 kB\nMemFree:  17 kB\nMemAvailable:    3145728 kB\nBuffers: 1 kB\n";
        assert_eq!(available(meminfo), Some(3 << 30));
        assert_eq!(available("MemTotal: 8 kB\n"), None);
        assert_eq!(
            (left("100\n", "30\n"), left("100", "130"), left("max\n", "30")),
            (Some(70), Some(0), None)
        );
        assert!(fit(3 << 30, 3 << 30, "wait").is_ok());
        let refused = fit(5 << 30, 3 << 30, "wait").unwrap_err();
        assert!(
            refused.to_string().contains("5.0 GiB") && refused.to_string().contains("3.0 GiB"),
            "{refused}"
        );
        assert_eq!(refused.code(), 2);
    }
}
