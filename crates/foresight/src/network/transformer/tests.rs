//! The passes against a network in plain double precision.

use std::sync::Arc;

use super::{Pass, Transformer};
use crate::data::{Cut, Text, Tokens};
use crate::random::Random;
use crate::sampling::Kept;

/// The sum of losses over windows, token by token, from GPT-2's formulas, with nothing shared with the passes
/// but the layout.
fn plain_loss(shape: &Transformer, weights: &[f64], windows: &[(&[u16], &[u16])]) -> f64 {
    let (width, layout) = (shape.width, shape.layout());
    let norm = |x: &[f64], at: &std::ops::Range<usize>| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let (gain, shift) = weights[at.clone()].split_at(width);
        let scaled = x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
        scaled.zip(gain).zip(shift).map(|((x, gain), shift)| x * gain + shift).collect()
    };
    let affine = |x: &[f64], affine: &super::Affine| -> Vec<f64> {
        let (matrix, outputs) = (&weights[affine.matrix.clone()], affine.sides[1]);
        let column = |j: usize| x.iter().enumerate().map(|(i, x)| x * matrix[i * outputs + j]).sum::<f64>();
        weights[affine.bias.clone()].iter().enumerate().map(|(j, bias)| bias + column(j)).collect()
    };
    let gelu =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    let add = |x: &mut Vec<f64>, y: Vec<f64>| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    let mut loss = 0.0;
    for (inputs, targets) in windows {
        let row = |at: usize, index: usize| &weights[at + index * width..][..width];
        let mut stream: Vec<Vec<f64>> = inputs
            .iter()
            .enumerate()
            .map(|(place, &token)| {
                let pair = row(layout.tokens.start, token.into()).iter().zip(row(layout.places.start, place));
                pair.map(|(token, place)| token + place).collect()
            })
            .collect();
        for block in &layout.blocks {
            let mixed: Vec<Vec<f64>> =
                stream.iter().map(|x| affine(&norm(x, &block.first_norm), &block.reads)).collect();
            for (i, x) in stream.iter_mut().enumerate() {
                let mut heads = vec![0.0; width];
                let size = width / shape.heads;
                for head in (0..width).step_by(size) {
                    let score = |j: usize| -> f64 {
                        let dot: f64 =
                            (head..head + size).map(|at| mixed[i][at] * mixed[j][width + at]).sum();
                        (dot / (size as f64).sqrt()).exp()
                    };
                    let sum: f64 = (0..=i).map(score).sum();
                    for at in head..head + size {
                        heads[at] = (0..=i).map(|j| score(j) / sum * mixed[j][2 * width + at]).sum();
                    }
                }
                add(x, affine(&heads, &block.mixes));
                let wide = affine(&norm(x, &block.second_norm), &block.widens);
                let wide: Vec<f64> = wide.into_iter().map(gelu).collect();
                add(x, affine(&wide, &block.narrows));
            }
        }
        for (x, &target) in stream.iter().zip(*targets) {
            let x = norm(x, &layout.last_norm);
            let logit = |token: usize| row(0, token).iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
            let sum: f64 = (0..shape.vocabulary).map(|token| logit(token).exp()).sum();
            loss += sum.ln() - logit(target.into());
        }
    }
    loss
}

fn cut(vocabulary: usize, columns: usize, seed: u64) -> Cut {
    let mut random = Random::new(seed, "text");
    let tokens = [10 * columns, 2 * columns]
        .map(|count| (0..count).map(|_| random.below(vocabulary) as u16).collect());
    let [train, validation]: [Vec<u16>; 2] = tokens;
    Arc::new(Text::new(Tokens::new(vocabulary as u32, train, validation).unwrap(), 1)).cut(columns).unwrap()
}

/// Weights where nothing is one or zero, so that every part of the gradient counts.
fn weights(shape: &Transformer, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed, "moved");
    let mut weights = shape.initial(seed);
    weights.iter_mut().for_each(|w| *w = 3.0 * *w + 0.1 * random.normal() as f32);
    // Rows that stand for no token stay zero.
    weights[shape.vocabulary * shape.width..shape.layout().tokens.end].fill(0.0);
    weights
}

