//! Checksums (CRC-32) that detect flipped bits and truncation.
//!
//! Each block of rows of a matrix has one, checked when the block is read. One more covers everything else in the file; it
//! is in a trailer after HDF5's end of file, which HDF5 ignores. It is checked before HDF5 opens the file, because the
//! library may crash on a damaged one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use flate2::Crc;
use serde::{Deserialize, Serialize};

use fednmf_linalg::Real;

/// The attribute with the checksums of a matrix.
pub const SUMS: &str = "crc32";
/// The attribute with the number of rows per checksum.
pub const BLOCK: &str = "crc32_rows";
/// The last bytes of a sealed file.
const MAGIC: &[u8; 8] = b"FEDNMFCK";
/// Bytes after the trailer's text: its CRC, its length, the magic number.
const TAIL: u64 = 4 + 4 + 8;

/// The trailer, as JSON text.
#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    /// Bytes before the trailer.
    length: u64,
    /// Ranges of bytes with the values of matrices, in ascending order; these have their own checksums.
    numbers: Vec<Range<u64>>,
    /// CRC of all other bytes.
    crc32: u32,
}

/// Whether a file is unchanged since it was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Integrity {
    Good,
    /// The trailer does not match the file.
    Damaged,
    /// No trailer: another kind of file, or a truncated file.
    Unsealed,
}

/// Appends the trailer to a closed file whose matrix values are at `numbers`.
pub fn append(path: &Path, mut numbers: Vec<Range<u64>>) -> io::Result<()> {
    numbers.sort_by_key(|r| r.start);
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let crc32 = crc_between(&mut file, length, &numbers)?;
    let text = serde_json::to_vec(&Trailer { length, numbers, crc32 })?;
    let mut bytes = text.clone();
    bytes.extend(crc_of(&text).to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(MAGIC);
    file.seek(SeekFrom::End(0))?;
    file.write_all(&bytes)
}

/// Finds the trailer and checks everything but the matrix values.
pub fn check(path: &Path) -> io::Result<Integrity> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut tail = [0u8; TAIL as usize];
    let Some(text_end) = size.checked_sub(TAIL) else { return Ok(Integrity::Unsealed) };
    file.seek(SeekFrom::Start(text_end))?;
    file.read_exact(&mut tail)?;
    let Some(fields) = tail.strip_suffix(MAGIC) else { return Ok(Integrity::Unsealed) };
    let word = |i: usize| u32::from_le_bytes([fields[i], fields[i + 1], fields[i + 2], fields[i + 3]]);
    let Some(length) = text_end.checked_sub(u64::from(word(4))) else { return Ok(Integrity::Damaged) };
    file.seek(SeekFrom::Start(length))?;
    let mut text = Vec::new();
    (&mut file).take(text_end - length).read_to_end(&mut text)?;
    if crc_of(&text) != word(0) {
        return Ok(Integrity::Damaged);
    }
    let good = match serde_json::from_slice::<Trailer>(&text) {
        Ok(t) => t.length == length && crc_between(&mut file, length, &t.numbers)? == t.crc32,
        Err(_) => false,
    };
    Ok(if good { Integrity::Good } else { Integrity::Damaged })
}

/// The CRC of `bytes`.
pub(super) fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The CRC of the bytes below `length` that are not in `numbers`.
pub(super) fn crc_between(file: &mut File, length: u64, numbers: &[Range<u64>]) -> io::Result<u32> {
    let mut crc = Crc::new();
    let mut next = 0;
    let mut bytes = vec![0u8; 1 << 16];
    for (i, end) in numbers.iter().map(|r| r.start).chain([length]).enumerate() {
        file.seek(SeekFrom::Start(next))?;
        let mut left = end.min(length).saturating_sub(next);
        while left > 0 {
            let now = left.min(bytes.len() as u64) as usize;
            file.read_exact(&mut bytes[..now])?;
            crc.update(&bytes[..now]);
            left -= now as u64;
        }
        next = numbers.get(i).map_or(length, |r| r.end);
    }
    Ok(crc.sum())
}

/// Accumulates checksums of rows that arrive in order.
pub struct Checksum {
    /// Entries of a block.
    block: usize,
    filled: usize,
    crc: Crc,
    sums: Vec<u32>,
}

impl Checksum {
    /// One checksum per `block` entries.
    pub fn new(block: usize) -> Self {
        Checksum { block: block.max(1), filled: 0, crc: Crc::new(), sums: Vec::new() }
    }

    pub fn add<T: Real>(&mut self, mut values: &[T]) {
        let mut bytes = [0u8; 4096];
        while !values.is_empty() {
            let (now, rest) = values.split_at(values.len().min(self.block - self.filled).min(bytes.len() / 8));
            // f32 converts to f64 exactly, so the checksum does not depend on the precision.
            for (place, x) in bytes.chunks_exact_mut(8).zip(now) {
                place.copy_from_slice(&x.as_f64().to_le_bytes());
            }
            self.crc.update(&bytes[..8 * now.len()]);
            self.filled += now.len();
            if self.filled == self.block {
                self.close();
            }
            values = rest;
        }
    }

    fn close(&mut self) {
        self.sums.push(self.crc.sum());
        self.crc.reset();
        self.filled = 0;
    }

    /// The checksums, including that of a shorter last block.
    pub fn sums(mut self) -> Vec<u32> {
        if self.filled > 0 {
            self.close();
        }
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_chunks() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let whole = |chunk: usize| {
            let mut seal = Checksum::new(1200);
            values.chunks(chunk).for_each(|c| seal.add(c));
            seal.sums()
        };
        assert_eq!(whole(5000).len(), 5);
        assert!([1, 7, 1200, 1201].iter().all(|&p| whole(p) == whole(5000)));
        // Against the CRC of the bytes.
        let mut crc = Crc::new();
        crc.update(&values[4800..].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        assert_eq!(whole(5000)[4], crc.sum());
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let sum = |x: f64| {
            let mut seal = Checksum::new(3);
            seal.add(&[1.0, x, 2.0]);
            seal.sums()
        };
        assert!((0..64).all(|bit| sum(0.3) != sum(f64::from_bits(0.3f64.to_bits() ^ (1 << bit)))));
    }

    #[test]
    fn the_trailer_covers_all_but_the_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..200u8).collect();
        std::fs::write(&path, &content).unwrap();
        assert_eq!(check(&path).unwrap(), Integrity::Unsealed);
        append(&path, vec![150..160, 20..40]).unwrap();
        let good = std::fs::read(&path).unwrap();
        assert_eq!(good[..200], content);
        assert_eq!(check(&path).unwrap(), Integrity::Good);
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1 << (place % 8);
            std::fs::write(&path, &bad).unwrap();
            let fine = (20..40).contains(&place) || (150..160).contains(&place);
            assert_eq!(check(&path).unwrap() == Integrity::Good, fine, "byte {place}");
            std::fs::write(&path, &good[..place]).unwrap();
            assert_eq!(check(&path).unwrap(), Integrity::Unsealed);
        }
    }
}
