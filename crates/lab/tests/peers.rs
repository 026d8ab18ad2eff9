//! The protocol with peers, spoken by small shells: answers, silence, nonsense and death.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gatework_gpu::{Device, Kind, Notice};
use gatework_lab::measure::{HostBench, PeerRecord, PerformanceOptions, Station};
use gatework_lab::peers::{PeerCommand, PeerSession};
use gatework_lab::{Case, PeerRequest, Work, runtime};

const HELLO: &str = r#"echo '{"protocol":1,"peer":"Fake","versions":{"fake":"1.2"},"device":"a shell","operations":["saxpy"]}'"#;

fn peer(script: &str) -> PeerCommand {
    PeerCommand::new("a fake", "sh", &["-c", script])
}

/// A peer that says who it is and then does `then` for every request.
fn answering(then: &str) -> PeerCommand {
    peer(&format!("{HELLO}; while read request; do {then}; done"))
}

/// Long enough for a shell on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to be sure that a sleeping peer sleeps.
const IMPATIENCE: Duration = Duration::from_millis(400);

fn start(command: &PeerCommand) -> Result<PeerSession, String> {
    start_within(command, PATIENCE, PATIENCE)
}

fn start_within(
    command: &PeerCommand,
    handshake: Duration,
    request: Duration,
) -> Result<PeerSession, String> {
    PeerSession::start_within(command, handshake, request).map_err(|why| why.to_string())
}

fn refusal(command: &PeerCommand) -> String {
    start(command).map(|_| ()).unwrap_err()
}

fn ask(command: &PeerCommand) -> Result<Vec<f64>, String> {
    ask_in(start(command)?)
}

fn ask_in(mut session: PeerSession) -> Result<Vec<f64>, String> {
    let request = PeerRequest { operation: "saxpy".into(), shape: BTreeMap::from([("n".to_owned(), 8)]) };
    session.measure(&request, 2).map_err(|why| why.to_string())
}

