//! Prove a statement of your own: an AIR in stwo's constraint framework, proved on any target, verified by
//! stwo.
//!
//! ```sh
//! cargo run -p gatework-stark --example 07_prove_your_own_air             # the CPU, by stwo's SimdBackend
//! cargo run -p gatework-stark --example 07_prove_your_own_air -- cuda     # an NVIDIA GPU; emulated works too
//! ```
//!
//! The statement: "in every row, y = x^3 + x + 5". The trace has the columns x, x^2, x^3 and y, and a
//! constraint of degree two for each step. An AIR says nothing of a device: it is evaluated on symbols, and
//! what comes out is run by kernels, or by SimdBackend.

use gatework_gpu::Target;
use gatework_stark::airs::{Air, HostColumn, SimdColumn, verify};
use gatework_stark::{Error, Prover};
use stwo::core::channel::Channel;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;
use stwo::core::pcs::PcsConfig;
use stwo_constraint_framework::{EvalAtRow, FrameworkEval};

/// `y = x^3 + x + 5` in each of 2^log_rows rows, with a trace that is right, or wrong in one place.
#[derive(Debug, Clone, Copy)]
struct Cubic {
    log_rows: u32,
    honest: bool,
}

impl FrameworkEval for Cubic {
    fn log_size(&self) -> u32 {
        self.log_rows
    }

    /// Constraints are of degree two: twice as many rows hold their quotient.
    fn max_constraint_log_degree_bound(&self) -> u32 {
        self.log_rows + 1
    }

    /// What must be zero in every row.
    fn evaluate<E: EvalAtRow>(&self, mut eval: E) -> E {
        let [x, square, cube, y] = std::array::from_fn(|_| eval.next_trace_mask());
        eval.add_constraint(square.clone() - x.clone() * x.clone());
        eval.add_constraint(cube.clone() - square * x.clone());
        eval.add_constraint(y - (cube + x + E::F::from(BaseField::from(5))));
        eval
    }
}

impl Air for Cubic {
    type Eval = Self;

    fn preprocessed(&self) -> Vec<(String, HostColumn)> {
        Vec::new()
    }

    /// What the prover alone has.
    fn traces(&self) -> Vec<Vec<HostColumn>> {
        let x: HostColumn = (0..1u32 << self.log_rows).map(BaseField::from).collect();
        let square: HostColumn = x.iter().map(|&x| x * x).collect();
        let cube: HostColumn = x.iter().zip(&square).map(|(&x, &square)| x * square).collect();
        let five = BaseField::from(5);
        let mut y: HostColumn = x.iter().zip(&cube).map(|(&x, &cube)| cube + x + five).collect();
        if !self.honest {
            y[3] += BaseField::from(1);
        }
        vec![vec![x, square, cube, y]]
    }

    /// What both sides know.
    fn public(&self) -> Vec<u32> {
        vec![self.log_rows]
    }

    fn evals(&self, _: &mut impl Channel) -> Vec<Self> {
        vec![*self]
    }

    /// There are no lookups, and so no second trace and no sums to balance.
    fn interacts(&self) -> bool {
        false
    }

    fn simd_interaction(
        &self,
        _: &Self,
        _: &[HostColumn],
        _: &[HostColumn],
    ) -> (Vec<SimdColumn>, SecureField) {
        (Vec::new(), SecureField::default())
    }

    fn sums_hold(&self, _: &[Self], sums: &[SecureField]) -> bool {
        sums.iter().all(|&sum| sum == SecureField::default())
    }
}

fn show(target: &Target) -> Result<(), Box<dyn std::error::Error>> {
    // The default is for tests; a proof that is to convince anyone needs more queries and more work.
    let config = PcsConfig::default();
    let air = Cubic { log_rows: 8, honest: true };
    let prover = Prover::builder().build(target)?;
    let proved = prover.prove(&air, config)?;
    println!("256 rows of y = x^3 + x + 5 proved on {}", target.id());
    verify(&air, config, proved.clone())?;
    println!("stwo's verifier accepts the proof");

    let larger = Cubic { log_rows: 9, ..air };
    assert!(verify(&larger, config, proved).is_err(), "it is no proof of another statement");
    let refused = prover.prove(&Cubic { honest: false, ..air }, config);
    assert!(matches!(refused, Err(Error::ConstraintsNotSatisfied)), "a false row cannot be proved");
    println!("a trace with one false row is refused, and so is the proof as one of 512 rows");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    show(&Target::open(&name)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_shows_what_it_says() {
        super::show(&super::Target::Cpu).unwrap();
    }
}
