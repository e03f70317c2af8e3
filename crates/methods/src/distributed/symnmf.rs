//! Symmetric NMF of a similarity matrix A (n × n), such as the adjacency matrix of a graph: A ≈ U Uᵀ, by regularised
//! ANLS (Kuang, Yun, Park 2015),
//!
//! min ½‖A − U Vᵀ‖² + ½α‖U − V‖² over U, V ≥ 0.
//!
//! Each half is a nonnegative least-squares problem: row i of U minimises ½ u (VᵀV + αI) uᵀ − (A V + αV)_i uᵀ. Since A is
//! symmetric, V's half is the same with U in the place of V, and a rank that has the columns A[:, J_r] computes the rows
//! J_r of both products from them.
//!
//! With `--sketch leverage` the least-squares problem has d of its n rows (LvS-SymNMF; Hayashi, Aksoy, Ballard, Park
//! 2024): row j is drawn with a probability that grows with its leverage score v_j (VᵀV)⁻¹ v_jᵀ, and VᵀV and A V are
//! estimated from the same draws. The term of α is not sampled.

use ndarray::{Array2, s};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{CONTROL, Communicator, MessageTag, Parts, Payload};
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, sweep};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{SketchKind, TOTALS, WORDS, WeightedSampler};
use fednmf_linalg::{Block, Cholesky, Real, gram};

use super::dsanls::sketch_sizes;
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Sketched, Workload};
use crate::description::{Description, Form, MessageSpec, NO_PARTIES, Partition, Unit};
use crate::method::{Groups, Method};
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters;
use crate::parameters::Auto;
use crate::shared::alternating::Factor;
use crate::shared::grid::{GATHER_U, GATHER_V, GRAM_U, GRAM_V, GridSide};
use crate::shared::init;
use crate::shared::init::InitArgs;
use crate::{Algorithm, Measures, Problem};

/// How a half of an iteration is solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymmetricSolver {
    /// Exactly, by block principal pivoting
    Bpp,
    /// By one sweep of coordinate descent (HALS)
    Hals,
}

/// The sampling of the least-squares problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymmetricSketch {
    /// Nothing: all rows of each least-squares problem
    None,
    /// Rows of the least-squares problems, by leverage scores
    Leverage,
}

/// Parameters of symmetric NMF.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct SymNmfArgs {
    /// Weight of the penalty 1/2 |U - V|_F^2, which keeps the factors equal. auto: the largest entry of the
    /// matrix
    #[arg(long, value_name = "X", default_value = "auto",
          value_parser = parameters::auto(parameters::number(0.0, f64::INFINITY)))]
    pub symmetry_weight: Auto<f64>,
    /// How the least-squares problems are solved
    #[arg(long, value_name = "NAME", value_enum, default_value_t = SymmetricSolver::Bpp)]
    pub solver: SymmetricSolver,
    /// What of the least-squares problems is sampled
    #[arg(long, value_name = "KIND", value_enum, default_value_t = SymmetricSketch::None)]
    pub sketch: SymmetricSketch,
    /// Rows of V sampled for U's update and of U for V's: counts, or shares with %. auto: 5 %, but at least
    /// forty for each component
    #[arg(long, value_name = "D_U[,D_V]", default_value = "auto", value_parser = parameters::auto(parameters::sizes))]
    pub sketch_size: Auto<parameters::Sizes>,
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
}

const SCORES_V: MessageTag = MessageTag::new("scores of V", Payload::Scalar);
const SCORES_U: MessageTag = MessageTag::new("scores of U", Payload::Scalar);
const SAMPLED_V: MessageTag = MessageTag::new("sampled rows of V", Payload::SketchedFactor);
const SAMPLED_U: MessageTag = MessageTag::new("sampled rows of U", Payload::SketchedFactor);
const PROBE: MessageTag = MessageTag::new("test of symmetry", Payload::Product);
const ASYMMETRY: MessageTag = MessageTag::new("test of symmetry", Payload::Scalar);
const DISTANCE: MessageTag = MessageTag::new("evaluation: distance of U and V", Payload::Scalar);

