//! `fednmf approve`: a person agrees to a proposed run, or refuses it.

use std::path::PathBuf;

use clap::Args;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_comm::Communicator;
use fednmf_files::output::attributes;
use fednmf_sites::{Authority, Identity};

use super::join::proposal;
use super::join::proposal::{Proposal, person, reason};

/// Who agrees to what.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The file of 'fednmf join --propose'
    proposal: PathBuf,
    /// Who approves it; without it the proposal is only shown
    #[arg(long = "as", value_name = "NAME <MAIL>", value_parser = person, requires_all = ["output", "cert", "key"])]
    by: Option<String>,
    /// With --as: refuse it for this reason; 'fednmf join --approved' refuses the run with this file
    #[arg(long, value_name = "REASON", value_parser = reason, requires = "by")]
    refuse: Option<String>,
    /// Write the approval, for 'fednmf join --approved', to this file
    #[arg(long, short = 'o', value_name = "F.json", requires = "by")]
    output: Option<PathBuf>,
    /// With --as: the certificate of the person who approves, which names the site (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// With --as: its private key (PEM), which signs
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The certificate of the CA of hub and sites (PEM)
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// With --as: the site, if the certificate has several names
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
}

/// Shows the proposal, and writes what the person decides; returns the exit code.
///
/// # Errors
/// If the proposal is not signed by a site of the CA, or the file cannot be written.
pub fn approve(args: &ApproveArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("approve: start it without mpirun").on_all_ranks().into());
    }
    let (proposed, signed) = Proposal::read(&args.proposal, &Authority::read(&args.ca, None)?)?;
    let (proposer, digest) = (signed.signature.site.clone(), signed.digest());
    let proposed = format!("{}Site {proposer} has proposed this, with the digest {digest}.", proposed.text());
    let (Some(by), Some(output), Some(cert), Some(key)) = (&args.by, &args.output, &args.cert, &args.key) else {
        print_line(&format!(
            "{proposed}\nTo approve: --as 'NAME <MAIL>' --output F.json, with the --cert and --key of a person or of the site. To \
             refuse: the same with --refuse REASON."
        ))?;
        return Ok(EXIT_DONE);
    };
    let identity = Identity::read(cert, key, &args.ca, None)?;
    let site = identity.site(args.site.as_deref())?;
    let refused = args.refuse.as_deref();
    let decision = proposal::decide(signed, (by, refused), attributes::now(), &site, &identity)?;
    proposal::write(output, &decision)?;
    let (decides, what) = if refused.is_some() { ("refuses", "refusal") } else { ("approves", "approval") };
    print_line(&format!("{proposed} {by} {decides} it for site {site}; the {what} is in {}.", output.display()))?;
    Ok(EXIT_DONE)
}
