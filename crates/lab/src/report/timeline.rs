//! Where the time of a private request went: the parts of a model one after the other, and what its client
//! did in each.

use serde_json::{Map, Value};

use super::svg::{Anchor, Drawing, Scale, WIDTH};
use crate::quantity::time;
use crate::record::{MeasuredRecord, Record};

const LEFT: f64 = 10.0;
const RIGHT: f64 = WIDTH - 14.0;
/// The names of parts stand in a row above the lanes.
const PARTS: f64 = 26.0;
const LANE: f64 = 36.0;
/// Room of a letter, more than most take.
const LETTER: f64 = 6.4;

/// A lane of the drawing.
pub(super) struct Lane {
    pub(super) name: &'static str,
    class: &'static str,
    /// The figures of a row that it sums.
    fields: &'static [&'static str],
}

/// What a client does, one lane each.
pub(super) const LANES: [Lane; 5] = [
    Lane { name: "evaluation", class: "candidate", fields: &["gates_ms", "opening_ms"] },
    Lane { name: "keys ahead", class: "candidate", fields: &["ahead_ms"] },
    Lane { name: "device", class: "candidate", fields: &["messages_ms"] },
    Lane { name: "network", class: "peer", fields: &["hand_over_ms"] },
    Lane { name: "waiting", class: "baseline", fields: &["wait_ms"] },
];

/// A request of `private bench`, in milliseconds.
pub(super) struct Timeline<'a> {
    pub(super) record: &'a Record,
    /// What was asked of whom, by which requests are told apart.
    pub(super) heading: String,
    /// How long requests took.
    pub(super) note: String,
    pub(super) parts: Vec<Part<'a>>,
    median_ms: f64,
}

/// A part of the model.
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    pub(super) ms: f64,
    /// What each of the [`LANES`] has of it.
    pub(super) lanes: [f64; LANES.len()],
}

/// The newest timeline of each request, in the order in which requests were first recorded.
pub(super) fn timelines(records: &[Record]) -> Vec<Timeline<'_>> {
    let mut newest: Vec<Timeline<'_>> = Vec::new();
    for timeline in records.iter().filter_map(Timeline::of) {
        match newest.iter_mut().find(|known| known.heading == timeline.heading) {
            Some(known) => *known = timeline,
            None => newest.push(timeline),
        }
    }
    newest
}

impl<'a> Timeline<'a> {
    /// None if the record does not have every stage of every part.
    fn of(record: &'a Record) -> Option<Self> {
        let MeasuredRecord { rows, .. } = record.measured.as_ref()?;
        let of_kind = |kind: &'static str| rows.iter().filter(move |row| text(row, "kind") == Some(kind));
        let parts = of_kind("part").map(Part::of).collect::<Option<Vec<_>>>()?;
        let request = of_kind("request").next()?;
        let median_ms = figure(request, "median_ms")?;
        let timeline = Self {
            record,
            heading: heading(request, record)?,
            note: note(request, median_ms),
            parts,
            median_ms,
        };
        (timeline.in_parts() > 0.0).then_some(timeline)
    }

    /// All parts together.
    pub(super) fn in_parts(&self) -> f64 {
        self.parts.iter().map(|part| part.ms).sum()
    }

    /// Before the first part and after the last.
    pub(super) fn outside_parts(&self) -> f64 {
        (self.median_ms - self.in_parts()).max(0.0)
    }

    /// What a lane has of all parts.
    pub(super) fn in_lane(&self, lane: usize) -> f64 {
        self.parts.iter().map(|part| part.lanes[lane]).sum()
    }

    pub(super) fn draw(&self) -> String {
        let bottom = PARTS + LANE * LANES.len() as f64;
        let end = self.in_parts().max(self.median_ms);
        let scale = Scale::new((0.0, end), (LEFT, RIGHT));
        let mut drawing = Drawing::new(bottom + 24.0);
        let mut began = 0.0;
        for part in &self.parts {
            let (from, to) = (scale.at(began), scale.at(began + part.ms));
            drawing.rectangle("track", (from, 4.0), (to - from - 1.0, 16.0));
            if let Some(name) = name_within(part.name, to - from) {
                drawing.text("tick", Anchor::Middle, ((from + to) / 2.0, 16.0), name);
            }
            drawing.line("grid", (from, 4.0), (from, bottom));
            began += part.ms;
        }
        for (index, lane) in LANES.iter().enumerate() {
            self.draw_lane(&mut drawing, &scale, index, lane);
        }
        draw_axis(&mut drawing, &scale, bottom);
        drawing.finish(&format!("Timeline of {}", self.heading))
    }

