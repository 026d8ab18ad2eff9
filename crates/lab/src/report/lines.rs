//! Lines over a logarithmic axis, in panels that share both: a file of its own, light or dark as its reader
//! is.

use super::svg::{Anchor, Drawing, Scale, WIDTH, escaped};

const STYLE: &str = include_str!("lines.css");

/// Space around and between panels.
const MARGIN: f64 = 20.0;
/// Panels beside each other.
const COLUMNS: usize = 2;
/// The frame of a panel's plot, in its own units.
const LEFT: f64 = 44.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 190.0;
const PANEL_HEIGHT: f64 = 232.0;
/// Colours and marks of ours, and of the peers after them; more series share them.
const OURS: usize = 2;
const PEERS: usize = 3;
/// Room of a letter, more than most take.
const LETTER: f64 = 6.4;

/// A chart of several panels, one beside and below the other.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    /// The heading, with the unit.
    pub title: String,
    /// The quantity along the logarithmic axis: `rows`.
    pub axis: String,
    /// The series, the first drawn last and so on top.
    pub series: Vec<Series>,
    /// The panels, from left to right and then down.
    pub panels: Vec<Panel>,
    /// Lines of text below.
    pub notes: Vec<String>,
}

/// One line with its points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Whether it is what the chart is about, rather than a peer.
    pub ours: bool,
}

/// One plot of a [`LineChart`].
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The heading.
    pub title: String,
    /// Points of each series of the chart, by x. Of several with one x, the line goes through the last.
    pub points: Vec<Vec<(f64, f64)>>,
}

impl LineChart {
    /// The chart as an SVG file; none without a point that can be drawn.
    pub fn svg(&self) -> Option<String> {
        let frame = Frame::around(self)?;
        let rows = self.panels.len().div_ceil(COLUMNS);
        let columns = self.panels.len().min(COLUMNS);
        let width = 2.0 * MARGIN + columns as f64 * WIDTH + (columns - 1) as f64 * MARGIN;
        let (legend, legend_height) = self.legend(width);
        let top = MARGIN + 28.0 + legend_height;
        let mut body = legend;
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, row) = (index % COLUMNS, index / COLUMNS);
            let at = (MARGIN + column as f64 * (WIDTH + MARGIN), top + row as f64 * PANEL_HEIGHT);
            body += &frame.draw(self, panel).group_at(at);
        }
        let below = top + rows as f64 * PANEL_HEIGHT;
        let notes = wrapped(&self.notes, ((width - 2.0 * MARGIN) / LETTER) as usize);
        let mut words = Drawing::new(0.0);
        for (line, note) in notes.iter().enumerate() {
            words.text("tick", Anchor::Start, (MARGIN, below + 14.0 * (line + 1) as f64), note);
        }
        body += &words.group_at((0.0, 0.0));
        let height = below + 14.0 * notes.len() as f64 + MARGIN;
        Some(page(&self.title, (width, height), &body))
    }

    /// The style of each series.
    fn styles(&self) -> Vec<usize> {
        let (mut ours, mut peers) = (0, 0);
        let style = |series: &Series| {
            let (count, first, styles) =
                if series.ours { (&mut ours, 0, OURS) } else { (&mut peers, OURS, PEERS) };
            *count += 1;
            first + (*count - 1) % styles
        };
        self.series.iter().map(style).collect()
    }

    /// The title and the names of the series, in as many lines as they need, and the height of those lines.
    fn legend(&self, width: f64) -> (String, f64) {
        let mut drawing = Drawing::new(0.0);
        drawing.text("title", Anchor::Start, (MARGIN, MARGIN + 12.0), &self.title);
        let (mut x, mut y) = (MARGIN, MARGIN + 34.0);
        for (series, style) in self.series.iter().zip(self.styles()) {
            let name = &series.name;
            let room = 34.0 + LETTER * name.chars().count() as f64;
            if x > MARGIN && x + room > width - MARGIN {
                (x, y) = (MARGIN, y + 18.0);
            }
            drawing.line(&format!("line s{style}"), (x, y - 4.0), (x + 22.0, y - 4.0));
            mark(&mut drawing, style, (x + 11.0, y - 4.0));
            drawing.text("label", Anchor::Start, (x + 28.0, y), name);
            x += room + 10.0;
        }
        (drawing.group_at((0.0, 0.0)), y - MARGIN - 12.0)
    }
}

/// A picture that is a file of its own.
pub(super) fn page(title: &str, (width, height): (f64, f64), body: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\"/>\n{body}\n</svg>\n"
    )
}

/// The axes that all panels share.
struct Frame {
    x: Scale,
    y: Scale,
    /// Where there are points.
    columns: Vec<f64>,
}

