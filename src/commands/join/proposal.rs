//! Proposals and approvals: what a run will do and send, for people to agree to before it.
//!
//! A proposal is a document that says everything that the sites of a run must have in common. A site signs it (`join
//! --propose`), a named person at each site approves it (`fednmf approve`), and `join --approved` runs that and nothing else.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_base::printable;
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::units::counted;
use fednmf_comm::{MessageTag, Payload, SendFilter};
use fednmf_files::output::attributes;
use fednmf_methods::description::Partition;
use fednmf_methods::shared::disclosure::{Duration, SHARE};
use fednmf_privacy::transcript::Subject;
use fednmf_sites::{Authority, Identity, Signed};

use super::messages;
use super::messages::{AgreedRun, Message};
use super::policy::Policy;
use super::work::Work;
use super::{shown, typed};
use crate::commands::{list, prepare, programs};

/// The version of both documents.
const VERSION: u32 = 1;

/// What a run will do and send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// Version of this format.
    fednmf_proposal: u32,
    pub method: String,
    /// All that must be equal at all sites, by name. The other parts follow from these, except the rules.
    pub parameters: Map<String, Value>,
    /// All that may leave a site.
    pub messages: Vec<Message>,
    /// What each site checks of its data, without `--dp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What the run may spend, with `--dp`.
    pub budget: Option<Budget>,
    /// The policy of the site that proposes, which then holds for all sites.
    pub rules: Option<Policy>,
}

/// The limits of a run without noise, and what it reaches of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// "rows" or "columns".
    pub of: String,
    /// The least number that each site has.
    pub least: usize,
    /// The number of vectors that others can read in all sums of the run, if these have at least as many entries.
    pub vectors: usize,
    /// The number that other sites together do not have, then.
    pub hidden: usize,
    /// How many other sites put together what they receive.
    pub colluding: usize,
    /// The number of sites with which the run may go on without the others.
    pub left: Option<usize>,
}

/// The budget of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// `None`: not bounded.
    pub epsilon: Option<f64>,
    pub delta: f64,
    /// The number of releases that `epsilon` is split over.
    pub releases: Option<u64>,
    /// The privacy unit, in words.
    pub protects: Option<String>,
}

/// The approval of a proposal by a person, or the refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Version of this format.
    fednmf_approval: u32,
    /// The person, `Name <mail>`.
    pub by: String,
    /// When, UTC.
    pub time: String,
    /// Why the person refuses; `None` if the person approves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// What is approved.
    proposal: Signed,
}

/// A proposal that a person at this site has approved.
pub struct Approved {
    pub proposal: Proposal,
    /// The digest of the proposal.
    pub digest: String,
    pub by: String,
}

impl Proposal {
    /// Proposes a run.
    pub fn of(work: &Work, rules: Option<Policy>) -> Proposal {
        Proposal::following(work.compared(), rules).expect("sites take part in it")
    }

    /// The proposal with these parameters; `None` if they are of nothing that sites take part in.
    fn following(parameters: Map<String, Value>, rules: Option<Policy>) -> Option<Proposal> {
        let (description, messages, limits, budget) = if let Some(run) = AgreedRun::of(&parameters) {
            (run.method.description(), run.messages(), Limits::of(&run), Budget::of(&run))
        } else {
            let (description, sent) = match &parameters {
                settings if settings.contains_key("prepare") => (&prepare::sums::DESCRIPTION, prepare::sent(settings)),
                settings if settings.contains_key("runs") => (&programs::DESCRIPTION, programs::messages()),
                _ => return None,
            };
            let messages = sent.into_iter().map(|w| Message::new(w, description.protection(w))).collect();
            (description, messages, None, None)
        };
        let method = description.name.into();
        Some(Proposal { fednmf_proposal: VERSION, method, parameters, messages, limits, budget, rules })
    }

