//! Graphs in the order in which they are computed.

use std::ops::Range;

use hashbrown::{HashMap, HashSet};

use super::graph::{Graph, Id, Node};

/// What is done with a value once it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// Constraint number `.0` is added to the row's sum, with its coefficient.
    Constraint(u32),
    /// It is written to output number `.0`, a column of QM31.
    Output(u32),
}

impl Root {
    /// Its number among those of its kind.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Constraint(number) | Self::Output(number) => number,
        }
    }

    /// The same, numbered from `first` on.
    pub(crate) fn after(self, first: u32) -> Self {
        match self {
            Self::Constraint(number) => Self::Constraint(number - first),
            Self::Output(number) => Self::Output(number - first),
        }
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The node's value is computed.
    Compute(Id),
    /// It is used.
    Finish(Root, Id),
}

impl Step {
    /// About how many operations of M31 it is.
    fn operations(self, graph: &Graph) -> usize {
        let node = |id: Id| graph.node(id);
        match self {
            Self::Compute(id) => match node(id) {
                Node::SecureAdd(..) | Node::SecureSub(..) | Node::SecureNeg(_) | Node::SecureMulBase(..) => 4,
                Node::SecureMul(..) => 16,
                Node::Inverse(_) => 38,
                _ => 1,
            },
            Self::Finish(Root::Constraint(_), id) if node(id).is_secure() => 16,
            Self::Finish(..) => 1,
        }
    }
}

/// Steps that compute some roots of a graph, each node once and as late as its first use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
}

impl Program {
    /// The program for all of `roots`.
    pub(crate) fn new(graph: &Graph, roots: &[(Root, Id)]) -> Self {
        Self::in_order(graph, roots, |id| graph.node(id).operands().collect())
    }

    /// The same, with the operands of a node computed in the order that `operands` gives.
    pub(crate) fn in_order(graph: &Graph, roots: &[(Root, Id)], operands: impl Fn(Id) -> Vec<Id>) -> Self {
        let mut order = Order::new(graph, operands);
        order.finish_all(roots);
        Self { steps: order.steps }
    }

    /// Programs of about `limit` each by `measure`, for groups of roots that stay together. What two of them
    /// need, both compute: a large group that is little more than what is already there is added to a program
    /// up to twice as long.
    pub(crate) fn partitions<'a>(
        graph: &Graph,
        groups: impl IntoIterator<Item = &'a [(Root, Id)]>,
        limit: usize,
        measure: Measure,
    ) -> Vec<Self> {
        let operands = |id: Id| graph.node(id).operands().collect();
        let mut programs = Vec::new();
        let mut order = Order::new(graph, operands);
        let mut length = 0;
        for group in groups {
            if length >= 2 * limit || length >= limit && !order.has_most_of(group, limit / 2) {
                let full = std::mem::replace(&mut order, Order::new(graph, operands));
                programs.push(Self { steps: full.steps });
                length = 0;
            }
            length += measure.of(graph, order.finish_all(group));
        }
        if !order.steps.is_empty() {
            programs.push(Self { steps: order.steps });
        }
        programs
    }

    /// Operations of one program for all groups before each of `groups`, and for all of them.
    pub(crate) fn lengths<'a>(
        graph: &Graph,
        groups: impl IntoIterator<Item = &'a [(Root, Id)]>,
    ) -> Vec<usize> {
        let mut order = Order::new(graph, |id| graph.node(id).operands().collect());
        let mut length = 0;
        let lengths = groups.into_iter().map(|group| {
            length += Measure::Operations.of(graph, order.finish_all(group));
            length
        });
        std::iter::once(0).chain(lengths).collect()
    }

    /// About how many operations of M31 it is.
    pub(crate) fn operations(&self, graph: &Graph) -> usize {
        Measure::Operations.of(graph, &self.steps)
    }

    /// How many roots it computes.
    pub(crate) fn roots(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Finish(..))).count()
    }
}

/// How long a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// In steps.
    Steps,
    /// In operations of M31, which is what a compiler sees.
    Operations,
}

impl Measure {
    fn of(self, graph: &Graph, steps: &[Step]) -> usize {
        match self {
            Self::Steps => steps.len(),
            Self::Operations => steps.iter().map(|step| step.operations(graph)).sum(),
        }
    }
}

/// All that is computed for a graph, in order. Roots are numbered from 0.
pub(crate) struct Roots {
    all: Vec<(Root, Id)>,
    /// Roots of a group: they are what one kernel computes.
    of_group: usize,
}