impl Method for SymNmfArgs {
    const DESCRIPTION: &'static Description = &Description {
        name: "symnmf",
        aliases: &["sym-nmf", "lvs-symnmf"],
        summary: "symmetric NMF of a graph or similarity matrix, also with leverage-score sampling: for clusters of a graph",
        paper: "Kuang, Yun, Park 2015; with --sketch leverage LvS-SymNMF (Hayashi, Aksoy, Ballard, Park 2024)",
        partition: Partition::Symmetric,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::RelativeError,
        dp: NO_PARTIES,
        limits: None,
        messages: &[
            MessageSpec::new(GRAM_V, "k x k", "each iteration"),
            MessageSpec::new(GRAM_U, "k x k", "each iteration"),
            MessageSpec::new(GATHER_V, "n x k", "each iteration without --sketch leverage"),
            MessageSpec::new(GATHER_U, "n x k", "each evaluation; each iteration without --sketch leverage"),
            MessageSpec::new(SCORES_V, "4 x p", "each iteration, with --sketch leverage"),
            MessageSpec::new(SAMPLED_V, "d_U x (k + 2)", "each iteration, with --sketch leverage"),
            MessageSpec::new(SCORES_U, "4 x p", "each iteration, with --sketch leverage"),
            MessageSpec::new(SAMPLED_U, "d_V x (k + 2)", "each iteration, with --sketch leverage"),
            MessageSpec::new(PROBE, "2 n x k", "once, before the first iteration"),
            MessageSpec::new(ASYMMETRY, "1", "once, before the first iteration"),
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            MessageSpec::new(DISTANCE, "2", "each evaluation"),
        ],
    };

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("symnmf")
    }

    fn groups(&self) -> Groups<'_> {
        Groups { init: Some(&self.init), ..Groups::default() }
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored, .. } = *workload;
        Partition::Symmetric.check_shape(m, n)?;
        let own = n.div_ceil(ranks);
        let block = workload.part(n, own);
        let square = 2.0 * (k * k) as f64;
        let mut cost = Cost::default();
        let kernel = if self.solver == SymmetricSolver::Bpp { Kernel::Pivot } else { Kernel::Sweep };
        cost.add(kernel, 2.0 * square * own as f64, 2.0 * square * n as f64);
        cost.add(Kernel::Gram, 2.0 * square * own as f64, 2.0 * square * n as f64);
        for kind in [GRAM_V, GRAM_U] {
            cost.messages.push(Message::all_reduce(kind.kind, ranks, k * k, word, 1));
        }
        let mut sampled_words = 0;
        cost.shape = Shape { updated: own, gram: own, ..Shape::default() };
        if self.sketch == SymmetricSketch::Leverage {
            let (d_u, d_v) = self.draws(n, k)?;
            let part = |across, products| Sketched { across, own, products };
            for (kernel, d, [scores, rows]) in
                [(Kernel::SampledForU, d_u, [SCORES_V, SAMPLED_V]), (Kernel::SampledForV, d_v, [SCORES_U, SAMPLED_U])]
            {
                let parts = [part(own, 1), part(n, ranks)];
                workload.sketched(&mut cost, SketchKind::Subsample, kernel, (n, d), 1.0, parts);
                let totals = Message::shared_out(scores.kind, Pattern::AllGather, (1, ranks), TOTALS * ranks, 8);
                cost.messages.extend(totals);
                cost.messages.push(Message::all_reduce(rows.kind, ranks, d * (k + WORDS), word, 1));
                sampled_words += d * (3 * k + WORDS);
            }
        } else {
            let product = 4.0 * k as f64;
            cost.add(Kernel::Tmul, product * block, product * stored);
            for kind in [GATHER_V, GATHER_U] {
                let message = Message::shared_out(kind.kind, Pattern::AllGather, (1, ranks), n * k, word);
                cost.messages.extend(message);
            }
            cost.shape.block = (n, own);
        }
        cost.data = workload.block(n, block);
        // Factors and right-hand sides; both factors whole, twice if dense; rows sampled and weighted.
        let whole = if ranks == 1 { 0 } else { 2 * n * if workload.sparse { 1 } else { 2 } };
        cost.factors = workload.bytes((4 * own + whole) * k + sampled_words);
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        Ok(Box::new(made(self, problem)?))
    }
}

