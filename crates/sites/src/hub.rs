//! The hub relays between the sites of a run. It has no data and can read no message. It knows the participants, and sees
//! sizes and times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng as _;
use rustls::ServerConfig;

use fednmf_base::clock;
use fednmf_base::error::{EXIT_DONE, EXIT_FAILED, EXIT_INPUT, EXIT_REQUEUE, Error, Result};
use fednmf_base::warning;
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::transcript::hex;

use super::frame::{Control, Decoder, Frame, Hello, PROTOCOL, SiteKey, printable};
use super::journal::Journal;
use super::limits::{Allowance, QUEUED_OVERHEAD, Strangers};
use super::link::{RESUME, list};
use super::tls::{Identity, Stream, explain, is_for, too_long};

/// Bytes that may be queued for one site, with what the system needs to hold them; further senders wait. The hub's own frames
/// never wait; a site that leaves twice as many bytes unread is disconnected.
const MAX_QUEUED: usize = 64 << 20;
/// Control messages that a site may send at once, and in each second. In a run it sends one every five seconds.
const CONTROLS: (f64, f64) = (50.0, 5.0);
/// Connections that a site may identify at once, and in each second.
const RETURNS: (f64, f64) = (20.0, 1.0);
/// Maximum time from the first byte of a connection until it has identified itself.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 15 });
/// Interval between two keep-alive frames.
const PING: Duration = Duration::from_secs(5);
/// Time for which a site that comes hears, once, that another one has refused the run.
const REFUSAL_REMEMBERED: Duration = Duration::from_secs(60);
/// Time for the sites of a failed run to receive the reason.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// Configuration of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// `ADDRESS:PORT`.
    pub listen: String,
    pub cert: PathBuf,
    pub key: PathBuf,
    pub ca: PathBuf,
    /// The CA's list of revoked certificates.
    pub crl: Option<PathBuf>,
    /// The names of the sites, by rank.
    pub sites: Vec<String>,
    pub journal: Option<PathBuf>,
    /// How long a site may be disconnected.
    pub reconnect_timeout: Duration,
    /// Whether to serve one run after the other.
    pub keep: bool,
    pub version: String,
}

/// The send queue of one connection.
struct Outbox {
    stream: Arc<Stream>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The last acknowledgement of each site; it includes those before.
    acknowledged: BTreeMap<u16, u64>,
    /// No further frames are accepted; queued ones are sent.
    ends: bool,
    closed: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame; with `waits`, blocks until there is room.
    fn push(&self, frame: &Frame, waits: bool) {
        let bytes = frame.encode();
        let mut queue = self.lock();
        while waits && queue.bytes > MAX_QUEUED && !queue.closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.bytes > 2 * MAX_QUEUED {
            drop(queue);
            return self.close();
        }
        if !queue.closed && !queue.ends {
            queue.bytes += bytes.len() + QUEUED_OVERHEAD;
            queue.frames.push_back(bytes);
            self.changed.notify_all();
        }
    }

    /// Queues an acknowledgement in place of an earlier one of the same site.
    fn acknowledge(&self, from: u16, below: u64) {
        self.lock().acknowledged.insert(from, below);
        self.changed.notify_all();
    }

    fn tell(&self, control: Control) {
        self.push(&Frame::Control(control), false);
    }

    /// Sends the queued frames and closes the connection.
    fn end(&self) {
        self.lock().ends = true;
        self.changed.notify_all();
    }

    fn close(&self) {
        let mut queue = self.lock();
        (queue.closed, queue.bytes) = (true, 0);
        queue.frames.clear();
        queue.acknowledged.clear();
        self.stream.close();
        self.changed.notify_all();
    }

