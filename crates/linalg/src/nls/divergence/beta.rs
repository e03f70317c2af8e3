//! Multiplicative updates for any β-divergence (Févotte and Idier, Algorithms for Nonnegative Matrix Factorization with
//! the β-Divergence, Neural Computation 23, 2011), as in scikit-learn's NMF with `solver="mu"`.

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis};

use super::{DivergenceUpdate, FixedFactor, Majorant, column_sums, dot};
use crate::nls::{Penalty, Pivoting};
use crate::simd::dispatch_fn;
use crate::{Block, ContiguousMut, Real, over_rows};

/// Lower bound of a fit in a negative power, in units of the data ([`unit`]), in both precisions. That of scikit-learn, ε of f32, would
/// change the fits of rows that are 70 dB below the others.
const FLOOR: f64 = f64::EPSILON;

/// The power of two nearest to the root mean square of the entries of a matrix; 1 for a zero matrix. In this unit the powers of
/// entries and fits stay in the range of floating-point numbers, and [`FLOOR`] is relative to the data.
pub fn unit(norm2: f64, entries: f64) -> f64 {
    if norm2 > 0.0 { (0.5 * (norm2 / entries).log2()).round().exp2() } else { 1.0 }
}

/// The [`unit`] of numbers whose squares may be out of range.
fn unit_of(numbers: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let largest = numbers.clone().fold(0.0, f64::max);
    let scale = if largest > 0.0 { largest.log2().round().exp2() } else { 1.0 };
    let count = numbers.len() as f64;
    scale * unit(numbers.map(|x| (x / scale).powi(2)).sum(), count)
}

/// unit^by, within the range of floating-point numbers.
fn power_of_unit(unit: f64, by: f64) -> f64 {
    unit.powf(by).clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// x_l ← x_l (Σ_j m_j f_j^(β−2) y_jl / (Σ_j f_j^(β−1) y_jl + λ₁ + λ₂ x_l))^γ. With γ = 1/(2 − β) below 1, 1/(β − 1) above 2
/// and 1 in between, the divergence never increases without a penalty.
///
/// For β = 1 and 2 the denominator needs only the sums of Y's columns or its Gram matrix: work ∝ nonzeros × k. For all other
/// β it needs the fits of the zeros as well: work ∝ columns × k for a row.
#[derive(Debug, Clone)]
pub struct BetaMultiply {
    beta: f64,
    /// The [`unit`] of the data.
    unit: f64,
    /// The entries of a row, and the numerator and the denominator of each component.
    row: Vec<f64>,
    numerator: Vec<f64>,
    denominator: Vec<f64>,
}

impl BetaMultiply {
    /// For data with this [`unit`].
    pub fn new(beta: f64, k: usize, unit: f64) -> Self {
        BetaMultiply { beta, unit, row: Vec::new(), numerator: vec![0.0; k], denominator: vec![0.0; k] }
    }

    /// Operations for each component, if `stored` of `all` entries are stored: those of fits, numerators and denominators.
    pub fn flops_of(beta: f64, stored: usize, all: usize) -> usize {
        match beta {
            1.0 => 4 * stored,
            2.0 => 2 * stored,
            _ => 6 * all,
        }
    }

    /// γ.
    fn exponent(&self) -> f64 {
        match self.beta {
            beta if beta < 1.0 => 1.0 / (2.0 - beta),
            beta if beta > 2.0 => 1.0 / (beta - 1.0),
            _ => 1.0,
        }
    }

    /// Whether an update needs the Gram matrix of the fixed factor.
    pub fn takes_gram(beta: f64) -> bool {
        beta == 2.0
    }
}

#[inline(always)]
fn add<T: Real>(sums: &mut [f64], weight: f64, y: &[T]) {
    sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += weight * y.as_f64());
}

impl<T: Real> DivergenceUpdate<T> for BetaMultiply {
    fn update(&mut self, data: (&Block<T>, usize), y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty) {
        dispatch_fn(
            #[inline(always)]
            || self.multiply(data, y, x, penalty),
        );
    }

    fn flops(&self, stored: usize, all: usize) -> usize {
        Self::flops_of(self.beta, stored, all)
    }

    fn takes_gram(&self) -> bool {
        BetaMultiply::takes_gram(self.beta)
    }
}

