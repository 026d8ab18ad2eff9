//! Two parties over loopback TLS, as threads, and all that either may do wrong.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use gatework_gpu::Notice;
use tempfile::TempDir;

mod device;
mod processes;
mod small;

use super::message::Message;
use super::*;
use crate::disk::{KeyFile, KeyHeader};
use crate::error::{Error, Result};
use crate::model::{Owner, PublicModel};
use crate::net::{CertificateFiles, Link, Timeouts, listen, make_test_certificates};
use gatework_fss::Randomness;
use gatework_fss::backend::Backend;
use gatework_fss::executor::run_clear;
use gatework_fss::{CpuBackend, Party};
use small::LONGEST;

pub(super) static MODEL: LazyLock<(PublicModel, Owner)> = LazyLock::new(|| small::model(1));
static OTHER_MODEL: LazyLock<(PublicModel, Owner)> = LazyLock::new(|| small::model(2));
static CERTIFICATES: LazyLock<(TempDir, CertificateFiles)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let files = make_test_certificates(folder.path(), &["localhost".into()]).unwrap();
    (folder, files)
});

pub(super) const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(5), message: Duration::from_secs(5) };
const TEXT: [u32; 4] = [3, 17, 5, 23];

fn cpu() -> Arc<dyn Backend> {
    Arc::new(CpuBackend)
}

/// A folder with both parties' keys.
pub(super) struct Scene {
    folder: TempDir,
    pub(super) server: PathBuf,
    pub(super) client: PathBuf,
}

impl Scene {
    pub(super) fn deal(tokens: &[usize]) -> Self {
        Self::of(&MODEL.0, tokens)
    }

    fn of(model: &PublicModel, tokens: &[usize]) -> Self {
        Self::of_in(tempfile::tempdir().unwrap(), model, tokens)
    }

    fn of_in(folder: TempDir, model: &PublicModel, tokens: &[usize]) -> Self {
        let [server, client] = ["server.keys", "client.keys"].map(|name| folder.path().join(name));
        let sections = Mutex::new(Vec::new());
        let observer = |notice: Notice<'_>| {
            if let Notice::Counted { done, of, .. } = notice {
                assert_eq!(of, Some(tokens.len() as u64 + 1));
                sections.lock().unwrap().push(done);
            }
        };
        let mut randomness = Randomness::from_os().unwrap();
        deal_files(&cpu(), &mut randomness, model, tokens, [&server, &client], &observer).unwrap();
        assert_eq!(sections.into_inner().unwrap(), (1..=tokens.len() as u64 + 1).collect::<Vec<_>>());
        Self { folder, server, client }
    }

    fn keys(&self) -> Result<KeyFile> {
        KeyFile::open(&self.client, Party::One)
    }

    /// Copies of all files, to be put back later.
    fn backup(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    fn restore(backup: &[(PathBuf, Vec<u8>)], name: &str) {
        let wanted = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(name);
        for (path, bytes) in backup.iter().filter(|(path, _)| wanted(path)) {
            fs::write(path, bytes).unwrap();
        }
    }
}

/// A server that serves one client, and whatever the client does.
fn session<T>(
    scene: &Scene,
    owner: &Owner,
    timeouts: Timeouts,
    client: impl FnOnce(Result<Link>) -> T,
) -> (Result<Summary>, T) {
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let keys = KeyStore::open(&scene.server)?;
            let (socket, _) = listener.accept().unwrap();
            let link = Link::accept(socket, &CERTIFICATES.1.server()?, timeouts)?;
            Server::new(owner, &keys).serve(link)
        });
        let identity = CERTIFICATES.1.client().unwrap();
        let done = client(Link::connect(&address.to_string(), "localhost", &identity, timeouts));
        (server.join().unwrap(), done)
    })
}

/// Results, and what a client did for them.
type Answer = Result<(Vec<Vec<u64>>, Summary)>;

/// What a well-behaved client gets.
fn ask(scene: &Scene, texts: &[Vec<u32>]) -> (Result<Summary>, Answer) {
    session(scene, &MODEL.1, TIMEOUTS, |link| {
        let mut client = Client::new(&MODEL.0, scene.keys()?, link?)?;
        let results = client.infer(texts)?;
        Ok((results, client.finish()?))
    })
}

