//! Factorisation with missing entries (`--missing`, `--holdout`): min Σ (m_ij − u_i·v_j)² over the observed (i, j), U, V ≥
//! 0, plus penalties; or the minimum of the Kullback-Leibler divergence on the observed entries.
//!
//! The exact distributed methods solve each row on its observed entries (`masked`). Methods that step on a Gram matrix of
//! all rows use completed data (`completed`, or `sampled` if a sketch selects rows or columns).

mod completed;
mod divergence;
mod lists;
mod masked;
mod observed;
mod party_rows;
mod sampled;
mod separated;
mod step;

use fednmf_base::error::{Error, Result};
use fednmf_comm::{MessageTag, Payload};
use fednmf_linalg::sketch::SketchKind;
use fednmf_linalg::{Block, Real};
use fednmf_privacy::Private;

use crate::description::MessageSpec;
use crate::parameters::{Missing, number};

pub use completed::{MissingEntries, Side};
pub use lists::{Counted, Holdout, Listed};
pub use masked::build;
pub use observed::{Fit, Observed, held_out_positions};
pub use party_rows::ObservedRows;
pub use sampled::SampledMissing;
pub use separated::{Separated, Tally};
pub use step::UpdateKind;

pub const HELD: MessageTag = MessageTag::of_evaluation("evaluation: errors held out", Payload::Scalar);

/// Messages in addition to those of the exact methods.
pub const MESSAGES: MessageSpec =
    MessageSpec::new(HELD, "1, with a divergence 2", "each evaluation, with --missing or --holdout");

fednmf_base::parameters! {
    /// Missing and held-out entries.
    pub struct MissingParams {
        /// Missing entries. none. nan: entries that are NaN. zero-unobserved: zeros, also those that the file stores; only nonzeros
        /// count. A file: a matrix of the same shape whose nonzeros mark the missing entries; what the data have there is held out.
        /// The work grows with the nonzeros and the missing entries; with zero-unobserved, with the observed ones
        pub missing: Missing = Missing::None, "WHICH";
        /// Hold out this share of the observed entries, drawn by the seed, and report the error on them: heldout_rmse, or
        /// heldout_kl_divergence too. Of sparse data at most about as many are held out as there are nonzeros
        pub holdout: f64 = 0.0, "SHARE", number(0.0, 0.9);
    }
}

impl MissingParams {
    /// Whether some entries are excluded.
    pub fn any(&self) -> bool {
        self.missing != Missing::None || self.holdout > 0.0
    }
}

fednmf_base::parameters! {
    /// Missing entries of data that parties keep to themselves. A file of marks, and held-out entries whose error all would have
    /// to add up, are left to the methods that split one matrix.
    pub struct PartyMissingParams {
        /// Missing entries: nan (NaN), or zero-unobserved (zeros, also those that a file stores: only nonzeros count). A party
        /// completes its own data by its factors before each step, and releases what it would release of complete data; fed-kl sums
        /// over the observed entries instead
        pub missing: PartyMissing = PartyMissing::None, "WHICH";
    }
}

impl PartyMissingParams {
    /// Whether entries may be missing.
    pub fn any(&self) -> bool {
        self.missing != PartyMissing::None
    }
}

fednmf_base::parameters! {
    /// Held-out entries of data that parties keep to themselves.
    pub struct PartyHoldoutParams {
        /// Each party holds out this share of its observed entries, drawn by the seed (of sparse data all together at most about as
        /// many as there are nonzeros); heldout_rmse and heldout_kl_divergence are the errors on those of all parties
        pub holdout: f64 = 0.0, "SHARE", number(0.0, 0.9);
    }
}

fednmf_base::words! {
    /// Which entries of a party's data are missing.
    pub enum PartyMissing {
        None = "none",
        /// NaN
        Nan = "nan",
        /// Zeros, stored or not: only nonzeros count
        ZeroUnobserved = "zero-unobserved",
    }
}

impl PartyMissing {
    /// A party's block with zeros at missing entries, and their positions, for factors with k columns; `None` instead of
    /// the positions if all entries are observed.
    pub fn separate<T: Real>(self, block: Block<T>, k: usize) -> (Block<T>, Option<Private<MissingEntries<T>>>) {
        if self == PartyMissing::None {
            return (block, None);
        }
        let (block, gaps) = MissingEntries::take(block, self == PartyMissing::ZeroUnobserved, k);
        (block, Some(Private::new(gaps)))
    }
}

/// Refuses sketches that mix entries; `instead` names those that do not.
///
/// # Errors
/// If the sketch mixes entries; the message names it.
pub fn check_sketch(kind: SketchKind, instead: &str) -> Result<()> {
    if kind.picks() {
        return Ok(());
    }
    Err(Error::input(format!(
        "--sketch {}: it mixes missing entries with observed ones, and nothing takes them apart again; with missing entries \
         use --sketch {instead}",
        kind.name()
    )))
}
