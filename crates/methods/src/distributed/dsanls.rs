//! DSANLS: distributed sketched alternating nonnegative least squares (Qian et al., Alg. 2).
//!
//! Rank r holds the rows M[I_r, :] and the columns M[:, J_r], and owns U[I_r] and V[J_r]. In each half of an iteration
//! the subproblem min ‖M[I_r,:] − U[I_r] Vᵀ‖ is replaced by its sketch min ‖A − U[I_r] Bᵀ‖ with A = M[I_r,:] S and
//! B = SᵀV = Σ_r S[J_r,:]ᵀ V[J_r], the only thing that is summed over the ranks: d k words, whatever m and n are.
//! The step on the sketched subproblem needs BᵀB (k × k) and A B (|I_r| × k) alone:
//!
//! * `pcd`, proximal coordinate descent (Alg. 3): one sweep with the term μ_t ‖U − U_t‖²;
//! * `pgd`, projected gradient (14): U ← max(0, U − 2η_t (U BᵀB − A B)).
//!
//! With `--sketch weighted` S depends on the norms of the rows of M and Y: the ranks gather four integers each before they
//! draw, and the sum carries two words more for each draw ([`fednmf_linalg::sketch::WeightedSampler`]).
//!
//! Penalties are not sketched: BᵀB + λ₂I and A B − λ₁ are those of the subproblem with the penalty on U.
//!
//! With `--missing` or `--holdout` a sketch that picks columns is one of the completed matrix, in which U Vᵀ stands for
//! what is missing ([`SampledMissing`]): A B alone is another one, so every step is as it is.
//!
//! V's half uses the new U. `--mu scaled` measures μ_t in units of the mean ‖Y_j‖² of the fixed factor Y (one more word
//! in the sum) and η_t in units of 1/(2‖BᵀB‖₂), so that the same numbers fit any data.

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, ShapeBuilder, s};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, MessageTag, Parts, Payload};
use fednmf_data::STATISTICS;
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{Sketch, SketchKind, WeightedSampler};
use fednmf_linalg::{Block, Order, Real, gram, squares};

use crate::cost::{Cost, Kernel, Message, Pattern, Sketched, Workload};
use crate::description::{Description, Form, MessageSpec, NO_PARTIES, Partition, Unit};
use crate::method::{Groups, Method};
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters::Sizes;
use crate::shared::init;
use crate::shared::init::InitArgs;
use crate::shared::missing;
use crate::shared::missing::{Listed, MissingArgs, SampledMissing, Separated, Tally};
use crate::shared::regularization;
use crate::shared::regularization::{Penalties, RegularizationArgs};
use crate::shared::sketched_step::{DsanlsSketchArgs, SketchedStep, Sketching, StepArgs};
use crate::shared::stationarity;
use crate::shared::stationarity::{Evaluated, MeasureArgs};
use crate::{Algorithm, Measures, Problem};

/// Parameters of DSANLS.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct DsanlsArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub sketch: DsanlsSketchArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub step: StepArgs,
    /// Keep the factors' entries at most (2 |M|_F)^(1/2), as (22) of the paper: convergence is proved for bounded factors,
    /// and a best factorisation is within the bound
    #[arg(long)]
    pub bound: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub measure: MeasureArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub missing: MissingArgs,
}

