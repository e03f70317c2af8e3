//! FNMF (Dalleiger and Gionis, "Creating Coherence in Federated Non-Negative Matrix Factorization", Alg. 2).
//!
//! Party j holds rows X_j and factorises X_j ≈ U_j V_jᵀ; its U_j never leaves it. After some local steps the server
//! computes one V̄ from all V_j. The components of an NMF have no order, so the same component may have a different index
//! at each party. Both the proximal term to V̄ in the local steps and the server's mean therefore align the components
//! first.
//!
//! The paper's V is k × m; ours is its transpose, V (n × k). In the server and the alignments components are rows, as in
//! the paper. Differences from the paper:
//!
//! * the Lipschitz constants are ‖V Vᵀ‖₂ for U and ‖UᵀU‖₂ for V; they are swapped in print, and every run with the printed
//!   ones diverges;
//! * with independent starts the first round has no proximal term: V̄ is then a mean of random matrices;
//! * a component without a counterpart is unchanged (the printed mean would shrink it), and the server divides by the
//!   number of parties that have the component;
//! * the columns of U_j are permuted together with the components of V_j; otherwise `--start independent` would mix them up
//!   in round 1;
//! * with `--update hals` every component is a block with its own step, and the proximal term is part of its least-squares
//!   problem, so that a component that a party hardly uses stays near that of V̄;
//! * components are compared and averaged at norm 1, because parties scale them differently (`--normalize none` as
//!   printed).

pub mod align;
pub mod barycenter;
mod client;
pub mod federated;
mod measure;
mod run;

pub use client::{LocalRule, LocalSteps};

use fednmf_base::error::{Error, Result};

use self::align::Alignment;
use self::barycenter::Barycenter;
use self::federated::{Aggregate, Federated, FederatedParams, Normalize, ProximalParams, Published, StartOfV};
use crate::cost::{Cost, Kernel, Message, Pattern, Shape, Workload};
use crate::parameters::Auto;

fednmf_base::parameters! {
    /// FNMF's aggregation: the server aligns the components of all V_j before it averages them.
    pub struct AlignedParams {
        /// Which components correspond to each other
        pub align: Alignment = Alignment::Lap, "HOW";
        /// How the shared V is made from the parties': mean, fixed-point, greedy, tree, kmeans or
        /// fuzzy-cmeans. auto: fixed-point, or with
        /// --secure-sum the mean, the only one that a sum shows
        pub barycenter: Auto<Barycenter> = Auto::Auto, "HOW";
        /// Components that only one party has stay with it, instead of shared ones that it does not have
        pub personalize: bool;
    }
}

/// Parameters of FNMF.
pub type Fnmf = Federated<ProximalParams, AlignedParams>;

impl Aggregate for AlignedParams {
    const NORMALIZE: Normalize = Normalize::Unit;
    const TERM_IN_FIRST_ROUND: bool = false;

    fn check(&self) -> Result<()> {
        if self.personalize && !matches!(self.align, Alignment::LapRho | Alignment::SinkhornRho) {
            return Err(Error::input(
                "--personalize: only --align lap-rho and sinkhorn-rho leave components without a counterpart; add one of them",
            ));
        }
        Ok(())
    }

    /// With masked sums, parties align their components to V̄, so all need a common V̄ from the start.
    fn start(masked: bool) -> StartOfV {
        if masked { StartOfV::Shared } else { StartOfV::Independent }
    }

    fn alignment(&self) -> Alignment {
        self.align
    }

    fn barycenter(&self, masked: bool) -> Barycenter {
        let auto = if masked { Barycenter::Mean } else { Barycenter::FixedPoint };
        self.barycenter.given().unwrap_or(auto)
    }

    fn personalizes(&self) -> bool {
        self.personalize
    }
}

impl Published for Fnmf {
    const NAME: &'static str = "fnmf";
    const SUMMARY: &'static str = "federated NMF: local steps, aligned to a shared V, the mean of aligned components";
    const PAPER: &'static str = "Dalleiger, Gionis: Creating Coherence in Federated Non-Negative Matrix Factorization";

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored: entries, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = workload.part(rows, n);
        let t = self.local.rounds.local_iters as f64;
        let mut cost = Cost::default();
        let (product, square) = (2.0 * t * k as f64, 2.0 * t * (k * k) as f64);
        cost.add(Kernel::Mul, product * stored, product * entries);
        cost.add(Kernel::Tmul, product * stored, product * entries);
        let (own, all) = (square * (rows + n * hosted) as f64, square * (m + n * parties) as f64);
        cost.add(Kernel::Gram, own, all);
        cost.add(Kernel::Sweep, own, all);
        // Aligning compares k × k pairs of components over n entries, in every local step, in two turns at the server and
        // once after them; what is not one-to-one is applied by a product as large.
        let (compared, applied) =
            (t + 3.0, if matches!(self.aggregate.align, Alignment::Lap | Alignment::LapRho) { 0.0 } else { t + 2.0 });
        let aligning = 2.0 * (k * k * n) as f64 * (compared + applied);
        // The distances for a one-to-one assignment are products of factors; those of the other ways are loops.
        let kernel = if self.aggregate.align == Alignment::Lap { Kernel::Gram } else { Kernel::Other };
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
}
