//! Multiplicative updates for the Kullback-Leibler divergence and any β-divergence over parties with private rows, by exact
//! sums. The iterates are those of [`kl-mu`](crate::distributed::divergence::mu) and
//! [`beta-mu`](crate::distributed::divergence::beta) on all rows, with the same start.
//!
//! Party i holds the rows X_i. With its fit F_i = U_i Vᵀ, the update of U_i needs nothing of others, and that of V is
//!
//! V_jl ← V_jl (Σ_i N_i / Σ_i D_i)^γ with N_i = Σ_r x_rj f_rj^(β−2) u_rl and D_i = Σ_r f_rj^(β−1) u_rl,
//!
//! where γ is that of Févotte and Idier (2011), 1 for the Kullback-Leibler divergence (β = 1), whose D_i are the column sums
//! of U_i (Lee and Seung 2001). Parties send only N_i and D_i, whose sums can be masked. V is the last factor of an
//! iteration, so that the first sums contain U_i that were fitted to private data instead of a start that others know.
//!
//! If entries are missing or held out, N_i and D_i are sums over the observed ones, so that D_i differs from column to column.
//! The held-out entries follow from the seed, so all parties know their places. The sums of the errors on them are those of an
//! evaluation.
//!
//! With extrapolation (Hien, Leplat, Gillis, arXiv 2401.06646) both updates start at extrapolated rows. Those of V follow from
//! two iterates that all parties know. A row of V whose sums do not show that the divergence falls keeps its last value: an
//! update from there, as without parties, would take further sums.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{Joint, KEYS, PartySum, masked};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::Statistics;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{
    BetaMultiply, DivergenceUpdate, Extrapolated, FixedFactor, KlMultiply, Majorant, add_gram, column_sums,
};
use fednmf_linalg::{Block, Contiguous, ContiguousMut, PerThread, Real, over_rows};
use fednmf_privacy::Private;

use super::{EXACT_SUMS, UNBOUNDED};
use crate::cost::{Cost, Kernel, Shape, Workload};
use crate::decision::Decision;
use crate::description::{Description, LARGEST_TERM, MessageSpec, Partition};
use crate::distributed::divergence::beta::{Beta, update_for};
use crate::method::Method;
use crate::metrics;
use crate::metrics::{Measure, not_negative};
use crate::shared::disclosure::OpenedSums;
use crate::shared::extrapolation::{Extrapolation, NesterovWeights, extrapolate_growing};
use crate::shared::init;
use crate::shared::missing;
use crate::shared::missing::{Counted, Holdout, ObservedRows, PartyHoldoutParams, PartyMissing, PartyMissingParams};
use crate::shared::secure_sum::{SURVIVING, SecureSumParams, ThresholdParams, party_sum};
use crate::{Algorithm, Measures, Problem};

/// N_i V, n × k; for β ≠ 1 the columns of N_i and D_i, n × 2k.
pub const TERMS: MessageTag = MessageTag::new("sum of the terms of V's update", Payload::Product);
/// The column sums of U_i, for β = 1; over the observed entries of each column, if some are left out.
const SUMS: MessageTag = MessageTag::new("sum of the columns of U_r", Payload::Product);

/// What is known of the observed entries of all parties.
const OBSERVED: MessageTag = MessageTag::new("observed entries", Payload::Scalar);

const fn describe(
    name: &'static str,
    summary: &'static str,
    paper: &'static str,
    (measure, messages): (Measure, &'static [MessageSpec]),
) -> Description {
    Description {
        name,
        summary,
        paper,
        partition: Partition::PartyRows,
        measure,
        keeps_zeros: true,
        dp: UNBOUNDED,
        limits: Some(EXACT_SUMS),
        messages,
        ..Description::USUAL
    }
}

/// The message table, with the shapes of what is summed in each iteration, and in each evaluation with masks.
macro_rules! messages {
    ($at_evaluations:literal, $($each:expr),*) => {
        &[
            $($each,)*
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            MessageSpec::new(metrics::DIVERGENCE, "1", "each evaluation"),
            MessageSpec::new(masked(metrics::RESIDUAL), $at_evaluations, "the same, with --secure-sum"),
            LARGEST_TERM,
            MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum"),
            SURVIVING[0],
            SURVIVING[1],
            SURVIVING[2],
        ]
    };
}

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for the Kullback-Leibler divergence over parties.
    pub struct FedKl {
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
        group missing: PartyMissingParams;
        group holdout: PartyHoldoutParams;
        group secure_sum: SecureSumParams;
        group threshold: ThresholdParams;
    }
}