impl Method for DsanlsArgs {
    const DESCRIPTION: &'static Description = &Description {
        name: "dsanls",
        aliases: &["sanls"],
        summary: "sketched ANLS: each subproblem is shrunk by a random matrix that every rank draws for itself",
        paper: "Qian, Tan, Ding, Shang, Mamoulis, Cheung: Fast and Secure Distributed Nonnegative Matrix Factorization",
        partition: Partition::RowsAndColumns,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::RelativeError,
        dp: NO_PARTIES,
        limits: None,
        messages: &[
            MessageSpec::new(SCORES_V, "4 x p", "each iteration, with --sketch weighted"),
            MessageSpec::new(SKETCHED_V, "d_U x k + 1; with --sketch weighted d_U x (k + 2)", "each iteration"),
            MessageSpec::new(SCORES_U, "4 x p", "each iteration, with --sketch weighted"),
            MessageSpec::new(SKETCHED_U, "d_V x k + 1; with --sketch weighted d_V x (k + 2)", "each iteration"),
            MessageSpec::new(GATHER_V, "n x k", "each evaluation"),
            MessageSpec::new(GATHER_U, "m x k", "each evaluation, with --measure projected-gradient"),
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            missing::MESSAGES,
            regularization::MESSAGES,
            stationarity::MESSAGES,
        ],
    };

    fn check(&self) -> Result<()> {
        if self.missing.any() {
            self.check_missing()?;
        }
        if self.bound && self.regularization.is_on() {
            return Err(Error::input(
                "--bound: with --alpha-u or --alpha-v the best factors may lie beyond it; omit --bound",
            ));
        }
        self.init.refuse_nndsvd("dsanls")
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            init: Some(&self.init),
            step: Some(&self.step),
            regularization: Some(&self.regularization),
            missing: Some(&self.missing),
            ..Groups::default()
        }
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, sparse, .. } = *workload;
        let DsanlsSketchArgs { sketch, sketch_size } = self.sketch;
        let (d_u, d_v) = sketch_sizes(sketch_size.given(), (m, n), k)?;
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let mut cost = Cost::default();
        let part = |across, own, products| Sketched { across, own, products };
        let [of_u, of_v] = [(d_u, n), (d_v, m)].map(|(d, total)| sketch.resolve(sparse, d, total));
        let halves = [
            (of_u, Kernel::SampledForU, (n, d_u), [part(rows, cols, 1), part(m, n, ranks)]),
            (of_v, Kernel::SampledForV, (m, d_v), [part(cols, rows, 1), part(n, m, ranks)]),
        ];
        for (sketch, kernel, sizes, parts) in halves {
            // Weighted draws are rows as well, and at most as many.
            let kind = if let Sketching::Oblivious(kind) = sketch { kind } else { SketchKind::Subsample };
            workload.sketched(&mut cost, kind, kernel, sizes, 1.0, parts);
        }
        let square = 2.0 * (k * k) as f64;
        let grams = square * (d_u + d_v) as f64;
        cost.add(Kernel::Gram, grams, grams * ranks as f64);
        cost.add(Kernel::Sweep, square * (rows + cols) as f64, square * (m + n) as f64);
        for (sketch, d, kinds) in
            [(of_u, d_u, ["scores of V", "sketched V"]), (of_v, d_v, ["scores of U", "sketched U"])]
        {
            let weighted = sketch == Sketching::Weighted;
            let words = if weighted { d * (k + sketch::WORDS) } else { d * k + 1 };
            if weighted {
                cost.messages.extend(Message::shared_out(
                    kinds[0],
                    Pattern::AllGather,
                    (1, ranks),
                    sketch::TOTALS * ranks,
                    size_of::<u64>(),
                ));
            }
            cost.messages.push(Message::all_reduce(kinds[1], ranks, words, word, 1));
        }
        cost.data = workload.block(n, workload.part(rows, n)) + workload.block(m, workload.part(m, cols));
        (cost.shape.updated, cost.shape.gram) = (rows.max(cols), d_u.max(d_v));
        cost.factors = workload.bytes((2 * (rows + cols) + 2 * (d_u + d_v) + 2 * n) * k);
        if of_u == Sketching::Weighted || of_v == Sketching::Weighted {
            cost.caveat(
                "the flops of a sampled product depend on which rows are drawn; those of average rows are given",
            );
        } else if sparse && of_u == Sketching::Oblivious(SketchKind::Subsample) {
            cost.caveat("the flops of a sampled product depend on which rows are drawn; the mean is given");
        }
        if self.missing.any() {
            cost.caveat("the flops and lists of what the samples miss are not counted");
        }
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

impl DsanlsArgs {
    /// Refuses options that are incompatible with missing entries.
    fn check_missing(&self) -> Result<()> {
        if let Sketching::Oblivious(kind) = self.sketch.sketch {
            missing::check_sketch(kind, "subsample or weighted")?;
        }
        if self.bound {
            return Err(Error::input(
                "--bound: it follows from the norm of the whole matrix, and with --missing or --holdout the best factors may \
                 lie beyond it; omit --bound",
            ));
        }
        Ok(())
    }
}

