//! Code for a card that was compiled elsewhere.

use std::sync::Arc;

/// PTX or a cubin of somebody else's compiler: an existing code base moves to this runtime kernel by kernel.
///
/// Made by [`Module::from_ptx`](crate::Module::from_ptx) and
/// [`Module::from_cubin`](crate::Module::from_cubin), loaded by
/// [`Device::kernel_in`](crate::Device::kernel_in). It runs on a card only.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    code: ImageCode,
}

/// What an image is.
#[derive(Debug, Clone)]
pub(crate) enum ImageCode {
    Ptx(Arc<str>),
    Cubin(Arc<[u8]>),
}

impl Image {
    pub(crate) fn new(name: String, code: ImageCode) -> Self {
        Self { name, code }
    }

    /// Its name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn code(&self) -> &ImageCode {
        &self.code
    }

    /// BLAKE3 of what it was given.
    pub(crate) fn key(&self) -> String {
        let bytes = match &self.code {
            ImageCode::Ptx(text) => text.as_bytes(),
            ImageCode::Cubin(bytes) => bytes,
        };
        blake3::hash(bytes).to_hex().to_string()
    }
}