impl FedKl {
    fn left_out(&self) -> LeftOut {
        LeftOut { missing: self.missing.missing, holdout: self.holdout.holdout }
    }
}

impl Method for FedKl {
    const DESCRIPTION: &'static Description = &describe(
        "fed-kl",
        "Kullback-Leibler divergence over private rows: kl-mu by exact sums",
        "Lee, Seung: Algorithms for Non-negative Matrix Factorization (2001)",
        (
            Measure::Divergence,
            messages!(
                "2, with the divergence; 4 with --holdout",
                MessageSpec::new(TERMS, "n x k", "each iteration"),
                MessageSpec::new(SUMS, "k; n x k with --missing or --holdout", "each iteration"),
                MessageSpec::new(
                    masked(TERMS),
                    "n x k + k, the sums of the columns of U, as one; 2 n x k with --missing or --holdout",
                    "each iteration, with --secure-sum"
                ),
                MessageSpec::new(missing::HELD, "2", "each evaluation, with --holdout"),
                MessageSpec::new(
                    OBSERVED,
                    "4: sum, squares and number of the observed entries, number of those held out",
                    "once, with --missing or --holdout"
                ),
                MessageSpec::new(masked(OBSERVED), "the same", "the same, with --secure-sum")
            ),
        ),
    );

    fn check(&self) -> Result<()> {
        if self.extrapolation == Extrapolation::Restart && self.left_out().any() {
            let what = "--extrapolation restart cannot be combined with --missing and --holdout";
            return Err(Error::input(format!("{what}; leave it out")));
        }
        Ok(())
    }

    fn sends(&self, kind: &str) -> bool {
        match kind {
            _ if kind == OBSERVED.kind => self.left_out().any(),
            _ if kind == missing::HELD.kind => self.holdout.holdout > 0.0,
            _ => true,
        }
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { n, k, .. } = *workload;
        let below = if self.left_out().any() { n * k } else { k };
        let sums = [(TERMS, n * k), (SUMS, below)];
        let mut cost = cost(1.0, (&self.secure_sum, &self.threshold), workload, (ranks, &sums));
        if self.extrapolation == Extrapolation::Restart {
            let (parties, hosted) = workload.parties(ranks);
            cost.factors += workload.bytes((workload.m.div_ceil(parties) * hosted + workload.n) * workload.k);
        }
        Ok(Some(cost))
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(if self.left_out().any() { OpenedSums::ObservedProducts } else { OpenedSums::ExactProducts(1) })
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        let (update, multiply) = (KlMultiply::new(problem.k), BetaMultiply::new(1.0, problem.k, 1.0));
        let (extrapolation, left_out) = (self.extrapolation, self.left_out());
        let kind = Kind { beta: 1.0, unit: 1.0, measure: Measure::Divergence, extrapolation, left_out };
        build(kind, (&self.secure_sum, &self.threshold), problem, update, multiply)
    }
}

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for a β-divergence over parties.
    pub struct FedBeta {
        /// Divergence: a number, or itakura-saito (0), kullback-leibler (1) or frobenius (2). From 0 down, no entry may be zero
        pub beta: Beta = Beta(1.5), "X";
        group secure_sum: SecureSumParams;
        group threshold: ThresholdParams;
    }
}

impl Method for FedBeta {
    const DESCRIPTION: &'static Description = &describe(
        "fed-beta",
        "any beta-divergence over private rows: beta-mu by exact sums",
        "Févotte, Idier: Algorithms for Nonnegative Matrix Factorization with the β-Divergence (2011)",
        (
            Measure::BetaDivergence,
            messages!(
                "2, with the divergence",
                MessageSpec::new(TERMS, "n x 2k; n x k for --beta 1", "each iteration"),
                MessageSpec::new(SUMS, "k", "each iteration, with --beta 1"),
                MessageSpec::new(masked(TERMS), "the same as one", "each iteration, with --secure-sum")
            ),
        ),
    );

    fn sends(&self, kind: &str) -> bool {
        kind != SUMS.kind || self.beta.0 == 1.0
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { n, k, .. } = *workload;
        let sums = if self.beta.0 == 1.0 { vec![(TERMS, n * k), (SUMS, k)] } else { vec![(TERMS, 2 * n * k)] };
        Ok(Some(cost(self.beta.0, (&self.secure_sum, &self.threshold), workload, (ranks, &sums))))
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        // Numerators and denominators.
        Some(OpenedSums::ExactProducts(if self.beta.0 == 1.0 { 1 } else { 2 }))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        let Beta(beta) = self.beta;
        let (update, unit) = update_for(beta, &problem)?;
        let (extrapolation, left_out) = (Extrapolation::None, LeftOut::NOTHING);
        let kind = Kind { beta, unit, measure: Measure::BetaDivergence, extrapolation, left_out };
        build(kind, (&self.secure_sum, &self.threshold), problem, update.clone(), update)
    }
}

