//! Multiplicative updates for the generalised Kullback-Leibler divergence (Lee and Seung 2001): counts rather than
//! measurements, min Σ m log(m / (u·v)) − m + u·v.
//!
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U. Only nonzeros of M have a term in
//! the sum above: work ∝ nonzeros × k. With penalties the new entry is the root of a quadratic equation. Rank r owns U[I_r] and
//! V[J_r] and has the rows M[I_r, :] and the columns M[:, J_r]; the other factor is gathered whole for each half.

use std::ops::Range;

use ndarray::Array2;

use crate::algorithms::cost::{Cost, Kernel, Message, Pattern, Workload};
use crate::algorithms::description::{Description, Form, MessageSpec, NO_PARTIES, Partition, Unit};
use crate::algorithms::method::{Groups, Method};
use crate::algorithms::shared::init::{self, InitArgs};
use crate::algorithms::shared::regularization::{self, Penalties, RegularizationArgs};
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Parts, Payload};
use crate::error::Result;
use crate::linalg::{Block, Order, Real};
use crate::metrics;
use crate::metrics::Measure;
use crate::nls::Penalty;
use crate::state::{Owner, Piece, SavedState};

/// Parameters of multiplicative updates for the Kullback-Leibler divergence.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct KlMuArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
}

impl Method for KlMuArgs {
    const DESCRIPTION: &'static Description = &Description {
        name: "kl-mu",
        aliases: &["mu-kl"],
        summary: "multiplicative updates for the Kullback-Leibler divergence: for counts, monotone",
        paper: "Lee and Seung 2001",
        partition: Partition::RowsAndColumns,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::Divergence,
        dp: NO_PARTIES,
        limits: None,
        messages: &[
            MessageSpec::new(GATHER_V, "n x k", "each iteration, and each evaluation"),
            MessageSpec::new(GATHER_U, "m x k", "each iteration"),
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            MessageSpec::new(metrics::DIVERGENCE, "1", "each evaluation"),
            regularization::MESSAGES,
        ],
    };

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("kl-mu")
    }

    fn groups(&self) -> Groups<'_> {
        Groups { init: Some(&self.init), regularization: Some(&self.regularization), ..Groups::default() }
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored, .. } = *workload;
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let (of_u, of_v) = (workload.part(rows, n), workload.part(m, cols));
        let mut cost = Cost::default();
        // For each entry, in either half, what the factors say of it and its share in k ratios.
        let entry = 4.0 * k as f64;
        cost.add(Kernel::Other, entry * (of_u + of_v), 2.0 * entry * stored);
        for (kind, length) in [(GATHER_V.kind, n), (GATHER_U.kind, m)] {
            cost.messages.extend(Message::shared_out(kind, Pattern::AllGather, (1, ranks), length * k, word));
        }
        cost.data = workload.block(rows, of_u) + workload.block(cols, of_v);
        cost.factors = workload.bytes((rows + cols + m + n) * k);
        cost.about = Some("the flops are those of the printed formulas; no kernel counts them");
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        build(problem, &self.regularization)
    }
}

const GATHER_V: MessageTag = MessageTag::new("gather V", Payload::SharedFactor);
const GATHER_U: MessageTag = MessageTag::new("gather U", Payload::SharedFactor);

/// One factor on one rank, and the data of its rows.
struct KlSide<T: Real> {
    /// Own rows × all of the other factor's.
    block: Block<T>,
    own: Array2<T>,
    rows: Range<usize>,
    parts: Parts,
    whole: Array2<T>,
    tag: MessageTag,
}

struct KlMu<T: Real> {
    comm: Communicator,
    u: KlSide<T>,
    v: KlSide<T>,
    /// Two rows of k numbers: the sums of the other factor's columns, and those of one row's ratios. In f64, since both have
    /// as many terms as the matrix has rows or columns.
    sums: Vec<f64>,
    ratios: Vec<f64>,
    penalties: Penalties,
    norm2: f64,
    /// Whether the start was read from a file.
    given: bool,
    iteration: usize,
}