pub(super) fn in_clear(text: &[u32]) -> Vec<u64> {
    let (public, owner) = &*MODEL;
    let whole = public.network(LONGEST).unwrap();
    let weights = run_clear(&whole.set_up(), owner.set_up_inputs()).unwrap().output;
    let network = public.network(text.len()).unwrap();
    let input = vec![Some(public.encode_tokens(text).unwrap())];
    run_clear(&network.inference(&weights), input).unwrap().output.unwrap()
}

fn used(path: &std::path::Path, party: Party) -> Vec<bool> {
    let keys = KeyFile::open(path, party).unwrap();
    (0..keys.header().sections.len()).map(|section| keys.ledger.is_used(section)).collect()
}

#[test]
fn two_parties_give_what_one_computes_in_clear() {
    let scene = Scene::deal(&[4, 2, 4]);
    let texts = [TEXT.to_vec(), vec![1, 2]];
    let (server, client) = ask(&scene, &texts);
    let (results, summary) = client.unwrap();
    for (result, text) in results.iter().zip(&texts) {
        assert_eq!(*result, in_clear(text));
    }
    let server = server.unwrap();
    assert_eq!((server.inferences, summary.inferences), (2, 2));
    // Both count the same, each from its side.
    assert_eq!(server.inference.traffic, summary.inference.traffic);
    assert_eq!(server.set_up.traffic, summary.set_up.traffic);
    assert!(summary.inference.key_bytes > 0 && summary.inference.traffic.frames > 10);
    let expected = [false, true, true, false];
    assert_eq!(used(&scene.server, Party::Zero), expected);
    assert_eq!(used(&scene.client, Party::One), expected);
    // What is left serves another session.
    assert_eq!(ask(&scene, &[TEXT.to_vec()]).1.unwrap().0, [in_clear(&TEXT)]);
    let error = ask(&scene, &[TEXT.to_vec()]).1.err().unwrap();
    assert!(matches!(error, Error::NoKeys { tokens: 4 }), "{error}");
}

/// A party may be held up anywhere; what the other one sends meanwhile must wait, however long it is.
#[test]
fn long_messages_may_come_early() {
    let (public, owner) = small::model_of_words(9000);
    let [set_up, inference] = predict(&public, &[2]).unwrap();
    assert!(set_up.traffic.bytes[0] > 1 << 17 && inference.traffic.bytes[1] > 1 << 16, "they are long");
    // Behind the greetings, the request and the consent, and behind the set-up and the next two of these.
    let consents = [4, 4 + 2 * set_up.traffic.frames + 2];
    let pause = move |link: &Link| {
        if consents.contains(&link.frames().iter().sum::<u64>()) {
            thread::sleep(Duration::from_millis(150));
        }
    };
    for held_up in Party::BOTH {
        let scene = Scene::of(&public, &[2]);
        let slowed = |party: Party, link: Link| if party == held_up { link.watched(pause) } else { link };
        let (listener, address) = listen("127.0.0.1:0").unwrap();
        let result = thread::scope(|scope| {
            let server = scope.spawn(|| {
                let keys = KeyStore::open(&scene.server)?;
                let (socket, _) = listener.accept().unwrap();
                let link = Link::accept(socket, &CERTIFICATES.1.server()?, TIMEOUTS)?;
                Server::new(&owner, &keys).serve(slowed(Party::Zero, link))
            });
            let identity = CERTIFICATES.1.client().unwrap();
            let link = Link::connect(&address.to_string(), "localhost", &identity, TIMEOUTS).unwrap();
            let ask = || {
                let mut client = Client::new(&public, scene.keys()?, slowed(Party::One, link))?;
                let results = client.infer(&[vec![8999, 4]])?;
                client.finish()?;
                Ok::<_, Error>(results)
            };
            let result = ask();
            server.join().unwrap().unwrap();
            result
        });
        assert!(result.is_ok(), "party {held_up} held up: {:?}", result.err());
    }
}

