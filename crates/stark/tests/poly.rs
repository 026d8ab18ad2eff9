//! Columns and polynomials against `CpuBackend`.

mod support;

use stwo::core::circle::CirclePoint;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::poly::circle::CanonicCoset;
use stwo::prover::backend::cpu::{CpuCircleEvaluation, CpuCirclePoly};
use stwo::prover::backend::{Col, Column, ColumnOps, CpuBackend};
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleCoefficients, CircleEvaluation, PolyOps};
use stwo::prover::poly::twiddles::{TwiddleBuffer, TwiddleTree};

use gatework_stark::{CudaBackend, upload_and_interpolate};
use support::{Random, on_device};

fn column(values: &[BaseField]) -> Col<CudaBackend, BaseField> {
    values.iter().copied().collect()
}

fn point(seed: u64) -> CirclePoint<SecureField> {
    CirclePoint::get_point(u128::from(seed) * 123_456_789_123 + 17)
}

#[test]
fn columns_keep_what_they_are_given() {
    on_device(|| {
        let values = Random::new(1).secures(10);
        let mut device: Col<CudaBackend, SecureField> = values.iter().copied().collect();
        assert_eq!(device.to_cpu(), values);
        assert_eq!(device.at(7), values[7]);
        device.set(7, values[0]);
        let copy = device.clone();
        device.set(3, values[9]);
        assert_eq!((copy.at(7), copy.at(3), device.at(3)), (values[0], values[3], values[9]));
        let (left, right) = copy.split_at_mid();
        assert_eq!((left.len(), right.len(), right.at(0)), (5, 5, values[5]));
        assert_eq!(Col::<CudaBackend, BaseField>::zeros(5).to_cpu(), vec![BaseField::from(0); 5]);
    });
}

#[test]
fn bit_reverse_matches_cpu() {
    on_device(|| {
        for log_size in 0..=9 {
            let mut values = Random::new(log_size).secures(1 << log_size);
            let mut device: Col<CudaBackend, SecureField> = values.iter().copied().collect();
            CudaBackend::bit_reverse_column(&mut device);
            CpuBackend::bit_reverse_column(&mut values);
            assert_eq!(device.to_cpu(), values, "2^{log_size}");
        }
    });
}

#[test]
fn interpolate_matches_cpu() {
    on_device(|| {
        for log_size in 1..=13 {
            let domain = CanonicCoset::new(log_size).circle_domain();
            let values = Random::new(log_size.into()).bases(1 << log_size);
            let twiddles = CudaBackend::precompute_twiddles(CanonicCoset::new(14).circle_domain().half_coset);
            let device = CircleEvaluation::<CudaBackend, _, BitReversedOrder>::new(domain, column(&values));
            let found = device.interpolate_with_twiddles(&twiddles).coeffs.to_cpu();
            let expected =
                CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values).interpolate().coeffs;
            assert!(found == expected, "2^{log_size}");
        }
    });
}

#[test]
fn interpolate_on_a_subdomain_matches_cpu() {
    on_device(|| {
        for (log_size, expansion) in [(4, 1), (7, 2), (9, 1), (3, 3)] {
            let committed = CanonicCoset::new(log_size + expansion).circle_domain();
            let domain = committed.split(expansion).0;
            let values = Random::new(5).bases(1 << log_size);
            let root = CanonicCoset::new(log_size + expansion + 2).circle_domain().half_coset;
            let all = CudaBackend::precompute_twiddles(root);
            let itwiddles = all.itwiddles.extract_subdomain_twiddles(log_size + expansion, log_size);
            let twiddles =
                TwiddleTree { root_coset: domain.half_coset, twiddles: TwiddleBuffer::empty(), itwiddles };
            let device = CircleEvaluation::<CudaBackend, _, BitReversedOrder>::new(domain, column(&values));
            let found = device.interpolate_with_twiddles(&twiddles).coeffs.to_cpu();
            let expected =
                CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values).interpolate().coeffs;
            assert!(found == expected, "2^{log_size} of 2^{}", log_size + expansion);
        }
    });
}

/// Each pass above the lowest one: of 1 layer to 10.
#[test]
fn long_transforms_match_cpu() {
    on_device(|| {
        let root = CanonicCoset::new(22).circle_domain().half_coset;
        let twiddles = CudaBackend::precompute_twiddles(root);
        for log_size in 14..=22 {
            let domain = CanonicCoset::new(log_size).circle_domain();
            let values = Random::new(log_size.into()).bases(1 << log_size);
            let device = CircleEvaluation::<CudaBackend, _, BitReversedOrder>::new(domain, column(&values));
            let coefficients = device.interpolate_with_twiddles(&twiddles);
            let expected =
                CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values.clone()).interpolate().coeffs;
            assert!(coefficients.coeffs.to_cpu() == expected, "2^{log_size}");
            let found = coefficients.evaluate_with_twiddles(domain, &twiddles).values.to_cpu();
            assert!(found == values, "2^{log_size}");
        }
    });
}

