//! Integers from few linear equations, by lattice reduction.
//!
//! e equations with known real coefficients leave n − e of n unknowns free. If these are integers from a small
//! range, an equation with b bits of precision rules out all but one in 2ᵇ of their values, so that a few equations
//! determine them. Elimination writes e unknowns as a − D x with the free unknowns x; that a and D x differ by an
//! integer is a lattice problem in the free unknowns and a few of the others (Lagarias, Odlyzko 1985; Kannan 1987),
//! which is the same for all rows of the data. The basis is reduced once by LLL (Lenstra, Lenstra, Lovász 1982, with
//! floating-point Gram-Schmidt), and each row is the nearest lattice point to a target (Babai 1986, then a short
//! enumeration). If rows remain unsolved, the basis is reduced by blocks (BKZ; Schnorr, Euchner 1994) and they are
//! tried again.

use ndarray::{Array2, ArrayView2, Axis, s};

/// Prior knowledge of every unknown: an integer from `low` to `high`, about `mean` on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    pub low: f64,
    pub high: f64,
    pub mean: f64,
}

impl Prior {
    /// Bits of an unknown, if only its range is known.
    pub fn bits(&self) -> f64 {
        (self.high - self.low + 1.0).log2()
    }

    /// The largest variance of an unknown with this range and mean.
    fn variance(&self) -> f64 {
        ((self.mean - self.low) * (self.high - self.mean)).max(0.25 * f64::from(u8::from(self.high > self.low)))
    }

    pub fn allows(&self, x: f64) -> bool {
        x >= self.low && x <= self.high
    }
}

/// Largest dimension of a lattice that is reduced, which takes minutes.
pub const LARGEST: usize = 180;
/// Bits of a lattice for each dimension in addition to those of the unknowns, so that LLL finds the nearest point.
const SLACK: f64 = 2.0;
/// The condition of Lovász.
const DELTA: f64 = 0.99;
/// Largest dimension of a lattice that is reduced by blocks where LLL was not enough, the sizes of blocks, and passes.
const LARGEST_BY_BLOCKS: usize = 100;
const BLOCKS: [usize; 2] = [10, 20];
const TOURS: usize = 8;
/// Combinations that are tried for a block.
const MOST_NODES: usize = 200_000;
/// Points that are tried for a row after the first.
const ENUMERATED: usize = 20_000;

/// Equations in the form x_basic = values − coefficients · x_free.
pub struct System {
    pub basic: Vec<usize>,
    pub free: Vec<usize>,
    /// |basic| × |free|
    coefficients: Array2<f64>,
    /// |basic| × rows of the data
    values: Array2<f64>,
    /// Number of correct bits after the binary point.
    bits: f64,
}

/// The result of the reduction of a system.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// For each row of the data the unknowns, if they were found.
    Found { dimension: usize, rows: Vec<Option<Vec<f64>>> },
    /// The equations do not determine the unknowns; bits known and bits needed.
    TooFew { known: f64, needed: f64 },
    /// The lattice is too large to be reduced here.
    TooLarge { dimension: usize },
}

