//! The common part of the exact alternating methods (MPI-FAUN, Kannan et al. 2018). The data are on a grid. Each half
//! of an iteration computes the Gram matrix of one factor and the product with the data, and applies the method's step
//! on (Gram matrix, right-hand side) to the rows of the other factor. `hals`, `mu` and `bpp` are such steps.

use std::mem::swap;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::extrapolation::{
    Extrapolation, Momentum, WORDS, extrapolate, extrapolate_rows, inner, split_into_two_words,
};
use super::grid::{self, GATHER_U, GATHER_V, GRAM_U, GRAM_V, Grid, GridArgs, GridChoice};
use super::init::{self, InitArgs, Start, Task};
use super::missing::MissingArgs;
use super::regularization::{self, Penalties, RegularizationArgs};
use super::row_exchange::{Exchange, PATTERN};
use super::row_stream::{RankData, RowStream, product_for_u, product_for_v};
pub use super::sizes::Sizes;
use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Statistics;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Real, gram, residual2_of_products};

use super::stationarity::{Evaluated, MeasureArgs};
use super::{missing, stationarity};
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Side, Workload};
use crate::description::MessageSpec;
use crate::metrics;
use crate::parameters::{Auto, GridShape, Init};
use crate::{Algorithm, Measures, Problem};

/// The factor that is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    U,
    V,
}

/// A method's update of the rows of one factor.
pub trait FactorUpdate<T: Real> {
    /// Changes x (rows × k), which has this penalty, for the right-hand side r (rows × k) and the Gram matrix g (k × k) of the
    /// fixed factor. A row does not depend on the others: x may be all own rows of a factor, or some.
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

    /// Whether an entry that is 0 stays 0; the start must then have no zeros.
    fn preserves_zeros(&self) -> bool {
        false
    }

    /// The decisions made from the sizes.
    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }
}

/// Options of every exact method.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct ExactArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub grid: GridArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub measure: MeasureArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
}

impl ExactArgs {
    /// The same, with the start chosen by the sizes if none was named.
    #[must_use]
    pub fn by_size(&self) -> Self {
        let init = if self.init.init == Init::Auto { Init::BySize } else { self.init.init.clone() };
        ExactArgs { init: InitArgs { init }, ..self.clone() }
    }

