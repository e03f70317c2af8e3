//! Certificates for testing: a demonstration CA, the hub and the sites. In production an institution's own CA issues them,
//! and no key leaves its site.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;

/// Creates certificates that are valid from `begin` to `end`. The key of the CA is not kept.
///
/// # Errors
/// If the directory is not empty, a name is wrong, or a file cannot be written. No file is left then.
pub fn make(dir: &Path, sites: &[String], hub: &[String], begin: SystemTime, end: SystemTime) -> Result<()> {
    let at = |e: std::io::Error| {
        Error::input(format!("{}: cannot be written ({e}); choose a directory of your own", dir.display()))
    };
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(at)?;
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
    let mut files = vec![("ca.pem".to_string(), root.pem(), Access::Default)];
    let sites = sites.iter().map(|site| (site.as_str(), vec![site.clone()], ExtendedKeyUsagePurpose::ClientAuth));
    let hub = ("hub", hub.to_vec(), ExtendedKeyUsagePurpose::ServerAuth);
    for (title, names, purpose) in std::iter::once(hub).chain(sites) {
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = params(names, title, Some(purpose)).map_err(wrong)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &issuer).map_err(wrong)?;
        files.push((format!("{title}.key"), key.serialize_pem(), Access::OwnerOnly));
        files.push((format!("{title}.pem"), certificate.pem(), Access::Default));
    }
    for (done, (name, text, access)) in files.iter().enumerate() {
        unfinished::create(&dir.join(name), *access, |out| out.write_all(text.as_bytes())).map_err(|e| {
            // Half of the keys are of no use, and would stop the next try.
            files[..done].iter().for_each(|(name, ..)| drop(fs::remove_file(dir.join(name))));
            at(e)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_half_of_the_keys_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (now, hub) = (SystemTime::now(), ["localhost".to_string()]);
        let make = |sites: &[&str]| {
            let sites: Vec<String> = sites.iter().map(ToString::to_string).collect();
            make(dir.path(), &sites, &hub, now, now + Duration::from_secs(60))
        };
        // The second a.key cannot be written.
        assert!(make(&["a", "a"]).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        make(&["a", "b"]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 7);
    }
}
