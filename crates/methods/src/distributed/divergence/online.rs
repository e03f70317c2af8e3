//! Online NMF for the Kullback-Leibler divergence (Lefèvre, Bach, Févotte 2011): V is updated after each batch of rows, from
//! statistics of all batches so far.
//!
//! For a batch X with the rows U_b, which minimise the divergence from U_b Vᵀ over U_b ≥ 0, the statistics become
//!
//! A ← ρ A + V ∘ (X / U_b Vᵀ)ᵀ U_b,   b ← ρ b + U_bᵀ 1,
//!
//! and V_jl ← A_jl / b_l, the minimiser of Σ_l b_l Σ_j V_jl − Σ_jl A_jl ln V_jl. At ρ = 1 this function lies above the divergence
//! of all batches so far, up to a constant. ρ, the batches and the penalty on V are those of [`online`](crate::distributed::online).

use std::mem::swap;

use ndarray::{Array2, ArrayViewMut2, s};
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{FixedFactor, KlSweeps, add_ratios, column_sums, minimiser, solve_rows};
use fednmf_linalg::{Contiguous, ContiguousMut, Order, PerThread, Real, even_part};

use super::streamed::{Fit, RATIOS, SUMS};
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Workload};
use crate::decision::Decision;
use crate::description::{Description, MessageSpec, Partition, Unit};
use crate::method::{Method, SweepSettings};
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters::{Auto, auto, count, number};
use crate::shared::batches::{self, Batches, rows_of_batch};
use crate::shared::factor_side::{FactorSide, FactorTags, GATHER_V, U, V};
use crate::shared::init::{self, InitParams, Start};
use crate::shared::regularization::{self, Penalties, RegularizationParams};
use crate::{Algorithm, Measures, Problem};

/// The tolerance of the rows of U, relative to the largest entry. The divergence is then within its square of the least one.
pub const TOLERANCE: f64 = 1e-4;

fednmf_base::parameters! {
    /// Parameters of online NMF for the Kullback-Leibler divergence.
    pub struct KlOnline {
        /// Rows of a batch. auto: a twentieth of the rows, but at least 1024
        pub batch_size: Auto<usize> = Auto::Auto, "ROWS", auto(count(1));
        /// Weight of what was learnt before a pass over all rows, at its end; 1 forgets nothing
        pub forget_factor: f64 = 0.01, "F", number(f64::MIN_POSITIVE, 1.0);
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

impl Method for KlOnline {
    const DESCRIPTION: &'static Description = &Description {
        name: "kl-online",
        aliases: &["online-kl"],
        summary: "online NMF for the Kullback-Leibler divergence: for counts with very many rows",
        paper: "Lefèvre, Bach, Févotte: Online Algorithms for Nonnegative Matrix Factorization with the Itakura-Saito Divergence (2011); as scikit-learn's MiniBatchNMF",
        partition: Partition::Rows,
        unit: Unit::Batch,
        measure: Measure::Divergence,
        keeps_zeros: true,
        messages: &[
            MessageSpec::new(GATHER_V, "n x k", "each batch; each evaluation"),
            MessageSpec::new(RATIOS, "n x k", "each batch"),
            MessageSpec::new(SUMS, "k", "each batch"),
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            MessageSpec::new(metrics::DIVERGENCE, "1", "each evaluation"),
            regularization::MESSAGES,
        ],
        ..Description::USUAL
    };

    /// Without entries left out, which it cannot leave out.
    fn for_sweep(&self, SweepSettings { regularization, .. }: &SweepSettings) -> Option<Self> {
        Some(KlOnline { init: InitParams::RANDOM, regularization: regularization.clone(), ..self.clone() })
    }

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("kl-online")
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        Ok(Some(self.cost_of(workload, ranks)))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        Some(Cost { data: 0.0, ..self.cost_of(workload, ranks) })
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        Ok(Box::new(build(self, problem)?))
    }
}

impl KlOnline {
    fn cost_of(&self, workload: &Workload, ranks: usize) -> Cost {
        /// Sweeps of a row of U, and flops of one for each nonzero and component, about.
        const SWEEPS: f64 = 20.0;
        const FLOPS: f64 = 8.0;
        let Workload { m, n, k, word, stored, .. } = *workload;
        let batches = batches::count(m, rows_of_batch(self.batch_size, m)) as f64;
        let (own, own_v) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let mut cost = Cost { grid: Some((ranks, 1)), ..Cost::default() };
        let work = SWEEPS * FLOPS * k as f64 * stored / batches;
        cost.add(Kernel::Other, work / ranks as f64, work);
        for (tag, pattern) in [(GATHER_V, Pattern::AllGather), (RATIOS, Pattern::ReduceScatter)] {
            cost.messages.extend(Message::shared_out(tag.kind, pattern, (1, ranks), n * k, word));
        }
        cost.messages.push(Message::all_reduce(SUMS.kind, ranks, k, size_of::<f64>(), 1));
        cost.caveat("the flops depend on the data: 20 sweeps of each row of a batch are assumed");
        cost.caveat("U is computed for all rows once more after the last iteration, with V gathered");
        cost.data = workload.block(own, workload.part(own, n));
        cost.shape = Shape { updated: own_v, ..Shape::default() };
        // V, its statistics and ratios; V gathered; a rank's term of the sum.
        let whole = if ranks == 1 { 0 } else { n };
        cost.factors = workload.bytes((own + 3 * own_v + whole + n) * k);
        cost
    }
}

