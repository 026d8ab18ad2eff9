//! `stark/sums`: single values of whole columns, as stwo's own prover asks for them.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::channel::{Blake2sChannel, Channel as _};
use stwo::core::circle::CirclePoint;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::{Backend, Col, CpuBackend};
use stwo::prover::lookups::gkr_prover::{Layer, prove_batch};
use stwo::prover::lookups::mle::Mle;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, SecureEvaluation};
use stwo::prover::secure_column::SecureColumnByCoords;

use super::{Size, Task};
use crate::airs::HostColumn;
use crate::element::Element as _;
use crate::{CudaBackend, kernels};

#[derive(Clone, Copy)]
pub(super) struct Sums;

/// A value by its weights, the coefficient of a decomposition, and a proof of GKR, on any backend.
fn values<B: Backend>(columns: &[HostColumn]) -> Vec<u32> {
    let log_rows = columns[0].len().ilog2();
    let column = |values: &HostColumn| -> Col<B, BaseField> { values.iter().copied().collect() };
    let domain = CanonicCoset::new(log_rows).circle_domain();
    let point = CirclePoint::<SecureField>::get_point(123_456_789);
    let mut words = Vec::new();

    let weights = B::barycentric_weights(CanonicCoset::new(log_rows), point);
    let evaluation = CircleEvaluation::<B, BaseField, BitReversedOrder>::new(domain, column(&columns[0]));
    B::barycentric_eval_at_point(&evaluation, &weights).write(&mut words);

    let coordinates = [0, 1, 2, 0].map(|index| column(&columns[index]));
    let secure = SecureEvaluation::new(domain, SecureColumnByCoords { columns: coordinates });
    B::decompose(&secure).1.write(&mut words);

    let at = |row: usize| SecureField::from_m31_array([0, 1, 2, 1].map(|index| columns[index][row]));
    let mle = || Mle::<B, SecureField>::new((0..columns[0].len()).map(at).collect());
    let layers = vec![
        Layer::GrandProduct(mle()),
        Layer::LogUpGeneric { numerators: mle(), denominators: mle() },
        Layer::LogUpMultiplicities { numerators: Mle::new(column(&columns[1])), denominators: mle() },
        Layer::LogUpSingles { denominators: mle() },
    ];
    let channel = &mut Blake2sChannel::default();
    let (proof, artifact) = prove_batch(channel, layers);
    let felts = proof.output_claims_by_instance.concat().into_iter().chain(artifact.ood_point).collect_vec();
    felts.iter().for_each(|felt| felt.write(&mut words));
    channel.draw_secure_felt().write(&mut words);
    words
}

impl Task for Sums {
    fn name(&self) -> &'static str {
        "stark/sums"
    }

    fn summary(&self) -> &'static str {
        "a value by its weights, a decomposition, and a proof of GKR over layers of every kind"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let lookups = KernelSpec::new(kernels::LOOKUPS.source()).threads(256);
        let columns = KernelSpec::new(kernels::COLUMNS.source()).threads(256);
        let oods = KernelSpec::new(kernels::OODS.source()).threads(256);
        vec![
            lookups.entries(["gate_sums", "next_layer", "eq_evaluations", "fix_first_m31", "fix_first_qm31"]),
            columns.entries(["sum_signed", "bit_reverse", "collect"]),
            oods.entries(["dot_interleaved", "interleave"]),
        ]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        values::<CudaBackend>(columns)
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        values::<CpuBackend>(columns)
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        let mut columns = columns.to_vec();
        columns[0].rotate_left(1);
        ("a column one row off", self.on_host(&columns))
    }

    /// Each layer of each kind once, with some products of QM31 an element.
    fn work(&self, Size { log_rows, .. }: Size) -> Work {
        let rows = 1u64 << log_rows;
        Work { operations: rows * 2000, bytes: rows * 4 * 40 }
    }
}
