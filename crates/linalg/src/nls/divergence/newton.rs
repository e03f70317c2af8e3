//! Projected Newton steps for a row x of minimum divergence: x moves towards the minimiser, over x ≥ 0, of the second-order
//! expansion of the objective, as far as the slope along the way stays small.
//!
//! Near the minimum such steps converge quadratically, where coordinate descent needs hundreds of sweeps if components resemble
//! each other. A step has no more divisions than one coordinate of a sweep. Most of its work is the Hessian, k²/2 products for each
//! nonzero, which the next step uses again if this one went well.

use pulp::{Simd, WithSimd};

use super::LANES;
use crate::Cholesky;
use crate::nls::Penalty;
use crate::nls::active_set::ActiveSet;
use crate::simd::{Lanes, dispatch, dispatch_fn};

/// δ of the matrix H + δ diag(H) that is solved with: where H is singular, shifts stay bounded.
const RIDGE: f64 = 1e-10;
/// Largest second derivative of an entry. Where it is reached, the columns have zeros.
const STEEPEST: f64 = 1e290;
/// A step uses the last Hessian again if the fall of the last step was at most this share of that before it.
const FALLEN: f64 = 0.02;
/// It does so only in rows with at least this many nonzeros for each coordinate; in others a new Hessian costs no more than the rest.
const LONG: usize = 16;
/// Sweeps over the second-order expansion that find out which coordinates stay positive.
const SWEEPS: usize = 10;
/// Attempts to shorten a step before it is given up.
const SHORTER: usize = 4;
/// Numbers of the columns that are read for one tile of H after the other; they stay in the cache.
const CACHED: usize = 1 << 14;
/// Rows and columns of a tile of H.
const TILE: (usize, usize) = (2, 4);

/// A row of a factor with the nonzeros of its data, their fits, and the columns of the fixed factor there.
pub struct Row<'a> {
    pub x: &'a mut [f64],
    pub entries: &'a [f64],
    pub fit: &'a [f64],
    pub columns: &'a [f64],
    /// The least fit of an entry, as a multiple of it.
    pub least: f64,
}

impl Row<'_> {
    fn column(&self, l: usize) -> &[f64] {
        &self.columns[l * self.entries.len()..(l + 1) * self.entries.len()]
    }
}

/// What a step did.
pub struct Step {
    /// The largest change of an entry of x.
    pub moved: f64,
    /// The fall of the objective to first order, which near the minimum is twice what remains.
    pub fall: f64,
}

/// The workspace.
#[derive(Debug, Clone, Default)]
pub struct Newton {
    /// m / f, m / f², and the change of f, for each entry.
    ratios: Vec<f64>,
    weights: Vec<f64>,
    change: Vec<f64>,
    /// The slope of the objective along each coordinate.
    slopes: Vec<f64>,
    /// Coordinates that are positive or may become so. What follows is for these only.
    free: Vec<usize>,
    /// The fall of the last step, and whether the next one uses its Hessian.
    fall: f64,
    reuses: bool,
    /// The Hessian, with a diagonal of ones: D H D with D = diag(`scales`).
    hessian: Vec<f64>,
    scales: Vec<f64>,
    gradient: Vec<f64>,
    shift: Vec<f64>,
    target: Vec<f64>,
    /// The minimiser of the second-order expansion, and its positive coordinates.
    minimiser: Vec<f64>,
    positive: Vec<usize>,
    solution: Vec<f64>,
    cholesky: Cholesky,
    active_set: ActiveSet,
}

impl Newton {
    /// For k coordinates; what has their size is allocated here.
    fn new(k: usize) -> Self {
        let numbers = || Vec::with_capacity(k);
        Newton {
            slopes: numbers(),
            free: Vec::with_capacity(k),
            hessian: Vec::with_capacity(k * k),
            scales: numbers(),
            gradient: numbers(),
            shift: numbers(),
            target: numbers(),
            minimiser: numbers(),
            positive: Vec::with_capacity(k),
            solution: numbers(),
            cholesky: Cholesky::with_capacity(k),
            active_set: ActiveSet::new(k),
            ..Newton::default()
        }
    }

    /// Begins a row of k coordinates.
    pub fn begin(&mut self, k: usize) {
        // A clone has no capacity yet.
        if self.hessian.capacity() < k * k {
            *self = Newton::new(k);
        }
        (self.reuses, self.fall) = (false, f64::INFINITY);
    }

