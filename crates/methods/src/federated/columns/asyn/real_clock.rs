//! `--clock real`: the server merges parties in the order in which they report. Rank 0 is the server; it works on its
//! own parties, if it hosts any, between two polls for reports.
//!
//! Control messages are unsolicited. A party that has finished its turn sends `REPORT`. When the server gets to it, it
//! sends `TAKE`, and the two exchange U_r and U. The server sends `PAUSE` with the number of merges after as many merges as
//! the driver requested, or after one second. Each rank answers `HERE` after its current local step, and all ranks
//! synchronise. Parties then resume their turns. Synchronisation costs a rank at most one local step; at other times a rank
//! waits only for the server.
//!
//! A rank that sends nothing for `--party-timeout` is lost. The run then ends, or with `--on-lost-party continue` the
//! others continue without it. During the collectives of an evaluation, only the watchdog detects a rank that hangs. With
//! MPI a rank whose process *ends* cannot be survived, because the launchers of Open MPI and MPICH end a job that loses a
//! process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fednmf_base::error::{Error, Result};
use fednmf_base::warning::warn;
use fednmf_comm::{Backoff, ControlTag, Loss, Parties, idle_until_abort};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::Real;
use fednmf_privacy::Public;

use super::{Asyn, FROM_SERVER, SERVER, TO_SERVER, record_local_transfer};

/// Which parties are ready and which ones proceed.
pub const TURNS: ControlTag = ControlTag::new("turns at the server");

/// The kind of a message about turns, and the number of a party, a rank or a merge.
struct Notice(u64, usize);

impl Public for Notice {
    const WHY: &'static str = "the order of the turns, which the clocks of the ranks decide";
}

impl From<Notice> for [u64; 2] {
    fn from(Notice(kind, number): Notice) -> Self {
        [kind, number as u64]
    }
}

// From a rank to the server.
const REPORT: u64 = 1;
const HERE: u64 = 2;
// From the server to a rank.
const TAKE: u64 = 3;
const PAUSE: u64 = 4;
const RESUME: u64 = 5;
const LOST: u64 = 6;
const GONE: u64 = 7;

/// The server pauses after this time even if merges remain, so that time limits and signals are noticed. The duration
/// of a merge is not known in advance.
const LONGEST: Duration = Duration::from_secs(1);

/// A hosted party's current turn.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// Its number, counted from 0.
    pub number: usize,
    /// Local steps done in it.
    pub steps: usize,
    /// Whether its end was reported to the server.
    reported: bool,
    /// Seconds spent on this party. The party with the fewest seconds among those of a rank takes the next step.
    spent: f64,
}

/// State of a run in real time.
pub struct Live {
    timeout: Duration,
    continue_on_loss: bool,
    /// The turns of the hosted parties, in order.
    pub turns: Vec<Turn>,
    /// At the server: parties that have reported and wait for a merge, in order of arrival.
    queue: VecDeque<usize>,
    /// At the server: when each rank last sent something.
    last_seen: Vec<Instant>,
    /// Whether each rank is lost.
    lost: Vec<bool>,
}

impl Live {
    /// The initial state; `timeout` is in seconds.
    pub fn new(timeout: f64, continue_on_loss: bool, parties: Parties, rank: usize) -> Self {
        Live {
            timeout: Duration::from_secs_f64(timeout),
            continue_on_loss,
            turns: vec![Turn::default(); parties.hosted(rank).len()],
            queue: VecDeque::with_capacity(parties.count),
            last_seen: vec![Instant::now(); parties.ranks],
            lost: vec![false; parties.ranks],
        }
    }

    /// The parties of lost ranks.
    pub fn losses(&self, parties: Parties) -> Vec<(usize, Loss)> {
        let why = format!("was lost: it sent nothing for {} s (--party-timeout)", self.timeout.as_secs_f64());
        let of_rank = |rank| parties.hosted(rank).map(move |party| (party, rank));
        let lost = (0..self.lost.len()).filter(|&rank| self.lost[rank]).flat_map(of_rank);
        lost.map(|(party, rank)| (party, Loss { rank, why: why.clone() })).collect()
    }

