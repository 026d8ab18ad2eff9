//! Two parties as processes, one of which is killed at every frame.

use std::env;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gatework_fss::Party;

use crate::disk::KeyFile;
use crate::error::Result;
use crate::net::{CertificateFiles, Link, listen, make_test_certificates};

use super::super::*;
use super::{MODEL, Scene, TIMEOUTS, in_clear};

/// Variables that make this test program a party.
const KEYS: &str = "GATEWORK_TEST_KEYS";
const CERTIFICATES: &str = "GATEWORK_TEST_CERTIFICATES";
const ADDRESS: &str = "GATEWORK_TEST_ADDRESS";
const TEXT: [u32; 3] = [9, 0, 14];
/// How a party says in what it ended.
const ADDRESS_LINE: &str = "listening on ";
const END_LINE: &str = "ended with ";

/// The variable with the number of frames, sent and received, behind which a process dies.
const DIE_AT: &str = "GATEWORK_TEST_DIE_AT";

/// Dies as a process that is killed does: nothing is dropped, flushed or said.
fn die_where_asked(link: &Link) {
    if let Ok(frames) = env::var(DIE_AT)
        && frames.parse() == Ok(link.frames().iter().sum::<u64>())
    {
        // What was handed over may be on its way.
        let _ = link.flush();
        std::process::abort();
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from)
}

fn say(outcome: Result<Vec<Vec<u64>>>) {
    match outcome {
        Ok(results) => println!("\n{END_LINE}{results:?}"),
        Err(error) => println!("\n{END_LINE}an error: {error}"),
    }
}

#[test]
#[ignore = "a server, when the tests below start it"]
fn server_process() {
    let (Some(keys), Some(folder)) = (variable(KEYS), variable(CERTIFICATES)) else { return };
    let serve = || -> Result<Vec<Vec<u64>>> {
        let keys = KeyStore::open(&keys)?;
        let (listener, address) = listen("127.0.0.1:0")?;
        println!("\n{ADDRESS_LINE}{address}");
        let socket = accepted(&listener);
        let link = Link::accept(socket, &CertificateFiles::of(&folder).server()?, TIMEOUTS)?;
        let link = link.watched(die_where_asked);
        Server::new(&MODEL.1, &keys).serve(link)?;
        Ok(Vec::new())
    };
    say(serve());
}

/// A client that never comes is not waited for.
fn accepted(listener: &TcpListener) -> TcpStream {
    let deadline = Instant::now() + 2 * TIMEOUTS.connect;
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((socket, _)) => return socket,
            Err(error) => {
                assert!(error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline, "{error}");
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "a client, when the tests below start it"]
fn client_process() {
    let (Some(keys), Some(folder)) = (variable(KEYS), variable(CERTIFICATES)) else { return };
    let address = env::var(ADDRESS).unwrap();
    let ask = || -> Result<Vec<Vec<u64>>> {
        let keys = KeyFile::open(&keys, Party::One)?;
        let identity = CertificateFiles::of(&folder).client()?;
        let link = Link::connect(&address, "localhost", &identity, TIMEOUTS)?.watched(die_where_asked);
        let mut client = Client::new(&MODEL.0, keys, link)?;
        let results = client.infer(&[TEXT.to_vec()])?;
        client.finish()?;
        Ok(results)
    };
    say(ask());
}

fn start(role: &str, keys: &Path, certificates: &Path, address: Option<&str>, die_at: Option<u64>) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1"]);
    command.arg(format!("roles::tests::processes::{role}_process"));
    command.env(KEYS, keys).env(CERTIFICATES, certificates).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(address) = address {
        command.env(ADDRESS, address);
    }
    if let Some(frames) = die_at {
        command.env(DIE_AT, frames.to_string());
    }
    command.spawn().unwrap()
}

/// What a process says behind `start`, if it lives to say it.
fn said(lines: &mut impl Iterator<Item = String>, start: &str) -> Option<String> {
    lines.find_map(|line| line.strip_prefix(start).map(str::to_owned))
}