impl Roots {
    /// Every constraint.
    pub(crate) fn constraints(graph: &Graph) -> Self {
        let constraint = |(index, &id)| (Root::Constraint(index as u32), constraint_value(graph, id));
        Self { all: graph.constraints.iter().enumerate().map(constraint).collect(), of_group: 1 }
    }

    /// Numerator and denominator of every fraction: outputs 2 k and 2 k + 1.
    pub(crate) fn fractions(graph: &Graph) -> Self {
        let values = graph.batches.iter().flat_map(|batch| [batch.numerator, batch.denominator]);
        let output = |(index, id)| (Root::Output(index as u32), id);
        Self { all: values.enumerate().map(output).collect(), of_group: 2 }
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.all.len() / self.of_group
    }

    /// The roots of some groups.
    pub(crate) fn of(&self, groups: Range<usize>) -> &[(Root, Id)] {
        &self.all[groups.start * self.of_group..groups.end * self.of_group]
    }
}

/// The node whose value a constraint has: in M31 where it is one of M31.
pub(crate) fn constraint_value(graph: &Graph, id: Id) -> Id {
    match *graph.node(id) {
        Node::SecureLift(base) => base,
        _ => id,
    }
}

struct Order<F> {
    operands: F,
    done: Vec<bool>,
    steps: Vec<Step>,
}

impl<F: Fn(Id) -> Vec<Id>> Order<F> {
    fn new(graph: &Graph, operands: F) -> Self {
        Self { operands, done: vec![false; graph.nodes().len()], steps: Vec::new() }
    }

    /// The steps that were added.
    fn finish_all(&mut self, roots: &[(Root, Id)]) -> &[Step] {
        let before = self.steps.len();
        for &(root, id) in roots {
            self.compute(id);
            self.steps.push(Step::Finish(root, id));
        }
        &self.steps[before..]
    }

    /// Whether `roots` take `many` steps, three quarters of which are already done.
    fn has_most_of(&self, roots: &[(Root, Id)], many: usize) -> bool {
        let (mut seen, mut missing) = (HashSet::new(), 0);
        let mut pending: Vec<Id> = roots.iter().map(|&(_, id)| id).collect();
        while let Some(id) = pending.pop() {
            if seen.insert(id) {
                missing += usize::from(!self.done[id.index()]);
                pending.extend((self.operands)(id));
            }
        }
        seen.len() >= many && 4 * missing < seen.len()
    }

    /// Depth first, without recursion: an AIR may be deeper than the stack.
    fn compute(&mut self, id: Id) {
        let mut pending = vec![(id, false)];
        while let Some((id, operands_done)) = pending.pop() {
            if self.done[id.index()] {
                continue;
            }
            if operands_done {
                self.done[id.index()] = true;
                self.steps.push(Step::Compute(id));
                continue;
            }
            pending.push((id, true));
            pending.extend((self.operands)(id).into_iter().rev().map(|operand| (operand, false)));
        }
    }
}

/// Where values live while they are needed: words of a thread's slots, used again once the last use has
/// passed.
pub(crate) struct Slots {
    places: HashMap<Id, u32>,
    /// Words in all.
    pub(crate) count: u32,
}

impl Slots {
    /// Places for all values of `program`.
    pub(crate) fn new(graph: &Graph, program: &Program) -> Self {
        let uses = |step: &Step| -> Vec<Id> {
            match *step {
                Step::Compute(id) => graph.node(id).operands().collect(),
                Step::Finish(_, id) => vec![id],
            }
        };
        let mut last_use = HashMap::new();
        for (time, step) in program.steps.iter().enumerate() {
            last_use.extend(uses(step).into_iter().map(|id| (id, time)));
        }
        let (mut places, mut count) = (HashMap::new(), 0);
        // Free places, of one word and of four.
        let mut free = [Vec::new(), Vec::new()];
        let kind = |id: Id| usize::from(graph.node(id).is_secure());
        for (time, step) in program.steps.iter().enumerate() {
            if let Step::Compute(id) = *step {
                let place = free[kind(id)].pop().unwrap_or_else(|| {
                    let place = count;
                    count += [1, 4][kind(id)];
                    place
                });
                places.insert(id, place);
            }
            // After the result has its place: no kernel needs to read all operands before it writes.
            let mut ended: Vec<Id> = uses(step).into_iter().filter(|id| last_use[id] == time).collect();
            ended.sort_unstable();
            ended.dedup();
            for id in ended {
                free[kind(id)].push(places[&id]);
            }
        }
        Self { places, count }
    }

    /// The first word of a value.
    pub(crate) fn place(&self, id: Id) -> u32 {
        self.places[&id]
    }
}
