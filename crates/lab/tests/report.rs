//! The report: one file with every part, and nothing from outside. `browser.rs` has it drawn.

mod support;

use gatework_lab::{Freshness, Record, report};
use support::drawn::{drawn, records, training};
use support::record;

#[test]
fn the_report_needs_nothing_from_outside() {
    let html = drawn();
    for outside in ["http://", "https://", "src=", "@import", "url(", "<script"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
}

#[test]
fn the_report_shows_every_part() {
    let html = drawn();
    let parts = [
        "SLOWER",
        "throttled",
        "stale",
        "pool hits: 100.0 %",
        "not measured",
        "no module named",
        "Roofline of NVIDIA H200",
        "TILE=64 beats the default",
        "fp8_tile is compute-bound",
        "gpu/&lt;odd&gt;&amp;name",
        "beyond the right edge",
        "Timeline of bert-&lt;odd&gt;, 128 tokens, keys in memory, on NVIDIA H200 (client cuda:0, server cuda:0)",
        "The parts took 500 ms: evaluation 200 ms, keys ahead 50.0 ms, device 100 ms, network 25.0 ms, waiting 125 ms.",
        "layer &lt;1&gt;</div>",
        "Training loss: digits &lt;odd&gt;",
    ];
    for part in parts {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<odd>") && !html.contains("NaN") && !html.contains("inf"));
}

/// Every string of a value with markup behind it, as far as a record still reads with it: names of variants
/// stay.
fn spiked(value: &mut serde_json::Value, whole: &dyn Fn(&str, String) -> bool, path: &str) {
    match value {
        serde_json::Value::String(text) => {
            let marked = format!("{text}<script>'\"&");
            if whole(path, marked.clone()) {
                *text = marked;
            }
        }
        serde_json::Value::Array(items) => {
            items.iter_mut().enumerate().for_each(|(at, item)| spiked(item, whole, &format!("{path}/{at}")));
        }
        serde_json::Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, item)| spiked(item, whole, &format!("{path}/{name}")));
        }
        _ => (),
    }
}

#[test]
fn no_string_of_a_record_becomes_markup() {
    let mut marked = 0;
    let records: Vec<Record> = records()
        .iter()
        .map(|record| {
            let original = serde_json::to_value(record).unwrap();
            let reads = |path: &str, text: String| {
                let mut changed = original.clone();
                *changed.pointer_mut(path).unwrap() = text.into();
                serde_json::from_value::<Record>(changed).is_ok()
            };
            let mut value = original.clone();
            spiked(&mut value, &reads, "");
            marked += value.to_string().matches("<script>").count();
            serde_json::from_value(value).unwrap()
        })
        .collect();
    assert!(marked > 50, "{marked}");
    let stale = |_: &Record| Freshness::Stale { why: "<script>".into() };
    for freshness in [&stale as &dyn Fn(&Record) -> Freshness, &|_| Freshness::Unknown] {
        let html = report::html(&records, &training(), freshness);
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    }
}

#[test]
fn records_without_measurements_make_a_report_too() {
    let html = report::html(&[record("gpu/saxpy")], &[], &|_| Freshness::Unknown);
    assert!(html.contains("These records hold no timeline of a private request."));
    assert!(html.contains("No training runs lie beside these records."));
    assert!(html.contains("These records hold no benchmark.") && html.contains("unknown here"));
}
