//! `stark/transfer`: columns of `SimdBackend` to the device, to coefficients on the way, and back.

use gatework_lab::{KernelSpec, Work};
use itertools::Itertools as _;
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::Column as _;
use stwo::prover::backend::cpu::CpuCircleEvaluation;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::PolyOps as _;

use super::{Size, Task};
use crate::airs::HostColumn;
use crate::{CudaBackend, ToDevice as _, ToSimd as _, kernels};

#[derive(Clone, Copy)]
pub(super) struct Transfer;

/// The first half of every third column, so that lengths differ.
fn lengths(columns: &[HostColumn]) -> impl Iterator<Item = &[BaseField]> {
    columns.iter().enumerate().map(|(index, column)| match index % 3 {
        1 => &column[..column.len() / 2],
        _ => column.as_slice(),
    })
}

fn words<'a>(columns: impl IntoIterator<Item = &'a [BaseField]>) -> Vec<u32> {
    columns.into_iter().flatten().map(|value| value.0).collect()
}

impl Task for Transfer {
    fn name(&self) -> &'static str {
        "stark/transfer"
    }

    fn summary(&self) -> &'static str {
        "columns of packed lanes to the device and back, and interpolated as they arrive"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![KernelSpec::new(kernels::CIRCLE_FFT.source()).threads(256).entries(["fft_inverse"])]
    }

    /// In groups, some of which are interpolated while others arrive.
    fn largest_sizes(&self) -> Vec<(u32, usize)> {
        vec![(20, 30), (22, 4)]
    }

    fn on_device(&self, columns: &[HostColumn]) -> Vec<u32> {
        // Lanes hold P where zero is meant.
        let lane = |value: &BaseField| if value.0 == 0 { BaseField::from_u32_unchecked(P) } else { *value };
        let packed =
            lengths(columns).map(|column| column.iter().map(lane).collect::<BaseColumn>()).collect_vec();
        let log_rows = columns[0].len().ilog2();
        let twiddles =
            CudaBackend::precompute_twiddles(CanonicCoset::new(log_rows).circle_domain().half_coset);
        let back = packed.to_device().to_simd();
        let polynomials = packed.interpolate_on_device(&twiddles);
        let coefficients = polynomials.iter().map(|polynomial| polynomial.coeffs.to_cpu()).collect_vec();
        words(back.iter().map(BaseColumn::as_slice).chain(coefficients.iter().map(Vec::as_slice)))
    }

    fn on_host(&self, columns: &[HostColumn]) -> Vec<u32> {
        let coefficients = lengths(columns).map(|column| {
            let domain = CanonicCoset::new(column.len().ilog2()).circle_domain();
            CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, column.to_vec()).interpolate().coeffs
        });
        let coefficients = coefficients.collect_vec();
        words(lengths(columns).chain(coefficients.iter().map(Vec::as_slice)))
    }

    fn mistaken(&self, columns: &[HostColumn]) -> (&'static str, Vec<u32>) {
        let mut columns = columns.to_vec();
        columns.rotate_left(1);
        ("columns in another order", self.on_host(&columns))
    }

    /// Over the bus twice and back once, and interpolated once.
    fn work(&self, Size { log_rows, columns }: Size) -> Work {
        let values = (columns as u64) << log_rows;
        Work { operations: 8 * (values / 2) * u64::from(log_rows), bytes: 4 * values * 5 }
    }
}
