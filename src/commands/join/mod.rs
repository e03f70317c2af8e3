//! `fednmf join`: one party of a factorisation, on its own machine with its own data.

mod agreement;
pub mod encryption;
pub mod hold;
mod messages;
mod policy;
pub mod profile;
pub mod proposal;
mod run_log;
pub mod work;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::printable::printable;
use fednmf_base::stdout::print_line;
use fednmf_base::warning::{say, warn};
use fednmf_comm::{CONTROL, Communicator, watchdog};
use fednmf_data::memory;
use fednmf_driver::spec::{Consent, Every, SAMPLE_INPUT, Spec};
use fednmf_driver::{budget, own_files};
use fednmf_files::Source;
use fednmf_files::output::attributes;
use fednmf_methods::description::Partition;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::shared::dp;
use fednmf_methods::shared::dp::Expected;
use fednmf_privacy::sharing::COMPUTING;
use fednmf_privacy::transcript::Subject;
use fednmf_privacy::{NoisePlan, Public};
use fednmf_sites::{Address, Config, Identity, Signed, SiteLog, Sites};

use self::agreement::{Agreement, POLICY, digest_of};
use self::encryption::Recipients;
use self::hold::Held;
use self::messages::Message;
use self::policy::{Hold, Intended, Policy};
use self::profile::Profile;
use self::proposal::{Approved, Proposal};
use self::run_log::RunLog;
use self::work::{JointWork, Work};
use super::factorize::RunArgs;
use super::prepare::{Preparation, PrepareArgs};
use super::programs::{JointPrograms, ProgramsArgs};
use super::serve::waiting;

/// Where the hub is, who this is, and what it agrees to; then the options of a run.
#[derive(Debug, Args)]
#[command(after_help = "Options of a method: 'fednmf join --algo NAME -h'; the methods for sites: 'fednmf list'")]
pub struct JoinArgs {
    /// The hub, to which this site connects; through the proxy of https_proxy, if that is set
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "propose", help_heading = "Site")]
    hub: Option<Address>,
    /// The site's certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    cert: PathBuf,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    key: PathBuf,
    /// The certificate of the CA of hub and sites (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    ca: PathBuf,
    /// Take part under this name, which the certificate must have [default: the one that it has]
    #[arg(long, value_name = "NAME", help_heading = "Site")]
    site: Option<String>,
    /// The list of certificates that the CA has revoked (PEM); it is read again when it has changed
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    crl: Option<PathBuf>,
    /// What this site agrees to, in JSON: methods, protections, sizes, budget, outputs, with whom; the guide has all fields
    #[arg(long, value_name = "F.json", action = clap::ArgAction::Append, help_heading = "Site")]
    policy: Vec<PathBuf>,
    /// Agree to whatever the command line says, with whatever sites the hub names
    #[arg(long, conflicts_with = "policy", help_heading = "Site")]
    no_policy: bool,
    /// Settings that belong together. clinical: masked sums (--secure-sum), noise (--dp gaussian) and no evaluations
    /// (--eval-every 0), with --epsilon, --budget and --policy required
    #[arg(long, value_name = "NAME", help_heading = "Site")]
    profile: Option<Profile>,
    /// Write what this run would do and send to this file, signed with --key, for people at all sites to approve, and end;
    /// with --policy its rules then hold for all sites
    #[arg(long, value_name = "F.json", conflicts_with = "approved", help_heading = "Site")]
    propose: Option<PathBuf>,
    /// Run only what this file of 'fednmf approve' approves; no other message leaves
    #[arg(long, value_name = "F.json", help_heading = "Site")]
    approved: Option<PathBuf>,
    /// Add the run to this log of all runs of the site, signed with --key; 'fednmf audit verify' reads it
    #[arg(long, value_name = "F.jsonl", help_heading = "Site")]
    site_log: Option<PathBuf>,
    /// Put the results aside, in a directory F.h5.held that only its owner can read, until 'fednmf audit release'
    #[arg(long, requires = "site_log", help_heading = "Site")]
    hold: bool,
    /// With --hold, keep the results in memory until the run ends, and encrypt them for the person whose public key of age is in
    /// this file; 'fednmf audit key' or age-keygen makes keys
    #[arg(long, value_name = "FILE", requires = "hold", help_heading = "Site")]
    hold_for: Option<PathBuf>,
    /// Wait this time for the hub and the other sites at the start: seconds, or 90s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = waiting, help_heading = "Site")]
    wait: Duration,
    /// Try for this time to get a lost connection back
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = waiting, help_heading = "Site")]
    patience: Duration,
    #[command(flatten)]
    run: RunArgs,
    #[command(subcommand)]
    other: Option<JoinCommand>,
}

