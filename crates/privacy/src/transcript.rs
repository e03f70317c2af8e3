//! A party's record of what it sent: a line for each message with a digest of its content, in a hash chain that the party
//! signs at the end (Ed25519, RFC 8032). Anybody who has the file and knows the party's public key can detect changed,
//! removed or added lines; the contents themselves are not in it. Nor do the digests tell a short content, such as a count,
//! to those who try all: they are keyed, and only who has the signing key can compute one. A site's certificate vouches for
//! its key.

use std::io::Write;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result};

/// The first line: the run, and the owner of the messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heading {
    /// Version of this format.
    pub fednmf_transcript: u32,
    pub method: String,
    /// The settings that decide the result, without names of files.
    pub settings: Map<String, Value>,
    /// A random number in hexadecimal digits, so that the digests of equal contents differ from run to run.
    pub salt: String,
    pub rank: usize,
    pub ranks: usize,
    /// Between sites: the nonce of the run in hexadecimal digits, to which all sites have contributed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// At a site: the certificate's signature of the transcript's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteSignature>,
    /// SHA-256 of the policy that the site asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Digest of the proposal that the site approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<String>,
}

/// A statement that the key of a site's certificate has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteSignature {
    pub site: String,
    /// The certificate (DER), then those between it and the CA, in hexadecimal digits.
    pub chain: Vec<String>,
    /// When it was signed, in seconds since 1970, by the site's clock.
    pub time: u64,
    /// The scheme of the signature, as TLS numbers them.
    pub scheme: u16,
    /// The signature in hexadecimal digits.
    pub signature: String,
}

/// What a site vouches for with the key of its certificate. A signature of one subject is none of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The key that signs a transcript.
    TranscriptKey,
    /// A proposed run, by its digest.
    Proposal,
    /// The approval of a proposed run, by its digest.
    Approval,
    /// An entry of the log of a site, by its place in the chain.
    LogEntry,
}

/// The statement that a site signs: `text` is a key or a digest in hexadecimal digits.
pub fn statement(subject: Subject, site: &str, time: u64, text: &str) -> Vec<u8> {
    let subject = match subject {
        Subject::TranscriptKey => "transcript key",
        Subject::Proposal => "proposal",
        Subject::Approval => "approval",
        Subject::LogEntry => "log entry",
    };
    format!("fednmf {subject} v1\n{site}\n{time}\n{text}\n").into_bytes()
}

/// The version that is written.
pub const VERSION: u32 = 2;

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    pub number: u64,
    pub kind: String,
    pub payload: String,
    pub protection: String,
    pub bytes: u64,
    /// The keyed digest of the content, see [`digest_key`].
    pub digest: String,
}

/// A list on which all parties agreed, in full: each of them knows all names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// What it lists.
    pub agreed: String,
    pub names: Vec<String>,
}

/// The last line but one of a run that ended with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failed {
    failed: bool,
}

/// A line between the first and the last.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Sent(Sent),
    Agreed(Agreed),
    Failed(Failed),
}

/// The privacy budget that the run spent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub epsilon: f64,
    /// The names of the run in budget files, one for each hosted party; see [`super::Releases::run`].
    pub runs: Vec<String>,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct End {
    messages: u64,
    /// The spent budget, with `--dp`.
    spent: Option<Spent>,
    /// SHA-256 over all lines before, and over the spent budget.
    chain: String,
    public_key: String,
    signature: String,
}

/// A transcript that is being written.
pub struct Transcript {
    out: Box<dyn Write + Send>,
    key: SigningKey,
    digest_key: [u8; 32],
    chain: [u8; 32],
    messages: u64,
    /// The first write error. The run continues and reports it at its end.
    failed: Option<std::io::Error>,
}

impl Transcript {
    /// Begins with the heading.
    pub fn new(out: Box<dyn Write + Send>, key: SigningKey, heading: &Heading) -> Self {
        let digest_key = digest_key(&key, &heading.salt);
        let mut transcript = Transcript { out, key, digest_key, chain: [0; 32], messages: 0, failed: None };
        transcript.line(heading);
        transcript
    }

