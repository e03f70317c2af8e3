//! Methods of one matrix on its observed entries: min Σ (m_ij − u_i·v_j)² over the observed (i, j), U, V ≥ 0, and penalties,
//! by HALS or multiplicative updates, or the least Kullback-Leibler divergence of them (`divergence`).
//!
//! Rank r owns U[I_r] and V[J_r] and has the rows M[I_r, :] and the columns M[:, J_r]; the other factor is gathered whole
//! for each half, (m + n) k words. Where most entries count, the update is that of the exact methods less what the missing
//! ones add to it: work ∝ (nonzeros + missing) k. Where few do, they are gone through: work ∝ observed k.

use ndarray::Array2;

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, MessageTag, Parts};
use fednmf_data::STATISTICS;
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Block, Order, PerThread, Real, gram, over_rows};

use super::MissingArgs;
use super::divergence::{DivergenceStep, Rows, divergence};
use super::lists::{Listed, Lists};
use super::separated::{Separated, Tally};
use super::step::{Row, UpdateKind, Workspace};
use crate::metrics;
use crate::shared::grid::{GATHER_U, GATHER_V, GRAM_U, GRAM_V};
use crate::shared::init;
use crate::shared::regularization::{Penalties, RegularizationArgs};
use crate::{Algorithm, Measures, Problem};

/// One factor on one rank, with the data for its update.
struct MissingSide<T: Real> {
    /// Own rows × N, zero where missing.
    block: Block<T>,
    lists: Lists<T>,
    own: Array2<T>,
    first: usize,
    parts: Parts,
    /// This factor whole, in row order.
    whole: Array2<T>,
    rhs: Array2<T>,
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
    /// For the updates of the divergence.
    step: DivergenceStep,
    tally: Tally<T>,
    /// Number of rows, and of columns, without an observed entry.
    unobserved: [f64; 2],
    /// Whether the start was read from a file.
    given: bool,
    iteration: usize,
}

