//! Links between two threads, and peers that misbehave.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use super::*;

const SHORT: Timeouts = Timeouts { connect: Duration::from_millis(500), message: Duration::from_millis(300) };

fn certificates() -> (TempDir, CertificateFiles) {
    let folder = tempfile::tempdir().unwrap();
    let files = make_test_certificates(folder.path(), &["localhost".into()]).unwrap();
    (folder, files)
}

/// Runs a server and whatever connects to it.
fn with_server<T: Send>(
    files: &CertificateFiles,
    timeouts: Timeouts,
    server: impl FnOnce(Result<Link>) -> T + Send,
    client: impl FnOnce(&str),
) -> T {
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    let identity = files.server().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            server(Link::accept(socket, &identity, timeouts))
        });
        client(&address.to_string());
        server.join().unwrap()
    })
}

fn connect(address: &str, files: &CertificateFiles, timeouts: Timeouts) -> Result<Link> {
    Link::connect(address, "localhost", &files.client().unwrap(), timeouts)
}

/// A client that speaks TLS and says what it likes.
fn raw(address: &str, files: &CertificateFiles) -> StreamOwned<ClientConnection, TcpStream> {
    let config = files.client().unwrap().client().unwrap();
    let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, TcpStream::connect(address).unwrap())
}

#[test]
fn a_client_that_names_no_protocol_or_another_is_refused() {
    let (_folder, files) = certificates();
    for protocols in [vec![], vec![b"gatework-fss/1".to_vec()]] {
        let refused = with_server(
            &files,
            SHORT,
            |link| link.err().map(|error| error.to_string()),
            |address| {
                let mut config = (*files.client().unwrap().client().unwrap()).clone();
                config.alpn_protocols = protocols;
                let connection =
                    ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
                let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
                // Whether this side notices first does not matter.
                let _ = stream.write_all(b"hello").and_then(|()| stream.flush());
            },
        );
        assert!(refused.as_ref().is_some_and(|why| why.contains("secure connection")), "{refused:?}");
    }
}

#[test]
fn messages_arrive_in_order_over_one_binding() {
    let (_folder, files) = certificates();
    let lengths = [0, 1, 1000, 60_000];
    let (binding, theirs, bytes, frames) = with_server(
        &files,
        Timeouts::default(),
        |link| {
            let mut link = link.unwrap();
            for _ in lengths {
                let message = link.receive().unwrap();
                link.send(message).unwrap();
            }
            let (bytes, frames) = (link.bytes(), link.frames());
            (link.binding().to_vec(), link.receive().unwrap(), bytes, frames)
        },
        |address| {
            let mut link = connect(address, &files, Timeouts::default()).unwrap();
            lengths.iter().for_each(|&length| link.send(vec![length as u8; length]).unwrap());
            for length in lengths {
                assert_eq!(link.receive().unwrap(), vec![length as u8; length]);
            }
            link.send(link.binding().to_vec()).unwrap();
            link.flush().unwrap();
        },
    );
    assert_eq!(binding, theirs, "both ends know it");
    let sent = 61_001 + 4 * FRAME_OVERHEAD;
    assert_eq!((bytes, frames), ([sent, sent], [4, 4]));
}

#[test]
fn both_may_send_more_than_the_sockets_hold() {
    let (_folder, files) = certificates();
    let length = 24 << 20;
    let exchange = |link: &mut Link, own: u8, other: u8| {
        link.expect(length as u64);
        // Neither reads before both have sent.
        link.send(vec![own; length]).unwrap();
        assert_eq!(link.receive().unwrap(), vec![other; length]);
        link.flush().unwrap();
    };
    with_server(
        &files,
        Timeouts::default(),
        |link| exchange(&mut link.unwrap(), 1, 2),
        |address| exchange(&mut connect(address, &files, Timeouts::default()).unwrap(), 2, 1),
    );
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let ((_folder, files), (_other_folder, other)) = (certificates(), certificates());
    let refused = with_server(
        &files,
        SHORT,
        |link| link.err().unwrap(),
        |address| {
            let stranger = CertificateFiles { authority: files.authority.clone(), ..other.clone() };
            let outcome = connect(address, &stranger, SHORT).and_then(|mut link| link.receive());
            assert!(matches!(outcome, Err(Error::Tls { .. } | Error::Closed)), "{:?}", outcome.err());
        },
    );
    assert!(matches!(refused, Error::Tls { .. }), "{refused}");
}

#[test]
fn a_server_of_another_authority_or_name_is_refused() {
    let ((_folder, files), (_other_folder, other)) = (certificates(), certificates());
    for (name, client) in [("localhost", &other), ("example.org", &files)] {
        let refused = with_server(
            &files,
            SHORT,
            |link| link.and_then(|mut link| link.receive()).err().unwrap(),
            |address| {
                let outcome = Link::connect(address, name, &client.client().unwrap(), SHORT);
                assert!(matches!(outcome, Err(Error::Tls { .. })), "{:?}", outcome.err());
            },
        );
        assert!(matches!(refused, Error::Tls { .. } | Error::Closed), "{refused}");
    }
}

#[test]
fn a_peer_that_does_not_speak_tls_is_noticed() {
    let (_folder, files) = certificates();
    let garbage = with_server(
        &files,
        SHORT,
        |link| link.err().unwrap(),
        |address| TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap(),
    );
    assert!(matches!(garbage, Error::Tls { .. }), "{garbage}");
    let silent = with_server(
        &files,
        SHORT,
        |link| link.err().unwrap(),
        |address| {
            let _socket = TcpStream::connect(address).unwrap();
            thread::sleep(2 * SHORT.connect);
        },
    );
    assert!(matches!(silent, Error::Timeout { .. }), "{silent}");
}

