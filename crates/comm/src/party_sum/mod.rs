//! Sums over parties, in the clear or masked, behind one interface: a method that sums through [`PartySum`] supports
//! `--secure-sum` without further code. `resilient` has the sums that continue without parties that drop out.

mod resilient;

use std::ops::Range;

use libm::ldexp;
use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_linalg::random::secret_rng;
use fednmf_linalg::{Element, Real};
use fednmf_privacy::fixed_point::FixedPoint;
use fednmf_privacy::key_agreement::KEY;
use fednmf_privacy::masking::{KeyPair, Masks, masks, public_keys};
use fednmf_privacy::{Declared, DeclaredMut, MaskedWords, NoiseAdded, Noised, Protection};

use self::resilient::ResilientSum;
pub use self::resilient::{ANSWERS, ROUND_KEYS, SEALED_SHARES};
use crate::{ControlTag, MessageTag, Parties, Parts, PartyCommunicator};

/// The message before the first masked sum.
pub const KEYS: ControlTag = ControlTag::new("public keys");

/// The name, in a recorded view, of a party's contribution to a sum of factors or products.
pub const SUMMED: &str = "own term of a sum";

/// Records in the view what a hosted party adds to a sum, row by row.
pub fn show_term<T: Element>(comm: &PartyCommunicator, party: usize, term: &Array2<T>) {
    if comm.is_viewed() {
        let by_rows = term.as_standard_layout();
        comm.knows(SUMMED, Some(party), term.dim(), by_rows.as_slice().unwrap_or_default());
    }
}

/// The tag of a sum when it is masked.
pub const fn masked(tag: MessageTag) -> MessageTag {
    tag.masked()
}

/// Sums over all parties; plain and masked ones give the same bits on any number of ranks.
pub struct PartySum {
    parties: usize,
    hosted: Range<usize>,
    masked: Option<MaskedSum>,
    /// The share of each party in all rows or columns, if parties may drop out.
    shares: Vec<f64>,
}

/// One of several sums that belong together; see [`PartySum::sum_together`].
pub struct Joint<'a, T> {
    pub tag: MessageTag,
    /// A public estimate of the largest entry.
    pub expected: f64,
    /// The term of a hosted party, given by its place among the hosted ones.
    pub term: &'a dyn Fn(usize) -> &'a [T],
    /// The sum, as long as each term.
    pub out: &'a mut [T],
}

/// The most bits above the expected size of entries: as many are left for them, so that squared errors below a billionth of the norm
/// are still seen.
pub const MOST_HEADROOM: usize = 32;

/// The measure of a run that says how many parties have dropped out.
pub const LOST_PARTIES: &str = "lost_parties";

/// The masked sums of a run, modulo 2⁶⁴.
struct MaskedSum {
    protocol: Protocol,
    /// Entries may be up to 2^headroom times as large as expected.
    headroom: i32,
    term: Vec<u64>,
    total: MaskedWords,
    /// The sum over the parties that have not dropped out.
    left: Vec<u64>,
}

enum Protocol {
    /// Pairwise masks from keys of the whole run.
    Pairwise {
        masks: Vec<Masks>,
        /// Number of the next sum.
        next: u64,
    },
    /// Sums that tolerate parties that drop out.
    Resilient(ResilientSum),
}

impl MaskedSum {
    /// Sums terms of `length` words; `fill` writes the term of a hosted party, given by its place among the hosted ones.
    fn sum(
        &mut self,
        comm: &PartyCommunicator,
        (tag, protection): (MessageTag, Protection),
        length: usize,
        mut fill: impl FnMut(usize, &mut [u64]) -> Result<()>,
    ) -> Result<&[u64]> {
        let MaskedSum { protocol, term, total, left, .. } = self;
        term.clear();
        term.resize(length, 0);
        match protocol {
            Protocol::Pairwise { masks, next } => {
                total.clear(0, length);
                for (hosted, masks) in masks.iter_mut().enumerate() {
                    fill(hosted, term)?;
                    masks.add(*next, term, total);
                }
                *next += 1;
                comm.sum_masked((masked(tag), protection), masks.len(), total);
                Ok(total.sum())
            }
            Protocol::Resilient(sum) => {
                *left = sum.sum(comm, masked(tag), (term, total), fill)?;
                Ok(left)
            }
        }
    }
}

