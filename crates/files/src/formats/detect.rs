//! Detects the format of a file and reads its header.

use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, Result};
use fednmf_data::values::Values;

use crate::formats::fields::FirstLines;
use crate::formats::file::{Encoding, MatrixFile};
use crate::formats::fimi::Transactions;
use crate::formats::hdf5::{Hdf5Matrix, Storage};
use crate::formats::io::{InputFile, io_error, open, read_full};
use crate::formats::limits::{check_shape, unpacked_bytes};
use crate::formats::options::{Names, Presence, TableFormat, TableOptions};
use crate::formats::raw::RawArray;
use crate::formats::{hdf5, idx, mtx, npy, npz, parquet, table, triples};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Market,
    Npy,
    Idx,
    Npz,
    Hdf5,
    Parquet,
    Table { tabs: bool },
    Triples { tabs: bool },
    Fimi,
}

const SUPPORTED: &str = "supported are .mtx, .npy, .npz, .h5/.hdf5/.h5ad/.loom/.biom, .csv/.tsv/.txt, .parquet, idx and .dat (FIMI); text files, \
                         .npy and idx also as .gz";

impl Format {
    /// The format for the extension of a file name (in lower case, without `.gz`).
    fn by_name(name: &str) -> Option<Format> {
        Some(match Path::new(name).extension()?.to_str()? {
            "mtx" | "mm" => Format::Market,
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "idx" => Format::Idx,
            "parquet" | "pq" => Format::Parquet,
            "csv" | "txt" => Format::Table { tabs: false },
            "tsv" | "tab" => Format::Table { tabs: true },
            "dat" => Format::Fimi,
            // Version 1 of BIOM is JSON.
            "biom" => return None,
            _ if hdf5::is_hdf5_name(name) => Format::Hdf5,
            _ => return None,
        })
    }

    /// The format of a file that begins with `lead`.
    fn by_content(lead: &[u8]) -> Option<Format> {
        if lead.starts_with(npy::MAGIC) {
            Some(Format::Npy)
        } else if lead.len() >= 14 && lead[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
            Some(Format::Market)
        } else if lead.starts_with(b"\x89HDF\r\n\x1a\n") {
            Some(Format::Hdf5)
        } else if lead.starts_with(b"PK\x03\x04") {
            Some(Format::Npz)
        } else if lead.starts_with(parquet::MAGIC) && lead.get(4).is_none_or(|byte| *byte == parquet::FIRST_FIELD) {
            Some(Format::Parquet)
        } else if idx::is_idx(lead) {
            Some(Format::Idx)
        } else {
            None
        }
    }
}

/// The names of a matrix as 10x writes it.
const MATRICES: [&str; 2] = ["matrix.mtx.gz", "matrix.mtx"];

/// The path of the matrix in a directory as 10x writes it (`matrix.mtx.gz`, with `features.tsv.gz` and `barcodes.tsv.gz`);
/// any other path unchanged.
pub fn matrix_of_directory(path: &str) -> String {
    matrix_of_tenx(Path::new(path)).map_or_else(|| path.to_string(), |(file, _)| file.to_string_lossy().into_owned())
}

/// The matrix in a directory as 10x writes it, and what stands before its usual name: archives put the name of a sample
/// there, `GSM1_matrix.mtx.gz`. None of several, which would be a guess.
pub fn matrix_of_tenx(directory: &Path) -> Option<(PathBuf, String)> {
    MATRICES.iter().find_map(|name| {
        let mut found = files_of_tenx(directory, name);
        // The name without a prefix comes first.
        if found.len() == 1 || found.first().is_some_and(|(_, prefix)| prefix.is_empty()) {
            found.truncate(1);
            return found.pop();
        }
        None
    })
}

/// The files of this name in a directory as 10x writes it, each with what stands before the name.
pub fn files_of_tenx(directory: &Path, name: &str) -> Vec<(PathBuf, String)> {
    let prefix = |file: &Path| {
        let prefix = file.file_name()?.to_str()?.strip_suffix(name)?;
        (prefix.is_empty() || prefix.ends_with(['_', '.', '-'])).then(|| prefix.to_string())
    };
    let all = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = all.filter_map(|file| prefix(&file).map(|prefix| (file, prefix))).collect();
    found.sort_by(|(_, a), (_, b)| a.cmp(b));
    found
}

/// A file and its format.
struct Identified {
    file: InputFile,
    format: Format,
    /// In bytes.
    size: u64,
}

