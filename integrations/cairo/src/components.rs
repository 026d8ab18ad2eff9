//! The list of `cairo-air`'s components, in the order in which they are committed to.

use cairo_air::cairo_components::CairoComponents;
use cairo_air::claims::{CairoClaim, CairoInteractionClaim};
use cairo_air::components;
use gatework_cairo_components::with_components;
use gatework_stark::CudaBackend;
use stwo::core::fields::qm31::SecureField;
use stwo::prover::ComponentProver;
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval};

/// What is done with every component, whatever its type.
pub(crate) trait Visit {
    fn component<E: FrameworkEval + Sync>(&mut self, component: &FrameworkComponent<E>);
}

macro_rules! components {
    ([$($before:ident),*], [$($after:ident),*]) => {
        /// The components as provers of a device, in their order.
        pub fn provers(components: &CairoComponents) -> Vec<&dyn ComponentProver<CudaBackend>> {
            let mut provers = Vec::<&dyn ComponentProver<CudaBackend>>::new();
            $(if let Some(component) = &components.$before { provers.push(component); })*
            for component in &components.memory_id_to_big { provers.push(component); }
            $(if let Some(component) = &components.$after { provers.push(component); })*
            provers
        }

        /// Visits the components in their order.
        pub(crate) fn visit(components: &CairoComponents, visitor: &mut impl Visit) {
            $(if let Some(component) = &components.$before { visitor.component(component); })*
            for component in &components.memory_id_to_big { visitor.component(component); }
            $(if let Some(component) = &components.$after { visitor.component(component); })*
        }

        /// The interaction claim of a claim's components, whose sums `next` gives in their order.
        pub fn claimed_sums(claim: &CairoClaim, mut next: impl FnMut() -> SecureField) -> CairoInteractionClaim {
            $(let $before = claim.$before.as_ref().map(|_| components::$before::InteractionClaim { claimed_sum: next() });)*
            let memory_id_to_big = claim.memory_id_to_big.as_ref().map(|claim| {
                let big_claimed_sums: Vec<SecureField> = claim.big_log_sizes.iter().map(|_| next()).collect();
                let claimed_sum = big_claimed_sums.iter().sum();
                components::memory_id_to_big::InteractionClaim { big_claimed_sums, claimed_sum }
            });
            $(let $after = claim.$after.as_ref().map(|_| components::$after::InteractionClaim { claimed_sum: next() });)*
            CairoInteractionClaim { $($before,)* memory_id_to_big, $($after,)* }
        }
    };
}

with_components!(components);
