//! Repetition in a sequence of constraints.
//!
//! An AIR with a loop records the body once for every turn. Where groups of roots repeat with a period, the
//! sequence is cut at multiples of it, so that one kernel serves all turns.

use std::ops::Range;

use hashbrown::HashMap;

use super::graph::Graph;
use super::program::{Measure, Program, Roots};
use super::shape::{Pattern, Shape, Shapes};

/// Groups of roots that are the same pattern again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The first group.
    pub(crate) first: usize,
    /// Groups of one instance.
    pub(crate) groups: usize,
    /// Instances.
    pub(crate) count: usize,
}

impl Stretch {
    /// All its groups.
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.groups * self.count
    }

    /// The groups `part` of every instance.
    pub(crate) fn parts(&self, part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (first, groups) = (self.first, self.groups);
        (0..self.count)
            .map(move |instance| first + instance * groups)
            .map(move |first| first + part.start..first + part.end)
    }
}

/// Operations that may be done twice because of the cuts, of a hundred.
const REPEATED_PERCENT: usize = 5;
/// Longest period that is looked for, in groups.
const LONGEST_PERIOD: usize = 8192;
/// Candidates that are tried for one range before it is left as it is.
const ATTEMPTS: usize = 24;
/// Places of the first cut that are tried for one candidate.
const PHASES: usize = 32;

/// Lengths of kernels that are tried, from half of the limit on.
const CUTS: usize = 100;
/// Operations that take as long as the sum of a row that every kernel reads and writes.
const OPERATIONS_OF_LAUNCH: usize = 50;

/// Groups that repeat by their forms alone.
#[derive(Debug, Clone)]
struct Run {
    range: Range<usize>,
    period: usize,
}

impl Run {
    fn periods(&self) -> usize {
        self.range.len() / self.period
    }
}

