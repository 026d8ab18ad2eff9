//! How fast a link is.

use std::time::{Duration, Instant};

use crate::error::Result;

use super::Link;

/// Bytes of a short message, as most rounds have.
const SHORT: usize = 1 << 10;
/// Bytes of a message of the middle kind, and of a long one.
const MIDDLE: usize = 1 << 19;
const LONG: usize = 64 << 20;
/// Round trips before those that count.
const WARM_UP: usize = 200;
const SHORT_TRIPS: usize = 5000;
const MIDDLE_TRIPS: usize = 300;
/// Exchanges of long messages, both ways at once, and those before them.
const EXCHANGES: usize = 12;
const FIRST_EXCHANGES: usize = 2;

/// Which end of a link this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The one that sends first, and measures.
    Measures,
    /// The other one.
    Answers,
}

/// Measurements of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkFigures {
    /// The median time until 1 KiB has come back.
    pub short_round_trip: Duration,
    /// The median time until both sides have exchanged 512 KiB.
    pub middle_exchange: Duration,
    /// Bytes a second in each direction, both at once, in messages of 64 MiB.
    pub bytes_a_second: f64,
}

/// Measures a link whose other end does the same as [`LinkEnd::Answers`].
pub fn measure_link(link: &mut Link, end: LinkEnd) -> Result<LinkFigures> {
    link.expect(LONG as u64);
    let short = median(repeat(WARM_UP, SHORT_TRIPS, || match end {
        LinkEnd::Measures => {
            link.send(vec![1; SHORT])?;
            link.receive().map(drop)
        }
        LinkEnd::Answers => {
            let message = link.receive()?;
            link.send(message)
        }
    })?);
    let middle = exchanges(link, MIDDLE, WARM_UP / 10, MIDDLE_TRIPS)?;
    let long = exchanges(link, LONG, FIRST_EXCHANGES, EXCHANGES)?;
    link.flush()?;
    Ok(LinkFigures {
        short_round_trip: short,
        middle_exchange: middle,
        bytes_a_second: LONG as f64 / long.as_secs_f64(),
    })
}

/// The median time until both have sent so many bytes, and have received as many. What came is sent back:
/// making new messages is not the link's work.
fn exchanges(link: &mut Link, bytes: usize, before: usize, count: usize) -> Result<Duration> {
    let mut message = vec![2; bytes];
    let times = repeat(before, count, || {
        link.send(std::mem::take(&mut message))?;
        message = link.receive()?;
        Ok(())
    })?;
    Ok(median(times))
}

fn repeat(before: usize, count: usize, mut once: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    (0..before).try_for_each(|_| once())?;
    let timed = |_| {
        let start = Instant::now();
        once().map(|()| start.elapsed())
    };
    (0..count).map(timed).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
