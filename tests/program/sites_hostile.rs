//! A hub that deviates: a process between the sites and a true hub, with the hub's certificate, reads and changes what
//! passes. In every case the sites have the right answer or refuse with a clear message.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use serde_json::{Value, json};

use crate::common::factor;
#[cfg(feature = "mpi")]
use crate::common::fednmf;
#[cfg(feature = "mpi")]
use crate::common::sites::NONCE;
use crate::common::sites::{NAMES, Stage, text};

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHub,
    ToSite,
}

/// A frame on its way between the hub and a site.
#[derive(Debug, Clone)]
struct Frame {
    site: usize,
    way: Way,
    kind: u8,
    body: Vec<u8>,
}

const CONTROL: u8 = 0;
const DATA: u8 = 1;
const ACK: u8 = 2;

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        [&(self.body.len() as u32).to_le_bytes()[..], &[self.kind], &self.body].concat()
    }

    fn is_data_to(&self, site: usize) -> bool {
        self.site == site && self.way == Way::ToSite && self.kind == DATA
    }

    /// Of data to a site: the sender.
    fn peer(&self) -> u16 {
        u16::from_le_bytes([self.body[0], self.body[1]])
    }

    fn number(&self) -> u64 {
        u64::from_le_bytes(self.body[2..10].try_into().unwrap())
    }

    fn control(&self) -> Option<Value> {
        (self.kind == CONTROL).then(|| serde_json::from_slice(&self.body).unwrap())
    }
}

/// Returns the bytes that are sent in place of a frame; an empty result ends the connection.
type Deviation = Box<dyn FnMut(&Frame) -> Vec<Vec<u8>> + Send>;

fn control(value: &Value) -> Vec<u8> {
    let body = value.to_string().into_bytes();
    Frame { site: 0, way: Way::ToSite, kind: CONTROL, body }.bytes()
}

