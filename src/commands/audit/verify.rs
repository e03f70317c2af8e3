//! `fednmf audit verify`: transcripts against their signatures, the message table of the method and the privacy budget; logs of
//! sites against their signatures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use fednmf_base::clock::iso8601;
use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::printable::{printable, printable_lines};
use fednmf_base::stdout::print;
use fednmf_base::units::{bytes, counted};
use fednmf_comm::Communicator;
use fednmf_driver::budget;
use fednmf_privacy::dp::{delta_text, round_up_text};
use fednmf_privacy::transcript;
#[cfg(feature = "sites")]
use fednmf_privacy::transcript::Subject;
use fednmf_privacy::transcript::{Agreed, Verified};
use fednmf_privacy::{BudgetFile, Protection};
#[cfg(feature = "sites")]
use fednmf_sites::{Authority, BudgetState, VerifiedLog, never_falls, read_log};

use crate::commands::list;

/// The names of an agreed list that are shown.
const SHOWN: usize = 20;

/// Arguments of `fednmf audit verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Files of --transcript or, with --ca, of --site-log
    #[arg(required = true, value_name = "TRANSCRIPT")]
    pub transcripts: Vec<PathBuf>,
    /// The public key that must have signed them, in hexadecimal digits
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The certificate of the CA (PEM) that the transcripts' sites must have: a key that signed one must have been vouched
    /// for with a site's certificate, valid at that time
    #[cfg(feature = "sites")]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The list of certificates that the CA has revoked (PEM): what they have signed is refused
    #[cfg(feature = "sites")]
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub crl: Option<PathBuf>,
    /// The budget of the data: the runs must be in it, with what they spent, and no less than the log of a site says
    #[arg(long, value_name = "F.json")]
    pub budget: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Rank 0 verifies, the others wait. Collective.
///
/// # Errors
/// If a transcript was changed, holds a message that the method's table does not allow, or spent a budget that the
/// budget file does not record.
pub fn verify(args: &VerifyArgs, comm: &Communicator) -> Result<i32> {
    let text = comm.agree_on_error(if comm.is_root() { on_rank_0(args) } else { Ok(String::new()) })?;
    if comm.is_root() {
        print(&text)?;
    }
    Ok(EXIT_DONE)
}

fn on_rank_0(args: &VerifyArgs) -> Result<String> {
    let budget = args.budget.as_deref().map(budget::read).transpose()?;
    let (mut text, mut all) = (String::new(), Vec::new());
    let files = args.transcripts.iter().map(|path| Ok((path, text_of(path)?))).collect::<Result<Vec<_>>>()?;
    #[cfg(feature = "sites")]
    let authority = args.ca.as_deref().map(|ca| Authority::read(ca, args.crl.as_deref())).transpose()?;
    #[cfg(feature = "sites")]
    let (logs, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, text)| is_log(text));
    #[cfg(feature = "sites")]
    for (path, log) in &logs {
        let verified = read_verified_log(log, authority.as_ref()).map_err(|e| e.at(path.display()))?;
        if let Some(budget) = &budget {
            spent_at_least(&verified, budget).map_err(|e| e.at(path.display()))?;
        }
        describe_log(&mut text, path, &verified);
        all.push(json!({"log": path.display().to_string(), "site": verified.site, "digest": verified.digest(),
                        "entries": verified.entries}));
    }
    let verified = |(path, text): &(&PathBuf, String)| {
        transcript::verify(text, args.key.as_deref()).map_err(|e| e.at(path.display()))
    };
    let transcripts = files.iter().map(verified).collect::<Result<Vec<_>>>()?;
    for ((path, _), verified) in files.iter().zip(&transcripts) {
        #[cfg(feature = "sites")]
        if let Some(authority) = &authority {
            of_site(verified, authority).map_err(|e| e.at(path.display()))?;
        }
        #[cfg(feature = "sites")]
        let checked = authority.is_some();
        #[cfg(not(feature = "sites"))]
        let checked = false;
        let at = |e: Error| e.at(path.display());
        let sums = by_message(verified).map_err(at)?;
        if let Some(budget) = &budget {
            covered(verified, &transcripts, budget).map_err(at)?;
        }
        describe(&mut text, path, verified, &sums, checked);
        all.push(as_json(path, verified, &sums, checked));
    }
    if let Some(budget) = &budget {
        let (epsilon, delta) = budget.spent();
        let _ = writeln!(
            text,
            "budget: epsilon {} of {}, delta {}, {}",
            round_up_text(epsilon),
            budget.limit,
            delta_text(delta),
            counted(budget.runs.len(), "run", "runs")
        );
    }
    Ok(if args.json { format!("{}\n", Value::from(all)) } else { printable_lines(&text) })
}

