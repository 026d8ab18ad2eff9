//! Models of well-known shapes with weights that are drawn: for measurements, where nobody cares what a model
//! says.

use gatework_fss::secret::Secret;
use rayon::prelude::*;

use crate::error::Result;
use crate::graph::{Family, Graph, Head, Model, Weight, WeightKind};
use crate::range::Trust;

use super::checkpoint::publish;
use super::public::PublicModel;
use super::quantised::QuantisedWeights;
use super::refused;

/// The standard deviation with which BERT and GPT-2 are initialised. A matrix of n × m such entries has a
/// spectral norm of about 0.02 (√n + √m), well within what the range analysis proves.
const DEVIATION: f64 = 0.02;

const fn toy(name: &'static str, family: Family) -> Model {
    let (head, types) = match family {
        Family::Bert => (Head::Classes(2), 2),
        Family::Gpt | Family::Llama => (Head::NextWord, 0),
    };
    Model {
        name,
        family,
        layers: 2,
        heads: 2,
        width: 16,
        inner: 24,
        vocabulary: 48,
        types,
        context: 64,
        head,
        epsilon: 1e-5,
        bits: 64,
    }
}

/// Small enough for a test.
const TOYS: [Model; 2] = [toy("bert-toy", Family::Bert), toy("gpt2-toy", Family::Gpt)];

/// A shape, and the seed of its weights. Whoever has the same two has the same weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomModel {
    shape: Model,
    seed: u64,
}

impl RandomModel {
    /// The shapes that there are.
    pub fn shapes() -> impl Iterator<Item = &'static str> {
        // A description that is read from outside is of no LLaMA, whose weights nobody could serve.
        let evaluated = |model: &Model| model.family != Family::Llama;
        Model::ALL.into_iter().filter(evaluated).chain(TOYS).map(|model| model.name)
    }

    /// The shape of that name, with weights of that seed.
    pub fn new(name: &str, seed: u64) -> Result<Self> {
        let found = Model::ALL.into_iter().chain(TOYS).find(|model| model.name == name);
        let names = || Self::shapes().collect::<Vec<_>>().join(", ");
        let shape = found.filter(|_| Self::shapes().any(|shape| shape == name));
        let shape =
            shape.ok_or_else(|| refused(format!("there is no shape '{name}'; there are {}", names())))?;
        Ok(Self { shape, seed })
    }

    /// The longest sequence that it takes.
    pub fn context(&self) -> usize {
        self.shape.context
    }

    /// What dealer and client may know of it, for sequences of up to `longest` tokens: see
    /// [`super::Checkpoint::public`].
    pub fn public(&self, longest: usize) -> Result<PublicModel> {
        self.public_by(longest, Trust::default())
    }

    /// The same, with proofs of ranges that rest on `trust`.
    pub fn public_by(&self, longest: usize, trust: Trust) -> Result<PublicModel> {
        let widest = Model { bits: 64, ..self.up_to(longest)? };
        publish(&widest, &self.draw(&widest.graph(longest)?), None, trust)
    }

    /// The weights, for the model that was made public.
    pub fn weights(&self, public: &PublicModel) -> Result<QuantisedWeights> {
        Ok(self.draw(&self.up_to(public.longest())?.graph(public.longest())?))
    }

    fn up_to(&self, longest: usize) -> Result<Model> {
        self.shape.check(longest)?;
        Ok(Model { context: longest, ..self.shape })
    }

    fn draw(&self, graph: &Graph) -> QuantisedWeights {
        let tensors = graph.weights().par_iter().enumerate();
        let drawn = tensors.map(|(index, weight)| {
            let mut noise = Noise::new(self.seed, index as u64);
            self.tensor(graph, weight, &mut noise)
        });
        QuantisedWeights::new(drawn.collect())
    }

    fn tensor(&self, graph: &Graph, weight: &Weight, noise: &mut Noise) -> Secret<i32> {
        let (of_one, scale) = match weight.kind {
            WeightKind::Gain => (1.0, 1.0),
            // Queries have the scale of the scores, as those of a checkpoint.
            _ if weight.name.contains("query") => {
                (0.0, ((self.shape.width / self.shape.heads) as f64).powf(-0.5))
            }
            _ => (0.0, 1.0),
        };
        let fraction = graph.format().fraction;
        let fraction = if weight.kind == WeightKind::Bias { 2 * fraction } else { fraction };
        let unit = 2f64.powi(fraction as i32);
        // A uniform number from -a to a has a deviation of a / √3.
        let reach = DEVIATION * 3f64.sqrt();
        (0..weight.len()).map(|_| ((of_one + scale * reach * noise.next()) * unit).round() as i32).collect()
    }
}

/// SplitMix64, a stream for each tensor.
struct Noise(u64);

impl Noise {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed);
        mixed.0 = mixed.bits() ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Self(mixed.bits())
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From -1 to 1.
    fn next(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Owner;

    #[test]
    fn a_seed_gives_the_same_weights_and_they_are_proved() {
        for name in ["bert-toy", "gpt2-toy"] {
            let model = RandomModel::new(name, 7).unwrap();
            let public = model.public(8).unwrap();
            assert_eq!(public.clamps(), 0, "{name}");
            Owner::new(&public, RandomModel::new(name, 7).unwrap().weights(&public).unwrap()).unwrap();
            let other = RandomModel::new(name, 8).unwrap().weights(&public).unwrap();
            assert!(Owner::new(&public, other).is_err(), "{name}: another seed has other weights");
        }
        let error = RandomModel::new("llama2-7b", 1).unwrap_err().to_string();
        assert!(error.contains("bert-base") && error.contains("gpt2-toy"), "{error}");
    }
}
