//! All parameters of a module as one vector, in the order in which burn visits them.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

/// Parameters and the sides of their tensors.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) values: Vec<f32>,
    pub(crate) sides: Vec<Vec<usize>>,
}

impl<B: Backend> ModuleVisitor<B> for Collected {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        self.sides.push(tensor.dims().to_vec());
        self.values.extend(tensor.into_data().iter::<f32>());
    }
}

struct Assign<'a> {
    values: &'a [f32],
    at: usize,
    frozen: usize,
}

impl<B: Backend> ModuleMapper<B> for Assign<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let shape = old.shape();
        let to = self.at + shape.num_elements();
        let data = TensorData::new(self.values[self.at..to].to_vec(), shape);
        let tensor = Tensor::from_data(data, &old.device());
        let tensor = if self.at < self.frozen { tensor } else { tensor.require_grad() };
        self.at = to;
        Param::from_mapped_value(id, tensor, mapper)
    }
}

/// The module with these parameters, the first `frozen` of which need no gradient.
pub(crate) fn assign<B: Backend, M: Module<B>>(model: M, values: &[f32], frozen: usize) -> M {
    model.map(&mut Assign { values, at: 0, frozen })
}

struct Gradients<'a, B: AutodiffBackend> {
    gradients: &'a B::Gradients,
    found: Vec<f32>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        match tensor.grad(self.gradients) {
            Some(gradient) => self.found.extend(gradient.into_data().iter::<f32>()),
            // Frozen, or not used by the loss.
            None => self.found.extend(std::iter::repeat_n(0.0, tensor.shape().num_elements())),
        }
    }
}

/// The gradient of every parameter, zeros where there is none.
pub(crate) fn gradient<B: AutodiffBackend, M: Module<B>>(model: &M, gradients: &B::Gradients) -> Vec<f32> {
    let mut visitor = Gradients::<B> { gradients, found: Vec::new() };
    model.visit(&mut visitor);
    visitor.found
}