/// The cost of an iteration with these `sums`.
fn cost(
    beta: f64,
    (sum, threshold): (&SecureSumParams, &ThresholdParams),
    workload: &Workload,
    (ranks, sums): (usize, &[(MessageTag, usize)]),
) -> Cost {
    let Workload { m, n, k, word, .. } = *workload;
    let (parties, hosted) = workload.parties(ranks);
    let rows = m.div_ceil(parties) * hosted;
    // Where β ≠ 1, zeros have terms too.
    let (own, all) = if beta == 1.0 {
        (workload.part(rows, n), workload.stored)
    } else {
        (rows as f64 * n as f64, m as f64 * n as f64)
    };
    let mut cost = Cost::default();
    // As for the same updates without parties, in both halves of an iteration.
    let entry = (BetaMultiply::flops_of(beta, 1, 1) * k) as f64;
    cost.add(Kernel::Other, 2.0 * entry * own, 2.0 * entry * all);
    sum.add_cost(Some(threshold), &mut cost, (ranks, parties), sums, (word, 1));
    // By rows, and by columns.
    cost.data = 2.0 * workload.block(rows, workload.part(rows, n));
    cost.shape = Shape { block: (rows / hosted, n), ..Shape::default() };
    let terms: usize = sums.iter().map(|(_, words)| words).sum();
    cost.factors = workload.bytes((rows + n) * k + (hosted + 1) * terms) + (16 * terms) as f64;
    cost
}

/// The entries of the parties' data that do not count.
#[derive(Debug, Clone, Copy)]
struct LeftOut {
    missing: PartyMissing,
    /// The share of the observed entries that is held out.
    holdout: f64,
}

impl LeftOut {
    const NOTHING: LeftOut = LeftOut { missing: PartyMissing::None, holdout: 0.0 };

    fn any(self) -> bool {
        self.missing != PartyMissing::None || self.holdout > 0.0
    }
}

/// What is minimised, and how.
struct Kind {
    beta: f64,
    /// The unit of the data, in which the terms for β ≠ 1 are computed.
    unit: f64,
    /// The measure as which the divergence is reported.
    measure: Measure,
    /// Only for β = 1, as the next.
    extrapolation: Extrapolation,
    left_out: LeftOut,
}

/// Names in a checkpoint of the rows before the last update.
const LAST_U: &str = "U_last";
const LAST_V: &str = "V_last";

/// A party: its rows, its factor, and its terms of the sums.
struct PartyState<T: Real> {
    index: usize,
    /// X_i, rows × n; empty if entries are left out
    rows: Private<Block<T>>,
    /// X_iᵀ, likewise
    columns: Private<Block<T>>,
    /// X_i, if entries are left out
    observed: Option<Private<ObservedRows<T>>>,
    /// U_i, rows × k
    u: Private<Array2<T>>,
    /// U_i before its last update; without rows if nothing is extrapolated
    last: Private<Array2<T>>,
    /// The terms, n × k or n × 2k
    terms: Array2<T>,
    /// The column sums of U_i (1 × k), or those of each column of X_i (n × k)
    sums: Array2<T>,
}

/// Buffers that the parties of a rank use in turn.
struct Scratch {
    /// Column sums of the fixed factor
    sums: Vec<f64>,
    /// Gram matrix of the fixed factor, for updates that use it
    gram: Vec<f64>,
    /// k ones
    ones: Vec<f64>,
}

/// The extrapolation of V, and of the parties' factors.
struct Extrapolating<T: Real, R> {
    updates: PerThread<Extrapolated<T, R>>,
    weights: NesterovWeights,
    /// V before its last update, n × k
    last: Array2<T>,
    /// A row of V at which its update starts
    from: Vec<T>,
}

