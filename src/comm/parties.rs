//! Parties and the ranks that host them. A rank is an MPI process; a party owns one private block of the data.

use std::ops::Range;

use crate::linalg::even_part;

/// Which rank hosts which party: runs of consecutive parties, as even as can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parties {
    pub count: usize,
    pub ranks: usize,
}

impl Parties {
    /// The parties that `rank` hosts (none, where there are more ranks than parties).
    pub fn hosted(&self, rank: usize) -> Range<usize> {
        even_part(self.count, self.ranks, rank)
    }

    /// The rank that hosts `party`.
    pub fn host(&self, party: usize) -> usize {
        (0..self.ranks).find(|&r| self.hosted(r).contains(&party)).expect("every party has a host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_a_partition() {
        for (total, parts) in [(10, 3), (2, 5), (0, 2), (7, 7)] {
            let mut next = 0;
            for i in 0..parts {
                let part = even_part(total, parts, i);
                assert_eq!(part.start, next);
                next = part.end;
            }
            assert_eq!(next, total);
        }
        let parties = Parties { count: 7, ranks: 3 };
        assert!((0..7).all(|p| parties.hosted(parties.host(p)).contains(&p)));
    }
}