/// Vocabulary, context, width, blocks, heads: odd ones, tiles and chunks with and without rests.
const SHAPES: [(usize, usize, [usize; 3]); 4] =
    [(37, 7, [12, 2, 3]), (5, 1, [3, 1, 1]), (70, 131, [10, 1, 2]), (1100, 16, [33, 1, 1])];

fn windows<'a>(cut: &'a Cut, indices: &[u32]) -> Vec<(&'a [u16], &'a [u16])> {
    indices
        .iter()
        .map(|&index| (cut.train.inputs(index as usize), cut.train.targets(index as usize)))
        .collect()
}

#[test]
fn losses_and_gradients_match_double_precision() {
    for (seed, (vocabulary, context, sizes)) in SHAPES.into_iter().enumerate() {
        let shape = Transformer::new(vocabulary, context, sizes).unwrap();
        let (cut, weights) = (cut(vocabulary, context, seed as u64), weights(&shape, seed as u64));
        let indices = [3, 0, 5];
        let mut pass = Pass::new(&shape, 3);
        let mut gradient = vec![0.0; weights.len()];
        let tally = pass.learn(&weights, &cut.train, &indices, 0, &mut gradient);
        let mut exact: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
        let windows = windows(&cut, &indices);
        let loss = plain_loss(&shape, &exact, &windows);
        assert!((tally.loss - loss).abs() < 1e-4 * loss, "{}: {} and {loss}", shape.text(), tally.loss);
        assert_eq!(tally.judged, 3 * context);
        // Central differences in double precision, at some places of every tensor.
        let length = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let layout = shape.layout();
        let mut tensors = vec![0..vocabulary * sizes[0], layout.places.clone(), layout.last_norm.clone()];
        for block in &layout.blocks {
            for affine in [&block.reads, &block.mixes, &block.widens, &block.narrows] {
                tensors.extend([affine.matrix.clone(), affine.bias.clone()]);
            }
            tensors.extend([block.first_norm.clone(), block.second_norm.clone()]);
        }
        let mut random = Random::new(seed as u64, "places");
        let places = if context > 100 { 2 } else { 8 };
        for tensor in tensors {
            for _ in 0..places {
                let at = tensor.start + random.below(tensor.len());
                let (kept, step) = (exact[at], 1e-5);
                exact[at] = kept + step;
                let above = plain_loss(&shape, &exact, &windows);
                exact[at] = kept - step;
                let slope = (above - plain_loss(&shape, &exact, &windows)) / (2.0 * step);
                exact[at] = kept;
                let found = f64::from(gradient[at]);
                let allowed = 2e-4 * (slope.abs() + length / (weights.len() as f64).sqrt());
                assert!((found - slope).abs() < allowed, "{}, {at}: {found} and {slope}", shape.text());
            }
        }
        let unused = &gradient[vocabulary * sizes[0]..layout.tokens.end];
        assert!(unused.iter().all(|&g| g == 0.0), "rows of no token have a gradient");
    }
}

#[test]
fn what_comes_later_changes_nothing_before_it() {
    let shape = Transformer::new(37, 70, [12, 2, 3]).unwrap();
    let weights = weights(&shape, 1);
    let mut pass = Pass::new(&shape, 1);
    let tokens: Vec<u16> = (0..70).map(|i| i * 7 % 37).collect();
    let logits = pass.next(&weights, &tokens[..66]);
    assert_eq!(logits.len(), 37);
    let text = |tail: u16| {
        let mut all = tokens[..66].to_vec();
        all.resize(141, tail);
        let text = Text::new(Tokens::new(37, all, vec![0; 71]).unwrap(), 1);
        Arc::new(text).cut(70).unwrap().train
    };
    let mut losses = |tail| {
        pass.forward(&weights, &text(tail), &[0]);
        pass.found.losses.clone()
    };
    let (one, other) = (losses(1), losses(2));
    // Token 65 is the first whose target differs.
    assert_eq!(one[..65], other[..65]);
    assert!(one[66..].iter().zip(&other[66..]).all(|(one, other)| one != other));
    // What is said of the next token is what it is judged by.
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    assert!((sum.ln() - f64::from(logits[1]) - f64::from(one[65])).abs() < 1e-5);
}

