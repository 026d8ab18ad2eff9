//! Which layers a network has.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::network::Group;
use crate::network::Parameters;
use crate::random::Random;

/// A layer. Everything runs from one example's numbers to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    /// `y = x W + b`, with `W` as `inputs × outputs`.
    Dense {
        /// Numbers that come in.
        inputs: usize,
        /// Numbers that go out.
        outputs: usize,
    },
    /// A square kernel without padding over channels × rows × columns: `W` is `filters × (channels kernel²)`.
    Convolution {
        /// Channels, rows, columns that come in.
        shape: [usize; 3],
        /// Channels that go out.
        filters: usize,
        /// The kernel's side.
        kernel: usize,
    },
    /// The largest of each 2 × 2; an odd last row or column is dropped.
    MaxPool {
        /// Channels, rows, columns that come in.
        shape: [usize; 3],
    },
    /// `max(x, 0)`.
    Relu {
        /// Numbers that pass.
        size: usize,
    },
}

impl Layer {
    /// Numbers that come in.
    pub fn inputs(&self) -> usize {
        match *self {
            Self::Dense { inputs, .. } => inputs,
            Self::Convolution { shape, .. } | Self::MaxPool { shape } => shape.iter().product(),
            Self::Relu { size } => size,
        }
    }

    /// Channels, rows, columns that go out.
    pub fn output_shape(&self) -> [usize; 3] {
        match *self {
            Self::Dense { outputs, .. } => [1, 1, outputs],
            Self::Convolution { shape: [_, rows, columns], filters, kernel } => {
                [filters, rows + 1 - kernel, columns + 1 - kernel]
            }
            Self::MaxPool { shape: [channels, rows, columns] } => [channels, rows / 2, columns / 2],
            Self::Relu { size } => [1, 1, size],
        }
    }

    /// Numbers that go out.
    pub fn outputs(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// Rows and columns of its matrix, if it has one.
    pub fn matrix(&self) -> Option<[usize; 2]> {
        match *self {
            Self::Dense { inputs, outputs } => Some([inputs, outputs]),
            Self::Convolution { shape: [channels, ..], filters, kernel } => {
                Some([filters, channels * kernel * kernel])
            }
            Self::MaxPool { .. } | Self::Relu { .. } => None,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Dense { .. } => "dense",
            Self::Convolution { .. } => "convolution",
            Self::MaxPool { .. } => "maximum",
            Self::Relu { .. } => "relu",
        }
    }

    /// Numbers of its bias.
    fn bias(&self) -> usize {
        match *self {
            Self::Dense { outputs, .. } => outputs,
            Self::Convolution { filters, .. } => filters,
            Self::MaxPool { .. } | Self::Relu { .. } => 0,
        }
    }

    /// Multiply-adds of a forward pass of one example.
    pub fn multiply_adds(&self) -> u64 {
        match *self {
            Self::Dense { inputs, outputs } => (inputs * outputs) as u64,
            Self::Convolution { shape: [channels, ..], kernel, .. } => {
                (self.outputs() * channels * kernel * kernel) as u64
            }
            Self::MaxPool { .. } | Self::Relu { .. } => 0,
        }
    }
}

/// A network as a list of layers, whose last gives one number a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    shape: [usize; 3],
    layers: Vec<Layer>,
}

impl Layers {
    /// Dense layers with ReLUs between them.
    pub fn mlp(shape: [usize; 3], hidden: &[usize], classes: usize) -> Result<Self> {
        let mut layers = Vec::new();
        append_dense(&mut layers, shape.iter().product(), hidden, classes);
        Self::checked(shape, layers)
    }

    /// For each entry of `filters` a convolution, a 2 × 2 maximum and a ReLU; then dense layers. (The maximum
    /// comes before the ReLU: both orders compute the same, and this one has a quarter of the work.)
    pub fn cnn(
        shape: [usize; 3],
        filters: &[usize],
        kernel: usize,
        hidden: &[usize],
        classes: usize,
    ) -> Result<Self> {
        let mut layers = Vec::new();
        let mut at = shape;
        for &filters in filters {
            let [_, rows, columns] = at;
            if kernel == 0 || rows < kernel + 1 || columns < kernel + 1 {
                return Err(Error::config(format!(
                    "a kernel of {kernel} and a 2 x 2 maximum do not fit into {rows} x {columns}: \
                     use fewer entries in 'model.filters' or a smaller 'model.kernel'"
                )));
            }
            layers.push(Layer::Convolution { shape: at, filters, kernel });
            layers.push(Layer::MaxPool { shape: [filters, rows + 1 - kernel, columns + 1 - kernel] });
            at = [filters, (rows + 1 - kernel) / 2, (columns + 1 - kernel) / 2];
            layers.push(Layer::Relu { size: at.iter().product() });
        }
        append_dense(&mut layers, at.iter().product(), hidden, classes);
        Self::checked(shape, layers)
    }

