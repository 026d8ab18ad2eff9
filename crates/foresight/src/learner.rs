//! A network where it learns: on the CPU or on a device.

use std::sync::atomic::AtomicBool;

#[cfg(feature = "cuda")]
use gatework_gpu::{Device, DeviceChoice};

#[cfg(feature = "cuda")]
use crate::cuda::{DeviceTrainee, ProductsBy};
use crate::data::Data;
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::native::write;
use crate::native::{Native, NativeOptions, Writing};
use crate::network::Group;
#[cfg(feature = "cuda")]
use crate::network::transformer;
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
/// The name of the device whose memory is the machine's.
pub(crate) const EMULATED: &str = "emulated";

/// Refuses a `run.device` that is no one place, and a `run.products` that nobody has. Whether the device is
/// there shows when it is opened.
pub(crate) fn check_place(device: &str, products: &str) -> Result<()> {
    #[cfg(feature = "cuda")]
    {
        let by = ProductsBy::named(products)?;
        match device.parse::<DeviceChoice>()? {
            DeviceChoice::Cpu => Ok(()),
            DeviceChoice::Cuda(_) | DeviceChoice::Emulated => by.require(),
            DeviceChoice::Auto => {
                Err(Error::config("'run.device' is 'auto': a run says where it is, as cpu, cuda or emulated"))
            }
            DeviceChoice::Several(_) => Err(Error::config(format!(
                "'run.device' is '{device}', which are several devices: a run is on one, as cpu, cuda:1 or emulated"
            ))),
        }
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = products;
        if device == CPU { Ok(()) } else { Err(built_without(device)) }
    }
}

#[cfg(not(feature = "cuda"))]
fn built_without(device: &str) -> Error {
    Error::config(format!(
        "'run.device' is '{device}', and this program was built without the feature 'cuda': it trains on the CPU, \
         with 'run.device' as 'cpu'"
    ))
}

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
        check_place(device, products)?;
        let device = Device::open(device)?;
        let trainee = DeviceTrainee::new(&device.stream()?, options, data, ProductsBy::named(products)?)?;
        Ok(Self::Device(Box::new(trainee)))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_device(_: NativeOptions, _: &Data, device: &str, _: &str) -> Result<Self> {
        Err(built_without(device))
    }

    /// Bytes of weights and average, of the optimiser and of passes that a network would hold on a device of
    /// that name.
    pub(crate) fn bytes(options: &NativeOptions, device: &str, products: &str) -> Result<[usize; 3]> {
        check_place(device, products)?;
        #[cfg(feature = "cuda")]
        if device != CPU {
            return DeviceTrainee::bytes(options, ProductsBy::named(products)?);
        }
        Ok(Native::bytes(options))
    }

    /// Where it learns, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Cpu(_) => "the CPU".into(),
            #[cfg(feature = "cuda")]
            Self::Device(trainee) => trainee.place(),
        }
    }

    /// What a transformer writes, until somebody interrupts. Wherever the network learns, it writes on the CPU,
    /// in single precision.
    pub fn write(&self, which: Which, writing: &Writing<'_>, interrupted: &AtomicBool) -> Result<Vec<u16>> {
        match self {
            Self::Cpu(native) => native.write(which, writing, interrupted),
            #[cfg(feature = "cuda")]
            Self::Device(trainee) => {
                let mut pass = transformer::Pass::new(trainee.options().architecture.transformer()?, 1);
                write(&mut pass, &trainee.download(which)?, writing, interrupted)
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
