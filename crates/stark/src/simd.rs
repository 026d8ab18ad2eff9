//! Columns of stwo's `SimdBackend` to the device and back.
//!
//! Trace generators of stwo write packed lanes. They stay as they are: what they have written is moved.

use stwo::core::fields::m31::BaseField;
use stwo::prover::backend::Column as _;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation};
use stwo::prover::poly::twiddles::TwiddleTree;

use crate::Error;
use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::download::download;
use crate::error::raise;
use crate::upload::{interpolate_on, upload, upload_and_interpolate};

type Evaluation<B> = CircleEvaluation<B, BaseField, BitReversedOrder>;

/// Columns as stwo's trace generators write them, brought to the device of the scope this is called in.
///
/// All columns go together, of any lengths and in any order, from their lanes into page-locked memory and
/// from there to the device. Lanes may hold P where zero is meant, as they do where zero was negated; on the
/// device it is zero.
///
/// ```
/// use gatework_stark::{Context, CudaBackend, ToDevice as _, ToSimd as _};
/// use stwo::core::fields::m31::BaseField;
/// use stwo::prover::backend::simd::column::BaseColumn;
///
/// let column = |len: u32| (0..len).map(BaseField::from).collect::<BaseColumn>();
/// let columns = vec![column(64), column(1), column(8)];
/// let context = Context::new(&gatework_gpu::Device::open("emulated")?)?;
/// let back = context.scope(|| columns.to_device().to_simd())?;
/// assert!(columns.iter().zip(&back).all(|(before, after)| before.as_slice() == after.as_slice()));
/// # Ok::<(), gatework_stark::Error>(())
/// ```
pub trait ToDevice {
    /// One of them on the device.
    type OnDevice;

    /// The columns on the device, for `TreeBuilder::extend_evals`.
    fn to_device(&self) -> Vec<Self::OnDevice>;

    /// The columns on the device, interpolated while others are on their way, for
    /// `TreeBuilder::extend_polys`: faster than [`ToDevice::to_device`] where the values are not needed
    /// again. `twiddles` are those that the commitment scheme was made with.
    fn interpolate_on_device(
        &self,
        twiddles: &TwiddleTree<CudaBackend>,
    ) -> Vec<CircleCoefficients<CudaBackend>>;
}

impl ToDevice for [BaseColumn] {
    type OnDevice = DeviceColumn<BaseField>;

    fn to_device(&self) -> Vec<DeviceColumn<BaseField>> {
        upload(&slices(self.iter()))
    }

    /// Each on the canonic domain of its length.
    fn interpolate_on_device(
        &self,
        twiddles: &TwiddleTree<CudaBackend>,
    ) -> Vec<CircleCoefficients<CudaBackend>> {
        upload_and_interpolate(&slices(self.iter()), twiddles)
    }
}

impl ToDevice for [Evaluation<SimdBackend>] {
    type OnDevice = Evaluation<CudaBackend>;

    fn to_device(&self) -> Vec<Evaluation<CudaBackend>> {
        let columns = upload(&slices_on_domains(self)).into_iter();
        self.iter().zip(columns).map(|(from, column)| CircleEvaluation::new(from.domain, column)).collect()
    }

    fn interpolate_on_device(
        &self,
        twiddles: &TwiddleTree<CudaBackend>,
    ) -> Vec<CircleCoefficients<CudaBackend>> {
        let domains: Vec<_> = self.iter().map(|evaluation| evaluation.domain).collect();
        interpolate_on(&domains, &slices_on_domains(self), twiddles)
    }
}

fn slices<'a>(columns: impl Iterator<Item = &'a BaseColumn>) -> Vec<&'a [BaseField]> {
    columns.map(BaseColumn::as_slice).collect()
}

/// The values of evaluations that have as many as their domain has points.
fn slices_on_domains(evaluations: &[Evaluation<SimdBackend>]) -> Vec<&[BaseField]> {
    for evaluation in evaluations {
        let (values, points) = (evaluation.values.len(), evaluation.domain.size());
        if values != points {
            raise(Error::Unsupported {
                what: format!(
                    "a column of {values} values on a domain of {points} points: give each point one value"
                ),
            })
        }
    }
    slices(evaluations.iter().map(|evaluation| &evaluation.values))
}

/// Columns of the device as `SimdBackend` has them.
///
/// All columns are read together, through page-locked memory, each after what is queued for it in its own
/// context.
pub trait ToSimd {
    /// One of them on the host.
    type OnHost;

    /// The columns in packed lanes.
    fn to_simd(&self) -> Vec<Self::OnHost>;
}

impl ToSimd for [DeviceColumn<BaseField>] {
    type OnHost = BaseColumn;

    fn to_simd(&self) -> Vec<BaseColumn> {
        packed(&self.iter().collect::<Vec<_>>())
    }
}

impl ToSimd for [Evaluation<CudaBackend>] {
    type OnHost = Evaluation<SimdBackend>;

    fn to_simd(&self) -> Vec<Evaluation<SimdBackend>> {
        let columns = packed(&self.iter().map(|evaluation| &evaluation.values).collect::<Vec<_>>());
        self.iter().zip(columns).map(|(from, column)| CircleEvaluation::new(from.domain, column)).collect()
    }
}

fn packed(columns: &[&DeviceColumn<BaseField>]) -> Vec<BaseColumn> {
    let mut targets: Vec<BaseColumn> = columns.iter().map(|column| BaseColumn::zeros(column.len())).collect();
    download(columns, targets.iter_mut().map(BaseColumn::as_mut_slice).collect());
    targets
}
