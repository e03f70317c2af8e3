//! Variance-reduced DSANLS: HALS whose products with the data are exact at anchors and sampled between them. It converges
//! without the error floor of DSANLS.
//!
//! At an anchor the products P_U = M V_a and P_V = MᵀU_a are exact. The iterations up to the next anchor use
//!
//! M V = P_U + U_a (V_bᵀD) + (M − U_a V_bᵀ) D,   D = V − V_a,
//!
//! where U_a and V_b are the factors after the anchor's updates. Only the last term is sampled: the product of the residual
//! with the *change* of V. Its estimate is unbiased, with a variance ∝ ‖M − U_a V_bᵀ‖² ‖D‖², which vanishes as the iterates
//! converge, so no proximal term is needed. The Gram matrix is exact. The fixed points are those of HALS: for D = 0 the
//! step is that of HALS. V's half is the same with P_V and D = U − U_a. This is the variance reduction of SVRG, applied to
//! coordinate descent; SVRMU (Kasai 2018) applies it to multiplicative updates. Rows are drawn by importance
//! (`WeightedSampler`), as in LvS-SymNMF (Hayashi, Aksoy, Ballard, Park 2024), with the scores ‖M_:j‖ ‖D_j‖.
//!
//! The ranks hold rows and columns of M as in DSANLS. An anchor gathers the factor with fewer rows and sums its right-hand
//! side, with the same messages as HALS on a grid of rows or columns. The other iterations send d (k + 2) + 2k² words and
//! four integers for each half.
//!
//! An anchor starts at the extrapolated point (see `Momentum`). Its objective costs only Gram matrices. It shows the
//! decrease by the anchor's own update and the decrease by the sampled iterations before it. If the sampled iterations
//! decreased it more per flop, the next epoch is longer, otherwise shorter.

mod arguments;
mod plan;
mod run;
mod side;

pub use arguments::VrDsanls;
use plan::{MOST, message_words};
use side::{CHANGE_U, CHANGE_V, SCORES_U, SCORES_V};

use fednmf_base::error::{Result, SharedResult};
use fednmf_linalg::Real;
use fednmf_linalg::sketch::{SketchKind, TOTALS};

use crate::cost::{Cost, Kernel, Message, Pattern, Sketched, Workload};
use crate::description::{Description, MessageSpec};
use crate::method::Method;
use crate::metrics;
use crate::shared::alternating::Sizes;
use crate::shared::extrapolation::{Extrapolation, WORDS};
use crate::shared::factor_side::{GATHER_U, GATHER_V, GRAM_U, GRAM_V, RHS_U, RHS_V};
use crate::shared::regularization;
use crate::shared::stationarity;
use crate::{Algorithm, Problem};

