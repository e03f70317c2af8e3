//! Hidden subset sums: columns of small whole numbers from sums with unknown weights.
//!
//! Of R = M V (t × e) only R is known. A short integer vector u with u'R = 0 is, if R has enough bits, orthogonal to the
//! columns of M itself, whatever V is. LLL finds such vectors, and the columns of M are short vectors of the lattice that
//! is orthogonal to them (Nguyen, Stern 1999). Where as many sums as hidden columns are known, their span replaces the
//! first step. The lattice of the whole-number vectors in a space is that of the integers x on as many rows as the space
//! has dimensions for which the other entries A x are whole too, see [`crate::lattice`]. Differences and sums of reduced
//! vectors that are zeros and ones, or counts, are the columns.

use ndarray::{Array2, ArrayView2, Axis, s};
use ndarray_linalg::{Inverse, LeastSquaresSvd, SVD};

use super::lattice::{Basis, Outcome, Prior, System};

/// Rows that are searched first, in addition to two for each hidden column.
const MORE_ROWS: usize = 20;
/// Largest number of hidden columns that are searched for, which takes minutes.
pub const LARGEST: usize = 80;
/// Bits of the sums for each hidden column, and limits of those that are used of each number.
const BITS: f64 = 10.0;
const FEWEST_BITS: f64 = 14.0;
const MOST_BITS: f64 = 34.0;
/// Bits of the entries that follow from others in the lattice of a space, and how far from whole they may be.
const BITS_OF_SPACE: f64 = 26.0;
const WHOLE: f64 = 1e-2;

/// The hidden columns (each of m entries that `prior` allows) from the sums `values` (m × e) over at most `hidden` columns,
/// with relative precision of 2^−`bits`: those that are found.
pub fn columns(values: &ArrayView2<f64>, hidden: usize, prior: Prior, bits: f64) -> Vec<Vec<f64>> {
    let (m, e) = values.dim();
    let t = m.min(2 * hidden + MORE_ROWS);
    if hidden == 0 || hidden > LARGEST || t <= hidden || e == 0 {
        return Vec::new();
    }
    let first = values.slice(s![..t, ..]);
    let Some(space) = orthogonal(&first, hidden, bits) else { return Vec::new() };
    let found = in_space(&space.view(), prior);
    if t == m || found.is_empty() {
        return found;
    }
    extend(&found, values, prior, bits)
}

/// The space (t × rank) of the hidden columns: orthogonal to the short integer vectors u with u'R = 0.
fn orthogonal(values: &ArrayView2<f64>, hidden: usize, bits: f64) -> Option<Array2<f64>> {
    let (t, e) = values.dim();
    let largest = values.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
    let used = (BITS * hidden as f64 / e as f64).clamp(FEWEST_BITS, MOST_BITS).min(bits - 4.0);
    let scale = used.exp2() / largest;
    let row = |i: usize| {
        let mut row = vec![0i64; t + e];
        row[i] = 1;
        row[t..].iter_mut().zip(values.row(i)).for_each(|(x, value)| *x = (value * scale).round() as i64);
        row
    };
    let reduced = Basis::reduced((0..t).map(row).collect());
    // All bits of the sums decide.
    let vanishes = |u: &&Vec<i64>| {
        let size: f64 = u[..t].iter().map(|x| x.abs() as f64).sum();
        values.axis_iter(Axis(1)).all(|column| {
            let sum: f64 = column.iter().zip(&u[..t]).map(|(x, &u)| x * u as f64).sum();
            sum.abs() <= size * largest * (3.0 - bits).exp2()
        })
    };
    let found: Vec<&Vec<i64>> = reduced.rows.iter().filter(vanishes).collect();
    if found.len() + hidden < t || found.len() >= t {
        return None;
    }
    let vectors = Array2::from_shape_fn((found.len(), t), |(i, j)| found[i][j] as f64);
    let (_, _, right) = vectors.svd(false, true).ok()?;
    Some(right?.slice(s![found.len().., ..]).t().to_owned())
}