    /// Reads a proposal and verifies who signed it; also returns it as it was signed.
    ///
    /// # Errors
    /// If the file is no proposal of a site of the CA, or its parts do not follow from its parameters.
    pub fn read(path: &Path, authority: &Authority) -> Result<(Proposal, Signed)> {
        let signed = read(path)?;
        let proposal = Proposal::verified(&signed, authority).map_err(|e| e.at(path.display()))?;
        Ok((proposal, signed))
    }

    fn verified(signed: &Signed, authority: &Authority) -> Result<Proposal> {
        let proposal: Proposal = signed.verify(Subject::Proposal, authority)?;
        known_version(proposal.fednmf_proposal)?;
        // A site believes nobody in what it can compute itself.
        let own = Proposal::following(proposal.parameters.clone(), proposal.rules.clone());
        if own.as_ref() != Some(&proposal) {
            let by = proposal.parameters.get("version").and_then(Value::as_str).unwrap_or("another program");
            return Err(Error::input(format!(
                "describes what leaves a site, limits or budget otherwise than they follow from its parameters: it was changed, or \
                 made by another version ({by}; this is {}); propose again with one version at all sites",
                attributes::VERSION
            )));
        }
        Ok(proposal)
    }

    /// As readable lines.
    pub fn text(&self) -> String {
        let given = |(_, value): &(&String, &Value)| !value.is_null();
        let parameter = |(name, value): (&String, &Value)| format!("  {} {}\n", typed(name), shown(Some(value)));
        let parameters: String = self.parameters.iter().filter(given).map(parameter).collect();
        let not_set: Vec<String> =
            self.parameters.iter().filter(|each| !given(each)).map(|(name, _)| typed(name)).collect();
        let not_set = if not_set.is_empty() { String::new() } else { format!("Not set: {}.\n", not_set.join(", ")) };
        let Proposal { method, messages, limits, budget, .. } = self;
        let masked = messages.iter().any(|message| message.payload == Payload::Masked.name());
        let mut messages = messages::table(messages, std::io::stdout());
        let transposed = self.parameters.get("transpose") == Some(&true.into());
        if transposed {
            messages += "With --transpose a row is a column of a site's file, unless a line names the file.\n";
        }
        let budget = budget.as_ref().map(Budget::text);
        let limits = limits.as_ref().map(|limits| limits.text(masked));
        let rules = match &self.rules {
            Some(rules) => format!("Rules for all sites:\n{}{}", rules.text(transposed), rules.duties()),
            None => "Rules for all sites: none, since no policy was proposed. What your own policy asks of rows and columns is of your \
                     site; others may have fewer. Sites in the run: any that the hub names.\n"
                .into(),
        };
        let more = limits.unwrap_or_default() + &budget.unwrap_or_default() + &rules;
        let summary = list::description(method).map_or("", |description| description.summary);
        let result = AgreedRun::of(&self.parameters).map_or("", |run| result(run.method.description().partition));
        format!(
            "{method}: {summary}\n{result}\nWhat leaves a site:\n{messages}\n{more}All options, not as a command line (given: a file of the site's own; true: the option is given):\n{parameters}\
             {not_set}\n"
        )
    }

    /// Refuses a run that is not the proposed one.
    fn check(&self, work: &Work) -> Result<()> {
        let own = work.compared();
        let names = self.parameters.keys().chain(own.keys().filter(|name| !self.parameters.contains_key(*name)));
        let given = |value: Option<&'_ Value>| value.filter(|value| !value.is_null()).cloned();
        let differ = |name: &&String| given(self.parameters.get(*name)) != given(own.get(*name));
        let differences: Vec<String> = names
            .filter(differ)
            .map(|name| {
                let [approved, given] = [self.parameters.get(name), own.get(name)].map(given);
                let name = typed(name);
                match (approved, given) {
                    (None, given) => format!("{name}: not approved, but given here ({})", shown(given.as_ref())),
                    (approved, None) => format!("{name}: approved ({}), but not given here", shown(approved.as_ref())),
                    both => {
                        format!("{name}: approved is {}, given is {}", shown(both.0.as_ref()), shown(both.1.as_ref()))
                    }
                }
            })
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::input(format!(
            "approves another run; run what is approved, or propose this:\n  {}",
            differences.join("\n  ")
        )))
    }
}

