//! The parameters of all federated methods with private rows (FNMF, Dalleiger and Gionis, Alg. 2). A method is a pair of
//! types, [`Federated<L, A>`](Federated): `L` defines the local steps between two exchanges, `A` the aggregation of the
//! parties' V_j to V̄. The loop of local steps, exchange and aggregation is the same for all ([`run`](super::run)).

use std::fmt;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{KEYS, masked};
use fednmf_linalg::Real;
use fednmf_privacy::{Bound, NoisePlan};

use super::{measure, run};
use crate::cost::{Cost, Workload};
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, ProtectedUnit, Unit};
use crate::federated::rows::fnmf::align::Alignment;
use crate::federated::rows::fnmf::barycenter::{Barycenter, DOWNLOAD, INSIDE, SUM_V, UPLOAD};
use crate::federated::rows::fnmf::client::{LocalRule, LocalSteps};
use crate::method::Method;
use crate::metrics::Measure;
use crate::parameters::{Auto, Parameters, count, number};
use crate::shared::disclosure::OpenedSums;
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected, Messages};
use crate::shared::missing::{PartyMissing, PartyMissingParams};
use crate::shared::regularization::RegularizationParams;
use crate::shared::secure_sum::{SURVIVING, SecureSumParams, ThresholdParams};
use crate::{Algorithm, Problem};

/// Guarantees that these methods do not give.
const LIMITS: [&str; 2] = [
    "Without --secure-sum and --dp others see each V_j as it is, which shows whether a row was in the data.",
    "--epsilon covers a whole run, unless --eval-every or --scale max makes it share more. Its last table says so.",
];

fednmf_base::parameters! {
    /// Parameters of a method with local steps `L` and aggregation `A`.
    pub struct Federated<L: LocalStep, A: Aggregate> {
        group local: L;
        group aggregate: A;
        group federated: FederatedParams;
    }
}

/// The local steps between two exchanges; implemented by the type of their parameters.
pub trait LocalStep: Parameters + Default + fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    const SCHEDULE: Schedule;

    /// The steps between two exchanges.
    fn steps(&self) -> LocalSteps;

    /// The weight γ of the proximal term that ties V_j to V̄; 0 for none.
    fn gamma(&self) -> f64 {
        0.0
    }

    /// The parameters of a method that exchanges in every round.
    fn rounds(&self) -> Option<&RoundParams> {
        None
    }
}

/// The aggregation of the parties' V_j to V̄; implemented by the type of its parameters.
pub trait Aggregate: Parameters + Default + fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    /// The meaning of `--normalize auto` with proximal steps.
    const NORMALIZE: Normalize;
    /// Whether the first round has the proximal term. V̄ is then the mean of the starts, and public.
    const TERM_IN_FIRST_ROUND: bool;

    /// Checks the parameters against each other.
    ///
    /// # Errors
    /// If an option is wrong; the message names it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The meaning of `--start auto`, with masked sums or without.
    fn start(_masked: bool) -> StartOfV {
        StartOfV::Independent
    }

    /// The kind of alignment between V_j and V̄.
    fn alignment(&self) -> Alignment;

    /// The server's mean, with masked sums or without.
    fn barycenter(&self, masked: bool) -> Barycenter;

    /// Whether a component that only one party has stays with this party.
    fn personalizes(&self) -> bool {
        false
    }
}

/// Name, source and cost of a pair of local steps and aggregation.
pub trait Published {
    const NAME: &'static str;
    const SUMMARY: &'static str;
    const PAPER: &'static str;

    /// See [`Method::cost`].
    ///
    /// # Errors
    /// As for [`Method::cost`].
    fn cost(&self, _workload: &Workload, _ranks: usize) -> Result<Option<Cost>> {
        Ok(None)
    }
}

fednmf_base::parameters! {
    /// The plain mean of all V_j: component l of V̄ is the mean of their components l.
    pub struct Mean {}
}

impl Aggregate for Mean {
    const NORMALIZE: Normalize = Normalize::None;
    const TERM_IN_FIRST_ROUND: bool = true;

    fn alignment(&self) -> Alignment {
        Alignment::Identity
    }

    fn barycenter(&self, _masked: bool) -> Barycenter {
        Barycenter::Mean
    }
}

impl<L: LocalStep, A: Aggregate> Federated<L, A> {
    fn settings(&self) -> FederatedSettings {
        let Federated { local, aggregate, federated } = self;
        let (rounds, masked) = (local.rounds(), federated.sum.secure_sum);
        FederatedSettings {
            schedule: L::SCHEDULE,
            local: local.steps(),
            gamma: local.gamma(),
            term_in_first_round: A::TERM_IN_FIRST_ROUND,
            align: aggregate.alignment(),
            barycenter: aggregate.barycenter(masked),
            independent: federated.start.given().unwrap_or(A::start(masked)) == StartOfV::Independent,
            participation: rounds.map_or(1.0, |rounds| rounds.participation),
            missing: rounds.map_or(PartyMissing::None, |rounds| rounds.missing.missing),
            personalize: aggregate.personalizes(),
            unit: rounds.is_some_and(|rounds| rounds.normalizes(A::NORMALIZE)),
        }
    }
}

