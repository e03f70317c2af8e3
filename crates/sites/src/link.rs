//! A site's end of its connection to the hub, and reliable messages to the other sites over it.
//!
//! The hub keeps no message. A site keeps each sealed piece until its receiver has acknowledged it, and sends it again when
//! the hub reports that the receiver is (again) present; the receiver accepts the pieces of each sender in the order of
//! their numbers and drops all others. So a connection may break anywhere, and the hub may be killed and started again.
//!
//! Two threads serve the connection: one connects, reads and reconnects; one writes the queued frames.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fednmf_base::error::{EXIT_FAILED, EXIT_INPUT, Error, Result};
use fednmf_base::failure::close_records;
use fednmf_base::warning::{error, note, warn};
use fednmf_privacy::transcript::{SiteSignature, Subject};

use super::frame::{Control, Decoder, Frame, Hello, PIECE, PROTOCOL, SiteKey, printable, valid_name};
use super::limits::QUEUED_OVERHEAD;
use super::proxy::{Address, connect};
use super::seal::{Channel, SiteSecret, channels};
use super::tls::{Identity, Refusal, Stream, explain};

/// Configuration of a site.
#[derive(Debug, Clone)]
pub struct Config {
    pub hub: Address,
    pub cert: PathBuf,
    pub key: PathBuf,
    pub ca: PathBuf,
    /// The CA's list of revoked certificates.
    pub crl: Option<PathBuf>,
    /// The name to take part under; by default the one of the certificate.
    pub site: Option<String>,
    /// The program's version, which all sites must share.
    pub version: String,
    /// How long to wait for the hub and the other sites at the start.
    pub wait: Duration,
    /// How long a lost connection may take to be restored.
    pub reconnect_timeout: Duration,
    /// Bytes of other sites' messages that may wait until this one asks for them; more end the run.
    pub max_untaken: usize,
    /// Called whenever a piece of a message arrives or is acknowledged: a long message over a slow line is not a stall.
    pub progress: fn(),
}

/// The purpose of a message; each kind has its own queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Collective = 0,
    Plain = 1,
    Within = 2,
    Control = 3,
    /// A message of a round, which continues without lost sites.
    Round = 4,
    /// A report of lost sites.
    Lost = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        let all = [Kind::Collective, Kind::Plain, Kind::Within, Kind::Control, Kind::Round, Kind::Lost];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The queue of a message: its sender, its group and its kind.
type Place = (usize, u64, Kind);

/// Time for the hub to hear that this site refuses the run.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes before the text of a piece: group, kind, and whether the message ends with it.
const HEAD: usize = 10;

/// Time without a response of the hub after which the connection counts as broken.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without progress in sending after which the connection counts as broken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(90);
/// Received bytes of an unfinished message after which they are acknowledged.
const ACKNOWLEDGE: usize = 4 << 20;

/// Bytes that may be on their way to a site, sealed and not acknowledged; the sender then waits. A receiver always accepts
/// arriving pieces, so this waits for the line only, and never for messages that the receiver has yet to send.
const MAX_UNACKNOWLEDGED: usize = 256 << 20;

/// This site's state of another site.
struct Peer {
    /// `None`: this site itself.
    channel: Option<Channel>,
    /// The number of the next piece to send.
    sent: u64,
    /// Pieces that the peer has not acknowledged, ready to be sent again.
    unacknowledged: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// Bytes of these pieces.
    unacknowledged_bytes: usize,
    /// The number of the next piece to arrive.
    next: u64,
    /// The message that is arriving.
    partial: Vec<u8>,
    /// Bytes that arrived since the last acknowledgement.
    waiting: usize,
    has_left: bool,
    /// The reason, if the hub has reported the peer as lost.
    lost: Option<String>,
}

impl Peer {
    fn new(channel: Option<Channel>) -> Peer {
        Peer {
            channel,
            sent: 0,
            unacknowledged: VecDeque::new(),
            unacknowledged_bytes: 0,
            next: 0,
            partial: Vec::new(),
            waiting: 0,
            has_left: false,
            lost: None,
        }
    }
}

