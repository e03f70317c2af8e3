//! Dense binary arrays, as in .npy and idx files: number types, decoding, and the reader.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::{EntryPolicy, position, rounded};
use fednmf_data::values::Values;
use fednmf_linalg::{ElementType, Real};

use crate::formats::compressed::NO_INDEX;
use crate::formats::io::{InputFile, open, read_full, skip};
use crate::formats::reader::DenseReader;

/// Decodes each number of a type in `bytes`.
macro_rules! decoded {
    ($bytes:ident, $big_endian:ident, $out:ident, $type:ty, $x:ident => $decoded:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let (chunks, _) = $bytes.as_chunks::<SIZE>();
        if $big_endian {
            for (out, chunk) in $out.iter_mut().zip(chunks) {
                let $x = <$type>::from_be_bytes(*chunk);
                *out = $decoded;
            }
        } else {
            for (out, chunk) in $out.iter_mut().zip(chunks) {
                let $x = <$type>::from_le_bytes(*chunk);
                *out = $decoded;
            }
        }
    }};
}

/// The type of the numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NumberType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl NumberType {
    /// Bytes per number.
    pub fn size(self) -> usize {
        match self {
            NumberType::Bool | NumberType::I8 | NumberType::U8 => 1,
            NumberType::I16 | NumberType::U16 | NumberType::F16 => 2,
            NumberType::I32 | NumberType::U32 | NumberType::F32 => 4,
            NumberType::I64 | NumberType::U64 | NumberType::F64 => 8,
        }
    }

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            NumberType::Bool => "bool",
            NumberType::I8 => "i8",
            NumberType::I16 => "i16",
            NumberType::I32 => "i32",
            NumberType::I64 => "i64",
            NumberType::U8 => "u8",
            NumberType::U16 => "u16",
            NumberType::U32 => "u32",
            NumberType::U64 => "u64",
            NumberType::F16 => "f16",
            NumberType::F32 => "f32",
            NumberType::F64 => "f64",
        }
    }

    /// The kind of numbers of this type.
    pub fn values(self) -> Values {
        match self {
            NumberType::Bool
            | NumberType::I8
            | NumberType::I16
            | NumberType::I32
            | NumberType::I64
            | NumberType::U8
            | NumberType::U16
            | NumberType::U32
            | NumberType::U64 => Values::Whole,
            NumberType::F16 | NumberType::F32 => Values::Single,
            NumberType::F64 => Values::Double,
        }
    }

    /// Decodes bytes to entries; `bytes` holds exactly as many numbers as `out`.
    pub fn decode<T: Real>(self, bytes: &[u8], big_endian: bool, out: &mut [T]) {
        assert_eq!(bytes.len(), out.len() * self.size());
        macro_rules! numbers {
            ($type:ty, $x:ident => $wide:expr) => {
                decoded!(bytes, big_endian, out, $type, $x => rounded($wide))
            };
        }
        match self {
            NumberType::Bool => numbers!(u8, x => f64::from(u8::from(x != 0))),
            NumberType::I8 => numbers!(i8, x => f64::from(x)),
            NumberType::I16 => numbers!(i16, x => f64::from(x)),
            NumberType::I32 => numbers!(i32, x => f64::from(x)),
            NumberType::I64 => numbers!(i64, x => x as f64),
            NumberType::U8 => numbers!(u8, x => f64::from(x)),
            NumberType::U16 => numbers!(u16, x => f64::from(x)),
            NumberType::U32 => numbers!(u32, x => f64::from(x)),
            NumberType::U64 => numbers!(u64, x => x as f64),
            NumberType::F16 => numbers!(u16, x => half(x)),
            NumberType::F32 => numbers!(f32, x => f64::from(x)),
            NumberType::F64 => numbers!(f64, x => x),
        }
    }

    /// As [`NumberType::decode`], to indices, or [`NO_INDEX`] for a number that is none.
    pub fn decode_indices(self, bytes: &[u8], big_endian: bool, out: &mut [u32]) {
        assert_eq!(bytes.len(), out.len() * self.size());
        macro_rules! whole {
            ($type:ty) => {
                decoded!(bytes, big_endian, out, $type, x => u32::try_from(x).unwrap_or(NO_INDEX))
            };
        }
        match self {
            NumberType::Bool => decoded!(bytes, big_endian, out, u8, x => u32::from(x != 0)),
            NumberType::I8 => whole!(i8),
            NumberType::I16 => whole!(i16),
            NumberType::I32 => whole!(i32),
            NumberType::I64 => whole!(i64),
            NumberType::U8 => whole!(u8),
            NumberType::U16 => whole!(u16),
            NumberType::U32 => whole!(u32),
            NumberType::U64 => whole!(u64),
            NumberType::F16 => decoded!(bytes, big_endian, out, u16, x => index(half(x))),
            NumberType::F32 => decoded!(bytes, big_endian, out, f32, x => index(f64::from(x))),
            NumberType::F64 => decoded!(bytes, big_endian, out, f64, x => index(x)),
        }
    }
}

/// The number as an index, or [`NO_INDEX`].
pub fn index(x: f64) -> u32 {
    if x >= 0.0 && x < f64::from(NO_INDEX) && x.fract() == 0.0 { x as u32 } else { NO_INDEX }
}

