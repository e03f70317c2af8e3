//! Two sums of the same values over sets of parties that differ by one: the difference is that party's term.

use std::collections::BTreeSet;

/// The properties of a sum that the search needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// The view in which it is: runs with the same seeds and data start from the same values, so that a run that is started
    /// again after a loss repeats the first sums of the run before it without the party.
    pub view: usize,
    pub kind: String,
    /// Number of complete iterations; sums with the same number are over the same values.
    pub iteration: usize,
    /// How many sums of this kind are before it in the iteration.
    pub order: usize,
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

/// All pairs of sums of the same kind, length and iteration whose sets of parties differ by one. Of sums in different
/// views only those in the same place of the first iteration are over the same values.
pub fn pairs(sums: &[Sum]) -> Vec<Pair> {
    let mut found = Vec::new();
    for (with, a) in sums.iter().enumerate() {
        for (without, b) in sums.iter().enumerate() {
            let alike = a.kind == b.kind && a.length == b.length && a.iteration == b.iteration;
            let same_values = a.view == b.view || (a.iteration == 0 && a.order == b.order);
            if !alike || !same_values || a.parties.len() != b.parties.len() + 1 || !b.parties.is_subset(&a.parties) {
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
        Sum { view: 0, kind: kind.into(), iteration, order: 0, length: 6, parties: parties.iter().copied().collect() }
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

    #[test]
    fn the_first_sum_of_a_restarted_run_is_a_repetition_and_a_later_one_is_not() {
        let again = |iteration, parties: &[usize]| Sum { view: 1, ..sum("p", iteration, parties) };
        let second = Sum { order: 1, ..again(0, &[0, 2]) };
        let sums = [sum("p", 0, &[0, 1, 2]), sum("p", 1, &[0, 1, 2]), again(0, &[0, 1]), again(1, &[0, 1]), second];
        assert_eq!(pairs(&sums), [Pair { with: 0, without: 2, party: 2 }]);
    }
}