/// For 1 ≤ β ≤ 2, where the divergence is convex in a row, and without a penalty.
impl<T: Real> Majorant<T> for BetaMultiply {
    /// The denominators are those of the last row.
    const ROWS: usize = 1;

    /// The majorant at x̂ is Σ x̂_l (p_l (x_l / x̂_l)^β / β − q_l (x_l / x̂_l)^(β−1) / (β − 1)) with the denominators p and the
    /// numerators q = p t, where t_l = x_l / x̂_l at its minimum x.
    fn rise(&self, _: FixedFactor<'_, T>, last: &[T], from: &[T], to: &[T], _: Penalty) -> f64 {
        let beta = self.beta;
        let mut rise = 0.0;
        for (((last, from), to), p) in last.iter().zip(from).zip(to).zip(&self.denominator) {
            let (last, from, to) = (last.as_f64(), from.as_f64(), to.as_f64());
            if from > 0.0 {
                let t = to / from;
                let decrease = if beta == 1.0 {
                    1.0 - t + if t > 0.0 { t * t.ln() } else { 0.0 }
                } else {
                    (1.0 - t.powf(beta)) / beta - t * (1.0 - t.powf(beta - 1.0)) / (beta - 1.0)
                };
                rise += p * ((1.0 - t) * (from - last) - from * decrease);
            }
        }
        rise
    }
}

impl BetaMultiply {
    #[inline(always)]
    fn multiply<T: Real>(
        &mut self,
        (block, row): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        x: &mut [T],
        penalty: Penalty,
    ) {
        let (k, per_unit) = (x.len(), self.unit.recip());
        let of = |j: usize| &y.rows[j * k..(j + 1) * k];
        // Numerator and denominator are divided by this.
        let mut common_factor = 1.0;
        if self.beta == 1.0 {
            let numerator = &mut self.numerator;
            numerator.fill(0.0);
            block.for_each_nonzero(
                row,
                #[inline(always)]
                |j, m| {
                    let fit = per_unit * dot(x, of(j), T::as_f64);
                    add(numerator, per_unit * m.as_f64() / fit.max(FLOOR), of(j));
                },
            );
            self.denominator.copy_from_slice(y.sums);
        } else if self.beta == 2.0 {
            let numerator = &mut self.numerator;
            numerator.fill(0.0);
            block.for_each_nonzero(
                row,
                #[inline(always)]
                |j, m| add(numerator, m.as_f64(), of(j)),
            );
            self.denominator.fill(0.0);
            for (l, x) in x.iter().enumerate() {
                self.denominator.iter_mut().zip(&y.gram[l * k..]).for_each(|(sum, g)| *sum += x.as_f64() * g);
            }
        } else {
            common_factor = power_of_unit(self.unit, self.beta - 1.0);
            self.sum_all_entries((block, row), y.rows, x);
        }
        let (l1, l2) = penalty.weights::<f64>();
        for (l, x) in x.iter_mut().enumerate() {
            let old = x.as_f64();
            let below = self.denominator[l] + (l1 + l2 * old) / common_factor;
            *x = T::from_f64(self.step(old, self.numerator[l], below));
        }
    }

    /// The numerators Σ_j m_j f_j^(β−2) y_jl and the denominators Σ_j f_j^(β−1) y_jl for any β, with entries and fits in units
    /// of the data, from the rows of Y.
    #[inline(always)]
    fn sum_all_entries<T: Real>(&mut self, (block, row): (&Block<T>, usize), y: &[T], x: &[T]) {
        let BetaMultiply { beta, unit, row: entries, numerator, denominator } = self;
        let (k, per_unit) = (x.len(), unit.recip());
        numerator.fill(0.0);
        denominator.fill(0.0);
        entries.clear();
        entries.resize(block.shape().1, 0.0);
        block.for_each_nonzero(row, |j, m| entries[j] = per_unit * m.as_f64());
        for (&m, y) in entries.iter().zip(y.chunks_exact(k)) {
            let fit = per_unit * dot(x, y, T::as_f64);
            let common = power(fit, *beta - 1.0);
            add(denominator, common, y);
            if m != 0.0 {
                // The two powers differ by one factor where neither is bounded.
                let own = if fit >= FLOOR { common / fit } else { power(fit, *beta - 2.0) };
                add(numerator, m * own, y);
            }
        }
    }

