//! All options of single algorithms, each defined once; an algorithm names those it takes, with its own default.

use super::{Check, Opt};
use crate::algorithms::options::ppdnmf::*;
use crate::algorithms::options::privacy::*;
use crate::algorithms::options::secure::*;
use crate::algorithms::rows::fnmf;
use crate::sketch;

const ANY: f64 = f64::INFINITY;

pub static SKETCH: Opt = Opt {
    name: "sketch",
    value: "KIND",
    help: "Random matrix that shrinks each subproblem: subsample (picks rows and columns), count (adds them up with \
           random signs), gaussian, uniform or srht (Hadamard transform); the last three cost as much as the exact product. \
           secure-hals: none, or subsample (some rows of U at a time: less traffic for a sum)",
    check: Check::OneOf(sketch::KINDS),
};
pub static SKETCH_SIZE: Opt = Opt {
    name: "sketch-size",
    value: "D_U[,D_V]",
    help: "Columns kept for U's update and rows kept for V's: counts, or shares with %; auto: 10 % of a dimension, \
           more where it is small (secure-hals: D_V rows of U at a time; auto: 10 %, at least 2 k)",
    check: Check::Sizes,
};
pub static GRID: Opt = Opt {
    name: "grid",
    value: "PRxPC",
    help: "Cut the matrix into PR x PC blocks, one for each rank (rows alone: PRx1); auto: the cut that sends the fewest \
           words",
    check: Check::Grid,
};
pub static INIT: Opt = Opt {
    name: "init",
    value: "HOW",
    help: "Where the factors start: random, nndsvd (the data's leading singular vectors, by a randomised SVD over the \
           ranks; hals, bpp and mu), or a file that --output wrote",
    check: Check::Text,
};
pub static MISSING: Opt = Opt {
    name: "missing",
    value: "WHICH",
    help: "Entries that say nothing: none, nan (those that are no number), zero-unobserved (zeros: only what is stored \
           counts), or a matrix file of the same shape, whose nonzeros mark them; what the data has there is held out. The \
           update then goes through rows whole: work in proportion to the nonzeros and the missing entries, or to the \
           observed ones with zero-unobserved",
    check: Check::Text,
};
pub static HOLDOUT: Opt = Opt {
    name: "holdout",
    value: "SHARE",
    help: "Hold out this share of the observed entries, drawn by the seed (of sparse data at most as many as it has \
           nonzeros), and tell the error on them: heldout_rmse",
    check: Check::Number { min: 0.0, max: 0.9 },
};
pub static SOLVER: Opt = Opt {
    name: "solver",
    value: "NAME",
    help: "Step on the sketched subproblem: pcd (proximal coordinate descent) or pgd (projected gradient)",
    check: Check::OneOf(&["pcd", "pgd"]),
};
pub static MU: Opt = Opt {
    name: "mu",
    value: "UNIT",
    help: "Unit of the regularisation mu_t = alpha + beta*t (pgd: of the step alpha/(1+beta*t)): scaled (by the fixed \
           factor, so that it fits any data) or absolute (as printed in the paper)",
    check: Check::OneOf(&["scaled", "absolute"]),
};
pub static MU_ALPHA: Opt = Opt {
    name: "mu-alpha",
    value: "X",
    help: "alpha of --mu; auto: 0.1 for pcd, 2 for pgd (1 and 0.001 with --mu absolute)",
    check: Check::NumberOrAuto,
};
pub static MU_BETA: Opt =
    Opt { name: "mu-beta", value: "X", help: "beta of --mu", check: Check::Number { min: 0.0, max: ANY } };