#[test]
fn evaluate_matches_cpu() {
    on_device(|| {
        let root = CanonicCoset::new(14).circle_domain().half_coset;
        let twiddles = CudaBackend::precompute_twiddles(root);
        for (log_coefficients, log_size) in [
            (0, 1),
            (1, 1),
            (1, 2),
            (2, 2),
            (0, 3),
            (1, 4),
            (2, 5),
            (3, 3),
            (3, 4),
            (5, 7),
            (8, 8),
            (9, 10),
            (12, 13),
            (13, 14),
        ] {
            let domain = CanonicCoset::new(log_size).circle_domain();
            let coefficients = Random::new(log_size.into()).bases(1 << log_coefficients);
            let device = CircleCoefficients::<CudaBackend>::new(column(&coefficients));
            let found = device.evaluate_with_twiddles(domain, &twiddles).values.to_cpu();
            let expected = CpuCirclePoly::new(coefficients).evaluate(domain).values;
            assert!(found == expected, "2^{log_coefficients} on 2^{log_size}");
        }
    });
}

#[test]
fn batches_of_mixed_sizes_match_single_columns() {
    on_device(|| {
        let twiddles = CudaBackend::precompute_twiddles(CanonicCoset::new(10).circle_domain().half_coset);
        let log_sizes = [5, 3, 7, 5, 1, 7, 2];
        let columns: Vec<Vec<BaseField>> = log_sizes
            .iter()
            .enumerate()
            .map(|(seed, log)| Random::new(seed as u64).bases(1 << log))
            .collect();
        let evaluations = columns.iter().zip(log_sizes).map(|(values, log_size)| {
            CircleEvaluation::new(CanonicCoset::new(log_size).circle_domain(), column(values))
        });
        let polynomials = CudaBackend::interpolate_columns(evaluations.collect(), &twiddles);
        let pool = BaseColumnPool::new();
        let extended = CudaBackend::evaluate_polynomials(polynomials, 2, &twiddles, true, &pool);
        for ((values, log_size), poly) in columns.into_iter().zip(log_sizes).zip(extended) {
            let domain = CanonicCoset::new(log_size).circle_domain();
            let expected = CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values).interpolate();
            let wide = CanonicCoset::new(log_size + 2).circle_domain();
            assert_eq!(poly.evals.values.to_cpu(), expected.evaluate(wide).values, "2^{log_size}");
            assert_eq!(poly.coeffs.unwrap().coeffs.to_cpu(), expected.coeffs);
        }
    });
}

#[test]
fn values_at_points_match_cpu() {
    on_device(|| {
        for log_size in [1, 2, 3, 4, 5, 9, 12] {
            let point = point(log_size.into());
            let coset = CanonicCoset::new(log_size);
            let domain = coset.circle_domain();
            let coefficients = Random::new(log_size.into()).bases(1 << log_size);
            let cpu = CpuCirclePoly::new(coefficients.clone());
            let expected = cpu.eval_at_point(point);
            let device = CircleCoefficients::<CudaBackend>::new(column(&coefficients));
            assert_eq!(device.eval_at_point(point), expected, "2^{log_size}");
            let twiddles = CudaBackend::precompute_twiddles(domain.half_coset);
            let values = device.evaluate_with_twiddles(domain, &twiddles);
            assert_eq!(values.eval_at_point_by_folding(point, &twiddles), expected, "2^{log_size}");
            let weights = CudaBackend::barycentric_weights(coset, point);
            assert_eq!(weights.to_cpu(), CpuBackend::barycentric_weights(coset, point), "2^{log_size}");
            assert_eq!(values.barycentric_eval_at_point(&weights), expected, "2^{log_size}");
        }
    });
}

#[test]
fn extend_and_split_match_cpu() {
    on_device(|| {
        let coefficients = Random::new(3).bases(16);
        let device = CircleCoefficients::<CudaBackend>::new(column(&coefficients));
        let cpu = CpuCirclePoly::new(coefficients);
        assert_eq!(device.extend(6).coeffs.to_cpu(), cpu.extend(6).coeffs);
        let (left, right) = device.split_at_mid();
        let (cpu_left, cpu_right) = cpu.split_at_mid();
        assert_eq!((left.coeffs.to_cpu(), right.coeffs.to_cpu()), (cpu_left.coeffs, cpu_right.coeffs));
    });
}

#[test]
fn columns_that_are_interpolated_while_others_arrive_are_the_same() {
    on_device(|| {
        let twiddles = CudaBackend::precompute_twiddles(CanonicCoset::new(8).circle_domain().half_coset);
        let columns: Vec<Vec<BaseField>> = [5, 5, 8, 3, 3, 3, 1]
            .iter()
            .map(|&log_size| Random::new(log_size).bases(1 << log_size))
            .collect();
        let borrowed: Vec<&[BaseField]> = columns.iter().map(Vec::as_slice).collect();
        let found = upload_and_interpolate(&borrowed, &twiddles);
        for (found, values) in found.iter().zip(&columns) {
            let domain = CanonicCoset::new(values.len().ilog2()).circle_domain();
            let cpu = CpuCircleEvaluation::<_, BitReversedOrder>::new(domain, values.clone());
            assert_eq!(found.coeffs.to_cpu(), cpu.interpolate().coeffs);
        }
        assert_eq!(found.len(), columns.len());
        assert!(upload_and_interpolate(&[], &twiddles).is_empty());
    });
}