    /// Writes what is queued until the connection ends.
    fn write(&self) {
        let mut queue = self.lock();
        while !queue.closed {
            let acknowledged = queue.acknowledged.pop_first();
            let acknowledged = acknowledged.map(|(peer, below)| Frame::Ack { peer, below }.encode());
            let next = acknowledged.or_else(|| {
                let frame = queue.frames.pop_front()?;
                queue.bytes -= frame.len() + QUEUED_OVERHEAD;
                Some(frame)
            });
            if let Some(frame) = next {
                self.changed.notify_all();
                drop(queue);
                if self.stream.send(&frame).is_err() {
                    return self.close();
                }
                queue = self.lock();
            } else if queue.ends {
                drop(queue);
                return self.stream.finish();
            } else {
                let waited = self.changed.wait_timeout(queue, PING);
                let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = next;
                if timeout.timed_out() && queue.frames.is_empty() && !queue.closed {
                    let ping = Frame::Control(Control::Ping).encode();
                    queue.bytes += ping.len() + QUEUED_OVERHEAD;
                    queue.frames.push_back(ping);
                }
            }
        }
    }
}

/// The hub's state of a site.
struct Site {
    outbox: Option<Arc<Outbox>>,
    key: Option<SiteKey>,
    away_since: Instant,
    has_left: bool,
    /// The reason, if the others continue without this site.
    lost: Option<String>,
    /// The minimum number of sites with which it continues after losses; `None` if it does not.
    min_sites: Option<usize>,
    returns: Allowance,
    /// When the site refused the run that has not begun yet, and which others know.
    refused: Option<(Instant, BTreeSet<usize>)>,
    /// Why another process of the site was last told to wait. It tries again every few seconds, which is logged once.
    turned_away: String,
}

impl Site {
    /// Whether the site is in the run or may rejoin it.
    fn participates(&self) -> bool {
        !self.has_left && self.lost.is_none()
    }
}

struct State {
    run: String,
    sites: Vec<Site>,
    /// Whether all sites have joined.
    begun: bool,
    /// When the run failed.
    failed: Option<Instant>,
    /// The worst exit code with which a site ended.
    worst_end: i32,
}

/// A listening hub.
pub struct Hub {
    config: HubConfig,
    tls: Arc<ServerConfig>,
    state: Mutex<State>,
    strangers: Strangers,
}

fn say(text: &str) {
    warning::say(&format!("{} fednmf hub: {}", clock::now(), printable(text)));
}

