//! Interleaved sampling: baseline and candidate in pairs, in random order, until the rule says stop.

use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::stats::{Expectation, Samples, Stop, StopRule};

/// Pairs between two looks at the rule, and between two turns of the peers.
pub(super) const BLOCK: usize = 20;
/// Pairs and time of the warm-up, at least: clocks take tenths of a second to rise.
const WARM_UP_PAIRS: usize = 10;
const WARM_UP_TIME: Duration = Duration::from_millis(300);
/// The warm-up's end, whatever the pairs.
const WARM_UP_LIMIT: Duration = Duration::from_secs(5);

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Baseline,
    Candidate,
}

/// What is sampled: a device, or a test's script.
pub(super) trait Subject {
    type Error;
    /// Nanoseconds of one run.
    fn sample(&mut self, which: Which) -> Result<f64, Self::Error>;
    /// The warm-up is over: what is counted, is counted from here.
    fn warmed_up(&mut self);
    /// A block of pairs is complete: the turn of whoever else is measured.
    fn between_blocks(&mut self, pairs: usize) -> Result<(), Self::Error>;
}

/// Both sides' samples; the n-th of both are a pair.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) baseline: Samples,
    pub(super) candidate: Samples,
    pub(super) stopped: Stop,
}

/// Samples until the rule says stop.
pub(super) fn sample<S: Subject>(
    subject: &mut S,
    rule: &StopRule,
    expectation: Option<&Expectation>,
    seed: u64,
) -> Result<Pairs, S::Error> {
    warm_up(subject)?;
    subject.warmed_up();
    let mut order = ChaCha8Rng::seed_from_u64(seed);
    let (mut baseline, mut candidate) = (Samples::default(), Samples::default());
    let started = Instant::now();
    loop {
        for _ in 0..BLOCK {
            if order.random::<bool>() {
                baseline.push(subject.sample(Which::Baseline)?);
                candidate.push(subject.sample(Which::Candidate)?);
            } else {
                candidate.push(subject.sample(Which::Candidate)?);
                baseline.push(subject.sample(Which::Baseline)?);
            }
        }
        subject.between_blocks(baseline.len())?;
        if let Some(stopped) = rule.stop(&baseline, &candidate, expectation, started.elapsed()) {
            return Ok(Pairs { baseline, candidate, stopped });
        }
    }
}

fn warm_up<S: Subject>(subject: &mut S) -> Result<(), S::Error> {
    let started = Instant::now();
    let mut pairs = 0;
    while (pairs < WARM_UP_PAIRS || started.elapsed() < WARM_UP_TIME) && started.elapsed() < WARM_UP_LIMIT {
        subject.sample(Which::Baseline)?;
        subject.sample(Which::Candidate)?;
        pairs += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Takes no time and notes who was asked.
    struct Script {
        asked: Vec<Which>,
        blocks: Vec<usize>,
        warm: bool,
    }

    impl Subject for Script {
        type Error = Infallible;

        fn sample(&mut self, which: Which) -> Result<f64, Infallible> {
            if self.warm {
                self.asked.push(which);
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(if which == Which::Baseline { 100.0 } else { 120.0 })
        }

        fn warmed_up(&mut self) {
            self.warm = true;
        }

        fn between_blocks(&mut self, pairs: usize) -> Result<(), Infallible> {
            self.blocks.push(pairs);
            Ok(())
        }
    }

    #[test]
    fn pairs_are_interleaved_in_random_order() {
        let mut script = Script { asked: Vec::new(), blocks: Vec::new(), warm: false };
        let rule = StopRule::new(400, Duration::from_secs(60));
        let Ok(pairs) = sample(&mut script, &rule, None, 7);
        assert_eq!((pairs.baseline.len(), pairs.candidate.len()), (100, 100));
        assert_eq!((pairs.stopped, script.blocks), (Stop::Decided, vec![20, 40, 60, 80, 100]));
        let baseline_first = script.asked.chunks(2).filter(|pair| pair[0] == Which::Baseline).count();
        assert!(script.asked.chunks(2).all(|pair| pair[0] != pair[1]));
        assert!((30..70).contains(&baseline_first), "{baseline_first}");
    }
}
