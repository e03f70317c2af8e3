//! The log of a site: all its runs in one file to which entries are only added. Each entry is signed with the key of the
//! site's certificate, together with all entries before it, so that none can be changed, removed or put in between. Entries
//! that are cut off at the end leave no trace in the file itself; its last digest, noted elsewhere, shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result};
use fednmf_base::file_lock::{FileLock, lock_of};
use fednmf_privacy::dp::round_up_text;
use fednmf_privacy::transcript::{Subject, hex};

use super::signed::{Signed, digest};
use super::tls::{Authority, Identity, Unsigned};

/// The version of the format that is written.
const VERSION: u32 = 1;

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Version of this format.
    pub fednmf_site_log: u32,
    pub number: usize,
    /// When it was written, UTC.
    pub time: String,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A run began. One that does not end was killed.
    Begin {
        /// The name of the run, the same at all of its sites.
        run: String,
        method: String,
        sites: Vec<String>,
        /// SHA-256 of the policy's file.
        policy: Option<String>,
        /// Digest of the approved proposal, and who approved it.
        proposal: Option<String>,
        approved_by: Option<String>,
        /// SHA-256 of all parameters that the sites have in common.
        parameters: String,
        budget: Option<BudgetState>,
        binary: Binary,
    },
    /// A run ended.
    End { run: String, outcome: String, budget: Option<BudgetState> },
    /// Results were put aside until somebody releases them: SHA-256 by name.
    Hold {
        run: String,
        results: BTreeMap<String, String>,
        /// The public keys for which they were encrypted, after the digests were taken.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<String>,
    },
    /// Results were released.
    Release {
        by: String,
        /// Logs of earlier versions do not name it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
        results: BTreeMap<String, String>,
    },
    /// Somebody refused to release results.
    Withhold {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
        reason: String,
        results: BTreeMap<String, String>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spent = |budget: &Option<BudgetState>| {
            budget.map_or_else(String::new, |b| format!(", epsilon {:.6} of {} spent", b.epsilon, b.limit))
        };
        let of = |run: &Option<String>| run.as_ref().map(|run| format!(" {run}")).unwrap_or_default();
        let names = |results: &BTreeMap<String, String>| results.keys().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Event::Begin { run, method, sites, policy, proposal, approved_by, parameters, budget, binary } => {
                let named = |what: &str, text: &Option<String>| {
                    text.as_ref().map(|text| format!(", {what} {text}")).unwrap_or_default()
                };
                let [proposal, policy] = [named("proposal", proposal), named("policy", policy)];
                let (by, sites, version) = (named("approved by", approved_by), sites.join(", "), &binary.version);
                let spent = spent(budget);
                write!(
                    f,
                    "begin {run}: {method} {version} with {sites}{proposal}{by}, parameters {parameters}{policy}{spent}"
                )
            }
            Event::End { run, outcome, budget } => write!(f, "end {run}: {outcome}{}", spent(budget)),
            Event::Hold { run, results, keys } => {
                let keys = if keys.is_empty() { String::new() } else { format!(", for {}", keys.join(", ")) };
                write!(f, "hold {run}: {}{keys}", names(results))
            }
            Event::Release { by, run, results } => write!(f, "release{} by {by}: {}", of(run), names(results)),
            Event::Withhold { by, run, reason, results } => {
                write!(f, "withhold{} by {by}: {}: {reason}", of(run), names(results))
            }
        }
    }
}

/// What all runs on the data have spent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BudgetState {
    pub epsilon: f64,
    pub delta: f64,
    pub limit: f64,
}

/// What was spent is the same within this relative distance.
const SAME: f64 = 1e-9;

