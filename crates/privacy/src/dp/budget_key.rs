//! The key of a `--budget` file, and the code that it makes of the contents: HMAC-SHA256 (RFC 2104). Who has no access to the
//! key cannot change the file unnoticed.

use sha2::{Digest as _, Sha256};

use crate::transcript::{hex, unhex};

/// The block size of SHA-256 in bytes.
const BLOCK: usize = 64;

/// The secret key of a budget file.
pub struct BudgetKey([u8; 32]);

impl BudgetKey {
    pub fn new(secret: [u8; 32]) -> Self {
        BudgetKey(secret)
    }

    /// The key of a key file; `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text.trim()).and_then(|bytes| bytes.try_into().ok()).map(BudgetKey)
    }

    /// The contents of the key file.
    pub fn text(&self) -> String {
        hex(&self.0) + "\n"
    }

    /// The code of a text, in hexadecimal digits.
    pub(super) fn code(&self, text: &[u8]) -> String {
        hex(&hmac(&self.0, text))
    }
}

/// HMAC-SHA256 under a key of at most [`BLOCK`] bytes.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let padded = |with: u8| {
        let mut block = [with; BLOCK];
        block.iter_mut().zip(key).for_each(|(x, key)| *x ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1 and 2.
    #[test]
    fn codes_are_those_of_the_standard() {
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hex(&hmac(&[0x0b; 20], b"Hi There")), expected);
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&hmac(b"Jefe", b"what do ya want for nothing?")), expected);
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = BudgetKey::new([7; 32]);
        assert_eq!(BudgetKey::parse(&key.text()).unwrap().code(b"x"), key.code(b"x"));
        assert!(["", "07", "no key"].iter().all(|text| BudgetKey::parse(text).is_none()));
    }
}