impl PartySum {
    /// Sums in the clear.
    pub fn plain(comm: &PartyCommunicator, parties: Parties) -> Self {
        PartySum { parties: parties.count, hosted: parties.hosted(comm.rank()), masked: None, shares: Vec::new() }
    }

    /// Masked sums whose entries may be up to 2^`headroom` times as large as expected. Collective: exchanges keys.
    ///
    /// # Errors
    /// On all ranks, if there are fewer than two parties or no secret randomness.
    pub fn masked(comm: &PartyCommunicator, parties: Parties, headroom: usize) -> SharedResult<Self> {
        if parties.count < 2 {
            return Err(Error::input("--secure-sum: one party has nobody to hide its share from; give --parties")
                .on_all_ranks());
        }
        let hosted = parties.hosted(comm.rank());
        let own = hosted.clone().map(|p| Ok(KeyPair::new(&mut secret_rng(None, p as u64)?)));
        let own = comm.agree_on_error(own.collect::<Result<Vec<KeyPair>>>())?;
        let ranges: Vec<Range<usize>> = (0..parties.ranks).map(|r| parties.hosted(r)).collect();
        let mut all = vec![0u8; KEY * parties.count];
        comm.gather_keys(KEYS, own.len(), &public_keys(&own), &Parts::new(&ranges, KEY), &mut all);
        let masks = comm.agree_on_error(masks(hosted, &own, all.as_chunks::<KEY>().0))?;
        Ok(PartySum::with(Protocol::Pairwise { masks, next: 0 }, comm, parties, headroom))
    }

    /// As [`PartySum::masked`], for sums that continue without parties that drop out as long as `threshold` are left. `sizes` are
    /// the rows or columns of each party.
    ///
    /// # Errors
    /// On all ranks, if the threshold is not more than half of the parties, or above their number.
    pub fn dropout_resilient(
        comm: &PartyCommunicator,
        parties: Parties,
        headroom: usize,
        threshold: usize,
        sizes: &[Range<usize>],
    ) -> SharedResult<Self> {
        let protocol = Protocol::Resilient(ResilientSum::new(comm, parties, threshold)?);
        let all: usize = sizes.iter().map(Range::len).sum();
        let shares = sizes.iter().map(|part| part.len() as f64 / all.max(1) as f64).collect();
        Ok(PartySum { shares, ..PartySum::with(protocol, comm, parties, headroom) })
    }

    fn with(protocol: Protocol, comm: &PartyCommunicator, parties: Parties, headroom: usize) -> Self {
        let headroom = headroom.min(MOST_HEADROOM) as i32;
        let (term, total, left) = (Vec::new(), MaskedWords::default(), Vec::new());
        let masked = Some(MaskedSum { protocol, headroom, term, total, left });
        PartySum { masked, ..PartySum::plain(comm, parties) }
    }

    fn resilient(&self) -> Option<&ResilientSum> {
        match &self.masked {
            Some(MaskedSum { protocol: Protocol::Resilient(sum), .. }) => Some(sum),
            _ => None,
        }
    }

    /// Number of parties that have dropped out, equal on all ranks.
    pub fn lost(&self) -> usize {
        self.resilient().map_or(0, |sum| self.parties - sum.left())
    }

    /// [`PartySum::lost`] as a measure of the run, if parties may drop out.
    pub fn losses(&self) -> Option<(&'static str, f64)> {
        self.resilient().map(|_| (LOST_PARTIES, self.lost() as f64))
    }

