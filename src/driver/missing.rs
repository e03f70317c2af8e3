//! `--missing FILE`: the places that a matrix of marks names, brought to the ranks that have them.

use std::ops::Range;

use crate::algorithms::shared::missing::Places;
use crate::comm::{Communicator, MessageTag, Payload};
use crate::data;
use crate::data::{Cuts, InputSpec, Layout};
use crate::error::{Error, Result};
use crate::linalg::Block;

const PLACES: MessageTag = MessageTag::new("places of missing entries", Payload::Data);

/// The nonzeros of the file, a matrix of the data's shape, for this rank's rows and columns. Collective.
///
/// # Errors
/// The same on all ranks, when the file cannot be read or is of another shape.
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
    let mut hands = [vec![Vec::<u64>::new(); comm.size()], vec![Vec::new(); comm.size()]];
    let mut give = |i: usize, j: usize| {
        for (hands, (cuts, x)) in hands.iter_mut().zip([(&cuts.rows, i), (&cuts.cols, j)]) {
            if let Some(hand) = owner(cuts, x).and_then(|rank| hands.get_mut(rank)) {
                hand.extend([i as u64, j as u64]);
            }
        }
    };
    match loaded.blocks.first() {
        Some(Block::Dense(x)) => {
            x.indexed_iter().filter(|(_, x)| **x != 0.0).for_each(|((a, j), _)| give(first + a, j))
        }
        Some(Block::Sparse(x)) => {
            for (a, row) in x.matrix().outer_iterator().enumerate() {
                row.iter().filter(|(_, x)| **x != 0.0).for_each(|(j, _)| give(first + a, j));
            }
        }
        _ => {}
    }
    let [rows, cols] = hands.map(|hands| {
        let flat = comm.all_to_all(PLACES, &hands);
        flat.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect()
    });
    Ok(Places { rows, cols })
}

/// The rank whose part has x; parts ascend, and may be empty.
fn owner(cuts: &[Range<usize>], x: usize) -> Option<usize> {
    let at = cuts.partition_point(|part| part.end <= x);
    cuts.get(at).filter(|part| part.contains(&x)).map(|_| at)
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn every_place_has_its_owner() {
        let cuts = [0..3, 3..3, 3..7, 7..7];
        assert_eq!([0, 2, 3, 6].map(|x| owner(&cuts, x)), [Some(0), Some(0), Some(2), Some(2)]);
        assert_eq!(owner(&cuts, 7), None);
    }
}
