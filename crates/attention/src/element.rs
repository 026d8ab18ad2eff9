//! Number formats of inputs and outputs.

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};

use crate::shared::Number;

/// A format that queries, keys, values and outputs may have.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The format, as kernels know it.
    const NUMBER: Number;

    /// The value.
    fn to_f32(self) -> f32;
    /// The nearest value of this format.
    fn from_f32(value: f32) -> Self;

    /// The values of a run of the same length: with the machine's own instructions where it has them.
    fn widen(from: &[Self], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(from, to)| *to = from.to_f32());
    }

    /// The nearest values of a run of the same length.
    fn narrow(from: &[f32], to: &mut [Self]) {
        from.iter().zip(to).for_each(|(from, to)| *to = Self::from_f32(*from));
    }
}

impl Element for f32 {
    const NUMBER: Number = Number::F32;

    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    const NUMBER: Number = Number::F16;

    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Element for bf16 {
    const NUMBER: Number = Number::Bf16;

    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}
