//! Differential privacy from the methods' point of view: parameters, requests, and a run's releases.

use std::path::{Path, PathBuf};

use rand::Rng;
use serde_json::Value;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::units::{precise, short};
use fednmf_comm::party_sum::{PartySum, masked};
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, SavedState, State};
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::{Bound, Mechanism, NOISE_KEY, NoisePlan, NoiseRequest, Releases};

use crate::Measures;
use crate::description::{Description, MessageSpec, ProtectedUnit, Unit};
use crate::parameters::{Auto, OrNone, SecretSource, auto, count, number};

fednmf_base::words! {
    /// The noise of `--dp`.
    pub enum Noise {
        None = "none",
        Gaussian = "gaussian",
        Laplace = "laplace",
        /// Flipped bits, for Boolean methods
        Xor = "xor",
    }
}

fednmf_base::words! {
    /// From a budget to the scale of Gaussian noise.
    pub enum Calibration {
        /// Exact (Balle and Wang)
        Analytic = "analytic",
        /// The papers' formula, refused where it does not hold
        Classic = "classic",
    }
}

const ANY: f64 = f64::INFINITY;

fednmf_base::parameters! {
    /// Differential privacy of what parties release.
    pub struct DpParams {
        /// Differential privacy of what a party releases; see --dp-unit for what it protects. With --secure-sum only the sum is
        /// noised, by shares. Noise is a whole number of steps of a grid that releases are rounded to before, drawn without
        /// floating-point arithmetic, so that rounding reveals nothing behind the noise
        pub dp: Noise = Noise::None, "NOISE";
        /// What --dp protects against replacement by any other: the whole data of a party, or a column. auto: the one that the method
        /// offers, a column for secure-hals and a party for all others
        pub dp_unit: Auto<ProtectedUnit> = Auto::Auto, "UNIT";
        /// The epsilon of the whole run, split over its releases; the run stops before it is exceeded. auto: no budget, the noise is
        /// that of --dp-noise
        pub epsilon: Auto<f64> = Auto::Auto, "X", auto(number(0.0, ANY));
        /// The delta beside --epsilon
        #[needs(dp: "there is no noise without --dp; add --dp gaussian")]
        pub delta: f64 = 1e-5, "X", number(0.0, 0.5);
        /// How far a party's release may be from the last shared factor (gaussian: Euclidean norm, laplace: sum of magnitudes),
        /// or how many ones it may have (xor). secure-hals: the norm to which longer columns are scaled down in what is released;
        /// a public number, not one found in the data. auto: the method's own bound, if it has one; secure-hals: all columns
        /// count with norm 1
        pub clip: Auto<f64> = Auto::Auto, "X", auto(number(0.0, ANY));
        /// From budget to Gaussian noise
        #[needs(dp: "there is no noise without --dp; add --dp gaussian")]
        pub dp_calibration: Calibration = Calibration::Analytic, "HOW";
        /// Noise of an entry: standard deviation (gaussian), scale (laplace) or chance of a flip (xor), of a message or, with
        /// --secure-sum, of the sum. auto: from --epsilon. With both, the budget determines how many releases there are
        pub dp_noise: Auto<f64> = Auto::Auto, "X", auto(number(0.0, ANY));
        /// Releases that --epsilon is split over. auto: one for each of --max-iters, at most 8 for
        /// secure-hals, or 1 where parties exchange once
        #[needs(dp: "there is no noise without --dp; add --dp gaussian, laplace or xor")]
        pub dp_releases: Auto<usize> = Auto::Auto, "N", auto(count(1));
        /// A file that remembers what all runs on this data have spent; a run that would exceed its limit, or protects something
        /// else, is refused. Runs with Gaussian noise compose to less than the sum of their epsilons. With {party} in its name
        /// each party has its own, next to its data
        pub budget: OrNone<PathBuf> = OrNone::None, "F.json|none";
        /// What all runs on this data may spend together, for a new --budget file
        #[affects_result = false]
        pub budget_limit: Auto<f64> = Auto::Auto, "X", auto(number(0.0, ANY));
        /// Where secrets (keys, masks, noise) come from: the operating system, or a number that anybody can guess; for tests
        /// only
        pub secret_seed: SecretSource = SecretSource::OperatingSystem, "N|os";
    }
}

