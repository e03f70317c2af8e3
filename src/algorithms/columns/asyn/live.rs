//! `--clock real`: the server merges whichever party reports first. Rank 0 is the server; it works on its own parties, if
//! it hosts any, between two looks for reports.
//!
//! Only words pass unasked. A party that has done its turn *reports*; the server, when it comes to it, says *take* and the
//! two exchange U_r and U. When as many merges are made as the driver asked for, the server says *pause*: a rank answers
//! *here* after the local step it is at, and is told to go to the meeting. Its parties' turns go on from there afterwards.
//! So a meeting costs nobody more than one local step, and between meetings nobody waits for anybody but the server.
//!
//! A rank that keeps silent for `--party-timeout` is lost. The run then ends, or with `--on-lost-party continue` those that
//! are left meet without it. That is as far as MPI goes: a rank whose process *ends* takes the job with it, because the
//! launchers of Open MPI and MPICH end a job that loses a process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Asyn, FROM_SERVER, SERVER, TO_SERVER, book_own, entries, entries_mut};
use crate::algorithms::options::{Options, PARTY_TIMEOUT};
use crate::comm::{Backoff, MessageTag, Parties, Payload, idle_until_abort};
use crate::error::{Error, Result};
use crate::linalg::Real;

/// Who is ready, who may go on: nothing that depends on the data.
const WORDS: MessageTag = MessageTag::new("turns at the server", Payload::Control);

// From a party's rank to the server.
const REPORT: u64 = 1;
const HERE: u64 = 2;
// From the server.
const TAKE: u64 = 3;
const PAUSE: u64 = 4;
const MEET: u64 = 5;
const LOST: u64 = 6;
const GONE: u64 = 7;

/// A hosted party's present turn.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// Which one it is.
    pub number: usize,
    /// Local steps done in it.
    pub steps: usize,
    /// Whether the server knows that it is done.
    reported: bool,
    /// Seconds spent on this party: of those on one rank the next step is of the one with the fewest.
    spent: f64,
}

/// What a run in real time has beside the rest.
pub struct Live {
    timeout: Duration,
    carry_on: bool,
    /// Of the hosted parties, in order.
    pub turns: Vec<Turn>,
    /// At the server: parties that have reported, the first one first.
    queue: VecDeque<usize>,
    /// At the server: when each rank was heard of last.
    heard: Vec<Instant>,
    /// By rank.
    lost: Vec<bool>,
}

impl Live {
    pub fn new(options: &Options, carry_on: bool, who: Parties, rank: usize) -> Self {
        Live {
            timeout: Duration::from_secs_f64(options.number(&PARTY_TIMEOUT)),
            carry_on,
            turns: vec![Turn::default(); who.hosted(rank).len()],
            queue: VecDeque::with_capacity(who.count),
            heard: vec![Instant::now(); who.ranks],
            lost: vec![false; who.ranks],
        }
    }

    /// Whether some rank is lost, and which ones are left.
    pub fn left(&self) -> Option<Vec<usize>> {
        let left = || (0..self.lost.len()).filter(|&rank| !self.lost[rank]).collect();
        self.lost.contains(&true).then(left)
    }

    /// The hosted party whose next step it is: of those with data that do not wait for the server.
    fn next(&self, has_data: impl Fn(usize) -> bool) -> Option<usize> {
        let open = (0..self.turns.len()).filter(|&i| !self.turns[i].reported && has_data(i));
        open.min_by(|&a, &b| self.turns[a].spent.total_cmp(&self.turns[b].spent))
    }
}

impl<T: Real> Asyn<T> {
    /// `n` merges in the order in which the parties report, and a meeting.
    pub(super) fn live(&mut self, n: usize) -> Result<()> {
        let before = self.live.as_ref().and_then(Live::left);
        if self.comm.rank() == SERVER {
            self.serve(n)?
        } else {
            self.attend(n)?
        }
        let after = self.live.as_ref().and_then(Live::left);
        if after != before
            && let Some(left) = after
        {
            self.meeting = self.comm.subgroup(&left);
            self.reckon_with_those_left()?;
        }
        Ok(())
    }

    /// One local step of a hosted party, if one is due; a party that has done its turn is ready, and is returned.
    fn own_step(&mut self) -> (bool, Option<usize>) {
        let Asyn { comm, who, members, draws, step, scratch, local_iters, v_first, live, .. } = self;
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
        (true, turn.reported.then(|| who.hosted(comm.rank()).start + i))
    }

