//! The number formats that matrix instructions take, and values of theirs that multiply and add up without
//! rounding.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::Inputs;

/// A format of matrix elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberFormat {
    F16,
    Bf16,
    E4m3,
    E5m2,
    S8,
}

impl NumberFormat {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [Self::F16, Self::Bf16, Self::E4m3, Self::E5m2, Self::S8];

    /// Its tag in the portable header.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::E4m3 => "E4M3",
            Self::E5m2 => "E5M2",
            Self::S8 => "S8",
        }
    }

    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::S8 => 1,
        }
    }

    /// `count` values that the format holds, so small that no sum of a few hundred products rounds.
    ///
    /// Tensor cores add 8-bit floats with little more than 13 bits: multiples of a half up to 4 have products
    /// that are multiples of a quarter up to 16, and 64 of those fit.
    pub(super) fn draw(self, inputs: &mut Inputs, count: usize) -> Vec<f32> {
        let (range, unit) = match self {
            Self::F16 | Self::Bf16 => (-16..17, 0.5),
            Self::E4m3 | Self::E5m2 => (-8..9, 0.5),
            Self::S8 => (-128..128, 1.0),
        };
        inputs.integers(count, range).into_iter().map(|value| unit * value as f32).collect()
    }

    /// The bits of values that the format holds, in memory order.
    pub(super) fn encode(self, values: &[f32]) -> Vec<u8> {
        let code = |&value: &f32| match self {
            Self::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
            Self::E4m3 => vec![F8E4M3::from_f32(value).to_bits()],
            Self::E5m2 => vec![F8E5M2::from_f32(value).to_bits()],
            Self::S8 => vec![value as i8 as u8],
        };
        values.iter().flat_map(code).collect()
    }
}
