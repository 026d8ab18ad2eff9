//! Arithmetic circuits over M31 and QM31 with shared subexpressions.

use hashbrown::HashMap;
use num_traits::{One as _, Zero as _};
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::SecureField;

/// A node of a [`Graph`], by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u32);

impl Id {
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node computes. Names with `Secure` have values in QM31, the others in M31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A value of the trace: a column of an interaction, some rows ahead.
    Column {
        interaction: u32,
        column: u32,
        offset: i32,
    },
    /// A constant of the AIR.
    Constant(u32),
    Add(Id, Id),
    Sub(Id, Id),
    Mul(Id, Id),
    Neg(Id),
    Inverse(Id),
    /// A constant of the proof, as a challenge: graphs of two proofs differ in the value of the slot alone.
    SecureParameter(u32),
    /// An element of M31 in QM31.
    SecureLift(Id),
    /// Four coordinates.
    SecureCombine([Id; 4]),
    SecureAdd(Id, Id),
    SecureSub(Id, Id),
    SecureMul(Id, Id),
    SecureNeg(Id),
    /// A value of QM31 with one of M31.
    SecureAddBase(Id, Id),
    SecureMulBase(Id, Id),
}

impl Node {
    /// Whether its value is in QM31.
    pub(crate) fn is_secure(&self) -> bool {
        !matches!(
            self,
            Self::Column { .. }
                | Self::Constant(_)
                | Self::Add(..)
                | Self::Sub(..)
                | Self::Mul(..)
                | Self::Neg(_)
                | Self::Inverse(_)
        )
    }

    /// What it is computed from.
    pub(crate) fn operands(&self) -> impl Iterator<Item = Id> {
        let operands: [Option<Id>; 4] = match *self {
            Self::Column { .. } | Self::Constant(_) | Self::SecureParameter(_) => [None; 4],
            Self::Neg(a) | Self::Inverse(a) | Self::SecureLift(a) | Self::SecureNeg(a) => {
                [Some(a), None, None, None]
            }
            Self::Add(a, b)
            | Self::Sub(a, b)
            | Self::Mul(a, b)
            | Self::SecureAdd(a, b)
            | Self::SecureSub(a, b)
            | Self::SecureMul(a, b)
            | Self::SecureAddBase(a, b)
            | Self::SecureMulBase(a, b) => [Some(a), Some(b), None, None],
            Self::SecureCombine(all) => all.map(Some),
        };
        operands.into_iter().flatten()
    }

    /// The same operation on others, which are asked for in the order of [`Self::operands`].
    pub(crate) fn map_operands(&self, mut map: impl FnMut(Id) -> Id) -> Self {
        match *self {
            Self::Column { .. } | Self::Constant(_) | Self::SecureParameter(_) => *self,
            Self::Add(a, b) => Self::Add(map(a), map(b)),
            Self::Sub(a, b) => Self::Sub(map(a), map(b)),
            Self::Mul(a, b) => Self::Mul(map(a), map(b)),
            Self::Neg(a) => Self::Neg(map(a)),
            Self::Inverse(a) => Self::Inverse(map(a)),
            Self::SecureLift(a) => Self::SecureLift(map(a)),
            Self::SecureCombine(all) => Self::SecureCombine(all.map(map)),
            Self::SecureAdd(a, b) => Self::SecureAdd(map(a), map(b)),
            Self::SecureSub(a, b) => Self::SecureSub(map(a), map(b)),
            Self::SecureMul(a, b) => Self::SecureMul(map(a), map(b)),
            Self::SecureNeg(a) => Self::SecureNeg(map(a)),
            Self::SecureAddBase(a, b) => Self::SecureAddBase(map(a), map(b)),
            Self::SecureMulBase(a, b) => Self::SecureMulBase(map(a), map(b)),
        }
    }

    /// Whether the order of its two operands does not matter.
    pub(crate) fn is_commutative(&self) -> bool {
        matches!(self, Self::Add(..) | Self::Mul(..) | Self::SecureAdd(..) | Self::SecureMul(..))
    }
}

/// Numerator and denominator of a column of the interaction trace, summed over a batch of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub(crate) numerator: Id,
    pub(crate) denominator: Id,
}

/// The constraints of an AIR.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    known: HashMap<Node, Id>,
    /// The values of parameters in this proof.
    pub(crate) parameters: Vec<SecureField>,
    /// What is zero on every row, in order.
    pub(crate) constraints: Vec<Id>,
    /// The fractions of LogUp, in order.
    pub(crate) batches: Vec<Batch>,
}

