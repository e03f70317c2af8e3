//! Online NMF (Mairal, Bach, Ponce, Sapiro 2010): V is updated after each batch of rows, from statistics of all batches so far.
//!
//! For a batch X with the rows U_b, which minimise ½‖X − U_b Vᵀ‖² over U_b ≥ 0 exactly, the statistics become
//!
//! A ← ρ A + U_bᵀU_b,   B ← ρ B + XᵀU_b,
//!
//! and V makes one sweep of coordinate descent on the surrogate ½ tr(V A Vᵀ) − tr(VᵀB), which at ρ = 1 lies above the squared
//! error of all batches so far. ρ = f^(|b| / m), so that a statistic loses the factor f in a pass over all rows.
//!
//! U depends on V alone, and is computed for all rows with the last V before it is evaluated or written. The penalty on V is
//! that of as many rows as the statistics hold.

use std::mem::swap;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, sweep};
use fednmf_linalg::{ContiguousMut, Order, Real, even_part, gram, residual2_of_products};

use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Workload};
use crate::decision::Decision;
use crate::description::{Description, MessageSpec, Partition, Unit};
use crate::method::{Method, SweepSettings};
use crate::metrics;
use crate::parameters::{Auto, auto, count, number};
use crate::shared::batches::{self, Batches, rows_of_batch};
use crate::shared::extrapolation::inner;
use crate::shared::factor_side::{FactorSide, GATHER_V, GRAM_U, GRAM_V, RHS_V, U, V};
use crate::shared::init::{self, InitParams, Start};
use crate::shared::regularization::{self, Penalties, RegularizationParams};
use crate::{Algorithm, Measures, Problem};

/// Sweeps before block principal pivoting: they are cheap, and most of their signs are those of the solution.
const SWEEPS: usize = 8;

