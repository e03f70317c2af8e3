//! `fednmf join`: one party of a factorisation, on its own machine with its own data.

mod policy;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_base::warning::say;
use fednmf_comm::{CONTROL, Communicator, watchdog};
use fednmf_data::memory;
use fednmf_driver as driver;
use fednmf_driver::own_files;
use fednmf_driver::spec::{Every, Spec};
use fednmf_files::output::attributes;
use fednmf_files::{InputSpec, Source};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_privacy::Public;
use fednmf_sites::{Address, Config, Sites};

use self::policy::Policy;
use super::factorize::RunArgs;
use super::list;

/// Where the hub is, who this is, and what it agrees to; then the options of a run.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The hub, to which this site dials out; through the proxy of https_proxy, if that is set
    #[arg(long, value_name = "HOST:PORT", help_heading = "Site")]
    hub: Address,
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
    /// The list of certificates that the CA has revoked (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    crl: Option<PathBuf>,
    /// What this site agrees to, in JSON: methods, require, min_parties, max_epsilon, sites, in_the_clear
    #[arg(long, value_name = "F.json", help_heading = "Site")]
    policy: Option<PathBuf>,
    /// Agree to whatever the command line says, with whatever sites the hub names
    #[arg(long, conflicts_with = "policy", help_heading = "Site")]
    no_policy: bool,
    /// Wait S seconds for the hub and the other sites at the start
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800), help_heading = "Site")]
    wait: u64,
    /// Try for S seconds to get a lost connection back
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400), help_heading = "Site")]
    patience: u64,
    #[command(flatten)]
    run: RunArgs,
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
    if args.policy.is_none() && !args.no_policy {
        return Err(Error::input(
            "join: give --policy F.json, which says what this site agrees to, or --no-policy, if it agrees to all that the \
             command line says, with whatever sites the hub names",
        ));
    }
    let policy = args.policy.as_deref().map(Policy::read).transpose()?.unwrap_or_default();
    let spec = args.run.check(method, std::env::args().collect())?;
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
    check_secrets(&spec)?;
    policy.check(&spec)?;
    let _locks = own_files::lock(&spec)?;
    if !spec.quiet {
        say(&format!("What leaves this site with --algo {}:\n{}", description.name, list::message_table(description)));
    }
    let sites = Rc::new(Sites::join(Config {
        hub: args.hub,
        cert: args.cert,
        key: args.key,
        ca: args.ca,
        crl: args.crl,
        site: args.site,
        version: attributes::VERSION.into(),
        wait: Duration::from_secs(args.wait),
        reconnect_timeout: Duration::from_secs(args.patience),
        verbose: !spec.quiet,
        // The rest is for this site's own work.
        max_untaken: (memory::free() / 2.0) as usize,
        progress: watchdog::step,
    })?);
    policy.check_sites(sites.names())?;
    let comm = Communicator::over(sites.clone());
    if let Some(send_filter) = policy.send_filter() {
        comm.set_send_filter(send_filter);
    }
    let done = take_part(spec, &sites, &comm);
    match &done {
        Ok(code) => sites.leave(*code),
        Err(e) if e.is_shared() => sites.leave(e.exit_code()),
        // The caller ends the run for all sites.
        Err(_) => {}
    }
    done
}

fn take_part(spec: Spec, sites: &Sites, comm: &Communicator) -> Result<i32> {
    if !spec.quiet {
        let name = &sites.names()[comm.rank()];
        say(&format!("site {name} is party {} of {}: {}", comm.rank(), comm.size(), sites.names().join(", ")));
    }
    same_options(&spec, sites.names(), comm)?;
    if let Some(parties) = spec.parties.filter(|parties| *parties != comm.size()) {
        return Err(Error::input(format!(
            "--parties {parties}: each of the {} sites is a party; leave the option out",
            comm.size()
        ))
        .on_all_ranks()
        .into());
    }
    let input = InputSpec { own_disk: true, parties: Some(comm.size()), ..spec.input };
    driver::run(&Spec { input, ..spec }, comm)
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
fn same_options(spec: &Spec, sites: &[String], comm: &Communicator) -> Result<()> {
    let all = comm.all_gather_public(CONTROL, &Compared(compared(spec)));
    let Compared(first) = &all[0];
    for (site, Compared(other)) in sites.iter().zip(&all).skip(1) {
        let missing = other.keys().filter(|name| !first.contains_key(*name));
        if let Some(name) = first.keys().chain(missing).find(|name| first.get(*name) != other.get(*name)) {
            let value = |map: &Map<String, Value>| match map.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => "none".into(),
                Some(value) => value.to_string(),
            };
            return Err(Error::input(format!(
                "the sites differ in {}: {} has {}, {site} has {}; agree on one command",
                typed(name),
                sites[0],
                value(first),
                value(other)
            ))
            .on_all_ranks()
            .into());
        }
    }
    Ok(())
}

/// The settings of a site, see [`compared`].
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
        _ => format!("--{}", name.replace('_', "-")),
    }
}

/// The settings that must be equal at all sites.
fn compared(spec: &Spec) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("version".into(), attributes::VERSION.into());
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
}