/// Determines the format by the extension or, if that is not decisive, by the first bytes.
fn identify(path: &str, options: TableOptions, private: bool) -> Result<Identified> {
    let path = &*matrix_of_directory(path);
    let wrong = |what: &str| Error::input(format!("{path}: {what}"));
    if MATRICES.iter().any(|name| files_of_tenx(Path::new(path), name).len() > 1) {
        return Err(wrong("has the matrices of several samples; give each a directory of its own, with its lists"));
    }
    let mut handle = open(path)?;
    let mut lead = [0u8; 16];
    let mut begin = || {
        let size = handle.metadata()?.len();
        let got = read_full(&mut handle, &mut lead)?;
        handle.seek(SeekFrom::Start(0))?;
        Ok((size, lead[..got].starts_with(&[0x1f, 0x8b])))
    };
    let (size, gz) = begin().map_err(|e| io_error(path, &e))?;
    if size == 0 {
        return Err(wrong("is an empty file"));
    }
    let lower = path.to_ascii_lowercase();
    let name = lower.strip_suffix(".gz").unwrap_or(&lower);
    if name.len() < lower.len() && !gz {
        return Err(wrong("is named .gz but is not compressed by gzip"));
    }
    let file = InputFile { path: path.to_string(), gz, private };
    let by_content = || -> Result<Option<Format>> {
        let mut lead = [0u8; 16];
        let got = read_full(&mut file.stream()?, &mut lead).map_err(|e| file.io_error(&e))?;
        Ok(Format::by_content(&lead[..got]))
    };
    let requested = match options.format {
        TableFormat::Auto => None,
        TableFormat::Table => Some(Format::Table { tabs: false }),
        TableFormat::Triples | TableFormat::Edges => Some(Format::Triples { tabs: false }),
    };
    let format = match (Format::by_name(name), requested) {
        (Some(Format::Table { tabs }), Some(Format::Triples { .. })) => Format::Triples { tabs },
        // Files of ratings have any extension.
        (Some(Format::Fimi) | None, Some(requested)) => by_content()?.unwrap_or(requested),
        (Some(format), _) => format,
        (None, None) => by_content()?.ok_or_else(|| {
            let hint = match kind(Path::new(path)) {
                Some(FileKind::Other("text")) if name.ends_with(".biom") => {
                    "; BIOM tables of version 2 are read: biom convert --to-hdf5 -i TABLE -o NEW"
                }
                Some(FileKind::Other("text")) => {
                    "; text under another name is read with --format triples (user, item, rating on each line) or \
                     --format table"
                }
                _ => "",
            };
            wrong(&format!("is of no known format; {SUPPORTED}{hint}"))
        })?,
    };
    // The rule for the names of rows is that of tables in text.
    let given = if format == Format::Parquet {
        TableOptions { index_col: Presence::Auto, ..options }.first_given()
    } else {
        options.first_given()
    };
    match given {
        Some(option) if !matches!(format, Format::Table { .. } | Format::Triples { .. }) => Err(wrong(&format!(
            "{option} is for tables in text (.csv, .tsv, .txt), and this file is none; leave the option out"
        ))),
        _ => Ok(Identified { file, format, size }),
    }
}

/// The kind of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Hdf5,
    Zip,
    Other(&'static str),
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileKind::Hdf5 => "an HDF5 file (.h5, .h5ad)",
            FileKind::Zip => "a zip archive (.npz)",
            FileKind::Other(words) => words,
        })
    }
}

/// The kind of a file; `None` if its first bytes do not determine it, or it cannot be read.
pub fn kind(path: &Path) -> Option<FileKind> {
    let mut lead = [0u8; 512];
    let got = std::fs::File::open(path).and_then(|mut file| read_full(&mut file, &mut lead)).ok()?;
    let lead = &lead[..got];
    Some(FileKind::Other(match Format::by_content(lead) {
        Some(Format::Hdf5) => return Some(FileKind::Hdf5),
        Some(Format::Npz) => return Some(FileKind::Zip),
        Some(Format::Npy) => "a NumPy array (.npy)",
        Some(Format::Market) => "a matrix in MatrixMarket format (.mtx)",
        Some(Format::Idx) => "an array in idx format",
        Some(Format::Parquet) => "a table in Parquet",
        _ if lead.is_empty() => "an empty file",
        _ if lead.starts_with(&[0x1f, 0x8b]) => "compressed by gzip",
        _ if lead.starts_with(b"{\"event\":") => "a trace of fednmf",
        _ if lead.starts_with(b"<!DOCTYPE html") => "an HTML page",
        _ if is_text(lead) => "text",
        _ => return None,
    }))
}

