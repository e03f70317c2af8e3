//! Certificates, and connections by TLS 1.3 with one reading and one writing thread.

use std::fmt;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier as _;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use fednmf_base::error::{Error, Result};
use fednmf_base::warning::warn;
use fednmf_privacy::transcript::{SiteSignature, Subject, hex, statement, unhex};

use super::validity;
use super::verifier::Verifier;

/// Days of validity above which a certificate is warned of: nothing but its end excludes whoever has copied its key, unless
/// all others have a revocation list. The limit is that of the CA/Browser Forum for servers in 2018.
pub const LONGEST_VALIDITY: u64 = 825;

/// The certificate authority of `--ca`, which this process trusts.
pub struct Authority {
    verifier: Arc<Verifier>,
}

/// The identity of `--cert`, `--key` and `--ca`: this process, and the authority that it trusts.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Authority,
}

/// Why a text is not signed by a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsigned {
    /// The CA has revoked the certificate.
    Revoked,
    Other(String),
}

impl fmt::Display for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsigned::Revoked => f.write_str("its certificate was revoked by the CA"),
            Unsigned::Other(why) => f.write_str(why),
        }
    }
}

impl From<&str> for Unsigned {
    fn from(why: &str) -> Self {
        Unsigned::Other(why.into())
    }
}

impl Authority {
    /// Reads the certificates of a CA, and the list of those that it has revoked, which is read again when it has changed.
    ///
    /// # Errors
    /// If a file cannot be read or has the wrong content.
    pub fn read(ca: &Path, revoked: Option<&Path>) -> Result<Authority> {
        let mut roots = RootCertStore::empty();
        for root in certificates("--ca", ca)? {
            roots.add(root).map_err(|e| {
                Error::input(format!("--ca {}: holds no certificate of a CA ({e}); name the CA's file", ca.display()))
            })?;
        }
        Ok(Authority { verifier: Arc::new(Verifier::new(roots, revoked)?) })
    }

    /// Verifies that a certificate of the CA vouches for `text`, as [`SiteSignature`] says.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn verify(&self, subject: Subject, signed: &SiteSignature, text: &str) -> std::result::Result<(), Unsigned> {
        let bytes = |digits: &str| unhex(digits).ok_or("it is damaged");
        let chain = signed.chain.iter().map(|der| bytes(der)).collect::<std::result::Result<Vec<_>, _>>()?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(signed.time));
        let text = statement(subject, &signed.site, signed.time, text);
        self.verify_site(&signed.site, &chain, time, &text, (signed.scheme, &bytes(&signed.signature)?)).map(drop)
    }

    /// Verifies that a CA's certificate for `site`, valid at `time`, has signed `text`.
    ///
    /// # Errors
    /// The reason why it has not.
    pub fn verify_site(
        &self,
        site: &str,
        chain: &[Vec<u8>],
        time: UnixTime,
        text: &[u8],
        (scheme, signature): (u16, &[u8]),
    ) -> std::result::Result<HandshakeSignatureValid, Unsigned> {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let (first, others) = chain.split_first().ok_or("it has no certificate")?;
        let verified = self.verifier.verify_client_cert(first, others, time);
        verified.map_err(|e| match e {
            rustls::Error::InvalidCertificate(CertificateError::Revoked) => Unsigned::Revoked,
            e => Unsigned::Other(format!("its certificate {}", problem(&e))),
        })?;
        if !is_for(first, site) {
            return Err("its certificate is for another site".into());
        }
        let leaf = webpki::EndEntityCert::try_from(first).map_err(|_| "its certificate is damaged")?;
        let scheme = SignatureScheme::from(scheme);
        let known = self.verifier.provider().signature_verification_algorithms.mapping.iter();
        let algorithms = known.filter(|(known, _)| *known == scheme).flat_map(|(_, algorithms)| algorithms.iter());
        match algorithms.into_iter().any(|algorithm| leaf.verify_signature(*algorithm, text, signature).is_ok()) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err("its signature does not fit its certificate".into()),
        }
    }
}

