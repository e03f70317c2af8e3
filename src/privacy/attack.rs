//! What sketches of M give away (Qian et al., Theorem 3): M S_1, M S_2, … with sketches S_t that everybody can draw are
//! linear equations for every row of M, the same for all rows, and with n independent ones M is known.

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, s};

use crate::linalg::gemm;

/// Of an equation that those before imply nothing is left but rounding.
const NOTHING: f64 = 1e-9;

/// M as far as the releases so far tell.
pub struct Recovery {
    /// Orthonormal rows that span the columns of all sketches so far; the first `rank` of them, in ascending order.
    basis: Array2<f64>,
    rank: usize,
    /// The image of these under M, a row each, rank × m.
    images: Array2<f64>,
    /// Of all matrices that agree with the releases the one of least norm, m × n.
    found: Array2<f64>,
}

impl Recovery {
    /// Nothing is known of an m × n matrix.
    pub fn new(m: usize, n: usize) -> Self {
        Recovery { basis: Array2::zeros((n, n)), rank: 0, images: Array2::zeros((n, m)), found: Array2::zeros((m, n)) }
    }

    /// How many independent equations there are for each row; with n of them it is known.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The best guess of M: each row's projection on what the sketches span.
    pub fn found(&self) -> &Array2<f64> {
        &self.found
    }

    /// Takes in a release: Sᵀ (d × n) and (M S)ᵀ (d × m), both of which are overwritten.
    pub fn learn(&mut self, sketch: &mut ArrayViewMut2<f64>, release: &mut ArrayViewMut2<f64>) {
        let (n, before) = (self.basis.ncols(), self.rank);
        let lengths: Vec<f64> = sketch.rows().into_iter().map(|row| row.dot(&row).sqrt()).collect();
        // Twice: what rounding leaves of the first pass goes with the second.
        for _ in 0..2 {
            let known = self.basis.slice(s![..before, ..]);
            reduce(&known, &self.images.slice(s![..before, ..]), sketch, release);
        }
        for (i, &length) in lengths.iter().enumerate() {
            let (mut row, mut image) = (sketch.row(i).to_owned(), release.row(i).to_owned());
            for _ in 0..2 {
                self.take_out(before, &mut row, &mut image);
            }
            let left = row.dot(&row).sqrt();
            if left > NOTHING * length && self.rank < n {
                self.basis.row_mut(self.rank).assign(&(row / left));
                self.images.row_mut(self.rank).assign(&(image / left));
                self.rank += 1;
            }
        }
        let new = s![before..self.rank, ..];
        let (basis, images) = (self.basis.slice(new), self.images.slice(new));
        gemm(1.0, &images.t(), &basis, 1.0, &mut self.found.view_mut());
    }

    /// Takes the part along the basis rows from `first` on out of a row, and as much out of its image.
    fn take_out(&self, first: usize, row: &mut Array1<f64>, image: &mut Array1<f64>) {
        for known in first..self.rank {
            let along = self.basis.row(known).dot(row);
            row.scaled_add(-along, &self.basis.row(known));
            image.scaled_add(-along, &self.images.row(known));
        }
    }

    /// How far the guess is from M: the error relative to ‖M‖, and how many columns are known to `tolerance` of M's
    /// largest entry.
    pub fn compare(&self, m: &ArrayView2<f64>, tolerance: f64) -> (f64, usize) {
        let largest = m.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        let (mut wrong, mut all, mut known) = (0.0, 0.0, 0);
        for (found, true_one) in self.found.axis_iter(Axis(1)).zip(m.axis_iter(Axis(1))) {
            let mut worst = 0.0f64;
            for (a, b) in found.iter().zip(true_one) {
                wrong += (a - b) * (a - b);
                all += b * b;
                worst = worst.max((a - b).abs());
            }
            known += usize::from(worst <= tolerance * largest);
        }
        ((wrong / all).sqrt(), known)
    }
}

/// Rows ← rows − (rows · basisᵀ) basis, and as much of the images.
fn reduce(
    basis: &ArrayView2<f64>,
    images: &ArrayView2<f64>,
    rows: &mut ArrayViewMut2<f64>,
    row_images: &mut ArrayViewMut2<f64>,
) {
    if basis.nrows() == 0 {
        return;
    }
    let mut along = Array2::zeros((rows.nrows(), basis.nrows()));
    gemm(1.0, &rows.view(), &basis.t(), 0.0, &mut along.view_mut());
    gemm(-1.0, &along.view(), basis, 1.0, rows);
    gemm(-1.0, &along.view(), images, 1.0, row_images);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Order;
    use crate::random::{Purpose, Stream};
    use clap::ValueEnum as _;

    use crate::sketch::{self, Kind};

    /// The error and the columns known after each of `releases` sketches of a random m × n matrix.
    fn course(kind: Kind, (m, n, d): (usize, usize, usize), releases: usize) -> Vec<(usize, f64, usize)> {
        let mut cursor = Stream::new(3, Purpose::Probe, 0).at(0);
        let data = Array2::from_shape_fn((m, n), |_| cursor.normal().abs());
        let mut recovery = Recovery::new(m, n);
        let mut made = sketch::make::<f64>(kind, n, d, n, Order::Rows);
        let course = (0..releases).map(|t| {
            let mut across = Array2::zeros((d, n));
            made.draw(&sketch::stream(5, true, t));
            made.sketch_rows(0, &Array2::eye(n).view(), &mut across.view_mut());
            let mut release = across.dot(&data.t());
            recovery.learn(&mut across.view_mut(), &mut release.view_mut());
            let (error, known) = recovery.compare(&data.view(), 1e-9);
            (recovery.rank(), error, known)
        });
        course.collect()
    }

    #[test]
    fn theorem_3_holds_for_dense_sketches() {
        for &kind in Kind::value_variants().iter().filter(|kind| !matches!(kind, Kind::Subsample | Kind::Count)) {
            // 7 · 9 = 63 equations for 60 unknowns; 6 · 9 = 54 leave a tenth of M's norm² unknown.
            let course = course(kind, (20, 60, 9), 7);
            for (t, &(rank, error, known)) in course[..6].iter().enumerate() {
                let expected = (1.0 - 9.0 * (t + 1) as f64 / 60.0).sqrt();
                assert_eq!((rank, known), (9 * (t + 1), 0), "{kind:?}");
                assert!(error > 0.05 && error < 1.5 * expected + 0.2, "{kind:?}: {error} for {expected}");
            }
            let (rank, error, known) = course[6];
            assert!(rank == 60 && error < 1e-9 && known == 60, "{kind:?}: {rank} {error} {known}");
        }
    }

    #[test]
    fn a_subsample_shows_columns_at_once_and_all_when_all_were_drawn() {
        let course = course("subsample", (20, 60, 9), 60);
        assert_eq!((course[0].0, course[0].2), (9, 9));
        assert!(course.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].2 <= w[1].2), "{course:?}");
        assert!(course[6].1 > 1e-2, "columns are drawn again: {course:?}");
        let (rank, error, known) = course[59];
        assert!(rank == 60 && error < 1e-12 && known == 60, "{rank} {error} {known}");
    }
}