#[test]
fn a_section_is_used_by_its_position() {
    let scene = Scene::deal(&[4, 2, 4, 2]);
    let (server, results) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut client = Client::new(&MODEL.0, scene.keys()?, link?)?;
        let results = client.infer_at(&[4, 3], &[vec![1, 2], TEXT.to_vec()])?;
        let refused = |client: &mut Client<'_>, sections: &[usize], texts: &[Vec<u32>]| {
            client.infer_at(sections, texts).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(&mut client, &[3], &[TEXT.to_vec()]).contains("section 3 of the keys was used"));
        assert!(refused(&mut client, &[1, 1], &[TEXT.to_vec(), TEXT.to_vec()]).contains("used already"));
        assert!(refused(&mut client, &[2], &[TEXT.to_vec()]).contains("a batch"));
        assert!(refused(&mut client, &[9], &[TEXT.to_vec()]).contains("a batch"));
        client.finish()?;
        Ok::<_, Error>(results)
    });
    assert_eq!(results.unwrap(), [in_clear(&[1, 2]), in_clear(&TEXT)]);
    server.unwrap();
    assert_eq!(used(&scene.server, Party::Zero), [false, false, false, true, true]);
    assert_eq!(used(&scene.client, Party::One), [false, false, false, true, true]);
}

#[test]
fn several_requests_share_one_set_up() {
    let scene = Scene::deal(&[3, 3, 3]);
    let (server, results) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut client = Client::new(&MODEL.0, scene.keys()?, link?)?;
        let results = [[1, 2, 3], [7, 7, 7]].map(|text| client.infer(&[text.to_vec()]));
        Ok::<_, Error>((results, client.finish()?.set_up.traffic.frames))
    });
    let (results, frames) = results.unwrap();
    let [first, second] = results.map(|results| results.unwrap().remove(0));
    assert_eq!((first, second), (in_clear(&[1, 2, 3]), in_clear(&[7, 7, 7])));
    assert_eq!(server.unwrap().set_up.traffic.frames, frames);
}

#[test]
fn keys_that_are_held_give_the_same() {
    let scene = Scene::deal(&[4, 2, 4, 4]);
    let stages = Mutex::new(Vec::new());
    let observer = |notice: Notice<'_>| {
        if let Notice::Started { stage } = notice {
            stages.lock().unwrap().push(stage.to_owned());
        }
    };
    let (server, results) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut client = Client::new(&MODEL.0, scene.keys()?, link?)?.observed(&observer);
        let results = client.prepare(&[4, 2])?.infer(&[TEXT.to_vec(), vec![1, 2]])?;
        let others = client.prepare(&[4])?.infer(&[vec![1, 2]]).err().unwrap();
        assert!(others.to_string().contains("keys are held for texts of [4] tokens"), "{others}");
        // What was held for nothing is used, and the session goes on.
        let last = client.infer(&[TEXT.to_vec()])?;
        client.finish()?;
        Ok::<_, Error>([results, last].concat())
    });
    assert_eq!(results.unwrap(), [in_clear(&TEXT), in_clear(&[1, 2]), in_clear(&TEXT)]);
    assert_eq!(server.unwrap().inferences, 3);
    assert_eq!(used(&scene.server, Party::Zero), [false, true, true, true, true]);
    assert_eq!(used(&scene.client, Party::One), [false, true, true, true, true]);
    let inference = ["inferring", "embedding", "layer 1", "head"];
    let expected = [&["masked weights", "reading keys"], &inference[..], &["reading keys"], &inference[..]];
    assert_eq!(*stages.lock().unwrap(), expected.concat());
}

#[test]
fn masked_weights_are_kept_for_the_next_session_of_a_deal() {
    let scene = Scene::deal(&[4, 4, 4, 4]);
    let file = PathBuf::from(format!("{}.weights", scene.client.display()));
    let ask = || {
        let (server, client) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
            let mut client = Client::new(&MODEL.0, scene.keys()?, link?)?.keeping_weights();
            let results = client.infer(&[TEXT.to_vec()])?;
            Ok::<_, Error>((results, client.finish()?))
        });
        let (results, summary) = client.unwrap();
        assert_eq!(results, [in_clear(&TEXT)]);
        let traffic = server.unwrap().set_up.traffic;
        assert_eq!(traffic.bytes, summary.set_up.traffic.bytes);
        traffic.bytes[0]
    };
    let sent = ask();
    assert!(sent > 1000);
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777, 0o600);
    assert_eq!(ask(), 0, "nothing of the weights is sent again");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(ask(), sent, "what is damaged is fetched again");
    // With the last key it goes.
    assert_eq!(ask(), 0);
    assert!(!file.exists());
}