impl Identity {
    /// Reads the PEM files of certificate, key, CA and, if there is one, the CA's list of revoked certificates. Warns of a
    /// certificate that is valid for longer than [`LONGEST_VALIDITY`].
    ///
    /// # Errors
    /// If a file cannot be read or has the wrong content, or others can read the key; the error names it.
    pub fn read(cert: &Path, key: &Path, ca: &Path, revoked: Option<&Path>) -> Result<Identity> {
        let chain = certificates("--cert", cert)?;
        let wrong = |why: String| Error::input(format!("--key {}: {why}", key.display()));
        let text = std::fs::read(key).map_err(|e| wrong(format!("cannot be read ({e})")))?;
        let mode = std::fs::metadata(key).map_err(|e| wrong(format!("cannot be read ({e})")))?.permissions().mode();
        if mode & readable_by_others(key) != 0 {
            let shown = key.display();
            return Err(wrong(format!(
                "others can read or replace it (mode {:03o}), and whoever has it can take this one's part: chmod 600 {shown}; \
                 if others may have read it, get a new key and certificate",
                mode & 0o777
            )));
        }
        let secret = PrivateKeyDer::from_pem_slice(&text)
            .map_err(|_| wrong("holds no private key in PEM format; give the key of --cert".into()))?;
        let identity = Identity { chain, key: secret, authority: Authority::read(ca, revoked)? };
        identity.client_config().map_err(|e| wrong(format!("does not fit --cert {} ({e})", cert.display())))?;
        if let Some(days) = identity.chain.first().and_then(|first| too_long(first)) {
            warn(&format!(
                "--cert {}: is valid for {days} days, more than {LONGEST_VALIDITY}: whoever gets its key can use it for as \
                 long; ask the CA for one of a year",
                cert.display()
            ));
        }
        Ok(identity)
    }

    /// The certificate, and the intermediate ones up to the CA.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The site that the certificate is for: `site` if that is given, otherwise its only name.
    ///
    /// # Errors
    /// If the certificate is not for that site, or has no name or several.
    pub fn site(&self, site: Option<&str>) -> Result<String> {
        let certificate = &self.chain[0];
        if let Some(site) = site {
            return match is_for(certificate, site) {
                true => Ok(site.into()),
                false => Err(Error::input(format!("--site {site}: the certificate of --cert is not for this site"))),
            };
        }
        let leaf = webpki::EndEntityCert::try_from(certificate);
        let names: Vec<String> = leaf.iter().flat_map(|leaf| leaf.valid_dns_names()).map(ToString::to_string).collect();
        match <[String; 1]>::try_from(names) {
            Ok([name]) => Ok(name),
            Err(_) => Err(Error::input("--cert: does not have one name; say with --site which site this is")),
        }
    }

    /// Signs a statement about `text` for this site with the key of the certificate.
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    pub fn vouch(&self, subject: Subject, site: &str, text: &str) -> Result<SiteSignature> {
        let time = UnixTime::now().as_secs();
        let (scheme, signature) = self.sign(&statement(subject, site, time, text))?;
        let chain = self.chain.iter().map(|certificate| hex(certificate)).collect();
        Ok(SiteSignature { site: site.into(), chain, time, scheme, signature: hex(&signature) })
    }

    /// The authority that this process trusts.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    fn client_config(&self) -> std::result::Result<ClientConfig, rustls::Error> {
        ClientConfig::builder_with_provider(self.authority.verifier.provider().clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.authority.verifier.clone())
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
    }

    /// Refuses a certificate that sites would not accept from a hub.
    ///
    /// # Errors
    /// If the certificate is for another purpose, as that of a site.
    pub fn check_hub(&self) -> Result<()> {
        match self.authority.verifier.is_no_hubs(&self.chain) {
            true => Err(Error::input(
                "--cert: is no certificate of a hub, which names the extended key usage of servers (perhaps that of a site); the sites \
                 would refuse it",
            )),
            false => Ok(()),
        }
    }

    /// The configuration of the hub, which accepts only clients with certificates of its CA.
    ///
    /// # Errors
    /// If the key does not fit the certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>> {
        let verifier = self.authority.verifier.clone();
        let built = ServerConfig::builder_with_provider(verifier.provider().clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map(|config| config.with_client_cert_verifier(verifier))
            .and_then(|config| config.with_single_cert(self.chain.clone(), self.key.clone_key()));
        let mut config = built.map_err(|e| Error::input(format!("--cert and --key: cannot be used ({e})")))?;
        // A resumed session would skip the check of the site's certificate, which may have been revoked meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Signs with the key of the certificate. Returns scheme and signature.
    ///
    /// # Errors
    /// If the kind of the key is unknown.
    pub fn sign(&self, text: &[u8]) -> Result<(u16, Vec<u8>)> {
        let unknown =
            |why: String| Error::input(format!("--key: cannot sign ({why}); use an ECDSA, Ed25519 or RSA key"));
        let provider = self.authority.verifier.provider();
        let key = provider.key_provider.load_private_key(self.key.clone_key());
        let key = key.map_err(|e| unknown(e.to_string()))?;
        let known = provider.signature_verification_algorithms.mapping.iter();
        let schemes: Vec<SignatureScheme> = known.map(|(scheme, _)| *scheme).collect();
        let signer = key.choose_scheme(&schemes).ok_or_else(|| unknown("unknown kind".into()))?;
        let signature = signer.sign(text).map_err(|e| unknown(e.to_string()))?;
        Ok((signer.scheme().into(), signature))
    }
}