    /// Whether the last sum includes the term of `party`.
    pub fn includes(&self, party: usize) -> bool {
        self.resilient().is_none_or(|sum| sum.includes(party))
    }

    /// Sum of the `weights` of the parties in the last sum; exactly 1 if all are in it. The weights of all sum to 1.
    pub fn weight(&self, weights: impl ExactSizeIterator<Item = f64>) -> f64 {
        let missing = (0..weights.len()).any(|party| !self.includes(party));
        let present = || weights.enumerate().filter(|(party, _)| self.includes(*party)).map(|(_, w)| w).sum();
        if missing { present() } else { 1.0 }
    }

    /// The share of all rows or columns whose parties are in the last sum.
    pub fn share_left(&self) -> f64 {
        self.weight(self.shares.iter().copied())
    }

    /// Whether sums are masked.
    pub fn is_masked(&self) -> bool {
        self.masked.is_some()
    }

    /// The `expected` size to pass to [`PartySum::sum`] for entries of magnitude at most `most`.
    pub fn without_headroom(&self, most: f64) -> f64 {
        self.masked.as_ref().map_or(most, |m| ldexp(most, -m.headroom))
    }

    /// Sums the terms of all parties into `out` on every rank. Collective. `terms` are those of the hosted parties, in
    /// order. `expected` is a public estimate of the largest entry; a masked sum refuses entries above 2^headroom times
    /// that.
    ///
    /// # Errors
    /// If an entry is not finite or too large: on all ranks for a sum in the clear, perhaps only on this rank for a masked
    /// sum.
    pub fn sum<'a, T: Real>(
        &mut self,
        comm: &PartyCommunicator,
        tag: MessageTag,
        expected: f64,
        terms: impl Iterator<Item = &'a [T]> + Clone,
        out: &mut [T],
    ) -> Result<()> {
        let term = |hosted| terms.clone().nth(hosted).unwrap_or_default();
        self.sum_together(comm, &mut [Joint { tag, expected, term: &term, out }])
    }

    /// As [`PartySum::sum`], for several sums over the same parties: masked, they are one message, whose name is that of
    /// the first. No values are ever summed again over fewer parties, which would reveal the terms of those that dropped
    /// out.
    ///
    /// # Errors
    /// As [`PartySum::sum`].
    pub fn sum_together<T: Real>(&mut self, comm: &PartyCommunicator, sums: &mut [Joint<'_, T>]) -> Result<()> {
        self.sum_under(comm, Protection::Masked, sums)
    }

    /// As [`PartySum::sum_together`], with the protection that masked terms have.
    fn sum_under<T: Real>(
        &mut self,
        comm: &PartyCommunicator,
        protection: Protection,
        sums: &mut [Joint<'_, T>],
    ) -> Result<()> {
        let hosted = self.hosted.len();
        let Some(masked) = &mut self.masked else {
            return sums.iter_mut().try_for_each(|Joint { tag, term, out, .. }| {
                Ok(comm.sum_parties(*tag, self.parties, (0..hosted).map(|place| Declared(term(place))), out)?)
            });
        };
        let Some(tag) = sums.first().map(|sum| sum.tag) else { return Ok(()) };
        let (headroom, first, parties) = (masked.headroom, self.hosted.start, self.parties);
        let unit = |expected: f64| {
            let expected = if expected > 0.0 { expected } else { 1.0 };
            FixedPoint::new(ldexp(expected, headroom), parties)
        };
        let length = sums.iter().map(|sum| sum.out.len()).sum();
        let total = masked.sum(comm, (tag, protection), length, |place, words| {
            let mut words = words.iter_mut();
            for sum in sums.iter() {
                let (fixed, values) = (unit(sum.expected), (sum.term)(place));
                assert_eq!(values.len(), sum.out.len(), "length of a term");
                for (x, word) in values.iter().zip(&mut words) {
                    *word = fixed.encode(x.as_f64()).ok_or_else(|| {
                        let share = format!("party {}: its share of '{}'", first + place, sum.tag.kind);
                        if !x.as_f64().is_finite() {
                            return Error::failed(format!(
                                "{share} is not finite, as where a sum that the data need was rounded to 0 in the fixed point of \
                                 --secure-sum; try a --headroom of less than {headroom} bits, and columns of similar size"
                            ));
                        }
                        let more = match headroom as usize {
                            MOST_HEADROOM => String::new(),
                            bits => format!(", or a --headroom of more than {bits} bits (at most {MOST_HEADROOM})"),
                        };
                        Error::failed(format!(
                            "{share} has an entry above what the fixed point of --secure-sum carries, {:e}; try --scale max{more}",
                            fixed.limit()
                        ))
                    })?;
                }
            }
            Ok(())
        })?;
        let mut total = total.iter();
        for sum in sums {
            let fixed = unit(sum.expected);
            sum.out.iter_mut().zip(&mut total).for_each(|(x, t)| *x = T::from_f64(fixed.decode(*t)));
            comm.opened(self::masked(sum.tag), None, sum.out);
        }
        Ok(())
    }

    /// Sums terms that each have their own noise into `out`, in the clear or masked. Collective.
    ///
    /// # Errors
    /// As [`PartySum::sum`].
    pub fn sum_noised<T: Real>(
        &mut self,
        comm: &PartyCommunicator,
        tag: MessageTag,
        expected: f64,
        terms: &[Noised<'_, T>],
        out: &mut [T],
    ) -> Result<()> {
        if self.is_masked() {
            let term = &|place: usize| terms[place].slice();
            return self.sum_under(comm, Protection::MaskedNoised, &mut [Joint { tag, expected, term, out }]);
        }
        Ok(comm.sum_parties(tag, self.parties, terms.iter(), out)?)
    }

    /// Sums terms of `length` words modulo 2⁶⁴. Collective. `fill` overwrites its argument with the term of a hosted party,
    /// given by its place among the hosted ones.
    ///
    /// # Errors
    /// As [`PartySum::sum`], for sums that tolerate dropouts.
    pub fn sum_words(
        &mut self,
        comm: &PartyCommunicator,
        tag: MessageTag,
        length: usize,
        mut fill: impl FnMut(usize, &mut [u64]),
    ) -> Result<Vec<u64>> {
        if let Some(masked) = &mut self.masked {
            let filled = |hosted: usize, words: &mut [u64]| {
                fill(hosted, words);
                Ok(())
            };
            return Ok(masked.sum(comm, (tag, Protection::Masked), length, filled)?.to_vec());
        }
        let (mut total, mut term) = (vec![0u64; length], vec![0; length]);
        for hosted in 0..self.hosted.len() {
            fill(hosted, &mut term);
            total.iter_mut().zip(&term).for_each(|(total, x)| *total = total.wrapping_add(*x));
        }
        comm.sum_of_hosted(tag, self.hosted.len(), DeclaredMut(&mut total));
        Ok(total)
    }

    /// Sums terms of `length` words with shares of noise modulo 2⁶⁴, masked. Collective. `fill` writes the term of a hosted
    /// party, given by its place among the hosted ones.
    ///
    /// # Panics
    /// If sums are in the clear, which would expose the words, or tolerate drop-outs, whose shares of the noise would be
    /// missing.
    pub fn sum_noised_words(
        &mut self,
        comm: &PartyCommunicator,
        tag: MessageTag,
        length: usize,
        mut fill: impl FnMut(usize, &mut [u64]) -> NoiseAdded,
    ) -> &[u64] {
        assert!(self.resilient().is_none(), "--dp with --secure-threshold is refused");
        let masked = self.masked.as_mut().expect("words are summed masked only");
        let filled = |hosted: usize, words: &mut [u64]| {
            let NoiseAdded { .. } = fill(hosted, words);
            Ok(())
        };
        masked.sum(comm, (tag, Protection::MaskedNoised), length, filled).expect("only `fill` can fail")
    }
}
