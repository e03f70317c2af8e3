//! Symmetric NMF of a similarity matrix A (n × n), such as the adjacency matrix of a graph: A ≈ U Uᵀ, by regularised
//! ANLS (Kuang, Yun, Park 2015),
//!
//! min ½‖A − U Vᵀ‖² + ½α‖U − V‖² over U, V ≥ 0.
//!
//! Each half is a nonnegative least-squares problem: row u of U minimises ½ u (VᵀV + αI) uᵀ − (A V + αV)_i uᵀ. Since A is
//! symmetric, V's half is the same with the factors exchanged. A rank that holds the columns A[:, J_r] computes the rows
//! J_r of both products from them.
//!
//! With `--sketch leverage` the least-squares problem is reduced to d of its n rows (LvS-SymNMF; Hayashi, Aksoy, Ballard,
//! Park 2024). Row j is drawn with a probability that increases with its leverage score v_j (VᵀV)⁻¹ v_jᵀ, and VᵀV and A V
//! are estimated from the same draws. The term of α is not sampled.

use std::ops::Range;

use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::state::{Piece, SavedState};
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, sweep};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{SketchKind, TOTALS, WORDS, WeightedSampler};
use fednmf_linalg::{Block, Cholesky, Order, Real};

use super::dsanls::sketch_sizes;
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Sketched, Workload};
use crate::decision::Decision;
use crate::description::{Description, MessageSpec, Partition};
use crate::method::Method;
use crate::metrics;
use crate::parameters::{Auto, Sizes, auto, number};
use crate::shared::alternating::Factor;
use crate::shared::factor_side::{FactorSide, FactorTags, GATHER_U, GATHER_V, GRAM_U, GRAM_V, U, V};
use crate::shared::init;
use crate::shared::init::InitParams;
use crate::shared::sampled_product::{SampleTags, SampledProduct};
use crate::{Algorithm, Measures, Problem};

fednmf_base::words! {
    /// How a half of an iteration is solved.
    pub enum SymmetricSolver {
        /// Exactly, by block principal pivoting
        Bpp = "bpp",
        /// By one sweep of coordinate descent (HALS)
        Hals = "hals",
    }
}

fednmf_base::words! {
    /// The sampling of the least-squares problems.
    pub enum SymmetricSketch {
        /// Nothing: all rows of each least-squares problem
        None = "none",
        /// Rows of the least-squares problems, by leverage scores
        Leverage = "leverage",
    }
}

fednmf_base::parameters! {
    /// Parameters of symmetric NMF.
    pub struct SymNmf {
        /// Weight of the penalty 1/2 |U - V|_F^2, which keeps the factors equal. auto: the largest entry of the
        /// matrix
        pub symmetry_weight: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// How the least-squares problems are solved
        pub solver: SymmetricSolver = SymmetricSolver::Bpp, "NAME";
        /// What of the least-squares problems is sampled
        pub sketch: SymmetricSketch = SymmetricSketch::None, "KIND";
        /// Rows of V sampled for U's update and of U for V's: counts, or shares with %. auto: 5 %, but at least
        /// forty for each component
        #[unless(|p| p.sketch == SymmetricSketch::None, "nothing is sketched with --sketch none; leave it out, or choose a sketch, as --sketch subsample")]
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
        group init: InitParams;
    }
}

const SCORES_V: MessageTag = MessageTag::new("scores of V", Payload::Scalar);
const SCORES_U: MessageTag = MessageTag::new("scores of U", Payload::Scalar);
const SAMPLED_V: MessageTag = MessageTag::new("sampled rows of V", Payload::SketchedFactor);
const SAMPLED_U: MessageTag = MessageTag::new("sampled rows of U", Payload::SketchedFactor);
const PROBE: MessageTag = MessageTag::new("test of symmetry", Payload::Product);
const ASYMMETRY: MessageTag = MessageTag::new("test of symmetry", Payload::Scalar);
const DISTANCE: MessageTag = MessageTag::of_evaluation("evaluation: distance of U and V", Payload::Scalar);

