//! The gates refuse what they must, on the emulated device.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use gatework_gpu::{Device, Grid, Kind, Notice, Source, args, presence};
use gatework_lab::{
    Bounds, Case, Control, ErrorBudget, Gate, Gates, Inputs, KernelSpec, Outcome, Outputs, Record, RunError,
    Tensor, TestBed, Work, Workload, poisoned,
};

const DOUBLE: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(twice)(const f32* x, f32* out, u32 n) {
        const u32 i = gw::global_thread();
        if (i < n) out[i] = x[i] + x[i];
    }
"#;

/// `out <- 2 x`, with a part that a test replaces.
struct Twice {
    text: String,
    budget: ErrorBudget,
    controls: fn(&Outputs) -> Vec<Control>,
    run: fn(&Twice, &Device, &Case, u64) -> Result<Outputs, RunError>,
    reference: fn(Vec<f32>) -> Outputs,
    /// Whether asking for the kernels or for the cases panics.
    panics: [bool; 2],
}

impl Twice {
    fn right() -> Self {
        Self {
            text: DOUBLE.to_owned(),
            budget: ErrorBudget::Exact,
            controls: |reference| vec![Control::zeros(reference), Control::one_off(reference, "out", 0, 1.0)],
            run: Self::launch,
            reference: |input| Outputs::new().with("out", input),
            panics: [false; 2],
        }
    }

    fn with_kernel(from: &str, to: &str) -> Self {
        assert!(DOUBLE.contains(from));
        Self { text: DOUBLE.replace(from, to), ..Self::right() }
    }

    fn source(&self) -> Source {
        Source::new("twice", self.text.clone())
    }

    fn input(case: &Case, seed: u64) -> Vec<f32> {
        Inputs::new(seed).uniform(case.dimension("n"), 1.0..2.0)
    }

    fn launch(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let input = Self::input(case, seed);
        let stream = device.stream()?;
        let kernel = device.kernel(&self.source())?;
        let x = stream.upload(&input)?;
        let mut out = poisoned::<f32>(&stream, input.len())?;
        kernel.launch(&stream, &Grid::covering(input.len(), 32), &args![&x, &mut out, input.len() as u32])?;
        Ok(Outputs::new().with("out", stream.download(&out)?))
    }
}

impl Workload for Twice {
    fn name(&self) -> &str {
        "test/twice"
    }

