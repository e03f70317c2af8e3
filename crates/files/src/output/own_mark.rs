//! A mark in files of other formats, by which fednmf recognises what it wrote: the CRC of all other bytes stands in it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::output::checksum::crc_between;

/// The text that a writer puts within the first or last [`NEAR`] bytes, where the format has a place for any text, before
/// [`seal`] replaces its digits.
pub const MARK: &str = "fednmf-crc32-00000000";

/// Its beginning.
pub const START: &str = "fednmf-crc32-";

/// Digits of the CRC.
const DIGITS: usize = MARK.len() - START.len();

/// How far from the beginning or the end of a file a mark is searched, in bytes.
const NEAR: u64 = 4096;

/// Puts the CRC of a complete file into its mark.
///
/// # Errors
/// If it has no mark, or cannot be read or written.
pub fn seal(file: &mut File) -> io::Result<()> {
    let at = place(file)?.ok_or_else(|| io::Error::other("the file has no mark; this is a bug, please report it"))?;
    let sum = sum_around(file, at)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(sum.as_bytes())
}

/// Whether a file was sealed and is unchanged since.
pub fn is_sealed(path: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let mut file = File::open(path)?;
        let Some(at) = place(&mut file)? else { return Ok(false) };
        let mut digits = [0; DIGITS];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut digits)?;
        Ok(sum_around(&mut file, at)?.as_bytes() == digits)
    };
    check().unwrap_or(false)
}

/// The place of the digits.
fn place(file: &mut File) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    for from in [0, length.saturating_sub(NEAR)] {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        (&mut *file).take(NEAR).read_to_end(&mut bytes)?;
        let marked =
            |part: &[u8]| part.strip_prefix(START.as_bytes()).is_some_and(|sum| sum.iter().all(u8::is_ascii_hexdigit));
        if let Some(at) = bytes.windows(MARK.len()).position(marked) {
            return Ok(Some(from + (at + START.len()) as u64));
        }
    }
    Ok(None)
}

/// The CRC of all bytes but the digits at `at`, as digits.
fn sum_around(file: &mut File, at: u64) -> io::Result<String> {
    let length = file.metadata()?.len();
    let digits = at..at + DIGITS as u64;
    Ok(format!("{:08x}", crc_between(file, length, &[digits])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_is_recognised_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let long = "x".repeat(9000);
        for text in [format!("# {MARK}\n1 2\n{long}"), format!("{long}{{\"mark\":\"{MARK}\"}}")] {
            std::fs::write(&path, &text).unwrap();
            assert!(!is_sealed(&path), "not yet sealed");
            seal(&mut File::options().read(true).write(true).open(&path).unwrap()).unwrap();
            assert!(is_sealed(&path));
            let good = std::fs::read(&path).unwrap();
            assert_eq!(good.len(), text.len());
            for at in [0, 4, 20, good.len() / 2, good.len() - 1] {
                let mut bad = good.clone();
                bad[at] ^= 1;
                std::fs::write(&path, &bad).unwrap();
                assert!(!is_sealed(&path), "byte {at}");
            }
            std::fs::write(&path, [&good[..], b"note\n"].concat()).unwrap();
            assert!(!is_sealed(&path), "something was added");
        }
        std::fs::write(&path, "my own\n").unwrap();
        assert!(!is_sealed(&path) && seal(&mut File::open(&path).unwrap()).is_err());
    }
}
