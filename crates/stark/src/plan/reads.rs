//! What components read of their columns.

use stwo::core::air::Component;
use stwo::core::circle::CirclePoint;
use stwo::core::fields::qm31::SecureField;
use stwo_constraint_framework::{
    FrameworkEval, INTERACTION_TRACE_IDX, InfoEvaluator, ORIGINAL_TRACE_IDX, PREPROCESSED_TRACE_IDX,
};

/// What a component reads, for its fractions and for its constraints.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    pub(crate) log_rows: u32,
    /// Reads of columns at their own row: those of preprocessed columns and the trace, and those of the
    /// interaction trace.
    pub(crate) own: [u64; 2],
    /// The same of rows that are ahead.
    pub(crate) ahead: [u64; 2],
    /// Columns that are read of the first, and all of its interaction trace.
    pub(crate) columns: u64,
    pub(crate) interaction: u64,
}

impl Reads {
    /// Those of `eval`.
    pub(crate) fn of(eval: &impl FrameworkEval) -> Self {
        let info = eval.evaluate(InfoEvaluator::new(eval.log_size(), Vec::new(), SecureField::default()));
        let offsets = info.mask_offsets.iter().map(|tree| tree.iter().map(Vec::as_slice).collect()).collect();
        let preprocessed = info.preprocessed_columns.len() as u64;
        Self::at(eval.log_size(), preprocessed, offsets, |&offset| offset == 0)
    }

    /// Those of a component of which no more is known than where it is sampled.
    pub(crate) fn of_component(component: &dyn Component) -> Self {
        let log_rows = component.trace_log_degree_bounds().iter().flatten().copied().max().unwrap_or(1);
        let point = CirclePoint::<SecureField>::zero();
        let points = component.mask_points(point, log_rows);
        let offsets = points.iter().map(|tree| tree.iter().map(Vec::as_slice).collect()).collect();
        let preprocessed = component.preprocessed_column_indices().len() as u64;
        Self::at(log_rows, preprocessed, offsets, |&read| read == point)
    }

    /// By where the columns of each tree are read.
    fn at<T>(log_rows: u32, preprocessed: u64, trees: Vec<Vec<&[T]>>, is_own: impl Fn(&T) -> bool) -> Self {
        let mut reads =
            Self { log_rows, own: [preprocessed, 0], ahead: [0; 2], columns: preprocessed, interaction: 0 };
        for (tree, columns) in trees.iter().enumerate().skip(PREPROCESSED_TRACE_IDX + 1) {
            let place = usize::from(tree > ORIGINAL_TRACE_IDX);
            let own = columns.iter().copied().flatten().filter(|read| is_own(read)).count() as u64;
            reads.own[place] += own;
            reads.ahead[place] += columns.iter().map(|reads| reads.len() as u64).sum::<u64>() - own;
            match tree {
                ORIGINAL_TRACE_IDX => reads.columns += columns.len() as u64,
                INTERACTION_TRACE_IDX => reads.interaction = columns.len() as u64,
                _ => (),
            }
        }
        reads
    }

    /// Chunks of columns that are brought for a chunk of rows. Even and odd rows that are ahead are in two;
    /// the own row is in one.
    pub(crate) fn brought(&self) -> u64 {
        self.own.iter().sum::<u64>() + 2 * self.all_ahead()
    }

    /// Those of so many chunks of each column that are brought to one of several devices, which has so many of
    /// the first columns itself, read at their own row. An interaction trace may be on another.
    pub(crate) fn brought_among(&self, chunks: u64, there: u64) -> u64 {
        let before = (self.own[0] - there + 2 * self.ahead[0]).min((self.columns - there) * chunks);
        before + (self.own[1] + 2 * self.ahead[1]).min(self.interaction * chunks)
    }

    /// Chunks into which rows that are ahead are put.
    pub(crate) fn all_ahead(&self) -> u64 {
        self.ahead.iter().sum()
    }

    /// Pages that are in the window where the component's columns are streamed: those of one chunk, rows that
    /// are ahead of its own and what is computed from it; and those of the next chunk. Numerators and
    /// denominators have four coordinates each.
    pub(crate) fn pages(&self) -> u64 {
        2 * self.brought() + self.all_ahead() + 2 * self.interaction
    }
}
