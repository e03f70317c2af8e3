//! The Kullback-Leibler divergence with missing entries: min Σ (m log(m / f) − m + f) over the observed entries.
//!
//! The update of a row x needs its nonzeros and, for each component l, the sum s_l = Σ y_jl over the observed entries j
//! only. The sum is that of all columns minus the missing ones, or that of the observed ones, depending on which list is
//! given. Missing entries are zeros of the block, which contribute no other term.

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{DivergenceUpdate, FixedFactor, KlMultiply, KlSweeps, SOLVED, column_sums};
use fednmf_linalg::{Block, PerThread, Real, over_rows};

use super::lists::{Listed, Lists};
use super::step::UpdateKind;

/// A difference of two sums below this fraction of the operands is only rounding error.
const LOST: f64 = 64.0 * f64::EPSILON;

/// The rows of a block, with zeros for excluded entries, and the list of included or of excluded entries.
#[derive(Clone, Copy)]
pub struct Rows<'a, T: Real> {
    pub block: &'a Block<T>,
    pub lists: &'a Lists<T>,
    pub listed: Listed,
}

impl<T: Real> Rows<'_, T> {
    /// The sums of the columns of Y over the observed entries of a row; `totals` holds the sums over all entries.
    fn observed_sums<'y>(self, number: usize, y: impl Fn(usize) -> &'y [T], totals: &[f64], sums: &mut [f64])
    where
        T: 'y,
    {
        let (index, _) = self.lists.row(number);
        sums.fill(0.0);
        for &j in index {
            sums.iter_mut().zip(y(j as usize)).for_each(|(sum, y)| *sum += y.as_f64());
        }
        if self.listed == Listed::Missing {
            for (sum, &total) in sums.iter_mut().zip(totals) {
                let rest = total - *sum;
                *sum = if rest > LOST * total { rest } else { 0.0 };
            }
        }
    }

    /// Whether a row has no observed entry.
    fn is_unobserved(self, number: usize) -> bool {
        let nothing = if self.listed == Listed::Observed { 0 } else { self.block.shape().1 };
        self.lists.row(number).0.len() == nothing
    }
}

/// Work arrays for the update of rows, allocated once.
pub struct DivergenceStep {
    threads: PerThread<OneThread>,
    totals: Vec<f64>,
}

#[derive(Clone)]
struct OneThread {
    multiply: KlMultiply,
    sweeps: KlSweeps,
    sums: Vec<f64>,
}

impl DivergenceStep {
    pub fn new(kind: UpdateKind, k: usize) -> Self {
        let passes = if let UpdateKind::KlCd { passes } = kind { passes } else { 1 };
        let one = OneThread { multiply: KlMultiply::new(k), sweeps: KlSweeps::new(k, passes), sums: vec![0.0; k] };
        DivergenceStep { threads: PerThread::new(one), totals: vec![0.0; k] }
    }

    /// Updates the rows x for the rows y of the other factor, both in row order.
    pub fn update<T: Real>(
        &mut self,
        kind: UpdateKind,
        data: Rows<'_, T>,
        x: &mut Array2<T>,
        y: &ArrayView2<'_, T>,
        penalty: Penalty,
    ) {
        let DivergenceStep { threads, totals } = self;
        let (rows, k) = (y.row_major(), totals.len());
        column_sums(rows, totals);
        let totals = &*totals;
        over_rows(&mut x.view_mut(), &|first, mut x| {
            threads.with(|OneThread { multiply, sweeps, sums }| {
                for (a, mut x) in x.rows_mut().into_iter().enumerate() {
                    let number = first + a;
                    if data.is_unobserved(number) {
                        continue;
                    }
                    data.observed_sums(number, |j| &rows[j * k..(j + 1) * k], totals, sums);
                    let (x, y) = (x.row_major_mut(), FixedFactor { rows, sums, gram: &[] });
                    match kind {
                        UpdateKind::KlCd { .. } => sweeps.update((data.block, number), y, x, penalty),
                        _ => multiply.update((data.block, number), y, x, penalty),
                    }
                }
            });
        });
    }
}

impl DivergenceStep {
    /// The terms of the update of the rows x by sums over blocks that have other rows y: x times the numerators, and the
    /// denominators.
    pub fn terms<T: Real>(
        &mut self,
        data: Rows<'_, T>,
        (x, y): (&Array2<T>, &ArrayView2<'_, T>),
        [above, below]: [&mut Array2<T>; 2],
    ) {
        let DivergenceStep { threads, totals } = self;
        let (rows, k) = (y.row_major(), totals.len());
        column_sums(rows, totals);
        let totals = &*totals;
        over_rows(&mut below.view_mut(), &|first, mut below| {
            threads.with(|OneThread { sums, .. }| {
                for (a, below) in below.rows_mut().into_iter().enumerate() {
                    data.observed_sums(first + a, |j| &rows[j * k..(j + 1) * k], totals, sums);
                    below.into_iter().zip(&*sums).for_each(|(to, &sum)| *to = T::from_f64(sum));
                }
            });
        });
        above.assign(x);
        over_rows(&mut above.view_mut(), &|first, mut above| {
            threads.with(|OneThread { multiply, sums, .. }| {
                // An update for denominators of one.
                sums.fill(1.0);
                let y = FixedFactor { rows, sums, gram: &[] };
                for (a, mut above) in above.rows_mut().into_iter().enumerate() {
                    multiply.update((data.block, first + a), y, above.row_major_mut(), Penalty::NONE);
                }
            });
        });
    }
}

/// The rows U ≥ 0 that minimise the divergence on the observed entries of a block's rows plus the penalty.
pub fn project<T: Real>(data: Rows<'_, T>, v: &ArrayView2<'_, T>, penalty: Penalty) -> Array2<T> {
    let (rows, k) = (data.block.shape().0, v.ncols());
    let flat: Vec<T> = v.rows().into_iter().flatten().copied().collect();
    let (mut totals, mut sums, mut sweeps) = (vec![0.0; k], vec![0.0; k], KlSweeps::new(k, 1));
    column_sums(&flat, &mut totals);
    let mut u = Array2::zeros((rows, k));
    for (i, mut u) in u.rows_mut().into_iter().enumerate() {
        data.observed_sums(i, |j| &flat[j * k..(j + 1) * k], &totals, &mut sums);
        sweeps.solve((data.block, i), FixedFactor { rows: &flat, sums: &sums, gram: &[] }, penalty, SOLVED);
        u.iter_mut().zip(sweeps.solution()).for_each(|(u, &x)| *u = T::from_f64(x));
    }
    u
}

/// The divergence of the observed entries of a block's rows from U Vᵀ. Infinite if the fit of a nonzero entry is 0.
pub fn divergence<T: Real>(data: Rows<'_, T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
    let k = u.ncols();
    let flat: Vec<T> = v.rows().into_iter().flatten().copied().collect();
    let (mut totals, mut sums) = (vec![0.0; k], vec![0.0; k]);
    column_sums(&flat, &mut totals);
    let mut divergence = 0.0;
    for (i, u) in u.rows().into_iter().enumerate() {
        data.observed_sums(i, |j| &flat[j * k..(j + 1) * k], &totals, &mut sums);
        divergence += u.iter().zip(&sums).map(|(u, sum)| u.as_f64() * sum).sum::<f64>();
        data.block.for_each_nonzero(i, |j, m| {
            let y = &flat[j * k..(j + 1) * k];
            let fit: f64 = u.iter().zip(y).map(|(u, y)| u.as_f64() * y.as_f64()).sum();
            divergence += m.as_f64() * (m.as_f64() / fit).ln() - m.as_f64();
        });
    }
    divergence
}
