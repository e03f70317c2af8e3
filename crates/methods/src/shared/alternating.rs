//! The common part of the exact alternating methods (MPI-FAUN, Kannan et al. 2018). The data are on a grid. Each half
//! of an iteration computes the Gram matrix of one factor and the product with the data, and applies the method's step
//! on (Gram matrix, right-hand side) to the rows of the other factor. `hals`, `mu` and `bpp` are such steps.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::Statistics;
use fednmf_data::state::{Piece, SavedState};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Real, residual2_of_products};

use super::extrapolated::Extrapolated;
use super::extrapolation::{Extrapolation, WORDS, inner};
use super::factor_side::{GATHER_U, GATHER_V, GRAM_U, GRAM_V, RHS_U, RHS_V, U, V};
use super::grid::{self, Grid, GridChoice, GridParams};
use super::init::{self, InitParams, Start, Task};
use super::missing::MissingParams;
use super::rank_data::{rank_data, rows_in_cache};
use super::regularization::{self, Penalties, RegularizationParams};
use super::row_exchange::{Exchange, PATTERN};
pub use super::sizes::Sizes;
use super::stationarity::{Evaluated, MeasureParams};
use super::{missing, stationarity};
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Side, Workload};
use crate::decision::Decision;
use crate::description::MessageSpec;
use crate::method::SweepSettings;
use crate::metrics;
use crate::parameters::{Auto, GridShape};
use crate::{Algorithm, Measures, Problem};

/// The factor that is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    U,
    V,
}

/// A method's update of the rows of one factor.
pub trait FactorUpdate<T: Real> {
    /// Lowers ½ x g xᵀ − r xᵀ + λ₁ Σ x + ½ λ₂ ‖x‖² for each row of x ≥ 0 (rows × k), with the right-hand side r (rows × k), the Gram
    /// matrix g (k × k) of the fixed factor, without λ₂, and the penalty (λ₁, λ₂) on x. Rows are independent of each other: x may be all own rows of a factor, or some of them.
    ///
    /// # Errors
    /// If the iterate contains non-finite values.
    fn update(
        &mut self,
        factor: Factor,
        x: &mut ArrayViewMut2<'_, T>,
        r: &ArrayView2<'_, T>,
        g: &Array2<T>,
        penalty: Penalty,
    ) -> Result<()>;

    /// Whether a zero entry stays zero; the start must then have no zeros.
    fn preserves_zeros(&self) -> bool {
        false
    }

    /// Whether an update of some rows at a time is as fast as one of all.
    fn is_by_row(&self) -> bool {
        true
    }

    /// The decisions made from the sizes.
    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }
}

