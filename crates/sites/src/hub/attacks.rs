//! Attacks on the hub over real connections: by strangers, and by sites with a certificate.

use std::io::{Read as _, Write as _};

use tempfile::TempDir;

use super::*;
use crate::seal::SiteSecret;
use crate::seal::tests::identities;

/// A hub of the sites a and b.
struct Stage {
    dir: TempDir,
    hub: Arc<Hub>,
    identities: [Identity; 2],
    address: SocketAddr,
}

/// A process of a site that speaks to the hub by hand.
struct Client {
    stream: Stream,
    decoder: Decoder,
}

impl Stage {
    fn new() -> Stage {
        let (dir, identities) = identities();
        let file = |name: &str| dir.path().join("keys").join(name);
        let config = HubConfig {
            listen: String::new(),
            cert: file("hub.pem"),
            key: file("hub.key"),
            ca: file("ca.pem"),
            crl: None,
            sites: vec!["a".into(), "b".into()],
            journal: Some(dir.path().join("journal")),
            reconnect_timeout: Duration::from_secs(60),
            keep: false,
            version: "1".into(),
        };
        let tls = Identity::read(&config.cert, &config.key, &config.ca, None).unwrap().server_config().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Mutex::new(new_state(&config).unwrap());
        let hub = Arc::new(Hub { config, tls, state, strangers: Strangers::default() });
        let acceptor = hub.clone();
        std::thread::spawn(move || acceptor.accept(&listener));
        Stage { dir, hub, identities, address }
    }

    /// Connects as a site and sends its key.
    fn enter(&self, site: usize) -> Client {
        let socket = TcpStream::connect(self.address).unwrap();
        let stream = Stream::connect(&self.identities[site], "localhost", socket).unwrap();
        stream.set_limits(Duration::from_secs(20), Duration::from_secs(20)).unwrap();
        let mut client = Client { stream, decoder: Decoder::default() };
        let own = SiteSecret::new().unwrap();
        client.say(Control::Hello(Hello {
            protocol: PROTOCOL,
            version: "1".into(),
            site: None,
            instance: own.instance.clone(),
            run: None,
        }));
        let Some(Control::Welcome { run, sites, rank }) = client.hear() else { panic!("no welcome") };
        client.say(Control::Key(Box::new(own.signed(&self.identities[site], &run, &sites[rank]).unwrap())));
        client
    }

    /// Both sites, in a run that has begun.
    fn begin(&self) -> [Client; 2] {
        let mut both = [0, 1].map(|site| self.enter(site));
        for client in &mut both {
            while !matches!(client.hear(), Some(Control::Roster(_))) {}
        }
        both
    }