/// Runs both; one of them may die. Returns how each ended.
fn both(scene: &Scene, certificates: &Path, dying: Option<(Party, u64)>) -> [Option<String>; 2] {
    let dies = |party: Party| dying.filter(|(dying, _)| *dying == party).map(|(_, frames)| frames);
    let mut server = start("server", &scene.server, certificates, None, dies(Party::Zero));
    let mut server_lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = said(&mut server_lines, ADDRESS_LINE).unwrap();
    let mut client = start("client", &scene.client, certificates, Some(&address), dies(Party::One));
    let mut client_lines = BufReader::new(client.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ends = [said(&mut server_lines, END_LINE), said(&mut client_lines, END_LINE)];
    server.wait().unwrap();
    client.wait().unwrap();
    ends
}

fn used(path: &Path, party: Party) -> usize {
    let keys = KeyFile::open(path, party).unwrap();
    (0..keys.header().sections.len()).filter(|&section| keys.ledger.is_used(section)).count()
}

fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_test_certificates(folder.path(), &["localhost".into()]).unwrap();
    folder
}

#[test]
fn two_processes_give_what_one_computes_in_clear() {
    let (scene, certificates) = (Scene::deal(&[TEXT.len()]), certificates());
    let [server, client] = both(&scene, certificates.path(), None);
    assert_eq!(server.unwrap(), "[]");
    assert_eq!(client.unwrap(), format!("{:?}", [in_clear(&TEXT)]));
}

/// Kills one party at every frame in turn. The other one must end with an error in time, and what was begun
/// must be burnt.
fn killed_at_every_frame(dying: Party) {
    let certificates = certificates();
    let [set_up, inference] = predict(&MODEL.0, &[TEXT.len()]).unwrap();
    // Greetings and requests before the first frame that depends on a key of this inference, and all after
    // it.
    let before = 2 + 2 + 2 * set_up.traffic.frames + 2;
    let all = before + 2 * inference.traffic.frames;
    for frame in 1..=all {
        let scene = Scene::deal(&[TEXT.len(), TEXT.len()]);
        let start = Instant::now();
        let mut ends = both(&scene, certificates.path(), Some((dying, frame)));
        let (dead, alive) = (ends[dying.index()].take(), ends[dying.peer().index()].take());
        assert!(start.elapsed() < TIMEOUTS.message + Duration::from_secs(5), "frame {frame} took too long");
        assert_eq!(dead, None, "frame {frame}: it must die");
        let alive = alive.unwrap_or_else(|| panic!("frame {frame}: the other party said nothing"));
        // With the server's last frame, which is the last or the one before it, the client has its result.
        let late = dying == Party::Zero && frame + 1 >= all;
        assert!(alive.starts_with("an error: ") || late, "frame {frame}: {alive}");
        let burnt = used(&scene.server, Party::Zero).max(used(&scene.client, Party::One));
        assert!(burnt == 1 || frame <= before, "frame {frame}: the key in flight must be burnt");
        // What was used is erased when the file is opened again, whatever the dead party had read of it.
        for (path, party) in [(&scene.server, Party::Zero), (&scene.client, Party::One)] {
            let keys = KeyFile::open(path, party).unwrap();
            assert!(keys.used_bytes_left().unwrap() == 0, "frame {frame}, party {party}");
        }
        // Both start again, and never use that key again.
        let ends = both(&scene, certificates.path(), None);
        assert_eq!(ends[1], Some(format!("{:?}", [in_clear(&TEXT)])), "frame {frame}");
        for (path, party) in [(&scene.server, Party::Zero), (&scene.client, Party::One)] {
            assert_eq!(used(path, party), burnt + 1, "frame {frame}, party {party}");
        }
    }
}

#[test]
fn a_server_may_be_killed_at_every_frame() {
    killed_at_every_frame(Party::Zero);
}

#[test]
fn a_client_may_be_killed_at_every_frame() {
    killed_at_every_frame(Party::One);
}