/// The path of a budget file, and the limit to write if the file is new.
#[derive(Debug, Clone, Copy)]
pub struct BudgetPath<'a> {
    pub path: &'a Path,
    pub limit: Option<f64>,
}

impl DpParams {
    /// The `--budget` file, if there is one.
    pub fn budget_path(&self) -> Option<BudgetPath<'_>> {
        self.budget.as_ref().map(|path| BudgetPath { path, limit: self.budget_limit.given() })
    }

    /// Whether releases are noised.
    pub fn is_on(&self) -> bool {
        self.dp != Noise::None
    }

    fn mechanism(&self) -> Option<Mechanism> {
        match self.dp {
            Noise::None => None,
            Noise::Gaussian => Some(Mechanism::Gaussian),
            Noise::Laplace => Some(Mechanism::Laplace),
            Noise::Xor => Some(Mechanism::Xor),
        }
    }

    /// Checks everything that is known before data is read.
    ///
    /// # Errors
    /// If an option is wrong; the message names it.
    pub fn check(&self, unit: ProtectedUnit) -> Result<()> {
        if self.budget.as_ref().is_some() && (!self.is_on() || self.epsilon.given().is_none()) {
            let missing = match (self.is_on(), self.epsilon.given()) {
                (false, None) => "--dp and --epsilon",
                (false, Some(_)) => "--dp",
                (true, _) => "--epsilon",
            };
            return Err(Error::input(format!(
                "--budget: only a run with a budget of its own has a bound; add {missing}"
            )));
        }
        if self.budget.as_ref().is_none() && self.budget_limit.given().is_some() {
            return Err(Error::input("--budget-limit: is the limit of a --budget file; name the file"));
        }
        if !self.is_on() {
            let given = [("epsilon", self.epsilon), ("clip", self.clip), ("dp-noise", self.dp_noise)];
            return match given.into_iter().find(|(_, value)| value.given().is_some()) {
                Some((name, _)) => Err(Error::input(format!(
                    "--{name}: there is no noise without --dp; add --dp gaussian, laplace or xor"
                ))),
                None if self.dp_unit.given().is_some() => {
                    Err(Error::input("--dp-unit: there is no noise without --dp; add --dp gaussian"))
                }
                None => Ok(()),
            };
        }
        match (self.dp_unit.given().unwrap_or(unit), unit) {
            (ProtectedUnit::Column, ProtectedUnit::Party) => {
                return Err(Error::input(
                    "--dp-unit column: this method protects the whole data of a party; secure-hals --dp protects a column",
                ));
            }
            (ProtectedUnit::Party, ProtectedUnit::Column) => {
                return Err(Error::input(
                    "--dp-unit party: secure-hals protects single columns; syn-sd --dp protects the whole data of a party",
                ));
            }
            _ => {}
        }
        if unit == ProtectedUnit::Column && self.dp != Noise::Gaussian {
            return Err(Error::input("--dp: noise on sums over columns is Gaussian; use --dp gaussian"));
        }
        if unit == ProtectedUnit::Column && self.clip.given() == Some(0.0) {
            return Err(Error::input("--clip 0: leaves nothing to send"));
        }
        if self.epsilon.given().is_none() && self.dp_noise.given().is_none() {
            return Err(Error::input(
                "--dp: give --epsilon, the budget of the whole run (1 is strict, 10 weak), or --dp-noise",
            ));
        }
        if self.dp_calibration == Calibration::Classic && self.dp != Noise::Gaussian {
            return Err(Error::input("--dp-calibration classic: the papers' formula is for --dp gaussian"));
        }
        Ok(())
    }

    /// The number of releases over which the budget of a run with `max_iters` iterations is split; `None` without a budget.
    pub fn planned(&self, max_iters: usize, method: &Description) -> Option<u64> {
        let budget = self.is_on() && self.epsilon.given().is_some();
        let columns = method.protects() == Some(ProtectedUnit::Column);
        let most = if columns { max_iters.min(COLUMN_RELEASES) } else { max_iters };
        budget.then(|| self.releases(most, method.unit != Unit::Round && !columns))
    }

    fn releases(&self, max_iters: usize, once: bool) -> u64 {
        let all = if once { 1 } else { max_iters.max(1) };
        self.dp_releases.given().unwrap_or(all) as u64
    }
}