/// Whether a certificate is for this name. A wildcard is no name: it would be for all sites.
pub fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let leaf = webpki::EndEntityCert::try_from(certificate);
    leaf.is_ok_and(|leaf| leaf.valid_dns_names().any(|own| own.eq_ignore_ascii_case(name)))
}

/// The days for which a certificate is valid, if these are too many.
pub fn too_long(certificate: &CertificateDer<'_>) -> Option<u64> {
    validity::days(certificate).filter(|days| *days > LONGEST_VALIDITY)
}

/// The bits of a key file's mode that must not be set. systemd gives a service its credentials by an access list, which the
/// bits of the group stand for.
fn readable_by_others(key: &Path) -> u32 {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    if credentials.is_some_and(|directory| key.starts_with(directory)) { 0o027 } else { 0o077 }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |why: String| Error::input(format!("{option} {}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|e| wrong(format!("cannot be read ({e})")))?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong("holds no certificate in PEM format; 'fednmf keygen' makes some for a try".into())),
    }
}

/// Describes the problem of a certificate, to follow its name.
fn problem(e: &rustls::Error) -> String {
    match e {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "has expired; get a new one from the CA".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "is not valid yet; check the clocks".into()
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "is not from the CA of --ca; all need certificates of the same CA".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "is for another host than --hub names".into()
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "is for another purpose: a hub's names the extended key usage of servers, a site's that of clients"
                    .into()
            }
            CertificateError::Revoked => "was revoked by the CA".into(),
            CertificateError::UnknownRevocationStatus => {
                "is of an issuer that no list of --crl is from; add the list of this issuer".into()
            }
            CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
                "cannot be checked: the list of --crl has expired; get a new one from the CA".into()
            }
            other => format!("is not accepted ({other:?})"),
        },
        rustls::Error::NoCertificatesPresented => "is missing".into(),
        other => format!("is not accepted ({other})"),
    }
}

/// The reason why a handshake failed.
#[derive(Debug)]
pub struct Refusal {
    pub why: String,
    /// Whether retrying is pointless: a certificate is wrong.
    pub is_final: bool,
}

/// Explains what ended a handshake or a connection; `other` is `hub` or `site`.
pub fn explain(e: &std::io::Error, other: &str) -> Refusal {
    let Some(e) = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        let why = match e.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "nothing was heard for too long".into(),
            std::io::ErrorKind::UnexpectedEof => "the other side closed the connection".into(),
            _ => e.to_string(),
        };
        return Refusal { why, is_final: false };
    };
    let refusal = |why: String| Refusal { why, is_final: true };
    match e {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            refusal(format!("the {other}'s certificate {}", problem(e)))
        }
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                refusal(format!("the {other} refuses this certificate: it has expired; get a new one from the CA"))
            }
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                refusal(format!("the {other} refuses this certificate: it is not from the {other}'s CA"))
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired => {
                refusal(format!("the {other} refuses this certificate ({alert:?})"))
            }
            _ => Refusal { why: format!("the {other} ended the connection ({alert:?})"), is_final: false },
        },
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => {
            refusal(format!("the {other} does not speak TLS 1.3 ({e}); is it a fednmf {other}?"))
        }
        e => Refusal { why: e.to_string(), is_final: false },
    }
}

/// A socket whose reads and writes fail at a moment. A timeout of the system begins anew with each byte.
struct Timed<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    // An alert is written once, behind what was pending before.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write_vectored(parts)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

/// A connection after its handshake.
pub struct Stream {
    tls: Mutex<Connection>,
    socket: TcpStream,
    /// Held from encrypting to sending, so that records keep their order.
    writing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum time for a handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(15);

impl Stream {
    /// The site's side of the handshake with the hub `host`.
    ///
    /// # Errors
    /// The reason why it failed.
    pub fn connect(identity: &Identity, host: &str, socket: TcpStream) -> std::result::Result<Stream, Refusal> {
        let name = ServerName::try_from(host.to_string())
            .map_err(|_| Refusal { why: format!("{host}: is no host name"), is_final: true })?;
        let failed = |e: rustls::Error| Refusal { why: e.to_string(), is_final: true };
        let config = identity.client_config().map_err(failed)?;
        let tls = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Stream::handshake(Connection::Client(tls), socket, Instant::now() + HANDSHAKE).map_err(|e| explain(&e, "hub"))
    }