#[test]
fn texts_that_the_model_cannot_read_use_no_key() {
    let scene = Scene::deal(&[2]);
    for text in [vec![1, small::VOCABULARY as u32], vec![], vec![1; LONGEST + 1]] {
        assert!(ask(&scene, &[text]).1.is_err());
    }
    assert_eq!(used(&scene.client, Party::One), [false, false]);
    assert_eq!(used(&scene.server, Party::Zero), [false, false]);
}

#[test]
fn a_backup_of_either_side_brings_no_key_back() {
    for restored in ["client", "server"] {
        let scene = Scene::deal(&[4, 4]);
        let backup = scene.backup();
        ask(&scene, &[TEXT.to_vec()]).1.unwrap();
        Scene::restore(&backup, restored);
        // The other side's ledger is ahead: the second key is used, not the first one again.
        assert_eq!(ask(&scene, &[TEXT.to_vec()]).1.unwrap().0, [in_clear(&TEXT)]);
        assert_eq!(used(&scene.client, Party::One), [false, true, true], "{restored}");
        assert_eq!(used(&scene.server, Party::Zero), [false, true, true], "{restored}");
        Scene::restore(&backup, restored);
        assert!(matches!(ask(&scene, &[TEXT.to_vec()]).1, Err(Error::NoKeys { .. })));
    }
}

/// Greets as a client does and then says what it likes.
fn greeted<'a>(scene: &Scene, link: Result<Link>) -> pair::Pair<'a> {
    let client = Client::new(&MODEL.0, scene.keys().unwrap(), link.unwrap()).unwrap();
    client.into_pair()
}

#[test]
fn a_client_that_wants_used_or_unknown_keys_is_refused() {
    let scene = Scene::deal(&[4, 4]);
    ask(&scene, &[TEXT.to_vec()]).1.unwrap();
    let requests: [fn(Vec<u32>) -> Message; 2] = [Message::Infer, Message::Hold];
    let cases = [
        (vec![1], "used once"),
        (vec![2, 2], "used once"),
        (vec![9], "no inference"),
        (vec![0], "no inference"),
    ];
    for (request, (sections, why_not)) in
        requests.iter().flat_map(|request| cases.iter().map(move |case| (request, case)))
    {
        let (server, refused) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
            let mut pair = greeted(&scene, link);
            pair.ask(&Message::SetUp).unwrap();
            pair.set_up(vec![None; pair.weight_count()], &mut pair::Weighing::Sent).unwrap();
            pair.ask(&request(sections.clone())).err().unwrap()
        });
        assert!(server.unwrap_err().to_string().contains(why_not), "{sections:?}");
        assert!(matches!(&refused, Error::Refused { why } if why.contains(why_not)), "{refused}");
    }
    assert_eq!(used(&scene.server, Party::Zero), [false, true, false]);
}

#[test]
fn requests_out_of_turn_are_refused() {
    let scene = Scene::deal(&[4]);
    for message in [Message::Ready, Message::Refusal("no".into()), Message::Begin] {
        let (server, _) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
            let mut pair = greeted(&scene, link);
            pair.send(&message).unwrap();
            pair.receive().err()
        });
        assert!(matches!(server, Err(Error::Peer { .. } | Error::Refused { .. })), "{server:?}");
    }
    let (server, _) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut pair = greeted(&scene, link);
        pair.ask(&Message::Infer(vec![1])).err()
    });
    assert!(matches!(server, Err(Error::Peer { .. })), "an inference before the weights: {server:?}");
    assert_eq!(used(&scene.server, Party::Zero), [false, false], "and it costs no key");
}

