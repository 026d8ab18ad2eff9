//! Times and rates as people read them.

use crate::stats::Interval;

/// A time with three digits: `812 ns`, `1.25 µs`, `3.40 ms`.
pub fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A rate with three digits and a prefix: `4.21 TB/s`.
pub fn rate(per_second: f64, unit: &str) -> String {
    let (value, prefix) = match per_second {
        rate if rate < 1e9 => (rate / 1e6, "M"),
        rate if rate < 1e12 => (rate / 1e9, "G"),
        rate => (rate / 1e12, "T"),
    };
    format!("{} {prefix}{unit}/s", three_digits(value))
}

/// A ratio with the interval it lies in: `0.912 (0.909 to 0.915)`.
pub fn ratio(interval: Option<Interval>) -> String {
    interval.map_or_else(
        || "unknown".to_owned(),
        |Interval { estimate, low, high, .. }| format!("{estimate:.3} ({low:.3} to {high:.3})"),
    )
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits() {
        assert_eq!(time(812.4), "812 ns");
        assert_eq!(time(1250.0), "1.25 µs");
        assert_eq!(time(34_000_000.0), "34.0 ms");
        assert_eq!(rate(4.214e12, "B"), "4.21 TB/s");
        assert_eq!(rate(512e9, "FLOP"), "512 GFLOP/s");
    }
}