impl Frame {
    fn around(chart: &LineChart) -> Option<Self> {
        let points = chart.panels.iter().flat_map(|panel| panel.points.iter().flatten());
        let drawn: Vec<(f64, f64)> =
            points.copied().filter(|(x, y)| x.is_finite() && *x > 0.0 && y.is_finite()).collect();
        let highest = drawn.iter().map(|(_, y)| *y).reduce(f64::max).filter(|highest| *highest > 0.0)?;
        let mut columns: Vec<f64> = drawn.iter().map(|(x, _)| *x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let (first, last) = (columns.first()?.log2(), columns.last()?.log2());
        let pad = 0.04 * (last - first).max(1.0);
        Some(Self {
            x: Scale::new((first - pad, last + pad), (LEFT, RIGHT)),
            y: Scale::new((0.0, 1.06 * highest), (BOTTOM, TOP)),
            columns,
        })
    }

    fn draw(&self, chart: &LineChart, panel: &Panel) -> Drawing {
        let mut drawing = Drawing::new(PANEL_HEIGHT);
        drawing.text("heading", Anchor::Start, (LEFT, TOP - 12.0), &panel.title);
        for tick in self.y.ticks(6) {
            let y = self.y.at(tick);
            drawing.line("grid", (LEFT, y), (RIGHT, y));
            drawing.text("tick", Anchor::End, (LEFT - 6.0, y + 4.0), &format!("{tick}"));
        }
        let mut free_from = f64::NEG_INFINITY;
        for column in &self.columns {
            let x = self.x.at(column.log2());
            drawing.line("grid", (x, BOTTOM), (x, BOTTOM + 4.0));
            let name = format!("{column}");
            let half = LETTER * name.len() as f64 / 2.0;
            if x - half > free_from {
                drawing.text("tick", Anchor::Middle, (x, BOTTOM + 17.0), &name);
                free_from = x + half + 4.0;
            }
        }
        drawing.text("tick", Anchor::End, (RIGHT, BOTTOM + 32.0), &chart.axis);
        for (points, style) in panel.points.iter().zip(chart.styles()).rev() {
            let place = |(x, y): &(f64, f64)| (self.x.at(x.log2()), self.y.at(*y));
            let known = points.iter().filter(|(x, y)| *x > 0.0 && y.is_finite());
            let mut line: Vec<(f64, f64)> = Vec::new();
            for point in known.clone() {
                let at = place(point);
                line.pop_if(|last| last.0 == at.0);
                line.push(at);
            }
            if line.len() > 1 {
                drawing.path(&format!("line s{style}"), &line);
            }
            known.for_each(|point| mark(&mut drawing, style, place(point)));
        }
        drawing
    }
}

/// A mark that is told from the others without its colour.
fn mark(drawing: &mut Drawing, style: usize, (x, y): (f64, f64)) {
    let class = format!("mark s{style}");
    match style {
        0 => drawing.dot(&class, (x, y), 4.0),
        1 => drawing.dot(&format!("{class} hollow"), (x, y), 3.5),
        2 => drawing.rectangle(&class, (x - 3.5, y - 3.5), (7.0, 7.0)),
        3 => {
            let (left, right) = ((x - 4.5, y + 3.5), (x + 4.5, y + 3.5));
            drawing.path(&class, &[left, (x, y - 4.5), right, left]);
        }
        _ => drawing.path(&class, &[(x - 4.5, y), (x, y - 4.5), (x + 4.5, y), (x, y + 4.5), (x - 4.5, y)]),
    }
}

/// Lines of at most `most` letters, broken between words.
fn wrapped(lines: &[String], most: usize) -> Vec<String> {
    let mut wrapped: Vec<String> = Vec::new();
    for line in lines {
        let mut current = String::new();
        for word in line.split_whitespace() {
            if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > most {
                wrapped.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current += word;
        }
        wrapped.push(current);
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> LineChart {
        LineChart {
            title: "speed <of> things".into(),
            axis: "rows".into(),
            series: [("ours", true), ("theirs", false)]
                .map(|(name, ours)| Series { name: name.into(), ours })
                .to_vec(),
            panels: vec![Panel { title: "full".into(), points: vec![points, vec![(512.0, 300.0)]] }],
            notes: vec!["a note of several words".into()],
        }
    }

    #[test]
    fn a_line_goes_through_the_last_of_several_and_all_have_marks() {
        let svg = chart(vec![(512.0, 100.0), (512.0, 200.0), (4096.0, 600.0)]).svg().unwrap();
        assert_eq!(svg.matches(r#"class="mark s0""#).count(), 1 + 3, "the legend's and three");
        // One step of the path: from the second point at 512 to the one at 4096.
        let path = svg.split(r#"<path class="line s0" d=""#).nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (1, 1), "{path}");
        assert!(
            svg.contains("&lt;of&gt;") && svg.contains(">4096</text>") && svg.contains("a note of several")
        );
        assert!(svg.starts_with("<svg xmlns") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn what_is_no_number_is_not_drawn_and_nothing_is_no_chart() {
        let svg = chart(vec![(512.0, f64::NAN), (0.0, 5.0), (1024.0, 5.0)]).svg().unwrap();
        assert_eq!(svg.matches(r#"class="mark s0""#).count(), 1 + 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let mut empty = chart(Vec::new());
        empty.panels[0].points.clear();
        assert_eq!(empty.svg(), None);
    }

    #[test]
    fn notes_are_broken_between_words() {
        assert_eq!(wrapped(&["one two three".into(), "four".into()], 8), ["one two", "three", "four"]);
    }
}
