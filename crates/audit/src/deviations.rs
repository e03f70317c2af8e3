//! Standardised deviations of vectors from what all vectors of their kind have in common, for tests of membership.
//!
//! Sums over hidden vectors are combinations of these vectors (see [`space`](super::space)), and a hidden vector is nearer to
//! their span than another one. However, some entries vary more than others, and vectors of one kind, members or not, have
//! much in common. So the entries are divided by their standard deviations, and the leading directions of known vectors are
//! removed, from the sums and from the vectors that are compared. The distance of the remainder from the span of the sums
//! distinguishes members better.

use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use ndarray_linalg::{JobSvd, SVDDC};

use super::space::Space;

/// Added to the variance of each entry, as a share of the mean square of all entries, so that entries with little variance do not
/// dominate.
const LEAST_VARIANCE: f64 = 0.01;

/// Standard deviations of entries, and the directions that vectors have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviations {
    /// The reciprocal of each entry's standard deviation.
    scale: Array1<f64>,
    /// An orthonormal basis, d × common
    common: Array2<f64>,
}

impl Deviations {
    /// From known vectors (r × d), with at most `common` directions in common, and at most r / 2. `None` for fewer than two
    /// vectors, or zeros.
    pub fn of(known: &ArrayView2<f64>, common: usize) -> Option<Deviations> {
        let (count, length) = known.dim();
        let mean_square = known.iter().map(|x| x * x).sum::<f64>() / (count * length).max(1) as f64;
        if count < 2 || !(mean_square > 0.0 && mean_square.is_finite()) {
            return None;
        }
        let directions = |vectors: &ArrayView2<f64>| {
            let (_, _, right) = vectors.to_owned().svddc(JobSvd::Some).ok()?;
            let right = right?;
            let most = common.min(count / 2).min(right.nrows());
            Some(right.slice(s![..most, ..]).t().to_owned())
        };
        let basis = directions(known)?;
        let left = known - &known.dot(&basis).dot(&basis.t());
        let variance = left.mapv(|x| x * x).mean_axis(Axis(0))?;
        let scale = variance.mapv(|x| (x + LEAST_VARIANCE * mean_square).sqrt().recip());
        Some(Deviations { common: directions(&(known * &scale).view())?, scale })
    }

    /// The deviations of vectors (c × d).
    pub fn from_common(&self, vectors: &ArrayView2<f64>) -> Array2<f64> {
        let scaled = vectors * &self.scale;
        let known = scaled.dot(&self.common).dot(&self.common.t());
        scaled - known
    }

    /// The span of the deviations of sums (d × q), of at most `most` dimensions; of half of all if it would otherwise be
    /// everything. `None` as [`Space::of`].
    pub fn space(&self, sums: &ArrayView2<f64>, most: usize, tolerance: f64) -> Option<Space> {
        let deviations = self.from_common(&sums.t());
        // Each sum counts alike, whatever its size.
        let norms = deviations.map_axis(Axis(1), |x| x.dot(&x).sqrt().max(f64::MIN_POSITIVE)).insert_axis(Axis(1));
        let all = (deviations / norms).reversed_axes();
        let space = Space::of(&all.view(), most, tolerance)?;
        let free = self.scale.len() - self.common.ncols();
        if space.rank() < free { Some(space) } else { Space::of(&all.view(), (free / 2).max(1), tolerance) }
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;
    use crate::membership::auc;

    /// Counts with a common profile, of which a few entries vary most.
    fn counts(draws: &mut impl FnMut() -> f64, rows: usize) -> Array2<f64> {
        Array2::from_shape_fn((rows, 400), |(_, j)| {
            let mean = if j % 20 == 0 { 200.0 } else { 1.0 + (j % 7) as f64 };
            (mean * (0.2 + 1.6 * draws())).round()
        })
    }

    #[test]
    fn deviations_tell_members_better_than_distances() {
        let mut stream = Stream::new(7, Purpose::Probe, 1).at(0);
        let mut draws = || stream.uniform();
        let [known, members, others] = [60, 80, 80].map(|rows| counts(&mut draws, rows));
        let weights = Array2::from_shape_fn((80, 16), |_| draws());
        let sums = members.t().dot(&weights);
        let plain = Space::of(&sums.view(), 400, 1e-11).unwrap();
        let by_distance = auc(&plain.distances(&members.view()), &plain.distances(&others.view())).unwrap();
        let deviations = Deviations::of(&known.view(), 8).unwrap();
        let space = deviations.space(&sums.view(), 400, 1e-11).unwrap();
        let distances = |rows: &Array2<f64>| space.distances(&deviations.from_common(&rows.view()).view());
        let found = auc(&distances(&members), &distances(&others)).unwrap();
        assert!(found > 0.8 && found > by_distance + 0.1, "{found}, by distance only {by_distance}");
    }

    #[test]
    fn as_many_sums_as_vectors_tell_members_for_certain() {
        let mut stream = Stream::new(8, Purpose::Probe, 1).at(0);
        let mut draws = || stream.uniform();
        let [known, members, others] = [10, 12, 30].map(|rows| counts(&mut draws, rows));
        let sums = members.t().dot(&Array2::from_shape_fn((12, 20), |_| draws()));
        let deviations = Deviations::of(&known.view(), 4).unwrap();
        let space = deviations.space(&sums.view(), 400, 1e-9).unwrap();
        let distances = |rows: &Array2<f64>| space.distances(&deviations.from_common(&rows.view()).view());
        assert!(distances(&members).iter().all(|&x| x < 1e-6) && distances(&others).iter().all(|&x| x > 0.1));
        // More sums than entries: half of the space.
        let many = Array2::from_shape_fn((400, 500), |_| draws());
        assert!(deviations.space(&many.view(), 500, 1e-9).unwrap().rank() < 200);
        assert!(Deviations::of(&known.slice(s![..1, ..]), 4).is_none());
        assert!(Deviations::of(&Array2::zeros((5, 3)).view(), 1).is_none());
    }
}
