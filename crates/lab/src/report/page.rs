//! The page around the sections: its head, its style, and how to read it.

use std::collections::BTreeSet;

use super::subject::Subject;
use super::svg::escaped;
use crate::record::timestamp;
use crate::stats::{BETWEEN_RUNS, CONFIDENCE, WITHIN_RUN};

const STYLE: &str = include_str!("style.css");

pub(super) fn document(subjects: &[Subject<'_>], sections: &str) -> String {
    let devices: BTreeSet<&str> = subjects.iter().map(|subject| subject.device.as_str()).collect();
    let devices = devices.into_iter().map(escaped).collect::<Vec<_>>().join(", ");
    let (confidence, within, between) = (100.0 * CONFIDENCE, 100.0 * WITHIN_RUN, 100.0 * BETWEEN_RUNS);
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Gatework lab report</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Gatework lab report</h1>
<p>{count} workloads on {devices}. Made {made}.</p>
<nav><a href="#gates">Gates</a> <a href="#performance">Performance</a> <a href="#floors">Floor</a>
<a href="#peers">Peers</a> <a href="#requests">Requests</a> <a href="#tuning">Tuning</a> <a href="#profile">Profile</a></nav>
</header>
<main>
{sections}
</main>
<footer>
<h2>How to read it</h2>
<p>Candidate and baseline are timed in pairs, in random order, in one process. The ratio is the median over pairs, with
the interval that holds it at {confidence:.0} % confidence whatever the noise. FASTER and SLOWER: the whole interval is
more than {within:.0} % from 1 ({between:.0} % between two runs). SAME: all of it is within. AMBIGUOUS: it crosses the edge.
The floor is the larger of the bytes at the speed of a device-to-device copy in the same run and the operations at the
stated peak. Thin marks in a distribution are p90 and p99. A stale record is of code that has changed since.</p>
</footer>
</body>
</html>
"##,
        count = subjects.len(),
        made = timestamp(),
    )
}
