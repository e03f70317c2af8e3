//! Measures of a factorisation, always computed in f64.

use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2};

use fednmf_base::units::precise;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::nls::divergence::{divergence_of, dot};
use fednmf_linalg::simd::dispatch_fn;
use fednmf_linalg::{Block, Real, over_rows};

/// The leading measure of a method, which progress and summary show first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// ‖M − UVᵀ‖_F / ‖M‖_F.
    RelativeError,
    /// Root mean squared deviation over the observed entries of all parties.
    Rmsd,
    /// Harmonic mean of precision and recall of the ones.
    F1,
    /// Generalised Kullback-Leibler divergence Σ (m ln(m / f) − m + f) of the fit f = (UVᵀ)_ij from the entries m.
    Divergence,
    /// β-divergence of the fit from the entries.
    BetaDivergence,
    /// Mean over the parties of ‖Z_i − X Y_i‖_F / ‖Z_i‖_F.
    Nmse,
    /// Root mean squared error on the entries that were held out.
    HeldoutRmse,
    /// Mean Kullback-Leibler divergence of the fit from the entries that were held out ([`heldout_divergence_of`]).
    HeldoutDivergence,
    /// The objective of a regularised method: ½‖M − UVᵀ‖_F², or the divergence, plus the penalties on the factors.
    Objective,
}

/// A divergence of this share of the first one is as good as zero.
const NEGLIGIBLE: f64 = 1e-6;

impl Measure {
    /// Its key among a method's measures, in trace and output.
    pub fn key(self) -> &'static str {
        match self {
            Measure::RelativeError => "rel_error",
            Measure::Rmsd => "rmsd_overall",
            Measure::F1 => "f1",
            Measure::Divergence => "kl_divergence",
            Measure::BetaDivergence => "beta_divergence",
            Measure::Nmse => "nmse",
            Measure::HeldoutRmse => "heldout_rmse",
            Measure::HeldoutDivergence => "heldout_kl_divergence",
            Measure::Objective => "objective",
        }
    }

    /// The name for use in a sentence.
    pub fn label(self) -> &'static str {
        match self {
            Measure::RelativeError => "relative error",
            Measure::Rmsd => "RMSD",
            Measure::F1 => "F1",
            Measure::Divergence => "KL divergence",
            Measure::BetaDivergence => "beta divergence",
            Measure::Nmse => "mean relative error of the parties",
            Measure::HeldoutRmse => "held-out RMSE",
            Measure::HeldoutDivergence => "held-out KL divergence per entry",
            Measure::Objective => "objective",
        }
    }

    /// The name with the β of a β-divergence, which is not comparable with that of another β.
    pub fn label_with(self, beta: Option<f64>) -> String {
        match (self, beta) {
            (Measure::BetaDivergence, Some(beta)) => format!("{} (beta = {beta})", self.label()),
            _ => self.label().to_string(),
        }
    }

    /// The name and a value ([`precise`]).
    pub fn with_value(self, value: f64, beta: Option<f64>) -> String {
        let label = self.label_with(beta);
        if value.is_infinite() { format!("infinite {label}") } else { format!("{label} {}", precise(value)) }
    }

    /// The measure as a loss, which is 0 for a perfect fit and which `--tol` watches: 1 − F1, otherwise the value itself.
    pub fn loss(self, value: f64) -> f64 {
        if self == Measure::F1 { 1.0 - value } else { value }
    }

    /// The decrease of the loss between two evaluations below which `--tol 1` would stop. A bounded loss is compared with its
    /// first value. A divergence or an objective may start at any size, far above the others: it is compared with the last one.
    pub fn size_of_decrease(self, first: f64, last: f64) -> f64 {
        match self {
            Measure::Divergence | Measure::BetaDivergence | Measure::HeldoutDivergence | Measure::Objective => {
                last.max(NEGLIGIBLE * first)
            }
            _ => first,
        }
    }

    /// The measures to display for an evaluation, with their values: this measure, the objective with penalties, the divergence, and
    /// the relative error, each once and only if it was computed.
    pub fn leading(self, value: impl Fn(&str) -> Option<f64>) -> Vec<(Measure, f64)> {
        let others = [Measure::Objective, Measure::Divergence, Measure::BetaDivergence, Measure::RelativeError];
        let others = others.into_iter().filter(|other| *other != self);
        std::iter::once(self).chain(others).filter_map(|measure| Some((measure, value(measure.key())?))).collect()
    }
}

/// How factors and errors are brought to the units of the input after `--scale max`. A β-divergence grows with the power β of the
/// scale; `beta` is that of the one that is measured. An objective with `penalties` has no such factor.
pub fn note_of_scale(divisor: f64, beta: Option<f64>, penalties: bool) -> String {
    let divergence = match beta {
        None | Some(1.0) => String::new(),
        Some(0.0) => "; the divergence stays as it is".into(),
        Some(beta) => format!("; the divergence by its power {beta}"),
    };
    let objective = if penalties { "; the objective, with its penalties, is of the divided entries only" } else { "" };
    format!(
        "--scale max divided the entries by {divisor}: for the units of the input, multiply U V' and all errors but the relative one \
         by it{divergence}{objective}"
    )
}