    /// Adds a message.
    pub fn sent(&mut self, kind: &str, payload: &str, protection: &str, content: &[u8]) {
        let sent = Sent {
            number: self.messages,
            kind: kind.into(),
            payload: payload.into(),
            protection: protection.into(),
            bytes: content.len() as u64,
            digest: hex(&digest(&self.digest_key, content)),
        };
        self.messages += 1;
        self.line(&sent);
    }

    /// Adds a list on which all parties agreed.
    pub fn agreed<'a>(&mut self, what: &str, names: impl Iterator<Item = &'a str>) {
        self.line(&Agreed { agreed: what.into(), names: names.map(String::from).collect() });
    }

    /// Signs and ends the transcript.
    ///
    /// # Errors
    /// If any of it could not be written.
    pub fn finish(mut self, spent: Option<Spent>) -> std::io::Result<()> {
        self.chain = conclude(&self.chain, spent.as_ref());
        let end = End {
            messages: self.messages,
            spent,
            chain: hex(&self.chain),
            public_key: hex(self.key.verifying_key().as_bytes()),
            signature: hex(&self.key.sign(&self.chain).to_bytes()),
        };
        self.line(&end);
        match self.failed {
            Some(e) => Err(e),
            None => self.out.flush(),
        }
    }

    /// Signs and ends the transcript of a run that ended with an error. What it spent is in its budget file alone.
    ///
    /// # Errors
    /// As [`Transcript::finish`].
    pub fn fail(mut self) -> std::io::Result<()> {
        self.line(&Failed { failed: true });
        self.finish(None)
    }

    fn line(&mut self, value: &impl Serialize) {
        let line = serde_json::to_string(value).expect("plain data");
        self.chain = link(&self.chain, &line);
        if let Err(e) = writeln!(self.out, "{line}") {
            self.failed.get_or_insert(e);
        }
    }
}

/// The key of the digests of a run: SHA-256 of a name, the secret signing key and the salt.
fn digest_key(key: &SigningKey, salt: &str) -> [u8; 32] {
    let named = Sha256::new().chain_update("fednmf transcript digests v2\n");
    named.chain_update(key.to_bytes()).chain_update(salt).finalize().into()
}

/// SHA-256 of the key and the SHA-256 of the content.
fn digest(key: &[u8; 32], content: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key).chain_update(Sha256::digest(content)).finalize().into()
}

/// The chain after one more line; it begins with zeros.
pub fn link(chain: &[u8; 32], line: &str) -> [u8; 32] {
    Sha256::new().chain_update(chain).chain_update(line).finalize().into()
}

/// The chain after the spent budget.
fn conclude(chain: &[u8; 32], spent: Option<&Spent>) -> [u8; 32] {
    link(chain, &serde_json::to_string(&spent).expect("plain data"))
}

/// A transcript that was verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    pub heading: Heading,
    pub sent: Vec<Sent>,
    pub agreed: Vec<Agreed>,
    pub spent: Option<Spent>,
    /// Whether the run ended with an error.
    pub failed: bool,
    /// The public key of the signer, in hexadecimal digits.
    pub public_key: String,
}