struct State {
    peers: Vec<Peer>,
    inbox: HashMap<Place, VecDeque<Vec<u8>>>,
    /// Frames to be written, each with the peer to which its piece is addressed, if any.
    queue: VecDeque<(Option<usize>, Arc<Vec<u8>>)>,
    /// The acknowledgement to send to each site; it includes those before.
    acknowledge: BTreeMap<u16, u64>,
    /// Whether the hub waits for a sign of life.
    pong: bool,
    /// Bytes that have arrived and were not taken yet, with what the system needs to hold them.
    untaken: usize,
    connection: Option<Arc<Stream>>,
    /// The minimum number of sites with which the run continues after losses; `None` if it does not.
    min_sites: Option<usize>,
    /// Whether the site has finished.
    over: bool,
}

impl State {
    /// The state at the begin of a run.
    fn new(channels: Vec<Option<Channel>>, connection: Option<Arc<Stream>>) -> State {
        State {
            peers: channels.into_iter().map(Peer::new).collect(),
            inbox: HashMap::new(),
            queue: VecDeque::new(),
            acknowledge: BTreeMap::new(),
            pong: false,
            untaken: 0,
            connection,
            min_sites: None,
            over: false,
        }
    }

    /// The next message of a queue.
    fn take(&mut self, place: Place) -> Option<Vec<u8>> {
        let message = self.inbox.get_mut(&place)?.pop_front()?;
        // What a site sends to itself does not arrive.
        if self.peers[place.0].channel.is_some() {
            self.untaken -= message.len() + QUEUED_OVERHEAD;
        }
        Some(message)
    }

    /// The next frame to write.
    fn next_frame(&mut self) -> Option<Arc<Vec<u8>>> {
        if let Some((peer, below)) = self.acknowledge.pop_first() {
            return Some(Arc::new(Frame::Ack { peer, below }.encode()));
        }
        if std::mem::take(&mut self.pong) {
            return Some(Arc::new(Frame::Control(Control::Pong).encode()));
        }
        self.queue.pop_front().map(|(_, frame)| frame)
    }
}

/// Received messages and events, see [`Link::until`].
pub struct Inbox<'a> {
    state: &'a mut State,
}

impl Inbox<'_> {
    /// The next message of this kind from a site.
    pub fn next(&mut self, from: usize, group: u64, kind: Kind) -> Option<Vec<u8>> {
        self.state.take((from, group, kind))
    }

    /// The reason, if the hub has reported a site as lost.
    pub fn lost(&self, site: usize) -> Option<&str> {
        self.state.peers[site].lost.as_deref()
    }

    /// Whether the hub has reported that a site finished regularly.
    pub fn has_left(&self, site: usize) -> bool {
        self.state.peers[site].has_left
    }
}

