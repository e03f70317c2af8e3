//! Masked sums that go on without parties that vanish, between ranks: the protocol of `dropout`, one round of it with
//! fresh secrets for each sum.
//!
//! All ranks play the server: what it sees in a round (keys, who is left, the masked values of a rank's parties added up,
//! shares for unmasking) everybody sees, and everybody takes the masks off the sum, which everybody is to have. Only the
//! encrypted shares go to those they are for alone. A party that has vanished stays away from all later sums.
//!
//! A rank that dies ends the job, as MPI 3.1 has it. What can vanish while its rank lives is a party whose values are
//! no numbers, or do not fit the fixed point: it says so and stays away. Tests make parties vanish at a stage ([`DROP`]).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::comm::{Communicator, MessageTag, Parties, Parts, Payload};
use crate::error::{Error, Result};
use crate::privacy::dropout::{Answer, KEYS, Keys, Party, SEALED, Server, enough};
use crate::privacy::shamir::SHARE;
use crate::random::secret_rng;

/// Stage 1: everybody's public keys.
pub const ROUND_KEYS: MessageTag = MessageTag::new("public keys of a sum", Payload::Control);
/// Stage 2: shares of a party's secrets, encrypted for another one.
pub const SEALED_SHARES: MessageTag = MessageTag::new("shares of secrets", Payload::Ciphertext);
/// Stage 4: shares of the secrets that take the masks off the sum.
pub const ANSWERS: MessageTag = MessageTag::new("shares that unmask a sum", Payload::Control);

/// Names parties that vanish, for tests: `PARTY@SUM:STAGE`, several with commas between; sums and the four stages count
/// from 1. With `:kill` behind it the rank of the party is killed there.
pub const DROP: &str = "FEDNMF_DROP";

/// A loss that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Drop {
    party: usize,
    sum: u64,
    stage: u32,
    kill: bool,
}

impl Drop {
    fn parse(text: &str) -> Option<Drop> {
        let (party, at) = text.split_once('@')?;
        let mut at = at.split(':');
        let (sum, stage) = (at.next()?.parse().ok()?, at.next()?.parse().ok()?);
        let kill = match (at.next(), at.next()) {
            (None, _) => false,
            (Some("kill"), None) => true,
            _ => return None,
        };
        Some(Drop { party: party.parse().ok()?, sum, stage, kill })
    }
}

/// Losses that [`DROP`] asks for.
fn drops() -> Result<Vec<Drop>> {
    let Ok(text) = std::env::var(DROP) else { return Ok(Vec::new()) };
    let wrong = |part: &str| Error::input(format!("{DROP}={part}: must be PARTY@SUM:STAGE[:kill]"));
    text.split(',').filter(|part| !part.is_empty()).map(|part| Drop::parse(part).ok_or_else(|| wrong(part))).collect()
}

/// The sums of a run.
pub struct Survivors {
    threshold: usize,
    parties: Parties,
    hosted: Range<usize>,
    /// Parties that have not vanished, by party; alike on all ranks.
    left: Vec<bool>,
    /// Those whose values are in the last sum.
    summed: Vec<bool>,
    sums: u64,
    drops: Vec<Drop>,
}

impl Survivors {
    /// Sums that need `threshold` parties.
    ///
    /// # Errors
    /// On all ranks, when there are not as many, or one could uncover another.
    pub fn new(comm: &Communicator, parties: Parties, threshold: usize) -> Result<Self> {
        if threshold < 2 || threshold > parties.count {
            return Err(Error::input(format!(
                "--secure-threshold {threshold}: must be at least 2, and no more than the {} parties",
                parties.count
            ))
            .on_all_ranks());
        }
        Ok(Survivors {
            threshold,
            parties,
            hosted: parties.hosted(comm.rank()),
            left: vec![true; parties.count],
            summed: vec![true; parties.count],
            sums: 0,
            drops: drops().map_err(Error::on_all_ranks)?,
        })
    }

