//! The iterations: exact ones at anchors, and sampled ones between them.

use std::mem::swap;
use std::ops::Range;

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::nls::{Sweep, sweep};
use fednmf_linalg::sketch::WeightedSampler;
use fednmf_linalg::{Block, Real, gram};

use super::arguments::VrDsanls;
use super::plan::{EXACT_FIRST, MOST, Plan};
use super::side::{AnchoredSide, CHANGE_U, CHANGE_V, SCORES_U, SCORES_V, Sampling, square, square_mut};
use crate::decision::Decision;
use crate::metrics;
use crate::shared::alternating::{Factor, Sizes};
use crate::shared::extrapolation::{Extrapolation, Momentum, WORDS, extrapolate, inner, split_into_two_words};
use crate::shared::factor_side::{FactorSide, U, V};
use crate::shared::init;
use crate::shared::init::Start;
use crate::shared::regularization::Penalties;
use crate::shared::row_and_column_block;
use crate::shared::sampled_product::{SampleTags, SampledProduct};
use crate::shared::stationarity;
use crate::shared::stationarity::Evaluated;
use crate::{Algorithm, Measures, Problem};

/// The state of a run other than its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Progress {
    momentum: Momentum,
    epoch: usize,
    /// Sampled iterations left before the next anchor.
    left: usize,
    /// Number of anchors so far.
    anchors: usize,
    /// Sampled iterations since the last anchor.
    sampled: usize,
    /// The objective after the last anchor's update of U, and the decrease by that update.
    last: Option<(f64, f64)>,
}

impl Progress {
    /// Chooses the length of the next epoch at an anchor whose update of U changed the objective from `before` to `after`.
    fn adapt(&mut self, before: f64, after: f64, flops: [f64; 2]) {
        /// Relative decreases of the objective below this value are rounding errors.
        const LEAST: f64 = 1e-6;
        let gained = before - after;
        if let Some((last, last_gained)) = self.last.filter(|_| self.sampled > 0) {
            // An exact iteration decreases the objective about as much in V's half as in U's.
            let by_samples = (last - before - last_gained) / self.sampled as f64;
            if last - after > LEAST * after && by_samples.is_finite() {
                let exact = (gained + last_gained) / flops[0];
                self.epoch = if by_samples / flops[1] >= exact { self.epoch + 1 } else { self.epoch - 1 };
                self.epoch = self.epoch.clamp(2, MOST);
            }
        }
        self.last = Some((after, gained)).filter(|x| x.0.is_finite() && x.1.is_finite());
        self.sampled = 0;
    }
}

/// The method on one rank.
pub struct VrDsanlsRun<T: Real> {
    comm: Communicator,
    seed: u64,
    plan: Plan,
    u: AnchoredSide<T>,
    v: AnchoredSide<T>,
    gram: Array2<T>,
    /// Gram matrix of this rank's rows of U.
    own_gram: Array2<T>,
    /// Message buffer: the Gram matrix to sum, and the objective before and after U's update.
    message: Vec<T>,
    progress: Progress,
    start: Start,
    extrapolates: bool,
    gradient: bool,
    norm2: f64,
    iteration: usize,
}