/// An explanation if the β-divergence of a fit is infinite.
pub fn note_infinite(beta: f64, divergence: f64) -> Option<&'static str> {
    (divergence == f64::INFINITY).then_some(if beta <= 0.0 {
        "the divergence is infinite (null in JSON): with a beta of at most 0, that of a zero from any fit is, and that of an entry whose \
         power overflows"
    } else {
        "the divergence is infinite (null in JSON), since an entry of the matrix is positive where all components are 0; the \
             factors are valid"
    })
}

/// The least fit of a held-out entry, as a share of the mean of the observed entries. A component without weight for it is no
/// claim that it is impossible, which an infinite divergence would say.
const LEAST_FIT: f64 = 1e-3;

/// The term m ln(m / f) − m + f of a held-out entry m with the fit f, which counts as at least a thousandth of the `mean` of the
/// observed entries.
pub fn heldout_divergence_of(m: f64, fit: f64, mean: f64) -> f64 {
    let fit = fit.max(LEAST_FIT * mean);
    if m > 0.0 { m * (m / fit).ln() - m + fit } else { fit }
}

/// The term of a rank in an evaluation.
pub const RESIDUAL: MessageTag = MessageTag::of_evaluation("evaluation: squared residual", Payload::Scalar);

/// The relative error ‖M − UVᵀ‖_F / ‖M‖_F from the blocks (X, A, B) of all ranks with X ≈ A Bᵀ, which partition M;
/// `norm2` is ‖M‖_F². For M = 0 the error is 0 if the product is zero, otherwise infinite. Collective.
pub fn relative_error<'a, T: Real>(
    comm: &Communicator,
    norm2: f64,
    blocks: impl Iterator<Item = (&'a Block<T>, ArrayView2<'a, T>, ArrayView2<'a, T>)>,
) -> f64 {
    let mut residual: [f64; 1] = [blocks.map(|(x, a, b)| x.residual2(&a, &b)).sum()];
    comm.sum(RESIDUAL, &mut residual);
    relative(residual[0], norm2)
}

/// The term of a rank in the value of the penalties.
pub const PENALTY: MessageTag = MessageTag::of_evaluation("evaluation: penalty", Payload::Scalar);

/// The term of a rank in an evaluation of the divergence.
pub const DIVERGENCE: MessageTag = MessageTag::of_evaluation("evaluation: divergence", Payload::Scalar);

/// The generalised Kullback-Leibler divergence of X ≈ U Vᵀ for a block X (rows × n), its rows of U (rows × k) and the whole
/// V (n × k): infinite if the fit of a nonzero entry is 0. Work ∝ (rows + n + nonzeros) k.
fn own_kl_divergence<T: Real>(x: &Block<T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
    let mut columns = vec![0.0; u.ncols()];
    v.rows().into_iter().for_each(|v| columns.iter_mut().zip(v).for_each(|(sum, v)| *sum += v.as_f64()));
    // The terms of the rows are added in order, so the sum does not depend on the number of threads.
    let mut divergences = Array2::zeros((u.nrows(), 1));
    over_rows(&mut divergences.view_mut(), &|first, mut rows: ArrayViewMut2<'_, f64>| {
        dispatch_fn(
            #[inline(always)]
            || {
                for (i, divergence) in rows.iter_mut().enumerate() {
                    *divergence = kl_divergence_of_row((x, first + i), u.row(first + i), v, &columns);
                }
            },
        );
    });
    divergences.sum()
}

/// The divergence of one row of X from u·V; `sums` holds the column sums of V.
#[inline(always)]
fn kl_divergence_of_row<T: Real>(
    (x, row): (&Block<T>, usize),
    u: ArrayView1<'_, T>,
    v: &ArrayView2<'_, T>,
    columns: &[f64],
) -> f64 {
    let mut divergence = u.iter().zip(columns).map(|(u, sum)| u.as_f64() * sum).sum::<f64>();
    x.for_each_nonzero(row, |j, m| {
        let (v, m) = (v.row(j), m.as_f64());
        let fit: f64 = match (u.as_slice(), v.as_slice()) {
            (Some(u), Some(v)) => dot(u, v, T::as_f64),
            _ => u.iter().zip(v).map(|(u, v)| u.as_f64() * v.as_f64()).sum(),
        };
        divergence += m * (m / fit).ln() - m;
    });
    divergence
}