impl Method for VrDsanls {
    const DESCRIPTION: &'static Description = &Description {
        name: "vr-dsanls",
        aliases: &["svr-hals"],
        summary: "HALS with variance-reduced sketches and periodic exact products",
        paper: "as SVRMU (Kasai 2018) and LvS-SymNMF (Hayashi, Aksoy, Ballard, Park 2024), with coordinate descent",
        messages: &[
            MessageSpec::new(GRAM_V, "k x k", "each exact iteration"),
            MessageSpec::new(GRAM_U, "k x k + 4", "each exact iteration"),
            MessageSpec::new(GATHER_V, "n x k", "each exact iteration and each evaluation, where n <= m"),
            MessageSpec::new(RHS_V, "n x k", "each exact iteration, where n <= m"),
            MessageSpec::new(GATHER_U, "m x k", "each exact iteration and each evaluation, where m < n"),
            MessageSpec::new(RHS_U, "m x k", "each exact iteration, where m < n"),
            MessageSpec::new(SCORES_V, "4 x p", "each sampled iteration"),
            MessageSpec::new(CHANGE_V, "d_U x (k + 2) + 2 k x k", "each sampled iteration"),
            MessageSpec::new(SCORES_U, "4 x p", "each sampled iteration"),
            MessageSpec::new(CHANGE_U, "d_V x (k + 2) + 2 k x k", "each sampled iteration"),
            MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
            regularization::MESSAGES,
            stationarity::MESSAGES,
        ],
        ..Description::USUAL
    };

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("vr-dsanls")
    }

    fn why_not(name: &str) -> Option<&'static str> {
        ["missing", "holdout"].contains(&name).then_some(
            "between two exact products it adds up what the changes of the factors change in them, which completed data \
             would change too; use dsanls or hals",
        )
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored, .. } = *workload;
        let plan = self.plan(&Sizes { m, n, entries: stored, k })?;
        let ([d_u, d_v], epoch) = (plan.draws, plan.epoch.min(MOST) as f64);
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        let mut cost = Cost::default();
        // The average iteration: one iteration of each epoch is exact.
        let (exact, sampled) = (1.0 / epoch, 1.0 - 1.0 / epoch);
        let (small, large) = if n <= m { (n, rows) } else { (m, cols) };
        let product = 2.0 * k as f64 * exact;
        for kernel in [Kernel::Mul, Kernel::Tmul] {
            cost.add(kernel, product * workload.part(small, large), product * stored);
        }
        let square = 2.0 * (k * k) as f64;
        let [passes_u, passes_v] = plan.exact_sweeps.map(|n| n as f64);
        let (own_u, own_v, all_u, all_v) = (rows as f64, cols as f64, m as f64, n as f64);
        let gram = square * exact;
        cost.add(Kernel::Gram, gram * (2.0 * own_u + own_v), gram * (2.0 * all_u + all_v));
        cost.add(
            Kernel::Sweep,
            gram * (passes_u * own_u + passes_v * own_v),
            gram * (passes_u * all_u + passes_v * all_v),
        );
        if sampled > 0.0 {
            let part = |across, own, products| Sketched { across, own, products };
            let mut product = |kernel, sizes, parts| {
                workload.sketched(&mut cost, SketchKind::Subsample, kernel, sizes, sampled, parts);
            };
            product(Kernel::SampledForU, (n, d_u), [part(rows, cols, 1), part(m, n, ranks)]);
            product(Kernel::SampledForV, (m, d_v), [part(cols, rows, 1), part(n, m, ranks)]);
            // The Gram matrix, V_bᵀD, and its product with U_a.
            let gram = square * sampled;
            cost.add(Kernel::Gram, 3.0 * gram * (own_u + own_v), 3.0 * gram * (all_u + all_v));
            let [passes_u, passes_v] = plan.sampled_sweeps.map(|n| n as f64);
            cost.add(
                Kernel::Sweep,
                gram * (passes_u * own_u + passes_v * own_v),
                gram * (passes_u * all_u + passes_v * all_v),
            );
        }
        let shared = |message: Message, share: f64| Message {
            vector: message.vector * share,
            mpi_bytes: (message.mpi_bytes as f64 * share).round() as u64,
            messages: (message.messages as f64 * share).ceil() as u64,
            party_bytes: (message.party_bytes as f64 * share).round() as u64,
            ..message
        };
        let (gather, sum, length) = if n <= m { ("gather V", "sum M'U", n) } else { ("gather U", "sum M V", m) };
        for (kind, words) in [("Gram of V", k * k), ("Gram of U", k * k + 2 * WORDS)] {
            cost.messages.push(shared(Message::all_reduce(kind, ranks, words, word, 1), exact));
        }
        for (kind, pattern) in [(gather, Pattern::AllGather), (sum, Pattern::ReduceScatter)] {
            let message = Message::shared_out(kind, pattern, (1, ranks), length * k, word);
            cost.messages.extend(message.map(|message| shared(message, exact)));
        }
        if sampled > 0.0 {
            for (scores, change, d) in
                [("scores of V", "sketched change of V", d_u), ("scores of U", "sketched change of U", d_v)]
            {
                let totals = Message::shared_out(scores, Pattern::AllGather, (1, ranks), TOTALS * ranks, 8);
                cost.messages.extend(totals.map(|message| shared(message, sampled)));
                let words = message_words(d, k);
                cost.messages.push(shared(Message::all_reduce(change, ranks, words, word, 1), sampled));
            }
        }
        if plan.epoch > 1 || self.extrapolation == Extrapolation::Restart {
            cost.caveat(
                "the mean over an epoch as it is at first; its length follows the decrease of the objective, and an \
                 exact iteration after which that has risen is done again",
            );
        }
        cost.data = workload.block(n, workload.part(rows, n)) + workload.block(m, workload.part(m, cols));
        cost.shape.block = (small, large);
        (cost.shape.updated, cost.shape.gram) = (rows.max(cols), rows.max(cols));
        let whole = if ranks > 1 { 2 * small } else { 0 };
        // Per row: factor, product, last anchor, fitted, change, right-hand side; for V also its value at the product.
        let words = (6 * rows + 7 * cols + whole) * k + message_words(d_u, k) + message_words(d_v, k) + (d_u + d_v) * k;
        cost.factors = workload.bytes(words) + (32 * (rows + cols)) as f64;
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        Ok(Box::new(run::VrDsanlsRun::new(self, problem)?))
    }
}