/// Whether the certificate of a site vouches for the key that signed a transcript.
#[cfg(feature = "sites")]
fn of_site(verified: &Verified, authority: &Authority) -> Result<()> {
    let Some(signed) = &verified.heading.site else {
        return Err(Error::failed("no certificate vouches for its key; transcripts of 'fednmf join' have one"));
    };
    authority
        .verify(Subject::TranscriptKey, signed, &verified.public_key)
        .map_err(|why| Error::failed(format!("cannot be attributed to site {}: {why}", signed.site)))
}

fn text_of(path: &Path) -> Result<String> {
    let read = std::fs::read_to_string(path);
    read.map_err(|e| Error::input(format!("cannot be read ({e}); check the name")).at(path.display()))
}

/// Whether a file is the log of a site and no transcript.
#[cfg(feature = "sites")]
fn is_log(text: &str) -> bool {
    let first = text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
    first.is_some_and(|line| line.get("document").is_some())
}

#[cfg(feature = "sites")]
fn read_verified_log(text: &str, authority: Option<&Authority>) -> Result<VerifiedLog> {
    let authority = authority.ok_or_else(|| {
        Error::input("is the log of a site, whose certificate signs it; name the certificate of the CA with --ca")
    })?;
    read_log(text, authority)
}

#[cfg(feature = "sites")]
fn describe_log(text: &mut String, path: &Path, log: &VerifiedLog) {
    let count = log.entries.len();
    let site = log.site.as_deref().unwrap_or_default();
    let _ = writeln!(
        text,
        "{}: the log of site {site}: {count} entries, unchanged, digest {}",
        path.display(),
        log.digest()
    );
    for entry in &log.entries {
        let _ = writeln!(text, "  {:4}  {}  {}", entry.number, entry.time, entry.event);
    }
}

/// Checks that what the log says was spent never falls, up to the budget.
#[cfg(feature = "sites")]
fn spent_at_least(log: &VerifiedLog, budget: &BudgetFile) -> Result<()> {
    let (epsilon, delta) = budget.spent();
    never_falls(&log.entries, ("--budget", BudgetState { epsilon, delta, limit: budget.limit }))
}

/// Kind, payload and protection of messages; how many, and their bytes.
type Sums = BTreeMap<[String; 3], [u64; 2]>;

/// The messages, each of which must be allowed by the method's table.
fn by_message(verified: &Verified) -> Result<Sums> {
    let method = list::description(&verified.heading.method)
        .ok_or_else(|| Error::input(format!("'{}' is no method of this version", verified.heading.method)))?;
    let mut sums = Sums::new();
    for sent in &verified.sent {
        let mut table = method.all_messages();
        let protection = Protection::from_name(&sent.protection).map_or(sent.protection.as_str(), |one| one.name());
        let allowed =
            table.any(|w| w.kind == sent.kind && w.payload.name() == sent.payload && method.allows(w, protection));
        if !allowed {
            return Err(Error::failed(format!(
                "message {}: '{}' ({}, {}) is not in the message table of {}; see fednmf list --wire {}",
                sent.number, sent.kind, sent.payload, sent.protection, method.name, method.name
            )));
        }
        let sum = sums.entry([&sent.kind, &sent.payload, &sent.protection].map(Clone::clone)).or_default();
        *sum = [sum[0] + 1, sum[1] + sent.bytes];
    }
    Ok(sums)
}

