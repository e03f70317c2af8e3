//! The policy of a site: `--policy FILE`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_base::printable::printable;
use fednmf_comm::{Communicator, MessageTag, SendFilter};
use fednmf_driver::budget;
use fednmf_driver::spec::{Precision, Spec};
use fednmf_files::{InputSpec, PARTY, Source};
use fednmf_methods::description::{Description, Partition};
use fednmf_methods::parameters::{ParamType as _, meant_among};
use fednmf_methods::registry;
use fednmf_methods::shared::disclosure::Accepted;
use fednmf_methods::shared::dp::{BudgetPath, DpParams};
use fednmf_privacy::{BudgetUnit, Protection};

use super::messages;
use super::messages::Message;
use super::work::Work;
use crate::commands::list;

/// An option that a run must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Required {
    SecureSum,
    Dp,
    Transcript,
    Budget,
    SiteLog,
    Hold,
    HoldFor,
    SuppressRare,
}

impl Required {
    /// As typed.
    fn option(self) -> &'static str {
        match self {
            Required::SecureSum => "--secure-sum",
            Required::Dp => "--dp",
            Required::Transcript => "--transcript",
            Required::Budget => "--budget",
            Required::SiteLog => "--site-log",
            Required::Hold => "--hold",
            Required::HoldFor => "--hold-for",
            Required::SuppressRare => "--suppress-rare",
        }
    }
}

/// What happens to the results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    No,
    /// They are put aside.
    Aside,
    /// The same, encrypted.
    Encrypted,
}

/// Whether a person must have approved the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Approval {
    Required,
}

/// What is a person in the file of a site, as it is before `--transpose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Persons {
    Rows,
    Columns,
}

impl Persons {
    fn name(self) -> &'static str {
        match self {
            Persons::Rows => "rows",
            Persons::Columns => "columns",
        }
    }
}

/// The arithmetic of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Arithmetic {
    F64,
    F32,
    Mixed,
}

/// A file that a run may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Written {
    #[serde(rename = "output")]
    Factors,
    Report,
    Trace,
    Checkpoint,
    RecordView,
}

/// The limits that a site sets to a run; fields that are not set impose none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    require: Vec<Required>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_parties: Option<usize>,
    /// The sites that may take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    sites: Option<Vec<String>>,
    /// The sites that may compute on the secret shares of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    computing: Option<Vec<String>>,
    /// Rows and columns of the own part, after `--transpose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rows: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_columns: Option<usize>,
    /// What all sites may not have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    persons: Option<Persons>,
    /// k over the number of own rows; of own columns where parties have columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_components_per_row: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rounds_times_components: Option<usize>,
    /// What epsilon may protect, in the file as it is before `--transpose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    protects: Option<Vec<BudgetUnit>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_epsilon: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delta: Option<f64>,
    /// What all runs on the own data may spend together.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_budget: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<Vec<Arithmetic>>,
    /// The risks that a run may accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    accept_risk: Option<Vec<String>>,
    /// The least number of other sites that the checks before a run assume to pool what they receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_colluding: Option<usize>,
    /// Whether evaluations may be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluations: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Vec<Written>>,
    /// The kinds of messages that may leave without mask, noise or encryption. What is public by its type always may.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_the_clear: Option<Vec<String>>,
    /// The kinds of messages that may leave masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    masked: Option<Vec<String>>,
}

/// What a site knows of a run before it connects.
pub struct Intended<'a> {
    pub work: &'a Work,
    /// The name of the own site.
    pub site: &'a str,
    /// Rows and columns of the own part, after `--transpose`; `None` if they do not matter yet.
    pub own: Option<(usize, usize)>,
    pub approved: bool,
    pub logged: bool,
    pub hold: Hold,
}

/// Refuses a run for all the reasons at once; `whose` policy it is.
fn refusal(whose: &str, reasons: &[String]) -> Result<()> {
    match reasons {
        [] => Ok(()),
        reasons => Err(Error::input(format!("{whose} refuses the run:\n  {}", reasons.join("\n  ")))),
    }
}

/// Units of privacy in words.
fn units_text(units: &[BudgetUnit]) -> String {
    units.iter().map(|unit| unit.describe()).collect::<Vec<_>>().join(", or ")
}