/// The default of `--dp-releases` for sums over columns. With more releases, the additional noise in each outweighs their
/// benefit.
pub const COLUMN_RELEASES: usize = 8;

/// The number of clipped releases of the parties.
const CUT: MessageTag = MessageTag::of_evaluation("evaluation: clipped releases", Payload::Scalar);

/// The line of the message table for methods with [`DpParams`].
pub const MESSAGES: MessageSpec = MessageSpec::new(CUT, "1 for each party", "each evaluation, with --dp");
/// The same line for masked sums.
pub const MESSAGES_MASKED: MessageSpec =
    MessageSpec::new(masked(CUT), "1 for each party", "the same, with --secure-sum");

/// What a method releases.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Maximum number of iterations. There is one release in each, or one in all.
    pub max_iters: usize,
    pub once: bool,
    /// Entries of a message.
    pub length: usize,
    /// The method's own bound on messages; `None` if it has none.
    pub natural: Option<Bound>,
    /// Typical size of an entry of the parties' messages at the start.
    pub entry: f64,
    /// Whether messages are Boolean.
    pub boolean: bool,
}

/// The releases of a run; `None` without `--dp`. `masked` says whether sums over parties are masked. Collective.
///
/// # Errors
/// On all ranks, if the request cannot be met; the message gives the reason.
pub fn releases(
    args: &DpParams,
    masked: bool,
    messages: Messages,
    parties: Parties,
    comm: &PartyCommunicator,
) -> SharedResult<Option<Releases>> {
    let Some(plan) = plan(args, masked, messages, parties.count).map_err(Error::on_all_ranks)? else {
        return Ok(None);
    };
    let secret_seed = args.secret_seed.seed();
    let key = |party: usize| {
        let mut key = [0; NOISE_KEY];
        secret_rng(secret_seed, NOISE ^ party as u64)?.fill_bytes(&mut key);
        Ok(key)
    };
    let keys = parties.hosted(comm.rank()).map(key).collect::<Result<Vec<_>>>();
    Ok(Some(Releases::new(plan, comm.agree_on_error(keys)?)))
}

/// A warning if the noise of all `parties` is larger than all that they may release; k components of m rows.
pub fn too_noisy(plan: &NoisePlan, parties: usize, (m, k): (usize, usize)) -> Option<String> {
    let ratio = plan.noise_over_bound(parties, (m, k));
    let (of, more) = match plan.releases_columns() {
        true => ("the share of a component in the norm of all columns", "columns"),
        false => ("all that they may release together", "parties"),
    };
    (ratio > 1.0).then(|| {
        format!(
            "--dp: the noise on what {parties} parties release is {ratio:.1} times {of}, so the components will be mostly noise; use a \
             larger --epsilon, fewer releases (--dp-releases), fewer components or more {more}"
        )
    })
}

/// What is known of a run before it begins.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub max_iters: usize,
    pub parties: usize,
}

/// The noise of the releases; `None` without `--dp`. It is the same on all ranks.
///
/// # Errors
/// If the request cannot be met; the message gives the reason.
pub fn plan(args: &DpParams, masked: bool, messages: Messages, parties: usize) -> Result<Option<NoisePlan>> {
    let Some(mechanism) = args.mechanism() else { return Ok(None) };
    let clip = args.clip.given();
    if mechanism == Mechanism::Laplace && masked {
        return Err(Error::input(
            "--dp laplace: its noise cannot be shared out among the parties of a --secure-sum; use --dp gaussian",
        ));
    }
    let bound = match (mechanism, clip, messages.natural) {
        (_, _, Some(columns @ Bound::Columns(_))) => columns,
        (Mechanism::Xor, Some(ones), _) => Bound::Ones(ones.max(1.0) as usize),
        (Mechanism::Xor, None, _) => Bound::Box,
        (_, Some(radius), _) if radius > 0.0 => Bound::Ball(radius),
        (_, Some(_), _) => return Err(Error::input("--clip 0: leaves nothing to send")),
        (_, None, natural) => natural.ok_or_else(|| {
            let length = messages.length as f64;
            let (norm, size) = match mechanism {
                Mechanism::Laplace => ("sum of magnitudes", messages.entry * length),
                _ => ("norm", messages.entry * length.sqrt()),
            };
            Error::input(format!(
                "--dp: this method does not bound what its parties send, so say how far a release may move with --clip X; what \
                 they share has a {norm} of about {} at the start, and a hundredth of it is a sensible first value: --clip {}",
                short(size),
                short(size / 100.0)
            ))
        })?,
    };
    if mechanism == Mechanism::Xor && !messages.boolean {
        return Err(Error::input("--dp xor: flips bits, and this method sends numbers; use gaussian or laplace"));
    }
    let noise = args.dp_noise.given();
    let request = NoiseRequest {
        mechanism,
        epsilon: args.epsilon.given(),
        delta: args.delta,
        noise,
        classic: args.dp_calibration == Calibration::Classic,
        releases: match args.epsilon.given() {
            // Without a budget, the number of releases is not limited.
            None => u64::MAX,
            Some(_) => args.releases(messages.max_iters, messages.once),
        },
    };
    // Randomised response flips the bits at each party, so noise is not shared over the parties.
    let sharing = (masked && mechanism != Mechanism::Xor).then_some(parties);
    NoisePlan::new(request, bound, messages.length, sharing).map(Some)
}