/// The β-divergence of X ≈ U Vᵀ for a block X (rows × n), its rows of U (rows × k) and the whole V (n × k):
/// Σ (x^β + (β − 1) f^β − β x f^(β−1)) / (β (β − 1)), and its limits for β = 0 and 1. Work ∝ nonzeros × k for β = 1, else
/// ∝ rows × columns × k. `unit` is that of the whole matrix ([`unit`](fednmf_linalg::nls::divergence::unit)).
pub fn own_divergence<T: Real>(
    beta: f64,
    x: &Block<T>,
    u: &ArrayView2<'_, T>,
    v: &ArrayView2<'_, T>,
    unit: f64,
) -> f64 {
    if beta == 1.0 { own_kl_divergence(x, u, v) } else { divergence_of(beta, x, u, v, unit) }
}

/// As [`beta_divergence`] with β = 1, which needs no unit.
pub fn kl_divergence<T: Real>(comm: &Communicator, x: &Block<T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
    beta_divergence(comm, (1.0, 1.0), x, u, v)
}

/// The sum of [`own_divergence`] over the blocks of all ranks. Collective.
pub fn beta_divergence<T: Real>(
    comm: &Communicator,
    (beta, unit): (f64, f64),
    x: &Block<T>,
    u: &ArrayView2<'_, T>,
    v: &ArrayView2<'_, T>,
) -> f64 {
    let mut divergence = [own_divergence(beta, x, u, v, unit)];
    comm.sum(DIVERGENCE, &mut divergence);
    not_negative(divergence[0])
}

/// A divergence or a sum of squares, which rounding may leave below zero where the fit is exact. NaN stays.
pub fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// ‖M − UVᵀ‖_F / ‖M‖_F from the squared norms; for M = 0 as in [`relative_error`].
pub fn relative(residual2: f64, norm2: f64) -> f64 {
    if norm2 > 0.0 {
        f64::sqrt(not_negative(residual2) / norm2)
    } else if residual2 > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn a_divergence_grows_with_the_power_of_the_scale() {
        let (x, u, v) = (array![[4.0, 2.0], [1.0, 3.0]], array![[1.0], [2.0]], array![[3.0], [1.0]]);
        for beta in [0.0, 1.0, 1.5, 3.0] {
            let of = |scale: f64| {
                own_divergence(beta, &Block::Dense((&x * scale).into()), &(&u * scale).view(), &v.view(), scale)
            };
            assert!((of(8.0) / of(1.0) / 8f64.powf(beta) - 1.0).abs() < 1e-12, "{beta}");
            let note = note_of_scale(8.0, Some(beta), false);
            assert_eq!(note.contains(&format!("by its power {beta}")), beta != 0.0 && beta != 1.0, "{note}");
        }
        assert!(
            note_of_scale(8.0, Some(0.0), true)
                .ends_with("stays as it is; the objective, with its penalties, is of the divided entries only")
        );
        assert!(note_of_scale(8.0, None, false).ends_with("by it"));
    }

    #[test]
    fn the_divergence_of_held_out_entries_is_finite_and_scales() {
        assert!((heldout_divergence_of(2.0, 1.0, 1.0) - (2.0 * 2.0f64.ln() - 1.0)).abs() < 1e-15);
        assert_eq!((heldout_divergence_of(3.0, 3.0, 1.0), heldout_divergence_of(0.0, 0.5, 1.0)), (0.0, 0.5));
        let unseen = heldout_divergence_of(2.0, 0.0, 1.0);
        assert!(unseen.is_finite() && unseen > heldout_divergence_of(2.0, 0.1, 1.0));
        assert!((heldout_divergence_of(2e9, 0.0, 1e9) / 1e9 - unseen).abs() < 1e-9);
    }

    #[test]
    fn the_relative_error_follows_the_measure_that_leads() {
        let value = |key: &str| ["f1", "rel_error"].contains(&key).then_some(if key == "f1" { 0.9 } else { 0.3 });
        assert_eq!(Measure::F1.leading(value), [(Measure::F1, 0.9), (Measure::RelativeError, 0.3)]);
        assert_eq!(Measure::RelativeError.leading(value), [(Measure::RelativeError, 0.3)]);
        // A measure that was not computed is left out.
        assert_eq!(Measure::Rmsd.leading(value), [(Measure::RelativeError, 0.3)]);
        let penalised = |key: &str| ["heldout_rmse", "objective", "rel_error"].contains(&key).then_some(0.5);
        let measures =
            |leading: Measure| leading.leading(penalised).into_iter().map(|(shown, _)| shown).collect::<Vec<_>>();
        let all = [Measure::HeldoutRmse, Measure::Objective, Measure::RelativeError];
        assert_eq!(measures(Measure::HeldoutRmse), all);
        assert_eq!(measures(Measure::Objective), all[1..]);
        let of_divergence = |key: &str| ["objective", "kl_divergence", "rel_error"].contains(&key).then_some(0.5);
        let shown: Vec<_> = Measure::Objective.leading(of_divergence).into_iter().map(|(shown, _)| shown).collect();
        assert_eq!(shown, [Measure::Objective, Measure::Divergence, Measure::RelativeError]);
    }
}
