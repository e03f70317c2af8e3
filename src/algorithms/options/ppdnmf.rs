//! Options of PPDNMF and its centralised twin.

use super::{Check, Opt};

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
