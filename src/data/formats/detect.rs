//! What kind of file it is, and what its header tells.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::hdf5;
use super::mtx;
use super::{idx, npy, npz, table};
use crate::data::formats::file::{Body, FileInfo};
use crate::data::formats::fimi::Baskets;
use crate::data::formats::hdf5::Found;
use crate::data::formats::mtx::{shape, text_bytes};
use crate::data::formats::raw::Raw;
use crate::data::formats::text::{io_error, open, read_full, stream};
use crate::data::spec::HDF5;
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Market,
    Npy,
    Idx,
    Npz,
    Hdf5,
    Table { tabs: bool },
    Baskets,
}

const KNOWN: &str = "readable are .mtx, .npy, .npz, .h5/.hdf5/.h5ad, .csv/.tsv/.txt, idx and .dat (FIMI); texts, .npy and idx also \
                     as .gz";

fn wrong(path: &str, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{path}: {what}"))
}

/// The kind of file by the ending of its name (in lower case, without `.gz`).
fn by_name(name: &str) -> Option<Kind> {
    let ending = Path::new(name).extension().and_then(|e| e.to_str())?;
    Some(match ending {
        "mtx" | "mm" => Kind::Market,
        "npy" => Kind::Npy,
        "npz" => Kind::Npz,
        "idx" => Kind::Idx,
        "csv" | "txt" => Kind::Table { tabs: false },
        "tsv" | "tab" => Kind::Table { tabs: true },
        "dat" => Kind::Baskets,
        _ if HDF5.contains(&ending) => Kind::Hdf5,
        _ => return None,
    })
}

/// The kind of file by its first bytes.
fn by_content(lead: &[u8]) -> Option<Kind> {
    if lead.starts_with(npy::MAGIC) {
        Some(Kind::Npy)
    } else if lead.len() >= 14 && lead[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
        Some(Kind::Market)
    } else if lead.starts_with(b"\x89HDF\r\n\x1a\n") {
        Some(Kind::Hdf5)
    } else if lead.starts_with(b"PK\x03\x04") {
        Some(Kind::Npz)
    } else if idx::known(lead) {
        Some(Kind::Idx)
    } else {
        None
    }
}

/// Reads the header of a file of any known format. The name's ending decides which it is, or else the first bytes.
/// `dataset` names what is meant inside an HDF5 file.
///
/// # Errors
/// A file that is missing, empty, of no known format, or whose header promises what it cannot hold.
pub fn probe(path: &str, dataset: Option<&str>) -> Result<FileInfo> {
    let mut file = open(path)?;
    let size = file.metadata().map_err(|e| io_error(path, &e))?.len();
    if size == 0 {
        return Err(wrong(path, "is an empty file"));
    }
    let mut lead = [0u8; 16];
    let got = read_full(&mut file, &mut lead).map_err(|e| io_error(path, &e))?;
    file.seek(SeekFrom::Start(0)).map_err(|e| io_error(path, &e))?;
    let gz = lead[..got].starts_with(&[0x1f, 0x8b]);
    let lower = path.to_ascii_lowercase();
    let name = lower.strip_suffix(".gz").unwrap_or(&lower);
    if name.len() < lower.len() && !gz {
        return Err(wrong(path, "is named .gz but is not compressed by gzip"));
    }
    let mut from: Box<dyn Read> =
        if gz { Box::new(MultiGzDecoder::new(BufReader::new(file))) } else { Box::new(BufReader::new(file)) };
    let kind = match by_name(name) {
        Some(kind) => kind,
        None => {
            let got = read_full(&mut from, &mut lead).map_err(|e| io_error(path, &e))?;
            from = stream(path, gz)?;
            by_content(&lead[..got]).ok_or_else(|| wrong(path, format!("is of no known format; {KNOWN}")))?
        }
    };
    if dataset.is_some() && kind != Kind::Hdf5 {
        return Err(wrong(path, "only an HDF5 file has datasets inside"));
    }
    if gz && matches!(kind, Kind::Hdf5 | Kind::Npz) {
        return Err(wrong(path, "unpack it first (gunzip): parts of it cannot be read while it is compressed"));
    }
    let mut info = match kind {
        Kind::Market => {
            let market = mtx::header(path, gz, size)?;
            let format = market.banner.clone();
            FileInfo::new(path, gz, (market.rows, market.cols), Some(market.entries), format, Body::Market(market))
        }
        Kind::Npy => {
            let header = npy::header(&mut from).map_err(|e| wrong(path, e))?;
            binary(path, gz, size, "npy", header.raw, &header.shape)?
        }
        Kind::Idx => {
            let (raw, dims) = idx::header(&mut from).map_err(|e| wrong(path, e))?;
            binary(path, gz, size, "idx", raw, &dims)?
        }
        Kind::Npz => {
            let strips = npz::header(path, size)?;
            let format = if strips.by_columns { "npz CSC" } else { "npz CSR" };
            FileInfo::new(
                path,
                gz,
                (strips.rows, strips.cols),
                Some(strips.entries),
                format.into(),
                Body::Strips(strips),
            )
        }
        Kind::Hdf5 => match hdf5::header(path, dataset)? {
            Found::Dense(rows, cols, name, number) => {
                let format = format!("HDF5 dataset {name}, {number}");
                FileInfo::new(path, gz, (rows, cols), Some(rows as u64 * cols as u64), format, Body::Dataset(name))
            }
            Found::Sparse(strips, format) => {
                FileInfo::new(path, gz, (strips.rows, strips.cols), Some(strips.entries), format, Body::Strips(strips))
            }
        },
        Kind::Table { tabs } => {
            let table = table::header(path, gz, tabs)?;
            let format = match table.separator {
                b' ' => "numbers separated by blanks".to_string(),
                b'\t' => "TSV".to_string(),
                other => format!("CSV ({})", char::from(other)),
            };
            FileInfo::new(path, gz, (0, table.cols), None, format, Body::Table(table))
        }
        Kind::Baskets => {
            let format = "FIMI transactions".to_string();
            FileInfo::new(path, gz, (0, 0), None, format, Body::Baskets(Baskets::NOTHING))
        }
    };
    if gz {
        info.format += ", gzip";
    }
    Ok(info)
}