/// Weight of the start in the statistics, as a share of the first batch. Without it, an entry of V in a column of which the first
/// batch has zeros only would be 0, and remain so.
const START: f64 = 1e-3;

/// The statistics of all batches so far.
pub struct Majorant<T: Real> {
    /// A, with the rows that belong to rows of V.
    pub a: Array2<T>,
    /// b (k).
    pub b: Vec<f64>,
    /// Number of rows that A and b hold, each with its weight.
    pub rows: f64,
}

/// The terms of a batch in the statistics.
pub struct Terms<'a, T> {
    /// (X / U_b Vᵀ)ᵀ U_b, for the same rows of V as A.
    pub ratios: &'a Array2<T>,
    /// U_bᵀ 1.
    pub sums: &'a [f64],
    /// Rows of the batch.
    pub rows: usize,
    /// The means of the columns of V.
    pub means: &'a [f64],
}

/// The least entry of V, as a share of the mean of its column. A feature may be absent for many batches: an entry that falls to
/// 0 would stay there.
const LEAST: f64 = 1e-12;

impl<T: Real> Majorant<T> {
    /// The statistics of no rows, for k components and some rows of V.
    pub fn new(rows_of_v: usize, k: usize) -> Self {
        Majorant { a: Array2::zeros((rows_of_v, k)), b: vec![0.0; k], rows: 0.0 }
    }

    /// Multiplies the statistics by ρ, adds a batch, and updates the rows `v` of V, with this penalty for each row of the data.
    pub fn add(&mut self, terms: &Terms<'_, T>, rho: f64, penalty: Penalty, v: &mut ArrayViewMut2<'_, T>) {
        if self.rows == 0.0 {
            self.b.iter_mut().zip(terms.sums).for_each(|(b, sum)| *b = START * sum);
            for (mut a, v) in self.a.rows_mut().into_iter().zip(v.rows()) {
                a.iter_mut().zip(v).zip(&self.b).for_each(|((a, v), b)| *a = T::from_f64(b * v.as_f64()));
            }
        }
        self.rows = rho * self.rows + terms.rows as f64;
        let penalty = penalty.times(self.rows);
        self.b.iter_mut().zip(terms.sums).for_each(|(b, sum)| *b = rho * *b + sum);
        for ((mut v, mut a), ratios) in v.rows_mut().into_iter().zip(self.a.rows_mut()).zip(terms.ratios.rows()) {
            for (l, ((v, a), ratio)) in v.iter_mut().zip(&mut a).zip(ratios).enumerate() {
                let product = rho * a.as_f64() + v.as_f64() * ratio.as_f64();
                let product = product.max(self.b[l] * LEAST * terms.means[l]);
                *a = T::from_f64(product);
                *v = T::from_f64(minimiser(product, self.b[l], penalty));
            }
        }
    }
}

/// The part of the statistics that is the same on all ranks, in a checkpoint.
#[derive(Serialize, Deserialize)]
struct SharedStatistics {
    b: Vec<f64>,
    rows: f64,
}

struct KlOnlineRun<T: Real> {
    comm: Communicator,
    batches: Batches<T>,
    u: FactorSide<T>,
    v: FactorSide<T>,
    solvers: PerThread<KlSweeps>,
    /// With the rows of A that belong to this rank's rows of V.
    majorant: Majorant<T>,
    /// This rank's term of the ratios, for all rows of V.
    ratios: Array2<T>,
    /// Column sums of V, and of the rows of U of a batch, with scratch.
    sums: [Vec<f64>; 3],
    forget: f64,
    penalties: Penalties,
    /// Whether all rows of U belong to the present V.
    settled: bool,
    start: Start,
    /// Rows of a batch, if they were chosen.
    chosen: Option<usize>,
    norm2: f64,
    iteration: usize,
}

fn build<T: Real>(args: &KlOnline, problem: Problem<'_, T>) -> SharedResult<KlOnlineRun<T>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let own = data.cuts.rows[comm.rank()].clone();
    let size = rows_of_batch(args.batch_size, m);
    let batches = Batches::new(data.blocks.into_iter().next(), data.panels, &own, m, size);
    let of_v: Vec<_> = (0..comm.size()).map(|rank| even_part(n, comm.size(), rank)).collect();
    let tags = FactorTags { rhs: RATIOS, ..V };
    let mut u = FactorSide::of_all_ranks(U, &comm, &data.cuts.rows, k, Order::RowMajor);
    let mut v = FactorSide::of_all_ranks(tags, &comm, &of_v, k, Order::RowMajor).with_rhs().with_gathered_if_shared();
    let penalties = args.regularization.penalties((m, n));
    let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, 1.0);
    init::given_or_random(initial, seed, scales, &comm, [&mut u, &mut v])?;
    Ok(KlOnlineRun {
        solvers: PerThread::new(KlSweeps::new(k, 1)),
        majorant: Majorant::new(v.own.nrows(), k),
        ratios: Array2::zeros((n, k)),
        sums: [(); 3].map(|()| vec![0.0; k]),
        forget: args.forget_factor,
        penalties,
        // Given rows of U are those of the given V.
        settled: initial.is_some(),
        start: if initial.is_some() { Start::Given } else { Start::Random },
        chosen: (args.batch_size == Auto::Auto).then_some(size),
        norm2: data.statistics.norm2,
        iteration: 0,
        batches,
        u,
        v,
        comm,
    })
}