impl<T: Real> VrDsanlsRun<T> {
    /// Creates the method in its initial state.
    ///
    /// # Errors
    /// On all ranks, if parameters do not fit the matrix, or the given start is not valid.
    pub fn new(args: &VrDsanls, problem: Problem<'_, T>) -> SharedResult<Self> {
        let Problem { data, k, seed, comm, initial, .. } = problem;
        let (m, n) = (data.header.rows, data.header.cols);
        let dense = matches!(data.blocks.first(), Some(Block::Dense(_)));
        let entries = if dense { m as f64 * n as f64 } else { data.statistics.nonzeros as f64 };
        let plan = args.plan(&Sizes { m, n, entries, k }).map_err(Error::on_all_ranks)?;
        let penalties = args.regularization.penalties((m, n));
        let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, 2.0);
        let [mut block_u, mut block_v] = row_and_column_block(data.blocks);
        comm.agree_on_error(block_u.prepare(k).and_then(|()| block_v.prepare(k)))?;
        let local_comm = comm.split(comm.rank());
        // Only the factor with fewer rows is gathered.
        let side = |block: Block<T>, cuts: &[Range<usize>], d: usize, for_v: bool, sample_tags: SampleTags| {
            let tags = if for_v { V } else { U };
            let (own, total) = (cuts[comm.rank()].clone(), cuts.last().map_or(0, |cut| cut.end));
            let order = block.order();
            let factor = if for_v == (n <= m) {
                FactorSide::of_all_ranks(tags, &comm, cuts, k, order).with_gathered_if_shared()
            } else {
                FactorSide::new(tags, &local_comm, (&own, total), std::iter::once(0..own.len()).collect(), k, order)
            };
            let zeros = || order.zeros(own.len(), k);
            let norms: Vec<f64> = block.column_norms2().into_iter().map(f64::sqrt).collect();
            let scale = scales[usize::from(for_v)];
            let typical = [(data.statistics.norm2 / total as f64).sqrt(), scale * (k as f64 / 3.0).sqrt()];
            let sampler = WeightedSampler::new(total, d, own.clone(), norms, typical);
            AnchoredSide {
                fitted: zeros(),
                start: for_v.then(zeros),
                old: zeros(),
                rhs: zeros(),
                change: zeros(),
                sampled: SampledProduct::new(&comm, sampler, sample_tags, (k, order), 2 * k * k),
                factor: factor.with_rhs(),
                penalty: if for_v { penalties.v } else { penalties.u },
                data: block,
            }
        };
        let tags_u = SampleTags { scores: SCORES_U, rows: CHANGE_U };
        let tags_v = SampleTags { scores: SCORES_V, rows: CHANGE_V };
        let mut u = side(block_u, &data.cuts.rows, plan.draws[1], false, tags_u);
        let mut v = side(block_v, &data.cuts.cols, plan.draws[0], true, tags_v);
        let start = init::given_or_random(initial, seed, scales, &comm, [&mut u.factor, &mut v.factor])?;
        Ok(VrDsanlsRun {
            seed,
            u,
            v,
            gram: Array2::zeros((k, k)),
            own_gram: Array2::zeros((k, k)),
            message: vec![T::zero(); k * k + 2 * WORDS],
            progress: Progress {
                momentum: Momentum::of_anchors(),
                epoch: plan.epoch,
                left: 0,
                anchors: 0,
                sampled: 0,
                last: None,
            },
            start,
            extrapolates: args.extrapolation == Extrapolation::Restart,
            gradient: args.measure.measure == Evaluated::ProjectedGradient,
            norm2: data.statistics.norm2,
            iteration: 0,
            plan,
            comm,
        })
    }

    /// The factor with fewer rows, which is sent, and the other one, whose block serves both products.
    fn sent_and_local(&mut self) -> (&mut AnchoredSide<T>, &mut AnchoredSide<T>) {
        let VrDsanlsRun { u, v, .. } = self;
        if v.data.shape().0 >= u.data.shape().0 { (v, u) } else { (u, v) }
    }

    /// Computes the exact right-hand side of a factor into its `factor.rhs`.
    fn product(&mut self, factor: Factor) {
        let comm = self.comm.clone();
        let (tags, phase) = if factor == Factor::U { (U, "product M V") } else { (V, "product M'U") };
        let (sent, local) = self.sent_and_local();
        if sent.factor.tags.name == tags.name {
            let (data, own) = (&local.data, &local.factor.own);
            sent.factor.sum_rhs(|out| comm.work(phase, || data.mul(&own.view(), &mut out.view_mut())));
        } else {
            let whole = sent.factor.gather();
            comm.work(phase, || local.data.tmul(&whole, &mut local.factor.rhs.view_mut()));
        }
    }

    /// Computes the Gram matrix of a factor, summed over all ranks.
    fn sum_gram(&mut self, factor: Factor) {
        let VrDsanlsRun { comm, u, v, gram, .. } = self;
        let fixed = if factor == Factor::U { u } else { v };
        fixed.factor.gram(comm, gram);
    }

    /// U's update at an anchor. Returns the objective before and after it; the Gram matrix of the new U is summed too.
    fn update_u_exactly(&mut self) -> (f64, f64) {
        self.sum_gram(Factor::V);
        self.product(Factor::U);
        let VrDsanlsRun { comm, u, v, gram: g, own_gram, message, norm2, plan, .. } = self;
        let k = g.nrows();
        let (entries, words) = message.split_at_mut(k * k);
        comm.work("update", || {
            let factor = &mut u.factor;
            let penalty_v = v.penalty.value(&v.factor.own.view());
            let mut objective = |own: &Array2<T>| {
                gram(&own.view(), &mut own_gram.view_mut());
                let fit = inner(&own_gram.view(), &g.view()) - 2.0 * inner(&own.view(), &factor.rhs.view());
                fit + 2.0 * (u.penalty.value(&own.view()) + penalty_v)
            };
            let before = objective(&factor.own);
            let step = Sweep { mu: T::zero(), passes: plan.exact_sweeps[0], penalty: u.penalty };
            sweep(&mut factor.own.view_mut(), &factor.rhs.view(), &g.view(), step);
            let after = objective(&factor.own);
            square_mut(entries, k).assign(own_gram);
            words[..WORDS].copy_from_slice(&split_into_two_words(before, *norm2));
            words[WORDS..].copy_from_slice(&split_into_two_words(after, *norm2));
        });
        comm.sum(u.factor.tags.gram, message);
        g.assign(&square(&message[..k * k], k));
        let objective_at = |at: usize| *norm2 + message[k * k + at].as_f64() + message[k * k + at + 1].as_f64();
        (objective_at(0), objective_at(WORDS))
    }

    /// An iteration with exact products.
    fn anchor(&mut self) {
        let extrapolates = self.extrapolates && self.progress.anchors >= EXACT_FIRST;
        let beta = self.progress.momentum.beta();
        for side in [&mut self.u, &mut self.v] {
            if extrapolates {
                self.comm.work("update", || extrapolate(&mut side.factor.own, &mut side.old, beta));
            } else {
                side.old.assign(&side.factor.own);
            }
        }
        let (mut before, mut after) = self.update_u_exactly();
        if !self.progress.momentum.accept_at_anchor(after) && extrapolates {
            for side in [&mut self.u, &mut self.v] {
                side.factor.own.assign(&side.old);
            }
            (before, after) = self.update_u_exactly();
            self.progress.momentum.replace(after);
        }
        self.u.fitted.assign(&self.u.factor.own);
        self.product(Factor::V);
        let VrDsanlsRun { comm, v, gram: g, plan, progress, .. } = self;
        comm.work("update", || {
            if let Some(start) = &mut v.start {
                start.assign(&v.factor.own);
            }
            let step = Sweep { mu: T::zero(), passes: plan.exact_sweeps[1], penalty: v.penalty };
            sweep(&mut v.factor.own.view_mut(), &v.factor.rhs.view(), &g.view(), step);
            v.fitted.assign(&v.factor.own);
        });
        if plan.adapts {
            progress.adapt(before, after, plan.flops);
        }
        progress.anchors += 1;
        progress.left = if progress.anchors < EXACT_FIRST { 0 } else { progress.epoch - 1 };
    }

    /// An iteration with sampled products.
    fn sampled(&mut self) {
        let VrDsanlsRun { comm, u, v, gram, plan, seed, iteration, progress, .. } = self;
        let (seed, iteration) = (*seed, *iteration);
        let mut run = Sampling { comm, gram, seed, iteration, for_u: true };
        u.update_sampled(v, plan.sampled_sweeps[0], &mut run);
        run.for_u = false;
        v.update_sampled(u, plan.sampled_sweeps[1], &mut run);
        progress.left -= 1;
        progress.sampled += 1;
    }

    /// The norm of the projected gradient. Leaves the exact products of the last anchor unchanged. Collective.
    fn projected_gradient(&mut self) -> f64 {
        let mut squared = 0.0;
        for (factor, other) in [(Factor::U, Factor::V), (Factor::V, Factor::U)] {
            self.sum_gram(other);
            self.exchange(factor);
            self.product(factor);
            let side = if factor == Factor::U { &self.u } else { &self.v };
            squared += stationarity::squared(&side.factor.own, &side.factor.rhs, &self.gram, side.penalty);
            self.exchange(factor);
        }
        stationarity::norm(&self.comm, squared)
    }

    /// Exchanges the exact right-hand side of a factor with the sampled one, which each iteration overwrites.
    fn exchange(&mut self, factor: Factor) {
        let side = if factor == Factor::U { &mut self.u } else { &mut self.v };
        swap(&mut side.factor.rhs, &mut side.rhs);
    }
}

