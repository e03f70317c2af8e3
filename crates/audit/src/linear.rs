//! Reconstruction of M from its sketches (Qian et al., Theorem 3): releases M S_1, M S_2, … with public sketches S_t are
//! linear equations for every row of M, with the same coefficients for all rows; n independent equations determine M.

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, s};

use fednmf_linalg::gemm;

/// An equation whose relative remainder is below this is implied by earlier ones.
const DEPENDENT: f64 = 1e-9;

/// The reconstruction of M (m × n) from the releases so far.
pub struct Recovery {
    /// Orthonormal basis of the span of the columns of all sketches so far, as rows; the first `rank` rows are used.
    basis: Array2<f64>,
    rank: usize,
    /// The images of the basis vectors under M, as rows, n × m.
    images: Array2<f64>,
    /// The matrix of least norm that agrees with the releases, m × n.
    estimate: Array2<f64>,
}

impl Recovery {
    /// Before the first release of an m × n matrix.
    pub fn new(m: usize, n: usize) -> Self {
        Recovery {
            basis: Array2::zeros((n, n)),
            rank: 0,
            images: Array2::zeros((n, m)),
            estimate: Array2::zeros((m, n)),
        }
    }

    /// Number of independent equations for each row; n of them determine it.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The independent equations: an orthonormal basis (rank × n) of what the sketches span, and its images under M
    /// (rank × m).
    pub fn equations(&self) -> (ArrayView2<'_, f64>, ArrayView2<'_, f64>) {
        (self.basis.slice(s![..self.rank, ..]), self.images.slice(s![..self.rank, ..]))
    }

    /// The estimate of M: the projection of each row onto the span of the sketches.
    pub fn estimate(&self) -> &Array2<f64> {
        &self.estimate
    }

    /// Adds a release: Sᵀ (d × n) and (M S)ᵀ (d × m), both of which are overwritten.
    pub fn add(&mut self, sketch: &mut ArrayViewMut2<f64>, release: &mut ArrayViewMut2<f64>) {
        let (n, before) = (self.basis.ncols(), self.rank);
        let lengths: Vec<f64> = sketch.rows().into_iter().map(|row| row.dot(&row).sqrt()).collect();
        // Gram-Schmidt twice, against rounding errors.
        for _ in 0..2 {
            let known = self.basis.slice(s![..before, ..]);
            project_out(&known, &self.images.slice(s![..before, ..]), sketch, release);
        }
        for (i, &length) in lengths.iter().enumerate() {
            let (mut row, mut image) = (sketch.row(i).to_owned(), release.row(i).to_owned());
            for _ in 0..2 {
                self.orthogonalise(before, &mut row, &mut image);
            }
            let left = row.dot(&row).sqrt();
            if left > DEPENDENT * length && self.rank < n {
                self.basis.row_mut(self.rank).assign(&(row / left));
                self.images.row_mut(self.rank).assign(&(image / left));
                self.rank += 1;
            }
        }
        let new = s![before..self.rank, ..];
        let (basis, images) = (self.basis.slice(new), self.images.slice(new));
        gemm(1.0, &images.t(), &basis, 1.0, &mut self.estimate.view_mut());
    }

    /// Subtracts the components along the basis rows `first ..` from a row, and their images from its image.
    fn orthogonalise(&self, first: usize, row: &mut Array1<f64>, image: &mut Array1<f64>) {
        for known in first..self.rank {
            let along = self.basis.row(known).dot(row);
            row.scaled_add(-along, &self.basis.row(known));
            image.scaled_add(-along, &self.images.row(known));
        }
    }

    /// The error of the estimate relative to ‖M‖_F, and the number of columns whose entries are all within `tolerance`
    /// times the largest entry of M.
    pub fn compare(&self, m: &ArrayView2<f64>, tolerance: f64) -> (f64, usize) {
        let largest = m.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        let (mut wrong, mut all, mut known) = (0.0, 0.0, 0);
        for (estimate, column) in self.estimate.axis_iter(Axis(1)).zip(m.axis_iter(Axis(1))) {
            let mut worst = 0.0f64;
            for (a, b) in estimate.iter().zip(column) {
                wrong += (a - b) * (a - b);
                all += b * b;
                worst = worst.max((a - b).abs());
            }
            known += usize::from(worst <= tolerance * largest);
        }
        ((wrong / all).sqrt(), known)
    }
}