fn build<T: Real>(problem: Problem<'_, T>, regularization: &RegularizationArgs) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, comm, initial, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let mut blocks = data.blocks.into_iter();
    let mut side = |cuts: &[Range<usize>], total: usize, tag: MessageTag| {
        let rows = cuts[comm.rank()].clone();
        let zeros = |rows: usize| Order::Rows.zeros(rows, k);
        let block = blocks.next().expect("the plan gives a row block and a column block").transposed();
        KlSide { block, own: zeros(rows.len()), whole: zeros(total), parts: Parts::new(cuts, k), rows, tag }
    };
    let mut u = side(&data.cuts.rows, m, GATHER_U);
    let mut v = side(&data.cuts.cols, n, GATHER_V);
    match initial {
        Some(given) => {
            comm.agree_on_error(init::given(given, [&u.rows, &v.rows], [u.own.view_mut(), v.own.view_mut()]))?;
        }
        None => {
            let scale = init::scale(data.statistics.sum, (m, n), k);
            init::u(seed, &u.rows, scale, u.own.view_mut());
            init::v(seed, &v.rows, scale, v.own.view_mut());
        }
    }
    let (sums, ratios) = (vec![0.0; k], vec![0.0; k]);
    Ok(Box::new(KlMu {
        comm,
        u,
        v,
        sums,
        ratios,
        penalties: regularization.penalties((m, n)),
        norm2: data.statistics.norm2,
        given: initial.is_some(),
        iteration: 0,
    }))
}

fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).fold(T::zero(), |sum, (&a, &b)| sum + a * b)
}

/// x, or 0 where it is not finite: a large penalty makes factors so small that a ratio overflows.
fn finite<T: Real>(x: T) -> T {
    if x.is_finite() { x } else { T::zero() }
}

/// The new entry for the old one x, the sum of its ratios and the sum of its column of the other factor: the positive root of
/// λ₂x'² + (sum + λ₁) x' = x ratio, which minimises the auxiliary function of the divergence and its penalty.
fn penalized<T: Real>(x: T, ratio: f64, sum: f64, (l1, l2): (f64, f64)) -> T {
    let sum = sum + l1;
    if l2 > 0.0 {
        let product = x.as_f64() * ratio;
        let root = sum + (sum * sum + 4.0 * l2 * product).sqrt();
        return finite(T::from_f64(2.0 * product / root));
    }
    let next = if sum > 0.0 { x * T::from_f64(ratio / sum) } else { T::zero() };
    if l1 > 0.0 { finite(next) } else { next }
}

impl<T: Real> KlSide<T> {
    fn gather(&mut self, comm: &Communicator) {
        let (own, whole) = (self.own.as_slice(), self.whole.as_slice_mut());
        comm.all_gather(self.tag, own.expect("made in row order"), &self.parts, whole.expect("made in row order"));
    }

    /// The update of this factor's rows, for y = the other factor, whole.
    fn update(&mut self, y: &Array2<T>, sums: &mut [f64], ratios: &mut [f64], penalty: Penalty) {
        let k = sums.len();
        let weights = penalty.weights::<f64>();
        sums.fill(0.0);
        y.rows().into_iter().for_each(|y| sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += y.as_f64()));
        let y = y.as_slice().expect("made in row order");
        let KlSide { block, own, .. } = self;
        for (a, mut row) in own.rows_mut().into_iter().enumerate() {
            let x = row.as_slice_mut().expect("made in row order");
            ratios.fill(0.0);
            block.for_each_nonzero(a, |j, m| {
                let y = &y[j * k..(j + 1) * k];
                let fit = dot(x, y);
                // Where the factors say 0, or next to it, no multiple of them says m: the entry cannot pull.
                let pull = m / fit;
                if pull.is_finite() {
                    ratios.iter_mut().zip(y).for_each(|(ratio, &y)| *ratio += (pull * y).as_f64());
                }
            });
            for ((x, &ratio), &sum) in x.iter_mut().zip(&*ratios).zip(&*sums) {
                *x = penalized(*x, ratio, sum, weights);
            }
        }
    }
}