impl<L: LocalStep, A: Aggregate> Method for Federated<L, A>
where
    Self: Published,
{
    const DESCRIPTION: &'static Description = &Description {
        name: Self::NAME,
        summary: Self::SUMMARY,
        paper: Self::PAPER,
        partition: Partition::PartyRows,
        unit: L::SCHEDULE.unit(),
        measure: Measure::Rmsd,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some(LIMITS),
        messages: L::SCHEDULE.messages(),
        ..Description::USUAL
    };

    fn check(&self) -> Result<()> {
        self.aggregate.check()?;
        self.local.rounds().map_or(Ok(()), |rounds| rounds.check_scale(&self.federated, A::NORMALIZE))
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        Published::cost(self, workload, ranks)
    }

    fn participants(&self, parties: usize) -> usize {
        self.settings().participants(parties)
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(match L::SCHEDULE {
            Schedule::Rounds => OpenedSums::EachIteration(1),
            Schedule::Once => OpenedSums::AtEvaluations,
        })
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        // Without a bound of the method, --clip bounds what is sent, whatever its size.
        let messages = self.settings().messages(run.max_iters, (run.n, run.k), 1.0);
        dp::plan(&self.federated.dp, self.federated.sum.secure_sum, messages, run.parties)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        run::build(problem, self.settings(), &self.federated)
    }
}

fednmf_base::words! {
    /// How the parties' V start.
    pub enum StartOfV {
        /// Each its own
        Independent = "independent",
        /// The same for all
        Shared = "shared",
    }
}

fednmf_base::parameters! {
    /// Options of all federated methods with private rows.
    pub struct FederatedParams {
        /// Start of the parties' V: independent, or shared by all. auto: independent, but shared for fnmf with --secure-sum
        pub start: Auto<StartOfV> = Auto::Auto, "HOW";
        group regularization: RegularizationParams;
        group dp: DpParams;
        group sum: SecureSumParams;
        group threshold: ThresholdParams;
    }
}

fednmf_base::words! {
    /// How a party steps between two exchanges.
    pub enum Update {
        /// Inertial proximal gradient steps
        Ipalm = "ipalm",
        /// Sweeps, component by component
        Hals = "hals",
    }
}

fednmf_base::words! {
    /// The scale of the components that parties release.
    pub enum Normalize {
        /// Norm 1; U takes up the factor
        Unit = "unit",
        /// As they are
        None = "none",
    }
}

fednmf_base::parameters! {
    /// Options of the methods that exchange in every round.
    pub struct RoundParams {
        /// Steps of a party between two exchanges
        pub local_iters: usize = 10, "N", count(1);
        /// A party ends its local steps early when both factors change less than this, relatively
        pub local_tol: f64 = 0.0, "X", number(0.0, f64::INFINITY);
        /// How a party updates a factor
        pub update: Update = Update::Ipalm, "NAME";
        /// Share of the last change that a proximal step carries on: X (t-1)/(t+2) in local step t; 0 for none
        #[unless(|p| p.update == Update::Hals, "carries on proximal steps; --update hals has none")]
        pub inertia: f64 = 1.0, "X", number(0.0, 1.0);
        /// Share of the parties that take part in a round, drawn by --seed
        pub participation: f64 = 1.0, "SHARE", number(1e-9, 1.0);
        /// Scale of the components that parties release. auto: unit for fnmf and with --update hals, else none
        pub normalize: Auto<Normalize> = Auto::Auto, "HOW";
        group missing: PartyMissingParams;
    }
}

impl LocalStep for RoundParams {
    const SCHEDULE: Schedule = Schedule::Rounds;

    fn steps(&self) -> LocalSteps {
        let rule = match self.update {
            Update::Hals => LocalRule::Hals,
            Update::Ipalm => LocalRule::Ipalm { inertia: self.inertia },
        };
        LocalSteps { steps: self.local_iters, tolerance: self.local_tol, rule }
    }

    fn rounds(&self) -> Option<&RoundParams> {
        Some(self)
    }
}

fednmf_base::parameters! {
    /// The same with a proximal term ½ γ ‖V_j − V̄‖² in the steps of V_j.
    pub struct ProximalParams {
        group rounds: RoundParams;
        /// Weight of the pull of a party's V to the shared one, in every local step
        pub gamma: f64 = 0.1, "X", number(0.0, f64::INFINITY);
    }
}

impl LocalStep for ProximalParams {
    const SCHEDULE: Schedule = Schedule::Rounds;

    fn steps(&self) -> LocalSteps {
        self.rounds.steps()
    }

    fn gamma(&self) -> f64 {
        self.gamma
    }