impl JoinArgs {
    /// How the site connects; `None` without a hub.
    fn config(&self) -> Option<Config> {
        Some(Config {
            hub: self.hub.clone()?,
            cert: self.cert.clone(),
            key: self.key.clone(),
            ca: self.ca.clone(),
            crl: self.crl.clone(),
            site: self.site.clone(),
            version: attributes::VERSION.into(),
            wait: self.wait,
            reconnect_timeout: self.patience,
            // The rest is for this site's own work.
            max_untaken: (memory::free() / 2.0) as usize,
            progress: watchdog::step,
        })
    }
}

/// What a site takes part in instead of a factorisation.
#[derive(Debug, Subcommand)]
enum JoinCommand {
    /// Prepare the data together with the other sites, by masked sums: counts or tf-idf. INPUT and --output are the site's own files
    Prepare(Box<PrepareArgs>),
    /// The programmes of the cells of all sites as in cNMF, from finished runs, by masked sums. --input, --tpm and --cnmf are the
    /// site's own
    Programs(Box<ProgramsArgs>),
}

/// Whether a word names what a site can take part in instead of a factorisation.
pub fn is_other_work(word: &str) -> bool {
    JoinCommand::has_subcommand(word)
}

/// Options that each site may set for itself: others need not know them, and they do not affect the result.
const OWN: [&str; 4] = ["input", "threads", "budget", "budget_limit"];