    fn draw_lane(&self, drawing: &mut Drawing, scale: &Scale, index: usize, lane: &Lane) {
        let top = PARTS + LANE * index as f64;
        let ms = self.in_lane(index);
        drawing.text("label", Anchor::Start, (LEFT, top + 12.0), lane.name);
        let value = format!("{}, {:.0} %", milliseconds(ms), 100.0 * ms / self.in_parts());
        drawing.text("value", Anchor::End, (RIGHT, top + 12.0), &value);
        drawing.rectangle("track", (LEFT, top + 17.0), (RIGHT - LEFT, 12.0));
        let (class, mut began) = (format!("{} bar", lane.class), 0.0);
        for part in &self.parts {
            // Sums of medians may be more than the median of the whole.
            let ended = began + part.lanes[index].min(part.ms);
            let (from, to) = (scale.at(began), scale.at(ended));
            drawing.rectangle(&class, (from, top + 17.0), (to - from, 12.0));
            began += part.ms;
        }
    }
}

impl<'a> Part<'a> {
    fn of(row: &'a Map<String, Value>) -> Option<Self> {
        let mut lanes = [0.0; LANES.len()];
        for (sum, lane) in lanes.iter_mut().zip(&LANES) {
            for field in lane.fields {
                *sum += figure(row, field)?;
            }
        }
        Some(Self { name: text(row, "part")?, ms: figure(row, "ms")?, lanes })
    }
}

/// A time in milliseconds as people read it.
pub(super) fn milliseconds(ms: f64) -> String {
    if ms == 0.0 { "0".to_owned() } else { time(1e6 * ms) }
}

fn draw_axis(drawing: &mut Drawing, scale: &Scale, bottom: f64) {
    for tick in scale.ticks(5) {
        let (x, name) = (scale.at(tick), milliseconds(tick));
        let half = LETTER * name.chars().count() as f64 / 2.0;
        let anchor = match x {
            x if x - half < 0.0 => Anchor::Start,
            x if x + half > WIDTH => Anchor::End,
            _ => Anchor::Middle,
        };
        drawing.line("grid", (x, bottom), (x, bottom + 4.0));
        drawing.text("tick", anchor, (x, bottom + 16.0), &name);
    }
}

/// The name of a part, or the number of a layer, if there is room for it.
fn name_within(name: &str, room: f64) -> Option<&str> {
    let number = name.rsplit(' ').next().filter(|word| word.parse::<u32>().is_ok());
    let fits = |name: &&str| LETTER * name.chars().count() as f64 + 2.0 <= room;
    [Some(name), number].into_iter().flatten().find(fits)
}

fn heading(request: &Map<String, Value>, record: &Record) -> Option<String> {
    let (model, tokens) = (text(request, "model")?, figure(request, "tokens")?);
    let mut heading = format!("{model}, {tokens} tokens");
    if let Some(texts) = figure(request, "batch").filter(|&texts| texts != 1.0) {
        heading += &format!(", {texts} texts");
    }
    if request.get("faithful").and_then(Value::as_bool) == Some(true) {
        heading += ", faithful truncations";
    }
    if let Some(keys) = text(request, "keys") {
        heading += &format!(", keys in {keys}");
    }
    if let Some(device) = &record.device {
        heading += &format!(", on {}", device.name);
    }
    let [client, server] =
        ["client_device", "server_device"].map(|party| text(request, party).unwrap_or("unknown"));
    Some(format!("{heading} (client {client}, server {server})"))
}

fn note(request: &Map<String, Value>, median_ms: f64) -> String {
    let mut note = format!("The median request took {}", milliseconds(median_ms));
    if let (Some(worst), Some(repeats)) = (figure(request, "worst_ms"), figure(request, "repeats")) {
        note += &format!(", the worst of {repeats} took {}", milliseconds(worst));
    }
    if let Some(rounds) = figure(request, "rounds") {
        note += &format!(", in {rounds} rounds");
    }
    note
}