/// Decodes an IEEE half-precision number.
pub fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => libm::ldexp(fraction, -24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => libm::ldexp(1024.0 + fraction, exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// A dense binary array, line after line: rows, or columns if `by_columns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RawArray {
    pub number: NumberType,
    pub big_endian: bool,
    pub by_columns: bool,
    /// Position of the first number in the (uncompressed) file.
    pub start: u64,
}

impl RawArray {
    /// Whether its bytes are numbers of type T as in memory.
    fn holds<T: Real>(&self) -> bool {
        let number = if T::TYPE == ElementType::F32 { NumberType::F32 } else { NumberType::F64 };
        self.number == number && self.big_endian == cfg!(target_endian = "big")
    }
}

/// Bytes decoded at once.
const STEP: usize = 1 << 20;

/// Reader of a raw array.
pub struct RawReader<'a> {
    file: &'a InputFile,
    array: &'a RawArray,
    /// Entries per line, and in all.
    width: usize,
    count: usize,
    policy: EntryPolicy,
    from: Access,
    bytes: Vec<u8>,
}

enum Access {
    Random(File),
    /// A compressed file, which can only be read sequentially, and the index of the next number.
    Sequential(Box<dyn Read>, usize),
}

impl<'a> RawReader<'a> {
    /// Opens the file of `lines` lines with `width` entries each.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(
        file: &'a InputFile,
        array: &'a RawArray,
        (lines, width): (usize, usize),
        policy: EntryPolicy,
    ) -> Result<Self> {
        let from = if file.gz {
            let mut from = file.stream()?;
            skip(&mut from, array.start).map_err(|e| file.io_error(&e))?;
            Access::Sequential(from, 0)
        } else {
            Access::Random(open(&file.path)?)
        };
        Ok(RawReader { file, array, width, count: lines * width, policy, from, bytes: Vec::new() })
    }

    /// Reads `out.len()` numbers, beginning with number `first`.
    fn numbers<T: Real>(&mut self, first: usize, out: &mut [T]) -> std::io::Result<()> {
        let size = self.array.number.size();
        if let (Access::Random(file), true) = (&self.from, self.array.holds::<T>()) {
            return file.read_exact_at(bytemuck::cast_slice_mut(out), self.array.start + (first * size) as u64);
        }
        for (step, out) in out.chunks_mut(STEP / size).enumerate() {
            let first = first + step * (STEP / size);
            self.bytes.resize(out.len() * size, 0);
            match &mut self.from {
                Access::Random(file) => {
                    file.read_exact_at(&mut self.bytes, self.array.start + (first * size) as u64)?;
                }
                Access::Sequential(from, next) => {
                    debug_assert_eq!(*next, first);
                    *next = first + out.len();
                    if read_full(from, &mut self.bytes)? < self.bytes.len() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    // Only at the end of the stream its checksum is compared.
                    if *next == self.count && read_full(from, &mut [0])? > 0 {
                        return Err(std::io::Error::new(ErrorKind::InvalidData, "more bytes than its header promises"));
                    }
                }
            }
            self.array.number.decode(&self.bytes, self.array.big_endian, out);
        }
        Ok(())
    }
}

impl<T: Real> DenseReader<T> for RawReader<'_> {
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        // Several lines are only requested completely, so this is one run of numbers.
        self.numbers(lines.start * self.width + within.start, out).map_err(|e| self.file.io_error(&e))
    }

    fn policy(&self) -> EntryPolicy {
        self.policy
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        let place = if self.array.by_columns { position(at, line) } else { position(line, at) };
        self.file.error(format!("the entry in {place} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x7bff, 65504.0),
            (0x7c00, f64::INFINITY),
        ] {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn indices_are_whole_and_not_negative() {
        let mut out = [0; 4];
        NumberType::I32.decode_indices(&[3, -1, i32::MAX, 0].map(i32::to_le_bytes).concat(), false, &mut out);
        assert_eq!(out, [3, NO_INDEX, i32::MAX as u32, 0]);
        NumberType::I64.decode_indices(&[3, -1, 1 << 32, 0].map(i64::to_be_bytes).concat(), true, &mut out);
        assert_eq!(out, [3, NO_INDEX, NO_INDEX, 0]);
        NumberType::F64.decode_indices(&[3.0, -1.0, 0.5, f64::NAN].map(f64::to_le_bytes).concat(), false, &mut out);
        assert_eq!(out, [3, NO_INDEX, NO_INDEX, NO_INDEX]);
    }

    #[test]
    fn both_ends() {
        let mut out = [0.0f64; 2];
        NumberType::I16.decode(&[1, 0, 255, 255], false, &mut out);
        assert_eq!(out, [1.0, -1.0]);
        NumberType::I16.decode(&[1, 0, 255, 255], true, &mut out);
        assert_eq!(out, [256.0, -1.0]);
        let mut one = [0.0f32];
        NumberType::U64.decode(&(1u64 << 53).to_be_bytes(), true, &mut one);
        assert_eq!(one, [9007199254740992.0]);
        NumberType::F64.decode(&1.5f64.to_le_bytes(), false, &mut one);
        assert_eq!(one, [1.5]);
    }
}
