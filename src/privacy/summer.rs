//! Sums over parties, in the clear or masked, behind one interface: an algorithm that sums through a [`Summer`] has
//! `--secure-sum` for nothing.

use std::ops::Range;

use super::masking::{self, FixedPoint, KEY, KeyPair, Masks};
use crate::comm::{Door, Parcel, Parties, Parts, Payload};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::random::secret_rng;

/// What is sent before the first masked sum.
pub const KEYS: Parcel = Parcel::new("public keys", Payload::Control);

/// The parcel of a sum when it is masked.
pub const fn masked(parcel: Parcel) -> Parcel {
    Parcel::new(parcel.purpose, Payload::Masked)
}

/// Sums shares of all parties. Both kinds give the same bits on any number of ranks.
pub struct Summer {
    parties: usize,
    hosted: Range<usize>,
    masks: Option<Masking>,
}

struct Masking {
    masks: Vec<Masks>,
    /// Number of the next sum.
    next: u64,
    /// Entries may be 2^headroom times as large as expected.
    headroom: i32,
    share: Vec<u64>,
    total: Vec<u64>,
}

impl Summer {
    /// Sums in the clear.
    pub fn plain(door: &Door, parties: Parties) -> Self {
        Summer { parties: parties.count, hosted: parties.hosted(door.rank()), masks: None }
    }

    /// Masked sums whose entries may be 2^`headroom` times as large as expected. Exchanges keys: collective.
    ///
    /// # Errors
    /// On all ranks for fewer than two parties; when there is no secret randomness.
    pub fn masked(door: &Door, parties: Parties, headroom: usize) -> Result<Self> {
        if parties.count < 2 {
            return Err(Error::input("--secure-sum: one party has nobody to hide its share from; give --parties")
                .on_all_ranks());
        }
        let hosted = parties.hosted(door.rank());
        let own = hosted.clone().map(|p| Ok(KeyPair::new(&mut secret_rng(None, p as u64)?)));
        let own = door.agree(own.collect::<Result<Vec<KeyPair>>>())?;
        let mine: Vec<u8> = own.iter().flat_map(|k| *k.public()).collect();
        let ranges: Vec<Range<usize>> = (0..parties.ranks).map(|r| parties.hosted(r)).collect();
        let mut all = vec![0u8; KEY * parties.count];
        door.all_gather(KEYS, &mine, &Parts::new(&ranges, KEY), &mut all);
        let masks = door.agree(masking::all(hosted.clone(), &own, all.as_chunks::<KEY>().0))?;
        let headroom = i32::try_from(headroom).unwrap_or(i32::MAX).min(48);
        let masks = Masking { masks, next: 0, headroom, share: Vec::new(), total: Vec::new() };
        Ok(Summer { parties: parties.count, hosted, masks: Some(masks) })
    }

    /// Whether nobody sees a single share.
    pub fn is_masked(&self) -> bool {
        self.masks.is_some()
    }

    /// What to expect ([`Summer::sum`]) of entries whose magnitude is known to be `most` at most.
    pub fn without_headroom(&self, most: f64) -> f64 {
        self.masks.as_ref().map_or(most, |m| most * 2f64.powi(-m.headroom))
    }

    /// Sums one share from every party into `out` on every rank. `shares` are those of the hosted parties, in order.
    /// `expected` is a publicly known size of the entries; masked, one that is 2^headroom times as large is refused.
    ///
    /// # Errors
    /// When a share is not finite or too large. In the clear all ranks know of it; masked, this one alone may.
    pub fn sum<'a, T: Real>(
        &mut self,
        door: &Door,
        parcel: Parcel,
        expected: f64,
        shares: impl Iterator<Item = &'a [T]> + Clone,
        out: &mut [T],
    ) -> Result<()> {
        let Some(masking) = &mut self.masks else {
            return door.sum_parties(parcel, self.parties, shares, out);
        };
        let Masking { masks, next, headroom, share, total } = masking;
        let expected = if expected > 0.0 { expected } else { 1.0 };
        let fixed = FixedPoint::new(expected * 2f64.powi(*headroom), self.parties);
        for words in [&mut *share, &mut *total] {
            words.clear();
            words.resize(out.len(), 0);
        }
        let mut hosted = 0;
        for ((values, masks), party) in shares.zip(masks).zip(self.hosted.clone()) {
            assert_eq!(values.len(), out.len(), "the share of a party");
            for (word, x) in share.iter_mut().zip(values) {
                *word = fixed.encode(x.wide()).ok_or_else(|| {
                    Error::failed(format!(
                        "party {party}: its share of '{}' has an entry of {:e}, but the fixed point of --secure-sum \
                         carries {:e} at most; try --scale max, or a --headroom of more than {headroom} bits",
                        parcel.purpose,
                        x.wide(),
                        fixed.limit()
                    ))
                })?;
            }
            masks.apply(*next, share);
            total.iter_mut().zip(&*share).for_each(|(t, s)| *t = t.wrapping_add(*s));
            hosted += 1;
        }
        assert_eq!(hosted, self.hosted.len(), "every hosted party has a share");
        *next += 1;
        door.sum_masked(masked(parcel), hosted, total);
        out.iter_mut().zip(&*total).for_each(|(x, t)| *x = T::of(fixed.decode(*t)));
        Ok(())
    }

    /// Sums words modulo 2⁶⁴, `length` from every party, masked. `fill` writes the share of the hosted party of that
    /// number (counted from 0). The result stays until the next sum.
    ///
    /// # Panics
    /// When this sums in the clear: such words are not for others' eyes.
    pub fn words(
        &mut self,
        door: &Door,
        parcel: Parcel,
        length: usize,
        mut fill: impl FnMut(usize, &mut [u64]),
    ) -> &[u64] {
        let Masking { masks, next, share, total, .. } = self.masks.as_mut().expect("words are summed masked only");
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
        door.sum_masked(masked(parcel), self.hosted.len(), total);
        total
    }
}
