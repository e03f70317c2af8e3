//! Parties and the ranks that host them. A rank is a process; a party owns one private block of the data.

use std::ops::Range;

use fednmf_linalg::even_part;

/// Which rank hosts which party: runs of consecutive parties of nearly equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parties {
    /// The number of parties.
    pub count: usize,
    /// The number of ranks.
    pub ranks: usize,
}

impl Parties {
    /// The parties that `rank` hosts. If there are more ranks than parties, the first ranks host none, so that rank 0 is
    /// free to be the server.
    pub fn hosted(&self, rank: usize) -> Range<usize> {
        match rank.checked_sub(self.ranks.saturating_sub(self.count)) {
            Some(host) => even_part(self.count, self.ranks.min(self.count), host),
            None => 0..0,
        }
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
        let few = Parties { count: 2, ranks: 4 };
        assert_eq!([0, 1, 2, 3].map(|rank| few.hosted(rank)), [0..0, 0..0, 0..1, 1..2]);
    }
}
