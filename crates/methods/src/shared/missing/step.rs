//! The update of one row of a factor if some entries of its row of the data are missing.
//!
//! Let Ω be the observed entries of the row, x its row of the factor, and y_j the rows of the other factor. For each
//! component l, HALS needs the sums Σ_Ω (m_j − x·y_j) y_jl and Σ_Ω y_jl², a multiplicative update Σ_Ω m_j y_jl and Σ_Ω
//! (x·y_j) y_jl. If the observed entries are listed, the sums are taken over Ω. If the missing entries are listed, the sums
//! over all columns follow from the Gram matrix and the product with the data, and the terms of the missing entries are
//! subtracted.

use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, Axis};

use fednmf_linalg::nls::{Penalty, Pivoting, divergence, multiplied};
use fednmf_linalg::simd::dispatch_fn;
use fednmf_linalg::{Real, gram};

use crate::shared::missing::lists::{Listed, Lists};

/// The kind of update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateKind {
    /// Coordinate descent with this number of passes over all components.
    Hals { passes: usize },
    /// The exact solution, by block principal pivoting.
    Bpp,
    /// A multiplicative update.
    Mu,
    /// A multiplicative update for the Kullback-Leibler divergence.
    KlMu,
    /// Coordinate descent for the Kullback-Leibler divergence, with this number of passes over all components.
    KlCd { passes: usize },
}

impl UpdateKind {
    /// Whether the divergence is minimised rather than the squared error.
    pub fn is_divergence(self) -> bool {
        matches!(self, UpdateKind::KlMu | UpdateKind::KlCd { .. })
    }

    /// Passes over the components of a row.
    pub fn passes(self) -> usize {
        match self {
            UpdateKind::Hals { passes } | UpdateKind::KlCd { passes } => passes,
            UpdateKind::Bpp | UpdateKind::Mu | UpdateKind::KlMu => 1,
        }
    }
}

/// A difference of two sums below this number of units in the last place is only rounding error.
const LOST: f64 = 64.0;

/// Work arrays for one row, allocated once.
#[derive(Clone)]
pub struct Workspace<T> {
    /// The listed rows of the other factor, component after component.
    z: Vec<T>,
    /// For each listed entry: the residual (observed entries), or the fit (missing entries).
    e: Vec<T>,
    squares: Vec<T>,
    old: Vec<T>,
    /// The Gram matrix and the right-hand side of the observed entries, for exact solutions.
    observed: Array2<T>,
    rhs: Vec<T>,
    pivoting: Pivoting,
}

impl<T: Real> Workspace<T> {
    pub fn new(longest: usize, k: usize) -> Self {
        let zeros = |n: usize| vec![T::zero(); n];
        Workspace {
            z: zeros(longest * k),
            e: zeros(longest),
            squares: zeros(k),
            old: zeros(k),
            observed: Array2::zeros((k, k)),
            rhs: zeros(k),
            pivoting: Pivoting::new(k),
        }
    }
}

/// A row's problem.
pub struct Row<'a, T: Real> {
    pub listed: Listed,
    pub lists: &'a Lists<T>,
    pub number: usize,
    /// The other factor, all rows, in row order.
    pub y: &'a ArrayView2<'a, T>,
    /// For [`Listed::Missing`]: the Gram matrix of y, and the product of the data (zeros at missing entries) with y.
    pub gram: &'a Array2<T>,
    pub rhs: ArrayView1<'a, T>,
    /// The penalty on the factor that is updated.
    pub penalty: Penalty,
}

/// a·b, summed in f64: a row may have millions of entries.
#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    T::from_f64(divergence::dot(a, b, T::as_f64))
}

#[inline(always)]
fn add<T: Real>(to: &mut [T], scale: T, from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += scale * from);
}