/// Takes part in a run; returns the exit code.
///
/// # Errors
/// If an option, a file or a certificate is wrong, the policy does not allow the run, sites differ in their options, or the
/// run fails.
pub fn join(args: JoinArgs, method: Arc<dyn ConfiguredMethod>, process: &Communicator) -> Result<i32> {
    if process.size() > 1 {
        return Err(Error::input("join: a site is one process; start it without mpirun").on_all_ranks().into());
    }
    // Of other options the last one counts: whoever adds one must not replace the policy of the site.
    let policy_file = match &args.policy[..] {
        [] => None,
        [one] => Some(one.as_path()),
        _ => return Err(Error::input("--policy: is given twice; a site has one policy, leave the other out")),
    };
    if policy_file.is_none() && !args.no_policy && args.propose.is_none() {
        return Err(Error::input(
            "join: give --policy F.json, which says what this site agrees to, or --no-policy, if it agrees to all that the \
             command line says, with whatever sites the hub names",
        ));
    }
    let config = args.config();
    // Others that wait for a site that refuses wait no longer.
    let tell = |_: &Error| {
        if let Some(config) = config.as_ref().filter(|_| args.propose.is_none()) {
            fednmf_sites::refuse(config);
        }
    };
    let policy = policy_file.map(Policy::read).transpose().inspect_err(tell)?.unwrap_or_default();
    let joint = |task, run: RunArgs| {
        Work::Joint(Box::new(JointWork {
            task,
            transcript: run.transcript,
            transcript_key: run.transcript_key,
            quiet: run.quiet,
            consent: Consent::default(),
        }))
    };
    let mut work = match args.other {
        None => {
            let mut spec = args.run.check(method, std::env::args().collect())?;
            check_run(&spec, args.propose.is_some())?;
            if let Some(profile) = args.profile {
                let policy = policy_file.map(|path| path.display().to_string());
                spec.consent.profile = Some(profile.check(&spec, policy.as_deref())?);
            }
            Work::Run(Box::new(spec))
        }
        Some(JoinCommand::Prepare(prepare)) => joint(Box::new(Preparation::check(*prepare, true)?), args.run),
        Some(JoinCommand::Programs(programs)) => joint(Box::new(JointPrograms::check(*programs, true)?), args.run),
    };
    let recipients = match work.run() {
        Some(spec) => args.hold_for.as_deref().map(|path| recipients(path, spec)).transpose()?,
        None => None,
    };
    let identity = Identity::read(&args.cert, &args.key, &args.ca, args.crl.as_deref())?;
    let site = || identity.site(args.site.as_deref());
    if let Some(path) = &args.propose {
        let (site, hold) = (site()?, Hold::Encrypted);
        let parties = policy.parties();
        let dp = work.run().and_then(|spec| spec.method.assumed().groups().dp);
        let asks =
            policy.asks_shape() || dp.is_some_and(|dp| parties.is_some() && dp.is_on() || dp.budget_path().is_some());
        let own = if asks { work.own_shape()? } else { None };
        policy.check(POLICY, &Intended { work: &work, site: &site, own, approved: true, logged: true, hold })?;
        if let Some((spec, own)) = work.run().zip(own) {
            // What a run spends does not depend on their number.
            if let Some(plan) = planned_noise(spec, own, parties.unwrap_or(2)) {
                budget::check_left(spec, &plan)?;
            }
            if let Some(warning) = parties.and_then(|parties| too_noisy(spec, own, parties)) {
                warn(&warning);
            }
        }
        let rules = policy_file.is_some().then_some(policy);
        return propose(&Proposal::of(&work, rules), path, &site, &identity);
    }
    let site = site()?;
    let approved = args.approved.as_deref().map(|path| Approved::read(path, &site, identity.authority(), &work));
    let agreement = Agreement { policy, approved: approved.transpose().inspect_err(tell)? };
    let hold = match (&recipients, args.hold) {
        (Some(_), _) => Hold::Encrypted,
        (None, true) => Hold::Aside,
        (None, false) => Hold::No,
    };
    agreement.check(&work, &site, args.site_log.is_some(), hold).inspect_err(tell)?;
    let config = config.ok_or_else(|| Error::input("--hub: say where the hub is"))?;
    work.consent_mut().policy = policy_file.map(digest_of).transpose()?;
    work.consent_mut().proposal = agreement.approved.as_ref().map(|approved| approved.digest.clone());
    let log = match &args.site_log {
        Some(path) => {
            let Config { cert, key, ca, crl, .. } = &config;
            Some(SiteLog::open(path, &site, Identity::read(cert, key, ca, crl.as_deref())?)?)
        }
        None => None,
    };
    let mut held = None;
    let mut _locks = Vec::new();
    let messages = work.messages();
    if let Work::Run(spec) = &mut work {
        held = args.hold.then(|| hold::put_aside(&mut spec.outputs, recipients)).transpose()?;
        _locks = own_files::lock(spec)?;
        if let Some(warning) = in_the_clear(&messages, spec.method.assumed()) {
            warn(&warning);
        }
    }
    if !work.is_quiet() {
        let table = messages::table(&messages, std::io::stderr());
        let name = work.description().name;
        let with = if work.run().is_some() { format!("--algo {name}") } else { name.to_string() };
        say(&format!("What leaves this site with {with}:\n{table}"));
    }
    let sites = Rc::new(Sites::join(config)?);
    let computing =
        if work.description().on_shares { &sites.names()[..sites.names().len().min(COMPUTING)] } else { &[] };
    agreement.check_sites(sites.names(), computing)?;
    if !work.is_quiet() && !computing.is_empty() {
        let who = computing.join(", ");
        say(&format!("sites {who} compute on the secret shares of all; two of them that collude would see all data"));
    }
    let comm = Communicator::over(sites.clone());
    work.consent_mut().logged = log.as_ref().map(|_| sites.run().into());
    comm.set_send_filter(agreement.send_filter());
    let record = log.map(|log| RunLog::begin(log, &work, (&sites, comm.rank()), &agreement)).transpose()?;
    let done = take_part(work, &sites, &comm);
    // First, because what follows may fail.
    let held = held.map(Held::close).transpose();
    match &done {
        Ok(code) => sites.leave(*code),
        Err(e) if e.is_shared() => sites.leave(e.exit_code()),
        // The caller ends the run for all sites.
        Err(_) => {}
    }
    let (held, unheld) = held.map_or_else(|e| (None, Err(e)), |held| (held, Ok(())));
    let noted = record.map_or(Ok(()), |record| record.end(&done, held));
    done.and_then(|code| unheld.and(noted).map(|()| code))
}

