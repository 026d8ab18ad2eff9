//! `stark/prove`: whole proofs of wide Fibonacci, against `SimdBackend`.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Device, Kind, Module, Stream};
use gatework_lab::{
    Bench, Case, Control, ErrorBudget, Evidence, KernelSpec, Outputs, RunError, Side, Timing, Work, Workload,
};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::backend::simd::SimdBackend;

use super::{case, size};
use crate::airs::{self, Air as _, Input, Proved, WideFibonacci};
use crate::floor::{self, Hash, Machine, Shape};
use crate::{Context, CudaBackend, kernels, row_operations};

/// The workload.
pub(super) struct Prove;

/// 70 queries and no work to speak of: proof of work is a workload of its own kind.
const CONFIG: PcsConfig = PcsConfig {
    pow_bits: 8,
    fri_config: FriConfig {
        log_blowup_factor: 1,
        log_last_layer_degree_bound: 0,
        n_queries: 70,
        fold_step: 1,
    },
    lifting_log_size: None,
};

/// The sequence of the seed: its first column holds it.
fn air(case: &Case) -> WideFibonacci {
    let size = size(case);
    WideFibonacci { log_rows: size.log_rows, columns: size.columns }
}

fn bytes(proved: &Proved) -> Vec<u8> {
    serde_json::to_vec(proved).unwrap_or_default()
}

/// The last proof is `SimdBackend`'s, byte for byte.
fn evidence(case: &Case, last: Rc<RefCell<Option<Proved>>>) -> Evidence {
    let (seen, case) = (last.clone(), case.clone());
    let mut expected: Option<Outputs> = None;
    Evidence::new(
        ErrorBudget::Exact,
        move |_| {
            last.take();
            Ok(())
        },
        move |_| {
            let proof = seen.borrow().as_ref().map(bytes).unwrap_or_default();
            Ok(Outputs::new().with("proof", proof))
        },
        move |_| Ok(expected.get_or_insert_with(|| Prove.reference(&case, 0)).clone()),
    )
}

impl Workload for Prove {
    fn name(&self) -> &str {
        "stark/prove"
    }

    fn summary(&self) -> &str {
        "proofs of wide Fibonacci with 70 queries, byte for byte those of SimdBackend"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let spec = |module: &Module, entries: &[&str]| KernelSpec {
            entries: entries.iter().map(|&entry| entry.to_owned()).collect(),
            ..KernelSpec::new(module.source()).threads(256)
        };
        vec![
            spec(&kernels::FRI, &["fold_circle", "fold_line", "draw_challenge", "fold_to_last"]),
            spec(&kernels::OODS, &["monomials", "dot_products", "dot_totals"]),
            spec(&kernels::QUOTIENTS, &["numerators", "combine_quotients"]),
            spec(&kernels::GRIND, &["grind"]),
            spec(&kernels::TWIDDLES, &["make_twiddles"]),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            // The last has folds that are launches of their own.
            Kind::Emulated => vec![case(4, 5), case(6, 17), case(11, 2)],
            Kind::Cuda => vec![case(4, 5), case(10, 17), case(14, 100), case(18, 100)],
        }
    }

    fn run(&self, device: &Device, case: &Case, _: u64) -> Result<Outputs, RunError> {
        let air = air(case);
        let prove = || airs::prove(&air, CONFIG, Input::<CudaBackend>::new(&air, CONFIG));
        let proved = Context::new(device)?.scope(prove)??;
        Ok(Outputs::new().with("proof", bytes(&proved)))
    }

    fn reference(&self, case: &Case, _: u64) -> Outputs {
        let air = air(case);
        let proved = airs::prove(&air, CONFIG, Input::<SimdBackend>::new(&air, CONFIG));
        Outputs::new().with("proof", proved.map(|proved| bytes(&proved)).unwrap_or_default())
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, _: u64, reference: &Outputs) -> Vec<Control> {
        let other = WideFibonacci { columns: size(case).columns + 1, ..air(case) };
        let proved = airs::prove(&other, CONFIG, Input::<SimdBackend>::new(&other, CONFIG));
        let other = proved.map(|proved| bytes(&proved)).unwrap_or_default();
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::one_off(reference, "proof", 100, 1.0),
            Control::new("the proof of another statement", Outputs::new().with("proof", other)),
        ]
    }

    /// What the floors of the stages add up to, as the operations and bytes of a machine that does one of
    /// each a second.
    fn work(&self, case: &Case) -> Work {
        let air = air(case);
        let shape = Shape {
            hash: Hash::Blake2s,
            log_rows: air.log_rows,
            columns: air.columns,
            interaction_columns: 0,
            row_operations: row_operations(&air),
        };
        let total = |machine: Machine| -> u64 {
            floor::floors(&machine, &shape, &CONFIG).iter().map(|(_, seconds)| *seconds).sum::<f64>() as u64
        };
        Work {
            operations: total(Machine::counted(f64::INFINITY, 1.0)),
            bytes: total(Machine::counted(1.0, f64::INFINITY)),
        }
    }

    fn bench_cases(&self, kind: Kind) -> Vec<Case> {
        match kind {
            Kind::Emulated => Vec::new(),
            Kind::Cuda => vec![case(14, 100), case(18, 100), case(20, 100)],
        }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Option<Bench>, RunError> {
        let air = air(case);
        let traces = air.traces();
        let context = Context::new(device)?;
        let input = context.scope(|| Input::<CudaBackend>::of(Vec::new(), &traces, CONFIG))?;
        let last: Rc<RefCell<Option<Proved>>> = Rc::default();
        let evidence = evidence(case, last.clone());
        let candidate = Side::new("stark/prove", move |_: &Stream| {
            let prove = || airs::prove(&air, CONFIG, input.clone());
            let proved = context.scope(prove).and_then(|proved| proved)?;
            last.replace(Some(proved));
            Ok::<(), crate::Error>(())
        });
        let input = Input::<SimdBackend>::of(Vec::new(), &traces, CONFIG);
        let baseline = Side::new("SimdBackend on all cores", move |_: &Stream| {
            airs::prove(&air, CONFIG, input.clone()).map(drop)
        });
        let why = "the device has tens of times the memory bandwidth and integer units of a server";
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Wall).shown_by(evidence);
        Ok(Some(bench.expect_at_most(0.2, why)))
    }
}