impl Hub {
    /// Listens and serves one run, or with `keep` one run after the other. Returns the exit code.
    ///
    /// # Errors
    /// If a file is wrong, or the hub cannot listen on the address.
    pub fn serve(config: HubConfig) -> Result<i32> {
        let identity = Identity::read(&config.cert, &config.key, &config.ca, config.crl.as_deref())?;
        identity.check_hub()?;
        let tls = identity.server_config()?;
        let listener = TcpListener::bind(&config.listen).map_err(|e| {
            Error::input(format!(
                "--listen {}: {e}; give ADDRESS:PORT of this machine, with a free port",
                config.listen
            ))
        })?;
        let state = first_state(&config)?;
        let begun = state.begun;
        let hub = Arc::new(Hub { config, tls, state: Mutex::new(state), strangers: Strangers::default() });
        hub.write_journal(&hub.lock())?;
        let address = listener.local_addr().map_or_else(|_| hub.config.listen.clone(), |address| address.to_string());
        say(&format!("listens on {address} for {}", list(&hub.config.sites)));
        if begun {
            say("goes on with the run of its journal");
        }
        let acceptor = hub.clone();
        std::thread::Builder::new()
            .name("door".into())
            .spawn(move || acceptor.accept(&listener))
            .map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
        loop {
            std::thread::sleep(Duration::from_millis(50));
            if let Some(code) = hub.watch()? {
                return Ok(code);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the journal.
    fn write_journal(&self, state: &State) -> Result<()> {
        let Some(path) = &self.config.journal else { return Ok(()) };
        let mut journal = Journal::new(&self.config.version, state.run.clone(), &self.config.sites);
        if state.begun {
            journal.roster = state.sites.iter().filter_map(|site| site.key.clone()).collect();
        }
        journal.left = state.sites.iter().map(|site| site.has_left).collect();
        journal.lost = state.sites.iter().map(|site| site.lost.clone()).collect();
        journal.min_sites = state.sites.iter().map(|site| site.min_sites).collect();
        journal.worst_end = state.worst_end;
        journal.write(path)
    }

    fn write_journal_or_warn(&self, state: &State) {
        if let Err(e) = self.write_journal(state) {
            say(&format!("warning: {e}; the run would not survive an end of the hub"));
        }
    }

    /// Checks for lost sites and for the end of the run. Returns the exit code if the hub ends with it.
    fn watch(&self) -> Result<Option<i32>> {
        let mut state = self.lock();
        let reconnect_timeout = self.config.reconnect_timeout;
        let lost =
            |site: &Site| site.participates() && site.outbox.is_none() && site.away_since.elapsed() > reconnect_timeout;
        while state.begun && state.failed.is_none() {
            let Some(rank) = state.sites.iter().position(lost) else { break };
            let why = format!("was lost: it had no connection to the hub for {} s", reconnect_timeout.as_secs());
            self.lose(&mut state, rank, &why, RESUME);
        }
        let all_left = !state.sites.iter().any(Site::participates);
        let gone = state.sites.iter().all(|site| site.outbox.is_none());
        let failed = state.failed.is_some_and(|since| gone || since.elapsed() > SHUTDOWN_GRACE);
        if !(all_left || failed) {
            return Ok(None);
        }
        let code = exit_code(&state);
        say(match code {
            EXIT_DONE => "the run has ended",
            EXIT_REQUEUE => {
                "the run has stopped early, with checkpoints: start the hub and the sites again, with --resume"
            }
            _ => "the run has ended with an error, or was stopped without a checkpoint",
        });
        state.sites.iter().filter_map(|site| site.outbox.as_ref()).for_each(|outbox| outbox.end());
        if let Some(path) = &self.config.journal {
            let _ = std::fs::remove_file(path);
        }
        if !self.config.keep {
            drop(state);
            // Give the last frames of each connection time to be sent.
            std::thread::sleep(Duration::from_millis(200));
            return Ok(Some(code));
        }
        *state = new_state(&self.config)?;
        self.write_journal(&state)?;
        say(&format!("waits for {}", list(&self.config.sites)));
        Ok(None)
    }

    /// Called if a site does not return. The run continues without it if all other sites agreed to that and enough remain;
    /// otherwise it fails, and the others get the advice.
    fn lose(&self, state: &mut State, rank: usize, why: &str, advice: &str) {
        let others = || state.sites.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, site)| site);
        let left = others().filter(|site| site.lost.is_none()).count();
        let continues = |site: &Site| site.has_left || site.min_sites.is_some_and(|min| min <= left);
        if !others().filter(|site| site.lost.is_none()).all(continues) {
            return self.end_run(state, rank, why, advice);
        }
        say(&format!("site {} {why}; the run goes on with {left} of {}", self.config.sites[rank], state.sites.len()));
        let site = &mut state.sites[rank];
        site.lost = Some(why.into());
        if let Some(outbox) = site.outbox.take() {
            outbox.end();
        }
        // Write the journal before any site can act on it.
        self.write_journal_or_warn(state);
        for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
            outbox.tell(Control::SiteLost(rank, why.into()));
        }
    }

