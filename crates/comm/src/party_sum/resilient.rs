//! The drop-out protocol between ranks: one round of it, with fresh secrets, for every sum.
//!
//! Every rank acts as the server. The messages to the server of the paper (public keys, the remaining parties, each
//! rank's sum of masked terms, shares for unmasking) are sent to all ranks, and each removes the masks itself, because
//! all need the sum. Encrypted shares are sent to their recipients only. A party that has dropped out takes part
//! in no later sum.
//!
//! A rank that dies ends the job, as in MPI 3.1. A lost site does not: the transport between sites delivers zeros in its
//! place, identically to all, and zero flags mean that its party has dropped out. A party drops out while its
//! rank lives if its term is not finite or exceeds the fixed-point range. Tests make parties drop out at a given stage
//! ([`DROP`]).

use std::collections::BTreeMap;
use std::ops::Range;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::warning::warn;
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::dropout::{
    PartyRound, ROUND_KEYS as KEYS, RoundKeys, SEALED, SHARE, ServerRound, UnmaskAnswer, address, answer, enough,
    publish,
};
use fednmf_privacy::{MaskedWords, Protection};

use crate::{ControlTag, MessageTag, Parties, Parts, PartyCommunicator, Payload};

/// Stage 1: the public keys of all parties.
pub const ROUND_KEYS: ControlTag = ControlTag::new("public keys of a sum");
/// Stage 2: shares of a party's secrets, encrypted for another party.
pub const SEALED_SHARES: MessageTag = MessageTag::new("shares of secrets", Payload::Ciphertext);
/// Stage 4: shares of the secrets that unmask the sum.
pub const ANSWERS: ControlTag = ControlTag::new("shares that unmask a sum");

/// Environment variable for tests that makes parties drop out: `PARTY@SUM:STAGE`, separated by commas; sums and the four
/// stages count from 1. With `:kill` appended, the rank of the party is killed at that point. It acts in debug builds only.
const DROP: &str = "FEDNMF_DROP";

/// An entry of [`DROP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InjectedLoss {
    party: usize,
    sum: u64,
    stage: u32,
    kill: bool,
}

impl InjectedLoss {
    fn parse(text: &str) -> Option<InjectedLoss> {
        let (party, at) = text.split_once('@')?;
        let mut at = at.split(':');
        let (sum, stage) = (at.next()?.parse().ok()?, at.next()?.parse().ok()?);
        let kill = match (at.next(), at.next()) {
            (None, _) => false,
            (Some("kill"), None) => true,
            _ => return None,
        };
        Some(InjectedLoss { party: party.parse().ok()?, sum, stage, kill })
    }

    fn from_environment() -> Result<Vec<InjectedLoss>> {
        let Some(text) = crate::test_switch(DROP) else { return Ok(Vec::new()) };
        let wrong = |part: &str| Error::input(format!("{DROP}={part}: must be PARTY@SUM:STAGE[:kill]"));
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| InjectedLoss::parse(part).ok_or_else(|| wrong(part))).collect()
    }
}

/// Masked sums over the parties that have not dropped out.
pub struct ResilientSum {
    threshold: usize,
    parties: Parties,
    hosted: Range<usize>,
    /// Which parties have not dropped out; equal on all ranks.
    left: Vec<bool>,
    /// Which parties are in the last sum.
    summed: Vec<bool>,
    sums: u64,
    injected: Vec<InjectedLoss>,
}

impl ResilientSum {
    /// Sums that need at least `threshold` parties.
    ///
    /// # Errors
    /// On all ranks, if the threshold is above the number of parties, or not above half of it: two disjoint groups of
    /// parties could then reconstruct both secrets of a party, only one of which may ever be known.
    pub fn new(comm: &PartyCommunicator, parties: Parties, threshold: usize) -> SharedResult<Self> {
        if 2 * threshold <= parties.count || threshold > parties.count {
            return Err(Error::input(format!(
                "--secure-threshold {threshold}: of {} parties it must be more than half, from {} to {}",
                parties.count,
                parties.count / 2 + 1,
                parties.count
            ))
            .on_all_ranks());
        }
        Ok(ResilientSum {
            threshold,
            parties,
            hosted: parties.hosted(comm.rank()),
            left: vec![true; parties.count],
            summed: vec![true; parties.count],
            sums: 0,
            injected: InjectedLoss::from_environment().map_err(Error::on_all_ranks)?,
        })
    }

