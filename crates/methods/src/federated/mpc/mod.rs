//! Factorisation on secret shares: `mpc-columns` for private columns, `mpc-rows` for private rows. Three computing parties
//! ([`fednmf_privacy::sharing`]) hold the data, the factors and all intermediate numbers as shares; only the shared factor
//! is opened, once, at the end. Each party then fits its own rows of the other factor to it.
//!
//! Both methods are the same: with private rows, Mᵀ has private columns. The *shared* factor F has a row for each row of M (or,
//! with private rows, for each column). The *private* factor H has a row for each column (or row) of the parties, called an item.
//! [`half`] has the update, [`format`](mod@format) the fixed-point numbers and the proof that they do not overflow.

pub mod format;
mod half;
mod run;

use fednmf_base::error::Result;
use fednmf_comm::party_sum::{KEYS, masked};
use fednmf_comm::{MessageTag, Payload};
use fednmf_linalg::Real;

use crate::description::{Description, DifferentialPrivacy, MessageSpec, Partition};
use crate::method::Method;
use crate::metrics;
use crate::parameters::SecretSource;
use crate::{Algorithm, Problem};

pub use half::{rounds, words};

const PAPER: &str =
    "HALS (Cichocki and Phan 2009) on replicated secret shares (Araki et al. 2016; ABY3, Mohassel and Rindal 2018)";

/// The shares of each party's data.
const INPUT: MessageTag = MessageTag::new("secret shares of the data", Payload::Shares);
/// The messages of all rounds of the computation.
const SHARES: MessageTag = MessageTag::new("secret shares", Payload::Shares);
/// The result.
const OPENED: MessageTag = MessageTag::new("shared factor, opened", Payload::SharedFactor);

const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(
        INPUT,
        "2 words for each entry, of each party to the computing ones; keys of 4 words",
        "once, before the first iteration",
    ),
    MessageSpec::new(SHARES, "by a formula, see the method's page", "each iteration; the keys before the first one"),
    MessageSpec::new(OPENED, "the entries of the shared factor", "once, at the end").always_shown(),
    MessageSpec::new(masked(metrics::RESIDUAL), "1", "once, at the end, unless --eval-every 0"),
    MessageSpec::control(KEYS, "32 bytes", "once, before the first iteration"),
];

const LIMITS: [&str; 2] = [
    "Two of the first three parties together see everything, and one that does not follow the protocol may spoil the result.",
    "What the shared factor and the error at the end reveal about the data is not bounded.",
];

const fn describe(name: &'static str, summary: &'static str, partition: Partition) -> Description {
    Description {
        name,
        summary,
        paper: PAPER,
        partition,
        on_shares: true,
        dp: DifferentialPrivacy::Refused("only the result is opened, and noise on it is not implemented"),
        limits: Some(LIMITS),
        messages: MESSAGES,
        ..Description::USUAL
    }
}

fednmf_base::parameters! {
    /// Parameters of HALS on secret shares of private columns.
    pub struct MpcColumns {
        /// Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for
        /// tests only
        pub secret_seed: SecretSource = SecretSource::OperatingSystem, "N|os";
    }
}

fednmf_base::parameters! {
    /// Parameters of HALS on secret shares of private rows.
    pub struct MpcRows {
        /// Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for
        /// tests only
        pub secret_seed: SecretSource = SecretSource::OperatingSystem, "N|os";
    }
}

impl Method for MpcColumns {
    const DESCRIPTION: &'static Description = &describe(
        "mpc-columns",
        "HALS over private columns on secret shares: only U is opened, at the end",
        Partition::PartyColumns,
    );

    /// Always true: loading and the evaluation at the end sum under masks.
    fn masks_sums(&self) -> bool {
        true
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        run::build(run::Private::Columns, self.secret_seed, problem)
    }
}

impl Method for MpcRows {
    const DESCRIPTION: &'static Description = &describe(
        "mpc-rows",
        "HALS over private rows on secret shares: only V is opened, at the end",
        Partition::PartyRows,
    );

    /// As in [`MpcColumns`].
    fn masks_sums(&self) -> bool {
        true
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        run::build(run::Private::Rows, self.secret_seed, problem)
    }
}