const SCORES_V: MessageTag = MessageTag::new("scores of V", Payload::Scalar);
const SCORES_U: MessageTag = MessageTag::new("scores of U", Payload::Scalar);
const SKETCHED_V: MessageTag = MessageTag::new("sketched V", Payload::SketchedFactor);
const SKETCHED_U: MessageTag = MessageTag::new("sketched U", Payload::SketchedFactor);
const GATHER_V: MessageTag = MessageTag::new("evaluation: gather V", Payload::SharedFactor);
const GATHER_U: MessageTag = MessageTag::new("evaluation: gather U", Payload::SharedFactor);

/// One factor on one rank, with the operands of its update.
struct Half<T: Real> {
    /// The data with the sketched dimension as rows: N × |rows|.
    data: Block<T>,
    /// The rows of the factor that this rank owns.
    rows: Range<usize>,
    factor: Array2<T>,
    rhs: Array2<T>,
    penalty: Penalty,
    /// The missing entries of `data`, which contains zeros in their place.
    gaps: Option<SampledMissing<T>>,
    /// Sketch of the other factor's N rows.
    sketch: Draws<T>,
    kind: Sketching,
    /// B (d × k), and one word more for the fixed factor's ‖Y‖_F²: what the ranks sum.
    message: Vec<T>,
    gram: Array2<T>,
    /// For the spectral bound.
    probe: Array1<T>,
    tag: MessageTag,
    for_u: bool,
}

/// The sampling scheme of a half.
enum Draws<T: Real> {
    Oblivious(Box<dyn Sketch<T>>),
    Weighted(Box<Weighted<T>>),
}

/// Weighted draws, and what they are made into.
struct Weighted<T: Real> {
    sampler: WeightedSampler,
    parts: Parts,
    totals: Vec<u64>,
    /// B, and the rows of the product: the rows drawn times the root of their weights, and times their weights.
    b: Array2<T>,
    weighted: Array2<T>,
    tag: MessageTag,
}

impl<T: Real> Draws<T> {
    fn size(&self) -> usize {
        match self {
            Draws::Oblivious(sketch) => sketch.size(),
            Draws::Weighted(weighted) => weighted.sampler.size(),
        }
    }
}

struct Dsanls<T: Real> {
    comm: Communicator,
    seed: u64,
    step: SketchedStep,
    u: Half<T>,
    v: Half<T>,
    u_parts: Parts,
    v_parts: Parts,
    gradient: bool,
    bound: Option<f64>,
    norm2: f64,
    missing: Option<MissingInfo<T>>,
    iteration: usize,
}

/// Information on missing entries in addition to their lists.
struct MissingInfo<T> {
    tally: Tally<T>,
    listed: Listed,
    /// Number of rows, and of columns, without an observed entry.
    unobserved: [f64; 2],
}