/// What a policy asks about.
struct Facts<'a> {
    name: &'static str,
    partition: Partition,
    /// What all sites have in common in their files: names, and a factor or sums.
    common: Persons,
    masked: bool,
    dp: Option<&'a DpParams>,
    /// What epsilon protects.
    unit: Option<BudgetUnit>,
    transcript: bool,
    rounds: usize,
    k: usize,
    precision: Precision,
    evaluates: bool,
    /// The risks that the run accepts, with commas between them.
    accepted: String,
    suppresses: bool,
    /// `None`: the checks do not ask.
    colluding: Option<usize>,
    /// The number of parties with which the run may go on without the others.
    left: Option<usize>,
    outputs: Vec<(Written, &'static str)>,
}

impl<'a> Facts<'a> {
    fn of(work: &'a Work) -> Self {
        let Description { name, partition, .. } = *work.description();
        let transposed = match work {
            Work::Run(spec) => spec.input.transpose,
            Work::Joint(joint) => joint.task.transposes(),
        };
        let common =
            if (partition == Partition::PartyColumns) == transposed { Persons::Columns } else { Persons::Rows };
        let spec = match work {
            Work::Run(spec) => spec,
            // Its sums are always masked, and its files are the site's own rows.
            Work::Joint(joint) => {
                let settings = joint.task.settings();
                return Facts {
                    name,
                    partition,
                    common,
                    masked: true,
                    dp: None,
                    unit: None,
                    transcript: joint.transcript.is_some(),
                    rounds: 0,
                    k: 0,
                    precision: Precision::F64,
                    evaluates: false,
                    accepted: joint.task.accepted(),
                    // A preparation leaves such columns out by itself.
                    suppresses: settings.get("suppress_rare").is_none_or(|given| !given.is_null()),
                    colluding: settings.get("colluding").and_then(Value::as_u64).map(|count| count as usize),
                    left: None,
                    outputs: Vec::new(),
                };
            }
        };
        let groups = spec.method.assumed().groups();
        let outputs = [
            (Written::Factors, "--output", spec.outputs.factors.is_some()),
            (Written::Report, "--report", spec.outputs.report.is_some()),
            (Written::Trace, "--trace", spec.trace.is_some()),
            (Written::Checkpoint, "--checkpoint", spec.checkpoint.is_some()),
            (Written::RecordView, "--record-view", spec.record_view.is_some()),
        ];
        let dp = groups.dp.filter(|dp| dp.is_on());
        Facts {
            name,
            partition,
            common,
            masked: groups.secure_sum.is_some_and(|sum| sum.secure_sum),
            dp,
            unit: dp.and(spec.description().protects()).map(|unit| unit.of_input(spec.input.transpose)),
            transcript: spec.transcript.is_some(),
            rounds: spec.max_iters,
            k: spec.k,
            // The precision of parties' data is f64 if the data decide it.
            precision: spec.precision.unwrap_or(Precision::F64),
            evaluates: spec.eval_every > 0,
            accepted: groups.disclosure.and_then(|limits| limits.accept_risk.text()).unwrap_or_default(),
            suppresses: groups.disclosure.is_some_and(|limits| limits.suppress_rare.as_ref().is_some()),
            colluding: groups.disclosure.filter(|_| !groups.is_noised()).map(|limits| limits.colluding),
            left: groups.threshold.and_then(|group| group.secure_threshold.as_ref().copied()),
            outputs: outputs
                .into_iter()
                .filter(|(_, _, given)| *given)
                .map(|(what, option, _)| (what, option))
                .collect(),
        }
    }
}