#[test]
fn another_holder_of_a_certificate_burns_nothing() {
    let (scene, other) = (Scene::deal(&[4]), Scene::deal(&[4]));
    // Keys of another deal.
    let (server, client) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        Client::new(&MODEL.0, other.keys().unwrap(), link.unwrap()).err().unwrap()
    });
    assert!(matches!(&server, Err(Error::Peer { what }) if what.contains("another deal")), "{server:?}");
    assert!(matches!(client, Error::Refused { .. }), "{client}");
    // Somebody who knows the session's id, which is no secret, and a greeting of another connection.
    let (server, client) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut link = link.unwrap();
        let header = scene.keys().unwrap().header().clone();
        let mut stolen = message::Hello {
            party: Party::One,
            session: header.session,
            model: header.model,
            weights: header.weights,
            ledger: vec![0b10],
            proof: [0; 32],
        };
        stolen.proof = *stolen.prove(&header.pairing, &[7; 32]).as_bytes();
        link.send(Message::Hello(stolen).encode()).unwrap();
        Message::decode(&link.receive().unwrap()).unwrap()
    });
    assert!(matches!(&server, Err(Error::Peer { what }) if what.contains("other half")), "{server:?}");
    assert!(matches!(client, Message::Refusal(_)));
    assert_eq!(used(&scene.server, Party::Zero), [false, false]);
}

#[test]
fn another_model_is_refused_by_either_side() {
    let scene = Scene::deal(&[4]);
    let (_, client) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        Client::new(&OTHER_MODEL.0, scene.keys().unwrap(), link.unwrap()).err().unwrap()
    });
    assert!(client.to_string().contains("another model"), "{client}");
    let (server, client) = session(&scene, &OTHER_MODEL.1, TIMEOUTS, |link| {
        Client::new(&MODEL.0, scene.keys().unwrap(), link.unwrap()).err().unwrap()
    });
    assert!(server.unwrap_err().to_string().contains("another model"));
    assert!(matches!(client, Error::Refused { .. }), "{client}");
    assert_eq!(used(&scene.client, Party::One), [false, false]);
}

#[test]
fn swapped_and_missing_files_are_refused() {
    let scene = Scene::deal(&[4]);
    assert!(matches!(KeyStore::open(&scene.client), Err(Error::Fss(gatework_fss::Error::WrongParty { .. }))));
    assert!(matches!(
        KeyFile::open(&scene.server, Party::One),
        Err(Error::Fss(gatework_fss::Error::WrongParty { .. }))
    ));
    assert!(matches!(KeyStore::open(&scene.folder.path().join("none.keys")), Err(Error::File { .. })));
    assert_eq!(
        KeyStore::open(scene.folder.path()).unwrap().sessions().unwrap().len(),
        1,
        "the client's is left out"
    );
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(KeyStore::open(empty.path()), Err(Error::KeyFile { .. })));
    let deal = |paths: [&std::path::Path; 2], tokens: &[usize]| {
        let mut randomness = Randomness::from_os().unwrap();
        deal_files(&cpu(), &mut randomness, &MODEL.0, tokens, paths, &()).err().unwrap().to_string()
    };
    let place = empty.path().join("a.keys");
    assert!(deal([&place, &place], &[4]).contains("a file of its own"));
    assert!(deal([&place, &empty.path().join("b.keys")], &[LONGEST + 1]).contains("tokens"));
    assert!(deal([&scene.server, &place], &[4]).contains("exists already"));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_peer_of_another_version_is_told_so() {
    let scene = Scene::deal(&[4]);
    let (server, told) = session(&scene, &MODEL.1, TIMEOUTS, |link| {
        let mut link = link.unwrap();
        link.send(vec![1, 99, 0, 1, 2, 3]).unwrap();
        Message::decode(&link.receive().unwrap()).unwrap()
    });
    assert!(server.unwrap_err().to_string().contains("version 99"));
    assert!(matches!(told, Message::Refusal(why) if why.contains("version 99")));
}

#[test]
fn damaged_keys_end_the_session_for_both() {
    let scene = Scene::deal(&[4, 4]);
    let mut bytes = fs::read(&scene.client).unwrap();
    let length = bytes.len();
    bytes[length - 40] ^= 1;
    fs::write(&scene.client, bytes).unwrap();
    // The first key is whole.
    assert!(ask(&scene, &[TEXT.to_vec()]).1.is_ok());
    let (server, client) = ask(&scene, &[TEXT.to_vec()]);
    assert!(matches!(client, Err(Error::KeyFile { .. })), "{:?}", client.err());
    assert!(matches!(server, Err(Error::Closed)), "{:?}", server.err());
}