    /// The sums of an update of x for this row of a block, for updates whose sums have terms of several owners: k numerators, then
    /// k denominators, both for entries and fits in units of the data.
    pub fn terms<T: Real>(&mut self, data: (&Block<T>, usize), y: &[T], x: &[T], sums: &mut [T]) {
        dispatch_fn(
            #[inline(always)]
            || self.sum_all_entries(data, y, x),
        );
        let found = self.numerator.iter().chain(&self.denominator);
        sums.iter_mut().zip(found).for_each(|(to, &sum)| *to = T::from_f64(sum));
    }

    /// The new entry from the old one, the numerator and the denominator.
    #[inline(always)]
    pub fn step(&self, old: f64, above: f64, below: f64) -> f64 {
        // Without a denominator the component has no weight in any column.
        let ratio = if below == 0.0 { 0.0 } else { above / below };
        let exponent = self.exponent();
        old * if exponent == 1.0 { ratio } else { ratio.powf(exponent) }
    }
}

/// Maximum number of multiplicative updates of a projection.
const UPDATES: usize = 100;
/// Maximum number of Newton steps after them, which find the zeros that updates only approach.
const STEPS: usize = 200;
/// Relative change of a row below which either stops.
const UNCHANGED: f64 = 1e-10;

/// Rows X ≥ 0 that minimise the divergence of the block from X Yᵀ, and the penalty: the minimum for 1 ≤ β ≤ 2, where the
/// divergence is convex in X; otherwise a local minimum, reached from equal entries. A row does not depend on the others.
pub fn project<T: Real>(block: &Block<T>, y: &ArrayView2<'_, T>, beta: f64, penalty: Penalty) -> Array2<T> {
    let (columns, k) = (block.shape().1, y.ncols());
    let y: Vec<T> = y.rows().into_iter().flatten().copied().collect();
    let (mut sums, gram) = (vec![0.0; k], gram_of(&y, k));
    column_sums(&y, &mut sums);
    let fixed = FixedFactor { rows: &y, sums: &sums, gram: &gram };
    let total: f64 = sums.iter().sum();
    let mut x = Array2::zeros((block.shape().0, k));
    // Entries, the fixed factor and the row are in units of their own, so that powers neither overflow nor underflow.
    let mut wide = Array2::from_shape_fn((columns, k), |(j, l)| y[j * k + l].as_f64());
    let unit_of_y = unit_of(wide.iter().copied());
    wide /= unit_of_y;
    over_rows(&mut x.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
        let (mut last, mut entries) = (vec![T::zero(); k], vec![0.0; columns]);
        for (i, mut x) in (first..).zip(rows.rows_mut()) {
            let x = x.row_major_mut();
            block.widen_row(i, 0, &mut entries);
            let (sum, unit) = (entries.iter().sum::<f64>(), unit_of(entries.iter().copied()));
            let mut update = BetaMultiply::new(beta, k, unit);
            // If all components have the same weight, the fit has the sum of the row.
            x.fill(T::from_f64(if total > 0.0 { sum / total } else { 0.0 }));
            for _ in 0..UPDATES {
                last.copy_from_slice(x);
                update.update((block, i), fixed, x, penalty);
                let largest = x.iter().fold(0.0, |max: f64, x| max.max(x.as_f64()));
                let unchanged = |(x, last): (&T, &T)| (x.as_f64() - last.as_f64()).abs() <= UNCHANGED * largest;
                if x.iter().zip(&last).all(unchanged) {
                    break;
                }
            }
            entries.iter_mut().for_each(|m| *m /= unit);
            let unit_of_x = unit / unit_of_y;
            let start: Vec<f64> = x.iter().map(|x| x.as_f64() / unit_of_x).collect();
            let scale = power_of_unit(unit, beta);
            let penalty =
                Penalty { l1: penalty.l1 * unit_of_x / scale, l2: penalty.l2 * unit_of_x * unit_of_x / scale };
            let found = Row { beta, entries: &entries, y: &wide, penalty }.minimum(start);
            x.iter_mut().zip(found).for_each(|(x, found)| *x = T::from_f64(found * unit_of_x));
        }
    });
    x
}

/// The problem of one row in the unit of the data: the row, the fixed factor (columns × k) and the penalty.
struct Row<'a> {
    beta: f64,
    entries: &'a [f64],
    y: &'a Array2<f64>,
    penalty: Penalty,
}