    /// The remaining ranks; `None` if none is lost.
    pub fn left(&self) -> Option<Vec<usize>> {
        let left = || (0..self.lost.len()).filter(|&rank| !self.lost[rank]).collect();
        self.lost.contains(&true).then(left)
    }

    /// The hosted party that takes the next step, among those that have data and do not wait for the server.
    fn next(&self, has_data: impl Fn(usize) -> bool) -> Option<usize> {
        let open = (0..self.turns.len()).filter(|&i| !self.turns[i].reported && has_data(i));
        open.min_by(|&a, &b| self.turns[a].spent.total_cmp(&self.turns[b].spent))
    }
}

impl<T: Real> Asyn<T> {
    /// Up to `n` merges in the order in which the parties report, then synchronisation. Collective.
    pub(super) fn live(&mut self, n: usize) -> Result<()> {
        let before = self.live.as_ref().and_then(Live::left);
        if self.comm.rank() == SERVER {
            self.serve(n)?
        } else {
            self.follow()?
        }
        let after = self.live.as_ref().and_then(Live::left);
        if after != before
            && let Some(left) = after
        {
            self.survivors = self.comm.subgroup(&left);
            self.restrict_norm_to_survivors()?;
        }
        Ok(())
    }

    /// One local step of a hosted party. Returns whether there was work, and the party if its turn is finished.
    fn own_step(&mut self) -> (bool, Option<usize>) {
        let Asyn { comm, parties, members, draws, step, scratch, local_iters, v_first, live, .. } = self;
        let Some(live) = live else { return (false, None) };
        let has_data = |i: usize| !members[i].party.cols.is_empty();
        let Some(i) = live.next(has_data) else { return (false, None) };
        let turn = &mut live.turns[i];
        let start = Instant::now();
        if turn.steps < *local_iters {
            let t = turn.number * *local_iters + turn.steps;
            comm.work("turn", || members[i].local_step(*v_first, step, t, draws, scratch));
            turn.steps += 1;
            turn.spent += start.elapsed().as_secs_f64();
        }
        turn.reported = turn.steps == *local_iters;
        (true, turn.reported.then(|| parties.hosted(comm.rank()).start + i))
    }

    /// Gives a hosted party the merged U in `sent`; its next turn begins.
    fn begin_next_turn(&mut self, party: usize) {
        let i = party - self.parties.hosted(self.comm.rank()).start;
        self.members[i].u.entries_mut().copy_from_slice(&self.sent);
        if let Some(live) = &mut self.live {
            let turn = &mut live.turns[i];
            *turn = Turn { number: turn.number + 1, steps: 0, reported: false, spent: turn.spent };
        }
    }

    /// Copies U_r of a hosted party into `sent`.
    fn load_copy(&mut self, party: usize) {
        let i = party - self.parties.hosted(self.comm.rank()).start;
        self.sent.clear();
        self.sent.extend_from_slice(self.members[i].u.entries());
    }

    // ---- on the server

    fn serve(&mut self, n: usize) -> Result<()> {
        let (before, start) = (self.iteration, Instant::now());
        let mut backoff = Backoff::default();
        if let Some(live) = &mut self.live {
            live.last_seen.fill(Instant::now());
        }
        while self.iteration < before + n && (self.iteration == before || start.elapsed() < LONGEST) {
            self.poll();
            let next = self.live.as_mut().and_then(|live| live.queue.pop_front());
            if let Some(party) = next {
                self.merge_reported(party)?;
                backoff = Backoff::default();
                continue;
            }
            let (worked, done) = self.own_step();
            if let (Some(party), Some(live)) = (done, &mut self.live) {
                live.queue.push_back(party);
            }
            if !worked {
                backoff.wait();
            }
            self.check_timeouts()?;
        }
        self.synchronise(self.iteration - before)
    }