impl System {
    /// Eliminates: `coefficients` is e × n; `values` e × m, a column for each row of the data. `bits` is the relative
    /// precision of the values.
    pub fn new(coefficients: &ArrayView2<f64>, values: &ArrayView2<f64>, bits: f64) -> System {
        let ((e, n), m) = (coefficients.dim(), values.ncols());
        let mut all = Array2::zeros((e, n + m));
        all.slice_mut(s![.., ..n]).assign(coefficients);
        all.slice_mut(s![.., n..]).assign(values);
        // Pairs of a row and the column of its pivot.
        let mut pivots: Vec<(usize, usize)> = Vec::new();
        let mut is_basic = vec![false; n];
        let mut least = 1.0f64;
        for i in 0..e {
            let (above, mut rest) = all.view_mut().split_at(Axis(0), i);
            let mut row = rest.row_mut(0);
            let size = row.iter().take(n).fold(0.0, |a: f64, x| a.max(x.abs()));
            for &(p, column) in &pivots {
                let factor = row[column];
                row.scaled_add(-factor, &above.row(p));
                row[column] = 0.0;
            }
            let largest = (0..n).filter(|&j| !is_basic[j]).max_by(|&a, &b| row[a].abs().total_cmp(&row[b].abs()));
            let Some(column) = largest.filter(|&j| row[j].abs() > 1e-10 * size) else { continue };
            least = least.min(row[column].abs() / size);
            row /= row[column];
            is_basic[column] = true;
            pivots.push((i, column));
        }
        let basic: Vec<usize> = pivots.iter().map(|&(_, column)| column).collect();
        let free: Vec<usize> = (0..n).filter(|&j| !is_basic[j]).collect();
        let mut right = Array2::zeros((basic.len(), free.len() + m));
        for (to, &(i, _)) in pivots.iter().enumerate() {
            free.iter().enumerate().for_each(|(at, &j)| right[[to, at]] = all[[i, j]]);
            right.slice_mut(s![to, free.len()..]).assign(&all.slice(s![i, n..]));
        }
        for p in (0..pivots.len()).rev() {
            let (mut above, below) = right.view_mut().split_at(Axis(0), p);
            for q in 0..p {
                let factor = all[[pivots[q].0, pivots[p].1]];
                above.row_mut(q).scaled_add(-factor, &below.row(0));
            }
        }
        // An error of a value is relative to a sum of many unknowns, and divided by the smallest pivot.
        let size = |x: &ArrayView2<f64>| x.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
        let bits = (bits + least.log2() - (size(values) / size(coefficients)).log2().max(0.0)).max(0.0);
        let (coefficients, values) = right.view().split_at(Axis(1), free.len());
        System { coefficients: coefficients.to_owned(), values: values.to_owned(), basic, free, bits }
    }

    /// Number of independent equations.
    pub fn rank(&self) -> usize {
        self.basic.len()
    }

    /// The unknowns of the given rows of the data.
    pub fn solve(&self, prior: Prior, rows: &[usize]) -> Outcome {
        let (free, all) = (self.free.len() as f64, self.basic.len());
        let each = prior.bits() + SLACK;
        // The precision of the equations in bits, some of which the unknowns take.
        let precise = self.bits.min(46.0);
        let needed = free * each / (precise - each).max(1e-9);
        let used = if free == 0.0 { 0 } else { (2 * (needed.min(1e9).ceil() as usize) + 2).min(all) };
        let dimension = self.free.len() + used;
        if (used as f64) < (free * prior.bits() / (precise - prior.bits()).max(1e-9)).floor() {
            return Outcome::TooFew {
                known: all as f64 * precise.max(0.0),
                needed: (free + all as f64) * prior.bits(),
            };
        }
        if dimension > LARGEST {
            return Outcome::TooLarge { dimension };
        }
        let mut lattice = (used > 0).then(|| {
            let wanted = dimension as f64 * (each + 1.6) / used as f64 + 2.0;
            Lattice::new(&self.coefficients.slice(s![..used, ..]), wanted.min(precise).floor())
        });
        let mut found: Vec<_> = rows.iter().map(|&row| self.row(lattice.as_ref(), prior, row)).collect();
        let missing = |found: &[Option<Vec<f64>>]| found.iter().any(Option::is_none);
        for block in BLOCKS {
            let Some(reduced) = lattice.as_mut().filter(|_| missing(&found) && dimension <= LARGEST_BY_BLOCKS) else {
                break;
            };
            reduced.basis.bkz(block, TOURS);
            for (found, &row) in found.iter_mut().zip(rows).filter(|(found, _)| found.is_none()) {
                *found = self.row(lattice.as_ref(), prior, row);
            }
        }
        Outcome::Found { dimension, rows: found }
    }

