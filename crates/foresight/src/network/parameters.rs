//! Where parameters lie, and which of them belong together.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Where a matrix with its bias lies among all parameters: the matrix, then the bias. What else is a vector,
/// as the gains of a normalisation, lies with the bias of a neighbour: all of that is stepped alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Which layer's, or, of a transformer, which group's.
    pub layer: usize,
    /// Its matrix, row after row; empty where there is a bias alone.
    pub matrix: Range<usize>,
    /// Rows and columns of the matrix.
    pub sides: [usize; 2],
    /// Its bias.
    pub bias: Range<usize>,
}

impl Parameters {
    /// Matrix and bias.
    pub fn range(&self) -> Range<usize> {
        self.matrix.start..self.bias.end
    }
}

/// Parameters that are frozen, measured and counted together: a layer, as a rule. A *prefix* is the first so
/// many groups from the input on, where a backward pass can end early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name, as logs have it.
    pub name: String,
    /// Parameters in it.
    pub parameters: usize,
    /// Multiply-adds of a forward pass of one example.
    pub multiply_adds: u64,
}

/// Of a frozen prefix of groups, how many matrices with their biases it is.
pub(crate) fn frozen_parameters(parameters: &[Parameters], frozen: usize) -> usize {
    let mut places = parameters.iter().map(|parameters| parameters.layer).peekable();
    let mut count = 0;
    for _ in 0..frozen {
        let Some(layer) = places.next() else { break };
        count += 1;
        while places.next_if_eq(&layer).is_some() {
            count += 1;
        }
    }
    count
}