    /// Refuses options that are incompatible with missing entries, if there are any.
    ///
    /// # Errors
    /// Naming the option.
    pub fn check_missing(&self, missing: &MissingArgs, extrapolation: Extrapolation) -> Result<()> {
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

    /// What an iteration costs on `ranks` ranks, whose update is `kernel` with so many passes over U and V.
    pub fn cost(
        &self,
        extrapolation: Extrapolation,
        (kernel, [of_u, of_v]): (Kernel, [usize; 2]),
        workload: &Workload,
        ranks: usize,
    ) -> Cost {
        let Workload { m, n, k, word, stored: all, sparse, .. } = *workload;
        let asked = self.grid.grid.given().map(|grid| (grid.rows, grid.cols));
        let asked = asked.filter(|(pr, pc)| pr * pc == ranks);
        let traffic = workload.traffic.filter(|grid| asked.unwrap_or((grid.pr, grid.pc)) == (grid.pr, grid.pc));
        let known = traffic.map(|grid| (grid.pr, grid.pc));
        let (pr, pc) = asked.or(known).unwrap_or_else(|| grid::fewest_words(m, n, ranks));
        let (rows, cols) = (m.div_ceil(pr), n.div_ceil(pc));
        let (own_u, own_v) = (rows.div_ceil(pc), cols.div_ceil(pr));
        let stored = traffic.map_or_else(|| workload.part(rows, cols), |grid| grid.entries as f64);
        let mut cost = Cost { grid: Some((pr, pc)), ..Cost::default() };
        let product = 2.0 * k as f64;
        cost.add(Kernel::Mul, product * stored, product * all);
        cost.add(Kernel::Tmul, product * stored, product * all);
        let square = 2.0 * (k * k) as f64;
        let beyond = extrapolation == Extrapolation::Restart;
        // Extrapolation keeps the unextrapolated U as well; its Gram matrix and the objective are summed too.
        let (times, words) = if beyond { (2, WORDS) } else { (1, 0) };
        cost.add(Kernel::Gram, square * (times * own_u + own_v) as f64, square * (times * m + n) as f64);
        cost.add(kernel, square * (of_u * own_u + of_v * own_v) as f64, square * (of_u * m + of_v * n) as f64);
        if beyond {
            cost.caveat("an iteration after which the objective has risen sums the Gram matrix of U once more");
        }
        if sparse && ranks > 1 && traffic.is_none() && self.grid.exchange != Exchange::Dense {
            cost.caveat(
                "all rows of factors are counted; a run may send fewer, depending on the nonzeros (--exchange), which \
                 --input with --ranks counts",
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
            let travels = of_side.filter(|of_side| matches!(choice.of_side(of_side), Some((Exchange::Sparse, _))));
            if let Some(rows) = travels {
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
        // Rows owned and their right-hand sides; blocks gathered, once more in the other memory order if dense.
        let copies = if sparse { 1 } else { 2 };
        let whole = usize::from(pc > 1) * rows + usize::from(pr > 1) * cols;
        let owned = if beyond { 3 } else { 2 };
        cost.factors = workload.bytes((owned * (own_u + own_v) + copies * whole + 3 * k) * k);
        let start = Start::choose(&self.init.init, &Sizes { m, n, entries: all, k }, sparse);
        cost.start = start.bytes(k, (m, n), [own_u, own_v], copies * whole, word);
        cost
    }

    /// The cost if each rank reads its rows in panels, which are not counted, on a 1-D grid by rows.
    pub fn streamed_cost(
        &self,
        extrapolation: Extrapolation,
        update: (Kernel, [usize; 2]),
        workload: &Workload,
        ranks: usize,
    ) -> Cost {
        let grid = Auto::Given(GridShape { rows: ranks, cols: 1 });
        let by_rows = ExactArgs { grid: GridArgs { grid, exchange: Exchange::Dense }, ..self.clone() };
        let mut cost = by_rows.cost(extrapolation, update, workload, ranks);
        // The product with all columns is accumulated in addition to the whole V.
        let Workload { m, n, k, stored, sparse, .. } = *workload;
        let start = Start::choose(&self.init.init, &Sizes { m, n, entries: stored, k }, sparse);
        cost.factors += workload.bytes(n * k);
        cost.start += workload.bytes(n * start.columns(k, (m, n)));
        cost.data = 0.0;
        cost
    }
}

pub const RHS_U: MessageTag = MessageTag::new("sum M V", Payload::Product);
pub const RHS_V: MessageTag = MessageTag::new("sum M'U", Payload::Product);

/// Messages that leave a rank, the same for every step.
pub const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(
        GRAM_V,
        "k x k",
        "each iteration; each evaluation with --measure projected-gradient, or of data read in passes",
    ),
    MessageSpec::new(
        GRAM_U,
        "k x k; with --extrapolation and two words of the objective",
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
    missing::MESSAGES,
];

/// State of an extrapolated run in addition to the extrapolated factors.
struct Extrapolated<T: Real> {
    momentum: Momentum,
    /// The factors after their last updates. The grid's own rows hold the extrapolated points, where the next updates
    /// start and to which the other factor is fitted.
    u: Array2<T>,
    v: Array2<T>,
    /// UᵀU of this rank's rows.
    gram: Array2<T>,
}

/// See the module.
pub struct Exact<T: Real, S> {
    comm: Communicator,
    grid: Grid<T>,
    /// The panels, if the grid has no block.
    stream: Option<RowStream<T>>,
    /// Whether V's right-hand side belongs to the current U.
    current: bool,
    gram: Array2<T>,
    /// Message buffer: a Gram matrix to be summed, and [`WORDS`].
    message: Vec<T>,
    step: S,
    penalties: Penalties,
    start: Start,
    extrapolated: Option<Extrapolated<T>>,
    /// Whether evaluations report the projected gradient too.
    gradient: bool,
    shape: (usize, usize),
    norm2: f64,
    iteration: usize,
}

/// Puts the method together; `step` is made for the sizes, extrapolated as in [`super::extrapolation`].
///
/// # Errors
/// When a sparse block is refused by MKL.
pub fn build<T: Real, S: FactorUpdate<T> + 'static>(
    problem: Problem<'_, T>,
    args: &ExactArgs,
    extrapolation: Extrapolation,
    step: impl FnOnce(&Sizes) -> S,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, comm, initial, resuming, .. } = problem;
    let gradient = args.measure.measure == Evaluated::ProjectedGradient;
    let shape = (data.header.rows, data.header.cols);
    let dense = !data.header.sparse;
    let entries = if dense { shape.0 as f64 * shape.1 as f64 } else { data.statistics.nonzeros as f64 };
    let sizes = Sizes { m: shape.0, n: shape.1, entries, k };
    let rank_data = RankData::new(data.blocks, data.panels);
    let step = step(&sizes);
    let rows = grid::own_rows(&comm, &data.cuts);
    let Statistics { sum, norm2, .. } = data.statistics;
    let task = Task { comm: &comm, cuts: &data.cuts, shape, entries, k, sum, norm2, seed };
    let start = if initial.is_some() { Start::Given } else { Start::choose(&args.init.init, &sizes, !dense) };
    // A checkpoint replaces the start.
    let taken = if resuming { Start::Random } else { start };
    let (mut rank_data, [u, v]) =
        init::on_grid(taken, initial, &task, step.preserves_zeros(), rank_data, rows.each_ref())?;
    rank_data.block.prepare(k)?;
    rank_data.prepare(shape.1, k);
    let RankData { block, stream } = rank_data;
    let mut grid = Grid::new(&comm, block, &data.cuts, k);
    (grid.u.own, grid.v.own) = (u, v);
    if stream.is_none() {
        grid.choose_exchange(&comm, args.grid.exchange)?;
    }
    let extrapolated = (extrapolation == Extrapolation::Restart).then(|| Extrapolated {
        momentum: Momentum::default(),
        u: grid.u.own.clone(),
        v: grid.v.own.clone(),
        gram: Array2::zeros((k, k)),
    });
    Ok(Box::new(Exact {
        step,
        penalties: args.regularization.penalties(shape),
        start,
        gram: Array2::zeros((k, k)),
        message: vec![T::zero(); k * k + WORDS],
        norm2,
        iteration: 0,
        comm,
        grid,
        stream,
        current: false,
        extrapolated,
        gradient,
        shape,
    }))
}

impl<T: Real, S: FactorUpdate<T>> Exact<T, S> {
    /// Computes the right-hand side of a factor and the Gram matrix of the other one. The summed Gram matrix is not
    /// needed before the update, so the sum overlaps with the product.
    fn prepare(&mut self, factor: Factor) -> Result<()> {
        let Exact { comm, grid, stream, gram: g, .. } = self;
        let fixed = if factor == Factor::U { &grid.v.own } else { &grid.u.own };
        comm.work("Gram", || gram(&fixed.view(), &mut g.view_mut()));
        let words = g.as_slice_mut().expect("made contiguous");
        match factor {
            Factor::U => comm.sum_while(GRAM_V, words, || product_for_u((grid, stream), comm, (GATHER_V, RHS_U))),
            Factor::V => comm.sum_while(GRAM_U, words, || product_for_v((grid, stream), comm, (GATHER_U, RHS_V))),
        }
    }

    /// Updates U in a pass over data that are read in panels, extrapolates it if requested, and prepares V's update as
    /// far as the pass allows.
    fn update_u_in_a_pass(&mut self) -> Result<()> {
        let Exact { comm, grid, stream, gram: g, step, penalties, extrapolated, .. } = self;
        let Some(stream) = stream else { return Ok(()) };
        comm.work("Gram", || gram(&grid.v.own.view(), &mut g.view_mut()));
        comm.sum(GRAM_V, g.as_slice_mut().expect("made contiguous"));
        stream.update_u(comm, grid, GATHER_V, |rows, mut u, rhs| {
            comm.work("update", || {
                step.update(Factor::U, &mut u, &rhs, g, penalties.u)?;
                if let Some(x) = extrapolated {
                    extrapolate_rows(u, x.u.slice_mut(s![rows, ..]), x.momentum.beta);
                }
                Ok(())
            })
        })
    }

    /// The right-hand side of V, for the Gram matrix of U as it is after [`Exact::update_u_in_a_pass`].
    fn prepare_v_after_pass(&mut self) {
        let Exact { comm, grid, stream, gram: g, .. } = self;
        let Some(stream) = stream else { return };
        comm.work("Gram", || gram(&grid.u.own.view(), &mut g.view_mut()));
        let words = g.as_slice_mut().expect("made contiguous");
        comm.sum_while(GRAM_U, words, || stream.sum_product(grid, RHS_V));
    }

    fn update(&mut self, factor: Factor) -> Result<()> {
        let Exact { comm, grid, gram, step, penalties, .. } = self;
        let (side, penalty) = if factor == Factor::U { (&mut grid.u, penalties.u) } else { (&mut grid.v, penalties.v) };
        comm.work("update", || step.update(factor, &mut side.own.view_mut(), &side.rhs.view(), gram, penalty))
    }

    /// Called after U's update at V_y: extrapolates U, sums its Gram matrix and the objective in one message, and
    /// computes the right-hand side of V. If the objective rose, both factors first return to their state after the
    /// last updates.
    fn prepare_v_extrapolated(&mut self, x: &mut Extrapolated<T>) -> Result<()> {
        let Exact { comm, grid, stream, gram: g, message, norm2, penalties, .. } = self;
        let (u, k) = (&mut grid.u.own, g.nrows());
        let (entries, words) = message.split_at_mut(k * k);
        let mut beyond = ArrayViewMut2::from_shape((k, k), entries).expect("k x k");
        comm.work("Gram", || {
            // With panels, the pass has already done this.
            if stream.is_none() {
                extrapolate(u, &mut x.u, x.momentum.beta);
            }
            let new = x.u.view();
            gram(&new, &mut x.gram.view_mut());
            let fit = inner(&x.gram.view(), &g.view()) - 2.0 * inner(&new, &grid.u.rhs.view());
            let objective = fit + 2.0 * penalties.value(&new, &grid.v.own.view());
            gram(&u.view(), &mut beyond);
            words.copy_from_slice(&split_into_two_words(objective, *norm2));
        });
        comm.sum(GRAM_U, message);
        let objective = *norm2 + message[k * k].as_f64() + message[k * k + 1].as_f64();
        if x.momentum.judge(objective) {
            g.as_slice_mut().expect("made contiguous").copy_from_slice(&message[..k * k]);
            match stream {
                Some(stream) => stream.sum_product(grid, RHS_V),
                None => grid.product_for_v(comm, GATHER_U, RHS_V),
            }
            Ok(())
        } else {
            grid.u.own.assign(&x.u);
            grid.v.own.assign(&x.v);
            self.prepare(Factor::V)
        }
    }

    fn iterate(&mut self) -> Result<()> {
        let streamed = self.stream.is_some();
        if streamed {
            self.update_u_in_a_pass()?;
        } else {
            self.prepare(Factor::U)?;
            self.update(Factor::U)?;
        }
        match self.extrapolated.take() {
            None if streamed => self.prepare_v_after_pass(),
            None => self.prepare(Factor::V)?,
            Some(mut x) => {
                let prepared = self.prepare_v_extrapolated(&mut x);
                self.extrapolated = Some(x);
                prepared?;
            }
        }
        self.current = true;
        self.update(Factor::V)?;
        if let Some(x) = &mut self.extrapolated {
            self.comm.work("update", || extrapolate(&mut self.grid.v.own, &mut x.v, x.momentum.beta));
        }
        self.iteration += 1;
        Ok(())
    }

    /// The norm of the projected gradient at the grid's factors. Collective.
    fn projected_gradient(&mut self) -> Result<f64> {
        self.prepare(Factor::U)?;
        let of_u = stationarity::squared(&self.grid.u.own, &self.grid.u.rhs, &self.gram, self.penalties.u);
        self.prepare(Factor::V)?;
        let of_v = stationarity::squared(&self.grid.v.own, &self.grid.v.rhs, &self.gram, self.penalties.v);
        Ok(stationarity::norm(&self.comm, of_u + of_v))
    }

    /// The relative error of the grid's factors. Collective.
    fn error(&mut self) -> Result<f64> {
        let Some(mut stream) = self.stream.take() else {
            let u = self.grid.u.gather(GATHER_U);
            let v = self.grid.v.gather(GATHER_V);
            let blocks = std::iter::once((&self.grid.block, u, v));
            return Ok(metrics::relative_error(&self.comm, self.norm2, blocks));
        };
        let residual = match self.residual2_of_products() {
            Some(residual) => Ok(residual),
            None => stream.residual2(&self.comm, &mut self.grid, GATHER_V).map(|own| {
                let mut sum = [own];
                self.comm.sum(metrics::RESIDUAL, &mut sum);
                sum[0]
            }),
        };
        self.stream = Some(stream);
        Ok(metrics::relative(residual?, self.norm2))
    }

    /// ‖M − UVᵀ‖² from V's last right-hand side, without another pass over the data; `None` if the right-hand side
    /// belongs to another U, or if cancellation leaves too few digits. Collective.
    fn residual2_of_products(&self) -> Option<f64> {
        if !self.current || size_of::<T>() < size_of::<f64>() {
            return None;
        }
        let [mut of_u, mut of_v] = [&self.grid.u.own, &self.grid.v.own].map(|factor| {
            let mut g = Array2::<T>::zeros(self.gram.dim());
            self.comm.work("Gram", || gram(&factor.view(), &mut g.view_mut()));
            g
        });
        self.comm.sum(GRAM_U, of_u.as_slice_mut().expect("made contiguous"));
        self.comm.sum(GRAM_V, of_v.as_slice_mut().expect("made contiguous"));
        let mut cross = [inner(&self.grid.v.rhs.view(), &self.grid.v.own.view())];
        self.comm.sum(metrics::RESIDUAL, &mut cross);
        residual2_of_products(self.norm2, cross[0], inner(&of_u.view(), &of_v.view()))
    }

    /// Swaps the grid's V with V after its last update. Together with the extrapolated U, to which that V was fitted,
    /// it is the result.
    fn exchange(&mut self) {
        if let Some(x) = &mut self.extrapolated {
            swap(&mut self.grid.v.own, &mut x.v);
        }
    }
}

impl<T: Real, S: FactorUpdate<T>> Algorithm<T> for Exact<T, S> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        self.exchange();
        let error = self.error()?;
        let mut found = vec![("rel_error", error)];
        let penalty = self.penalties.sum(&self.comm, &self.grid.u.own.view(), &self.grid.v.own.view());
        found.extend(self.penalties.objective(0.5 * error * error * self.norm2, penalty));
        if self.gradient {
            found.push(("projected_gradient", self.projected_gradient()?));
        }
        self.exchange();
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let (u, v) = (&self.grid.u, &self.grid.v);
        let (own_u, own_v) = self.extrapolated.as_ref().map_or((&u.own, &v.own), |x| (&u.own, &x.v));
        vec![
            Piece::shared("U", self.shape.0, u.own_rows.start, own_u.view()),
            Piece::shared("V", self.shape.1, v.own_rows.start, own_v.view()),
        ]
    }

