//! idx, the format of MNIST: big-endian numbers, the first dimension counts the rows, the others are laid out in one.

use crate::data::formats::raw::{Number, Raw};

/// Whether these are the first bytes of an idx file.
pub fn known(lead: &[u8]) -> bool {
    matches!(lead, [0, 0, kind, 1..=8, ..] if number(*kind).is_some())
}

fn number(kind: u8) -> Option<Number> {
    Some(match kind {
        0x08 => Number::U8,
        0x09 => Number::I8,
        0x0b => Number::I16,
        0x0c => Number::I32,
        0x0d => Number::F32,
        0x0e => Number::F64,
        _ => return None,
    })
}

/// Reads the header: how to read the numbers, and the dimensions.
pub fn header(from: &mut dyn std::io::Read) -> Result<(Raw, Vec<u64>), String> {
    let mut read = |length: usize| {
        let mut bytes = vec![0; length];
        match crate::data::formats::text::read_full(from, &mut bytes) {
            Ok(got) if got == length => Ok(bytes),
            Ok(_) => Err("ends inside its header (truncated)".to_string()),
            Err(e) => Err(e.to_string()),
        }
    };
    let lead = read(4)?;
    let number = number(lead[2]).filter(|_| known(&lead)).ok_or("is not an idx file")?;
    let shape: Vec<u64> =
        read(4 * usize::from(lead[3]))?.as_chunks::<4>().0.iter().map(|&b| u64::from(u32::from_be_bytes(b))).collect();
    let start = 4 + 4 * shape.len() as u64;
    Ok((Raw { number, big_endian: true, by_columns: false, start }, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let bytes = [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 1, 4, 9];
        let (raw, shape) = header(&mut &bytes[..]).unwrap();
        assert_eq!((raw.number, raw.start, shape), (Number::U8, 16, vec![2, 3, 260]));
        assert!(header(&mut &bytes[..9]).unwrap_err().contains("truncated"));
        assert!(header(&mut &[0, 0, 7, 1, 0, 0, 0, 0][..]).is_err());
        assert!(!known(&[0, 0, 8, 0]) && !known(b"abc"));
    }
}
