//! cuBLASLt: handles, and plans for products of one kind.
//!
//! The library knows matrices column by column. A matrix that lies row by row is its transpose there, and
//! `c = a b` becomes `cᵀ = bᵀ aᵀ`: the library's first factor is our right one.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cublasLtReductionScheme_t, cublasStatus_t, cudaDataType_t,
};

use crate::cuda::blas_library;
use crate::types::{FactorLayout, MatrixScalar};
use crate::{Error, Result};

/// The library's own state.
pub(crate) struct Handle(cublasLtHandle_t);

// SAFETY: the library's calls on a handle may come from any thread, several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// For the context that is current.
    pub(crate) fn new() -> Result<Self> {
        blas_library::load()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded, and `raw` is written by the call.
        check("cublasLtCreate", unsafe { sys::cublasLtCreate(&mut raw) })?;
        Ok(Self(raw))
    }

    pub(crate) fn version(&self) -> usize {
        // SAFETY: the library is loaded, since there is a handle.
        unsafe { sys::cublasLtGetVersion() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once, after the plans that were made with it.
        if let Err(error) = check("cublasLtDestroy", unsafe { sys::cublasLtDestroy(self.0) }) {
            tracing::warn!("{error}");
        }
    }
}

/// What a plan is made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Matmul {
    types: [MatrixScalar; 3],
    sizes: [usize; 3],
    /// Of the left and of the right factor.
    factors: [FactorLayout; 2],
    splits_sums: bool,
    /// What the addresses are multiples of, 256 at most.
    alignments: [u32; 3],
}

/// A matrix as the library names it: column by column, `leading` elements from one column to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Columns {
    rows: usize,
    columns: usize,
    leading: usize,
}

impl Matmul {
    /// Of matrices at these addresses. `splits_sums`: whether several blocks may share the sum of an element.
    pub(crate) fn of(
        types: [MatrixScalar; 3],
        sizes: [usize; 3],
        factors: [FactorLayout; 2],
        splits_sums: bool,
        addresses: [u64; 3],
    ) -> Self {
        let alignment = |address: u64| 1u32 << address.trailing_zeros().min(8);
        Self { types, sizes, factors, splits_sums, alignments: addresses.map(alignment) }
    }

    /// Our right factor, our left one and the result, as the library sees them; and which of the first two it
    /// transposes.
    fn arranged(&self) -> ([Columns; 3], [bool; 2]) {
        let [m, n, k] = self.sizes;
        let by_rows =
            |rows: usize, columns: usize| Columns { rows: columns, columns: rows, leading: columns };
        let factor = |layout: FactorLayout, rows: usize, columns: usize| match layout {
            FactorLayout::Rows => (by_rows(rows, columns), false),
            FactorLayout::Columns => (by_rows(columns, rows), true),
        };
        let [left, right] = self.factors;
        let ((right, is_right_turned), (left, is_left_turned)) = (factor(right, k, n), factor(left, m, k));
        ([right, left, by_rows(m, n)], [is_right_turned, is_left_turned])
    }
}

/// An algorithm for products of one kind, and what describes them.
pub(crate) struct Plan {
    operation: Owned<cublasLtMatmulDesc_t>,
    /// Of our right factor, our left one and the result.
    layouts: [Owned<cublasLtMatrixLayout_t>; 3],
    found: cublasLtMatmulHeuristicResult_t,
}

// SAFETY: descriptors are plain memory of the library's; nothing writes them once the plan is made.
unsafe impl Send for Plan {}

/// A descriptor, destroyed with this.
struct Owned<T: Copy> {
    raw: T,
    destroy: unsafe fn(T) -> cublasStatus_t,
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once. The only other answer is that it was none.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

impl Plan {
    /// The first algorithm that the library's heuristic names, with so many bytes of workspace.
    pub(crate) fn new(handle: &Handle, matmul: &Matmul, workspace: usize) -> Result<Self> {
        let (matrices, transposed) = matmul.arranged();
        let operation = operation(transposed)?;
        let [left, right, result] = matmul.types;
        let layouts = [layout(right, matrices[0])?, layout(left, matrices[1])?, layout(result, matrices[2])?];
        let preference = preference(matmul, workspace)?;
        let mut found = std::mem::MaybeUninit::<cublasLtMatmulHeuristicResult_t>::zeroed();
        let mut count = 0;
        // SAFETY: all descriptors are alive, there is room for the one result that is asked for, and the call
        // writes both.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle.0,
                operation.raw,
                layouts[0].raw,
                layouts[1].raw,
                layouts[2].raw,
                layouts[2].raw,
                preference.raw,
                1,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        let unsupported = || Error::Blas {
            message: format!(
                "cuBLASLt has no algorithm for {:?} by {:?} to {:?} of the sizes {:?}; sizes of 8-bit types are \
                 multiples of 16 and their right matrix lies in columns",
                left, right, result, matmul.sizes
            ),
        };
        match status {
            cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Err(unsupported()),
            status => check("cublasLtMatmulAlgoGetHeuristic", status)?,
        }
        if count < 1 {
            return Err(unsupported());
        }
        // SAFETY: the call said that it wrote one result.
        let found = unsafe { found.assume_init() };
        check("cublasLtMatmulAlgoGetHeuristic", found.state)?;
        Ok(Self { operation, layouts, found })
    }

