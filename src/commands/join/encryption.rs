//! Files that only the owner of a secret key can read, in the format of age (<https://age-encryption.org/v1>), so that `age`
//! itself can decrypt them: `--hold-for`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::str::FromStr;

use age::x25519;

use fednmf_base::error::{Error, Result};

/// The end of the name of an encrypted file.
const END: &str = "age";
/// The beginning of a secret key.
const SECRET: &str = "AGE-SECRET-KEY-";

/// The public keys for which results are encrypted.
pub struct Recipients(Vec<x25519::Recipient>);

/// The secret keys of a person.
pub struct SecretKeys(Vec<x25519::Identity>);

/// The keys of a file, one in each line that is not empty and no comment.
fn keys<K: FromStr>(text: &str) -> Option<Vec<K>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().ok()).collect::<Option<Vec<K>>>().filter(|keys| !keys.is_empty())
}

/// The name of a file without the end that encryption adds; `None` if it has none.
pub fn plain_name(path: &Path) -> Option<OsString> {
    path.extension().filter(|end| *end == END).and_then(|_| path.file_stem()).map(Into::into)
}

impl Recipients {
    /// Reads a file of public keys.
    ///
    /// # Errors
    /// If it cannot be read, or has anything else.
    pub fn read(path: &Path) -> Result<Recipients> {
        let wrong = |why: &str| Error::input(format!("--hold-for {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&format!("cannot be read ({e})")))?;
        if text.contains(SECRET) {
            return Err(wrong("holds a secret key, which stays with its owner; give the public one, age1..."));
        }
        keys(&text).map(Recipients).ok_or_else(|| {
            wrong("holds no public keys, a line age1... each; 'fednmf audit key' and age-keygen make keys")
        })
    }

    /// The keys as text.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Encrypts a file as FILE.age in a directory, with the permissions of the file.
    ///
    /// # Errors
    /// If it cannot be read, or the encrypted file cannot be written; that is then removed.
    pub fn encrypt(&self, path: &Path, directory: &Path) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{END}"));
        let target = directory.join(name);
        self.write(path, &target).inspect_err(|_| {
            let _ = std::fs::remove_file(&target);
        })
    }

    fn write(&self, path: &Path, target: &Path) -> io::Result<()> {
        let mut from = File::open(path)?;
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
        let recipients = self.0.iter().map(|key| key as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        let mut encrypted = encryptor.wrap_output(to)?;
        io::copy(&mut from, &mut encrypted)?;
        let to = encrypted.finish()?;
        to.set_permissions(from.metadata()?.permissions())?;
        to.sync_all()
    }
}

impl SecretKeys {
    /// Reads a file of secret keys, as age-keygen writes it.
    ///
    /// # Errors
    /// If it cannot be read, has anything else, or others can read it.
    pub fn read(path: &Path) -> Result<SecretKeys> {
        let wrong = |why: &str| Error::input(format!("--identity {}: {why}", path.display()));
        let unreadable = |e: io::Error| wrong(&format!("cannot be read ({e})"));
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_file() && found.permissions().mode() & 0o077 != 0 {
            return Err(wrong("others can read it; chmod 600, and get a new key if they may have read it"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        keys(&text)
            .map(SecretKeys)
            .ok_or_else(|| wrong(&format!("holds no secret keys of age, a line {SECRET}... each")))
    }

    /// The decrypted contents of a file.
    ///
    /// # Errors
    /// If it is not encrypted for one of these keys, or damaged. Damage after the beginning is an error of a later read.
    pub fn open(&self, path: &Path) -> Result<impl Read + use<>> {
        let wrong = |why: &str| Error::input(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|e| wrong(&format!("cannot be read ({e})")))?;
        let decryptor = age::Decryptor::new(BufReader::new(file));
        let opened = decryptor.and_then(|file| file.decrypt(self.0.iter().map(|key| key as &dyn age::Identity)));
        opened.map_err(|e| match e {
            age::DecryptError::NoMatchingKeys => wrong(
                "is encrypted for another key than that of --identity; give that of the person whom --hold-for named",
            ),
            e => wrong(&format!("cannot be decrypted ({e})")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

    use age::secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_file_is_read_with_its_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let pair = |name: &str| {
            let key = x25519::Identity::generate();
            std::fs::write(at(&format!("{name}.pub")), format!("# {name}\n{}\n", key.to_public())).unwrap();
            std::fs::write(at(name), key.to_string().expose_secret()).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o600)).unwrap();
            key
        };
        pair("bob");
        pair("eve");
        // More than one piece of the format, which has 64 KiB.
        let text: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
        std::fs::write(at("f.h5"), &text).unwrap();
        std::fs::set_permissions(at("f.h5"), PermissionsExt::from_mode(0o640)).unwrap();
        Recipients::read(&at("bob.pub")).unwrap().encrypt(&at("f.h5"), dir.path()).unwrap();
        let encrypted = std::fs::read(at("f.h5.age")).unwrap();
        assert!(!encrypted.windows(16).any(|part| part == &text[1000..1016]));
        assert_eq!(std::fs::metadata(at("f.h5.age")).unwrap().mode() & 0o777, 0o640);
        let read = |name: &str| -> Result<io::Result<Vec<u8>>> {
            let mut opened = SecretKeys::read(&at(name))?.open(&at("f.h5.age"))?;
            let mut all = Vec::new();
            Ok(opened.read_to_end(&mut all).map(|_| all))
        };
        assert_eq!(read("bob").unwrap().unwrap(), text);
        assert!(read("eve").unwrap_err().message.contains("is encrypted for another key"));
        std::fs::write(at("f.h5.age"), &encrypted[..encrypted.len() - 70_000]).unwrap();
        assert!(read("bob").unwrap().is_err(), "the end is missing");
        assert!(Recipients::read(&at("bob")).err().unwrap().message.contains("secret key"));
        assert!(SecretKeys::read(&at("bob.pub")).is_err());
        std::fs::set_permissions(at("bob"), PermissionsExt::from_mode(0o644)).unwrap();
        assert!(SecretKeys::read(&at("bob")).err().unwrap().message.contains("others can read it"));
    }

    #[test]
    fn names_of_encrypted_files() {
        assert_eq!(plain_name(Path::new("d/f.h5.age")), Some("f.h5".into()));
        assert_eq!(plain_name(Path::new("d/f.h5")), None);
    }
}
