//! Multiplicative updates for the Kullback-Leibler divergence of data that are read from a file in each pass.
//!
//! A pass updates the rows of U panel by panel, and adds up the ratios of V's update with the new rows:
//! V_jl ← V_jl (Σ_i m_ij U_il / (U_i·V_j)) / Σ_i U_il. The iterates are those of [`super::mu`]; a rank holds no columns of the
//! data, so that the ratios are summed over the ranks. With extrapolation a pass adds up the ratios of the extrapolated V and
//! those of V itself, which the safeguard needs where it rejects a row: to read the data again would take longer.

use std::mem::swap;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Zip, s};

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Panels;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{
    DivergenceUpdate, Extrapolated, FixedFactor, KlMultiply, Majorant, add_ratios, column_sums, step_by_ratios,
};
use fednmf_linalg::{Block, Contiguous, ContiguousMut, Order, PerThread, Real, even_part, over_rows};

use super::{KlParams, LAST_U, LAST_V};
use crate::cost::{Cost, Kernel, Message, Pattern, Workload};
use crate::decision::Decision;
use crate::metrics;
use crate::shared::extrapolation::{Extrapolation, NesterovWeights, extrapolate_growing};
use crate::shared::factor_side::{FactorSide, FactorTags, GATHER_V, U, V};
use crate::shared::init::{self, Start};
use crate::shared::regularization::Penalties;
use crate::{Algorithm, Measures, Problem};

/// The ratios of V's update.
pub const RATIOS: MessageTag = MessageTag::new("sum of the ratios of V", Payload::Product);
/// The column sums of U.
pub const SUMS: MessageTag = MessageTag::new("sum of the columns of U", Payload::Product);

/// The cost of an iteration on `ranks` ranks, without the panels.
pub fn cost(workload: &Workload, extrapolation: Extrapolation, ranks: usize, flops: f64) -> Cost {
    let Workload { m, n, k, word, stored, .. } = *workload;
    let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
    let mut cost = Cost { grid: Some((ranks, 1)), ..Cost::default() };
    // With extrapolation, V has ratios, rows and messages twice.
    let twice = extrapolation == Extrapolation::Restart;
    let work = if twice { 3.0 } else { 2.0 } * flops * k as f64;
    cost.add(Kernel::Other, work * workload.part(rows, n), work * stored);
    for (tag, pattern) in [(GATHER_V, Pattern::AllGather), (RATIOS, Pattern::ReduceScatter)] {
        for _ in 0..if twice { 2 } else { 1 } {
            cost.messages.extend(Message::shared_out(tag.kind, pattern, (1, ranks), n * k, word));
        }
    }
    cost.messages.push(Message::all_reduce(SUMS.kind, ranks, k, size_of::<f64>(), 1));
    let last = if twice { rows + 2 * cols + 3 * n } else { 0 };
    cost.factors = workload.bytes((rows + 2 * cols + 2 * n + last) * k);
    cost
}

/// What extrapolation keeps of the iteration before.
struct Extrapolating<T: Real> {
    updates: PerThread<Extrapolated<T, KlMultiply>>,
    weights: NesterovWeights,
    /// This rank's rows of U before their last update.
    u: Array2<T>,
    /// V before its last update; its right-hand side has the ratios of V without extrapolation.
    v: FactorSide<T>,
    /// The extrapolated V (n × k), and this rank's terms of the ratios without extrapolation.
    from: Array2<T>,
    ratios: Array2<T>,
}

impl<T: Real> Extrapolating<T> {
    /// Extrapolates this rank's U and the whole V. Collective.
    fn begin(&mut self, u: &mut Array2<T>, v: &ArrayView2<'_, T>) {
        let weight = self.weights.advance();
        extrapolate_growing(u, &mut self.u, weight);
        let (last, weight) = (self.v.gather(), T::from_f64(weight));
        Zip::from(&mut self.from).and(v).and(last).for_each(|from, &v, &last| {
            *from = v + weight * (v - last).max(T::zero());
        });
        self.ratios.fill(T::zero());
    }