    /// One step for the costs `sums` of the coordinates, of which infinite ones stay 0. `None` if it would not lower the objective; x is
    /// unchanged then. The fits are those of x before the step.
    pub fn step(&mut self, row: Row<'_>, sums: &[f64], penalty: Penalty) -> Option<Step> {
        let (l1, l2) = penalty.weights::<f64>();
        for part in [&mut self.ratios, &mut self.weights, &mut self.change] {
            part.resize(row.entries.len(), 0.0);
        }
        self.slopes.resize(row.x.len(), 0.0);
        dispatch(Slopes { row: &row, newton: self });
        for ((slope, sum), x) in self.slopes.iter_mut().zip(sums).zip(&*row.x) {
            *slope = sum + l1 + l2 * x - *slope;
        }
        let reuses = std::mem::take(&mut self.reuses);
        let free = |l: usize| row.x[l] > 0.0 || self.slopes[l] < 0.0;
        let mut now = (0..row.x.len()).filter(|&l| free(l));
        if !(reuses && now.clone().all(|l| self.free.binary_search(&l).is_ok())) {
            self.free.clear();
            self.free.extend(&mut now);
            let free = self.free.len();
            self.hessian.clear();
            self.hessian.resize(free * free, 0.0);
            dispatch(Hessian { row: &row, newton: self });
            if !self.scale(l2) {
                return None;
            }
        }
        self.find_shift(row.x);
        let fall: f64 = -self.free.iter().zip(&self.shift).map(|(&l, shift)| self.slopes[l] * shift).sum::<f64>();
        if self.shift.iter().all(|shift| *shift == 0.0) {
            return Some(Step { moved: 0.0, fall: 0.0 });
        }
        if !(fall > 0.0 && fall.is_finite()) {
            return None;
        }
        let length = self.length(&row, sums, (l1, l2), fall)?;
        self.reuses = fall <= FALLEN * self.fall && row.entries.len() >= LONG * self.free.len();
        self.fall = fall;
        let mut moved: f64 = 0.0;
        for (&l, shift) in self.free.iter().zip(&self.shift) {
            let next = (row.x[l] + length * shift).max(0.0);
            moved = moved.max((next - row.x[l]).abs());
            row.x[l] = next;
        }
        Some(Step { moved, fall })
    }

    /// Completes the Hessian of the free coordinates and scales it; returns whether its diagonal is positive.
    fn scale(&mut self, l2: f64) -> bool {
        let Newton { hessian, scales, free, .. } = self;
        let n = free.len();
        (0..n).for_each(|i| hessian[i * n + i] += l2);
        scales.clear();
        scales.extend((0..n).map(|i| 1.0 / hessian[i * n + i].sqrt()));
        if !scales.iter().all(|scale| scale.is_finite()) {
            return false;
        }
        for i in 0..n {
            for j in 0..i {
                let entry = hessian[i * n + j] * scales[i] * scales[j];
                (hessian[i * n + j], hessian[j * n + i]) = (entry, entry);
            }
            hessian[i * n + i] = 1.0 + RIDGE;
        }
        true
    }

    /// `shift` ← the way from x to the minimiser of the second-order expansion.
    fn find_shift(&mut self, x: &[f64]) {
        let Newton { slopes, free, positive, shift, .. } = self;
        positive.clear();
        positive.extend((0..free.len()).filter(|&i| x[free[i]] > 0.0 || slopes[free[i]] < 0.0));
        shift.clear();
        shift.resize(free.len(), 0.0);
        if !self.solve(x) {
            self.sweep(x);
            if !self.solve(x) {
                self.minimise(x);
                self.solve(x);
            }
        }
        let Newton { free, scales, positive, shift, .. } = self;
        for (i, (shift, &l)) in shift.iter_mut().zip(&*free).enumerate() {
            // Exactly to 0: what rounding leaves would count as positive in the next step.
            let stays = positive.binary_search(&i).is_ok();
            *shift = if stays { (*shift * scales[i]).max(-x[l]) } else { -x[l] };
        }
    }