fn text<'a>(row: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    row.get(name)?.as_str()
}

fn figure(row: &Map<String, Value>, name: &str) -> Option<f64> {
    row.get(name)?.as_f64().filter(|figure| *figure >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn part(name: &str, ms: f64, gates_ms: f64, wait_ms: f64) -> Value {
        json!({
            "kind": "part", "part": name, "ms": ms, "gates_ms": gates_ms, "messages_ms": 0.5, "hand_over_ms": 0.25,
            "wait_ms": wait_ms, "opening_ms": 1.0, "ahead_ms": 0.0,
        })
    }

    fn request(keys: &str) -> Value {
        json!({
            "kind": "request", "model": "bert-toy", "tokens": 5, "batch": 1, "keys": keys, "client_device": "cpu",
            "server_device": "cpu", "median_ms": 100.0, "worst_ms": 120.0, "repeats": 3, "rounds": 40,
        })
    }

    fn record(rows: Vec<Value>) -> Record {
        let rows = rows.into_iter().map(|row| row.as_object().unwrap().clone()).collect();
        Record::of_figures("private/bench", None, MeasuredRecord { origin: "a test".into(), rows })
    }

    #[test]
    fn bars_start_with_their_parts() {
        let record = record(vec![
            request("memory"),
            part("embedding", 20.0, 9.0, 8.0),
            part("layer 1", 60.0, 29.0, 30.0),
            part("head", 10.0, 2.0, 1.0),
        ]);
        let timelines = timelines(std::slice::from_ref(&record));
        let timeline = &timelines[0];
        assert_eq!((timeline.in_parts(), timeline.outside_parts()), (90.0, 10.0));
        assert_eq!(timeline.in_lane(0), 10.0 + 30.0 + 3.0);
        let svg = timeline.draw();
        // 336 units are 100 ms: the layer begins at 20 ms, and its gates and opened messages take 30 ms.
        let bar = r#"<rect class="candidate bar" x="77.2" y="43.0" width="100.8" height="12.0" rx="2"/>"#;
        assert!(svg.contains(bar), "{svg}");
        for text in [">layer 1<", ">evaluation<", ">43.0 ms, 48 %<", ">waiting<", ">39.0 ms, 43 %<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("width=\"-"));
    }

    #[test]
    fn a_bar_stays_in_its_part() {
        let record = record(vec![request("memory"), part("embedding", 50.0, 49.5, 0.0)]);
        let svg = timelines(&[record])[0].draw();
        assert!(svg.contains(r#"x="10.0" y="43.0" width="168.0""#), "{svg}");
    }

    #[test]
    fn the_newest_of_each_request_is_drawn() {
        let of = |keys: &str, ms: f64| record(vec![request(keys), part("head", ms, 1.0, 1.0)]);
        let records = [of("memory", 10.0), of("files", 20.0), of("memory", 30.0)];
        let found: Vec<f64> = timelines(&records).iter().map(Timeline::in_parts).collect();
        assert_eq!(found, [30.0, 20.0]);
    }

    #[test]
    fn a_record_without_stages_draws_nothing() {
        let old = json!({ "kind": "part", "part": "head", "ms": 10.0 });
        let mut torn = part("head", 10.0, 1.0, 1.0);
        torn["wait_ms"] = "long".into();
        let without = [
            vec![request("memory"), part("embedding", 10.0, 1.0, 1.0), old],
            vec![request("memory"), torn],
            vec![request("memory")],
            vec![part("head", 10.0, 1.0, 1.0)],
            Vec::new(),
        ];
        for rows in without {
            assert!(timelines(&[record(rows)]).is_empty());
        }
    }

    #[test]
    fn a_narrow_layer_has_its_number_alone() {
        assert_eq!(name_within("layer 12", 60.0), Some("layer 12"));
        assert_eq!(name_within("layer 12", 24.0), Some("12"));
        assert_eq!(name_within("layer 12", 8.0), None);
        assert_eq!(name_within("embedding", 24.0), None);
    }
}