fn build<T: Real>(args: &DsanlsArgs, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { mut data, k, seed, comm, initial, missing, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let (d_u, d_v) = sketch_sizes(args.sketch.sketch_size.given(), (m, n), k)?;
    let bound = args.bound.then(|| (2.0 * data.statistics.norm2.sqrt()).sqrt());
    let step = bound.into_iter().fold(SketchedStep::new(&args.step), SketchedStep::below);

    let mut scale = init::scale(data.statistics.sum, (m, n), k);
    let mut norm2 = data.statistics.norm2;
    let (u_rows, v_rows) = (data.cuts.rows[comm.rank()].clone(), data.cuts.cols[comm.rank()].clone());
    let (mut absence, mut lists) = (None, None);
    if args.missing.any() {
        let separated = Separated::take(&mut data, missing, &args.missing, seed, &comm)?;
        scale = separated.scale((m, n), k);
        norm2 = separated.tally.norm2();
        let Separated { listed, rows, cols, tally } = separated;
        let [(rows, of_rows), (cols, of_cols)] = [rows, cols].map(|(block, lists)| (block.transposed(), lists));
        data.blocks = vec![rows, cols];
        lists = Some((of_rows, of_cols));
        absence = Some(MissingInfo { tally, listed, unobserved: [0.0; 2] });
    }
    let mut blocks = data.blocks.into_iter();
    let mut block = || -> Result<Block<T>> {
        let mut block = blocks.next().expect("the plan gives a row block and a column block");
        block.prepare(k)?;
        Ok(block)
    };
    let (of_u, of_v) = (block()?, block()?);
    let sparse = matches!(of_u, Block::Sparse(_));
    // The norm of a row of the factor at the start, and of a row of the data.
    let typical = |rows: usize| [(norm2 / rows as f64).sqrt(), scale * (k as f64 / 3.0).sqrt()];
    // Creates the sampler of a factor's rows, of which this rank owns `own`; `across` has the corresponding data as
    // columns.
    let draws = |total: usize, d: usize, own: &Range<usize>, across: &Block<T>, tag: MessageTag| {
        let order = across.order();
        let kind = args.sketch.sketch.resolve(sparse, d, total);
        let draws = match kind {
            Sketching::Oblivious(kind) => Draws::Oblivious(sketch::make(kind, total, d, k, order)),
            Sketching::Weighted | Sketching::Auto => {
                let norms = across.column_norms2().into_iter().map(f64::sqrt).collect();
                Draws::Weighted(Box::new(Weighted {
                    sampler: WeightedSampler::new(total, d, own.clone(), norms, typical(total)),
                    parts: totals_of(&comm),
                    totals: vec![0; sketch::TOTALS * comm.size()],
                    b: order.zeros(d, k),
                    weighted: order.zeros(d, k),
                    tag,
                }))
            }
        };
        (kind, draws)
    };
    let penalties = args.regularization.penalties((m, n));
    let draws = [draws(n, d_u, &v_rows, &of_v, SCORES_V), draws(m, d_v, &u_rows, &of_u, SCORES_U)];
    let half =
        |data: Block<T>, rows: Range<usize>, (kind, sketch): (Sketching, Draws<T>), tag: MessageTag, for_u: bool| {
            let (order, d) = (data.order(), sketch.size());
            let words = if matches!(sketch, Draws::Weighted(_)) { d * (k + sketch::WORDS) } else { d * k + 1 };
            Half {
                factor: order.zeros(rows.len(), k),
                rhs: order.zeros(rows.len(), k),
                gaps: None,
                penalty: if for_u { penalties.u } else { penalties.v },
                sketch,
                kind,
                message: vec![T::zero(); words],
                gram: Array2::zeros((k, k)),
                probe: Array1::zeros(2 * k),
                data,
                rows,
                tag,
                for_u,
            }
        };
    let [draws_u, draws_v] = draws;
    let mut u = half(of_u, u_rows, draws_u, SKETCHED_V, true);
    let mut v = half(of_v, v_rows, draws_v, SKETCHED_U, false);
    match initial {
        Some(given) => {
            let places = [u.factor.view_mut(), v.factor.view_mut()];
            comm.agree_on_error(init::given(given, [&u.rows, &v.rows], places))?;
        }
        None => {
            init::u(seed, &u.rows, scale, u.factor.view_mut());
            init::v(seed, &v.rows, scale, v.factor.view_mut());
        }
    }
    if let (Some(MissingInfo { listed, unobserved, .. }), Some((of_u, of_v))) = (&mut absence, lists) {
        for ((half, lists), count) in [(&mut u, of_u), (&mut v, of_v)].into_iter().zip(&mut *unobserved) {
            let (picked, shape) = (half.sketch.size(), (half.rows.len(), half.data.shape().0));
            *count = lists.clear_unobserved(*listed, shape.1, &mut half.factor);
            half.gaps = Some(SampledMissing::new(*listed, &lists, shape, picked, k));
        }
        comm.sum(STATISTICS, unobserved);
    }
    Ok(Box::new(Dsanls {
        comm,
        seed,
        step,
        u,
        v,
        u_parts: Parts::new(&data.cuts.rows, k),
        v_parts: Parts::new(&data.cuts.cols, k),
        gradient: args.measure.measure == Evaluated::ProjectedGradient,
        bound,
        norm2,
        missing: absence,
        iteration: 0,
    }))
}

/// d_U (of n) and d_V (of m), checked.
pub fn sketch_sizes(asked: Option<Sizes>, (m, n): (usize, usize), k: usize) -> Result<(usize, usize)> {
    let Some(Sizes { u, v }) = asked else {
        return Ok((sketch::default_size(n, k), sketch::default_size(m, k)));
    };
    let (d_u, d_v) = (u.of(n), v.of(m));
    if d_u > n || d_v > m {
        return Err(Error::input(format!(
            "--sketch-size {d_u},{d_v}: at most the matrix's own {n} columns for U's update and {m} rows for V's"
        )));
    }
    Ok((d_u, d_v))
}

impl<T: Real> Half<T> {
    /// One update of this factor; `fixed` is the other one, of which this rank owns `fixed_rows`.
    fn update(
        &mut self,
        comm: &Communicator,
        seed: u64,
        iteration: usize,
        step: SketchedStep,
        fixed: &Array2<T>,
        fixed_rows: &Range<usize>,
    ) {
        let k = self.gram.ncols();
        let d = self.sketch.size();
        let order = self.data.order();
        let stream = sketch::stream(seed, self.for_u, iteration);
        let Half { sketch, message, data, gram: g, rhs, gaps, factor, .. } = self;
        let norm2 = match sketch {
            Draws::Oblivious(sketch) => {
                comm.work("sketch factor", || {
                    sketch.draw(&stream);
                    let (b, norm2) = message.split_at_mut(d * k);
                    sketch.sketch_rows(fixed_rows.start, &fixed.view(), &mut matrix_mut(b, d, k, order));
                    norm2[0] = T::from_f64(squares(fixed.as_slice_memory_order().unwrap_or_default()));
                });
                comm.sum(self.tag, message);
                let b = matrix(&message[..d * k], d, k, order);
                comm.work("sketched Gram", || gram(&b, &mut g.view_mut()));
                comm.work("sketched product", || {
                    sketch.product(data, &b, &mut rhs.view_mut());
                    if let (Some(gaps), Some(picked)) = (gaps, sketch.picked()) {
                        gaps.complete(&factor.view(), (picked, &b), &g.view(), rhs);
                    }
                });
                message[d * k].as_f64()
            }
            Draws::Weighted(drawn) => {
                let Weighted { sampler, parts, totals, b, weighted, tag } = &mut **drawn;
                let own = comm.work("score factor", || sampler.score(&fixed.view()));
                comm.all_gather(*tag, &own, parts, totals);
                let norm2 = comm.work("sketch factor", || {
                    let norm2 = sampler.draw(&stream, totals, comm.rank());
                    sampler.fill(&fixed.view(), message);
                    norm2
                });
                comm.sum(self.tag, message);
                comm.work("sketched Gram", || {
                    sampler.collect(message, k);
                    let mut b = b.slice_mut(s![..sampler.sample().len(), ..]);
                    sampler.rows(message, f64::sqrt, &mut b);
                    gram(&b.view(), &mut g.view_mut());
                });
                comm.work("sketched product", || {
                    let mut weighted = weighted.slice_mut(s![..sampler.sample().len(), ..]);
                    sampler.rows(message, |weight| weight, &mut weighted);
                    data.rows_tmul(sampler.sample(), &weighted.view(), &mut rhs.view_mut());
                    if let Some(gaps) = gaps {
                        let b = b.slice(s![..sampler.sample().len(), ..]);
                        gaps.complete(&factor.view(), (sampler.sample(), &b), &g.view(), rhs);
                    }
                });
                norm2
            }
        };
        let (x, r, g) = (&mut self.factor.view_mut(), &self.rhs.view(), (&self.gram.view(), self.penalty));
        comm.work("update", || step.apply(x, r, g, norm2, iteration, &mut self.probe.view_mut()));
    }
}

/// The parts of the totals of weighted draws: as many from each rank.
fn totals_of(comm: &Communicator) -> Parts {
    let ranks: Vec<Range<usize>> = (0..comm.size()).map(|r| r..r + 1).collect();
    Parts::new(&ranks, sketch::TOTALS)
}

impl<T: Real> Half<T> {
    /// This rank's part of the squared norm of the projected gradient, for the whole of the fixed factor.
    fn gradient2(&self, fixed: &Array2<T>) -> f64 {
        let order = self.data.order();
        let mut y = order.zeros(fixed.nrows(), fixed.ncols());
        y.assign(fixed);
        let (mut r, mut g) = (order.zeros(self.rows.len(), fixed.ncols()), Array2::zeros(self.gram.dim()));
        self.data.tmul(&y.view(), &mut r.view_mut());
        gram(&y.view(), &mut g.view_mut());
        if let Some(gaps) = &self.gaps {
            gaps.complete_all(&self.factor, fixed, &g.view(), &mut r);
        }
        stationarity::squared(&self.factor, &r, &g, self.penalty)
    }
}

fn matrix<T>(data: &[T], rows: usize, cols: usize, order: Order) -> ArrayView2<'_, T> {
    ArrayView2::from_shape((rows, cols).set_f(order == Order::ColumnMajor), data).expect("cut to this size")
}