fn pem(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// One side of a connection that passes the hostile hub.
struct Side {
    tls: Connection,
    socket: TcpStream,
    read: Vec<u8>,
}

impl Side {
    /// Moves the available bytes; returns whether there were any, or `None` at the end.
    fn pump(&mut self) -> Option<bool> {
        let mut moved = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => moved = true,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => return None,
            Ok(_) => moved = true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        // Also without fresh bytes: the handshake may have brought some along.
        let here = self.tls.process_new_packets().ok()?.plaintext_bytes_to_read();
        let at = self.read.len();
        self.read.resize(at + here, 0);
        self.tls.reader().read_exact(&mut self.read[at..]).ok()?;
        Some(moved)
    }

    fn frames(&mut self, site: usize, way: Way) -> Vec<Frame> {
        let mut all = Vec::new();
        while let Some((head, rest)) = self.read.split_first_chunk::<5>() {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let Some(body) = rest.get(..length) else { break };
            all.push(Frame { site, way, kind: head[4], body: body.to_vec() });
            self.read.drain(..5 + length);
        }
        all
    }
}

/// Passes on one connection, changed.
fn pass_on(stage: &Keys, socket: TcpStream, deviation: &Mutex<Deviation>) -> Option<()> {
    let mut near = ServerConnection::new(stage.server.clone()).ok()?;
    let mut socket = socket;
    while near.is_handshaking() {
        near.complete_io(&mut socket).ok()?;
    }
    let certificate = near.peer_certificates()?.first()?.clone().into_owned();
    let site = stage.clients.iter().position(|(known, _)| *known == certificate)?;
    let far = ClientConnection::new(stage.clients[site].1.clone(), ServerName::try_from("localhost").unwrap()).ok()?;
    let hub = TcpStream::connect(("127.0.0.1", stage.hub)).ok()?;
    for socket in [&socket, &hub] {
        socket.set_nodelay(true).ok()?;
        socket.set_nonblocking(true).ok()?;
    }
    let mut near = Side { tls: near.into(), socket, read: Vec::new() };
    let mut far = Side { tls: far.into(), socket: hub, read: Vec::new() };
    loop {
        let (one, other) = (near.pump(), far.pump());
        for way in [Way::ToHub, Way::ToSite] {
            let (from, to) = if way == Way::ToHub { (&mut near, &mut far) } else { (&mut far, &mut near) };
            for frame in from.frames(site, way) {
                for bytes in deviation.lock().unwrap()(&frame) {
                    if bytes.is_empty() {
                        // In the middle of a frame.
                        let half = frame.bytes();
                        to.tls.writer().write_all(&half[..half.len() / 2]).ok()?;
                        to.pump();
                        return None;
                    }
                    to.tls.writer().write_all(&bytes).ok()?;
                }
            }
        }
        if near.pump().is_none() || far.pump().is_none() || one.is_none() || other.is_none() {
            return None;
        }
        if one == Some(false) && other == Some(false) {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// The keys of the hostile hub: the certificate of the hub. To the true hub it shows those of the sites, which a
/// deviating hub would not need.
struct Keys {
    hub: u16,
    server: Arc<ServerConfig>,
    clients: Vec<(CertificateDer<'static>, Arc<ClientConfig>)>,
}

impl Keys {
    fn of(stage: &Stage) -> Keys {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(pem(&stage.keys("ca.pem"))).unwrap();
        let roots = Arc::new(roots);
        let key = |name: &str| PrivateKeyDer::from_pem_file(stage.keys(&format!("{name}.key"))).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build().unwrap();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![pem(&stage.keys("hub.pem"))], key("hub"))
            .unwrap();
        let client = |name: &&str| {
            let own = pem(&stage.keys(&format!("{name}.pem")));
            let config = ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_client_auth_cert(vec![own.clone()], key(name))
                .unwrap();
            (own, Arc::new(config))
        };
        Keys { hub: stage.port, server: Arc::new(server), clients: NAMES.iter().map(client).collect() }
    }
}

/// Puts the hostile hub between the sites and the hub of the stage.
fn stand_between(stage: &mut Stage, deviation: Deviation) {
    let (keys, deviation) = (Arc::new(Keys::of(stage)), Arc::new(Mutex::new(deviation)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    stage.port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let (keys, deviation) = (keys.clone(), deviation.clone());
            std::thread::spawn(move || pass_on(&keys, socket, &deviation));
        }
    });
}

const RUN: &str = "--algo fnmf --start shared --barycenter mean --secure-sum -k 3 --max-iters 6 --eval-every 2 -q \
                   --wait 20 --patience 4 --stall-timeout 12";

/// How a run has to end.
enum End {
    /// All sites have the right answer.
    Right,
    /// Some site prints this message; no site has a wrong answer.
    Refused(&'static str),
    /// Some site prints this message; the sites with an answer have the same one, that of all sites or of those that
    /// continued.
    Undivided(&'static str),
}

/// Runs with a deviation, and expects the end.
fn expect(what: &str, more: &str, deviation: Deviation, end: &End, right: &ndarray::Array2<f64>) {
    let mut stage = Stage::new();
    stage.start_hub("--patience 3");
    stand_between(&mut stage, deviation);
    let start = Instant::now();
    stage.start_sites(&format!("{RUN} {more} --output {{site}}/f.h5"));
    let ends = stage.finish_sites();
    assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", start.elapsed());
    let all: String = NAMES.iter().map(|site| stage.says(site)).collect();
    assert!(!all.contains("internal error"), "{what}: {all}");
    let answer = |site: &str| factor(&stage.at(site).join("f.h5"), "V");
    let first = NAMES.iter().zip(&ends).find(|(_, (code, _))| *code == Some(0)).map(|(site, _)| answer(site));
    for (site, (code, _)) in NAMES.iter().zip(&ends) {
        match code {
            Some(0) if matches!(end, End::Undivided(_)) => {
                assert_eq!(Some(answer(site)), first, "{what}: {site} has another answer");
            }
            Some(0) => assert_eq!(answer(site), right, "{what}: {site} has a wrong answer"),
            Some(1 | 2) => {
                assert!(!matches!(end, End::Right), "{what}: {site}: {all}\nhub: {}", stage.hub_says());
                assert!(stage.says(site).contains("error: "), "{what}: {site} says nothing");
                assert!(!stage.at(site).join("f.h5").exists(), "{what}: {site} is half-written");
            }
            code => panic!("{what}: {site}: {code:?}: {all}"),
        }
    }
    if let End::Refused(why) | End::Undivided(why) = end {
        assert!(all.contains(why), "{what}: {all}\nhub: {}", stage.hub_says());
        assert!(ends.iter().any(|(code, _)| *code != Some(0)), "{what}: nobody refuses: {all}");
    }
}

/// The result of the sites with an honest hub.
fn right_answer(more: &str) -> ndarray::Array2<f64> {
    let mut stage = Stage::new();
    stage.start_hub("");
    stage.start_sites(&format!("{RUN} {more} --output {{site}}/f.h5"));
    stage.all_well();
    factor(&stage.at("a").join("f.h5"), "V")
}

/// Passes everything on, but hands the n-th frame that `which` chooses to `change`.
fn at(
    n: usize,
    which: fn(&Frame) -> bool,
    mut change: impl FnMut(&Frame) -> Vec<Vec<u8>> + Send + 'static,
) -> Deviation {
    let mut seen = 0;
    Box::new(move |frame| {
        seen += usize::from(which(frame));
        if which(frame) && seen == n { change(frame) } else { vec![frame.bytes()] }
    })
}

/// Changes the keys of all sites as they are sent to site b.
fn with_roster(change: fn(&mut Vec<Value>)) -> Deviation {
    Box::new(move |frame| match frame.control() {
        Some(mut said) if frame.site == 1 && frame.way == Way::ToSite && said["Roster"].is_array() => {
            change(said["Roster"].as_array_mut().unwrap());
            vec![control(&said)]
        }
        _ => vec![frame.bytes()],
    })
}

#[test]
fn messages_that_are_lost_late_repeated_or_changed_make_no_wrong_answer() {
    let right = right_answer("");
    let to_b: fn(&Frame) -> bool = |frame| frame.is_data_to(1);
    let stalls = End::Refused("no progress");
    let changed = End::Refused("was changed on its way, or is not for this site: do not trust the hub");
    expect("nothing", "", Box::new(|frame| vec![frame.bytes()]), &End::Right, &right);
    expect("a message is left out", "", at(9, to_b, |_| Vec::new()), &stalls, &right);
    expect(
        "nothing more reaches a site",
        "",
        {
            let mut seen = 0;
            Box::new(move |frame: &Frame| {
                seen += usize::from(frame.is_data_to(1));
                if frame.site == 1 && seen > 9 { Vec::new() } else { vec![frame.bytes()] }
            })
        },
        &stalls,
        &right,
    );
    expect(
        "all is late",
        "",
        Box::new(|frame| {
            std::thread::sleep(Duration::from_millis(if frame.kind == DATA { 2 } else { 0 }));
            vec![frame.bytes()]
        }),
        &End::Right,
        &right,
    );
    expect(
        "everything comes twice",
        "",
        Box::new(|frame| match frame.kind {
            CONTROL => vec![frame.bytes()],
            _ => vec![frame.bytes(), frame.bytes()],
        }),
        &End::Right,
        &right,
    );
    // Held back until the next one has passed: from the same sender, that one waits for it in vain.
    let mut held: Option<Vec<u8>> = None;
    let mut seen = 0;
    expect(
        "messages of one sender in another order",
        "",
        Box::new(move |frame| {
            let chosen = frame.is_data_to(1) && frame.peer() == 0;
            seen += usize::from(chosen);
            match (chosen, seen, held.take()) {
                (true, 4, _) => {
                    held = Some(frame.bytes());
                    Vec::new()
                }
                (true, _, Some(before)) => vec![frame.bytes(), before],
                (_, _, before) => {
                    held = before;
                    vec![frame.bytes()]
                }
            }
        }),
        &stalls,
        &right,
    );
    expect(
        "a byte is changed",
        "",
        at(9, to_b, |frame| {
            let mut frame = frame.clone();
            let last = frame.body.len() - 20;
            frame.body[last] ^= 1;
            vec![frame.bytes()]
        }),
        &changed,
        &right,
    );
    expect(
        "an empty message",
        "",
        at(9, to_b, |frame| {
            let mut frame = frame.clone();
            frame.body.truncate(10);
            vec![frame.bytes()]
        }),
        &changed,
        &right,
    );
    let mut old: Vec<Frame> = Vec::new();
    expect(
        "an old message again",
        "",
        Box::new(move |frame| {
            // Only to the site that it was for: to another one it would be a message under a wrong key.
            if !frame.is_data_to(1) {
                return vec![frame.bytes()];
            }
            old.push(frame.clone());
            let again = old.len().is_multiple_of(3).then(|| old[0].bytes());
            [Some(frame.bytes()), again].into_iter().flatten().collect()
        }),
        &End::Right,
        &right,
    );
    let mut old: Option<Frame> = None;
    expect(
        "an old message under a new number",
        "",
        Box::new(move |frame| {
            if !(frame.is_data_to(1) && frame.peer() == 0) {
                return vec![frame.bytes()];
            }
            let first = old.get_or_insert_with(|| frame.clone());
            if frame.number() != 5 {
                return vec![frame.bytes()];
            }
            let mut again = first.clone();
            again.body[2..10].copy_from_slice(&frame.body[2..10]);
            vec![again.bytes()]
        }),
        &changed,
        &right,
    );
    expect(
        "a message under another sender's name",
        "",
        {
            // Site b opens a frame only if it has the number that is next for its sender.
            let mut next = [0; NAMES.len()];
            Box::new(move |frame| {
                let mut frame = frame.clone();
                if frame.is_data_to(1) {
                    let (peer, number) = (usize::from(frame.peer()), frame.number());
                    let other =
                        [0, 2, 3].into_iter().find(|&other| other != peer && number > 0 && next[other] == number);
                    match other {
                        Some(other) => frame.body[..2].copy_from_slice(&u16::try_from(other).unwrap().to_le_bytes()),
                        None => next[peer] = next[peer].max(number + 1),
                    }
                }
                vec![frame.bytes()]
            })
        },
        &changed,
        &right,
    );
    expect(
        "a message for another site",
        "",
        Box::new(move |frame| {
            let mut frame = frame.clone();
            if frame.site == 0 && frame.way == Way::ToHub && frame.kind == DATA && frame.number() == 3 {
                let other = if frame.peer() == 1 { 2u16 } else { 1 };
                frame.body[..2].copy_from_slice(&other.to_le_bytes());
            }
            vec![frame.bytes()]
        }),
        &changed,
        &right,
    );
    expect(
        "a message of nobody",
        "",
        at(5, to_b, |frame| {
            let mut other = frame.clone();
            other.body[..2].copy_from_slice(&999u16.to_le_bytes());
            vec![other.bytes(), frame.bytes()]
        }),
        &End::Right,
        &right,
    );
    expect(
        "all is said to have arrived",
        "",
        at(5, to_b, |frame| {
            let ack =
                Frame { kind: ACK, body: [&0u16.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat(), ..frame.clone() };
            vec![ack.bytes(), frame.bytes()]
        }),
        &End::Right,
        &right,
    );
}

#[test]
fn bytes_that_are_no_frames_and_connections_that_end_make_no_wrong_answer() {
    let right = right_answer("");
    let to_b: fn(&Frame) -> bool = |frame| frame.is_data_to(1);
    let protocol = End::Refused("speaks another protocol");
    expect("a length beyond all", "", at(7, to_b, |_| vec![vec![255, 255, 255, 255, DATA, 0]]), &protocol, &right);
    expect("a length above the limit", "", at(7, to_b, |_| vec![vec![1, 0, 16, 0, DATA, 0]]), &protocol, &right);
    expect("an unknown kind", "", at(7, to_b, |_| vec![vec![1, 0, 0, 0, 9, 0]]), &protocol, &right);
    expect(
        "a control message that is none",
        "",
        at(7, to_b, |_| vec![vec![2, 0, 0, 0, CONTROL, b'{', b'}']]),
        &protocol,
        &right,
    );
    expect("a short frame", "", at(7, to_b, |_| vec![vec![3, 0, 0, 0, ACK, 1, 2, 3]]), &protocol, &right);
    let breaks: fn(&Frame) -> bool = |frame| frame.kind == DATA;
    for n in [1, 8, 40] {
        expect("the connection ends in a frame", "", at(n, breaks, |_| vec![Vec::new()]), &End::Right, &right);
    }
    // To the hub: its connection ends, and the site comes back.
    let from_b: fn(&Frame) -> bool = |frame| frame.site == 1 && frame.way == Way::ToHub && frame.kind == DATA;
    expect("nonsense to the hub", "", at(7, from_b, |_| vec![vec![255, 255, 255, 255, 9]]), &End::Right, &right);
}

#[test]
fn keys_and_names_cannot_be_exchanged() {
    let right = right_answer("");
    let distrust = End::Refused("is not to be trusted");
    expect("the keys of two sites are exchanged", "", with_roster(|keys| keys.swap(2, 3)), &distrust, &right);
    expect(
        "names are exchanged with them",
        "",
        with_roster(|keys| {
            keys.swap(2, 3);
            (keys[2]["site"], keys[3]["site"]) = (json!("c"), json!("d"));
        }),
        &distrust,
        &right,
    );
    expect(
        "a key of the hub's own",
        "",
        with_roster(|keys| keys[2]["key"] = json!("09".repeat(32))),
        &distrust,
        &right,
    );
    expect(
        "another signature",
        "",
        with_roster(|keys| keys[2]["signature"] = keys[3]["signature"].clone()),
        &distrust,
        &right,
    );
    expect(
        "another certificate",
        "",
        with_roster(|keys| keys[2]["chain"] = keys[3]["chain"].clone()),
        &distrust,
        &right,
    );
    expect("a certificate that is none", "", with_roster(|keys| keys[2]["chain"] = json!(["00"])), &distrust, &right);
    expect("a certificate is missing", "", with_roster(|keys| keys[2]["chain"] = json!([])), &distrust, &right);
    expect(
        "the site's own key is replaced",
        "",
        with_roster(|keys| keys[1]["key"] = keys[0]["key"].clone()),
        &distrust,
        &right,
    );
    let others = End::Refused("names other sites than before");
    expect("a site is left out", "", with_roster(|keys| drop(keys.pop())), &others, &right);
    // Another order for one of them: it would be another party.
    expect(
        "the sites in another order",
        "",
        Box::new(|frame| match frame.control() {
            Some(said) if frame.site == 1 && frame.way == Way::ToSite && said["Welcome"].is_object() => {
                let run = &said["Welcome"]["run"];
                vec![control(&json!({"Welcome": {"run": run, "sites": ["b", "a", "c", "d"], "rank": 0}}))]
            }
            _ => vec![frame.bytes()],
        }),
        &distrust,
        &right,
    );
    expect(
        "another run",
        "",
        Box::new(|frame| match frame.control() {
            Some(mut said) if frame.site == 1 && frame.way == Way::ToSite && said["Welcome"].is_object() => {
                said["Welcome"]["run"] = json!("00");
                vec![control(&said)]
            }
            _ => vec![frame.bytes()],
        }),
        &distrust,
        &right,
    );
    expect(
        "a rank that is none",
        "--wait 2",
        Box::new(|frame| match frame.control() {
            Some(mut said) if frame.site == 1 && frame.way == Way::ToSite && said["Welcome"].is_object() => {
                said["Welcome"]["rank"] = json!(17);
                vec![control(&said)]
            }
            _ => vec![frame.bytes()],
        }),
        &End::Refused("did not join within 2 s"),
        &right,
    );
}

/// Says control messages to some sites before the n-th message to site b, with a threshold after the run has come to
/// its iterations.
fn claims(n: usize, iterating: bool, said: &'static [(usize, &'static str)]) -> Deviation {
    let (mut seen, mut told, mut ready) = (0, [false; 4], [!iterating; 4]);
    Box::new(move |frame| {
        ready[frame.site] |= frame.control().is_some_and(|said| said["GoesOn"].is_number());
        seen += usize::from(frame.is_data_to(1) && ready == [true; 4]);
        let mut all = Vec::new();
        if seen >= n && frame.way == Way::ToSite && !std::mem::replace(&mut told[frame.site], true) {
            let own = said.iter().filter(|(site, _)| *site == frame.site);
            all.extend(own.map(|(_, text)| control(&serde_json::from_str(text).unwrap())));
        }
        all.push(frame.bytes());
        all
    })
}

#[test]
fn a_hub_that_lies_about_who_is_gone_cannot_divide_the_sites() {
    let right = right_answer("");
    expect(
        "a site is said to have left",
        "",
        claims(9, false, &[(0, r#"{"Left":2}"#), (1, r#"{"Left":2}"#)]),
        &End::Right,
        &right,
    );
    // Without a threshold no site continues.
    let gone = End::Refused("in the middle of what the run cannot do without it");
    expect("a site is said to be gone", "", claims(9, false, &[(0, r#"{"Gone":[2,"was lost"]}"#)]), &gone, &right);
    expect("nobody is gone", "", claims(9, false, &[(0, r#"{"Gone":[99,"was lost"]}"#)]), &End::Right, &right);
    let more = "--secure-threshold 3";
    let right = right_answer(more);
    for divided in [
        &[(0, r#"{"Gone":[1,"was lost"]}"#), (1, r#"{"Gone":[0,"was lost"]}"#)][..],
        &[
            (0, r#"{"Gone":[2,"was lost"]}"#),
            (1, r#"{"Gone":[3,"was lost"]}"#),
            (2, r#"{"Gone":[0,"was lost"]}"#),
            (3, r#"{"Gone":[1,"was lost"]}"#),
        ],
    ] {
        // The first site to receive it may have agreed with the others before they receive anything.
        expect("the sites are divided", more, claims(9, true, divided), &End::Undivided("--resume"), &right);
    }
    // One site receives the message that another is gone: all others continue without that one, and inform it.
    let mut stage = Stage::new();
    stage.start_hub("--patience 3");
    stand_between(&mut stage, claims(9, true, &[(0, r#"{"Gone":[2,"was lost"]}"#)]));
    stage.start_sites(&format!("{RUN} {more} --output {{site}}/f.h5"));
    let ends = stage.finish_sites();
    let codes: Vec<Option<i32>> = ends.iter().map(|end| end.0).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(1), Some(0)], "{}\n{}", stage.says("a"), stage.says("c"));
    assert!(stage.says("c").contains("the others go on without it"), "{}", stage.says("c"));
    assert!(stage.says("d").contains("is gone, as site"), "{}", stage.says("d"));
    let [a, b, d] = ["a", "b", "d"].map(|site| factor(&stage.at(site).join("f.h5"), "V"));
    assert!(a == b && a == d);
    assert!(!text(&stage.at("c.err")).contains("internal error"));
}

/// When site c is killed, its message has reached two of the others: they inform the third, or no site counts it.
#[test]
#[cfg(feature = "mpi")]
fn a_message_of_a_lost_site_counts_at_all_or_at_none() {
    let run = "--algo fnmf --start shared --barycenter mean --secure-sum --secure-threshold 3 -k 2 --max-iters 3 \
               --eval-every 0 -q";
    let dir = Stage::new();
    let answers: Vec<ndarray::Array2<f64>> = ["2@1:1", "2@2:1", "2@3:1", ""]
        .iter()
        .map(|drop| {
            let output = dir.at("mpi.h5");
            let run = fednmf(2, run).arg("--input").arg(dir.at("rows-{party}.npy")).arg("--output").arg(&output);
            run.env("FEDNMF_DROP", drop).env(NONCE.0, NONCE.1).ok();
            factor(&output, "V")
        })
        .collect();
    use std::sync::atomic::{AtomicBool, Ordering};

    let mut found = Vec::new();
    // A sum takes six rounds.
    for n in 1..14 {
        let mut stage = Stage::new();
        stage.start_hub("--patience 1");
        let withheld = Arc::new(AtomicBool::new(false));
        let (mut seen, mut ready, flag) = (0, [false; 4], withheld.clone());
        stand_between(
            &mut stage,
            Box::new(move |frame| {
                ready[frame.site] |= frame.control().is_some_and(|said| said["GoesOn"].is_number());
                if ready == [true; 4] && frame.is_data_to(1) && frame.peer() == 2 {
                    seen += 1;
                    if seen >= n {
                        flag.store(true, Ordering::SeqCst);
                        return Vec::new();
                    }
                }
                vec![frame.bytes()]
            }),
        );
        stage.start_sites(&format!("{run} --output {{site}}/f.h5"));
        stage.wait_for(|_| withheld.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(400));
        stage.sites[2].kill().unwrap();
        let ends = stage.finish_sites();
        for (site, (code, _)) in NAMES.iter().zip(&ends).filter(|(site, _)| **site != "c") {
            assert_eq!(*code, Some(0), "{n}: {site}: {}", stage.says(site));
        }
        let [a, b, d] = ["a", "b", "d"].map(|site| factor(&stage.at(site).join("f.h5"), "V"));
        assert!(a == b && a == d, "{n}: the sites differ");
        found.push(answers.iter().position(|answer| *answer == a).unwrap_or_else(|| panic!("{n}: another answer")));
    }
    assert!(found.is_sorted() && found.contains(&0) && found.contains(&1), "{found:?}");
}