/// Checks that the budget contains what the run spent: in the name of a party of its rank or, if all parties share one
/// budget, of a party of another rank whose transcript was given.
fn covered(verified: &Verified, all: &[Verified], budget: &BudgetFile) -> Result<()> {
    let Some(spent) = &verified.spent else {
        if verified.failed {
            return Ok(());
        }
        return Err(Error::failed("its run released data without --dp, which no budget covers"));
    };
    let known = |run: &String| budget.runs.iter().any(|charge| charge.run == *run && charge.epsilon >= spent.epsilon);
    let same_run = |other: &&Verified| {
        let (own, other) = (&verified.heading, &other.heading);
        own.method == other.method && own.settings == other.settings && own.ranks == other.ranks
    };
    let names = all.iter().filter(same_run).filter_map(|other| other.spent.as_ref()).flat_map(|spent| &spent.runs);
    if spent.runs.iter().chain(names).any(known) {
        return Ok(());
    }
    let hint = match verified.heading.rank {
        0 => "",
        _ => " in the name of this rank; give the transcript of rank 0 too, which keeps a budget of all parties",
    };
    Err(Error::failed(format!(
        "its run spent an epsilon of {} that is not in the budget{hint}",
        round_up_text(spent.epsilon)
    )))
}

fn describe(text: &mut String, path: &Path, verified: &Verified, sums: &Sums, checked: bool) {
    let heading = &verified.heading;
    let _ = writeln!(
        text,
        "{}: {}, rank {} of {}: {} messages, unchanged, signed by {}",
        path.display(),
        heading.method,
        heading.rank,
        heading.ranks,
        verified.sent.len(),
        verified.public_key
    );
    if let Some(signed) = &verified.heading.site {
        let _ = writeln!(text, "  of site {}{}", signed.site, if checked { "" } else { ", it says; --ca checks it" });
    }
    let digests = [("nonce", &heading.nonce), ("proposal", &heading.proposal), ("policy", &heading.policy)];
    let digests = digests.into_iter().filter_map(|(what, value)| Some((what, printable(value.as_ref()?))));
    for (what, value) in begun(verified).map(|time| ("begun", time)).into_iter().chain(digests) {
        let _ = writeln!(text, "  {what:>8}  {value}");
    }
    for ([kind, _, protection], [count, size]) in sums {
        let _ = writeln!(text, "  {count:8}  {:>10}  {protection:17}  {kind}", bytes(*size));
    }
    let _ = writeln!(
        text,
        "  All are kinds of messages that {} sends, in the clear or protected as the table says; a proposal is not compared. What the method calls once may be several messages here. Sizes are of one copy: a message to all leaves once for each other party.",
        heading.method
    );
    for Agreed { agreed, names } in &verified.agreed {
        let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > SHOWN { ", ... (all with --json)" } else { "" };
        let _ = writeln!(text, "  {:8}  {agreed}: {shown}{more}", names.len());
    }
    if let Some(spent) = &verified.spent {
        let _ = writeln!(text, "  epsilon spent: {}", spent.epsilon);
    }
    if verified.failed {
        text.push_str("  the run ended with an error after these messages\n");
    }
}

/// When the key was vouched for, by the clock of the site.
fn begun(verified: &Verified) -> Option<String> {
    verified.heading.site.as_ref().map(|signed| iso8601(signed.time))
}

fn as_json(path: &Path, verified: &Verified, sums: &Sums, checked: bool) -> Value {
    let site = verified.heading.site.as_ref().filter(|_| checked).map(|signed| &signed.site);
    let rows: Vec<Value> = sums
        .iter()
        .map(|([kind, payload, protection], [count, size])| {
            json!({"purpose": kind, "payload": payload, "protection": protection, "messages": count, "bytes": size})
        })
        .collect();
    json!({"transcript": path.display().to_string(), "method": verified.heading.method, "rank": verified.heading.rank,
           "ranks": verified.heading.ranks, "messages": verified.sent.len(), "public_key": verified.public_key, "site": site,
           "begun": begun(verified), "nonce": verified.heading.nonce, "proposal": verified.heading.proposal,
           "policy": verified.heading.policy, "agreed": verified.agreed, "failed": verified.failed,
           "epsilon_spent": verified.spent.as_ref().map(|spent| spent.epsilon), "sent": rows})
}
