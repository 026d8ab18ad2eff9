use std::cell::RefCell;

use gatework_fss::executor::{Circuit, run_clear};
use gatework_fss::{Evaluator, Wire};

use crate::circuit::Network;
use crate::circuit::samples::{Style, client, small, weights};
use crate::error::Error;
use crate::graph::{ActivationKind, Family, Graph, GraphBuilder, Model, NodeId, NormKind};

use super::*;

/// Every node's words in clear.
fn observe(network: &Network, style: Style, norm: f64, seed: u64) -> Vec<(NodeId, Vec<u64>)> {
    let graph = network.proved().graph();
    let ring = graph.format().ring;
    let encode = |values: Vec<i64>| Some(values.into_iter().map(|value| ring.encode(value.into())).collect());
    let mut inputs: Vec<_> = weights(graph, style, norm, seed).into_iter().map(encode).collect();
    inputs.push(encode(client(graph, style, seed)));
    let seen = RefCell::new(Vec::new());
    let circuit = async |evaluator: &Evaluator| {
        let weights = network.set_up().run(evaluator).await?;
        let mut observe = |node, wire: &Wire, _| {
            seen.borrow_mut().push((node, wire.words().download().unwrap().to_vec()));
        };
        network.observed(evaluator, &weights, &mut observe).await
    };
    run_clear(&circuit, inputs).unwrap();
    seen.into_inner()
}

/// Tensors with a magnitude or a row norm above `factor` times what was proved.
fn violations(proved: &Proved, seen: &[(NodeId, Vec<u64>)], factor: f64) -> Vec<String> {
    let graph = proved.graph();
    let mut found = Vec::new();
    for (id, words) in seen {
        let node = graph.node(*id);
        let unit = 2f64.powi(-(node.fraction as i32));
        let mut start = 0;
        for (shape, span) in node.segments.iter().zip(proved.spans(*id)) {
            let values: Vec<f64> = words[start..start + shape.len()]
                .iter()
                .map(|&word| graph.format().ring.signed(word) as f64 * unit)
                .collect();
            start += shape.len();
            let peak = values.iter().fold(0f64, |peak, value| peak.max(value.abs()));
            let norms = values.chunks(shape.columns).map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt());
            let norm = norms.fold(0f64, f64::max);
            // The check's own rounding.
            let slack = 1.0 + 1e-12;
            if peak > factor * span.peak.value() * slack || norm > factor * span.norm.value() * slack {
                found.push(node.name.clone());
            }
        }
    }
    found
}

fn proved_and_seen(model: &Model, style: Style, norm: f64, seed: u64) -> (Proved, Vec<(NodeId, Vec<u64>)>) {
    let graph = if seed.is_multiple_of(2) { model.graph(6) } else { model.single_layer(6, 3 << 12) }.unwrap();
    let measured = Knowledge::Measured(weights(&graph, style, norm, seed));
    let proved = Proved::new(&graph, &measured, Trust::Norms, Unproved::Clamp).unwrap();
    let network = Network::new(proved.clone());
    let seen = observe(&network, style, norm, seed);
    (proved, seen)
}

/// The last one is so narrow that most of it is clamped.
const FAMILIES: [(Family, u32); 4] =
    [(Family::Bert, 50), (Family::Gpt, 51), (Family::Llama, 48), (Family::Bert, 40)];

#[test]
fn no_value_exceeds_its_proved_bound() {
    for (family, bits) in FAMILIES {
        for style in Style::ALL {
            for (seed, norm) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 3.0), (6, 0.01)] {
                let (proved, seen) = proved_and_seen(&small(family, bits), style, norm, seed);
                assert_eq!(seen.len(), proved.graph().nodes().len());
                let found = violations(&proved, &seen, 1.0);
                assert!(found.is_empty(), "{family:?} {style:?} {norm}: {found:?}");
            }
        }
    }
}

#[test]
fn bounds_that_are_too_small_are_caught() {
    // Each operation has an input on which nine tenths of its bound is not enough.
    let mut caught = Vec::new();
    for (family, bits) in FAMILIES {
        for style in Style::ALL {
            let (proved, seen) = proved_and_seen(&small(family, bits), style, 2.0, 3);
            caught.extend(violations(&proved, &seen, 0.9));
        }
    }
    for name in ["input", "query, key, value product", "probabilities", "mixed", "attention norm"] {
        assert!(caught.iter().any(|found| found.contains(name)), "{name} in {caught:?}");
    }
}