struct DivergenceRun<T: Real, R> {
    beta: f64,
    /// The unit of the data, in which the terms for β ≠ 1 are computed.
    unit: f64,
    /// The measure as which the divergence is reported.
    measure: Measure,
    comm: PartyCommunicator,
    party_sum: PartySum,
    updates: PerThread<R>,
    extrapolating: Option<Extrapolating<T, R>>,
    multiply: PerThread<BetaMultiply>,
    members: Vec<PartyState<T>>,
    /// V, n × k
    v: Array2<T>,
    /// The sums that V is updated from: n × k or n × 2k, and 1 × k or n × k
    terms: Array2<T>,
    sums: Array2<T>,
    scratch: Scratch,
    /// Expected sizes of the entries of the sums: terms, column sums, divergence.
    expected: [f64; 3],
    norm2: f64,
    tally: Option<Tally>,
    iteration: usize,
}

/// The block of a party, or its observed entries if some are left out.
type Separated<T> = (Block<T>, Option<Private<ObservedRows<T>>>);

/// Statistics of the observed entries of all parties.
#[derive(Debug, Clone, Copy)]
struct Tally {
    sum: f64,
    norm2: f64,
    observed: f64,
    held: f64,
}

fn build<T: Real, R: Majorant<T> + Sync>(
    Kind { beta, unit, measure, extrapolation, left_out }: Kind,
    (secure_sum, threshold): (&SecureSumParams, &ThresholdParams),
    problem: Problem<'_, T>,
    update: R,
    multiply: BetaMultiply,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    let Statistics { sum, norm2, nonzeros, .. } = data.statistics;
    let width = if beta == 1.0 { k } else { 2 * k };
    let mut party_sum = party_sum(&comm, parties, secure_sum, Some((threshold, &data.cuts.rows)))?;
    let own_rows = |index: usize| data.cuts.rows[index].clone();
    let separated = |(block, index): (Block<T>, usize)| {
        if !left_out.any() {
            return (block, None);
        }
        let (only_stored, sparse) =
            (left_out.missing == PartyMissing::ZeroUnobserved, matches!(block, Block::Sparse(_)));
        let holdout = Holdout::new(seed, left_out.holdout, Counted { shape: (m, n), nonzeros, sparse, only_stored });
        let observed = ObservedRows::new(block, only_stored, (holdout, own_rows(index).start), k);
        (Block::Dense(Array2::zeros((0, 0)).into()), Some(Private::new(observed)))
    };
    let hosted = parties.hosted(comm.rank());
    let blocks: Vec<_> = data.blocks.into_iter().zip(hosted.clone()).map(separated).collect();
    let tally = match left_out.any() {
        true => Some(Tally::of(&blocks, (&comm, &mut party_sum), ((m, n), [sum, norm2]), left_out.holdout)?),
        false => None,
    };
    let sum = tally.map_or(sum, |tally| tally.sum / tally.observed * m as f64 * n as f64);
    let scale = init::scale(sum, (m, n), k);
    let below = if left_out.any() { n } else { 1 };
    let mut members = Vec::new();
    for ((block, observed), index) in blocks.into_iter().zip(hosted) {
        let rows: Range<usize> = own_rows(index);
        let mut u = Array2::zeros((rows.len(), k));
        init::u(seed, &rows, scale, u.view_mut());
        if let Some(observed) = &observed {
            observed.clear_unobserved(&mut u);
        }
        let last = if extrapolation == Extrapolation::Restart { u.clone() } else { Array2::zeros((0, k)) };
        members.push(PartyState {
            index,
            columns: Private::new(block.transposed()),
            rows: Private::new(block),
            observed,
            u: Private::new(u),
            last: Private::new(last),
            terms: Array2::zeros((n, width)),
            sums: Array2::zeros((below, k)),
        });
    }
    let mut v = Array2::zeros((n, k));
    init::v(seed, &(0..n), scale, v.view_mut());
    // The expected size of an entry of the data and of its fit.
    let (rows, mean) = (m as f64, k as f64 * scale * scale);
    let terms = if beta == 1.0 { rows * mean / k as f64 } else { rows * scale };
    let gram = if update.takes_gram() { k * k } else { 0 };
    let extrapolating = (extrapolation == Extrapolation::Restart).then(|| Extrapolating {
        updates: PerThread::new(Extrapolated::new(update.clone(), k)),
        weights: NesterovWeights::after(0),
        last: v.clone(),
        from: vec![T::zero(); k],
    });
    Ok(Box::new(DivergenceRun {
        beta,
        unit,
        measure,
        party_sum,
        comm,
        updates: PerThread::new(update),
        extrapolating,
        multiply: PerThread::new(multiply),
        members,
        v,
        terms: Array2::zeros((n, width)),
        sums: Array2::zeros((below, k)),
        scratch: Scratch { sums: vec![0.0; k], gram: vec![0.0; gram], ones: vec![1.0; k] },
        expected: [terms, rows * scale, rows * n as f64 * mean.powf(beta)],
        norm2: tally.map_or(norm2, |tally| tally.norm2),
        tally,
        iteration: 0,
    }))
}