    fn row(&self, lattice: Option<&Lattice>, prior: Prior, row: usize) -> Option<Vec<f64>> {
        let values = self.values.column(row);
        let accept = |free: &[f64]| {
            let mut x = vec![0.0; self.basic.len() + self.free.len()];
            for (&j, &value) in self.free.iter().zip(free) {
                x[j] = value;
            }
            for ((line, &value), &j) in self.coefficients.rows().into_iter().zip(values).zip(&self.basic) {
                let (mut sum, mut size) = (value, 1.0 + value.abs());
                for (c, x) in line.iter().zip(free) {
                    sum -= c * x;
                    size += (c * x).abs();
                }
                let whole = sum.round();
                if (sum - whole).abs() > (size * 2f64.powf(4.0 - self.bits)).clamp(1e-9, 0.2) || !prior.allows(whole) {
                    return None;
                }
                x[j] = whole;
            }
            Some(x)
        };
        match lattice {
            Some(lattice) => {
                lattice.nearest(values.as_slice().map_or_else(|| values.to_vec(), <[f64]>::to_vec), prior, accept)
            }
            None => accept(&[]),
        }
    }
}

/// A reduced basis of all (x, y, 2ᵇ (y + D x)) with integer x and y.
struct Lattice {
    free: usize,
    used: usize,
    scale: f64,
    basis: Basis,
}

impl Lattice {
    fn new(coefficients: &ArrayView2<f64>, bits: f64) -> Lattice {
        let (used, free) = coefficients.dim();
        let scale = bits.exp2();
        let (dimension, width) = (used + free, 2 * used + free);
        let mut rows = vec![vec![0i64; width]; dimension];
        // The long vectors first: the others are reduced against them.
        for i in 0..used {
            rows[i][free + i] = 1;
            rows[i][free + used + i] = scale as i64;
        }
        for j in 0..free {
            rows[used + j][j] = 1;
            for i in 0..used {
                rows[used + j][free + used + i] = (coefficients[[i, j]] * scale).round() as i64;
            }
        }
        Lattice { free, used, scale, basis: Basis::reduced(rows) }
    }

    /// The free unknowns whose lattice point is near to the target and which `accept` completes.
    fn nearest(
        &self,
        values: Vec<f64>,
        prior: Prior,
        mut accept: impl FnMut(&[f64]) -> Option<Vec<f64>>,
    ) -> Option<Vec<f64>> {
        let Lattice { free, used, scale, basis } = self;
        let mut target = vec![prior.mean; free + used];
        target.extend(values[..*used].iter().map(|a| (a * scale).round()));
        // Accounts for the distance from the target due to rounded coefficients.
        let dimension = (free + used) as f64;
        let variance = prior.variance();
        let size2 = variance + prior.mean * prior.mean;
        let radius2 = 1.5 * (dimension * variance + *used as f64 * (1.0 + dimension * size2 / 12.0));
        let mut outcome = None;
        basis.near(&target, radius2, ENUMERATED, &mut |point: &[f64]| {
            let x: Vec<f64> = point[..*free].iter().map(|x| x.round()).collect();
            if x.iter().all(|&x| prior.allows(x)) {
                outcome = accept(&x);
            }
            outcome.is_some()
        });
        outcome
    }
}

/// An LLL-reduced basis with its Gram-Schmidt vectors.
pub(crate) struct Basis {
    pub(crate) rows: Vec<Vec<i64>>,
    star: Vec<Vec<f64>>,
    norm2: Vec<f64>,
    mu: Vec<Vec<f64>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Several sums, so that they can be added in parallel.
    let (mut sums, chunks) = ([0.0; 8], a.chunks_exact(8).zip(b.chunks_exact(8)));
    for (x, y) in chunks {
        for k in 0..8 {
            sums[k] += x[k] * y[k];
        }
    }
    let rest = a.len() / 8 * 8;
    sums.iter().sum::<f64>() + a[rest..].iter().zip(&b[rest..]).map(|(x, y)| x * y).sum::<f64>()
}

fn subtract(from: &mut [f64], factor: f64, row: &[f64]) {
    from.iter_mut().zip(row).for_each(|(x, y)| *x -= factor * y);
}

impl Basis {
    pub(crate) fn reduced(rows: Vec<Vec<i64>>) -> Basis {
        let (n, width) = (rows.len(), rows.first().map_or(0, Vec::len));
        let mut basis = Basis { rows, star: vec![vec![0.0; width]; n], norm2: vec![0.0; n], mu: vec![vec![0.0; n]; n] };
        basis.lll(0, n);
        basis
    }

