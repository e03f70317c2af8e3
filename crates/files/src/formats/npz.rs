//! SciPy's `.npz`: a zip archive with the arrays of a CSR or CSC matrix.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use flate2::CrcReader;
use flate2::bufread::DeflateDecoder;
use serde::{Deserialize, Serialize};
use zip::{CompressionMethod, ZipArchive};

use fednmf_base::error::{Error, Result};
use fednmf_data::values::Values;

use crate::formats::compressed::{Compressed, CompressedArrays, Step};
use crate::formats::io::{Section, io_error, open, read_full, skip};
use crate::formats::limits::unpacked_bytes;
use crate::formats::npy;
use crate::formats::raw::RawArray;

/// The arrays of the matrix in the archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrays {
    data: Member,
    indices: Member,
    indptr: Member,
}

/// One array of the archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Member {
    name: String,
    raw: RawArray,
    length: u64,
    /// Position of its numbers in the file, if they are not compressed.
    plain: Option<u64>,
}

/// What is wrong with the file of a spreadsheet program.
const WORKBOOK: &str = "is a workbook, which is not read; save the sheet as .csv";

fn wrong(path: &str, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{path}: {what}"))
}

fn archive(path: &str) -> Result<ZipArchive<BufReader<File>>> {
    ZipArchive::new(BufReader::new(open(path)?)).map_err(|e| {
        let workbook = [".xlsx", ".xlsm", ".ods"].iter().any(|end| path.to_lowercase().ends_with(end));
        wrong(path, if workbook { WORKBOOK.into() } else { format!("is not a readable .npz archive: {e}") })
    })
}

/// Reads the headers of the archive and its arrays; `size` is the size of the file in bytes.
///
/// # Errors
/// If it is not an archive of a CSR or CSC matrix.
pub fn header(path: &str, size: u64) -> Result<(Compressed, Arrays)> {
    let mut zip = archive(path)?;
    let names: Vec<String> = zip.file_names().filter_map(|name| Some(name.ok()?.to_string())).collect();
    let has = |name: &str| names.iter().any(|n| n == name);
    if !["data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"].iter().all(|n| has(n)) {
        return Err(wrong(
            path,
            format!(
                "holds {}, not a CSR or CSC matrix; write it by scipy.sparse.save_npz (after .tocsr()), or a dense array \
                 by numpy.save",
                names.join(", ")
            ),
        ));
    }
    let mut format = Vec::new();
    let text = zip.by_name("format.npy").map_err(|e| wrong(path, e))?;
    text.take(1 << 12).read_to_end(&mut format).map_err(|e| io_error(path, &e))?;
    // An array of one string, in bytes or in UTF-32.
    let tail: String =
        format[format.len().saturating_sub(16)..].iter().filter(|b| **b != 0).map(|&b| char::from(b)).collect();
    let by_columns = match tail.get(tail.len().saturating_sub(3)..) {
        Some("csr") => false,
        Some("csc") => true,
        _ => return Err(wrong(path, "is a sparse matrix of a kind other than CSR and CSC; save it after .tocsr()")),
    };
    let shape = Member::find(path, &mut zip, "shape.npy", size)?.all(path)?;
    let data = Member::find(path, &mut zip, "data.npy", size)?;
    let indices = Member::find(path, &mut zip, "indices.npy", size)?;
    let indptr = Member::find(path, &mut zip, "indptr.npy", size)?;
    let matrix = Compressed::new(&shape, by_columns, [indptr.length, indices.length, data.length]);
    Ok((matrix.map_err(|what| wrong(path, what))?, Arrays { data, indices, indptr }))
}

impl Member {
    /// Reads the header of an array in the archive; the archive has `size` bytes.
    fn find(path: &str, zip: &mut ZipArchive<BufReader<File>>, name: &str, size: u64) -> Result<Self> {
        let mut file = zip.by_name(name).map_err(|e| wrong(path, format!("{name}: {e}")))?;
        let stored = file.compression() == CompressionMethod::Stored;
        let begin = file.data_start().filter(|_| stored);
        let header = npy::header(&mut file).map_err(|e| wrong(path, format!("{name} {e}")))?;
        let length = match header.shape[..] {
            [] => 1,
            [length] => length,
            _ => return Err(wrong(path, format!("{name} has {} dimensions instead of one", header.shape.len()))),
        };
        if length.saturating_mul(header.raw.number.size() as u64) > unpacked_bytes(size, true) {
            return Err(wrong(path, format!("{name} promises {length} numbers, more than the file can hold")));
        }
        let plain = begin.map(|begin| begin + header.raw.start);
        Ok(Member { name: name.to_string(), raw: header.raw, length, plain })
    }