/// Names of the matrices of U and of V in a checkpoint: the factor, and the matrices of the last anchor.
const KEPT: [[&str; 4]; 2] = [["U", "U_old", "U_fitted", "product_for_U"], ["V", "V_old", "V_fitted", "product_for_V"]];
const START: &str = "V_at_product";

impl<T: Real> Algorithm<T> for VrDsanlsRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.progress.left == 0 {
                self.anchor();
            } else {
                self.sampled();
            }
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let (comm, norm2) = (self.comm.clone(), self.norm2);
        let (sent, local) = self.sent_and_local();
        let block = std::iter::once((&local.data, sent.factor.gather(), local.factor.own.view()));
        let error = metrics::relative_error(&comm, norm2, block);
        let mut found = vec![("rel_error", error)];
        let penalties = Penalties { u: self.u.penalty, v: self.v.penalty };
        let penalty = penalties.sum(&self.comm, &self.u.factor.own.view(), &self.v.factor.own.view());
        found.extend(penalties.objective(0.5 * error * error * self.norm2, penalty));
        if self.gradient {
            found.push(("projected_gradient", self.projected_gradient()));
        }
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.factor.piece(), self.v.factor.piece()]
    }

    fn state(&self) -> State<'_, T> {
        let mut matrices = Vec::new();
        for (side, names) in [(&self.u, KEPT[0]), (&self.v, KEPT[1])] {
            let factor = &side.factor;
            let kept = [&factor.own, &side.old, &side.fitted, &factor.rhs].into_iter().zip(names);
            matrices.extend(kept.map(|(matrix, name)| factor.piece_of(name, matrix)));
            matrices.extend(side.start.iter().map(|start| factor.piece_of(START, start)));
        }
        State::from(matrices).with(Owner::Shared, &self.progress)
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (side, names) in [(&mut self.u, KEPT[0]), (&mut self.v, KEPT[1])] {
            let FactorSide { own, rhs, own_rows, .. } = &mut side.factor;
            let kept = [own, &mut side.old, &mut side.fitted, rhs];
            for (matrix, name) in kept.into_iter().zip(names) {
                saved.rows(name, Owner::Shared, own_rows.start, matrix.view_mut())?;
            }
            if let Some(start) = &mut side.start {
                saved.rows(START, Owner::Shared, own_rows.start, start.view_mut())?;
            }
        }
        self.progress = saved.read(Owner::Shared)?;
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        vec![
            Decision::Start(self.start),
            Decision::SketchSize(Factor::U, self.v.sampled.size()),
            Decision::SketchSize(Factor::V, self.u.sampled.size()),
            Decision::Epoch(self.progress.epoch),
            Decision::InnerSweeps(self.plan.exact_sweeps),
            Decision::SampledSweeps(self.plan.sampled_sweeps),
        ]
    }
}

