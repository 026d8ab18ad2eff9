//! Links between two threads, and peers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use super::inbox::part_of;
use super::lane::{ANSWER, GREETING, Token};
use super::outgoing::Parcel;
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
    let config = files.client().unwrap().client(PROTOCOL).unwrap();
    let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    // It wants no lanes.
    stream.write_all(&[0]).unwrap();
    stream
}

#[test]
fn a_client_that_names_no_protocol_or_another_is_refused() {
    let (_folder, files) = certificates();
    for protocols in [vec![], vec![b"gatework-fss/2".to_vec()]] {
        let refused = with_server(
            &files,
            SHORT,
            |link| link.err().map(|error| error.to_string()),
            |address| {
                let mut config = (*files.client().unwrap().client(PROTOCOL).unwrap()).clone();
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
        link.send(Vec::new()).unwrap();
        link.receive().unwrap();
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

/// Both ends of a link with lanes.
fn linked(files: &CertificateFiles, timeouts: Timeouts, lanes: [usize; 2]) -> [Link; 2] {
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    let reception = Reception::new(files.server().unwrap(), timeouts).with_lanes(lanes[0]);
    thread::scope(|scope| {
        let server = scope.spawn(|| reception.accept(&listener).unwrap());
        let (address, identity) = (address.to_string(), files.client().unwrap());
        let client = Link::connect_with_lanes(&address, "localhost", &identity, timeouts, lanes[1]).unwrap();
        [server.join().unwrap(), client]
    })
}

/// Bytes that differ from place to place.
fn patterned(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|place| (place / 251 + place + seed) as u8).collect()
}

#[test]
fn long_messages_go_on_as_many_lanes_as_both_want() {
    let (_folder, files) = certificates();
    let lengths = [1 << 16, 3, (1 << 16) - 1, 1_000_003, 0, 5 << 20, 70_001, 1];
    for (lanes, agreed) in [([4, 4], 4), ([1, 3], 1), ([16, 2], 2), ([0, 4], 0), ([4, 0], 0), ([99, 99], 16)]
    {
        let mut ends = linked(&files, Timeouts::default(), lanes);
        assert!(ends.iter().all(|end| end.lanes() == agreed), "{lanes:?}");
        ends.iter().for_each(|end| end.expect(5 << 20));
        thread::scope(|scope| {
            for (own, link) in ends.iter_mut().enumerate() {
                scope.spawn(move || {
                    // Neither reads before both have sent all.
                    lengths.iter().for_each(|&length| link.send(patterned(length, own)).unwrap());
                    for length in lengths {
                        assert!(link.receive().unwrap() == patterned(length, 1 - own), "{length}");
                    }
                    let bytes = lengths.iter().sum::<usize>() as u64 + lengths.len() as u64 * FRAME_OVERHEAD;
                    assert_eq!((link.bytes(), link.frames()), ([bytes; 2], [lengths.len() as u64; 2]));
                });
            }
        });
    }
}

#[test]
fn a_lane_that_is_lost_ends_the_link_but_not_what_came_before() {
    let (_folder, files) = certificates();
    let start = Instant::now();
    let [mut server, mut client] = linked(&files, Timeouts::default(), [3, 3]);
    [&server, &client].into_iter().for_each(|link| link.expect(1 << 20));
    client.send(patterned(1 << 20, 1)).unwrap();
    client.send(vec![7; 9]).unwrap();
    client.flush().unwrap();
    client.lose_lane(1);
    // In the middle of a message: two lanes bring their parts, the third has gone.
    let message = std::sync::Arc::new(gatework_fss::Message::from(vec![1; 1 << 20]));
    let head = (1 << 20) + 16;
    for lane in 0..2 {
        client.post_to_lane(
            lane,
            Parcel { head, message: message.clone(), range: part_of(1 << 20, 3, 2 * lane) },
        );
    }
    client.announce(head);
    assert!(server.receive().unwrap() == patterned(1 << 20, 1));
    assert_eq!(server.receive().unwrap(), [7; 9]);
    let lost = server.receive().unwrap_err();
    assert!(matches!(lost, Error::Closed), "{lost}");
    assert!(
        matches!(server.send(vec![1; 1 << 20]).unwrap_err(), Error::Closed),
        "no message goes without it"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_lane_that_is_silent_runs_out_of_time() {
    let (_folder, files) = certificates();
    let [mut server, client] = linked(&files, SHORT, [2, 2]);
    server.expect(1 << 20);
    let message = std::sync::Arc::new(gatework_fss::Message::from(vec![1; 1 << 20]));
    client.announce((1 << 20) + 16);
    client.post_to_lane(0, Parcel { head: (1 << 20) + 16, message, range: part_of(1 << 20, 2, 0) });
    let silent = server.receive().unwrap_err();
    assert!(matches!(silent, Error::Timeout { .. }), "{silent}");
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let (_folder, files) = certificates();
    let head = (1 << 20) + 16;
    let message = std::sync::Arc::new(gatework_fss::Message::from(patterned(1 << 20, 3)));
    let part = |lane| Parcel { head, message: message.clone(), range: part_of(1 << 20, 2, lane) };
    let other_head = |lane| Parcel { head: head - 1, ..part(lane) };
    let cases: [(&str, [Parcel; 2], u64); 4] = [
        // Whichever lane comes first says what is expected of the other one.
        ("lane", [part(0), other_head(1)], head),
        ("another message than was announced", [part(0), part(1)], head - 1),
        ("at most", [Parcel { head: 1 << 40, ..part(0) }, part(1)], head),
        ("too short", [Parcel { head: 3, ..part(0) }, part(1)], head),
    ];
    for (why, parcels, announced) in cases {
        let [mut server, client] = linked(&files, SHORT, [2, 2]);
        server.expect(1 << 20);
        for (lane, parcel) in parcels.into_iter().enumerate() {
            client.post_to_lane(lane, parcel);
        }
        client.announce(announced);
        let error = server.receive().unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn an_announcement_without_lanes_is_refused() {
    let (_folder, files) = certificates();
    let [mut server, client] = linked(&files, SHORT, [0, 0]);
    client.announce(100);
    let error = server.receive().unwrap_err().to_string();
    assert!(error.contains("there are none"), "{error}");
}

#[test]
fn lanes_that_nobody_takes_from_are_not_read() {
    let (_folder, files) = certificates();
    let [server, mut client] = linked(&files, SHORT, [2, 2]);
    server.expect(1 << 20);
    for round in 0..40 {
        client.send(patterned(1 << 20, round)).unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    let waiting = server.waiting_bytes();
    assert!(waiting < 7 << 20, "{waiting} bytes wait");
    // And go on when they are taken.
    let mut server = server;
    for round in 0..40 {
        assert!(server.receive().unwrap() == patterned(1 << 20, round));
    }
}

/// A lane's greeting from what both connections know, and the token.
type Greet<'a> = dyn Fn(&[u8; 32], &Token, &[u8; 32]) -> [u8; GREETING] + 'a;

/// A client that opens lanes as it likes: what it says on one, and how the server takes it.
fn lane_greeting(
    files: &CertificateFiles,
    reception: &Reception,
    greet: impl FnOnce(&[u8; 32], &Token, &[u8; 32]) -> [u8; GREETING],
) -> Result<()> {
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    let open = |protocol: &[u8]| {
        let config = files.client().unwrap().client(protocol).unwrap();
        let tls = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        Agreed::new(tls.into(), TcpStream::connect(address).unwrap(), SHORT.connect).unwrap()
    };
    thread::scope(|scope| {
        let accept = || reception.receive(listener.accept().unwrap().0);
        let main = scope.spawn(accept);
        let mut client = open(PROTOCOL);
        client.say(&[2]).unwrap();
        let arriving = main.join().unwrap().unwrap();
        assert!(matches!(arriving, Arrival::Client(_)));
        let (_, token) = read_answer(&client.hear().unwrap());
        let lane = scope.spawn(accept);
        let mut agreed = open(LANE_PROTOCOL);
        agreed.say(&greet(&client.binding, &token, &agreed.binding)).unwrap();
        lane.join().unwrap().map(drop)
    })
}

#[test]
fn lanes_of_other_sessions_and_too_many_are_refused() {
    let (_folder, files) = certificates();
    let reception = Reception::new(files.server().unwrap(), SHORT).with_lanes(2);
    let proved = |main: &[u8; 32], token: &Token, own: &[u8; 32], lane: usize, end: End| {
        greeting(token, lane, &LaneKey::new(main).proof(end, lane, own))
    };
    assert!(
        lane_greeting(&files, &reception, |main, token, own| proved(main, token, own, 1, End::Client))
            .is_ok()
    );
    let refused = |greet: &Greet<'_>| lane_greeting(&files, &reception, greet).unwrap_err().to_string();
    let another = "another client's link";
    assert!(refused(&|_, token, own| proved(&[1; 32], token, own, 0, End::Client)).contains(another));
    assert!(refused(&|main, token, _| proved(main, token, &[1; 32], 0, End::Client)).contains(another));
    assert!(refused(&|main, token, own| proved(main, token, own, 0, End::Server)).contains(another));
    assert!(refused(&|main, _, own| proved(main, &[9; 16], own, 0, End::Client)).contains("not there"));
    assert!(refused(&|main, token, own| proved(main, token, own, 2, End::Client)).contains("more lanes"));
    // A number that is shown and not proved.
    let renumbered =
        refused(&|main, token, own| greeting(token, 1, &LaneKey::new(main).proof(End::Client, 0, own)));
    assert!(renumbered.contains(another), "{renumbered}");
}

#[test]
fn a_client_that_opens_no_lanes_is_not_waited_for() {
    let (_folder, files) = certificates();
    let reception = Reception::new(files.server().unwrap(), SHORT).with_lanes(2);
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    let mut peer = {
        let config = files.client().unwrap().client(PROTOCOL).unwrap();
        let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        StreamOwned::new(connection, TcpStream::connect(address).unwrap())
    };
    let refused = thread::scope(|scope| {
        let server = scope.spawn(|| reception.accept(&listener).err().unwrap());
        peer.write_all(&[2]).unwrap();
        let mut answer = [0; ANSWER];
        peer.read_exact(&mut answer).unwrap();
        server.join().unwrap()
    });
    assert!(matches!(refused, Error::Timeout { doing: "open its lanes", .. }), "{refused}");
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

/// A scan of ports, and somebody who speaks another protocol.
#[test]
fn a_stray_connection_does_not_end_the_wait_for_a_client() {
    let (_folder, files) = certificates();
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    let timeouts = Timeouts { connect: Duration::from_secs(5), message: Duration::from_secs(5) };
    let reception = Reception::new(files.server().unwrap(), timeouts).with_lanes(2);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut link = reception.accept(&listener)?;
            link.receive()
        });
        drop(TcpStream::connect(address).unwrap());
        TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut link = connect(&address.to_string(), &files, timeouts).unwrap();
        assert_eq!(link.lanes(), 2);
        link.send(b"here I am".to_vec()).unwrap();
        assert_eq!(server.join().unwrap().unwrap(), b"here I am");
    });
}

/// What was let through for the weights is not let through for the rest of a session.
#[test]
fn after_the_weights_messages_are_short_again() {
    let (_folder, files) = certificates();
    let long = vec![7u8; 1 << 20];
    let (first, second) = with_server(
        &files,
        Timeouts::default(),
        |link| {
            let mut link = link.unwrap();
            link.expect(1 << 20);
            let first = link.receive().unwrap();
            link.expect_short();
            link.send(b"next".to_vec()).unwrap();
            (first, link.receive())
        },
        |address| {
            let mut link = connect(address, &files, Timeouts::default()).unwrap();
            link.send(long.clone()).unwrap();
            link.receive().unwrap();
            let _ = link.send(long.clone());
            // Until the other side has refused it.
            let _ = link.receive();
        },
    );
    assert_eq!(first, long);
    assert!(matches!(second, Err(Error::Oversized { .. })), "{second:?}");
}