    /// All numbers of a short array, compared with its checksum.
    fn all(&self, path: &str) -> Result<Vec<f64>> {
        let access = Access::Sequential(inflate(self, path)?);
        let mut reader = MemberReader { path: path.to_string(), member: self.clone(), access, bytes: Vec::new() };
        let (mut all, raw) = (vec![0.0; self.length as usize], &self.raw);
        raw.number.decode(reader.read(&(0..self.length))?, raw.big_endian, &mut all);
        Ok(all)
    }
}

/// Reads the numbers of a member: in any order, or sequentially if they are compressed.
struct MemberReader {
    path: String,
    member: Member,
    access: Access,
    bytes: Vec<u8>,
}

enum Access {
    Random(File, u64),
    Sequential(Inflated),
}

/// The bytes of a member from its start on, and their checksum in the archive.
struct Inflated {
    from: CrcReader<Box<dyn Read>>,
    checksum: u32,
}

impl Inflated {
    fn fill(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        match read_full(&mut self.from, bytes)? {
            got if got < bytes.len() => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Compares the checksum once all numbers have been read.
    fn finish(&mut self) -> std::io::Result<()> {
        let more = read_full(&mut self.from, &mut [0])?;
        if more > 0 || self.from.crc().sum() != self.checksum {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "its checksum does not match"));
        }
        Ok(())
    }
}

impl MemberReader {
    fn open(member: &Member, path: &str) -> Result<Self> {
        let access = match member.plain {
            Some(at) => Access::Random(open(path)?, at),
            None => Access::Sequential(inflate(member, path)?),
        };
        Ok(MemberReader { path: path.to_string(), member: member.clone(), access, bytes: Vec::new() })
    }

    /// The bytes of some numbers.
    fn read(&mut self, range: &Range<u64>) -> Result<&[u8]> {
        let MemberReader { path, member, access, bytes } = self;
        let size = member.raw.number.size();
        bytes.resize((range.end - range.start) as usize * size, 0);
        let read = match access {
            Access::Random(file, begin) => file.read_exact_at(bytes, *begin + range.start * size as u64),
            Access::Sequential(from) => match from.fill(bytes) {
                Ok(()) if range.end == member.length => from.finish(),
                read => read,
            },
        };
        read.map_err(|e| io_error(&format!("{path}: {}", member.name), &e))?;
        Ok(bytes)
    }
}

/// The numbers of a member, in order. The archive's own reader cannot outlive the archive; a section of the file can.
fn inflate(member: &Member, path: &str) -> Result<Inflated> {
    let mut zip = archive(path)?;
    let index = zip.index_for_name(&member.name).ok_or_else(|| wrong(path, "has changed while it was read"))?;
    let file = zip.by_index_raw(index).map_err(|e| wrong(path, e))?;
    let at = file.data_start().ok_or_else(|| wrong(path, "is damaged"))?;
    let packed = Section { file: open(path)?, at, end: at.saturating_add(file.compressed_size()) };
    let packed = BufReader::with_capacity(1 << 17, packed);
    let bytes: Box<dyn Read> = match file.compression() {
        CompressionMethod::Stored => Box::new(packed),
        CompressionMethod::Deflated => Box::new(DeflateDecoder::new(packed)),
        _ => return Err(wrong(path, format!("{} is compressed by a method that is not supported", member.name))),
    };
    let mut from = CrcReader::new(bytes);
    skip(&mut from, member.raw.start).map_err(|e| io_error(path, &e))?;
    Ok(Inflated { from, checksum: file.crc32() })
}

impl Arrays {
    /// Element type of the entries.
    pub fn values(&self) -> Values {
        self.data.raw.number.values()
    }

    /// Whether any part can be read independently, since the long arrays are not compressed.
    pub fn divisible(&self) -> bool {
        self.data.plain.is_some() && self.indices.plain.is_some()
    }

    /// The content of `indptr`, and a reader of the other arrays.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(&self, path: &str) -> Result<(Vec<f64>, Box<dyn CompressedArrays>)> {
        let starts = self.indptr.all(path)?;
        let reader = ArraysReader {
            indices: MemberReader::open(&self.indices, path)?,
            data: MemberReader::open(&self.data, path)?,
        };
        Ok((starts, Box::new(reader)))
    }
}

struct ArraysReader {
    indices: MemberReader,
    data: MemberReader,
}

impl CompressedArrays for ArraysReader {
    fn read(&mut self, step: &mut Step) -> Result<()> {
        let Step { entries, indices, values } = step;
        let count = (entries.end - entries.start) as usize;
        indices.resize(count, 0);
        values.resize(count, 0.0);
        let [of_indices, of_data] =
            [&self.indices, &self.data].map(|array| (array.member.raw.number, array.member.raw.big_endian));
        of_indices.0.decode_indices(self.indices.read(entries)?, of_indices.1, indices);
        of_data.0.decode(self.data.read(entries)?, of_data.1, values);
        Ok(())
    }
}
