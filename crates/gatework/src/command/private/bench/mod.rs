//! `gatework private bench`: an inference between two processes, from token ids to the result.

mod deal;
mod document;
mod link;
mod server;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gatework_fss::backend::Backend;
use gatework_fss::executor::run_clear;
use gatework_fss::{Party, Randomness, backend_on, workloads};
use gatework_gpu::{DeviceChoice, Source, Target};
use gatework_lab::{DeviceRecord, MeasuredRecord, Record, Store};
use gatework_private::disk::KeyFile;
use gatework_private::model::{Owner, PublicModel};
use gatework_private::net::{CertificateFiles, LANES, Link, Timeouts, make_test_certificates};
use gatework_private::range::Trust;
use gatework_private::roles::{Client, PartTime, Summary, deal_files};

use crate::command::device_memory::MemoryOptions;
use crate::command::ending::{Ending, Failure};
use crate::command::files::write_file;
use crate::command::interrupt::{SecretFolder, end_with_input};
use crate::command::shell::Shell;

use self::document::{Document, Session};
use self::server::ServerProcess;
use super::weights::WeightOptions;

pub(super) const EXAMPLES: &str = "\
Examples:
  gatework private bench --shape bert-base --tokens 128 --device cuda --folder /dev/shm
  gatework private bench --shape gpt2 --keys files --repeats 5 --json
  gatework private bench --shape bert-tiny --tokens 16 --device cpu
  gatework private bench --link
  gatework private bench --deal --shape bert-base --device cuda
  gatework private bench --model all-MiniLM-L6-v2 --tokens 16 --batch 32 \\
      --device cuda --server-device cpu

Shapes: bert-tiny, bert-base, bert-large, gpt2, gpt-neo-1.3b, bert-toy, gpt2-toy. Their
weights are drawn from --seed.

The time covers everything from token ids in the client's memory to the result in the
client's memory. The server is a process of its own, and the two talk over TLS on this
machine. Both are warm: kernels are compiled, and the masked weights have been
exchanged. With --keys memory, both have the keys in memory when the clock starts; with
--keys files, the time includes reading, verifying and erasing them. The embedding, the
layers and the head are timed by stage; with --results, 'gatework lab report' draws them
as a timeline.

Keys of --per-deal requests at a time are stored in --folder. They take gigabytes per
request, so a folder in memory is faster.

The exit code is 1 if a result differs from the clear evaluation in any bit.";

/// Where keys are when the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KeyPlace {
    /// In both parties' memory, read and verified
    Memory,
    /// In their files
    Files,
}

impl KeyPlace {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
        }
    }
}

