//! The file of `--crl`: the CA's lists of revoked certificates.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject as _;

use fednmf_base::error::{Error, Result};

pub type Lists = Vec<CertificateRevocationListDer<'static>>;

/// A file of revocation lists that may be replaced while the process runs.
#[derive(Debug)]
pub struct RevocationFile {
    path: PathBuf,
    /// The state of the file at the last look; `None` if there was no file.
    seen: Option<Stamp>,
}

/// What changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        Some(Stamp {
            inode: (found.dev(), found.ino()),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

impl RevocationFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read or has no list.
    pub fn open(path: &Path) -> Result<(RevocationFile, Lists)> {
        let mut file = RevocationFile { path: path.into(), seen: None };
        let lists = file.read()?;
        Ok((file, lists))
    }

    /// The lists, if the file is not as it was at the last look.
    ///
    /// # Errors
    /// As [`RevocationFile::open`]; the next error follows after the next change.
    pub fn read_if_changed(&mut self) -> Result<Option<Lists>> {
        if Stamp::of(&self.path) == self.seen { Ok(None) } else { self.read().map(Some) }
    }

    fn read(&mut self) -> Result<Lists> {
        // Before the content: a file that is written meanwhile differs at the next look.
        self.seen = Stamp::of(&self.path);
        let text = std::fs::read(&self.path).map_err(|e| self.wrong(&format!("cannot be read ({e})")))?;
        let found: std::result::Result<Lists, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(self.wrong("holds no revocation list in PEM format; 'openssl ca -gencrl' of the CA makes one")),
        }
    }

    /// The error that says what is wrong with the file.
    pub fn wrong(&self, why: &str) -> Error {
        Error::input(format!("--crl {}: {why}", self.path.display()))
    }
}