    /// A hosted party gets the merged U, which is in `sent`, and begins its next turn.
    fn go_on(&mut self, party: usize) {
        let i = party - self.who.hosted(self.comm.rank()).start;
        entries_mut(&mut self.members[i].u).copy_from_slice(&self.sent);
        if let Some(live) = &mut self.live {
            let turn = &mut live.turns[i];
            *turn = Turn { number: turn.number + 1, steps: 0, reported: false, spent: turn.spent };
        }
    }

    /// What a hosted party has to hand over, into `sent`.
    fn pick_up(&mut self, party: usize) {
        let i = party - self.who.hosted(self.comm.rank()).start;
        self.sent.clear();
        self.sent.extend_from_slice(entries(&self.members[i].u));
    }

    // ---- at the server

    fn serve(&mut self, n: usize) -> Result<()> {
        let goal = self.iteration + n;
        let mut patience = Backoff::default();
        if let Some(live) = &mut self.live {
            live.heard.fill(Instant::now());
        }
        while self.iteration < goal {
            self.listen();
            let next = self.live.as_mut().and_then(|live| live.queue.pop_front());
            if let Some(party) = next {
                self.take(party)?;
                patience = Backoff::default();
                continue;
            }
            let (worked, done) = self.own_step();
            if let (Some(party), Some(live)) = (done, &mut self.live) {
                live.queue.push_back(party);
            }
            if !worked {
                patience.wait();
            }
            self.look_for_silence()?;
        }
        self.call_to_meeting()
    }

    /// Hears all words that have come; whose rank is here.
    fn listen(&mut self) -> Vec<usize> {
        let mut here = Vec::new();
        while let Some((rank, [what, party])) = self.comm.try_recv_control(WORDS, None) {
            let Some(live) = &mut self.live else { break };
            live.heard[rank] = Instant::now();
            match what {
                _ if live.lost[rank] => {}
                REPORT => live.queue.push_back(party as usize),
                HERE => here.push(rank),
                _ => {}
            }
        }
        here
    }

    /// Merges a party that has reported; nothing is done where its rank is lost on the way.
    fn take(&mut self, party: usize) -> Result<()> {
        let host = self.who.host(party);
        let timeout = self.timeout();
        if host == SERVER {
            self.pick_up(party);
            book_own(&self.comm, TO_SERVER, &self.sent);
        } else {
            self.comm.send_control(WORDS, host, [TAKE, party as u64]);
            self.sent.resize(self.u.len(), T::zero());
            if !self.comm.receive_within(TO_SERVER, host, &mut self.sent, timeout) {
                return self.lose(host);
            }
        }
        self.blend(party);
        if host == SERVER {
            book_own(&self.comm, FROM_SERVER, &self.sent);
            self.go_on(party);
        } else if !self.comm.send_within(FROM_SERVER, host, &mut self.sent, timeout) {
            return self.lose(host);
        }
        if let Some(live) = &mut self.live {
            live.heard[host] = Instant::now();
        }
        Ok(())
    }

    fn timeout(&self) -> Duration {
        self.live.as_ref().map_or(Duration::MAX, |live| live.timeout)
    }

    /// Ranks that have parties with data and have not been heard of for too long. Who has reported waits for us.
    fn look_for_silence(&mut self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let waits = |rank: usize| live.queue.iter().any(|&party| self.who.host(party) == rank);
        let silent = (0..self.comm.size()).find(|&rank| {
            rank != SERVER
                && !live.lost[rank]
                && live.heard[rank].elapsed() > live.timeout
                && self.busy[rank]
                && !waits(rank)
        });
        silent.map_or(Ok(()), |rank| self.lose(rank))
    }

    /// Goes on without a rank, or ends the run.
    fn lose(&mut self, rank: usize) -> Result<()> {
        let parties: Vec<String> = self.who.hosted(rank).map(|party| party.to_string()).collect();
        let Some(live) = &mut self.live else { return Ok(()) };
        let seconds = live.timeout.as_secs_f64();
        let what = match parties.len() {
            0 => format!("rank {rank}, which hosts no party, has"),
            1 => format!("party {} (rank {rank}) has", parties[0]),
            _ => format!("parties {} (rank {rank}) have", parties.join(", ")),
        };
        if !live.carry_on {
            return Err(Error::failed(format!(
                "{what} not been heard of for {seconds} s, so the run ends; look after that rank's machine, give a longer \
                 --party-timeout if a turn takes that long, or --on-lost-party continue to go on with the others"
            )));
        }
        live.lost[rank] = true;
        live.queue.retain(|&party| self.who.host(party) != rank);
        // Should it come back, it finds this and stands aside.
        self.comm.send_control(WORDS, rank, [GONE, 0]);
        let left = (0..self.comm.size()).any(|rank| !live.lost[rank] && self.busy[rank]);
        if !left {
            return Err(Error::failed(format!("{what} not been heard of for {seconds} s, and no other party is left")));
        }
        eprintln!("fednmf: warning: {what} not been heard of for {seconds} s; the others go on without");
        Ok(())
    }

