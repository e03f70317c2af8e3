//! Whether a run would tell more of a party's rows or columns than its parties allow.

use std::ops::Range;

use fednmf_base::error::{Error, Result};
use fednmf_data::Layout;
use fednmf_data::assemble::Entries;
use fednmf_linalg::Real;
use fednmf_methods::federated::few_values::{EntryFacts, ZerosAndOnes};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::shared::disclosure::{Disclosure, DisclosureParams, Duration, PrivatePart};
use fednmf_methods::shared::dp::DpParams;
use fednmf_privacy::sharing::COMPUTING;

use super::plan::Planned;

/// What tells less than the sums of a method.
const ROWS: [&str; 2] = ["noise (--dp)", "--algo mpc-rows, which opens the result only"];
const COLUMNS: [&str; 2] = ["noise (--dp)", "--algo mpc-columns, which opens the result only"];

/// The first risk of a run that its parties do not accept; `None` if there is none, or noise hides what is sent.
pub fn found(method: &dyn ConfiguredMethod, counts: &PrivateCounts, k: usize, run: Duration) -> Option<Disclosure> {
    let params = limits(method)?;
    params.check(&counts.part(method, params, k), method.opened_sums(), run)
}

/// Checks the entries of this rank's parties as they were read, before anything about them is shared.
///
/// # Errors
/// If the run would reveal more about them than its parties allow.
pub fn check_entries<T: Real>(planned: &Planned, blocks: &[Entries<'_, T>]) -> Result<()> {
    let Some(counts) = &planned.private_counts else { return Ok(()) };
    let run = Duration { iterations: planned.spec.max_iters, eval_every: planned.spec.eval_every };
    let binarized = planned.input.binarize.is_some();
    check_blocks(&*planned.method, counts, (planned.spec.k, run), blocks, binarized)
}

/// Why parties that own these blocks of an m × n matrix would refuse the run; `None` if they would not.
pub fn refusal<T: Real>(
    method: &dyn ConfiguredMethod,
    layout: &Layout,
    shape: (usize, usize),
    (k, run): (usize, Duration),
    blocks: &[Entries<'_, T>],
) -> Option<String> {
    let of_columns = matches!(layout, Layout::PartyColumns { .. });
    let lengths: Vec<usize> = blocks.iter().map(|block| block.lines(of_columns)).collect();
    let counts = counts(layout, shape, &lengths)?;
    match found(method, &counts, k, run) {
        Some(found) => Some(found.reason),
        None => check_blocks(method, &counts, (k, run), blocks, false).err().map(|e| e.message),
    }
}

fn check_blocks<T: Real>(
    method: &dyn ConfiguredMethod,
    counts: &PrivateCounts,
    (k, run): (usize, Duration),
    blocks: &[Entries<'_, T>],
    binarized: bool,
) -> Result<()> {
    let Some(params) = limits(method) else { return Ok(()) };
    let zeros_and_ones: Vec<ZerosAndOnes<'_>> = blocks.iter().map(|block| ZerosAndOnes(block)).collect();
    let facts: Vec<&dyn EntryFacts> = match binarized {
        true => zeros_and_ones.iter().map(|block| block as &dyn EntryFacts).collect(),
        false => blocks.iter().map(|block| block as &dyn EntryFacts).collect(),
    };
    let part = counts.part(method, params, k);
    let of_columns = part.what == "columns";
    let own: Vec<(usize, usize)> =
        facts.iter().zip(blocks).map(|(facts, block)| (block.lines(of_columns), facts.distinct(of_columns))).collect();
    let sums = method.opened_sums();
    let found = params
        .check_distinct(&part, sums, run, &own)
        .or_else(|| params.check_values(&part, sums, &own, &facts))
        .or_else(|| params.check_rare(&part, sums, &facts));
    found.map_or(Ok(()), |found| Err(Error::input(found.reason)))?;
    method.check_entries(&part, &facts)
}

fn limits(method: &dyn ConfiguredMethod) -> Option<&DisclosureParams> {
    let groups = method.groups();
    groups.disclosure.filter(|_| !groups.dp.is_some_and(DpParams::is_on))
}

/// The private rows or columns of a run.
pub struct PrivateCounts {
    of_parties: Vec<usize>,
    /// Entries of each.
    length: usize,
    what: &'static str,
}

/// The private rows or columns of an m × n matrix in this layout; `None` if there are none. `files` has those of each `{party}` file,
/// which are the parties' own whatever the layout says.
pub fn counts(layout: &Layout, (m, n): (usize, usize), files: &[usize]) -> Option<PrivateCounts> {
    let cuts = layout.cuts(m, n, None, None);
    let (parts, length, what) = match layout {
        Layout::PartyRows { .. } => (cuts.rows, n, "rows"),
        Layout::PartyColumns { .. } => (cuts.cols, m, "columns"),
        Layout::Grid { .. } | Layout::RowsAndColumns { .. } => return None,
    };
    let of_parties = if files.is_empty() { parts.iter().map(Range::len).collect() } else { files.to_vec() };
    Some(PrivateCounts { of_parties, length, what })
}

impl PrivateCounts {
    fn part(&self, method: &dyn ConfiguredMethod, params: &DisclosureParams, k: usize) -> PrivatePart<'_> {
        let threshold = method.groups().threshold.and_then(|group| group.secure_threshold.as_ref());
        // As many parties as can go on can also unmask any other.
        let unmasked = threshold.is_some_and(|&threshold| params.colluding >= threshold);
        let masked = method.masks_sums() && !unmasked;
        let owners = self.of_parties.iter().filter(|count| **count > 0).count();
        PrivatePart {
            counts: &self.of_parties,
            length: self.length,
            k,
            masked,
            summed: method.participants(owners),
            left: threshold.copied().unwrap_or(owners),
            what: self.what,
            instead: {
                let ways = if self.what == "columns" { &COLUMNS } else { &ROWS };
                let first = usize::from(method.groups().dp.is_none());
                // Two parties have no third one to compute on shares.
                &ways[first..if owners < COMPUTING { 1 } else { 2 }]
            },
        }
    }
}