#[test]
fn a_peer_says_who_it_is_and_answers() {
    let command = answering(r#"echo '{"samples_ns":[812.0,815.5]}'"#);
    let session = start(&command).unwrap();
    assert_eq!(session.name(), "Fake");
    assert_eq!(session.versions()["device"], "a shell");
    assert!(session.offers("saxpy") && !session.offers("transpose"));
    assert_eq!(ask(&command), Ok(vec![812.0, 815.5]));
}

#[test]
fn a_peer_is_asked_by_operation_shape_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request");
    let command =
        answering(&format!(r#"echo "$request" > {}; echo '{{"samples_ns":[1.0,2.0]}}'"#, file.display()));
    ask(&command).unwrap();
    let request = std::fs::read_to_string(file).unwrap();
    assert_eq!(request.trim(), r#"{"operation":"saxpy","shape":{"n":8},"samples":2}"#);
}

#[test]
fn what_is_not_there_is_not_measured_and_says_why() {
    let unavailable = peer(r#"echo '{"protocol":1,"peer":"PyTorch","unavailable":"no module named torch"}'"#);
    assert_eq!(refusal(&unavailable), "no module named torch");
    let missing = PeerCommand::new("a fake", "/nonexistent/python", &[]);
    assert!(refusal(&missing).contains("'/nonexistent/python' cannot be started"));
    let newer = peer(r#"echo '{"protocol":7,"peer":"Fake"}'"#);
    assert!(refusal(&newer).contains("version 7 of the protocol"));
}

#[test]
fn a_stuck_peer_is_ended() {
    let started = Instant::now();
    let silent = start_within(&peer("exec sleep 60"), IMPATIENCE, PATIENCE);
    assert!(silent.unwrap_err().contains("stuck for 0.4 s"));
    let session = start_within(&answering("exec sleep 60"), PATIENCE, IMPATIENCE).unwrap();
    assert!(ask_in(session).unwrap_err().contains("stuck for 0.4 s"));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_peer_that_dies_leaves_its_last_words() {
    let why = refusal(&peer("echo 'Traceback' >&2; echo 'MemoryError: no room' >&2; exit 1"));
    assert!(why.contains("its last words were: MemoryError: no room"), "{why}");
    let why = ask(&peer(&format!("{HELLO}; read request; echo 'Segmentation fault' >&2"))).unwrap_err();
    assert!(why.contains("Segmentation fault"), "{why}");
}

#[test]
fn nonsense_is_no_measurement() {
    assert!(refusal(&peer("echo hello")).contains("no handshake"));
    assert!(ask(&answering("echo hello")).unwrap_err().contains("no reply"));
    assert!(
        ask(&answering(r#"echo '{"samples_ns":[1.0]}'"#))
            .unwrap_err()
            .contains("1 samples and was asked for 2")
    );
    assert!(ask(&answering(r#"echo '{"samples_ns":[1.0,-2.0]}'"#)).unwrap_err().contains("no time"));
    assert_eq!(ask(&answering(r#"echo '{"error":"out of memory"}'"#)), Err("out of memory".into()));
}

/// What a benchmark records of its peers.
fn recorded(peers: Vec<PeerCommand>) -> Vec<PeerRecord> {
    let device = Device::emulated(0).unwrap();
    let workloads = runtime::workloads();
    let saxpy = workloads.iter().find(|workload| workload.name() == "gpu/saxpy").unwrap();
    let options = PerformanceOptions { samples: 100, longest: Duration::ZERO, peers, ..Default::default() };
    let cases = saxpy.bench_cases(Kind::Emulated);
    let measured =
        Station::new(options).measure(saxpy.name(), &device, &cases, &|case| saxpy.bench(&device, case), &());
    measured.unwrap().cases.remove(0).peers
}

#[test]
fn peers_are_measured_in_turns_and_never_fail_a_benchmark() {
    let twenty = format!("{{\\\"samples_ns\\\":[{}]}}", vec!["500.0"; 20].join(","));
    let other = peer(r#"echo '{"protocol":1,"peer":"Other","operations":["attention-fp8"]}'; read request"#);
    let dying = answering("exit 1");
    let peers = recorded(vec![answering(&format!("echo \"{twenty}\"")), other, dying, peer("exit 3")]);
    let [PeerRecord::Measured { peer, summary, samples_ns, .. }, died, never] = peers.as_slice() else {
        panic!("{peers:?}")
    };
    assert_eq!((peer.as_str(), summary.median_ns, samples_ns.len()), ("Fake", 500.0, 100));
    assert!(matches!(died, PeerRecord::NotMeasured { peer, .. } if peer == "Fake"), "{died:?}");
    assert!(matches!(never, PeerRecord::NotMeasured { peer, .. } if peer == "a fake"), "{never:?}");
}

#[test]
fn a_job_on_the_cpu_takes_turns_with_peers() {
    let options = PerformanceOptions {
        samples: 1,
        longest: Duration::ZERO,
        peers: vec![answering(r#"echo '{"samples_ns":[5e6]}'"#), peer("exit 3")],
        ..PerformanceOptions::default()
    };
    let bench = HostBench::new("a nap", Work { operations: 10, bytes: 0 }, || {
        // Longer than a turn, so that a turn is one sample.
        std::thread::sleep(Duration::from_millis(60));
        Ok(())
    });
    let bench = bench.peers(vec![PeerRequest { operation: "saxpy".into(), shape: BTreeMap::new() }]);
    let heard = Mutex::new(Vec::new());
    let observer = |notice: Notice<'_>| {
        if let Notice::Counted { what: "samples", done, .. } = notice {
            heard.lock().unwrap().push(done);
        }
    };
    let record =
        Station::new(options).measure_on_host(&Case::new("n1").with("n", 1), bench, &observer).unwrap();
    assert_eq!(
        (record.summary.samples, heard.into_inner().unwrap()),
        (5, vec![1, 2, 3, 4, 5]),
        "never fewer than five"
    );
    assert!(record.summary.minimum_ns >= 60e6, "{:?}", record.summary);
    let [PeerRecord::Measured { peer, samples_ns, .. }, PeerRecord::NotMeasured { why, .. }] =
        &record.peers[..]
    else {
        panic!("{:?}", record.peers)
    };
    assert_eq!((peer.as_str(), samples_ns.len()), ("Fake", 5));
    assert!(why.contains("ended before it answered"), "{why}");
}

#[test]
fn a_job_on_the_cpu_that_fails_is_an_error() {
    let bench = HostBench::new("none", Work { operations: 1, bytes: 0 }, || Err("no memory".into()));
    let station = Station::new(PerformanceOptions::default());
    assert_eq!(station.measure_on_host(&Case::new("n1"), bench, &()).unwrap_err().to_string(), "no memory");
}
