//! What a site takes part in: a factorisation, the preparation of the data for one, or what follows from several.

use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_driver as driver;
use fednmf_driver::spec::{Consent, Spec};
use fednmf_driver::transcript;
use fednmf_files::InputSpec;
use fednmf_files::output::attributes;
use fednmf_methods::description::Description;

use super::compared_of_run;
use super::messages::Message;
use super::policy::own_shape_of_run;
use super::proposal::Proposal;

/// What a site takes part in.
pub enum Work {
    Run(Box<Spec>),
    Joint(Box<JointWork>),
}

/// What sites compute together beside a factorisation.
pub trait Joint {
    fn description(&self) -> &'static Description;

    /// What must be equal at all sites, by name.
    fn settings(&self) -> Map<String, Value>;

    /// The risks that are accepted, with commas between them.
    fn accepted(&self) -> String;

    /// Whether the file of a site is read with `--transpose`.
    fn transposes(&self) -> bool {
        false
    }

    /// Rows and columns of the file of a site, after `--transpose`.
    ///
    /// # Errors
    /// If it cannot be read.
    fn own_shape(&self) -> Result<(usize, usize)>;

    /// Computes with the other sites; returns the exit code. Collective.
    ///
    /// # Errors
    /// If it cannot be done.
    fn perform_with(self: Box<Self>, comm: &Communicator) -> Result<i32>;
}

/// Such a computation, and what `join` has for it.
pub struct JointWork {
    pub task: Box<dyn Joint>,
    pub transcript: Option<PathBuf>,
    pub transcript_key: Option<PathBuf>,
    pub quiet: bool,
    pub consent: Consent,
}

/// The options of `join` that other computations take too; all others are about a factorisation.
const OF_ALL: [&str; 18] = [
    "color",
    "hub",
    "cert",
    "key",
    "ca",
    "site",
    "crl",
    "policy",
    "no_policy",
    "propose",
    "approved",
    "site_log",
    "wait",
    "patience",
    "transcript",
    "transcript_key",
    "quiet",
    "help",
];

/// Refuses options of a factorisation that were typed before `prepare` or `programs`; `join` is the command.
///
/// # Errors
/// Naming one of them.
pub fn check_options(join: &clap::Command, matches: &ArgMatches) -> Result<()> {
    let Some(name) = matches.subcommand_name() else { return Ok(()) };
    let typed = |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let is_other = |arg: &&clap::Arg| !OF_ALL.contains(&arg.get_id().as_str());
    // A profile has put others beside itself.
    match join.get_arguments().filter(is_other).filter(typed).max_by_key(|arg| arg.get_id() == "profile") {
        Some(arg) => Err(Error::input(format!(
            "--{}: is about a factorisation, and this is {name}; leave it out, or put options of {name} after this word",
            arg.get_long().unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

impl Work {
    /// The declaration of the method, or of the other computation.
    pub fn description(&self) -> &'static Description {
        match self {
            Work::Run(spec) => spec.description(),
            Work::Joint(joint) => joint.task.description(),
        }
    }

    pub fn consent(&self) -> &Consent {
        match self {
            Work::Run(spec) => &spec.consent,
            Work::Joint(joint) => &joint.consent,
        }
    }

    pub fn consent_mut(&mut self) -> &mut Consent {
        match self {
            Work::Run(spec) => &mut spec.consent,
            Work::Joint(joint) => &mut joint.consent,
        }
    }

    pub fn is_quiet(&self) -> bool {
        match self {
            Work::Run(spec) => spec.quiet,
            Work::Joint(joint) => joint.quiet,
        }
    }

    /// The factorisation, if it is one.
    pub fn run(&self) -> Option<&Spec> {
        if let Work::Run(spec) = self { Some(spec) } else { None }
    }

    /// All that must be equal at all sites, by name.
    pub fn compared(&self) -> Map<String, Value> {
        let mut all = match self {
            Work::Run(spec) => compared_of_run(spec),
            Work::Joint(joint) => joint.task.settings(),
        };
        all.insert("version".into(), attributes::VERSION.into());
        all.extend(self.consent().proposal.clone().map(|digest| ("approved".to_string(), digest.into())));
        all
    }

    /// All that may leave a site.
    pub fn messages(&self) -> Vec<Message> {
        Proposal::of(self, None).messages
    }

    /// Rows and columns of the own part, after `--transpose`; `None` if the data are no party's own. Only the header is read, and
    /// nothing is sent.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn own_shape(&self) -> Result<Option<(usize, usize)>> {
        match self {
            Work::Run(spec) => own_shape_of_run(spec),
            Work::Joint(joint) => joint.task.own_shape().map(Some),
        }
    }
}

impl JointWork {
    /// Computes with the other sites, and keeps the transcript; returns the exit code. Collective.
    ///
    /// # Errors
    /// As [`Joint::perform_with`], or if the transcript cannot be written.
    pub fn perform(self, comm: &Communicator) -> Result<i32> {
        let JointWork { task, transcript: path, transcript_key, consent, .. } = self;
        transcript::begin(
            &transcript::Request {
                path: path.as_deref(),
                key: transcript_key.as_deref(),
                method: task.description().name,
                settings: task.settings(),
                consent: &consent,
            },
            None,
            comm,
        )?;
        let done = task.perform_with(comm);
        // Also if it was refused: shapes have left, and perhaps sums.
        let ended = transcript::end(path.as_deref(), comm, None);
        done.and_then(|code| ended.map(|()| code))
    }
}

/// Runs a factorisation with the other sites; returns the exit code. Collective.
///
/// # Errors
/// As [`driver::run`].
pub fn factorise(spec: Spec, comm: &Communicator) -> Result<i32> {
    let parties = spec.parties.filter(|parties| *parties != comm.size());
    if let Some(parties) = parties {
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