impl Graph {
    /// The node with that number.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id.index()]
    }

    /// All nodes; operands come before what is computed from them.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of `node`, which is new only if it was not there.
    pub(crate) fn add(&mut self, node: Node) -> Id {
        let node = self.simplified(node);
        if let Some(found) = self.replaced(&node) {
            return found;
        }
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Id(self.nodes.len() as u32 - 1)
        })
    }

    /// A constant of M31.
    pub(crate) fn constant(&mut self, value: BaseField) -> Id {
        self.add(Node::Constant(value.0))
    }

    /// A constant of QM31: one of the AIR where it is zero or one, which is what AIRs write themselves, else of the proof.
    pub(crate) fn secure_constant(&mut self, value: SecureField) -> Id {
        if value.is_zero() || value.is_one() {
            let coordinate = self.constant(value.to_m31_array()[0]);
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

    fn value(&self, id: Id) -> Option<BaseField> {
        match *self.node(id) {
            Node::Constant(value) => Some(BaseField::from_u32_unchecked(value)),
            _ => None,
        }
    }

    fn lifted(&self, id: Id) -> Option<Id> {
        match *self.node(id) {
            Node::SecureLift(base) => Some(base),
            _ => None,
        }
    }

    fn is_zero(&self, id: Id) -> bool {
        self.value(self.lifted(id).unwrap_or(id)).is_some_and(|value| value.is_zero())
    }

    fn is_one(&self, id: Id) -> bool {
        self.value(self.lifted(id).unwrap_or(id)).is_some_and(|value| value.is_one())
    }

    /// The same value from constants that are known, and from M31 where QM31 is not needed.
    fn simplified(&mut self, node: Node) -> Node {
        let constants = |a, b| Some((self.value(a)?, self.value(b)?));
        let folded = match node {
            Node::Add(a, b) => constants(a, b).map(|(a, b)| a + b),
            Node::Sub(a, b) => constants(a, b).map(|(a, b)| a - b),
            Node::Mul(a, b) => constants(a, b).map(|(a, b)| a * b),
            Node::Neg(a) => self.value(a).map(|a| -a),
            _ => None,
        };
        if let Some(value) = folded {
            return Node::Constant(value.0);
        }
        match node {
            Node::SecureAdd(a, b) => match (self.lifted(a), self.lifted(b)) {
                (Some(a), Some(b)) => Node::SecureLift(self.add(Node::Add(a, b))),
                (Some(base), None) => Node::SecureAddBase(b, base),
                (None, Some(base)) => Node::SecureAddBase(a, base),
                (None, None) => ordered(a, b, Node::SecureAdd),
            },
            Node::SecureSub(a, b) => match (self.lifted(a), self.lifted(b)) {
                (Some(a), Some(b)) => Node::SecureLift(self.add(Node::Sub(a, b))),
                (None, Some(base)) => Node::SecureAddBase(a, self.add(Node::Neg(base))),
                _ if self.is_zero(a) => Node::SecureNeg(b),
                _ => node,
            },
            Node::SecureMul(a, b) => match (self.lifted(a), self.lifted(b)) {
                (Some(a), Some(b)) => Node::SecureLift(self.add(Node::Mul(a, b))),
                (Some(base), None) => Node::SecureMulBase(b, base),
                (None, Some(base)) => Node::SecureMulBase(a, base),
                (None, None) => ordered(a, b, Node::SecureMul),
            },
            Node::SecureNeg(a) => match self.lifted(a) {
                Some(base) => Node::SecureLift(self.add(Node::Neg(base))),
                None => node,
            },
            Node::SecureAddBase(a, b) => match self.lifted(a) {
                Some(base) => Node::SecureLift(self.add(Node::Add(base, b))),
                None => node,
            },
            Node::SecureMulBase(a, b) => match self.lifted(a) {
                Some(base) => Node::SecureLift(self.add(Node::Mul(base, b))),
                None if self.is_zero(b) => Node::SecureLift(b),
                None => node,
            },
            Node::Add(a, b) => ordered(a, b, Node::Add),
            Node::Mul(a, b) => ordered(a, b, Node::Mul),
            _ => node,
        }
    }

    /// An operand whose value is that of the node: of sums with zero and products with one.
    fn replaced(&self, node: &Node) -> Option<Id> {
        match *node {
            Node::Add(a, b) | Node::SecureAddBase(a, b) | Node::SecureAdd(a, b) if self.is_zero(b) => Some(a),
            Node::Add(a, b) if self.is_zero(a) => Some(b),
            Node::Sub(a, b) | Node::SecureSub(a, b) if self.is_zero(b) => Some(a),
            Node::Mul(a, b) if self.is_zero(b) || self.is_one(a) => Some(b),
            Node::Mul(a, b) if self.is_zero(a) || self.is_one(b) => Some(a),
            Node::SecureMulBase(a, b) if self.is_one(b) => Some(a),
            _ => None,
        }
    }
}

/// Sums and products do not depend on the order of their operands.
fn ordered(a: Id, b: Id, node: fn(Id, Id) -> Node) -> Node {
    if a <= b { node(a, b) } else { node(b, a) }
}
