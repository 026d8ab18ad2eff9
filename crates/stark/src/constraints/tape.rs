//! What an AIR computes, operation by operation as it was written.
//!
//! To write an AIR down is quick, to find out what its operations share is not. Tapes of two proofs of one
//! AIR are the same but for the values of their parameters: the second finds by its key what was made from
//! the first.

use hashbrown::HashMap;
use num_traits::{One as _, Zero as _};
use stwo::core::fields::qm31::SecureField;

use super::graph::{Batch, Graph, Id, Node};

/// The operations of an AIR, in order. Operands are numbers of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
    /// The values of parameters in this proof.
    pub(crate) parameters: Vec<SecureField>,
    /// What is zero on every row, in order.
    pub(crate) constraints: Vec<Id>,
    /// The fractions of LogUp, in order.
    pub(crate) batches: Vec<Batch>,
}

/// A column of an interaction, some rows of the trace ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) interaction: u32,
    pub(crate) column: u32,
    pub(crate) offset: i32,
}

impl Tape {
    /// An empty one, with room for so many operations.
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Self { nodes: Vec::with_capacity(nodes), ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The operations.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Writes an operation down.
    pub(crate) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        Id::new(self.nodes.len() as u32 - 1)
    }

    /// A constant of QM31: one of the AIR where it is zero or one, which is what AIRs write themselves, else
    /// of the proof.
    pub(crate) fn secure_constant(&mut self, value: SecureField) -> Id {
        if value.is_zero() || value.is_one() {
            let coordinate = self.add(Node::Constant(value.to_m31_array()[0].0));
            return self.add(Node::SecureLift(coordinate));
        }
        let slot = self.parameters.iter().position(|&known| known == value);
        match slot {
            Some(slot) => self.add(Node::SecureParameter(slot as u32)),
            None => self.parameter(value),
        }
    }

    /// A constant of the proof with a slot of its own.
    pub(crate) fn parameter(&mut self, value: SecureField) -> Id {
        self.parameters.push(value);
        self.add(Node::SecureParameter(self.parameters.len() as u32 - 1))
    }

    /// Whether it was written as zero.
    pub(crate) fn is_zero(&self, id: Id) -> bool {
        match self.nodes[id.index()] {
            Node::Constant(value) => value == 0,
            Node::SecureLift(base) => self.is_zero(base),
            _ => false,
        }
    }

    /// The same for tapes that differ in values of parameters alone.
    pub(crate) fn key(&self) -> blake3::Hash {
        let ids = |ids: &[Id]| ids.iter().map(|id| id.index() as u32).collect::<Vec<u32>>();
        let batches = self.batches.iter().flat_map(|batch| [batch.numerator, batch.denominator]);
        let (constraints, batches) = (ids(&self.constraints), ids(&batches.collect::<Vec<_>>()));
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytemuck::cast_slice(&[self.nodes.len() as u64, constraints.len() as u64]));
        let words: Vec<[u32; 5]> = self.nodes.iter().map(Node::words).collect();
        hasher.update(bytemuck::cast_slice(&words));
        hasher.update(bytemuck::cast_slice(&constraints));
        hasher.update(bytemuck::cast_slice(&batches));
        hasher.finalize()
    }

    /// The constraints, on columns each of which is read at its own row alone.
    pub(crate) fn constraints_at_own_rows(&self) -> (Self, Vec<Read>) {
        self.at_own_rows(self.constraints.clone(), Vec::new())
    }

    /// The fractions, on columns each of which is read at its own row alone.
    pub(crate) fn fractions_at_own_rows(&self) -> (Self, Vec<Read>) {
        self.at_own_rows(Vec::new(), self.batches.clone())
    }

    /// The operations for these alone, on columns of interaction 0 that are read at their own rows; and what
    /// each of them is of this tape's.
    fn at_own_rows(&self, constraints: Vec<Id>, batches: Vec<Batch>) -> (Self, Vec<Read>) {
        let mut is_used = vec![false; self.nodes.len()];
        let roots = batches.iter().flat_map(|batch| [batch.numerator, batch.denominator]);
        roots.chain(constraints.iter().copied()).for_each(|id| is_used[id.index()] = true);
        // Operands come before what is computed from them.
        for (number, node) in self.nodes.iter().enumerate().rev() {
            if is_used[number] {
                node.operands().for_each(|operand| is_used[operand.index()] = true);
            }
        }
        let (mut reads, mut numbers) = (Vec::new(), HashMap::new());
        let own = |(node, &is_used): (&Node, &bool)| match *node {
            Node::Column { interaction, column, offset } if is_used => {
                let read = Read { interaction, column, offset };
                let number = *numbers.entry(read).or_insert_with(|| {
                    reads.push(read);
                    reads.len() as u32 - 1
                });
                Node::Column { interaction: 0, column: number, offset: 0 }
            }
            // Nobody asks for it.
            Node::Column { .. } => Node::Constant(0),
            other => other,
        };
        let nodes = self.nodes.iter().zip(&is_used).map(own).collect();
        (Self { nodes, parameters: self.parameters.clone(), constraints, batches }, reads)
    }

    /// What the operations share, found.
    pub(crate) fn graph(&self) -> Graph {
        let mut graph = Graph::with_capacity(self.nodes.len());
        let mut ids: Vec<Id> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let id = graph.add(node.map_operands(|operand| ids[operand.index()]));
            ids.push(id);
        }
        let of = |id: Id| ids[id.index()];
        graph.constraints = self.constraints.iter().map(|&id| of(id)).collect();
        let batch =
            |batch: &Batch| Batch { numerator: of(batch.numerator), denominator: of(batch.denominator) };
        graph.batches = self.batches.iter().map(batch).collect();
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::record;
    use super::super::synthetic::Blocks;
    use super::*;
    use crate::airs::{Air, Plonk};

    fn plonk(seed: u64, sum: u32) -> Tape {
        use stwo::core::channel::{Blake2sChannel, Channel as _};
        let channel = &mut Blake2sChannel::default();
        channel.mix_u64(seed);
        record(&Plonk { log_rows: 5 }.evals(channel)[0], SecureField::from_u32_unchecked(sum, 1, 2, 3))
    }

    #[test]
    fn keys_depend_on_the_air_and_not_on_challenges() {
        let (first, second) = (plonk(1, 5), plonk(2, 7));
        assert_eq!(first.key(), second.key());
        assert!(!first.parameters.is_empty() && first.parameters != second.parameters);
        let blocks = |odd_one| record(&Blocks { odd_one, ..Blocks::default() }, SecureField::default());
        assert_eq!(blocks(None).key(), blocks(None).key());
        assert_ne!(blocks(None).key(), blocks(Some(3)).key());
        let differing = Blocks { constants_differ: true, ..Blocks::default() };
        assert_ne!(blocks(None).key(), record(&differing, SecureField::default()).key());
    }

    #[test]
    fn equal_parameters_share_a_slot_and_change_the_key() {
        let tape = |second: u32| {
            let mut tape = Tape::default();
            let value = |first| SecureField::from_u32_unchecked(first, 2, 3, 4);
            let (a, b) = (tape.secure_constant(value(7)), tape.secure_constant(value(second)));
            let product = tape.add(Node::SecureMul(a, b));
            tape.constraints.push(product);
            tape
        };
        assert_eq!((tape(7).parameters.len(), tape(8).parameters.len()), (1, 2));
        assert_ne!(tape(7).key(), tape(8).key());
        assert_eq!(tape(8).key(), tape(9).key());
    }
}
