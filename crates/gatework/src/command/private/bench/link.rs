//! The link of two processes, on its own.

use std::path::Path;

use gatework_private::net::{
    CertificateFiles, Link, LinkEnd, Reception, Timeouts, listen, make_test_certificates, measure_link,
};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::schema;
use crate::command::shell::Shell;

use super::server::ServerProcess;
use super::{SERVER_NAME, temporary_folder};

/// What was measured of the link.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LinkTimes {
    /// Connections beside the first.
    lanes: usize,
    /// Until 1 KiB has come back, the median.
    round_trip_1kib_us: f64,
    /// Until both sides have exchanged 512 KiB, the median.
    exchange_512kib_us: f64,
    /// Each way, both at once, in messages of 64 MiB.
    both_ways_gb_s: f64,
}

impl schema::Document for LinkTimes {
    const SCHEMA: schema::Schema = schema::PRIVATE_BENCH_LINK;
}

impl LinkTimes {
    pub(super) fn text(&self) -> String {
        format!(
            "link with {} lanes: 1 KiB there and back in {:.1} us, 512 KiB exchanged in {:.0} us, 64 MiB at {:.2} GB/s each way at once",
            self.lanes, self.round_trip_1kib_us, self.exchange_512kib_us, self.both_ways_gb_s
        )
    }
}

/// Measures the link to a process that is started for it.
pub(super) fn measure(folder: Option<&Path>, lanes: usize, shell: &Shell) -> Result<LinkTimes, Failure> {
    let folder = temporary_folder(folder)?;
    let certificates = make_test_certificates(folder.path(), &[SERVER_NAME.into()])?;
    let (path, most) = (folder.path().display().to_string(), lanes.to_string());
    let arguments = ["private", "bench", "--lanes", &most, "--link-peer", &path].map(str::to_owned);
    let server = ServerProcess::start(&arguments, &shell.progress)?;
    let identity = certificates.client()?;
    let link = Link::connect_with_lanes(server.address(), SERVER_NAME, &identity, Timeouts::default(), lanes);
    let measured = link.and_then(|mut link| Ok((link.lanes(), measure_link(&mut link, LinkEnd::Measures)?)));
    let (lanes, figures) = measured.map_err(|error| server.blamed(error.into()))?;
    Ok(LinkTimes {
        lanes,
        round_trip_1kib_us: figures.short_round_trip.as_secs_f64() * 1e6,
        exchange_512kib_us: figures.middle_exchange.as_secs_f64() * 1e6,
        both_ways_gb_s: figures.bytes_a_second / 1e9,
    })
}

/// `--link`: the link alone.
pub(super) fn run(folder: Option<&Path>, lanes: usize, shell: &Shell) -> Result<Ending, Failure> {
    let times = measure(folder, lanes, shell)?;
    shell.output.show(&times, || times.text())?;
    Ok(Ending::Done)
}

/// The other end, with certificates of a folder.
pub(super) fn answer(folder: &Path, lanes: usize, shell: &Shell) -> Result<Ending, Failure> {
    let identity = CertificateFiles::of(folder).server()?;
    let (listener, address) = listen("127.0.0.1:0")?;
    shell.progress.say(&format!("listening on {address}"));
    let mut link = Reception::new(identity, Timeouts::default()).with_lanes(lanes).accept(&listener)?;
    measure_link(&mut link, LinkEnd::Answers)?;
    Ok(Ending::Done)
}
