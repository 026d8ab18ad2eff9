//! `fss/ring-gemm` and `fss/ring-gemm-words`: products of matrices in a ring, in limbs of 8 bits and word by
//! word.

use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{Case, KernelSpec, Work};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};

use super::primitive::{BENCH_SEED, Primitive, Repeated, Run, random_words};
use crate::backend::{Backend, Handle, Layout, MatmulShape};
use crate::cuda::{CudaBackend, ProductForm, Schedule, specs};
use crate::secret::Secret;
use crate::{Error, Result, Ring};

#[derive(Clone, Copy)]
pub(super) struct RingGemm {
    name: &'static str,
    form: ProductForm,
}

impl RingGemm {
    pub(super) const IN_LIMBS: Self = Self { name: "fss/ring-gemm", form: ProductForm::Limbs };
    pub(super) const IN_WORDS: Self = Self { name: "fss/ring-gemm-words", form: ProductForm::Words };
}

fn case(bits: usize, [rows, inner, columns]: [usize; 3]) -> Case {
    let case = Case::new(format!("{rows}x{inner}x{columns}-{bits}")).with("bits", bits);
    case.with("rows", rows).with("inner", inner).with("columns", columns)
}

fn shape(case: &Case) -> MatmulShape {
    let [rows, inner, columns] = ["rows", "inner", "columns"].map(|name| case.dimension(name));
    MatmulShape { batch: 1, rows, inner, columns }
}

fn ring(case: &Case) -> Result<Ring> {
    Ring::new(case.dimension("bits") as u32)
}

/// Both factors: of the left one more than the residues.
fn factors(case: &Case, seed: u64) -> [Vec<u64>; 2] {
    let MatmulShape { rows, inner, columns, .. } = shape(case);
    [
        random_words(rows * inner, 64, seed),
        random_words(inner * columns, case.dimension("bits") as u32, seed + 1),
    ]
}

struct Products {
    backend: Arc<dyn Backend>,
    case: Case,
    factors: [Handle; 2],
    made: Option<Handle>,
}

impl Run for Products {
    fn run(&mut self) -> Result<()> {
        let [left, right] = &self.factors;
        self.made = None;
        let (shape, ring) = (shape(&self.case), ring(&self.case)?);
        self.made = Some(self.backend.products(shape, Layout::Plain, ring, &[[left, right]], None)?);
        Ok(())
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        Ok(self.backend.download(self.made.as_ref().ok_or(Error::Absent)?)?.to_vec())
    }

    fn spoil(&mut self) {
        self.made = None;
    }
}

fn products(backend: Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Products> {
    let [left, right] = factors(case, seed).map(|words| backend.upload(Secret::new(words)));
    Ok(Products { factors: [left?, right?], backend, case: case.clone(), made: None })
}

impl Primitive for RingGemm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        match self.form {
            ProductForm::Words => specs::products_in_words(),
            ProductForm::Limbs | ProductForm::LimbsFrom(_) => specs::products_in_limbs(),
        }
    }

    fn summary(&self) -> &'static str {
        match self.form {
            ProductForm::Words => "products of matrices in a ring, word by word",
            ProductForm::Limbs | ProductForm::LimbsFrom(_) => {
                "products of matrices in a ring, exact, in limbs of 8 bits on integer tensor cores"
            }
        }
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases =
            vec![case(50, [5, 150, 9]), case(8, [65, 3, 1]), case(64, [2, 33, 66]), case(50, [66, 70, 259])];
        if kind == Kind::Cuda {
            cases.extend([
                case(50, [130, 777, 300]),
                case(50, [520, 130, 2100]),
                case(56, [64, 9000, 64]),
                case(37, [1, 128, 1000]),
            ]);
        }
        cases
    }

    /// The products of the feed-forward network of bert-base at 128 and at 512 tokens, and a large one.
    fn bench_cases(&self) -> Vec<Case> {
        vec![case(50, [128, 768, 3072]), case(50, [512, 768, 3072]), case(50, [4096, 4096, 4096])]
    }

    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let mut products = products(backend.clone(), case, seed)?;
        products.run()?;
        products.words()
    }

    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let (MatmulShape { rows, inner, columns, .. }, ring) = (shape(case), ring(case)?);
        let [left, right] = factors(case, seed);
        let mut sums = vec![0u64; rows * columns];
        sums.par_chunks_mut(columns).zip(left.par_chunks(inner)).for_each(|(sums, left)| {
            for (factor, right) in left.iter().zip(right.chunks(columns)) {
                let pairs = sums.iter_mut().zip(right);
                pairs.for_each(|(sum, word)| *sum = sum.wrapping_add(factor.wrapping_mul(*word)));
            }
            sums.iter_mut().for_each(|sum| *sum = ring.reduce(*sum));
        });
        Ok(sums)
    }

    fn mistaken(&self, case: &Case, seed: u64, right: &[u64]) -> (&'static str, Vec<u64>) {
        // What the topmost product of digits would add.
        let top = 8 * (case.dimension("bits") as u32 - 1).div_euclid(8);
        let lost =
            |(index, word): (usize, &u64)| word ^ (random_words(1, 8, seed + index as u64)[0] | 1) << top;
        ("the topmost limb is lost", right.iter().enumerate().map(lost).collect())
    }

    /// Factors read and sums stored once; a product of words is 28 products of digits, or a multiplication
    /// and an addition.
    fn work(&self, case: &Case) -> Work {
        let MatmulShape { rows, inner, columns, .. } = shape(case);
        let words = rows * inner + inner * columns + rows * columns;
        Work { operations: 2 * (rows * inner * columns) as u64, bytes: 8 * words as u64 }
    }

    fn candidate(&self, backend: Arc<dyn Backend>, case: &Case) -> Result<Box<dyn Run>> {
        Ok(Box::new(products(backend, case, BENCH_SEED)?))
    }

    fn baseline(&self, stream: &Stream, case: &Case) -> Result<Repeated> {
        if self.form == ProductForm::Words {
            let (stream, words) = (stream.clone(), self.work(case).bytes as usize / 16);
            let (from, mut to) = (stream.alloc_zeros::<u64>(words)?, stream.alloc::<u64>(words)?);
            return Ok(Box::new(move || Ok(stream.copy(&from, &mut to)?)));
        }
        let schedule = Schedule { products: ProductForm::Words, ..Schedule::of(stream.device()) };
        let backend = Arc::new(CudaBackend::on(stream.clone(), schedule)?);
        let mut products = products(backend, case, BENCH_SEED)?;
        Ok(Box::new(move || products.run()))
    }

    fn promise(&self, _: &Case) -> (&'static str, f64, &'static str) {
        match self.form {
            ProductForm::Words => ("device-to-device copy", 400.0, "2 T products a second at 4096³"),
            ProductForm::Limbs | ProductForm::LimbsFrom(_) => {
                ("fss/ring-gemm-words", 1.0 / 3.0, "28 products of digits at 256 times their rate")
            }
        }
    }

    fn schedule(&self, device: &Device) -> Schedule {
        Schedule { products: self.form, ..Schedule::of(device) }
    }
}
