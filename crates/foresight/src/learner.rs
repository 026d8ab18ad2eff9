//! A network where it learns: on the CPU or on a device.

#[cfg(feature = "cuda")]
use gatework_gpu::{DeviceChoice, Target};

#[cfg(feature = "cuda")]
use crate::cuda::{DeviceTrainee, ProductsBy};
use crate::data::Data;
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::native::write;
use crate::native::{Native, NativeOptions};
use crate::network::{Architecture, Group};
use crate::snapshot::NativeSnapshot;
use crate::trainee::{Evaluation, Probe, Step, Taken, Trainee, Which};

/// The trainee of a configuration.
pub enum Learner {
    /// On the CPU.
    Cpu(Box<Native>),
    /// On a device.
    #[cfg(feature = "cuda")]
    Device(Box<DeviceTrainee>),
}

/// The name of the place that needs no device.
pub(crate) const CPU: &str = "cpu";

/// Does the same with either.
macro_rules! either {
    ($learner:expr, $inner:ident => $does:expr) => {
        match $learner {
            Learner::Cpu($inner) => $does,
            #[cfg(feature = "cuda")]
            Learner::Device($inner) => $does,
        }
    };
}

impl Learner {
    /// A network with initial weights on the device of that name, whose products are by somebody of that
    /// name; the CPU has its own.
    pub(crate) fn new(options: NativeOptions, data: Data, device: &str, products: &str) -> Result<Self> {
        if device == CPU {
            return Native::new(options, data).map(|native| Self::Cpu(Box::new(native)));
        }
        Self::on_device(options, &data, device, products)
    }

    #[cfg(feature = "cuda")]
    fn on_device(options: NativeOptions, data: &Data, device: &str, products: &str) -> Result<Self> {
        let by = ProductsBy::named(products)?;
        let choice: DeviceChoice = device.parse()?;
        if choice == DeviceChoice::Auto {
            return Err(Error::config(
                "'run.device' is 'auto': a run says where it is, as cpu, cuda or emulated",
            ));
        }
        let Target::Gpu(device) = Target::of(choice, &|_| ())? else {
            return Err(Error::config(format!(
                "'run.device' is '{device}', which is no device with kernels"
            )));
        };
        let trainee = DeviceTrainee::new(&device.stream()?, options, data, by)?;
        Ok(Self::Device(Box::new(trainee)))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_device(_: NativeOptions, _: &Data, device: &str, _: &str) -> Result<Self> {
        Err(Error::config(format!(
            "'run.device' is '{device}', and this program was built without the feature 'cuda': it trains on the CPU"
        )))
    }

    /// Bytes of weights and average, of the optimiser and of passes that a network would hold on a device of
    /// that name.
    pub(crate) fn bytes(architecture: &Architecture, batch: usize, device: &str) -> Result<[usize; 3]> {
        #[cfg(feature = "cuda")]
        if device != CPU {
            return DeviceTrainee::bytes(architecture, batch);
        }
        let _ = device;
        Ok(Native::bytes(architecture, batch))
    }

    /// Where it learns, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Cpu(_) => "the CPU".into(),
            #[cfg(feature = "cuda")]
            Self::Device(trainee) => trainee.place(),
        }
    }

    /// What a transformer writes after the tokens of `prompt`: `count` tokens, each drawn by `softmax(logits
    /// / temperature)` of the last tokens that fit its context; the likeliest each time at temperature 0.
    /// Wherever the network learns, it writes on the CPU, in single precision.
    pub fn write(
        &self,
        which: Which,
        prompt: &[u16],
        count: usize,
        temperature: f64,
        seed: u64,
    ) -> Result<Vec<u16>> {
        match self {
            Self::Cpu(native) => native.write(which, prompt, count, temperature, seed),
            #[cfg(feature = "cuda")]
            Self::Device(trainee) => {
                let architecture = &trainee.options().architecture;
                write(architecture, &trainee.download(which)?, prompt, count, temperature, seed)
            }
        }
    }
}

impl Trainee for Learner {
    type Snapshot = NativeSnapshot;
    type Weights = Vec<f32>;

    fn fingerprint(&self) -> String {
        either!(self, inner => inner.fingerprint())
    }

    fn groups(&self) -> &[Group] {
        either!(self, inner => inner.groups())
    }

    fn step(&mut self, step: &Step) -> Result<Taken> {
        either!(self, inner => inner.step(step))
    }

    fn probe(&self, which: Which) -> Result<Probe> {
        either!(self, inner => inner.probe(which))
    }

    fn evaluate(&self, which: Which) -> Result<Evaluation> {
        either!(self, inner => inner.evaluate(which))
    }

    fn snapshot(&self) -> Result<NativeSnapshot> {
        either!(self, inner => inner.snapshot())
    }

    fn snapshot_into(&self, snapshot: &mut NativeSnapshot) -> Result<()> {
        either!(self, inner => inner.snapshot_into(snapshot))
    }

    fn restore(&mut self, snapshot: &NativeSnapshot) -> Result<()> {
        either!(self, inner => inner.restore(snapshot))
    }

    fn roll_back(&mut self, snapshot: &NativeSnapshot) -> Result<()> {
        either!(self, inner => inner.roll_back(snapshot))
    }

    fn weights(&self) -> Result<Vec<f32>> {
        either!(self, inner => inner.weights())
    }

    fn weights_into(&self, weights: &mut Vec<f32>) -> Result<()> {
        either!(self, inner => inner.weights_into(weights))
    }

    fn combine(&mut self, terms: &[(f32, &Vec<f32>)]) -> Result<()> {
        either!(self, inner => inner.combine(terms))
    }

    fn step_work(&self) -> f64 {
        either!(self, inner => inner.step_work())
    }

    fn probe_cost(&self) -> f64 {
        either!(self, inner => inner.probe_cost())
    }
}