    fn rounds(&self) -> Option<&RoundParams> {
        Some(&self.rounds)
    }
}

impl RoundParams {
    /// Refuses penalties where components are rescaled; `auto` is the scale with `--normalize auto` and proximal steps.
    fn check_scale(&self, federated: &FederatedParams, auto: Normalize) -> Result<()> {
        if self.normalizes(auto) && federated.regularization.is_on() {
            return Err(Error::input(
                "--alpha-u, --alpha-v: --normalize unit rescales the components after each round, and with them the penalties; \
                 add --normalize none",
            ));
        }
        Ok(())
    }

    /// Whether components are released at norm 1. HALS gives a component the scale that fits it at the time, and the
    /// largest would dominate the mean.
    fn normalizes(&self, auto: Normalize) -> bool {
        let auto = if self.update == Update::Hals { Normalize::Unit } else { auto };
        self.normalize.given().unwrap_or(auto) == Normalize::Unit
    }
}

/// Messages that leave a party in a method with rounds.
const MESSAGES: &[MessageSpec] = &with_private([
    MessageSpec::new(UPLOAD, "n x k", "each round, from the parties that take part").within_rank(),
    MessageSpec::new(DOWNLOAD, "n x k", "each round, to the parties that take part").within_rank(),
    MessageSpec::new(INSIDE, "n x k + k + 1, summed", "some times a round, between the ranks that play the server"),
    MessageSpec::new(masked(SUM_V), "n x k", "each round, with --secure-sum")
        .under_mpirun("", " instead of all that the server has")
        .noised(),
]);

/// Messages that leave a party in a method that averages once.
const MESSAGES_ONCE: &[MessageSpec] = &with_private([
    MessageSpec::new(UPLOAD, "n x k", "once, at the end; before that at each evaluation (not with --dp)").within_rank(),
    MessageSpec::new(DOWNLOAD, "n x k", "as often").within_rank(),
    MessageSpec::new(
        INSIDE,
        "n x k + k + 1, summed",
        "once, at the end, and at each evaluation (not with --dp), between the ranks that play the server",
    ),
    MessageSpec::new(
        masked(SUM_V),
        "n x k",
        "once, at the end, and at each evaluation (not with --dp); with --secure-sum",
    )
    .under_mpirun("", " instead of all that the server has")
    .noised(),
]);

/// Adds the message kinds of both schedules.
const fn with_private([a, b, c, d]: [MessageSpec; 4]) -> [MessageSpec; 13] {
    let errors = MessageSpec::new(measure::ERRORS, "12", "each evaluation");
    let masked = MessageSpec::new(masked(measure::ERRORS), "12", "the same, with --secure-sum");
    let keys = MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum");
    let [e, f, g] = SURVIVING;
    [a, b, c, d, errors, masked, dp::MESSAGES, dp::MESSAGES_MASKED, keys, e, f, g, LARGEST_TERM]
}

/// When the parties exchange their factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// After every round of local steps; an iteration is a round.
    Rounds,
    /// Once, at the end; an iteration is a local step.
    Once,
}

impl Schedule {
    const fn unit(self) -> Unit {
        match self {
            Schedule::Rounds => Unit::Round,
            Schedule::Once => Unit::Update,
        }
    }

    const fn messages(self) -> &'static [MessageSpec] {
        match self {
            Schedule::Rounds => MESSAGES,
            Schedule::Once => MESSAGES_ONCE,
        }
    }
}

impl FederatedSettings {
    /// How many of the `parties` that have rows take part in a round.
    pub fn participants(&self, parties: usize) -> usize {
        (self.participation * parties as f64).ceil() as usize
    }
}

/// The parameters of a method in the form that the loop needs.
#[derive(Debug, Clone, Copy)]
pub struct FederatedSettings {
    pub schedule: Schedule,
    pub local: LocalSteps,
    /// Weight of the proximal term; 0 for none.
    pub gamma: f64,
    /// See [`Aggregate::TERM_IN_FIRST_ROUND`]; matters only for independent starts.
    pub term_in_first_round: bool,
    pub align: Alignment,
    pub barycenter: Barycenter,
    /// Whether each party has its own start of V_j.
    pub independent: bool,
    /// Share of the parties that take part in a round.
    pub participation: f64,
    /// Which entries of the parties' data are missing.
    pub missing: PartyMissing,
    pub personalize: bool,
    /// Whether components are compared and averaged at norm 1.
    pub unit: bool,
}

impl FederatedSettings {
    /// What parties release with `--dp`: V_j (n × k), with entries of this size at the start.
    pub fn messages(&self, max_iters: usize, (n, k): (usize, usize), entry: f64) -> Messages {
        let natural = self.unit.then_some(Bound::Units(k));
        let once = self.schedule == Schedule::Once;
        Messages { max_iters, once, length: n * k, natural, entry, boolean: false }
    }
}