    /// LLL on the vectors before `to`, of which those before `from` are reduced.
    fn lll(&mut self, from: usize, to: usize) {
        if from == 0 && to > 0 {
            self.reduce_size(0);
        }
        let mut k = from.max(1);
        while k < to {
            self.reduce_size(k);
            let mu = self.mu[k][k - 1];
            if self.norm2[k] >= (DELTA - mu * mu) * self.norm2[k - 1] {
                k += 1;
                continue;
            }
            self.rows.swap(k, k - 1);
            k -= 1;
            if k == 0 {
                self.reduce_size(0);
                k = 1;
            }
        }
    }

    /// Block Korkine-Zolotarev reduction (Schnorr, Euchner 1994): the first vector of each block of `block` vectors
    /// becomes the shortest one of its projected lattice, in at most `tours` passes.
    fn bkz(&mut self, block: usize, tours: usize) {
        let n = self.rows.len();
        for _ in 0..tours {
            // Vectors before `fresh` have a valid Gram-Schmidt vector.
            let (mut fresh, mut changed) = (n, false);
            for k in 0..n.saturating_sub(1) {
                let end = (k + block).min(n);
                (fresh..end).for_each(|row| self.reduce_size(row));
                fresh = fresh.max(end);
                if let Some(combination) = self.shortest(k, end) {
                    self.insert(k, combination);
                    self.lll(k, end);
                    (fresh, changed) = (end, true);
                }
            }
            if !changed {
                return;
            }
            self.lll(fresh, n);
        }
    }

    /// The combination of the vectors `k..end` whose projection is the shortest, if it is shorter than vector k by more
    /// than LLL would gain; by enumeration.
    fn shortest(&self, k: usize, end: usize) -> Option<Vec<i64>> {
        let d = end - k;
        let (mut at, mut centre, mut step) = (vec![0.0f64; d], vec![0.0; d], vec![0.0; d]);
        let mut distance = vec![0.0; d + 1];
        let (mut best, mut bound) = (None, DELTA * self.norm2[k]);
        let (mut level, mut last) = (0, 0);
        at[0] = 1.0;
        for _ in 0..MOST_NODES {
            let gap = at[level] - centre[level];
            distance[level] = distance[level + 1] + gap * gap * self.norm2[k + level];
            if distance[level] < bound && level > 0 {
                level -= 1;
                centre[level] = -(level + 1..d).map(|i| self.mu[k + i][k + level] * at[i]).sum::<f64>();
                at[level] = centre[level].round();
                step[level] = 1.0;
                continue;
            }
            if distance[level] < bound {
                bound = distance[0];
                best = Some(at.iter().map(|&x| x as i64).collect());
            }
            level += 1;
            if level == d {
                break;
            }
            // One of a vector and its negative is enough.
            if level >= last {
                last = level;
                at[level] += 1.0;
            } else {
                at[level] += if at[level] > centre[level] { -step[level] } else { step[level] };
                step[level] += 1.0;
            }
        }
        best
    }

    /// Replaces vector k by a combination of the vectors from k on, which leaves the lattice the same: Euclid's algorithm on
    /// the coefficients, whose greatest common divisor is 1.
    fn insert(&mut self, k: usize, mut combination: Vec<i64>) {
        loop {
            let nonzero = || (0..combination.len()).filter(|&i| combination[i] != 0);
            let Some(small) = nonzero().min_by_key(|&i| combination[i].abs()) else { return };
            let Some(large) = nonzero().filter(|&i| i != small).max_by_key(|&i| combination[i].abs()) else {
                if combination[small] < 0 {
                    self.rows[k + small].iter_mut().for_each(|x| *x = -*x);
                }
                self.rows[k..=k + small].rotate_right(1);
                return;
            };
            let times = combination[large] / combination[small];
            combination[large] -= times * combination[small];
            let added = self.rows[k + large].clone();
            self.rows[k + small].iter_mut().zip(added).for_each(|(x, y)| *x += times * y);
        }
    }