pub static INNER_SWEEPS: Opt = Opt {
    name: "inner-sweeps",
    value: "N",
    help: "Sweeps of a factor for each product with the data; auto: several where a product costs more than a sweep, by \
           their flops (accelerated HALS)",
    check: Check::CountOrAuto,
};
pub static EXTRAPOLATION: Opt = Opt {
    name: "extrapolation",
    value: "HOW",
    help: "Where a factor's update starts: none (at the last one) or restart (beyond it, as far as the objective keeps \
           falling: Ang and Gillis)",
    check: Check::OneOf(&["none", "restart"]),
};
pub static BOUND: Opt = Opt {
    name: "bound",
    value: "",
    help: "Keep the factors' entries at most (2 |M|_F)^(1/2), as (22) of the paper: convergence is proved for bounded \
           factors, and a best factorisation is within the bound",
    check: Check::Flag,
};
pub static MEASURE: Opt = Opt {
    name: "measure",
    value: "WHAT",
    help: "What an evaluation computes: error, or projected-gradient too, the norm of the projected gradient of \
           1/2 |M - U V'|_F^2, which is 0 at a stationary point (two more products, and the factors gathered)",
    check: Check::OneOf(&["error", "projected-gradient"]),
};
pub static LAMBDA: Opt = Opt {
    name: "lambda",
    value: "X",
    help: "Weight of what draws entries to 0 or 1, at the start",
    check: Check::Number { min: 0.0, max: ANY },
};
pub static LAMBDA_RATE: Opt = Opt {
    name: "lambda-rate",
    value: "X",
    help: "Factor by which --lambda grows from one iteration to the next",
    check: Check::Number { min: 1.0, max: 2.0 },
};
pub static KAPPA: Opt = Opt {
    name: "kappa",
    value: "X",
    help: "Soft threshold around 0 and 1",
    check: Check::Number { min: 0.0, max: ANY },
};
pub static TAU: Opt = Opt {
    name: "tau",
    value: "X",
    help: "Confidence from which on one column implies another (asso), or share of a pattern that a row or column needs to \
           join it (mebf)",
    check: Check::Number { min: 0.0, max: 1.0 },
};
pub static AGGREGATE: Opt = Opt {
    name: "aggregate",
    value: "HOW",
    help: "How the parties' Boolean components become shared ones: average (rounded), vote (half of the parties suffice) \
           or or (one suffices)",
    check: Check::OneOf(&["average", "vote", "or"]),
};
pub static REFIT: Opt = Opt {
    name: "refit",
    value: "HOW",
    help: "Rows of U for the shared components: greedy (each row of the data takes those that cover it best) or none (those \
           of the factorisation itself)",
    check: Check::OneOf(&["greedy", "none"]),
};
pub static UNTIL_BOOLEAN: Opt = Opt {
    name: "until-boolean",
    value: "",
    help: "Stop as soon as the shared factor is Boolean to 1e-6 (raise --max-iters: some hundred rounds)",
    check: Check::Flag,
};

