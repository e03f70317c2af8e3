//! `fednmf audit`: checks what a run reveals.

pub mod attack;
#[cfg(feature = "sites")]
pub mod key;
#[cfg(feature = "sites")]
pub mod release;
pub mod report;
pub mod verify;

use clap::{Args, Subcommand};

use fednmf_base::error::Result;
use fednmf_comm::Communicator;

/// Arguments of `fednmf audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: Audit,
}

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Attack what ranks received (--record-view): linear equations, lattice reduction, fits of the iterations, hidden subset
    /// sums, the space of all sums, rows of small parties, differences over losses and restarts, membership. Several views are
    /// those of colluding ranks
    Attack(attack::AttackArgs),
    /// Verify transcripts (--transcript): signature and chain, each message against the method's table, what was spent
    /// against the budget of the data; and logs of sites (--site-log): signatures and chain
    Verify(verify::VerifyArgs),
    /// Report on results before they leave a site: parameters per row, components carried by few rows, whether rows are
    /// recognised by V
    Report(report::ReportArgs),
    /// Release results that 'fednmf join --hold' has put aside, as a second person, and note it in the log of the site
    #[cfg(feature = "sites")]
    Release(release::ReleaseArgs),
    /// Make the secret key of a person who releases results, and print its public key, for 'fednmf join --hold-for'
    #[cfg(feature = "sites")]
    Key(key::KeyArgs),
}

/// Performs an audit; the exit code. Collective.
///
/// # Errors
/// As the audit.
pub fn audit(args: &AuditArgs, comm: &Communicator) -> Result<i32> {
    match &args.command {
        Audit::Attack(args) => attack::attack(args, comm),
        Audit::Verify(args) => verify::verify(args, comm),
        Audit::Report(args) => report::report(args, comm),
        #[cfg(feature = "sites")]
        Audit::Release(args) => release::release(args, comm),
        #[cfg(feature = "sites")]
        Audit::Key(args) => key::key(args, comm),
    }
}
