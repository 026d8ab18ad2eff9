//! Which of the profiler's metrics say how busy a unit is. Names differ between architectures and versions.

use std::collections::BTreeMap;

use super::rules::Utilisation;

const PERCENT: &str = ".avg.pct_of_peak_sustained_elapsed";

/// The busiest part of the multiprocessors.
const MULTIPROCESSORS: [&str; 1] = ["sm__throughput"];
/// Device memory: the first on most architectures, the second where that is missing.
const MEMORY: [&str; 2] = ["dram__throughput", "gpu__dram_throughput"];
/// The tensor cores: cycles in which the pipe works, on Hopper and later; then by kind of instruction; then
/// by instructions issued, which on Hopper undercounts the long ones.
const TENSOR: [&str; 7] = [
    "sm__pipe_tensor_cycles_active",
    "sm__pipe_tensor_op_gmma_cycles_active",
    "sm__pipe_tensor_op_hmma_cycles_active",
    "sm__pipe_tensor_op_imma_cycles_active",
    "sm__inst_executed_pipe_tensor",
    "sm__inst_executed_pipe_tensor_op_gmma",
    "sm__inst_executed_pipe_tensor_op_hmma",
];

fn candidates() -> impl Iterator<Item = &'static str> {
    MULTIPROCESSORS.into_iter().chain(MEMORY).chain(TENSOR)
}

/// What is asked for where the profiler's own list cannot be had.
const USUAL: [&str; 3] = ["sm__throughput", "dram__throughput", "sm__pipe_tensor_cycles_active"];

/// What to ask the profiler for: of the candidates, those in its own list of metrics.
pub(super) fn wanted(listed: Option<&str>) -> Vec<String> {
    let known: Vec<&str> =
        listed.unwrap_or_default().lines().filter_map(|line| line.split_whitespace().next()).collect();
    let listed: Vec<&str> = candidates().filter(|candidate| known.contains(candidate)).collect();
    let names = if listed.is_empty() { USUAL.to_vec() } else { listed };
    names.into_iter().map(|name| format!("{name}{PERCENT}")).collect()
}

/// How busy the units were, from whatever the profiler answered.
pub(super) fn utilisation(metrics: &BTreeMap<String, f64>) -> Utilisation {
    let first =
        |names: &[&str]| names.iter().find_map(|name| metrics.get(&format!("{name}{PERCENT}")).copied());
    let largest = |names: &[&str]| {
        let found = names.iter().filter_map(|name| metrics.get(&format!("{name}{PERCENT}")).copied());
        found.reduce(f64::max)
    };
    Utilisation { tensor: largest(&TENSOR), multiprocessors: first(&MULTIPROCESSORS), memory: first(&MEMORY) }
}

/// What of a launch is not known, by name.
pub(super) fn missing(utilisation: &Utilisation) -> Vec<String> {
    let parts = [
        ("tensor-pipe utilisation", utilisation.tensor),
        ("SM throughput", utilisation.multiprocessors),
        ("DRAM throughput", utilisation.memory),
    ];
    parts.into_iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_profiler_lists_is_asked_for() {
        let listed = "Device NVIDIA H200 (GH100)\n\
            ------------- ---- ------\n\
            Metric Name   Type Description\n\
            dram__throughput               Throughput %   % of peak\n\
            sm__throughput                 Throughput %   % of peak\n\
            sm__pipe_tensor_cycles_active  Counter cycle  # of cycles\n";
        let wanted = wanted(Some(listed));
        assert_eq!(wanted.len(), 3, "{wanted:?}");
        assert!(
            wanted.contains(&"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed".to_owned())
        );
    }

    #[test]
    fn without_a_list_the_usual_ones_are_asked_for() {
        assert_eq!(wanted(None).len(), 3);
        assert_eq!(wanted(Some("no table")), wanted(None));
    }

    #[test]
    fn a_missing_metric_is_named_and_the_rest_is_used() {
        let metrics = BTreeMap::from([(format!("gpu__dram_throughput{PERCENT}"), 81.0)]);
        let found = utilisation(&metrics);
        assert_eq!((found.memory, found.tensor), (Some(81.0), None));
        assert_eq!(missing(&found), ["tensor-pipe utilisation", "SM throughput"]);
    }
}
