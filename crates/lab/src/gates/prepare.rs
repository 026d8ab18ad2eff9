//! The kernels of many workloads, compiled before the first gate.

use std::collections::BTreeSet;

use gatework_gpu::{Architecture, Binary, Source, compile, on_all_cores};

use super::correctness::guarded;
use super::listings::Listings;
use super::resources::has_figures;
use crate::workload::Workload;

/// Compiles sources into the cache on all cores. What does not compile is left to its gate, which says why.
pub(super) fn compile_all(sources: &[(Source, Architecture)], listings: &Listings) {
    on_all_cores(sources.len(), |index| {
        let (source, architecture) = &sources[index];
        let listed = |binary: Binary| match has_figures(architecture) {
            true => listings.of(&binary).map(drop),
            false => Ok(()),
        };
        if let Err(error) = compile(source, architecture).and_then(listed) {
            tracing::debug!("{} is left to its gate: {error}", source.name());
        }
    });
}

/// The sources of all workloads for all architectures, each once. A workload whose list panics has none here.
pub(super) fn sources(
    workloads: &[&dyn Workload],
    architectures: &[Architecture],
) -> Vec<(Source, Architecture)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for workload in workloads {
        let specs = guarded("listing the kernels", || workload.kernels()).unwrap_or_default();
        for source in specs.into_iter().map(|spec| spec.source) {
            if source.hash().is_ok_and(|hash| seen.insert(hash)) {
                let each = architectures.iter().map(|architecture| (source.clone(), architecture.clone()));
                found.extend(each);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;

    #[test]
    fn every_source_is_prepared_once_and_found_again() {
        let workloads = runtime::workloads();
        let workloads: Vec<&dyn Workload> = workloads.iter().map(AsRef::as_ref).collect();
        let doubled: Vec<&dyn Workload> = workloads.iter().chain(&workloads).copied().collect();
        let sources = sources(&doubled, &[Architecture::Emulated]);
        let names: BTreeSet<String> = sources.iter().filter_map(|(source, _)| source.hash().ok()).collect();
        assert_eq!(names.len(), sources.len());
        compile_all(&sources, &Listings::default());
        for (source, architecture) in &sources {
            assert!(compile(source, architecture).unwrap().cached, "{}", source.name());
        }
    }
}