fn batch_size(given: &str) -> Result<NonZeroUsize, String> {
    match given.parse::<NonZeroUsize>() {
        Ok(texts) if texts.get() <= 10_000 => Ok(texts),
        _ => Err("give a number from 1 to 10000".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    weights: WeightOptions,
    #[command(flatten)]
    memory: MemoryOptions,
    /// Number of tokens of a text
    #[arg(long, default_value = "128", value_name = "N")]
    tokens: NonZeroUsize,
    /// Number of texts of a request, at most 10000
    #[arg(long, default_value = "1", value_name = "N", value_parser = batch_size)]
    batch: NonZeroUsize,
    /// Number of requests to time
    #[arg(long, default_value = "10", value_name = "N")]
    repeats: NonZeroUsize,
    /// Number of requests to run before those that are timed
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: usize,
    /// Truncate faithfully after every product, even where a short truncation is proved to be enough
    #[arg(long)]
    faithful: bool,
    /// Where keys are when the clock starts
    #[arg(long, value_enum, default_value = "memory", value_name = "PLACE")]
    keys: KeyPlace,
    /// Number of requests whose keys are dealt together; each deal is a session, and masks the weights again
    #[arg(long, default_value = "1", value_name = "N")]
    per_deal: NonZeroUsize,
    /// The folder for keys that are not used yet [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The device of the server [default: that of the client]
    #[arg(long, value_name = "DEVICE")]
    server_device: Option<DeviceChoice>,
    /// Seconds to wait for a message of the other side
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Also measure the link between the two processes; without a model, measure only that
    #[arg(long)]
    link: bool,
    /// Measure only the dealer: the keys of a request for both parties, written to memory
    #[arg(long, conflicts_with_all = ["link", "keys", "per_deal", "server_device", "lanes"])]
    deal: bool,
    /// Number of additional connections, for long messages
    #[arg(long, default_value_t = LANES, value_name = "N")]
    lanes: usize,
    /// Be the other end of a link that is measured, with certificates of this folder
    #[arg(long, value_name = "DIR", hide = true)]
    link_peer: Option<PathBuf>,
    /// End when the standard input is closed, as it is when the process that started this one ends
    #[arg(long, hide = true)]
    until_closed: bool,
    /// The folder to append a record to [default: none is written]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

impl BenchOptions {
    /// Requests of each session: those that warm up have one of their own.
    fn sessions(&self) -> Vec<usize> {
        let split = |requests: usize| {
            let most = self.per_deal.get();
            (0..requests.div_ceil(most)).map(move |session| most.min(requests - session * most))
        };
        split(self.warm_up).chain(split(self.repeats.get())).collect()
    }

    /// What proofs of ranges may rest on.
    fn trust(&self) -> Trust {
        if self.faithful { Trust::RingOnly } else { Trust::default() }
    }

    fn warm_up_sessions(&self) -> usize {
        self.warm_up.div_ceil(self.per_deal.get())
    }
}

/// What the records of this command are of.
const RECORD_NAME: &str = "private/bench";
/// The name in the server's certificate.
const SERVER_NAME: &str = "localhost";

pub(super) fn run(options: &BenchOptions, shell: &Shell) -> Result<Ending, Failure> {
    if options.until_closed {
        end_with_input();
    }
    if let Some(folder) = &options.link_peer {
        return link::answer(folder, options.lanes, shell);
    }
    if options.link && !options.weights.are_named() {
        return link::run(options.folder.as_deref(), options.lanes, shell);
    }
    // A folder that cannot be written is an error now, not after the measurement.
    options.results.as_ref().map(Store::open).transpose()?;
    let target = options.memory.limited(shell.target()?)?;
    let link =
        options.link.then(|| link::measure(options.folder.as_deref(), options.lanes, shell)).transpose()?;
    if options.deal {
        return deal::run(options, shell, &target);
    }
    let bench = Bench::new(options, shell, &target)?;
    let (sessions, served) = bench.measure()?;
    let document = Document::new(options, &bench.public, &target, link, sessions, &served)?;
    let measured = document.measured()?;
    let keep = |folder: &PathBuf| keep_record(RECORD_NAME, folder, &target, measured, shell);
    let kept = options.results.as_ref().map_or(Ok(()), keep);
    // What was measured is shown, whatever became of its record.
    shell.output.show(&document, || document.text())?;
    kept?;
    Ok(if document.equal_in_clear { Ending::Done } else { Ending::GateFailed })
}

/// Appends a record of figures, which are of all kernels of the engine.
fn keep_record(
    name: &str,
    folder: &Path,
    target: &Target,
    measured: MeasuredRecord,
    shell: &Shell,
) -> Result<(), Failure> {
    let kernels: Vec<Source> = workloads::workloads()
        .iter()
        .flat_map(|workload| workload.kernels())
        .map(|kernel| kernel.source)
        .collect();
    let record = Record::of_figures(name, target.device().map(DeviceRecord::of), measured);
    let record = record.of_kernels(&kernels)?;
    let file = Store::open(folder)?.append(&record)?;
    shell.progress.say(&format!("recorded in {} as {}", file.display(), record.id()));
    Ok(())
}

/// Everything that is there before the first request.
struct Bench<'a> {
    options: &'a BenchOptions,
    shell: &'a Shell,
    public: PublicModel,
    texts: Vec<Vec<u32>>,
    /// What the texts give in clear.
    expected: Vec<Vec<u64>>,
    certificates: CertificateFiles,
    dealer: Arc<dyn Backend>,
    client: Arc<dyn Backend>,
    device: Option<gatework_gpu::Device>,
    folder: SecretFolder,
}

impl<'a> Bench<'a> {
    fn new(options: &'a BenchOptions, shell: &'a Shell, target: &Target) -> Result<Self, Failure> {
        let (tokens, progress) = (options.tokens.get(), &shell.progress);
        let jobs = progress.start(3);
        jobs.doing("measuring the weights".into());
        let weights = options.weights.read()?;
        let public = weights.public(tokens, options.trust())?;
        jobs.done();
        let texts = texts(&public, tokens, options.batch.get());
        let owner = Owner::new(&public, weights.quantised(&public)?)?;
        drop(weights);
        jobs.done();
        jobs.doing("evaluating in clear".into());
        let expected = in_clear(&public, &owner, &texts)?;
        drop(jobs);
        let folder = temporary_folder(options.folder.as_deref())?;
        let certificates = make_test_certificates(folder.path(), &[SERVER_NAME.into()])?;
        write_file(&public_file(folder.path()), public.to_json()?.as_bytes())?;
        Ok(Self {
            options,
            shell,
            public,
            texts,
            expected,
            certificates,
            dealer: backend_on(target)?,
            client: backend_on(target)?,
            device: target.device().cloned(),
            folder,
        })
    }

    /// All sessions, each with keys of its own, and what the server says of them.
    fn measure(&self) -> Result<(Vec<Session>, serde_json::Value), Failure> {
        let sessions = self.options.sessions();
        let jobs = self.shell.progress.start(2 * sessions.len());
        let mut server: Option<ServerProcess> = None;
        let mut measured = Vec::with_capacity(sessions.len());
        for (index, &requests) in sessions.iter().enumerate() {
            jobs.doing(format!("dealing for session {} of {}", index + 1, sessions.len()));
            let [server_keys, client_keys] = self.key_files(index);
            let start = Instant::now();
            let lengths = vec![self.options.tokens.get(); requests * self.texts.len()];
            let paths = [server_keys.as_path(), client_keys.as_path()];
            let mut randomness = Randomness::from_os()?;
            deal_files(&self.dealer, &mut randomness, &self.public, &lengths, paths, &self.shell.progress)?;
            let dealing = start.elapsed();
            jobs.done();
            // A server wants a key file when it starts.
            let server = match &mut server {
                Some(server) => server,
                none => none.insert(self.start_server(sessions.len())?),
            };
            jobs.doing(format!("inferring in session {} of {}", index + 1, sessions.len()));
            let session = self.session(server.address(), &client_keys, requests);
            measured.push(session.map_err(|failure| server.blamed(failure))?.dealt_in(dealing));
            remove(&paths)?;
            jobs.done();
        }
        let served = server.map_or(Ok(serde_json::Value::Null), ServerProcess::finish)?;
        Ok((measured, served))
    }

    /// The files of a session: the server finds its own in a folder.
    fn key_files(&self, index: usize) -> [PathBuf; 2] {
        let folder = self.folder.path();
        [folder.join(format!("server-{index}.keys")), folder.join(format!("client-{index}"))]
    }

    fn start_server(&self, clients: usize) -> Result<ServerProcess, Failure> {
        let folder = self.folder.path();
        let device = self.options.server_device.unwrap_or(self.shell.device.choice);
        let mut arguments: Vec<String> =
            ["--device", &device.to_string(), "--json", "private", "serve"].map(str::to_owned).into();
        arguments.extend(self.options.weights.arguments());
        if device != DeviceChoice::Cpu {
            arguments.extend(self.options.memory.arguments());
        }
        let paths = [("--public", public_file(folder)), ("--keys", folder.to_owned())];
        let paths = paths.into_iter().chain([("--certificates", folder.to_owned())]);
        arguments.extend(paths.flat_map(|(option, path)| [option.to_owned(), path.display().to_string()]));
        let (clients, timeout) = (clients.to_string(), self.options.timeout.to_string());
        let rest = ["--listen", "127.0.0.1:0", "--clients", &clients, "--timeout", &timeout];
        arguments.extend(rest.map(str::to_owned));
        ServerProcess::start(&arguments, &self.shell.progress)
    }

    /// A client's session: the masked weights, then its requests.
    fn session(&self, address: &str, keys: &Path, requests: usize) -> Result<Session, Failure> {
        let message = Duration::from_secs(self.options.timeout);
        let timeouts = Timeouts { message, ..Timeouts::default() };
        let (identity, lanes) = (self.certificates.client()?, self.options.lanes);
        let link = Link::connect_with_lanes(address, SERVER_NAME, &identity, timeouts, lanes)?;
        let keys = KeyFile::open(keys, Party::One)?;
        let mut client = Client::on(&self.public, self.client.clone(), keys, link)?;
        client.plan(&[self.options.tokens.get()])?;
        let start = Instant::now();
        client.set_up()?;
        let mut session = Session::new(start.elapsed());
        for _ in 0..requests {
            let before = client.summary();
            if let Some(device) = &self.device {
                device.budget().reset_peak();
            }
            let (words, time) = self.request(&mut client)?;
            let parts = client.parts().to_vec();
            let device_peak = self.device.as_ref().map(|device| device.budget().peak());
            let equal = words == self.expected;
            session.add(Request { time, before, after: client.summary(), parts, device_peak, equal });
        }
        client.finish()?;
        Ok(session)
    }

    /// One request, and how long its answer took.
    fn request(&self, client: &mut Client<'_>) -> Result<(Vec<Vec<u64>>, Duration), Failure> {
        match self.options.keys {
            KeyPlace::Memory => {
                let prepared = client.prepare(&vec![self.options.tokens.get(); self.texts.len()])?;
                let start = Instant::now();
                let words = prepared.infer(&self.texts)?;
                Ok((words, start.elapsed()))
            }
            KeyPlace::Files => {
                let start = Instant::now();
                let words = client.infer(&self.texts)?;
                Ok((words, start.elapsed()))
            }
        }
    }
}

/// What was seen of a request.
struct Request {
    time: Duration,
    before: Summary,
    after: Summary,
    parts: Vec<PartTime>,
    device_peak: Option<u64>,
    equal: bool,
}

fn public_file(folder: &Path) -> PathBuf {
    folder.join("public.json")
}

fn temporary_folder(parent: Option<&Path>) -> Result<SecretFolder, Failure> {
    SecretFolder::new(parent).map_err(|error| {
        Failure::input(format!("no folder for keys can be made: {error}; choose one by --folder"))
    })
}

/// Used keys make room for the next ones.
fn remove(paths: &[&Path]) -> Result<(), Failure> {
    for path in paths {
        std::fs::remove_file(path)
            .map_err(|error| Failure::input(format!("cannot remove '{}': {error}", path.display())))?;
    }
    Ok(())
}

/// Texts of different words.
fn texts(public: &PublicModel, tokens: usize, count: usize) -> Vec<Vec<u32>> {
    let words = public.vocabulary();
    let token = |place: usize| ((place * 7919 + 11) % words) as u32;
    (0..count).map(|text| (0..tokens).map(|place| token(text * tokens + place)).collect()).collect()
}

fn in_clear(public: &PublicModel, owner: &Owner, texts: &[Vec<u32>]) -> Result<Vec<Vec<u64>>, Failure> {
    let clear = || -> gatework_private::Result<Vec<Vec<u64>>> {
        let weights = run_clear(&public.network(public.longest())?.set_up(), owner.set_up_inputs())?.output;
        let evaluate = |text: &Vec<u32>| {
            let network = public.network(text.len())?;
            let found = run_clear(&network.inference(&weights), vec![Some(public.encode_tokens(text)?)])?;
            Ok(found.output.unwrap_or_default())
        };
        texts.iter().map(evaluate).collect()
    };
    Ok(clear()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_shape() {
        for shape in gatework_private::model::RandomModel::shapes() {
            assert!(EXAMPLES.contains(shape), "{shape}");
        }
    }
}
