//! Differential privacy as the algorithms see it: the options, what they ask for, and a run's releases.

use serde_json::Value;

use crate::algorithms::Measures;
use crate::algorithms::options::{
    CLIP, DELTA, DP, DP_CALIBRATION, DP_NOISE, DP_RELEASES, EPSILON, HEADROOM, Options, SECRET_SEED, SECURE_SUM,
    SECURE_THRESHOLD, Taken,
};
use crate::algorithms::registry::MessageSpec;
use crate::comm::{Communicator, MessageTag, Parties, Payload};
use crate::error::{Error, Result};
use crate::privacy::{
    ANSWERS, Asked, Bound, Mechanism, NOISE_KEY, Plan, ROUND_KEYS, Releases, SEALED_SHARES, Summer, masked,
};
use crate::random::secret_rng;
use crate::state::{Owner, SavedState, State};
use rand::Rng;

/// The options of every algorithm whose parties release factors.
pub const OPTIONS: [Taken; 10] = [
    DP.or("none"),
    EPSILON.or("auto"),
    DELTA.or("1e-5"),
    CLIP.or("auto"),
    DP_CALIBRATION.or("analytic"),
    DP_NOISE.or("auto"),
    DP_RELEASES.or("auto"),
    SECURE_SUM.or("false"),
    HEADROOM.or("16"),
    SECRET_SEED.or("os"),
];

/// How many releases of the parties had to be cut.
const CUT: MessageTag = MessageTag::new("evaluation: clipped releases", Payload::Scalar);

/// The line of the wire table that comes with [`OPTIONS`].
pub const MESSAGES: MessageSpec = MessageSpec::new(CUT, "1 for each party", "each evaluation, with --dp");
/// The same, masked.
pub const MESSAGES_MASKED: MessageSpec =
    MessageSpec::new(masked(CUT), "1 for each party", "the same, with --secure-sum");

/// What a party says beside its masked values where sums go on without lost parties.
pub const SURVIVING: [MessageSpec; 3] = [
    MessageSpec::new(ROUND_KEYS, "64 bytes", "each sum, with --secure-threshold"),
    MessageSpec::new(SEALED_SHARES, "80 bytes for each other party", "each sum, with --secure-threshold"),
    MessageSpec::new(ANSWERS, "40 bytes for each party", "each sum, with --secure-threshold"),
];

/// `own` options and [`OPTIONS`], for a registry entry; N is their number.
pub const fn with<const M: usize, const N: usize>(own: [Taken; M]) -> [Taken; N] {
    let mut all = [OPTIONS[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < M { own[at] } else { OPTIONS[at - M] };
        at += 1;
    }
    all
}

/// The mechanism that the options name.
fn mechanism(options: &Options) -> Option<Mechanism> {
    match options.word(&DP) {
        "gaussian" => Some(Mechanism::Gaussian),
        "laplace" => Some(Mechanism::Laplace),
        "xor" => Some(Mechanism::Xor),
        _ => None,
    }
}

/// What can be said of the options before any data is read.
///
/// # Errors
/// Naming the option that is wrong.
pub fn check(options: &Options) -> Result<()> {
    if options.count_or_none(&SECURE_THRESHOLD).is_some() {
        if !options.flag(&SECURE_SUM) {
            return Err(Error::input("--secure-threshold: is about masked sums; add --secure-sum"));
        }
        if options.takes(&DP) && mechanism(options).is_some() {
            return Err(Error::input(
                "--secure-threshold: parties that vanish take their share of the noise along; leave it or --dp out",
            ));
        }
    }
    if !options.takes(&DP) {
        return Ok(());
    }
    if mechanism(options).is_none() {
        let given = [&EPSILON, &CLIP, &DP_NOISE].into_iter().find(|o| options.number_or_auto(o).is_some());
        return match given {
            Some(option) => Err(Error::input(format!(
                "--{}: there is no noise without --dp; add --dp gaussian, laplace or xor",
                option.name
            ))),
            None => Ok(()),
        };
    }
    if options.number_or_auto(&EPSILON).is_none() && options.number_or_auto(&DP_NOISE).is_none() {
        return Err(Error::input("--dp: give --epsilon, the budget of the whole run, or --dp-noise"));
    }
    if options.word(&DP_CALIBRATION) == "classic" && options.word(&DP) != "gaussian" {
        return Err(Error::input("--dp-calibration classic: the papers' formula is for --dp gaussian"));
    }
    Ok(())
}

/// The releases that a run's budget is split over, for `max_iters` iterations; `None` where there is no budget.
pub fn planned(options: &Options, max_iters: usize, once: bool) -> Option<u64> {
    let budget = options.takes(&DP) && mechanism(options).is_some() && options.number_or_auto(&EPSILON).is_some();
    budget.then(|| asked_releases(options, max_iters, once))
}

fn asked_releases(options: &Options, max_iters: usize, once: bool) -> u64 {
    let all = if once { 1 } else { max_iters.max(1) };
    options.count_or_auto(&DP_RELEASES).unwrap_or(all) as u64
}

/// A method's side of its releases.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Iterations of the run; a release each, unless there is but one.
    pub max_iters: usize,
    pub once: bool,
    /// Entries of a message.
    pub length: usize,
    /// What the method itself keeps messages within, if it does.
    pub natural: Option<Bound>,
    /// Whether messages are Boolean.
    pub boolean: bool,
}