impl Tally {
    /// Sums over the parties, whose entries have this sum and these squares if nothing is left out. Collective.
    ///
    /// # Errors
    /// On all ranks, if no entry above zero is observed, or none is held out of a positive share.
    fn of<T: Real>(
        blocks: &[Separated<T>],
        (comm, party_sum): (&PartyCommunicator, &mut PartySum),
        ((m, n), [sum, norm2]): ((usize, usize), [f64; 2]),
        holdout: f64,
    ) -> SharedResult<Tally> {
        let counts = |observed: &Private<ObservedRows<T>>| {
            let fit = observed.statistics();
            [[fit.sum], [fit.norm2], [fit.count], [fit.held]]
        };
        let own: Vec<[[f64; 1]; 4]> = blocks.iter().filter_map(|(_, observed)| observed.as_ref()).map(counts).collect();
        let entries = m as f64 * n as f64;
        let own = &own;
        let terms = [0, 1, 2, 3].map(|at| move |hosted: usize| &own[hosted][at][..]);
        let mut totals = [[0.0]; 4];
        let joint = terms.iter().zip([sum, norm2, entries, entries]).zip(&mut totals);
        let mut joint: Vec<Joint<'_, f64>> =
            joint.map(|((term, expected), out)| Joint { tag: OBSERVED, expected, term, out }).collect();
        party_sum.sum_together(comm, &mut joint).map_err(Error::on_all_ranks)?;
        // Numbers of entries are whole, also after rounding in fixed point.
        let [[sum], [norm2], [observed], [held]] = totals;
        let tally = Tally { sum, norm2, observed: observed.round(), held: held.round() };
        if tally.observed <= 0.0 || tally.sum <= 0.0 {
            return Err(Error::input("no observed entry is above zero: there is nothing to factorise").on_all_ranks());
        }
        if holdout > 0.0 && tally.held == 0.0 {
            return Err(Error::input(format!(
                "--holdout {holdout}: so small a share of the {m} x {n} matrix holds no entry out; give a larger one, or 0"
            ))
            .on_all_ranks());
        }
        Ok(tally)
    }
}

impl<T: Real> PartyState<T> {
    /// Updates U_i, from its extrapolation by this weight if its last value is kept.
    fn update<R: DivergenceUpdate<T> + Sync>(
        &mut self,
        v: &Array2<T>,
        (updates, weight): (&PerThread<R>, f64),
        scratch: &mut Scratch,
    ) {
        if let Some(observed) = &mut self.observed {
            return observed.update(&mut self.u, &v.view());
        }
        let Scratch { sums, gram, .. } = scratch;
        let rows = v.entries();
        column_sums(rows, sums);
        if !gram.is_empty() {
            add_gram(rows, sums.len(), gram);
        }
        if !self.last.is_empty() {
            extrapolate_growing(&mut self.u, &mut self.last, weight);
        }
        let (block, y, last) = (&*self.rows, FixedFactor { rows, sums, gram }, self.last.entries());
        over_rows(&mut self.u.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
            let x = rows.row_major_mut();
            let last = if last.is_empty() { last } else { &last[first * y.sums.len()..][..x.len()] };
            updates.with(|update| update.update_rows((block, first), y, x, last, Penalty::NONE));
        });
    }
}

