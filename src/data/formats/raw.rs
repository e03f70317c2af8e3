//! Numbers in binary: their types, and how bytes become entries.

use serde::{Deserialize, Serialize};

use crate::linalg::Real;

/// A type of number in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
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

impl Number {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Number::Bool | Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
        }
    }

    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Number::Bool => "bool",
            Number::I8 => "i8",
            Number::I16 => "i16",
            Number::I32 => "i32",
            Number::I64 => "i64",
            Number::U8 => "u8",
            Number::U16 => "u16",
            Number::U32 => "u32",
            Number::U64 => "u64",
            Number::F16 => "f16",
            Number::F32 => "f32",
            Number::F64 => "f64",
        }
    }

    /// Bytes to entries; `bytes` holds exactly as many numbers as `out`.
    pub fn decode<T: Real>(self, bytes: &[u8], big_endian: bool, out: &mut [T]) {
        assert_eq!(bytes.len(), out.len() * self.size());
        macro_rules! numbers {
            ($type:ty, $x:ident => $wide:expr) => {{
                const SIZE: usize = size_of::<$type>();
                let (chunks, _) = bytes.as_chunks::<SIZE>();
                if big_endian {
                    for (out, chunk) in out.iter_mut().zip(chunks) {
                        let $x = <$type>::from_be_bytes(*chunk);
                        *out = T::from_f64($wide);
                    }
                } else {
                    for (out, chunk) in out.iter_mut().zip(chunks) {
                        let $x = <$type>::from_le_bytes(*chunk);
                        *out = T::from_f64($wide);
                    }
                }
            }};
        }
        match self {
            Number::Bool => numbers!(u8, x => f64::from(u8::from(x != 0))),
            Number::I8 => numbers!(i8, x => f64::from(x)),
            Number::I16 => numbers!(i16, x => f64::from(x)),
            Number::I32 => numbers!(i32, x => f64::from(x)),
            Number::I64 => numbers!(i64, x => x as f64),
            Number::U8 => numbers!(u8, x => f64::from(x)),
            Number::U16 => numbers!(u16, x => f64::from(x)),
            Number::U32 => numbers!(u32, x => f64::from(x)),
            Number::U64 => numbers!(u64, x => x as f64),
            Number::F16 => numbers!(u16, x => half(x)),
            Number::F32 => numbers!(f32, x => f64::from(x)),
            Number::F64 => numbers!(f64, x => x),
        }
    }
}

/// An IEEE half-precision number.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => libm::ldexp(fraction, -24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => libm::ldexp(1024.0 + fraction, exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// A dense matrix in binary, line after line: rows, or columns if `by_columns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    pub number: Number,
    pub big_endian: bool,
    pub by_columns: bool,
    /// Where the first number lies in the (uncompressed) file.
    pub start: u64,
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
    fn both_ends() {
        let mut out = [0.0f64; 2];
        Number::I16.decode(&[1, 0, 255, 255], false, &mut out);
        assert_eq!(out, [1.0, -1.0]);
        Number::I16.decode(&[1, 0, 255, 255], true, &mut out);
        assert_eq!(out, [256.0, -1.0]);
        let mut one = [0.0f32];
        Number::U64.decode(&(1u64 << 53).to_be_bytes(), true, &mut one);
        assert_eq!(one, [9007199254740992.0]);
        Number::F64.decode(&1.5f64.to_le_bytes(), false, &mut one);
        assert_eq!(one, [1.5]);
    }
}
