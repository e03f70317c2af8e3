//! ASSO (Miettinen, Mielikäinen, Gionis, Das, Mannila: The Discrete Basis Problem). Candidates are the rows of the
//! association matrix at confidence τ: column j belongs to candidate i if at least the share τ of the rows that contain i
//! contain j too. A candidate gains w⁺ for each one that it newly covers in a row, and loses w⁻ for each zero. A row uses
//! the candidate if the sum is positive. Each iteration adds the candidate with the largest gain over all rows.

use fednmf_linalg::{Bits, Real};

use super::Client;
use crate::boolean::cover::count;
use crate::boolean::greedy::{Component, ComponentSearch, Coverage, Greedy, for_each_one};
use crate::boolean::vote::{self, LocalMethod, LocalProblem};
use crate::description::{Description, Unit};
use crate::parameters::number;

fednmf_base::parameters! {
    /// Parameters of ASSO.
    pub struct Asso {
        /// Confidence from which on one column implies another
        pub tau: f64 = 0.6, "X", number(0.0, 1.0);
        /// Weight of a one that a component covers: w+ of the paper
        pub gain_weight: f64 = 1.0, "X", number(0.0, 1e6);
        /// Weight of a zero that a component covers: w- of the paper. Less than --gain-weight covers more ones, more covers fewer
        /// zeros
        pub loss_weight: f64 = 1.0, "X", number(0.0, 1e6);
    }
}

impl LocalMethod for Asso {
    const DESCRIPTION: &'static Description = &vote::describe(
        "asso",
        "Boolean factors from associations of columns, components joined by vote",
        "Miettinen, Mielikainen, Gionis, Das, Mannila: The Discrete Basis Problem",
        Unit::Component,
    );

    type Local<T: Real> = Greedy<T, AssoSearch>;

    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Greedy<T, AssoSearch> {
        let (rows, n) = client.x.shape();
        let row_words = vec![0; rows.div_ceil(64)];
        Greedy::new(client, problem.k, |data| AssoSearch {
            weights: [self.gain_weight, self.loss_weight],
            candidates: candidates(&data.ones, self.tau),
            uncovered_in_column: vec![0; n],
            best_rows: row_words.clone(),
            rows: row_words,
            columns: vec![0; n.div_ceil(64)],
        })
    }
}

/// The nonzero words of a candidate: (position, word).
type Words = Vec<(u32, u64)>;

/// The search for the candidate with the largest gain.
pub struct AssoSearch {
    /// w⁺ and w⁻.
    weights: [f64; 2],
    candidates: Vec<Words>,
    /// Number of uncovered ones in each column.
    uncovered_in_column: Vec<usize>,
    rows: Vec<u64>,
    best_rows: Vec<u64>,
    columns: Vec<u64>,
}

/// The distinct rows of the association matrix, ordered by column; columns without ones yield none.
fn candidates(ones: &Bits, tau: f64) -> Vec<Words> {
    let n = ones.shape().1;
    let by_column = ones.transposed();
    let mut together = vec![0usize; n];
    let mut all: Vec<Words> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for i in 0..n {
        let size = count(by_column.row(i));
        if size == 0 {
            continue;
        }
        together.fill(0);
        by_column.ones(i).for_each(|row| for_each_one(ones.row(row), |j| together[j] += 1));
        let mut words: Words = Vec::new();
        for (j, _) in together.iter().enumerate().filter(|(_, t)| **t > 0 && **t as f64 >= tau * size as f64) {
            let (place, bit) = ((j / 64) as u32, 1u64 << (j % 64));
            match words.last_mut() {
                Some((at, word)) if *at == place => *word |= bit,
                _ => words.push((place, bit)),
            }
        }
        if known.insert(words.clone()) {
            all.push(words);
        }
    }
    all
}

/// The number of ones that a candidate and a row have in common.
fn shared(candidate: &Words, row: &[u64]) -> usize {
    candidate.iter().map(|&(at, word)| (row[at as usize] & word).count_ones() as usize).sum()
}

impl ComponentSearch for AssoSearch {
    fn find(&mut self, data: &Coverage) -> Option<Component<'_>> {
        let AssoSearch { weights: [gain_weight, loss_weight], candidates, uncovered_in_column, .. } = self;
        let Coverage { uncovered_ones, uncovered_zeros, .. } = data;
        let rows = uncovered_ones.shape().0;
        uncovered_in_column.fill(0);
        for i in 0..rows {
            for_each_one(uncovered_ones.row(i), |j| uncovered_in_column[j] += 1);
        }
        let (mut best, mut best_gain) = (None, 0.0);
        for candidate in &*candidates {
            // A candidate corrects at most as many entries as there are uncovered ones in its columns.
            let bound: usize = candidate
                .iter()
                .map(|&(at, word)| {
                    let mut sum = 0;
                    for_each_one(&[word], |j| sum += uncovered_in_column[at as usize * 64 + j]);
                    sum
                })
                .sum();
            if *gain_weight * bound as f64 <= best_gain {
                continue;
            }
            self.rows.fill(0);
            let mut gain = 0.0;
            for i in 0..rows {
                let right = shared(candidate, uncovered_ones.row(i));
                if right > 0 {
                    let wrong = shared(candidate, uncovered_zeros.row(i));
                    let row_gain = *gain_weight * right as f64 - *loss_weight * wrong as f64;
                    if row_gain > 0.0 {
                        gain += row_gain;
                        self.rows[i / 64] |= 1 << (i % 64);
                    }
                }
            }
            if gain > best_gain {
                (best, best_gain) = (Some(candidate), gain);
                self.best_rows.copy_from_slice(&self.rows);
            }
        }
        let best = best?;
        self.columns.fill(0);
        best.iter().for_each(|&(at, word)| self.columns[at as usize] = word);
        Some((&self.best_rows, &self.columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_the_association_rows() {
        // Columns 0 and 1 together in rows 0..3, 1 without 0 in row 3, 2 in row 0.
        let mut ones = Bits::zeros(4, 70);
        for (i, j) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 1), (0, 69)] {
            ones.set(i, j);
        }
        let all = candidates(&ones, 0.7);
        // 0 → {0, 1} (1/1), 1 → {0 (3/4), 1}: the same; 69 → {0, 1, 69}
        assert_eq!(all, [vec![(0, 0b11)], vec![(0, 0b11), (1, 1 << 5)]]);
        assert_eq!(candidates(&ones, 1.0), [vec![(0, 0b11)], vec![(0, 0b10)], vec![(0, 0b11), (1, 1 << 5)]]);
    }
}