/// The columns that `prior` allows in a space (m × rank), whose basis has independent columns of any size.
pub fn in_space(space: &ArrayView2<f64>, prior: Prior) -> Vec<Vec<f64>> {
    let (m, rank) = space.dim();
    if rank == 0 || rank > LARGEST || rank >= m {
        return Vec::new();
    }
    let pivots = pivots(space);
    let Ok(inverse) = space.select(Axis(0), &pivots).inv() else { return Vec::new() };
    let all = space.dot(&inverse);
    // Some of the other rows, which do, one entry of A with its bits for two unknowns.
    let others: Vec<usize> = (0..m).filter(|i| !pivots.contains(i)).collect();
    let used = &others[..others.len().min(rank / 2 + 2)];
    let scale = BITS_OF_SPACE.exp2();
    let mut rows = vec![vec![0i64; rank + 2 * used.len()]; rank + used.len()];
    for (at, &i) in used.iter().enumerate() {
        rows[at][rank + at] = 1;
        rows[at][rank + used.len() + at] = scale as i64;
        for j in 0..rank {
            rows[used.len() + j][rank + used.len() + at] = -(all[[i, j]] * scale).round() as i64;
        }
    }
    (0..rank).for_each(|j| rows[used.len() + j][j] = 1);
    let whole = |row: &Vec<i64>| -> Option<Vec<i64>> {
        let x = Array2::from_shape_fn((rank, 1), |(j, _)| row[j] as f64);
        let column = all.dot(&x);
        column.iter().all(|x| (x - x.round()).abs() < WHOLE).then(|| column.iter().map(|x| x.round() as i64).collect())
    };
    let vectors: Vec<Vec<i64>> = Basis::reduced(rows)
        .rows
        .iter()
        .filter(|row| row[..rank].iter().any(|&x| x != 0))
        .filter_map(whole)
        .take(rank)
        .collect();
    allowed(Basis::reduced(vectors).rows, prior)
}

/// As many rows as the space has dimensions, on which it is as independent as greedy choice makes it.
fn pivots(space: &ArrayView2<f64>) -> Vec<usize> {
    let mut left = space.to_owned();
    let mut chosen = Vec::new();
    for _ in 0..space.ncols() {
        let size = |i: &usize| left.row(*i).dot(&left.row(*i));
        let Some(best) = (0..left.nrows()).max_by(|a, b| size(a).total_cmp(&size(b))) else { break };
        chosen.push(best);
        let row = left.row(best).to_owned() / size(&best).sqrt().max(f64::MIN_POSITIVE);
        for mut other in left.rows_mut() {
            let along = row.dot(&other);
            other.scaled_add(-along, &row);
        }
    }
    chosen
}

/// Makes as many vectors of a basis as possible allowed, by adding one or two others, and returns these.
fn allowed(mut basis: Vec<Vec<i64>>, prior: Prior) -> Vec<Vec<f64>> {
    let valid = |x: &[i64]| x.iter().all(|&x| prior.allows(x as f64)) && x.iter().any(|&x| x != 0);
    let size = |x: &[i64]| x.iter().map(|x| x * x).sum::<i64>();
    let combined = |x: &[i64], sx: i64, y: &[i64], sy: i64| -> Vec<i64> {
        x.iter().zip(y).map(|(x, y)| sx * x + sy * y).collect()
    };
    for x in &mut basis {
        if !valid(x) {
            let negative: Vec<i64> = x.iter().map(|x| -x).collect();
            if valid(&negative) {
                *x = negative;
            }
        }
    }
    loop {
        let mut changed = false;
        for i in 0..basis.len() {
            for j in (0..basis.len()).filter(|&j| j != i) {
                for (si, sj) in [(1, 1), (1, -1), (-1, 1)] {
                    let next = combined(&basis[i], si, &basis[j], sj);
                    // A column that is another one plus a third is none of the shortest.
                    if valid(&next) && (!valid(&basis[i]) || size(&next) < size(&basis[i])) {
                        basis[i] = next;
                        changed = true;
                    }
                }
            }
        }
        // Two others at once, only for what is left.
        if !changed {
            'left: for i in (0..basis.len()).filter(|&i| !valid(&basis[i])).collect::<Vec<_>>() {
                for j in (0..basis.len()).filter(|&j| j != i) {
                    for l in (0..j).filter(|&l| l != i) {
                        for signs in 0..8 {
                            let sign = |bit: i32| if signs >> bit & 1 == 1 { -1 } else { 1 };
                            let two = combined(&basis[i], sign(0), &basis[j], sign(1));
                            let next = combined(&two, 1, &basis[l], sign(2));
                            if valid(&next) {
                                basis[i] = next;
                                changed = true;
                                continue 'left;
                            }
                        }
                    }
                }
            }
        }
        if !changed {
            break;
        }
    }
    basis.into_iter().filter(|x| valid(x)).map(|x| x.into_iter().map(|x| x as f64).collect()).collect()
}

