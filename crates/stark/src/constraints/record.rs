//! An `EvalAtRow` that records what an AIR computes.

use std::cell::RefCell;
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub};
use std::sync::atomic::{AtomicUsize, Ordering};

use itertools::Itertools as _;
use num_traits::{One, Zero};
use stwo::core::Fraction;
use stwo::core::fields::FieldExpOps;
use stwo::core::fields::m31::BaseField;
use stwo::core::fields::qm31::{SECURE_EXTENSION_DEGREE, SecureField};
use stwo_constraint_framework::{EvalAtRow, FrameworkEval, INTERACTION_TRACE_IDX};

use super::graph::{Batch, Id, Node};
use super::tape::Tape;

thread_local! {
    /// What symbols of this thread are written down on: `Zero` and `From` know no evaluator to ask.
    static TAPE: RefCell<Tape> = RefCell::default();
}

/// Operations of the longest tape so far.
static LONGEST: AtomicUsize = AtomicUsize::new(0);

/// What `eval` computes on every row, for a component whose fractions sum up to `claimed_sum`.
pub(crate) fn record<E: FrameworkEval>(eval: &E, claimed_sum: SecureField) -> Tape {
    // Room for as much as the longest so far: to grow takes as long as to record. What a recording that
    // panicked may have left goes.
    TAPE.set(Tape::with_capacity(LONGEST.load(Ordering::Relaxed)));
    let shift = claimed_sum / BaseField::from_u32_unchecked(1 << eval.log_size());
    eval.evaluate(Recorder { columns: Vec::new(), fractions: Vec::new(), shift });
    let tape = TAPE.take();
    LONGEST.fetch_max(tape.len(), Ordering::Relaxed);
    tape
}

/// Integer operations that all constraints of `eval` take on one row, at least: for floors.
#[cfg(feature = "lab")]
pub fn row_operations<E: FrameworkEval>(eval: &E) -> u64 {
    let graph = record(eval, SecureField::zero()).graph();
    let node = |node: &Node| match node {
        Node::Add(..) | Node::Sub(..) | Node::Neg(_) | Node::SecureAddBase(..) => 3,
        Node::Mul(..) => 5,
        Node::Inverse(_) => 190,
        Node::SecureAdd(..) | Node::SecureSub(..) | Node::SecureNeg(_) => 12,
        Node::SecureMul(..) => 40,
        Node::SecureMulBase(..) => 20,
        _ => 0,
    };
    let constraint = |id: &Id| if matches!(graph.node(*id), Node::SecureLift(_)) { 12 } else { 40 };
    let operations = graph.nodes().iter().map(node).sum::<u64>();
    operations + graph.constraints.iter().map(constraint).sum::<u64>()
}

fn add(node: Node) -> Id {
    TAPE.with_borrow_mut(|tape| tape.add(node))
}

/// A value of M31.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base(Id);

/// A value of QM31.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secure(Id);

impl From<BaseField> for Base {
    fn from(value: BaseField) -> Self {
        Self(add(Node::Constant(value.0)))
    }
}

impl From<SecureField> for Secure {
    fn from(value: SecureField) -> Self {
        Self(TAPE.with_borrow_mut(|tape| tape.secure_constant(value)))
    }
}

impl From<Base> for Secure {
    fn from(value: Base) -> Self {
        Self(add(Node::SecureLift(value.0)))
    }
}

macro_rules! binary {
    ($($trait:ident::$method:ident($left:ty, $right:ty) -> $output:ident = |$a:ident, $b:ident| $value:expr;)*) => {$(
        impl $trait<$right> for $left {
            type Output = $output;
            fn $method(self, right: $right) -> $output {
                let ($a, $b) = (self, right);
                $value
            }
        }
    )*};
}

binary! {
    Add::add(Base, Base) -> Base = |a, b| Base(add(Node::Add(a.0, b.0)));
    Sub::sub(Base, Base) -> Base = |a, b| Base(add(Node::Sub(a.0, b.0)));
    Mul::mul(Base, Base) -> Base = |a, b| Base(add(Node::Mul(a.0, b.0)));
    Mul::mul(Base, BaseField) -> Base = |a, b| a * Base::from(b);
    Add::add(Base, SecureField) -> Secure = |a, b| Secure::from(b) + a;
    Mul::mul(Base, SecureField) -> Secure = |a, b| Secure::from(b) * a;
    Add::add(Secure, Secure) -> Secure = |a, b| Secure(add(Node::SecureAdd(a.0, b.0)));
    Sub::sub(Secure, Secure) -> Secure = |a, b| Secure(add(Node::SecureSub(a.0, b.0)));
    Mul::mul(Secure, Secure) -> Secure = |a, b| Secure(add(Node::SecureMul(a.0, b.0)));
    Add::add(Secure, Base) -> Secure = |a, b| Secure(add(Node::SecureAddBase(a.0, b.0)));
    Mul::mul(Secure, Base) -> Secure = |a, b| Secure(add(Node::SecureMulBase(a.0, b.0)));
    Add::add(Secure, BaseField) -> Secure = |a, b| a + Base::from(b);
    Mul::mul(Secure, BaseField) -> Secure = |a, b| a * Base::from(b);
    Add::add(Secure, SecureField) -> Secure = |a, b| a + Secure::from(b);
    Sub::sub(Secure, SecureField) -> Secure = |a, b| a - Secure::from(b);
    Mul::mul(Secure, SecureField) -> Secure = |a, b| a * Secure::from(b);
}