#[test]
fn a_peer_that_stalls_between_requests_runs_out_of_time() {
    let scene = Scene::deal(&[4]);
    let short = Timeouts { message: Duration::from_millis(200), ..TIMEOUTS };
    let (server, ()) = session(&scene, &MODEL.1, short, |link| {
        let _pair = greeted(&scene, link);
        thread::sleep(3 * short.message);
    });
    assert!(matches!(server, Err(Error::Timeout { .. })), "{server:?}");
}

#[test]
fn a_peer_that_never_says_who_it_is_is_not_waited_for() {
    let scene = Scene::deal(&[4]);
    let timeouts = Timeouts { connect: Duration::from_millis(500), message: Duration::from_secs(600) };
    let start = std::time::Instant::now();
    let (server, ()) = session(&scene, &MODEL.1, timeouts, |link| {
        let _silent = link.unwrap();
        thread::sleep(3 * timeouts.connect);
    });
    assert!(matches!(server, Err(Error::Timeout { .. })), "{server:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_side_that_cannot_mark_its_keys_burns_nothing_of_the_other() {
    for broken in [Party::Zero, Party::One] {
        let scene = Scene::deal(&[4, 4]);
        let path = if broken == Party::Zero { &scene.server } else { &scene.client };
        // The new ledger cannot be written where a folder has its name.
        let next = PathBuf::from(format!("{}.ledger.next", path.display()));
        fs::create_dir(&next).unwrap();
        let (server, client) = ask(&scene, &[TEXT.to_vec()]);
        assert!(server.is_err() && client.is_err(), "{server:?}");
        assert_eq!(used(&scene.server, Party::Zero), [false; 3], "{broken:?} is broken");
        assert_eq!(used(&scene.client, Party::One), [false; 3], "{broken:?} is broken");
        fs::remove_dir(&next).unwrap();
        let (_, client) = ask(&scene, &[TEXT.to_vec()]);
        assert_eq!(client.unwrap().0, [in_clear(&TEXT)]);
    }
}

#[test]
fn the_masks_of_the_weights_go_with_the_last_key() {
    let scene = Scene::deal(&[4, 4]);
    let left = |path: &PathBuf, party: Party| {
        let keys = KeyFile::open(path, party).unwrap();
        let bytes = fs::read(path).unwrap();
        let section = keys.header().offset_of(0) as usize..keys.header().offset_of(1) as usize;
        bytes[section].iter().filter(|&&byte| byte != 0).count()
    };
    for (round, gone) in [(1, false), (2, true)] {
        let (server, client) = ask(&scene, &[TEXT.to_vec()]);
        assert_eq!(client.unwrap().0, [in_clear(&TEXT)]);
        server.unwrap();
        for (path, party) in [(&scene.server, Party::Zero), (&scene.client, Party::One)] {
            assert_eq!(left(path, party) == 0, gone, "{party:?} after {round}");
        }
    }
    let (_, client) = ask(&scene, &[TEXT.to_vec()]);
    assert!(matches!(client, Err(Error::NoKeys { tokens: 4 })));
}

#[test]
fn what_was_predicted_is_what_was_sent() {
    let texts: Vec<Vec<u32>> = vec![vec![1; 4], vec![2; 4], vec![3; 2]];
    let tokens: Vec<usize> = texts.iter().map(Vec::len).collect();
    let scene = Scene::deal(&tokens);
    let (_, client) = ask(&scene, &texts);
    let (_, summary) = client.unwrap();
    let [set_up, inference] = predict(&MODEL.0, &tokens).unwrap();
    assert_eq!(summary.set_up.traffic, set_up.traffic);
    assert_eq!(summary.inference.traffic, inference.traffic);
    assert_eq!(summary.inference.key_bytes, inference.key_bytes[1]);
    let header: KeyHeader = scene.keys().unwrap().header().clone();
    let spent: u64 = header.sections[1..].iter().map(|section| section.length).sum();
    assert_eq!(summary.inference.key_bytes, spent);
}
