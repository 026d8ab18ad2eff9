//! What stwo's verifier takes for granted of a proof, and a proof from outside need not have.

use stwo::core::fields::m31::{BaseField, P};
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::PcsConfig;
use stwo::core::poly::line::LinePoly;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;

use super::{Proved, VerifyError};

/// Refuses a proof that is read as another one, or that the verifier would take forever for.
///
/// * Elements of M31 are below 2³¹ - 1: arithmetic on others is none, and the same element could be written
///   in several ways.
/// * The configuration is the statement's. stwo verifies with that and does not look at the one in the proof.
/// * The last FRI layer has as many coefficients as it says. Evaluating it takes time and memory by what it
///   says.
pub(super) fn check<H: MerkleHasherLifted>(proved: &Proved<H>, config: PcsConfig) -> Result<(), VerifyError> {
    let refused = |what| Err(VerifyError::Malformed { what });
    let proof = &proved.proof.0;
    if proof.config != config {
        return refused("its configuration is another one than the statement's");
    }
    if !counts_rightly(&proof.fri_proof.last_layer_poly) {
        return refused("its last layer has another number of coefficients than it says");
    }
    let fri = &proof.fri_proof;
    let layers = std::iter::once(&fri.first_layer).chain(&fri.inner_layers);
    let mut secure = proved
        .claimed_sums
        .iter()
        .chain(proof.sampled_values.iter().flatten().flatten())
        .chain(layers.flat_map(|layer| &layer.fri_witness))
        .chain(fri.last_layer_poly.iter());
    let mut base = proof.queried_values.iter().flatten().flatten();
    if !(secure.all(is_secure_element) && base.all(is_element)) {
        return refused("it has a number that is no element of the field M31");
    }
    Ok(())
}

fn counts_rightly(poly: &LinePoly) -> bool {
    let coefficients: &[SecureField] = poly;
    coefficients.len().is_power_of_two() && LinePoly::new(coefficients.to_vec()) == *poly
}

fn is_element(value: &BaseField) -> bool {
    value.0 < P
}

fn is_secure_element(value: &SecureField) -> bool {
    value.to_m31_array().iter().all(is_element)
}
