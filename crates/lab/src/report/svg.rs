//! Drawings as text: shapes with classes, coloured by the page's style sheet, so that they follow its light
//! and dark.

use std::fmt::Write as _;

/// Width of every drawing, in its own units: about that of a telephone, so that text is never scaled below
/// reading size.
pub(super) const WIDTH: f64 = 360.0;

/// A drawing.
pub(super) struct Drawing {
    height: f64,
    body: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub(super) fn new(height: f64) -> Self {
        Self { height, body: String::new() }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    pub(super) fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let ((x, y), (width, height)) = (corner, size);
        let width = width.max(0.0);
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        ));
    }

    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64) {
        self.push(format_args!(
            r#"<circle class="{class}" cx="{:.1}" cy="{:.1}" r="{radius}"/>"#,
            at.0, at.1
        ));
    }

    /// A dot that says its name where a pointer rests on it.
    pub(super) fn named_dot(&mut self, class: &str, at: (f64, f64), radius: f64, name: &str) {
        self.push(format_args!(
            r#"<circle class="{class}" cx="{:.1}" cy="{:.1}" r="{radius}"><title>{}</title></circle>"#,
            at.0,
            at.1,
            escaped(name)
        ));
    }

    pub(super) fn cross(&mut self, class: &str, at: (f64, f64)) {
        let (x, y) = at;
        self.line(class, (x - 2.5, y - 2.5), (x + 2.5, y + 2.5));
        self.line(class, (x - 2.5, y + 2.5), (x + 2.5, y - 2.5));
    }

    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut steps = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(steps, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        self.push(format_args!(r#"<path class="{class}" d="{steps}"/>"#));
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text class="{class}" text-anchor="{anchor}" x="{:.1}" y="{:.1}">{}</text>"#,
            at.0,
            at.1,
            escaped(text)
        ));
    }

    /// The shapes alone, for a larger drawing that has them at a place of its own.
    pub(super) fn group_at(self, (x, y): (f64, f64)) -> String {
        format!(r#"<g transform="translate({x:.1} {y:.1})">{}</g>"#, self.body)
    }

    /// The whole element, with what it shows for those who cannot see it.
    pub(super) fn finish(self, label: &str) -> String {
        let Self { height, body } = self;
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">{body}</svg>"#,
            escaped(label)
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
    }
}

/// Text that cannot be taken for markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// From values to places on the page.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Values `low..high` onto places `from..to`. A range of one value is widened, so that it has a middle. A
    /// record may hold what nobody measured, as a rate below zero, whose logarithm is none: such a range is 0
    /// to 1.
    pub(super) fn new((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        Self { low, high, from, to }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from
            + (value.clamp(self.low, self.high) - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Round values within the range, about `count` of them.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / count.max(1) as f64;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|unit| unit * magnitude).into_iter().find(|&step| step >= raw);
        let step = step.unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_their_ends_and_ticks_are_round() {
        let scale = Scale::new((0.0, 10.0), (100.0, 300.0));
        assert_eq!((scale.at(0.0), scale.at(10.0), scale.at(99.0)), (100.0, 300.0, 300.0));
        assert_eq!(scale.ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::new((7.0, 7.0), (0.0, 1.0)).at(7.0), 0.5);
        for broken in [(f64::NAN, 3.0), (0.0, f64::INFINITY)] {
            assert_eq!(Scale::new(broken, (100.0, 300.0)).at(0.5), 200.0);
        }
    }

    #[test]
    fn text_is_never_markup() {
        let mut drawing = Drawing::new(10.0);
        drawing.text("label", Anchor::Start, (0.0, 0.0), "<script>&\"");
        assert!(drawing.finish("a < b").contains("&lt;script&gt;&amp;&quot;"));
    }
}
