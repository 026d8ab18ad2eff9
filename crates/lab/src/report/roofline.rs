//! The roofline: operations a second over operations a byte, under the roof of memory and arithmetic.

use super::svg::{Anchor, Drawing, Scale, WIDTH};
use crate::record::BenchRecord;

const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 224.0;

/// A benchmark on the chart.
struct Point<'a> {
    name: &'a str,
    case: &'a str,
    /// Operations a byte.
    intensity: f64,
    /// Operations a second.
    reached: f64,
    bandwidth: f64,
    peak: f64,
}

impl<'a> Point<'a> {
    /// None for work without operations: it has no place on the chart.
    fn of(name: &'a str, bench: &'a BenchRecord) -> Option<Self> {
        let roofline = bench.roofline?;
        (bench.work.operations > 0 && bench.work.bytes > 0).then_some(Self {
            name,
            case: &bench.case,
            intensity: bench.work.operations as f64 / bench.work.bytes as f64,
            reached: bench.operations_per_second,
            bandwidth: roofline.copy_bytes_per_second,
            peak: roofline.peak_operations_per_second?,
        })
    }
}

/// Both axes are logarithms to the base of ten.
struct Chart {
    x: Scale,
    y: Scale,
    /// The roof: its beginning, its ridge and its end, as (operations a byte, operations a second).
    roof: [(f64, f64); 3],
}

/// None without a point to draw.
pub(super) fn draw(benches: &[(&str, &BenchRecord)]) -> Option<String> {
    let points: Vec<Point<'_>> = benches.iter().filter_map(|(name, bench)| Point::of(name, bench)).collect();
    let chart = Chart::around(&points)?;
    let mut drawing = Drawing::new(BOTTOM + 40.0);
    chart.draw_axes(&mut drawing);
    drawing.path("roof", &chart.roof.map(|(intensity, reached)| chart.place(intensity, reached)));
    for point in &points {
        let name = format!("{} {}", point.name, point.case);
        drawing.named_dot("candidate mark", chart.place(point.intensity, point.reached), 4.5, &name);
    }
    chart.draw_names(&mut drawing, &points);
    Some(drawing.finish("Roofline"))
}

impl Chart {
    fn around(points: &[Point<'_>]) -> Option<Self> {
        let largest = |value: fn(&Point<'_>) -> f64| points.iter().map(value).reduce(f64::max);
        let (bandwidth, peak) = (largest(|point| point.bandwidth)?, largest(|point| point.peak)?);
        let ridge = peak / bandwidth;
        let least = points.iter().map(|point| point.intensity).fold(ridge, f64::min) / 2.5;
        let most = points.iter().map(|point| point.intensity).fold(ridge, f64::max) * 2.5;
        let lowest = points.iter().map(|point| point.reached).fold(least * bandwidth, f64::min) / 2.0;
        Some(Self {
            x: Scale::new((least.log10(), most.log10()), (LEFT, RIGHT)),
            y: Scale::new((lowest.log10(), (2.0 * peak).log10()), (BOTTOM, TOP)),
            roof: [(least, least * bandwidth), (ridge, peak), (most, peak)],
        })
    }

    fn place(&self, intensity: f64, reached: f64) -> (f64, f64) {
        (self.x.at(intensity.log10()), self.y.at(reached.log10()))
    }

    fn draw_axes(&self, drawing: &mut Drawing) {
        let whole = |tick: &f64| tick.fract() == 0.0;
        for exponent in self.x.ticks(4).into_iter().filter(whole) {
            let x = self.x.at(exponent);
            drawing.line("grid", (x, TOP), (x, BOTTOM));
            drawing.text("tick", Anchor::Middle, (x, BOTTOM + 14.0), &power_of_ten(exponent));
        }
        for exponent in self.y.ticks(4).into_iter().filter(whole) {
            let y = self.y.at(exponent);
            drawing.line("grid", (LEFT, y), (RIGHT, y));
            drawing.text("tick", Anchor::End, (LEFT - 4.0, y + 4.0), &with_prefix(exponent));
        }
        drawing.text("tick", Anchor::End, (RIGHT, BOTTOM + 30.0), "operations a byte");
        drawing.text("tick", Anchor::Start, (10.0, BOTTOM + 30.0), "operations a second");
    }

    /// Names each workload once, beside the first of its points that has room for the name. A name that would
    /// cover another is left out: a chart of names on names says nothing.
    fn draw_names(&self, drawing: &mut Drawing, points: &[Point<'_>]) {
        let mut placed: Vec<Label> = Vec::new();
        let mut named: Vec<&str> = Vec::new();
        for point in points {
            let around = Label::around(self.place(point.intensity, point.reached), point.name);
            let free = around.into_iter().find(|label| !placed.iter().any(|other| label.covers(other)));
            if let Some(label) = free.filter(|_| !named.contains(&point.name)) {
                drawing.text("label", label.anchor, label.at, point.name);
                placed.push(label);
                named.push(point.name);
            }
        }
    }
}

/// Room of a letter, more than most take, and of a line.
const LETTER: f64 = 6.0;
const LINE: f64 = 12.0;

/// A name beside a point.
#[derive(Clone, Copy)]
struct Label {
    anchor: Anchor,
    at: (f64, f64),
    width: f64,
}

impl Label {
    /// Where a name may stand: below and above its point, on the side where the chart has more room.
    fn around(point: (f64, f64), name: &str) -> [Self; 4] {
        let (anchor, shift) = if point.0 > WIDTH / 2.0 { (Anchor::End, -8.0) } else { (Anchor::Start, 8.0) };
        let width = LETTER * name.chars().count() as f64;
        [4.0, 16.0, -8.0, 28.0].map(|drop| Self { anchor, at: (point.0 + shift, point.1 + drop), width })
    }

    fn left(&self) -> f64 {
        if matches!(self.anchor, Anchor::End) { self.at.0 - self.width } else { self.at.0 }
    }

    fn covers(&self, other: &Self) -> bool {
        let beside = self.left() > other.left() + other.width || other.left() > self.left() + self.width;
        !beside && (self.at.1 - other.at.1).abs() < LINE
    }
}

/// `0.1`, `1`, `100`.
fn power_of_ten(exponent: f64) -> String {
    format!("{}", 10_f64.powf(exponent))
}

/// `10 G`, `1 T`: operations a second.
fn with_prefix(exponent: f64) -> String {
    let (unit, prefix) = match exponent {
        exponent if exponent >= 12.0 => (12.0, "T"),
        exponent if exponent >= 9.0 => (9.0, "G"),
        _ => (6.0, "M"),
    };
    format!("{} {prefix}", 10_f64.powf(exponent - unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_cover_each_other_are_seen() {
        let [first, below, ..] = Label::around((100.0, 50.0), "gpu/saxpy");
        let [same, ..] = Label::around((110.0, 52.0), "gpu/reduce");
        let [far, ..] = Label::around((110.0, 90.0), "gpu/reduce");
        assert!(first.covers(&same) && !first.covers(&far) && !first.covers(&below));
    }
}