/// The connection, shared by its threads.
pub struct Link {
    config: Config,
    identity: Identity,
    own: SiteSecret,
    run: String,
    sites: Vec<String>,
    me: usize,
    roster: Vec<SiteKey>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The link of this process, so that any thread can end it.
static CURRENT: OnceLock<Arc<Link>> = OnceLock::new();
/// Set by the first thread that ends the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Time until the reason why a site waits is reported again; it doubles each time.
const FIRST_REPORT: Duration = Duration::from_secs(10);
/// Time between two attempts to reach the hub, and to take part in its next run.
const RETRY: Duration = Duration::from_millis(300);
const RETRY_NEXT_RUN: Duration = Duration::from_secs(3);

/// Reports why a site waits: when the reason changes, and again at growing intervals; also with `--quiet`, since it may need
/// attention.
struct Waiting {
    until: Instant,
    reported: String,
    next: Instant,
    interval: Duration,
}

impl Waiting {
    fn new(limit: Duration) -> Waiting {
        let now = Instant::now();
        Waiting { until: now + limit, reported: String::new(), next: now, interval: FIRST_REPORT }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// `why` with the seconds that are left behind it.
    fn report(&mut self, why: &str) {
        let now = Instant::now();
        if self.reported != why {
            (self.reported, self.next, self.interval) = (why.into(), now, FIRST_REPORT);
        }
        if now >= self.next {
            note(&format!("{why}, at most {} s", self.until.saturating_duration_since(now).as_secs()));
            (self.next, self.interval) = (now + self.interval, 2 * self.interval);
        }
    }
}

/// Why a connection could not be established.
enum JoinError {
    /// Retrying is pointless.
    Fatal(Error),
    /// Retrying may help.
    Disconnected(String),
    /// The hub's run goes on, or ends, without this process.
    NextRun(String),
}

impl From<Refusal> for JoinError {
    fn from(refusal: Refusal) -> JoinError {
        match refusal.is_final {
            true => JoinError::Fatal(Error::input(refusal.why)),
            false => JoinError::Disconnected(refusal.why),
        }
    }
}

/// Information that a site receives when it joins.
struct JoinedRun {
    stream: Arc<Stream>,
    decoder: Decoder,
    run: String,
    sites: Vec<String>,
    me: usize,
    roster: Vec<SiteKey>,
}

/// The run to which a site reconnects.
struct PreviousRun<'a> {
    run: &'a str,
    roster: &'a [SiteKey],
}

/// Who this is.
fn hello(config: &Config, own: &SiteSecret, known: Option<&PreviousRun<'_>>) -> Control {
    Control::Hello(Hello {
        protocol: PROTOCOL,
        version: config.version.clone(),
        site: config.site.clone(),
        instance: own.instance.clone(),
        run: known.map(|known| known.run.to_string()),
    })
}

/// Connects, identifies this site, and waits for the other sites.
fn join_run(
    config: &Config,
    identity: &Identity,
    own: &SiteSecret,
    known: Option<&PreviousRun<'_>>,
    waiting: &mut Waiting,
) -> std::result::Result<JoinedRun, JoinError> {
    let broken = |e: std::io::Error| JoinError::from(explain(&e, "hub"));
    let socket = connect(&config.hub).map_err(JoinError::Disconnected)?;
    let stream = Stream::connect(identity, &config.hub.host, socket)?;
    stream.set_limits(READ_TIMEOUT, WRITE_TIMEOUT).map_err(broken)?;
    let send = |control: Control| stream.send(&Frame::Control(control).encode()).map_err(broken);
    send(hello(config, own, known))?;
    let mut decoder = Decoder::default();
    let mut welcome = None;
    let mut missing = Vec::new();
    loop {
        while let Some(frame) = decoder.next_frame().map_err(|e| JoinError::Fatal(Error::failed(e)))? {
            let Frame::Control(control) = frame else { continue };
            match control {
                Control::Welcome { run, sites, rank } => {
                    if known.is_some_and(|known| known.run != run) {
                        return Err(JoinError::Fatal(Error::failed(
                            "the hub has lost its journal and knows nothing of this run; start all sites again, with --resume \
                             if there are checkpoints",
                        )));
                    }
                    let site = sites.get(rank).filter(|_| sites.iter().all(|site| valid_name(site)));
                    let site = site.ok_or_else(|| JoinError::Disconnected("the hub answers nonsense".into()))?;
                    send(Control::Key(Box::new(own.signed(identity, &run, site).map_err(JoinError::Fatal)?)))?;
                    welcome = Some((run, sites, rank));
                }
                Control::Roster(roster) => {
                    let (run, sites, me) =
                        welcome.take().ok_or_else(|| JoinError::Disconnected("the hub answers nonsense".into()))?;
                    if known.is_some_and(|known| known.roster != roster) {
                        return Err(JoinError::Fatal(Error::failed(
                            "the hub has replaced keys of sites; do not trust it",
                        )));
                    }
                    return Ok(JoinedRun { stream: Arc::new(stream), decoder, run, sites, me, roster });
                }
                Control::Refused(why) => {
                    return Err(JoinError::Fatal(Error::input(format!("the hub refuses: {}", printable(&why)))));
                }
                Control::RetryLater(why) if known.is_none() => return Err(JoinError::NextRun(printable(&why))),
                Control::RetryLater(why) | Control::RunLost(_, why) => {
                    return Err(JoinError::Fatal(Error::failed(printable(&why))));
                }
                Control::Ping => send(Control::Pong)?,
                Control::WaitingFor(sites) if sites.iter().all(|site| valid_name(site)) => missing = sites,
                _ => {}
            }
        }
        if !missing.is_empty() {
            waiting.report(&format!("waiting for {}", list(&missing)));
        }
        if waiting.is_over() && known.is_none() {
            let who = if missing.is_empty() { "the other sites".into() } else { list(&missing) };
            return Err(JoinError::Fatal(Error::failed(format!(
                "{who} did not join within {} s (--wait)",
                config.wait.as_secs()
            ))));
        }
        stream.receive(decoder.buffer()).map_err(broken)?;
    }
}

/// Tells the hub that this site does not take part in the run, so that the others do not wait for it. The reason stays here. A hub
/// that is not there, or does not answer in time, is not told.
pub fn refuse(config: &Config) {
    let tell = || -> Option<()> {
        let identity = Identity::read(&config.cert, &config.key, &config.ca, config.crl.as_deref()).ok()?;
        let stream = Stream::connect(&identity, &config.hub.host, connect(&config.hub).ok()?).ok()?;
        stream.set_limits(REFUSAL_TIMEOUT, REFUSAL_TIMEOUT).ok()?;
        let send = |control: Control| stream.send(&Frame::Control(control).encode()).ok();
        send(hello(config, &SiteSecret::new().ok()?, None))?;
        let mut decoder = Decoder::default();
        loop {
            match decoder.next_frame().ok()? {
                Some(Frame::Control(Control::Welcome { .. })) => send(Control::Abort(EXIT_INPUT))?,
                Some(Frame::Control(Control::Refused(_) | Control::RetryLater(_))) => return None,
                Some(_) => {}
                // The hub closes the connection once it knows.
                None => stream.receive(decoder.buffer()).ok()?,
            }
        }
    };
    let _ = tell();
}

/// `site a`, `sites a, b`.
pub fn list(sites: &[String]) -> String {
    format!("site{} {}", if sites.len() == 1 { "" } else { "s" }, sites.join(", "))
}

impl Link {
    /// Joins the run of the hub, and returns when all sites have.
    ///
    /// # Errors
    /// If a file or a certificate is wrong, the hub refuses, or the hub or a site is not there in time.
    pub fn join(config: Config) -> Result<Arc<Link>> {
        let identity = Identity::read(&config.cert, &config.key, &config.ca, config.crl.as_deref())?;
        let own = SiteSecret::new()?;
        let mut waiting = Waiting::new(config.wait);
        // When the hub last said that its run has no place for this process.
        let mut turned_away: Option<Instant> = None;
        let joined = loop {
            let (why, pause) = match join_run(&config, &identity, &own, None, &mut waiting) {
                Ok(joined) => break joined,
                Err(JoinError::Fatal(e)) => return Err(e.at(format!("--hub {}", config.hub))),
                Err(JoinError::NextRun(why)) => {
                    turned_away = Some(Instant::now());
                    (why, RETRY_NEXT_RUN)
                }
                Err(JoinError::Disconnected(why)) => {
                    if turned_away.is_some_and(|since| since.elapsed() > config.reconnect_timeout) {
                        return Err(Error::failed(format!(
                            "--hub {}: the run without this process has ended, and the hub too ({why})",
                            config.hub
                        )));
                    }
                    (why, RETRY)
                }
            };
            if waiting.is_over() {
                return Err(Error::failed(format!(
                    "--hub {}: {why}, for {} s (--wait); check the address, the hub, and the firewall",
                    config.hub,
                    config.wait.as_secs()
                )));
            }
            waiting.report(&format!("--hub {}: {why}; trying again", config.hub));
            std::thread::sleep(pause);
        };
        let JoinedRun { stream, decoder, run, sites, me, roster } = joined;
        let channels = channels(&own, &identity, &run, &sites, me, &roster)?;
        let state = State::new(channels, Some(stream.clone()));
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let link = Arc::new(Link { config, identity, own, run, sites, me, roster, state, changed });
        let thread = |name: &str, f: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.into()).spawn(f);
            spawned.map(drop).map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))
        };
        let (reader, writer) = (link.clone(), link.clone());
        thread("hub reader", Box::new(move || reader.serve(stream, decoder)))?;
        thread("hub writer", Box::new(move || writer.write()))?;
        let _ = CURRENT.set(link.clone());
        fednmf_comm::transport::before_abort(abort);
        Ok(link)
    }

    /// Signs the statement that `key` signs this site's transcript.
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    pub fn sign_transcript_key(&self, key: &str) -> Result<SiteSignature> {
        self.identity.vouch(Subject::TranscriptKey, &self.sites[self.me], key)
    }

    /// The name of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The names of the sites, by rank.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// This site's rank.
    pub fn me(&self) -> usize {
        self.me
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends a message to another site, or to this one. Returns before it has arrived, but waits while more than
    /// [`MAX_UNACKNOWLEDGED`] bytes are on their way. For a site that is lost or has left, the rest is dropped.
    pub fn send(&self, to: usize, group: u64, kind: Kind, text: &[u8]) {
        let mut guard = self.lock();
        if guard.peers[to].channel.is_none() {
            guard.inbox.entry((to, group, kind)).or_default().push_back(text.to_vec());
            return;
        }
        let pieces = text.len().div_ceil(PIECE).max(1);
        for piece in 0..pieces {
            while guard.peers[to].unacknowledged_bytes > MAX_UNACKNOWLEDGED {
                if guard.peers[to].has_left || guard.peers[to].lost.is_some() {
                    return;
                }
                guard = self.wait(guard, Duration::from_secs(1));
            }
            let state = &mut *guard;
            let peer = &mut state.peers[to];
            let Some(channel) = &peer.channel else { return };
            let part = &text[piece * PIECE..text.len().min((piece + 1) * PIECE)];
            let mut plain = Vec::with_capacity(HEAD + part.len() + 16);
            plain.extend(group.to_le_bytes());
            plain.extend([kind as u8, u8::from(piece + 1 == pieces)]);
            plain.extend(part);
            let sealed = channel.seal(peer.sent, plain);
            let frame = Arc::new(Frame::Data { peer: to as u16, number: peer.sent, sealed }.encode());
            peer.unacknowledged_bytes += frame.len();
            peer.unacknowledged.push_back((peer.sent, frame.clone()));
            peer.sent += 1;
            if state.connection.is_some() {
                state.queue.push_back((Some(to), frame));
            }
            // The writer works while this thread waits for room.
            self.changed.notify_all();
        }
    }

    /// The next message of this kind from a site; `None` if none arrives within the limit.
    pub fn receive(&self, from: usize, group: u64, kind: Kind, limit: Option<Duration>) -> Option<Vec<u8>> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.lock();
        loop {
            if let Some(message) = state.take((from, group, kind)) {
                return Some(message);
            }
            let left = until.map_or(Duration::from_secs(1), |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            if let (Some(why), None) = (&state.peers[from].lost, limit) {
                let text =
                    format!("{} {why}, in the middle of what the run cannot do without it{RESUME}", self.name(from));
                drop(state);
                fail(&text);
            }
            state = self.wait(state, left);
        }
    }

    /// Waits until `look` returns a value from the inbox.
    pub fn until<R>(&self, mut look: impl FnMut(&mut Inbox<'_>) -> Option<R>) -> R {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut Inbox { state: &mut state }) {
                return found;
            }
            state = self.wait(state, Duration::from_secs(1));
        }
    }

    /// Informs the hub that this site continues without lost sites, as long as `min_sites` remain.
    pub fn continue_without_lost(&self, min_sites: usize) {
        let mut state = self.lock();
        state.min_sites = Some(min_sites);
        state.queue.push_back((None, Arc::new(Frame::Control(Control::ContinueWithout(min_sites)).encode())));
        self.changed.notify_all();
    }

    /// Leaves the run regularly, after all others have received what was sent to them.
    pub fn leave(&self, code: i32) {
        let until = Instant::now() + self.config.reconnect_timeout;
        let mut state = self.lock();
        let open = |peer: &Peer| !peer.has_left && peer.lost.is_none() && !peer.unacknowledged.is_empty();
        while (state.peers.iter().any(open) || state.connection.is_none()) && Instant::now() < until {
            state = self.wait(state, Duration::from_millis(100));
        }
        self.end(state, Control::Leave(code), Duration::from_secs(5));
    }

    /// Sends the last frame, and waits until the hub has closed the connection, but no longer than the limit.
    fn end(&self, mut state: MutexGuard<'_, State>, last: Control, limit: Duration) {
        state.over = true;
        state.queue.push_back((None, Arc::new(Frame::Control(last).encode())));
        self.changed.notify_all();
        let until = Instant::now() + limit;
        while state.connection.is_some() && Instant::now() < until {
            state = self.wait(state, Duration::from_millis(50));
        }
    }

    /// Ends this site with an error that the others do not know about; the hub informs them.
    fn abort(&self, code: i32) {
        // Bounded, because the holder of the lock may be what has failed.
        for _ in 0..100 {
            if let Ok(mut state) = self.state.try_lock() {
                state.queue.clear();
                return self.end(state, Control::Abort(code), Duration::from_secs(1));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads until the site has finished, and reconnects whenever the connection breaks.
    fn serve(&self, mut stream: Arc<Stream>, mut decoder: Decoder) {
        loop {
            let why = self.read(&stream, &mut decoder);
            stream.close();
            {
                let mut state = self.lock();
                state.connection = None;
                state.queue.clear();
                self.changed.notify_all();
                if state.over {
                    return;
                }
            }
            (stream, decoder) = self.reconnect(&why);
            let mut state = self.lock();
            if state.over {
                return stream.finish();
            }
            state.connection = Some(stream.clone());
            if let Some(min_sites) = state.min_sites {
                // The connection may have broken before the hub knew.
                state.queue.push_front((None, Arc::new(Frame::Control(Control::ContinueWithout(min_sites)).encode())));
            }
            self.changed.notify_all();
        }
    }

    fn reconnect(&self, why: &str) -> (Arc<Stream>, Decoder) {
        let reconnect_timeout = self.config.reconnect_timeout;
        let mut waiting = Waiting::new(reconnect_timeout);
        warn(&format!(
            "lost the connection to the hub {} ({why}); trying again for {} s",
            self.config.hub,
            reconnect_timeout.as_secs()
        ));
        let known = PreviousRun { run: &self.run, roster: &self.roster };
        loop {
            match join_run(&self.config, &self.identity, &self.own, Some(&known), &mut waiting) {
                Ok(JoinedRun { stream, decoder, .. }) => {
                    note(&format!("connected to the hub {} again", self.config.hub));
                    return (stream, decoder);
                }
                Err(JoinError::Fatal(e)) => fail(&format!("--hub {}: {e}", self.config.hub)),
                Err(JoinError::Disconnected(why) | JoinError::NextRun(why)) if waiting.is_over() => fail(&format!(
                    "--hub {}: {why}; there was no connection for {} s (--patience){RESUME}",
                    self.config.hub,
                    reconnect_timeout.as_secs()
                )),
                Err(JoinError::Disconnected(_) | JoinError::NextRun(_)) => std::thread::sleep(RETRY),
            }
            if self.lock().over {
                // The main thread has finished and no longer needs a connection.
                loop {
                    std::thread::park();
                }
            }
        }
    }

    /// Processes frames from the hub; returns the reason why that ended.
    fn read(&self, stream: &Stream, decoder: &mut Decoder) -> String {
        loop {
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => self.take(frame),
                    Ok(None) => break,
                    Err(e) => fail(&format!("--hub {}: {e}", self.config.hub)),
                }
            }
            if let Err(e) = stream.receive(decoder.buffer()) {
                return explain(&e, "hub").why;
            }
        }
    }

    fn take(&self, frame: Frame) {
        if !matches!(frame, Frame::Control(_)) {
            (self.config.progress)();
        }
        match frame {
            Frame::Data { peer, number, sealed } => {
                if let Err(why) = self.receive_piece(peer.into(), number, sealed) {
                    fail(&why);
                }
            }
            Frame::Ack { peer, below } => {
                let mut state = self.lock();
                if let Some(peer) = state.peers.get_mut(usize::from(peer)) {
                    while peer.unacknowledged.front().is_some_and(|(number, _)| *number < below) {
                        let acknowledged = peer.unacknowledged.pop_front();
                        peer.unacknowledged_bytes -= acknowledged.map_or(0, |(_, frame)| frame.len());
                    }
                }
                self.changed.notify_all();
            }
            Frame::Control(control) => match control {
                Control::Present(peer) => self.resend(peer),
                Control::Ping => {
                    self.lock().pong = true;
                    self.changed.notify_all();
                }
                Control::Disconnected(site, seconds) => {
                    warn(&format!("{} has lost its connection; waiting for it for {seconds} s", self.name(site)))
                }
                Control::Left(site) => {
                    if let Some(peer) = self.lock().peers.get_mut(site) {
                        peer.has_left = true;
                    }
                    self.changed.notify_all();
                }
                Control::SiteLost(site, why) => {
                    if let Some(peer) = self.lock().peers.get_mut(site) {
                        peer.lost.get_or_insert(printable(&why));
                    }
                    self.changed.notify_all();
                }
                // A site that has finished is not affected.
                Control::RunLost(site, why) if !self.lock().over => {
                    fail(&format!("{} {}", self.name(site), printable(&why)));
                }
                Control::Refused(why) => fail(&format!("the hub refuses: {}", printable(&why))),
                _ => {}
            },
        }
    }

    fn name(&self, site: usize) -> String {
        self.sites.get(site).map_or_else(|| format!("site {site}"), |name| format!("site {name}"))
    }

    /// Sends the pieces again that a site has not acknowledged.
    fn resend(&self, to: usize) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(peer) = state.peers.get(to) else { return };
        state.queue.retain(|(of, _)| *of != Some(to));
        state.queue.extend(peer.unacknowledged.iter().map(|(_, frame)| (Some(to), frame.clone())));
        self.changed.notify_all();
    }

    /// Processes a piece from another site.
    fn receive_piece(&self, from: usize, number: u64, sealed: Vec<u8>) -> std::result::Result<(), String> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(peer) = state.peers.get_mut(from) else { return Ok(()) };
        let Some(channel) = &peer.channel else { return Ok(()) };
        // Repeated pieces and those behind a gap are dropped; missing ones are sent again.
        if number == peer.next {
            let Some(plain) = channel.open(number, sealed).filter(|plain| plain.len() >= HEAD) else {
                return Err(format!(
                    "a message of {} was changed on its way, or is not for this site: do not trust the hub; the run ends",
                    self.name(from)
                ));
            };
            peer.next += 1;
            peer.waiting += plain.len();
            let (head, text) = plain.split_at(HEAD);
            let group = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            let kind = Kind::of(head[8]).ok_or("a message of an unknown kind arrived; are all versions equal?")?;
            peer.partial.extend_from_slice(text);
            state.untaken += text.len();
            if state.untaken > self.config.max_untaken {
                return Err(format!(
                    "{} has sent so much that {} MiB wait here and were not asked for; the run ends before they fill the memory. \
                     Do all sites run the same command and version? Factors as large as that need more memory",
                    self.name(from),
                    state.untaken >> 20
                ));
            }
            let is_last = head[9] == 1;
            if is_last {
                let message = std::mem::take(&mut peer.partial);
                state.untaken += QUEUED_OVERHEAD;
                state.inbox.entry((from, group, kind)).or_default().push_back(message);
            }
            if !is_last && peer.waiting < ACKNOWLEDGE {
                return Ok(());
            }
        } else if number > peer.next {
            return Ok(());
        }
        peer.waiting = 0;
        state.acknowledge.insert(from as u16, peer.next);
        self.changed.notify_all();
        Ok(())
    }

    /// Writes the queued frames, for as long as the process lasts.
    fn write(&self) {
        let mut state = self.lock();
        loop {
            let Some(stream) = state.connection.clone() else {
                state = self.wait(state, Duration::from_secs(1));
                continue;
            };
            let Some(frame) = state.next_frame() else {
                state = self.wait(state, Duration::from_secs(1));
                continue;
            };
            drop(state);
            if stream.send(&frame).is_err() {
                // The reader detects this and reconnects.
                stream.close();
            }
            state = self.lock();
        }
    }
}