/// A dense array in binary.
fn binary(path: &str, gz: bool, size: u64, name: &str, raw: Raw, dims: &[u64]) -> Result<FileInfo> {
    let (rows, cols) = two_dimensions(dims, raw.by_columns).map_err(|e| wrong(path, e))?;
    let bytes = rows as u128 * cols as u128 * raw.number.size() as u128;
    let left = text_bytes(size, gz).saturating_sub(raw.start);
    if bytes > u128::from(left) {
        return Err(wrong(
            path,
            format!("the header promises {rows} × {cols} numbers, {bytes} bytes; the file holds {left} (truncated?)"),
        ));
    }
    let order = if raw.by_columns { "column order" } else { "row order" };
    let end = if raw.big_endian && raw.number.size() > 1 { " big-endian" } else { "" };
    let format = format!("{name} {}{end}, {order}", raw.number.name());
    Ok(FileInfo::new(path, gz, (rows, cols), Some(rows as u64 * cols as u64), format, Body::Raw(raw)))
}

/// Rows and columns: one dimension is one column; more than two are laid out in one, row by row.
fn two_dimensions(dims: &[u64], by_columns: bool) -> std::result::Result<(usize, usize), String> {
    let all = dims.iter().try_fold(1u64, |all, &d| all.checked_mul(d));
    let (rows, cols) = match (dims, all) {
        (&[rows], _) => (rows, 1),
        (&[rows, cols], Some(_)) => (rows, cols),
        (&[rows, ref rest @ ..], Some(_)) if !by_columns => {
            (rows, rest.iter().fold(1u64, |all, &d| all.saturating_mul(d)))
        }
        (&[], _) => return Err("holds a single number, not a matrix".into()),
        (_, Some(_)) => return Err(format!("has {} dimensions in Fortran order; a matrix has two", dims.len())),
        (_, None) => return Err("the header promises more entries than can be counted".into()),
    };
    shape(rows as usize, cols as usize, None)?;
    Ok((rows as usize, cols as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_become_two() {
        assert_eq!(two_dimensions(&[5], false), Ok((5, 1)));
        assert_eq!(two_dimensions(&[5, 3, 2], false), Ok((5, 6)));
        assert_eq!(two_dimensions(&[5, 3], true), Ok((5, 3)));
        assert!(two_dimensions(&[5, 3, 2], true).unwrap_err().contains("Fortran"));
        assert!(two_dimensions(&[], false).is_err());
        assert!(two_dimensions(&[0, 3], false).unwrap_err().contains("empty"));
        assert!(two_dimensions(&[1 << 40, 1 << 40], false).unwrap_err().contains("counted"));
        assert!(two_dimensions(&[2, 1 << 40, 1 << 40], false).is_err());
        assert!(two_dimensions(&[0, 1 << 40, 1 << 40], false).unwrap_err().contains("empty"));
    }
}
