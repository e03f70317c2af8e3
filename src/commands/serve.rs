//! `fednmf serve`: the hub between sites.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_files::output::attributes;
use fednmf_methods::parameters;
use fednmf_sites::{Hub, HubConfig, valid_name};

/// Where to listen, and for whom.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port to listen on; sites need to reach only this port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    listen: String,
    /// The names of the sites, party 0 first, as in their certificates
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', required = true)]
    sites: Vec<String>,
    /// The hub's certificate (PEM), which names the host that the sites' --hub names
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The certificate of the CA whose certificates are accepted (PEM)
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The list of certificates that the CA has revoked (PEM); it is read again when it has changed
    #[arg(long, value_name = "FILE")]
    crl: Option<PathBuf>,
    /// Remember the run in this file, so that a hub that is started again goes on with it
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// End the run when a site has no connection for this time: seconds, or 90s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = waiting)]
    patience: Duration,
    /// Serve one run after the other; without it the hub ends with the first
    #[arg(long)]
    keep: bool,
}

/// Serves; returns the exit code.
///
/// # Errors
/// If an option, a file or the address is wrong.
pub fn serve(args: &ServeArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("serve: the hub is one process; start it without mpirun").on_all_ranks().into());
    }
    check_names(&args.sites)?;
    Hub::serve(HubConfig {
        listen: args.listen.clone(),
        cert: args.cert.clone(),
        key: args.key.clone(),
        ca: args.ca.clone(),
        crl: args.crl.clone(),
        sites: args.sites.clone(),
        journal: args.journal.clone(),
        reconnect_timeout: args.patience,
        keep: args.keep,
        version: attributes::VERSION.into(),
    })
    .map_err(|e| e.on_all_ranks().into())
}

/// How long something is waited for: from a second to a week.
///
/// # Errors
/// What it must be.
pub(super) fn waiting(text: &str) -> std::result::Result<Duration, String> {
    let seconds = parameters::duration(text)?;
    let is_possible = (1.0..=604_800.0).contains(&seconds);
    is_possible.then(|| Duration::from_secs_f64(seconds)).ok_or_else(|| "must be from 1s to 7d".to_string())
}

/// Checks names of sites.
///
/// # Errors
/// Naming the one that is wrong.
pub(super) fn check_names(sites: &[String]) -> Result<()> {
    if let Some(name) = sites.iter().find(|name| !valid_name(name)) {
        return Err(Error::input(format!(
            "--sites: '{name}' is no name of a site; use lower-case letters, digits, dots and hyphens"
        ))
        .on_all_ranks()
        .into());
    }
    if let Some((at, name)) = sites.iter().enumerate().find(|(at, name)| sites[..*at].contains(name)) {
        return Err(Error::input(format!("--sites: {name} is there twice, also in place {}", at + 1))
            .on_all_ranks()
            .into());
    }
    if sites.len() < 2 {
        return Err(Error::input("--sites: there must be at least two").on_all_ranks().into());
    }
    Ok(())
}