impl Row<'_> {
    /// A local minimum, from the start x. Each step is a line search towards the minimum over x ≥ 0 of a quadratic model,
    /// whose matrix is the Hessian without its negative terms.
    fn minimum(&self, x: Vec<f64>) -> Vec<f64> {
        let k = x.len();
        let mut x = Array1::from(x);
        let mut solver = Pivoting::new(k);
        let mut value = self.value(&x);
        for _ in 0..STEPS {
            let (gradient, hessian) = self.model(&x);
            let rhs = (hessian.dot(&x) - &gradient).insert_axis(Axis(0));
            let mut to = x.clone().insert_axis(Axis(0));
            solver.solve(&mut to.view_mut(), &rhs.view(), &hessian.view());
            let step = to.index_axis_move(Axis(0), 0) - &x;
            let slope = gradient.dot(&step);
            let largest = x.iter().fold(0.0, |max: f64, x| max.max(*x));
            if slope >= 0.0 || !slope.is_finite() || step.iter().all(|d| d.abs() <= UNCHANGED * largest) {
                break;
            }
            let mut length = 1.0;
            let next = loop {
                let next = (&x + &(&step * length)).mapv(|x| x.max(0.0));
                let found = self.value(&next);
                if found <= value + 1e-4 * length * slope {
                    break Some((next, found));
                }
                length *= 0.5;
                if length < 1e-10 {
                    break None;
                }
            };
            // Only rounding errors are left.
            let Some(next) = next else { break };
            (x, value) = next;
        }
        x.to_vec()
    }

    fn value(&self, x: &Array1<f64>) -> f64 {
        let fits = self.y.dot(x);
        let sum: f64 = self.entries.iter().zip(&fits).map(|(&m, &fit)| term(self.beta, m, fit)).sum();
        sum + self.penalty.l1 * x.sum() + 0.5 * self.penalty.l2 * x.dot(x)
    }

    /// The gradient, and the terms of the Hessian that are positive.
    fn model(&self, x: &Array1<f64>) -> (Array1<f64>, Array2<f64>) {
        let beta = self.beta;
        let fits = self.y.dot(x);
        let (mut gradient, mut hessian) = (Array1::zeros(x.len()), Array2::zeros((x.len(), x.len())));
        for ((&m, &fit), y) in self.entries.iter().zip(&fits).zip(self.y.rows()) {
            let own = |weight: f64, by: f64| if m > 0.0 { weight * m * power(fit, by) } else { 0.0 };
            gradient.scaled_add(power(fit, beta - 1.0) - own(1.0, beta - 2.0), &y);
            let bend =
                f64::max((beta - 1.0) * power(fit, beta - 2.0), 0.0) + f64::max(own(2.0 - beta, beta - 3.0), 0.0);
            hessian.rows_mut().into_iter().zip(y).for_each(|(mut row, yl)| row.scaled_add(bend * yl, &y));
        }
        let Penalty { l1, l2 } = self.penalty;
        gradient.zip_mut_with(x, |g, x| *g += l1 + l2 * x);
        hessian.diag_mut().iter_mut().for_each(|h| *h += l2);
        (gradient, hessian)
    }
}

/// A power of a fit; for negative exponents the fit is at least [`FLOOR`].
#[inline(always)]
fn power(fit: f64, by: f64) -> f64 {
    let fit = if by < 0.0 { fit.max(FLOOR) } else { fit };
    match by {
        -1.0 => 1.0 / fit,
        -0.5 => 1.0 / fit.sqrt(),
        0.5 => fit.sqrt(),
        _ => fit.powf(by),
    }
}

/// The β-divergence of one entry from its fit.
fn term(beta: f64, x: f64, fit: f64) -> f64 {
    if beta == 0.0 {
        let ratio = x / fit.max(FLOOR);
        ratio - ratio.ln() - 1.0
    } else if beta == 1.0 {
        if x > 0.0 { x * (x / fit.max(FLOOR)).ln() - x + fit } else { fit }
    } else {
        let own = match x > 0.0 {
            true => x.powf(beta) - beta * x * power(fit, beta - 1.0),
            false if beta < 0.0 => return f64::INFINITY,
            false => 0.0,
        };
        (own + (beta - 1.0) * power(fit, beta)) / (beta * (beta - 1.0))
    }
}