    /// Subtracts multiples of earlier vectors from vector k until no smaller one is left, and computes its Gram-Schmidt
    /// vector.
    fn reduce_size(&mut self, k: usize) {
        // Rounding errors of long vectors vanish as they get shorter.
        for _ in 0..64 {
            let mut star: Vec<f64> = self.rows[k].iter().map(|&x| x as f64).collect();
            for j in 0..k {
                let mu = dot(&star, &self.star[j]) / self.norm2[j];
                subtract(&mut star, mu, &self.star[j]);
                self.mu[k][j] = mu;
            }
            let mut changed = false;
            for j in (0..k).rev() {
                let q = self.mu[k][j].round();
                if self.mu[k][j].abs() <= 0.501 {
                    continue;
                }
                changed = true;
                let (earlier, rest) = self.rows.split_at_mut(k);
                let whole = q as i64;
                rest[0].iter_mut().zip(&earlier[j]).for_each(|(x, y)| *x -= whole * y);
                let (before, after) = self.mu.split_at_mut(k);
                for (x, y) in after[0][..j].iter_mut().zip(&before[j][..j]) {
                    *x -= q * y;
                }
                after[0][j] -= q;
            }
            if !changed {
                self.norm2[k] = dot(&star, &star).max(f64::MIN_POSITIVE);
                self.star[k] = star;
                return;
            }
        }
    }

