//! Tensors of a safetensors file.

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::Result;

use super::refused;

/// The tensors of a file, looked up with and without a prefix.
pub(super) struct Tensors<'a> {
    file: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Tensors<'a> {
    pub(super) fn parse(bytes: &'a [u8], prefix: &'static str) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes);
        let file = file.map_err(|error| refused(format!("model.safetensors: {error}")))?;
        Ok(Self { file, prefix })
    }

    fn find(&self, name: &str) -> Option<TensorView<'_>> {
        // Checkpoints from before LayerNorm's parameters were renamed.
        let old = name
            .strip_suffix("LayerNorm.weight")
            .map(|stem| format!("{stem}LayerNorm.gamma"))
            .or(name.strip_suffix("LayerNorm.bias").map(|stem| format!("{stem}LayerNorm.beta")));
        let names = [Some(name.to_owned()), old].into_iter().flatten();
        names
            .flat_map(|name| [format!("{}{name}", self.prefix), name])
            .find_map(|name| self.file.tensor(&name).ok())
    }

    /// The shape of a tensor, if there is one.
    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.find(name)?.shape().to_vec())
    }

    /// The entries of a tensor of that shape.
    pub(super) fn entries(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.find(name).ok_or_else(|| refused(format!("model.safetensors has no '{name}'")))?;
        if tensor.shape() != shape {
            let found = tensor.shape();
            return Err(refused(format!("'{name}' is {found:?}, the configuration says {shape:?}")));
        }
        let bytes = tensor.data();
        let pairs = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        Ok(match tensor.dtype() {
            Dtype::F32 => bytes
                .chunks_exact(4)
                .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect(),
            Dtype::F16 => pairs().map(|pair| f16::from_le_bytes(pair).to_f32()).collect(),
            Dtype::BF16 => pairs().map(|pair| bf16::from_le_bytes(pair).to_f32()).collect(),
            other => {
                return Err(refused(format!(
                    "'{name}' has entries of type {other:?}; F32, F16 and BF16 are read"
                )));
            }
        })
    }
}