    /// Queues `c <- alpha a b + beta c`.
    ///
    /// # Safety
    /// The context is current. The addresses are of matrices as the plan has them, on its device, aligned as
    /// it was told; the workspace has so many bytes, which nobody else uses in the meantime; the stream is
    /// alive.
    pub(crate) unsafe fn run(
        &self,
        handle: &Handle,
        (alpha, beta): (f32, f32),
        [a, b, c]: [u64; 3],
        (workspace, bytes): (u64, usize),
        stream: *mut c_void,
    ) -> Result<()> {
        let at = |address: u64| address as *mut c_void;
        // SAFETY: as the caller promises; factors are read before the call returns, since they are the
        // host's.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle.0,
                self.operation.raw,
                (&raw const alpha).cast(),
                at(b),
                self.layouts[0].raw,
                at(a),
                self.layouts[1].raw,
                (&raw const beta).cast(),
                at(c),
                self.layouts[2].raw,
                at(c),
                self.layouts[2].raw,
                &self.found.algo,
                at(workspace),
                bytes,
                stream.cast(),
            )
        };
        check("cublasLtMatmul", status)
    }
}

/// Sums and factors in f32, and which of the library's two factors are transposed.
fn operation(transposed: [bool; 2]) -> Result<Owned<cublasLtMatmulDesc_t>> {
    let mut raw = ptr::null_mut();
    let (compute, scale) = (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F);
    // SAFETY: the library is loaded, and `raw` is written by the call.
    check("cublasLtMatmulDescCreate", unsafe { sys::cublasLtMatmulDescCreate(&mut raw, compute, scale) })?;
    let operation = Owned { raw, destroy: sys::cublasLtMatmulDescDestroy };
    let attributes = [
        cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
        cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB,
    ];
    for (attribute, transposed) in attributes.into_iter().zip(transposed) {
        // CUBLAS_OP_T and CUBLAS_OP_N.
        let transpose = i32::from(transposed);
        let value = (&raw const transpose).cast();
        // SAFETY: the attribute has 32 bits, which are read before the call returns.
        let status = unsafe { sys::cublasLtMatmulDescSetAttribute(raw, attribute, value, size_of::<i32>()) };
        check("cublasLtMatmulDescSetAttribute", status)?;
    }
    Ok(operation)
}

fn layout(scalar: MatrixScalar, matrix: Columns) -> Result<Owned<cublasLtMatrixLayout_t>> {
    let type_ = match scalar {
        MatrixScalar::F32 => cudaDataType_t::CUDA_R_32F,
        MatrixScalar::F16 => cudaDataType_t::CUDA_R_16F,
        MatrixScalar::Bf16 => cudaDataType_t::CUDA_R_16BF,
        MatrixScalar::E4m3 => cudaDataType_t::CUDA_R_8F_E4M3,
        MatrixScalar::E5m2 => cudaDataType_t::CUDA_R_8F_E5M2,
    };
    let Columns { rows, columns, leading } = matrix;
    let mut raw = ptr::null_mut();
    // SAFETY: the library is loaded, and `raw` is written by the call.
    let status = unsafe {
        sys::cublasLtMatrixLayoutCreate(&mut raw, type_, rows as u64, columns as u64, leading as i64)
    };
    check("cublasLtMatrixLayoutCreate", status)?;
    Ok(Owned { raw, destroy: sys::cublasLtMatrixLayoutDestroy })
}

