//! Bars of ratios on a logarithmic axis, in groups: a file of its own, light or dark as its reader is.

use super::lines::page;
use super::svg::{Anchor, Drawing, Scale};

const WIDTH: f64 = 740.0;
const MARGIN: f64 = 20.0;
/// Where bars begin: words stand to the left of it.
const LEFT: f64 = 300.0;
/// Room for what stands behind the longest bar.
const RIGHT: f64 = WIDTH - 190.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
const NOTE: f64 = 14.0;

/// Ratios, each with what it is of.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    /// The heading.
    pub title: String,
    /// The bars, in groups that follow each other.
    pub bars: Vec<Bar>,
    /// Lines of text below.
    pub notes: Vec<String>,
}

/// One ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The heading of its group.
    pub group: String,
    /// The case that was measured.
    pub label: String,
    /// The peer that it was measured against.
    pub peer: String,
    /// How many times as long the peer takes.
    pub ratio: f64,
    /// Both times.
    pub times: String,
}

impl BarChart {
    /// The chart as an SVG file; none without a bar that can be drawn.
    pub fn svg(&self) -> Option<String> {
        let drawable = |bar: &&Bar| bar.ratio.is_finite() && bar.ratio > 0.0;
        let largest = self.bars.iter().filter(drawable).map(|bar| bar.ratio).reduce(f64::max)?;
        let smallest = self.bars.iter().filter(drawable).map(|bar| bar.ratio).fold(1.0, f64::min);
        let scale = Scale::new((smallest.log10(), largest.max(2.0).log10()), (LEFT, RIGHT));
        let mut drawing = Drawing::new(0.0);
        drawing.text("title", Anchor::Start, (MARGIN, MARGIN + 12.0), &self.title);
        let mut y = MARGIN + 30.0;
        for group in self.bars.chunk_by(|left, right| left.group == right.group) {
            drawing.text("heading", Anchor::Start, (MARGIN, y + 12.0), &group[0].group);
            y += 20.0;
            for bar in group.iter().filter(drawable) {
                draw(&mut drawing, bar, scale, y);
                y += STEP;
            }
            y += 6.0;
        }
        let zero = scale.at(0.0);
        drawing.line("grid", (zero, MARGIN + 32.0), (zero, y - 6.0));
        for note in &self.notes {
            y += NOTE;
            drawing.text("tick", Anchor::Start, (MARGIN, y), note);
        }
        Some(page(&self.title, (WIDTH, y + MARGIN), &drawing.group_at((0.0, 0.0))))
    }
}

fn draw(drawing: &mut Drawing, bar: &Bar, scale: Scale, y: f64) {
    let (zero, end) = (scale.at(0.0), scale.at(bar.ratio.log10()));
    drawing.text("label", Anchor::End, (LEFT - 10.0, y + 13.0), &bar.label);
    drawing.rectangle("mark s0", (zero.min(end), y), ((end - zero).abs().max(1.0), BAR));
    let ratio = if bar.ratio < 10.0 { format!("{:.2}", bar.ratio) } else { format!("{:.0}", bar.ratio) };
    let said = format!("{ratio} × {}", bar.peer);
    drawing.text("label", Anchor::Start, (zero.max(end) + 6.0, y + 8.0), &said);
    drawing.text("tick", Anchor::Start, (zero.max(end) + 6.0, y + 19.0), &bar.times);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(ratio: f64) -> Bar {
        let [group, label, peer, times] = ["a", "b", "c < d", "1 ms, 2 ms"].map(str::to_owned);
        Bar { group, label, peer, ratio, times }
    }

    fn chart(ratios: &[f64]) -> BarChart {
        BarChart { title: "t".into(), bars: ratios.iter().copied().map(bar).collect(), notes: Vec::new() }
    }

    #[test]
    fn every_ratio_is_a_bar_and_text_is_no_markup() {
        let svg = chart(&[0.5, 3.0, 100.0]).svg().unwrap();
        assert_eq!(svg.matches(r#"class="mark s0""#).count(), 3);
        assert!(svg.contains("100 × c &lt; d") && svg.contains("0.50 × c"), "{svg}");
        assert!(svg.starts_with("<svg xmlns") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_to_draw_is_no_picture() {
        assert_eq!(chart(&[]).svg(), None);
        assert_eq!(chart(&[f64::NAN, 0.0]).svg(), None);
    }
}
