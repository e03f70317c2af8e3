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
pub mod federated;
mod measure;

pub use client::{Local, LocalRule};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::Real;

use self::align::How;
use self::barycenter::Barycenter;
use self::federated::{FederatedParams, FederatedSettings, MESSAGES, Normalize, RoundParams};
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Workload};
use crate::description::{Description, DifferentialPrivacy, Form, Partition, ProtectedUnit, Unit};
use crate::method::Method;
use crate::metrics::Measure;
use crate::parameters::{Auto, number};
use crate::{Algorithm, Problem};

/// Guarantees that FNMF and its baselines do not give.
pub const LIMITS: [&str; 2] = [
    "without --dp the server sees each V_j as it is, and can tell from it whether a row was in the data;",
    "--epsilon covers what a party releases as V_j, not the statistics at loading and not evaluations (--eval-every 0).",
];

/// What `--normalize auto` is for FNMF.
const NORMALIZE: Normalize = Normalize::Unit;

fednmf_base::parameters! {
    /// Parameters of FNMF.
    pub struct Fnmf {
        group rounds: RoundParams;
        /// Weight of the pull of a party's V to the shared one, in every local step
        pub gamma: f64 = 0.1, "X", number(0.0, f64::INFINITY);
        /// Which components correspond to each other
        pub align: How = How::Lap, "HOW";
        /// How the shared V is made from the parties': mean, fixed-point, greedy, tree, kmeans or
        /// fuzzy-cmeans. auto: fixed-point, or with
        /// --secure-sum the mean, the only one that a sum shows
        pub barycenter: Auto<Barycenter> = Auto::Auto, "HOW";
        /// Components that only one party has stay with it, in the place of shared ones that it does not have
        pub personalize: bool;
        group federated: FederatedParams;
    }
}

impl Method for Fnmf {
    const DESCRIPTION: &'static Description = &Description {
        name: "fnmf",
        aliases: &[],
        summary: "federated NMF by rows: parties step on their own, aligned to a shared V, the mean of aligned components",
        paper: "Dalleiger, Gionis: Creating Coherence in Federated Non-Negative Matrix Factorization",
        partition: Partition::PartyRows,
        unit: Unit::Round,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::Rmsd,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some(LIMITS),
        messages: MESSAGES,
    };

    fn check(&self) -> Result<()> {
        if self.personalize && !matches!(self.align, How::LapRho | How::SinkhornRho) {
            return Err(Error::input(
                "--personalize: only --align lap-rho and sinkhorn-rho leave components without a counterpart; add one of them",
            ));
        }
        self.rounds.check_scale(&self.federated, NORMALIZE)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored: entries, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = workload.part(rows, n);
        let t = self.rounds.local_iters as f64;
        let mut cost = Cost::default();
        let (product, square) = (2.0 * t * k as f64, 2.0 * t * (k * k) as f64);
        cost.add(Kernel::Mul, product * stored, product * entries);
        cost.add(Kernel::Tmul, product * stored, product * entries);
        let (own, all) = (square * (rows + n * hosted) as f64, square * (m + n * parties) as f64);
        cost.add(Kernel::Gram, own, all);
        cost.add(Kernel::Sweep, own, all);
        // Aligning compares k × k pairs of components over n entries, in every local step, in two turns at the server and
        // once after them; what is not one-to-one is applied by a product as large.
        let (compared, applied) = (t + 3.0, if matches!(self.align, How::Lap | How::LapRho) { 0.0 } else { t + 2.0 });
        let aligning = 2.0 * (k * k * n) as f64 * (compared + applied);
        // The distances for a one-to-one assignment are products of factors; those of the other ways are loops.
        let kernel = if self.align == How::Lap { Kernel::Gram } else { Kernel::Other };
        cost.add(kernel, aligning * hosted as f64, aligning * parties as f64);
        let FederatedParams { sum, threshold, .. } = &self.federated;
        if sum.secure_sum {
            sum.add_cost(Some(threshold), &mut cost, (ranks, parties), &[(barycenter::SUM_V, n * k)], (word, 1));
            cost.caveat("the flops of aligning are about right");
        } else {
            for kind in [barycenter::UPLOAD.kind, barycenter::DOWNLOAD.kind] {
                cost.messages.push(Message {
                    kind,
                    pattern: Pattern::Local,
                    group: 1,
                    stride: 1,
                    times: 1,
                    vector: 0.0,
                    partners: 0,
                    mpi_bytes: 0,
                    messages: 0,
                    party_bytes: (parties * n * k * word) as u64,
                });
            }
            let turn = Message::party_sum(barycenter::INSIDE.kind, (ranks, parties), n * k + k + 1, word, 2);
            cost.messages.push(Message { party_bytes: 0, ..turn });
            cost.caveat(
                "bytes of parties are exact; MPI bytes and messages are those of two turns of the barycenter, and how many \
                 it takes depends on the data; the flops of aligning are about right",
            );
        }
        cost.data = workload.block(rows, stored);
        let own = rows / hosted;
        cost.shape = Shape { block: (own, n), updated: own.max(n), gram: own.max(n), ..Shape::default() };
        cost.factors = workload.bytes((3 * rows + (4 * hosted + 6) * n) * k) + (16 * n * k) as f64;
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let masked = self.federated.sum.secure_sum;
        let barycenter = if masked { Barycenter::Mean } else { Barycenter::FixedPoint };
        let rounds = FederatedSettings::rounds(&self.rounds, &self.federated, NORMALIZE);
        let settings = FederatedSettings {
            gamma: self.gamma,
            align: self.align,
            barycenter: self.barycenter.given().unwrap_or(barycenter),
            independent: rounds.independent && (self.federated.start.given().is_some() || !masked),
            personalize: self.personalize,
            ..rounds
        };
        federated::build(problem, settings, &self.federated)
    }
}
