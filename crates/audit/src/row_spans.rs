//! Rows of parties with few of them.
//!
//! A local update moves the factor that a party got along its rows: its new V_j is near the span of the last shared V
//! and of the rows of X_j. The spans of (V̄_{t−1}, V_{j,t}) of all rounds t change, and have the rows in common; so the
//! leading eigenvectors of the sum of their projections are near the span of the rows. The same holds for the sum of
//! the V_j of several parties and the rows of all of them. In Boolean methods a component is often equal to a row.

use ndarray::{Array2, ArrayView1, ArrayView2, Axis, concatenate, s};
use ndarray_linalg::{JobSvd, SVDDC};

use super::space::Space;

/// What is below this part of the largest singular value of a round is rounding.
const ROUNDING: f64 = 1e-9;

/// The space (n × count) that the spans of the rounds have most in common; a round is (V̄_{t−1}, V_t), n × k each.
pub fn common(rounds: &[(Array2<f64>, Array2<f64>)], count: usize) -> Option<Space> {
    let bases: Vec<Array2<f64>> = rounds
        .iter()
        .filter_map(|(before, after)| {
            let (before, after) = (unit(before), unit(after));
            let both = concatenate(Axis(1), &[before.view(), after.view()]).ok()?;
            Space::of(&both.view(), usize::MAX, ROUNDING).map(|space| space.basis)
        })
        .collect();
    let views: Vec<ArrayView2<'_, f64>> = bases.iter().map(|basis| basis.view()).collect();
    let all = concatenate(Axis(1), &views).ok()?;
    let (Some(left), _, _) = all.svddc(JobSvd::Some).ok()? else { return None };
    (left.ncols() >= count).then(|| Space { basis: left.slice(s![.., ..count]).to_owned() })
}

/// With columns of norm 1.
fn unit(v: &Array2<f64>) -> Array2<f64> {
    let norms = v.map_axis(Axis(0), |x| x.dot(&x).sqrt().max(f64::MIN_POSITIVE));
    v / &norms
}

/// The cosine of the angle between each row and the space.
pub fn cosines(rows: &ArrayView2<f64>, space: &Space) -> Vec<f64> {
    space.distances(rows).into_iter().map(|sine| (1.0 - sine * sine).max(0.0).sqrt()).collect()
}

/// For each row (c × n) of zeros and ones the largest share of entries in which a component of any round (n × k) agrees.
pub fn agreements(rows: &ArrayView2<f64>, rounds: &[Array2<f64>]) -> Vec<f64> {
    let share = |row: &ArrayView1<'_, f64>, component: ArrayView1<'_, f64>| {
        row.iter().zip(component).filter(|(a, b)| (*a - *b).abs() < 0.5).count() as f64 / row.len() as f64
    };
    let best = |row: ArrayView1<'_, f64>| {
        let all = rounds.iter().flat_map(|v| v.columns().into_iter().map(|component| share(&row, component)));
        all.fold(0.0, f64::max)
    };
    rows.rows().into_iter().map(best).collect()
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    /// Factors that moved along two rows, from one round to the next, in directions that otherwise change.
    #[test]
    fn rows_are_common_to_all_rounds() {
        let mut draws = Stream::new(4, Purpose::Probe, 1).at(0);
        let mut matrix = |rows: usize, cols: usize| Array2::from_shape_fn((rows, cols), |_| draws.uniform());
        let (n, k) = (60, 4);
        let hidden = matrix(2, n);
        let rounds: Vec<_> = (0..8)
            .map(|_| {
                let before = matrix(n, k);
                let after = &before * 0.5 + hidden.t().dot(&matrix(2, k));
                (before, after)
            })
            .collect();
        let space = common(&rounds, 2).unwrap();
        assert!(cosines(&hidden.view(), &space).iter().all(|&x| x > 1.0 - 1e-9));
        assert!(cosines(&matrix(5, n).view(), &space).iter().all(|&x| x < 0.97));
        assert!(common(&rounds[..1], 9).is_none());
    }

    #[test]
    fn a_component_that_equals_a_row_is_seen() {
        let rows = ndarray::array![[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]];
        let rounds = [ndarray::array![[0.0], [1.0], [0.0], [0.0]], ndarray::array![[1.0], [0.0], [1.0], [1.0]]];
        assert_eq!(agreements(&rows.view(), &rounds), [1.0, 0.5]);
    }
}