    /// Lets the run fail because of one site.
    fn end_run(&self, state: &mut State, rank: usize, why: &str, advice: &str) {
        say(&format!("site {} {why}; the run ends", self.config.sites[rank]));
        state.failed = Some(Instant::now());
        for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
            outbox.tell(Control::RunLost(rank, format!("{why}; the run ends{advice}")));
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((socket, from)) => {
                    let Ok(stranger) = self.strangers.enter(&socket, from.ip()) else { continue };
                    let hub = self.clone();
                    let thread = std::thread::Builder::new().name("site".into());
                    if thread.spawn(move || hub.handle_connection(socket, from, stranger)).is_err() {
                        self.strangers.leave(stranger);
                    }
                }
                // For example too many open files; others may be closed soon.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Serves a connection from its first byte.
    fn handle_connection(&self, socket: TcpStream, from: SocketAddr, stranger: u64) {
        let until = Instant::now() + IDENTIFY_TIMEOUT;
        let stream = Stream::accept(self.tls.clone(), socket, until);
        let met = match stream {
            Ok(stream) => self.identify_site(Arc::new(stream), from, until),
            // A port scanner that sends nothing is not worth a log line.
            Err(refusal) => {
                if refusal.is_final {
                    say(&format!("refused a connection from {from}: {}", refusal.why));
                }
                None
            }
        };
        self.strangers.leave(stranger);
        if let Some((rank, outbox, decoder)) = met {
            self.relay(rank, &outbox, decoder);
        }
    }

    /// Identifies the site and admits it.
    fn identify_site(
        &self,
        stream: Arc<Stream>,
        from: SocketAddr,
        until: Instant,
    ) -> Option<(usize, Arc<Outbox>, Decoder)> {
        let turn_away = |said: Control| {
            let _ = stream.send(&Frame::Control(said).encode());
            stream.finish();
            // The site reads the reason before it closes the connection.
            let mut rest = Vec::new();
            let until = Instant::now() + Duration::from_secs(2);
            while stream.receive_until(&mut rest, until).is_ok() {
                rest.clear();
            }
        };
        let log = |why: &str| say(&format!("refused a connection from {from}: {why}"));
        let refuse = |why: String| {
            log(&why);
            turn_away(Control::Refused(why));
        };
        let certificate = stream.peer()?;
        let mut decoder = Decoder::default();
        let Control::Hello(hello) = next_control(&stream, &mut decoder, until)? else { return None };
        if let Err(why) = self.check(&hello) {
            refuse(why);
            return None;
        }
        let sites = &self.config.sites;
        let own: Vec<&String> = sites.iter().filter(|site| is_for(&certificate, site)).collect();
        let requested = hello.site.as_ref();
        let Some(name) = own.iter().find(|name| requested.is_none_or(|requested| requested == **name)) else {
            refuse(match (requested, own.first()) {
                (Some(requested), _) if !sites.contains(requested) => {
                    format!("there is no site {requested} in this run; its sites are {}", sites.join(", "))
                }
                (Some(requested), _) => format!("--site {requested}: the certificate is not for this site"),
                (None, _) => format!("the certificate is for none of the sites of this run, {}", sites.join(", ")),
            });
            return None;
        };
        let rank = sites.iter().position(|site| site == *name)?;
        let run = {
            let mut state = self.lock();
            if let Err(refusal) = check_admission(&state, rank, name, &hello) {
                match &refusal {
                    Control::RetryLater(why) if state.sites[rank].turned_away == *why => {}
                    Control::RetryLater(why) => {
                        log(why);
                        state.sites[rank].turned_away.clone_from(why);
                    }
                    Control::Refused(why) => log(why),
                    _ => {}
                }
                drop(state);
                turn_away(refusal);
                return None;
            }
            // It tries again when there is no answer.
            if !state.sites[rank].returns.take() {
                return None;
            }
            state.run.clone()
        };
        let welcome = Control::Welcome { run: run.clone(), sites: sites.clone(), rank };
        stream.send(&Frame::Control(welcome).encode()).ok()?;
        let key = match next_control(&stream, &mut decoder, until)? {
            Control::Key(key) => key,
            Control::Abort(EXIT_INPUT) => {
                self.refuse_run(&mut self.lock(), rank);
                return None;
            }
            _ => return None,
        };
        let outbox = Arc::new(Outbox { stream: stream.clone(), queue: Mutex::default(), changed: Condvar::new() });
        let silence = self.config.reconnect_timeout.clamp(PING * 2, PING * 6);
        stream.set_limits(silence, silence * 2).ok()?;
        let writer = outbox.clone();
        std::thread::Builder::new().name("site writer".into()).spawn(move || writer.write()).ok()?;
        let mut state = self.lock();
        let same_run =
            if state.run == run { Ok(()) } else { Err(Control::RetryLater("the run has just ended".into())) };
        let nobody_refuses = same_run.and_then(|()| self.check_refusals(&mut state, rank));
        if let Err(why) = nobody_refuses.and_then(|()| check_admission(&state, rank, name, &hello)) {
            drop(state);
            outbox.tell(why);
            outbox.end();
            return None;
        }
        if let Some(days) = too_long(&certificate) {
            say(&format!(
                "warning: the certificate of site {name} is valid for {days} days, too long to be without its owner"
            ));
        }
        self.admit(&mut state, rank, &outbox, *key, from);
        Some((rank, outbox, decoder))
    }

    /// A site does not take part in the run, which has not begun: the others end instead of waiting for it.
    fn refuse_run(&self, state: &mut State, rank: usize) {
        if state.begun {
            return;
        }
        say(&format!("site {} takes no part in the run", self.config.sites[rank]));
        let mut told = BTreeSet::new();
        for (other, site) in state.sites.iter_mut().enumerate() {
            if let Some(outbox) = site.outbox.take() {
                outbox.tell(Control::Refused(self.refusal(rank)));
                outbox.end();
                told.insert(other);
            }
            site.key = None;
        }
        state.sites[rank].refused = Some((Instant::now(), told));
    }

    fn refusal(&self, rank: usize) -> String {
        let site = &self.config.sites[rank];
        format!("site {site} takes no part in the run, for a reason that it prints itself; start again when it can")
    }

    /// Whether this site still has to hear that another one has just refused the run.
    fn check_refusals(&self, state: &mut State, rank: usize) -> std::result::Result<(), Control> {
        let begun = state.begun;
        let mut others = state.sites.iter_mut().enumerate().filter(|(other, _)| *other != rank && !begun);
        let unheard = others.find_map(|(other, site)| {
            let (since, told) = site.refused.as_mut()?;
            (since.elapsed() < REFUSAL_REMEMBERED && told.insert(rank)).then_some(other)
        });
        unheard.map_or(Ok(()), |other| Err(Control::Refused(self.refusal(other))))
    }

    /// Whether a site's program version is accepted.
    fn check(&self, hello: &Hello) -> std::result::Result<(), String> {
        match hello.protocol == PROTOCOL && hello.version == self.config.version {
            true => Ok(()),
            false => Err(format!(
                "this site runs fednmf {}, the hub {}; all must run the same version",
                hello.version, self.config.version
            )),
        }
    }

    /// Admits a connected site.
    fn admit(&self, state: &mut State, rank: usize, outbox: &Arc<Outbox>, key: SiteKey, from: SocketAddr) {
        let again = state.begun;
        if let Some(old) = state.sites[rank].outbox.replace(outbox.clone()) {
            old.close();
        }
        say(&format!("site {} {} from {from}", self.config.sites[rank], if again { "is back" } else { "joined" }));
        let present: Vec<usize> = (0..state.sites.len()).filter(|&r| state.sites[r].outbox.is_some()).collect();
        if again {
            outbox.tell(Control::Roster(roster(state)));
            for (other, why) in state.sites.iter().enumerate().filter_map(|(r, site)| Some((r, site.lost.clone()?))) {
                outbox.tell(Control::SiteLost(other, why));
            }
            for &other in present.iter().filter(|&&other| other != rank) {
                outbox.tell(Control::Present(other));
                if let Some(outbox) = &state.sites[other].outbox {
                    outbox.tell(Control::Present(rank));
                }
            }
            return;
        }
        (state.sites[rank].key, state.sites[rank].refused) = (Some(key), None);
        if present.len() < state.sites.len() {
            let missing = (0..state.sites.len()).filter(|r| !present.contains(r));
            let missing: Vec<String> = missing.map(|r| self.config.sites[r].clone()).collect();
            for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
                outbox.tell(Control::WaitingFor(missing.clone()));
            }
            return;
        }
        state.begun = true;
        // Write the journal before any site can act on the start.
        self.write_journal_or_warn(state);
        say("all sites are here; the run begins");
        let roster = roster(state);
        for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
            outbox.tell(Control::Roster(roster.clone()));
        }
    }

    /// Relays what a site sends, until its connection ends.
    fn relay(&self, rank: usize, outbox: &Arc<Outbox>, mut decoder: Decoder) {
        let mut controls = Allowance::new(CONTROLS);
        let why = loop {
            match decoder.next_frame() {
                Ok(Some(Frame::Control(_))) if !controls.take() => break "it sends too many control messages".into(),
                Ok(Some(frame)) => {
                    if self.pass(rank, frame) {
                        outbox.end();
                    }
                }
                Ok(None) => {
                    if let Err(e) = outbox.stream.receive(decoder.buffer()) {
                        break explain(&e, "site").why;
                    }
                }
                Err(e) => break e,
            }
        };
        let mut state = self.lock();
        let site = &mut state.sites[rank];
        let is_current = site.outbox.as_ref().is_some_and(|current| Arc::ptr_eq(current, outbox));
        if is_current {
            (site.outbox, site.away_since) = (None, Instant::now());
            if !state.begun {
                state.sites[rank].key = None;
                say(&format!("site {} has gone ({why})", self.config.sites[rank]));
            } else if state.sites[rank].participates() && state.failed.is_none() {
                let seconds = self.config.reconnect_timeout.as_secs();
                say(&format!("site {} has no connection ({why}); waiting for {seconds} s", self.config.sites[rank]));
                for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
                    outbox.tell(Control::Disconnected(rank, seconds));
                }
            }
        }
        drop(state);
        outbox.close();
    }

    /// Handles one frame of a site; returns whether it is the last one.
    fn pass(&self, rank: usize, frame: Frame) -> bool {
        let to = |peer: u16| {
            let state = self.lock();
            let site = state.sites.get(usize::from(peer)).filter(|_| state.begun && usize::from(peer) != rank);
            site.and_then(|site| site.outbox.clone())
        };
        let from = rank as u16;
        match frame {
            // Pieces for a disconnected site are dropped; the sender keeps them.
            Frame::Data { peer, number, sealed } => {
                if let Some(outbox) = to(peer) {
                    outbox.push(&Frame::Data { peer: from, number, sealed }, true);
                }
            }
            Frame::Ack { peer, below } => {
                if let Some(outbox) = to(peer) {
                    outbox.acknowledge(from, below);
                }
            }
            Frame::Control(Control::Leave(code)) => {
                let mut state = self.lock();
                // Before the run has begun, the next process of the site must not be taken for one that has ended.
                if !state.begun || state.sites[rank].has_left {
                    return true;
                }
                state.sites[rank].has_left = true;
                state.worst_end = more_severe(state.worst_end, code);
                say(&format!("site {} has ended with exit code {code}", self.config.sites[rank]));
                for outbox in state.sites.iter().filter_map(|site| site.outbox.as_ref()) {
                    outbox.tell(Control::Left(rank));
                }
                self.write_journal_or_warn(&state);
                return true;
            }
            Frame::Control(Control::Abort(code)) => {
                let mut state = self.lock();
                if state.failed.is_none() && state.begun && state.sites[rank].lost.is_none() {
                    let (what, advice) = match code {
                        EXIT_INPUT => ("refused the run", ""),
                        _ => ("ended with an error", RESUME),
                    };
                    let why = format!("has {what} (exit code {code}), for a reason that it prints itself");
                    self.lose(&mut state, rank, &why, advice);
                }
                return true;
            }
            Frame::Control(Control::ContinueWithout(min)) => {
                let mut state = self.lock();
                // A site says it once in a run, and again when it is back.
                if state.begun && state.sites[rank].min_sites.is_none() {
                    state.sites[rank].min_sites = Some(min);
                    self.write_journal_or_warn(&state);
                }
            }
            Frame::Control(_) => {}
        }
        false
    }
}

