//! SciPy's `.npz`: a zip archive with the arrays of a CSR or CSC matrix.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use zip::{CompressionMethod, ZipArchive};

use super::compressed;
use super::npy;
use crate::data::formats::compressed::{Store, Strips};
use crate::data::formats::raw::Raw;
use crate::data::formats::text::{io_error, open, read_full};
use crate::error::{Error, Result};

/// The arrays' places in the archive.
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
    raw: Raw,
    length: u64,
    /// Where its numbers begin in the file, if they are not compressed.
    plain: Option<u64>,
}

fn wrong(path: &str, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{path}: {what}"))
}

fn archive(path: &str) -> Result<ZipArchive<BufReader<File>>> {
    ZipArchive::new(BufReader::new(open(path)?))
        .map_err(|e| wrong(path, format!("is not a readable .npz archive: {e}")))
}

/// Reads what the archive says of itself.
pub fn header(path: &str, size: u64) -> Result<Strips> {
    let mut zip = archive(path)?;
    let names: Vec<String> = zip.file_names().filter_map(|name| Some(name.ok()?.to_string())).collect();
    let has = |name: &str| names.iter().any(|n| n == name);
    if !["data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"].iter().all(|n| has(n)) {
        return Err(wrong(
            path,
            format!(
                "holds {} and is no CSR or CSC matrix; write it by scipy.sparse.save_npz (of .tocsr()), or a dense array by \
                 numpy.save",
                names.join(", ")
            ),
        ));
    }
    let mut format = Vec::new();
    let text = zip.by_name("format.npy").map_err(|e| wrong(path, e))?;
    text.take(1 << 12).read_to_end(&mut format).map_err(|e| io_error(path, &e))?;
    // The array of one string, in bytes or in UTF-32.
    let tail: String =
        format[format.len().saturating_sub(16)..].iter().filter(|b| **b != 0).map(|&b| char::from(b)).collect();
    let by_columns = match tail.get(tail.len().saturating_sub(3)..) {
        Some("csr") => false,
        Some("csc") => true,
        _ => return Err(wrong(path, "is a sparse matrix of another kind than CSR and CSC; save it after .tocsr()")),
    };
    let shape = Member::find(path, &mut zip, "shape.npy", size)?.all(path)?;
    let [data, indices, indptr] =
        ["data.npy", "indices.npy", "indptr.npy"].map(|name| Member::find(path, &mut zip, name, size));
    let (data, indices, indptr) = (data?, indices?, indptr?);
    let (rows, cols) = compressed::check(&shape, by_columns, indptr.length, indices.length, data.length)
        .map_err(|what| wrong(path, what))?;
    let entries = data.length;
    Ok(Strips { rows, cols, by_columns, entries, store: Store::Npz(Arrays { data, indices, indptr }) })
}

impl Member {
    /// Reads the header of an array of the archive; `size` is the archive's.
    fn find(path: &str, zip: &mut ZipArchive<BufReader<File>>, name: &str, size: u64) -> Result<Self> {
        let mut file = zip.by_name(name).map_err(|e| wrong(path, format!("{name}: {e}")))?;
        let plain = file.compression() == CompressionMethod::Stored;
        let begin = file.data_start();
        let header = npy::header(&mut file).map_err(|e| wrong(path, format!("{name} {e}")))?;
        let length = match header.shape[..] {
            [] => 1,
            [length] => length,
            _ => return Err(wrong(path, format!("{name} has {} dimensions instead of one", header.shape.len()))),
        };
        let most = crate::data::formats::mtx::text_bytes(size, true);
        if length.saturating_mul(header.raw.number.size() as u64) > most {
            return Err(wrong(path, format!("{name} promises {length} numbers, more than the file can hold")));
        }
        let plain = begin.filter(|_| plain).map(|begin| begin + header.raw.start);
        Ok(Member { name: name.to_string(), raw: header.raw, length, plain })
    }

    fn size(&self) -> u64 {
        self.raw.number.size() as u64
    }

    /// All numbers of a short array.
    fn all(&self, path: &str) -> Result<Vec<f64>> {
        let mut from = Source::open(self, path)?;
        from.read(self, path, 0..self.length)
    }
}

/// A member's numbers, anywhere or from front to back.
enum Source {
    Plain(File, u64),
    Packed(Box<dyn Read>),
}

impl Source {
    fn open(member: &Member, path: &str) -> Result<Self> {
        if let Some(at) = member.plain {
            return Ok(Source::Plain(open(path)?, at));
        }
        let mut zip = archive(path)?;
        let index = zip.index_for_name(&member.name).ok_or_else(|| wrong(path, "has changed while it was read"))?;
        let file = zip.by_index_raw(index).map_err(|e| wrong(path, e))?;
        if file.compression() != CompressionMethod::Deflated {
            return Err(wrong(path, format!("{} is compressed in a way that is not supported", member.name)));
        }
        let (begin, size) = (file.data_start(), file.compressed_size());
        drop(file);
        let begin = begin.ok_or_else(|| wrong(path, "is damaged"))?;
        // The archive's reader cannot outlive the archive; the bytes between two places of the file can.
        let packed = Section { file: open(path)?, at: begin, end: begin + size };
        let mut numbers = flate2::bufread::DeflateDecoder::new(BufReader::with_capacity(1 << 17, packed));
        let skipped = std::io::copy(&mut (&mut numbers).take(member.raw.start), &mut std::io::sink());
        skipped.map_err(|e| io_error(path, &e))?;
        Ok(Source::Packed(Box::new(numbers)))
    }

    fn read(&mut self, member: &Member, path: &str, range: Range<u64>) -> Result<Vec<f64>> {
        let mut bytes = vec![0; ((range.end - range.start) * member.size()) as usize];
        let read = match self {
            Source::Plain(file, begin) => file.read_exact_at(&mut bytes, *begin + range.start * member.size()),
            Source::Packed(from) => read_full(from, &mut bytes).and_then(|got| {
                if got == bytes.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
            }),
        };
        read.map_err(|e| io_error(&format!("{path}: {}", member.name), &e))?;
        let mut out = vec![0.0; (range.end - range.start) as usize];
        member.raw.number.decode(&bytes, member.raw.big_endian, &mut out);
        Ok(out)
    }
}

/// Bytes between two places of a file.
struct Section {
    file: File,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min((self.end - self.at) as usize);
        let got = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Arrays {
    /// Whether the long arrays are not compressed.
    pub fn divisible(&self) -> bool {
        self.data.plain.is_some() && self.indices.plain.is_some()
    }

    /// All row starts, and a reader of the rest.
    pub fn open(&self, path: &str) -> Result<(Vec<f64>, Box<dyn compressed::Arrays>)> {
        let starts = self.indptr.all(path)?;
        let reader = Reader {
            path: path.to_string(),
            indices: (self.indices.clone(), Source::open(&self.indices, path)?),
            data: (self.data.clone(), Source::open(&self.data, path)?),
        };
        Ok((starts, Box::new(reader)))
    }
}

struct Reader {
    path: String,
    indices: (Member, Source),
    data: (Member, Source),
}

impl compressed::Arrays for Reader {
    fn read(&mut self, range: Range<u64>) -> Result<(Vec<f64>, Vec<f64>)> {
        let indices = self.indices.1.read(&self.indices.0, &self.path, range.clone())?;
        let values = self.data.1.read(&self.data.0, &self.path, range)?;
        Ok((indices, values))
    }
}