impl Policy {
    /// Reads the JSON of a file.
    ///
    /// # Errors
    /// If it cannot be read, is no policy, or names a method that does not exist.
    pub fn read(path: &Path) -> Result<Policy> {
        let wrong = |why: String| Error::input(format!("--policy {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e})")))?;
        // Some editors write a byte order mark.
        let text = text.trim_start_matches('\u{feff}');
        let policy: Policy = serde_json::from_str(text).map_err(|e| wrong(format!("is no policy: {e}")))?;
        let unknown = policy.accept_risk.iter().flatten().find_map(|risk| Accepted::parse(risk).err());
        if let Some(must) = unknown {
            return Err(wrong(format!("accept_risk: {must}")));
        }
        for (field, kinds) in [("in_the_clear", &policy.in_the_clear), ("masked", &policy.masked)] {
            let unknown = kinds.iter().flatten().find(|kind| !messages::kinds().any(|known| known == *kind));
            if let Some(kind) = unknown {
                let meant = meant_among(kind, messages::kinds());
                let meant = meant.map_or(";".into(), |known| format!("; did you mean '{known}'?"));
                return Err(wrong(format!(
                    "{field}: '{kind}' is no kind of message{meant} 'fednmf list NAME --wire' shows those of a method"
                )));
            }
        }
        if let (Some(least), Some(sites)) = (policy.min_parties, &policy.sites)
            && sites.len() < least
        {
            return Err(wrong(format!("min_parties: is {least}, and 'sites' names only {}", sites.len())));
        }
        let unknown = policy.methods.iter().flatten().find(|name| list::description(name).is_none());
        match unknown {
            Some(name) => Err(wrong(format!("{name}: {}", registry::unknown(name)))),
            None => Ok(policy),
        }
    }

    /// The number of sites that are sure to take part, if it says so.
    pub fn parties(&self) -> Option<usize> {
        self.min_parties.or(self.sites.as_ref().map(Vec::len))
    }

    /// As readable lines, one for each field. `transposed`: a row of the run is a column of a site's file.
    pub fn text(&self, transposed: bool) -> String {
        let list = |names: &Vec<String>| if names.is_empty() { "none".to_string() } else { names.join(", ") };
        let all = |names: &Option<Vec<String>>| names.as_ref().map(list);
        let options: Vec<String> = self.require.iter().map(|required| required.option().to_string()).collect();
        let words = |values: Value| {
            let words = |text: &Value| text.as_str().unwrap_or_default().to_string();
            list(&values.as_array().into_iter().flatten().map(words).collect())
        };
        let at_least = |count: Option<usize>, what: &str| count.map(|count| format!("at least {count} {what}"));
        let at_most = |value: Option<f64>| value.map(|value| format!("at most {value}"));
        let rules = [
            ("methods", all(&self.methods)),
            ("required options", (!options.is_empty()).then(|| list(&options))),
            ("approval", self.approval.map(|_| "by a person at each site".into())),
            ("sites in a run", at_least(self.min_parties, "")),
            ("sites that may take part", all(&self.sites)),
            ("sites that may compute on secret shares", all(&self.computing)),
            (if transposed { "columns of each site's file" } else { "rows of each site" }, at_least(self.min_rows, "")),
            (
                if transposed { "rows of each site's file" } else { "columns of each site" },
                at_least(self.min_columns, ""),
            ),
            ("persons", self.persons.map(|persons| format!("{} of each site's file; they stay there", persons.name()))),
            ("components for each row or column that is the site's own", at_most(self.max_components_per_row)),
            ("iterations times components", at_most(self.max_rounds_times_components.map(|most| most as f64))),
            ("epsilon protects", self.protects.as_ref().map(|units| units_text(units))),
            ("epsilon", at_most(self.max_epsilon)),
            ("delta", at_most(self.max_delta)),
            ("budget of all runs", at_most(self.max_budget)),
            ("precision", self.precision.as_ref().map(|allowed| words(json!(allowed)))),
            ("risks that may be accepted", all(&self.accept_risk)),
            ("other sites assumed to collude", at_least(self.min_colluding, "")),
            ("evaluations", self.evaluations.map(|may| if may { "allowed" } else { "none" }.into())),
            ("files that may be written", self.outputs.as_ref().map(|allowed| words(json!(allowed)))),
            ("messages in the clear", all(&self.in_the_clear)),
            ("masked messages", all(&self.masked)),
        ];
        let line = |(what, rule): (&str, Option<String>)| Some(format!("  {what}: {}\n", printable(rule?.trim_end())));
        rules.into_iter().filter_map(line).collect()
    }

    /// Which sites the run expects, and what each of them adds to its own command: no proposal sets these options.
    pub fn duties(&self) -> String {
        let requires = |any: &[Required]| self.require.iter().any(|required| any.contains(required));
        let own = [
            ("--approved F.json", self.approval.is_some()),
            ("--transcript F.jsonl", requires(&[Required::Transcript])),
            ("--budget F.json", requires(&[Required::Budget]) || self.max_budget.is_some()),
            // Results are only put aside with a log.
            ("--site-log F.jsonl", requires(&[Required::SiteLog, Required::Hold, Required::HoldFor])),
            ("--hold", requires(&[Required::Hold, Required::HoldFor])),
            ("--hold-for FILE", requires(&[Required::HoldFor])),
        ];
        let own: Vec<&str> = own.into_iter().filter(|(_, required)| *required).map(|(option, _)| option).collect();
        let sites = self.sites.as_ref().map_or("any that the hub names".into(), |sites| printable(&sites.join(", ")));
        let least = self.min_parties.map(|least| format!("; at least {least}")).unwrap_or_default();
        let adds = match own[..] {
            [] => String::new(),
            _ => format!("Each site adds to its own 'fednmf join': {}.\n", own.join(", ")),
        };
        format!("Sites in the run: {sites}{least}.\n{adds}")
    }

    /// Whether the run depends on the shape of the own part.
    pub fn asks_shape(&self) -> bool {
        self.min_rows.is_some() || self.min_columns.is_some() || self.max_components_per_row.is_some()
    }

    /// Checks a run against the policy; `whose` it is.
    ///
    /// # Errors
    /// Naming each field that forbids the run, and why.
    pub fn check(&self, whose: &str, run: &Intended<'_>) -> Result<()> {
        let mut reasons = self.against_options(run);
        if self.sites.as_ref().is_some_and(|known| !known.iter().any(|known| known == run.site)) {
            reasons.push(format!("sites: does not name this site, {}", run.site));
        }
        reasons.extend(self.against_messages(run.work));
        reasons.extend(self.against_shape(run));
        refusal(whose, &reasons)
    }

    /// What the policy has against the options of a run.
    fn against_options(&self, run: &Intended<'_>) -> Vec<String> {
        let facts = Facts::of(run.work);
        let mut reasons = Vec::new();
        let mut refuse = |field: &str, why: String| reasons.push(format!("{field}: {why}"));
        let (name, dp) = (facts.name, facts.dp);
        let allows = |allowed: &String| list::description(allowed).is_some_and(|known| known.name == name);
        if let Some(methods) = &self.methods
            && !methods.iter().any(allows)
        {
            let what = if run.work.run().is_some() { format!("--algo {name}") } else { name.to_string() };
            refuse("methods", format!("does not allow {what}, only {}", methods.join(", ")));
        }
        // A preparation has no noise.
        let without_noise = run.work.run().is_none();
        let no_noise = || {
            format!("demands noise, and {name} adds none; ask for a policy that allows it without, or use public rules")
        };
        for required in &self.require {
            let given = match required {
                Required::Dp | Required::Budget if without_noise => {
                    refuse("require", no_noise());
                    continue;
                }
                Required::Hold | Required::HoldFor if run.work.run().is_none() => {
                    refuse(
                        "require",
                        format!(
                            "requires {}, and {name} puts no results aside; ask for a policy that allows it without",
                            required.option()
                        ),
                    );
                    continue;
                }
                Required::SecureSum => facts.masked,
                Required::Dp => dp.is_some(),
                Required::Transcript => facts.transcript,
                Required::Budget => dp.is_some_and(|dp| dp.budget_path().is_some()),
                Required::SiteLog => run.logged,
                Required::Hold => run.hold != Hold::No,
                Required::HoldFor => run.hold == Hold::Encrypted,
                Required::SuppressRare => facts.suppresses,
            };
            if !given {
                refuse("require", format!("requires {}", required.option()));
            }
        }
        if let (Some(least), Some(left)) = (self.min_parties, facts.left)
            && left < least
        {
            refuse(
                "min_parties",
                format!(
                    "requires at least {least} parties, and --secure-threshold {left} goes on with {left}; give at least {least}"
                ),
            );
        }
        if self.approval.is_some() && !run.approved {
            refuse("approval", "requires --approved, the approval of a proposed run by a person".into());
        }
        if let Some(persons) = self.persons.filter(|persons| *persons == facts.common) {
            let transposed = (facts.partition == Partition::PartyColumns) == (persons == Persons::Columns);
            let cure = if transposed { "leave --transpose out" } else { "add --transpose" };
            let what = persons.name();
            refuse(
                "persons",
                format!("are the {what} of the file, and all sites would get names and figures of each; {cure}"),
            );
        }
        if let Some(units) = &self.protects {
            let allowed = || units_text(units);
            match facts.unit {
                None if without_noise => refuse("protects", no_noise()),
                None => refuse("protects", format!("requires --dp, so that epsilon protects {}", allowed())),
                Some(unit) if !units.contains(&unit) => {
                    let hint = match unit {
                        BudgetUnit::Party => "",
                        BudgetUnit::Row | BudgetUnit::Column => "; --transpose decides between row and column",
                    };
                    let unit = unit.describe();
                    refuse("protects", format!("allows an epsilon that protects {}, not {unit}{hint}", allowed()));
                }
                Some(_) => {}
            }
        }
        if let Some(most) = self.max_epsilon {
            match dp.map(|dp| dp.epsilon.given()) {
                None if without_noise => refuse("max_epsilon", no_noise()),
                None => refuse("max_epsilon", format!("allows an --epsilon of at most {most}, so --dp is required")),
                Some(None) => refuse("max_epsilon", format!("requires an --epsilon, of at most {most}")),
                Some(Some(epsilon)) if epsilon > most => {
                    refuse("max_epsilon", format!("allows an --epsilon of at most {most}, not {epsilon}"));
                }
                _ => {}
            }
        }
        if let Some(most) = self.max_delta {
            match dp.map(|dp| dp.delta) {
                None if without_noise => refuse("max_delta", no_noise()),
                None => refuse("max_delta", format!("allows a --delta of at most {most}, so --dp is required")),
                Some(delta) if delta > most => {
                    refuse("max_delta", format!("allows a --delta of at most {most}, not {delta}"));
                }
                _ => {}
            }
        }
        if let Some(most) = self.max_budget {
            let limit = |budget: BudgetPath<'_>| budget.limit.or_else(|| Some(budget::read(budget.path).ok()?.limit));
            match dp.and_then(DpParams::budget_path).map(limit) {
                Some(Some(limit)) if limit <= most => {}
                Some(Some(limit)) => {
                    refuse("max_budget", format!("allows a --budget-limit of at most {most}, not {limit}"));
                }
                _ if without_noise => refuse("max_budget", no_noise()),
                _ => refuse("max_budget", format!("requires --budget with a --budget-limit of at most {most}")),
            }
        }
        if let Some(most) = self.max_rounds_times_components
            && facts.rounds.saturating_mul(facts.k) > most
        {
            let (rounds, k) = (facts.rounds, facts.k);
            refuse(
                "max_rounds_times_components",
                format!("allows {most}, and --max-iters {rounds} times -k {k} is more"),
            );
        }
        let arithmetic = match facts.precision {
            Precision::F64 => Arithmetic::F64,
            Precision::F32 => Arithmetic::F32,
            Precision::Mixed => Arithmetic::Mixed,
        };
        if self.precision.as_ref().is_some_and(|allowed| !allowed.contains(&arithmetic)) {
            refuse("precision", format!("does not allow --precision {}", facts.precision.name()));
        }
        if let Some(allowed) = &self.accept_risk {
            let others: Vec<&str> = facts
                .accepted
                .split(',')
                .filter(|risk| !risk.is_empty() && !allowed.iter().any(|other| other == risk))
                .collect();
            if !others.is_empty() {
                refuse("accept_risk", format!("does not allow --accept-risk {}", others.join(",")));
            }
        }
        if let (Some(least), Some(assumed)) = (self.min_colluding, facts.colluding)
            && assumed < least
        {
            refuse("min_colluding", format!("requires a --colluding of at least {least}, not {assumed}"));
        }
        if self.evaluations == Some(false) && facts.evaluates {
            refuse("evaluations", "requires --eval-every 0".into());
        }
        for (output, option) in facts.outputs {
            if self.outputs.as_ref().is_some_and(|allowed| !allowed.contains(&output)) {
                refuse("outputs", format!("does not allow {option}"));
            }
        }
        reasons
    }

    /// Whether a kind of message may leave under a protection.
    ///
    /// # Errors
    /// With the field that forbids it, and how it would leave.
    fn allows(&self, kind: &str, protection: Protection) -> std::result::Result<(), (&'static str, &'static str)> {
        let (field, allowed, how) = match protection {
            Protection::Declared => ("in_the_clear", &self.in_the_clear, "in the clear"),
            Protection::Masked | Protection::MaskedNoised => ("masked", &self.masked, "masked"),
            _ => return Ok(()),
        };
        let is_allowed = allowed.as_ref().is_none_or(|kinds| kinds.iter().any(|known| known == kind));
        if is_allowed { Ok(()) } else { Err((field, how)) }
    }

    /// What the policy has against the messages, all of which are known before.
    fn against_messages(&self, work: &Work) -> Vec<String> {
        let forbidden = |message: Message| {
            let (field, how) = self.allows(&message.what, message.protected()).err()?;
            let Message { what, when, .. } = message;
            // What protects it, or avoids it, is an option of the run; what belongs to every run, no option avoids.
            let cure = match when.contains("--") {
                true => "leave the option out, or allow it",
                false if how == "in the clear" => "add --secure-sum if the method has it, allow it, or take no part",
                false => "allow it, or take no part",
            };
            Some(format!("{field}: does not allow '{what}' to leave {how}; it leaves {when}: {cure}"))
        };
        work.messages().into_iter().filter_map(forbidden).collect()
    }

    /// What the policy has against the shape of the own part. The reasons are for the site's own owner.
    fn against_shape(&self, run: &Intended<'_>) -> Vec<String> {
        let Some((rows, columns)) = run.own else { return Vec::new() };
        let mut reasons = Vec::new();
        let transposed = run.work.run().is_some_and(|spec| spec.input.transpose);
        let fields = [("min_rows", self.min_rows, rows, "rows"), ("min_columns", self.min_columns, columns, "columns")];
        for (at, (field, least, given, what)) in fields.into_iter().enumerate() {
            if let Some(least) = least.filter(|least| given < *least) {
                let (other, _, _, in_file) = fields[1 - at];
                let turned = match transposed {
                    true => format!(" after --transpose: the {in_file} of the file; {other} counts its {what}"),
                    false => String::new(),
                };
                reasons.push(format!("{field}: requires {least} {what}, and this site's data have {given}{turned}"));
            }
        }
        let facts = Facts::of(run.work);
        let (own, what) = match facts.partition {
            Partition::PartyColumns => (columns, "columns"),
            _ => (rows, "rows"),
        };
        let k = facts.k;
        if let Some(most) = self.max_components_per_row.filter(|most| k as f64 > most * own as f64) {
            let least = (k as f64 / most).ceil();
            reasons.push(format!(
                "max_components_per_row: allows {most}, and -k {k} of {own} own {what} is more; take a smaller -k, or at \
                 least {least} {what}"
            ));
        }
        reasons
    }

    /// Checks the sites that take part, of which `computing` compute on secret shares; `whose` policy it is.
    ///
    /// # Errors
    /// If they are too few, or the policy does not name one of them.
    pub fn check_sites(&self, whose: &str, sites: &[String], computing: &[String]) -> Result<()> {
        let mut reasons = Vec::new();
        if let Some(least) = self.min_parties.filter(|least| sites.len() < *least) {
            reasons.push(format!("min_parties: requires at least {least} parties, and this run has {}", sites.len()));
        }
        let strangers = sites.iter().filter(|site| self.sites.as_ref().is_some_and(|known| !known.contains(site)));
        reasons.extend(strangers.map(|site| format!("sites: does not name site {site}")));
        let strangers =
            computing.iter().filter(|site| self.computing.as_ref().is_some_and(|known| !known.contains(site)));
        reasons.extend(strangers.map(|site| {
            format!(
                "computing: does not name site {site}, one of the first three of 'fednmf serve --sites', which compute"
            )
        }));
        refusal(whose, &reasons)
    }

    /// A function that decides whether a message may be sent; `None` if the policy does not limit messages. `whose` it is.
    pub fn send_filter(&self, whose: &'static str) -> Option<SendFilter> {
        if self.in_the_clear.is_none() && self.masked.is_none() {
            return None;
        }
        let policy = self.clone();
        Some(Box::new(move |tag: MessageTag| {
            policy.allows(tag.kind, tag.protection()).map_err(|(field, how)| {
                format!("{whose} does not allow '{}' to leave {how} ({field}); nothing of it was sent", tag.kind)
            })
        }))
    }
}