impl SymNmfArgs {
    /// Rows drawn for U's update and for V's.
    fn draws(&self, n: usize, k: usize) -> Result<(usize, usize)> {
        let auto = (n / 20).max(40 * k).min(n);
        self.sketch_size.given().map_or(Ok((auto, auto)), |asked| sketch_sizes(Some(asked), (n, n), k))
    }
}

/// One factor on one rank, and how its rows are sampled for the update of the other one.
struct Side<T: Real> {
    grid: GridSide<T>,
    gather: MessageTag,
    gram: MessageTag,
    sampled: Option<Sampled<T>>,
}

struct Sampled<T: Real> {
    sampler: WeightedSampler,
    message: Vec<T>,
    /// The rows that were drawn, times their weights, and times the roots of these.
    weighted: Array2<T>,
    rooted: Array2<T>,
    leverage: Leverage,
    scores: MessageTag,
    rows: MessageTag,
}

/// Leverage scores of rows, from the Gram matrix of all of them.
#[derive(Debug, Default)]
struct Leverage {
    cholesky: Cholesky,
    row: Vec<f64>,
    solution: Vec<f64>,
    scores: Vec<f64>,
}

impl Leverage {
    /// v_j G⁻¹ v_jᵀ for each row of v: between 0 and 1, with the sum k over all rows. Of a singular G, those of a matrix
    /// next to it.
    fn of<T: Real>(&mut self, v: &Array2<T>, g: &Array2<T>) -> &[f64] {
        let k = g.ncols();
        let largest = (0..k).fold(0.0, |most: f64, j| most.max(g[[j, j]].as_f64()));
        let shift = 1e-12 * largest;
        self.scores.clear();
        let entry = |i: usize, j: usize| g[[i, j]].as_f64() + if i == j { shift } else { 0.0 };
        if !self.cholesky.factorise(k, 1e-14, entry) {
            self.scores.resize(v.nrows(), 0.0);
            return &self.scores;
        }
        for v in v.rows() {
            self.row.clear();
            self.row.extend(v.iter().map(|x| x.as_f64()));
            self.solution.clone_from(&self.row);
            self.cholesky.solve(&mut self.solution);
            self.scores.push(self.row.iter().zip(&self.solution).map(|(x, y)| x * y).sum());
        }
        &self.scores
    }
}

struct SymNmf<T: Real> {
    comm: Communicator,
    seed: u64,
    /// A[:, J_r].
    block: Block<T>,
    u: Side<T>,
    v: Side<T>,
    gram: Array2<T>,
    solver: SymmetricSolver,
    pivoting: Pivoting,
    /// α.
    weight: f64,
    weight_was_chosen: bool,
    given: bool,
    totals: Vec<u64>,
    parts: Parts,
    norm2: f64,
    iteration: usize,
}

fn made<T: Real>(args: &SymNmfArgs, problem: Problem<'_, T>) -> Result<SymNmf<T>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let n = data.header.cols;
    Partition::Symmetric.check_shape(data.header.rows, n).map_err(Error::on_all_ranks)?;
    let cuts = data.cuts.cols;
    let mut block = data.blocks.into_iter().next().expect("the plan gives one block");
    block.prepare(k)?;
    let leverage = args.sketch == SymmetricSketch::Leverage;
    let (d_u, d_v) = if leverage { args.draws(n, k)? } else { (0, 0) };
    let order = block.order();
    let side = |gather, gram, d: usize, [scores, rows]: [MessageTag; 2]| {
        let grid = GridSide::cut(comm.clone(), &(0..n), cuts.clone(), k, order);
        let own = grid.own_rows.clone();
        let sampled = leverage.then(|| Sampled {
            sampler: WeightedSampler::by_scores(n, d, own, k as f64 / n as f64),
            message: vec![T::zero(); d * (k + WORDS)],
            weighted: order.zeros(d, k),
            rooted: order.zeros(d, k),
            leverage: Leverage::default(),
            scores,
            rows,
        });
        Side { grid, gather, gram, sampled }
    };
    let mut u = side(GATHER_U, GRAM_U, d_v, [SCORES_U, SAMPLED_U]);
    let mut v = side(GATHER_V, GRAM_V, d_u, [SCORES_V, SAMPLED_V]);
    check_symmetry(&comm, &block, &mut u.grid, seed, data.statistics.norm2)?;
    match initial {
        Some(given) => {
            let rows = [&u.grid.own_rows, &v.grid.own_rows];
            let places = [u.grid.own.view_mut(), v.grid.own.view_mut()];
            comm.agree_on_error(init::given(given, rows, places))?;
        }
        None => {
            let scale = init::scale(data.statistics.sum, (n, n), k);
            init::v(seed, &v.grid.own_rows, scale, v.grid.own.view_mut());
            u.grid.own.assign(&v.grid.own);
        }
    }
    let ranks: Vec<_> = (0..comm.size()).map(|r| r..r + 1).collect();
    Ok(SymNmf {
        block,
        u,
        v,
        gram: Array2::zeros((k, k)),
        solver: args.solver,
        pivoting: Pivoting::new(k),
        weight: args.symmetry_weight.given().unwrap_or(data.statistics.max),
        weight_was_chosen: args.symmetry_weight == Auto::Auto,
        given: initial.is_some(),
        totals: vec![0; TOTALS * comm.size()],
        parts: Parts::new(&ranks, TOTALS),
        norm2: data.statistics.norm2,
        iteration: 0,
        seed,
        comm,
    })
}

