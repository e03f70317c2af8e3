//! Sums over parties, in the clear or masked, behind one interface: an algorithm that sums through a [`PartySum`] has
//! `--secure-sum` for nothing.

use std::ops::Range;

use libm::ldexp;

use super::masking;
use crate::comm::{Communicator, MessageTag, Parties, Parts, Payload};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::privacy::masking::{FixedPoint, KEY, KeyPair, Masks};
use crate::privacy::survivors::Survivors;
use crate::random::secret_rng;

/// What is sent before the first masked sum.
pub const KEYS: MessageTag = MessageTag::new("public keys", Payload::Control);

/// The tag of a sum when it is masked.
pub const fn masked(tag: MessageTag) -> MessageTag {
    MessageTag::new(tag.kind, Payload::Masked)
}

/// Sums shares of all parties. Both kinds give the same bits on any number of ranks.
pub struct PartySum {
    parties: usize,
    hosted: Range<usize>,
    masks: Option<Masking>,
}

struct Masking {
    kind: Kind,
    /// Entries may be 2^headroom times as large as expected.
    headroom: i32,
    share: Vec<u64>,
    total: Vec<u64>,
}

enum Kind {
    /// Masks for each pair, from keys of the whole run.
    Pairs {
        masks: Vec<Masks>,
        /// Number of the next sum.
        next: u64,
    },
    /// A sum goes on without parties that vanish.
    Survivors(Survivors),
}

impl PartySum {
    /// Sums in the clear.
    pub fn plain(comm: &Communicator, parties: Parties) -> Self {
        PartySum { parties: parties.count, hosted: parties.hosted(comm.rank()), masks: None }
    }

    /// Masked sums whose entries may be 2^`headroom` times as large as expected. Exchanges keys: collective.
    ///
    /// # Errors
    /// On all ranks for fewer than two parties; when there is no secret randomness.
    pub fn masked(comm: &Communicator, parties: Parties, headroom: usize) -> Result<Self> {
        if parties.count < 2 {
            return Err(Error::input("--secure-sum: one party has nobody to hide its share from; give --parties")
                .on_all_ranks());
        }
        let hosted = parties.hosted(comm.rank());
        let own = hosted.clone().map(|p| Ok(KeyPair::new(&mut secret_rng(None, p as u64)?)));
        let own = comm.agree_on_error(own.collect::<Result<Vec<KeyPair>>>())?;
        let mine: Vec<u8> = own.iter().flat_map(|k| *k.public()).collect();
        let ranges: Vec<Range<usize>> = (0..parties.ranks).map(|r| parties.hosted(r)).collect();
        let mut all = vec![0u8; KEY * parties.count];
        comm.all_gather(KEYS, &mine, &Parts::new(&ranges, KEY), &mut all);
        let masks = comm.agree_on_error(masking::all(hosted.clone(), &own, all.as_chunks::<KEY>().0))?;
        Ok(PartySum::by(Kind::Pairs { masks, next: 0 }, hosted, parties, headroom))
    }

    /// [`PartySum::masked`] that goes on without parties which vanish, while `threshold` of them are left.
    ///
    /// # Errors
    /// On all ranks for a threshold that fits no number of parties.
    pub fn surviving(comm: &Communicator, parties: Parties, headroom: usize, threshold: usize) -> Result<Self> {
        let kind = Kind::Survivors(Survivors::new(comm, parties, threshold)?);
        Ok(PartySum::by(kind, parties.hosted(comm.rank()), parties, headroom))
    }

    fn by(kind: Kind, hosted: Range<usize>, parties: Parties, headroom: usize) -> Self {
        let headroom = i32::try_from(headroom).unwrap_or(i32::MAX).min(48);
        let masks = Masking { kind, headroom, share: Vec::new(), total: Vec::new() };
        PartySum { parties: parties.count, hosted, masks: Some(masks) }
    }

    fn survivors(&self) -> Option<&Survivors> {
        match &self.masks {
            Some(Masking { kind: Kind::Survivors(survivors), .. }) => Some(survivors),
            _ => None,
        }
    }

    /// How many parties have vanished, equal on all ranks.
    pub fn lost(&self) -> usize {
        self.survivors().map_or(0, |s| self.parties - s.left())
    }

    /// The same as a figure of a run, where parties may vanish at all.
    pub fn losses(&self) -> Option<(&'static str, f64)> {
        self.survivors().map(|_| ("lost_parties", self.lost() as f64))
    }

    /// Whether the share of `party` is in the last sum.
    pub fn has(&self, party: usize) -> bool {
        self.survivors().is_none_or(|s| s.has(party))
    }

    /// What the `weights` of the parties in the last sum add up to, where those of all are 1: exactly 1 when all are in it.
    pub fn weight(&self, weights: impl ExactSizeIterator<Item = f64>) -> f64 {
        let missing = (0..weights.len()).any(|party| !self.has(party));
        let present = || weights.enumerate().filter(|(party, _)| self.has(*party)).map(|(_, w)| w).sum();
        if missing { present() } else { 1.0 }
    }

