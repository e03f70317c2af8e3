//! idx, the format of MNIST: a big-endian array. The first dimension counts the rows; the others together make a row.

use crate::formats::io::read_header;
use crate::formats::raw::{NumberType, RawArray};

/// Whether `lead` begins like an idx file.
pub fn is_idx(lead: &[u8]) -> bool {
    matches!(lead, [0, 0, kind, 1..=8, ..] if number(*kind).is_some())
}

fn number(kind: u8) -> Option<NumberType> {
    Some(match kind {
        0x08 => NumberType::U8,
        0x09 => NumberType::I8,
        0x0b => NumberType::I16,
        0x0c => NumberType::I32,
        0x0d => NumberType::F32,
        0x0e => NumberType::F64,
        _ => return None,
    })
}

/// Reads the header: the storage of the numbers, and the dimensions.
///
/// # Errors
/// If it is not a header, or is truncated.
pub fn header(from: &mut dyn std::io::Read) -> Result<(RawArray, Vec<u64>), String> {
    let lead = read_header(from, 4)?;
    let number = number(lead[2]).filter(|_| is_idx(&lead)).ok_or("is not an idx file")?;
    let dimensions = read_header(from, 4 * usize::from(lead[3]))?;
    let shape: Vec<u64> = dimensions.as_chunks::<4>().0.iter().map(|&b| u64::from(u32::from_be_bytes(b))).collect();
    let start = 4 + 4 * shape.len() as u64;
    Ok((RawArray { number, big_endian: true, by_columns: false, start }, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let bytes = [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 1, 4, 9];
        let (raw, shape) = header(&mut &bytes[..]).unwrap();
        assert_eq!((raw.number, raw.start, shape), (NumberType::U8, 16, vec![2, 3, 260]));
        assert!(header(&mut &bytes[..9]).unwrap_err().contains("truncated"));
        assert!(header(&mut &[0, 0, 7, 1, 0, 0, 0, 0][..]).is_err());
        assert!(!is_idx(&[0, 0, 8, 0]) && !is_idx(b"abc"));
    }
}