    /// Calls `found` with lattice points near the target, the likely ones first, until it returns true or `most` were tried.
    /// The first is that of the nearest plane, whatever its distance.
    fn near(&self, target: &[f64], radius2: f64, most: usize, found: &mut impl FnMut(&[f64]) -> bool) {
        let n = self.rows.len();
        // The remainder of the target after the coefficients of this level and those above it.
        let mut left = vec![target.to_vec(); n + 1];
        let mut distance = vec![0.0; n + 1];
        let (mut centre, mut at, mut step) = (vec![0.0; n], vec![0.0; n], vec![0.0f64; n]);
        let enter = |level: usize, left: &[Vec<f64>], centre: &mut [f64], at: &mut [f64], step: &mut [f64]| {
            centre[level] = dot(&left[level + 1], &self.star[level]) / self.norm2[level];
            at[level] = centre[level].round();
            step[level] = if centre[level] >= at[level] { 1.0 } else { -1.0 };
        };
        let (mut level, mut tried, mut nodes) = (n - 1, 0usize, 0usize);
        enter(level, &left, &mut centre, &mut at, &mut step);
        loop {
            nodes += 1;
            let gap = at[level] - centre[level];
            distance[level] = distance[level + 1] + gap * gap * self.norm2[level];
            if tried == 0 || distance[level] <= radius2 {
                let (lower, upper) = left.split_at_mut(level + 1);
                lower[level].copy_from_slice(&upper[0]);
                let coefficient = at[level];
                lower[level].iter_mut().zip(&self.rows[level]).for_each(|(x, &y)| *x -= coefficient * y as f64);
                if level > 0 {
                    level -= 1;
                    enter(level, &left, &mut centre, &mut at, &mut step);
                    continue;
                }
                let point: Vec<f64> = target.iter().zip(&left[0]).map(|(t, l)| t - l).collect();
                if found(&point) {
                    return;
                }
                tried += 1;
            } else {
                level += 1;
                if level == n {
                    return;
                }
            }
            if tried >= most || nodes >= 20 * most {
                return;
            }
            // The next coefficient, alternately on both sides of the centre.
            at[level] += step[level];
            step[level] = -step[level] - step[level].signum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uniform numbers in 0..1 by Steele's SplitMix64.
    fn numbers(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// The number of rows that are found, of `m` rows of `n` integers up to `high`, from `e` uniform equations.
    fn found((m, n, e): (usize, usize, usize), high: f64, wrong: f64) -> (usize, Outcome) {
        let mut next = numbers(7);
        let data = Array2::from_shape_fn((m, n), |_| ((high + 1.0) * next()).floor());
        let equations = Array2::from_shape_fn((e, n), |_| next());
        let mut values = equations.dot(&data.t());
        values.mapv_inplace(|x| x * (1.0 + wrong * (next() - 0.5)));
        let system = System::new(&equations.view(), &values.view(), 50.0);
        assert_eq!(system.rank(), e.min(n));
        let rows: Vec<usize> = (0..m).collect();
        let outcome = system.solve(Prior { low: 0.0, high, mean: high / 2.0 }, &rows);
        let right = match &outcome {
            Outcome::Found { rows, .. } => {
                let hit =
                    |(i, row): (usize, &Option<Vec<f64>>)| row.as_ref().is_some_and(|row| data.row(i).to_vec() == *row);
                rows.iter().enumerate().filter(|row| hit(*row)).count()
            }
            _ => 0,
        };
        (right, outcome)
    }

    #[test]
    fn zeros_and_ones_are_found_from_few_equations() {
        assert_eq!(found((20, 36, 5), 1.0, 0.0).0, 20);
        assert_eq!(found((20, 80, 10), 1.0, 0.0).0, 20);
    }

    /// Without further reduction LLL finds 14 of the first and none of the second.
    #[test]
    fn blocks_find_rows_that_lll_does_not() {
        let right = |size, high| found(size, high, 0.0).0;
        assert!(right((20, 38, 5), 16.0) > 17, "{}", right((20, 38, 5), 16.0));
        assert!(right((20, 60, 8), 16.0) > 0);
    }

    #[test]
    fn blocks_reduce_a_lattice_and_stay_in_it() {
        let (n, mut next) = (24, numbers(3));
        // The volume of this lattice is 2^20 − 3.
        let modulus = (1i64 << 20) - 3;
        let row = |i: usize| (0..n).map(|j| if i == j { 1 + (modulus - 1) * i64::from(i == 0) } else { 0 }).collect();
        let mut rows: Vec<Vec<i64>> = (0..n).map(row).collect();
        rows.iter_mut().skip(1).for_each(|row| row[0] = (next() * modulus as f64) as i64);
        let multipliers: Vec<i64> = rows.iter().map(|row| row[0]).collect();
        let mut basis = Basis::reduced(rows);
        let before = basis.norm2[0];
        basis.bkz(12, 10);
        let volume: f64 = basis.norm2.iter().map(|x| 0.5 * x.log2()).sum();
        assert!((volume - (modulus as f64).log2()).abs() < 1e-6, "{volume}");
        for row in &basis.rows {
            let sum: i128 = (1..n).map(|j| i128::from(row[j]) * i128::from(multipliers[j])).sum();
            assert_eq!((i128::from(row[0]) - sum) % i128::from(modulus), 0);
        }
        // The first vector is the shortest of its block, and no longer than Hermite's bound for the block says.
        assert!(basis.norm2[0] <= before && basis.shortest(0, 12).is_none());
    }

    #[test]
    fn counts_are_found() {
        assert_eq!(found((10, 30, 6), 16.0, 0.0).0, 10);
        // Nearly as many equations as unknowns: a lattice of a few dimensions for many unknowns.
        assert_eq!(found((10, 300, 295), 16.0, 0.0).0, 10);
        // No unknown is left.
        assert_eq!(found((5, 12, 12), 1000.0, 0.0).0, 5);
    }

    #[test]
    fn too_few_bits_determine_nothing() {
        let (right, outcome) = found((3, 120, 1), 16.0, 0.0);
        assert!(right == 0 && matches!(outcome, Outcome::TooFew { .. }), "{outcome:?}");
        let (_, outcome) = found((1, 400, 80), 16.0, 0.0);
        assert!(matches!(outcome, Outcome::TooLarge { .. }), "{outcome:?}");
    }

    #[test]
    fn wrong_equations_give_no_answer_rather_than_a_wrong_one() {
        let (_, outcome) = found((10, 36, 5), 1.0, 1e-3);
        assert!(matches!(&outcome, Outcome::Found { rows, .. } if rows.iter().all(Option::is_none)), "{outcome:?}");
    }
}
