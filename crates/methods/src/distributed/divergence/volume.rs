//! The minimum-volume penalty on V: λ log det(I + VᵀV / δ), where each column of V has the sum 1.
//!
//! Many pairs of factors may fit data equally well. The penalty selects those whose columns of V span a small volume:
//! these are no sharper than the data demand (Leplat, Gillis, Ang, Blind audio source separation with minimum-volume
//! beta-divergence NMF, IEEE Transactions on Signal Processing 68, 2020, arXiv 1907.02404). Their log det(VᵀV + δI)
//! differs by the constant k log δ.
//!
//! With Y = (ṼᵀṼ + δI)⁻¹ at the last Ṽ, tr(Y VᵀV) majorises the penalty, up to a constant, and is a sum over the rows
//! of V. A row's quadratic form is majorised by one without products of different entries, as in the paper. The sums of
//! the columns have Lagrange multipliers (Leplat, Gillis, Idier, arXiv 2010.16223), so that the objective falls in each
//! iteration without a line search: V_jl = Ṽ_jl t_jl, with the root t ≥ 0 of
//!
//! 2λ (|Y| ṽ_j)_l t² + (μ_l − 4λ (Y⁻ ṽ_j)_l) t = Σ_i m_ij U_il / (U_i·ṽ_j)
//!
//! and μ_l so that Σ_j V_jl = 1.

use ndarray::{Array2, Axis};

use fednmf_linalg::nls::divergence::{add_gram, column_sums};
use fednmf_linalg::{Cholesky, Contiguous, ContiguousMut, Order, Real};

use crate::cost::{Cost, Kernel, Message, Pattern, Workload};
use crate::parameters::number;
use crate::shared::factor_side::{FactorSide, GATHER_V};

fednmf_base::parameters! {
    /// The minimum-volume penalty.
    pub struct VolumeParams {
        /// Weight of a penalty on the volume that the components span, log det(I + 100 n V'V) with columns of V of sum
        /// 1, relative to the sum of the matrix: for components that are unique. Mutational signatures: 0.0005
        pub min_volume: f64 = 0.0, "WEIGHT", number(0.0, MOST);
    }
}

/// Largest weight. Already far smaller ones leave nothing of the data.
const MOST: f64 = 1000.0;

impl VolumeParams {
    pub const NONE: VolumeParams = VolumeParams { min_volume: 0.0 };

    /// Whether there is a penalty.
    pub fn is_on(&self) -> bool {
        self.min_volume > 0.0
    }

    /// The command-line option for this penalty; empty without one.
    pub fn words(&self) -> Vec<String> {
        if self.is_on() { vec!["--min-volume".into(), self.min_volume.to_string()] } else { Vec::new() }
    }
}

/// δ as a share of 1/n, the least squared norm of a column with the sum 1.
const DELTA: f64 = 0.01;
/// Largest error of a column's sum, and number of Newton steps towards it.
const EXACT: f64 = 1e-12;
const STEPS: usize = 100;

/// Flops of an entry's root, and the usual number of Newton steps, for estimates.
const ROOT: f64 = 12.0;
const USUAL_STEPS: f64 = 6.0;

/// What the penalty adds to the cost of an iteration: another gather of V, and the update of the whole V on each rank.
pub fn add_cost(cost: &mut Cost, &Workload { n, k, word, .. }: &Workload, ranks: usize) {
    let entries = (n * k) as f64;
    let flops = entries * (6.0 * k as f64 + ROOT * USUAL_STEPS);
    cost.add(Kernel::Other, flops, flops);
    cost.messages.extend(Message::shared_out(GATHER_V.kind, Pattern::AllGather, (1, ranks), n * k, word));
    cost.factors += entries * (word + size_of::<Entry>()) as f64;
}

/// The equation bend t² + (slope + μ) t = ratio of an entry.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    bend: f64,
    slope: f64,
    ratio: f64,
}

impl Entry {
    /// t without an effect on any other entry: 1 for μ = 1.
    const FIXED: Entry = Entry { bend: 0.0, slope: 0.0, ratio: 1.0 };