    fn summary(&self) -> &str {
        "out <- 2 x"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        assert!(!self.panics[0], "no list of kernels");
        vec![KernelSpec::new(self.source())]
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        assert!(!self.panics[1], "no list of cases");
        [1, 65].map(|n| Case::new(format!("n{n}")).with("n", n)).to_vec()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        (self.run)(self, device, case, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        (self.reference)(Self::input(case, seed).iter().map(|x| 2.0 * x).collect())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        self.budget
    }

    fn controls(&self, _: &Case, _: u64, reference: &Outputs) -> Vec<Control> {
        (self.controls)(reference)
    }

    fn work(&self, case: &Case) -> Work {
        Work { operations: case.dimension("n") as u64, bytes: 8 * case.dimension("n") as u64 }
    }
}

fn gate(workload: &dyn Workload) -> Record {
    Gates::new(Device::emulated(0).unwrap()).gate(workload, &())
}

fn failure(workload: &dyn Workload) -> String {
    match gate(workload).verdict {
        Outcome::Failed { why } => why,
        other => panic!("expected a failure, got {other}"),
    }
}

fn outcome(record: &Record, gate: Gate, target: &str) -> Outcome {
    let found = record.gates.iter().find(|found| found.gate == gate && found.target == target);
    found.unwrap_or_else(|| panic!("no {gate} gate for {target} in {:?}", record.gates)).outcome.clone()
}

#[test]
fn a_right_workload_passes_and_its_record_says_on_what() {
    let record = gate(&Twice::right());
    assert_eq!(record.verdict, Outcome::Passed);
    assert_eq!(outcome(&record, Gate::Compile, "emulated"), Outcome::Passed);
    assert_eq!(record.device.as_ref().unwrap().id, "emulated");
    assert_eq!(record.kernels[0].source_hash, Twice::right().source().hash().unwrap());
    let cases: Vec<_> = record.cases.iter().map(|case| (case.name.as_str(), case.seeds.as_slice())).collect();
    assert_eq!(cases, [("n1", [0, 1, 2].as_slice()), ("n65", &[0, 1, 2])]);
    let emulated = &record.kernels[0].binaries[0];
    assert!(emulated.options.iter().any(|option| option.starts_with("-f")), "{:?}", emulated.options);
    assert_eq!(record.cases[0].errors["out"].mismatches, 0);
    assert_eq!(record.cases[0].controls, ["one element off", "zeros"]);
}

#[test]
fn a_wrong_kernel_fails_correctness() {
    let why = failure(&Twice::with_kernel("x[i] + x[i]", "x[i] + 1.0f"));
    assert!(why.starts_with("correctness (emulated): case 'n1', seed 0: output 'out'"), "{why}");
}

#[test]
fn an_unwritten_output_fails_correctness() {
    let why = failure(&Twice::with_kernel("i < n", "i + 1 < n"));
    assert!(why.contains("correctness"), "{why}");
}

#[test]
fn a_race_that_gives_the_right_answer_still_fails() {
    let why = failure(&Twice::with_kernel("if (i < n)", "out[0] = x[0] + x[0]; if (i < n)"));
    assert!(why.contains("race"), "{why}");
}

#[test]
fn a_blind_tolerance_is_refused_by_its_controls() {
    let wide = Bounds { relative_frobenius: 2.0, max_abs: 1e9, mean_bias: 1e9 };
    let why = failure(&Twice { budget: ErrorBudget::Bounded(wide), ..Twice::right() });
    assert!(why.contains("the gate is blind") && why.contains("'zeros'"), "{why}");
}

#[test]
fn a_workload_without_controls_is_refused() {
    let why = failure(&Twice { controls: |_| Vec::new(), ..Twice::right() });
    assert!(why.contains("refused: the workload has no negative control"), "{why}");
}

/// A budget that lets every element be out by `max_abs`, whatever the others say.
fn generous(max_abs: f64) -> ErrorBudget {
    ErrorBudget::Bounded(Bounds { relative_frobenius: 0.9, max_abs, mean_bias: 10.0 })
}

#[test]
fn controls_that_any_budget_refuses_do_not_hide_a_blind_one() {
    let nan = |reference: &Outputs| vec![Control::unwritten_tail(reference, 1)];
    let why = failure(&Twice { controls: nan, ..Twice::right() });
    assert!(why.contains("no negative control is finite and of the reference's shape"), "{why}");
    let longer = |_: &Outputs| vec![Control::new("longer", Outputs::new().with("out", vec![1.0f32; 100]))];
    let why = failure(&Twice { controls: longer, ..Twice::right() });
    assert!(why.contains("no negative control is finite and of the reference's shape"), "{why}");
}

#[test]
fn the_lab_adds_controls_of_its_own() {
    // Its one control is so wrong that a budget which accepts half as much again refuses it.
    let far = |reference: &Outputs| vec![Control::biased(reference, 100.0)];
    let why = failure(&Twice { controls: far, budget: generous(3.9), ..Twice::right() });
    assert!(why.contains("the gate is blind") && why.contains("the lab's half as large again"), "{why}");
    // An unbounded element, as long as the sum of all is near.
    let why = failure(&Twice { controls: far, budget: generous(f64::INFINITY), ..Twice::right() });
    assert!(why.contains("the gate is blind"), "{why}");
}

#[test]
fn an_output_of_nothing_fails() {
    let none = |_: &Twice, _: &Device, _: &Case, _: u64| Ok(Outputs::new());
    let why = failure(&Twice { run: none, reference: |_| Outputs::new(), ..Twice::right() });
    assert!(why.contains("the reference says nothing: there is no output at all"), "{why}");
    let empty = |_: &Twice, _: &Device, _: &Case, _: u64| Ok(Outputs::new().with("out", Vec::<f32>::new()));
    let nothing = |_: Vec<f32>| Outputs::new().with("out", Vec::<f32>::new());
    let why = failure(&Twice { run: empty, reference: nothing, ..Twice::right() });
    assert!(why.contains("output 'out' has no element"), "{why}");
}

#[test]
fn lists_that_panic_fail_their_workload_alone() {
    let record = gate(&Twice { panics: [true, false], ..Twice::right() });
    let Outcome::Failed { why } = record.verdict else { panic!("{}", record.verdict) };
    assert!(why.contains("listing the kernels panicked: no list of kernels"), "{why}");
    let why = failure(&Twice { panics: [false, true], ..Twice::right() });
    assert!(why.contains("listing the cases panicked: no list of cases"), "{why}");
}

#[test]
fn a_control_that_is_right_is_refused() {
    let same = |reference: &Outputs| vec![Control::new("same", reference.clone())];
    let why = failure(&Twice { controls: same, ..Twice::right() });
    assert!(why.contains("the control 'same' is the reference itself"), "{why}");
}

#[test]
fn outputs_that_change_from_run_to_run_fail() {
    let drifting = |workload: &Twice, device: &Device, case: &Case, seed: u64| {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let outputs = workload.launch(device, case, seed)?;
        let Some(Tensor::F32(mut out)) = outputs.get("out").cloned() else {
            unreachable!("the output is f32")
        };
        out[0] = f32::from_bits(out[0].to_bits() + RUNS.fetch_add(1, Ordering::Relaxed) % 2);
        Ok(Outputs::new().with("out", out))
    };
    let bounds = Bounds { relative_frobenius: 1e-3, max_abs: 1e-3, mean_bias: 1e-3 };
    let why = failure(&Twice { run: drifting, budget: ErrorBudget::Bounded(bounds), ..Twice::right() });
    assert!(why.contains("two runs differ: output 'out' element 0"), "{why}");
}

#[test]
fn a_panic_in_a_workload_is_its_failure_alone() {
    let why = failure(&Twice { run: |_, _, _, _| panic!("index out of range"), ..Twice::right() });
    assert!(why.contains("the run panicked: index out of range"), "{why}");
}

#[test]
fn a_syntax_error_fails_the_compile_gate_with_the_log_and_stops_the_rest() {
    let record = gate(&Twice::with_kernel("x[i] + x[i];", "x[i] + ;"));
    let Outcome::Failed { why } = outcome(&record, Gate::Compile, "emulated") else {
        panic!("{}", record.verdict)
    };
    assert!(why.contains("does not compile") && why.contains("error"), "{why}");
    let stopped = Outcome::NotRun { why: "the compile gate failed".into() };
    assert_eq!(outcome(&record, Gate::Resources, "sm_90a"), stopped);
    assert_eq!(outcome(&record, Gate::Correctness, "emulated"), stopped);
    assert!(record.verdict.is_failed());
}

#[test]
fn an_include_nobody_provides_fails_the_compile_gate() {
    let why = failure(&Twice::with_kernel("gw/gw.cuh", "nowhere.cuh"));
    assert!(why.starts_with("compile") && why.contains("nowhere.cuh"), "{why}");
}

#[test]
fn without_a_device_nothing_counts_as_passed() {
    let bed = TestBed::CompilersOnly { why: "no device was asked for".into() };
    let record = Gates::new(bed).gate(&Twice::right(), &());
    assert_eq!(record.verdict, Outcome::NotRun { why: "no device was asked for".into() });
    assert_eq!(outcome(&record, Gate::Compile, "emulated"), Outcome::Passed);
    assert_eq!(record.slug(), "no-device");
}

#[test]
fn the_resource_gate_runs_with_nvrtc_and_says_so_without() {
    let record = gate(&Twice::right());
    let tools = [presence::nvrtc(), presence::tool("cuobjdump"), presence::tool("nvdisasm")];
    let resources = outcome(&record, Gate::Resources, "sm_90a");
    if tools.iter().all(|tool| tool.is_found()) {
        assert_eq!(resources, Outcome::Passed);
        let sm = record.kernels[0]
            .binaries
            .iter()
            .find(|binary| binary.architecture.to_string() == "sm_90a")
            .unwrap();
        assert!(sm.entries[0].sass.as_ref().unwrap().values().sum::<u32>() > 0);
    } else {
        assert!(matches!(resources, Outcome::NotRun { .. }), "{resources}");
        assert!(record.not_run().any(|(gate, _)| gate.gate == Gate::Resources));
    }
}

#[test]
fn progress_hears_of_every_case_and_seed() {
    let heard = Mutex::new((Vec::new(), Vec::new()));
    let observer = |notice: Notice<'_>| match notice {
        Notice::Started { stage } => heard.lock().unwrap().0.push(stage.to_owned()),
        Notice::Counted { what, done, of } => heard.lock().unwrap().1.push((what.to_owned(), done, of)),
        _ => (),
    };
    let gates = Gates::new(Device::emulated(0).unwrap()).seeds(7..9);
    gates.gate(&Twice::right(), &observer);
    let (stages, counts) = heard.into_inner().unwrap();
    let wanted = ["compile", "resources", "correctness"];
    assert_eq!((stages[0].as_str(), &stages[1..]), (Twice::right().name(), &wanted.map(str::to_owned)[..]));
    let checks: Vec<_> = (0..=4).map(|done| ("checks".to_owned(), done, Some(4))).collect();
    assert_eq!(counts, checks);
}