/// Checks that what all runs have spent never falls from entry to entry, up to `now`, the state of the budget `named` so: a file can
/// be put back together with its key. While runs overlap it may fall, since a run that ends may have spent less than it reserved.
///
/// # Errors
/// If it falls; the error names both places.
pub fn never_falls(entries: &[LogEntry], (named, now): (&str, BudgetState)) -> Result<()> {
    let ended =
        entries.iter().filter_map(|entry| if let Event::End { run, .. } = &entry.event { Some(run) } else { None });
    let ended: BTreeSet<&String> = ended.collect();
    let mut open = BTreeSet::new();
    let states = entries.iter().filter_map(|entry| {
        let (alone, budget) = match &entry.event {
            Event::Begin { run, budget, .. } => {
                let alone = open.is_empty();
                // One that was killed has no end.
                open.extend(ended.get(run).copied());
                (alone, budget)
            }
            Event::End { run, budget, .. } => {
                open.remove(run);
                (open.is_empty(), budget)
            }
            _ => return None,
        };
        budget.filter(|_| alone).map(|state| (format!("entry {} of the log", entry.number), state))
    });
    let states: Vec<(String, BudgetState)> = states.chain([(named.to_string(), now)]).collect();
    let exceeds = |before: f64, after: f64| before > after * (1.0 + SAME);
    let falls = |pair: &&[(String, BudgetState)]| {
        exceeds(pair[0].1.epsilon, pair[1].1.epsilon) || exceeds(pair[0].1.delta, pair[1].1.delta)
    };
    match states.windows(2).find(falls) {
        Some([(before, most), (after, less)]) => Err(Error::failed(format!(
            "{before} has a budget with epsilon {} spent, and {after} one with {}: an earlier file was put back, or these are of \
             other data",
            round_up_text(most.epsilon),
            round_up_text(less.epsilon)
        ))),
        _ => Ok(()),
    }
}

/// The program that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    pub version: String,
    pub git: String,
    /// SHA-256 of its file.
    pub sha256: String,
}

impl Binary {
    /// The program of this process.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn own(version: &str, git: &str) -> Result<Binary> {
        let unreadable = |e: std::io::Error| Error::failed(format!("the program's own file cannot be read: {e}"));
        let path = std::env::current_exe().map_err(unreadable)?;
        Ok(Binary { version: version.into(), git: git.into(), sha256: file_digest(&path).map_err(unreadable)? })
    }
}

/// SHA-256 of a file, in hexadecimal digits.
pub fn file_digest(path: &Path) -> std::io::Result<String> {
    digest_of(&mut std::fs::File::open(path)?)
}