impl<T: Real> Row<'_, T> {
    /// Updates the row x of the factor. A component that no observed entry determines stays unchanged, or becomes 0 with a
    /// penalty.
    pub fn update(&self, kind: UpdateKind, x: &mut ArrayViewMut1<'_, T>, space: &mut Workspace<T>) {
        dispatch_fn(
            #[inline(always)]
            || self.step(kind, x, space),
        );
    }

    #[inline(always)]
    fn step(&self, kind: UpdateKind, x: &mut ArrayViewMut1<'_, T>, space: &mut Workspace<T>) {
        let k = x.len();
        let (index, values) = self.lists.row(self.number);
        let length = index.len();
        let Workspace { z, e, squares, old, observed, rhs, pivoting } = space;
        let (z, e) = (&mut z[..k * length], &mut e[..length]);
        for (t, &b) in index.iter().enumerate() {
            for (l, &y) in self.y.row(b as usize).iter().enumerate() {
                z[l * length + t] = y;
            }
        }
        let part = |l: usize| l * length..(l + 1) * length;
        let present = self.listed == Listed::Observed;
        let lost = T::from_f64(LOST) * T::epsilon();
        let (l1, l2) = self.penalty.weights::<T>();
        let penalized = !self.penalty.is_none();
        e.fill(T::zero());
        for l in 0..k {
            add(e, x[l], &z[part(l)]);
            squares[l] = dot(&z[part(l)], &z[part(l)]);
        }
        match kind {
            UpdateKind::Hals { passes } => {
                if present {
                    e.iter_mut().zip(values).for_each(|(e, &m)| *e = m - *e);
                }
                for l in (0..passes).flat_map(|_| 0..k) {
                    let own = self.gram[[l, l]];
                    let (descent, curve) = if present {
                        (dot(e, &z[part(l)]), squares[l])
                    } else {
                        let all = (0..k).fold(self.rhs[l], |sum, q| sum - self.gram[[l, q]] * x[q]);
                        (all + dot(e, &z[part(l)]), own - squares[l])
                    };
                    // The observed entries do not determine the component.
                    let nothing = curve <= T::zero() || (!present && curve <= lost * own);
                    if nothing && !penalized {
                        continue;
                    }
                    let next = if nothing {
                        T::zero()
                    } else {
                        (x[l] + (descent - l1 - l2 * x[l]) / (curve + l2)).max(T::zero())
                    };
                    let step = next - x[l];
                    if next.is_finite() && step != T::zero() {
                        x[l] = next;
                        add(e, if present { -step } else { step }, &z[part(l)]);
                    }
                }
            }
            UpdateKind::Bpp => {
                let listed = ArrayView2::from_shape((k, length), &*z).expect("k numbers for each listed entry");
                gram(&listed.t(), &mut observed.view_mut());
                for l in 0..k {
                    rhs[l] = if present { dot(values, &z[part(l)]) } else { self.rhs[l] };
                    if !present {
                        observed.row_mut(l).zip_mut_with(&self.gram.row(l), |listed, &all| *listed = all - *listed);
                    }
                }
                // A component that the observed entries do not determine gets an equation of its own, at the scale of
                // the others.
                let scale = observed.diag().iter().fold(T::zero(), |most, &x| most.max(x));
                for l in 0..k {
                    let curve = observed[[l, l]];
                    if curve <= T::zero() || (!present && curve <= lost * self.gram[[l, l]]) {
                        observed.row_mut(l).fill(T::zero());
                        observed.column_mut(l).fill(T::zero());
                        observed[[l, l]] = scale;
                        rhs[l] = if penalized { T::zero() } else { scale * x[l] };
                    }
                }
                let rhs = ArrayView2::from_shape((1, k), &*rhs).expect("k numbers");
                let mut solution = x.view_mut().insert_axis(Axis(0));
                pivoting.solve_penalized(&mut solution, &rhs, &observed.view(), self.penalty);
            }
            // Updates of the divergence have their own step.
            UpdateKind::Mu | UpdateKind::KlMu | UpdateKind::KlCd { .. } => {
                old.iter_mut().zip(x.iter()).for_each(|(old, &x)| *old = x);
                for l in 0..k {
                    let (above, below, whole) = if present {
                        let below = dot(e, &z[part(l)]);
                        (dot(values, &z[part(l)]), below, below)
                    } else {
                        let all = (0..k).fold(T::zero(), |sum, q| sum + self.gram[[l, q]] * old[q]);
                        (self.rhs[l], all - dot(e, &z[part(l)]), all)
                    };
                    if below > T::zero() && (present || below > lost * whole) {
                        x[l] = multiplied(old[l], above, below + l1 + l2 * old[l]);
                    } else if penalized {
                        x[l] = T::zero();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::dot;

    #[test]
    fn a_long_product_loses_no_terms() {
        let n = (1 << 24) + (1 << 21);
        let ones = vec![1.0f32; n];
        assert_eq!(dot(&ones, &ones), n as f32);
    }
}
