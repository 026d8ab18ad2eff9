//! Every rewrite over all (x, r), compiled functions over all (x, r), and random functions in large rings.

use gatework_fss::executor::{Circuit, run_clear};
use gatework_fss::suf::*;
use gatework_fss::{Error, Evaluator, Party, Ring, Wire};
use proptest::prelude::*;

use crate::support::{all_pairs, check};

fn ring(bits: u32) -> Ring {
    Ring::new(bits).unwrap()
}

#[test]
fn rewritten_predicates_match_for_all_values_and_masks() {
    for bits in 1..=10 {
        let ring = ring(bits);
        let (words, masks) = all_pairs(bits);
        // Every threshold of small rings; of the two largest, those around every place where something can
        // change.
        let thresholds = |bits: u32| -> Vec<u64> {
            let size = 1u64 << bits;
            let edges = [0, 1, 2, size / 3, size / 2 - 1, size / 2, size / 2 + 1, size - 1, size];
            if bits <= 7 { (0..=size).collect() } else { edges.to_vec() }
        };
        let below = thresholds(bits).into_iter().map(|limit| Predicate::Below { limit });
        let signs = thresholds(bits).into_iter().map(|shift| Predicate::Msb { shift });
        let lows = (1..bits).flat_map(|bits| {
            thresholds(bits)
                .into_iter()
                .step_by(1 + bits as usize / 4)
                .map(move |limit| Predicate::LowBelow { bits, limit })
        });
        for predicate in below.chain(signs).chain(lows) {
            let masked = rewrite(ring, &predicate).unwrap();
            for (&x, &r) in words.iter().zip(&masks) {
                let opened = ring.reduce(x + r);
                assert_eq!(
                    masked.holds(opened, r),
                    predicate.holds(ring, x),
                    "{predicate:?}, x = {x}, r = {r}"
                );
            }
        }
    }
}

/// Arithmetic outputs one after the other, then boolean ones.
fn circuit(program: &Program, ring: Ring, len: usize) -> impl Circuit<Output = Option<Vec<u64>>> + Sync + '_ {
    let least = ring.signed(1 << (ring.bits() - 1));
    async move |evaluator: &Evaluator| {
        let x = evaluator.input(Party::Zero, ring, len, least..=!least).await?;
        let output = program.apply(evaluator, &x).await?;
        let mut revealed = Vec::new();
        for share in output.words.into_iter().chain(output.bools) {
            let opened = evaluator.open(share).await?;
            let Some(words) = evaluator.reveal(&opened, Party::One)? else { continue };
            revealed.extend(words);
        }
        Ok((!revealed.is_empty()).then_some(revealed))
    }
}

/// What is public of a run: the lengths of both key streams, and the ring and length of everything that is
/// sent.
#[test]
fn a_program_has_the_same_shape_for_every_mask() {
    let ring = ring(6);
    let program = Program::compile(&zoo(6)).unwrap();
    let shape = |mask: u64| {
        let seen = check(
            circuit(&program, ring, 3),
            &[(Party::Zero, vec![1, 40, 63])],
            Some(vec![vec![mask; 3]]),
            4,
        );
        let keys = seen.keys.each_ref().map(|stream| stream.len());
        let opened = seen.opened.each_ref().map(|requests| {
            requests
                .iter()
                .map(|request| (request.ring, request.from_one, request.words.len()))
                .collect::<Vec<_>>()
        });
        let streams = seen.keys;
        (keys, opened, streams)
    };
    let (keys, opened, streams) = shape(0);
    for mask in 1..64 {
        let other = shape(mask);
        assert_eq!((&other.0, &other.1), (&keys, &opened), "mask {mask}");
        assert_ne!(other.2, streams, "mask {mask} must enter the keys");
    }
}

fn expected(function: &Function, words: &[u64]) -> Vec<u64> {
    let outputs: Vec<(Vec<u64>, Vec<bool>)> = words.iter().map(|&x| function.evaluate(x)).collect();
    let (polynomials, bools) = (outputs[0].0.len(), outputs[0].1.len());
    let arithmetic = (0..polynomials).flat_map(|output| outputs.iter().map(move |values| values.0[output]));
    let boolean = (0..bools).flat_map(|output| outputs.iter().map(move |values| u64::from(values.1[output])));
    arithmetic.chain(boolean).collect()
}

/// A function with every kind of predicate and of connective, scaled to a ring.
fn zoo(bits: u32) -> Function {
    let top = ring(bits).mask();
    let below = Bool::Is(Predicate::Below { limit: top / 3 });
    let sign = Bool::Is(Predicate::Msb { shift: top / 5 });
    let low = Bool::Is(Predicate::LowBelow { bits: bits / 2, limit: 3 });
    let other_low = Bool::Is(Predicate::LowBelow { bits: bits / 2, limit: 2 });
    let piece = |start: u64, k: u64| Piece {
        start,
        polynomials: vec![
            Polynomial::new([k, 3 * k + 1, k * k, 5]),
            Polynomial::new([7 * k]),
            Polynomial::new([0, k.wrapping_sub(2)]),
        ],
        bools: vec![
            Bool::xor(below.clone(), Bool::not(sign.clone())),
            Bool::and(
                Bool::or(below.clone(), low.clone()),
                Bool::not(Bool::and(sign.clone(), other_low.clone())),
            ),
            Bool::Const(k == 1),
            if k == 0 { low.clone() } else { sign.clone() },
        ],
    };
    let starts = [0, 1, top / 4, top / 2 + 1, top];
    Function::new(ring(bits), starts.iter().zip(0..).map(|(&start, k)| piece(start, k)).collect()).unwrap()
}