/// Separates noise keys from other secrets derived from the same `--secret-seed`.
const NOISE: u64 = 0x6e6f_6973_6500_0000;

/// Adds the number of clipped releases of all parties to the measures. Collective.
///
/// # Errors
/// As [`PartySum::sum`].
pub fn measure(
    releases: Option<&Releases>,
    party_sum: &mut PartySum,
    comm: &PartyCommunicator,
    measures: &mut Measures,
) -> Result<()> {
    let Some(releases) = releases else { return Ok(()) };
    let shares: Vec<[f64; 1]> = releases.clipped().map(|cut| [cut as f64]).collect();
    let mut sum = [0.0];
    let (name, most) = match releases.columns() {
        // All columns are scaled, whatever their norm.
        Some(columns) if columns.all => return Ok(()),
        Some(columns) => ("clipped_columns", columns.columns as f64),
        None => ("clipped_releases", releases.done() as f64),
    };
    party_sum.sum(comm, CUT, most.max(1.0), shares.iter().map(<[f64; 1]>::as_slice), &mut sum)?;
    measures.push((name, sum[0]));
    Ok(())
}

/// Adds the releases of each hosted party to its private state. `first` is the first hosted party.
pub fn save<'a, T>(state: State<'a, T>, releases: Option<&Releases>, first: usize) -> State<'a, T> {
    let saved = releases.into_iter().flat_map(Releases::saved).enumerate();
    saved.fold(state, |state, (hosted, own)| state.with(Owner::Party(first + hosted), &own))
}

/// Restores what [`save`] stored.
///
/// # Errors
/// If the checkpoint does not fit.
pub fn restore<T>(saved: &dyn SavedState<T>, releases: Option<&mut Releases>, first: usize) -> Result<()> {
    let Some(releases) = releases else { return Ok(()) };
    (0..releases.hosted()).try_for_each(|hosted| {
        releases.restore(hosted, saved.read(Owner::Party(first + hosted))?);
        Ok(())
    })
}

/// A run's table of releases as readable lines; empty without a table.
pub fn lines(table: &Value) -> String {
    let Some(table) = table.as_object() else { return String::new() };
    let text = |name: &str| match &table[name] {
        Value::String(text) => text.clone(),
        Value::Number(x) => x.as_f64().map_or_else(|| x.to_string(), precise),
        other => other.to_string(),
    };
    let count = |name: &str| table[name].as_u64().map_or_else(|| "any number".into(), |c| c.to_string());
    let budget = match table["epsilon"].as_f64() {
        Some(budget) => format!(" of {budget}"),
        None => " (no budget)".into(),
    };
    let rows = [
        ("guarantee", text("verdict")),
        ("unit", text("unit")),
        ("noise", format!("{}, {} on {}", text("mechanism"), text("noise"), text("noise_on"))),
        ("bound", format!("{}; sensitivity {}", text("bound"), text("sensitivity"))),
        ("releases", format!("{} of {}", count("releases"), count("releases_planned"))),
        ("epsilon", format!("{}{budget}, delta {}", text("epsilon_spent"), table["delta"])),
    ];
    let mut out = String::from("differential privacy\n");
    rows.iter().for_each(|(name, value)| out.push_str(&format!("  {name:<12} {value}\n")));
    out
}