/// The next control frame of a connection that has not identified itself yet.
fn next_control(stream: &Stream, decoder: &mut Decoder, until: Instant) -> Option<Control> {
    loop {
        match decoder.next_frame() {
            Ok(Some(Frame::Control(control))) => return Some(control),
            Ok(None) => stream.receive_until(decoder.buffer(), until).ok()?,
            _ => return None,
        }
    }
}

/// Whether this process of a site may take part.
fn check_admission(state: &State, rank: usize, name: &str, hello: &Hello) -> std::result::Result<(), Control> {
    let site = &state.sites[rank];
    let same = site.key.as_ref().is_some_and(|key| key.instance == hello.instance);
    if state.failed.is_some() {
        return Err(Control::RetryLater("the run is ending with an error".into()));
    }
    if let Some(why) = site.lost.as_ref().filter(|_| state.begun) {
        let why = format!(
            "the run goes on without site {name}, which {why}; to bring it back, stop the other sites (SIGTERM), which \
             write a checkpoint, and start all again with --resume"
        );
        // Another process of the site would wait for a run that may take days.
        return Err(if same { Control::RetryLater(why) } else { Control::Refused(why) });
    }
    if state.begun && !same {
        return Err(Control::RetryLater(format!(
            "the run has begun with another process of site {name}, which cannot be replaced; this one waits for the next run"
        )));
    }
    if !state.begun && !same && site.outbox.is_some() {
        return Err(Control::Refused(format!(
            "site {name} is here already, by another process with the same certificate"
        )));
    }
    Ok(())
}