fn matrix_mut<T>(data: &mut [T], rows: usize, cols: usize, order: Order) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape((rows, cols).set_f(order == Order::ColumnMajor), data).expect("cut to this size")
}

/// All rows of a factor, in row order. Collective.
fn whole<T: Real>(comm: &Communicator, tag: MessageTag, half: &Half<T>, parts: &Parts) -> Array2<T> {
    let k = half.factor.ncols();
    let own = half.factor.as_standard_layout();
    let rows = parts.range(comm.size() - 1).end / k;
    let mut all = Array2::zeros((rows, k));
    let own = own.as_slice().expect("in row order");
    comm.all_gather(tag, own, parts, all.as_slice_mut().expect("in row order"));
    all
}

impl<T: Real> Algorithm<T> for Dsanls<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let (u, v) = (&mut self.u, &mut self.v);
            u.update(&self.comm, self.seed, self.iteration, self.step, &v.factor, &v.rows);
            v.update(&self.comm, self.seed, self.iteration, self.step, &u.factor, &u.rows);
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        // The row block is held as n × |I_r|, and n × |I_r| ≈ V U[I_r]ᵀ: V is needed whole.
        let v = whole(&self.comm, GATHER_V, &self.v, &self.v_parts);
        let (residual2, mut found) = match (&self.missing, &self.u.gaps) {
            (Some(MissingInfo { tally, .. }), Some(gaps)) => {
                tally.errors(&self.comm, gaps.residual2(&self.u.data, &v.view(), &self.u.factor.view()))
            }
            _ => {
                let block = std::iter::once((&self.u.data, v.view(), self.u.factor.view()));
                let error = metrics::relative_error(&self.comm, self.norm2, block);
                (error * error * self.norm2, vec![("rel_error", error)])
            }
        };
        let penalties = Penalties { u: self.u.penalty, v: self.v.penalty };
        let penalty = penalties.sum(&self.comm, &self.u.factor.view(), &self.v.factor.view());
        found.extend(penalties.objective(0.5 * residual2, penalty));
        let heldout = self.missing.as_ref().and_then(|x| x.tally.heldout(&self.comm, &self.u.factor.view(), &v.view()));
        found.extend(heldout);
        if self.gradient {
            let u = whole(&self.comm, GATHER_U, &self.u, &self.u_parts);
            let squared = self.u.gradient2(&v) + self.v.gradient2(&u);
            found.push(("projected_gradient", stationarity::norm(&self.comm, squared)));
        }
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let (m, n) = (self.v.data.shape().0, self.u.data.shape().0);
        vec![
            Piece::shared("U", m, self.u.rows.start, self.u.factor.view()),
            Piece::shared("V", n, self.v.rows.start, self.v.factor.view()),
        ]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, half) in [("U", &mut self.u), ("V", &mut self.v)] {
            saved.rows(name, Owner::Shared, half.rows.start, half.factor.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        let (of_u, of_v) = (self.u.kind.name(), self.v.kind.name());
        let sketch = if of_u == of_v { of_u.into() } else { serde_json::json!([of_u, of_v]) };
        let mut all = vec![
            ("sketch", sketch),
            ("sketch_size_u", self.u.sketch.size().into()),
            ("sketch_size_v", self.v.sketch.size().into()),
            ("mu_alpha", self.step.alpha().into()),
        ];
        all.extend(self.bound.map(|b| ("largest_entry", b.into())));
        all.extend(self.missing.iter().flat_map(|x| x.tally.decisions(x.listed, x.unobserved)));
        all
    }
}