#[test]
fn a_peer_that_stalls_or_drips_runs_out_of_time() {
    let (_folder, files) = certificates();
    for drips in [false, true] {
        let start = Instant::now();
        let outcome = with_server(
            &files,
            SHORT,
            |link| link.unwrap().receive().err().unwrap(),
            |address| {
                let mut peer = raw(address, &files);
                for byte in 1000u64.to_le_bytes().into_iter().chain(std::iter::repeat(7)).take(40) {
                    if peer.write_all(&[byte]).and_then(|()| peer.flush()).is_err() {
                        break;
                    }
                    thread::sleep(if drips { Duration::from_millis(20) } else { 2 * SHORT.message });
                    if !drips {
                        break;
                    }
                }
            },
        );
        assert!(matches!(outcome, Error::Timeout { .. }), "{outcome}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn lengths_that_belong_to_nothing_are_refused_at_once() {
    let (_folder, files) = certificates();
    let announce = |length: u64| {
        with_server(
            &files,
            Timeouts::default(),
            |link| link.unwrap().receive().err().unwrap(),
            |address| {
                let mut peer = raw(address, &files);
                peer.write_all(&length.to_le_bytes()).unwrap();
                peer.write_all(&[0; 40]).unwrap();
                thread::sleep(Duration::from_millis(50));
            },
        )
    };
    assert!(matches!(announce(u64::MAX), Error::Oversized { .. }));
    assert!(matches!(announce(70_000), Error::Oversized { .. }));
    assert!(matches!(announce(3), Error::OutOfStep { .. }), "too short for a transcript");
    assert!(matches!(announce(40), Error::OutOfStep { .. }), "of another transcript");
}

#[test]
fn a_peer_that_goes_is_noticed_before_the_timeout() {
    let (_folder, files) = certificates();
    let start = Instant::now();
    let gone = with_server(
        &files,
        Timeouts::default(),
        |link| link.and_then(|mut link| link.receive()).err().unwrap(),
        |address| drop(connect(address, &files, Timeouts::default()).unwrap()),
    );
    assert!(matches!(gone, Error::Closed), "{gone}");
    let cut = with_server(
        &files,
        Timeouts::default(),
        |link| link.and_then(|mut link| link.receive()).err().unwrap(),
        |address| {
            let mut peer = raw(address, &files);
            peer.write_all(&100u64.to_le_bytes()).unwrap();
            // The socket closes without a word of TLS, in the middle of a frame.
        },
    );
    assert!(matches!(cut, Error::Closed), "{cut}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_peer_that_does_not_read_holds_nobody_up() {
    let (_folder, files) = certificates();
    let start = Instant::now();
    with_server(
        &files,
        SHORT,
        |link| {
            let mut link = link.unwrap();
            link.send(vec![1; 64 << 20]).unwrap();
            let stuck = link.flush().unwrap_err();
            assert!(matches!(stuck, Error::Timeout { .. }), "{stuck}");
        },
        |address| {
            let mut peer = raw(address, &files);
            peer.write_all(&[0]).unwrap();
            thread::sleep(Duration::from_secs(7));
        },
    );
    assert!(start.elapsed() < Duration::from_secs(9), "the farewell must end");
}

#[test]
fn a_flood_of_frames_is_not_taken_in() {
    let (_folder, files) = certificates();
    // Frames of nothing, and frames that are well formed and that nobody takes.
    for empty in [true, false] {
        let start = Instant::now();
        with_server(
            &files,
            SHORT,
            |link| {
                // A flood of nothing may end the link before it is one.
                let Ok(link) = link else { return assert!(empty) };
                thread::sleep(Duration::from_millis(700));
                let waiting = link.waiting_bytes();
                assert!(waiting < 4 << 20, "{waiting} bytes wait");
            },
            |address| {
                let mut peer = raw(address, &files);
                peer.sock.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
                let frame: &[u8] =
                    if empty { &[0; 8] } else { &[&16u64.to_le_bytes()[..], &[7; 16]].concat() };
                let flood = frame.repeat(1 << 14);
                let mut sent = 0;
                while sent < 64 << 20 && peer.write_all(&flood).is_ok() {
                    sent += flood.len();
                }
                assert!(sent < 32 << 20, "{sent} bytes were taken");
            },
        );
        assert!(start.elapsed() < Duration::from_secs(4), "a flood must not hold up the end");
    }
}

#[test]
fn a_link_that_goes_after_a_message_goes_at_once() {
    let (_folder, files) = certificates();
    let start = Instant::now();
    let message = with_server(
        &files,
        Timeouts::default(),
        |link| link.unwrap().receive().unwrap(),
        |address| connect(address, &files, Timeouts::default()).unwrap().send(vec![3; 9]).unwrap(),
    );
    assert_eq!(message, [3; 9]);
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn nobody_listens_where_nobody_listens() {
    let (_folder, files) = certificates();
    let address = listen("127.0.0.1:0").unwrap().1.to_string();
    let error = connect(&address, &files, SHORT).err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains(&address), "{error}");
    assert!(connect("no.such.host.invalid:1", &files, SHORT).is_err());
    assert!(make_test_certificates(_folder.path(), &[]).is_err(), "certificates are not overwritten");
    std::fs::write(&files.client[0], "nothing").unwrap();
    let error = files.client().err().unwrap();
    assert!(matches!(error, Error::Certificate { .. }), "{error}");
}
