//! JSON documents that a site has signed with the key of its certificate.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use fednmf_base::error::{Error, Result};
use fednmf_privacy::transcript::{SiteSignature, Subject, hex, link};

use super::tls::{Authority, Identity};

/// A document and its signature. The document is signed as it is written without blanks, so it may be laid out anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    pub document: Value,
    pub signature: SiteSignature,
}

/// The digest of a document that stands alone, or that follows others in a chain that has come to `chain`.
pub fn digest(chain: &[u8; 32], document: &Value) -> [u8; 32] {
    link(chain, &document.to_string())
}

impl Signed {
    /// Signs a document that stands alone.
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    pub fn new(document: Value, subject: Subject, site: &str, identity: &Identity) -> Result<Signed> {
        Signed::after(&[0; 32], document, subject, site, identity)
    }

    /// Signs a document and all before it in the chain.
    pub(crate) fn after(
        chain: &[u8; 32],
        document: Value,
        subject: Subject,
        site: &str,
        identity: &Identity,
    ) -> Result<Signed> {
        let signature = identity.vouch(subject, site, &hex(&digest(chain, &document)))?;
        Ok(Signed { document, signature })
    }

    /// The digest of the document, in hexadecimal digits; whoever signs it, the same document has the same.
    pub fn digest(&self) -> String {
        Signed::digest_of(&self.document)
    }

    /// The digest that a document has, in hexadecimal digits.
    pub fn digest_of(document: &Value) -> String {
        hex(&digest(&[0; 32], document))
    }

    /// The document, if a site with a certificate of the CA has signed it as this subject.
    ///
    /// # Errors
    /// If nobody has, or it has other fields than `T`.
    pub fn verify<T: DeserializeOwned>(&self, subject: Subject, authority: &Authority) -> Result<T> {
        let verified = authority.verify(subject, &self.signature, &self.digest());
        verified.map_err(|why| Error::input(format!("is not signed by site {}: {why}", self.signature.site)))?;
        T::deserialize(&self.document).map_err(|e| Error::input(format!("has the wrong contents: {e}")))
    }
}
