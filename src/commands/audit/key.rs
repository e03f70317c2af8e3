//! `fednmf audit key`: the key of a person who releases results, for `join --hold-for`.

use std::io::Write as _;
use std::path::PathBuf;

use age::secrecy::ExposeSecret as _;
use age::x25519::Identity;
use clap::Args;

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_comm::Communicator;

/// Arguments of `fednmf audit key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The file of the secret key, which must not exist; age-keygen writes the same format
    pub file: PathBuf,
}

/// Makes a secret key and prints its public one; returns the exit code.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn key(args: &KeyArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("audit key: start it without mpirun").on_all_ranks().into());
    }
    let identity = Identity::generate();
    let public = identity.to_public();
    let text = format!("# public key: {public}\n{}\n", identity.to_string().expose_secret());
    unfinished::create(&args.file, Access::OwnerOnly, |out| out.write_all(text.as_bytes())).map_err(|e| {
        Error::input(format!("{}: cannot be written ({e}); name a new file of your own", args.file.display()))
    })?;
    print_line(&public.to_string())?;
    Ok(EXIT_DONE)
}
