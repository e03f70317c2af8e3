//! Statistics of the whole matrix, with the same bits on any number of ranks: sums are taken in fixed point, 61 bits below
//! the largest entry, so their order does not matter. For private data each party computes its own statistics, and only
//! their sums over all parties are shared, masked if other sums are, or not at all ([`Sharing`]).

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{Communicator, Parties, PartyCommunicator};
use fednmf_linalg::Real;
use fednmf_privacy::wide;

use crate::assemble::{Entries, LocalBlock};
use crate::ends::{Ends, NO_ENDS, joined, largest_magnitude, widened};
use crate::layout::Tile;
use crate::messages::{LARGEST_ENTRY, STATISTICS};
use crate::tally::Tally;
use crate::totals::Totals;

/// Statistics of the whole matrix, with the same bits on any number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// Number of nonzero entries.
    pub nonzeros: u64,
    /// Number of missing entries (NaN); 0 for data of parties.
    pub missing: u64,
    pub sum: f64,
    /// ‖M‖_F²
    pub norm2: f64,
    /// The smallest and the largest entry that is not missing, NaN if there is none. For private data, only over the parties
    /// that this rank hosts; never sent.
    pub min: f64,
    pub max: f64,
    /// Wrapping sum over the nonzeros of a hash of (row, column, value as f64): equal for the same matrix in any
    /// format, dense or sparse, in any order. 0 for data of parties, whose fingerprints are never sent
    /// ([`Statistics::of_parties`]).
    pub checksum: u64,
}

/// How parties share the sums, norms and counts of their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Clear,
    Masked,
    /// Not at all. [`Statistics`] are then those of a matrix of ones, so that what follows from them is public.
    Nothing,
}

/// The largest stored value in the blocks of all ranks; each of the `hosted` parties, or else the rank, sends its own. Collective.
pub fn largest<T: Real>(comm: &Communicator, blocks: &[LocalBlock<T>], hosted: usize) -> f64 {
    let [most, _] = blocks.iter().fold(NO_ENDS, |ends, block| widened(ends, block.values()));
    let mut most = [most];
    comm.max_of_hosted(LARGEST_ENTRY, hosted, &mut most);
    most[0]
}

/// The magnitude by which sums are scaled.
///
/// # Errors
/// If its square, with a margin for rounding errors, exceeds the range of f64; `what` names the number in the message.
fn magnitude(ends: Ends, what: impl Fn(f64) -> String) -> Result<f64> {
    let largest = largest_magnitude(ends);
    if (largest * largest * 4.0).is_finite() {
        return Ok(largest);
    }
    Err(Error::input(format!(
        "{} whose square is beyond the range of numbers; divide the data first (--scale max)",
        what(largest)
    )))
}

/// The magnitude by which sums over a public matrix are scaled.
fn largest_of_all(ends: Ends) -> SharedResult<f64> {
    magnitude(ends, |largest| format!("the largest entry is {largest:e},")).map_err(Error::on_all_ranks)
}

/// Completes the tallies of blocks, and returns the ends of all their values.
fn completed<T: Real>(blocks: &[LocalBlock<T>], tallies: &mut [Tally]) -> Ends {
    blocks.iter().zip(tallies).fold(NO_ENDS, |ends, (block, tally)| {
        tally.complete(block.entries());
        joined(ends, tally.ends())
    })
}

impl Statistics {
    /// The statistics of an m × n matrix from blocks that cover it once, and a fingerprint of each block. The tallies may
    /// already contain parts of the blocks. Collective.
    ///
    /// # Errors
    /// If the entries are too large to be squared and added up.
    pub fn compute<T: Real>(
        comm: &Communicator,
        blocks: &[LocalBlock<T>],
        mut tallies: Vec<Tally>,
        shape: (usize, usize),
    ) -> SharedResult<(Statistics, Vec<u64>)> {
        let mut ends = completed(blocks, &mut tallies);
        comm.max(STATISTICS, &mut ends);
        let largest = largest_of_all(ends)?;
        let mut totals = Totals::new(largest);
        let own = blocks.iter().zip(tallies).map(|(block, tally)| tally.finish(block.entries(), largest));
        let fingerprints = own.map(|own| {
            totals.merge(&own);
            own.checksum
        });
        let fingerprints = fingerprints.collect();
        Ok((Statistics::total::<T>(comm, &totals, ends, shape)?, fingerprints))
    }