    /// How many parties have not vanished.
    pub fn left(&self) -> usize {
        self.left.iter().filter(|x| **x).count()
    }

    /// Whether the values of that party are in the last sum.
    pub fn has(&self, party: usize) -> bool {
        self.summed[party]
    }

    /// The hosted parties of `present` that are still there at a stage of this sum.
    fn staying(&self, present: &[bool], stage: u32) -> Vec<usize> {
        let gone = |party: usize| {
            self.drops.iter().any(|d| d.party == party && !d.kill && (d.sum, d.stage) <= (self.sums, stage))
        };
        if self.drops.iter().any(|d| d.kill && self.hosted.contains(&d.party) && (d.sum, d.stage) == (self.sums, stage))
        {
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGKILL);
        }
        self.hosted.clone().filter(|&p| present[p] && !gone(p)).collect()
    }

    /// Sums words modulo 2⁶⁴ into `total`, without those that vanish; every rank calls it. `fill` writes the share of the
    /// hosted party of that number (counted from 0); one for which it has an error vanishes.
    ///
    /// # Errors
    /// On all ranks when fewer than the threshold are left; else when there is no secret randomness.
    pub fn sum(
        &mut self,
        comm: &Communicator,
        tag: MessageTag,
        total: &mut [u64],
        mut fill: impl FnMut(usize, &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        self.sums += 1;
        let (all, first) = (self.parties.count, self.hosted.start);
        let before = self.left.clone();
        let mut own: BTreeMap<usize, Party> = BTreeMap::new();
        for party in self.staying(&before, 1) {
            own.insert(party, Party::new(party, self.threshold, &mut secret_rng(None, party as u64)?));
        }

        // 1: a flag and the keys of each party.
        let mut mine = vec![0u8; (1 + KEYS) * self.hosted.len()];
        for (&party, state) in &own {
            let slot = &mut mine[(party - first) * (1 + KEYS)..][..1 + KEYS];
            slot[0] = 1;
            slot[1..].copy_from_slice(&state.keys().bytes());
        }
        let mut said = vec![0u8; (1 + KEYS) * all];
        comm.all_gather(ROUND_KEYS, &mine, &self.parts(1 + KEYS), &mut said);
        let keys: BTreeMap<usize, Keys> = said
            .as_chunks::<{ 1 + KEYS }>()
            .0
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot[0] == 1)
            .map(|(party, slot)| (party, Keys::of(&std::array::from_fn(|i| slot[1 + i]))))
            .collect();
        self.check(keys.len(), "said their keys")?;

        // 2: from each party a flag, and its shares for each party there; what is for a rank's own goes the same way.
        let known: Vec<bool> = (0..all).map(|p| keys.contains_key(&p)).collect();
        let mut sealed = BTreeMap::new();
        for party in self.staying(&known, 2) {
            if let Some(state) = own.get_mut(&party) {
                sealed.insert(party, state.share(&keys)?);
            }
        }
        let send: Vec<Vec<u8>> = (0..self.parties.ranks)
            .map(|rank| {
                let to = self.parties.hosted(rank);
                let mut bytes = Vec::with_capacity(self.hosted.len() * (1 + SEALED * to.len()));
                for from in self.hosted.clone() {
                    let shares = sealed.get(&from);
                    bytes.push(u8::from(shares.is_some()));
                    for party in to.clone() {
                        bytes.extend(shares.and_then(|s| s.get(&party)).unwrap_or(&[0; SEALED]));
                    }
                }
                bytes
            })
            .collect();
        let party_words = 2 * SEALED * sealed.len() * (keys.len() - 1);
        let came = comm.between_parties(SEALED_SHARES, party_words, &send);
        let width = 1 + SEALED * self.hosted.len();
        let shared: Vec<usize> = (0..all).filter(|&p| came[p * width] == 1).collect();
        self.check(shared.len(), "shared their secrets")?;

        // 3: who is in it, and the masked values, added up.
        let sharing: Vec<bool> = (0..all).map(|p| shared.contains(&p)).collect();
        let mut sum = vec![0u64; all + total.len()];
        let mut words = vec![0u64; total.len()];
        let mut there = 0;
        for party in self.staying(&sharing, 3) {
            let Some(state) = own.get_mut(&party) else { continue };
            let hosted = party - first;
            if let Err(e) = fill(hosted, &mut words) {
                eprintln!("fednmf: warning: {e}; it stays away from now on");
                continue;
            }
            let from = |from: &usize| -> [u8; SEALED] {
                let at = from * width + 1 + hosted * SEALED;
                std::array::from_fn(|i| came[at + i])
            };
            let for_me = shared.iter().filter(|p| **p != party).map(|p| (*p, from(p))).collect();
            state.mask(&for_me, &mut words)?;
            sum[party] = 1;
            sum[all..].iter_mut().zip(&words).for_each(|(s, w)| *s = s.wrapping_add(*w));
            there += 1;
        }
        comm.sum_masked(tag, there, &mut sum);
        self.summed = sum[..all].iter().map(|flag| *flag == 1).collect();
        let present: Vec<usize> = (0..all).filter(|&p| self.summed[p]).collect();
        self.check(present.len(), "sent their values")?;
        let mut server = Server::new(self.threshold, keys, shared, total.len());
        server.take(&present, &sum[all..]);
        let request = server.request().map_err(Error::on_all_ranks)?;

        // 4: from each party a flag and a share for each party.
        let slot = 1 + SHARE * all;
        let mut mine = vec![0u64; slot * self.hosted.len()];
        for party in self.staying(&self.summed, 4) {
            if let Some(state) = own.get(&party) {
                let words = state.answer(&request)?.words(all);
                let mine = &mut mine[(party - first) * slot..][..slot];
                mine[0] = 1;
                mine[1..].copy_from_slice(&words);
            }
        }
        let mut said = vec![0u64; slot * all];
        comm.all_gather(ANSWERS, &mine, &self.parts(slot), &mut said);
        let answers: Vec<(usize, Answer)> = said
            .chunks(slot)
            .enumerate()
            .filter(|(_, words)| words[0] == 1)
            .map(|(party, words)| (party, Answer::of(&request, &words[1..])))
            .collect();
        self.left = vec![false; all];
        answers.iter().for_each(|(party, _)| self.left[*party] = true);
        self.tell(comm, &before);
        total.copy_from_slice(&server.unmask(&answers).map_err(Error::on_all_ranks)?);
        Ok(())
    }

    /// Each rank's part of what has `width` elements for each party.
    fn parts(&self, width: usize) -> Parts {
        let ranges: Vec<Range<usize>> = (0..self.parties.ranks).map(|rank| self.parties.hosted(rank)).collect();
        Parts::new(&ranges, width)
    }

    fn check(&self, left: usize, did: &str) -> Result<()> {
        enough(left, self.threshold, did).map_err(Error::on_all_ranks)
    }

    fn tell(&self, comm: &Communicator, before: &[bool]) {
        let gone: Vec<String> =
            (0..before.len()).filter(|&p| before[p] && !self.left[p]).map(|p| p.to_string()).collect();
        if comm.is_root() && !gone.is_empty() {
            let who = if gone.len() == 1 { "party" } else { "parties" };
            let (left, all) = (self.left(), before.len());
            eprintln!("fednmf: warning: {who} {} vanished; the sums go on with {left} of {all}", gone.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_or_refused() {
        let drop = |party, sum, stage, kill| Some(Drop { party, sum, stage, kill });
        assert_eq!(Drop::parse("3@5:2"), drop(3, 5, 2, false));
        assert_eq!(Drop::parse("0@1:4:kill"), drop(0, 1, 4, true));
        for wrong in ["", "3", "3@5", "@1:1", "3@5:2:", "3@5:2:kill:", "3@5:2:stop", "x@1:1", "1@-1:1"] {
            assert_eq!(Drop::parse(wrong), None, "{wrong}");
        }
    }
}
