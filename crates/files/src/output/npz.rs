//! Factors for NumPy (`.npz`): an uncompressed zip archive with an array per matrix and a zero-dimensional array per
//! attribute.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::iter::repeat;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ndarray::{ArrayViewMut2, Axis};
use serde_json::{Map, Value};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::{Access, create_part};
use fednmf_linalg::Real;

use crate::formats::npy;
use crate::formats::npy::Header;
use crate::formats::raw::{NumberType, RawArray};
use crate::output::part::{Part, unwritten};
use crate::output::plan::Matrix;
use crate::output::stored::TEXTS;
use crate::output::values::Scalar;

/// An archive being written.
pub struct Archive {
    /// Dropped only when finished: otherwise its destructor would try to finish a file that could not be written, and
    /// print the error.
    zip: ManuallyDrop<ZipWriter<BufWriter<File>>>,
    part: Part,
    attributes: Map<String, Value>,
    members: usize,
}

/// The comment of an archive with this number of members. It is lost if another program rewrites the archive.
fn comment(members: usize) -> String {
    format!("fednmf: {members} arrays")
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true)
}

impl Archive {
    /// Creates the file that will be `path`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path, attributes: Map<String, Value>, access: Access) -> Result<Self> {
        let part = Part::new(path);
        let file = create_part(path, access).map_err(|e| unwritten(path, e))?;
        let zip = ManuallyDrop::new(ZipWriter::new(BufWriter::with_capacity(1 << 20, file)));
        Ok(Archive { zip, part, attributes, members: 0 })
    }

    fn member(&mut self, name: &str, descr: &str, shape: &str) -> std::io::Result<()> {
        self.zip.start_file(format!("{name}.npy"), options())?;
        self.members += 1;
        npy::write_header(&mut *self.zip, descr, shape)
    }

    /// Begins a matrix.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin<T: Real>(&mut self, matrix: &Matrix) -> Result<()> {
        let descr = if T::NAME == f32::NAME { "<f4" } else { "<f8" };
        let begun = self.member(&matrix.name, descr, &format!("{}, {}", matrix.rows, matrix.cols));
        begun.map_err(|e| unwritten(self.part.path(), e))
    }

    /// Appends rows, given row by row.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push<T: Real>(&mut self, values: &[T]) -> Result<()> {
        let zip = &mut self.zip;
        let written = if T::NAME == f32::NAME {
            values.iter().try_for_each(|x| zip.write_all(&(x.as_f64() as f32).to_le_bytes()))
        } else {
            values.iter().try_for_each(|x| zip.write_all(&x.as_f64().to_le_bytes()))
        };
        written.map_err(|e| unwritten(self.part.path(), e))
    }

    /// Adds a whole array, its values as row-major bytes; `descr` is the NumPy type.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn array(&mut self, name: &str, descr: &str, shape: &[usize], bytes: &[u8]) -> Result<()> {
        // A tuple of one number has a comma.
        let shape: String = shape.iter().map(|length| format!("{length},")).collect();
        let begun = self.member(name, descr, &shape);
        begun.and_then(|()| self.zip.write_all(bytes)).map_err(|e| unwritten(self.part.path(), e))
    }

    /// Adds a list of texts.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn texts(&mut self, name: &str, texts: &[String]) -> Result<()> {
        let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
        let padded = texts.iter().flat_map(|text| text.chars().map(u32::from).chain(repeat(0)).take(longest));
        let bytes: Vec<u8> = padded.flat_map(u32::to_le_bytes).collect();
        self.array(name, &format!("<U{longest}"), &[texts.len()], &bytes)
    }

    /// Replaces the attributes, which are written last.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) {
        self.attributes = attributes;
    }

    fn scalar(&mut self, name: &str, value: Scalar) -> std::io::Result<()> {
        match value {
            Scalar::Int(x) => self.member(name, "<i8", "").and_then(|()| self.zip.write_all(&x.to_le_bytes())),
            Scalar::Uint(x) => self.member(name, "<u8", "").and_then(|()| self.zip.write_all(&x.to_le_bytes())),
            Scalar::Float(x) => self.member(name, "<f8", "").and_then(|()| self.zip.write_all(&x.to_le_bytes())),
            Scalar::Text(text) => {
                // Four bytes per character; NumPy has no strings of length 0.
                let mut characters: Vec<u32> = text.chars().map(u32::from).collect();
                characters.resize(characters.len().max(1), 0);
                self.member(name, &format!("<U{}", characters.len()), "")?;
                characters.iter().try_for_each(|character| self.zip.write_all(&character.to_le_bytes()))
            }
        }
    }

    /// Adds the attributes, closes the file and syncs it to disk.
    ///
    /// # Errors
    /// If the file is incomplete.
    pub fn finish(mut self) -> Result<Part> {
        let attributes = std::mem::take(&mut self.attributes);
        let scalars = attributes.iter().filter_map(|(name, value)| Some((name, Scalar::from_json(value)?)));
        let mut written = scalars.into_iter().try_for_each(|(name, value)| self.scalar(name, value));
        let Archive { mut zip, part, members, .. } = self;
        written = written.and_then(|()| zip.set_comment(comment(members)).map_err(std::io::Error::from));
        if written.is_ok() {
            let closed = ManuallyDrop::into_inner(zip).finish().map_err(std::io::Error::from);
            written = closed
                .and_then(|to| to.into_inner().map_err(std::io::IntoInnerError::into_error))
                .and_then(|file| file.sync_all());
        }
        written.map_err(|e| unwritten(part.path(), e))?;
        Ok(part)
    }
}

