//! NumPy's `.npy`: headers of arrays in either order, of any real number type.
//!
//! Headers are written here as well: the `ndarray-npy` crate writes only whole arrays in memory, whereas the arrays here are
//! written a few rows at a time and into archives.

use crate::formats::io::read_header;
use crate::formats::raw::{NumberType, RawArray};
use crate::output::own_mark::MARK;

/// The header of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    pub raw: RawArray,
    pub shape: Vec<u64>,
}

pub const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum length of a header, in bytes; NumPy's own limit is 10,000 characters.
const LONGEST: usize = 1 << 16;

/// The dictionary in the header of a file or archive member, and the position of the first number.
fn dictionary(from: &mut dyn std::io::Read) -> Result<(String, u64), String> {
    let lead = read_header(from, 8)
        .ok()
        .filter(|b| b.starts_with(MAGIC))
        .ok_or("is not a NumPy file: it does not begin with \\x93NUMPY")?;
    let (length, lead_length) = match lead[6] {
        1 => {
            let b = read_header(from, 2)?;
            (usize::from(u16::from_le_bytes([b[0], b[1]])), 10)
        }
        2 | 3 => {
            let b = read_header(from, 4)?;
            (u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize, 12)
        }
        other => return Err(format!("has version {other} of the NumPy format; 1 to 3 can be read")),
    };
    if length > LONGEST {
        return Err(format!("has a header of {length} bytes; {LONGEST} is the limit"));
    }
    let text = String::from_utf8(read_header(from, length)?).map_err(|_| "has a header that is not text")?;
    Ok((text, (lead_length + length) as u64))
}

/// Reads the header of a file or archive member; `start` counts from its beginning.
///
/// # Errors
/// If it is truncated, not a header, or describes an array that cannot be read.
pub fn header(from: &mut dyn std::io::Read) -> Result<Header, String> {
    let (text, start) = dictionary(from)?;
    let (number, big_endian) = number(value(&text, "descr")?)?;
    let by_columns = match value(&text, "fortran_order")? {
        "True" => true,
        "False" => false,
        other => return Err(format!("has fortran_order {other}")),
    };
    let shape = value(&text, "shape")?;
    let shape = shape
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(|w| w.trim_end_matches('L').parse::<u64>().map_err(|_| format!("has the shape ({w})")))
        .collect::<Result<Vec<u64>, String>>()?;
    Ok(Header { raw: RawArray { number, big_endian, by_columns, start }, shape })
}

/// Position and number of the characters (four bytes each) of a zero-dimensional, little-endian Unicode array; `None` for
/// any other array.
pub fn text(mut front: &[u8]) -> Option<(usize, usize)> {
    let (dictionary, start) = dictionary(&mut front).ok()?;
    let alone = value(&dictionary, "shape").ok()?.trim_matches(['(', ')']).trim().is_empty();
    let letters = value(&dictionary, "descr").ok()?.strip_prefix("<U")?.parse().ok()?;
    alone.then_some((start as usize, letters))
}

/// The value of a key in the header's dictionary: a string without its quotes, a tuple with its brackets, or a word.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let find = || -> Option<&'a str> {
        let at = ["'", "\""].iter().find_map(|q| text.find(&format!("{q}{key}{q}")))?;
        let rest = text[at + key.len() + 2..].trim_start().strip_prefix(':')?.trim_start();
        let first = rest.chars().next()?;
        match first {
            '\'' | '"' => rest[1..].split(first).next(),
            '(' => rest.find(')').map(|end| &rest[..=end]),
            '[' => rest.find(']').map(|end| &rest[..=end]),
            _ => rest.split([',', '}']).next().map(str::trim),
        }
    };
    find().ok_or_else(|| format!("has a header without '{key}'"))
}

fn number(descr: &str) -> Result<(NumberType, bool), String> {
    let refuse = || format!("holds numbers of type '{descr}'; real numbers, integers and booleans can be read");
    let mut chars = descr.chars();
    let big_endian = match chars.next() {
        Some('<' | '|' | '=') => false,
        Some('>') => true,
        _ => return Err(refuse()),
    };
    let number = match chars.as_str() {
        "b1" => NumberType::Bool,
        "i1" => NumberType::I8,
        "i2" => NumberType::I16,
        "i4" => NumberType::I32,
        "i8" => NumberType::I64,
        "u1" => NumberType::U8,
        "u2" => NumberType::U16,
        "u4" => NumberType::U32,
        "u8" => NumberType::U64,
        "f2" => NumberType::F16,
        "f4" => NumberType::F32,
        "f8" => NumberType::F64,
        _ => return Err(refuse()),
    };
    Ok((number, big_endian))
}

/// Writes the header of a row-major array; `descr` is the NumPy type, `shape` the dimensions separated by commas.
///
/// # Errors
/// If `to` cannot be written.
pub fn write_header(to: &mut dyn std::io::Write, descr: &str, shape: &str) -> std::io::Result<()> {
    write_text(to, format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}"))
}

/// Writes the header as [`write_header`], with the mark of a file of fednmf, as a comment in Python.
///
/// # Errors
/// If `to` cannot be written.
pub fn write_marked_header(to: &mut dyn std::io::Write, descr: &str, shape: &str) -> std::io::Result<()> {
    write_text(to, format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }} # {MARK}"))
}

fn write_text(to: &mut dyn std::io::Write, mut text: String) -> std::io::Result<()> {
    // Padding aligns the numbers to 64 bytes.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', length - text.len() - 1));
    text.push('\n');
    to.write_all(MAGIC)?;
    to.write_all(&[1, 0])?;
    to.write_all(&(length as u16).to_le_bytes())?;
    to.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(dictionary: &str) -> Result<Header, String> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        bytes.extend(dictionary.as_bytes());
        header(&mut &bytes[..])
    }

    #[test]
    fn headers() {
        let good = with("{'descr': '>f4', 'fortran_order': True, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!(good.shape, [3, 4]);
        assert_eq!(good.raw, RawArray { number: NumberType::F32, big_endian: true, by_columns: true, start: 72 });
        assert_eq!(with("{'shape': (7,), 'descr': '|u1', 'fortran_order': False}").unwrap().shape, [7]);
        let mut written = Vec::new();
        write_header(&mut written, "<f8", "5, 6").unwrap();
        assert_eq!(written.len() % 64, 0);
        let read = header(&mut &written[..]).unwrap();
        assert_eq!((read.raw.start as usize, read.shape), (written.len(), vec![5, 6]));
        for (text, names) in [
            ("{'descr': '<c16', 'fortran_order': False, 'shape': (1, 1)}", "<c16"),
            ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1, 1)}", "type"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}", "|O"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (1, -1)}", "shape"),
            ("{'descr': '<f8', 'shape': (1, 1)}", "fortran_order"),
            ("", "descr"),
        ] {
            let message = with(text).unwrap_err();
            assert!(message.contains(names), "{text}: {message}");
        }
        assert!(header(&mut &b"\x93NUMPY\x01\x00\xff\xff"[..]).unwrap_err().contains("truncated"));
        assert!(header(&mut &b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..]).unwrap_err().contains("limit"));
        assert!(header(&mut &b"PK"[..]).unwrap_err().contains("not a NumPy"));
    }
}