#[cfg(test)]
mod tests {
    use fednmf_comm::Parties;
    use fednmf_data::Layout;
    use fednmf_files as data;
    use fednmf_files::InputSpec;
    use fednmf_linalg::sketch::{SketchKind, make, stream};

    use super::*;
    use crate::parameters;
    use crate::parameters::Auto;

    /// A run on one rank after two exact iterations and one sampled iteration.
    fn begun(input: &str) -> VrDsanlsRun<f64> {
        let comm = Communicator::local();
        let opened = data::open(&InputSpec::parse(input).expect("known"), &comm).expect("opens");
        let data = opened.load(&Layout::RowsAndColumns { ranks: 1 }, &comm, &mut |_| ()).expect("loads");
        let size = parameters::Size::Count(12);
        let sketch_size = Auto::Given(parameters::Sizes { u: size, v: size });
        let args = VrDsanls { epoch: Auto::Given(1000), sketch_size, ..VrDsanls::default() };
        let problem = Problem {
            data,
            k: 3,
            seed: 1,
            max_iters: 9,
            parties: Parties { count: 1, ranks: 1 },
            continue_on_loss: false,
            initial: None,
            resuming: false,
            missing: None,
            comm,
        };
        let mut run = VrDsanlsRun::new(&args, problem).expect("builds");
        run.advance(3).expect("runs");
        run
    }

