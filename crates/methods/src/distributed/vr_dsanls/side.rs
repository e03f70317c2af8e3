//! One factor, and its update with a sampled product.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Zip, s};

use fednmf_comm::{Communicator, MessageTag, Parts, Payload};
use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::WeightedSampler;
use fednmf_linalg::{Block, Real, gemm, gram};

use crate::shared::grid::GridSide;

pub const SCORES_V: MessageTag = MessageTag::new("scores of V", Payload::Scalar);
pub const SCORES_U: MessageTag = MessageTag::new("scores of U", Payload::Scalar);
pub const CHANGE_V: MessageTag = MessageTag::new("sketched change of V", Payload::SketchedFactor);
pub const CHANGE_U: MessageTag = MessageTag::new("sketched change of U", Payload::SketchedFactor);

/// One factor on one rank, with the operands of its update and those that the other factor's update needs.
pub struct Side<T: Real> {
    /// The rows that this rank owns, and the exact product P for them.
    pub grid: GridSide<T>,
    pub penalty: Penalty,
    /// The data with the other dimension as rows: N × |own|.
    pub data: Block<T>,
    /// The factor as the last anchor's update left it.
    pub fitted: Array2<T>,
    /// V at which P_U was computed; `None` for U, where that is `fitted`.
    pub start: Option<Array2<T>>,
    /// Where the last anchor's extrapolation started from.
    pub old: Array2<T>,
    pub rhs: Array2<T>,
    /// D.
    pub change: Array2<T>,
    /// Draws rows of this factor, for the update of the other one.
    pub sampler: WeightedSampler,
    pub message: Vec<T>,
    /// Rows drawn times their weights.
    pub weighted: Array2<T>,
    pub scores: MessageTag,
    pub tag: MessageTag,
}

impl<T: Real> Side<T> {
    /// The rows that this rank owns.
    pub fn own(&self) -> Range<usize> {
        self.grid.own_rows.clone()
    }

    /// One half of a sampled iteration: this factor, from the change of the other one, `fixed`.
    pub fn update_sampled(&mut self, fixed: &mut Side<T>, sweeps: usize, run: &mut Sampling<'_, T>) {
        let Sampling { comm, parts, totals, gram: g, seed, iteration, for_u } = run;
        let k = g.ncols();
        let Side { grid, fitted, start, change, sampler, message, weighted, scores, tag, .. } = fixed;
        let own = comm.work("score change", || {
            let start = start.as_ref().unwrap_or(fitted);
            Zip::from(&mut *change).and(&grid.own).and(start).for_each(|d, &new, &old| *d = new - old);
            sampler.score(&change.view())
        });
        comm.all_gather(*scores, &own, parts, totals);
        comm.work("sketch change", || {
            sampler.draw(&sketch::stream(*seed, *for_u, *iteration), totals, comm.rank());
            let (drawn, grams) = message.split_at_mut(sampler.size() * (k + sketch::WORDS));
            sampler.fill(&change.view(), drawn);
            // Y_bᵀD less what the sample holds of it: a row of D counts 1 less the weights of its draws.
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
            gram(&grid.own.view(), &mut square_mut(whole, k));
        });
        comm.sum(*tag, message);
        comm.work("sampled product", || {
            let (drawn, grams) = message.split_at(sampler.size() * (k + sketch::WORDS));
            sampler.collect(drawn, k);
            let mut weighted = weighted.slice_mut(s![..sampler.sample().len(), ..]);
            sampler.rows(drawn, |weight| weight, &mut weighted);
            self.data.rows_tmul(sampler.sample(), &weighted.view(), &mut self.rhs.view_mut());
            let (rest, whole) = grams.split_at(k * k);
            gemm(T::one(), &self.fitted.view(), &square(rest, k), T::one(), &mut self.rhs.view_mut());
            self.rhs.zip_mut_with(&self.grid.rhs, |sum, &exact| *sum += exact);
            g.assign(&square(whole, k));
        });
        let step = Sweep { mu: T::zero(), passes: sweeps, penalty: self.penalty };
        comm.work("update", || sweep(&mut self.grid.own.view_mut(), &self.rhs.view(), &g.view(), step));
    }
}

/// What both halves of a sampled iteration share.
pub struct Sampling<'a, T: Real> {
    pub comm: &'a Communicator,
    pub parts: &'a Parts,
    pub totals: &'a mut [u64],
    pub gram: &'a mut Array2<T>,
    pub seed: u64,
    pub iteration: usize,
    pub for_u: bool,
}

/// A Gram matrix in a message.
pub fn square<T>(words: &[T], k: usize) -> ArrayView2<'_, T> {
    ArrayView2::from_shape((k, k), words).expect("cut to this size")
}

/// As [`square`], to be filled.
pub fn square_mut<T>(words: &mut [T], k: usize) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape((k, k), words).expect("cut to this size")
}