/// A matrix in an archive.
#[derive(Debug)]
struct Member {
    name: String,
    shape: (usize, usize),
    header: Header,
    /// The offset of its values in the file.
    begin: u64,
}

/// An archive of matrices, open for reading.
#[derive(Debug)]
pub struct Matrices {
    file: File,
    members: Vec<Member>,
    /// Whether the archive is unchanged since fednmf wrote it.
    is_own: bool,
}

/// Bytes that are read first of each member: enough for any header and any scalar.
const FRONT: u64 = 1 << 17;
/// Maximum size of a text that is read as an attribute, in bytes.
const LONGEST: usize = 1 << 26;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// A number from its bytes. Whole ones keep all digits, such as those of a seed.
fn number(raw: &RawArray, bytes: &[u8]) -> Value {
    let whole = bytes.try_into().ok().map(|bytes| match raw.big_endian {
        true => u64::from_be_bytes(bytes),
        false => u64::from_le_bytes(bytes),
    });
    match (raw.number, whole) {
        (NumberType::U64, Some(whole)) => whole.into(),
        (NumberType::I64, Some(whole)) => whole.cast_signed().into(),
        (kind, _) => {
            let mut x = [0.0f64];
            kind.decode(bytes, raw.big_endian, &mut x);
            let is_whole = !kind.name().starts_with('f') && x[0].fract() == 0.0;
            if is_whole { (x[0] as i64).into() } else { x[0].into() }
        }
    }
}