/// Refuses a matrix that is not symmetric. For random vectors x of independent normal numbers the mean of
/// ‖A x − Aᵀx‖² is ‖A − Aᵀ‖². Both products are at hand, and no rank needs the columns of another one.
fn check_symmetry<T: Real>(
    comm: &Communicator,
    block: &Block<T>,
    side: &mut GridSide<T>,
    seed: u64,
    norm2: f64,
) -> Result<()> {
    let k = side.own.ncols();
    let mut cursor = Stream::new(seed, Purpose::Probe, 0).at(side.own_rows.start as u128 * k as u128);
    side.own.rows_mut().into_iter().flatten().for_each(|x| *x = T::from_f64(cursor.normal()));
    let mut turned = side.rhs.clone();
    let whole = side.gather(PROBE);
    comm.work("test of symmetry", || block.tmul(&whole, &mut turned.view_mut()));
    let own = side.own.clone();
    side.scatter(PROBE, |out| comm.work("test of symmetry", || block.mul(&own.view(), &mut out.view_mut())));
    let mut far = [0.0];
    let mut worst = (0.0, 0);
    for (i, (a, b)) in side.rhs.rows().into_iter().zip(turned.rows()).enumerate() {
        let row: f64 = a.iter().zip(b).map(|(a, b)| (a.as_f64() - b.as_f64()).powi(2)).sum();
        far[0] += row / k as f64;
        if row > worst.0 {
            worst = (row, side.own_rows.start + i);
        }
    }
    comm.sum(ASYMMETRY, &mut far);
    let share = (far[0] / norm2).sqrt();
    // Rounding of the products stays below this threshold. So does rounding of a similarity matrix that was computed.
    if share.is_nan() || share <= 0.1 * T::epsilon().as_f64().sqrt() {
        return Ok(());
    }
    let all = comm.all_gather_value(CONTROL, &worst);
    let (_, row) = all.into_iter().fold((0.0, 0), |most, one| if one.0 > most.0 { one } else { most });
    Err(Error::input(format!(
        "the matrix is not symmetric: the norm of A - A' is about {share:.1e} of that of A, and row {row} (counted from 0) \
         differs most from its column; symnmf takes similarities, such as (A + A')/2; for other matrices use --algo auto"
    ))
    .on_all_ranks())
}

/// Adds α times the rows of the other factor to a right-hand side.
fn add_scaled<T: Real>(rhs: &mut Array2<T>, weight: f64, other: &Array2<T>) {
    let weight = T::from_f64(weight);
    rhs.zip_mut_with(other, |r, &x| *r += weight * x);
}