    /// The sampled right-hand side of U has the mean M V and a smaller variance than sampling M V itself.
    #[test]
    fn the_estimate_has_the_right_mean_and_little_variance() {
        for input in ["synthetic:planted,m=30,n=40,k=3", "synthetic:sparse,m=60,n=50,density=0.2"] {
            let mut run = begun(input);
            let (shape, order) = (run.u.factor.own.dim(), run.u.data.order());
            let mut exact = order.zeros(shape.0, shape.1);
            run.u.data.tmul(&run.v.factor.own.view(), &mut exact.view_mut());
            let n = run.v.factor.own.nrows();
            let mut uniform = make::<f64>(SketchKind::Subsample, n, 12, 3, order);
            let (mut b, mut plain) = (order.zeros(12, 3), order.zeros(shape.0, 3));
            let (mut sum, mut squares, mut variances) = (exact.clone() * 0.0, exact.clone() * 0.0, [0.0; 2]);
            let rounds = 4000;
            for iteration in 0..rounds {
                let VrDsanlsRun { comm, u, v, gram, .. } = &mut run;
                let mut sampling = Sampling { comm, gram, seed: 5, iteration, for_u: true };
                u.update_sampled(v, 0, &mut sampling);
                let off = &u.rhs - &exact;
                variances[0] += off.iter().map(|x| x * x).sum::<f64>();
                squares += &off.mapv(|x| x * x);
                sum += &off;
                uniform.draw(&stream(5, true, iteration));
                uniform.sketch_rows(0, &v.factor.own.view(), &mut b.view_mut());
                uniform.product(&u.data, &b.view(), &mut plain.view_mut());
                variances[1] += (&plain - &exact).iter().map(|x| x * x).sum::<f64>();
            }
            let rounds = rounds as f64;
            for (&sum, &square) in sum.iter().zip(&squares) {
                let deviation = (square / rounds).sqrt() / rounds.sqrt();
                assert!((sum / rounds).abs() <= 5.0 * deviation + 1e-12, "{input}: {} ± {deviation}", sum / rounds);
            }
            assert!(variances[0] < 0.2 * variances[1], "{input}: {variances:?}");
        }
    }

    #[test]
    fn the_epoch_follows_what_is_gained_per_flop() {
        let plain = |epoch| Progress {
            momentum: Momentum::of_anchors(),
            epoch,
            left: 0,
            anchors: 5,
            sampled: 3,
            last: Some((100.0, 1.0)),
        };
        // Three sampled iterations decreased the objective by 9 − 1, at a fifth of the cost of the exact one, which
        // decreased it by 2.
        let mut good = plain(4);
        good.adapt(91.0, 90.0, [5.0, 1.0]);
        assert_eq!((good.epoch, good.sampled, good.last), (5, 0, Some((90.0, 1.0))));
        let mut bad = plain(4);
        bad.adapt(98.9, 90.0, [5.0, 1.0]);
        assert_eq!(bad.epoch, 3);
        // Rounding errors do not change the epoch, and an epoch has at least one sampled iteration.
        let mut rounding = plain(4);
        rounding.adapt(100.0, 100.0 - 1e-9, [5.0, 1.0]);
        assert_eq!(rounding.epoch, 4);
        let mut least = plain(2);
        least.adapt(98.9, 90.0, [5.0, 1.0]);
        assert_eq!(least.epoch, 2);
    }
}
