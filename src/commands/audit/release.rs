//! `fednmf audit release`: a second person releases results that `join --hold` has put aside, or refuses to.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_comm::Communicator;
use fednmf_files::output::attributes;
use fednmf_sites::{Event, SiteLog};

use crate::commands::join::encryption::SecretKeys;
use crate::commands::join::hold;
use crate::commands::join::proposal::person;
use crate::commands::signer::SignerArgs;

/// Arguments of `fednmf audit release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The directory of the results, F.h5.held
    pub held: PathBuf,
    /// Who releases or refuses them: not the person who approved the run
    #[arg(long = "as", value_name = "NAME <MAIL>", value_parser = person)]
    pub by: String,
    /// The log of the site, which says what was put aside and notes the release
    #[arg(long, value_name = "F.jsonl")]
    pub site_log: PathBuf,
    /// The secret key of this person (age), if the results are encrypted for it (join --hold-for)
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Refuse to release them, for this reason. The log notes it; the results stay where they are, and are not released any more
    #[arg(long, value_name = "REASON", value_parser = NonEmptyStringValueParser::new())]
    pub refuse: Option<String>,
    #[command(flatten)]
    pub signer: SignerArgs,
}

/// The address in `Name <mail>`: a name can be written in many ways.
fn address(person: &str) -> &str {
    person.rsplit_once('<').map_or(person, |(_, mail)| mail.trim_end_matches('>').trim())
}

/// Releases the results, or notes that somebody refused to; returns the exit code.
///
/// # Errors
/// If the results are not those of the log, were refused before, or are in the hands of the person who approved the run.
pub fn release(args: &ReleaseArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("audit release: start it without mpirun").on_all_ranks().into());
    }
    let (identity, site) = args.signer.read()?;
    let log = SiteLog::open(&args.site_log, &site, identity)?;
    let keys = args.identity.as_deref().map(SecretKeys::read).transpose()?;
    let results = hold::digests(&args.held, keys.as_ref())?;
    let entries = log.entries()?;
    let held = entries.iter().rev().find_map(|entry| match &entry.event {
        Event::Hold { run, results: held, .. } if *held == results => Some(run.clone()),
        _ => None,
    });
    let held = held.ok_or_else(|| {
        let names: Vec<&str> = results.keys().map(String::as_str).collect();
        Error::input(format!(
            "{}: --site-log {} has no run with these results ({}); they were changed, or are of another site",
            args.held.display(),
            args.site_log.display(),
            names.join(", ")
        ))
    })?;
    let approved = |event: &Event| match event {
        Event::Begin { run, approved_by: Some(by), .. } if *run == held => {
            address(by).eq_ignore_ascii_case(address(&args.by))
        }
        _ => false,
    };
    if entries.iter().any(|entry| approved(&entry.event)) {
        return Err(Error::input(format!(
            "--as {}: approved the run, so somebody else has to release or refuse its results",
            args.by
        )));
    }
    let refusal = entries.iter().find_map(|entry| match &entry.event {
        Event::Withhold { by, reason, results: refused, .. } if *refused == results => Some((by, &entry.time, reason)),
        _ => None,
    });
    if let Some((by, time, reason)) = refusal {
        return Err(Error::input(format!("{}: {by} refused these results on {time}: {reason}", args.held.display())));
    }
    if let Some(reason) = &args.refuse {
        let reason = reason.clone();
        log.add(attributes::now(), Event::Withhold { by: args.by.clone(), run: Some(held), reason, results })?;
        print_line(&format!("{}: refused; the results stay there until you delete them", args.held.display()))?;
        return Ok(EXIT_DONE);
    }
    // The log has the release before anybody has the results.
    log.add(attributes::now(), Event::Release { by: args.by.clone(), run: Some(held), results })?;
    let files = hold::take_out(&args.held, keys.as_ref())?;
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    print_line(&format!(
        "released by {}: {} (noted in {}); {} is removed",
        args.by,
        files.join(", "),
        args.site_log.display(),
        args.held.display()
    ))?;
    Ok(EXIT_DONE)
}