#[test]
fn compiled_functions_match_for_all_values_and_masks() {
    for bits in [4, 6, 10] {
        let function = zoo(bits);
        let program = Program::compile(&function).unwrap();
        let (words, masks) = all_pairs(bits);
        let circuit = circuit(&program, ring(bits), words.len());
        let seen = check(circuit, &[(Party::Zero, words.clone())], Some(vec![masks]), 4);
        assert!(seen.output == expected(&function, &words), "{bits} bits");
    }
}

#[test]
fn a_single_piece_compiles() {
    let piece = Piece { start: 0, polynomials: vec![Polynomial::new([1, 2, 3])], bools: vec![] };
    let function = Function::new(ring(8), vec![piece]).unwrap();
    let program = Program::compile(&function).unwrap();
    let (words, masks) = all_pairs(8);
    let seen =
        check(circuit(&program, ring(8), words.len()), &[(Party::Zero, words.clone())], Some(vec![masks]), 4);
    assert_eq!(seen.output, expected(&function, &words));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn compiled_functions_match_in_model_rings(
        bits in prop::sample::select(vec![37u32, 48, 50, 51, 64]),
        values in prop::collection::vec(any::<u64>(), 1..12),
        seed in any::<u64>(),
    ) {
        let function = zoo(bits);
        let program = Program::compile(&function).unwrap();
        let mut words: Vec<u64> = values.iter().map(|&value| ring(bits).reduce(value)).collect();
        words.extend(function.pieces().iter().flat_map(|piece| [piece.start, piece.start.wrapping_sub(1) & ring(bits).mask()]));
        let seen = check(circuit(&program, ring(bits), words.len()), &[(Party::Zero, words.clone())], None, seed);
        prop_assert_eq!(seen.output, expected(&function, &words));
    }
}

#[test]
fn ill_formed_functions_are_refused() {
    let piece = |start: u64, polynomials: usize| Piece {
        start,
        polynomials: vec![Polynomial::new([1]); polynomials],
        bools: vec![],
    };
    let low = |bits: u32, limit: u64| Piece {
        start: 0,
        polynomials: vec![],
        bools: vec![Bool::Is(Predicate::LowBelow { bits, limit })],
    };
    let mut deep = Bool::Const(true);
    for _ in 0..100 {
        deep = Bool::not(deep);
    }
    let bad = [
        vec![],
        vec![piece(1, 1)],
        vec![piece(0, 1), piece(0, 1)],
        vec![piece(0, 1), piece(256, 1)],
        vec![piece(0, 1), piece(5, 2)],
        vec![piece(0, 0)],
        vec![low(0, 0)],
        vec![low(8, 3)],
        vec![low(3, 9)],
        vec![Piece { bools: vec![deep], ..piece(0, 0) }],
    ];
    for pieces in bad {
        let refused = Function::new(ring(8), pieces.clone());
        assert!(matches!(refused, Err(Error::Suf { .. })), "{pieces:?}");
    }
    assert!(Function::new(ring(8), vec![piece(0, 1), piece(255, 1)]).is_ok());
    let mixed = Bool::and(
        Bool::Is(Predicate::LowBelow { bits: 3, limit: 1 }),
        Bool::Is(Predicate::LowBelow { bits: 4, limit: 1 }),
    );
    let two_widths = Function::new(ring(8), vec![Piece { bools: vec![mixed], ..piece(0, 0) }]).unwrap();
    assert!(matches!(Program::compile(&two_widths), Err(Error::Suf { .. })));
}

#[test]
fn a_predicate_that_the_ring_does_not_have_is_not_rewritten() {
    for (bits, limit) in [(0, 0), (10, 1), (200, 1), (3, 9)] {
        let refused = rewrite(ring(10), &Predicate::LowBelow { bits, limit });
        assert!(matches!(refused, Err(Error::Suf { .. })), "{bits} bits below {limit}");
    }
}

#[test]
fn a_wire_of_another_ring_is_refused() {
    let program = Program::compile(&zoo(8)).unwrap();
    let circuit = async |evaluator: &Evaluator| {
        let x: Wire = evaluator.input(Party::Zero, ring(9), 1, 0..=1).await?;
        program.apply(evaluator, &x).await.map(|_| ())
    };
    assert!(matches!(run_clear(&circuit, vec![Some(vec![0])]), Err(Error::Shape { .. })));
}
