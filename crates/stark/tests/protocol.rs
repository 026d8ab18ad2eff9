//! Merkle trees, folds, quotients, sums, lookups and grinding against `CpuBackend` and `SimdBackend`.

mod support;

use itertools::Itertools as _;
use stwo::core::channel::{Blake2sChannel, Blake2sM31Channel, Channel};
use stwo::core::circle::{CirclePoint, Coset};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::TreeVec;
use stwo::core::pcs::quotients::PointSample;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::poly::line::LineDomain;
use stwo::core::proof_of_work::GrindOps;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sM31MerkleHasher, Blake2sMerkleHasher};
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::prover::AccumulationOps;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::backend::{Col, Column, CpuBackend};
use stwo::prover::fri::FriOps;
use stwo::prover::line::LineEvaluation;
use stwo::prover::lookups::gkr_prover::{GkrOps, Layer, prove_batch};
use stwo::prover::lookups::mle::{Mle, MleOps};
use stwo::prover::pcs::quotient_ops::compute_fri_quotients;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps, SecureEvaluation};
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::vcs_lifted::ops::{MerkleOpsLifted, PackLeavesOps};
use stwo::prover::vcs_lifted::prover::MerkleProverLifted;

use gatework_stark::CudaBackend;
use support::{Random, on_device};

fn column(values: &[BaseField]) -> Col<CudaBackend, BaseField> {
    values.iter().copied().collect()
}

fn secure(values: &[SecureField]) -> SecureColumnByCoords<CudaBackend> {
    let cpu: SecureColumnByCoords<CpuBackend> = values.iter().copied().collect();
    SecureColumnByCoords { columns: cpu.columns.map(|column| column.into_iter().collect()) }
}

fn trees_match<H: MerkleHasherLifted>(log_sizes: &[u32], lifting_log_size: u32)
where
    CudaBackend: MerkleOpsLifted<H>,
    Col<CudaBackend, H::Hash>: Column<H::Hash>,
{
    let columns = log_sizes
        .iter()
        .enumerate()
        .map(|(seed, log_size)| Random::new(seed as u64).bases(1 << log_size))
        .collect_vec();
    let device = columns.iter().map(|values| column(values)).collect_vec();
    let found = MerkleProverLifted::<CudaBackend, H>::commit(device.iter().collect(), lifting_log_size, 0);
    let expected = MerkleProverLifted::<CpuBackend, H>::commit(columns.iter().collect(), lifting_log_size, 0);
    assert_eq!(found.layers.len(), expected.layers.len());
    for (found, expected) in found.layers.iter().zip(&expected.layers) {
        assert!(found.to_cpu() == *expected, "{log_sizes:?} lifted to 2^{lifting_log_size}");
    }
}

#[test]
fn merkle_trees_match_cpu() {
    on_device(|| {
        let sixteen = [4; 16];
        let many = (0..40).map(|column| 1 + column / 7).collect_vec();
        let cases: [(&[u32], u32); 8] = [
            (&[3], 3),
            (&[1, 1, 1], 1),
            (&[5, 3, 4, 4], 5),
            (&sixteen, 4),
            (&[4; 17], 6),
            (&many, 7),
            (&[10; 5], 10),
            (&[2; 33], 2),
        ];
        for (log_sizes, lifting_log_size) in cases {
            trees_match::<Blake2sMerkleHasher>(log_sizes, lifting_log_size);
            trees_match::<Blake2sM31MerkleHasher>(log_sizes, lifting_log_size);
        }
    });
}

#[test]
fn a_tree_without_columns_matches_cpu() {
    on_device(|| {
        let found = MerkleProverLifted::<CudaBackend, Blake2sMerkleHasher>::commit(vec![], 0, 0);
        let expected = MerkleProverLifted::<CpuBackend, Blake2sMerkleHasher>::commit(vec![], 0, 0);
        assert_eq!(found.root(), expected.root());
    });
}

#[test]
fn a_layer_that_was_changed_is_hashed_anew() {
    type Ops = Blake2sMerkleHasher;
    on_device(|| {
        let values = column(&Random::new(3).bases(8));
        let mut leaves = <CudaBackend as MerkleOpsLifted<Ops>>::build_leaves(&[&values], 3);
        let other = leaves.at(5);
        leaves.set(0, other);
        let found = <CudaBackend as MerkleOpsLifted<Ops>>::build_next_layer(&leaves).to_cpu();
        let expected = <CpuBackend as MerkleOpsLifted<Ops>>::build_next_layer(&leaves.to_cpu());
        assert_eq!(found, expected);
    });
}

#[test]
fn packed_leaves_match_cpu() {
    on_device(|| {
        let columns: [Vec<BaseField>; 4] = std::array::from_fn(|seed| Random::new(seed as u64).bases(32));
        let device = columns.each_ref().map(|values| column(values));
        let found = CudaBackend::pack_leaves_input(&device.each_ref()).map(|column| column.to_cpu());
        assert_eq!(found, CpuBackend::pack_leaves_input(&columns.each_ref()));
    });
}

