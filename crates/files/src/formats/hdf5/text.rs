//! Text in HDF5 files. The bindings take it as UTF-8 without a check, and it is often Latin-1.

use hdf5::types::{FixedAscii, FixedUnicode, VarLenAscii, VarLenUnicode};
use hdf5::{Container, H5Type, Location};

use crate::formats::fields::decoded;

/// A text type of HDF5.
trait Text: H5Type {
    fn bytes(&self) -> &[u8];
}

impl Text for VarLenUnicode {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Text for VarLenAscii {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<const N: usize> Text for FixedAscii<N> {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<const N: usize> Text for FixedUnicode<N> {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The name in a record of a data frame, as AnnData wrote it before version 0.7.
#[derive(H5Type)]
#[repr(C)]
struct Record<T: H5Type> {
    index: T,
}

impl<T: Text> Text for Record<T> {
    fn bytes(&self) -> &[u8] {
        self.index.bytes()
    }
}

/// All text of a dataset or an attribute, or the names in a table of records; `None` for anything else.
pub fn texts(of: &Container) -> Option<Vec<String>> {
    // HDF5 cuts strings of fixed length at that of the type they are read as.
    let fixed = match of.dtype().ok()?.size() {
        0..=64 => fixed::<64>,
        65..=256 => fixed::<256>,
        257..=1024 => fixed::<1024>,
        1025..=8192 => fixed::<8192>,
        8193..=65_536 => fixed::<65_536>,
        _ => |_: &Container| None,
    };
    as_either::<VarLenUnicode>(of).or_else(|| as_either::<VarLenAscii>(of)).or_else(|| fixed(of))
}

fn fixed<const N: usize>(of: &Container) -> Option<Vec<String>> {
    as_either::<FixedAscii<N>>(of).or_else(|| as_either::<FixedUnicode<N>>(of))
}

fn as_either<T: Text>(of: &Container) -> Option<Vec<String>> {
    read::<T>(of).or_else(|| read::<Record<T>>(of))
}

fn read<T: Text>(of: &Container) -> Option<Vec<String>> {
    // Where HDF5 converts text, it ends at a NUL.
    let text = |text: &T| decoded(text.bytes().split(|&byte| byte == 0).next().unwrap_or_default());
    Some(of.read_raw::<T>().ok()?.iter().map(text).collect())
}

/// The value of a text attribute.
pub fn word(of: &Location, name: &str) -> Option<String> {
    texts(&*of.attr(name).ok()?)?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    /// What is read of text in a file, if it has the byte of Latin-1 for é in place of each ~ of a ~~.
    fn in_latin_1<T: H5Type>(text: &[T]) -> Option<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5");
        hdf5::File::create(&path).unwrap().new_dataset_builder().with_data(text).create("x").unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(2).position(|two| two == b"~~") {
            bytes[at..at + 2].fill(0xe9);
        }
        std::fs::write(&path, bytes).unwrap();
        texts(&hdf5::File::open(&path).unwrap().dataset("x").unwrap())
    }

    #[test]
    fn text_that_is_not_utf_8_is_latin_1_in_all_types() {
        let words = ["g~~ne", "plain", "z~~"];
        let expected = Some(["gééne", "plain", "zéé"].map(String::from).to_vec());
        assert_eq!(in_latin_1(&words.map(|word| VarLenUnicode::from_str(word).unwrap())), expected);
        assert_eq!(in_latin_1(&words.map(|word| VarLenAscii::from_ascii(word).unwrap())), expected);
        assert_eq!(in_latin_1(&words.map(|word| FixedAscii::<8>::from_ascii(word).unwrap())), expected);
        assert_eq!(in_latin_1(&words.map(|word| FixedUnicode::<8>::from_str(word).unwrap())), expected);
    }

    #[test]
    fn long_text_of_fixed_length_is_read_whole() {
        fn of<const N: usize>() -> bool {
            let words = ["0", "1"].map(|end| "x".repeat(N - 1) + end);
            in_latin_1(&words.clone().map(|word| FixedAscii::<N>::from_ascii(&word).unwrap())) == Some(words.to_vec())
        }
        assert_eq!([of::<64>(), of::<65>(), of::<261>(), of::<1100>(), of::<9000>()], [true; 5]);
    }

    /// Whether HDF5 converts the length or not.
    #[test]
    fn text_ends_at_a_nul() {
        let text = ["a\0b", "c"].map(|text| FixedAscii::<4>::from_ascii(text).unwrap());
        assert_eq!(in_latin_1(&text).unwrap(), ["a", "c"]);
        let text = ["a\0b", "c"].map(|text| FixedAscii::<64>::from_ascii(text).unwrap());
        assert_eq!(in_latin_1(&text).unwrap(), ["a", "c"]);
    }
}
