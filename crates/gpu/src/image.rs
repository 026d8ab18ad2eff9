//! What can be told of an [`Image`] without a card.

use crate::cuda::cubin;
use crate::types::{Image, ImageCode, ptx};
use crate::{Error, Result};

impl Image {
    /// The bytes of each parameter of the kernel `entry`, by its `extern "C"` or mangled name, as the PTX or
    /// the cubin says.
    pub fn parameter_bytes(&self, entry: &str) -> Result<Vec<usize>> {
        let refused = |reason: String| Error::Load { kernel: self.name().to_owned(), reason };
        match self.code() {
            ImageCode::Cubin(bytes) => {
                let parameters = cubin::parameters(bytes, self.name(), entry)?;
                Ok(parameters.into_iter().map(|parameter| parameter.bytes).collect())
            }
            ImageCode::Ptx(text) => {
                let entries = ptx::entries(text).map_err(refused)?;
                let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                let found = entries.iter().find(|found| found.name == entry);
                let found = found.ok_or_else(|| {
                    refused(format!("it has no entry '{entry}', but these: {}", names.join(", ")))
                })?;
                Ok(found.parameters.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Module, ParameterType};

    const PTX: &str = include_str!("../tests/support/scale.ptx");

    #[test]
    fn an_image_is_read_without_a_card_and_refused_by_the_emulated_device() {
        let image = Module::from_ptx("scale", PTX);
        assert_eq!(image.parameter_bytes("scale").unwrap(), [8, 4, 4]);
        let error = image.parameter_bytes("missing").unwrap_err();
        assert!(error.to_string().ends_with("it has no entry 'missing', but these: scale"), "{error}");
        let device = Device::emulated(0).unwrap();
        let declared =
            [ParameterType::write::<f32>(), ParameterType::value::<f32>(), ParameterType::value::<u32>()];
        let error = device.kernel_in(&image, "scale", &declared).unwrap_err();
        assert!(matches!(error, Error::NeedsCard { .. }), "{error}");
        assert!(error.to_string().contains("runs on a card only"), "{error}");
        // What is wrong with the text, or with what was declared, is told on every machine.
        let told =
            |declared: &[ParameterType]| device.kernel_in(&image, "scale", declared).unwrap_err().to_string();
        assert!(told(&declared[..2]).contains("it takes 3 parameters and 2 are declared"));
        let wide =
            [ParameterType::write::<f32>(), ParameterType::value::<f64>(), ParameterType::value::<u32>()];
        assert!(told(&wide).contains("parameter 1 has 4 bytes and is declared with 8"));
    }

    #[test]
    fn bytes_that_are_no_cubin_are_refused() {
        let image = Module::from_cubin("broken", b"\x7fELF and nothing behind it".to_vec());
        assert!(matches!(image.parameter_bytes("k"), Err(Error::Load { .. })));
        let device = Device::emulated(0).unwrap();
        assert!(device.kernel_in(&image, "k", &[]).is_err());
    }
}
