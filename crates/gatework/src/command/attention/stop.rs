//! The engine's own stop of `gatework tour`: from slices in host memory to slices in host memory.

use gatework_attention::{Attention, Mask, Shape};
use gatework_gpu::Target;

use super::demo::{Question, SHAPE};
use super::shapes::text;
use crate::command::noun::Seen;

const SEED: u64 = 1;

/// What it computes.
pub(crate) const SUMMARY: &str = "softmax(q k^T) v of slices in host memory, against double precision";

/// What came of it on a target.
pub(crate) fn visit(target: &Target) -> Seen {
    let place = match target {
        Target::Cpu => "the CPU",
        Target::Gpu(device) => device.properties().id.as_str(),
    };
    let Shape { heads, key_heads, rows, keys, .. } = SHAPE;
    let checked = match question().ask(target) {
        Ok(found) if found.holds() => Ok(format!(
            "{rows} queries in each of {heads} heads over {keys} keys in {key_heads}, causal, on {place}: equal to double \
             precision within {:.1e} of the output's size ({:.0e} is allowed)",
            found.relative_error, found.allowed
        )),
        Ok(found) => Err(format!(
            "the relative error is {:.2e}, {:.0e} is allowed",
            found.relative_error, found.allowed
        )),
        Err(error) => Err(error.to_string()),
    };
    Seen::of_engine(format!("{}-causal on {place}", text(&SHAPE)), checked)
}

fn question() -> Question {
    let builder = Attention::builder(SHAPE).mask(Mask::Causal);
    Question { seed: SEED, builder, mask: Mask::Causal, scale: None, soft_cap: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_passes_by_far_and_the_emulated_device_passes() {
        assert!(question().ask(&Target::Cpu).unwrap().relative_error < 1e-6);
        let emulated = Target::open("emulated").unwrap();
        let seen = visit(&emulated);
        assert_eq!(seen.case, "1x4/2x100/157x64-causal on emulated");
        assert!(
            seen.outcome.is_passed() && seen.finding.unwrap().contains("equal to double precision within")
        );
        let error = question().ask(&emulated).unwrap().relative_error;
        assert!(error > 1e-3, "FP8 is not exact: {error} would mean that nothing ran there");
    }
}