#[test]
fn folds_match_cpu() {
    on_device(|| {
        for log_size in [1, 2, 3, 4, 8] {
            let mut random = Random::new(log_size.into());
            let (values, alpha) = (random.secures(1 << log_size), random.secure());
            let domain = CanonicCoset::new(log_size).circle_domain();
            let root = CanonicCoset::new(10).circle_domain().half_coset;
            let (twiddles, cpu_twiddles) =
                (CudaBackend::precompute_twiddles(root), CpuBackend::precompute_twiddles(root));
            let device = SecureEvaluation::<CudaBackend, BitReversedOrder>::new(domain, secure(&values));
            let cpu = SecureEvaluation::<CpuBackend, BitReversedOrder>::new(
                domain,
                values.iter().copied().collect(),
            );
            let found = CudaBackend::fold_circle_into_line(&device, alpha, &twiddles);
            let expected = CpuBackend::fold_circle_into_line(&cpu, alpha, &cpu_twiddles);
            assert_eq!(found.values.to_cpu().to_vec(), expected.values.to_vec(), "circle 2^{log_size}");

            let line = LineDomain::new(Coset::half_odds(log_size));
            let device = LineEvaluation::<CudaBackend>::new(line, secure(&values));
            let cpu = LineEvaluation::<CpuBackend>::new(line, values.iter().copied().collect());
            for step in 1..=log_size.min(3) {
                let found = CudaBackend::fold_line(&device, alpha, &twiddles, step);
                let expected = CpuBackend::fold_line(&cpu, alpha, &cpu_twiddles, step);
                assert_eq!(
                    found.values.to_cpu().to_vec(),
                    expected.values.to_vec(),
                    "2^{log_size} by {step}"
                );
                assert_eq!(found.domain().coset(), expected.domain().coset());
            }
        }
    });
}

#[test]
fn decompose_matches_cpu() {
    on_device(|| {
        for log_size in [2, 5, 10] {
            let values = Random::new(2).secures(1 << log_size);
            let domain = CanonicCoset::new(log_size).circle_domain();
            let device = SecureEvaluation::<CudaBackend, BitReversedOrder>::new(domain, secure(&values));
            let cpu =
                SecureEvaluation::<CpuBackend, BitReversedOrder>::new(domain, values.into_iter().collect());
            let (found, lambda) = CudaBackend::decompose(&device);
            let (expected, cpu_lambda) = CpuBackend::decompose(&cpu);
            assert_eq!(lambda, cpu_lambda);
            assert_eq!(found.values.to_cpu().to_vec(), expected.values.to_vec());
        }
    });
}

/// Two trees of columns of several sizes, with one, two or no samples.
fn quotients_match(log_sizes: &[u32], log_blowup: u32) {
    let mut random = Random::new(11);
    let lifting = log_sizes.iter().max().unwrap() + log_blowup;
    let root = CanonicCoset::new(lifting + 1).circle_domain().half_coset;
    let twiddles = CudaBackend::precompute_twiddles(root);
    let cpu_twiddles = CpuBackend::precompute_twiddles(root);
    let columns = log_sizes.iter().map(|log_size| random.bases(1 << (log_size + log_blowup))).collect_vec();
    let points = [3u128, 5, 7].map(CirclePoint::<SecureField>::get_point);
    let last_sample = PointSample { point: points[2], value: random.secure() };
    let last = random.bases(1 << lifting);
    let samples = (0..columns.len())
        .map(|index| {
            points[..index % 3]
                .iter()
                .map(|&point| PointSample { point, value: random.secure() })
                .collect_vec()
        })
        .chain([vec![last_sample]])
        .collect_vec();
    let all = columns.into_iter().chain([last]).collect_vec();
    let domain = |values: &[BaseField]| CanonicCoset::new(values.len().ilog2()).circle_domain();
    let device = all.iter().map(|values| CircleEvaluation::new(domain(values), column(values))).collect_vec();
    let cpu = all.iter().map(|values| CircleEvaluation::new(domain(values), values.clone())).collect_vec();
    let samples = TreeVec(vec![samples]);
    let alpha = random.secure();
    let found = compute_fri_quotients::<CudaBackend>(
        &TreeVec(vec![device.iter().collect()]),
        &samples,
        alpha,
        lifting,
        &twiddles,
        log_blowup,
    );
    let expected = compute_fri_quotients::<CpuBackend>(
        &TreeVec(vec![cpu.iter().collect()]),
        &samples,
        alpha,
        lifting,
        &cpu_twiddles,
        log_blowup,
    );
    assert!(found.values.to_cpu().to_vec() == expected.values.to_vec(), "{log_sizes:?}, blowup {log_blowup}");
}

