//! What a site takes part in: a factorisation, or the preparation of the data for one.

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
use super::policy::own_shape_of_run;
use super::proposal::{Message, messages_of_run};
use crate::commands::prepare::{Preparation, sums};

/// What a site takes part in.
pub enum Work {
    Run(Box<Spec>),
    Preparation(Box<JointPreparation>),
}

/// A preparation, and what `join` has for it.
pub struct JointPreparation {
    pub preparation: Preparation,
    pub transcript: Option<PathBuf>,
    pub transcript_key: Option<PathBuf>,
    pub quiet: bool,
    pub consent: Consent,
}

/// The options of `join` that a preparation takes too; all others are about a factorisation.
const OF_PREPARATION: [&str; 18] = [
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

/// Refuses options of a factorisation that were typed before `prepare`; `join` is the command.
///
/// # Errors
/// Naming the first.
pub fn check_preparation(join: &clap::Command, matches: &ArgMatches) -> Result<()> {
    if matches.subcommand_name().is_none() {
        return Ok(());
    }
    let typed = |arg: &&clap::Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let is_other = |arg: &&clap::Arg| !OF_PREPARATION.contains(&arg.get_id().as_str());
    match join.get_arguments().filter(is_other).find(typed) {
        Some(arg) => Err(Error::input(format!(
            "--{}: is about a factorisation, and this is a preparation; leave it out, or put options of the preparation after \
             'prepare'",
            arg.get_long().unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

impl Work {
    /// The declaration of the method or of preparations.
    pub fn description(&self) -> &'static Description {
        match self {
            Work::Run(spec) => spec.description(),
            Work::Preparation(_) => &sums::DESCRIPTION,
        }
    }

    pub fn consent(&self) -> &Consent {
        match self {
            Work::Run(spec) => &spec.consent,
            Work::Preparation(joint) => &joint.consent,
        }
    }

    pub fn consent_mut(&mut self) -> &mut Consent {
        match self {
            Work::Run(spec) => &mut spec.consent,
            Work::Preparation(joint) => &mut joint.consent,
        }
    }

    pub fn is_quiet(&self) -> bool {
        match self {
            Work::Run(spec) => spec.quiet,
            Work::Preparation(joint) => joint.quiet,
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
            Work::Preparation(joint) => joint.preparation.settings(),
        };
        all.insert("version".into(), attributes::VERSION.into());
        all.extend(self.consent().proposal.clone().map(|digest| ("approved".to_string(), digest.into())));
        all
    }

    /// All that may leave a site.
    pub fn messages(&self) -> Vec<Message> {
        match self {
            Work::Run(spec) => messages_of_run(spec),
            Work::Preparation(joint) => {
                let sent = sums::messages().filter(|w| joint.preparation.sends(w));
                sent.map(|w| Message::new(w, sums::DESCRIPTION.protection(w))).collect()
            }
        }
    }

    /// Rows and columns of the own part, after `--transpose`; `None` if the data are no party's own. Only the header is read, and
    /// nothing is sent.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn own_shape(&self) -> Result<Option<(usize, usize)>> {
        match self {
            Work::Run(spec) => own_shape_of_run(spec),
            Work::Preparation(joint) => joint.preparation.own_shape().map(Some),
        }
    }
}

impl JointPreparation {
    /// Prepares with the other sites; returns the exit code. Collective.
    ///
    /// # Errors
    /// As [`Preparation::perform`], or if the transcript cannot be written.
    pub fn perform(self, comm: &Communicator) -> Result<i32> {
        let JointPreparation { mut preparation, transcript: path, transcript_key, consent, .. } = self;
        preparation.spec.parties = Some(comm.size());
        transcript::begin(
            &transcript::Request {
                path: path.as_deref(),
                key: transcript_key.as_deref(),
                method: sums::DESCRIPTION.name,
                settings: preparation.settings(),
                consent: &consent,
            },
            None,
            comm,
        )?;
        let done = preparation.perform(comm);
        // Also of a preparation that was refused: shapes have left, and perhaps sums.
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