impl<T: Real> PartyState<T> {
    /// The terms for β = 1: N_i V, and the column sums of U_i. The former are an update for a fixed factor whose column sums are
    /// taken to be one.
    fn kl_terms<R: DivergenceUpdate<T> + Sync>(
        &mut self,
        v: &Array2<T>,
        updates: &PerThread<R>,
        scratch: &mut Scratch,
    ) {
        let PartyState { observed, u, terms, sums: below, .. } = self;
        if let Some(observed) = observed {
            return observed.terms(&u.view(), v, [terms, below]);
        }
        let Scratch { sums, ones, .. } = scratch;
        let rows = self.u.entries();
        column_sums(rows, sums);
        self.sums.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::from_f64(sum));
        self.terms.assign(v);
        let (block, y) = (&*self.columns, FixedFactor { rows, sums: ones, gram: &[] });
        over_rows(&mut self.terms.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
            updates.with(|update| update.update_rows((block, first), y, rows.row_major_mut(), &[], Penalty::NONE));
        });
    }

    /// The terms for any other β: the columns of N_i, then those of D_i.
    fn beta_terms(&mut self, v: &Array2<T>, multiply: &PerThread<BetaMultiply>, k: usize) {
        let (block, rows) = (&*self.columns, self.u.entries());
        over_rows(&mut self.terms.view_mut(), &|first, mut terms: ArrayViewMut2<'_, T>| {
            multiply.with(|multiply| {
                for (at, terms) in terms.row_major_mut().chunks_exact_mut(2 * k).enumerate() {
                    let j = first + at;
                    multiply.terms((block, j), rows, &v.entries()[j * k..(j + 1) * k], terms);
                }
            });
        });
    }
}

impl<T: Real, R: Majorant<T> + Sync> DivergenceRun<T, R> {
    fn iterate(&mut self) -> Result<()> {
        let DivergenceRun {
            beta,
            comm,
            party_sum,
            updates,
            extrapolating,
            multiply,
            members,
            v,
            terms,
            sums,
            scratch,
            expected,
            ..
        } = self;
        let (k, kullback_leibler) = (v.ncols(), *beta == 1.0);
        let weight = extrapolating.as_mut().map_or(0.0, |extrapolating| extrapolating.weights.advance());
        for member in members.iter_mut() {
            comm.work("update", || match extrapolating {
                Some(Extrapolating { updates, .. }) => member.update(v, (updates, weight), scratch),
                None => member.update(v, (updates, weight), scratch),
            });
        }
        if let Some(Extrapolating { last, .. }) = extrapolating {
            extrapolate_growing(v, last, weight);
        }
        for member in members.iter_mut() {
            comm.work("update", || {
                if kullback_leibler {
                    member.kl_terms(v, updates, scratch);
                } else {
                    member.beta_terms(v, multiply, k);
                }
            });
        }
        let of_terms = |hosted: usize| members[hosted].terms.entries();
        let of_sums = |hosted: usize| members[hosted].sums.entries();
        let all = &mut [
            Joint { tag: TERMS, expected: expected[0], term: &of_terms, out: terms.entries_mut() },
            Joint { tag: SUMS, expected: expected[1], term: &of_sums, out: sums.entries_mut() },
        ];
        party_sum.sum_together(comm, if kullback_leibler { all } else { &mut all[..1] })?;
        comm.work("update", || {
            if kullback_leibler {
                let (sums, of_columns) = (sums.entries(), sums.nrows() > 1);
                scratch.sums.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum.as_f64());
                let column_sums = FixedFactor { rows: &[], sums: &scratch.sums, gram: &[] };
                for (j, products) in terms.rows().into_iter().enumerate() {
                    let v = &mut v.entries_mut()[j * k..(j + 1) * k];
                    if let Some(Extrapolating { from, .. }) = extrapolating {
                        from.copy_from_slice(v);
                    }
                    let below = if of_columns { &sums[j * k..(j + 1) * k] } else { sums };
                    for ((v, &product), &sum) in v.iter_mut().zip(products).zip(below) {
                        *v = quotient(product.max(T::zero()), sum);
                    }
                    if let Some(Extrapolating { from, last, .. }) = extrapolating {
                        let last = &last.entries()[j * k..(j + 1) * k];
                        let rise = updates.with(|update| update.rise(column_sums, last, from, v, Penalty::NONE));
                        if from[..] != *last && (rise.is_nan() || rise > 0.0) {
                            v.copy_from_slice(last);
                        }
                    }
                }
            } else {
                multiply.with(|multiply| {
                    for (mut v, terms) in v.rows_mut().into_iter().zip(terms.rows()) {
                        let (above, below) = terms.split_at(ndarray::Axis(0), k);
                        for ((v, above), below) in v.iter_mut().zip(above).zip(below) {
                            *v = T::from_f64(multiply.step(
                                v.as_f64(),
                                above.as_f64().max(0.0),
                                below.as_f64().max(0.0),
                            ));
                        }
                    }
                });
            }
        });
        self.iteration += 1;
        Ok(())
    }
}

