//! Two parties compute GELU of numbers that one of them keeps secret.
//!
//! ```sh
//! cargo run -p gatework-fss --example 05_private_gelu
//! ```
//!
//! Party 1 has the numbers, party 0 is to learn GELU of them. A dealer, who is neither, made keys for both
//! beforehand. Both then see x + r alone, under masks r that only the dealer knows, and each evaluates its
//! half of the function. Here all three run in one process; in earnest the dealer's keys come from a third
//! machine.

use gatework_fss::executor::{run_clear, run_in_process};
use gatework_fss::gates::Activation;
use gatework_fss::{Evaluator, FixedPoint, Party, Result, reference};

/// Words of 50 bits, 12 of them behind the point: the last bit is 1 / 4096.
const BITS: u32 = 50;
const FRACTION: u32 = 12;
/// How far GELU by intervals of polynomials may be from the real function, in units of the last bit.
const ALLOWED: f64 = 16.5;
const SECRET: [f64; 6] = [-3.0, -1.0, -0.25, 0.5, 1.0, 4.0];

/// GELU of the secret numbers, as party 0 learns it.
fn show() -> Result<Vec<f64>> {
    let format = FixedPoint::new(BITS, FRACTION)?;
    let unit = f64::from(1u32 << FRACTION);
    let gelu = Activation::gelu(format.fraction)?;
    let limit = 8i64 << FRACTION;

    // The circuit is written once. The dealer, both parties and the clear evaluation run it, each in its own
    // role.
    let circuit = async |evaluator: &Evaluator| {
        let x = evaluator.input(Party::One, format.ring, SECRET.len(), -limit..=limit).await?;
        let y = evaluator.open(gelu.apply(evaluator, &x).await?).await?;
        evaluator.reveal(&y, Party::Zero)
    };
    let words: Vec<u64> = SECRET.iter().map(|x| format.ring.encode(((x * unit) as i64).into())).collect();

    // Party 0 puts in nothing, party 1 its numbers.
    let [zero, one] = run_in_process(format, circuit, [vec![None], vec![Some(words.clone())]])?;
    assert_eq!(one.output, None, "the result is for party 0 alone");
    println!("keys, traffic and rounds of a party: {:?}", zero.cost);

    // What two parties compute is the specification in clear, bit for bit, and costs what it says.
    let clear = run_clear(&circuit, vec![Some(words)])?;
    assert_eq!((&zero.output, &zero.cost), (&clear.output, &clear.cost));

    let found: Vec<f64> = zero
        .output
        .expect("party 0 has the result")
        .iter()
        .map(|&word| format.ring.signed(word) as f64 / unit)
        .collect();
    for (x, y) in SECRET.iter().zip(&found) {
        let exact = reference::gelu(*x);
        println!("GELU({x:5.2}) = {y:8.5}, and in double precision {exact:8.5}");
        assert!((y - exact).abs() * unit <= ALLOWED);
    }
    Ok(found)
}

fn main() -> Result<()> {
    show().map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_shows_what_it_says() {
        let found = super::show().unwrap();
        assert!((found[4] - 0.8413).abs() < 0.005, "GELU(1) is {}", found[4]);
    }
}
