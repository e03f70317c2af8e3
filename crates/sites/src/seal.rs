//! Messages between two sites are sealed for the receiver: the hub that relays them can neither read nor change them.
//!
//! Each process generates an X25519 key for the run and signs it with the key of its certificate; every other site verifies
//! certificate and signature. Two sites derive a key for each direction from the shared secret and from a digest of all
//! sites' keys, so a hub that shows different sites to different receivers only breaks the run. Pieces are numbered, and the
//! number is the nonce (ChaCha20-Poly1305): a piece that is repeated, left out or moved is detected.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use rand::Rng as _;
use rustls::pki_types::UnixTime;
use sha2::{Digest as _, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::key_agreement::{KEY, shared_key};
use fednmf_privacy::transcript::{hex, unhex};

use super::frame::SiteKey;
use super::tls::Identity;

/// Bytes that sealing adds.
const TAG: usize = 16;

/// The secret of this process and its identity.
pub struct SiteSecret {
    secret: StaticSecret,
    pub instance: String,
}

impl SiteSecret {
    /// Generates a fresh key pair and instance id for this site.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new() -> Result<SiteSecret> {
        let mut rng = secret_rng(None, 0)?;
        let (mut secret, mut instance) = ([0; KEY], [0; 16]);
        rng.fill_bytes(&mut secret);
        rng.fill_bytes(&mut instance);
        Ok(SiteSecret { secret: StaticSecret::from(secret), instance: hex(&instance) })
    }

    /// The public key, signed for this run and site.
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    pub fn signed(&self, identity: &Identity, run: &str, site: &str) -> Result<SiteKey> {
        let key = hex(PublicKey::from(&self.secret).as_bytes());
        let (scheme, signature) = identity.sign(&statement(run, site, &self.instance, &key))?;
        let chain = identity.chain().iter().map(|certificate| hex(certificate)).collect();
        Ok(SiteKey {
            site: site.into(),
            instance: self.instance.clone(),
            chain,
            key,
            scheme,
            signature: hex(&signature),
        })
    }
}

/// The signed statement.
fn statement(run: &str, site: &str, instance: &str, key: &str) -> Vec<u8> {
    format!("fednmf site key v1\n{run}\n{site}\n{instance}\n{key}\n").into_bytes()
}

/// The ciphers between this site and another one.
pub struct Channel {
    send: ChaCha20Poly1305,
    receive: ChaCha20Poly1305,
}

/// The channels to all sites, after verification of each site's certificate and signature; `None` for this site itself.
///
/// # Errors
/// If a site's key is not trusted; the error names the site.
pub fn channels(
    own: &SiteSecret,
    identity: &Identity,
    run: &str,
    sites: &[String],
    me: usize,
    keys: &[SiteKey],
) -> Result<Vec<Option<Channel>>> {
    let wrong = |site: &str, why: String| Error::failed(format!("the key of site {site} is not to be trusted: {why}"));
    if keys.len() != sites.len() {
        return Err(Error::failed("the hub names other sites than before; do not trust it"));
    }
    let mut public = Vec::with_capacity(keys.len());
    let mut all = Sha256::new();
    for (site, key) in sites.iter().zip(keys) {
        let bytes = |text: &str| unhex(text).ok_or_else(|| wrong(site, "it is damaged".into()));
        if key.site != *site {
            return Err(wrong(site, format!("it is that of site {}", key.site)));
        }
        let chain = key.chain.iter().map(|certificate| bytes(certificate)).collect::<Result<Vec<_>>>()?;
        let said = statement(run, site, &key.instance, &key.key);
        let signature = bytes(&key.signature)?;
        let verified = identity.authority().verify_site(site, &chain, UnixTime::now(), &said, (key.scheme, &signature));
        verified.map_err(|e| wrong(site, e.to_string()))?;
        let known = bytes(&key.key)?;
        public.push(<[u8; KEY]>::try_from(known).map_err(|_| wrong(site, "it is damaged".into()))?);
        all.update(Sha256::digest(&said));
    }
    let mine = PublicKey::from(&own.secret);
    if public.get(me) != Some(mine.as_bytes()) {
        return Err(wrong(&sites[me], "the hub has replaced it".into()));
    }
    let roster: [u8; 32] = all.finalize().into();
    let channel = |other: usize| {
        let direction = |from: usize, to: usize| {
            let label =
                [&b"fednmf sites v1 "[..], &roster, &(from as u64).to_le_bytes(), &(to as u64).to_le_bytes()].concat();
            let key = shared_key(&label, &own.secret, &public[other], [&public[from], &public[to]]);
            key.map(|key| ChaCha20Poly1305::new(&key.into())).map_err(|e| e.at(format!("site {}", sites[other])))
        };
        Ok(Channel { send: direction(me, other)?, receive: direction(other, me)? })
    };
    (0..sites.len()).map(|other| if other == me { Ok(None) } else { channel(other).map(Some) }).collect()
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::from(bytes)
}

