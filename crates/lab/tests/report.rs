//! The report: one file, nothing from outside, and a real browser draws it.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use gatework_lab::measure::{Bound, RateRecord};
use gatework_lab::{Freshness, Gate, GateRecord, MeasuredRecord, Outcome, Record, Timing, report};
use serde_json::json;
use support::{benched, device, profiled, record, searched};

/// Records of every kind, as a run on a GPU leaves them.
fn records() -> Vec<Record> {
    let h200 = "NVIDIA H200";
    let mut saxpy = benched("gpu/saxpy", h200, 373e3, 402e3, 1);
    saxpy.gates = [Gate::Compile, Gate::Resources, Gate::Correctness, Gate::Performance]
        .map(|gate| GateRecord { gate, target: "cuda:0".into(), outcome: Outcome::Passed })
        .to_vec();
    let mut fp8 = benched("gpu/fp8-tile", h200, 201e3, 200e3, 2);
    let bench = &mut fp8.performance.as_mut().unwrap().cases[0];
    bench.case = "4096x4096x4096".into();
    bench.work.operations = 2 << 36;
    bench.operations_per_second = 1e9 * bench.work.operations as f64 / bench.candidate.summary.median_ns;
    let roofline = bench.roofline.as_mut().unwrap();
    roofline.bound = Bound::Compute;
    roofline.ratio_to_floor = 3.1;
    roofline.peak_operations_per_second = Some(2141e12);
    let mut slow = benched("gpu/reduce", h200, 262e3, 460e3, 3);
    let why = "case 'n134217728': SLOWER than promised: 1.755 (1.751 to 1.760) of 'device-to-device copy'";
    slow.verdict = Outcome::Failed { why: why.into() };
    slow.gates.push(GateRecord {
        gate: Gate::Performance,
        target: "cuda:0".into(),
        outcome: slow.verdict.clone(),
    });
    slow.performance.as_mut().unwrap().throttled = Some("the SM clock was 1200 MHz under load".into());
    let mut pinned = benched("gpu/pinned-copy", h200, 14.2e6, 2.6e6, 4);
    let bench = &mut pinned.performance.as_mut().unwrap().cases[0];
    bench.timing = Timing::Wall;
    bench.roofline = None;
    bench.peers.clear();
    bench.rates.push(RateRecord { name: "pool hits".into(), share: Some(1.0), at_least: 0.8 });
    vec![
        saxpy,
        fp8,
        slow,
        pinned,
        searched("gpu/transpose"),
        profiled("gpu/fp8-tile"),
        record("gpu/<odd>&name"),
        request(),
    ]
}

/// A private request of two parts.
fn request() -> Record {
    let part = |name: &str, ms: f64| {
        json!({
            "kind": "part", "part": name, "ms": ms, "gates_ms": 0.3 * ms, "opening_ms": 0.1 * ms, "ahead_ms": 0.1 * ms,
            "messages_ms": 0.2 * ms, "hand_over_ms": 0.05 * ms, "wait_ms": 0.25 * ms,
        })
    };
    let whole = json!({
        "kind": "request", "model": "bert-<odd>", "tokens": 128, "keys": "memory", "client_device": "cuda:0",
        "server_device": "cuda:0", "median_ms": 600.0,
    });
    let rows = [whole, part("embedding", 100.0), part("layer <1>", 400.0)];
    let rows = rows.map(|row| row.as_object().unwrap().clone()).to_vec();
    Record::of_figures(
        "private/bench",
        Some(device("NVIDIA H200")),
        MeasuredRecord { origin: "a test".into(), rows },
    )
}

fn drawn() -> String {
    report::html(&records(), &|record| match record.workload.as_str() {
        "gpu/reduce" => Freshness::Stale { why: "the source of kernel 'reduce' has changed".into() },
        _ => Freshness::Current,
    })
}

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
    ];
    for part in parts {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<odd>") && !html.contains("NaN") && !html.contains("inf"));
}

/// Every string of a value with markup behind it, as far as a record still reads with it: names of variants stay.
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
        let html = report::html(&records, freshness);
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    }
}

#[test]
fn records_without_measurements_make_a_report_too() {
    let html = report::html(&[record("gpu/saxpy")], &|_| Freshness::Unknown);
    assert!(html.contains("These records hold no timeline of a private request."));
    assert!(html.contains("These records hold no benchmark.") && html.contains("unknown here"));
}

fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.iter().flat_map(|folder| names.map(|name| folder.join(name))).find(|program| program.is_file())
}

/// A picture of the page at a width, in bytes.
fn picture(browser: &Path, folder: &Path, page: &Path, width: u32) -> u64 {
    let image = folder.join(format!("{width}.png"));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--window-size={width},2400"))
        .arg(format!("--screenshot={}", image.display()))
        .arg(page)
        .output()
        .unwrap();
    fs::metadata(&image).unwrap_or_else(|error| panic!("{error}: {output:?}")).len()
}

#[test]
#[ignore = "needs a browser: chromium or google-chrome"]
fn a_real_browser_draws_it() {
    let browser = browser().expect("chromium or google-chrome is installed");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    fs::write(&page, drawn()).unwrap();
    for width in [390, 1280] {
        // An empty page of this size is below 10 kB.
        let bytes = picture(&browser, folder.path(), &page, width);
        assert!(bytes > 40_000, "{width} pixels wide: {bytes} bytes");
    }
    if let Some(kept) = env::var_os("GATEWORK_KEEP_REPORT") {
        fs::copy(&page, kept).unwrap();
    }
}
