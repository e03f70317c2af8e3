//! Which certificates are accepted: those of the CA that are not revoked and name their purpose. rustls also accepts a
//! certificate without extended key usage, which is for every purpose.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use fednmf_base::error::{self, Error};
use fednmf_base::warning::warn;

use crate::revocation::{Lists, RevocationFile};

/// id-kp-clientAuth and id-kp-serverAuth (RFC 5280, section 4.2.1.12), in DER without tag and length.
const CLIENTS: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 2];
const SERVERS: &[u8] = &[43, 6, 1, 5, 5, 7, 3, 1];

/// Verifies certificates of hub and sites.
pub struct Verifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    /// For what does not depend on revocation lists.
    first: Checks,
    /// `None` without revocation lists.
    revocation: Option<Mutex<Revocation>>,
}

/// The checks of rustls, for the revocation lists of a moment.
#[derive(Clone)]
struct Checks {
    sites: Arc<dyn ClientCertVerifier>,
    hub: Arc<WebPkiServerVerifier>,
}

/// The file of revocation lists, and the checks with its last lists that could be used.
struct Revocation {
    file: RevocationFile,
    checks: Checks,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Checks {
    fn new(roots: &Arc<RootCertStore>, provider: &Arc<CryptoProvider>, revoked: Lists) -> Result<Checks, String> {
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
        Ok(Checks { sites: sites.map_err(|e| e.to_string())?, hub: hub.map_err(|e| e.to_string())? })
    }
}

impl Verifier {
    /// Accepts certificates of these CAs. With a file of revocation lists, certificates on a list and those of an issuer
    /// without one are refused, and all are once it has expired. The file is read again when it has changed.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn new(roots: RootCertStore, revoked: Option<&Path>) -> error::Result<Verifier> {
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let checks = |lists| {
            let usable = Checks::new(&roots, &provider, lists);
            usable.map_err(|e| format!("cannot be used ({e}); it must be a list of version 2 by this CA"))
        };
        let (first, revocation) = match revoked {
            None => (checks(Vec::new()).map_err(|e| Error::input(format!("--ca: {e}")))?, None),
            Some(path) => {
                let (file, lists) = RevocationFile::open(path)?;
                let checks = checks(lists).map_err(|e| file.wrong(&e))?;
                (checks.clone(), Some(Mutex::new(Revocation { file, checks })))
            }
        };
        Ok(Verifier { roots, provider, first, revocation })
    }

    /// The checks with the present revocation lists. If the file has changed and cannot be used, the lists before stay, and
    /// a warning says so.
    fn checks(&self) -> Checks {
        let Some(revocation) = &self.revocation else { return self.first.clone() };
        let mut revocation = revocation.lock().unwrap_or_else(PoisonError::into_inner);
        let Revocation { file, checks } = &mut *revocation;
        let renewed = file.read_if_changed().and_then(|lists| {
            let renewed = lists.map(|lists| Checks::new(&self.roots, &self.provider, lists)).transpose();
            renewed.map_err(|e| file.wrong(&format!("cannot be used ({e})")))
        });
        match renewed {
            Ok(Some(renewed)) => *checks = renewed,
            Ok(None) => {}
            Err(e) => warn(&format!("{e}; the list before this one stays in force")),
        }
        checks.clone()
    }

    /// The cryptography of the connections.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// Whether a certificate is for another purpose than that of a hub. What else is wrong with it the sites say.
    pub fn is_no_hubs(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((certificate, intermediates)) = chain.split_first() else { return true };
        let usage = webpki::KeyUsage::required(SERVERS);
        let algorithms = self.provider.signature_verification_algorithms.all;
        let leaf = webpki::EndEntityCert::try_from(certificate);
        let verified = leaf.and_then(|leaf| {
            let roots = &self.roots.roots;
            leaf.verify_for_usage(algorithms, roots, intermediates, UnixTime::now(), usage, None, None).map(drop)
        });
        matches!(verified, Err(webpki::Error::RequiredEkuNotFoundContext(_)))
    }

