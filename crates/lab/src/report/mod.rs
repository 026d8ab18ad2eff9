//! The report: one HTML file with everything in it, readable on a telephone, on paper and in the dark.

mod bars;
mod charts;
mod distribution;
mod lines;
mod markup;
mod page;
mod roofline;
mod sections;
mod subject;
mod svg;
mod timeline;
mod training;

pub use bars::{Bar, BarChart};
pub use lines::{LineChart, Panel, Series};
pub use page::{Cell, Page, Part};
pub use training::TrainingRuns;

use crate::freshness::Freshness;
use crate::record::Record;
use subject::subjects;

/// Draws records as one HTML document. Of several records of a workload on a device, the newest that has a
/// part is shown, and the newest timeline of each private request. `freshness` says which are stale.
/// `training` are runs whose losses are drawn beside them.
pub fn html(
    records: &[Record],
    training: &[TrainingRuns],
    freshness: &dyn Fn(&Record) -> Freshness,
) -> String {
    let subjects = subjects(records);
    let sections = [
        sections::gates(&subjects, freshness),
        sections::performance(&subjects, freshness),
        sections::floors(&subjects),
        sections::peers(&subjects),
        sections::requests(records),
        sections::training(training),
        sections::tuning(&subjects),
        sections::profiles(&subjects),
    ];
    page::document(&subjects, &sections.concat())
}
