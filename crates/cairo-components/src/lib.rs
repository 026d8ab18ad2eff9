//! The components of `cairo-air`, the AIR of Cairo programs, on the backend of `gatework-stark`.
//!
//! Here is their list, in one place, for the prover of `integrations/cairo` and for the tests of this crate,
//! which evaluate the constraints of every one of them on the emulated device.

use std::sync::Arc;

use cairo_air::components;
use cairo_air::components::memory_id_to_big::BigEval;
use cairo_air::relations::CommonLookupElements;
use serde::de::DeserializeOwned;
use stwo_constraint_framework::{EvalAtRow, FrameworkEval};

/// Invokes a macro with the names of the components before `memory_id_to_big` and of those after it, each in
/// brackets, in the order in which a proof commits to them. (`memory_id_to_big` is several components, and
/// not one or none as the others are.)
#[macro_export]
macro_rules! with_components {
    ($macro:ident) => {
        $macro!(
            [
                add_opcode,
                add_opcode_small,
                add_ap_opcode,
                assert_eq_opcode,
                assert_eq_opcode_imm,
                assert_eq_opcode_double_deref,
                blake_compress_opcode,
                call_opcode_abs,
                call_opcode_rel_imm,
                generic_opcode,
                jnz_opcode_non_taken,
                jnz_opcode_taken,
                jump_opcode_abs,
                jump_opcode_double_deref,
                jump_opcode_rel,
                jump_opcode_rel_imm,
                mul_opcode,
                mul_opcode_small,
                qm_31_add_mul_opcode,
                ret_opcode,
                verify_instruction,
                blake_round,
                blake_g,
                blake_round_sigma,
                triple_xor_32,
                verify_bitwise_xor_12,
                add_mod_builtin,
                bitwise_builtin,
                mul_mod_builtin,
                pedersen_builtin,
                pedersen_builtin_narrow_windows,
                poseidon_builtin,
                range_check96_builtin,
                range_check_builtin,
                ec_op_builtin,
                partial_ec_mul_generic,
                pedersen_aggregator_window_bits_18,
                partial_ec_mul_window_bits_18,
                pedersen_points_table_window_bits_18,
                pedersen_aggregator_window_bits_9,
                partial_ec_mul_window_bits_9,
                pedersen_points_table_window_bits_9,
                poseidon_aggregator,
                poseidon_3_partial_rounds_chain,
                poseidon_full_round_chain,
                cube_252,
                poseidon_round_keys,
                range_check_252_width_27,
                memory_address_to_id
            ],
            [
                memory_id_to_small,
                range_check_6,
                range_check_8,
                range_check_11,
                range_check_12,
                range_check_18,
                range_check_20,
                range_check_4_3,
                range_check_4_4,
                range_check_9_9,
                range_check_7_2_5,
                range_check_3_6_6_3,
                range_check_4_4_4_4,
                range_check_3_3_3_3_3,
                verify_bitwise_xor_4,
                verify_bitwise_xor_7,
                verify_bitwise_xor_8,
                verify_bitwise_xor_9
            ]
        );
    };
}

/// A component with fewer rows than its own, where those are a constant: its constraints are the same.
pub struct Resized<E> {
    eval: Arc<E>,
    log_rows: u32,
}

impl<E> Clone for Resized<E> {
    fn clone(&self) -> Self {
        Self { eval: self.eval.clone(), log_rows: self.log_rows }
    }
}

impl<E: FrameworkEval> FrameworkEval for Resized<E> {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    fn max_constraint_log_degree_bound(&self) -> u32 {
        // As far above its rows as the component's own.
        self.log_rows + self.eval.max_constraint_log_degree_bound() - self.eval.log_size()
    }

    fn evaluate<R: EvalAtRow>(&self, eval: R) -> R {
        self.eval.evaluate(eval)
    }
}

/// What is done with every component, whatever its type.
pub trait Visit {
    /// Is told of one.
    fn component<E: FrameworkEval + Sync + Send + 'static>(&mut self, name: &'static str, eval: Resized<E>);
}

/// A claim with these rows; segments of builtins start where they like.
fn claim<C: DeserializeOwned>(log_rows: u32) -> serde_json::Result<C> {
    serde_json::from_value(serde_json::json!({
        "log_size": log_rows,
        "add_mod_builtin_segment_start": 1001,
        "bitwise_builtin_segment_start": 1002,
        "mul_mod_builtin_segment_start": 1003,
        "pedersen_builtin_segment_start": 1004,
        "poseidon_builtin_segment_start": 1005,
        "range_check96_builtin_segment_start": 1006,
        "range_check_builtin_segment_start": 1007,
        "ec_op_builtin_segment_start": 1008,
    }))
}

macro_rules! visit_all {
    ([$($before:ident),*], [$($after:ident),*]) => {
        /// Visits every component, with so many rows and these challenges.
        pub fn visit(
            log_rows: u32,
            common_lookup_elements: &CommonLookupElements,
            visitor: &mut impl Visit,
        ) -> serde_json::Result<()> {
            $({
                let common_lookup_elements = common_lookup_elements.clone();
                let eval = components::$before::Eval { claim: claim(log_rows)?, common_lookup_elements };
                visitor.component(stringify!($before), Resized { eval: Arc::new(eval), log_rows });
            })*
            let eval = BigEval::new(log_rows, 3 << log_rows, common_lookup_elements.clone());
            visitor.component("memory_id_to_big", Resized { eval: Arc::new(eval), log_rows });
            $({
                let common_lookup_elements = common_lookup_elements.clone();
                let eval = components::$after::Eval { claim: claim(log_rows)?, common_lookup_elements };
                visitor.component(stringify!($after), Resized { eval: Arc::new(eval), log_rows });
            })*
            Ok(())
        }
    };
}

with_components!(visit_all);
