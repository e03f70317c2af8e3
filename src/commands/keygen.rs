//! `fednmf keygen`: certificates for testing. In production an institution's own CA issues them, and no key leaves its
//! site.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_comm::Communicator;
use fednmf_sites::certificates;

use super::serve::check_names;

/// Whom to make certificates for.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// The directory, which must not exist or be empty: ca.pem, hub.pem, hub.key, and for each site NAME.pem and NAME.key
    dir: PathBuf,
    /// The names of the sites
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', required = true)]
    sites: Vec<String>,
    /// The host or address of the hub, as the sites' --hub names it; several with commas
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', required = true)]
    hub: Vec<String>,
    /// The days for which the certificates are valid
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=825))]
    days: u64,
}

/// Makes the files; returns the exit code.
///
/// # Errors
/// If a name is wrong, or a file cannot be written.
pub fn keygen(args: &KeygenArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("keygen: start it without mpirun").on_all_ranks().into());
    }
    check_names(&args.sites)?;
    if args.sites.iter().any(|site| ["hub", "ca"].contains(&site.as_str())) {
        return Err(Error::input("--sites: no site may be called hub or ca, whose files are in the same directory")
            .on_all_ranks()
            .into());
    }
    let now = SystemTime::now();
    // Clocks of other machines may be slow.
    let (begin, end) = (now - Duration::from_secs(3600), now + Duration::from_secs(86_400 * args.days));
    certificates::make(&args.dir, &args.sites, &args.hub, begin, end).map_err(Error::on_all_ranks)?;
    let dir = args.dir.display();
    print_line(&format!(
        "Certificates for {} days are in {dir}. For tests only: anyone with the files in {dir} can act as any site. Give each site its own \
         NAME.pem, NAME.key and ca.pem, and the hub hub.pem, hub.key and ca.pem.",
        args.days
    ))?;
    Ok(EXIT_DONE)
}
