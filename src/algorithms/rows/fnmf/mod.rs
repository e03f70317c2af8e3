//! FNMF (Dalleiger and Gionis, "Creating Coherence in Federated Non-Negative Matrix Factorization", Alg. 2).
//!
//! Party j holds rows X_j and factorises X_j ≈ U_j V_jᵀ; its U_j never leaves it. After some local steps the server makes
//! one V̄ of all V_j. NMF knows no order of components, so the same components stand in other places at every party:
//! both the pull to V̄ during the steps and the server's mean align them first.
//!
//! The paper's V is k × m; ours is its transpose, V (n × k). Inside the server and the alignments components are rows, as
//! printed. What differs from the print, and why:
//!
//! * the Lipschitz constants are ‖V Vᵀ‖₂ for U and ‖UᵀU‖₂ for V (printed the other way round, every run diverges);
//! * there is no pull in the first round of independent starts: V̄ is then a mean of random matrices;
//! * a component without a counterpart stays as it is (the printed mean would shrink it), and the server divides by the
//!   number of parties that have a component;
//! * U_j follows its components to their places in V̄ (`--start independent` would else mix them up in round 1);
//! * with `--update hals` every component is a block of its own with its own step, and the pull is part of the least squares
//!   problem that the step is of, so that what a party hardly has stays where V̄ has it;
//! * components are compared and averaged at norm 1 (`--normalize none` for the print): parties scale them differently.

pub mod align;
pub mod barycenter;
mod client;
mod federated;
mod measure;

pub use client::{Local, Rule};
pub use federated::{MESSAGES, MESSAGES_ONCE, Method as Settings, Schedule, build as build_federated};

use self::align::How;
use self::barycenter::Kind;
use crate::algorithms::options::{
    ALIGN, BARYCENTER, GAMMA, INERTIA, LOCAL_ITERS, LOCAL_TOL, NORMALIZE, Options, PARTICIPATION, PERSONALIZE,
    SECURE_THRESHOLD, START, UPDATE,
};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem};
use crate::error::{Error, Result};
use crate::linalg::Real;

pub static METHOD: Method = Method {
    name: "fnmf",
    aliases: &[],
    summary: "federated NMF by rows: parties step on their own, aligned to a shared V; its mean is taken of aligned components",
    paper: "Dalleiger, Gionis: Creating Coherence in Federated Non-Negative Matrix Factorization",
    partition: Partition::PartyRows,
    unit: Unit::Round,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &dp::with::<12, 22>([
        LOCAL_ITERS.or("10"),
        LOCAL_TOL.or("0"),
        UPDATE.among(UPDATES, "ipalm"),
        INERTIA.or("1"),
        GAMMA.or("0.1"),
        ALIGN.or("lap"),
        BARYCENTER.or("fixed-point"),
        NORMALIZE.or("unit"),
        START.or("independent"),
        PARTICIPATION.or("1"),
        PERSONALIZE.or("false"),
        SECURE_THRESHOLD.or("none"),
    ]),
    messages: MESSAGES,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let options = problem.options;
    let align = How::of(options.word(&ALIGN));
    let personalize = options.flag(&PERSONALIZE);
    if personalize && !matches!(align, How::LapRho | How::SinkhornRho) {
        return Err(Error::input(format!(
            "--personalize: --align {} finds a counterpart for every component; use lap-rho or sinkhorn-rho",
            options.word(&ALIGN)
        )));
    }
    let method = Settings {
        gamma: options.number(&GAMMA),
        align,
        barycenter: Kind::of(options.word(&BARYCENTER)),
        personalize,
        unit: options.word(&NORMALIZE) == "unit",
        ..rounds(options)
    };
    build_federated(problem, method)
}

/// How a party may step between two exchanges.
pub const UPDATES: &[&str] = &["ipalm", "hals"];

/// A method of rounds with the options that all of them take; nothing pulls, and V̄ is the plain mean.
pub fn rounds(options: &Options) -> Settings {
    let hals = options.word(&UPDATE) == "hals";
    Settings {
        schedule: Schedule::Rounds,
        local: Local {
            steps: options.count(&LOCAL_ITERS),
            tolerance: options.number(&LOCAL_TOL),
            rule: if hals { Rule::Hals } else { Rule::Ipalm { inertia: options.number(&INERTIA) } },
        },
        gamma: 0.0,
        pull_at_once: false,
        align: How::Identity,
        barycenter: Kind::Mean,
        independent: options.word(&START) == "independent",
        participation: options.number(&PARTICIPATION),
        personalize: false,
        // HALS gives a component the scale that fits it at the time, and the largest would rule the mean.
        unit: hals,
    }
}

/// A method in which every party works alone, and V̄ is the plain mean of what they end with.
pub fn once(options: &Options, rule: Rule) -> Settings {
    Settings {
        schedule: Schedule::Once,
        local: Local { steps: 1, tolerance: 0.0, rule },
        gamma: 0.0,
        pull_at_once: false,
        align: How::Identity,
        barycenter: Kind::Mean,
        independent: options.word(&START) == "independent",
        participation: 1.0,
        personalize: false,
        unit: false,
    }
}
