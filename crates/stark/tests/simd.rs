//! Columns of `SimdBackend` on the device and back.

mod support;

use gatework_gpu::Device;
use gatework_stark::{Context, CudaBackend, DeviceColumn, Error, ToDevice as _, ToSimd as _, upload};
use itertools::Itertools as _;
use num_traits::Zero as _;
use stwo::core::circle::{CirclePointIndex, Coset};
use stwo::core::fields::m31::{BaseField, P};
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::simd::column::BaseColumn;
use stwo::prover::backend::simd::m31::PackedBaseField;
use stwo::prover::backend::{Col, Column as _};
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps as _};

use support::{Random, context, on_device};

type Simd = CircleEvaluation<SimdBackend, BaseField, BitReversedOrder>;

fn column(seed: u64, len: usize) -> BaseColumn {
    Random::new(seed).bases(len).into_iter().collect()
}

fn evaluation(seed: u64, log_size: u32) -> Simd {
    CircleEvaluation::new(CanonicCoset::new(log_size).circle_domain(), column(seed, 1 << log_size))
}

fn are_equal(found: &[BaseColumn], expected: &[BaseColumn]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| found.as_slice() == expected.as_slice())
}

#[test]
fn columns_of_any_lengths_come_back() {
    let lens = [17, 0, 1, 2, 3, 64, 5, 8, 0, 15, 16, 1000, 1, 4096];
    for seed in 0..4 {
        let mut lens = lens.to_vec();
        lens.rotate_left(3 * seed as usize);
        let columns = lens.iter().enumerate().map(|(place, &len)| column(100 * seed + place as u64, len));
        let columns = columns.collect_vec();
        on_device(|| {
            let device = columns.to_device();
            for (found, expected) in device.iter().zip(&columns) {
                assert_eq!(found.to_cpu(), expected.as_slice());
            }
            assert!(are_equal(&device.to_simd(), &columns));
            // In an order in which they do not lie, and from allocations of their own.
            let mixed = device.iter().rev().map(Clone::clone).interleave(columns.to_device()).collect_vec();
            let expected = columns.iter().rev().cloned().interleave(columns.clone()).collect_vec();
            assert!(are_equal(&mixed.to_simd(), &expected));
            let mut reversed = device;
            reversed.reverse();
            assert!(are_equal(&reversed.to_simd(), &columns.iter().rev().cloned().collect_vec()));
        });
    }
    on_device(|| {
        assert!(<[BaseColumn]>::to_device(&[]).is_empty());
        assert!(<[Simd]>::to_device(&[]).is_empty());
        assert!(<[DeviceColumn<BaseField>]>::to_simd(&[]).is_empty());
    });
}

#[test]
fn columns_longer_than_what_is_staged_come_back() {
    // Six pieces: more than are under way at once, with borders inside of columns and between them.
    let lens = [1 << 20, 3, (1 << 22) + 5, 1, 1 << 19, 40];
    let columns =
        lens.iter().map(|&len| (0..len as u32).map(|row| BaseField::from(row * 3)).collect()).collect_vec();
    on_device(|| assert!(are_equal(&columns.to_device().to_simd(), &columns)));
}

#[test]
fn both_halves_of_a_column_come_back() {
    on_device(|| {
        for len in [6, 8, 64] {
            let whole = column(1, len);
            let (left, right) = [whole.clone()].to_device().remove(0).split_at_mid();
            let expected = [&whole.as_slice()[..len / 2], &whole.as_slice()[len / 2..]];
            let expected = expected.map(BaseColumn::from_cpu);
            assert!(are_equal(&[left, right].to_simd(), &expected), "{len}");
        }
    });
}

#[test]
fn columns_of_two_contexts_come_back_together() {
    let contexts = [1, 2].map(|seed| Context::new(&Device::emulated(seed).unwrap()).unwrap());
    let columns = [column(1, 40), column(2, 9)];
    let of = |number: usize| contexts[number].scope(|| columns.to_device()).unwrap();
    let both = of(0).into_iter().interleave(of(1)).collect_vec();
    let expected = [0, 0, 1, 1].map(|number: usize| columns[number].clone());
    assert!(are_equal(&both.to_simd(), &expected));
}