/// SHA-256 of all that is read, in hexadecimal digits.
///
/// # Errors
/// If it cannot be read to its end.
pub fn digest_of(reader: &mut impl std::io::Read) -> std::io::Result<String> {
    let (mut buffer, mut hash) = (vec![0; 1 << 20], Sha256::new());
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// The log of this site, to which entries can be added.
pub struct SiteLog {
    path: PathBuf,
    site: String,
    identity: Identity,
}

impl SiteLog {
    /// Opens the log of `site`, or begins it.
    ///
    /// # Errors
    /// If the file is no log of this site, was changed, or cannot be written.
    pub fn open(path: &Path, site: &str, identity: Identity) -> Result<SiteLog> {
        let log = SiteLog { path: path.to_path_buf(), site: site.into(), identity };
        log.locked(|_, _| Ok(None))?;
        Ok(log)
    }

    /// All entries.
    ///
    /// # Errors
    /// As [`SiteLog::open`].
    pub fn entries(&self) -> Result<Vec<LogEntry>> {
        let mut all = Vec::new();
        self.locked(|entries, _| {
            all = entries;
            Ok(None)
        })?;
        Ok(all)
    }

    /// Adds an entry; `time` is now.
    ///
    /// # Errors
    /// As [`SiteLog::open`].
    pub fn add(&self, time: String, event: Event) -> Result<()> {
        self.locked(|entries, chain| {
            let entry = LogEntry { fednmf_site_log: VERSION, number: entries.len(), time, event };
            Signed::after(chain, json!(entry), Subject::LogEntry, &self.site, &self.identity).map(Some)
        })
    }

    /// Reads and verifies the log under its lock, and adds what `next` makes of its entries and its chain.
    fn locked(&self, next: impl FnOnce(Vec<LogEntry>, &[u8; 32]) -> Result<Option<Signed>>) -> Result<()> {
        let at = |e: Error| e.at(format!("--site-log {}", self.path.display()));
        let failed = |e: std::io::Error| at(Error::input(format!("cannot be written ({e}); name a file of your own")));
        let _lock = FileLock::acquire(&lock_of(&self.path, "lock")).map_err(failed)?;
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&self.path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(at(Error::input("is no regular file; name a file of your own")));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let read = read(&text, self.identity.authority()).map_err(at)?;
        if let Some(other) = read.site.filter(|site| *site != self.site) {
            return Err(at(Error::input(format!("is the log of site {other}; each site has its own"))));
        }
        if let Some(signed) = next(read.entries, &read.chain)? {
            // In one piece, so that a process that is killed leaves a whole line or none.
            let line = json!(signed).to_string() + "\n";
            file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

/// A log that was verified.
pub struct VerifiedLog {
    /// Whose it is; `None` if it is empty.
    pub site: Option<String>,
    pub entries: Vec<LogEntry>,
    chain: [u8; 32],
}

impl VerifiedLog {
    /// The digest of all entries, in hexadecimal digits.
    pub fn digest(&self) -> String {
        hex(&self.chain)
    }
}

/// Reads a log and verifies that one site with a certificate of the CA has signed all of it.
///
/// # Errors
/// If it is no log, or an entry was changed, removed or added by others; the error names the line.
pub fn read(text: &str, authority: &Authority) -> Result<VerifiedLog> {
    let mut log = VerifiedLog { site: None, entries: Vec::new(), chain: [0; 32] };
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(Error::input("ends within a line; restore it from a copy"));
    }
    for (number, line) in text.lines().enumerate() {
        let at = |why: String| Error::input(format!("line {}: {why}", number + 1));
        let signed: Signed = serde_json::from_str(line).map_err(|e| at(format!("is no signed entry ({e})")))?;
        log.chain = digest(&log.chain, &signed.document);
        let entry = LogEntry::deserialize(&signed.document).map_err(|e| at(format!("is no entry of a log ({e})")))?;
        let site = &signed.signature.site;
        authority.verify(Subject::LogEntry, &signed.signature, &hex(&log.chain)).map_err(|why| {
            at(match why {
                Unsigned::Revoked => format!(
                    "the CA has revoked the certificate with which site {site} signed it, so --crl refuses the log; keep it with its \
                     digest, which 'fednmf audit verify' prints without --crl, and name a new file for --site-log"
                ),
                why => format!("is not signed by site {site} in this place: {why}; a line was changed, removed or added"),
            })
        })?;
        if entry.number != number || log.site.as_ref().is_some_and(|own| own != site) {
            return Err(at("does not belong to this place".into()));
        }
        log.site = Some(site.clone());
        log.entries.push(entry);
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::certificates;

    fn ended(run: &str) -> Event {
        Event::End { run: run.into(), outcome: "done".into(), budget: None }
    }

    #[test]
    fn a_budget_that_was_put_back_and_spent_again_is_noticed() {
        let of = |epsilon: f64| BudgetState { epsilon, delta: 1e-5, limit: 4.0 };
        let spent = |epsilons: &[f64], now: f64| {
            let entry = |(number, epsilon): (usize, &f64)| {
                let event = Event::End { run: "one".into(), outcome: "done".into(), budget: Some(of(*epsilon)) };
                LogEntry { fednmf_site_log: VERSION, number, time: String::new(), event }
            };
            let entries: Vec<LogEntry> = epsilons.iter().enumerate().map(entry).collect();
            never_falls(&entries, ("--budget", of(now))).map_err(|e| e.message)
        };
        assert_eq!(spent(&[0.0, 1.0, 1.0, 1.4], 1.4), Ok(()));
        let restored = spent(&[0.0, 1.0], 0.5).unwrap_err();
        assert!(restored.starts_with("entry 1 of the log has a budget with epsilon 1"), "{restored}");
        // The file at the end has as much as the log once said.
        let found = spent(&[0.0, 1.0, 0.0, 1.0], 1.0).unwrap_err();
        assert!(found.contains("entry 2"), "{found}");
    }

    #[test]
    fn runs_at_the_same_time_may_spend_less_than_they_reserve() {
        let state = |epsilon: f64| BudgetState { epsilon, delta: 1e-5, limit: 4.0 };
        let begin = |run: &str, epsilon: f64| Event::Begin {
            run: run.into(),
            method: "fnmf".into(),
            sites: Vec::new(),
            policy: None,
            proposal: None,
            approved_by: None,
            parameters: String::new(),
            budget: Some(state(epsilon)),
            binary: Binary { version: String::new(), git: String::new(), sha256: String::new() },
        };
        let end = |run: &str, epsilon: f64| Event::End {
            run: run.into(),
            outcome: "done".into(),
            budget: Some(state(epsilon)),
        };
        let checked = |events: Vec<Event>, now: f64| {
            let entry = |(number, event)| LogEntry { fednmf_site_log: VERSION, number, time: String::new(), event };
            never_falls(&events.into_iter().enumerate().map(entry).collect::<Vec<_>>(), ("--budget", state(now)))
                .is_ok()
        };
        let overlapping = || vec![begin("a", 0.0), begin("b", 1.0), end("a", 1.5), end("b", 1.2)];
        assert!(checked(overlapping(), 1.2) && !checked(overlapping(), 1.1));
        // A run without an end keeps what it has reserved.
        assert!(checked(vec![begin("killed", 0.0), begin("b", 1.0), end("b", 2.0)], 2.0));
        assert!(!checked(vec![begin("killed", 0.0), begin("b", 1.0), end("b", 2.0)], 1.0));
    }

    #[test]
    fn every_change_of_a_log_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (keys, hour) = (dir.path().join("keys"), Duration::from_secs(3600));
        let now = SystemTime::now();
        let names = ["a".to_string(), "b".to_string()];
        certificates::make(&keys, &names, &["localhost".into()], now - hour, now + hour).unwrap();
        let file = |name: &str| keys.join(name);
        let identity = |site: &str| {
            Identity::read(&file(&format!("{site}.pem")), &file(&format!("{site}.key")), &file("ca.pem"), None).unwrap()
        };
        let path = dir.path().join("log");
        let log = SiteLog::open(&path, "a", identity("a")).unwrap();
        for run in ["one", "two", "three"] {
            log.add("2026-01-01".into(), ended(run)).unwrap();
        }
        let authority = Authority::read(&file("ca.pem"), None).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = read(&text, &authority).unwrap();
        assert_eq!((whole.site.as_deref(), whole.entries.len()), (Some("a"), 3));
        let lines: Vec<&str> = text.lines().collect();
        let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        for changed in [
            joined(&lines[1..]),
            joined(&[lines[0], lines[2]]),
            joined(&[lines[1], lines[0], lines[2]]),
            joined(&[lines[0], lines[0], lines[1]]),
            text.replacen("two", "TWO", 1),
            text.trim_end().to_string(),
        ] {
            assert!(read(&changed, &authority).is_err(), "{changed}");
            std::fs::write(&path, &changed).unwrap();
            assert!(log.add("2026-01-01".into(), ended("four")).is_err(), "nothing is added to a log that was changed");
        }
        // A shorter one is a log, but has another digest.
        let shorter = read(&joined(&lines[..2]), &authority).unwrap();
        assert_ne!(shorter.digest(), whole.digest());
        // Another site neither adds to it nor signs in its name.
        std::fs::write(&path, &text).unwrap();
        assert!(SiteLog::open(&path, "b", identity("b")).is_err_and(|e| e.message.contains("log of site a")));
        let forger = SiteLog { path: path.clone(), site: "a".into(), identity: identity("b") };
        forger.add("2026-01-01".into(), ended("four")).unwrap();
        let forged = read(&std::fs::read_to_string(&path).unwrap(), &authority).err().unwrap();
        assert!(forged.message.contains("line 4") && forged.message.contains("another site"), "{forged}");
    }
}