fednmf_base::parameters! {
    /// Parameters of online NMF.
    pub struct Online {
        /// Rows of a batch. auto: a twentieth of the rows, but at least 1024
        pub batch_size: Auto<usize> = Auto::Auto, "ROWS", auto(count(1));
        /// Weight of what was learnt before a pass over all rows, at its end; 1 forgets nothing
        pub forget_factor: f64 = 0.1, "F", number(f64::MIN_POSITIVE, 1.0);
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

impl Method for Online {
    const DESCRIPTION: &'static Description = &Description {
        name: "online",
        aliases: &["minibatch"],
        summary: "online NMF: V is updated after each batch of rows, for data with very many rows",
        paper: "Mairal, Bach, Ponce, Sapiro: Online Learning for Matrix Factorization and Sparse Coding (2010); forgetting as in scikit-learn's MiniBatchNMF (Lefèvre, Bach, Févotte 2011)",
        partition: Partition::Rows,
        unit: Unit::Batch,
        messages: &[
            MessageSpec::new(GRAM_V, "k x k", "each batch; each evaluation"),
            MessageSpec::new(GATHER_V, "n x k", "each batch; each evaluation"),
            MessageSpec::new(GRAM_U, "k x k", "each batch"),
            MessageSpec::new(RHS_V, "n x k", "each batch"),
            MessageSpec::new(metrics::RESIDUAL, "1 or 2", "each evaluation"),
            regularization::MESSAGES,
        ],
        ..Description::USUAL
    };

    /// Without entries left out, which it cannot leave out.
    fn for_sweep(&self, SweepSettings { regularization, .. }: &SweepSettings) -> Option<Self> {
        Some(Online { init: InitParams::RANDOM, regularization: regularization.clone(), ..self.clone() })
    }

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("online")
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

impl Online {
    fn cost_of(&self, workload: &Workload, ranks: usize) -> Cost {
        let Workload { m, n, k, word, stored, .. } = *workload;
        let batches = batches::count(m, rows_of_batch(self.batch_size, m)) as f64;
        let (all, own, own_v) = (m as f64 / batches, m.div_ceil(ranks), n.div_ceil(ranks));
        let share = all / ranks as f64;
        let mut cost = Cost { grid: Some((ranks, 1)), ..Cost::default() };
        let product = 2.0 * k as f64 * stored / batches;
        cost.add(Kernel::Mul, product / ranks as f64, product);
        cost.add(Kernel::Tmul, product / ranks as f64, product);
        let square = 2.0 * (k * k) as f64;
        cost.add(Kernel::Gram, square * (share + own_v as f64), square * (all + n as f64));
        cost.add(Kernel::Pivot, square * share, square * all);
        let (passes, sweeps) = (SWEEPS as f64, n as f64 * square);
        cost.add(Kernel::Sweep, square * passes * share + own_v as f64 * square, square * passes * all + sweeps);
        for tag in [GRAM_V, GRAM_U] {
            cost.messages.push(Message::all_reduce(tag.kind, ranks, k * k, word, 1));
        }
        for (tag, pattern) in [(GATHER_V, Pattern::AllGather), (RHS_V, Pattern::ReduceScatter)] {
            cost.messages.extend(Message::shared_out(tag.kind, pattern, (1, ranks), n * k, word));
        }
        cost.caveat("U is computed for all rows once more after the last iteration: a product, and V gathered");
        cost.data = workload.block(own, workload.part(own, n));
        cost.shape = Shape { block: (share.ceil() as usize, n), updated: own_v, gram: own_v, ..Shape::default() };
        // V, its statistics and right-hand side; V gathered, for dense data also in the other order; a rank's term of the sum.
        let whole = if ranks == 1 { 0 } else { n * if workload.sparse { 1 } else { 2 } };
        cost.factors = workload.bytes((own + 3 * own_v + whole + n + share.ceil() as usize + 3 * k) * k);
        cost
    }
}

/// The statistics of all batches so far.
pub struct Surrogate<T: Real> {
    /// A (k × k).
    pub a: Array2<T>,
    /// Rows of B, which belong to rows of V.
    pub b: Array2<T>,
    /// Number of rows that A and B hold, each with its weight.
    pub rows: f64,
}

/// The terms of a batch in the statistics.
pub struct Terms<'a, T> {
    /// U_bᵀU_b.
    pub a: &'a Array2<T>,
    /// XᵀU_b, for the same rows of V as B.
    pub b: &'a Array2<T>,
    /// Rows of the batch.
    pub rows: usize,
}

impl<T: Real> Surrogate<T> {
    /// The statistics of no rows, for k components and some rows of V.
    pub fn new(rows_of_v: usize, k: usize, order: Order) -> Self {
        Surrogate { a: Array2::zeros((k, k)), b: order.zeros(rows_of_v, k), rows: 0.0 }
    }

    /// Multiplies the statistics by ρ, adds a batch, and updates the rows `v` of V, with this penalty for each row of the data.
    pub fn add(&mut self, terms: &Terms<'_, T>, rho: f64, penalty: Penalty, v: &mut ArrayViewMut2<'_, T>) {
        self.rows = rho * self.rows + terms.rows as f64;
        let penalty = penalty.times(self.rows);
        let rho = T::from_f64(rho);
        self.a.zip_mut_with(terms.a, |a, term| *a = rho * *a + *term);
        self.b.zip_mut_with(terms.b, |b, term| *b = rho * *b + *term);
        sweep(v, &self.b.view(), &self.a.view(), Sweep { mu: T::zero(), passes: 1, penalty });
    }
}

/// The part of the statistics that is the same on all ranks, in a checkpoint.
#[derive(Serialize, Deserialize)]
struct SharedStatistics {
    /// A (k × k), by rows.
    a: Vec<f64>,
    rows: f64,
}

struct OnlineRun<T: Real> {
    comm: Communicator,
    batches: Batches<T>,
    u: FactorSide<T>,
    v: FactorSide<T>,
    usages: Usages<T>,
    /// With the rows of B that belong to this rank's rows of V.
    surrogate: Surrogate<T>,
    /// U_bᵀU_b of a batch.
    term_a: Array2<T>,
    /// This rank's term of XᵀU_b, for all rows of V.
    term_b: Array2<T>,
    forget: f64,
    penalties: Penalties,
    /// This rank's terms of ⟨M V, U⟩ and ⟨VᵀV, UᵀU⟩, if all rows of U belong to the present V.
    fit: Option<[f64; 2]>,
    start: Start,
    /// Rows of a batch, if they were chosen.
    chosen: Option<usize>,
    norm2: f64,
    iteration: usize,
}

fn build<T: Real>(args: &Online, problem: Problem<'_, T>) -> SharedResult<OnlineRun<T>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let own = data.cuts.rows[comm.rank()].clone();
    let size = rows_of_batch(args.batch_size, m);
    let batches = Batches::new(data.blocks.into_iter().next(), data.panels, &own, m, size);
    let order = batches.order();
    let mut u = FactorSide::of_all_ranks(U, &comm, &data.cuts.rows, k, order);
    let of_v: Vec<_> = (0..comm.size()).map(|rank| even_part(n, comm.size(), rank)).collect();
    let mut v = FactorSide::of_all_ranks(V, &comm, &of_v, k, order).with_rhs().with_gathered_if_shared();
    let penalties = args.regularization.penalties((m, n));
    let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, 2.0);
    init::given_or_random(initial, seed, scales, &comm, [&mut u, &mut v])?;
    Ok(OnlineRun {
        usages: Usages {
            rhs: order.zeros(batches.longest(), k),
            gram_v: Array2::zeros((k, k)),
            pivoting: Pivoting::new(k),
            gram_u: Array2::zeros((k, k)),
            penalty: penalties.u,
        },
        surrogate: Surrogate::new(v.own.nrows(), k, order),
        term_a: Array2::zeros((k, k)),
        term_b: order.zeros(n, k),
        forget: args.forget_factor,
        penalties,
        fit: None,
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

/// The update of rows of U for a fixed V.
struct Usages<T: Real> {
    rhs: Array2<T>,
    gram_v: Array2<T>,
    pivoting: Pivoting,
    /// The Gram matrix of the rows that were updated last.
    gram_u: Array2<T>,
    penalty: Penalty,
}

impl<T: Real> Usages<T> {
    /// The exact minimiser u (rows × k) for right-hand sides in the first rows of `rhs`. Its bits depend on the right-hand side
    /// and VᵀV only, not on the previous u.
    fn solve(&mut self, comm: &Communicator, mut u: ArrayViewMut2<'_, T>) {
        let Usages { rhs, gram_v, pivoting, gram_u, penalty } = self;
        let rhs = rhs.slice(s![..u.nrows(), ..]);
        comm.work("update", || {
            u.fill(T::zero());
            sweep(&mut u, &rhs, &gram_v.view(), Sweep { mu: T::zero(), passes: SWEEPS, penalty: *penalty });
            pivoting.solve_penalized(&mut u, &rhs, &gram_v.view(), *penalty);
        });
        comm.work("Gram", || gram(&u.view(), &mut gram_u.view_mut()));
    }

    /// This rank's terms of ⟨M V, U⟩ and ⟨VᵀV, UᵀU⟩ for the rows u that were updated last.
    fn fit(&self, u: &ArrayView2<'_, T>) -> [f64; 2] {
        let rhs = self.rhs.slice(s![..u.nrows(), ..]);
        [inner(&rhs, u), inner(&self.gram_v.view(), &self.gram_u.view())]
    }
}

impl<T: Real> OnlineRun<T> {
    fn iterate(&mut self) -> SharedResult<()> {
        let batch = self.batches.of_iteration(self.iteration);
        let OnlineRun { comm, batches, u, v, usages, surrogate, term_a, term_b, forget, penalties, .. } = self;
        v.gram(comm, &mut usages.gram_v);
        let whole = v.gather();
        term_a.fill(T::zero());
        term_b.fill(T::zero());
        batches.visit(comm, batch, |rows, block, within| {
            let mut rhs = usages.rhs.slice_mut(s![..rows.len(), ..]);
            comm.work("product M V", || block.part_mul(within.clone(), &whole, &mut rhs));
            let mut u = u.own.slice_mut(s![rows, ..]);
            usages.solve(comm, u.view_mut());
            *term_a += &usages.gram_u;
            comm.work("product M'U", || block.part_tmul_add(within, &u.view(), &mut term_b.view_mut()));
        })?;
        // The memory in which V was gathered, or the last right-hand side, is that of the next term.
        v.sum_rhs(|out| swap(out, term_b));
        comm.sum(GRAM_U, term_a.row_major_mut());
        let terms = Terms { a: term_a, b: &v.rhs, rows: batches.rows(batch) };
        let m = batches.all_rows() as f64;
        let rho = batches.forgetting(*forget, batch);
        comm.work("update", || surrogate.add(&terms, rho, penalties.v.times(1.0 / m), &mut v.own.view_mut()));
        self.fit = None;
        self.iteration += 1;
        Ok(())
    }

    /// Computes all rows of U for the present V, unless they are. Collective.
    fn settle(&mut self) -> SharedResult<[f64; 2]> {
        if let Some(fit) = self.fit {
            return Ok(fit);
        }
        let OnlineRun { comm, batches, u, v, usages, iteration, .. } = self;
        v.gram(comm, &mut usages.gram_v);
        let whole = v.gather();
        let mut fit = [0.0; 2];
        for batch in batches.from_iteration(*iteration) {
            batches.visit(comm, batch, |rows, block, within| {
                let mut rhs = usages.rhs.slice_mut(s![..rows.len(), ..]);
                comm.work("product M V", || block.part_mul(within, &whole, &mut rhs));
                let mut u = u.own.slice_mut(s![rows, ..]);
                usages.solve(comm, u.view_mut());
                let more = usages.fit(&u.view());
                fit.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
            })?;
        }
        self.fit = Some(fit);
        Ok(fit)
    }

    /// The relative error, for data in memory from the residual, else from the products if they have enough digits. Collective.
    fn error(&mut self) -> Result<f64> {
        let mut fit = self.settle()?;
        let OnlineRun { comm, batches, u, v, norm2, .. } = self;
        let mut residual2 = None;
        if batches.is_streamed() && size_of::<T>() == size_of::<f64>() {
            comm.sum(metrics::RESIDUAL, &mut fit);
            residual2 = residual2_of_products(*norm2, fit[0], fit[1]);
        }
        let residual2 = match residual2 {
            Some(residual2) => residual2,
            None => {
                let (whole, mut sum) = (v.gather(), [0.0]);
                batches.visit_all(comm, |rows, block| sum[0] += block.residual2(&u.own.slice(s![rows, ..]), &whole))?;
                comm.sum(metrics::RESIDUAL, &mut sum);
                sum[0]
            }
        };
        Ok(metrics::relative(residual2, *norm2))
    }
}

impl<T: Real> Algorithm<T> for OnlineRun<T> {
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
        let error = self.error()?;
        let penalty = self.penalties.sum(&self.comm, &self.u.own.view(), &self.v.own.view());
        let objective = self.penalties.objective(0.5 * error * error * self.norm2, penalty);
        Ok(std::iter::once(("rel_error", error)).chain(objective).collect())
    }

    fn conclude(&mut self) -> Result<()> {
        self.settle()?;
        Ok(())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.piece(), self.v.piece()]
    }

    fn state(&self) -> State<'_, T> {
        let Surrogate { a, b, rows } = &self.surrogate;
        let shared = SharedStatistics { a: a.iter().map(|x| x.as_f64()).collect(), rows: *rows };
        let mut state = State::from(self.factors()).with(Owner::Shared, &shared);
        state.matrices.push(self.v.piece_of("B", b));
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.u.restore(saved)?;
        self.v.restore(saved)?;
        let Surrogate { a, b, rows } = &mut self.surrogate;
        saved.rows("B", Owner::Shared, self.v.own_rows.start, b.view_mut())?;
        let shared: SharedStatistics = saved.read(Owner::Shared)?;
        if shared.a.len() != a.len() {
            return Err(Error::input(
                "the checkpoint is of another number of components; start again without --resume",
            ));
        }
        a.iter_mut().zip(shared.a).for_each(|(a, saved)| *a = T::from_f64(saved));
        *rows = shared.rows;
        (self.iteration, self.fit) = (iteration, None);
        self.batches.start_at(self.batches.of_iteration(iteration));
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let size = self.chosen.map(Decision::BatchSize);
        [Some(Decision::Start(self.start)), size, self.batches.decision()].into_iter().flatten().collect()
    }
}