    /// Receives all control messages that have arrived. Returns the ranks that answered `HERE`.
    fn poll(&mut self) -> Vec<usize> {
        let mut here = Vec::new();
        while let Some((rank, [kind, party])) = self.comm.try_recv_control(TURNS, None) {
            let Some(live) = &mut self.live else { break };
            live.last_seen[rank] = Instant::now();
            match kind {
                _ if live.lost[rank] => {}
                REPORT => live.queue.push_back(party as usize),
                HERE => here.push(rank),
                _ => {}
            }
        }
        here
    }

    /// Merges a party that has reported, unless its rank is lost meanwhile.
    fn merge_reported(&mut self, party: usize) -> Result<()> {
        let host = self.parties.host(party);
        let timeout = self.timeout();
        if host == SERVER {
            self.load_copy(party);
            record_local_transfer(&self.comm, TO_SERVER, &self.sent);
        } else {
            self.comm.send_control(TURNS, host, Notice(TAKE, party));
            self.sent.resize(self.u.len(), T::zero());
            if !self.comm.receive_within(TO_SERVER, host, &mut self.sent, timeout) {
                return self.exclude(host);
            }
        }
        self.blend(party);
        if host == SERVER {
            record_local_transfer(&self.comm, FROM_SERVER, &self.sent);
            self.begin_next_turn(party);
        } else if !self.comm.send_within(FROM_SERVER, host, &mut self.sent, timeout) {
            return self.exclude(host);
        }
        if let Some(live) = &mut self.live {
            live.last_seen[host] = Instant::now();
        }
        Ok(())
    }

    fn timeout(&self) -> Duration {
        self.live.as_ref().map_or(Duration::MAX, |live| live.timeout)
    }

    /// Finds a rank that hosts parties with data and has sent nothing for too long. A rank that has reported is waiting
    /// for the server and does not count.
    fn check_timeouts(&mut self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let waits = |rank: usize| live.queue.iter().any(|&party| self.parties.host(party) == rank);
        let silent = (0..self.comm.size()).find(|&rank| {
            rank != SERVER
                && !live.lost[rank]
                && live.last_seen[rank].elapsed() > live.timeout
                && self.busy[rank]
                && !waits(rank)
        });
        silent.map_or(Ok(()), |rank| self.exclude(rank))
    }

    /// Excludes a rank, or ends the run.
    fn exclude(&mut self, rank: usize) -> Result<()> {
        let parties: Vec<String> = self.parties.hosted(rank).map(|party| party.to_string()).collect();
        let Some(live) = &mut self.live else { return Ok(()) };
        let seconds = live.timeout.as_secs_f64();
        let what = match parties.len() {
            0 => format!("rank {rank}, which hosts no party, has"),
            1 => format!("party {} (rank {rank}) has", parties[0]),
            _ => format!("parties {} (rank {rank}) have", parties.join(", ")),
        };
        if !live.continue_on_loss {
            return Err(Error::failed(format!(
                "{what} not been heard of for {seconds} s, so the run ends; check that rank's machine, raise \
                 --party-timeout if a turn takes that long, or use --on-lost-party continue to continue without it"
            )));
        }
        live.lost[rank] = true;
        live.queue.retain(|&party| self.parties.host(party) != rank);
        // If the rank comes back, it receives this and idles.
        self.comm.send_control(TURNS, rank, Notice(GONE, 0));
        let left = (0..self.comm.size()).any(|rank| !live.lost[rank] && self.busy[rank]);
        if !left {
            return Err(Error::failed(format!("{what} not been heard of for {seconds} s, and no other party is left")));
        }
        warn(&format!("{what} not been heard of for {seconds} s; the others continue without it"));
        Ok(())
    }