/// The exit code of a hub whose run has ended.
fn exit_code(state: &State) -> i32 {
    let somebody_left = state.sites.iter().any(|site| site.has_left);
    if state.failed.is_some() || !somebody_left { EXIT_FAILED } else { state.worst_end }
}

/// The more severe of the hub's exit code so far and that of a site: an error outranks a run that stopped early.
fn more_severe(so_far: i32, code: i32) -> i32 {
    match (so_far, code) {
        (so_far, EXIT_DONE) => so_far,
        (EXIT_DONE | EXIT_REQUEUE, EXIT_REQUEUE) => EXIT_REQUEUE,
        _ => EXIT_FAILED,
    }
}

fn roster(state: &State) -> Vec<SiteKey> {
    state.sites.iter().filter_map(|site| site.key.clone()).collect()
}

/// The initial state of a run.
fn new_state(config: &HubConfig) -> Result<State> {
    let mut run = [0; 16];
    secret_rng(None, 0)?.fill_bytes(&mut run);
    let site = || Site {
        outbox: None,
        key: None,
        away_since: Instant::now(),
        has_left: false,
        lost: None,
        min_sites: None,
        returns: Allowance::new(RETURNS),
        refused: None,
        turned_away: String::new(),
    };
    let sites = config.sites.iter().map(|_| site()).collect();
    Ok(State { run: hex(&run), sites, begun: false, failed: None, worst_end: EXIT_DONE })
}

