//! What a joint preparation computes from the rows of all parties: sums over columns, masked where there are several parties.

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{KEYS, PartySum, masked};
use fednmf_comm::{AGREEMENT, CONTROL, Communicator, MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::messages::{HEADERS, NAME_DIGESTS};
use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec, NAMES_IN_THE_CLEAR, Partition};
use fednmf_methods::federated::few_values::EntryFacts;
use fednmf_methods::shared::disclosure::{DisclosureParams, Duration, OpenedSums, PrivatePart, Risk};
use fednmf_privacy::wide;

use super::matrix::Matrix;
use super::read::{COLUMN_NAMES, USED_COLUMNS};
use super::variable::Moments;

pub const CARRIERS: MessageTag = MessageTag::new("rows with an entry in each column", Payload::Product);
const MOMENTS: MessageTag = MessageTag::new("sums and squares of the columns", Payload::Product);

/// What a joint preparation declares, as methods do.
pub static DESCRIPTION: Description = Description {
    name: "prepare",
    summary: "joint preparation of the parties' rows",
    partition: Partition::PartyRows,
    limits: Some([
        "The sums of all parties are known to all; all parties but one, together, know that of the last one.",
        "Two preparations of which one lacks a party tell that party's sums.",
    ]),
    messages: &[
        MessageSpec::control(KEYS, "32 bytes", "once, before the first sum"),
        MessageSpec::new(COLUMN_NAMES, "the name of each column of each party's file", "once, with --all-columns")
            .under(NAMES_IN_THE_CLEAR),
        MessageSpec::new(
            USED_COLUMNS,
            "number and SHA-256 of the names of the columns that all use",
            "once, with --common-columns or --all-columns",
        ),
        MessageSpec::new(masked(CARRIERS), "one for each column", "once"),
        MessageSpec::new(
            masked(MOMENTS),
            "two for each column that enough rows have, and that is still used",
            "once with --variable-columns, twice --variable-by seurat-v3; once with --unit-variance",
        ),
    ],
    ..Description::USUAL
};

/// All that leaves a party.
pub fn messages() -> Vec<&'static MessageSpec> {
    let kinds = [CONTROL.kind, AGREEMENT.kind, HEADERS.kind, NAME_DIGESTS.kind];
    COMMON_MESSAGES.iter().filter(move |w| kinds.contains(&w.kind)).chain(DESCRIPTION.messages).collect()
}

/// Refuses sums over rows that would tell more of a party's rows than its limits allow: `sums` vectors of `length` entries over
/// rows of which each party has as many as `counts` says.
///
/// # Errors
/// Naming the limit.
pub fn check_opened(limits: &DisclosureParams, counts: &[usize], length: usize, sums: usize) -> Result<()> {
    let sums = sums.min(length);
    let summed = counts.iter().filter(|count| **count > 0).count();
    let part = PrivatePart { counts, length, k: sums, masked: true, summed, left: summed, what: "rows", instead: &[] };
    let once = Duration { iterations: 0, eval_every: 0 };
    let Some(found) = limits.check(&part, Some(OpenedSums::AtEvaluations), once) else { return Ok(()) };
    let why = match found.risk {
        Risk::FewRows => format!(
            "a party has fewer rows than --min-rows {}, and others may rebuild them from its sums over columns; unite small \
             parties",
            limits.least(sums)
        ),
        _ => format!(
            "the {sums} sums over columns may tell others whether a row is among the rows that they do not have; at least {} \
             such rows hide it",
            10 * sums
        ),
    };
    Err(Error::input(format!("{why}; --accept-risk {} runs it anyway", found.risk)))
}

/// Refuses rare entries of a party, whose products with its other factor are summed exactly.
///
/// # Errors
/// With the option that leaves them out.
pub fn check_rare(
    limits: &DisclosureParams,
    counts: &[usize],
    length: usize,
    blocks: &[&dyn EntryFacts],
) -> Result<()> {
    let summed = counts.iter().filter(|count| **count > 0).count();
    let part = PrivatePart { counts, length, k: 1, masked: true, summed, left: summed, what: "rows", instead: &[] };
    let found = limits.check_rare(&part, Some(OpenedSums::ExactProducts(2)), blocks);
    found.map_or(Ok(()), |found| Err(Error::input(found.reason)))
}

/// What `of_one` finds in the matrix of each hosted party.
///
/// # Errors
/// On all ranks: only a matrix that is read from its file can fail, and that is of one owner on one rank.
pub fn of_each<T>(own: &[Matrix], of_one: impl Fn(&Matrix) -> Result<T>) -> SharedResult<Vec<T>> {
    own.iter().map(of_one).collect::<Result<_>>().map_err(Error::on_all_ranks)
}

/// Sums over the rows of all parties, the same on any number of ranks.
pub struct ColumnSums {
    comm: PartyCommunicator,
    sums: PartySum,
    /// The number of rows of all parties.
    pub rows: usize,
    columns: usize,
}

impl ColumnSums {
    /// Sums over these parties, whose rows and columns are `(rows, columns)` together. Collective.
    ///
    /// # Errors
    /// On all ranks, if there is no secret randomness for the masks.
    pub fn new(comm: &Communicator, parties: Parties, (rows, columns): (usize, usize)) -> SharedResult<Self> {
        let comm = PartyCommunicator::new(comm.clone());
        // A single owner has nobody to hide from.
        let sums =
            if parties.count > 1 { PartySum::masked(&comm, parties, 0)? } else { PartySum::plain(&comm, parties) };
        Ok(ColumnSums { comm, sums, rows, columns })
    }

    /// The number of rows with an entry in each column; `own` are the matrices of the hosted parties. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read, or the sum fails.
    pub fn carriers(&mut self, own: &[Matrix]) -> SharedResult<Vec<usize>> {
        let own = of_each(own, Matrix::carriers)?;
        let fill = |place: usize, words: &mut [u64]| words.copy_from_slice(&own[place]);
        let total = self.sums.sum_words(&self.comm, CARRIERS, self.columns, fill).map_err(Error::on_all_ranks)?;
        Ok(total.into_iter().map(|count| count as usize).collect())
    }

    /// Sum and sum of squares of each column; `own` are those of the hosted parties. Collective.
    ///
    /// # Errors
    /// On all ranks, if the sum fails.
    pub fn moments(&mut self, own: &[Vec<Moments>], columns: usize) -> SharedResult<Vec<Moments>> {
        // Fixed point would need a bound, which tells of the largest entry.
        let fill = |place: usize, words: &mut [u64]| {
            let numbers = own[place].as_flattened().iter();
            numbers.zip(words.chunks_exact_mut(wide::WORDS)).for_each(|(x, words)| wide::encode(*x, words));
        };
        let length = 2 * columns * wide::WORDS;
        let total = self.sums.sum_words(&self.comm, MOMENTS, length, fill).map_err(Error::on_all_ranks)?;
        let numbers: Vec<f64> = total.chunks_exact(wide::WORDS).map(wide::decode).collect();
        Ok(numbers.as_chunks::<2>().0.to_vec())
    }
}