    fn wait_for(&self, what: &str, mut f: impl FnMut(&State) -> bool) {
        let start = Instant::now();
        while !f(&self.hub.lock()) {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Client {
    fn send(&self, frame: &Frame) -> bool {
        self.stream.send(&frame.encode()).is_ok()
    }

    fn say(&self, control: Control) {
        assert!(self.send(&Frame::Control(control)));
    }

    /// The next control message; `None` when the connection has ended.
    fn hear(&mut self) -> Option<Control> {
        loop {
            match self.decoder.next_frame().unwrap() {
                Some(Frame::Control(control)) => return Some(control),
                Some(_) => {}
                None => self.stream.receive(self.decoder.buffer()).ok()?,
            }
        }
    }
}

fn is_closed(mut socket: &TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match socket.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

/// The first bytes of a TLS record that is never complete.
const RECORD: [u8; 5] = [22, 3, 1, 2, 0];

#[test]
fn strangers_that_trickle_bytes_do_not_shut_out_a_site_and_are_closed_in_time() {
    let stage = Stage::new();
    let begin = Instant::now();
    let mut strangers: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(stage.address).unwrap()).collect();
    let trickle = |strangers: &mut Vec<TcpStream>, at: usize| {
        for stranger in strangers {
            let _ = stranger.write_all(&[RECORD.get(at).copied().unwrap_or(1)]);
        }
    };
    trickle(&mut strangers, 0);
    for (site, client) in [0, 1].map(|site| (site, stage.enter(site))) {
        stage.wait_for("a site is shut out", |state| state.sites[site].outbox.is_some());
        drop(client);
    }
    // A byte now and then does not prolong the time.
    for at in 1.. {
        if strangers.iter().all(is_closed) {
            break;
        }
        assert!(begin.elapsed() < 3 * IDENTIFY_TIMEOUT, "still open after {:?}", begin.elapsed());
        std::thread::sleep(IDENTIFY_TIMEOUT / 10);
        trickle(&mut strangers, at);
    }
}

/// The handshake is over, but then the site trickles its first message.
#[test]
fn a_certificate_does_not_prolong_the_time_to_identify() {
    let stage = Stage::new();
    let socket = TcpStream::connect(stage.address).unwrap();
    let stream = Stream::connect(&stage.identities[0], "localhost", socket).unwrap();
    let begin = Instant::now();
    let hello = Frame::Control(Control::Ping).encode();
    // Only the head of the frame.
    while begin.elapsed() < 3 * IDENTIFY_TIMEOUT {
        let _ = stream.set_limits(IDENTIFY_TIMEOUT / 10, IDENTIFY_TIMEOUT);
        let _ = stream.send(&hello[..1]);
        match stream.receive(&mut Vec::new()) {
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            _ => break,
        }
    }
    assert!(begin.elapsed() < 2 * IDENTIFY_TIMEOUT, "{:?}", begin.elapsed());
}

#[test]
fn a_flood_of_acknowledgements_does_not_grow_the_hub() {
    let stage = Stage::new();
    let [a, b] = stage.begin();
    // b reads nothing, so all of it would be queued at the hub.
    let flood: Vec<u8> = (0..10_000u64).flat_map(|below| Frame::Ack { peer: 1, below }.encode()).collect();
    let own: Vec<u8> = (0..10_000u64).flat_map(|below| Frame::Ack { peer: 0, below }.encode()).collect();
    for _ in 0..100 {
        a.stream.send(&flood).unwrap();
        a.stream.send(&own).unwrap();
        let state = stage.hub.lock();
        for site in &state.sites {
            let queue = site.outbox.as_ref().unwrap().lock();
            assert!(queue.acknowledged.len() <= 1 && queue.bytes < 1 << 16, "{} bytes", queue.bytes);
        }
    }
    drop(b);
}

#[test]
fn small_messages_count_with_what_they_take() {
    let stage = Stage::new();
    let [a, b] = stage.begin();
    let flood: Vec<u8> =
        (0..100_000).flat_map(|number| Frame::Data { peer: 1, number, sealed: Vec::new() }.encode()).collect();
    let writer = std::thread::spawn(move || {
        let _ = a.stream.set_limits(Duration::from_secs(1), Duration::from_secs(1));
        // The hub takes no more in, so the sender's own writes end.
        (0..100).all(|_| a.stream.send(&flood).is_ok())
    });
    assert!(!writer.join().unwrap(), "150 MB of empty messages were taken");
    let state = stage.hub.lock();
    let queue = state.sites[1].outbox.as_ref().unwrap().lock();
    assert!(queue.frames.len() * QUEUED_OVERHEAD <= MAX_QUEUED + QUEUED_OVERHEAD, "{} frames", queue.frames.len());
    drop(queue);
    drop(b);
}

#[test]
fn a_flood_of_control_messages_ends_its_connection() {
    let stage = Stage::new();
    let [mut a, b] = stage.begin();
    for min in 0..1000 {
        if !a.send(&Frame::Control(Control::ContinueWithout(2 + min % 2))) {
            break;
        }
    }
    while a.hear().is_some() {}
    stage.wait_for("the connection ends", |state| state.sites[0].outbox.is_none());
    assert_eq!(stage.hub.lock().sites[0].min_sites, Some(2), "the first word counts");
    drop(b);
}

#[test]
fn who_leaves_before_the_run_begins_has_not_left_it() {
    let stage = Stage::new();
    let a = stage.enter(0);
    stage.wait_for("it joins", |state| state.sites[0].outbox.is_some());
    a.say(Control::Leave(0));
    drop(a);
    stage.wait_for("it goes", |state| state.sites[0].outbox.is_none());
    let [a, _b] = stage.begin();
    assert!(!stage.hub.lock().sites[0].has_left);
    // In the run it is gone for good.
    a.say(Control::Leave(0));
    stage.wait_for("it leaves", |state| state.sites[0].has_left);
    assert!(stage.dir.path().join("journal").exists());
}

#[test]
fn a_site_that_comes_again_and_again_has_to_wait() {
    let stage = Stage::new();
    let admitted = |_: usize| {
        let socket = TcpStream::connect(stage.address).unwrap();
        let Ok(stream) = Stream::connect(&stage.identities[0], "localhost", socket) else { return false };
        let mut client = Client { stream, decoder: Decoder::default() };
        let hello = Hello { protocol: PROTOCOL, version: "1".into(), site: None, instance: "x".into(), run: None };
        client.say(Control::Hello(hello));
        matches!(client.hear(), Some(Control::Welcome { .. }))
    };
    let count = (0..60).filter(|&n| admitted(n)).count();
    assert!((20..55).contains(&count), "{count} of 60");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(admitted(0));
}
