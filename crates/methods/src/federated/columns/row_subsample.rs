//! The rows of U that one iteration of a sketched `secure-hals` sums and updates: d of m, taken cyclically.
//!
//! A sketch S of the rows of M reduces Σ M_r V_r (m × k) to Σ SᵀM_r V_r (d × k). HALS updates a row of U from its own row
//! of the sum. A subsample therefore gives the chosen rows their exact update and leaves the others unchanged. (Other
//! sketches mix rows and determine none.) With independent draws some rows would wait for long, so the rows are taken
//! cyclically in one random order, the same at every party.
//!
//! Only d rows of U change, so V's right-hand side M_rᵀU is updated by a product with d rows of M_r. It is recomputed
//! regularly so that rounding errors do not accumulate.

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::{Order, Real};

use super::Party;

/// Passes over all rows after which right-hand sides are recomputed.
const ROUNDS: usize = 8;

/// The rows of an iteration, and memory for them.
pub struct Rows<T: Real> {
    /// All rows, in the order in which they are taken.
    order: Vec<usize>,
    /// The rows of the current iteration, ascending.
    chosen: Vec<usize>,
    /// U at these rows, d × k, and its change by the update.
    pub u: Array2<T>,
    pub change: Array2<T>,
    /// Σ M_r V_r at these rows, d × k.
    pub rhs: Array2<T>,
}

impl<T: Real> Rows<T> {
    /// A cycle of d of m rows, for factors with k columns.
    pub fn new(m: usize, d: usize, k: usize, seed: u64, layout: Order) -> Self {
        let mut cursor = Stream::new(seed, Purpose::SketchForU, 0).at(0);
        let mut order: Vec<usize> = (0..m).collect();
        for i in (1..m).rev() {
            order.swap(i, cursor.below(i as u64 + 1) as usize);
        }
        let [u, change, rhs] = [(); 3].map(|()| layout.zeros(d, k));
        Rows { order, chosen: vec![0; d], u, change, rhs }
    }

    /// Number d of rows per iteration.
    pub fn size(&self) -> usize {
        self.chosen.len()
    }

    /// Chooses the rows of iteration t.
    pub fn select_rows(&mut self, t: usize) {
        let m = self.order.len();
        let first = (t % m) * (self.chosen.len() % m) % m;
        for (i, row) in self.chosen.iter_mut().enumerate() {
            *row = self.order[(first + i) % m];
        }
        self.chosen.sort_unstable();
    }

    /// Whether right-hand sides are recomputed in iteration t.
    pub fn recomputes(&self, t: usize) -> bool {
        t.is_multiple_of(ROUNDS * self.order.len().div_ceil(self.chosen.len()))
    }

    /// A party's term of the sum: M_r V at the chosen rows, d × k.
    pub fn product(&self, party: &Party<T>, v: &ArrayView2<T>, out: &mut Array2<T>) {
        party.block.rows_mul(&self.chosen, v, &mut out.view_mut());
    }

    /// Copies the chosen rows out of U.
    pub fn pick(&mut self, u: &Array2<T>) {
        for (i, &row) in self.chosen.iter().enumerate() {
            self.u.row_mut(i).assign(&u.row(row));
        }
        self.change.assign(&self.u);
    }

    /// Copies the updated rows back into U, and stores their change.
    pub fn put(&mut self, u: &mut Array2<T>) {
        for (i, &row) in self.chosen.iter().enumerate() {
            u.row_mut(row).assign(&self.u.row(i));
        }
        self.change.zip_mut_with(&self.u, |change, &new| *change = new - *change);
    }

    /// Adds the change of U to a party's right-hand side M_rᵀU; `scratch` has its shape.
    pub fn update_rhs(&self, party: &mut Party<T>, scratch: &mut Array2<T>) {
        party.block.rows_tmul(&self.chosen, &self.change.view(), &mut scratch.view_mut());
        party.rhs += &*scratch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_turn_equally_often() {
        for (m, d) in [(12, 5), (7, 7), (30, 1), (9, 3)] {
            let mut rows = Rows::<f64>::new(m, d, 2, 4, Order::RowMajor);
            let mut turns = vec![0; m];
            for t in 0..m {
                rows.select_rows(t);
                assert!(rows.chosen.windows(2).all(|w| w[0] < w[1]), "{:?}", rows.chosen);
                rows.chosen.iter().for_each(|&row| turns[row] += 1);
            }
            assert!(turns.iter().all(|&n| n == d), "{m} {d}: {turns:?}");
        }
    }
}
