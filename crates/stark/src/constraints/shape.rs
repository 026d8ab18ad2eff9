//! Parts of a graph up to their columns, constants and parameters: where these agree, one text serves both.

use std::cmp::{Ordering, Reverse};
use std::hash::{Hash, Hasher};

use hashbrown::HashMap;

use super::graph::{Graph, Id, Node};
use super::program::{Program, Root, Step};

/// The form of every node, and an order of operands that equal parts have in common. Graphs order the
/// operands of sums and products by number, which depends on what was there before.
pub(crate) struct Shapes<'a> {
    graph: &'a Graph,
    shapes: Vec<Shape>,
    operands: Vec<Vec<Id>>,
}

/// Nodes of the same form mostly have equal ones. In order: what is deep comes first, so that few values
/// wait; constants come last, because two copies may differ in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shape {
    depth: Reverse<u32>,
    is_constant: bool,
    hash: u64,
}

impl<'a> Shapes<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let mut shapes = Self { graph, shapes: Vec::new(), operands: Vec::new() };
        for node in graph.nodes() {
            let mut operands: Vec<Id> = node.operands().collect();
            if node.is_commutative() {
                operands.sort_by(|&a, &b| shapes.compare(a, b));
            }
            let shape = shapes.shape(node, &operands);
            shapes.shapes.push(shape);
            shapes.operands.push(operands);
        }
        shapes
    }

    /// The form of a value, with its columns, constants and parameters left open.
    pub(crate) fn of(&self, id: Id) -> Shape {
        self.shapes[id.index()]
    }

    fn shape(&self, node: &Node, operands: &[Id]) -> Shape {
        let open = match *node {
            Node::Column { offset, .. } => Node::Column { interaction: 0, column: 0, offset },
            Node::Constant(_) => Node::Constant(0),
            Node::SecureParameter(_) => Node::SecureParameter(0),
            _ => node.map_operands(|_| Id::new(0)),
        };
        let mut hasher = Fnv::default();
        open.hash(&mut hasher);
        operands.iter().for_each(|&id| self.of(id).hash(&mut hasher));
        let depth = operands.iter().map(|&id| self.of(id).depth.0 + 1).max().unwrap_or(0);
        let is_constant = matches!(node, Node::Constant(_) | Node::SecureParameter(_));
        Shape { depth: Reverse(depth), is_constant, hash: hasher.finish() }
    }

    /// By form, then by the first leaf that differs. Never equal for two nodes: a graph has each once.
    fn compare(&self, mut a: Id, mut b: Id) -> Ordering {
        while a != b {
            let by_shape = self.of(a).cmp(&self.of(b));
            if by_shape != Ordering::Equal {
                return by_shape;
            }
            let pairs = || self.operands[a.index()].iter().zip(&self.operands[b.index()]);
            let Some((&in_a, &in_b)) = pairs().find(|(in_a, in_b)| in_a != in_b) else {
                return leaf(self.graph.node(a)).cmp(&leaf(self.graph.node(b)));
            };
            (a, b) = (in_a, in_b);
        }
        Ordering::Equal
    }
}

fn leaf(node: &Node) -> (u32, u32, i32) {
    match *node {
        Node::Column { interaction, column, offset } => (interaction, column, offset),
        Node::Constant(value) => (value, 0, 0),
        Node::SecureParameter(slot) => (slot, 0, 0),
        _ => (0, 0, 0),
    }
}

/// A program with its columns, constants, parameters and roots numbered by first use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Columns are of interaction 0. Values of constants are numbers into [`Leaves::constants`].
    nodes: Vec<Node>,
    pub(crate) steps: Vec<Step>,
}

/// What a pattern leaves open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaves {
    /// By interaction and number.
    pub(crate) columns: Vec<(u32, u32)>,
    pub(crate) constants: Vec<u32>,
    /// Slots.
    pub(crate) parameters: Vec<u32>,
    /// The number of the first root.
    pub(crate) first_root: u32,
}