#[test]
fn quotients_match_cpu() {
    on_device(|| {
        quotients_match(&[5, 5, 5, 5], 1);
        quotients_match(&[4, 7, 6, 4, 7, 3, 3], 2);
        quotients_match(&[1, 1, 1], 1);
        quotients_match(&[3; 40], 3);
    });
}

#[test]
fn sums_of_columns_match_cpu() {
    on_device(|| {
        let mut random = Random::new(8);
        let lens = [2, 8, 16, 512];
        let columns = lens.map(|len| random.secures(len));
        let found = CudaBackend::lift_and_accumulate(columns.iter().map(|values| secure(values)).collect());
        let cpu = columns.iter().map(|values| values.iter().copied().collect()).collect();
        let expected = CpuBackend::lift_and_accumulate(cpu).unwrap();
        assert_eq!(found.unwrap().to_cpu().to_vec(), expected.to_vec());
        assert!(CudaBackend::lift_and_accumulate(vec![]).is_none());

        let mut sum = secure(&columns[2]);
        CudaBackend::accumulate(&mut sum, &secure(&columns[2]));
        let twice = columns[2].iter().map(|&value| value + value).collect_vec();
        assert_eq!(sum.to_cpu().to_vec(), twice);
        let felt = random.secure();
        assert_eq!(CudaBackend::generate_secure_powers(felt, 9), CpuBackend::generate_secure_powers(felt, 9));
    });
}

#[test]
fn multilinear_extensions_match_cpu() {
    on_device(|| {
        let mut random = Random::new(4);
        for log_size in [1, 3, 9] {
            let (base, ext, x) =
                (random.bases(1 << log_size), random.secures(1 << log_size), random.secure());
            let found = CudaBackend::fix_first_variable(Mle::new(column(&base)), x).to_cpu();
            assert_eq!(found, CpuBackend::fix_first_variable(Mle::new(base), x).to_cpu());
            let device: Col<CudaBackend, SecureField> = ext.iter().copied().collect();
            let found = CudaBackend::fix_first_variable(Mle::new(device), x).to_cpu();
            assert_eq!(found, CpuBackend::fix_first_variable(Mle::new(ext), x).to_cpu());
        }
        for variables in [0, 1, 2, 7] {
            let (y, v) = (random.secures(variables), random.secure());
            let found = CudaBackend::gen_eq_evals(&y, v).to_cpu();
            assert_eq!(found, CpuBackend::gen_eq_evals(&y, v).to_cpu(), "{variables} variables");
        }
    });
}

/// Layers of every kind, from the same values.
fn layers<B: GkrOps>(log_size: u32) -> Vec<Layer<B>> {
    let mut random = Random::new(21);
    let mle = |values: Vec<SecureField>| Mle::<B, SecureField>::new(values.into_iter().collect());
    let (a, b, c, d, e) = (
        random.secures(1 << log_size),
        random.secures(1 << log_size),
        random.secures(1 << log_size),
        random.secures(1 << log_size),
        random.secures(1 << log_size),
    );
    let multiplicities = random.bases(1 << log_size);
    vec![
        Layer::GrandProduct(mle(a)),
        Layer::LogUpGeneric { numerators: mle(b), denominators: mle(c) },
        Layer::LogUpMultiplicities {
            numerators: Mle::new(multiplicities.into_iter().collect()),
            denominators: mle(d),
        },
        Layer::LogUpSingles { denominators: mle(e) },
    ]
}

#[test]
fn gkr_proofs_match_cpu() {
    on_device(|| {
        // stwo has no masks for multiplicities in one variable.
        for log_size in [2, 5] {
            // The channel has taken in the whole proof: equal digests are equal proofs.
            let (mut channel, mut cpu_channel) = (Blake2sChannel::default(), Blake2sChannel::default());
            let (found, _) = prove_batch(&mut channel, layers::<CudaBackend>(log_size));
            let (expected, _) = prove_batch(&mut cpu_channel, layers::<CpuBackend>(log_size));
            assert_eq!(found.output_claims_by_instance, expected.output_claims_by_instance);
            assert_eq!(channel.digest(), cpu_channel.digest());
        }
    });
}

#[test]
fn nonces_are_those_of_simd() {
    on_device(|| {
        let mut channel = Blake2sChannel::default();
        let mut m31_channel = Blake2sM31Channel::default();
        for (turn, bits) in [0, 3, 9, 11].into_iter().enumerate() {
            channel.mix_u64(turn as u64);
            m31_channel.mix_u64(turn as u64);
            let nonce = CudaBackend::grind(&channel, bits);
            assert_eq!(nonce, SimdBackend::grind(&channel, bits));
            assert!(channel.verify_pow_nonce(bits, nonce));
            assert_eq!(CudaBackend::grind(&m31_channel, bits), SimdBackend::grind(&m31_channel, bits));
        }
    });
}
