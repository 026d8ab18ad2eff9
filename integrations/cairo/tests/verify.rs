//! Verification of proofs that stwo's prover makes on the CPU.

use std::path::Path;
use std::sync::Arc;

use cairo_air::CairoProof;
use gatework_cairo::{input, verify};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::circle::CanonicCoset;
use stwo::core::utils::MaybeOwned;
use stwo::core::vcs_lifted::blake2_merkle::{Blake2sMerkleChannel, Blake2sMerkleHasher};
use stwo::prover::CommitmentTreeProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo::prover::mempool::BaseColumnPool;
use stwo::prover::poly::circle::PolyOps as _;
use stwo_cairo_common::preprocessed_columns::preprocessed_trace::PreProcessedTraceVariant;
use stwo_cairo_prover::prover::{ChannelHash, ProverParameters, prove_cairo_with_precompute};
use stwo_cairo_prover::witness::preprocessed_trace::gen_trace;

/// Rows of the longest preprocessed column of the small variant, extended.
const LOG_DOMAIN: u32 = 21;

fn proof() -> CairoProof<Blake2sMerkleHasher> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/loop.json");
    let run = input::from_program(&program).unwrap();
    assert!(input::steps(&run) > 100);
    let preprocessed_trace = PreProcessedTraceVariant::CanonicalSmall;
    let fri_config = FriConfig::new(0, 1, 20, 1);
    let pcs_config = PcsConfig { pow_bits: 10, fri_config, lifting_log_size: None };
    let twiddles = SimdBackend::precompute_twiddles(CanonicCoset::new(LOG_DOMAIN).circle_domain().half_coset);
    let columns = Arc::new(preprocessed_trace.to_preprocessed_trace());
    let pool = BaseColumnPool::new();
    let tree = CommitmentTreeProver::<SimdBackend, Blake2sMerkleChannel>::new(
        SimdBackend::interpolate_columns(gen_trace(columns.clone()), &twiddles),
        1,
        &twiddles,
        false,
        None,
        &pool,
    );
    let parameters = ProverParameters {
        channel_hash: ChannelHash::Blake2s,
        channel_salt: 0,
        pcs_config,
        preprocessed_trace,
        store_polynomials_coefficients: false,
        include_all_preprocessed_columns: false,
    };
    prove_cairo_with_precompute(&pool, &twiddles, columns, MaybeOwned::Owned(tree), run, parameters).unwrap()
}

#[test]
fn a_proof_is_of_its_program_and_of_no_other_columns_or_parameters() {
    let proof = proof();
    let check = |proof: CairoProof<Blake2sMerkleHasher>, security| {
        verify::<Blake2sMerkleChannel>(proof.into(), false, security).map_err(|error| error.to_string())
    };
    // 1 + 4 + 9 + … + 100².
    let verified = check(proof.clone(), 30).unwrap();
    assert_eq!(verified.output, [338_350u32.into()]);
    assert!(check(proof.clone(), 96).unwrap_err().contains("30 bits"));

    let mut without_queries = proof.clone();
    without_queries.extended_stark_proof.proof.0.config.fri_config.n_queries = 0;
    assert!(check(without_queries, 0).unwrap_err().contains("parameters"));

    let mut other_columns = proof.clone();
    other_columns.preprocessed_trace_variant = PreProcessedTraceVariant::CanonicalWithoutPedersen;
    assert!(check(other_columns, 30).unwrap_err().contains("preprocessed columns"));

    let mut other_work = proof;
    other_work.interaction_pow += 1;
    check(other_work, 30).unwrap_err();
}
