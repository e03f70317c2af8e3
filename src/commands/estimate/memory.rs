//! Memory that the formulas of the methods do not cover: a lower bound from the layout of the data for methods without
//! a formula, and the memory of runs that read rows from the file in each pass.

use fednmf_files::PANELS;
use fednmf_methods::cost::{Cost, Workload};
use fednmf_methods::description::Partition;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::shared::grid;

/// A cost that has only memory, on the rank that has most: its blocks, the rows of factors that it or its parties own, and
/// the other factor whole where the method needs it.
pub fn least(partition: Partition, workload: &Workload, ranks: usize) -> Cost {
    let Workload { m, n, k, .. } = *workload;
    let (parties, hosted) = workload.parties(ranks);
    let (data, rows) = match partition {
        Partition::Grid => {
            let (pr, pc) = grid::fewest_words(m, n, ranks);
            let (rows, cols) = (m.div_ceil(pr), n.div_ceil(pc));
            (workload.block(rows, workload.part(rows, cols)), rows + cols)
        }
        Partition::Rows => {
            let rows = m.div_ceil(ranks);
            (workload.block(rows, workload.part(rows, n)), rows + n)
        }
        Partition::RowsAndColumns => {
            let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
            let data = workload.block(rows, workload.part(rows, n)) + workload.block(cols, workload.part(m, cols));
            (data, rows + cols + m + n)
        }
        Partition::Symmetric => {
            let cols = n.div_ceil(ranks);
            (workload.block(m, workload.part(m, cols)), 2 * (cols + n))
        }
        Partition::PartyRows => {
            let rows = m.div_ceil(parties) * hosted;
            (workload.block(rows, workload.part(rows, n)), rows + n * hosted)
        }
        Partition::PartyColumns => {
            let cols = n.div_ceil(parties) * hosted;
            (workload.block(m * hosted, workload.part(m, cols)), cols + m * hosted)
        }
    };
    Cost { data, factors: workload.bytes(rows * k), ..Cost::default() }
}

/// The minimum number of bytes of a rank that reads its rows from the file in each pass, one at a time; files whose rows are
/// unpacked together need more. `None` if the method needs its data in memory.
pub fn streamed(method: &dyn ConfiguredMethod, workload: &Workload, ranks: usize) -> Option<f64> {
    let cost = method.streamed_cost(workload, ranks)?;
    let row = workload.block(1, workload.part(1, workload.n));
    // All ranks keep the offset of each row.
    let starts = if workload.sparse { 8.0 * (workload.m + 1) as f64 } else { 0.0 };
    Some(cost.factors.max(cost.start) + PANELS * row + starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_holds_its_parties_and_their_factors() {
        let dense =
            Workload { m: 100, n: 40, stored: 4000.0, sparse: false, k: 3, parties: Some(4), word: 8, traffic: None };
        let of = |partition, ranks| {
            let cost = least(partition, &dense, ranks);
            (cost.data, cost.factors)
        };
        let bytes = |words: usize| (8 * words) as f64;
        assert_eq!(of(Partition::PartyColumns, 4), (bytes(1000), bytes(3 * 110)));
        assert_eq!(of(Partition::PartyColumns, 2), (bytes(2000), bytes(3 * 220)));
        assert_eq!(of(Partition::PartyRows, 1), (bytes(4000), bytes(3 * (100 + 4 * 40))));
        assert_eq!(of(Partition::RowsAndColumns, 2), (bytes(4000), bytes(3 * (70 + 140))));
        assert_eq!(of(Partition::Grid, 1), (bytes(4000), bytes(3 * 140)));
    }
}
