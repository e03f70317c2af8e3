//! The linear assignment problem by shortest augmenting paths (Jonker and Volgenant's form of the Hungarian method):
//! exact, O(k³), and O(k²) if the last solution is still optimal, because the column prices are kept.

const NONE: usize = usize::MAX;

/// The solver with its memory.
#[derive(Debug, Clone)]
pub struct Assignment {
    k: usize,
    /// Prices of columns and rows: cost − row − column is never negative, and 0 where assigned.
    column: Vec<f64>,
    row: Vec<f64>,
    row_of: Vec<usize>,
    column_of: Vec<usize>,
    /// State of one path search: the length of the shortest path to each column so far, its predecessor, and which
    /// columns have been visited.
    distance: Vec<f64>,
    before: Vec<usize>,
    visited: Vec<bool>,
}

impl Assignment {
    pub fn new(k: usize) -> Self {
        Assignment {
            k,
            column: vec![0.0; k],
            row: vec![0.0; k],
            row_of: vec![NONE; k],
            column_of: vec![NONE; k],
            distance: vec![0.0; k],
            before: vec![NONE; k],
            visited: vec![false; k],
        }
    }

    /// Resets the prices, so that the next solution depends only on its costs, even if several are optimal.
    pub fn reset(&mut self) {
        self.column.fill(0.0);
    }

    /// The column of each row, with the smallest sum of costs (k × k, by rows, all finite).
    pub fn solve(&mut self, cost: &[f64]) -> &[usize] {
        let k = self.k;
        assert_eq!(cost.len(), k * k, "a square matrix of costs");
        self.row_of.fill(NONE);
        self.column_of.fill(NONE);
        for i in 0..k {
            let (mut best, mut at) = (f64::INFINITY, 0);
            for (j, (c, price)) in cost[i * k..(i + 1) * k].iter().zip(&self.column).enumerate() {
                if c - price < best {
                    (best, at) = (c - price, j);
                }
            }
            self.row[i] = best;
            if self.row_of[at] == NONE {
                self.row_of[at] = i;
                self.column_of[i] = at;
            }
        }
        for i in 0..k {
            if self.column_of[i] == NONE {
                self.augment(i, cost);
            }
        }
        &self.column_of
    }

    /// Assigns the free row `start` along a shortest path to a free column (Dijkstra on reduced costs).
    fn augment(&mut self, start: usize, cost: &[f64]) {
        let k = self.k;
        self.distance.fill(f64::INFINITY);
        self.visited.fill(false);
        let (mut i, mut from, mut length) = (start, NONE, 0.0);
        let end = loop {
            let (mut best, mut at) = (f64::INFINITY, NONE);
            for j in 0..k {
                if self.visited[j] {
                    continue;
                }
                let through = length + (cost[i * k + j] - self.row[i] - self.column[j]);
                if through < self.distance[j] {
                    self.distance[j] = through;
                    self.before[j] = from;
                }
                if at == NONE || self.distance[j] < best {
                    (best, at) = (self.distance[j], j);
                }
            }
            self.visited[at] = true;
            length = best;
            if self.row_of[at] == NONE {
                break at;
            }
            (i, from) = (self.row_of[at], at);
        };
        self.row[start] += length;
        for j in (0..k).filter(|&j| self.visited[j] && j != end) {
            self.row[self.row_of[j]] += length - self.distance[j];
            self.column[j] -= length - self.distance[j];
        }
        let mut j = end;
        while j != NONE {
            let from = self.before[j];
            let i = if from == NONE { start } else { self.row_of[from] };
            self.row_of[j] = i;
            self.column_of[i] = j;
            j = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    /// The smallest sum over all permutations, by enumeration.
    fn smallest(cost: &[f64], k: usize, row: usize, used: &mut Vec<usize>) -> f64 {
        if row == k {
            return 0.0;
        }
        let mut best = f64::INFINITY;
        for j in (0..k).filter(|j| !used.contains(j)).collect::<Vec<_>>() {
            used.push(j);
            best = best.min(cost[row * k + j] + smallest(cost, k, row + 1, used));
            used.pop();
        }
        best
    }

    #[test]
    fn it_is_the_best_of_all_permutations_cold_and_warm() {
        let mut cursor = Stream::new(5, Purpose::Probe, 0).at(0);
        for k in 1..=6 {
            let mut solver = Assignment::new(k);
            for trial in 0..60 {
                // Integers give ties, and some rows are equal.
                let whole = trial % 3 == 0;
                let cost: Vec<f64> = (0..k * k)
                    .map(|p| if trial % 7 == 0 && p / k == 1 { 2.0 } else { 9.0 * cursor.uniform() - 3.0 })
                    .map(|x| if whole { x.round() } else { x })
                    .collect();
                let columns = solver.solve(&cost).to_vec();
                let mut seen = columns.clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..k).collect::<Vec<_>>());
                let sum: f64 = columns.iter().enumerate().map(|(i, &j)| cost[i * k + j]).sum();
                assert!((sum - smallest(&cost, k, 0, &mut Vec::new())).abs() < 1e-9, "{k} {cost:?} {columns:?}");
            }
        }
    }
}