/// Puts the method together.
///
/// # Errors
/// On options that do not go with missing entries, or when nothing is observed.
pub fn build<T: Real>(
    problem: Problem<'_, T>,
    args: &MissingArgs,
    regularization: &RegularizationArgs,
    kind: UpdateKind,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { mut data, k, seed, comm, initial, missing, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let [of_rows, of_cols] = [&data.cuts.rows, &data.cuts.cols].map(|cuts| cuts[comm.rank()].clone());
    let separated = Separated::take(&mut data, missing, args, seed, &comm)?;
    let scale = separated.scale((m, n), k);
    let Separated { listed, rows: (rows, of_u), cols: (cols, of_v), tally } = separated;

    let products = listed == Listed::Missing && !kind.is_divergence();
    let longest = of_u.longest().max(of_v.longest());
    let build = |mut block: Block<T>, lists: Lists<T>, first: usize, total: usize, cuts: &[std::ops::Range<usize>]| {
        if products {
            block.prepare(k)?;
        }
        let own = block.shape().0;
        let used = if products { own } else { 0 };
        Ok::<_, Error>(MissingSide {
            own: Order::RowMajor.zeros(own, k),
            whole: Order::RowMajor.zeros(total, k),
            rhs: block.order().zeros(used, k),
            parts: Parts::new(cuts, k),
            block,
            lists,
            first,
        })
    };
    let given = initial.is_some();
    let mut u = build(rows, of_u, of_rows.start, m, &data.cuts.rows)?;
    let mut v = build(cols, of_v, of_cols.start, n, &data.cuts.cols)?;
    match initial {
        Some(given) => {
            let read = init::given(given, [&of_rows, &of_cols], [u.own.view_mut(), v.own.view_mut()]);
            comm.agree_on_error(read)?;
        }
        None => {
            init::u(seed, &of_rows, scale, u.own.view_mut());
            init::v(seed, &of_cols, scale, v.own.view_mut());
        }
    }
    let mut unobserved =
        [u.lists.clear_unobserved(listed, n, &mut u.own), v.lists.clear_unobserved(listed, m, &mut v.own)];
    comm.sum(STATISTICS, &mut unobserved);
    let operand = if products { u.block.order().zeros(m.max(n), k) } else { Order::RowMajor.zeros(0, k) };
    let space = PerThread::new(Workspace::new(if kind.is_divergence() { 0 } else { longest }, k));
    Ok(Box::new(Masked {
        comm,
        kind,
        penalties: regularization.penalties((m, n)),
        given,
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

/// One half of an iteration: `x` by the rows of `y`.
fn half<T: Real>(
    (comm, kind, listed): (&Communicator, UpdateKind, Listed),
    penalty: Penalty,
    (x, y): (&mut MissingSide<T>, &mut MissingSide<T>),
    (gram_parcel, gather): (MessageTag, MessageTag),
    (g, operand, space): (&mut Array2<T>, &mut Array2<T>, &PerThread<Workspace<T>>),
) {
    whole(comm, y, gather);
    if listed == Listed::Missing {
        comm.work("Gram", || gram(&y.own.view(), &mut g.view_mut()));
        comm.sum(gram_parcel, g.as_slice_mut().expect("made contiguous"));
        let phase = if gather == GATHER_V { "product M V" } else { "product M'U" };
        comm.work(phase, || {
            if x.block.order() == Order::RowMajor {
                x.block.mul(&y.whole.view(), &mut x.rhs.view_mut());
            } else {
                let mut turned = operand.slice_mut(ndarray::s![..y.whole.nrows(), ..]);
                turned.assign(&y.whole);
                x.block.mul(&turned.view(), &mut x.rhs.view_mut());
            }
        });
    }
    let none = ndarray::aview1(&[]);
    comm.work("update", || {
        let (lists, all_rhs, y, gram) = (&x.lists, &x.rhs, &y.whole, &*g);
        over_rows(&mut x.own.view_mut(), &|first, mut rows| {
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

/// The same for the divergence.
fn half_by_divergence<T: Real>(
    (comm, kind, listed): (&Communicator, UpdateKind, Listed),
    penalty: Penalty,
    (x, y): (&mut MissingSide<T>, &mut MissingSide<T>),
    gather: MessageTag,
    step: &mut DivergenceStep,
) {
    whole(comm, y, gather);
    comm.work("update", || {
        let data = Rows { block: &x.block, lists: &x.lists, listed };
        step.update(kind, data, &mut x.own, &y.whole, penalty);
    });
}

/// Gathers a factor whole.
fn whole<T: Real>(comm: &Communicator, side: &mut MissingSide<T>, tag: MessageTag) {
    let (own, whole) = (side.own.as_slice(), side.whole.as_slice_mut());
    comm.all_gather(tag, own.expect("made in row order"), &side.parts, whole.expect("made in row order"));
}

impl<T: Real> Algorithm<T> for Masked<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let Masked { comm, kind, penalties, listed, u, v, gram, operand, space, step, .. } = self;
            if kind.is_divergence() {
                half_by_divergence((comm, *kind, *listed), penalties.u, (u, v), GATHER_V, step);
                half_by_divergence((comm, *kind, *listed), penalties.v, (v, u), GATHER_U, step);
                self.iteration += 1;
                continue;
            }
            half((comm, *kind, *listed), penalties.u, (u, v), (GRAM_V, GATHER_V), (gram, operand, space));
            half((comm, *kind, *listed), penalties.v, (v, u), (GRAM_U, GATHER_U), (gram, operand, space));
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let Masked { comm, kind, penalties, listed, u, v, tally, .. } = self;
        whole(comm, v, GATHER_V);
        let (own, whole_v) = (u.own.view(), v.whole.view());
        let squared = u.lists.residual2(*listed, &u.block, &own, &whole_v);
        let (squared, mut found) = tally.errors(comm, squared);
        let mut loss = 0.5 * squared;
        if kind.is_divergence() {
            let data = Rows { block: &u.block, lists: &u.lists, listed: *listed };
            let mut sum = [divergence(data, &own, &whole_v)];
            comm.sum(metrics::DIVERGENCE, &mut sum);
            loss = sum[0];
            found.push((metrics::Measure::Divergence.key(), loss));
        }
        let penalty = penalties.sum(comm, &own, &v.own.view());
        found.extend(penalties.objective(loss, penalty));
        found.extend(tally.heldout(comm, &own, &whole_v));
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![
            Piece::shared("U", self.u.whole.nrows(), self.u.first, self.u.own.view()),
            Piece::shared("V", self.v.whole.nrows(), self.v.first, self.v.own.view()),
        ]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, side) in [("U", &mut self.u), ("V", &mut self.v)] {
            saved.rows(name, Owner::Shared, side.first, side.own.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut all = self.tally.decisions(self.listed, self.unobserved);
        all.push(("inner_sweeps", self.kind.passes().into()));
        all.extend((!self.given).then_some(("init", "random".into())));
        all
    }
}
