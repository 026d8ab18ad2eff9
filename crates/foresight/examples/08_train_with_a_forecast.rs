//! Train a network on handwritten digits, and know after 40 % of the run where its loss will end.
//!
//! ```sh
//! cargo run --release -p gatework-foresight --example 08_train_with_a_forecast
//! ```
//!
//! The band must hold the loss at the end. It is wide here, since it is calibrated by the curve itself: one
//! that is calibrated by runs that went to their end (the last argument of `forecast`) is narrower. With a
//! forecast a run that will not win is stopped early; `gatework train sweep` does that for many
//! configurations.

use std::sync::atomic::AtomicBool;

use gatework_foresight::Result;
use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::forecast::{Method, forecast};
use gatework_foresight::run::Run;

const STEPS: u64 = 300;
/// The step at which the forecast is made.
const SEEN: u64 = 120;

/// The forecast band of the loss at the end, and the loss at the end.
fn show() -> Result<([f64; 2], f64)> {
    // A preset, with what is to be different. A wrong key would be named, with the nearest right one.
    let config = Config::preset("digits")?
        .with_text("this example", &format!("steps = {STEPS}\n[engine]\nenabled = false"))?;
    let prepared = Prepared::of(&config, |unusable| eprintln!("{unusable}"))?;
    let interrupted = AtomicBool::new(false);
    let mut run = Run::start(&config, &prepared, None)?;
    run.train_to(SEEN, &(), &interrupted, &mut ())?;
    let seen = run.curve()?;
    println!("{SEEN} of {STEPS} steps: the loss is {:.4}", seen.end(0.05));

    // The rates to come are part of the forecast: a loss falls faster while the learning rate decays.
    let schedule = config.schedule();
    let ahead: Vec<(f64, f64)> = (0..STEPS).map(|step| (step as f64, schedule.rate(step))).collect();
    let found = forecast(&seen, (STEPS - 1) as f64, &ahead, &[])?;
    for forecast in &found {
        let band = forecast.band.map_or_else(String::new, |[low, high]| format!(", {low:.4} to {high:.4}"));
        println!("  {:?}: {:.4}{band}", forecast.method, forecast.expected);
    }
    let law = found.iter().find(|found| found.method == Method::MultiPowerLaw);
    let band = law.and_then(|law| law.band).expect("120 losses are enough to calibrate a band by");

    let summary = run.finish(&(), &interrupted, &mut ())?;
    let end = run.curve()?.end(0.05);
    let last = summary.last().expect("a run ends with an evaluation");
    println!(
        "at the end it is {end:.4}, and {:.1} % of unseen digits are right",
        100.0 * last.averaged.accuracy
    );
    assert!(last.averaged.accuracy > 0.9);
    Ok((band, end))
}

fn main() -> Result<()> {
    let ([low, high], end) = show()?;
    assert!((low..=high).contains(&end), "the forecast did not hold");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_shows_what_it_says() {
        let ([low, high], end) = super::show().unwrap();
        assert!((low..=high).contains(&end), "{low} to {high}, and it was {end}");
    }
}