/// The keys for which results are encrypted.
///
/// # Errors
/// If the file has none, or the run would write factors to other files too.
fn recipients(path: &Path, spec: &Spec) -> Result<Recipients> {
    for (option, given) in [("--checkpoint", spec.checkpoint.is_some()), ("--record-view", spec.record_view.is_some())]
    {
        if given {
            return Err(Error::input(format!(
                "--hold-for: {option} keeps factors in a file that is not encrypted; leave it out, or use --hold without --hold-for"
            )));
        }
    }
    Recipients::read(path)
}

/// A warning if results of the site's data leave it unprotected, although the method can mask them.
fn in_the_clear(messages: &[Message], method: &dyn ConfiguredMethod) -> Option<String> {
    let groups = method.groups();
    if groups.secure_sum.is_none_or(|sum| sum.secure_sum) || groups.dp.is_some_and(|dp| dp.is_on()) {
        return None;
    }
    let mut clear: Vec<&str> = messages.iter().filter(|m| m.is_in_the_clear()).map(|m| m.what.as_str()).collect();
    clear.dedup();
    (!clear.is_empty()).then(|| {
        format!(
            "without --secure-sum this site sends results of its data that the other sites can read: {}; with it they learn the sums \
             of all sites only",
            clear.join(", ")
        )
    })
}

/// The noise of a run of `parties` parties, if it has any; `own` is the shape of one.
fn planned_noise(spec: &Spec, own: (usize, usize), parties: usize) -> Option<NoisePlan> {
    let (m, n) = own;
    let columns = spec.description().partition == Partition::PartyColumns;
    let n = if columns { n * parties } else { n };
    let expected = Expected { m, n, k: spec.k, max_iters: spec.max_iters, parties };
    // What is wrong with the noise, the run itself says.
    spec.method.assumed().noise(expected).ok().flatten()
}

/// A warning if the noise of such a run will be larger than what its parties release.
fn too_noisy(spec: &Spec, own: (usize, usize), parties: usize) -> Option<String> {
    dp::too_noisy(&planned_noise(spec, own, parties)?, parties, (own.0, spec.k))
}

/// Writes a proposal; returns the exit code.
fn propose(proposal: &Proposal, path: &Path, site: &str, identity: &Identity) -> Result<i32> {
    let signed = Signed::new(json!(proposal), Subject::Proposal, site, identity)?;
    proposal::write(path, &signed)?;
    print_line(&format!(
        "{}Site {site} proposes this in {}, with the digest {}. Each site approves it with 'fednmf approve'.",
        proposal.text(),
        path.display(),
        signed.digest()
    ))?;
    Ok(EXIT_DONE)
}

fn take_part(work: Work, sites: &Sites, comm: &Communicator) -> Result<i32> {
    if !work.is_quiet() {
        let name = &sites.names()[comm.rank()];
        say(&format!("site {name} is party {} of {}: {}", comm.rank(), comm.size(), sites.names().join(", ")));
    }
    same_options(&work, sites.names(), comm)?;
    match work {
        Work::Run(spec) => work::factorise(*spec, comm),
        Work::Joint(joint) => joint.perform(comm),
    }
}

/// Refuses a factorisation that sites cannot take part in.
fn check_run(spec: &Spec, proposed: bool) -> Result<()> {
    let description = spec.description();
    if !description.partition.is_private() {
        return Err(Error::input(format!(
            "--algo {}: its ranks may see each other's data; sites need a method of parties: 'fednmf list' shows which",
            description.name
        )));
    }
    if spec.continue_on_loss {
        return Err(Error::input(
            "--on-lost-party continue: is for ranks that hang; sites go on without a lost one with --secure-threshold",
        ));
    }
    if proposed && spec.input_text == SAMPLE_INPUT {
        return Err(Error::input("--propose: needs --input, the matrix of the run; add it"));
    }
    check_secrets(spec)
}

