//! `gatework private`: two parties, keys from a dealer, numbers that neither sees.

mod answer;
mod bench;
mod bundled;
mod cert;
mod check;
mod cost;
mod deal;
mod describe;
mod device_bytes;
mod lengths;
mod model_stop;
mod options;
mod run;
mod serve;
mod session_cost;
mod stop;
mod summary;
mod texts;
mod timeline;
mod weights;

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use gatework_fss::workloads;
use gatework_gpu::Target;
use gatework_lab::Workload;
use gatework_private::model::PublicModel;
use gatework_private::net::{CertificateFiles, Identity, Timeouts};

use crate::command::ending::{Ending, Failure};
use crate::command::machine::{Job, Machine};
use crate::command::noun::{Noun, Stop};
use crate::command::shell::{DeviceUse, Shell};

use self::options::IdentityOptions;

const OVERVIEW: &str = "\
Three roles, on any three machines:
  the server     describe, then serve: it has the weights
  the dealer     deal: neither of the others, or there is no privacy
  the client     run: it has the text, and alone learns the result

First look, all roles in one process:
  gatework private run --local --text 'Where is my parcel?' --check";

/// Infer privately: two parties, keys from a dealer, numbers that neither sees
#[derive(Debug, Parser)]
#[command(name = "private", after_help = OVERVIEW)]
pub(crate) enum Private {
    /// Write what dealer and client may know of a model (the server does this)
    #[command(after_help = options::DESCRIBE_EXAMPLES)]
    Describe(options::DescribeOptions),
    /// Deal keys into one file for each party (a third party does this, neither server nor client)
    #[command(after_help = options::DEAL_EXAMPLES)]
    Deal(options::DealOptions),
    /// Serve a model whose weights nobody else sees
    #[command(after_help = options::SERVE_EXAMPLES)]
    Serve(options::ServeOptions),
    /// Run texts through a server's model without showing them to it
    #[command(after_help = options::RUN_EXAMPLES)]
    Run(options::RunOptions),
    /// Measure inferences between two processes on this machine
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::BenchOptions),
    /// Compare a model in fixed point with the checkpoint in double precision (the server does this, before
    /// it describes one)
    #[command(after_help = options::CHECK_EXAMPLES)]
    Check(options::CheckOptions),
    /// Make certificates for a first try
    #[command(
        after_help = "Examples:\n  gatework private cert --out certificates\n  gatework private cert --out certificates --name models.example.org"
    )]
    Cert(options::CertOptions),
    /// Show the keys, traffic, rounds and generator calls of a private inference, and a predicted time
    #[command(after_help = options::PRIVATE_COST_EXAMPLES)]
    Cost(options::PrivateCostOptions),
}

impl Noun for Private {
    const AREA: &'static str = "fss";
    const PURPOSE: &'static str =
        "have a server's transformer read your text: it never sees the text, and you never see its weights";
    const FIRST_COMMAND: &'static str = "gatework private run --local --text 'Where is my parcel?' --check";

    fn workloads() -> Vec<Box<dyn Workload>> {
        workloads::workloads().into_iter().chain(gatework_private::workloads::workloads()).collect()
    }

    fn device_use(&self) -> DeviceUse {
        match self {
            Self::Describe(_) | Self::Deal(_) | Self::Serve(_) | Self::Run(_) | Self::Bench(_) => {
                DeviceUse::RunsThere
            }
            Self::Check(_) => DeviceUse::CpuOnly,
            Self::Cert(_) | Self::Cost(_) => DeviceUse::None,
        }
    }

    fn run(self, shell: &Shell) -> Result<Ending, Failure> {
        match self {
            Self::Describe(options) => describe::run(&options, shell),
            Self::Deal(options) => deal::run(&options, shell),
            Self::Serve(options) => serve::run(&options, shell),
            Self::Run(options) => run::run(&options, shell),
            Self::Bench(options) => bench::run(&options, shell),
            Self::Check(options) => check::run(&options, shell),
            Self::Cert(options) => cert::run(&options, shell),
            Self::Cost(options) => cost::run(&options, shell),
        }
    }

    fn jobs(machine: &Machine) -> Vec<Job> {
        vec![Job { name: "private", presence: machine.engine("by kernels", "by vector instructions") }]
    }

    fn stops(target: &Target) -> Vec<Stop<'_>> {
        vec![
            Stop::new("private", stop::SUMMARY, || stop::visit(target)),
            Stop::new("private/model", model_stop::SUMMARY, || model_stop::visit(target)),
        ]
    }
}

/// A model as `private describe` wrote it.
fn public_model(path: &Path) -> Result<PublicModel, Failure> {
    let refused = |why: String| Failure::input(format!("--public {}: {why}", path.display()));
    let text = std::fs::read(path)
        .map_err(|error| refused(format!("{error}; `gatework private describe` writes such a file")))?;
    PublicModel::from_json(&text).map_err(|error| refused(error.to_string()))
}

/// Whose certificate is wanted of a folder.
type Side = fn(&CertificateFiles) -> gatework_private::Result<Identity>;

impl IdentityOptions {
    fn load(&self, side: Side) -> Result<Identity, Failure> {
        match (&self.certificates, &self.cert, &self.key, &self.ca) {
            (Some(folder), ..) => side(&CertificateFiles::of(folder)).map_err(Failure::from),
            (None, Some(cert), Some(key), Some(ca)) => Identity::load(cert, key, ca).map_err(Failure::from),
            _ => Err(Failure::input(
                "no identity was given: pass --cert, --key and --ca, or a folder of `gatework private cert` as --certificates"
                    .into(),
            )),
        }
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts { message: Duration::from_secs(self.timeout), ..Timeouts::default() }
    }
}
