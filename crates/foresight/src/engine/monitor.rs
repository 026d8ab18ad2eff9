//! Signs that a run goes wrong.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An alarm of the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// The loss or the gradient is no number.
    NotANumber,
    /// The loss is ten times its average.
    TenFold {
        /// The loss over its average.
        ratio: f64,
    },
    /// The loss is far above its average, for its usual noise.
    Spike {
        /// How far, in deviations of ln loss.
        deviations: f64,
    },
    /// The gradient is a thousand times its average.
    Explosion {
        /// The gradient's length over its average.
        ratio: f64,
    },
    /// The gradient has been next to nothing each of the last hundred times that it was measured.
    Vanishing,
    /// The loss has not fallen for as long as was waited.
    Plateau {
        /// Steps since it last fell.
        steps: u64,
    },
    /// The loss left the band that was forecast for it.
    OffForecast {
        /// How far, in deviations of the forecast.
        deviations: f64,
    },
}

impl Alarm {
    /// Whether the run is rolled back. The others are said, and nothing is done.
    pub fn is_emergency(&self) -> bool {
        match self {
            Self::NotANumber | Self::TenFold { .. } | Self::Spike { .. } | Self::Explosion { .. } => true,
            Self::Vanishing | Self::Plateau { .. } | Self::OffForecast { .. } => false,
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber => write!(f, "the loss or its gradient is no number"),
            Self::TenFold { ratio } => write!(f, "the loss is {ratio:.0} times its average"),
            Self::Spike { deviations } => write!(f, "the loss spiked by {deviations:.1} deviations"),
            Self::Explosion { ratio } => write!(f, "the gradient is {ratio:.0} times its average"),
            Self::Vanishing => write!(f, "the gradient has vanished"),
            Self::Plateau { steps } => write!(f, "the loss has not fallen for {steps} steps"),
            Self::OffForecast { deviations } => {
                write!(f, "the loss left its forecast by {deviations:.1} deviations")
            }
        }
    }
}

/// Averages of ln loss and ln gradient, and how long since what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    seen: u64,
    /// The average of ln loss once the run had settled.
    start: f64,
    level: f64,
    variance: f64,
    gradient: f64,
    lowest: f64,
    since_lowest: u64,
    vanishing: u64,
    /// Steps without a fall that are a plateau.
    patience: u64,
}

/// Steps before deviations mean anything.
const SETTLED: u64 = 20;
const UNUSUAL: f64 = 5.0;
const SPIKE: f64 = 8.0;
/// A spike is at least three times the average, however quiet the run was.
const LEAST_SPIKE: f64 = 1.098_612_288_668_109_8;
const EXPLOSION: f64 = 1000.0;
const VANISHED: f64 = 1e-9;

impl Monitor {
    /// A plateau is so many steps without a fall.
    pub fn new(patience: u64) -> Self {
        Self {
            seen: 0,
            start: f64::INFINITY,
            level: 0.0,
            variance: 0.0,
            gradient: 0.0,
            lowest: f64::INFINITY,
            since_lowest: 0,
            vanishing: 0,
            patience,
        }
    }

    /// Looks at a step's loss and the length of its gradient. What alarms is not averaged in.
    pub fn look(&mut self, loss: f64, gradient: Option<f64>) -> Option<Alarm> {
        if !loss.is_finite() || gradient.is_some_and(|gradient| !gradient.is_finite()) {
            return Some(Alarm::NotANumber);
        }
        let level = loss.max(1e-30).ln();
        let length = gradient.map(|gradient| gradient.max(1e-30).ln());
        if self.seen >= SETTLED {
            let above = level - self.level;
            let deviations = above / self.variance.sqrt().max(1e-3);
            // Losses next to zero jump by factors and mean nothing by it: a factor counts if the run is
            // usually quieter than that, or worse off than it began.
            let unusual = deviations > UNUSUAL || level > self.start;
            if above > 10f64.ln() && unusual && loss > 0.1 {
                return Some(Alarm::TenFold { ratio: above.exp() });
            }
            if deviations > SPIKE && above > LEAST_SPIKE && loss > 0.5 {
                return Some(Alarm::Spike { deviations });
            }
            if let Some(ratio) =
                length.map(|length| (length - self.gradient).exp()).filter(|r| *r > EXPLOSION)
            {
                return Some(Alarm::Explosion { ratio });
            }
        }
        self.seen += 1;
        let weight = 1.0 / self.seen.min(32) as f64;
        let rest = level - self.level;
        self.level += weight * rest;
        self.variance += weight * (rest * (level - self.level) - self.variance);
        if self.seen == SETTLED {
            self.start = self.level;
        }
        if let Some(length) = length {
            self.gradient += weight * (length - self.gradient);
            self.vanishing = if length.exp() < VANISHED { self.vanishing + 1 } else { 0 };
        }
        if self.level < self.lowest - 1e-3 {
            (self.lowest, self.since_lowest) = (self.level, 0);
        } else {
            self.since_lowest += 1;
        }
        if self.vanishing == 100 {
            return Some(Alarm::Vanishing);
        }
        if self.patience > 0 && self.since_lowest == self.patience {
            return Some(Alarm::Plateau { steps: self.since_lowest });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled() -> Monitor {
        let mut monitor = Monitor::new(500);
        for i in 0..60 {
            let loss = 2.0 * (1.0 + 0.05 * f64::from(i % 5)) * (-0.01 * f64::from(i)).exp();
            assert_eq!(monitor.look(loss, Some(1.0)), None);
        }
        monitor
    }

    #[test]
    fn each_alarm_has_its_sign() {
        assert_eq!(settled().look(f64::NAN, Some(1.0)), Some(Alarm::NotANumber));
        assert_eq!(settled().look(1.0, Some(f64::INFINITY)), Some(Alarm::NotANumber));
        assert!(matches!(settled().look(30.0, Some(1.0)), Some(Alarm::TenFold { .. })));
        assert!(matches!(settled().look(8.0, Some(1.0)), Some(Alarm::Spike { .. })));
        assert!(matches!(settled().look(1.2, Some(1e5)), Some(Alarm::Explosion { .. })));
        assert_eq!(settled().look(1.5, Some(3.0)), None);
        let mut monitor = settled();
        let alarms: Vec<_> = (0..700).filter_map(|_| monitor.look(1.4, Some(1.0))).collect();
        assert_eq!(alarms, [Alarm::Plateau { steps: 500 }]);
        let mut monitor = settled();
        let alarms: Vec<_> = (0..150).filter_map(|_| monitor.look(1.1, Some(1e-12))).collect();
        assert_eq!(alarms, [Alarm::Vanishing]);
    }

    #[test]
    fn a_noisy_run_may_jump_and_may_not_go_back_to_where_it_began() {
        let mut monitor = Monitor::new(0);
        for i in 0..200 {
            // From 0.7 down to 0.01, and every fifth batch holds an outlier.
            let fallen = 0.7f64 * (-0.1 * f64::from(i)).exp().max(0.015);
            let loss = if i % 5 == 4 && i > 40 { 0.15 } else { fallen };
            assert_eq!(monitor.look(loss, None), None, "{i}");
        }
        assert!(matches!(monitor.look(1.4, None), Some(Alarm::TenFold { .. })));
    }

    #[test]
    fn a_small_loss_may_jump() {
        let mut monitor = Monitor::new(0);
        for i in 0..100 {
            let loss = if i % 10 == 9 { 0.03 } else { 0.001 };
            assert_eq!(monitor.look(loss, None), None);
        }
    }
}
