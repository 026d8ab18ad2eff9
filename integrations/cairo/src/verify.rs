//! `cairo-air`'s verifier, and what it leaves to whoever calls it.

use cairo_air::air::CairoProofForRustVerifier;
use cairo_air::utils::{VerificationOutput, get_verification_output};
use cairo_air::verifier::verify_cairo_ex;
use stwo::core::channel::MerkleChannel;
use stwo::prover::backend::BackendForChannel;
use stwo::prover::backend::simd::SimdBackend;
use stwo_cairo_prover::witness::preprocessed_trace::generate_preprocessed_commitment_root;

use crate::error::caught;
use crate::{Error, Result};

/// Verifies a proof and says of which program and output it is one.
///
/// A proof brings its own parameters and its own commitment to the preprocessed columns, and `cairo-air`'s
/// verifier takes both as they are. Here a proof of fewer than `security` bits is refused, and one whose
/// preprocessed columns are not those of its variant: their tree is computed anew. What makes the verifier
/// panic is not valid either.
pub fn verify<MC: MerkleChannel>(
    proof: CairoProofForRustVerifier<MC::H>,
    include_all_preprocessed_columns: bool,
    security: u32,
) -> Result<VerificationOutput>
where
    SimdBackend: BackendForChannel<MC>,
{
    let config = proof.stark_proof.config;
    let log_blowup = config.fri_config.log_blowup_factor;
    if config.fri_config.n_queries == 0 || !(1..=MOST_LOG_BLOWUP).contains(&log_blowup) {
        return Err(Error::Invalid("its parameters are none that a proof can have".into()));
    }
    let bits = config.security_bits();
    if bits < security {
        return Err(Error::Invalid(format!(
            "it has {bits} bits of security where {security} are asked for: see --security"
        )));
    }
    let expected = caught(|| {
        let variant = proof.preprocessed_trace_variant;
        generate_preprocessed_commitment_root::<MC>(log_blowup, variant, config.lifting_log_size)
    });
    let expected = expected.map_err(Error::Invalid)?;
    if proof.stark_proof.commitments.first() != Some(&expected) {
        return Err(Error::Invalid("its preprocessed columns are not those of Cairo".into()));
    }
    let output = caught(|| get_verification_output(&proof.claim.public_data.public_memory));
    let verified = caught(|| verify_cairo_ex::<MC>(proof, include_all_preprocessed_columns));
    verified.map_err(Error::Invalid)?.map_err(|reason| Error::Invalid(reason.to_string()))?;
    output.map_err(Error::Invalid)
}

/// The largest blowup that stwo-cairo names.
const MOST_LOG_BLOWUP: u32 = 16;
