//! What the tests of this crate share; each file of them uses a part of it.

#![allow(dead_code)]

pub mod airs;
pub mod quotients;

use std::sync::OnceLock;

use gatework_gpu::Device;
use gatework_stark::Context;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fields::qm31::SecureField;

/// A context on the device that `GATEWORK_DEVICE` names, or on the emulated one, shared by the tests of a
/// file.
pub fn context() -> &'static Context {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    let device = || match std::env::var("GATEWORK_DEVICE") {
        Ok(name) => Device::open(&name).unwrap(),
        Err(_) => Device::emulated(7).unwrap(),
    };
    CONTEXT.get_or_init(|| Context::new(&device()).unwrap())
}

/// Runs `body` on that device.
pub fn on_device<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    context().scope(body).unwrap()
}

/// Elements from a seed.
pub struct Random(ChaCha8Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub fn base(&mut self) -> BaseField {
        BaseField::from_u32_unchecked(self.0.random_range(0..P))
    }

    pub fn secure(&mut self) -> SecureField {
        SecureField::from_m31_array(std::array::from_fn(|_| self.base()))
    }

    /// Zeros and the largest element among others, since those are where reductions go wrong.
    pub fn bases(&mut self, len: usize) -> Vec<BaseField> {
        (0..len)
            .map(|index| match index % 7 {
                3 => BaseField::from_u32_unchecked(0),
                5 => BaseField::from_u32_unchecked(P - 1),
                _ => self.base(),
            })
            .collect()
    }

    pub fn secures(&mut self, len: usize) -> Vec<SecureField> {
        (0..len).map(|_| self.secure()).collect()
    }
}