impl Neg for Base {
    type Output = Self;
    fn neg(self) -> Self {
        Self(add(Node::Neg(self.0)))
    }
}

impl Neg for Secure {
    type Output = Self;
    fn neg(self) -> Self {
        Self(add(Node::SecureNeg(self.0)))
    }
}

impl AddAssign for Base {
    fn add_assign(&mut self, right: Self) {
        *self = *self + right;
    }
}

impl AddAssign<BaseField> for Base {
    fn add_assign(&mut self, right: BaseField) {
        *self = *self + Self::from(right);
    }
}

impl MulAssign for Base {
    fn mul_assign(&mut self, right: Self) {
        *self = *self * right;
    }
}

impl AddAssign for Secure {
    fn add_assign(&mut self, right: Self) {
        *self = *self + right;
    }
}

impl Zero for Base {
    fn zero() -> Self {
        Self::from(BaseField::zero())
    }
    /// Whether it was written as zero: more is not known before there are rows.
    fn is_zero(&self) -> bool {
        TAPE.with_borrow(|tape| tape.is_zero(self.0))
    }
}

impl One for Base {
    fn one() -> Self {
        Self::from(BaseField::one())
    }
}

impl Zero for Secure {
    fn zero() -> Self {
        Self::from(SecureField::zero())
    }
    /// As for [`Base`].
    fn is_zero(&self) -> bool {
        TAPE.with_borrow(|tape| tape.is_zero(self.0))
    }
}

impl One for Secure {
    fn one() -> Self {
        Self::from(SecureField::one())
    }
}

impl FieldExpOps for Base {
    fn inverse(&self) -> Self {
        Self(add(Node::Inverse(self.0)))
    }
}

/// The evaluator.
pub(crate) struct Recorder {
    /// Columns taken so far, by interaction.
    columns: Vec<u32>,
    fractions: Vec<Fraction<Secure, Secure>>,
    shift: SecureField,
}

impl EvalAtRow for Recorder {
    type F = Base;
    type EF = Secure;

    fn next_interaction_mask<const N: usize>(
        &mut self,
        interaction: usize,
        offsets: [isize; N],
    ) -> [Base; N] {
        if self.columns.len() <= interaction {
            self.columns.resize(interaction + 1, 0);
        }
        let column = self.columns[interaction];
        self.columns[interaction] += 1;
        offsets.map(|offset| {
            Base(add(Node::Column { interaction: interaction as u32, column, offset: offset as i32 }))
        })
    }

    fn add_constraint<G>(&mut self, constraint: G)
    where
        Secure: Mul<G, Output = Secure> + From<G>,
    {
        let value = Secure::from(constraint).0;
        TAPE.with_borrow_mut(|tape| tape.constraints.push(value));
    }

    fn combine_ef(values: [Base; SECURE_EXTENSION_DEGREE]) -> Secure {
        Secure(add(Node::SecureCombine(values.map(|value| value.0))))
    }

    fn write_logup_frac(&mut self, fraction: Fraction<Secure, Secure>) {
        self.fractions.push(fraction);
    }

    /// Column k of the interaction trace is the sum of the fractions of batches 0 to k; the last one is
    /// summed up over the rows too, less the shift, so that it comes back to zero.
    fn finalize_logup_batched(&mut self, batching: &Vec<usize>) {
        let fractions = std::mem::take(&mut self.fractions);
        assert_eq!(batching.len(), fractions.len(), "one batch for each entry");
        let batches = batching.iter().copied().zip(fractions).into_group_map();
        let count = batches.len();
        let mut before = Secure::zero();
        for index in 0..count {
            let batch = batches.get(&index).expect("batches are numbered from 0 without gaps");
            let Fraction { numerator, denominator } = batch.iter().cloned().sum::<Fraction<_, _>>();
            let batch = Batch { numerator: numerator.0, denominator: denominator.0 };
            TAPE.with_borrow_mut(|tape| tape.batches.push(batch));
            if index + 1 < count {
                let [sum] = self.next_extension_interaction_mask(INTERACTION_TRACE_IDX, [0]);
                self.add_constraint((sum - before) * denominator - numerator);
                before = sum;
            } else {
                let [previous, sum] = self.next_extension_interaction_mask(INTERACTION_TRACE_IDX, [-1, 0]);
                let shift = Secure(TAPE.with_borrow_mut(|tape| tape.parameter(self.shift)));
                let step = sum - previous - before + shift;
                self.add_constraint(step * denominator - numerator);
            }
        }
    }

    fn finalize_logup(&mut self) {
        let batching = (0..self.fractions.len()).collect();
        self.finalize_logup_batched(&batching);
    }

    fn finalize_logup_in_pairs(&mut self) {
        let batching = (0..self.fractions.len()).map(|entry| entry / 2).collect();
        self.finalize_logup_batched(&batching);
    }
}
