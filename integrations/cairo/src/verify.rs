//! `cairo-air`'s verifier.

use cairo_air::air::CairoProofForRustVerifier;
use cairo_air::verifier::verify_cairo_ex;
use stwo::core::channel::MerkleChannel;

use crate::error::caught;
use crate::{Error, Result};

/// Verifies a proof. What makes the verifier panic is not valid either.
pub fn verify<MC: MerkleChannel>(
    proof: CairoProofForRustVerifier<MC::H>,
    include_all_preprocessed_columns: bool,
) -> Result<()> {
    let verified = caught(|| verify_cairo_ex::<MC>(proof, include_all_preprocessed_columns));
    verified.map_err(Error::Invalid)?.map_err(|reason| Error::Invalid(reason.to_string()))
}
