//! Sums over parties, in the clear or masked: the parameters, and the sum that they select.

use std::ops::Range;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{ANSWERS, MOST_HEADROOM, PartySum, ROUND_KEYS, SEALED_SHARES};
use fednmf_comm::{MessageTag, Parties, PartyCommunicator};
use fednmf_privacy::dropout;

use crate::cost::{Cost, Message};
use crate::description::MessageSpec;
use crate::parameters::{OrNone, count, count_to, or_none};
use crate::shared::disclosure::DisclosureParams;

fednmf_base::parameters! {
    /// Whether sums over parties are masked.
    pub struct SecureSumParams {
        /// Mask every party's term of a sum, so that only the sum is seen: keys by X25519, masks by ChaCha20, in 64-bit fixed
        /// point
        pub secure_sum: bool;
        /// Room of --secure-sum above the expected size of a sum's entries, in bits, at most 32. A sum that does not fit ends the
        /// run, and each further bit costs one bit of precision
        #[needs(secure_sum: "is the room of masked sums; add --secure-sum")]
        pub headroom: usize = 16, "BITS", count_to(1, MOST_HEADROOM);
        group disclosure: DisclosureParams;
    }
}

impl SecureSumParams {
    /// Adds the cost of `sums`, each over the same parties, with as many words of `word` bytes, and `times` times per
    /// iteration. Masked sums are one message under the name of the first.
    pub fn add_cost(
        &self,
        threshold: Option<&ThresholdParams>,
        cost: &mut Cost,
        (ranks, parties): (usize, usize),
        sums: &[(MessageTag, usize)],
        (word, times): (usize, u64),
    ) {
        let (true, Some((first, _))) = (self.secure_sum, sums.first()) else {
            for (tag, words) in sums {
                cost.messages.push(Message::party_sum(tag.kind, (ranks, parties), *words, word, times));
            }
            return;
        };
        cost.caveat("the masks of --secure-sum are not in the flops and the time");
        let mut words = sums.iter().map(|(_, words)| words).sum();
        if threshold.is_some_and(|threshold| threshold.secure_threshold.as_ref().is_some()) {
            let flagged = |bytes: usize| parties * bytes;
            let keys = Message::gathered(ROUND_KEYS.kind, (ranks, parties), flagged(1 + dropout::ROUND_KEYS), times);
            let answers =
                Message::gathered(ANSWERS.kind, (ranks, parties), flagged(8 * (1 + dropout::SHARE * parties)), times);
            // A flag from each party to each rank, and a share to each party; before that, the ranks agree on the maximum
            // length.
            let bytes = flagged(ranks + dropout::SEALED * parties);
            let alone = ranks == 1;
            let shares = Message {
                kind: SEALED_SHARES.kind,
                vector: (bytes / ranks) as f64,
                mpi_bytes: if alone { 0 } else { times * (2 * bytes) as u64 },
                messages: if alone { 0 } else { times * (2 * ranks) as u64 },
                party_bytes: times * (2 * dropout::SEALED * parties * (parties - 1)) as u64,
                ..keys
            };
            [keys, shares, answers].into_iter().for_each(|message| cost.add_message(message));
            // One flag for each party is summed too.
            words += parties;
        }
        cost.messages.push(Message::masked_sum(first.kind, (ranks, parties), words, times));
    }
}

fednmf_base::parameters! {
    /// Whether sums over parties survive drop-outs.
    pub struct ThresholdParams {
        /// With --secure-sum: sums continue without parties that drop out while at least T remain, by secret shares for
        /// each sum (Bonawitz et al.). T parties together can then uncover any other, and T is at least 3, since two read each
        /// other's terms. A site of 'fednmf join' that is gone has dropped out; a rank of MPI that dies ends the run all the same
        pub secure_threshold: OrNone<usize> = OrNone::None, "T|none", or_none(count(3));
    }
}

impl ThresholdParams {
    /// Checks these parameters.
    ///
    /// # Errors
    /// If a threshold is given without `--secure-sum`, or with `--dp`.
    pub fn check(&self, sum: &SecureSumParams, dp: bool) -> Result<()> {
        if self.secure_threshold.as_ref().is_none() {
            return Ok(());
        }
        if !sum.secure_sum {
            return Err(Error::input("--secure-threshold: applies to masked sums; add --secure-sum"));
        }
        if dp {
            return Err(Error::input(
                "--secure-threshold: parties that vanish take their share of the noise along; omit it or --dp",
            ));
        }
        Ok(())
    }
}

/// What a party sends in addition to its masked values if sums survive drop-outs.
pub const SURVIVING: [MessageSpec; 3] = [
    MessageSpec::control(ROUND_KEYS, "64 bytes", "each sum, with --secure-threshold"),
    MessageSpec::new(SEALED_SHARES, "80 bytes for each other party", "each sum, with --secure-threshold"),
    MessageSpec::control(ANSWERS, "40 bytes for each party", "each sum, with --secure-threshold"),
];

/// The requested kind of sum. Where parties may drop out, with the rows or columns of each. Collective.
///
/// # Errors
/// As [`PartySum::masked`].
pub fn party_sum(
    comm: &PartyCommunicator,
    parties: Parties,
    args: &SecureSumParams,
    threshold: Option<(&ThresholdParams, &[Range<usize>])>,
) -> SharedResult<PartySum> {
    if !args.secure_sum {
        return Ok(PartySum::plain(comm, parties));
    }
    match threshold.and_then(|(args, sizes)| Some((*args.secure_threshold.as_ref()?, sizes))) {
        Some((threshold, sizes)) => PartySum::dropout_resilient(comm, parties, args.headroom, threshold, sizes),
        None => PartySum::masked(comm, parties, args.headroom),
    }
}