/// Advice for the user after a run was lost.
pub const RESUME: &str = ". With --checkpoint the run goes on when all sites start again with --resume; without, it has ended and has no result";

/// Ends the process with one message, from any thread.
pub fn fail(text: &str) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread ends the process.
        loop {
            std::thread::park();
        }
    }
    error(text);
    close_records();
    if let Some(link) = CURRENT.get() {
        link.abort(EXIT_FAILED);
    }
    signal_hook::low_level::exit(EXIT_FAILED)
}

/// Informs the other sites, if there are any, that this one ends with an error.
pub fn abort(code: i32) {
    if let Some(link) = CURRENT.get()
        && !ENDING.swap(true, Ordering::SeqCst)
    {
        link.abort(code);
    }
}

#[cfg(test)]
mod tests {
    use super::super::seal::tests::identities;
    use super::*;

    /// The link of site a to site b, both of which have joined, without a hub.
    fn link() -> (tempfile::TempDir, Link) {
        let (dir, link, _) = links();
        (dir, link)
    }

    /// The same, with the channel of site b to site a.
    fn links() -> (tempfile::TempDir, Link, Channel) {
        let (dir, [identity, other]) = identities();
        let sites = ["a", "b"].map(String::from).to_vec();
        let own = SiteSecret::new().unwrap();
        let theirs = SiteSecret::new().unwrap();
        let roster = vec![own.signed(&identity, "run", "a").unwrap(), theirs.signed(&other, "run", "b").unwrap()];
        let of_b = channels(&theirs, &other, "run", &sites, 1, &roster).unwrap().remove(0).unwrap();
        let state = State::new(channels(&own, &identity, "run", &sites, 0, &roster).unwrap(), None);
        let config = Config {
            hub: "localhost:1".parse().unwrap(),
            cert: PathBuf::new(),
            key: PathBuf::new(),
            ca: PathBuf::new(),
            crl: None,
            site: None,
            version: String::new(),
            wait: Duration::ZERO,
            reconnect_timeout: Duration::ZERO,
            max_untaken: 1 << 20,
            progress: || (),
        };
        let (run, state, changed) = ("run".into(), Mutex::new(state), Condvar::new());
        (dir, Link { config, identity, own, run, sites, me: 0, roster, state, changed }, of_b)
    }

