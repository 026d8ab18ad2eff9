//! `gatework private`: two parties, keys from a dealer, numbers that neither sees.

mod answer;
mod cert;
mod cost;
mod deal;
mod describe;
mod lengths;
mod loopback;
pub(crate) mod model_stop;
pub(crate) mod options;
mod run;
mod serve;
mod session_cost;
pub(crate) mod stop;
mod summary;
mod texts;

use std::path::Path;
use std::time::Duration;

use gatework_fss::model::PublicModel;
use gatework_fss::net::{CertificateFiles, Identity, Timeouts};

use self::options::{IdentityOptions, PrivateCommand};
use crate::command::ending::{Ending, Failure};
use crate::command::output::Output;
use crate::command::progress::Progress;

pub(crate) fn run(command: &PrivateCommand, output: &Output, progress: &Progress) -> Result<Ending, Failure> {
    match command {
        PrivateCommand::Describe(options) => describe::run(options, output, progress),
        PrivateCommand::Deal(options) => deal::run(options, output, progress),
        PrivateCommand::Serve(options) => serve::run(options, output, progress),
        PrivateCommand::Run(options) => run::run(options, output, progress),
        PrivateCommand::Cert(options) => cert::run(options, output),
        PrivateCommand::Cost(options) => cost::run(options, output),
    }
}

/// A model as `private describe` wrote it.
fn public_model(path: &Path) -> Result<PublicModel, Failure> {
    let refused = |why: String| Failure::Input(format!("--public {}: {why}", path.display()));
    let text = std::fs::read(path)
        .map_err(|error| refused(format!("{error}; `gatework private describe` writes such a file")))?;
    PublicModel::from_json(&text).map_err(|error| refused(error.to_string()))
}

/// Whose certificate is wanted of a folder.
type Side = fn(&CertificateFiles) -> gatework_fss::Result<Identity>;

impl IdentityOptions {
    fn load(&self, side: Side) -> Result<Identity, Failure> {
        match (&self.certificates, &self.cert, &self.key, &self.ca) {
            (Some(folder), ..) => side(&CertificateFiles::of(folder)).map_err(Failure::from),
            (None, Some(cert), Some(key), Some(ca)) => Identity::load(cert, key, ca).map_err(Failure::from),
            _ => Err(Failure::Input(
                "nobody knows who this is: give --cert, --key and --ca, or a folder of `gatework private cert` as --certificates"
                    .into(),
            )),
        }
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts { message: Duration::from_secs(self.timeout), ..Timeouts::default() }
    }
}