    /// Of an entry that is zero and stays so: t is finite for any μ.
    const ZERO: Entry = Entry { bend: 1.0, slope: 0.0, ratio: 0.0 };

    /// The root t ≥ 0, and −dt/dμ.
    fn root(self, multiplier: f64) -> (f64, f64) {
        let b = self.slope + multiplier;
        let root = (b * b + 4.0 * self.bend * self.ratio).sqrt();
        // The form without cancellation.
        let t = if b > 0.0 { 2.0 * self.ratio / (b + root) } else { (root - b) / (2.0 * self.bend) };
        (t, if t > 0.0 { t / root } else { 0.0 })
    }
}

/// The value of the penalty for V (n × k), of any scale, and a matrix with this sum.
pub fn value(params: &VolumeParams, sum: f64, v: &Array2<f64>) -> f64 {
    let scale = v.sum_axis(Axis(0)).mapv(|sum| if sum > 0.0 { sum } else { 1.0 });
    let normalised = (v / &scale).as_standard_layout().into_owned();
    Volume::new(params, sum, v.dim()).value(normalised.entries())
}

/// The penalty of a run, with the memory of its update.
pub struct Volume<T: Real> {
    weight: f64,
    delta: f64,
    /// V (n × k) before its update.
    last: Array2<T>,
    /// Gram matrix of V, then Y (k × k).
    gram: Vec<f64>,
    cholesky: Cholesky,
    /// n × k.
    entries: Vec<Entry>,
    /// Of each column: its multiplier, its sum, and minus the derivative of the sum.
    multipliers: Vec<f64>,
    sums: Vec<f64>,
    falls: Vec<f64>,
}

impl<T: Real> Volume<T> {
    /// The penalty for a matrix with n columns and this sum of its entries.
    pub fn new(params: &VolumeParams, sum: f64, (n, k): (usize, usize)) -> Self {
        Volume {
            // Larger weights act as this one, whose square is finite.
            weight: (params.min_volume * sum).min(f64::MAX.sqrt()),
            delta: DELTA / n as f64,
            last: Order::RowMajor.zeros(n, k),
            gram: vec![0.0; k * k],
            cholesky: Cholesky::with_capacity(k),
            entries: vec![Entry::default(); n * k],
            multipliers: vec![0.0; k],
            sums: vec![0.0; k],
            falls: vec![0.0; k],
        }
    }

    /// Gives the columns of V the sum 1, and U their scale. Collective.
    pub fn normalise(&mut self, u: &mut FactorSide<T>, v: &mut FactorSide<T>) {
        column_sums(v.gather().row_major(), &mut self.sums);
        self.sums.iter_mut().filter(|sum| **sum == 0.0).for_each(|sum| *sum = 1.0);
        let scale = |factor: &mut Array2<T>, by: &dyn Fn(f64) -> f64| {
            for row in factor.entries_mut().chunks_exact_mut(self.sums.len()) {
                row.iter_mut().zip(&self.sums).for_each(|(x, &sum)| *x = T::from_f64(x.as_f64() * by(sum)));
            }
        };
        scale(&mut u.own, &|sum| sum);
        scale(&mut v.own, &|sum| 1.0 / sum);
    }

    /// Keeps V (n × k) before its update.
    pub fn keep(&mut self, v: &[T]) {
        self.last.entries_mut().copy_from_slice(v);
    }

    /// Replaces rows of V that have been multiplied by their ratios, without a penalty, by the update with the penalty.
    /// `sums` are those of U's columns. Every rank computes the whole V, so that the result does not depend on their
    /// number. Collective.
    pub fn update(&mut self, v: &mut FactorSide<T>, sums: &[f64]) {
        let own = v.own_rows.clone();
        let multiplied = v.gather();
        self.prepare(multiplied.row_major(), sums);
        self.solve(sums);
        let k = sums.len();
        let part = own.start * k..own.end * k;
        let (entries, last) = (&self.entries[part.clone()], &self.last.entries()[part]);
        let rows = v.own.entries_mut().chunks_exact_mut(k).zip(last.chunks_exact(k)).zip(entries.chunks_exact(k));
        for ((row, last), entries) in rows {
            for (l, x) in row.iter_mut().enumerate() {
                let (t, _) = entries[l].root(self.multipliers[l]);
                let sum = if self.sums[l] > 0.0 { self.sums[l] } else { 1.0 };
                *x = if last[l] > T::zero() { T::from_f64(last[l].as_f64() * t / sum) } else { T::zero() };
            }
        }
    }