/// The state of the run in the journal, or of a new run.
fn first_state(config: &HubConfig) -> Result<State> {
    let mut state = new_state(config)?;
    let found = config.journal.as_ref().map(|path| Journal::read(path, &config.version, &config.sites)).transpose()?;
    let Some(journal) = found.flatten() else { return Ok(state) };
    state.run = journal.run;
    state.begun = journal.roster.len() == config.sites.len();
    for (rank, (site, key)) in state.sites.iter_mut().zip(journal.roster).enumerate() {
        site.key = Some(key);
        (site.has_left, site.min_sites) = (journal.left[rank], journal.min_sites[rank]);
        site.lost.clone_from(&journal.lost[rank]);
    }
    state.worst_end = journal.worst_end;
    Ok(state)
}

#[cfg(test)]
mod attacks;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_of_a_site_takes_no_part_in_a_run_that_has_begun() {
        let config = HubConfig {
            listen: String::new(),
            cert: PathBuf::new(),
            key: PathBuf::new(),
            ca: PathBuf::new(),
            crl: None,
            sites: vec!["a".into()],
            journal: None,
            reconnect_timeout: PING,
            keep: false,
            version: "1".into(),
        };
        let mut state = new_state(&config).unwrap();
        let hello = |instance: &str| Hello {
            protocol: PROTOCOL,
            version: "1".into(),
            site: None,
            instance: instance.into(),
            run: None,
        };
        assert!(check_admission(&state, 0, "a", &hello("x")).is_ok());
        let key = SiteKey {
            site: "a".into(),
            instance: "x".into(),
            chain: Vec::new(),
            key: String::new(),
            scheme: 0,
            signature: String::new(),
        };
        (state.begun, state.sites[0].key) = (true, Some(key));
        assert!(check_admission(&state, 0, "a", &hello("x")).is_ok());
        let refused = check_admission(&state, 0, "a", &hello("y"));
        assert!(matches!(refused, Err(Control::RetryLater(why)) if why.contains("next run")));
        state.sites[0].lost = Some("was lost".into());
        let refused = check_admission(&state, 0, "a", &hello("y"));
        assert!(matches!(refused, Err(Control::Refused(why)) if why.contains("without site a")));
        state.failed = Some(Instant::now());
        assert!(matches!(check_admission(&state, 0, "a", &hello("x")), Err(Control::RetryLater(_))));
    }
}