fednmf_base::parameters! {
    /// Options of every exact method.
    pub struct ExactParams {
        group grid: GridParams;
        group measure: MeasureParams;
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

impl ExactParams {
    /// See [`Method::for_sweep`](crate::method::Method::for_sweep).
    #[must_use]
    pub fn for_sweep(&self, settings: &SweepSettings) -> Self {
        ExactParams { init: InitParams::RANDOM, regularization: settings.regularization.clone(), ..self.clone() }
    }

    /// The same parameters, with the start chosen by the sizes unless one is named.
    #[must_use]
    pub fn by_size(&self) -> Self {
        ExactParams { init: self.init.by_size(), ..self.clone() }
    }

    /// Checks that no option is incompatible with missing entries, if there are any.
    ///
    /// # Errors
    /// If an option is incompatible; the message names it.
    pub fn check_missing(&self, missing: &MissingParams, extrapolation: Extrapolation) -> Result<()> {
        let wrong = [
            ("--extrapolation restart", extrapolation == Extrapolation::Restart),
            ("--measure projected-gradient", self.measure.measure == Evaluated::ProjectedGradient),
            ("--init nndsvd, nndsvda, compressed and sampled", self.init.is_computed()),
            ("--grid", self.grid.grid.given().is_some()),
            ("--exchange", self.grid.exchange != Exchange::Auto),
        ];
        match wrong.into_iter().find(|(_, given)| *given && missing.any()) {
            Some((what, _)) => {
                Err(Error::input(format!("{what} cannot be combined with --missing and --holdout; leave it out")))
            }
            None => Ok(()),
        }
    }

    /// The cost of an iteration on `ranks` ranks. The update is `kernel`, with `passes` passes over U and V.
    pub fn cost(
        &self,
        extrapolation: Extrapolation,
        (kernel, [passes_u, passes_v]): (Kernel, [usize; 2]),
        workload: &Workload,
        ranks: usize,
    ) -> Cost {
        let Workload { m, n, k, word, stored: all, sparse, .. } = *workload;
        let requested = self.grid.grid.given().map(|grid| (grid.rows, grid.cols));
        let requested = requested.filter(|(pr, pc)| pr * pc == ranks);
        let traffic = workload.traffic.filter(|grid| requested.unwrap_or((grid.pr, grid.pc)) == (grid.pr, grid.pc));
        let known = traffic.map(|grid| (grid.pr, grid.pc));
        let (pr, pc) = requested.or(known).unwrap_or_else(|| grid::fewest_words(m, n, ranks));
        let (rows, cols) = (m.div_ceil(pr), n.div_ceil(pc));
        let (own_u, own_v) = (rows.div_ceil(pc), cols.div_ceil(pr));
        let stored = traffic.map_or_else(|| workload.part(rows, cols), |grid| grid.entries as f64);
        let mut cost = Cost { grid: Some((pr, pc)), ..Cost::default() };
        let product = 2.0 * k as f64;
        cost.add(Kernel::Mul, product * stored, product * all);
        cost.add(Kernel::Tmul, product * stored, product * all);
        let square = 2.0 * (k * k) as f64;
        let extrapolates = extrapolation == Extrapolation::Restart;
        // Extrapolation keeps the unextrapolated U as well; the objectives of both are summed with a Gram matrix.
        let (times, words) = if extrapolates { (2, 2 * WORDS) } else { (1, 0) };
        cost.add(Kernel::Gram, square * (times * own_u + own_v) as f64, square * (times * m + n) as f64);
        let passes = |u: usize, v: usize| square * (passes_u * u + passes_v * v) as f64;
        cost.add(kernel, passes(own_u, own_v), passes(m, n));
        if extrapolates {
            cost.caveat(
                "an iteration that raises the objective sums the Gram matrix of U once more, which is not counted",
            );
        }
        if sparse && ranks > 1 && traffic.is_none() && self.grid.exchange != Exchange::Dense {
            cost.caveat(
                "traffic and time are those of all rows of factors. A run sends fewer if its nonzeros need fewer \
                 (--exchange); --input with --ranks counts those",
            );
        }
        // A grid column has every pc-th rank, a grid row consecutive ones.
        let choice = GridChoice::of_row((k * word) as u64, self.grid.exchange, (pr, pc));
        for (side, gram, gather, sum, groups, size, stride, length, words) in [
            (Side::V, "Gram of V", "gather V", "sum M'U", pc, pr, pc, n, 0),
            (Side::U, "Gram of U", "gather U", "sum M V", pr, pc, 1, m, words),
        ] {
            cost.messages.push(Message::all_reduce(gram, ranks, k * k + words, word, 1));
            let of_side = traffic.map(|grid| if side == Side::V { grid.v } else { grid.u });
            let sparse_exchange =
                of_side.filter(|of_side| matches!(choice.of_side(of_side), Some((Exchange::Sparse, _))));
            if let Some(rows) = sparse_exchange {
                cost.messages.push(Message::touched(gather, Pattern::TouchedRows(side), &rows, k * word));
                cost.messages.push(Message::touched(sum, Pattern::TouchedSums(side), &rows, k * word));
                continue;
            }
            let out = |kind, pattern| {
                let message = Message::shared_out(kind, pattern, (groups, size), length * k, word)?;
                Some(Message { stride, ..message })
            };
            cost.messages.extend(out(gather, Pattern::AllGather));
            cost.messages.extend(out(sum, Pattern::ReduceScatter));
        }
        cost.data = workload.block(rows, stored);
        cost.shape =
            Shape { block: (rows, cols), updated: own_u.max(own_v), gram: own_u.max(own_v), ..Shape::default() };
        // Own rows and their right-hand sides; gathered blocks, for dense data also a copy in the other memory order.
        let copies = if sparse { 1 } else { 2 };
        let whole = usize::from(pc > 1) * rows + usize::from(pr > 1) * cols;
        let owned = if extrapolates { 3 } else { 2 };
        let product = if self.reads_once((kernel, sparse), (m, n), (pr, pc), (k, word)) { n } else { 0 };
        cost.factors = workload.bytes((owned * (own_u + own_v) + copies * whole + product + 3 * k) * k);
        let start = Start::choose(&self.init.init, &Sizes { m, n, entries: all, k }, sparse);
        cost.start = start.bytes(workload, [own_u, own_v], copies * whole);
        cost
    }

    /// Whether an iteration reads a block in memory once, row by row.
    fn reads_once(
        &self,
        (kernel, sparse): (Kernel, bool),
        shape: (usize, usize),
        grid: (usize, usize),
        (k, word): (usize, usize),
    ) -> bool {
        !sparse && kernel != Kernel::Pivot && rows_in_cache(shape, grid, k, word).is_some()
    }

    /// The cost on a 1-D grid by rows if each rank reads its rows in panels. The memory of the panels is not included.
    pub fn streamed_cost(
        &self,
        extrapolation: Extrapolation,
        update: (Kernel, [usize; 2]),
        workload: &Workload,
        ranks: usize,
    ) -> Cost {
        let grid = Auto::Given(GridShape { rows: ranks, cols: 1 });
        let by_rows = ExactParams { grid: GridParams { grid, exchange: Exchange::Dense }, ..self.clone() };
        let mut cost = by_rows.cost(extrapolation, update, workload, ranks);
        // The product with all columns is accumulated in addition to the whole V.
        let Workload { m, n, k, stored, sparse, word, .. } = *workload;
        let counted = self.reads_once((update.0, sparse), (m, n), (ranks, 1), (k, word));
        let start = Start::choose(&self.init.init, &Sizes { m, n, entries: stored, k }, sparse);
        cost.factors += if counted { 0.0 } else { workload.bytes(n * k) };
        cost.start += workload.bytes(n * start.columns(k, (m, n)));
        cost.data = 0.0;
        cost
    }
}

/// Messages that leave a rank; they are the same for every step.
pub const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(
        GRAM_V,
        "k x k",
        "each iteration; each evaluation with --measure projected-gradient, or of data read in passes",
    ),
    MessageSpec::new(
        GRAM_U,
        "k x k; with --extrapolation and four words of objectives",
        "each iteration, twice after a rise; each evaluation with --measure projected-gradient, or of data read in passes",
    ),
    MessageSpec::new(
        GATHER_V,
        "(n / pc) x k",
        "each iteration, where the grid has several rows; each evaluation; n x k with --missing or --holdout",
    ),
    MessageSpec::new(
        GATHER_U,
        "(m / pr) x k",
        "each iteration, where the grid has several columns; each evaluation; m x k with --missing or --holdout",
    ),
    MessageSpec::new(RHS_U, "(m / pr) x k", "as Gram of V, where the grid has several columns"),
    MessageSpec::new(RHS_V, "(n / pc) x k", "as Gram of V, where the grid has several rows"),
    MessageSpec::new(PATTERN, "row indices", "at the start, on sparse data without --exchange dense"),
    MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
    regularization::MESSAGES,
    stationarity::MESSAGES,
    init::MESSAGES[0],
    init::MESSAGES[1],
    init::MESSAGES[2],
    init::MESSAGES[3],
    init::MESSAGES[4],
    init::MESSAGES[5],
    init::MESSAGES[6],
    missing::MESSAGES,
];

/// An exact alternating method: grid, step and work arrays; see the [module](self).
pub struct Exact<T: Real> {
    pub(super) comm: Communicator,
    pub(super) grid: Grid<T>,
    /// Whether V's right-hand side belongs to the current U.
    pub(super) rhs_is_current: bool,
    pub(super) gram: Array2<T>,
    step: Box<dyn FactorUpdate<T>>,
    pub(super) penalties: Penalties,
    start: Start,
    /// Whether evaluations also report the projected gradient.
    gradient: bool,
    pub(super) norm2: f64,
    pub(super) iteration: usize,
}

/// Builds the method; `step` is created for the sizes.
///
/// # Errors
/// On all ranks, if MKL refuses a sparse block, or a start or the exchange does not fit the data.
pub fn build<T: Real>(
    problem: Problem<'_, T>,
    args: &ExactParams,
    extrapolation: Extrapolation,
    step: impl FnOnce(&Sizes) -> Box<dyn FactorUpdate<T>>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, comm, initial, resuming, .. } = problem;
    let shape = (data.header.rows, data.header.cols);
    let dense = !data.header.sparse;
    let entries = if dense { shape.0 as f64 * shape.1 as f64 } else { data.statistics.nonzeros as f64 };
    let sizes = Sizes { m: shape.0, n: shape.1, entries, k };
    let step = step(&sizes);
    let rows = grid::own_rows(&comm, &data.cuts);
    let Statistics { sum, norm2, .. } = data.statistics;
    let task = Task { comm: &comm, cuts: &data.cuts, shape, entries, k, sum, norm2, seed };
    let start = if initial.is_some() { Start::Given } else { Start::choose(&args.init.init, &sizes, !dense) };
    // A checkpoint replaces the start.
    let computed = if resuming { Start::Random } else { start };
    let (pr, pc) = (data.cuts.rows.len(), data.cuts.cols.len());
    let at_once = if dense && step.is_by_row() { rows_in_cache(shape, (pr, pc), k, size_of::<T>()) } else { None };
    let rank_data = rank_data(data.blocks, data.panels, at_once);
    let penalties = args.regularization.penalties(shape);
    let scales = init::random_scales(penalties, sum, shape, k, 2.0);
    let (mut rank_data, [mut u, mut v]) =
        init::on_grid(computed, initial, &task, step.preserves_zeros(), rank_data, rows.each_ref(), scales)?;
    if computed != Start::Random && initial.is_none() {
        init::balance(&comm, penalties, 0.5 * norm2, [&mut u, &mut v]);
    }
    comm.agree_on_error(rank_data.prepare(k))?;
    let mut grid = Grid::new(&comm, rank_data, &data.cuts, k, [U, V]);
    (grid.u.own, grid.v.own) = (u, v);
    grid.choose_exchange(&comm, args.grid.exchange)?;
    let exact = Exact {
        comm,
        grid,
        rhs_is_current: false,
        gram: Array2::zeros((k, k)),
        step,
        penalties,
        start,
        gradient: args.measure.measure == Evaluated::ProjectedGradient,
        norm2,
        iteration: 0,
    };
    Ok(match extrapolation {
        Extrapolation::None => Box::new(exact),
        Extrapolation::Restart => Box::new(Extrapolated::new(exact)),
    })
}