/// A negated zero is P in a lane. What is computed from it on the device must not differ from zero.
#[test]
fn lanes_that_hold_p_are_zeros() {
    let lanes = vec![-PackedBaseField::zero(), PackedBaseField::broadcast(BaseField::from(3))];
    let negated = BaseColumn::from_simd(lanes);
    assert_eq!(negated.as_slice()[0].0, P);
    let expected = [vec![BaseField::zero(); 16], vec![BaseField::from(3); 16]].concat();
    on_device(|| {
        let columns = [negated.clone(), negated.clone()];
        for found in columns.to_device() {
            assert_eq!(found.to_cpu(), expected);
        }
        assert_eq!(upload(&[negated.as_slice()])[0].to_cpu(), expected);
        assert_eq!(DeviceColumn::upload(negated.as_slice()).to_cpu(), expected);
        let collected: Col<CudaBackend, BaseField> = negated.to_cpu().into_iter().collect();
        assert_eq!(collected.to_cpu(), expected);
        let twiddles = CudaBackend::precompute_twiddles(CanonicCoset::new(6).circle_domain().half_coset);
        let polynomial = columns.interpolate_on_device(&twiddles).remove(0);
        let cpu = CircleEvaluation::<stwo::prover::backend::CpuBackend, _, BitReversedOrder>::new(
            CanonicCoset::new(5).circle_domain(),
            expected.clone(),
        );
        assert_eq!(polynomial.coeffs.to_cpu(), cpu.interpolate().coeffs);
    });
}

#[test]
fn evaluations_keep_their_domains_and_their_order() {
    for seed in 0..3 {
        let logs = [3, 5, 1, 9, 5, 2, 3, 4, 9, 1, 7];
        let evaluations =
            logs.iter().enumerate().map(|(place, &log)| evaluation(seed * 50 + place as u64, log));
        let evaluations = evaluations.collect_vec();
        on_device(|| {
            let back = evaluations.to_device().to_simd();
            let root = CanonicCoset::new(10).circle_domain().half_coset;
            let twiddles = CudaBackend::precompute_twiddles(root);
            let polynomials = evaluations.interpolate_on_device(&twiddles);
            assert_eq!((back.len(), polynomials.len()), (logs.len(), logs.len()));
            let simd_twiddles = SimdBackend::precompute_twiddles(root);
            for ((before, after), polynomial) in evaluations.iter().zip(&back).zip(&polynomials) {
                assert_eq!(before.domain, after.domain);
                assert_eq!(before.values.as_slice(), after.values.as_slice());
                let expected = before.clone().interpolate_with_twiddles(&simd_twiddles).coeffs;
                assert_eq!(polynomial.coeffs.to_cpu(), expected.to_cpu());
            }
            let columns = evaluations.iter().map(|evaluation| evaluation.values.clone()).collect_vec();
            for (found, expected) in columns.interpolate_on_device(&twiddles).iter().zip(&polynomials) {
                assert_eq!(found.coeffs.to_cpu(), expected.coeffs.to_cpu());
            }
            assert!(<[Simd]>::interpolate_on_device(&[], &twiddles).is_empty());
        });
    }
}

#[test]
fn what_is_on_no_domain_is_refused() {
    let mut short = evaluation(1, 5);
    short.values = column(1, 16);
    let evaluations = [evaluation(2, 4), short];
    let error = context().scope(|| evaluations.to_device().len()).unwrap_err();
    assert!(error.to_string().contains("16 values on a domain of 32 points"), "{error}");
    let twiddles =
        on_device(|| CudaBackend::precompute_twiddles(CanonicCoset::new(6).circle_domain().half_coset));
    let error = context().scope(|| evaluations.interpolate_on_device(&twiddles).len()).unwrap_err();
    assert!(error.to_string().contains("16 values on a domain of 32 points"), "{error}");
    let error = context().scope(|| [column(1, 12)].interpolate_on_device(&twiddles).len()).unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported { what } if what.contains("a column of 12 values")),
        "{error}"
    );

    // A domain whose twiddles are not those.
    let shifted = CircleDomain::new(Coset::new(CirclePointIndex::generator() * 12_345, 4));
    let shifted = [Simd::new(shifted, column(3, 32))];
    let interpolate = || context().scope(|| shifted.interpolate_on_device(&twiddles).len());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(interpolate)).unwrap_err();
    let sentence = panic.downcast_ref::<String>().unwrap();
    assert!(sentence.contains("those of another domain"), "{sentence}");
    // It goes there and back all the same.
    let back = on_device(|| shifted.to_device().to_simd());
    assert_eq!(
        (back[0].domain, back[0].values.as_slice()),
        (shifted[0].domain, shifted[0].values.as_slice())
    );
}