impl<T: Real> KlOnlineRun<T> {
    fn iterate(&mut self) -> SharedResult<()> {
        let batch = self.batches.of_iteration(self.iteration);
        let KlOnlineRun { comm, batches, u, v, solvers, majorant, ratios, sums, forget, penalties, .. } = self;
        let [of_v, of_u, part] = sums;
        let k = of_v.len();
        let whole = v.gather();
        let (rows_of_v, rows_of_all) = (whole.row_major(), whole.nrows());
        column_sums(rows_of_v, of_v);
        ratios.fill(T::zero());
        of_u.fill(0.0);
        let fixed = FixedFactor { rows: rows_of_v, sums: of_v, gram: &[] };
        batches.visit(comm, batch, |rows, block, within| {
            let mut own = u.own.slice_mut(s![rows, ..]);
            comm.work("update", || {
                solve_rows(solvers, (block, within.start), fixed, (penalties.u, TOLERANCE), &mut own.view_mut());
                add_ratios((block, within.start), own.view().row_major(), rows_of_v, k, ratios.entries_mut());
                column_sums(own.view().row_major(), part);
            });
            of_u.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part);
        })?;
        // The memory in which V was gathered, or the last ratios, is that of the next ones.
        v.sum_rhs(|out| swap(out, ratios));
        comm.sum(SUMS, of_u);
        let n = rows_of_all as f64;
        of_v.iter_mut().for_each(|sum| *sum /= n);
        let terms = Terms { ratios: &v.rhs, sums: of_u, rows: batches.rows(batch), means: of_v };
        let m = batches.all_rows() as f64;
        let rho = batches.forgetting(*forget, batch);
        comm.work("update", || majorant.add(&terms, rho, penalties.v.times(1.0 / m), &mut v.own.view_mut()));
        self.settled = false;
        self.iteration += 1;
        Ok(())
    }

    /// Computes all rows of U for the present V, unless they are. Collective.
    fn settle(&mut self) -> SharedResult<()> {
        if self.settled {
            return Ok(());
        }
        let KlOnlineRun { comm, batches, u, v, solvers, sums: [of_v, ..], penalties, iteration, .. } = self;
        let whole = v.gather();
        column_sums(whole.row_major(), of_v);
        let fixed = FixedFactor { rows: whole.row_major(), sums: of_v, gram: &[] };
        for batch in batches.from_iteration(*iteration) {
            batches.visit(comm, batch, |rows, block, within| {
                let mut own = u.own.slice_mut(s![rows, ..]);
                comm.work("update", || {
                    solve_rows(solvers, (block, within.start), fixed, (penalties.u, TOLERANCE), &mut own.view_mut())
                });
            })?;
        }
        self.settled = true;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for KlOnlineRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.iterate()?;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        self.settle()?;
        let KlOnlineRun { comm, batches, u, v, norm2, penalties, .. } = self;
        let (whole, mut fit) = (v.gather(), Fit::default());
        batches.visit_all(comm, |rows, block| fit.add(block, &u.own.slice(s![rows, ..]), &whole))?;
        Ok(fit.measures(comm, *norm2, penalties, [&u.own, &v.own]))
    }

    fn conclude(&mut self) -> Result<()> {
        self.settle()?;
        Ok(())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.piece(), self.v.piece()]
    }

    fn state(&self) -> State<'_, T> {
        let Majorant { a, b, rows } = &self.majorant;
        let shared = SharedStatistics { b: b.clone(), rows: *rows };
        let mut state = State::from(self.factors()).with(Owner::Shared, &shared);
        state.matrices.push(self.v.piece_of("A", a));
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.u.restore(saved)?;
        self.v.restore(saved)?;
        let Majorant { a, b, rows } = &mut self.majorant;
        saved.rows("A", Owner::Shared, self.v.own_rows.start, a.view_mut())?;
        let shared: SharedStatistics = saved.read(Owner::Shared)?;
        if shared.b.len() != b.len() {
            return Err(Error::input(
                "the checkpoint is of another number of components; start again without --resume",
            ));
        }
        (*b, *rows) = (shared.b, shared.rows);
        (self.iteration, self.settled) = (iteration, false);
        self.batches.start_at(self.batches.of_iteration(iteration));
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let size = self.chosen.map(Decision::BatchSize);
        [Some(Decision::Start(self.start)), size, self.batches.decision()].into_iter().flatten().collect()
    }
}