    /// Pauses all ranks after this number of merges, and informs the ranks that answer of the lost ones.
    fn synchronise(&mut self, merges: usize) -> Result<()> {
        let present = |live: &Live| (0..live.lost.len()).filter(|&r| r != SERVER && !live.lost[r]).collect::<Vec<_>>();
        let mut missing = self.live.as_ref().map_or_else(Vec::new, present);
        missing.iter().for_each(|&rank| self.comm.send_control(TURNS, rank, Notice(PAUSE, merges)));
        let (start, timeout) = (Instant::now(), self.timeout());
        let mut backoff = Backoff::default();
        while !missing.is_empty() {
            let here = self.poll();
            missing.retain(|rank| !here.contains(rank));
            if start.elapsed() > timeout {
                std::mem::take(&mut missing).into_iter().try_for_each(|rank| self.exclude(rank))?;
            }
            if here.is_empty() {
                backoff.wait();
            }
        }
        let Some(live) = &self.live else { return Ok(()) };
        let lost: Vec<usize> = (0..live.lost.len()).filter(|&rank| live.lost[rank]).collect();
        for rank in present(live) {
            lost.iter().for_each(|&gone| self.comm.send_control(TURNS, rank, Notice(LOST, gone)));
            self.comm.send_control(TURNS, rank, Notice(RESUME, 0));
        }
        Ok(())
    }

    // ---- on the other ranks

    fn follow(&mut self) -> Result<()> {
        let mut backoff = Backoff::default();
        let mut waiting = Instant::now();
        loop {
            while let Some((_, [kind, number])) = self.comm.try_recv_control(TURNS, Some(SERVER)) {
                (backoff, waiting) = (Backoff::default(), Instant::now());
                match kind {
                    TAKE => self.exchange_with_server(number as usize)?,
                    PAUSE => {
                        self.comm.send_control(TURNS, SERVER, Notice(HERE, 0));
                        self.await_resume()?;
                        self.iteration += number as usize;
                        return Ok(());
                    }
                    GONE => idle_until_abort(),
                    _ => {}
                }
            }
            let (worked, done) = self.own_step();
            if let Some(party) = done {
                self.comm.send_control(TURNS, SERVER, Notice(REPORT, party));
            }
            if worked {
                waiting = Instant::now();
            } else {
                backoff.wait();
                if self.busy[self.comm.rank()] && waiting.elapsed() > self.server_timeout() {
                    return Err(self.server_is_silent());
                }
            }
        }
    }

    /// Sends a party's U_r to the server and receives the merged U.
    fn exchange_with_server(&mut self, party: usize) -> Result<()> {
        let timeout = self.server_timeout();
        self.load_copy(party);
        let passed = self.comm.send_within(TO_SERVER, SERVER, &mut self.sent, timeout);
        self.sent.resize(self.u.len(), T::zero());
        if !passed || !self.comm.receive_within(FROM_SERVER, SERVER, &mut self.sent, timeout) {
            return Err(self.server_is_silent());
        }
        self.begin_next_turn(party);
        Ok(())
    }

    /// How long the server may be silent: it may first have to wait for every other rank and exclude it.
    fn server_timeout(&self) -> Duration {
        self.timeout().saturating_mul(self.comm.size() as u32 + 2)
    }

    fn await_resume(&mut self) -> Result<()> {
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        loop {
            match self.comm.try_recv_control(TURNS, Some(SERVER)) {
                Some((_, [LOST, rank])) => {
                    if let Some(live) = &mut self.live {
                        live.lost[rank as usize] = true;
                    }
                }
                Some((_, [RESUME, _])) => return Ok(()),
                Some((_, [GONE, _])) => idle_until_abort(),
                Some(_) => {}
                None if start.elapsed() > self.server_timeout() => return Err(self.server_is_silent()),
                None => backoff.wait(),
            }
        }
    }

    /// The error of a rank whose server does not answer. Never returns if the server excluded this rank.
    fn server_is_silent(&self) -> Error {
        while let Some((_, [kind, _])) = self.comm.try_recv_control(TURNS, Some(SERVER)) {
            if kind == GONE {
                idle_until_abort();
            }
        }
        Error::failed(format!(
            "the server (rank {SERVER}) has not answered rank {} for {} s, so the run ends; check its machine, or \
             raise --party-timeout",
            self.comm.rank(),
            self.server_timeout().as_secs_f64()
        ))
    }
}
