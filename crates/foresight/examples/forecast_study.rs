//! How good forecasts from the first fifth of a run are, on runs that were not learnt from:
//! `cargo run --release -p gatework-foresight --example forecast_study`.
//!
//! Learnt from: perceptrons on digits at several widths, rates and schedules. Forecast: other seeds of the same, other widths,
//! other rates, another schedule, another data set. The score is the CRPS of the logarithm of the final training loss.

use std::sync::atomic::AtomicBool;

use gatework_foresight::config::{Config, Prepared};
use gatework_foresight::forecast::{Calibration, Curve, DirectHead, Method, crps_normal, predict};
use gatework_foresight::random::Random;
use gatework_foresight::run::Run;
use gatework_foresight::{Error, Result};

const PART: f64 = 0.2;

/// A run of a preset with these settings.
fn train(preset: &str, settings: &[String]) -> Result<Curve> {
    let mut config = Config::preset(preset)?.with_text("study", "[engine]\nenabled = false")?;
    for setting in settings {
        config = config.with_setting(setting)?;
    }
    let prepared = Prepared::of(&config, |error: &Error| eprintln!("{error}"))?;
    let mut run = Run::start(&config, &prepared, None)?;
    run.finish(&(), &AtomicBool::new(false), &mut ())?;
    run.curve()
}

/// Runs with settings drawn from these lists.
fn draw(
    count: u64,
    from: u64,
    preset: &str,
    widths: &[u32],
    rates: &[f64],
    decays: &[&str],
) -> Result<Vec<Curve>> {
    (from..from + count)
        .map(|seed| {
            let mut random = Random::new(seed, "study");
            let width = widths[random.below(widths.len())];
            let rate = rates[random.below(rates.len())] * (0.3 * random.normal()).exp();
            let decay = decays[random.below(decays.len())];
            let steps = 200 + random.below(400);
            let settings = [
                format!("seed={seed}"),
                format!("steps={steps}"),
                format!("model.hidden=[{width}]"),
                format!("optimiser.learning_rate={rate}"),
                format!("optimiser.decay={decay}"),
            ];
            train(preset, &settings)
        })
        .collect()
}

fn main() -> Result<()> {
    let (widths, rates, decays) = ([32, 64], [2e-3, 4e-3, 8e-3], ["linear", "constant"]);
    let learnt = draw(160, 0, "digits", &widths, &rates, &decays)?;
    let head = DirectHead::learn(&learnt, 1)?;
    let calibration = Calibration::by_runs(&learnt, PART);
    let shifts = [
        ("other seeds", draw(60, 10_000, "digits", &widths, &rates, &decays)?),
        ("other widths", draw(60, 20_000, "digits", &[16, 128], &rates, &decays)?),
        ("other rates", draw(60, 30_000, "digits", &widths, &[5e-4, 2e-2], &decays)?),
        ("another schedule", draw(60, 40_000, "digits", &widths, &rates, &["wsd"])?),
        ("another data set", draw(60, 50_000, "xor", &widths, &rates, &decays)?),
    ];
    println!(
        "shift, runs, CRPS of the head, of each formula, head over the best formula, head's coverage, formulas' coverage"
    );
    for (name, runs) in &shifts {
        let mut crps = [0.0; 5];
        let mut covered = [0; 5];
        for whole in runs {
            let seen = whole.until(PART * whole.last_step())?;
            let ahead: Vec<(f64, f64)> =
                whole.steps().iter().copied().zip(whole.rates().unwrap_or(&[]).iter().copied()).collect();
            let end = whole.end(0.05);
            let foreseen = head.foresee(&seen, whole.last_step(), &ahead)?;
            crps[0] += crps_normal(foreseen.expected.ln(), foreseen.deviation, end.ln());
            covered[0] += u32::from((foreseen.band[0]..=foreseen.band[1]).contains(&end));
            for (place, method) in Method::ALL.into_iter().enumerate() {
                let expected = predict(method, &seen, whole.last_step(), &ahead);
                let Some([low, high]) = calibration.band(method, expected).band else { continue };
                crps[place + 1] += crps_normal(expected.ln(), (high / low).ln() / 3.29, end.ln());
                covered[place + 1] += u32::from((low..=high).contains(&end));
            }
        }
        let count = runs.len() as f64;
        let best = crps[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let mean: Vec<String> = crps[1..].iter().map(|sum| format!("{:.3}", sum / count)).collect();
        let held: Vec<String> =
            covered[1..].iter().map(|held| format!("{:.2}", f64::from(*held) / count)).collect();
        println!(
            "{name}, {count}, {:.3}, {}, {:.2}, {:.2}, {}",
            crps[0] / count,
            mean.join(" / "),
            crps[0] / best,
            f64::from(covered[0]) / count,
            held.join(" / ")
        );
    }
    Ok(())
}
