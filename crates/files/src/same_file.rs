//! Whether all ranks see the same file: a node may lack it, or have another one under its name.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use flate2::Crc;
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_base::host;
use fednmf_comm::Communicator;

/// Number and length of the pieces of a file that are compared.
const PIECES: u64 = 16;
const LENGTH: u64 = 4096;

/// The size of a file, and a checksum of pieces of it from the first bytes to the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    size: u64,
    crc32: u32,
}

impl Sample {
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &str) -> std::io::Result<Sample> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let (mut crc, mut piece) = (Crc::new(), [0; LENGTH as usize]);
        for number in 0..PIECES {
            let at = (size.saturating_sub(LENGTH) / (PIECES - 1)) * number;
            // The last piece ends with the file.
            let at = if number + 1 == PIECES { size.saturating_sub(LENGTH) } else { at };
            let length = LENGTH.min(size - at) as usize;
            file.read_exact_at(&mut piece[..length], at)?;
            crc.update(&piece[..length]);
        }
        Ok(Sample { size, crc32: crc.sum() })
    }
}

/// Checks that this rank sees the file of which rank 0 has read `sample`.
///
/// # Errors
/// If it cannot be read here, or is another one; the message names rank and node.
pub fn check(path: &str, sample: &Sample, comm: &Communicator) -> Result<()> {
    let here = || {
        let rank = format!("rank {}", comm.rank());
        host::name().map_or_else(|| rank.clone(), |host| format!("{rank} on {host}"))
    };
    match Sample::read(path) {
        Err(e) => Err(Error::input(format!(
            "{path}: {} cannot read it ({e}); all ranks read this file, so every node must see it",
            here()
        ))),
        Ok(found) if found != *sample => {
            Err(Error::input(format!("{path}: {} sees another file than rank 0; give all nodes the same file", here())))
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_first_and_last_bytes_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f").to_string_lossy().into_owned();
        for length in [0, 1, 100, 4096, 5000, 1 << 20] {
            let mut bytes: Vec<u8> = (0..length).map(|i: usize| (i * 7 % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let whole = Sample::read(&path).unwrap();
            for at in [0, length / 2, length.saturating_sub(1)]
                .into_iter()
                .filter(|at| *at < length.min(5000) || *at + 1 == length)
            {
                bytes[at] ^= 1;
                std::fs::write(&path, &bytes).unwrap();
                assert_ne!(Sample::read(&path).unwrap(), whole, "{length}: byte {at}");
                bytes[at] ^= 1;
            }
            bytes.push(0);
            std::fs::write(&path, &bytes).unwrap();
            assert_ne!(Sample::read(&path).unwrap(), whole, "{length}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Sample::read(&path).is_err());
    }
}
