//! ASSO (Miettinen, Mielikäinen, Gionis, Das, Mannila: The Discrete Basis Problem). Candidates are the rows of the
//! association matrix at confidence τ: column j belongs to candidate i where at least the share τ of the rows with i have
//! j too. One iteration takes the candidate with the largest gain, w⁺ for each one that it covers anew less w⁻ for each
//! zero; a row uses it if that is a gain for the row.

use ndarray::Array2;

use fednmf_base::error::Result;
use fednmf_linalg::{Bits, Real};

use super::Client;
use super::vote;
use crate::boolean::cover::count;
use crate::boolean::greedy_state::{Found, each};
use crate::boolean::vote::{Local, VoteParams};
use crate::description::{Description, Unit};
use crate::method::Method;
use crate::parameters::number;
use crate::{Algorithm, Problem};

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
        group vote: VoteParams;
    }
}

impl Method for Asso {
    const DESCRIPTION: &'static Description = &vote::describe(
        "asso",
        "Boolean factorisation from associations of columns at each party, components joined by vote",
        "Miettinen, Mielikainen, Gionis, Das, Mannila: The Discrete Basis Problem",
        Unit::Component,
    );

    fn check(&self) -> Result<()> {
        self.vote.check()
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

/// A candidate's words that are not zero: (place, word).
type Words = Vec<(u32, u64)>;

struct AssoMiner<T> {
    found: Found<T>,
    /// w⁺ and w⁻.
    weights: [f64; 2],
    candidates: Vec<Words>,
    /// Uncovered ones in each column.
    left_in: Vec<usize>,
    rows: Vec<u64>,
    best_rows: Vec<u64>,
    columns: Vec<u64>,
}

fn build<T: Real>(args: &Asso, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let (k, tau) = (problem.k, args.tau);
    let weights = [args.gain_weight, args.loss_weight];
    vote::build(problem, &args.vote, Some(k), move |client, _| {
        let found = Found::new(client, k);
        let (rows, n) = client.x.shape();
        let row_words = vec![0; rows.div_ceil(64)];
        AssoMiner {
            weights,
            candidates: candidates(&found.ones, tau),
            left_in: vec![0; n],
            best_rows: row_words.clone(),
            rows: row_words,
            columns: vec![0; n.div_ceil(64)],
            found,
        }
    })
}

/// The distinct rows of the association matrix, in the order of their columns; columns without ones have none.
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
        by_column.ones(i).for_each(|row| each(ones.row(row), |j| together[j] += 1));
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

/// Ones of a candidate and a row together.
fn shared(candidate: &Words, row: &[u64]) -> usize {
    candidate.iter().map(|&(at, word)| (row[at as usize] & word).count_ones() as usize).sum()
}

impl<T: Real> Local<T> for AssoMiner<T> {
    fn iterate(&mut self, _: &Client<T>, t: usize) {
        if t >= self.found.k() {
            return;
        }
        let Found { left, clear, .. } = &self.found;
        let rows = left.shape().0;
        self.left_in.fill(0);
        for i in 0..rows {
            each(left.row(i), |j| self.left_in[j] += 1);
        }
        let [gain_weight, loss_weight] = self.weights;
        let (mut best, mut best_gain) = (None, 0.0);
        for (c, candidate) in self.candidates.iter().enumerate() {
            // A candidate corrects at most as many entries as there are uncovered ones in its columns.
            let bound: usize = candidate
                .iter()
                .map(|&(at, word)| {
                    let mut sum = 0;
                    each(&[word], |j| sum += self.left_in[at as usize * 64 + j]);
                    sum
                })
                .sum();
            if gain_weight * bound as f64 <= best_gain {
                continue;
            }
            self.rows.fill(0);
            let mut gain = 0.0;
            for i in 0..rows {
                let right = shared(candidate, left.row(i));
                if right > 0 {
                    let wrong = shared(candidate, clear.row(i));
                    let own = gain_weight * right as f64 - loss_weight * wrong as f64;
                    if own > 0.0 {
                        gain += own;
                        self.rows[i / 64] |= 1 << (i % 64);
                    }
                }
            }
            if gain > best_gain {
                (best, best_gain) = (Some(c), gain);
                self.best_rows.copy_from_slice(&self.rows);
            }
        }
        if let Some(c) = best {
            self.columns.fill(0);
            self.candidates[c].iter().for_each(|&(at, word)| self.columns[at as usize] = word);
            self.found.set(t, &self.best_rows, &self.columns);
        }
    }

    fn boolean(&self, _: &Client<T>) -> (Bits, Bits) {
        self.found.boolean()
    }

    fn state(&self) -> Vec<(&'static str, &Array2<T>)> {
        self.found.state()
    }

    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)> {
        self.found.state_mut()
    }

    fn restored(&mut self) {
        self.found.restored();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_the_association_rows() {
        // columns: 0 and 1 together in rows 0..3, 1 alone in row 3, 2 in row 0
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
