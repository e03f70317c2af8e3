//! All options of single algorithms, each defined once; an algorithm names those it takes, with its own default.

use super::secure::*;
use super::{Check, Opt};
use crate::algo::fnmf;
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
           ranks), or a file that --output wrote",
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
    help: "Update of a factor from its sums: hals (sweeps) or bpp (the exact minimiser)",
    check: Check::OneOf(&["hals", "bpp"]),
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
    help: "Weight of the pull of a party's V to the shared one, in every local step; auto: as their number asks for",
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

pub static DP: Opt = Opt {
    name: "dp",
    value: "NOISE",
    help: "Differential privacy of what a party releases, its whole data being the unit: none, gaussian, laplace, or xor \
           (flipped bits, for Boolean methods). With --secure-sum only the sum is noised, by shares",
    check: Check::OneOf(&["none", "gaussian", "laplace", "xor"]),
};
pub static EPSILON: Opt = Opt {
    name: "epsilon",
    value: "X",
    help: "Budget of the whole run, split over its releases; the run stops before it is exceeded; auto: no budget, the \
           noise is that of --dp-noise",
    check: Check::NumberOrAuto,
};
pub static DELTA: Opt =
    Opt { name: "delta", value: "X", help: "The delta beside --epsilon", check: Check::Number { min: 0.0, max: 0.5 } };
pub static CLIP: Opt = Opt {
    name: "clip",
    value: "X",
    help: "How far a party's release may be from the last shared factor (gaussian: Euclidean norm, laplace: sum of \
           magnitudes), or how many ones it may have (xor); auto: what the method itself keeps to, if it does",
    check: Check::NumberOrAuto,
};
pub static DP_CALIBRATION: Opt = Opt {
    name: "dp-calibration",
    value: "HOW",
    help: "From budget to Gaussian noise: analytic (exact, Balle and Wang) or classic (the papers' formula, refused where \
           it does not hold)",
    check: Check::OneOf(&["analytic", "classic"]),
};
pub static DP_NOISE: Opt = Opt {
    name: "dp-noise",
    value: "X",
    help: "Noise of an entry: standard deviation (gaussian), scale (laplace) or chance of a flip (xor), of a message or, \
           with --secure-sum, of the sum; auto: from --epsilon. With both, the budget says how many releases there are",
    check: Check::NumberOrAuto,
};
pub static DP_RELEASES: Opt = Opt {
    name: "dp-releases",
    value: "N",
    help: "Releases that --epsilon is split over; auto: one for each of --max-iters, or 1 where parties exchange once",
    check: Check::CountOrAuto,
};
pub static CLAMP: Opt = Opt {
    name: "clamp",
    value: "",
    help: "Parties cut their noised entries to [0, 1] before they send them, as in the paper",
    check: Check::Flag,
};

pub static SECRET_SEED: Opt = Opt {
    name: "secret-seed",
    value: "N|os",
    help: "Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for \
           tests only",
    check: Check::Seed,
};
pub static TOPOLOGY: Opt = Opt {
    name: "topology",
    value: "GRAPH",
    help: "Who talks with whom: ring, grid, complete, random:degree=D (connected, D neighbours on average), or a file \
           with two parties on each line",
    check: Check::Text,
};
pub static MU_PENALTY: Opt = Opt {
    name: "mu-penalty",
    value: "X",
    help: "Penalty mu between X and its copy U in the inner ADMM (not the --mu of dsanls); auto: from the data's mean",
    check: Check::NumberOrAuto,
};
pub static ETA: Opt = Opt {
    name: "eta",
    value: "X",
    help: "Penalty eta between Y and its copy in the inner ADMM; auto: from the data's mean",
    check: Check::NumberOrAuto,
};
pub static ADMM_ITERS: Opt = Opt {
    name: "admm-iters",
    value: "N",
    help: "Most ADMM iterations for X, and for Y, in each iteration",
    check: Check::Count { min: 1 },
};
pub static ADMM_TOL: Opt = Opt {
    name: "admm-tol",
    value: "X",
    help: "A party whose factor moves by less than X (relative) raises the flag that ends the ADMM of all; 0: never",
    check: Check::Number { min: 0.0, max: 1.0 },
};
pub static G_MAX: Opt = Opt {
    name: "g-max",
    value: "X",
    help: "Largest weight g of an edge's end, public; the penalty of an edge is the product of its two g, each known to \
           one end only; auto: from the data's mean",
    check: Check::NumberOrAuto,
};
pub static G_SCALE: Opt = Opt {
    name: "g-scale",
    value: "N",
    help: "Resolution of g: it is a whole number of 1/N",
    check: Check::Count { min: 1 },
};
pub static QUANTIZATION: Opt = Opt {
    name: "quantization",
    value: "N",
    help: "Resolution of what neighbours exchange: whole numbers of 1/N",
    check: Check::Count { min: 1 },
};
pub static X_RANGE: Opt = Opt {
    name: "x-range",
    value: "X",
    help: "Largest entry of X that can be exchanged; more of it leaves less room in a ciphertext",
    check: Check::Number { min: 1e-9, max: 1e12 },
};
pub static KEY_BITS: Opt = Opt {
    name: "key-bits",
    value: "BITS",
    help: "Length of each party's Paillier modulus: 2048, 3072, 4096 (128, as in the paper, with --insecure-key)",
    check: Check::OneOf(&["128", "2048", "3072", "4096"]),
};
pub static INSECURE_KEY: Opt = Opt {
    name: "insecure-key",
    value: "",
    help: "Allow --key-bits 128, which a laptop breaks in seconds; to repeat the paper's figures",
    check: Check::Flag,
};
pub static PLAIN: Opt = Opt {
    name: "plain",
    value: "",
    help: "The same numbers without encryption: neighbours see each other's X. For speed and for tests",
    check: Check::Flag,
};
pub static SCALAR_G: Opt = Opt {
    name: "scalar-g",
    value: "",
    help: "One g for a whole message, as in the paper. This leaks: the greatest common divisor of what a party decrypts \
           is its neighbour's g, and with it the neighbour's X",
    check: Check::Flag,
};
pub static CRYPTO_THREADS: Opt = Opt {
    name: "crypto-threads",
    value: "N",
    help: "Threads of each rank for encryption",
    check: Check::Count { min: 1 },
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