    /// The equations of all entries.
    fn prepare(&mut self, multiplied: &[T], sums: &[f64]) {
        let Volume { weight, delta, last, gram, cholesky, entries, .. } = self;
        let k = sums.len();
        add_gram(last.entries(), k, gram);
        cholesky.factorise(k, f64::EPSILON, |i, j| gram[i * k + j] + if i == j { *delta } else { 0.0 });
        cholesky.inverse(|i, j, y| {
            gram[i * k + j] = y;
            gram[j * k + i] = y;
        });
        let rows = last.entries().chunks_exact(k).zip(multiplied.chunks_exact(k)).zip(entries.chunks_exact_mut(k));
        for ((last, multiplied), entries) in rows {
            for (l, entry) in entries.iter_mut().enumerate() {
                let (x, y) = (last[l].as_f64(), &gram[l * k..(l + 1) * k]);
                let (mut all, mut negative) = (0.0, 0.0);
                for (y, x) in y.iter().zip(last) {
                    all += y.abs() * x.as_f64();
                    negative += (-y).max(0.0) * x.as_f64();
                }
                // A component without a weight in any row stays as it is.
                *entry = if x == 0.0 {
                    Entry::ZERO
                } else if sums[l] == 0.0 {
                    Entry::FIXED
                } else {
                    let ratio = multiplied[l].as_f64() * sums[l] / x;
                    Entry { bend: 2.0 * *weight * all, slope: -4.0 * *weight * negative, ratio }
                };
            }
        }
    }

    /// The multipliers: a column's sum is convex and decreasing in its multiplier, so that Newton's method converges.
    fn solve(&mut self, sums: &[f64]) {
        let Volume { last, entries, multipliers, sums: found, falls, .. } = self;
        let k = sums.len();
        // Without a penalty the multiplier is the sum of U's column.
        multipliers.iter_mut().zip(sums).for_each(|(to, &sum)| *to = if sum > 0.0 { sum } else { 1.0 });
        for _ in 0..STEPS {
            found.fill(0.0);
            falls.fill(0.0);
            for (last, entries) in last.entries().chunks_exact(k).zip(entries.chunks_exact(k)) {
                for l in 0..k {
                    let (t, fall) = entries[l].root(multipliers[l]);
                    found[l] += last[l].as_f64() * t;
                    falls[l] += last[l].as_f64() * fall;
                }
            }
            let mut exact = true;
            for l in 0..k {
                if (found[l] - 1.0).abs() > EXACT && falls[l] > 0.0 {
                    exact = false;
                    multipliers[l] += (found[l] - 1.0) / falls[l];
                }
            }
            if exact {
                break;
            }
        }
    }

    /// The value of the penalty for V (n × k), of which the columns have the sum 1.
    pub fn value(&mut self, v: &[T]) -> f64 {
        let Volume { weight, delta, gram, cholesky, sums, .. } = self;
        let k = sums.len();
        add_gram(v, k, gram);
        cholesky.factorise(k, f64::EPSILON, |i, j| gram[i * k + j] / *delta + f64::from(u8::from(i == j)));
        *weight * cholesky.log_determinant()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component with little of the data has a negative multiplier.
    #[test]
    fn zeros_do_not_disturb_the_sum_of_their_column() {
        let v = [0.5, 0.0, 0.25, 0.5, 0.25, 0.25, 0.0, 0.25];
        let sums = [9.0, 0.1];
        let mut volume = Volume::<f64>::new(&VolumeParams { min_volume: 0.5 }, 10.0, (4, 2));
        volume.keep(&v);
        volume.prepare(&v, &sums);
        volume.solve(&sums);
        assert!(volume.multipliers[1] < 0.0, "{:?}", volume.multipliers);
        assert!(volume.sums.iter().all(|sum| (sum - 1.0).abs() < 1e-9), "{:?}", volume.sums);
    }
}