/// Stretches of the groups of some roots, where kernels have about `limit` operations.
pub(crate) struct Search<'a> {
    graph: &'a Graph,
    roots: &'a Roots,
    shapes: &'a Shapes<'a>,
    limit: usize,
    /// A number for the forms of each group's values.
    forms: Vec<usize>,
    /// Operations up to each group, if all are done by one program.
    operations_before: Vec<usize>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(graph: &'a Graph, roots: &'a Roots, shapes: &'a Shapes<'a>, limit: usize) -> Self {
        let groups = 0..roots.groups();
        let mut known: HashMap<Vec<Shape>, usize> = HashMap::new();
        let form = |group| {
            let form = roots.of(group..group + 1).iter().map(|&(_, id)| shapes.of(id)).collect();
            let next = known.len();
            *known.entry(form).or_insert(next)
        };
        let alone = groups.clone().map(|group| roots.of(group..group + 1));
        let operations_before = Program::lengths(graph, alone);
        Self { graph, roots, shapes, limit, forms: groups.map(form).collect(), operations_before }
    }

    /// All stretches, in order. What fits into one kernel is left alone.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let mut found = Vec::new();
        let all = 0..self.roots.groups();
        let mut pending = vec![all];
        while let Some(range) = pending.pop() {
            if let Some(stretch) = self.best(&range) {
                let covered = stretch.range();
                pending.extend([range.start..covered.start, covered.end..range.end]);
                found.push(stretch);
            }
        }
        found.sort_by_key(|stretch| stretch.first);
        found
    }

    /// The stretch of a range that saves most.
    fn best(&self, range: &Range<usize>) -> Option<Stretch> {
        if self.cut(range.clone(), self.limit).len() < 2 {
            return None;
        }
        let mut runs = self.runs(range);
        runs.sort_by_key(|run| (std::cmp::Reverse(self.saved(run)), run.period));
        runs.iter().take(ATTEMPTS).find_map(|run| self.fit(run))
    }

    /// All that repeats by form and is worth more than half a kernel.
    fn runs(&self, range: &Range<usize>) -> Vec<Run> {
        let mut runs = Vec::new();
        for period in 1..=(range.len() / 2).min(LONGEST_PERIOD) {
            let mut start = range.start;
            for at in range.start..=range.end - period {
                if at + period < range.end && self.forms[at] == self.forms[at + period] {
                    continue;
                }
                let run = Run { range: start..at + period, period };
                if run.periods() > 1 && self.saved(&run) > self.limit / 2 {
                    runs.push(run);
                }
                start = at + 1;
            }
        }
        runs
    }

    fn operations(&self, groups: Range<usize>) -> usize {
        self.operations_before[groups.end] - self.operations_before[groups.start]
    }

    /// Operations that need not be compiled if all but one period of the run go.
    fn saved(&self, run: &Run) -> usize {
        self.operations(run.range.start + run.period..run.range.end)
    }

    /// Operations of a program of its own for some groups.
    fn alone(&self, groups: Range<usize>) -> usize {
        Program::new(self.graph, self.roots.of(groups)).operations(self.graph)
    }

    /// A stretch of that run whose instances have the same pattern and do not compute much twice.
    fn fit(&self, run: &Run) -> Option<Stretch> {
        let groups = run.period * self.periods_of_instance(run)?;
        let slack = run.range.len() % run.period;
        let starts = (0..=slack).step_by(slack / PHASES + 1).map(|phase| run.range.start + phase);
        let first = starts.min_by_key(|&start| self.alone(start..start + groups))?;
        let whole = Stretch { first, groups, count: (run.range.end - first) / groups };
        let stretch = self.same_pattern(&whole)?;

        let pieces = self.pieces(&stretch);
        let first = stretch.first;
        let once: usize = pieces.iter().map(|piece| self.alone(first + piece.start..first + piece.end)).sum();
        let before: usize =
            self.cut(stretch.range(), self.limit).iter().map(|part| self.alone(part.clone())).sum();
        let worth_it = before > once + self.limit / 2;
        (worth_it && once * stretch.count * 100 <= before * (100 + REPEATED_PERCENT)).then_some(stretch)
    }

    /// How many periods an instance has: few, so that little is compiled, but enough that little is computed
    /// twice and that a turn of the kernel's loop is much work.
    fn periods_of_instance(&self, run: &Run) -> Option<usize> {
        let of = |periods: usize| self.alone(run.range.start..run.range.start + periods * run.period);
        let (one, two) = (of(1), of(2));
        let each = two.saturating_sub(one).max(1);
        let periods = run.periods();
        let at_most = self.alone(run.range.clone()) * (100 + REPEATED_PERCENT) / 100;
        let least = self.limit / 5;
        let candidates = (1..=periods / 2).filter_map(|k| {
            let instance = one + (k - 1) * each;
            let (count, left) = (periods / k, periods % k * each);
            let all = instance * count + left;
            let fits = k == 1 || instance <= self.limit;
            (instance >= least && fits && all <= at_most).then_some((instance + left, k))
        });
        candidates.min().map(|(_, k)| k)
    }

    /// The longest part of a stretch whose instances have one pattern.
    fn same_pattern(&self, whole: &Stretch) -> Option<Stretch> {
        let pattern = |groups: Range<usize>| Pattern::new(self.shapes, self.roots.of(groups)).0;
        let patterns: Vec<Pattern> = whole.parts(0..whole.groups).map(pattern).collect();
        let mut best = 0..1;
        let mut start = 0;
        for at in 0..patterns.len() {
            if patterns[at] != patterns[start] {
                start = at;
            }
            if at + 1 - start > best.len() {
                best = start..at + 1;
            }
        }
        let first = whole.first + best.start * whole.groups;
        (best.len() > 1).then_some(Stretch { first, count: best.len(), ..*whole })
    }

    /// Groups that one program each of about `limit` operations computes.
    fn cut(&self, groups: Range<usize>, limit: usize) -> Vec<Range<usize>> {
        let alone = groups.clone().map(|group| self.roots.of(group..group + 1));
        let mut start = groups.start;
        let mut parts = Vec::new();
        for program in Program::partitions(self.graph, alone, limit, Measure::Operations) {
            let end = start + program.roots() / self.roots.of(0..1).len();
            parts.push(start..end);
            start = end;
        }
        parts
    }

    /// The parts of an instance that one kernel each computes, cut where little is computed twice; groups are
    /// counted from its first.
    pub(crate) fn pieces(&self, stretch: &Stretch) -> Vec<Range<usize>> {
        let instance = stretch.first..stretch.first + stretch.groups;
        let limits = (CUTS / 2..=CUTS).rev().map(|part| (self.limit * part / CUTS).max(1));
        let cuts = limits.map(|limit| self.cut(instance.clone(), limit));
        let operations = |cut: &Vec<Range<usize>>| {
            cut.iter().map(|part| self.alone(part.clone()) + OPERATIONS_OF_LAUNCH).sum::<usize>()
        };
        let best = cuts.min_by_key(operations).unwrap_or_default();
        best.into_iter().map(|part| part.start - stretch.first..part.end - stretch.first).collect()
    }
}
