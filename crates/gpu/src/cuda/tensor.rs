//! Tensor maps as the driver encodes them.

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType as Data, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle,
};

use crate::Result;
use crate::cuda::status::check;
use crate::types::{MOST_DIMENSIONS, Swizzle, TensorScalar, TensorSpec, TensorWords};

/// The words that a kernel is given. The layout was checked.
pub(super) fn encode(spec: &TensorSpec<'_>) -> Result<TensorWords> {
    let TensorSpec { layout, .. } = spec;
    // SAFETY: the struct is plain words.
    let mut map: CUtensorMap = unsafe { std::mem::zeroed() };
    // The driver reads one stride less than dimensions, which for one dimension is none.
    let mut strides = layout.strides.clone();
    strides.resize(MOST_DIMENSIONS, 0);
    let steps = [1u32; MOST_DIMENSIONS];
    // SAFETY: extents, box and steps have as many entries as the tensor has dimensions, strides at least one
    // less; the call writes `map`.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            data_type(spec.scalar),
            layout.extents.len() as u32,
            spec.address as usize as *mut c_void,
            layout.extents.as_ptr(),
            strides.as_ptr(),
            layout.boxed.as_ptr(),
            steps.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(layout.swizzle),
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check("cuTensorMapEncodeTiled", status)?;
    Ok(map.opaque)
}

fn data_type(scalar: TensorScalar) -> Data {
    match scalar {
        TensorScalar::U8 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        TensorScalar::U16 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        TensorScalar::U32 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        TensorScalar::I32 => Data::CU_TENSOR_MAP_DATA_TYPE_INT32,
        TensorScalar::U64 => Data::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        TensorScalar::I64 => Data::CU_TENSOR_MAP_DATA_TYPE_INT64,
        TensorScalar::F16 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TensorScalar::Bf16 => Data::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        TensorScalar::F32 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        TensorScalar::F64 => Data::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    }
}

fn swizzle(swizzle: Swizzle) -> CUtensorMapSwizzle {
    match swizzle {
        Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::Bytes32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::Bytes64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::Bytes128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}