    /// Refuses a certificate, whose path is verified already, that does not name its purpose.
    fn check_purpose(
        &self,
        purpose: &'static [u8],
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let usage = webpki::KeyUsage::required(purpose);
        let algorithms = self.provider.signature_verification_algorithms.all;
        let leaf = webpki::EndEntityCert::try_from(certificate);
        leaf.and_then(|leaf| {
            leaf.verify_for_usage(algorithms, &self.roots.roots, intermediates, now, usage, None, None).map(drop)
        })
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::InvalidPurpose))
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first.sites.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.checks().sites.verify_client_cert(certificate, intermediates, now)?;
        self.check_purpose(CLIENTS, certificate, intermediates, now).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first.sites.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first.sites.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.sites.supported_verify_schemes()
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
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.checks().hub.verify_server_cert(certificate, intermediates, name, ocsp, now)?;
        self.check_purpose(SERVERS, certificate, intermediates, now).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first.hub.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first.hub.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.hub.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
    };

    use crate::revocation::RevocationFile;
    use crate::site_log::{Event, SiteLog};
    use crate::tls::{Identity, Stream, is_for, too_long};

    const CLIENTS: Option<ExtendedKeyUsagePurpose> = Some(ExtendedKeyUsagePurpose::ClientAuth);
    const SERVERS: Option<ExtendedKeyUsagePurpose> = Some(ExtendedKeyUsagePurpose::ServerAuth);

    /// Seconds since 1970, some days from now.
    fn seconds(days: i64) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Duration::from_secs(now.checked_add_signed(86_400 * days).unwrap())
    }

    /// A hub that stays, as far as its handshakes go: it accepts one connection after the other.
    struct Door {
        address: SocketAddr,
        /// Why each connection was refused, if it was.
        refusals: Receiver<Option<String>>,
    }

    impl Door {
        fn new(hub: &Identity) -> Door {
            let config = hub.server_config().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (sender, refusals) = channel();
            std::thread::spawn(move || {
                while let Ok((socket, _)) = listener.accept() {
                    let until = Instant::now() + Duration::from_secs(10);
                    let met = Stream::accept(config.clone(), socket, until).map(|stream| stream.finish());
                    if sender.send(met.err().map(|refusal| refusal.why)).is_err() {
                        return;
                    }
                }
            });
            Door { address, refusals }
        }

        /// Connects; returns why the hub refuses the site, if it does.
        fn knock(&self, site: &Identity) -> Option<String> {
            let near = Stream::connect(site, "localhost", TcpStream::connect(self.address).unwrap());
            let heard = near.map(|stream| stream.receive(&mut Vec::new()).is_ok());
            assert!(!matches!(heard, Ok(true)), "the hub sends nothing");
            self.refusals.recv().unwrap()
        }
    }

    /// A CA with its files in a directory.
    struct Ca {
        dir: tempfile::TempDir,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Ca {
        fn new() -> Ca {
            let dir = tempfile::tempdir().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = KeyPair::generate().unwrap();
            std::fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
            Ca { dir, issuer: Issuer::new(params, key) }
        }

        fn file(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Issues a certificate, with its key beside it.
        fn issue(&self, file: &str, name: &str, purpose: Option<ExtendedKeyUsagePurpose>, days: i64, number: u64) {
            let mut params = CertificateParams::new([name.to_string()]).unwrap();
            params.extended_key_usages = purpose.into_iter().collect();
            params.not_before = date_time_ymd(1970, 1, 1) + seconds(-1);
            params.not_after = date_time_ymd(1970, 1, 1) + seconds(days);
            params.serial_number = Some(SerialNumber::from(number));
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            std::fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
            let of_key = self.file(&format!("{file}.key"));
            std::fs::write(&of_key, key.serialize_pem()).unwrap();
            std::fs::set_permissions(of_key, PermissionsExt::from_mode(0o600)).unwrap();
        }

        /// Writes a list that revokes a certificate and is valid for some days.
        fn revoke(&self, number: u64, days: i64) -> PathBuf {
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(1970, 1, 1) + seconds(-2),
                next_update: date_time_ymd(1970, 1, 1) + seconds(days),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: vec![RevokedCertParams {
                    serial_number: SerialNumber::from(number),
                    revocation_time: date_time_ymd(1970, 1, 1) + seconds(-1),
                    reason_code: None,
                    invalidity_date: None,
                }],
                key_identifier_method: KeyIdMethod::Sha256,
            };
            let path = self.file("revoked.pem");
            std::fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
            path
        }

        fn identity(&self, file: &str, crl: Option<&PathBuf>) -> Identity {
            let of = |end: &str| self.file(&format!("{file}.{end}"));
            Identity::read(&of("pem"), &of("key"), &self.file("ca.pem"), crl.map(PathBuf::as_path)).unwrap()
        }

        /// A connection between a hub and a site: what each refuses, if it does.
        fn meet(&self, hub: &str, site: &str, crl: Option<&PathBuf>) -> (Option<String>, Option<String>) {
            let (hub, site) = (self.identity(hub, crl), self.identity(site, crl));
            let config = hub.server_config().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let at_hub = std::thread::spawn(move || {
                let until = Instant::now() + Duration::from_secs(10);
                Stream::accept(config, listener.accept().unwrap().0, until).map(|stream| stream.finish()).err()
            });
            let near = Stream::connect(&site, "localhost", TcpStream::connect(address).unwrap());
            let at_site = near.and_then(|stream| {
                // In TLS 1.3 a site has finished its handshake before the hub has seen its certificate.
                let heard = stream.receive(&mut Vec::new());
                match heard {
                    Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
                    heard => heard.map_err(|e| crate::tls::explain(&e, "hub")),
                }
            });
            (at_hub.join().unwrap().map(|refusal| refusal.why), at_site.err().map(|refusal| refusal.why))
        }
    }

    #[test]
    fn certificates_name_their_purpose() {
        let ca = Ca::new();
        ca.issue("hub", "localhost", SERVERS, 30, 1);
        ca.issue("site", "a", CLIENTS, 30, 2);
        ca.issue("any-site", "a", None, 30, 3);
        ca.issue("any-hub", "localhost", None, 30, 4);
        assert_eq!(ca.meet("hub", "site", None), (None, None));
        for site in ["any-site", "hub"] {
            let (hub, told) = ca.meet("hub", site, None);
            assert!(hub.as_ref().is_some_and(|why| why.contains("for another purpose")), "{site}: {hub:?}");
            assert!(told.as_ref().is_some_and(|why| why.contains("refuses this certificate")), "{site}: {told:?}");
        }
        for hub in ["any-hub", "site"] {
            let (_, site) = ca.meet(hub, "site", None);
            assert!(site.is_some(), "{hub}");
        }
        assert!(ca.meet("any-hub", "site", None).1.unwrap().contains("for another purpose"));
    }

    #[test]
    fn a_wildcard_is_no_name_of_a_site() {
        let ca = Ca::new();
        ca.issue("wild", "*.example.org", CLIENTS, 30, 1);
        ca.issue("exact", "b.example.org", CLIENTS, 30, 2);
        let first = |file: &str| ca.identity(file, None).chain()[0].clone();
        assert!(!is_for(&first("wild"), "b.example.org"));
        assert!(!is_for(&first("wild"), "*.example.org.") && !is_for(&first("exact"), "example.org"));
        assert!(is_for(&first("exact"), "b.example.org"));
    }

    #[test]
    fn a_revoked_certificate_is_refused_and_an_old_list_refuses_all() {
        let ca = Ca::new();
        ca.issue("hub", "localhost", SERVERS, 30, 1);
        ca.issue("a", "a", CLIENTS, 30, 2);
        ca.issue("b", "b", CLIENTS, 30, 3);
        let list = ca.revoke(2, 7);
        assert_eq!(ca.meet("hub", "b", Some(&list)), (None, None));
        assert!(ca.meet("hub", "a", Some(&list)).0.unwrap().contains("was revoked"));
        let list = ca.revoke(1, 7);
        assert!(ca.meet("hub", "b", Some(&list)).1.unwrap().contains("was revoked"), "the hub's");
        let list = ca.revoke(2, -1);
        assert!(ca.meet("hub", "b", Some(&list)).1.unwrap().contains("has expired"));
        let none = Identity::read(&ca.file("a.pem"), &ca.file("a.key"), &ca.file("ca.pem"), Some(&ca.file("a.pem")));
        assert!(none.err().unwrap().message.contains("holds no revocation list"));
    }

    #[test]
    fn a_list_that_is_replaced_is_read_again() {
        let ca = Ca::new();
        ca.issue("hub", "localhost", SERVERS, 30, 1);
        ca.issue("a", "a", CLIENTS, 30, 2);
        ca.issue("b", "b", CLIENTS, 30, 3);
        let list = ca.revoke(99, 7);
        let door = Door::new(&ca.identity("hub", Some(&list)));
        let [a, b] = ["a", "b"].map(|site| ca.identity(site, None));
        let refused = |site: &Identity, why: &str| door.knock(site).is_some_and(|said| said.contains(why));
        assert_eq!((door.knock(&a), door.knock(&b)), (None, None));
        ca.revoke(2, 7);
        assert!(refused(&a, "was revoked"));
        assert_eq!(door.knock(&b), None);
        // What cannot be used changes nothing: neither a damaged file nor a missing one.
        let good = std::fs::read(&list).unwrap();
        let damaged = String::from_utf8(good.clone()).unwrap().replacen("MI", "AA", 1);
        for text in ["", "no list", &damaged] {
            std::fs::write(&list, text).unwrap();
            assert!(refused(&a, "was revoked"), "{text}");
            assert_eq!(door.knock(&b), None, "{text}");
        }
        std::fs::remove_file(&list).unwrap();
        assert!(refused(&a, "was revoked"));
        assert_eq!(door.knock(&b), None);
        ca.revoke(3, 7);
        assert_eq!(door.knock(&a), None);
        assert!(refused(&b, "was revoked"));
        ca.revoke(99, -1);
        assert!(refused(&a, "has expired"));
    }

    #[test]
    fn a_broken_list_is_reported_once() {
        let ca = Ca::new();
        let list = ca.revoke(1, 7);
        let (mut file, lists) = RevocationFile::open(&list).unwrap();
        assert_eq!(lists.len(), 1);
        assert!(file.read_if_changed().unwrap().is_none());
        std::fs::write(&list, "no list").unwrap();
        assert!(file.read_if_changed().unwrap_err().message.contains("holds no revocation list"));
        assert!(file.read_if_changed().unwrap().is_none());
        std::fs::remove_file(&list).unwrap();
        assert!(file.read_if_changed().unwrap_err().message.contains("cannot be read"));
        assert!(file.read_if_changed().unwrap().is_none());
        ca.revoke(2, 7);
        assert!(file.read_if_changed().unwrap().is_some());
    }

    #[test]
    fn a_log_goes_on_with_a_renewed_certificate_unless_the_old_one_is_revoked() {
        let ca = Ca::new();
        ca.issue("old", "a", CLIENTS, 30, 1);
        ca.issue("new", "a", CLIENTS, 30, 2);
        let list = ca.revoke(99, 7);
        let path = ca.file("log.jsonl");
        let add = |certificate: &str, crl: Option<&PathBuf>| {
            let log = SiteLog::open(&path, "a", ca.identity(certificate, crl))?;
            log.add("now".into(), Event::Release { by: "x".into(), run: None, results: BTreeMap::new() })
        };
        for certificate in ["old", "new"] {
            add(certificate, Some(&list)).unwrap();
        }
        let list = ca.revoke(1, 7);
        let refused = add("new", Some(&list)).unwrap_err().message;
        for words in ["line 1", "revoked the certificate with which site a signed", "a new file for --site-log"] {
            assert!(refused.contains(words) && !refused.contains("was changed"), "{refused}");
        }
        add("new", None).unwrap();
    }

    #[test]
    fn a_session_is_not_resumed_without_the_certificate() {
        let ca = Ca::new();
        ca.issue("hub", "localhost", SERVERS, 30, 1);
        let config = ca.identity("hub", None).server_config().unwrap();
        assert!(config.send_tls13_tickets == 0 && !config.session_storage.can_cache());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let ca = Ca::new();
        ca.issue("a", "a", CLIENTS, 30, 1);
        let read = || Identity::read(&ca.file("a.pem"), &ca.file("a.key"), &ca.file("ca.pem"), None);
        for mode in [0o644, 0o640, 0o606] {
            std::fs::set_permissions(ca.file("a.key"), PermissionsExt::from_mode(mode)).unwrap();
            let refused = read().err().unwrap().message;
            assert!(refused.contains(&format!("mode {mode:03o}")) && refused.contains("chmod 600"), "{refused}");
        }
        std::fs::set_permissions(ca.file("a.key"), PermissionsExt::from_mode(0o400)).unwrap();
        assert!(read().is_ok());
    }

    #[test]
    fn long_validity_is_noticed() {
        let ca = Ca::new();
        ca.issue("a", "a", CLIENTS, 36_500, 1);
        ca.issue("b", "b", CLIENTS, 800, 2);
        let days = |file: &str| too_long(&ca.identity(file, None).chain()[0]);
        assert_eq!((days("a"), days("b")), (Some(36_501), None));
    }
}
