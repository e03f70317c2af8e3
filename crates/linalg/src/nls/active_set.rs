//! The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23) for one row, in
//! normal-equations form and from a feasible start: the minimiser of ½ x G xᵀ − t xᵀ over x ≥ 0.
//!
//! The objective falls in every step, so it ends where the exchanges of block principal pivoting cycle: for a nearly singular
//! G, whose solutions have signs that depend on rounding. The Cholesky factor of G_FF follows the passive set F in O(k²).

/// A coordinate joins the passive set if its gradient is below −TOLERANCE times the size of its terms.
const TOLERANCE: f64 = 1e-12;
/// The smallest pivot, relative to the diagonal of G.
const FLOOR: f64 = 1e-14;

/// The workspace, for up to k coordinates.
#[derive(Debug, Clone, Default)]
pub struct ActiveSet {
    k: usize,
    /// The Cholesky factor of G_FF, k + 1 numbers for each row.
    factor: Vec<f64>,
    /// F, in the order in which coordinates joined.
    members: Vec<usize>,
    /// Coordinates that cannot join until x changes.
    blocked: Vec<bool>,
    solution: Vec<f64>,
    gradient: Vec<f64>,
}

impl ActiveSet {
    /// For up to k coordinates; nothing is allocated later.
    pub fn new(k: usize) -> Self {
        ActiveSet {
            k,
            factor: vec![0.0; k * (k + 1)],
            members: Vec::with_capacity(k),
            blocked: Vec::with_capacity(k),
            solution: Vec::with_capacity(k),
            gradient: Vec::with_capacity(k),
        }
    }

    /// x ← the minimiser, from x ≥ 0; `gram` is n × n with a positive diagonal, `target` and x have length n, at most the k of
    /// [`ActiveSet::new`].
    pub fn solve(&mut self, gram: &[f64], target: &[f64], x: &mut [f64]) {
        self.k = x.len();
        assert!(self.k * (self.k + 1) <= self.factor.len(), "number of coordinates");
        self.members.clear();
        self.blocked.clear();
        self.blocked.resize(self.k, false);
        for (j, _) in x.iter().enumerate().filter(|(_, x)| **x > 0.0) {
            self.join(gram, j);
        }
        let mut joined = None;
        for _ in 0..10 * self.k {
            let fell = self.descend(target, x);
            if let Some(j) = joined.filter(|&j| !fell && x[j] == 0.0) {
                self.blocked[j] = true;
            } else {
                self.blocked.fill(false);
            }
            joined = self.steepest(gram, target, x);
            let Some(j) = joined else { return };
            self.join(gram, j);
        }
    }

    /// x ← the minimiser over the passive set, without those members that a step towards it makes zero. Returns whether x
    /// has changed.
    fn descend(&mut self, target: &[f64], x: &mut [f64]) -> bool {
        let mut changed = false;
        while !self.members.is_empty() {
            self.minimise(target);
            let steps = self.members.iter().zip(&self.solution).filter(|(_, s)| **s <= 0.0);
            let Some(step) = steps.map(|(&j, s)| x[j] / (x[j] - s)).reduce(f64::min) else {
                self.members.iter().zip(&self.solution).for_each(|(&j, &s)| x[j] = s);
                return true;
            };
            // A member that has just joined with the wrong sign is at zero, and leaves again.
            let step = if step.is_finite() { step.clamp(0.0, 1.0) } else { 0.0 };
            changed |= step > 0.0;
            for position in (0..self.members.len()).rev() {
                let (j, s) = (self.members[position], self.solution[position]);
                let stays = s > 0.0 || x[j] / (x[j] - s) > step;
                x[j] = if stays { x[j] + step * (s - x[j]) } else { 0.0 };
                if !stays {
                    self.leave(position);
                }
            }
        }
        changed
    }

