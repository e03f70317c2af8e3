//! `fednmf approve`: a person agrees to a proposed run.

use std::path::PathBuf;

use clap::Args;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_comm::Communicator;
use fednmf_files::output::attributes;

use super::join::proposal;
use super::join::proposal::{Proposal, person};
use super::signer::SignerArgs;

/// Who agrees to what.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The file of 'fednmf join --propose'
    proposal: PathBuf,
    /// Who approves it; without it the proposal is only shown
    #[arg(long = "as", value_name = "NAME <MAIL>", value_parser = person, requires = "output")]
    by: Option<String>,
    /// Write the approval, for 'fednmf join --approved', to this file
    #[arg(long, short = 'o', value_name = "F.json", requires = "by")]
    output: Option<PathBuf>,
    #[command(flatten)]
    signer: SignerArgs,
}

/// Shows the proposal, and writes the approval if it is approved; returns the exit code.
///
/// # Errors
/// If the proposal is not signed by a site of the CA, or the file cannot be written.
pub fn approve(args: &ApproveArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("approve: start it without mpirun").on_all_ranks().into());
    }
    let (identity, site) = args.signer.read()?;
    let (proposed, signed) = Proposal::read(&args.proposal, identity.authority())?;
    let (proposer, digest) = (signed.signature.site.clone(), signed.digest());
    let proposed = format!("{}Site {proposer} has proposed this, with the digest {digest}.", proposed.text());
    let (Some(by), Some(output)) = (&args.by, &args.output) else {
        print_line(&format!("{proposed} Approve it with --as and --output."))?;
        return Ok(EXIT_DONE);
    };
    let approval = proposal::approve(signed, by, attributes::now(), &site, &identity)?;
    proposal::write(output, &approval)?;
    print_line(&format!("{proposed} {by} approves it for site {site}; the approval is in {}.", output.display()))?;
    Ok(EXIT_DONE)
}