/// Refuses what makes secrets known: fine for a test in one room, but not between sites.
fn check_secrets(spec: &Spec) -> Result<()> {
    let parameters = spec.all(spec.method.assumed(), spec.precision);
    let is_set = |name: &str| match parameters.get(name) {
        Some(Value::Bool(set)) => *set,
        Some(value) => value.is_u64(),
        None => false,
    };
    for (name, why) in [
        ("secret_seed", "all keys, masks and noise of the run could be guessed"),
        ("insecure_key", "a key that short can be broken"),
        ("plain", "neighbours would send each other their factors unencrypted"),
    ] {
        if is_set(name) {
            return Err(Error::input(format!(
                "{}: {why}; it is not for runs between sites, leave it out",
                typed(name)
            )));
        }
    }
    Ok(())
}

/// Compares the options of all sites. Collective.
///
/// # Errors
/// On all ranks, with the first difference.
fn same_options(work: &Work, sites: &[String], comm: &Communicator) -> Result<()> {
    let all = comm.all_gather_public(CONTROL, &Compared(work.compared()));
    let Compared(first) = &all[0];
    for (site, Compared(other)) in sites.iter().zip(&all).skip(1) {
        let missing = other.keys().filter(|name| !first.contains_key(*name));
        if let Some(name) = first.keys().chain(missing).find(|name| first.get(*name) != other.get(*name)) {
            return Err(Error::input(format!(
                "the sites differ in {}: {} has {}, {site} has {}; agree on one command",
                typed(name),
                sites[0],
                shown(first.get(name)),
                shown(other.get(name))
            ))
            .on_all_ranks()
            .into());
        }
    }
    Ok(())
}

/// The settings of a site, see [`Work::compared`].
#[derive(Serialize, Deserialize)]
struct Compared(Map<String, Value>);

impl Public for Compared {
    const WHY: &'static str = "settings, without paths";
}

/// The command-line form of a setting.
fn typed(name: &str) -> String {
    match name {
        "version" => "fednmf".into(),
        "k" => "-k, --components".into(),
        "sparse_kernel" => "--kernel".into(),
        "prepare" => "what is prepared".into(),
        "runs" => "the runs (the results of all seeds)".into(),
        _ => format!("--{}", printable(&name.replace('_', "-"))),
    }
}

/// The value of a setting, which another site may have written.
fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => printable(text),
        Some(Value::Null) | None => "none".into(),
        Some(value) => printable(&value.to_string()),
    }
}

/// The settings of a factorisation that must be equal at all sites.
fn compared_of_run(spec: &Spec) -> Map<String, Value> {
    let mut all = Map::new();
    let method = spec.method.assumed();
    all.extend(spec.all(method, spec.precision));
    let table = spec.input.table.to_json();
    for name in OWN.into_iter().map(String::from).chain(table.keys().cloned()) {
        all.remove(&name);
    }
    if let Source::Synthetic(_) = spec.input.source {
        all.insert("input".into(), spec.input_text.clone().into());
    }
    // Only whether they are given, not the paths: all sites take part in writing.
    let writes = [
        ("output", spec.outputs.factors.is_some()),
        ("checkpoint", spec.checkpoint.is_some()),
        ("resume", spec.resume),
        ("report", spec.outputs.report.is_some()),
        ("record_view", spec.record_view.is_some()),
        ("budget", method.groups().dp.is_some_and(|dp| dp.budget_path().is_some())),
    ];
    let given = |given: bool| if given { "given" } else { "none" };
    all.extend(writes.map(|(name, is)| (name.to_string(), given(is).into())));
    let every = match spec.checkpoint_every {
        Every::Auto => Value::Null,
        Every::Iterations(n) => n.into(),
        Every::Seconds(s) => json!(format!("{s}s")),
    };
    all.insert("checkpoint_every".into(), every);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_as_it_is_typed() {
        assert_eq!(typed("k"), "-k, --components");
        assert_eq!(typed("max_iters"), "--max-iters");
        assert_eq!(typed("version"), "fednmf");
    }

    #[test]
    fn control_characters_in_settings_of_others_are_escaped() {
        let text = "A\u{1b}[2K\nerror: x";
        assert!(!shown(Some(&json!(text))).contains(char::is_control) && !typed(text).contains(char::is_control));
        assert!(!shown(Some(&json!({ text: [text] }))).contains(char::is_control));
    }
}
