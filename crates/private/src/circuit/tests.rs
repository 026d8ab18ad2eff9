use gatework_fss::executor::{Circuit, Inputs, estimate, run_clear, run_in_process};
use gatework_fss::{FixedPoint, Party};

use crate::error::Error;
use crate::graph::{Family, Graph, GraphBuilder, Mask, Model, WeightKind};
use crate::range::{Knowledge, Proved, Trust, Unproved};

use super::rotation;
use super::samples::{Style, client, small, weights};
use super::*;

/// One input: whose it is, and its words.
pub(crate) type Given = (Party, Vec<u64>);

/// All inputs in order, encoded.
pub(crate) fn given(graph: &Graph, style: Style, norm: f64, seed: u64) -> Vec<Given> {
    let ring = graph.format().ring;
    let encode = |values: Vec<i64>| values.into_iter().map(|value| ring.encode(value.into())).collect();
    let mut given: Vec<Given> =
        weights(graph, style, norm, seed).into_iter().map(|values| (Party::Zero, encode(values))).collect();
    given.push((Party::One, encode(client(graph, style, seed))));
    given
}

fn two_parties(model: &Model, tokens: usize, knowledge: &Knowledge, trust: Trust) -> usize {
    let graph = model.graph(tokens).unwrap();
    let proved = Proved::new(&graph, knowledge, trust, Unproved::Clamp).unwrap();
    let clamps = proved.clamps().count();
    let network = Network::new(proved);
    let given = given(&graph, Style::Noise, 1.0, 5);
    let inputs = |whose: &[Party]| -> Inputs {
        given.iter().map(|(owner, words)| whose.contains(owner).then(|| words.clone())).collect()
    };
    let clear = run_clear(&network, inputs(&Party::BOTH)).unwrap();
    let (cost, format) = (estimate(&network).unwrap(), network.format());
    let output = clear.output.unwrap();
    // Both parties fail if bytes, rounds or generator calls are not what the estimate says.
    let [zero, one] = run_in_process(format, network, Party::BOTH.map(|party| inputs(&[party]))).unwrap();
    assert_eq!((zero.output, one.output.as_ref()), (None, Some(&output)));
    assert!([clear.cost, zero.cost, one.cost].iter().all(|counted| *counted == cost));
    let ring = graph.format().ring;
    assert!(output.iter().any(|&word| ring.signed(word) != 0), "the network says nothing");
    clamps
}

#[test]
fn every_family_is_the_same_for_two_parties_and_in_clear() {
    for (family, bits) in [(Family::Bert, 50), (Family::Gpt, 51), (Family::Llama, 48)] {
        let model = small(family, bits);
        let graph = model.graph(5).unwrap();
        let measured = Knowledge::Measured(weights(&graph, Style::Noise, 1.0, 5));
        assert_eq!(two_parties(&model, 5, &measured, Trust::Norms), 0, "{family:?} is proved without clamps");
        assert!(two_parties(&model, 5, &Knowledge::Entries, Trust::RingOnly) > 0, "{family:?} needs clamps");
    }
}

/// Softmax, GELU, norms and products in double precision, from the same quantised weights.
#[test]
fn a_bert_computes_what_a_bert_computes() {
    let model = small(Family::Bert, 50);
    let graph = model.single_layer(4, 2 << 12).unwrap();
    let tensors = weights(&graph, Style::Noise, 2.0, 8);
    let proved =
        Proved::new(&graph, &Knowledge::Measured(tensors.clone()), Trust::Norms, Unproved::Refuse).unwrap();
    let inputs = given(&graph, Style::Noise, 2.0, 8);
    let words =
        run_clear(&Network::new(proved), inputs.iter().map(|(_, words)| Some(words.clone())).collect());
    let found: Vec<f64> = words
        .unwrap()
        .output
        .unwrap()
        .iter()
        .map(|&word| graph.format.ring.signed(word) as f64 / 4096.0)
        .collect();

    let real = |index: usize| -> Vec<f64> {
        let unit = if graph.weights()[index].kind == WeightKind::Bias { 2f64.powi(24) } else { 4096.0 };
        tensors[index].iter().map(|&value| value as f64 / unit).collect()
    };
    let x: Vec<f64> = client(&graph, Style::Noise, 8).iter().map(|&value| value as f64 / 4096.0).collect();
    let linear = |x: &[f64], at: usize| -> Vec<f64> {
        let (matrix, bias) = (real(at), real(at + 1));
        let columns = bias.len();
        let inner = matrix.len() / columns;
        let cell = |row: usize, column: usize| {
            let terms = (0..inner).map(|k| x[row * inner + k] * matrix[k * columns + column]);
            terms.sum::<f64>() + bias[column]
        };
        (0..x.len() / inner * columns).map(|index| cell(index / columns, index % columns)).collect()
    };
    let norm = |x: &[f64], at: usize| -> Vec<f64> {
        let (gain, shift) = (real(at), real(at + 1));
        let row = |row: &[f64]| -> Vec<f64> {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            row.iter().enumerate().map(|(k, x)| (x - mean) * scale * gain[k] + shift[k]).collect()
        };
        x.chunks(gain.len()).flat_map(row).collect()
    };
    let add = |x: &[f64], y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + y).collect() };
    let (query, key, value) = (linear(&x, 0), linear(&x, 2), linear(&x, 4));
    let mut mixed = vec![0.0; x.len()];
    for (row, head) in (0..4).flat_map(|row| (0..2).map(move |head| (row, head))) {
        let at = |row: usize, k: usize| row * 16 + head * 8 + k;
        let power = |other: usize| (0..8).map(|k| query[at(row, k)] * key[at(other, k)]).sum::<f64>().exp();
        let powers: Vec<f64> = (0..4).map(power).collect();
        let sum: f64 = powers.iter().sum();
        for k in 0..8 {
            mixed[at(row, k)] = (0..4).map(|other| powers[other] / sum * value[at(other, k)]).sum();
        }
    }
    let x = norm(&add(&x, &linear(&mixed, 6)), 8);
    let active: Vec<f64> = linear(&x, 10).into_iter().map(gatework_fss::reference::gelu).collect();
    let exact = norm(&add(&x, &linear(&active, 12)), 14);
    let worst = found.iter().zip(&exact).map(|(found, exact)| (found - exact).abs()).fold(0.0, f64::max);
    println!("one layer of a small BERT: worst error {worst:.4} against f64");
    assert!(worst < 0.03, "{worst}");
    assert_eq!(found.len(), exact.len());
}

