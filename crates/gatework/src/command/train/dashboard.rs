//! A run on a terminal: its curves with the forecast band, its phase, its ledger.

use std::io::{self, IsTerminal as _, Stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_foresight::engine::Event;
use gatework_foresight::forecast::{Curve, Method, forecast};
use gatework_foresight::optimiser::Schedule;
use gatework_foresight::run::{Evaluated, Listener, Stepped};
use gatework_foresight::{Error, Ledger, Phase};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::event::{Event as Input, KeyCode, KeyModifiers, poll, read};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use super::listen::line_of;
use crate::command::ending::Failure;

/// Between two frames, so that drawing takes no part of the training that one would notice.
const FRAME: Duration = Duration::from_millis(250);
/// Between two forecasts, which take some milliseconds.
const FORECAST: Duration = Duration::from_secs(2);
/// Steps before a forecast says anything.
const LEAST_STEPS: usize = 40;
/// Points that a curve is drawn with.
const POINTS: usize = 400;
/// Lines of what happened.
const LINES: usize = 6;

/// Whether there is a terminal to draw on.
pub(super) fn is_possible() -> bool {
    io::stderr().is_terminal() && io::stdin().is_terminal()
}

/// The terminal while the dashboard has it. However this ends, the terminal is as it was.
struct Screen(Terminal<CrosstermBackend<Stderr>>);

impl Screen {
    fn open() -> io::Result<Self> {
        // A panic is printed on the screen that the user sees.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let opened = execute!(io::stderr(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        opened.map(Self).inspect_err(|_| restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Nothing is left to do where the terminal itself is gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stderr(), LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
}

/// What is drawn.
struct View {
    schedule: Schedule,
    losses: Vec<f64>,
    averaged: Vec<(f64, f64)>,
    /// The loss that is forecast for the last step, with its band.
    end: Option<(f64, [f64; 2])>,
    phase: Phase,
    ledger: Ledger,
    lines: Vec<String>,
}

/// Draws a run. Ctrl-C, which a terminal in raw mode hands over as a key, raises `interrupt`.
pub(super) struct Dashboard {
    screen: Screen,
    view: View,
    interrupt: &'static AtomicBool,
    drawn: Instant,
    forecast: Instant,
}

impl Dashboard {
    pub(super) fn open(schedule: Schedule, interrupt: &'static AtomicBool) -> Result<Self, Failure> {
        let screen = Screen::open().map_err(|error| {
            Failure::input(format!("the terminal cannot be drawn on: {error}; use --lines"))
        })?;
        let now = Instant::now();
        Ok(Self { screen, view: View::new(schedule), interrupt, drawn: now, forecast: now })
    }

    fn keys(&self) {
        while poll(Duration::ZERO).unwrap_or(false) {
            if let Ok(Input::Key(key)) = read() {
                let interrupts =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupts {
                    self.interrupt.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Listener for Dashboard {
    fn stepped(&mut self, stepped: &Stepped<'_>) {
        self.view.take(stepped);
        if self.drawn.elapsed() < FRAME {
            return;
        }
        self.drawn = Instant::now();
        self.keys();
        if self.forecast.elapsed() >= FORECAST {
            self.forecast = self.drawn;
            self.view.foresee();
        }
        // A frame that cannot be drawn is not worth a run.
        let _ = self.view.draw(&mut self.screen.0);
    }

    fn evaluated(&mut self, evaluated: &Evaluated) {
        self.view.averaged.push((evaluated.step as f64, evaluated.averaged.loss));
    }

    fn happened(&mut self, step: u64, event: &Event) {
        self.view.say(line_of(step, event));
    }

    fn refused(&mut self, error: &Error) {
        self.view.say(Some(error.to_string()));
    }
}

impl View {
    fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            losses: Vec::new(),
            averaged: Vec::new(),
            end: None,
            phase: Phase::Warmup,
            ledger: Ledger::default(),
            lines: Vec::new(),
        }
    }

    fn say(&mut self, line: Option<String>) {
        self.lines.extend(line);
        let old = self.lines.len().saturating_sub(LINES);
        self.lines.drain(..old);
    }

    fn take(&mut self, stepped: &Stepped<'_>) {
        // After a rollback steps come again.
        self.losses.truncate(stepped.step as usize);
        self.losses.push(stepped.loss);
        self.averaged.retain(|(step, _)| *step <= stepped.step as f64 + 1.0);
        (self.phase, self.ledger) = (stepped.phase, *stepped.ledger);
    }

    /// The multi-power law, which knows the rates to come.
    fn foresee(&mut self) {
        self.end = None;
        if self.losses.len() < LEAST_STEPS {
            return;
        }
        let points = self.losses.iter().enumerate();
        let rate = |step: u64| self.schedule.rate(step);
        let curve =
            Curve::new(points.map(|(step, &loss)| (step as f64, loss.max(1e-12), Some(rate(step as u64)))));
        let ahead: Vec<(f64, f64)> =
            (self.losses.len() as u64..self.schedule.steps).map(|step| (step as f64, rate(step))).collect();
        let found = curve.and_then(|curve| forecast(&curve, (self.schedule.steps - 1) as f64, &ahead, &[]));
        let law = found.ok().and_then(|all| all.into_iter().find(|one| one.method == Method::MultiPowerLaw));
        self.end = law.and_then(|law| Some((law.expected, law.band?)));
    }

    fn draw<B: Backend>(&self, terminal: &mut Terminal<B>) -> io::Result<()> {
        terminal.draw(|frame| self.render(frame)).map(drop)
    }

    fn render(&self, frame: &mut Frame<'_>) {
        let heights = [Constraint::Min(8), Constraint::Length(7), Constraint::Length(LINES as u16 + 2)];
        let [chart, ledger, lines] = Layout::vertical(heights).areas(frame.area());
        self.render_chart(frame, chart);
        let header = ["phase", "steps", "seconds", "equivalents", "predictor seconds"];
        let rows = Phase::ALL.map(|phase| {
            let entry = self.ledger.of(phase);
            let row = Row::new([
                phase.name().to_owned(),
                entry.steps.to_string(),
                format!("{:.1}", entry.seconds),
                format!("{:.1}", entry.equivalents),
                format!("{:.2}", entry.predictor_seconds),
            ]);
            if phase == self.phase { row.style(Style::new().fg(Color::Yellow)) } else { row }
        });
        let table = Table::new(rows, [Constraint::Length(18); 5]).header(Row::new(header));
        frame.render_widget(table.block(Block::bordered().title("ledger")), ledger);
        let text: Vec<Line<'_>> = self.lines.iter().map(|line| Line::from(line.as_str())).collect();
        let title = "what happened; Ctrl-C saves and ends";
        frame.render_widget(Paragraph::new(text).block(Block::bordered().title(title)), lines);
    }

    fn render_chart(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        let log = |loss: f64| loss.max(1e-12).log10();
        let stretch = self.losses.len().div_ceil(POINTS).max(1);
        let training: Vec<(f64, f64)> = self
            .losses
            .chunks(stretch)
            .enumerate()
            .map(|(place, part)| {
                let mean = part.iter().sum::<f64>() / part.len() as f64;
                ((place * stretch) as f64, log(mean))
            })
            .filter(|(_, level)| level.is_finite())
            .collect();
        let averaged: Vec<(f64, f64)> = self.averaged.iter().map(|&(step, loss)| (step, log(loss))).collect();
        let steps = self.schedule.steps as f64;
        let now = training.last().copied().unwrap_or((0.0, 0.0));
        let band = self
            .end
            .map(|(expected, [low, high])| [low, expected, high].map(|loss| [now, (steps, log(loss))]));
        let band = band.unwrap_or_default();
        let levels = || {
            let ahead = band.iter().flatten().filter(|_| self.end.is_some());
            training.iter().chain(&averaged).chain(ahead).map(|(_, level)| *level)
        };
        let bounds = [levels().fold(f64::INFINITY, f64::min), levels().fold(f64::NEG_INFINITY, f64::max)];
        let bounds = if bounds[0] < bounds[1] { bounds } else { [-1.0, 1.0] };
        let line = |name: &'static str, points, color| {
            let style = Style::new().fg(color);
            Dataset::default()
                .name(name)
                .data(points)
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(style)
        };
        let mut datasets = vec![
            line("training loss", &training, Color::Gray),
            line("validation, averaged weights", &averaged, Color::Green),
        ];
        if self.end.is_some() {
            let names = ["90 % band, lower end", "forecast", "90 % band, upper end"];
            datasets.extend(names.iter().zip(&band).map(|(name, points)| line(name, points, Color::Cyan)));
        }
        let label = |level: f64| format!("{:.3e}", 10f64.powf(level));
        let title = format!("step {} of {}, {}", self.losses.len(), self.schedule.steps, self.phase.name());
        let chart = Chart::new(datasets)
            .hidden_legend_constraints((Constraint::Ratio(1, 1), Constraint::Ratio(1, 1)))
            .block(Block::bordered().title(title))
            .x_axis(Axis::default().bounds([0.0, steps]).labels(["0".to_owned(), format!("{steps}")]))
            .y_axis(Axis::default().bounds(bounds).labels(bounds.map(label)));
        frame.render_widget(chart, area);
    }
}

#[cfg(test)]
mod tests {
    use gatework_foresight::optimiser::Decay;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn curves_phase_ledger_and_events_are_on_the_screen() {
        let schedule =
            Schedule { peak: 1e-3, warmup: 10, decay: Decay::Linear, decay_share: 0.2, steps: 400 };
        let mut view = View::new(schedule);
        let mut ledger = Ledger::default();
        ledger.of_mut(Phase::Full).steps = 123;
        for step in 0..120u64 {
            let loss = 2.0 / (step + 1) as f64;
            view.take(&Stepped { step, loss, phase: Phase::Full, ledger: &ledger });
        }
        // A rollback: steps come again.
        view.take(&Stepped { step: 100, loss: 0.02, phase: Phase::Full, ledger: &ledger });
        assert_eq!(view.losses.len(), 101);
        view.averaged.push((100.0, 0.05));
        view.foresee();
        assert!(view.end.is_some_and(|(expected, [low, high])| low <= expected && expected <= high));
        view.say(Some("step 100: rolled back".into()));
        let mut terminal = Terminal::new(TestBackend::new(100, 32)).unwrap();
        view.draw(&mut terminal).unwrap();
        let screen: String = terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect();
        for wanted in
            ["step 101 of 400, full", "123", "training loss", "forecast", "rolled back", "predictor seconds"]
        {
            assert!(screen.contains(wanted), "{wanted}");
        }
        // Without anything there is nothing to draw, and that is drawn.
        View::new(schedule).draw(&mut terminal).unwrap();
    }
}
