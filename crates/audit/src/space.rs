//! The space that sums span. Sums over hidden columns, M_h V_1, M_h V_2, …, are combinations of these columns, whatever the
//! V are: as many independent sums as hidden columns span all of these and nothing else, by which a column is told from
//! any other, and completed from a few of its entries. Shared factors of rows that others hold lie, but for bounds, near
//! combinations of these rows.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use ndarray_linalg::{JobSvd, LeastSquaresSvd, SVDDC};

/// An orthonormal basis, m × rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    pub basis: Array2<f64>,
}

impl Space {
    /// The span of the columns (m × e), of at most `most` dimensions; what is below `tolerance` times the largest
    /// singular value is rounding. `None` if the columns are zero, or have no singular values.
    pub fn of(columns: &ArrayView2<f64>, most: usize, tolerance: f64) -> Option<Space> {
        let (Some(left), values, _) = columns.to_owned().svddc(JobSvd::Some).ok()? else { return None };
        let rank = values.iter().take(most).take_while(|&&x| x > tolerance * values[0] && x > 0.0).count();
        (rank > 0).then(|| Space { basis: left.slice(s![.., ..rank]).to_owned() })
    }

    pub fn rank(&self) -> usize {
        self.basis.ncols()
    }

    /// Whether every vector is in the space, which then tells nothing.
    pub fn is_everything(&self) -> bool {
        self.rank() >= self.basis.nrows()
    }

    /// The distance of each row of `vectors` (c × m) from the space, relative to its norm; 1 for zeros.
    pub fn distances(&self, vectors: &ArrayView2<f64>) -> Vec<f64> {
        let left = vectors - &vectors.dot(&self.basis).dot(&self.basis.t());
        let norm = |x: ArrayView1<'_, f64>| x.dot(&x).sqrt();
        let pairs = left.rows().into_iter().zip(vectors.rows());
        pairs.map(|(left, all)| if norm(all) > 0.0 { norm(left) / norm(all) } else { 1.0 }).collect()
    }

    /// The vector of the space whose entries at `places` are nearest to `entries`.
    pub fn complete(&self, places: &[usize], entries: &Array1<f64>) -> Option<Array1<f64>> {
        let found = self.basis.select(Axis(0), places).least_squares(entries).ok()?;
        Some(self.basis.dot(&found.solution))
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    /// Members are in the space of sums with unknown weights, others are not, and fifty entries give the other ones.
    #[test]
    fn members_are_in_the_space_and_follow_from_few_entries() {
        let mut draws = Stream::new(3, Purpose::Probe, 1).at(0);
        let mut matrix = |rows: usize, cols: usize| Array2::from_shape_fn((rows, cols), |_| draws.uniform());
        let (hidden, others, weights) = (matrix(200, 40), matrix(200, 30), matrix(40, 60));
        let space = Space::of(&hidden.dot(&weights).view(), 40, 1e-11).unwrap();
        assert_eq!((space.rank(), space.is_everything()), (40, false));
        assert!(space.distances(&hidden.t()).iter().all(|&x| x < 1e-9));
        assert!(space.distances(&others.t()).iter().all(|&x| x > 0.1));
        let places: Vec<usize> = (0..50).map(|i| 3 * i).collect();
        let known = hidden.column(7).select(Axis(0), &places);
        let found = space.complete(&places, &known).unwrap();
        assert!((&found - &hidden.column(7)).iter().all(|x| x.abs() < 1e-6));
        // Too few sums: a part of the space, in which no member lies.
        let part = Space::of(&hidden.dot(&weights.slice(s![.., ..30])).view(), 40, 1e-11).unwrap();
        assert!(part.distances(&hidden.t()).iter().all(|&x| x > 1e-3));
        assert!(Space::of(&Array2::zeros((5, 3)).view(), 3, 1e-11).is_none());
    }
}
