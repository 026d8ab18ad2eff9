//! The clocks under load, and whether the device held them.

use gatework_gpu::{Clocks, Device, Result, Stream};

use super::shield::Shield;

/// Below this part of its highest clock a device is throttled.
const THROTTLED: f64 = 0.75;
/// Runs of the shield that are queued while the clocks are read: some ten milliseconds, because reading takes
/// one or two.
const LOAD: usize = 64;

/// Clocks and temperature while the device works. An idle device tells nothing: it has slowed down already.
pub(super) fn under_load(device: &Device, stream: &Stream, shield: &mut Shield) -> Result<Option<Clocks>> {
    if device.clocks().is_none() {
        return Ok(None);
    }
    for _ in 0..LOAD {
        shield.queue(stream)?;
    }
    let clocks = device.clocks();
    stream.synchronize()?;
    Ok(clocks)
}

/// Why a run does not count as one at full speed, if it does not.
pub(super) fn throttling(readings: [Option<Clocks>; 2], highest_mhz: Option<u32>) -> Option<String> {
    let highest = highest_mhz.filter(|&highest| highest > 0)?;
    let slowest = readings.into_iter().flatten().map(|clocks| clocks.sm_mhz).min()?;
    let part = f64::from(slowest) / f64::from(highest);
    (part < THROTTLED).then(|| {
        format!(
            "the SM clock was {slowest} MHz under load, {:.0} % of the {highest} MHz it can reach",
            100.0 * part
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sm_mhz: u32) -> Option<Clocks> {
        Some(Clocks { sm_mhz, memory_mhz: 3201, celsius: 60 })
    }

    #[test]
    fn the_slower_reading_decides() {
        assert_eq!(throttling([at(1980), at(1500)], Some(1980)), None);
        let why = throttling([at(1980), at(1200)], Some(1980)).unwrap();
        assert!(why.contains("1200 MHz under load, 61 % of the 1980 MHz"), "{why}");
    }

    #[test]
    fn without_readings_nothing_is_claimed() {
        assert_eq!(throttling([None, None], Some(1980)), None);
        assert_eq!(throttling([at(300), None], None), None);
    }
}