/// Columns of all rows from those of the first, by the V that follows from them.
fn extend(found: &[Vec<f64>], values: &ArrayView2<f64>, prior: Prior, bits: f64) -> Vec<Vec<f64>> {
    let (t, m, rank) = (found[0].len(), values.nrows(), found.len());
    let first = Array2::from_shape_fn((t, rank), |(i, j)| found[j][i]);
    let Ok(v) = first.least_squares(&values.slice(s![..t, ..]).to_owned()) else { return Vec::new() };
    let v = v.solution;
    let rest = values.slice(s![t.., ..]);
    // Wrong or missing columns leave a remainder.
    let left = (&first.dot(&v) - &values.slice(s![..t, ..])).iter().fold(0.0, |a: f64, x| a.max(x.abs()));
    let largest = values.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
    if left > 1e-9 * largest {
        return Vec::new();
    }
    let system = System::new(&v.t(), &rest.t(), bits - 6.0);
    let Outcome::Found { rows, .. } = system.solve(prior, &(0..m - t).collect::<Vec<_>>()) else { return Vec::new() };
    let Some(rows) = rows.into_iter().collect::<Option<Vec<_>>>() else { return Vec::new() };
    (0..rank).map(|j| found[j].iter().copied().chain(rows.iter().map(|row| row[j])).collect()).collect()
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Cursor, Purpose, Stream};

    use super::*;

    const BINARY: Prior = Prior { low: 0.0, high: 1.0, mean: 0.3 };

    fn draws(number: u64) -> Cursor {
        Stream::new(5, Purpose::Probe, number).at(0)
    }

    fn binary(rows: usize, cols: usize, density: f64, draws: &mut Cursor) -> Array2<f64> {
        Array2::from_shape_fn((rows, cols), |_| f64::from(u8::from(draws.uniform() < density)))
    }

    /// How many columns of `hidden` are among those found.
    fn right(found: &[Vec<f64>], hidden: &Array2<f64>) -> usize {
        hidden.columns().into_iter().filter(|column| found.iter().any(|x| *x == column.to_vec())).count()
    }

    /// Of rows, hidden columns and numbers for each row with unknown weights.
    fn found((m, h, e): (usize, usize, usize)) -> usize {
        let mut draws = draws((m + h + e) as u64);
        let hidden = binary(m, h, 0.3, &mut draws);
        let weights = Array2::from_shape_fn((h, e), |_| draws.uniform());
        right(&columns(&hidden.dot(&weights).view(), h, BINARY, 44.0), &hidden)
    }

    #[test]
    fn zeros_and_ones_are_found_from_one_sum_with_unknown_weights() {
        assert_eq!(found((80, 20, 5)), 20);
    }

    #[test]
    fn more_columns_and_more_sums() {
        assert_eq!(found((120, 40, 10)), 40);
        assert_eq!(found((120, 30, 20)), 30);
    }

    #[test]
    fn too_few_bits_give_nothing() {
        assert_eq!(found((120, 60, 3)), 0);
        assert_eq!(found((20, 20, 5)), 0);
    }

    #[test]
    fn whole_numbers_are_found_in_their_space() {
        let mut draws = draws(1);
        let hidden = binary(100, 20, 0.4, &mut draws);
        let weights = Array2::from_shape_fn((20, 20), |_| draws.uniform());
        assert_eq!(right(&in_space(&hidden.dot(&weights).view(), BINARY), &hidden), 20);
        let counts = Array2::from_shape_fn((120, 18), |_| (4.0 * draws.uniform() * draws.uniform()).floor());
        let weights = Array2::from_shape_fn((18, 18), |_| draws.uniform());
        let prior = Prior { low: 0.0, high: 3.0, mean: 0.6 };
        assert!(right(&in_space(&counts.dot(&weights).view(), prior), &counts) >= 16);
    }
}
