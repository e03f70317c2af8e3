//! Distributed methods on the observed entries only: min Σ (m_ij − u_i·v_j)² over the observed (i, j), U, V ≥ 0, plus
//! penalties, by HALS, multiplicative updates or BPP; or the minimum of the Kullback-Leibler divergence (`divergence`).
//!
//! Rank r owns U[I_r] and V[J_r] and holds the rows M[I_r, :] and the columns M[:, J_r]. The other factor is gathered as a
//! whole for each half: (m + n) k words. If most entries are observed, the update is that of the exact methods minus the
//! terms of the missing entries: work ∝ (nonzeros + missing) k. If few are observed, the update visits only these: work ∝
//! observed × k.

use std::ops::Range;

use ndarray::{Array2, aview1, s};

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::STATISTICS;
use fednmf_data::state::{Piece, SavedState};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Block, Order, PerThread, Real, over_rows};

use super::MissingParams;
use super::divergence::{DivergenceStep, Rows, divergence};
use super::lists::{Listed, Lists};
use super::separated::{Separated, Tally};
use super::step::{Row, UpdateKind, Workspace};
use crate::decision::Decision;
use crate::metrics;
use crate::shared::factor_side::{FactorSide, FactorTags, U, V};
use crate::shared::init;
use crate::shared::init::Start;
use crate::shared::regularization::{Penalties, RegularizationParams};
use crate::{Algorithm, Measures, Problem};

/// A factor in row order, with the data for its update.
struct MissingSide<T: Real> {
    factor: FactorSide<T>,
    /// Own rows × N, with zeros at missing entries.
    block: Block<T>,
    lists: Lists<T>,
}

struct Masked<T: Real> {
    comm: Communicator,
    kind: UpdateKind,
    penalties: Penalties,
    listed: Listed,
    u: MissingSide<T>,
    v: MissingSide<T>,
    gram: Array2<T>,
    /// The other factor in the memory order of dense products.
    operand: Array2<T>,
    space: PerThread<Workspace<T>>,
    /// Work arrays for updates of the divergence.
    step: DivergenceStep,
    tally: Tally<T>,
    /// Number of rows, and of columns, without an observed entry.
    unobserved: [f64; 2],
    /// Whether the start was read from a file.
    start: Start,
    iteration: usize,
}

