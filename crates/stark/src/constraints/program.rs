//! Graphs in the order in which they are computed.

use hashbrown::HashMap;

use super::graph::{Graph, Id, Node};

/// What is done with a value once it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// Constraint number `.0` is added to the row's sum, with its coefficient.
    Constraint(u32),
    /// It is written to output number `.0`, a column of QM31.
    Output(u32),
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The node's value is computed.
    Compute(Id),
    /// It is used.
    Finish(Root, Id),
}

/// Steps that compute some roots of a graph, each node once and as late as its first use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
}

impl Program {
    /// The program for all of `roots`.
    pub(crate) fn new(graph: &Graph, roots: impl IntoIterator<Item = (Root, Id)>) -> Self {
        let mut order = Order::new(graph);
        for (root, id) in roots {
            order.finish(root, id);
        }
        Self { steps: order.steps }
    }

    /// Programs for all constraints, in order, of about `limit` nodes each. What two of them need, both compute.
    pub(crate) fn partitions(graph: &Graph, limit: usize) -> Vec<Self> {
        let mut programs = Vec::new();
        let mut order = Order::new(graph);
        for (index, &id) in graph.constraints.iter().enumerate() {
            if order.steps.len() >= limit {
                programs.push(Self { steps: std::mem::replace(&mut order, Order::new(graph)).steps });
            }
            order.finish(Root::Constraint(index as u32), constraint_value(graph, id));
        }
        programs.push(Self { steps: order.steps });
        programs
    }
}

/// The node whose value a constraint has: in M31 where it is one of M31.
pub(crate) fn constraint_value(graph: &Graph, id: Id) -> Id {
    match *graph.node(id) {
        Node::SecureLift(base) => base,
        _ => id,
    }
}

struct Order<'a> {
    graph: &'a Graph,
    done: Vec<bool>,
    steps: Vec<Step>,
}

impl<'a> Order<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, done: vec![false; graph.nodes().len()], steps: Vec::new() }
    }

    fn finish(&mut self, root: Root, id: Id) {
        self.compute(id);
        self.steps.push(Step::Finish(root, id));
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
            let operands: Vec<Id> = self.graph.node(id).operands().collect();
            pending.extend(operands.into_iter().rev().map(|operand| (operand, false)));
        }
    }
}

/// Where values live while they are needed: words of a thread's slots, used again once the last use has passed.
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
