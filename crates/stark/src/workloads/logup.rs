//! `stark/logup`: interaction traces, against stwo's own generator.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::channel::{Blake2sChannel, Channel as _};
use stwo::core::fields::FieldExpOps as _;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::Column as _;
use stwo::prover::poly::circle::CircleEvaluation;
use stwo_constraint_framework::FrameworkEval;

use super::{Size, Task};
use crate::airs::{Air as _, HostColumn, Lookup};
use crate::element::Element as _;
use crate::{CudaBackend, DeviceColumn, interaction_trace, kernels};

#[derive(Clone, Copy)]
pub(super) struct Logup;

/// Sixteen rows are the fewest that stwo's generator takes.
fn log_rows(columns: &[HostColumn]) -> u32 {
    columns[0].len().ilog2().max(4)
}

/// A lookup whose values are the first column, repeated where it is short; multiplicities may be any.
fn trace(columns: &[HostColumn]) -> (Lookup, HostColumn, Vec<HostColumn>) {
    let log_rows = log_rows(columns);
    let long = |column: &HostColumn| column.iter().copied().cycle().take(1 << log_rows).collect_vec();
    let values = long(&columns[0]);
    let squares = values.iter().map(|value| value.square()).collect();
    let trace = vec![values, squares, long(&columns[1])];
    (Lookup { log_rows, salt: 0 }, long(&columns[2]), trace)
}

fn eval(air: &Lookup) -> impl FrameworkEval {
    let channel = &mut Blake2sChannel::default();
    channel.mix_u64(7);
    air.evals(channel).remove(0)
}

fn words(columns: impl IntoIterator<Item = Vec<BaseField>>, sum: SecureField) -> Vec<u32> {
    let mut words = columns.into_iter().flatten().map(|value| value.0).collect_vec();
    sum.write(&mut words);
    words
}

impl Task for Logup {
    fn name(&self) -> &'static str {
        "stark/logup"
    }

    fn summary(&self) -> &'static str {
        "interaction traces: fractions from a recording, their sums over rows in the order of the coset"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let logup = KernelSpec::new(kernels::LOGUP.source()).threads(256);
        let interpreter = KernelSpec::new(kernels::INTERPRETER.source()).threads(256);
        vec![
            logup.entries(["sum_fractions", "scan_blocks", "scan_sums", "scan_rows"]),
            interpreter.entries(["interpret"]),
        ]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        let (air, table, trace) = trace(columns);
        let domain = CanonicCoset::new(air.log_rows).circle_domain();
        let up = |column: &HostColumn| {
            CircleEvaluation::<CudaBackend, _, _>::new(domain, DeviceColumn::upload(column))
        };
        let (table, trace) = (up(&table), trace.iter().map(up).collect_vec());
        let (columns, sum) = interaction_trace(&eval(&air), &[&table], &trace.iter().collect_vec());
        words(columns.iter().map(|column| column.values.to_cpu()), sum)
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        let (air, table, trace) = trace(columns);
        let channel = &mut Blake2sChannel::default();
        channel.mix_u64(7);
        let eval = air.evals(channel).remove(0);
        let (columns, sum) = air.simd_interaction(&eval, &[table], &trace);
        words(columns.iter().map(|column| column.values.to_cpu()), sum)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        let mut columns = columns.to_vec();
        columns.swap(1, 2);
        ("multiplicities and table exchanged", self.on_host(&columns))
    }

    /// Columns in and out once; two inverses a row, of about 250 operations.
    fn work(&self, Size { log_rows, .. }: Size) -> Work {
        let rows = 1u64 << log_rows.max(4);
        Work { operations: rows * 900, bytes: rows * 4 * (4 + 8) }
    }
}