    /// Updates this rank's rows of V from their ratios: from the extrapolated rows, unless that may raise the objective.
    fn step(
        &mut self,
        v: &mut FactorSide<T>,
        (update, sums): (&KlMultiply, &[f64]),
        penalty: Penalty,
        wide: &mut [f64],
    ) {
        let k = sums.len();
        let from = &self.from.entries()[v.own_rows.start * k..v.own_rows.end * k];
        self.v.own.assign(&v.own);
        v.own.entries_mut().copy_from_slice(from);
        let (last, plain) = (self.v.own.entries(), self.v.rhs.entries());
        step_by_ratios(v.own.entries_mut(), v.rhs.row_major(), sums, penalty, wide);
        let fixed = FixedFactor { rows: &[], sums, gram: &[] };
        for (j, to) in v.own.entries_mut().chunks_exact_mut(k).enumerate() {
            let [last, from, plain] = [last, from, plain].map(|rows| &rows[j * k..(j + 1) * k]);
            if from == last {
                continue;
            }
            let rise = update.rise(fixed, last, from, to, penalty);
            if rise.is_nan() || rise > 0.0 {
                to.copy_from_slice(last);
                step_by_ratios(to, plain, sums, penalty, wide);
            }
        }
    }
}

pub struct Streamed<T: Real> {
    comm: Communicator,
    panels: Panels<T>,
    u: FactorSide<T>,
    v: FactorSide<T>,
    updates: PerThread<KlMultiply>,
    extrapolating: Option<Extrapolating<T>>,
    /// This rank's terms of the ratios (n × k).
    ratios: Array2<T>,
    /// Column sums of the fixed factor, and scratch for the ratios of a row.
    sums: Vec<f64>,
    wide: Vec<f64>,
    penalties: Penalties,
    norm2: f64,
    start: Start,
    iteration: usize,
}

/// The factorisation of the rows in `panels`. Collective.
///
/// # Errors
/// If the given start cannot be read.
pub fn build<T: Real>(
    (args, extrapolation): (&KlParams, Extrapolation),
    panels: Panels<T>,
    problem: Problem<'_, T>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let tags = FactorTags { rhs: RATIOS, ..V };
    let of_v: Vec<_> = (0..comm.size()).map(|rank| even_part(n, comm.size(), rank)).collect();
    let mut u = FactorSide::of_all_ranks(U, &comm, &data.cuts.rows, k, Order::RowMajor);
    let side_v =
        || FactorSide::of_all_ranks(tags, &comm, &of_v, k, Order::RowMajor).with_rhs().with_gathered_if_shared();
    let mut v = side_v();
    let penalties = args.regularization.penalties((m, n));
    let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, 1.0);
    init::given_or_random(initial, seed, scales, &comm, [&mut u, &mut v])?;
    let extrapolating = (extrapolation == Extrapolation::Restart).then(|| {
        let mut last = side_v();
        last.own.assign(&v.own);
        Extrapolating {
            updates: PerThread::new(Extrapolated::new(KlMultiply::new(k), k)),
            weights: NesterovWeights::after(0),
            u: u.own.clone(),
            v: last,
            from: Array2::zeros((n, k)),
            ratios: Array2::zeros((n, k)),
        }
    });
    Ok(Box::new(Streamed {
        panels,
        extrapolating,
        updates: PerThread::new(KlMultiply::new(k)),
        ratios: Array2::zeros((n, k)),
        sums: vec![0.0; k],
        wide: vec![0.0; k],
        penalties,
        norm2: data.statistics.norm2,
        start: if initial.is_some() { Start::Given } else { Start::Random },
        iteration: 0,
        u,
        v,
        comm,
    }))
}