    /// Does `sums` again until no party vanishes on the way: then they are all sums over the same parties.
    ///
    /// # Errors
    /// As `sums`.
    pub fn together<R>(&mut self, mut sums: impl FnMut(&mut Self) -> Result<R>) -> Result<R> {
        loop {
            let before = self.lost();
            let result = sums(self)?;
            if self.lost() == before {
                return Ok(result);
            }
        }
    }

    /// The sum of the squared entries that the parties left have, for errors beside the sum of what they have left over:
    /// `norm2` as long as all are there.
    ///
    /// # Errors
    /// As [`PartySum::sum`].
    pub fn norm2(
        &mut self,
        comm: &Communicator,
        tag: MessageTag,
        norm2: f64,
        own: impl Iterator<Item = f64>,
    ) -> Result<f64> {
        if self.lost() == 0 {
            return Ok(norm2);
        }
        let own: Vec<[f64; 1]> = own.map(|x| [x]).collect();
        let mut sum = [0.0];
        self.sum(comm, tag, norm2, own.iter().map(<[f64; 1]>::as_slice), &mut sum)?;
        Ok(sum[0])
    }

    /// Whether nobody sees a single share.
    pub fn is_masked(&self) -> bool {
        self.masks.is_some()
    }

    /// What to expect ([`PartySum::sum`]) of entries whose magnitude is known to be `most` at most.
    pub fn without_headroom(&self, most: f64) -> f64 {
        self.masks.as_ref().map_or(most, |m| ldexp(most, -m.headroom))
    }

    /// Sums one share from every party into `out` on every rank. `shares` are those of the hosted parties, in order.
    /// `expected` is a publicly known size of the entries; masked, one that is 2^headroom times as large is refused.
    ///
    /// # Errors
    /// When a share is not finite or too large. In the clear all ranks know of it; masked, this one alone may.
    pub fn sum<'a, T: Real>(
        &mut self,
        comm: &Communicator,
        tag: MessageTag,
        expected: f64,
        shares: impl Iterator<Item = &'a [T]> + Clone,
        out: &mut [T],
    ) -> Result<()> {
        let Some(masking) = &mut self.masks else {
            return comm.sum_parties(tag, self.parties, shares, out);
        };
        let Masking { kind, headroom, share, total } = masking;
        let expected = if expected > 0.0 { expected } else { 1.0 };
        let fixed = FixedPoint::new(ldexp(expected, *headroom), self.parties);
        for words in [&mut *share, &mut *total] {
            words.clear();
            words.resize(out.len(), 0);
        }
        assert_eq!(shares.clone().count(), self.hosted.len(), "every hosted party has a share");
        let first = self.hosted.start;
        let encode = |hosted: usize, values: &[T], share: &mut [u64]| {
            assert_eq!(values.len(), share.len(), "the share of a party");
            share.iter_mut().zip(values).try_for_each(|(word, x)| {
                *word = fixed.encode(x.as_f64()).ok_or_else(|| {
                    Error::failed(format!(
                        "party {}: its share of '{}' has an entry of {:e}, but the fixed point of --secure-sum \
                         carries {:e} at most; try --scale max, or a --headroom of more than {headroom} bits",
                        first + hosted,
                        tag.kind,
                        x.as_f64(),
                        fixed.limit()
                    ))
                })?;
                Ok(())
            })
        };
        match kind {
            Kind::Pairs { masks, next } => {
                for (hosted, (values, masks)) in shares.zip(masks).enumerate() {
                    encode(hosted, values, share)?;
                    masks.apply(*next, share);
                    total.iter_mut().zip(&*share).for_each(|(t, s)| *t = t.wrapping_add(*s));
                }
                *next += 1;
                comm.sum_masked(masked(tag), self.hosted.len(), total);
            }
            Kind::Survivors(survivors) => {
                let values = |hosted: usize| shares.clone().nth(hosted).unwrap_or_default();
                survivors.sum(comm, masked(tag), total, |hosted, words| encode(hosted, values(hosted), words))?;
            }
        }
        out.iter_mut().zip(&*total).for_each(|(x, t)| *x = T::from_f64(fixed.decode(*t)));
        Ok(())
    }

    /// Sums words modulo 2⁶⁴, `length` from every party, masked. `fill` writes the share of the hosted party of that
    /// number (counted from 0). The result stays until the next sum.
    ///
    /// # Panics
    /// When this sums in the clear, as such words are not for others' eyes; or goes on without lost parties, which noise
    /// has no place in.
    pub fn words(
        &mut self,
        comm: &Communicator,
        tag: MessageTag,
        length: usize,
        mut fill: impl FnMut(usize, &mut [u64]),
    ) -> &[u64] {
        let masking = self.masks.as_mut().expect("words are summed masked only");
        let Masking { kind: Kind::Pairs { masks, next }, share, total, .. } = masking else {
            unreachable!("--dp with --secure-threshold is refused");
        };
        for words in [&mut *share, &mut *total] {
            words.clear();
            words.resize(length, 0);
        }
        for (hosted, masks) in masks.iter_mut().enumerate() {
            fill(hosted, share);
            masks.apply(*next, share);
            total.iter_mut().zip(&*share).for_each(|(t, s)| *t = t.wrapping_add(*s));
        }
        *next += 1;
        comm.sum_masked(masked(tag), self.hosted.len(), total);
        total
    }
}
