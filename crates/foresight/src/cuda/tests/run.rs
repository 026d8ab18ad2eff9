//! Whole runs of a transformer on the emulated device: the engine, checkpoints, what is refused.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::checkpoint::RunFolder;
use crate::config::{Config, Prepared};
use crate::data::Tokens;
use crate::engine::{Engine, Event};
use crate::run::Run;
use crate::trainee::{Trainee, Which};
use crate::{Learner, Ledger};

/// A tiny run on a text that repeats itself, in a folder.
fn config(folder: &Path, device: &str, more: &str) -> Config {
    let tokens = |count: u16| (0..count).map(|place| (place % 23) * (place % 23) % 23).collect();
    let tokens = Tokens::new(23, tokens(300), tokens(60)).unwrap();
    std::fs::write(folder.join("text.tokens"), tokens.bytes()).unwrap();
    let text = format!(
        "steps = 8\nbatch = 4\n[data]\nkind = \"text\"\nprobe = 2\n[model]\ncontext = 5\nwidth = 8\nlayers = 1\nheads = 2\n\
         [optimiser]\nwarmup = 1\nlearning_rate = 0.01\n[engine.options]\nsampled = 0\n[run]\ndevice = {device:?}\n\
         checkpoint_every = 3\nevaluate_every = 4"
    );
    let config = Config::preset("text").unwrap().with_text("test", &text).unwrap();
    let mut config = config.with_text("more", more).unwrap();
    config.data.folder = folder.to_owned();
    config
}

fn finished(config: &Config, folder: Option<&RunFolder>) -> crate::Result<(Vec<f32>, Vec<u64>)> {
    let prepared = Prepared::of(config, |error| panic!("{error}"))?;
    let mut run = match folder {
        Some(folder) if !folder.steps()?.is_empty() => Run::resume(config, &prepared, folder, &mut ())?,
        folder => Run::start(config, &prepared, folder)?,
    };
    let summary = run.finish(&(), &AtomicBool::new(false), &mut ())?;
    let losses = summary.evaluations.iter().map(|evaluated| evaluated.averaged.loss.to_bits()).collect();
    Ok((run.trainer().trainee().weights()?, losses))
}

#[test]
fn a_run_that_is_stopped_and_resumed_ends_with_the_same_bits_and_not_elsewhere() {
    stopped_and_resumed("");
}

#[test]
fn a_run_with_muon_that_is_stopped_and_resumed_ends_with_the_same_bits() {
    stopped_and_resumed("[optimiser]\nmethod = \"muon\"");
}

fn stopped_and_resumed(more: &str) {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path(), "emulated", more);
    let undisturbed = finished(&config, None).unwrap();
    let folder = RunFolder::open(&home.path().join("cut")).unwrap();
    let prepared = Prepared::of(&config, |error| panic!("{error}")).unwrap();
    let mut run = Run::start(&config, &prepared, Some(&folder)).unwrap();
    let place = run.trainer().trainee().place();
    assert!(place.starts_with("the emulated device with kernels by "), "{place}");
    assert!(place.ends_with(", products by own"), "{place}");
    assert!(!run.train_to(5, &(), &AtomicBool::new(false), &mut ()).unwrap());
    drop(run);
    // On the CPU it would end with other bits.
    let mut elsewhere = config.clone();
    elsewhere.run.device = "cpu".into();
    let said = finished(&elsewhere, Some(&folder)).unwrap_err().to_string();
    assert!(said.contains("in bf16 on the emulated device") && said.contains("and --device where"), "{said}");
    assert!(finished(&config, Some(&folder)).unwrap() == undisturbed);
    // And what began on the CPU does not go on here.
    let folder = RunFolder::open(&home.path().join("here")).unwrap();
    finished(&elsewhere, Some(&folder)).unwrap();
    let said = finished(&config, Some(&folder)).unwrap_err().to_string();
    assert!(
        said.contains("none that can be used") && said.contains("in bf16 on the emulated device"),
        "{said}"
    );
}

/// An engine that tries whatever it can.
const BOLD: &str = "[engine]\nenabled = true\n[engine.options]\nwarmup_steps = 6\ndecide_every = 2\nexplore_every = 1\nrisk = 100\n\
                predictor_share = 100\nmax_predict_steps = 2\ncorrection_steps = 1\nconfidence_threshold = 0\nsnapshot_every = 2\n\
                snapshots = 2\nsafe_every = 2\ntick = 2\nlearn_every = 2\n[world]\nmembers = 2\nhidden = 8\ncategories = 2\nclasses = 2";