    /// The hub's side of the handshake, which must be over at a moment.
    ///
    /// # Errors
    /// The reason why it failed.
    pub fn accept(
        config: Arc<ServerConfig>,
        socket: TcpStream,
        until: Instant,
    ) -> std::result::Result<Stream, Refusal> {
        let tls = ServerConnection::new(config).map_err(|e| Refusal { why: e.to_string(), is_final: true })?;
        let copy = socket.try_clone();
        Stream::handshake(Connection::Server(tls), socket, until).map_err(|e| {
            // Data that the site has already sent must be read, or its system drops the alert with the reason.
            if let Ok(socket) = copy {
                drain(&socket);
            }
            explain(&e, "site")
        })
    }

    fn handshake(mut tls: Connection, socket: TcpStream, until: Instant) -> std::io::Result<Stream> {
        socket.set_nodelay(true)?;
        tls.set_buffer_limit(None);
        let mut timed = Timed { socket: &socket, until };
        while tls.is_handshaking() {
            tls.complete_io(&mut timed)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut timed)?;
        }
        Ok(Stream { tls: Mutex::new(tls), socket, writing: Mutex::new(()) })
    }

    /// Limits the time of reads without data and of writes without progress.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn set_limits(&self, silence: Duration, write: Duration) -> std::io::Result<()> {
        self.socket.set_read_timeout(Some(silence))?;
        self.socket.set_write_timeout(Some(write))
    }

    /// The certificate of the other side.
    pub fn peer(&self) -> Option<CertificateDer<'static>> {
        lock(&self.tls).peer_certificates().and_then(|chain| chain.first()).map(|der| der.clone().into_owned())
    }

    /// Sends bytes, from any thread.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        let _writing = lock(&self.writing);
        let mut records = Vec::with_capacity(bytes.len() + 1024);
        {
            let mut tls = lock(&self.tls);
            tls.writer().write_all(bytes)?;
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
        }
        (&self.socket).write_all(&records)
    }

    /// Waits for bytes and appends them to `into`; called from one thread only.
    ///
    /// # Errors
    /// If the connection is broken or closed, or was silent for too long.
    pub fn receive(&self, into: &mut Vec<u8>) -> std::io::Result<()> {
        self.receive_from(&mut &self.socket, into)
    }

    /// As [`Stream::receive`], but fails at a moment, also while the other side sends byte by byte.
    ///
    /// # Errors
    /// As [`Stream::receive`].
    pub fn receive_until(&self, into: &mut Vec<u8>, until: Instant) -> std::io::Result<()> {
        self.receive_from(&mut Timed { socket: &self.socket, until }, into)
    }

    fn receive_from(&self, socket: &mut impl Read, into: &mut Vec<u8>) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let length = into.len();
        let mut read = 0;
        loop {
            {
                let mut tls = lock(&self.tls);
                let mut fresh = &buffer[..read];
                loop {
                    // Needed even without new bytes: the handshake may have buffered some.
                    let state = match tls.process_new_packets() {
                        Ok(state) => state,
                        Err(e) => {
                            drop(tls);
                            let _ = self.send(&[]);
                            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, e));
                        }
                    };
                    let here = state.plaintext_bytes_to_read();
                    if here > 0 {
                        let at = into.len();
                        into.resize(at + here, 0);
                        tls.reader().read_exact(&mut into[at..])?;
                    }
                    if state.peer_has_closed() && into.len() == length {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    if fresh.is_empty() {
                        break;
                    }
                    tls.read_tls(&mut fresh)?;
                }
            }
            if into.len() > length {
                return Ok(());
            }
            read = socket.read(&mut buffer)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a close notification.
    pub fn finish(&self) {
        lock(&self.tls).send_close_notify();
        let _ = self.send(&[]);
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends the connection at once; a thread that reads or writes notices.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// For a moment, reads the data that a refused site still sends.
fn drain(mut socket: &TcpStream) {
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(500)));
    let (start, mut buffer) = (Instant::now(), [0; 4096]);
    while start.elapsed() < Duration::from_secs(2) && socket.read(&mut buffer).is_ok_and(|n| n > 0) {}
}