/// YᵀY (k × k) for Y given by its rows of k numbers.
pub fn gram_of<T: Real>(y: &[T], k: usize) -> Vec<f64> {
    let mut gram = vec![0.0; k * k];
    add_gram(y, k, &mut gram);
    gram
}

/// Writes YᵀY into `gram`.
pub fn add_gram<T: Real>(y: &[T], k: usize, gram: &mut [f64]) {
    gram.fill(0.0);
    for y in y.chunks_exact(k) {
        gram.chunks_exact_mut(k).zip(y).for_each(|(gram, x)| add(gram, x.as_f64(), y));
    }
}

/// The β-divergence of a block from U Vᵀ, entry by entry; in negative powers a fit is at least ε of the data's `unit`.
pub fn divergence_of<T: Real>(beta: f64, x: &Block<T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>, unit: f64) -> f64 {
    let per_unit = unit.recip();
    let mut entries = vec![0.0; v.nrows()];
    let mut sum = 0.0;
    for (i, u) in u.rows().into_iter().enumerate() {
        x.widen_row(i, 0, &mut entries);
        for (&x, v) in entries.iter().zip(v.rows()) {
            let fit: f64 = u.iter().zip(v).map(|(u, v)| u.as_f64() * v.as_f64()).sum();
            let (scaled, fit) = (per_unit * x, per_unit * fit);
            sum += match beta == 0.0 && x > 0.0 && !(scaled / fit.max(FLOOR)).is_normal() {
                // The quotient underflows, its logarithm does not.
                true => fit.max(FLOOR).ln() + unit.ln() - x.ln() - 1.0,
                false => term(beta, scaled, fit),
            };
        }
    }
    sum * unit.powf(beta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;
    use crate::random::{Purpose, Stream, uniform_factor};

    fn random(i: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0) + 0.01
    }

    fn update(beta: f64, block: &Block<f64>, x: &mut Array2<f64>, y: &Array2<f64>) {
        let (rows, mut sums) = (y.as_slice().unwrap(), vec![0.0; y.ncols()]);
        column_sums(rows, &mut sums);
        let gram = gram_of(rows, y.ncols());
        let mut step = BetaMultiply::new(beta, y.ncols(), 1.0);
        for (row, mut x) in x.rows_mut().into_iter().enumerate() {
            let fixed = FixedFactor { rows, sums: &sums, gram: &gram };
            step.update((block, row), fixed, x.as_slice_mut().unwrap(), Penalty::NONE);
        }
    }

    #[test]
    fn an_update_is_the_formula_and_the_divergence_never_increases() {
        for beta in [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0] {
            let mut m = random(1, 15, 12);
            if beta > 0.0 {
                m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
            }
            let y = random(3, 12, 4);
            let sparse = Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
            for block in [Block::Dense(m.clone().into()), sparse] {
                let start = random(2, 15, 4);
                let mut x = start.clone();
                update(beta, &block, &mut x, &y);
                let fit = start.dot(&y.t());
                let gamma = if beta < 1.0 { 1.0 / (2.0 - beta) } else { 1.0 / f64::max(beta - 1.0, 1.0) };
                let above = (&m * &fit.mapv(|f| f.powf(beta - 2.0))).dot(&y);
                let expected = &start * &(above / fit.mapv(|f| f.powf(beta - 1.0)).dot(&y)).mapv(|x| x.powf(gamma));
                assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12), "{beta}");
                let loss = |x: &Array2<f64>| divergence_of(beta, &block, &x.view(), &y.view(), 1.0);
                let mut last = loss(&start);
                for _ in 0..100 {
                    let now = loss(&x);
                    assert!(now <= last * (1.0 + 1e-12), "{beta}: {last} {now}");
                    last = now;
                    update(beta, &block, &mut x, &y);
                }
            }
        }
    }

    /// Zeros that the factors fit exactly add nothing.
    #[test]
    fn the_divergence_of_an_exact_fit_is_zero() {
        let x = Array2::from_shape_fn((6, 2), |(i, l)| if i % 2 == l { 1.0 + i as f64 } else { 0.0 });
        let y = Array2::from_shape_fn((4, 2), |(j, l)| if j / 2 == l { 0.5 } else { 0.0 });
        let block = Block::Dense(x.dot(&y.t()).into());
        for beta in [0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0] {
            let found = divergence_of(beta, &block, &x.view(), &y.view(), 1.0);
            assert!(found.abs() < 1e-13, "{beta}: {found}");
        }
    }

    #[test]
    fn a_projection_finds_planted_rows() {
        let (planted, y) = (random(5, 9, 3), random(3, 37, 3));
        let block = Block::Dense(planted.dot(&y.t()).into());
        for beta in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0] {
            let found = project(&block, &y.view(), beta, Penalty::NONE);
            let loss = divergence_of(beta, &block, &found.view(), &y.view(), 1.0);
            assert!(loss < 1e-4, "{beta}: {loss}");
        }
        // For data that no product fits exactly, the projection is a stationary point for every β.
        let block = Block::Dense(random(7, 9, 37).into());
        for beta in [-1.0, 0.0, 0.5, 1.5, 2.5, 3.0, 4.0] {
            let found = project(&block, &y.view(), beta, Penalty::NONE);
            let mut entries = vec![0.0; 37];
            for (i, x) in found.rows().into_iter().enumerate() {
                block.widen_row(i, 0, &mut entries);
                let row = Row { beta, entries: &entries, y: &y, penalty: Penalty::NONE };
                let (gradient, _) = row.model(&x.to_owned());
                for (x, g) in x.iter().zip(&gradient) {
                    assert!(if *x > 0.0 { g.abs() < 1e-6 } else { *g > -1e-6 }, "{beta}: {x} {g}");
                }
            }
        }
        let nothing = project(&Block::Dense(Array2::<f64>::zeros((2, 37)).into()), &y.view(), 1.5, Penalty::NONE);
        assert!(nothing.iter().all(|x| *x == 0.0));
    }

    /// A row that is far below the others, or beside one that is far above, has the same weights.
    #[test]
    fn a_projected_row_does_not_depend_on_the_others() {
        let (m, y) = (random(1, 4, 12), random(3, 12, 3));
        for beta in [-1.0, 0.0, 0.5, 1.5, 2.5] {
            let project = |scales: [f64; 4]| {
                let scales = Array1::from(scales.to_vec()).insert_axis(Axis(1));
                project(&Block::Dense((&m * &scales).into()), &y.view(), beta, Penalty::NONE) / scales
            };
            let expected = project([1.0; 4]);
            let found = project([1e-9, 1.0, 1e12, 1e-200]);
            assert!((&found - &expected).iter().all(|e| e.abs() < 1e-7), "{beta}: {found} {expected}");
        }
    }

    /// Powers of data and fits are computed in the unit of the data, so that their scale changes no bit.
    #[test]
    fn the_scale_of_the_data_changes_nothing() {
        let (m, y) = (random(1, 15, 12), random(3, 12, 4));
        for beta in [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0] {
            let found = |exponent: i32| {
                let (whole, half) = (2f64.powi(2 * exponent), 2f64.powi(exponent));
                let block = Block::Dense((&m * whole).into());
                let unit = unit(block.norm2(), 180.0);
                let y = &y * half;
                let mut x = random(2, 15, 4) * half;
                let rows = y.as_slice().unwrap();
                let (mut sums, gram) = (vec![0.0; 4], gram_of(rows, 4));
                column_sums(rows, &mut sums);
                let fixed = FixedFactor { rows, sums: &sums, gram: &gram };
                let mut step = BetaMultiply::new(beta, 4, unit);
                for (row, mut x) in x.rows_mut().into_iter().enumerate() {
                    step.update((&block, row), fixed, x.as_slice_mut().unwrap(), Penalty::NONE);
                }
                let projected = project(&block, &y.view(), beta, Penalty::NONE);
                let loss = divergence_of(beta, &block, &x.view(), &y.view(), unit) / whole.powf(beta);
                (x / half, projected / half, loss)
            };
            for exponent in [-60, 60] {
                let (one, other) = (found(0), found(exponent));
                assert_eq!(one.0, other.0, "{beta}");
                assert!((&one.1 - &other.1).iter().all(|e| e.abs() < 1e-9), "{beta}");
                assert!((one.2 / other.2 - 1.0).abs() < 1e-12, "{beta}");
            }
        }
    }
}
