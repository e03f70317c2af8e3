//! `--missing FILE`: the nonzeros of the file mark missing entries; each mark goes to the ranks that own its row and its
//! column.

use std::ops::Range;

use crate::algorithms::algorithm::Places;
use crate::comm::{Communicator, MessageTag, Payload};
use crate::data;
use crate::data::{Cuts, InputSpec, Layout};
use crate::error::{Error, Result};
use crate::linalg::Block;

const PLACES: MessageTag = MessageTag::new("places of missing entries", Payload::Data);

/// Positions of the nonzeros of the file, a matrix of the data's shape (m × n), in this rank's rows and columns.
/// Collective.
///
/// # Errors
/// The same on all ranks, if the file cannot be read or has another shape.
pub fn read(path: &str, (m, n): (usize, usize), cuts: &Cuts, comm: &Communicator) -> Result<Places> {
    let at = |e: Error| e.at("--missing").on_all_ranks();
    let mut spec = InputSpec::parse(path).map_err(at)?;
    spec.allow_negative = true;
    let input = data::open(&spec, comm).map_err(at)?;
    let (rows, cols) = (input.header().rows, input.header().cols);
    if (rows, cols) != (m, n) {
        return Err(at(Error::input(format!(
            "{path}: is {rows} x {cols}, but the data {m} x {n}; it marks the missing entries of a matrix of the same shape"
        ))));
    }
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = input.load::<f32>(&plan, comm, &mut |_| ()).map_err(at)?;
    let first = loaded.cuts.rows[comm.rank()].start;
    // For each rank, pairs of row and column.
    let mut outgoing = [vec![Vec::<u64>::new(); comm.size()], vec![Vec::new(); comm.size()]];
    let mut mark = |i: usize, j: usize| {
        for (by_rank, (cuts, x)) in outgoing.iter_mut().zip([(&cuts.rows, i), (&cuts.cols, j)]) {
            if let Some(pairs) = owner(cuts, x).and_then(|rank| by_rank.get_mut(rank)) {
                pairs.extend([i as u64, j as u64]);
            }
        }
    };
    match loaded.blocks.first() {
        Some(Block::Dense(x)) => {
            x.indexed_iter().filter(|(_, x)| **x != 0.0).for_each(|((a, j), _)| mark(first + a, j))
        }
        Some(Block::Sparse(x)) => {
            for (a, row) in x.matrix().outer_iterator().enumerate() {
                row.iter().filter(|(_, x)| **x != 0.0).for_each(|(j, _)| mark(first + a, j));
            }
        }
        _ => {}
    }
    let [rows, cols] = outgoing.map(|by_rank| {
        let flat = comm.all_to_all(PLACES, &by_rank);
        flat.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect()
    });
    Ok(Places { rows, cols })
}

/// The rank whose part contains x. Parts ascend and may be empty.
fn owner(cuts: &[Range<usize>], x: usize) -> Option<usize> {
    let at = cuts.partition_point(|part| part.end <= x);
    cuts.get(at).filter(|part| part.contains(&x)).map(|_| at)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn every_position_has_one_owner() {
        let cuts = [0..3, 3..3, 3..7, 7..7];
        assert_eq!([0, 2, 3, 6].map(|x| owner(&cuts, x)), [Some(0), Some(0), Some(2), Some(2)]);
        assert_eq!(owner(&cuts, 7), None);
    }
}
