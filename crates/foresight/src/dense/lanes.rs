//! Sixteen numbers at a time, in whatever registers the machine has.

/// Numbers in a vector. It is the same everywhere, so that sums over lanes are, too.
pub(super) const LANES: usize = 16;

/// Vector instructions that this code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// A vector in one register.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// A vector in two registers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of plain loops.
    Portable,
}

impl Instructions {
    /// The widest that this machine has. The standard library caches what the processor says.
    #[inline]
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// All that this machine has.
    #[cfg(test)]
    pub(super) fn all_here() -> Vec<Self> {
        let mut found = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                found.push(Self::Avx512);
            }
        }
        found
    }
}

/// A vector of [`LANES`] numbers.
pub(super) trait Vector: Copy {
    fn splat(x: f32) -> Self;
    /// The first [`LANES`] of a run.
    fn load(from: &[f32]) -> Self;
    fn store(self, to: &mut [f32]);
    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// A run that is shorter than a vector, with zeros after it.
    #[inline(always)]
    fn load_part(from: &[f32]) -> Self {
        let mut whole = [0.0; LANES];
        whole[..from.len()].copy_from_slice(from);
        Self::load(&whole)
    }

    /// All lanes together: halves onto each other until one is left.
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Plain numbers. A fused multiply-add is a call of a library where the machine has no instruction for it:
/// slow there, and the same bits.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; LANES]);

impl Vector for Portable {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let from = &from[..LANES];
        Self(std::array::from_fn(|i| from[i]))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..LANES].copy_from_slice(&self.0);
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(factor.0[i], addend.0[i])))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "one reason for all, below")]
mod x86 {
    //! SAFETY, of every block here: values of these types are made only in functions compiled for their
    //! instructions, which run only where [`super::Instructions::detect`] found them; runs are sliced to
    //! their length first.

    use std::arch::x86_64::*;

    use super::{LANES, Vector};

    #[derive(Clone, Copy)]
    pub(in crate::dense) struct Avx512(__m512);

    #[derive(Clone, Copy)]
    pub(in crate::dense) struct Avx2(__m256, __m256);

    impl Vector for Avx512 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(x) })
        }

        #[inline(always)]
        fn load(from: &[f32]) -> Self {
            let from = &from[..LANES];
            Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            let to = &mut to[..LANES];
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, addend: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
        }
    }

    impl Vector for Avx2 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            let x = unsafe { _mm256_set1_ps(x) };
            Self(x, x)
        }

        #[inline(always)]
        fn load(from: &[f32]) -> Self {
            let from = &from[..LANES];
            unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from[8..].as_ptr())) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            let to = &mut to[..LANES];
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), self.0);
                _mm256_storeu_ps(to[8..].as_mut_ptr(), self.1);
            }
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, addend: Self) -> Self {
            unsafe {
                Self(_mm256_fmadd_ps(self.0, factor.0, addend.0), _mm256_fmadd_ps(self.1, factor.1, addend.1))
            }
        }
    }
}