/// Builds the method.
///
/// # Errors
/// On all ranks, if an option is incompatible with missing entries, or no entry is observed.
pub fn build<T: Real>(
    problem: Problem<'_, T>,
    args: &MissingParams,
    regularization: &RegularizationParams,
    kind: UpdateKind,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { mut data, k, seed, comm, initial, missing, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let separated = Separated::take(&mut data, missing, args, seed, &comm)?;
    let penalties = regularization.penalties((m, n));
    let beta = if kind.is_divergence() { 1.0 } else { 2.0 };
    let scales = init::random_scales(penalties, separated.sum((m, n)), (m, n), k, beta);
    let Separated { listed, rows, cols, tally } = separated;

    let products = listed == Listed::Missing && !kind.is_divergence();
    let longest = rows.1.longest().max(cols.1.longest());
    let build = |tags: FactorTags, (mut block, lists): (Block<T>, Lists<T>), cuts: &[Range<usize>]| {
        let mut factor = FactorSide::of_all_ranks(tags, &comm, cuts, k, Order::RowMajor).with_gathered();
        if products {
            comm.agree_on_error(block.prepare(k))?;
            factor.rhs = block.order().zeros(block.shape().0, k);
        }
        SharedResult::Ok(MissingSide { factor, block, lists })
    };
    let mut u = build(U, rows, &data.cuts.rows)?;
    let mut v = build(V, cols, &data.cuts.cols)?;
    let start = init::given_or_random(initial, seed, scales, &comm, [&mut u.factor, &mut v.factor])?;
    let mut unobserved = [
        u.lists.clear_unobserved(listed, n, &mut u.factor.own),
        v.lists.clear_unobserved(listed, m, &mut v.factor.own),
    ];
    comm.sum(STATISTICS, &mut unobserved);
    let operand = if products { u.block.order().zeros(m.max(n), k) } else { Order::RowMajor.zeros(0, k) };
    let space = PerThread::new(Workspace::new(if kind.is_divergence() { 0 } else { longest }, k));
    Ok(Box::new(Masked {
        comm,
        kind,
        penalties,
        start,
        listed,
        u,
        v,
        gram: Array2::zeros((k, k)),
        operand,
        space,
        step: DivergenceStep::new(kind, k),
        tally,
        unobserved,
        iteration: 0,
    }))
}

/// One half of an iteration: updates `x` from the rows of `y`.
fn half<T: Real>(
    (comm, kind, listed): (&Communicator, UpdateKind, Listed),
    penalty: Penalty,
    (x, y): (&mut MissingSide<T>, &mut MissingSide<T>),
    (g, operand, space): (&mut Array2<T>, &mut Array2<T>, &PerThread<Workspace<T>>),
) {
    y.factor.gather();
    let whole = y.factor.gathered();
    let MissingSide { factor: FactorSide { own, rhs, .. }, block, lists } = x;
    if listed == Listed::Missing {
        y.factor.gram(comm, g);
        let phase = if y.factor.tags.name == V.name { "product M V" } else { "product M'U" };
        comm.work(phase, || {
            if block.order() == Order::RowMajor {
                block.mul(&whole, &mut rhs.view_mut());
            } else {
                let mut turned = operand.slice_mut(s![..whole.nrows(), ..]);
                turned.assign(&whole);
                block.mul(&turned.view(), &mut rhs.view_mut());
            }
        });
    }
    let none = aview1(&[]);
    comm.work("update", || {
        let (lists, all_rhs, y, gram) = (&*lists, &*rhs, &whole, &*g);
        over_rows(&mut own.view_mut(), &|first, mut rows| {
            space.with(|space| {
                for (a, mut row) in rows.rows_mut().into_iter().enumerate() {
                    let number = first + a;
                    let rhs = if listed == Listed::Missing { all_rhs.row(number) } else { none };
                    Row { listed, lists, number, y, gram, rhs, penalty }.update(kind, &mut row, space);
                }
            });
        });
    });
}

/// The same half for the divergence.
fn half_by_divergence<T: Real>(
    (comm, kind, listed): (&Communicator, UpdateKind, Listed),
    penalty: Penalty,
    (x, y): (&mut MissingSide<T>, &mut MissingSide<T>),
    step: &mut DivergenceStep,
) {
    let whole = y.factor.gather();
    comm.work("update", || {
        let data = Rows { block: &x.block, lists: &x.lists, listed };
        step.update(kind, data, &mut x.factor.own, &whole, penalty);
    });
}

impl<T: Real> Algorithm<T> for Masked<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let Masked { comm, kind, penalties, listed, u, v, gram, operand, space, step, .. } = self;
            if kind.is_divergence() {
                half_by_divergence((comm, *kind, *listed), penalties.u, (u, v), step);
                half_by_divergence((comm, *kind, *listed), penalties.v, (v, u), step);
                self.iteration += 1;
                continue;
            }
            half((comm, *kind, *listed), penalties.u, (u, v), (gram, operand, space));
            half((comm, *kind, *listed), penalties.v, (v, u), (gram, operand, space));
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let Masked { comm, kind, penalties, listed, u, v, tally, .. } = self;
        v.factor.gather();
        let (own, whole_v) = (u.factor.own.view(), v.factor.gathered());
        let squared = u.lists.residual2(*listed, &u.block, &own, &whole_v);
        let (squared, mut found) = tally.errors(comm, squared);
        let mut loss = 0.5 * squared;
        if kind.is_divergence() {
            let data = Rows { block: &u.block, lists: &u.lists, listed: *listed };
            let mut sum = [divergence(data, &own, &whole_v)];
            comm.sum(metrics::DIVERGENCE, &mut sum);
            loss = metrics::not_negative(sum[0]);
            found.push((metrics::Measure::Divergence.key(), loss));
        }
        let penalty = penalties.sum(comm, &own, &v.factor.own.view());
        found.extend(penalties.objective(loss, penalty));
        found.extend(tally.heldout(comm, &own, &whole_v, kind.is_divergence()));
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.factor.piece(), self.v.factor.piece()]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.u.factor.restore(saved)?;
        self.v.factor.restore(saved)?;
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let mut all = self.tally.decisions(self.listed, self.unobserved);
        all.push(Decision::SweepsOfObserved(self.kind.passes()));
        all.push(Decision::Start(self.start));
        all
    }
}