    /// Number of parties that have not dropped out.
    pub fn left(&self) -> usize {
        self.left.iter().filter(|x| **x).count()
    }

    /// Whether the last sum includes the term of `party`.
    pub fn includes(&self, party: usize) -> bool {
        self.summed[party]
    }

    /// The hosted parties of `present` that take part in a stage of this sum.
    fn staying(&self, present: &[bool], stage: u32) -> Vec<usize> {
        let now = (self.sums, stage);
        let gone = |party: usize| self.injected.iter().any(|d| d.party == party && !d.kill && (d.sum, d.stage) <= now);
        if self.injected.iter().any(|d| d.kill && self.hosted.contains(&d.party) && (d.sum, d.stage) == now) {
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGKILL);
        }
        self.hosted.clone().filter(|&p| present[p] && !gone(p)).collect()
    }

    /// The sum of the terms of all parties that do not drop out, modulo 2⁶⁴. Collective. `fill` writes the term of a hosted
    /// party, given by its place among the hosted ones, into `words`; a party whose term is an error drops out.
    ///
    /// # Errors
    /// On all ranks, if fewer parties than the threshold are left; on this rank, if there is no secret randomness or a
    /// message fails authentication.
    pub fn sum(
        &mut self,
        comm: &PartyCommunicator,
        tag: MessageTag,
        (words, total): (&mut [u64], &mut MaskedWords),
        mut fill: impl FnMut(usize, &mut [u64]) -> Result<()>,
    ) -> Result<Vec<u64>> {
        self.sums += 1;
        let (all, first) = (self.parties.count, self.hosted.start);
        let before = self.left.clone();
        let mut own: BTreeMap<usize, PartyRound> = BTreeMap::new();
        for party in self.staying(&before, 1) {
            own.insert(party, PartyRound::new(party, self.threshold, &mut secret_rng(None, party as u64)?));
        }

        // Stage 1: for each party a flag and its keys.
        let mut gathered = vec![0u8; (1 + KEYS) * all];
        comm.gather_keys(
            ROUND_KEYS,
            self.hosted.len(),
            &publish(&self.hosted, &own),
            &self.parts(1 + KEYS),
            &mut gathered,
        );
        let slots = gathered.as_chunks::<{ 1 + KEYS }>().0.iter().enumerate();
        let keys: BTreeMap<usize, RoundKeys> = slots
            .filter(|(_, slot)| slot[0] == 1)
            .map(|(party, slot)| (party, RoundKeys::from_bytes(&std::array::from_fn(|i| slot[1 + i]))))
            .collect();
        self.check(keys.len(), "published their keys")?;

        // Stage 2: for each party a flag and its shares for every party with keys, those on its own rank included.
        let known: Vec<bool> = (0..all).map(|p| keys.contains_key(&p)).collect();
        let mut sealed = BTreeMap::new();
        for party in self.staying(&known, 2) {
            if let Some(state) = own.get_mut(&party) {
                sealed.insert(party, state.share(&keys)?);
            }
        }
        let to = (0..self.parties.ranks).map(|rank| self.parties.hosted(rank));
        let send = address(&self.hosted, &sealed, to);
        let party_bytes = 2 * SEALED * sealed.len() * (keys.len() - 1);
        let width = 1 + SEALED * self.hosted.len();
        let receive: Vec<usize> = (0..self.parties.ranks).map(|r| self.parties.hosted(r).len() * width).collect();
        let received = comm.exchange_shares(SEALED_SHARES, party_bytes, &send, &receive);
        let shared: Vec<usize> = (0..all).filter(|&p| received[p * width] == 1).collect();
        self.check(shared.len(), "shared their secrets")?;

        // Stage 3: a flag for each party that is in the sum, and the sum of the masked terms.
        let sharing: Vec<bool> = (0..all).map(|p| shared.contains(&p)).collect();
        total.clear(all, words.len());
        let mut present = 0;
        for party in self.staying(&sharing, 3) {
            let Some(state) = own.get_mut(&party) else { continue };
            let hosted = party - first;
            if let Err(e) = fill(hosted, words) {
                warn(&format!("{e}; the party drops out"));
                continue;
            }
            let from = |from: &usize| -> [u8; SEALED] {
                let at = from * width + 1 + hosted * SEALED;
                std::array::from_fn(|i| received[at + i])
            };
            let for_me = shared.iter().filter(|p| **p != party).map(|p| (*p, from(p))).collect();
            state.add(&for_me, words, total)?;
            present += 1;
        }
        comm.sum_masked((tag, Protection::Masked), present, total);
        self.summed = total.flags().iter().map(|flag| *flag == 1).collect();
        let present: Vec<usize> = (0..all).filter(|&p| self.summed[p]).collect();
        self.check(present.len(), "sent their terms")?;
        // Nobody can open the sum without the answers of the parties that refuse this.
        comm.check_summed(&self.summed)?;
        let mut server = ServerRound::new(self.threshold, keys, shared, words.len());
        server.add(&present, total.sum());
        let request = server.request().map_err(Error::on_all_ranks)?;

        // Stage 4: for each party a flag and a share for every party.
        let slot = 1 + SHARE * all;
        let mine = answer(&self.hosted, self.staying(&self.summed, 4).into_iter(), &own, &request, all)?;
        let mut gathered = vec![0u64; slot * all];
        comm.gather_unmasking(ANSWERS, self.hosted.len(), &mine, &self.parts(slot), &mut gathered);
        let answers: Vec<(usize, UnmaskAnswer)> = gathered
            .chunks(slot)
            .enumerate()
            .filter(|(_, words)| words[0] == 1)
            .map(|(party, words)| (party, UnmaskAnswer::from_words(&request, &words[1..])))
            .collect();
        self.left = vec![false; all];
        answers.iter().for_each(|(party, _)| self.left[*party] = true);
        self.report_losses(comm, &before);
        Ok(server.unmask(&answers).map_err(Error::on_all_ranks)?)
    }

    /// The parts of the ranks in an array of `width` elements for each party.
    fn parts(&self, width: usize) -> Parts {
        let ranges: Vec<Range<usize>> = (0..self.parties.ranks).map(|rank| self.parties.hosted(rank)).collect();
        Parts::new(&ranges, width)
    }

    fn check(&self, left: usize, did: &str) -> SharedResult<()> {
        enough(left, self.threshold, did).map_err(Error::on_all_ranks)
    }

    fn report_losses(&self, comm: &PartyCommunicator, before: &[bool]) {
        let gone: Vec<String> =
            (0..before.len()).filter(|&p| before[p] && !self.left[p]).map(|p| p.to_string()).collect();
        if comm.reports() && !gone.is_empty() {
            let who = if gone.len() == 1 { "party" } else { "parties" };
            let (left, all) = (self.left(), before.len());
            warn(&format!("{who} {} dropped out; sums continue with {left} of {all}", gone.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_losses_are_parsed_or_refused() {
        let loss = |party, sum, stage, kill| Some(InjectedLoss { party, sum, stage, kill });
        assert_eq!(InjectedLoss::parse("3@5:2"), loss(3, 5, 2, false));
        assert_eq!(InjectedLoss::parse("0@1:4:kill"), loss(0, 1, 4, true));
        for wrong in ["", "3", "3@5", "@1:1", "3@5:2:", "3@5:2:kill:", "3@5:2:stop", "x@1:1", "1@-1:1"] {
            assert_eq!(InjectedLoss::parse(wrong), None, "{wrong}");
        }
    }
}