impl Matrices {
    /// Opens an archive: its matrices, and its zero-dimensional arrays as attributes.
    ///
    /// # Errors
    /// If it cannot be read; the message does not contain the path.
    pub fn open(path: &Path) -> std::result::Result<(Matrices, Map<String, Value>), String> {
        let open = || File::open(path).map_err(|e| e.to_string());
        let size = open()?.metadata().map_err(|e| e.to_string())?.len();
        let mut zip = ZipArchive::new(BufReader::new(open()?)).map_err(|e| e.to_string())?;
        let (mut members, mut attributes) = (Vec::new(), Map::new());
        for i in 0..zip.len() {
            let mut from = zip.by_index(i).map_err(|e| e.to_string())?;
            let Ok(Some(name)) = from.name().map(|name| name.strip_suffix(".npy").map(str::to_string)) else {
                continue;
            };
            let plain = from.compression() == CompressionMethod::Stored;
            let begin = from.data_start().filter(|_| plain);
            let mut start = Vec::new();
            (&mut from).take(FRONT).read_to_end(&mut start).map_err(|e| e.to_string())?;
            if let Some((at, characters)) = npy::text(&start) {
                let end = characters.checked_mul(4).and_then(|n| n.checked_add(at)).filter(|&end| end <= LONGEST);
                let end = end
                    .ok_or_else(|| format!("{name} is a text of {characters} characters, too long for an attribute"))?;
                from.take(end.saturating_sub(start.len()) as u64).read_to_end(&mut start).map_err(|e| e.to_string())?;
                let (characters, _) = start.get(at..end).unwrap_or_default().as_chunks::<4>();
                let characters =
                    characters.iter().map(|b| char::from_u32(u32::from_le_bytes(*b)).unwrap_or('\u{fffd}'));
                let text: String = characters.collect();
                attributes.insert(name, Scalar::Text(text.trim_end_matches('\0').to_string()).to_json());
                continue;
            }
            if TEXTS.contains(&&*name) {
                // An array instead of a text: there, but not read.
                attributes.insert(name, Value::Null);
                continue;
            }
            let Ok(header) = npy::header(&mut &start[..]) else { continue };
            let bytes = header.raw.number.size() as u64;
            match header.shape[..] {
                [] => {
                    let value = start.get(header.raw.start as usize..).and_then(|b| b.get(..bytes as usize));
                    if let Some(value) = value {
                        attributes.insert(name, number(&header.raw, value));
                    }
                }
                [rows, cols] => {
                    let Some(begin) = begin.and_then(|at| at.checked_add(header.raw.start)) else {
                        return Err(format!(
                            "{name} is compressed, and its rows cannot be reached one by one; write it by numpy.savez, \
                             not savez_compressed"
                        ));
                    };
                    let held = rows.checked_mul(cols).and_then(|n| n.checked_mul(bytes)?.checked_add(begin));
                    // What follows in the file is of other arrays.
                    let end = size.min(begin.saturating_sub(header.raw.start).saturating_add(from.size()));
                    if held.is_none_or(|held| held > end) {
                        return Err(format!("{name} promises {rows} x {cols} numbers, more than the file holds"));
                    }
                    members.push(Member { name, shape: (rows as usize, cols as usize), header, begin });
                }
                _ => {}
            }
        }
        let is_own = zip.comment() == comment(zip.len()).as_bytes();
        Ok((Matrices { file: open()?, members, is_own }, attributes))
    }