pub static LOCAL_ITERS: Opt = Opt {
    name: "local-iters",
    value: "N",
    help: "Steps of a party between two exchanges (secure-hals: sweeps)",
    check: Check::Count { min: 1 },
};
pub static UPDATE: Opt = Opt {
    name: "update",
    value: "NAME",
    help: "Update of a factor from its sums: hals (sweeps, component by component), bpp (the exact minimiser), ipalm \
           (inertial proximal gradient steps)",
    check: Check::OneOf(&["hals", "bpp", "ipalm"]),
};
pub static LOCAL_TOL: Opt = Opt {
    name: "local-tol",
    value: "X",
    help: "A party ends its local steps early when both factors change less than this, relatively",
    check: Check::Number { min: 0.0, max: ANY },
};
pub static INERTIA: Opt = Opt {
    name: "inertia",
    value: "X",
    help: "Share of the last change that a proximal step carries on (fnmf and its rivals: X (t-1)/(t+2) in local step t); \
           0 for none",
    check: Check::Number { min: 0.0, max: 1.0 },
};
pub static GAMMA: Opt = Opt {
    name: "gamma",
    value: "X",
    help: "Weight of the pull of a party's V to the shared one, in every local step; auto (felb): 1 \
           with 10 local steps; where the shared V is undecided after 10 rounds all starts over, and it falls from 10 to 1",
    check: Check::NumberOrAuto,
};
pub static ALIGN: Opt = Opt {
    name: "align",
    value: "HOW",
    help: "Which components belong together: lap (best one-to-one assignment), lap-rho (by correlation, only where it is \
           significant), sinkhorn and sinkhorn-rho (the same with soft weights), knn (nearest three)",
    check: Check::OneOf(fnmf::align::WORDS),
};
pub static BARYCENTER: Opt = Opt {
    name: "barycenter",
    value: "HOW",
    help: "How the shared V is made of the parties': fixed-point (align and average until it rests), greedy (one party \
           after the other), tree (pairs, then pairs of pairs), kmeans and fuzzy-cmeans on all components; mean (parties align their own, and only the mean of that is \
           needed: for --secure-sum)",
    check: Check::OneOf(fnmf::barycenter::WORDS),
};
pub static NORMALIZE: Opt = Opt {
    name: "normalize",
    value: "HOW",
    help: "Scale of the components that parties hand over: unit (norm 1; U takes up the factor) or none (as they are)",
    check: Check::OneOf(&["unit", "none"]),
};
pub static START: Opt = Opt {
    name: "start",
    value: "HOW",
    help: "Start of the parties' V: independent (each its own) or shared (the same for all)",
    check: Check::OneOf(&["independent", "shared"]),
};
pub static PARTICIPATION: Opt = Opt {
    name: "participation",
    value: "SHARE",
    help: "Share of the parties that take part in a round, drawn by --seed",
    check: Check::Number { min: 1e-9, max: 1.0 },
};
pub static PERSONALIZE: Opt = Opt {
    name: "personalize",
    value: "",
    help: "Components that only one party has stay with it, in the place of shared ones that it does not have",
    check: Check::Flag,
};

/// Those that decide no number of the result: a resumed run may have others.
pub static NOT_DECIDING: &[&Opt] = &[&GRID, &MEASURE, &RECORD_RELEASES, &RECORD_ORDER, &REPLAY, &PARTY_TIMEOUT];

/// Every option above, in the order of `--help`.
pub static ALL: &[&Opt] = &[
    &GRID,
    &INIT,
    &MISSING,
    &HOLDOUT,
    &SKETCH,
    &SKETCH_SIZE,
    &SOLVER,
    &MU,
    &MU_ALPHA,
    &MU_BETA,
    &INNER_SWEEPS,
    &EXTRAPOLATION,
    &BOUND,
    &MEASURE,
    &LOCAL_ITERS,
    &ORDER,
    &WEIGHTS,
    &UPDATE,
    &SECURE_SUM,
    &SECURE_THRESHOLD,
    &HEADROOM,
    &MAX_RELEASES,
    &I_KNOW,
    &RECORD_RELEASES,
    &RHO,
    &CLOCK,
    &RECORD_ORDER,
    &REPLAY,
    &PARTY_TIMEOUT,
    &LOCAL_TOL,
    &INERTIA,
    &GAMMA,
    &ALIGN,
    &BARYCENTER,
    &NORMALIZE,
    &START,
    &PARTICIPATION,
    &PERSONALIZE,
    &LAMBDA,
    &LAMBDA_RATE,
    &KAPPA,
    &TAU,
    &AGGREGATE,
    &REFIT,
    &UNTIL_BOOLEAN,
    &DP,
    &EPSILON,
    &DELTA,
    &CLIP,
    &DP_CALIBRATION,
    &DP_NOISE,
    &DP_RELEASES,
    &CLAMP,
    &SECRET_SEED,
    &TOPOLOGY,
    &MU_PENALTY,
    &ETA,
    &ADMM_ITERS,
    &ADMM_TOL,
    &G_MAX,
    &G_SCALE,
    &QUANTIZATION,
    &X_RANGE,
    &KEY_BITS,
    &INSECURE_KEY,
    &PLAIN,
    &SCALAR_G,
    &CRYPTO_THREADS,
];
