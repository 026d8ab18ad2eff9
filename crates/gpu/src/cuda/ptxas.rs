//! What each kernel takes of the machine, from the lines that `ptxas -v` writes into the compiler's log.
//!
//! ```text
//! ptxas info    : Compiling entry function 'scale' for 'sm_90a'
//! ptxas info    : Function properties for scale
//! ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//! ptxas info    : Used 31 registers, used 1 barriers, 256 bytes smem
//! ```

use crate::types::Resources;

/// Resources by kernel name, in the order of the log.
///
/// A function that was not inlined and spills is listed under its own name, without registers: its spills are
/// nobody else's, and a gate that counts spills must see them.
pub(crate) fn resources(log: &str) -> Vec<(String, Resources)> {
    let mut kernels: Vec<(String, Resources)> = Vec::new();
    let mut callees: Vec<(String, Resources)> = Vec::new();
    let mut described = None;
    for line in log.lines() {
        if let Some(rest) = after(line, "Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or(rest);
            kernels.push((name.to_owned(), Resources::default()));
        } else if let Some(name) = after(line, "Function properties for ") {
            described = Some(name.trim().to_owned());
        } else if line.contains("bytes stack frame") {
            let Some(name) = described.take() else { continue };
            match kernels.iter_mut().find(|(kernel, _)| *kernel == name) {
                Some((_, resources)) => read_stack(line, resources),
                None => callees.push((name, stack_alone(line))),
            }
        } else if line.contains(": Used ")
            && let Some((_, resources)) = kernels.last_mut()
        {
            resources.registers = number_before(line, " registers").unwrap_or(0);
            resources.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
        }
    }
    let spilling =
        callees.into_iter().filter(|(_, callee)| callee.spill_stores > 0 || callee.spill_loads > 0);
    kernels.extend(spilling);
    kernels
}

fn read_stack(line: &str, resources: &mut Resources) {
    resources.stack_bytes = number_before(line, " bytes stack frame").unwrap_or(0);
    resources.spill_stores = number_before(line, " bytes spill stores").unwrap_or(0);
    resources.spill_loads = number_before(line, " bytes spill loads").unwrap_or(0);
}

fn stack_alone(line: &str) -> Resources {
    let mut resources = Resources::default();
    read_stack(line, &mut resources);
    resources
}

fn after<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.split_once(marker).map(|(_, rest)| rest)
}

/// The number that ends where `unit` starts.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    let before = &line[..line.find(unit)?];
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    before[before.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by NVRTC 13.0.88 for a source of three kernels and a function that is not inlined.
    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compile time = 8.491 ms
ptxas info    : Function properties for _Z6helperPfi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'spills' for 'sm_90a'
ptxas info    : Function properties for spills
ptxas         .     1448 bytes stack frame, 2280 bytes spill stores, 3096 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 1448 bytes cumulative stack size
ptxas info    : Compile time = 47.233 ms
ptxas info    : Compiling entry function '_Z4tmplILi3EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z4tmplILi3EEvPf
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 0.905 ms
";

    #[test]
    fn every_kernel_of_a_real_log_is_read() {
        let expected = [
            ("plain", Resources { registers: 31, shared_bytes: 256, ..Resources::default() }),
            (
                "spills",
                Resources {
                    registers: 32,
                    shared_bytes: 0,
                    stack_bytes: 1448,
                    spill_stores: 2280,
                    spill_loads: 3096,
                },
            ),
            ("_Z4tmplILi3EEvPf", Resources { registers: 8, ..Resources::default() }),
        ];
        assert_eq!(resources(LOG), expected.map(|(name, resources)| (name.to_owned(), resources)));
    }

    #[test]
    fn spills_of_a_function_that_is_not_inlined_are_seen() {
        let quiet = "for _Z6helperPfi\nptxas         .     0 bytes stack frame, 0 bytes spill stores";
        let spilling = "for _Z6helperPfi\nptxas         .     8 bytes stack frame, 4 bytes spill stores";
        let log = LOG.replace(quiet, spilling);
        assert_ne!(log, LOG);
        let expected = Resources { stack_bytes: 8, spill_stores: 4, ..Resources::default() };
        assert_eq!(resources(&log).last(), Some(&("_Z6helperPfi".to_owned(), expected)));
    }

    #[test]
    fn a_log_without_resources_gives_none() {
        assert!(resources("").is_empty());
        assert!(
            resources("a.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n")
                .is_empty()
        );
    }

    #[test]
    fn numbers_at_the_edge_are_added_to_nothing() {
        let log = "ptxas info    : Function properties for f\nptxas . 0 bytes stack frame, 4294967295 bytes spill stores, \
                   4294967295 bytes spill loads\n";
        assert_eq!(resources(log)[0].1.spill_stores, u32::MAX);
    }
}