/// As [`Work::own_shape`].
///
/// # Errors
/// If the file cannot be read.
pub fn own_shape_of_run(spec: &Spec) -> Result<Option<(usize, usize)>> {
    if matches!(spec.input.source, Source::Synthetic(_)) {
        return Ok(None);
    }
    if spec.input_text.contains(PARTY) {
        return Err(Error::input(
            "--input: name this site's file without {party}, so that its rows can be counted before others are met",
        ));
    }
    let header = fednmf_files::open(&InputSpec { parties: None, ..spec.input.clone() }, &Communicator::local())?;
    Ok(Some((header.header().rows, header.header().cols)))
}

#[cfg(test)]
mod tests {
    use fednmf_comm::Payload;

    use super::*;
    use crate::cli::{Request, parse};

    fn check(policy: &str, line: &str) -> Option<String> {
        let policy: Policy = serde_json::from_str(policy).unwrap();
        let Ok(Request::Run(args, method)) = parse(line.split(' ').map(Into::into)) else { panic!("{line}") };
        let spec = args.check(method, Vec::new()).unwrap();
        check_with(policy, &spec, None)
    }

    fn check_with(policy: Policy, spec: &Spec, own: Option<(usize, usize)>) -> Option<String> {
        let work = Work::Run(Box::new(spec.clone()));
        let run = Intended { work: &work, site: "a", own, approved: false, logged: false, hold: Hold::Aside };
        policy.check("the policy", &run).err().map(|e| e.message)
    }

