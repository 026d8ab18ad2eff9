//! `fss/gemm-overlap`: a product of matrices and a batch of comparisons, side by side on two streams.
//!
//! A batch of comparisons that is small enough leaves multiprocessors free, and the product has them.

use std::sync::Arc;

use gatework_gpu::{Device, Kind, Stream};
use gatework_lab::{Case, KernelSpec, Work};

use super::compare::Compare;
use super::primitive::{Primitive, Repeated, Run};
use super::ring_gemm::RingGemm;
use crate::backend::Backend;
use crate::cuda::{AesForm, CudaBackend, Schedule, specs};
use crate::{Error, Result};

#[derive(Clone, Copy)]
pub(super) struct Overlap;

/// A product of these sides in a ring of `bits`, and so many comparisons of numbers of `compared` bits.
fn case(bits: usize, [rows, inner, columns]: [usize; 3], elements: usize, compared: usize) -> Case {
    let case = Case::new(format!("{rows}x{inner}x{columns}x{bits}-{elements}x{compared}")).with("bits", bits);
    let case = case.with("rows", rows).with("inner", inner).with("columns", columns);
    case.with("elements", elements).with("shifts", 1).with("compared", compared)
}

/// The comparisons of a case, as [`Compare`] takes them.
fn of_comparisons(case: &Case) -> Case {
    case.clone().with("bits", case.dimension("compared"))
}

/// What both streams together are held against.
#[derive(Clone, Copy)]
enum Against {
    OneAfterTheOther,
    TheProduct,
    TheComparisons,
}

impl Against {
    const ALL: [Self; 3] = [Self::OneAfterTheOther, Self::TheProduct, Self::TheComparisons];

    fn of(case: &Case) -> Self {
        let at = case.dimensions.get("against").copied().unwrap_or_default();
        Self::ALL.get(at as usize).copied().unwrap_or(Self::OneAfterTheOther)
    }
}

const PRODUCT: RingGemm = RingGemm::IN_LIMBS;

fn comparisons() -> Compare {
    Compare::default()
}

/// Both, each on a stream of its own: the second begins when the first may, and whoever goes on waits for
/// both.
struct SideBySide {
    streams: [Stream; 2],
    product: Box<dyn Run>,
    comparisons: Box<dyn Run>,
}

impl Run for SideBySide {
    fn run(&mut self) -> Result<()> {
        let [first, second] = &self.streams;
        second.wait(&first.record()?)?;
        self.comparisons.run()?;
        self.product.run()?;
        first.wait(&second.record()?)?;
        Ok(())
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        let mut words = self.product.words()?;
        words.extend(self.comparisons.words()?);
        Ok(words)
    }

    fn spoil(&mut self) {
        self.product.spoil();
        self.comparisons.spoil();
    }
}

impl Primitive for Overlap {
    fn name(&self) -> &'static str {
        "fss/gemm-overlap"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        specs::products_in_limbs().into_iter().chain(specs::compare(AesForm::OF_A_CARD)).collect()
    }

    fn summary(&self) -> &'static str {
        "a product of matrices and a batch of comparisons, side by side on two streams"
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let mut cases = vec![case(50, [5, 150, 9], 35, 41)];
        if kind == Kind::Cuda {
            cases.push(case(50, [130, 777, 300], 10_007, 41));
        }
        cases
    }

    /// The product of the feed-forward network of bert-base at 128 tokens, and comparisons that take about as
    /// long, against both in turn and against each alone, so that a record has the time of each.
    fn bench_cases(&self) -> Vec<Case> {
        let (product, elements) = ([128, 768, 3072], 12_288);
        let names = ["in turn", "product", "comparisons"];
        let against = |(at, name): (usize, &str)| {
            let case = case(50, product, elements, 41).with("against", at);
            Case { name: format!("{}, against {name}", case.name), ..case }
        };
        names.into_iter().enumerate().map(against).collect()
    }

    fn on_backend(&self, backend: &Arc<dyn Backend>, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let mut words = PRODUCT.on_backend(backend, case, seed)?;
        words.extend(comparisons().on_backend(backend, &of_comparisons(case), seed)?);
        Ok(words)
    }

    fn plain(&self, case: &Case, seed: u64) -> Result<Vec<u64>> {
        let mut words = PRODUCT.plain(case, seed)?;
        words.extend(comparisons().plain(&of_comparisons(case), seed)?);
        Ok(words)
    }

    fn mistaken(&self, case: &Case, seed: u64, right: &[u64]) -> (&'static str, Vec<u64>) {
        let product = case.dimension("rows") * case.dimension("columns");
        let (mistake, mut words) = PRODUCT.mistaken(case, seed, &right[..product]);
        words.extend_from_slice(&right[product..]);
        (mistake, words)
    }

    fn work(&self, case: &Case) -> Work {
        let (product, walks) = (PRODUCT.work(case), comparisons().work(&of_comparisons(case)));
        Work { operations: product.operations + walks.operations, bytes: product.bytes + walks.bytes }
    }

    fn candidate(&self, _: Arc<dyn Backend>, _: &Case) -> Result<Box<dyn Run>> {
        Err(Error::Unsupported { gate: "an overlap", what: "it has two streams".into() })
    }

    fn candidate_on(&self, stream: &Stream, case: &Case) -> Result<Box<dyn Run>> {
        let other = stream.device().stream()?;
        let on = |stream: &Stream| -> Result<Arc<dyn Backend>> {
            Ok(Arc::new(CudaBackend::on(stream.clone(), self.schedule(stream.device()))?))
        };
        Ok(Box::new(SideBySide {
            product: PRODUCT.candidate(on(stream)?, case)?,
            comparisons: comparisons().candidate(on(&other)?, &of_comparisons(case))?,
            streams: [stream.clone(), other],
        }))
    }

    fn baseline(&self, stream: &Stream, case: &Case) -> Result<Repeated> {
        let backend: Arc<dyn Backend> =
            Arc::new(CudaBackend::on(stream.clone(), self.schedule(stream.device()))?);
        let mut product = PRODUCT.candidate(backend.clone(), case)?;
        let mut walks = comparisons().candidate(backend, &of_comparisons(case))?;
        Ok(match Against::of(case) {
            Against::OneAfterTheOther => Box::new(move || {
                product.run()?;
                walks.run()
            }),
            Against::TheProduct => Box::new(move || product.run()),
            Against::TheComparisons => Box::new(move || walks.run()),
        })
    }

    fn promise(&self, case: &Case) -> (&'static str, f64, &'static str) {
        match Against::of(case) {
            Against::OneAfterTheOther => {
                ("one after the other", 0.75, "half of the shorter of two equals is hidden")
            }
            Against::TheProduct => ("the product alone", 1.5, "half of the comparisons is hidden"),
            Against::TheComparisons => ("the comparisons alone", 1.5, "half of the product is hidden"),
        }
    }

    fn schedule(&self, device: &Device) -> Schedule {
        PRODUCT.schedule(device)
    }
}