impl Method for SymNmf {
    const DESCRIPTION: &'static Description = &Description {
        name: "symnmf",
        aliases: &["sym-nmf", "lvs-symnmf"],
        summary: "symmetric NMF of a graph or a similarity matrix, also by leverage-score sampling",
        paper: "Kuang, Yun, Park: SymNMF: Nonnegative Low-Rank Approximation of a Similarity Matrix for Graph Clustering (2015); with --sketch leverage LvS-SymNMF (Hayashi, Aksoy, Ballard, Park 2024)",
        partition: Partition::Symmetric,
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
        ..Description::USUAL
    };

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("symnmf")
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
        // Factors and right-hand sides; both gathered factors, twice if dense; sampled and weighted rows.
        let whole = if ranks == 1 { 0 } else { 2 * n * if workload.sparse { 1 } else { 2 } };
        cost.factors = workload.bytes((4 * own + whole) * k + sampled_words);
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        Ok(Box::new(build(self, problem)?))
    }
}

impl SymNmf {
    /// Number of rows drawn for U's and for V's update.
    fn draws(&self, n: usize, k: usize) -> Result<(usize, usize)> {
        let auto = (n / 20).max(40 * k).min(n);
        self.sketch_size.given().map_or(Ok((auto, auto)), |requested| sketch_sizes(Some(requested), (n, n), k))
    }
}

/// A factor, and the sampling of its rows for the update of the other one.
struct SymmetricSide<T: Real> {
    factor: FactorSide<T>,
    sampled: Option<LeverageSample<T>>,
}

/// A product that is sampled by leverage scores.
struct LeverageSample<T: Real> {
    leverage: Leverage,
    product: SampledProduct<T>,
}

impl<T: Real> LeverageSample<T> {
    /// A sample of d of n rows with k columns.
    fn new(
        comm: &Communicator,
        (n, d): (usize, usize),
        own: Range<usize>,
        tags: SampleTags,
        (k, order): (usize, Order),
    ) -> Self {
        let sampler = WeightedSampler::by_scores(n, d, own, k as f64 / n as f64);
        let product = SampledProduct::new(comm, sampler, tags, (k, order), 0).with_gram(order);
        LeverageSample { leverage: Leverage::default(), product }
    }

    /// Draws from the rows v of the factor with the Gram matrix g, and sums the rows drawn over the ranks.
    fn draw(&mut self, comm: &Communicator, stream: &Stream, v: &Array2<T>, g: &Array2<T>) {
        let LeverageSample { leverage, product } = self;
        let scores = comm.work("leverage scores", || product.sampler.score_each(leverage.of(v, g)));
        product.draw(comm, "sample", scores, stream, |sampler, rows, _| sampler.fill(&v.view(), rows));
    }

    /// Estimates AᵀV, for the block's columns, and VᵀV from the rows drawn.
    fn multiply(&mut self, block: &Block<T>, rhs: &mut Array2<T>, g: &mut Array2<T>) {
        self.product.collect();
        self.product.multiply(block, rhs);
        self.product.gram(g);
    }
}

/// Computes the leverage scores of rows from the Gram matrix of all rows.
#[derive(Debug, Default)]
struct Leverage {
    cholesky: Cholesky,
    row: Vec<f64>,
    solution: Vec<f64>,
    scores: Vec<f64>,
}

