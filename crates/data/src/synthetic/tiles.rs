//! The overlapping tiles behind a Boolean synthetic matrix.

use std::ops::Range;

use fednmf_linalg::even_part;
use fednmf_linalg::random::{Purpose, Stream};

use crate::synthetic::spec::{Synthetic, SyntheticKind};

/// The signal of [`SyntheticKind::Tiles`]: without noise and with complete tiles, the matrix has a one where a row and a
/// column share a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlantedTiles {
    /// The tiles of each row, ascending.
    pub rows: Vec<Vec<u32>>,
    /// The tiles of each column, ascending.
    pub cols: Vec<Vec<u32>>,
}

impl PlantedTiles {
    /// The tiles of a synthetic matrix; `None` if it is of another kind.
    pub fn new(spec: &Synthetic) -> Option<Self> {
        (spec.kind == SyntheticKind::Tiles).then(|| PlantedTiles::draw(spec))
    }

    /// Draws tiles as random subsets of 10 to 30 % of the rows and 5 to 20 % of the columns; the rows of a private tile
    /// belong to one client.
    pub(super) fn draw(spec: &Synthetic) -> Self {
        let subset = |among: Range<usize>, purpose: Purpose, tile: usize, least: f64, most: f64| {
            let mut cursor = Stream::new(spec.seed, purpose, tile as u64).at(0);
            let share = least + (most - least) * cursor.uniform();
            let total = among.len();
            let size = ((share * total as f64).round() as usize).max(1).min(total);
            // The first `size` elements of a Fisher–Yates shuffle.
            let mut order: Vec<u32> = among.map(|at| at as u32).collect();
            for at in 0..size {
                order.swap(at, at + cursor.below((total - at) as u64) as usize);
            }
            order.truncate(size);
            order
        };
        let members = |total: usize, purpose: Purpose, least: f64, most: f64| {
            let mut of = vec![Vec::new(); total];
            for tile in 0..spec.k {
                let among = if purpose == Purpose::SyntheticU { PlantedTiles::home(spec, tile) } else { 0..total };
                subset(among, purpose, tile, least, most).into_iter().for_each(|at| of[at as usize].push(tile as u32));
            }
            of
        };
        PlantedTiles {
            rows: members(spec.m, Purpose::SyntheticU, 0.1, 0.3),
            cols: members(spec.n, Purpose::SyntheticV, 0.05, 0.2),
        }
    }

    /// The rows that a tile may have: all, or those of one client.
    fn home(spec: &Synthetic, tile: usize) -> Range<usize> {
        let mut cursor = Stream::new(spec.seed, Purpose::SyntheticPattern, tile as u64).at(0);
        if cursor.uniform() < spec.private {
            even_part(spec.m, spec.clients, cursor.below(spec.clients as u64) as usize)
        } else {
            0..spec.m
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_tiles_stay_with_one_client() {
        let spec = Synthetic::parse("tiles,m=60,n=40,k=8,clients=3,private=1").unwrap();
        let tiles = PlantedTiles::new(&spec).unwrap();
        let mut homes = vec![None; 8];
        for (i, of) in tiles.rows.iter().enumerate() {
            for &t in of {
                assert_eq!(*homes[t as usize].get_or_insert(i / 20), i / 20);
            }
        }
        let mut all: Vec<usize> = homes.into_iter().flatten().collect();
        assert_eq!(all.len(), 8, "every tile has rows");
        all.dedup();
        assert!(all.len() > 1, "several clients have tiles");
    }
}