    /// `minimiser` ← that of the second-order expansion, as coordinate descent from x finds it.
    fn sweep(&mut self, x: &[f64]) {
        let Newton { slopes, free, hessian, scales, gradient, minimiser, .. } = self;
        let n = free.len();
        gradient.clear();
        gradient.extend(free.iter().zip(&*scales).map(|(&l, scale)| slopes[l] * scale));
        minimiser.clear();
        minimiser.extend(free.iter().zip(&*scales).map(|(&l, scale)| x[l] / scale));
        dispatch_fn(
            #[inline(always)]
            || {
                for _ in 0..SWEEPS {
                    for i in 0..n {
                        let own = &hessian[i * n..(i + 1) * n];
                        let next = (minimiser[i] - gradient[i] / own[i]).max(0.0);
                        let by = next - minimiser[i];
                        minimiser[i] = next;
                        gradient.iter_mut().zip(own).for_each(|(gradient, h)| *gradient += by * h);
                    }
                }
            },
        );
        self.fix_zeros(x);
    }

    /// As [`Newton::sweep`] to the end, by the active-set method.
    fn minimise(&mut self, x: &[f64]) {
        let Newton { slopes, free, hessian, scales, target, minimiser, active_set, .. } = self;
        let n = free.len();
        target.clear();
        target.extend((0..n).map(|i| {
            let own = hessian[i * n..(i + 1) * n].iter();
            own.zip(free.iter().zip(&*scales)).map(|(h, (&l, scale))| h * x[l] / scale).sum::<f64>()
                - slopes[free[i]] * scales[i]
        }));
        active_set.solve(hessian, target, minimiser);
        self.fix_zeros(x);
    }

    /// `positive` ← the positive coordinates of the minimiser; `shift` leads all others to 0.
    fn fix_zeros(&mut self, x: &[f64]) {
        let Newton { free, scales, minimiser, shift, positive, .. } = self;
        positive.clear();
        positive.extend((0..free.len()).filter(|&i| minimiser[i] > 0.0));
        for (i, shift) in shift.iter_mut().enumerate() {
            *shift = if minimiser[i] > 0.0 { 0.0 } else { -x[free[i]] / scales[i] };
        }
    }

    /// The shifts of the positive coordinates, for given ones of the others; returns whether these coordinates stay at least 0. The
    /// difference of two near points would lose digits: the shift is solved for.
    fn solve(&mut self, x: &[f64]) -> bool {
        let Newton { slopes, free, hessian, scales, shift, positive, solution, cholesky, .. } = self;
        let n = free.len();
        let given = positive.len() < n;
        solution.clear();
        solution.extend(positive.iter().map(|&i| {
            let own = &hessian[i * n..(i + 1) * n];
            let others = if given { own.iter().zip(&*shift).map(|(h, s)| h * s).sum::<f64>() } else { 0.0 };
            -slopes[free[i]] * scales[i] - others
        }));
        cholesky.factorise(positive.len(), RIDGE, |i, j| hessian[positive[i] * n + positive[j]]);
        cholesky.solve(solution);
        positive.iter().zip(&*solution).for_each(|(&i, s)| shift[i] = *s);
        positive.iter().all(|&i| x[free[i]] + shift[i] * scales[i] >= 0.0)
    }

    /// The part of the shift after which the slope along it is at most half as steep upwards as it was downwards.
    fn length(&mut self, row: &Row<'_>, sums: &[f64], (l1, l2): (f64, f64), fall: f64) -> Option<f64> {
        dispatch(Change { row, newton: self });
        let mut length = 1.0;
        for _ in 0..SHORTER {
            let linear = |(&l, shift): (&usize, &f64)| shift * (sums[l] + l1 + l2 * (row.x[l] + length * shift));
            let rise = self.free.iter().zip(&self.shift).map(linear).sum::<f64>()
                - dispatch(PullAlong { row, change: &self.change, length });
            if rise <= 0.5 * fall {
                // Near the minimum the whole step is best, though its end may rise.
                return Some(if rise > 1e-3 * fall { length * fall / (fall + rise) } else { length });
            }
            length *= (fall / (fall + rise)).max(0.1);
        }
        None
    }
}

/// Vectors of f64.
type Vector<S> = <f64 as Lanes>::Vector<S>;

fn vectors<S: Simd>(slice: &[f64]) -> &[Vector<S>] {
    f64::vectors::<S>(slice).0
}

/// Computes the ratios, the weights, and Σ m y / f for each coordinate.
struct Slopes<'a, 'b> {
    row: &'a Row<'b>,
    newton: &'a mut Newton,
}