    /// The coordinate outside the passive set with the most negative gradient.
    fn steepest(&mut self, gram: &[f64], target: &[f64], x: &[f64]) -> Option<usize> {
        let k = self.k;
        self.gradient.clear();
        self.gradient.extend(target.iter().map(|t| -t));
        for &j in &self.members {
            self.gradient.iter_mut().zip(&gram[j * k..(j + 1) * k]).for_each(|(y, g)| *y += g * x[j]);
        }
        let size = self.members.iter().fold(0.0, |most: f64, &j| most.max(x[j]));
        let (mut found, mut least) = (None, 0.0);
        for (j, &y) in self.gradient.iter().enumerate() {
            let outside = x[j] == 0.0 && !self.blocked[j];
            if outside && y < -TOLERANCE * (target[j].abs() + size) && y < least {
                (found, least) = (Some(j), y);
            }
        }
        found
    }

    fn row(&self, i: usize) -> usize {
        i * (self.k + 1)
    }

    /// Adds coordinate j to the passive set.
    fn join(&mut self, gram: &[f64], j: usize) {
        let last = self.members.len();
        for i in 0..=last {
            let at = self.row(last);
            let dot: f64 = (0..i).map(|c| self.factor[at + c] * self.factor[self.row(i) + c]).sum();
            let rest = gram[j * self.k + if i < last { self.members[i] } else { j }] - dot;
            self.factor[at + i] = match i < last {
                true => rest / self.factor[self.row(i) + i],
                false => rest.max(FLOOR * gram[j * self.k + j]).sqrt(),
            };
        }
        self.members.push(j);
    }

    /// Removes the member at `position`: its row, and by rotations of columns what that leaves above the diagonal.
    fn leave(&mut self, position: usize) {
        self.members.remove(position);
        let (count, width) = (self.members.len(), self.k + 1);
        self.factor.copy_within((position + 1) * width..(count + 1) * width, position * width);
        for c in position..count {
            let (a, b) = (self.factor[c * width + c], self.factor[c * width + c + 1]);
            let length = a.hypot(b);
            let (cos, sin) = (a / length, b / length);
            for row in self.factor.chunks_exact_mut(width).take(count).skip(c) {
                (row[c], row[c + 1]) = (cos * row[c] + sin * row[c + 1], cos * row[c + 1] - sin * row[c]);
            }
        }
    }

    /// `solution` ← the minimiser over the passive set without regard to signs.
    fn minimise(&mut self, target: &[f64]) {
        let (n, width) = (self.members.len(), self.k + 1);
        self.solution.clear();
        for (i, row) in self.factor.chunks_exact(width).take(n).enumerate() {
            let dot: f64 = row.iter().zip(&self.solution).map(|(l, x)| l * x).sum();
            self.solution.push((target[self.members[i]] - dot) / row[i]);
        }
        for i in (0..n).rev() {
            let row = &self.factor[i * width..i * width + i + 1];
            self.solution[i] /= row[i];
            let x = self.solution[i];
            self.solution.iter_mut().zip(&row[..i]).for_each(|(s, l)| *s -= l * x);
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, Array2};

    use super::*;
    use crate::random::{Purpose, Stream};

    /// Definite, singular and nearly singular problems, from several starts.
    #[test]
    fn the_kkt_conditions_hold_from_any_start() {
        let stream = Stream::new(8, Purpose::Probe, 0);
        let mut cursor = stream.at(0);
        for (rank, k, noise) in [(30, 12, 0.0), (5, 12, 0.0), (6, 20, 1e-9), (40, 40, 0.0), (1, 3, 0.0)] {
            let mut b = Array2::from_shape_fn((rank, k), |_| cursor.uniform());
            b.mapv_inplace(|x| x + noise * x * x);
            let g = b.t().dot(&b);
            let mut solver = ActiveSet::new(k);
            for start in [0.0, 1.0] {
                let t = b.t().dot(&Array1::from_shape_fn(rank, |_| cursor.normal()));
                let mut x = vec![start; k];
                solver.solve(g.as_slice().unwrap(), t.as_slice().unwrap(), &mut x);
                let y = g.dot(&Array1::from(x.clone())) - &t;
                let scale = t.iter().fold(0.0, |most: f64, t| most.max(t.abs()));
                for (x, y) in x.iter().zip(&y) {
                    assert!(*x >= 0.0 && *y > -1e-7 * scale && (x * y).abs() < 1e-7 * scale, "{rank} {k}: {x} {y}");
                }
            }
        }
    }
}