/// What the sites have in the end, in a sentence.
fn result(partition: Partition) -> &'static str {
    match partition {
        Partition::PartyRows => {
            "All sites get V: k numbers for each column of the matrix. U, with a row for each row of a site, stays there.\n"
        }
        Partition::PartyColumns => {
            "All sites get U: k numbers for each row of the matrix. V, with a row for each column of a site, stays there.\n"
        }
        _ => "",
    }
}

impl Budget {
    /// That of a run; `None` without noise.
    fn of(run: &AgreedRun) -> Option<Budget> {
        let (description, dp) = (run.method.description(), run.method.groups().dp.filter(|dp| dp.is_on())?);
        Some(Budget {
            epsilon: dp.epsilon.given(),
            delta: dp.delta,
            releases: dp.planned(run.count("max_iters"), description),
            protects: description.protects().map(|unit| unit.of_input(run.is("transpose", true)).replaced()),
        })
    }

    fn text(&self) -> String {
        let epsilon =
            self.epsilon.map_or("no limit".into(), |epsilon| format!("epsilon {epsilon}, delta {}", self.delta));
        let releases = self.releases.map(|count| format!(", over {}", counted(count as usize, "release", "releases")));
        let protects = self.protects.as_ref().map(|unit| format!("; it protects {unit}"));
        format!("Budget of the run: {epsilon}{}{}.\n", releases.unwrap_or_default(), protects.unwrap_or_default())
    }
}

impl Limits {
    /// Those of a run; `None` if noise takes their place, or the method has none.
    fn of(run: &AgreedRun) -> Option<Limits> {
        let (method, groups) = (&run.method, run.method.groups());
        let params = groups.disclosure.filter(|_| !groups.dp.is_some_and(|dp| dp.is_on()))?;
        let duration = Duration { iterations: run.count("max_iters"), eval_every: run.count("eval_every") };
        let found = params.limits(run.count("k"), method.opened_sums(), duration);
        let of = if method.description().partition == Partition::PartyColumns { "columns" } else { "rows" };
        let (least, vectors, hidden) = (found.least, found.vectors, found.hidden);
        let left = groups.threshold.and_then(|group| group.secure_threshold.as_ref().copied());
        Some(Limits { of: of.into(), least, vectors, hidden, colluding: params.colluding, left })
    }

    /// In words, where sums are `masked` or not.
    fn text(&self, masked: bool) -> String {
        let Limits { of, least, vectors, hidden, colluding, left } = self;
        let (one, across) = if of == "rows" { ("row", "columns") } else { ("column", "rows") };
        let mut lines = vec![
            "Limits, checked before the first sum unless --accept-risk names the risk:".to_string(),
            format!("Each site needs at least {least} {of}, and what the rules below ask for."),
        ];
        if *vectors > 0 {
            let left_out = if *colluding == 1 { "one".to_string() } else { colluding.to_string() };
            let who = match left.map(|left| left.saturating_sub(*colluding).max(1)) {
                _ if !masked => format!("Each site needs at least {hidden} {of}, since its sums are not masked"),
                Some(1) => format!("Since sites may be lost, each site needs at least {hidden} {of}"),
                Some(sites) => {
                    format!("Since sites may be lost, any {sites} sites need at least {hidden} {of} together")
                }
                None => {
                    format!("Without any {left_out} of the sites the others must have at least {hidden} {of} together")
                }
            };
            lines.extend([
                format!(
                    "The other sites will see {vectors} vectors (sums over {of}) in the whole run, or as many as a {one} has entries \
                     if that is fewer."
                ),
                format!("{who}, or {SHARE} times the number of {across} if that is fewer."),
                format!("This limits one attack on these sums, and does not hide single {of}: docs/privacy/attacks.md has figures."),
            ]);
        }
        lines.join("\n  ") + "\n"
    }
}