/// The part of X (m × k) outside the span of the columns (m × n), relative to ‖X‖.
pub fn outside(x: &Array2<f64>, columns: &Array2<f64>) -> f64 {
    let mut left = x.to_owned();
    let mut basis: Vec<Array1<f64>> = Vec::new();
    for column in columns.axis_iter(Axis(1)) {
        let mut rest = column.to_owned();
        for _ in 0..2 {
            for known in &basis {
                let along = known.dot(&rest);
                rest.scaled_add(-along, known);
            }
        }
        let length = rest.dot(&rest).sqrt();
        if length > DEPENDENT * column.dot(&column).sqrt() {
            basis.push(rest / length);
        }
    }
    for mut column in left.axis_iter_mut(Axis(1)) {
        for known in &basis {
            let along = known.dot(&column);
            column.scaled_add(-along, known);
        }
    }
    let norm = |x: &Array2<f64>| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    norm(&left) / norm(x).max(f64::MIN_POSITIVE)
}

/// rows ← rows − (rows · basisᵀ) · basis, and the same combination of the images.
fn project_out(
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
    use fednmf_base::words::Words as _;
    use fednmf_linalg::Order;
    use fednmf_linalg::random::{Purpose, Stream};
    use fednmf_linalg::sketch;
    use fednmf_linalg::sketch::SketchKind;

    use super::*;

    /// The error and the columns known after each of `releases` sketches of a random m × n matrix.
    fn history(kind: SketchKind, (m, n, d): (usize, usize, usize), releases: usize) -> Vec<(usize, f64, usize)> {
        let mut cursor = Stream::new(3, Purpose::Probe, 0).at(0);
        let data = Array2::from_shape_fn((m, n), |_| cursor.normal().abs());
        let mut recovery = Recovery::new(m, n);
        let mut sketch_of_run = sketch::make::<f64>(kind, n, d, n, Order::RowMajor);
        let history = (0..releases).map(|t| {
            let mut across = Array2::zeros((d, n));
            sketch_of_run.draw(&sketch::stream(5, true, t));
            sketch_of_run.sketch_rows(0, &Array2::eye(n).view(), &mut across.view_mut());
            let mut release = across.dot(&data.t());
            recovery.add(&mut across.view_mut(), &mut release.view_mut());
            let (error, known) = recovery.compare(&data.view(), 1e-9);
            (recovery.rank(), error, known)
        });
        history.collect()
    }

    #[test]
    fn theorem_3_holds_for_dense_sketches() {
        for &kind in SketchKind::ALL.iter().filter(|kind| !matches!(kind, SketchKind::Subsample | SketchKind::Count)) {
            // 7 · 9 = 63 equations for 60 unknowns; 6 · 9 = 54 leave a tenth of M's norm² unknown.
            let history = history(kind, (20, 60, 9), 7);
            for (t, &(rank, error, known)) in history[..6].iter().enumerate() {
                let expected = (1.0 - 9.0 * (t + 1) as f64 / 60.0).sqrt();
                assert_eq!((rank, known), (9 * (t + 1), 0), "{kind:?}");
                assert!(error > 0.05 && error < 1.5 * expected + 0.2, "{kind:?}: {error} for {expected}");
            }
            let (rank, error, known) = history[6];
            assert!(rank == 60 && error < 1e-9 && known == 60, "{kind:?}: {rank} {error} {known}");
        }
    }

    #[test]
    fn a_subsample_reveals_the_drawn_columns_at_once() {
        let history = history(SketchKind::Subsample, (20, 60, 9), 60);
        assert_eq!((history[0].0, history[0].2), (9, 9));
        assert!(history.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].2 <= w[1].2), "{history:?}");
        assert!(history[6].1 > 1e-2, "columns are drawn repeatedly: {history:?}");
        let (rank, error, known) = history[59];
        assert!(rank == 60 && error < 1e-12 && known == 60, "{rank} {error} {known}");
    }
}