impl<T: Real> Algorithm<T> for KlMu<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let KlMu { comm, u, v, sums, ratios, penalties, .. } = self;
            v.gather(comm);
            comm.work("update", || u.update(&v.whole, sums, ratios, penalties.u));
            u.gather(comm);
            comm.work("update", || v.update(&u.whole, sums, ratios, penalties.v));
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error as of every method, and the divergence, infinite where a nonzero entry cannot be reached.
    fn measure(&mut self) -> Result<Measures> {
        let KlMu { comm, u, v, norm2, penalties, .. } = self;
        v.gather(comm);
        let block = std::iter::once((&u.block, u.own.view(), v.whole.view()));
        let error = metrics::relative_error(comm, *norm2, block);
        let divergence = metrics::kl_divergence(comm, &u.block, &u.own.view(), &v.whole.view());
        let penalty = penalties.sum(comm, &u.own.view(), &v.own.view());
        let mut found = vec![("rel_error", error), ("kl_divergence", divergence)];
        found.extend(penalties.objective(divergence, penalty));
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let piece = |name, side: &'_ KlSide<T>| (name, side.whole.nrows(), side.rows.start);
        let [(u, m, i), (v, n, j)] = [piece("U", &self.u), piece("V", &self.v)];
        vec![Piece::shared(u, m, i, self.u.own.view()), Piece::shared(v, n, j, self.v.own.view())]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, side) in [("U", &mut self.u), ("V", &mut self.v)] {
            saved.rows(name, Owner::Shared, side.rows.start, side.own.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        if self.given { Vec::new() } else { init::Start::Random.decisions() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream, uniform_factor};

    #[test]
    fn an_update_is_the_formula_and_the_divergence_never_rises() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        let mut m = random(1, 15, 12);
        m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
        let y = random(3, 12, 4);
        let divergence = |x: &Array2<f64>| {
            let fit = x.dot(&y.t());
            let one = |(m, f): (&f64, &f64)| if *m > 0.0 { m * (m / f).ln() - m + f } else { *f };
            m.iter().zip(&fit).map(one).sum::<f64>()
        };
        let sparse = Block::Sparse(crate::linalg::Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
        for block in [Block::Dense(m.clone()), sparse] {
            let x = random(2, 15, 4);
            let (whole, parts) = (Array2::zeros((0, 4)), Parts::new(&[], 4));
            let mut side = KlSide { block, own: x.clone(), rows: 0..15, parts, whole, tag: GATHER_U };
            side.update(&y, &mut [0.0; 4], &mut [0.0; 4], Penalty::NONE);
            let expected = &x * &(&m / &x.dot(&y.t())).dot(&y) / y.sum_axis(ndarray::Axis(0));
            assert!((&side.own - &expected).iter().all(|e| e.abs() < 1e-12));
            let (before, after) = (divergence(&x), divergence(&side.own));
            assert!(after < before, "{before} {after}");
            for penalty in [Penalty { l1: 0.5, l2: 0.0 }, Penalty { l1: 0.0, l2: 2.0 }, Penalty { l1: 0.3, l2: 1.0 }] {
                let objective = |x: &Array2<f64>| divergence(x) + penalty.value(&x.view());
                for _ in 0..300 {
                    let before = objective(&side.own);
                    side.update(&y, &mut [0.0; 4], &mut [0.0; 4], penalty);
                    assert!(objective(&side.own) <= before * (1.0 + 1e-12), "{penalty:?}");
                }
                // Where an entry is positive the gradient has come to 0.
                let ratio = (&m / &side.own.dot(&y.t())).dot(&y);
                let gradient = &side.own * penalty.l2 + penalty.l1 + y.sum_axis(ndarray::Axis(0)) - ratio;
                assert!((&side.own * &gradient).iter().all(|x| x.abs() < 1e-3), "{penalty:?}");
                side.own.assign(&x);
            }
            for penalty in [Penalty { l1: 1e150, l2: 0.0 }, Penalty { l1: 0.0, l2: 1e150 }] {
                (0..5).for_each(|_| side.update(&y, &mut [0.0; 4], &mut [0.0; 4], penalty));
                assert!(side.own.iter().all(|x| (0.0..1e-50).contains(x)), "{penalty:?}");
                side.own.assign(&x);
            }
        }
    }

    /// The other factor has more rows than f32 can count: x = 1 becomes m / n for the only entry m of n.
    #[test]
    fn sums_of_long_columns_lose_no_terms() {
        let n = (1 << 24) + (1 << 21);
        let one = sprs::CsMatI::new((1, n), vec![0, 1], vec![7], vec![n as f32]);
        let block = Block::Sparse(crate::linalg::Csr::new(one));
        let (whole, parts) = (Array2::zeros((0, 1)), Parts::new(&[], 1));
        let mut side = KlSide { block, own: Array2::ones((1, 1)), rows: 0..1, parts, whole, tag: GATHER_U };
        side.update(&Array2::<f32>::ones((n, 1)), &mut [0.0], &mut [0.0], Penalty::NONE);
        assert_eq!(side.own[[0, 0]], 1.0);
    }
}
