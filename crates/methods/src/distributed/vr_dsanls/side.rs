//! One factor, and its update with a sampled product.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Zip};

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::sketch;
use fednmf_linalg::{Block, Real, gemm, gram};

use crate::shared::factor_side::FactorSide;
use crate::shared::sampled_product::SampledProduct;

pub const SCORES_V: MessageTag = MessageTag::new("scores of V", Payload::Scalar);
pub const SCORES_U: MessageTag = MessageTag::new("scores of U", Payload::Scalar);
pub const CHANGE_V: MessageTag = MessageTag::new("sketched change of V", Payload::SketchedFactor);
pub const CHANGE_U: MessageTag = MessageTag::new("sketched change of U", Payload::SketchedFactor);

/// A factor, the operands of its update, and those that the other factor's update needs.
pub struct AnchoredSide<T: Real> {
    /// The rows that this rank owns; their right-hand side is the exact product P.
    pub factor: FactorSide<T>,
    pub penalty: Penalty,
    /// The data with the other dimension as rows: N × |own rows|.
    pub data: Block<T>,
    /// The factor after the last anchor's update.
    pub fitted: Array2<T>,
    /// The V for which P_U was computed; `None` for U, where it equals `fitted`.
    pub start: Option<Array2<T>>,
    /// The factor before the last anchor's update, for extrapolation.
    pub old: Array2<T>,
    pub rhs: Array2<T>,
    /// The change D since the last anchor.
    pub change: Array2<T>,
    /// The product with D, for the update of the other factor. The message also contains Y_bᵀD minus its estimate from the
    /// sample, and the Gram matrix.
    pub sampled: SampledProduct<T>,
}

impl<T: Real> AnchoredSide<T> {
    /// One half of a sampled iteration: updates this factor from the change of the other one, `fixed`.
    pub fn update_sampled(&mut self, fixed: &mut AnchoredSide<T>, sweeps: usize, run: &mut Sampling<'_, T>) {
        let Sampling { comm, gram: g, seed, iteration, for_u } = run;
        let k = g.ncols();
        let AnchoredSide { factor: FactorSide { own, .. }, fitted, start, change, sampled, .. } = fixed;
        let scores = comm.work("score change", || {
            let start = start.as_ref().unwrap_or(fitted);
            Zip::from(&mut *change).and(&*own).and(start).for_each(|d, &new, &old| *d = new - old);
            sampled.sampler.score(&change.view())
        });
        let stream = sketch::stream(*seed, *for_u, *iteration);
        sampled.draw(comm, "sketch change", scores, &stream, |sampler, rows, grams| {
            sampler.fill(&change.view(), rows);
            // Y_bᵀD minus its estimate: a row of D counts with 1 minus the weights of its draws.
            let mut draws = sampler.own_draws().peekable();
            while let Some((_, row, weight)) = draws.next() {
                let mut left = 1.0 - weight;
                while let Some((_, _, weight)) = draws.next_if(|next| next.1 == row) {
                    left -= weight;
                }
                let left = T::from_f64(left);
                change.row_mut(row).mapv_inplace(|d| left * d);
            }
            let (rest, whole) = grams.split_at_mut(k * k);
            gemm(T::one(), &fitted.t(), &change.view(), T::zero(), &mut square_mut(rest, k));
            gram(&own.view(), &mut square_mut(whole, k));
        });
        comm.work("sampled product", || {
            sampled.collect();
            sampled.multiply(&self.data, &mut self.rhs);
            let (rest, whole) = sampled.own_words().split_at(k * k);
            gemm(T::one(), &self.fitted.view(), &square(rest, k), T::one(), &mut self.rhs.view_mut());
            self.rhs.zip_mut_with(&self.factor.rhs, |sum, &exact| *sum += exact);
            g.assign(&square(whole, k));
        });
        let step = Sweep { mu: T::zero(), passes: sweeps, penalty: self.penalty };
        comm.work("update", || sweep(&mut self.factor.own.view_mut(), &self.rhs.view(), &g.view(), step));
    }
}

/// Work arrays and parameters that both halves of a sampled iteration share.
pub struct Sampling<'a, T: Real> {
    pub comm: &'a Communicator,
    pub gram: &'a mut Array2<T>,
    pub seed: u64,
    pub iteration: usize,
    pub for_u: bool,
}

/// The k × k matrix at the start of some words of a message.
pub fn square<T>(words: &[T], k: usize) -> ArrayView2<'_, T> {
    ArrayView2::from_shape((k, k), words).expect("cut to this size")
}

/// As [`square`], mutable.
pub fn square_mut<T>(words: &mut [T], k: usize) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape((k, k), words).expect("cut to this size")
}
