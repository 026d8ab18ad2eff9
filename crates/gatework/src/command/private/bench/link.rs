//! The link of two processes, on its own.

use std::path::Path;

use gatework_private::net::{
    CertificateFiles, Link, LinkEnd, Timeouts, listen, make_test_certificates, measure_link,
};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::shell::Shell;

use super::server::ServerProcess;
use super::{SERVER_NAME, temporary_folder};

/// What was measured of the link.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LinkTimes {
    /// Until 1 KiB has come back, the median.
    round_trip_1kib_us: f64,
    /// Until both sides have exchanged 512 KiB, the median.
    exchange_512kib_us: f64,
    /// Each way, both at once, in messages of 64 MiB.
    both_ways_gb_s: f64,
}

impl LinkTimes {
    pub(super) fn text(&self) -> String {
        format!(
            "link: 1 KiB there and back in {:.1} us, 512 KiB exchanged in {:.0} us, 64 MiB at {:.2} GB/s each way at once",
            self.round_trip_1kib_us, self.exchange_512kib_us, self.both_ways_gb_s
        )
    }
}

/// Measures the link to a process that is started for it.
pub(super) fn measure(folder: Option<&Path>, shell: &Shell) -> Result<LinkTimes, Failure> {
    let folder = temporary_folder(folder)?;
    let certificates = make_test_certificates(folder.path(), &[SERVER_NAME.into()])?;
    let peer = ["private", "bench", "--link-peer"].map(str::to_owned);
    let arguments: Vec<String> = peer.into_iter().chain([folder.path().display().to_string()]).collect();
    let server = ServerProcess::start(&arguments, &shell.progress)?;
    let measured = Link::connect(server.address(), SERVER_NAME, &certificates.client()?, Timeouts::default())
        .and_then(|mut link| measure_link(&mut link, LinkEnd::Measures));
    let figures = measured.map_err(|error| server.blamed(error.into()))?;
    Ok(LinkTimes {
        round_trip_1kib_us: figures.short_round_trip.as_secs_f64() * 1e6,
        exchange_512kib_us: figures.middle_exchange.as_secs_f64() * 1e6,
        both_ways_gb_s: figures.bytes_a_second / 1e9,
    })
}

/// `--link`: the link alone.
pub(super) fn run(folder: Option<&Path>, shell: &Shell) -> Result<Ending, Failure> {
    let times = measure(folder, shell)?;
    shell.output.show(&times, || times.text())?;
    Ok(Ending::Done)
}

/// The other end, with certificates of a folder.
pub(super) fn answer(folder: &Path, shell: &Shell) -> Result<Ending, Failure> {
    let identity = CertificateFiles::of(folder).server()?;
    let (listener, address) = listen("127.0.0.1:0")?;
    shell.progress.say(&format!("listening on {address}"));
    let (socket, _) = listener.accept().map_err(|source| gatework_private::Error::Socket { source })?;
    let mut link = Link::accept(socket, &identity, Timeouts::default())?;
    measure_link(&mut link, LinkEnd::Answers)?;
    Ok(Ending::Done)
}