/// Whether these first bytes of a file are text; the last character may be cut.
fn is_text(lead: &[u8]) -> bool {
    !lead.contains(&0) && std::str::from_utf8(lead).map_or_else(|e| e.error_len().is_none(), |_| true)
}

/// Whether the file name is that of a text table.
pub fn is_table_name(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    matches!(Format::by_name(lower.strip_suffix(".gz").unwrap_or(&lower)), Some(Format::Table { .. }))
}

/// The text table at `path`, and whether tabs separate its fields; `None` if the file has another format.
///
/// # Errors
/// If the file is missing, empty, or of no known format.
pub fn table_in_text(path: &str, format: TableFormat) -> Result<Option<(InputFile, bool)>> {
    let Identified { file, format, .. } = identify(path, TableOptions { format, ..TableOptions::default() }, false)?;
    Ok(match format {
        Format::Table { tabs } => Some((file, tabs)),
        _ => None,
    })
}

/// The names of columns and rows in a text table, or of items and users in triples; none in other formats, or if the file
/// cannot be read.
pub fn names(path: &str, options: TableOptions) -> Names {
    let Ok(Identified { file, format, .. }) = identify(path, options, true) else { return (None, None) };
    let names = match format {
        Format::Table { tabs } => table::names(&file, tabs, options),
        Format::Triples { tabs } => triples::names(&file, tabs, options),
        Format::Parquet => parquet::names(&file, options),
        _ => return (None, None),
    };
    names.unwrap_or_default()
}

/// Whether the file is read as HDF5, by its name or, if that is not decisive, by its first bytes.
pub fn is_hdf5(path: &str) -> bool {
    identify(path, TableOptions::default(), true).is_ok_and(|found| found.format == Format::Hdf5)
}

/// Reads the header of a file in any supported format, determined by its extension or its first bytes. `dataset` names the
/// matrix in an HDF5 file; `options` determine how a text table is read. A file of triples is read completely. Errors about
/// a `private` file, including later ones, do not quote its text.
///
/// # Errors
/// If the file is missing, empty or in no supported format; if its header declares more than it can hold; or if `options`
/// are not the defaults and it is not a text table.
pub fn read_header(path: &str, dataset: Option<&str>, options: TableOptions, private: bool) -> Result<MatrixFile> {
    let wrong = |what: &str| Error::input(format!("{path}: {what}"));
    let Identified { file, format, size } = identify(path, options, private)?;
    let gz = file.gz;
    if dataset.is_some() && format != Format::Hdf5 {
        return Err(wrong("only an HDF5 file contains datasets"));
    }
    if gz && matches!(format, Format::Hdf5 | Format::Npz | Format::Parquet) {
        return Err(wrong("unpack it first (gunzip): parts of it cannot be read while it is compressed"));
    }
    let mut image = None;
    let mut values = Values::Double;
    let (shape, stored, mut description, encoding): Description = match format {
        Format::Market => {
            let market = mtx::header(&file, size)?;
            let shape = (market.rows, market.cols);
            if market.whole {
                values = Values::Whole;
            }
            (shape, Some(market.entries), market.banner.clone(), Encoding::Market(market))
        }
        Format::Npy => {
            let header = npy::header(&mut file.stream()?).map_err(|e| file.error(e))?;
            image = image_of(&header.shape);
            values = header.raw.number.values();
            raw_array(&file, size, "npy", header.raw, &header.shape)?
        }
        Format::Idx => {
            let (raw, dims) = idx::header(&mut file.stream()?).map_err(|e| file.error(e))?;
            image = image_of(&dims);
            values = raw.number.values();
            raw_array(&file, size, "idx", raw, &dims)?
        }
        Format::Npz => {
            let (matrix, arrays) = npz::header(path, size)?;
            let format = format!("npz {}", matrix.name());
            values = arrays.values();
            ((matrix.rows, matrix.cols), Some(matrix.entries), format, Encoding::Npz(matrix, arrays))
        }
        Format::Hdf5 => match hdf5::header(path, dataset)? {
            Hdf5Matrix::Dense(rows, cols, name, number, storage) => {
                let format = format!("HDF5 dataset {name}, {}", number.name);
                values = number.values;
                let encoding = match storage {
                    Storage::InPlace(raw) => Encoding::Raw(raw),
                    Storage::ByLibrary(chunks) => Encoding::Hdf5Dataset(name, chunks),
                };
                ((rows, cols), Some(rows as u64 * cols as u64), format, encoding)
            }
            Hdf5Matrix::Sparse(matrix, name, writer, number) => {
                values = number.values;
                let format = format!("HDF5 {} group {name} ({writer})", matrix.name());
                ((matrix.rows, matrix.cols), Some(matrix.entries), format, Encoding::Hdf5Group(matrix, name))
            }
        },
        Format::Parquet => {
            let (found, shape, kind) = parquet::header(&file, options)?;
            values = kind;
            let named = if found.index.is_some() { ", with names of rows" } else { "" };
            (shape, Some(shape.0 as u64 * shape.1 as u64), format!("Parquet{named}"), Encoding::Parquet(found))
        }
        Format::Table { tabs } => {
            let table = table::layout(&file, tabs, options)?;
            let format = match table.header.separator {
                b' ' => "numbers separated by blanks".to_string(),
                separator => FirstLines::format(separator),
            };
            ((0, table.cols), None, format, Encoding::Table(table))
        }
        Format::Triples { tabs } => {
            let triples::Contents { triples, shape, entries, values: found } = triples::contents(&file, tabs, options)?;
            values = found;
            let format = format!("triples, {}", FirstLines::format(triples.header.separator));
            (shape, Some(entries), format, Encoding::Triples(triples))
        }
        Format::Fimi => {
            let encoding = Encoding::Transactions(Transactions::EMPTY);
            values = Values::Whole;
            ((0, 0), None, "FIMI transactions".to_string(), encoding)
        }
    };
    if gz {
        description += ", gzip";
    }
    let mut found = MatrixFile::new(file, shape, stored, description, encoding);
    found.image = image;
    found.values = values;
    Ok(found)
}

