//! A predicted time.

use crate::error::{Error, Result};

use super::Figures;

/// The connection of the parties, and how fast a party derives blocks. All three numbers are assumptions, not
/// measured here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    bandwidth: f64,
    latency: f64,
    prg_rate: f64,
}

impl Link {
    /// Bits a second in each direction; seconds until a message arrives; generator calls a second of one
    /// party.
    pub fn new(bandwidth: f64, latency: f64, prg_rate: f64) -> Result<Self> {
        let refused = |what: String| Error::Unsupported { gate: "time prediction", what };
        if !(bandwidth.is_finite() && bandwidth > 0.0) {
            return Err(refused(format!("a bandwidth of {bandwidth} bits a second")));
        }
        if !(latency.is_finite() && latency >= 0.0) {
            return Err(refused(format!("a latency of {latency} seconds")));
        }
        if !(prg_rate.is_finite() && prg_rate > 0.0) {
            return Err(refused(format!("{prg_rate} generator calls a second")));
        }
        Ok(Self { bandwidth, latency, prg_rate })
    }

    /// The time of a cost, stage by stage.
    ///
    /// Both directions carry at once, and each round waits for one message to arrive. Matrix products,
    /// packing, and the copying of keys are not in it: it is what the cryptography and the link take.
    pub fn predict(&self, figures: &Figures) -> Prediction {
        Prediction {
            transfer: figures.traffic_bytes as f64 * 8.0 / 2.0 / self.bandwidth,
            waiting: figures.rounds as f64 * self.latency,
            generator: figures.prg_blocks as f64 / self.prg_rate,
        }
    }
}

/// Seconds of each stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Bytes on the link.
    pub transfer: f64,
    /// Messages under way.
    pub waiting: f64,
    /// Generator calls.
    pub generator: f64,
}

impl Prediction {
    /// All stages one after the other: an upper bound of those three, since super-batches overlap them.
    pub fn seconds(&self) -> f64 {
        self.transfer + self.waiting + self.generator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up() {
        let figures = Figures { key_bytes: 9, traffic_bytes: 2_000_000, rounds: 10, prg_blocks: 500 };
        let prediction = Link::new(8e6, 0.01, 1000.0).unwrap().predict(&figures);
        assert_eq!((prediction.transfer, prediction.waiting, prediction.generator), (1.0, 0.1, 0.5));
        assert!((prediction.seconds() - 1.6).abs() < 1e-12);
    }

    #[test]
    fn impossible_links_are_refused() {
        for (bandwidth, latency, rate) in [
            (0.0, 0.0, 1.0),
            (-1.0, 0.0, 1.0),
            (1.0, -1.0, 1.0),
            (1.0, 0.0, 0.0),
            (f64::NAN, 0.0, 1.0),
            (f64::INFINITY, 0.0, 1.0),
        ] {
            assert!(Link::new(bandwidth, latency, rate).is_err());
        }
    }
}