impl Channel {
    /// Seals the piece with this number, which must be used only once.
    pub fn seal(&self, number: u64, mut text: Vec<u8>) -> Vec<u8> {
        let tag = self.send.encrypt_inout_detached(&nonce(number), &[], text.as_mut_slice().into());
        text.extend_from_slice(&tag.expect("pieces are far below the limit of the cipher"));
        text
    }

    /// Opens a sealed piece; `None` if it was changed, or sealed under another number or with another key.
    pub fn open(&self, number: u64, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let length = sealed.len().checked_sub(TAG)?;
        let tag: [u8; TAG] = sealed[length..].try_into().ok()?;
        sealed.truncate(length);
        let opened =
            self.receive.decrypt_inout_detached(&nonce(number), &[], sealed.as_mut_slice().into(), &Tag::from(tag));
        opened.ok().map(|()| sealed)
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Two sites of a demonstration CA, in a directory that remains.
    pub fn identities() -> (tempfile::TempDir, [Identity; 2]) {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys");
        let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
        let names = ["a", "b"].map(String::from);
        crate::certificates::make(&keys, &names, &["localhost".into()], now - hour, now + hour).unwrap();
        let read = |name: &String| {
            let file = |end: &str| keys.join(format!("{name}.{end}"));
            Identity::read(&file("pem"), &file("key"), &keys.join("ca.pem"), None).unwrap()
        };
        let identities = [read(&names[0]), read(&names[1])];
        (dir, identities)
    }

    #[test]
    fn the_hub_can_neither_change_nor_repeat_nor_reorder_what_it_relays() {
        let (_dir, identities) = identities();
        let sites = ["a", "b"].map(String::from);
        let own = [SiteSecret::new().unwrap(), SiteSecret::new().unwrap()];
        let keys: Vec<SiteKey> = (0..2).map(|i| own[i].signed(&identities[i], "run", &sites[i]).unwrap()).collect();
        let channels_of = |i: usize| channels(&own[i], &identities[i], "run", &sites, i, &keys).unwrap();
        let (a, b) = (channels_of(0).remove(1).unwrap(), channels_of(1).remove(0).unwrap());
        let sealed = a.seal(0, b"a private number".to_vec());
        assert!(!sealed.windows(7).any(|w| w == b"private"));
        assert_eq!(b.open(0, sealed.clone()).unwrap(), b"a private number");
        assert!(b.open(1, sealed.clone()).is_none(), "under another number");
        assert!(a.open(0, sealed.clone()).is_none(), "sent back");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(b.open(0, changed).is_none(), "changed at {at}");
        }
    }

    #[test]
    fn keys_that_are_not_a_sites_own_are_refused() {
        let (_dir, identities) = identities();
        let sites = ["a", "b"].map(String::from);
        let own = [SiteSecret::new().unwrap(), SiteSecret::new().unwrap()];
        let sign = |by: usize, run: &str, site: &str| own[by].signed(&identities[by], run, site).unwrap();
        let refused =
            |keys: &[SiteKey]| channels(&own[0], &identities[0], "run", &sites, 0, keys).err().unwrap().message;
        let a = sign(0, "run", "a");
        // A site that claims to be another one, a key of another run, a key that the hub has generated.
        assert!(
            refused(&[a.clone(), SiteKey { site: "b".into(), ..sign(0, "run", "b") }]).contains("for another site")
        );
        assert!(refused(&[a.clone(), sign(1, "earlier run", "b")]).contains("signature"));
        let theirs = SiteKey { key: hex(&[9; KEY]), ..sign(1, "run", "b") };
        assert!(refused(&[a.clone(), theirs]).contains("site b"));
        assert!(refused(&[sign(0, "run", "a")]).contains("other sites"));
        let again = SiteSecret::new().unwrap().signed(&identities[0], "run", "a").unwrap();
        assert!(refused(&[again, sign(1, "run", "b")]).contains("replaced"));
    }
}