    #[test]
    fn a_policy_refuses_what_it_does_not_allow() {
        let methods = r#"{"methods": ["fnmf", "felb-mu"]}"#;
        assert_eq!(check(methods, "fednmf --algo fnmf"), None);
        assert!(check(methods, "fednmf --algo mur").unwrap().contains("only fnmf, felb-mu"));
        let masked = r#"{"require": ["secure-sum"]}"#;
        assert!(check(masked, "fednmf --algo fnmf").unwrap().contains("--secure-sum"));
        assert_eq!(check(masked, "fednmf --algo fnmf --secure-sum"), None);
        let four = r#"{"min_parties": 4}"#;
        let left = |t: usize| check(four, &format!("fednmf --algo fnmf --secure-sum --secure-threshold {t}"));
        assert!(left(3).unwrap().contains("min_parties: requires at least 4 parties, and --secure-threshold 3"));
        assert_eq!(left(4), None);
        let noised = r#"{"max_epsilon": 2}"#;
        assert!(check(noised, "fednmf --algo felb").unwrap().contains("--dp"));
        assert!(check(noised, "fednmf --algo felb --dp gaussian --epsilon 3").unwrap().contains("not 3"));
        assert!(check(noised, "fednmf --algo felb --dp gaussian --dp-noise 3").unwrap().contains("--epsilon"));
        assert_eq!(check(noised, "fednmf --algo felb --dp gaussian --epsilon 2"), None);
    }

