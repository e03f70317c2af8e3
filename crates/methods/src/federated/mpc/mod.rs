//! Factorisation on secret shares: `mpc-columns` for private columns, `mpc-rows` for private rows. Three computing parties
//! ([`fednmf_privacy::sharing`]) hold the data, the factors and all intermediate numbers as shares; only the shared factor
//! is opened, once, at the end. Each party then fits its own rows of the other factor to it.
//!
//! Both methods are the same: with private rows, Mᵀ has private columns. The *shared* factor F has a row for each row of M (or,
//! with private rows, for each column). The *private* factor H has a row for each column (or row) of the parties, called an item.
//! [`half`] has the update, [`format`](mod@format) the fixed-point numbers and the proof that they do not overflow.

mod cost;
pub mod format;
mod half;
mod run;

use fednmf_base::error::{Result, SharedResult};
use fednmf_base::parameters::Parameters;
use fednmf_comm::party_sum::{KEYS, masked};
use fednmf_comm::{MessageTag, Payload};
use fednmf_linalg::Real;

use crate::cost::{Cost, Workload};
use crate::description::{Description, DifferentialPrivacy, MessageSpec, Partition};
use crate::method::Method;
use crate::metrics;
use crate::parameters::SecretSource;
use crate::{Algorithm, Problem};

pub use format::Format;
pub use half::{rounds, words};
use run::Private;
pub use run::to_unit_norm;

const PAPER: &str =
    "HALS (Cichocki and Phan 2009) on replicated secret shares (Araki et al. 2016; ABY3, Mohassel and Rindal 2018)";

/// The shares of each party's data.
const INPUT: MessageTag = MessageTag::new("secret shares of the data", Payload::Shares);
/// The messages of all rounds of the computation.
pub const SHARES: MessageTag = MessageTag::new("secret shares", Payload::Shares);
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

/// What the parties keep to themselves.
pub trait Variant: Parameters + Default + Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    const DESCRIPTION: &'static Description;
    const PRIVATE: Private;
}

fednmf_base::parameters! {
    /// Private columns.
    pub struct Columns {}
}

fednmf_base::parameters! {
    /// Private rows.
    pub struct Rows {}
}

fednmf_base::parameters! {
    /// Parameters of HALS on secret shares.
    pub struct Mpc<V: Variant> {
        /// Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for
        /// tests only
        pub secret_seed: SecretSource = SecretSource::OperatingSystem, "N|os";
        group private: V;
    }
}

pub type MpcColumns = Mpc<Columns>;
pub type MpcRows = Mpc<Rows>;

impl Variant for Columns {
    const DESCRIPTION: &'static Description = &describe(
        "mpc-columns",
        "HALS over private columns on secret shares: only U is opened, at the end",
        Partition::PartyColumns,
    );
    const PRIVATE: Private = Private::Columns;
}

impl Variant for Rows {
    const DESCRIPTION: &'static Description = &describe(
        "mpc-rows",
        "HALS over private rows on secret shares: only V is opened, at the end",
        Partition::PartyRows,
    );
    const PRIVATE: Private = Private::Rows;
}

impl<V: Variant> Method for Mpc<V> {
    const DESCRIPTION: &'static Description = V::DESCRIPTION;

    /// Always true: loading and the evaluation at the end sum under masks.
    fn masks_sums(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        cost::of(V::PRIVATE, workload, ranks).map(Some)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        run::build(V::PRIVATE, self.secret_seed, problem)
    }
}