impl Approved {
    /// Reads the approval of `site`, and checks that it is of this run.
    ///
    /// # Errors
    /// If the file is no approval of this site, or the run differs from what was approved.
    pub fn read(path: &Path, site: &str, authority: &Authority, work: &Work) -> Result<Approved> {
        let at = |e: Error| e.at(format!("--approved {}", path.display()));
        let signed = read(path).map_err(|e| e.at("--approved"))?;
        let approval: Approval = signed.verify(Subject::Approval, authority).map_err(at)?;
        known_version(approval.fednmf_approval).map_err(at)?;
        if signed.signature.site != site {
            let other = &signed.signature.site;
            return Err(at(Error::input(format!(
                "is the approval of site {other}; a person at site {site} has to approve"
            ))));
        }
        if let Some(reason) = &approval.refused {
            let [by, reason] = [&approval.by, reason].map(|text| printable::printable(text));
            return Err(at(Error::input(format!(
                "is a refusal: {by} refuses this proposal for site {site}: {reason}"
            ))));
        }
        let proposal = Proposal::verified(&approval.proposal, authority).map_err(|e| at(e.at("its proposal")))?;
        proposal.check(work).map_err(at)?;
        Ok(Approved { proposal, digest: approval.proposal.digest(), by: approval.by })
    }

    /// Lets only the messages of the proposal leave.
    pub fn send_filter(&self) -> SendFilter {
        let allowed: Vec<(String, String)> =
            self.proposal.messages.iter().map(|message| (message.what.clone(), message.payload.clone())).collect();
        Box::new(move |tag: MessageTag| {
            match allowed.iter().any(|(what, payload)| what == tag.kind && payload == tag.payload.name()) {
                true => Ok(()),
                false => Err(format!(
                    "'{}' ({}) is not among the messages of the approved proposal; nothing of it was sent",
                    tag.kind,
                    tag.payload.name()
                )),
            }
        })
    }
}

/// Approves a proposal as a person `by` name, or refuses it for a reason: the document to write.
///
/// # Errors
/// If the certificate's key cannot sign.
pub fn decide(
    proposal: Signed,
    (by, refused): (&str, Option<&str>),
    time: String,
    site: &str,
    identity: &Identity,
) -> Result<Signed> {
    let (by, refused) = (by.into(), refused.map(String::from));
    let approval = Approval { fednmf_approval: VERSION, by, time, refused, proposal };
    Signed::new(json!(approval), Subject::Approval, site, identity)
}

/// Checks that a text says why a person refuses.
///
/// # Errors
/// What it must be.
pub fn reason(text: &str) -> std::result::Result<String, String> {
    if text.trim().is_empty() { Err("must say why".into()) } else { printable::shown(text) }
}

/// Checks that a text names a person, `Name <mail>`.
///
/// # Errors
/// What it must be.
pub fn person(text: &str) -> std::result::Result<String, String> {
    let parts = text.strip_suffix('>').and_then(|rest| rest.split_once('<'));
    match parts {
        Some((name, mail)) if !name.trim().is_empty() && mail.contains('@') && printable::shown(text).is_ok() => {
            Ok(text.trim().into())
        }
        _ => Err("must be a person's name and address, as in \"Ada Byron <ada@example.org>\"".into()),
    }
}

/// Writes a document to a new file.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write(path: &Path, document: &Signed) -> Result<()> {
    let wrong = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::input(format!("{}: exists and is not replaced; give another name", path.display()))
        }
        _ => Error::input(format!("{}: cannot be written ({e}); choose a directory of your own", path.display())),
    };
    let text = serde_json::to_string_pretty(document).expect("plain data") + "\n";
    unfinished::create(path, Access::Default, |out| out.write_all(text.as_bytes())).map_err(wrong)
}

fn read(path: &Path) -> Result<Signed> {
    let wrong = |why: String| Error::input(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e}); check the name")))?;
    serde_json::from_str(&text).map_err(|e| wrong(format!("is no signed document ({e})")))
}

fn known_version(version: u32) -> Result<()> {
    match version {
        VERSION => Ok(()),
        version => {
            Err(Error::input(format!("is of version {version} of the format, which this program does not know")))
        }
    }
}