    fn checked(shape: [usize; 3], layers: Vec<Layer>) -> Result<Self> {
        if layers.iter().any(|layer| layer.inputs() == 0 || layer.outputs() == 0) {
            return Err(Error::config("a layer of the model has no numbers: widths and filters start at 1"));
        }
        Ok(Self { shape, layers })
    }

    /// Its layers, the first first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Numbers of one example. A damaged checkpoint may name sides whose product no machine counts.
    pub fn inputs(&self) -> usize {
        self.shape.iter().fold(1, |numbers, &side| usize::saturating_mul(numbers, side))
    }

    /// Classes.
    pub fn classes(&self) -> usize {
        self.layers.last().map_or(0, Layer::outputs)
    }

    /// The parameters of all layers that have any, in order.
    pub fn parameters(&self) -> Vec<Parameters> {
        let mut at = 0;
        let mut found = Vec::new();
        for (layer, kind) in self.layers.iter().enumerate() {
            let Some(sides) = kind.matrix() else { continue };
            let matrix = at..at + sides[0] * sides[1];
            let bias = matrix.end..matrix.end + kind.bias();
            at = bias.end;
            found.push(Parameters { layer, matrix, sides, bias });
        }
        found
    }

    /// Its layers with parameters, as what is frozen and counted.
    pub fn groups(&self) -> Vec<Group> {
        let parameters = self.parameters();
        let group = |(place, group): (usize, &Parameters)| Group {
            name: format!("{} {}", self.layers[group.layer].name(), place + 1),
            parameters: group.range().len(),
            multiply_adds: self.layers[group.layer].multiply_adds(),
        };
        parameters.iter().enumerate().map(group).collect()
    }

    /// How many parameters there are.
    pub fn parameter_count(&self) -> usize {
        self.parameters().last().map_or(0, |last| last.bias.end)
    }

    /// Parameters to begin with: He's normal numbers, `w ~ N(0, 2 / inputs)`, a tenth of that in the last
    /// layer, and biases of zero.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed, "initial parameters");
        let mut all = vec![0.0; self.parameter_count()];
        let parameters = self.parameters();
        for (place, group) in parameters.iter().enumerate() {
            let inputs = match self.layers[group.layer] {
                Layer::Convolution { .. } => group.sides[1],
                _ => group.sides[0],
            };
            let last = if place + 1 == parameters.len() { 0.1 } else { 1.0 };
            let deviation = last * (2.0 / inputs as f64).sqrt();
            all[group.matrix.clone()].iter_mut().for_each(|w| *w = (deviation * random.normal()) as f32);
        }
        all
    }

    /// In words, as `64 > dense 64x10`; two networks that agree in it have the same parameters.
    pub fn text(&self) -> String {
        let layer = |layer: &Layer| match *layer {
            Layer::Dense { inputs, outputs } => format!(" > dense {inputs}x{outputs}"),
            Layer::Convolution { shape, filters, kernel } => {
                format!(" > convolution {shape:?} to {filters}, kernel {kernel}")
            }
            Layer::MaxPool { .. } => " > maximum".into(),
            Layer::Relu { .. } => " > relu".into(),
        };
        format!("{}{}", self.inputs(), self.layers.iter().map(layer).collect::<String>())
    }
}

fn append_dense(layers: &mut Vec<Layer>, inputs: usize, hidden: &[usize], classes: usize) {
    let mut inputs = inputs;
    for &outputs in hidden {
        layers.push(Layer::Dense { inputs, outputs });
        layers.push(Layer::Relu { size: outputs });
        inputs = outputs;
    }
    layers.push(Layer::Dense { inputs, outputs: classes });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_cnn_lie_one_after_the_other() {
        let cnn = Layers::cnn([1, 28, 28], &[8, 16], 5, &[64], 10).unwrap();
        let groups = cnn.parameters();
        assert_eq!(groups.iter().map(|group| group.sides).collect::<Vec<_>>(), {
            [[8, 25], [16, 200], [256, 64], [64, 10]]
        });
        assert!(groups.windows(2).all(|pair| pair[0].bias.end == pair[1].matrix.start));
        assert_eq!(cnn.parameter_count(), 8 * 26 + 16 * 201 + 257 * 64 + 65 * 10);
        let work: u64 = cnn.layers().iter().map(Layer::multiply_adds).sum();
        assert_eq!(work, 576 * 8 * 25 + 64 * 16 * 200 + 256 * 64 + 640);
    }

    #[test]
    fn a_network_of_a_damaged_checkpoint_can_be_named() {
        let damaged = Layers { shape: [usize::MAX, 2, 2], layers: Vec::new() };
        assert_eq!(damaged.text(), usize::MAX.to_string());
    }

    #[test]
    fn a_kernel_that_does_not_fit_is_refused() {
        let said = Layers::cnn([1, 8, 8], &[4, 4, 4], 3, &[], 10).unwrap_err().to_string();
        assert!(said.contains("model.filters"), "{said}");
        assert!(Layers::mlp([1, 1, 2], &[0], 2).is_err());
    }
}
