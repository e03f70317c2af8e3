//! DSANLS: distributed sketched alternating nonnegative least squares (Qian et al. 2019, Alg. 2).
//!
//! Rank r holds the rows M[I_r, :] and the columns M[:, J_r], and owns U[I_r] and V[J_r]. In each half of an iteration the
//! subproblem min ‖M[I_r,:] − U[I_r] Vᵀ‖ is replaced by its sketch min ‖A − U[I_r] Bᵀ‖ with A = M[I_r,:] S and B = SᵀV =
//! Σ_r S[J_r,:]ᵀ V[J_r]. Only B is summed over the ranks: d k words, independently of m and n. The step on the sketched
//! subproblem needs only BᵀB (k × k) and A B (|I_r| × k):
//!
//! * `pcd`, proximal coordinate descent (Alg. 3): one sweep with the term μ_t ‖U − U_t‖²;
//! * `pgd`, projected gradient (14): U ← max(0, U − 2η_t (U BᵀB − A B)).
//!
//! With `--sketch weighted` S depends on the norms of the rows of M and Y. The ranks gather four integers each before they
//! draw, and the sum contains two more words per draw ([`fednmf_linalg::sketch::WeightedSampler`]).
//!
//! Penalties are not sketched: they change BᵀB to BᵀB + λ₂I and A B to A B − λ₁.
//!
//! With `--missing` or `--holdout`, a sketch that selects columns applies to the completed matrix, in which missing entries
//! have their values in U Vᵀ ([`SampledMissing`]). Only A B differs, so the steps are unchanged.
//!
//! V's half uses the new U. With `--mu scaled` the unit of μ_t is the mean ‖Y_j‖² of the fixed factor Y (one more word in
//! the sum), and the unit of η_t is 1/(2‖BᵀB‖₂), so that the same values fit any data.

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, ShapeBuilder};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::units::thousands;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::state::{Piece, SavedState};
use fednmf_data::{Cuts, STATISTICS};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{Sketch, SketchKind, WeightedSampler};
use fednmf_linalg::{Block, Order, Real, gram, squares};

use crate::cost::{Cost, Kernel, Message, Pattern, Sketched, Workload};
use crate::decision::Decision;
use crate::description::{Description, MessageSpec};
use crate::method::{Method, SweepSettings};
use crate::metrics;
use crate::parameters::Sizes;
use crate::shared::alternating::Factor;
use crate::shared::factor_side::{FactorSide, FactorTags, U, V};
use crate::shared::init;
use crate::shared::init::{InitParams, Start};
use crate::shared::missing;
use crate::shared::missing::{Listed, MissingParams, SampledMissing, Separated, Tally};
use crate::shared::regularization;
use crate::shared::regularization::{Penalties, RegularizationParams};
use crate::shared::row_and_column_block;
use crate::shared::sampled_product::{SampleTags, SampledProduct};
use crate::shared::sketched_step::{DsanlsSketchParams, SketchedStep, Sketching, StepParams};
use crate::shared::stationarity;
use crate::shared::stationarity::{Evaluated, MeasureParams};
use crate::{Algorithm, Measures, Problem};

fednmf_base::parameters! {
    /// Parameters of DSANLS.
    pub struct Dsanls {
        group sketch: DsanlsSketchParams;
        group step: StepParams;
        /// Keep the factors' entries at most (2 |M|_F)^(1/2), as (22) of the paper: convergence is proved for bounded factors,
        /// and a best factorisation is within the bound
        pub bound: bool;
        group measure: MeasureParams;
        group init: InitParams;
        group regularization: RegularizationParams;
        group missing: MissingParams;
    }
}