    /// Each field refuses what it is about, by its name, and nothing else; all that a run violates are named at once.
    #[test]
    fn every_field_refuses_by_name() {
        let line = "fednmf --algo felb -k 6 --max-iters 50 --precision f32 --trace t.jsonl --dp gaussian --epsilon 1 \
                    --eval-every 10 --accept-risk few-rows";
        let cases = [
            (r#""methods": ["fnmf"]"#, r#""methods": ["felb"]"#),
            (r#""require": ["hold-for"]"#, r#""require": ["hold"]"#),
            (r#""approval": "required""#, r#""require": []"#),
            (r#""max_rounds_times_components": 299"#, r#""max_rounds_times_components": 300"#),
            (r#""protects": ["row", "column"]"#, r#""protects": ["party"]"#),
            (r#""max_epsilon": 0.9"#, r#""max_epsilon": 1"#),
            (r#""max_delta": 1e-6"#, r#""max_delta": 1e-5"#),
            (r#""precision": ["f64", "mixed"]"#, r#""precision": ["f32"]"#),
            (r#""accept_risk": ["membership"]"#, r#""accept_risk": ["few-rows"]"#),
            (r#""evaluations": false"#, r#""evaluations": true"#),
            (r#""outputs": ["output"]"#, r#""outputs": ["trace"]"#),
            (r#""persons": "columns""#, r#""persons": "rows""#),
            (r#""min_rows": 21"#, r#""min_rows": 20"#),
            (r#""min_columns": 31"#, r#""min_columns": 30"#),
            (r#""max_components_per_row": 0.29"#, r#""max_components_per_row": 0.3"#),
        ];
        let Ok(Request::Run(args, method)) = parse(line.split(' ').map(Into::into)) else { panic!("{line}") };
        let spec = args.check(method, Vec::new()).unwrap();
        let policy = |text: &str| -> Policy { serde_json::from_str(text).unwrap() };
        let check = |fields: &str| check_with(policy(&format!("{{{fields}}}")), &spec, Some((20, 30)));
        let named = |fields: &str| fields.split('"').nth(1).unwrap().to_string() + ": ";
        for (violated, kept) in cases {
            let why = check(violated).unwrap_or_else(|| panic!("{violated} allows the run"));
            assert!(why.contains(&named(violated)) && why.lines().count() == 2, "{violated}: {why}");
            assert_eq!(check(kept), None, "{kept}");
        }
        assert!(check(r#""require": ["budget"]"#).unwrap().contains("requires --budget"));
        assert!(check(r#""max_budget": 3"#).unwrap().contains("requires --budget with a --budget-limit of at most 3"));
        let all = check(&cases.map(|(violated, _)| violated).join(", ")).unwrap();
        assert!(cases.iter().all(|(violated, _)| all.contains(&named(violated))), "{all}");
        assert_eq!(all.lines().count(), 1 + cases.len(), "{all}");
    }

    /// Names and the shared factor are of the side of the file that is not private.
    #[test]
    fn persons_stay_at_their_site() {
        for (line, common) in [
            ("fednmf --algo fnmf", "columns"),
            ("fednmf --algo fnmf --transpose", "rows"),
            ("fednmf --algo secure-hals", "rows"),
            ("fednmf --algo secure-hals --transpose", "columns"),
        ] {
            let cure = if line.ends_with("--transpose") { "leave --transpose out" } else { "add --transpose" };
            for persons in ["rows", "columns"] {
                let refused = check(&format!(r#"{{"persons": "{persons}"}}"#), line);
                assert_eq!(refused.is_some(), persons == common, "{line}: {persons}");
                assert!(refused.is_none_or(|why| why.contains(cure)), "{line}: {persons}");
            }
        }
    }

    #[test]
    fn a_policy_limits_the_budget_of_all_runs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("b.json");
        let check = |more: &str| {
            let line = format!("fednmf --algo felb --dp gaussian --epsilon 1 --budget {} {more}", file.display());
            check(r#"{"max_budget": 3}"#, line.trim())
        };
        assert!(check("").unwrap().contains("max_budget: requires --budget with"));
        assert!(check("--budget-limit 3.5").unwrap().contains("at most 3, not 3.5"));
        assert_eq!(check("--budget-limit 3"), None);
        // That of a file from earlier runs.
        std::fs::write(&file, r#"{"fednmf_budget": 1, "limit": 9, "runs": []}"#).unwrap();
        assert!(check("").unwrap().contains("at most 3, not 9"));
    }

    #[test]
    fn the_templates_are_policies() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/sites");
        for name in ["policy.json", "policy-prepare.json", "policy-few-sites.json", "policy-clinical.json"] {
            let read = Policy::read(&folder.join(name)).unwrap();
            assert_ne!(read, Policy::default());
            let marked = tempfile::NamedTempFile::new().unwrap();
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            std::fs::write(marked.path(), format!("\u{feff}{text}")).unwrap();
            assert_eq!(Policy::read(marked.path()).unwrap(), read, "with a byte order mark");
        }
    }

    #[test]
    fn a_policy_says_with_whom() {
        let policy: Policy = serde_json::from_str(r#"{"min_parties": 3, "sites": ["a", "b", "c"]}"#).unwrap();
        let sites = |names: &str| names.split(',').map(String::from).collect::<Vec<_>>();
        let check = |names: &str| policy.check_sites("the policy", &sites(names), &[]).err().map(|e| e.message);
        assert_eq!(check("a,b,c"), None);
        let both = check("a,x").unwrap();
        assert!(
            both.contains("min_parties: requires at least 3") && both.contains("sites: does not name site x"),
            "{both}"
        );
        assert!(serde_json::from_str::<Policy>(r#"{"min_partys": 3}"#).is_err());
        let policy: Policy = serde_json::from_str(r#"{"computing": ["a", "b", "c"]}"#).unwrap();
        let check = |names: &str| policy.check_sites("the policy", &sites("a,b,c,d"), &sites(names));
        assert!(check("c,a,b").is_ok());
        assert!(check("a,b,d").unwrap_err().message.contains("computing: does not name site d"));
    }

    #[test]
    fn messages_in_the_clear_need_consent() {
        let policy: Policy = serde_json::from_str(r#"{"in_the_clear": ["sum V"]}"#).unwrap();
        let send_filter = policy.send_filter("the policy").unwrap();
        assert!(send_filter(MessageTag::new("sum V", Payload::SharedFactor)).is_ok());
        assert!(send_filter(MessageTag::new("headers", Payload::Metadata)).is_err());
        assert!(send_filter(MessageTag::new("products", Payload::Product)).is_err());
    }
}