impl<T: Real> SymNmf<T> {
    /// Updates one factor for the other one.
    fn update(&mut self, factor: Factor) {
        let SymNmf { u, v, .. } = self;
        let (new, fixed) = if factor == Factor::U { (u, v) } else { (v, u) };
        let (comm, block, g) = (&self.comm, &self.block, &mut self.gram);
        comm.work("Gram", || gram(&fixed.grid.own.view(), &mut g.view_mut()));
        let words = g.as_slice_mut().expect("made contiguous");
        match &mut fixed.sampled {
            None => comm.sum_while(fixed.gram, words, || {
                let whole = fixed.grid.gather(fixed.gather);
                comm.work("product", || block.tmul(&whole, &mut new.grid.rhs.view_mut()));
            }),
            Some(sampled) => {
                comm.sum(fixed.gram, words);
                let own = &fixed.grid.own;
                let share = comm.work("leverage scores", || {
                    let scores = sampled.leverage.of(own, g);
                    sampled.sampler.score_each(scores)
                });
                comm.all_gather(sampled.scores, &share, &self.parts, &mut self.totals);
                comm.work("sample", || {
                    let stream = sketch::stream(self.seed, factor == Factor::U, self.iteration);
                    sampled.sampler.draw(&stream, &self.totals, comm.rank());
                    sampled.sampler.fill(&own.view(), &mut sampled.message);
                });
                comm.sum(sampled.rows, &mut sampled.message);
                comm.work("sampled product", || sampled.product(block, &mut new.grid.rhs, g));
            }
        }
        let weight = self.weight;
        let (solver, pivoting) = (self.solver, &mut self.pivoting);
        comm.work("update", || {
            let GridSide { own: x, rhs, .. } = &mut new.grid;
            add_scaled(rhs, weight, &fixed.grid.own);
            let penalty = Penalty { l1: 0.0, l2: weight };
            match solver {
                SymmetricSolver::Bpp => {
                    pivoting.solve_penalized(&mut x.view_mut(), &rhs.view(), &g.view(), penalty);
                }
                SymmetricSolver::Hals => {
                    let step = Sweep { mu: T::zero(), passes: 1, penalty };
                    sweep(&mut x.view_mut(), &rhs.view(), &g.view(), step);
                }
            }
        });
    }
}

impl<T: Real> Sampled<T> {
    /// Estimates of AᵀV for the block's columns and of VᵀV from the rows that were drawn.
    fn product(&mut self, block: &Block<T>, rhs: &mut Array2<T>, g: &mut Array2<T>) {
        let Sampled { sampler, message, weighted, rooted, .. } = self;
        sampler.collect(message, g.ncols());
        let drawn = sampler.sample().len();
        let mut weighted = weighted.slice_mut(s![..drawn, ..]);
        sampler.rows(message, |weight| weight, &mut weighted);
        block.rows_tmul(sampler.sample(), &weighted.view(), &mut rhs.view_mut());
        let mut rooted = rooted.slice_mut(s![..drawn, ..]);
        sampler.rows(message, f64::sqrt, &mut rooted);
        gram(&rooted.view(), &mut g.view_mut());
    }
}