impl Leverage {
    /// The score v_j G⁻¹ v_jᵀ of each row of v: between 0 and 1, and with the sum k over all rows. If G is singular, the
    /// scores are those of a nearby regular matrix.
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

struct SymNmfRun<T: Real> {
    comm: Communicator,
    seed: u64,
    /// The columns A[:, J_r].
    block: Block<T>,
    u: SymmetricSide<T>,
    v: SymmetricSide<T>,
    gram: Array2<T>,
    solver: SymmetricSolver,
    pivoting: Pivoting,
    /// The weight α.
    weight: f64,
    weight_was_chosen: bool,
    given: bool,
    norm2: f64,
    iteration: usize,
}

fn build<T: Real>(args: &SymNmf, problem: Problem<'_, T>) -> SharedResult<SymNmfRun<T>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let n = data.header.cols;
    Partition::Symmetric.check_shape(data.header.rows, n).map_err(Error::on_all_ranks)?;
    let cuts = data.cuts.cols;
    let mut block = data.blocks.into_iter().next().expect("the plan gives one block");
    comm.agree_on_error(block.prepare(k))?;
    let leverage = args.sketch == SymmetricSketch::Leverage;
    let (d_u, d_v) = if leverage { args.draws(n, k).map_err(Error::on_all_ranks)? } else { (0, 0) };
    let order = block.order();
    let side = |tags: FactorTags, d: usize, sample_tags: SampleTags| {
        let factor = FactorSide::of_all_ranks(tags, &comm, &cuts, k, order).with_rhs().with_gathered_if_shared();
        let own = factor.own_rows.clone();
        let sampled = leverage.then(|| LeverageSample::new(&comm, (n, d), own, sample_tags, (k, order)));
        SymmetricSide { factor, sampled }
    };
    let probe = FactorTags { gather: PROBE, rhs: PROBE, ..U };
    let mut u = side(probe, d_v, SampleTags { scores: SCORES_U, rows: SAMPLED_U });
    let mut v = side(V, d_u, SampleTags { scores: SCORES_V, rows: SAMPLED_V });
    check_symmetry(&comm, &block, &mut u.factor, seed, data.statistics.norm2)?;
    u.factor.tags = U;
    if initial.is_none() {
        let scale = init::scale(data.statistics.sum, (n, n), k);
        init::v(seed, &v.factor.own_rows, scale, v.factor.own.view_mut());
        u.factor.own.assign(&v.factor.own);
    } else {
        init::given_or_random(initial, seed, [0.0; 2], &comm, [&mut u.factor, &mut v.factor])?;
    }
    Ok(SymNmfRun {
        block,
        u,
        v,
        gram: Array2::zeros((k, k)),
        solver: args.solver,
        pivoting: Pivoting::new(k),
        weight: args.symmetry_weight.given().unwrap_or(data.statistics.max),
        weight_was_chosen: args.symmetry_weight == Auto::Auto,
        given: initial.is_some(),
        norm2: data.statistics.norm2,
        iteration: 0,
        seed,
        comm,
    })
}

/// Refuses a matrix that is not symmetric. The mean of ‖A x − Aᵀx‖² over random vectors x of independent standard normal
/// numbers is ‖A − Aᵀ‖². Each rank can compute both products without the columns of other ranks.
fn check_symmetry<T: Real>(
    comm: &Communicator,
    block: &Block<T>,
    side: &mut FactorSide<T>,
    seed: u64,
    norm2: f64,
) -> SharedResult<()> {
    let k = side.own.ncols();
    let mut cursor = Stream::new(seed, Purpose::Probe, 0).at(side.own_rows.start as u128 * k as u128);
    side.own.rows_mut().into_iter().flatten().for_each(|x| *x = T::from_f64(cursor.normal()));
    let mut turned = side.rhs.clone();
    let whole = side.gather();
    comm.work("test of symmetry", || block.tmul(&whole, &mut turned.view_mut()));
    let own = side.own.clone();
    side.sum_rhs(|out| comm.work("test of symmetry", || block.mul(&own.view(), &mut out.view_mut())));
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
    // Rounding errors of the products and of computed similarity matrices stay below this threshold.
    if share.is_nan() || share <= 0.1 * T::epsilon().as_f64().sqrt() {
        return Ok(());
    }
    let all = comm.all_gather_value(ASYMMETRY, &worst);
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

impl<T: Real> SymNmfRun<T> {
    /// Updates one factor for the other one.
    fn update(&mut self, factor: Factor) {
        let SymNmfRun { comm, block, u, v, gram: g, pivoting, weight, solver, .. } = self;
        let (new, fixed) = if factor == Factor::U { (u, v) } else { (v, u) };
        let FactorSide { own: x, rhs, .. } = &mut new.factor;
        match &mut fixed.sampled {
            None => fixed.factor.gram_while(comm, g, |fixed| {
                let whole = fixed.gather();
                comm.work("product", || block.tmul(&whole, &mut rhs.view_mut()));
            }),
            Some(sampled) => {
                fixed.factor.gram(comm, g);
                let stream = sketch::stream(self.seed, factor == Factor::U, self.iteration);
                sampled.draw(comm, &stream, &fixed.factor.own, g);
                comm.work("sampled product", || sampled.multiply(block, rhs, g));
            }
        }
        comm.work("update", || {
            add_scaled(rhs, *weight, &fixed.factor.own);
            let penalty = Penalty { l1: 0.0, l2: *weight };
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

impl<T: Real> Algorithm<T> for SymNmfRun<T> {
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

    /// The relative error, as for every method, and ‖U − V‖ / ‖V‖, which measures the asymmetry of the factors.
    fn measure(&mut self) -> Result<Measures> {
        let SymNmfRun { comm, block, u, v, norm2, .. } = self;
        let mut sums = [0.0; 2];
        for (u, v) in u.factor.own.iter().zip(v.factor.own.iter()) {
            let (u, v) = (u.as_f64(), v.as_f64());
            sums[0] += (u - v) * (u - v);
            sums[1] += v * v;
        }
        comm.sum(DISTANCE, &mut sums);
        let whole = u.factor.gather();
        let error = metrics::relative_error(comm, *norm2, std::iter::once((&*block, whole, v.factor.own.view())));
        Ok(vec![("rel_error", error), ("factor_distance", metrics::relative(sums[0], sums[1]))])
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
        let mut all = Vec::new();
        if self.weight_was_chosen {
            all.push(Decision::SymmetryWeight(self.weight));
        }
        if let (Some(rows_of_v), Some(rows_of_u)) = (&self.v.sampled, &self.u.sampled) {
            all.push(Decision::SketchSize(Factor::U, rows_of_v.product.size()));
            all.push(Decision::SketchSize(Factor::V, rows_of_u.product.size()));
        }
        if !self.given {
            all.push(Decision::Start(init::Start::Random));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use ndarray_linalg::QR;

    use fednmf_linalg::Csr;
    use ndarray::s;

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
        // Two equal components: the scores are those of the remaining plane.
        let twice = ndarray::concatenate![ndarray::Axis(1), v.slice(s![.., ..2]), v.slice(s![.., 1..2])];
        let (q, _) = v.slice(s![.., ..2]).to_owned().qr().unwrap();
        let scores = leverage.of(&twice, &twice.t().dot(&twice));
        assert!(scores.iter().zip(q.rows()).all(|(score, q)| (score - q.dot(&q)).abs() < 1e-3), "{scores:?}");
        assert!(leverage.of(&(&v * 0.0), &Array2::zeros((4, 4))).iter().all(|score| *score == 0.0));
    }

    /// The mean of the sampled products over many draws is the exact product, within five standard deviations.
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
            let tags = SampleTags { scores: SCORES_V, rows: SAMPLED_V };
            let comm = Communicator::local();
            let mut sampled = LeverageSample::new(&comm, (n, d), 0..n, tags, (k, order));
            let (mut rhs, mut gram) = (order.zeros(n, k), Order::RowMajor.zeros(k, k));
            let exact: Vec<f64> = a.dot(&v).iter().chain(&g).copied().collect();
            let (mut sums, mut squares) = (vec![0.0; exact.len()], vec![0.0; exact.len()]);
            for t in 0..rounds {
                sampled.draw(&comm, &sketch::stream(4, true, t), &v, &g);
                sampled.multiply(&block, &mut rhs, &mut gram);
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