#[test]
fn a_violated_proof_is_an_error_in_clear() {
    // Norms stated as a hundredth of what they are: the gap that they prove is not there.
    let mut graph = GraphBuilder::new(FixedPoint::new(37, 12).unwrap(), 2).unwrap();
    let x = graph.input(16, 16 << 12).unwrap();
    graph.linear(x, &[("matrix", 16)], false).unwrap();
    let graph = graph.finish().unwrap();
    let run = |spectral: f64| {
        let stated = Knowledge::Stated(StatedNorms { spectral, ..StatedNorms::default() });
        let proved = Proved::new(&graph, &stated, Trust::Norms, Unproved::Refuse)?;
        let ring = graph.format().ring;
        let all = |value: i64, len: usize| Some(vec![ring.encode(value.into()); len]);
        run_clear(&Network::new(proved), vec![all(16 << 12, 256), all(16 << 12, 32)]).map(|_| ())
    };
    // The matrix is 16 everywhere: its norm is 256, and the product 16 · 16 · 16 = 2^12.
    assert!(matches!(run(256.0).map_err(Error::from), Err(Error::Unproved { .. })));
    assert!(matches!(run(2.0), Err(gatework_fss::Error::BoundViolated { .. })));
}

#[test]
fn intervals_fail_where_norms_do_not() {
    let model = Model::named("bert-base").unwrap();
    let graph = model.graph(128).unwrap();
    let stated = Knowledge::Stated(StatedNorms::default());
    let norms = Proved::new(&graph, &stated, Trust::Norms, Unproved::Refuse).unwrap();
    assert_eq!(norms.clamps().count(), 0);
    assert!(norms.truncations().all(|(_, kind)| kind == Truncation::Gap));
    let refused = Proved::new(&graph, &stated, Trust::Intervals, Unproved::Refuse).unwrap_err();
    assert!(refused.to_string().contains("'layer 0"), "{refused}");
    let clamped = Proved::new(&graph, &stated, Trust::Intervals, Unproved::Clamp).unwrap();
    assert!(clamped.clamps().count() > 0);
    assert!(clamped.clamps().all(|(_, limit)| limit >= 1.0));
}

#[test]
fn the_choice_follows_from_the_norms_and_nothing_else_does() {
    let model = Model::named("bert-base").unwrap();
    let graph = model.single_layer(8, 2 << 12).unwrap();
    let choose = |spectral: f64| {
        let stated = Knowledge::Stated(StatedNorms { spectral, ..StatedNorms::default() });
        Proved::new(&graph, &stated, Trust::Norms, Unproved::Clamp).unwrap()
    };
    let public = |proved: &Proved| -> Vec<_> {
        let nodes = proved.graph().nodes().iter().enumerate();
        nodes.map(|(index, node)| (node.op.clone(), proved.room(NodeId(index)))).collect()
    };
    assert_eq!(public(&choose(1.0)), public(&choose(3.0)), "other norms, the same circuit");
    assert_ne!(public(&choose(1.0)), public(&choose(16.0)));
    let limits = [Room::Narrow, Room::Gap, Room::Ring].map(|room| room.bound(graph.format()).hi());
    assert_eq!(limits, [(1 << 37) - 1, (1 << 48) - 1, (1 << 49) - 1]);
}

#[test]
fn faithful_truncations_stand_between() {
    let mut graph = GraphBuilder::new(FixedPoint::new(38, 12).unwrap(), 2).unwrap();
    let x = graph.input(4, 16 << 12).unwrap();
    graph.linear(x, &[("matrix", 4)], false).unwrap();
    let graph: Graph = graph.finish().unwrap();
    let narrow = |bits: u32| {
        let graph = Graph { format: FixedPoint::new(bits, 12).unwrap(), ..graph.clone() };
        let proved = Proved::new(&graph, &Knowledge::Entries, Trust::Intervals, Unproved::Refuse);
        proved.map(|proved| proved.truncations().next().map(|(_, kind)| kind))
    };
    // 4 · 16 · 16 = 2^10 with 24 fractional bits is 2^34: below a quarter of 2^37, below half of 2^36, in no
    // ring of 35 bits.
    assert_eq!(narrow(37).unwrap(), Some(Truncation::Gap));
    assert_eq!(narrow(36).unwrap(), Some(Truncation::Faithful));
    assert!(matches!(narrow(35), Err(Error::Unproved { .. })));
}

#[test]
fn stated_norms_that_are_no_norms_are_refused() {
    let graph = small(Family::Bert, 50).graph(2).unwrap();
    for spectral in [f64::NAN, f64::INFINITY, -1.0] {
        let stated = Knowledge::Stated(StatedNorms { spectral, ..StatedNorms::default() });
        assert!(Proved::new(&graph, &stated, Trust::Norms, Unproved::Clamp).is_err());
    }
    assert!(Proved::new(&graph, &Knowledge::Measured(vec![]), Trust::Norms, Unproved::Clamp).is_err());
}