/// Height and width of the images in an array of images × height × width. Further dimensions of length 1, such as a single
/// channel, are ignored.
fn image_of(dims: &[u64]) -> Option<(usize, usize)> {
    let rest: Vec<u64> = dims.get(1..)?.iter().copied().filter(|&d| d != 1).collect();
    match rest[..] {
        [height, width] if dims.len() > 2 && height.max(width) <= MOST_PIXELS => {
            Some((height as usize, width as usize))
        }
        _ => None,
    }
}

/// The largest height or width of an image, as for --image.
const MOST_PIXELS: u64 = 4096;

/// The content of a header: shape, number of stored entries, description and encoding.
type Description = ((usize, usize), Option<u64>, String, Encoding);

/// The header of a raw array in a file of `size` bytes.
fn raw_array(file: &InputFile, size: u64, name: &str, raw: RawArray, dims: &[u64]) -> Result<Description> {
    let (rows, cols) = two_dimensions(dims, raw.by_columns).map_err(|e| file.error(e))?;
    let bytes = rows as u128 * cols as u128 * raw.number.size() as u128;
    let left = unpacked_bytes(size, file.gz).saturating_sub(raw.start);
    if bytes > u128::from(left) {
        return Err(file.error(format!(
            "the header promises {rows} × {cols} numbers, {bytes} bytes; the file holds {left} (truncated?)"
        )));
    }
    if !file.gz && bytes < u128::from(left) {
        return Err(file.error(format!(
            "the header promises {rows} × {cols} numbers, {bytes} bytes; the file holds {left} (another array, or a wrong header?)"
        )));
    }
    let order = if raw.by_columns { "column order" } else { "row order" };
    let end = if raw.big_endian && raw.number.size() > 1 { " big-endian" } else { "" };
    let format = format!("{name} {}{end}, {order}", raw.number.name());
    Ok(((rows, cols), Some(rows as u64 * cols as u64), format, Encoding::Raw(raw)))
}

/// Rows and columns of an array: an array of one dimension is a column; otherwise all dimensions but the first make a row.
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
    check_shape(rows as usize, cols as usize, None)?;
    Ok((rows as usize, cols as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_a_height_and_a_width() {
        assert_eq!([&[60, 28, 20][..], &[60, 1, 28, 20], &[60, 28, 20, 1]].map(image_of), [Some((28, 20)); 3]);
        assert_eq!([&[60, 784][..], &[60], &[], &[60, 3, 28, 20], &[9, 5000, 2], &[9, 1, 5]].map(image_of), [None; 6]);
    }

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
