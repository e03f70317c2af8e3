//! Two sums of the same values over sets of parties that differ by one: the difference is that party's term.

use std::collections::BTreeSet;

/// The properties of a sum that the search needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    pub kind: String,
    /// Number of complete iterations; sums with the same number are over the same values.
    pub iteration: usize,
    pub length: usize,
    /// The parties in it.
    pub parties: BTreeSet<usize>,
}

/// Two sums (by index) whose difference is the term of one party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub with: usize,
    pub without: usize,
    pub party: usize,
}

/// All pairs of sums of the same kind, length and iteration whose sets of parties differ by one.
pub fn pairs(sums: &[Sum]) -> Vec<Pair> {
    let mut found = Vec::new();
    for (with, a) in sums.iter().enumerate() {
        for (without, b) in sums.iter().enumerate() {
            let alike = a.kind == b.kind && a.length == b.length && a.iteration == b.iteration;
            if !alike || a.parties.len() != b.parties.len() + 1 || !b.parties.is_subset(&a.parties) {
                continue;
            }
            found.extend(a.parties.difference(&b.parties).map(|&party| Pair { with, without, party }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(kind: &str, iteration: usize, parties: &[usize]) -> Sum {
        Sum { kind: kind.into(), iteration, length: 6, parties: parties.iter().copied().collect() }
    }

    #[test]
    fn a_repeated_sum_is_found_and_a_later_one_is_not() {
        let repeated = [sum("p", 3, &[0, 1, 2]), sum("g", 3, &[0, 1, 2]), sum("p", 3, &[0, 2]), sum("p", 4, &[0, 2])];
        assert_eq!(pairs(&repeated), [Pair { with: 0, without: 2, party: 1 }]);
        // Other values, another kind, the same set, two parties at once, another party in place of one.
        let harmless = [
            sum("p", 3, &[0, 1, 2, 3]),
            sum("p", 4, &[0, 1, 2]),
            sum("g", 3, &[0, 1, 2]),
            sum("p", 3, &[0, 1, 2, 3]),
            sum("p", 3, &[1, 2]),
            sum("p", 3, &[4, 2]),
        ];
        assert_eq!(pairs(&harmless), []);
    }
}