#[test]
fn the_engine_that_is_stopped_and_resumed_on_a_device_ends_with_the_same_bits() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path(), "emulated", &format!("steps = 24\n{BOLD}"));
    let prepared = Prepared::of(&config, |error| panic!("{error}")).unwrap();
    let go_on = AtomicBool::new(false);
    let mut whole = Run::start(&config, &prepared, None).unwrap();
    let summary = whole.finish(&(), &go_on, &mut ()).unwrap();
    let tried: u64 = summary.counts.freezes.iter().chain(&summary.counts.jumps).sum();
    assert!(tried > 0, "{:?}", summary.counts);
    let folder = RunFolder::open(&home.path().join("cut")).unwrap();
    Run::start(&config, &prepared, Some(&folder)).unwrap().train_to(13, &(), &go_on, &mut ()).unwrap();
    let mut resumed = Run::resume(&config, &prepared, &folder, &mut ()).unwrap();
    resumed.finish(&(), &go_on, &mut ()).unwrap();
    assert!(resumed.trainer().save().unwrap().goes_on_as(&whole.trainer().save().unwrap()));
}

#[test]
fn the_engine_tries_actions_on_a_device_and_rolls_back_what_diverges() {
    let home = tempfile::tempdir().unwrap();
    let config = config(home.path(), "emulated", &format!("steps = 40\n{BOLD}"));
    let prepared = Prepared::of(&config, |error| panic!("{error}")).unwrap();
    let mut trainee: Learner = prepared.trainee(&config).unwrap();
    let mut engine: Engine<Learner> = prepared.engine(&config, &trainee).unwrap().unwrap();
    let (mut ledger, mut rolled_back, mut tried) = (Ledger::default(), 0, 0);
    for tick in 0..60 {
        if engine.is_finished() {
            break;
        }
        if tick == 12 {
            let weights = trainee.weights().unwrap();
            trainee.combine(&[(f32::NAN, &weights)]).unwrap();
        }
        for event in engine.tick(&mut trainee, &mut ledger).unwrap().events {
            match event {
                Event::RolledBack { .. } => {
                    rolled_back += 1;
                    assert!(trainee.weights().unwrap().iter().all(|w| w.is_finite()));
                }
                Event::Accepted { .. } | Event::Rejected { .. } => tried += 1,
                _ => {}
            }
        }
    }
    assert!(rolled_back >= 1 && tried >= 1, "{rolled_back} {tried}");
    assert!(trainee.evaluate(Which::Trained).unwrap().loss.is_finite());
}

#[test]
fn what_a_run_cannot_be_is_refused_before_it_starts() {
    let home = tempfile::tempdir().unwrap();
    let said = |device: &str, more: &str| {
        let mut config = config(home.path(), "emulated", "");
        config.run.device = device.into();
        let ran = config.with_text("more", more).and_then(|config| finished(&config, None));
        ran.unwrap_err().to_string()
    };
    assert!(said("auto", "").contains("a run says where it is"));
    assert!(said("cuda:0,1", "").contains("a run is on one, as cpu, cuda:1 or emulated"));
    assert!(said("cpu", "run.products = \"mkl\"").contains("own or cublaslt"));
    assert!(said("gpu", "").contains("unknown device 'gpu'"));
    assert!(said("emulated", "run.products = \"mkl\"").contains("own or cublaslt"));
    assert!(
        said("emulated", "[engine]\nenabled = true\n[engine.options]\nsampled = 2.0").contains("set it to 0")
    );
    let config = config(home.path(), "emulated", "");
    let plan = Prepared::of(&config, |_| ()).unwrap().memory(&config).unwrap();
    // Muon takes its direction, and memory for iterations.
    let muon = config.with_text("more", "[optimiser]\nmethod = \"muon\"").unwrap();
    assert!(Prepared::of(&muon, |_| ()).unwrap().memory(&muon).unwrap().optimiser > plan.optimiser);
    // Master weights, their average and rounded ones: 10 bytes of each; moments and the last step: 12.
    assert_eq!(plan.weights * 12, plan.optimiser * 10);
    // On the host there is what a checkpoint copies, and initial weights on their way.
    assert_eq!(plan.device, plan.weights + plan.optimiser + plan.passes);
    assert_eq!(plan.host, plan.data + plan.checkpoint + plan.checkpoint / 5);
    let mut by_library = config.clone();
    by_library.run.products = "cublaslt".into();
    let planned = Prepared::of(&config, |_| ()).unwrap().memory(&by_library);
    if cfg!(feature = "blas") {
        assert!(planned.unwrap().passes > plan.passes + (32 << 20));
    } else {
        assert!(planned.unwrap_err().to_string().contains("without the feature 'blas'"));
    }
}