impl Pattern {
    /// The pattern of `roots`, which are consecutive, and what it leaves open.
    pub(crate) fn new(shapes: &Shapes<'_>, roots: &[(Root, Id)]) -> (Self, Leaves) {
        let program = Program::in_order(shapes.graph, roots, |id| shapes.operands[id.index()].clone());
        let mut leaves = Leaves { first_root: roots[0].0.number(), ..Leaves::default() };
        let mut nodes = Vec::new();
        let mut known: HashMap<Id, Id> = HashMap::new();
        let mut numbers = HashMap::new();
        let steps = program.steps.iter().map(|step| match *step {
            Step::Finish(root, id) => Step::Finish(root.after(leaves.first_root), known[&id]),
            Step::Compute(id) => {
                let node = match *shapes.graph.node(id) {
                    Node::Column { interaction, column, offset } => {
                        let column = *numbers.entry((interaction, column)).or_insert_with(|| {
                            leaves.columns.push((interaction, column));
                            leaves.columns.len() as u32 - 1
                        });
                        Node::Column { interaction: 0, column, offset }
                    }
                    Node::Constant(value) => {
                        leaves.constants.push(value);
                        Node::Constant(leaves.constants.len() as u32 - 1)
                    }
                    Node::SecureParameter(slot) => {
                        leaves.parameters.push(slot);
                        Node::SecureParameter(leaves.parameters.len() as u32 - 1)
                    }
                    ref node => {
                        let mut operands = shapes.operands[id.index()].iter().map(|operand| known[operand]);
                        node.map_operands(|_| operands.next().expect("as many operands as before"))
                    }
                };
                let number = Id::new(nodes.len() as u32);
                nodes.push(node);
                known.insert(id, number);
                Step::Compute(number)
            }
        });
        let steps = steps.collect();
        (Self { nodes, steps }, leaves)
    }

    /// The node with that number.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id.index()]
    }
}

/// FNV-1a: the order of operands is part of a kernel's text, which must be the same in every process.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(graph: &mut Graph, column: u32) -> Id {
        graph.add(Node::Column { interaction: 1, column, offset: 0 })
    }

    /// (a + constant) b - last, where the constant comes before or after the columns.
    fn value(graph: &mut Graph, [a, b, last]: [u32; 3], constant: u32) -> Id {
        let [a, b, last] = [a, b, last].map(|number| column(graph, number));
        let constant = graph.add(Node::Constant(constant));
        let sum = graph.add(Node::Add(a, constant));
        let product = graph.add(Node::Mul(sum, b));
        graph.add(Node::Sub(product, last))
    }

    fn pattern(graph: &Graph, id: Id) -> (Pattern, Leaves) {
        Pattern::new(&Shapes::new(graph), &[(Root::Constraint(3), id)])
    }

    #[test]
    fn copies_on_other_columns_have_one_pattern() {
        let graph = &mut Graph::default();
        let first = value(graph, [0, 1, 2], 7);
        // Its constant has a smaller number than its columns, and b than a.
        let copy = value(graph, [5, 1, 4], 7);
        let other_constant = value(graph, [6, 8, 7], 9);
        let (expected, leaves) = pattern(graph, first);
        assert_eq!(leaves.columns, [(1, 0), (1, 1), (1, 2)]);
        assert_eq!((leaves.constants, leaves.first_root), (vec![7], 3));
        let (found, leaves) = pattern(graph, copy);
        assert_eq!((found == expected, leaves.columns), (true, vec![(1, 5), (1, 1), (1, 4)]));
        let (found, leaves) = pattern(graph, other_constant);
        assert_eq!((found == expected, leaves.constants), (true, vec![9]));
    }

    #[test]
    fn what_computes_something_else_has_another_pattern() {
        let graph = &mut Graph::default();
        let first = value(graph, [0, 1, 2], 7);
        // A column that is used twice, and another operation on the same leaves.
        let twice = value(graph, [3, 4, 3], 7);
        let Node::Sub(product, last) = *graph.node(first) else { unreachable!() };
        let added = graph.add(Node::Add(product, last));
        let ahead = graph.add(Node::Column { interaction: 1, column: 2, offset: 1 });
        let of_next_row = graph.add(Node::Sub(product, ahead));
        for other in [twice, added, of_next_row] {
            assert!(pattern(graph, other).0 != pattern(graph, first).0);
        }
    }

    /// Two constants of one may be a single one of the other.
    #[test]
    fn constants_are_the_same_where_they_are_the_same_in_the_copy() {
        let graph = &mut Graph::default();
        let mut product = |a: u32, b: u32| {
            let terms = [(0, a), (1, b)].map(|(number, constant)| {
                let (column, constant) = (column(graph, number), graph.add(Node::Constant(constant)));
                graph.add(Node::Mul(column, constant))
            });
            graph.add(Node::Sub(terms[0], terms[1]))
        };
        let (differ, swapped, same) = (product(5, 7), product(7, 5), product(5, 5));
        assert!(pattern(graph, differ).0 == pattern(graph, swapped).0);
        assert!(pattern(graph, differ).0 != pattern(graph, same).0);
    }
}
