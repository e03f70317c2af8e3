//! Which certificates are accepted: those of the CA that are not revoked and name their purpose. rustls also accepts a
//! certificate without extended key usage, which is for every purpose.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

/// id-kp-clientAuth and id-kp-serverAuth (RFC 5280, section 4.2.1.12), in DER without tag and length.
const CLIENTS: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 2];
const SERVERS: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 1];

/// Verifies certificates of hub and sites.
#[derive(Clone)]
pub struct Verifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    sites: Arc<dyn ClientCertVerifier>,
    hub: Arc<WebPkiServerVerifier>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Verifier {
    /// Accepts certificates of these CAs that their lists do not revoke. With a list, certificates of an issuer without one
    /// are refused, and all are once it has expired.
    ///
    /// # Errors
    /// If a certificate or a list cannot be used.
    pub fn new(
        ca: Vec<CertificateDer<'static>>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Verifier, String> {
        let mut roots = RootCertStore::empty();
        for root in ca {
            roots.add(root).map_err(|e| format!("no certificate of a CA, {e}; name the CA's file"))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let sites = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration()
            .build();
        let hub = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration()
            .build();
        let (sites, hub) = (sites.map_err(|e| e.to_string())?, hub.map_err(|e| e.to_string())?);
        Ok(Verifier { roots, provider, sites, hub })
    }

    /// The cryptography of the connections.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// Refuses a certificate, whose path is verified already, that does not name its purpose.
    fn check_purpose(
        &self,
        purpose: &'static [u8],
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let usage = webpki::KeyUsage::required(purpose);
        let algorithms = self.provider.signature_verification_algorithms.all;
        let leaf = webpki::EndEntityCert::try_from(certificate);
        leaf.and_then(|leaf| {
            leaf.verify_for_usage(algorithms, &self.roots.roots, intermediates, now, usage, None, None).map(drop)
        })
        .map_err(|_| Error::InvalidCertificate(CertificateError::InvalidPurpose))
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.sites.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.sites.verify_client_cert(certificate, intermediates, now)?;
        self.check_purpose(CLIENTS, certificate, intermediates, now).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.sites.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.sites.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.sites.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.hub.verify_server_cert(certificate, intermediates, name, ocsp, now)?;
        self.check_purpose(SERVERS, certificate, intermediates, now).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.hub.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.hub.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.hub.supported_verify_schemes()
    }
}
