//! Every synchronising call of every shipped kernel, dropped or altered in turn, must be found out by the
//! emulator; the kernels as they are must pass under every schedule.

use std::collections::BTreeSet;
use std::path::Path;

use gatework_gpu::{Device, Kind, Locked, on_all_cores};
use gatework_lab::mutation::{Fate, Mutant, hunt, mutants};
use gatework_lab::{Workload, runtime};

/// Schedules within which a mutant must fail.
const MUTANT_SEEDS: u64 = 20;
/// Schedules that a kernel must pass.
const CLEAN_SEEDS: usize = 200;

/// Mutants that cannot fail, and why: (workload, part of what `Mutant` prints, reason).
const SURVIVORS: &[(&str, &str, &str)] = &[];

fn kernels_of(workload: &dyn Workload) -> Vec<String> {
    let mut texts: Vec<String> =
        workload.kernels().iter().map(|spec| spec.source.text().to_owned()).collect();
    texts.sort();
    texts.dedup();
    texts
}

fn is_known_survivor(workload: &str, mutant: &Mutant) -> bool {
    SURVIVORS.iter().any(|(name, part, _)| *name == workload && mutant.to_string().contains(part))
}

/// What became of the mutants.
#[derive(Default)]
struct Hunted {
    caught: usize,
    survivors: Vec<String>,
    /// Listed as survivors, but caught.
    idle: Vec<String>,
}

impl Hunted {
    fn add(&mut self, workload: &str, mutant: &Mutant, fate: Fate) {
        let known = is_known_survivor(workload, mutant);
        match fate {
            Fate::Caught { seeds, how } => {
                let how: String = how.lines().next().unwrap_or_default().chars().take(140).collect();
                println!("{workload} {mutant}: caught at seed {seeds}: {how}");
                self.caught += 1;
                if known {
                    self.idle.push(format!("{workload} {mutant}"));
                }
            }
            Fate::Survived if known => {}
            Fate::Survived => self.survivors.push(format!("{workload} {mutant}")),
        }
    }
}

#[test]
fn every_mutant_is_caught() {
    let workloads = runtime::workloads();
    let of_text = |text: String| mutants(&text).into_iter().map(move |mutant| (text.clone(), mutant));
    let each = workloads.iter().flat_map(|workload| {
        let all = kernels_of(workload.as_ref()).into_iter().flat_map(of_text);
        all.map(move |(text, mutant)| (workload, text, mutant))
    });
    let quarry: Vec<_> = each.collect();
    let hunted = Locked::new(Hunted::default());
    on_all_cores(quarry.len(), |index| {
        let (workload, text, mutant) = &quarry[index];
        let fate = hunt(workload.as_ref(), text, &mutant.text, MUTANT_SEEDS).unwrap();
        hunted.lock().add(workload.name(), mutant, fate);
    });
    let Hunted { caught, survivors, idle } = std::mem::take(&mut *hunted.lock());
    println!("{caught} mutants caught");
    assert!(survivors.is_empty(), "mutants that no schedule finds out:\n{}", survivors.join("\n"));
    assert!(idle.is_empty(), "listed as survivors, but caught:\n{}", idle.join("\n"));
    assert!(caught > 20, "only {caught} mutants: are the call sites still found?");
}

#[test]
fn the_kernels_as_they_are_pass_every_schedule() {
    for workload in runtime::workloads() {
        // The smallest case that every kernel of the workload takes part in is enough for the order of
        // threads.
        let cases = workload.cases(Kind::Emulated);
        let synchronises = kernels_of(workload.as_ref()).iter().any(|text| !mutants(text).is_empty());
        let seeds = if synchronises { CLEAN_SEEDS } else { 1 };
        on_all_cores(seeds, |seed| {
            let (case, seed) = (&cases[seed % cases.len()], seed as u64);
            let device = Device::emulated(seed).unwrap();
            let outputs = workload
                .run(&device, case, seed)
                .unwrap_or_else(|error| panic!("{}: {error}", workload.name()));
            let judgement = workload.budget(case).judge(&outputs, &workload.reference(case, seed));
            assert_eq!(judgement.refused, None, "{} case {} seed {seed}", workload.name(), case.name);
        });
    }
}

#[test]
fn no_shipped_kernel_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let tested: BTreeSet<String> =
        runtime::workloads().iter().flat_map(|workload| kernels_of(workload.as_ref())).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "cuh") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            mutants(&text).is_empty() || tested.contains(&text),
            "{} synchronises and no workload runs it",
            path.display()
        );
    }
}