fn preference(matmul: &Matmul, workspace: usize) -> Result<Owned<cublasLtMatmulPreference_t>> {
    use cublasLtMatmulPreferenceAttributes_t as Attribute;
    let mut raw = ptr::null_mut();
    // SAFETY: the library is loaded, and `raw` is written by the call.
    check("cublasLtMatmulPreferenceCreate", unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) })?;
    let preference = Owned { raw, destroy: sys::cublasLtMatmulPreferenceDestroy };
    let set = |attribute: Attribute, value: *const c_void, bytes: usize| {
        // SAFETY: `value` is of so many bytes, which are those of the attribute, and is read before the call
        // returns.
        let status = unsafe { sys::cublasLtMatmulPreferenceSetAttribute(raw, attribute, value, bytes) };
        check("cublasLtMatmulPreferenceSetAttribute", status)
    };
    let bytes = workspace as u64;
    set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const bytes).cast(), size_of::<u64>())?;
    if !matmul.splits_sums {
        let schemes = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32;
        let attribute = Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        set(attribute, (&raw const schemes).cast(), size_of::<u32>())?;
    }
    let [left, right, result] = matmul.alignments;
    for (attribute, alignment) in [
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, right),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, left),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result),
    ] {
        set(attribute, (&raw const alignment).cast(), size_of::<u32>())?;
    }
    Ok(preference)
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the answer is a text of the library, for every status.
    let words = unsafe { CStr::from_ptr(sys::cublasLtGetStatusString(status)) }.to_string_lossy();
    Err(Error::Blas { message: format!("{call} failed with {status:?}: {words}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product as the library is told to compute it.
    fn column_major(matmul: &Matmul, first: &[f64], second: &[f64]) -> Vec<f64> {
        let ([x, y, z], [turns_x, turns_y]) = matmul.arranged();
        let at = |matrix: Columns, row: usize, column: usize| column * matrix.leading + row;
        let sides = |matrix: Columns, turned: bool| {
            if turned { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) }
        };
        let ((rows, inner), (other, columns)) = (sides(x, turns_x), sides(y, turns_y));
        assert_eq!(inner, other);
        assert_eq!((rows, columns), (z.rows, z.columns));
        let mut result = vec![0.0; z.columns * z.leading];
        for column in 0..z.columns {
            for row in 0..z.rows {
                let of_x = |i| if turns_x { at(x, i, row) } else { at(x, row, i) };
                let of_y = |i| if turns_y { at(y, column, i) } else { at(y, i, column) };
                result[at(z, row, column)] = (0..inner).map(|i| first[of_x(i)] * second[of_y(i)]).sum();
            }
        }
        result
    }

    fn matmul(sizes: [usize; 3], factors: [FactorLayout; 2], addresses: [u64; 3]) -> Matmul {
        Matmul::of([MatrixScalar::F32; 3], sizes, factors, false, addresses)
    }

    #[test]
    fn products_by_rows_are_products_of_transposes_by_columns() {
        for [m, n, k] in [[1, 1, 1], [2, 3, 5], [7, 1, 4], [1, 6, 3], [4, 4, 4]] {
            let numbers =
                |len: usize, by: usize| (0..len).map(|i| ((i * by) % 13) as f64 - 6.0).collect::<Vec<_>>();
            let (a, b) = (numbers(m * k, 5), numbers(k * n, 7));
            use FactorLayout::{Columns, Rows};
            for factors in [[Rows, Rows], [Rows, Columns], [Columns, Rows], [Columns, Columns]] {
                let left = |row: usize, inner: usize| match factors[0] {
                    Rows => row * k + inner,
                    Columns => inner * m + row,
                };
                let right = |inner: usize, column: usize| match factors[1] {
                    Rows => inner * n + column,
                    Columns => column * k + inner,
                };
                let element = |i: usize| {
                    (0..k).map(|inner| a[left(i / n, inner)] * b[right(inner, i % n)]).sum::<f64>()
                };
                let wanted: Vec<f64> = (0..m * n).map(element).collect();
                let found = column_major(&matmul([m, n, k], factors, [256; 3]), &b, &a);
                assert_eq!(found, wanted, "{m} x {n} x {k}, {factors:?}");
            }
        }
    }

    #[test]
    fn alignments_are_those_of_the_addresses() {
        let found = matmul([1; 3], [FactorLayout::Rows; 2], [0x1000, 0x1010, 0x1002]).alignments;
        assert_eq!(found, [256, 16, 2]);
    }

    #[test]
    #[ignore = "needs a machine without cuBLASLt"]
    fn a_machine_without_the_library_gets_a_sentence_and_no_panic() {
        let error = Handle::new().err().expect("there is no library");
        assert!(matches!(error, Error::NoBlas { .. }), "{error}");
        assert!(error.to_string().contains("nvidia-cublas"), "{error}");
    }
}