    /// Whether nothing was added to the archive or removed from it since fednmf wrote it.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name == name)
    }

    /// Rows and columns of a matrix, and its element type.
    pub fn matrix(&self, name: &str) -> Option<((usize, usize), &'static str)> {
        self.find(name).map(|m| (m.shape, m.header.raw.number.name()))
    }

    /// The entries of a matrix of 64-bit words, which floating-point numbers would round.
    ///
    /// # Errors
    /// If they cannot be read, or are of another type.
    pub fn words(&self, name: &str) -> Result<Vec<u64>> {
        let found = self.find(name).filter(|m| m.header.raw.number.name() == "u64" && !m.header.raw.big_endian);
        let member = found.ok_or_else(|| Error::input(format!("has no matrix {name} of 64-bit words")))?;
        let mut words = vec![0u64; member.shape.0 * member.shape.1];
        let bytes = bytemuck::cast_slice_mut(&mut words);
        let read = self.file.read_exact_at(bytes, member.begin);
        read.map_err(|e| Error::input(format!("{name} cannot be read ({e})")))?;
        Ok(words)
    }

    /// Fills `out` with rows `first_row ..`, which must exist.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read<T: Real>(&self, name: &str, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let member = self.find(name).ok_or_else(|| Error::input(format!("has no matrix {name}")))?;
        let raw = &member.header.raw;
        let (rows, cols) = member.shape;
        let size = raw.number.size();
        let mut bytes = Vec::new();
        let mut fill = |first: usize, to: &mut [T]| -> Result<()> {
            bytes.resize(to.len() * size, 0);
            let read = self.file.read_exact_at(&mut bytes, member.begin + (first * size) as u64);
            read.map_err(|e| Error::input(format!("{name} cannot be read ({e})")))?;
            raw.number.decode(&bytes, raw.big_endian, to);
            Ok(())
        };
        if raw.by_columns {
            let mut column = vec![T::zero(); out.nrows()];
            for (j, mut to) in out.columns_mut().into_iter().enumerate() {
                fill(j * rows + first_row, &mut column)?;
                to.iter_mut().zip(&column).for_each(|(to, x)| *to = *x);
            }
            return Ok(());
        }
        let step = (CHUNK / (cols * size).max(1)).max(1);
        let mut lines = Vec::new();
        for (i, mut to) in out.axis_chunks_iter_mut(Axis(0), step).enumerate() {
            lines.resize(to.len(), T::zero());
            fill((first_row + i * step) * cols, &mut lines)?;
            to.iter_mut().zip(&lines).for_each(|(to, x)| *to = *x);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    /// Writes an archive like `numpy.savez(path, V=H.T, k=7)`, or `savez_compressed`.
    fn by_numpy(path: &Path, method: CompressionMethod) {
        let mut zip = ZipWriter::new(File::create(path).unwrap());
        zip.start_file("V.npy", options().compression_method(method)).unwrap();
        let mut header = Vec::new();
        npy::write_header(&mut header, "<f4", "3, 2").unwrap();
        // The longer word also replaces a blank of the padding.
        let text = String::from_utf8_lossy(&header[10..]).replace("False", "True ");
        zip.write_all(&header[..10]).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
        // Column-major.
        [1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0].iter().for_each(|x| zip.write_all(&x.to_le_bytes()).unwrap());
        zip.start_file("k.npy", options()).unwrap();
        npy::write_header(&mut zip, "|u1", "").unwrap();
        zip.write_all(&[7]).unwrap();
        zip.finish().unwrap();
    }

    #[test]
    fn arrays_of_numpys_own_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        by_numpy(&path, CompressionMethod::Stored);
        let (matrices, attributes) = Matrices::open(&path).unwrap();
        assert_eq!(attributes["k"], 7);
        assert_eq!(matrices.matrix("V"), Some(((3, 2), "f32")));
        let mut out = Array2::<f32>::zeros((2, 2));
        matrices.read("V", 1, out.view_mut()).unwrap();
        assert_eq!(out, ndarray::array![[2.0, 20.0], [3.0, 30.0]]);
        by_numpy(&path, CompressionMethod::Deflated);
        assert!(Matrices::open(&path).unwrap_err().contains("savez"));
    }

    #[test]
    fn what_is_written_comes_back_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let values = Array2::from_shape_fn((1000, 300), |(i, j)| (i * 300 + j) as f64);
        let text = "grün".repeat(100_000);
        let map = serde_json::json!({"algo": text, "empty": "", "x": 0.25, "list": [1, 2], "none": null});
        let Value::Object(map) = map else { unreachable!() };
        let mut archive = Archive::create(&path, map.clone(), Access::Default).unwrap();
        let matrix = Matrix { name: "U".into(), rows: 1000, cols: 300, segments: Vec::new() };
        archive.begin::<f64>(&matrix).unwrap();
        archive.push(values.as_slice().unwrap()).unwrap();
        archive.finish().unwrap().publish().unwrap();
        let (matrices, attributes) = Matrices::open(&path).unwrap();
        assert_eq!(attributes.len(), 4);
        assert!(attributes.iter().all(|(name, value)| map[name] == *value));
        let mut out = Array2::<f64>::zeros((900, 300));
        matrices.read("U", 50, out.view_mut()).unwrap();
        assert_eq!(out, values.slice(ndarray::s![50..950, ..]));
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 100, 2_000_000, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(Matrices::open(&path).is_err(), "{length}");
        }
    }
}