    /// As [`Statistics::compute`], for a streamed matrix, which is read twice: `pass` calls its argument with each panel of
    /// this rank and the panel's tile. Collective.
    ///
    /// # Errors
    /// As [`Statistics::compute`], and if a pass fails.
    pub fn of_passes<T: Real>(
        comm: &Communicator,
        shape: (usize, usize),
        mut pass: impl FnMut(&mut dyn FnMut(Entries<'_, T>, &Tile)) -> SharedResult<()>,
    ) -> SharedResult<Statistics> {
        let mut ends = NO_ENDS;
        pass(&mut |entries, _| ends = widened(ends, entries.values()))?;
        comm.max(STATISTICS, &mut ends);
        let mut totals = Totals::new(largest_of_all(ends)?);
        pass(&mut |entries, tile| {
            totals.add(entries, 0..entries.values().len(), tile);
        })?;
        Statistics::total::<T>(comm, &totals, ends, shape)
    }

    /// The statistics from this rank's totals and the ends of all values. Collective.
    fn total<T: Real>(
        comm: &Communicator,
        totals: &Totals,
        ends: Ends,
        shape: (usize, usize),
    ) -> SharedResult<Statistics> {
        let mut limbs = [totals.sum.limbs(), totals.norm2.limbs()].concat();
        // Two's complement: a sum modulo 2⁶⁴ is that of the signed numbers.
        comm.sum(STATISTICS, bytemuck::cast_slice_mut::<i64, u64>(&mut limbs));
        let mut counts = [totals.nonzeros, totals.checksum, totals.missing];
        comm.sum(STATISTICS, &mut counts);
        let (sum, norm2) = (totals.sum.value(&limbs[..4]), totals.norm2.value(&limbs[4..]));
        let [nonzeros, checksum, missing] = counts;
        let figures = Statistics { nonzeros, missing, sum, norm2, min: 0.0, max: 0.0, checksum };
        figures.with_range(ends, shape).checked::<T>()
    }

    /// As [`Statistics::compute`], for one block of each hosted party. Parties share only the totals of their sums, norms
    /// and counts, as `sharing` says. No fingerprint leaves its rank: an attacker who knows all other entries could find
    /// the missing one by trial. Collective.
    ///
    /// # Errors
    /// On all ranks, as [`Statistics::compute`]; if there is no secret randomness for the masks.
    pub fn of_parties<T: Real>(
        comm: &Communicator,
        (parties, sharing): (Parties, Sharing),
        blocks: &[LocalBlock<T>],
        mut tallies: Vec<Tally>,
        shape: (usize, usize),
    ) -> SharedResult<(Statistics, Vec<u64>)> {
        let ends = completed(blocks, &mut tallies);
        let hosted = parties.hosted(comm.rank());
        let own = hosted.zip(blocks).zip(tallies).map(|((party, block), tally)| {
            let largest = magnitude(tally.ends(), |_| format!("party {party} has an entry"))?;
            Ok(tally.finish(block.entries(), largest))
        });
        let own = comm.agree_on_error(own.collect::<Result<Vec<Totals>>>())?;
        let fingerprints = own.iter().map(|totals| totals.checksum).collect();
        if sharing == Sharing::Nothing {
            let entries = shape.0 as u64 * shape.1 as u64;
            let (sum, norm2) = (entries as f64, entries as f64);
            let of_ones = Statistics { nonzeros: entries, missing: 0, sum, norm2, min: 0.0, max: 0.0, checksum: 0 };
            return Ok((of_ones.with_range(ends, shape), fingerprints));
        }
        let parties_only = PartyCommunicator::new(comm.clone());
        // A single party has no other party to hide its statistics from.
        let mut sums = if sharing == Sharing::Masked && parties.count > 1 {
            PartySum::masked(&parties_only, parties, 0)?
        } else {
            PartySum::plain(&parties_only, parties)
        };
        // Each term is rounded to f64, so that the sum reveals no further digits of it.
        let total = sums.sum_words(&parties_only, STATISTICS, 2 * wide::WORDS + 1, |place, words| {
            let Totals { sum, norm2, nonzeros, .. } = &own[place];
            let (first, rest) = words.split_at_mut(wide::WORDS);
            wide::encode(sum.value(&sum.limbs()), first);
            wide::encode(norm2.value(&norm2.limbs()), &mut rest[..wide::WORDS]);
            rest[wide::WORDS] = *nonzeros;
        });
        // Only a sum that tolerates drop-outs can fail on one rank.
        let total = total.map_err(Error::on_all_ranks)?;
        let [sum, norm2] = [0, wide::WORDS].map(|at| wide::decode(&total[at..at + wide::WORDS]));
        let nonzeros = total[2 * wide::WORDS];
        let figures = Statistics { nonzeros, missing: 0, sum, norm2, min: 0.0, max: 0.0, checksum: 0 };
        Ok((figures.with_range(ends, shape).checked::<T>()?, fingerprints))
    }

    /// Sets the range, from the ends of the stored entries and the zeros that are not stored.
    fn with_range(self, [max, least]: Ends, (m, n): (usize, usize)) -> Self {
        let observed = (m as u128 * n as u128).saturating_sub(self.missing.into());
        let (min, max) = match u128::from(self.nonzeros) {
            _ if observed == 0 => (f64::NAN, f64::NAN),
            nonzeros if nonzeros < observed => ((-least).min(0.0), max.max(0.0)),
            _ => (-least, max),
        };
        Statistics { min, max, ..self }
    }

    /// Checks that ‖M‖_F² is finite in the precision of the run; products of factors and data are about as large.
    fn checked<T: Real>(self) -> SharedResult<Self> {
        if T::from_f64(self.norm2) < T::infinity() {
            return Ok(self);
        }
        let precision = if T::NAME == f32::NAME { ", or use --precision f64" } else { "" };
        Err(Error::input(format!(
            "the sum of the squared entries exceeds the range of {}; divide the data first (--scale max){precision}",
            T::NAME
        ))
        .on_all_ranks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_must_fit_the_precision() {
        let with =
            |norm2: f64| Statistics { nonzeros: 1, missing: 0, sum: 1.0, norm2, min: 0.0, max: 1.0, checksum: 0 };
        assert!(with(1e38).checked::<f32>().is_ok() && with(1e39).checked::<f64>().is_ok());
        assert!(with(1e39).checked::<f32>().unwrap_err().message.contains("--precision f64"));
        assert!(with(f64::INFINITY).checked::<f64>().unwrap_err().message.contains("range of f64"));
    }
}