/// The releases of a run, where the options ask for privacy.
///
/// # Errors
/// When what is asked for cannot be had, with the reason.
pub fn releases(
    options: &Options,
    messages: Messages,
    parties: Parties,
    comm: &Communicator,
) -> Result<Option<Releases>> {
    let Some(mechanism) = mechanism(options) else { return Ok(None) };
    let masked = options.flag(&SECURE_SUM);
    let clip = options.number_or_auto(&CLIP);
    if mechanism == Mechanism::Laplace && masked {
        return Err(Error::input(
            "--dp laplace: its noise cannot be shared out among the parties of a --secure-sum; use --dp gaussian",
        ));
    }
    let bound = match (mechanism, clip) {
        (Mechanism::Xor, Some(ones)) => Bound::Ones(ones.max(1.0) as usize),
        (Mechanism::Xor, None) => Bound::Box,
        (_, Some(radius)) if radius > 0.0 => Bound::Ball(radius),
        (_, Some(_)) => return Err(Error::input("--clip 0: leaves nothing to send")),
        (_, None) => messages.natural.ok_or_else(|| {
            Error::input(
                "--dp: this method does not bound what its parties send; say how far a release may move, --clip X",
            )
        })?,
    };
    if mechanism == Mechanism::Xor && !messages.boolean {
        return Err(Error::input("--dp xor: flips bits, and this method sends numbers; use gaussian or laplace"));
    }
    let noise = options.number_or_auto(&DP_NOISE);
    let asked = Asked {
        mechanism,
        epsilon: options.number_or_auto(&EPSILON),
        delta: options.number(&DELTA),
        noise,
        classic: options.word(&DP_CALIBRATION) == "classic",
        releases: match options.number_or_auto(&EPSILON) {
            // Without a budget nothing ends but by its own.
            None => u64::MAX,
            Some(_) => asked_releases(options, messages.max_iters, messages.once),
        },
    };
    // Flipped bits are noise of each party's own, whoever adds them up.
    let sharing = (masked && mechanism != Mechanism::Xor).then_some(parties.count);
    let plan = Plan::new(asked, bound, messages.length, sharing)?;
    let secret_seed = options.seed(&SECRET_SEED);
    let key = |party: usize| {
        let mut key = [0; NOISE_KEY];
        secret_rng(secret_seed, NOISE ^ party as u64)?.fill_bytes(&mut key);
        Ok(key)
    };
    let keys = parties.hosted(comm.rank()).map(key).collect::<Result<Vec<_>>>()?;
    Ok(Some(Releases::new(plan, keys)))
}

/// Keeps keys of noise apart from other secrets of the same `--secret-seed`.
const NOISE: u64 = 0x6e6f_6973_6500_0000;

/// Sums in the clear or masked, as the options say. Collective.
///
/// # Errors
/// As [`Summer::masked`].
pub fn summer(comm: &Communicator, parties: Parties, options: &Options) -> Result<Summer> {
    if !options.flag(&SECURE_SUM) {
        return Ok(Summer::plain(comm, parties));
    }
    match options.count_or_none(&SECURE_THRESHOLD) {
        Some(threshold) => Summer::surviving(comm, parties, options.count(&HEADROOM), threshold),
        None => Summer::masked(comm, parties, options.count(&HEADROOM)),
    }
}

/// Adds to the measures how many releases were cut, of all parties. Collective.
///
/// # Errors
/// As [`Summer::sum`].
pub fn measure(
    releases: Option<&Releases>,
    summer: &mut Summer,
    comm: &Communicator,
    measures: &mut Measures,
) -> Result<()> {
    let Some(releases) = releases else { return Ok(()) };
    let shares: Vec<[f64; 1]> = releases.cut().map(|cut| [cut as f64]).collect();
    let mut sum = [0.0];
    let most = (releases.done() as f64).max(1.0);
    summer.sum(comm, CUT, most, shares.iter().map(<[f64; 1]>::as_slice), &mut sum)?;
    measures.push(("clipped_releases", sum[0]));
    Ok(())
}

/// Adds each hosted party's releases to its private state; the first of these parties is `first`.
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

/// A run's table of releases as lines for people; nothing where there is no table.
pub fn lines(table: &Value) -> String {
    let Some(table) = table.as_object() else { return String::new() };
    let text = |name: &str| match &table[name] {
        Value::String(text) => text.clone(),
        Value::Number(x) => x.as_f64().map_or_else(|| x.to_string(), |x| format!("{x:.6}")),
        other => other.to_string(),
    };
    let count = |name: &str| table[name].as_u64().map_or_else(|| "any number".into(), |c| c.to_string());
    let budget = match table["epsilon"].as_f64() {
        Some(budget) => format!(" of {budget}"),
        None => " (no budget)".into(),
    };
    let beside: Vec<&str> = table["not_covered"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let rows = [
        ("unit", text("unit")),
        ("noise", format!("{}, {} on {}", text("mechanism"), text("noise"), text("noise_on"))),
        ("bound", format!("{}; sensitivity {}", text("bound"), text("sensitivity"))),
        ("releases", format!("{} of {}", count("releases"), count("releases_planned"))),
        ("epsilon", format!("{}{budget}, delta {}", text("epsilon_spent"), table["delta"])),
        ("not covered", beside.join("; ")),
    ];
    let mut out = String::from("differential privacy\n");
    rows.iter().for_each(|(name, value)| out.push_str(&format!("  {name:<12} {value}\n")));
    out
}