#[test]
fn a_proof_is_asked_whether_it_holds_for_the_weights() {
    for (family, bits) in FAMILIES {
        let graph = small(family, bits).graph(6).unwrap();
        let honest = weights(&graph, Style::ALL[0], 1.0, 2);
        let stated = Knowledge::Stated(StatedNorms { spectral: 2.0, ..StatedNorms::default() });
        let from_norms = Proved::new(&graph, &stated, Trust::Norms, Unproved::Clamp).unwrap();
        from_norms.holds_for(honest.clone()).unwrap();
        let measured =
            Proved::new(&graph, &Knowledge::Measured(honest.clone()), Trust::Norms, Unproved::Clamp);
        measured.unwrap().holds_for(honest.clone()).unwrap();
        // The largest entries that a format takes, everywhere: norms far above what was stated.
        let huge: Vec<Vec<i64>> =
            honest.iter().map(|values| vec![Knowledge::ENTRY as i64 * (1 << 12) - 1; values.len()]).collect();
        let refused = from_norms.holds_for(huge).unwrap_err();
        assert!(matches!(refused, Error::Unproved { .. }), "{family:?}: {refused}");
    }
}

/// Every node's words in clear of a graph without weights, on the client's rows.
fn observe_rows(proved: &Proved, rows: &[i64]) -> crate::Result<Vec<(NodeId, Vec<u64>)>> {
    let network = Network::new(proved.clone());
    let ring = proved.graph().format().ring;
    let seen = RefCell::new(Vec::new());
    let circuit = async |evaluator: &Evaluator| {
        let weights = network.set_up().run(evaluator).await?;
        let mut observe = |node, wire: &Wire, _| {
            seen.borrow_mut().push((node, wire.words().download().unwrap().to_vec()));
        };
        network.observed(evaluator, &weights, &mut observe).await
    };
    let unit = 1i64 << proved.graph().format().fraction;
    let mut inputs: Vec<Option<Vec<u64>>> =
        proved.graph().weights().iter().map(|weight| Some(vec![unit as u64; weight.len()])).collect();
    inputs.push(Some(rows.iter().map(|&value| ring.encode(value.into())).collect()));
    run_clear(&circuit, inputs)?;
    Ok(seen.into_inner())
}

#[test]
fn activations_may_be_off_by_what_their_tables_are() {
    // At zero a table's middle is as far off as it ever is, and there is nothing else in the bound.
    for kind in [ActivationKind::Gelu, ActivationKind::GeluTanh, ActivationKind::Silu, ActivationKind::Tanh] {
        let mut graph = GraphBuilder::new(FixedPoint::new(40, 12).unwrap(), 1).unwrap();
        let x = graph.input(4, 0).unwrap();
        graph.activate(x, kind).unwrap();
        let graph = graph.finish().unwrap();
        let proved = Proved::new(&graph, &Knowledge::Entries, Trust::Norms, Unproved::Refuse).unwrap();
        let seen = observe_rows(&proved, &[0; 4]).unwrap();
        assert!(violations(&proved, &seen, 1.0).is_empty(), "{kind:?}");
        // Without the tables' error the bound would be one unit, which is a sixteenth.
        let noticed = !violations(&proved, &seen, 1.0 / 16.0).is_empty();
        assert_eq!(noticed, kind != ActivationKind::Tanh, "{kind:?}");
    }
}

#[test]
fn a_mean_that_is_rounded_makes_centred_rows_longer() {
    // 291 numbers of ±15 have squares that add up to 65475, below 2^16. Their mean of −15/291 is rounded to
    // −1, and then it is 65736.
    let run = |magnitude: i64| {
        let mut graph = GraphBuilder::new(FixedPoint::new(18, 2).unwrap(), 1).unwrap();
        let x = graph.input(291, magnitude).unwrap();
        graph.normalise(x, NormKind::Layer, 0.0, "norm").unwrap();
        let graph = graph.finish().unwrap();
        let proved = Proved::new(&graph, &Knowledge::Entries, Trust::Norms, Unproved::Refuse)?;
        let row: Vec<i64> = (0..291).map(|k| if k % 2 == 0 { -magnitude } else { magnitude }).collect();
        observe_rows(&proved, &row).map(|_| ())
    };
    assert!(matches!(run(15), Err(Error::Unproved { .. })));
    run(11).unwrap();
}