impl<T: Real> Algorithm<T> for SymNmf<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.update(Factor::U);
            self.update(Factor::V);
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error as of every method, and ‖U − V‖ / ‖V‖, which says how far from symmetric the product is.
    fn measure(&mut self) -> Result<Measures> {
        let SymNmf { comm, block, u, v, norm2, .. } = self;
        let mut sums = [0.0; 2];
        for (u, v) in u.grid.own.iter().zip(v.grid.own.iter()) {
            let (u, v) = (u.as_f64(), v.as_f64());
            sums[0] += (u - v) * (u - v);
            sums[1] += v * v;
        }
        comm.sum(DISTANCE, &mut sums);
        let whole = u.grid.gather(u.gather);
        let error = metrics::relative_error(comm, *norm2, std::iter::once((&*block, whole, v.grid.own.view())));
        Ok(vec![("rel_error", error), ("factor_distance", metrics::relative(sums[0], sums[1]))])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let n = self.block.shape().0;
        let piece = |name, side: &'_ GridSide<T>| (name, n, side.own_rows.start);
        let [(u, m, i), (v, n, j)] = [piece("U", &self.u.grid), piece("V", &self.v.grid)];
        vec![Piece::shared(u, m, i, self.u.grid.own.view()), Piece::shared(v, n, j, self.v.grid.own.view())]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, side) in [("U", &mut self.u.grid), ("V", &mut self.v.grid)] {
            saved.rows(name, Owner::Shared, side.own_rows.start, side.own.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut all = Vec::new();
        if self.weight_was_chosen {
            all.push(("symmetry_weight", self.weight.into()));
        }
        if let (Some(of_v), Some(of_u)) = (&self.v.sampled, &self.u.sampled) {
            all.push(("sketch_size_u", of_v.sampler.size().into()));
            all.push(("sketch_size_v", of_u.sampler.size().into()));
        }
        if !self.given {
            all.extend(init::Start::Random.decisions());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use ndarray_linalg::QR;

    use fednmf_linalg::{Csr, Order};

    use super::*;

    fn random(seed: u64, rows: usize, cols: usize) -> Array2<f64> {
        let mut cursor = Stream::new(seed, Purpose::Probe, 0).at(0);
        Array2::from_shape_simple_fn((rows, cols), || cursor.normal().abs())
    }

    #[test]
    fn leverage_scores_are_the_norms_of_the_rows_of_an_orthonormal_basis() {
        let mut v = random(1, 30, 4);
        v.row_mut(7).mapv_inplace(|x| 20.0 * x);
        let (q, _) = v.qr().unwrap();
        let mut leverage = Leverage::default();
        let scores = leverage.of(&v, &v.t().dot(&v));
        for (score, q) in scores.iter().zip(q.rows()) {
            assert!((score - q.dot(&q)).abs() < 1e-9, "{score} {q}");
        }
        assert!(scores[7] > 0.9);
        // Two equal components: those of the plane that is left.
        let twice = ndarray::concatenate![ndarray::Axis(1), v.slice(s![.., ..2]), v.slice(s![.., 1..2])];
        let (q, _) = v.slice(s![.., ..2]).to_owned().qr().unwrap();
        let scores = leverage.of(&twice, &twice.t().dot(&twice));
        assert!(scores.iter().zip(q.rows()).all(|(score, q)| (score - q.dot(&q)).abs() < 1e-3), "{scores:?}");
        assert!(leverage.of(&(&v * 0.0), &Array2::zeros((4, 4))).iter().all(|score| *score == 0.0));
    }

    /// The mean of the sampled products over many draws is the exact one, within five standard deviations.
    #[test]
    fn sampled_products_have_the_right_mean() {
        let (n, k, d, rounds) = (40, 3, 9, 6000);
        let (m, mut v) = (random(2, n, n), random(3, n, k));
        v.row_mut(5).mapv_inplace(|x| 9.0 * x);
        let a = &m + &m.t();
        let g = v.t().dot(&v);
        let sparse = Csr::new(sprs::CsMatI::csr_from_dense(a.view(), 0.0));
        for block in [Block::Dense(a.clone().into()), Block::Sparse(sparse)] {
            let order = block.order();
            let mut sampled = Sampled {
                sampler: WeightedSampler::by_scores(n, d, 0..n, k as f64 / n as f64),
                message: vec![0.0; d * (k + WORDS)],
                weighted: order.zeros(d, k),
                rooted: order.zeros(d, k),
                leverage: Leverage::default(),
                scores: SCORES_V,
                rows: SAMPLED_V,
            };
            let (mut rhs, mut gram) = (order.zeros(n, k), Order::RowMajor.zeros(k, k));
            let exact: Vec<f64> = a.dot(&v).iter().chain(&g).copied().collect();
            let (mut sums, mut squares) = (vec![0.0; exact.len()], vec![0.0; exact.len()]);
            for t in 0..rounds {
                let Sampled { sampler, leverage, message, .. } = &mut sampled;
                let totals = sampler.score_each(leverage.of(&v, &g));
                sampler.draw(&sketch::stream(4, true, t), &totals, 0);
                sampler.fill(&v.view(), message);
                sampled.product(&block, &mut rhs, &mut gram);
                for (i, x) in rhs.iter().chain(&gram).enumerate() {
                    sums[i] += x;
                    squares[i] += x * x;
                }
            }
            let rounds = rounds as f64;
            for ((sum, square), exact) in sums.iter().zip(&squares).zip(&exact) {
                let mean = sum / rounds;
                let deviation = ((square / rounds - mean * mean) / rounds).sqrt();
                assert!((mean - exact).abs() < 5.0 * deviation, "{mean}, not {exact} (± {deviation})");
            }
        }
    }
}