impl Method for Dsanls {
    const DESCRIPTION: &'static Description = &Description {
        name: "dsanls",
        aliases: &["sanls"],
        summary: "sketched ANLS: random matrices, never sent, shrink each subproblem",
        paper: "Qian, Tan, Ding, Li, Mamoulis: Fast and Secure Distributed Nonnegative Matrix Factorization",
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
        ..Description::USUAL
    };

    fn for_sweep(&self, SweepSettings { missing, regularization, .. }: &SweepSettings) -> Option<Self> {
        Some(Dsanls { missing: missing.clone(), regularization: regularization.clone(), ..self.clone() })
    }

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

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, sparse, .. } = *workload;
        let DsanlsSketchParams { sketch, sketch_size } = self.sketch;
        let (d_u, d_v) = sketch_sizes(sketch_size.given(), (m, n), k)?;
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let mut cost = Cost::default();
        let part = |across, own, products| Sketched { across, own, products };
        let [sketch_u, sketch_v] = [(d_u, n), (d_v, m)].map(|(d, total)| sketch.resolve(sparse, d, total));
        let halves = [
            (sketch_u, Kernel::SampledForU, (n, d_u), [part(rows, cols, 1), part(m, n, ranks)]),
            (sketch_v, Kernel::SampledForV, (m, d_v), [part(cols, rows, 1), part(n, m, ranks)]),
        ];
        for (sketch, kernel, sizes, parts) in halves {
            // A weighted sketch also selects rows, and at most as many.
            let kind = if let Sketching::Oblivious(kind) = sketch { kind } else { SketchKind::Subsample };
            workload.sketched(&mut cost, kind, kernel, sizes, 1.0, parts);
        }
        let square = 2.0 * (k * k) as f64;
        let grams = square * (d_u + d_v) as f64;
        cost.add(Kernel::Gram, grams, grams * ranks as f64);
        cost.add(Kernel::Sweep, square * (rows + cols) as f64, square * (m + n) as f64);
        for (sketch, d, kinds) in
            [(sketch_u, d_u, ["scores of V", "sketched V"]), (sketch_v, d_v, ["scores of U", "sketched U"])]
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
        cost.caveat(format!("sketches of {} columns and {} rows (--sketch-size)", thousands(d_u), thousands(d_v)));
        if sketch_u == Sketching::Weighted || sketch_v == Sketching::Weighted {
            cost.caveat(
                "the flops of a sampled product depend on which rows are drawn; those of average rows are given",
            );
        } else if sparse && sketch_u == Sketching::Oblivious(SketchKind::Subsample) {
            cost.caveat("the flops of a sampled product depend on which rows are drawn; the mean is given");
        }
        if self.missing.any() {
            cost.caveat("the flops and lists of what the samples miss are not counted");
        }
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