    /// Has all ranks stop where they are, and sends those that answer to the meeting.
    fn call_to_meeting(&mut self) -> Result<()> {
        let present = |live: &Live| (0..live.lost.len()).filter(|&r| r != SERVER && !live.lost[r]).collect::<Vec<_>>();
        let mut missing = self.live.as_ref().map_or_else(Vec::new, present);
        missing.iter().for_each(|&rank| self.comm.send_control(WORDS, rank, [PAUSE, 0]));
        let (start, timeout) = (Instant::now(), self.timeout());
        let mut patience = Backoff::default();
        while !missing.is_empty() {
            let here = self.listen();
            missing.retain(|rank| !here.contains(rank));
            if start.elapsed() > timeout {
                std::mem::take(&mut missing).into_iter().try_for_each(|rank| self.lose(rank))?;
            }
            if here.is_empty() {
                patience.wait();
            }
        }
        let Some(live) = &self.live else { return Ok(()) };
        let lost: Vec<usize> = (0..live.lost.len()).filter(|&rank| live.lost[rank]).collect();
        for rank in present(live) {
            lost.iter().for_each(|&gone| self.comm.send_control(WORDS, rank, [LOST, gone as u64]));
            self.comm.send_control(WORDS, rank, [MEET, 0]);
        }
        Ok(())
    }

    // ---- at the other ranks

    fn attend(&mut self, n: usize) -> Result<()> {
        let mut patience = Backoff::default();
        let mut waiting = Instant::now();
        loop {
            while let Some((_, [what, party])) = self.comm.try_recv_control(WORDS, Some(SERVER)) {
                (patience, waiting) = (Backoff::default(), Instant::now());
                match what {
                    TAKE => self.hand_in(party as usize)?,
                    PAUSE => {
                        self.comm.send_control(WORDS, SERVER, [HERE, 0]);
                        self.hear_who_meets()?;
                        self.iteration += n;
                        return Ok(());
                    }
                    GONE => idle_until_abort(),
                    _ => {}
                }
            }
            let (worked, done) = self.own_step();
            if let Some(party) = done {
                self.comm.send_control(WORDS, SERVER, [REPORT, party as u64]);
            }
            if worked {
                waiting = Instant::now();
            } else {
                patience.wait();
                if self.busy[self.comm.rank()] && waiting.elapsed() > self.servers_time() {
                    return Err(self.server_is_silent());
                }
            }
        }
    }

    /// Hands a party's U_r to the server and takes the merged U.
    fn hand_in(&mut self, party: usize) -> Result<()> {
        let timeout = self.servers_time();
        self.pick_up(party);
        let passed = self.comm.send_within(TO_SERVER, SERVER, &mut self.sent, timeout);
        self.sent.resize(self.u.len(), T::zero());
        if !passed || !self.comm.receive_within(FROM_SERVER, SERVER, &mut self.sent, timeout) {
            return Err(self.server_is_silent());
        }
        self.go_on(party);
        Ok(())
    }

    /// How long the server may be silent: it may have to wait for every other rank first, and find it lost.
    fn servers_time(&self) -> Duration {
        self.timeout().saturating_mul(self.comm.size() as u32 + 2)
    }

    fn hear_who_meets(&mut self) -> Result<()> {
        let (start, mut patience) = (Instant::now(), Backoff::default());
        loop {
            match self.comm.try_recv_control(WORDS, Some(SERVER)) {
                Some((_, [LOST, rank])) => {
                    if let Some(live) = &mut self.live {
                        live.lost[rank as usize] = true;
                    }
                }
                Some((_, [MEET, _])) => return Ok(()),
                Some((_, [GONE, _])) => idle_until_abort(),
                Some(_) => {}
                None if start.elapsed() > self.servers_time() => return Err(self.server_is_silent()),
                None => patience.wait(),
            }
        }
    }

    /// Why this rank cannot go on; never returns where the others gave this rank up.
    fn server_is_silent(&self) -> Error {
        while let Some((_, [what, _])) = self.comm.try_recv_control(WORDS, Some(SERVER)) {
            if what == GONE {
                idle_until_abort();
            }
        }
        Error::failed(format!(
            "the server (rank {SERVER}) has not answered rank {} for {} s, so the run ends; look after its machine, or give \
             a longer --party-timeout",
            self.comm.rank(),
            self.servers_time().as_secs_f64()
        ))
    }
}