    fn state(&self) -> State<'_, T> {
        let state = State::from(self.factors());
        let Some(x) = &self.extrapolated else { return state };
        let (u, v) = (&self.grid.u, &self.grid.v);
        let mut state = state.with(Owner::Shared, &x.momentum);
        state.matrices.push(Piece::shared("U_new", self.shape.0, u.own_rows.start, x.u.view()));
        state.matrices.push(Piece::shared("V_beyond", self.shape.1, v.own_rows.start, v.own.view()));
        state
    }

    fn refresh(&mut self) {
        if let Some(x) = &mut self.extrapolated {
            // Rounding makes the objective rise, and each rise reduces the weight.
            x.momentum = Momentum::default();
        }
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        let (u, v) = (&mut self.grid.u, &mut self.grid.v);
        saved.rows("U", Owner::Shared, u.own_rows.start, u.own.view_mut())?;
        saved.rows("V", Owner::Shared, v.own_rows.start, v.own.view_mut())?;
        if let Some(x) = &mut self.extrapolated {
            x.v.assign(&v.own);
            saved.rows("U_new", Owner::Shared, u.own_rows.start, x.u.view_mut())?;
            saved.rows("V_beyond", Owner::Shared, v.own_rows.start, v.own.view_mut())?;
            x.momentum = saved.read(Owner::Shared)?;
        }
        self.iteration = iteration;
        self.current = false;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut all = self.step.decisions();
        all.push(("grid", self.grid.name().into()));
        all.extend(self.grid.exchanges().map(|(name, how)| (name, serde_json::json!(how))));
        all.extend(self.start.decisions());
        all.extend(self.stream.as_ref().map(RowStream::decisions));
        all
    }
}
