//! Options of differential privacy, and of secrets in general.

use super::{Check, Opt};

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