impl Dsanls {
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
const GATHER_V: MessageTag = MessageTag::of_evaluation("evaluation: gather V", Payload::SharedFactor);
const GATHER_U: MessageTag = MessageTag::of_evaluation("evaluation: gather U", Payload::SharedFactor);

const TAGS_U: FactorTags = FactorTags { gather: GATHER_U, ..U };
const TAGS_V: FactorTags = FactorTags { gather: GATHER_V, ..V };

/// A factor, and the operands of its update.
struct SketchedSide<T: Real> {
    factor: FactorSide<T>,
    /// The data with the sketched dimension as rows: N × |own rows|.
    data: Block<T>,
    penalty: Penalty,
    /// The missing entries of `data`, which contains zeros in their place.
    missing: Option<SampledMissing<T>>,
    /// Sketch of the other factor's N rows.
    sketch: Draws<T>,
    kind: Sketching,
    gram: Array2<T>,
    /// Work array of the spectral bound.
    probe: Array1<T>,
    for_u: bool,
}

/// The sampling scheme of the update of a factor.
enum Draws<T: Real> {
    Oblivious(Oblivious<T>),
    Weighted(Box<SampledProduct<T>>),
}

/// A sketch that does not depend on the data.
struct Oblivious<T: Real> {
    sketch: Box<dyn Sketch<T>>,
    /// What the ranks sum: B (d × k), and one word for the fixed factor's ‖Y‖_F².
    message: Vec<T>,
    tag: MessageTag,
}

impl<T: Real> Draws<T> {
    fn size(&self) -> usize {
        match self {
            Draws::Oblivious(oblivious) => oblivious.sketch.size(),
            Draws::Weighted(sample) => sample.size(),
        }
    }
}

struct DsanlsRun<T: Real> {
    comm: Communicator,
    seed: u64,
    step: SketchedStep,
    u: SketchedSide<T>,
    v: SketchedSide<T>,
    start: Start,
    gradient: bool,
    bound: Option<f64>,
    norm2: f64,
    missing: Option<MissingInfo<T>>,
    iteration: usize,
}

/// Data on missing entries other than their lists.
struct MissingInfo<T> {
    tally: Tally<T>,
    listed: Listed,
    /// Number of rows, and of columns, without an observed entry.
    unobserved: [f64; 2],
}

fn build<T: Real>(args: &Dsanls, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { mut data, k, seed, comm, initial, missing, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let (d_u, d_v) = sketch_sizes(args.sketch.sketch_size.given(), (m, n), k).map_err(Error::on_all_ranks)?;
    let bound = args.bound.then(|| (2.0 * data.statistics.norm2.sqrt()).sqrt());
    let step = bound.into_iter().fold(SketchedStep::new(&args.step), SketchedStep::below);

    let penalties = args.regularization.penalties((m, n));
    let (mut sum, mut norm2) = (data.statistics.sum, data.statistics.norm2);
    let (mut absence, mut lists) = (None, None);
    if args.missing.any() {
        let separated = Separated::take(&mut data, missing, &args.missing, seed, &comm)?;
        sum = separated.sum((m, n));
        norm2 = separated.tally.norm2();
        let Separated { listed, rows, cols, tally } = separated;
        let [(rows, lists_u), (cols, lists_v)] = [rows, cols].map(|(block, lists)| (block.transposed(), lists));
        data.blocks = vec![rows, cols];
        lists = Some([lists_u, lists_v]);
        absence = Some(MissingInfo { tally, listed, unobserved: [0.0; 2] });
    }
    let scales = init::random_scales(penalties, sum, (m, n), k, 2.0);
    let [mut block_u, mut block_v] = row_and_column_block(data.blocks);
    comm.agree_on_error(block_u.prepare(k).and_then(|()| block_v.prepare(k)))?;
    let sparse = matches!(block_u, Block::Sparse(_));
    // The typical norms at the start: of a row of the data, and of a row of the factor.
    let typical = |rows: usize, scale: f64| [(norm2 / rows as f64).sqrt(), scale * (k as f64 / 3.0).sqrt()];
    // Creates the sampler of a factor's rows, of which this rank owns those in `cuts`. The columns of `across` are the
    // corresponding data.
    let draws = |(total, d): (usize, usize), scale: f64, cuts: &[Range<usize>], across: &Block<T>, tags: SampleTags| {
        let order = across.order();
        let kind = args.sketch.sketch.resolve(sparse, d, total);
        let draws = match kind {
            Sketching::Oblivious(kind) => {
                let sketch = sketch::make(kind, total, d, k, order);
                Draws::Oblivious(Oblivious { message: vec![T::zero(); sketch.size() * k + 1], sketch, tag: tags.rows })
            }
            Sketching::Weighted | Sketching::Auto => {
                let norms = across.column_norms2().into_iter().map(f64::sqrt).collect();
                let sampler = WeightedSampler::new(total, d, cuts[comm.rank()].clone(), norms, typical(total, scale));
                Draws::Weighted(Box::new(SampledProduct::new(&comm, sampler, tags, (k, order), 0).with_gram(order)))
            }
        };
        (kind, draws)
    };
    let Cuts { rows, cols } = &data.cuts;
    let draws_u = draws((n, d_u), scales[1], cols, &block_v, SampleTags { scores: SCORES_V, rows: SKETCHED_V });
    let draws_v = draws((m, d_v), scales[0], rows, &block_u, SampleTags { scores: SCORES_U, rows: SKETCHED_U });
    let side = |data: Block<T>, tags: FactorTags, cuts: &[Range<usize>], (kind, sketch), for_u| SketchedSide {
        factor: FactorSide::of_all_ranks(tags, &comm, cuts, k, data.order()).with_rhs(),
        missing: None,
        penalty: if for_u { penalties.u } else { penalties.v },
        sketch,
        kind,
        gram: Array2::zeros((k, k)),
        probe: Array1::zeros(2 * k),
        data,
        for_u,
    };
    let mut u = side(block_u, TAGS_U, rows, draws_u, true);
    let mut v = side(block_v, TAGS_V, cols, draws_v, false);
    let start = init::given_or_random(initial, seed, scales, &comm, [&mut u.factor, &mut v.factor])?;
    if let (Some(MissingInfo { listed, unobserved, .. }), Some(lists)) = (&mut absence, lists) {
        for ((side, lists), count) in [&mut u, &mut v].into_iter().zip(lists).zip(&mut *unobserved) {
            let (picked, shape) = (side.sketch.size(), (side.factor.own.nrows(), side.data.shape().0));
            *count = lists.clear_unobserved(*listed, shape.1, &mut side.factor.own);
            side.missing = Some(SampledMissing::new(*listed, &lists, shape, picked, k));
        }
        comm.sum(STATISTICS, unobserved);
    }
    Ok(Box::new(DsanlsRun {
        comm,
        seed,
        step,
        u,
        v,
        start,
        gradient: args.measure.measure == Evaluated::ProjectedGradient,
        bound,
        norm2,
        missing: absence,
        iteration: 0,
    }))
}

/// The sketch sizes d_U (of n) and d_V (of m), checked.
pub fn sketch_sizes(requested: Option<Sizes>, (m, n): (usize, usize), k: usize) -> Result<(usize, usize)> {
    let Some(Sizes { u, v }) = requested else {
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

impl<T: Real> SketchedSide<T> {
    /// One update of this factor, given the other one, `fixed`.
    fn update(&mut self, comm: &Communicator, seed: u64, iteration: usize, step: SketchedStep, fixed: &FactorSide<T>) {
        let stream = sketch::stream(seed, self.for_u, iteration);
        let norm2 = match &mut self.sketch {
            Draws::Oblivious(oblivious) => {
                let (d, k, order) = (oblivious.sketch.size(), self.gram.ncols(), self.data.order());
                let Oblivious { sketch, message, tag } = oblivious;
                let SketchedSide { factor, data, missing, gram: g, .. } = self;
                comm.work("sketch factor", || {
                    sketch.draw(&stream);
                    let (b, norm2) = message.split_at_mut(d * k);
                    let own = &fixed.own;
                    sketch.sketch_rows(fixed.own_rows.start, &own.view(), &mut matrix_mut(b, d, k, order));
                    norm2[0] = T::from_f64(squares(own.as_slice_memory_order().unwrap_or_default()));
                });
                comm.sum(*tag, message);
                let b = matrix(&message[..d * k], d, k, order);
                comm.work("sketched Gram", || gram(&b, &mut g.view_mut()));
                comm.work("sketched product", || {
                    let FactorSide { own, rhs, .. } = factor;
                    sketch.product(data, &b, &mut rhs.view_mut());
                    if let (Some(missing), Some(picked)) = (missing, sketch.picked()) {
                        missing.complete(&own.view(), (picked, &b), &g.view(), rhs);
                    }
                });
                message[d * k].as_f64()
            }
            Draws::Weighted(sample) => {
                let SketchedSide { factor, data, missing, gram: g, .. } = self;
                let own = fixed.own.view();
                let scores = comm.work("score factor", || sample.sampler.score(&own));
                let norm2 =
                    sample.draw(comm, "sketch factor", scores, &stream, |sampler, rows, _| sampler.fill(&own, rows));
                comm.work("sketched Gram", || {
                    sample.collect();
                    sample.gram(g);
                });
                comm.work("sketched product", || {
                    let FactorSide { own, rhs, .. } = factor;
                    sample.multiply(data, rhs);
                    if let Some(missing) = missing {
                        let (picked, b) = sample.rooted();
                        missing.complete(&own.view(), (picked, &b), &g.view(), rhs);
                    }
                });
                norm2
            }
        };
        let FactorSide { own, rhs, .. } = &mut self.factor;
        let (x, r, g) = (&mut own.view_mut(), &rhs.view(), (&self.gram.view(), self.penalty));
        comm.work("update", || step.apply(x, r, g, norm2, iteration, &mut self.probe.view_mut()));
    }

    /// This rank's part of the squared norm of the projected gradient, given all rows of the fixed factor.
    fn gradient2(&self, fixed: &Array2<T>) -> f64 {
        let order = self.data.order();
        let mut y = order.zeros(fixed.nrows(), fixed.ncols());
        y.assign(fixed);
        let own = &self.factor.own;
        let (mut r, mut g) = (order.zeros(own.nrows(), own.ncols()), Array2::zeros(self.gram.dim()));
        self.data.tmul(&y.view(), &mut r.view_mut());
        gram(&y.view(), &mut g.view_mut());
        if let Some(missing) = &self.missing {
            missing.complete_all(own, fixed, &g.view(), &mut r);
        }
        stationarity::squared(own, &r, &g, self.penalty)
    }
}

fn matrix<T>(data: &[T], rows: usize, cols: usize, order: Order) -> ArrayView2<'_, T> {
    ArrayView2::from_shape((rows, cols).set_f(order == Order::ColumnMajor), data).expect("cut to this size")
}

fn matrix_mut<T>(data: &mut [T], rows: usize, cols: usize, order: Order) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape((rows, cols).set_f(order == Order::ColumnMajor), data).expect("cut to this size")
}

impl<T: Real> Algorithm<T> for DsanlsRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let (u, v) = (&mut self.u, &mut self.v);
            u.update(&self.comm, self.seed, self.iteration, self.step, &v.factor);
            v.update(&self.comm, self.seed, self.iteration, self.step, &u.factor);
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        // The row block is stored as n × |I_r| and approximated by V U[I_r]ᵀ, so all rows of V are needed.
        let v = self.v.factor.gather_copy();
        let own = self.u.factor.own.view();
        let (residual2, mut found) = match (&self.missing, &self.u.missing) {
            (Some(MissingInfo { tally, .. }), Some(missing)) => {
                tally.errors(&self.comm, missing.residual2(&self.u.data, &v.view(), &own))
            }
            _ => {
                let block = std::iter::once((&self.u.data, v.view(), own));
                let error = metrics::relative_error(&self.comm, self.norm2, block);
                (error * error * self.norm2, vec![("rel_error", error)])
            }
        };
        let penalties = Penalties { u: self.u.penalty, v: self.v.penalty };
        let penalty = penalties.sum(&self.comm, &own, &self.v.factor.own.view());
        found.extend(penalties.objective(0.5 * residual2, penalty));
        let heldout = self.missing.as_ref().map(|x| x.tally.heldout(&self.comm, &own, &v.view(), false));
        found.extend(heldout.into_iter().flatten());
        if self.gradient {
            let u = self.u.factor.gather_copy();
            let squared = self.u.gradient2(&v) + self.v.gradient2(&u);
            found.push(("projected_gradient", stationarity::norm(&self.comm, squared)));
        }
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
        let mut all = vec![
            Decision::Start(self.start),
            Decision::Sketch([self.u.kind, self.v.kind]),
            Decision::SketchSize(Factor::U, self.u.sketch.size()),
            Decision::SketchSize(Factor::V, self.v.sketch.size()),
            Decision::ProximalWeight(self.step.alpha()),
        ];
        all.extend(self.bound.map(Decision::LargestEntry));
        all.extend(self.missing.iter().flat_map(|x| x.tally.decisions(x.listed, x.unobserved)));
        all
    }
}
