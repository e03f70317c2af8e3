//! `fednmf keygen`: certificates for a try. In earnest an institution's own CA makes them, and no key leaves its site.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use super::serve::check_names;
use crate::comm::Communicator;
use crate::error::{EXIT_DONE, Error, Result};
use crate::output::stdout::print_line;

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
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
}

/// Makes the files; returns the exit code.
///
/// # Errors
/// If a name is wrong, or a file cannot be written.
pub fn keygen(args: &KeygenArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("keygen: start it without mpirun").on_all_ranks());
    }
    check_names(&args.sites)?;
    if args.sites.iter().any(|site| ["hub", "ca"].contains(&site.as_str())) {
        return Err(Error::input("--sites: no site may be called hub or ca, whose files are in the same directory")
            .on_all_ranks());
    }
    let now = SystemTime::now();
    // Clocks of other machines may be behind.
    let (begin, end) = (now - Duration::from_secs(3600), now + Duration::from_secs(86_400 * args.days));
    make(&args.dir, &args.sites, &args.hub, begin, end).map_err(Error::on_all_ranks)?;
    let dir = args.dir.display();
    print_line(&format!(
        "Certificates for {} days are in {dir}. For a try only: whoever has {dir} can be any site. Give each site its own \
         NAME.pem, NAME.key and ca.pem, and the hub hub.pem, hub.key and ca.pem.",
        args.days
    ))?;
    Ok(EXIT_DONE)
}

/// Makes certificates that are valid from `begin` to `end`. The key of the CA is not kept.
///
/// # Errors
/// If the directory is not empty, a name is wrong, or a file cannot be written.
pub fn make(dir: &Path, sites: &[String], hub: &[String], begin: SystemTime, end: SystemTime) -> Result<()> {
    let at = |e: std::io::Error| {
        Error::input(format!("{}: cannot be written ({e}); choose a directory of your own", dir.display()))
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(at)?;
    if fs::read_dir(dir).map_err(at)?.next().is_some() {
        return Err(Error::input(format!(
            "{}: is not empty, and keys are never replaced; give another directory",
            dir.display()
        )));
    }
    let wrong = |e: rcgen::Error| Error::input(format!("no certificate can be made ({e}); check the names"));
    let params = |names: Vec<String>, title: &str, purpose: Option<ExtendedKeyUsagePurpose>| {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, title);
        let second = |time: SystemTime| {
            date_time_ymd(1970, 1, 1) + Duration::from_secs(time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
        };
        (params.not_before, params.not_after) = (second(begin), second(end));
        params.extended_key_usages = purpose.into_iter().collect();
        params.use_authority_key_identifier_extension = true;
        Ok::<_, rcgen::Error>(params)
    };
    let mut ca = params(Vec::new(), "fednmf demonstration CA", None).map_err(wrong)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate().map_err(wrong)?;
    let root = ca.self_signed(&ca_key).map_err(wrong)?;
    let issuer = Issuer::new(ca, ca_key);
    write(&dir.join("ca.pem"), &root.pem(), 0o644).map_err(at)?;
    let sites = sites.iter().map(|site| (site.as_str(), vec![site.clone()], ExtendedKeyUsagePurpose::ClientAuth));
    let hub = ("hub", hub.to_vec(), ExtendedKeyUsagePurpose::ServerAuth);
    for (title, names, purpose) in std::iter::once(hub).chain(sites) {
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = params(names, title, Some(purpose)).map_err(wrong)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &issuer).map_err(wrong)?;
        write(&dir.join(format!("{title}.key")), &key.serialize_pem(), 0o600).map_err(at)?;
        write(&dir.join(format!("{title}.pem")), &certificate.pem(), 0o644).map_err(at)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}
