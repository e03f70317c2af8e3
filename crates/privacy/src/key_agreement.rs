//! Shared keys of two parties: X25519 (RFC 7748), then SHA-256 over a label, the shared secret and both public keys.

use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

use fednmf_base::error::{Error, Result};

/// Bytes of a key, public or secret.
pub const KEY: usize = 32;

/// The key for the purpose `label` that the owner of `secret` shares with the owner of the public key `other`.
/// `public` holds both public keys, in the same order on both sides.
///
/// # Errors
/// If `other` is a point of small order, which no honest party sends.
pub fn shared_key(
    label: &[u8],
    secret: &StaticSecret,
    other: &[u8; KEY],
    public: [&[u8; KEY]; 2],
) -> Result<[u8; KEY]> {
    let shared = secret.diffie_hellman(&PublicKey::from(*other));
    if !shared.was_contributory() {
        return Err(Error::failed("its public key is invalid (a point of small order); do not trust this party"));
    }
    let mut hash = Sha256::new();
    for part in [label, shared.as_bytes(), public[0], public[1]] {
        hash.update(part);
    }
    Ok(hash.finalize().into())
}