/// Reads a transcript and verifies chain and signature; `expected` is the public key of the expected signer.
///
/// # Errors
/// If the text is no transcript, was changed, is not signed, or was signed by somebody else; the error names the line.
pub fn verify(text: &str, expected: Option<&str>) -> Result<Verified> {
    let at = |number: usize, why: &str| Error::input(format!("line {}: {why}", number + 1));
    let lines: Vec<&str> = text.lines().collect();
    let (Some(first), Some((last, rest))) = (lines.first(), lines.split_last()) else {
        return Err(Error::input("is empty; it must be a file of --transcript"));
    };
    let heading: Heading = serde_json::from_str(first).map_err(|_| at(0, "is not the heading of a transcript"))?;
    if heading.fednmf_transcript != VERSION {
        return Err(at(0, "is of another version of the format; verify it with the fednmf that wrote it"));
    }
    let end: End = serde_json::from_str(last)
        .map_err(|_| at(rest.len(), "is no signature: the run was killed, or the end was cut off"))?;
    let chain = rest.iter().fold([0; 32], |chain, line| link(&chain, line));
    let chain = conclude(&chain, end.spent.as_ref());
    let (mut sent, mut agreed, mut has_failed) = (Vec::with_capacity(rest.len()), Vec::new(), false);
    for (number, line) in rest.iter().enumerate().skip(1) {
        let one = match serde_json::from_str(line).map_err(|_| at(number, "is no message"))? {
            Line::Sent(one) => one,
            Line::Agreed(list) => {
                agreed.push(list);
                continue;
            }
            Line::Failed(Failed { failed }) => {
                has_failed |= failed;
                continue;
            }
        };
        if one.number != sent.len() as u64 {
            return Err(at(
                number,
                "its number does not follow that of the message before it: a line was changed, removed or added",
            ));
        }
        sent.push(one);
    }
    if expected.is_some_and(|key| key != end.public_key) {
        return Err(at(rest.len(), "is signed with another key"));
    }
    let forged = || at(rest.len(), "the signature does not fit: a line was changed, removed or added");
    let bytes = |digits: &str| unhex(digits).ok_or_else(forged);
    let key = <[u8; 32]>::try_from(bytes(&end.public_key)?).map_err(|_| forged())?;
    let signature = <[u8; 64]>::try_from(bytes(&end.signature)?).map_err(|_| forged())?;
    let key = VerifyingKey::from_bytes(&key).map_err(|_| forged())?;
    let signed = key.verify_strict(&chain, &Signature::from_bytes(&signature)).is_ok();
    if !signed || end.messages != sent.len() as u64 || end.chain != hex(&chain) {
        return Err(forged());
    }
    Ok(Verified { heading, sent, agreed, spent: end.spent, failed: has_failed, public_key: end.public_key })
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of hexadecimal digits; `None` if they are none.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(salt: &str) -> String {
        let out = Shared::default();
        let heading = Heading {
            fednmf_transcript: VERSION,
            method: "felb".into(),
            settings: Map::new(),
            salt: salt.into(),
            rank: 0,
            ranks: 1,
            nonce: None,
            site: None,
            policy: None,
            proposal: None,
        };
        let mut transcript = Transcript::new(Box::new(out.clone()), SigningKey::from_bytes(&[7; 32]), &heading);
        for content in [&b"one"[..], b"two", b"three"] {
            transcript.sent("sum V_i", "Masked", "masked", content);
        }
        transcript.agreed("columns", ["a", "b"].into_iter());
        transcript.finish(Some(Spent { epsilon: 0.5, runs: vec!["ab".into()] })).unwrap();
        String::from_utf8(out.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn every_change_of_a_transcript_is_found() {
        let text = written("7f");
        let verified = verify(&text, None).unwrap();
        assert_eq!(verified.sent.len(), 3);
        assert_eq!(verified.agreed, [Agreed { agreed: "columns".into(), names: vec!["a".into(), "b".into()] }]);
        assert!(verify(&text, Some(&verified.public_key)).is_ok());
        let other = hex(SigningKey::from_bytes(&[8; 32]).verifying_key().as_bytes());
        assert!(verify(&text, Some(&other)).is_err_and(|e| e.message.contains("another key")));
        let lines: Vec<&str> = text.lines().collect();
        for gone in 0..lines.len() {
            let kept: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, line)| *line).collect();
            assert!(verify(&kept.join("\n"), None).is_err(), "line {gone} removed");
        }
        for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric()) {
            let mut changed = text.clone().into_bytes();
            changed[at] = if byte == b'0' { b'1' } else { b'0' };
            assert!(verify(&String::from_utf8(changed).unwrap(), None).is_err(), "byte {at}");
        }
    }

    #[test]
    fn digests_cannot_be_tried_and_differ_from_run_to_run() {
        let [first, second] = ["7f", "80"].map(|salt| verify(&written(salt), None).unwrap());
        for (first, second) in first.sent.iter().zip(&second.sent) {
            assert_ne!(first.digest, second.digest);
        }
        assert_ne!(first.sent[0].digest, hex(&Sha256::digest(b"one")));
        // Who has the key can open them.
        let key = digest_key(&SigningKey::from_bytes(&[7; 32]), "7f");
        assert_eq!(first.sent[0].digest, hex(&digest(&key, b"one")));
    }
}