impl WithSimd for Slopes<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Slopes { row, newton } = self;
        let steepest = f64::splat_v(s, STEEPEST);
        let to =
            f64::vectors_mut::<S>(&mut newton.ratios).0.iter_mut().zip(f64::vectors_mut::<S>(&mut newton.weights).0);
        for (((ratio, weight), &m), &fit) in to.zip(vectors::<S>(row.entries)).zip(vectors::<S>(row.fit)) {
            *ratio = f64::div_v(s, m, fit);
            *weight = f64::min_v(s, f64::div_v(s, *ratio, fit), steepest);
        }
        for (l, slope) in newton.slopes.iter_mut().enumerate() {
            let mut sums = f64::splat_v(s, 0.0);
            for (&ratio, &y) in vectors::<S>(&newton.ratios).iter().zip(vectors::<S>(row.column(l))) {
                sums = f64::mul_add_v(s, ratio, y, sums);
            }
            *slope = f64::sum_v(s, sums);
        }
    }
}

/// Adds Σ m y_i y_j / f² to the lower triangle of the Hessian of the free coordinates.
struct Hessian<'a, 'b> {
    row: &'a Row<'b>,
    newton: &'a mut Newton,
}

impl WithSimd for Hessian<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Hessian { row, newton: Newton { weights, free, hessian, .. } } = self;
        let n = free.len();
        if n == 0 {
            return;
        }
        let panel = (CACHED / n).next_multiple_of(LANES);
        for from in (0..weights.len()).step_by(panel) {
            let to = (from + panel).min(weights.len());
            let weights = vectors::<S>(&weights[from..to]);
            let part = |i: usize| vectors::<S>(&row.column(free[i.min(n - 1)])[from..to]);
            for i in (0..n).step_by(TILE.0) {
                for j in (0..n.min(i + TILE.0)).step_by(TILE.1) {
                    let sums = tile(
                        s,
                        weights,
                        std::array::from_fn(
                            #[inline(always)]
                            |a| part(i + a),
                        ),
                        std::array::from_fn(
                            #[inline(always)]
                            |b| part(j + b),
                        ),
                    );
                    for (a, sums) in sums.into_iter().enumerate() {
                        for (b, sum) in sums.into_iter().enumerate() {
                            if i + a < n && j + b <= i + a {
                                hessian[(i + a) * n + j + b] += f64::sum_v(s, sum);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Σ w a b for each a and b.
#[inline(always)]
fn tile<S: Simd>(
    s: S,
    weights: &[Vector<S>],
    a: [&[Vector<S>]; TILE.0],
    b: [&[Vector<S>]; TILE.1],
) -> [[Vector<S>; TILE.1]; TILE.0] {
    let mut sums = [[f64::splat_v(s, 0.0); TILE.1]; TILE.0];
    let (a, b) = (a.map(|column| &column[..weights.len()]), b.map(|column| &column[..weights.len()]));
    for (at, &w) in weights.iter().enumerate() {
        for i in 0..TILE.0 {
            let weighted = f64::mul_v(s, w, a[i][at]);
            for j in 0..TILE.1 {
                sums[i][j] = f64::mul_add_v(s, weighted, b[j][at], sums[i][j]);
            }
        }
    }
    sums
}

/// `change` ← Σ shift y, the change of each fit.
struct Change<'a, 'b> {
    row: &'a Row<'b>,
    newton: &'a mut Newton,
}

impl WithSimd for Change<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Change { row, newton: Newton { change, free, shift, .. } } = self;
        let change = f64::vectors_mut::<S>(change).0;
        change.fill(f64::splat_v(s, 0.0));
        for (&l, &shift) in free.iter().zip(&*shift) {
            let shift = f64::splat_v(s, shift);
            for (change, &y) in change.iter_mut().zip(vectors::<S>(row.column(l))) {
                *change = f64::mul_add_v(s, shift, y, *change);
            }
        }
    }
}

/// Σ m c / (f + t c) for the changes c of the fits and a part t of them.
struct PullAlong<'a, 'b> {
    row: &'a Row<'b>,
    change: &'a [f64],
    length: f64,
}

impl WithSimd for PullAlong<'_, '_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) -> f64 {
        let PullAlong { row, change, length } = self;
        let (length, least) = (f64::splat_v(s, length), f64::splat_v(s, row.least));
        let mut sums = f64::splat_v(s, 0.0);
        let data = vectors::<S>(row.entries).iter().zip(vectors::<S>(row.fit));
        for ((&m, &fit), &change) in data.zip(vectors::<S>(change)) {
            let fit = f64::max_v(s, f64::mul_add_v(s, length, change, fit), f64::mul_v(s, least, m));
            sums = f64::mul_add_v(s, f64::div_v(s, m, fit), change, sums);
        }
        f64::sum_v(s, sums)
    }
}