impl<T: Real> Streamed<T> {
    fn iterate(&mut self) -> SharedResult<()> {
        let Streamed { comm, panels, u, v, updates, extrapolating, ratios, sums, wide, penalties, .. } = self;
        let k = sums.len();
        let whole = v.gather();
        let rows = whole.row_major();
        column_sums(rows, sums);
        ratios.fill(T::zero());
        if let Some(extrapolating) = extrapolating {
            extrapolating.begin(&mut u.own, &whole);
        }
        let fixed = FixedFactor { rows, sums, gram: &[] };
        let mut parts = extrapolating
            .as_mut()
            .map(|Extrapolating { updates, u, from, ratios, .. }| (&*updates, &*u, &*from, ratios));
        let read = panels.pass(comm, |range, block| {
            let last = parts.as_ref().map(|all| (all.0, &all.1.entries()[range.start * k..]));
            let mut own = u.own.slice_mut(s![range, ..]);
            comm.work("update", || {
                over_rows(&mut own.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
                    let x = rows.row_major_mut();
                    match last {
                        Some((updates, last)) => {
                            let last = &last[first * k..][..x.len()];
                            updates.with(|update| update.update_rows((block, first), fixed, x, last, penalties.u));
                        }
                        None => updates.with(|update| update.update_rows((block, first), fixed, x, &[], penalties.u)),
                    }
                });
                let own = own.view();
                let add = |v: &[T], to: &mut Array2<T>| add_ratios((block, 0), own.row_major(), v, k, to.entries_mut());
                match &mut parts {
                    Some((.., from, plain)) => {
                        add(from.entries(), ratios);
                        add(fixed.rows, plain);
                    }
                    None => add(fixed.rows, ratios),
                }
            });
            Ok(())
        });
        comm.agree_on_error(read)?;
        column_sums(u.own.row_major(), sums);
        comm.sum(SUMS, sums);
        // The memory in which V was gathered, or the last ratios, is that of the next ones.
        v.sum_rhs(|out| swap(out, ratios));
        match extrapolating {
            Some(extrapolating) => {
                let Extrapolating { v: last, ratios: plain, .. } = extrapolating;
                last.sum_rhs(|out| swap(out, plain));
                comm.work("update", || updates.with(|update| extrapolating.step(v, (update, sums), penalties.v, wide)));
            }
            None => comm.work("update", || {
                step_by_ratios(v.own.entries_mut(), v.rhs.row_major(), sums, penalties.v, wide);
            }),
        }
        self.iteration += 1;
        Ok(())
    }
}

/// This rank's terms of the squared residual and the divergence.
#[derive(Default)]
pub struct Fit {
    residual2: f64,
    divergence: f64,
}

impl Fit {
    /// Adds a block with its rows of U and the whole V.
    pub fn add<T: Real>(&mut self, x: &Block<T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) {
        self.residual2 += x.residual2(u, v);
        self.divergence += metrics::own_divergence(1.0, x, u, v, 1.0);
    }

    /// The measures of the whole matrix, and the objective with the penalties of a rank's own rows of U and V. Collective.
    pub fn measures<T: Real>(
        self,
        comm: &Communicator,
        norm2: f64,
        penalties: &Penalties,
        [u, v]: [&Array2<T>; 2],
    ) -> Measures {
        let [mut residual2, mut divergence] = [[self.residual2], [self.divergence]];
        comm.sum(metrics::RESIDUAL, &mut residual2);
        comm.sum(metrics::DIVERGENCE, &mut divergence);
        let penalty = penalties.sum(comm, &u.view(), &v.view());
        let divergence = metrics::not_negative(divergence[0]);
        let all = [("rel_error", metrics::relative(residual2[0], norm2)), ("kl_divergence", divergence)];
        all.into_iter().chain(penalties.objective(divergence, penalty)).collect()
    }
}

impl<T: Real> Algorithm<T> for Streamed<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.iterate()?;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error, and the divergence, in one pass.
    fn measure(&mut self) -> Result<Measures> {
        let Streamed { comm, panels, u, v, norm2, penalties, .. } = self;
        let (whole, mut fit) = (v.gather(), Fit::default());
        let read = panels.pass(comm, |rows, block| {
            fit.add(block, &u.own.slice(s![rows, ..]), &whole);
            Ok(())
        });
        comm.agree_on_error(read)?;
        Ok(fit.measures(comm, *norm2, penalties, [&u.own, &v.own]))
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.piece(), self.v.piece()]
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        if let Some(Extrapolating { u, v, .. }) = &self.extrapolating {
            state.matrices.push(self.u.piece_of(LAST_U, u));
            state.matrices.push(self.v.piece_of(LAST_V, &v.own));
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.u.restore(saved)?;
        self.v.restore(saved)?;
        if let Some(Extrapolating { weights, u, v, .. }) = &mut self.extrapolating {
            saved.rows(LAST_U, Owner::Shared, self.u.own_rows.start, u.view_mut())?;
            saved.rows(LAST_V, Owner::Shared, v.own_rows.start, v.own.view_mut())?;
            *weights = NesterovWeights::after(iteration);
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let streamed = Decision::Streamed { panels: self.panels.count(), rows: self.panels.rows() };
        let extrapolated = self.extrapolating.as_ref().map(|_| Decision::Extrapolated);
        [Decision::Start(self.start), streamed].into_iter().chain(extrapolated).collect()
    }
}