/// product / sum, and 0 where the sum is.
fn quotient<T: Real>(product: T, sum: T) -> T {
    if sum > T::zero() { product / sum } else { T::zero() }
}

impl<T: Real, R: Majorant<T> + Sync> Algorithm<T> for DivergenceRun<T, R> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error, and the divergence. The divergence is infinite if a nonzero entry has the fit 0.
    fn measure(&mut self) -> Result<Measures> {
        let DivergenceRun { beta, unit, measure, comm, party_sum, members, v, norm2, expected, tally, .. } = self;
        let held = tally.filter(|tally| tally.held > 0.0);
        let v = v.view();
        // Residual, divergence, and both of the held-out entries.
        let each: Vec<[f64; 4]> = members
            .iter()
            .map(|PartyState { rows, observed, u, .. }| {
                let u = u.view();
                if let Some(observed) = observed {
                    let (fit, mean) = (observed.fit(&u, &v), tally.map_or(0.0, |tally| tally.sum / tally.observed));
                    let held = if held.is_some() { observed.heldout_divergence(&u, &v, mean) } else { 0.0 };
                    return [fit.residual2, observed.divergence(&u, &v), fit.held2, held];
                }
                let residual2 = not_negative(rows.residual2(&u, &v));
                [residual2, metrics::own_divergence(*beta, rows, &u, &v, *unit), 0.0, 0.0]
            })
            .collect();
        let ([mut residual2, mut divergence], mut off) = ([[0.0]; 2], [0.0; 2]);
        let residual_of = |hosted: usize| &each[hosted][..1];
        let divergence_of = |hosted: usize| &each[hosted][1..2];
        let off_of = |hosted: usize| &each[hosted][2..];
        let mut all = vec![
            Joint { tag: metrics::RESIDUAL, expected: *norm2, term: &residual_of, out: &mut residual2 },
            Joint { tag: metrics::DIVERGENCE, expected: expected[2], term: &divergence_of, out: &mut divergence },
        ];
        if held.is_some() {
            let expected = norm2.max(expected[2]);
            all.push(Joint { tag: missing::HELD, expected, term: &off_of, out: &mut off });
        }
        party_sum.sum_together(comm, &mut all)?;
        drop(all);
        let norm2 = *norm2 * party_sum.share_left();
        let divergence = metrics::not_negative(divergence[0]);
        let mut all = vec![("rel_error", metrics::relative(residual2[0], norm2)), (measure.key(), divergence)];
        if let Some(Tally { held, .. }) = held {
            // Of the parties that are left.
            let held = held * party_sum.share_left();
            all.push((Measure::HeldoutRmse.key(), (not_negative(off[0]) / held).sqrt()));
            all.push((Measure::HeldoutDivergence.key(), not_negative(off[1]) / held));
        }
        all.extend(party_sum.losses());
        Ok(all)
    }

    fn decisions(&self) -> Vec<Decision> {
        let Some(Tally { observed, held, .. }) = self.tally else { return Vec::new() };
        vec![Decision::Observed(observed), Decision::HeldOut { entries: held, above_zero: None }]
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = vec![Piece::shared("V", self.v.nrows(), 0, self.v.view())];
        pieces.extend(self.members.iter().map(|member| Piece::private("U", member.index, member.u.view())));
        pieces
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        if let Some(Extrapolating { last, .. }) = &self.extrapolating {
            state.matrices.push(Piece::shared(LAST_V, last.nrows(), 0, last.view()));
            let of_parties = self.members.iter().map(|member| Piece::private(LAST_U, member.index, member.last.view()));
            state.matrices.extend(of_parties);
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("V", Owner::Shared, 0, self.v.view_mut())?;
        for member in &mut self.members {
            saved.rows("U", Owner::Party(member.index), 0, member.u.view_mut())?;
            if self.extrapolating.is_some() {
                saved.rows(LAST_U, Owner::Party(member.index), 0, member.last.view_mut())?;
            }
        }
        if let Some(Extrapolating { last, weights, .. }) = &mut self.extrapolating {
            saved.rows(LAST_V, Owner::Shared, 0, last.view_mut())?;
            *weights = NesterovWeights::after(iteration);
        }
        self.iteration = iteration;
        Ok(())
    }
}