    #[test]
    fn a_site_that_takes_nothing_stops_its_sender_at_a_limit() {
        let (_dir, link) = link();
        let message = vec![0; 64 << 20];
        let held = |link: &Link| link.lock().peers[1].unacknowledged_bytes;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| (0..6).for_each(|_| link.send(1, 0, Kind::Plain, &message)));
            while held(&link) <= MAX_UNACKNOWLEDGED {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!sender.is_finished() && held(&link) <= MAX_UNACKNOWLEDGED + 2 * PIECE);
            // When the receiver has acknowledged all of it, the rest fits.
            let below = link.lock().peers[1].sent;
            link.take(Frame::Ack { peer: 1, below });
            sender.join().unwrap();
            assert!(held(&link) <= MAX_UNACKNOWLEDGED);
            // For a lost site nothing is kept beyond the limit, and the sender does not wait.
            link.take(Frame::Control(Control::SiteLost(1, "was lost".into())));
            (0..6).for_each(|_| link.send(1, 0, Kind::Plain, &message));
            assert!(held(&link) <= MAX_UNACKNOWLEDGED + 2 * PIECE);
        });
    }

    /// The pieces of messages that a site receives without having asked for them.
    #[test]
    fn what_a_site_sends_unasked_has_a_limit() {
        let (_dir, link, b) = links();
        let mut number = 0;
        let mut flood = |last: u8, text: usize| {
            for _ in 0..100_000 {
                let mut plain = vec![0; HEAD + text];
                (plain[8], plain[9]) = (Kind::Plain as u8, last);
                let sealed = b.seal(number, plain);
                number += 1;
                link.receive_piece(1, number - 1, sealed)?;
                let state = link.lock();
                assert!(state.untaken <= link.config.max_untaken + QUEUED_OVERHEAD && state.acknowledge.len() <= 1);
            }
            Ok::<_, String>(())
        };
        assert!(flood(1, 0).unwrap_err().contains("site b has sent so much"), "empty messages");
        let (_dir, link, b) = links();
        let piece = |number| b.seal(number, [&0u64.to_le_bytes()[..], &[Kind::Plain as u8, 0], &[7; 3000]].concat());
        let refused = (0..1000).find_map(|number| link.receive_piece(1, number, piece(number)).err());
        assert!(refused.is_some_and(|why| why.contains("site b has sent so much")), "one that never ends");
        assert!(link.lock().peers[1].partial.len() <= link.config.max_untaken + 3000);
        let (_dir, link, b) = links();
        let whole = b.seal(0, [&0u64.to_le_bytes()[..], &[Kind::Plain as u8, 1], &[7; 3000]].concat());
        link.receive_piece(1, 0, whole).unwrap();
        assert_eq!(link.receive(1, 0, Kind::Plain, None).unwrap(), [7; 3000]);
        assert_eq!(link.lock().untaken, 0, "what was taken counts no more");
    }

    #[test]
    fn one_answer_is_enough_for_many_signs_of_life() {
        let (_dir, link) = link();
        (0..1000).for_each(|_| link.take(Frame::Control(Control::Ping)));
        let mut state = link.lock();
        assert_eq!(state.next_frame().map(|frame| frame.to_vec()), Some(Frame::Control(Control::Pong).encode()));
        assert!(state.next_frame().is_none());
    }
}