impl<T: Real> Exact<T> {
    /// Updates U. `finish` may then change the updated rows; it receives their range, counted from the first own row.
    pub(super) fn update_u(&mut self, mut finish: impl FnMut(Range<usize>, ArrayViewMut2<'_, T>)) -> Result<()> {
        let Exact { comm, grid: Grid { data, u, v, .. }, gram, step, penalties, .. } = self;
        data.update_u(comm, (u, v), gram, &mut |rows, mut x, rhs, g| {
            step.update(Factor::U, &mut x, &rhs, g, penalties.u)?;
            finish(rows, x);
            Ok(())
        })
    }

    /// Updates V from its right-hand side and U's Gram matrix.
    pub(super) fn update_v(&mut self) -> Result<()> {
        let Exact { comm, grid: Grid { v, .. }, gram, step, penalties, .. } = self;
        comm.work("update", || step.update(Factor::V, &mut v.own.view_mut(), &v.rhs.view(), gram, penalties.v))
    }

    /// Computes the right-hand side of V and the Gram matrix of U for the U of the last update.
    fn prepare_v_after_update(&mut self) -> SharedResult<()> {
        let Exact { comm, grid: Grid { data, u, v, .. }, gram, .. } = self;
        u.gram_while(comm, gram, |u| data.product_for_v_after_update(comm, u, v))
    }

    /// Computes the right-hand side of `factor` and the Gram matrix of the other one. The sum of the Gram matrix overlaps
    /// with the product, because it is not needed before the update.
    pub(super) fn prepare(&mut self, factor: Factor) -> SharedResult<()> {
        let Exact { comm, grid: Grid { data, u, v, .. }, gram, .. } = self;
        match factor {
            Factor::U => v.gram_while(comm, gram, |v| data.product_for_u(comm, u, v)),
            Factor::V => u.gram_while(comm, gram, |u| data.product_for_v(comm, u, v)),
        }
    }

    fn iterate(&mut self) -> Result<()> {
        self.update_u(|_, _| ())?;
        self.prepare_v_after_update()?;
        self.rhs_is_current = true;
        self.update_v()?;
        self.iteration += 1;
        Ok(())
    }

    /// The norm of the projected gradient. Collective.
    fn projected_gradient(&mut self) -> Result<f64> {
        self.prepare(Factor::U)?;
        let gradient2_u = stationarity::squared(&self.grid.u.own, &self.grid.u.rhs, &self.gram, self.penalties.u);
        self.prepare(Factor::V)?;
        let gradient2_v = stationarity::squared(&self.grid.v.own, &self.grid.v.rhs, &self.gram, self.penalties.v);
        Ok(stationarity::norm(&self.comm, gradient2_u + gradient2_v))
    }

    /// The relative error. Collective.
    fn error(&mut self) -> Result<f64> {
        let of_products = if self.grid.data.is_streamed() { self.residual2_of_products() } else { None };
        let residual2 = match of_products {
            Some(residual2) => residual2,
            None => {
                let mut sum = [self.grid.residual2(&self.comm)?];
                self.comm.sum(metrics::RESIDUAL, &mut sum);
                sum[0]
            }
        };
        Ok(metrics::relative(residual2, self.norm2))
    }

    /// ‖M − UVᵀ‖² from V's last right-hand side, without another pass over the data; `None` if the right-hand side
    /// belongs to another U, or if cancellation leaves too few digits. Collective.
    fn residual2_of_products(&self) -> Option<f64> {
        if !self.rhs_is_current || size_of::<T>() < size_of::<f64>() {
            return None;
        }
        let Grid { u, v, .. } = &self.grid;
        let [gram_u, gram_v] = [u, v].map(|side| {
            let mut g = Array2::<T>::zeros(self.gram.dim());
            side.gram(&self.comm, &mut g);
            g
        });
        let mut cross = [inner(&v.rhs.view(), &v.own.view())];
        self.comm.sum(metrics::RESIDUAL, &mut cross);
        residual2_of_products(self.norm2, cross[0], inner(&gram_u.view(), &gram_v.view()))
    }
}

impl<T: Real> Algorithm<T> for Exact<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let error = self.error()?;
        let mut found = vec![("rel_error", error)];
        let penalty = self.penalties.sum(&self.comm, &self.grid.u.own.view(), &self.grid.v.own.view());
        found.extend(self.penalties.objective(0.5 * error * error * self.norm2, penalty));
        if self.gradient {
            found.push(("projected_gradient", self.projected_gradient()?));
        }
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.grid.u.piece(), self.grid.v.piece()]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.grid.u.restore(saved)?;
        self.grid.v.restore(saved)?;
        self.iteration = iteration;
        self.rhs_is_current = false;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let mut all = self.step.decisions();
        all.extend(self.grid.decisions());
        all.push(Decision::Start(self.start));
        all.extend(self.grid.data.decision());
        all
    }
}
