//! The files of `--transcript`: one for each rank, and the key that signs it.

use std::fs::OpenOptions;
use std::io::{BufWriter, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use rand::Rng as _;
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::Releases;
use fednmf_privacy::transcript::{Heading, Spent, Transcript, VERSION, hex, unhex};

use super::nonce::RunNonce;
use super::spec::{Consent, Spec};

/// Where the transcript of a run is, and what its first line says.
pub struct Request<'a> {
    /// `None`: there is none.
    pub path: Option<&'a Path>,
    pub key: Option<&'a Path>,
    pub method: &'static str,
    pub settings: Map<String, Value>,
    pub consent: &'a Consent,
}

impl<'a> Request<'a> {
    /// The transcript of a factorisation.
    pub fn of_run(spec: &'a Spec) -> Self {
        Request {
            path: spec.transcript.as_deref(),
            key: spec.transcript_key.as_deref(),
            method: spec.description().name,
            settings: spec.shown_settings(),
            consent: &spec.consent,
        }
    }
}

/// The files that this rank has created for its transcript.
#[derive(Debug, Default)]
pub struct Created(Vec<PathBuf>);

/// Begins the transcript if one is requested; returns what was created. Collective.
///
/// # Errors
/// On all ranks, if a file of any rank exists already or cannot be written, or a key file holds no key. No rank has a new file
/// then.
pub fn begin(request: &Request<'_>, nonce: Option<&RunNonce>, comm: &Communicator) -> SharedResult<Created> {
    let mut created = Created::default();
    let Some(path) = request.path else {
        // Each owner decides independently.
        return if comm.has_owners() { comm.agree_on_error(Ok(created)) } else { Ok(created) };
    };
    let path = own(path, comm);
    let begun = create(request, nonce, comm, &path, &mut created);
    match comm.agree_on_error(begun.map(|transcript| comm.keep_transcript(transcript))) {
        Ok(()) => Ok(created),
        Err(e) => {
            created.discard(comm);
            Err(e)
        }
    }
}

/// Signs and closes the transcript.
///
/// # Errors
/// On this rank, if it is incomplete.
pub fn end(path: Option<&Path>, comm: &Communicator, releases: Option<&Releases>) -> Result<()> {
    let Some((path, transcript)) = path.zip(comm.end_transcript()) else { return Ok(()) };
    let spent = releases.map(|releases| Spent {
        epsilon: releases.spent(),
        runs: (0..releases.hosted()).map(|place| releases.run(place)).collect(),
    });
    let shown = own(path, comm).display().to_string();
    transcript.finish(spent).map_err(|e| Error::failed(format!("--transcript {shown}: is incomplete ({e})")))
}

impl Created {
    /// Removes the files of a run that was refused before its first iteration.
    pub fn discard(&self, comm: &Communicator) {
        drop(comm.end_transcript());
        for path in &self.0 {
            // A file that cannot be removed does no more harm than one that is kept.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The name of this rank's file.
fn own(path: &Path, comm: &Communicator) -> PathBuf {
    file_of(path, comm.rank(), ranks_with_files(comm))
}

/// The number of ranks whose files need names of their own. At a site of its own a rank's file has the name that was given.
fn ranks_with_files(comm: &Communicator) -> usize {
    if comm.has_owners() { 1 } else { comm.size() }
}

/// The name of a rank's file.
fn file_of(path: &Path, rank: usize, ranks: usize) -> PathBuf {
    if ranks == 1 {
        return path.to_path_buf();
    }
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let rank = format!("{}.rank-{rank:02}", text(path.file_stem()));
    let extension = text(path.extension());
    path.with_file_name(if extension.is_empty() { rank } else { format!("{rank}.{extension}") })
}

/// The files of all ranks, transcripts and the keys that sign them, each with the option that names it.
pub fn files(spec: &Spec, comm: &Communicator) -> Vec<(&'static str, PathBuf)> {
    let ranks = ranks_with_files(comm);
    let Some(path) = &spec.transcript else { return Vec::new() };
    let of_rank = |rank| {
        let transcript = file_of(path, rank, ranks);
        let key = match &spec.transcript_key {
            Some(key) => ("--transcript-key", file_of(key, rank, ranks)),
            None => ("--transcript", beside(&transcript)),
        };
        [("--transcript", transcript), key]
    };
    (0..ranks).flat_map(of_rank).collect()
}

/// Opens the transcript at `path`, signed with the key that belongs to it, and records in `created` which of the two
/// files are new.
fn create(
    request: &Request<'_>,
    nonce: Option<&RunNonce>,
    comm: &Communicator,
    path: &Path,
    created: &mut Created,
) -> Result<Transcript> {
    let named = request.key.map(|key| own(key, comm));
    let of_key = named.clone().unwrap_or_else(|| beside(path));
    let key = signing_key(&of_key, created, |why| {
        let (transcript, key) = (path.display(), of_key.display());
        Error::input(match named {
            Some(_) => format!("--transcript-key {key}: {why}; name another file"),
            None => format!(
                "--transcript {transcript}: the key of a transcript of this name is in {key}, which {why}; name a file for \
                 the key with --transcript-key, or give the transcript another name"
            ),
        })
    })?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| {
        let why = match e.kind() {
            ErrorKind::AlreadyExists => {
                "exists already, and a transcript is never replaced; give another name".to_string()
            }
            _ => format!("cannot be written ({e}); choose a directory of your own"),
        };
        Error::input(format!("--transcript {}: {why}", path.display()))
    })?;
    created.0.push(path.to_path_buf());
    let heading = Heading {
        fednmf_transcript: VERSION,
        method: request.method.into(),
        settings: request.settings.clone(),
        salt: hex(&secret_rng(None, 0)?.next_u64().to_le_bytes()),
        rank: comm.rank(),
        ranks: comm.size(),
        nonce: nonce.map(RunNonce::text),
        site: comm.sign_transcript_key(&hex(key.verifying_key().as_bytes()))?,
        policy: request.consent.policy.clone(),
        proposal: request.consent.proposal.clone(),
    };
    Ok(Transcript::new(Box::new(BufWriter::new(file)), key, &heading))
}

/// The file of a transcript's key, unless --transcript-key names one: not that of a certificate with the transcript's name.
fn beside(transcript: &Path) -> PathBuf {
    let mut name = transcript.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

/// The key of the file, or a new one in a new file that only its owner can read; `wrong` makes the error from a description
/// of the problem.
fn signing_key(path: &Path, created: &mut Created, wrong: impl Fn(&str) -> Error) -> Result<SigningKey> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            created.0.push(path.to_path_buf());
            let mut secret = [0; 32];
            secret_rng(None, 0)?.fill_bytes(&mut secret);
            writeln!(file, "{}", hex(&secret)).map_err(|e| wrong(&format!("cannot be written ({e})")))?;
            Ok(SigningKey::from_bytes(&secret))
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            if !path.is_file() {
                return Err(wrong("is no regular file"));
            }
            let mut text = String::new();
            let read = std::fs::File::open(path).and_then(|file| file.take(1000).read_to_string(&mut text));
            read.map_err(|e| wrong(&format!("cannot be read ({e})")))?;
            let secret = unhex(text.trim()).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            let secret = secret.ok_or_else(|| wrong("holds no key of 64 hexadecimal digits"))?;
            Ok(SigningKey::from_bytes(&secret))
        }
        Err(e) => Err(wrong(&format!("cannot be written ({e})"))),
    }
}