#[test]
fn passes_in_two_halves_and_over_kept_windows_have_the_same_gradient() {
    let shape = Transformer::new(37, 7, [12, 2, 3]).unwrap();
    let (cut, weights) = (cut(37, 7, 1), weights(&shape, 1));
    let mut pass = Pass::new(&shape, 4);
    let mut of = |indices: &[u32], kept: Option<&[Kept]>| {
        let mut gradient = vec![0.0; weights.len()];
        pass.forward(&weights, &cut.train, indices);
        let mut lengths = Vec::new();
        pass.lengths(&mut lengths);
        assert!(lengths.len() == indices.len() && lengths.iter().all(|&length| length > 0.0));
        if let Some(kept) = kept {
            pass.keep(kept);
        }
        pass.backward(&weights, 0, &mut gradient);
        gradient
    };
    let kept =
        |places: &[usize]| -> Vec<Kept> { places.iter().map(|&place| Kept { place, weight: 1.0 }).collect() };
    let all = of(&[9, 2, 4, 11], None);
    assert_eq!(of(&[9, 2, 4, 11], Some(&kept(&[0, 1, 2, 3]))), all);
    assert_eq!(of(&[9, 2, 4, 11], Some(&kept(&[1, 3]))), of(&[2, 11], None));
    assert!(of(&[9, 2, 4, 11], Some(&[])).iter().all(|&g| g == 0.0));
    let doubled = of(&[9, 2], Some(&[Kept { place: 1, weight: 2.0 }]));
    assert!(
        doubled
            .iter()
            .zip(of(&[2], None))
            .all(|(two, one)| (two - 2.0 * one).abs() <= 1e-4 * one.abs() + 1e-5)
    );
    let mut once = vec![0.0; weights.len()];
    pass.learn(&weights, &cut.train, &[9, 2, 4, 11], 0, &mut once);
    assert_eq!(once, all);
}

#[test]
fn a_frozen_prefix_gets_no_gradient_and_the_rest_the_same() {
    let shape = Transformer::new(37, 7, [12, 2, 3]).unwrap();
    let (cut, weights) = (cut(37, 7, 1), weights(&shape, 1));
    let mut pass = Pass::new(&shape, 2);
    let mut of = |frozen| {
        let mut gradient = vec![0.0; weights.len()];
        let tally = pass.learn(&weights, &cut.train, &[1, 2], frozen, &mut gradient);
        (tally, gradient)
    };
    let parameters = shape.parameters();
    let groups = shape.groups();
    let counted: usize = groups.iter().map(|group| group.parameters).sum();
    assert_eq!((groups.len(), counted), (4, shape.parameter_count()));
    let whole = of(0);
    for frozen in 0..=4 {
        let (tally, gradient) = of(frozen);
        let first = parameters.iter().find(|group| group.layer >= frozen);
        let from = first.map_or(weights.len(), |group| group.matrix.start);
        assert_eq!(tally, whole.0);
        assert!(gradient[..from].iter().all(|&g| g == 0.0), "{frozen}");
        assert_eq!(gradient[from..], whole.1[from..]);
    }
}

#[test]
fn gpt_2_small_has_its_parameters_and_begins_as_it_does() {
    let small = Transformer::new(50_257, 1024, [768, 12, 12]).unwrap();
    // 124,439,808 with a vocabulary of 50257, and 47 rows that pad it.
    assert_eq!(small.parameter_count(), 124_439_808 + 47 * 768);
    let parameters = small.parameters();
    assert!(parameters.windows(2).all(|pair| pair[0].bias.end == pair[1].matrix.start));
    assert_eq!(parameters.last().unwrap().bias.end, small.parameter_count());
    for (seed, context) in [(1, 16), (2, 3)] {
        let shape = Transformer::new(50_257, context, [64, 2, 4]).unwrap();
        let weights = shape.initial(seed);
        let cut = cut(50_257, context, seed);
        let tally = Pass::new(&shape, 1).forward(&weights, &cut.train, &[0]);
        let loss = tally.loss / tally.judged as f64;
        assert!((loss - 50_257f64.ln()).abs() < 0.2, "{loss}");
    }
    let said = Transformer::new(10, 4, [10, 1, 3]).unwrap_err().to_string();
    assert!(said.contains("'model.width' is 10 and 'model.heads' 3"), "{said}");
    assert!(Transformer::new(10, 0, [4, 1, 1]).unwrap_err().to_string().contains("'model.context' is 0"));
}