#[test]
fn a_rotation_keeps_products_of_equal_distances() {
    // q and k of token 0, turned to places t and t + 1, have the same score for every t.
    let head = 8;
    let turned = |x: &[f64], token: usize| -> Vec<f64> {
        let half = head / 2;
        (0..head)
            .map(|column| {
                let (cosine, sine) = rotation::turn(token, column % half, head, 24);
                let (cosine, sine) = (cosine as f64 / 2f64.powi(24), sine as f64 / 2f64.powi(24));
                if column < half {
                    x[column] * cosine - x[column + half] * sine
                } else {
                    x[column] * cosine + x[column - half] * sine
                }
            })
            .collect()
    };
    let (q, k) = ([0.3, -1.0, 2.0, 0.7, 1.1, -0.2, 0.4, 0.9], [1.0, 0.5, -0.3, 0.8, -0.6, 0.1, 0.2, 1.4]);
    let score = |t: usize| turned(&q, t).iter().zip(turned(&k, t + 1)).map(|(a, b)| a * b).sum::<f64>();
    for t in 1..40 {
        assert!((score(t) - score(0)).abs() < 1e-5, "token {t}");
    }
    assert!((score(0) - q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>()).abs() > 0.01);
}

#[test]
fn graphs_that_do_not_fit_are_refused() {
    let format = FixedPoint::new(50, 12).unwrap();
    assert!(GraphBuilder::new(format, 0).is_err());
    let mut graph = GraphBuilder::new(format, 3).unwrap();
    let x = graph.input(6, 1 << 12).unwrap();
    assert!(graph.truncate(x, "twice").is_err());
    assert!(graph.attend([x, x, x], 4, Mask::Full).is_err());
    assert!(graph.rotate(x, 3).is_err());
    assert!(graph.segment(x, 1, "none").is_err() && graph.row(x, 3).is_err());
    let wider = graph.linear(x, &[("wider", 7)], true).unwrap();
    assert!(graph.add(x, wider, "sum").is_err());
    assert!(graph.input(0, 1).is_err() && graph.input(usize::MAX, 1).is_err() && graph.input(4, -1).is_err());
    assert!(graph.linear(x, &[], false).is_err() && graph.linear(x, &[("none", 0)], false).is_err());
    let mut other = GraphBuilder::new(format, 3).unwrap();
    assert!(other.add(x, x, "a node of another graph").is_err());
    assert!(other.finish().is_err());
    assert!(GraphBuilder::new(format, usize::MAX).is_err());
    assert!(GraphBuilder::new(FixedPoint::new(2, 1).unwrap(), 3).is_err());
}

#[test]
fn unknown_models_and_lengths_are_sentences() {
    let error = Model::named("bert-huge").unwrap_err().to_string();
    assert!(Model::ALL.iter().all(|model| error.contains(model.name)), "{error}");
    let bert = Model::named("bert-base").unwrap();
    for tokens in [0, 513, usize::MAX] {
        assert!(matches!(bert.graph(tokens), Err(Error::Unsupported { .. })));
    }
    let misshapen = [
        Model { width: usize::MAX, ..bert },
        Model { heads: 5, ..bert },
        Model { heads: 0, ..bert },
        Model { layers: usize::MAX, ..bert },
        Model { bits: 12, ..bert },
        Model { bits: 65, ..bert },
        Model { context: usize::MAX, ..bert },
    ];
    for model in misshapen {
        assert!(model.graph(4).is_err() && crate::cost::sigma(&model, 4).is_err(), "{model:?}");
    }
}

#[test]
fn a_network_asks_for_its_weights() {
    let graph = small(Family::Gpt, 50).graph(3).unwrap();
    let proved = Proved::new(&graph, &Knowledge::Entries, Trust::Intervals, Unproved::Clamp).unwrap();
    let network = Network::new(proved);
    let mut inputs: Vec<_> =
        given(&graph, Style::Noise, 1.0, 1).into_iter().map(|(_, words)| Some(words)).collect();
    assert!(run_clear(&network, inputs.clone()).is_ok());
    inputs[2] = Some(vec![graph.format().ring.encode(17 << 12); graph.weights()[2].len()]);
    assert!(
        matches!(run_clear(&network, inputs), Err(gatework_fss::Error::Input { index: 2, .. })),
        "above the declared reach"
    );
    assert!(estimate(&network).unwrap().rounds > 0);
    fn is_circuit(_: &impl Circuit) {}
    is_circuit(&network);
}
