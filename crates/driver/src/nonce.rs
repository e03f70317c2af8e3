//! The nonce of a run between sites: random bytes to which each site contributes, and which none can choose. With it, the
//! same command line started again has other public starts. Otherwise the sums of two runs, one of them without a site,
//! would differ by just what that site has sent.
//!
//! Each site sends the digest of its share, and the share itself once it has the digests of all. A checkpoint keeps the nonce,
//! so that a resumed run draws the same numbers.

use rand::Rng as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{CONTROL, Communicator, test_switch};
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_linalg::random::secret_rng;
use fednmf_privacy::Public;
use fednmf_privacy::transcript::{hex, unhex};

use super::spec::Spec;

/// The field of trace, output and checkpoint.
pub const NONCE: &str = "nonce";
/// The sites of a run, in its checkpoint.
const SITES: &str = "sites";
/// Environment variable with which tests give a run the nonce of another one; in debug builds only.
const FIXED: &str = "FEDNMF_NONCE";

/// What a site tells the others of the nonce: its share, or a digest.
#[derive(Serialize, Deserialize)]
struct Told(String);

impl Public for Told {
    const WHY: &'static str = "random numbers, and digests of them";
}

/// The nonce of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunNonce([u8; 32]);

impl RunNonce {
    fn parse(text: &str) -> Option<RunNonce> {
        unhex(text)?.try_into().ok().map(RunNonce)
    }

    /// In hexadecimal digits.
    pub fn text(&self) -> String {
        hex(&self.0)
    }

    /// The seed of public randomness of a run with this nonce and `--seed`.
    pub fn seed(&self, seed: u64) -> u64 {
        let digest =
            Sha256::new().chain_update("fednmf public seed v1").chain_update(self.0).chain_update(seed.to_le_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        digest.first_chunk().map_or(seed, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The digest by which a rank commits itself to its share. It names the rank, so that none can send that of another one.
fn commitment(rank: usize, share: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update("fednmf nonce v1").chain_update((rank as u64).to_le_bytes());
    hex(&digest.chain_update(share).finalize())
}

/// Agrees on the nonce of a run, or reads it from the checkpoint that the run resumes from; `None` if all ranks have the same
/// owner. Collective.
///
/// # Errors
/// On all ranks, if a checkpoint has no nonce or another one than that of another site, or a site does not keep to its
/// commitment.
pub fn agree(spec: &Spec, comm: &Communicator, resuming: bool) -> SharedResult<Option<RunNonce>> {
    if let Some(fixed) = test_switch(FIXED).and_then(|text| RunNonce::parse(&text)) {
        return Ok(Some(fixed));
    }
    if !comm.has_owners() {
        return Ok(None);
    }
    let nonce = match spec.checkpoint.as_deref().filter(|_| resuming) {
        Some(path) => comm.agree_on_error(saved(path))?,
        None => drawn(comm)?,
    };
    // A site may have told others something else.
    let all = comm.all_gather_public(CONTROL, &Told(nonce.text()));
    if all.iter().any(|other| other.0 != all[0].0) {
        let why = match resuming {
            true => "--resume: the checkpoints of the sites are of different runs; start all without --resume",
            false => "a site has told others different shares of the nonce of the run; find out which, and start again",
        };
        return Err(Error::input(why).on_all_ranks());
    }
    Ok(Some(nonce))
}

fn saved(path: &std::path::Path) -> Result<RunNonce> {
    let (_, attributes) = Checkpoint::open(path)?;
    attributes.get(NONCE).and_then(Value::as_str).and_then(RunNonce::parse).ok_or_else(|| {
        Error::input(format!(
            "{}: the checkpoint is of no run between sites, or of an earlier version; start all sites without --resume",
            path.display()
        ))
    })
}

fn drawn(comm: &Communicator) -> SharedResult<RunNonce> {
    let mut own = [0; 32];
    let drawn = secret_rng(None, 0).map(|mut rng| rng.fill_bytes(&mut own));
    comm.agree_on_error(drawn)?;
    let commitments = comm.all_gather_public(CONTROL, &Told(commitment(comm.rank(), &own)));
    let shares = comm.all_gather_public(CONTROL, &Told(hex(&own)));
    let liar = |rank: &usize| {
        RunNonce::parse(&shares[*rank].0).is_none_or(|s| commitment(*rank, &s.0) != commitments[*rank].0)
    };
    if let Some(rank) = (0..comm.size()).find(liar) {
        return Err(Error::failed(format!(
            "{} has not sent the share of the nonce to which it had committed itself; the run ends",
            comm.name_of(rank)
        ))
        .on_all_ranks());
    }
    let all =
        shares.iter().fold(Sha256::new().chain_update("fednmf run nonce v1"), |all, share| all.chain_update(&share.0));
    Ok(RunNonce(all.finalize().into()))
}

/// What a checkpoint and the run that resumes from it have in common: with other sites instead of some, the sums of the
/// same state would differ by what these have sent.
pub fn identity(nonce: Option<&RunNonce>, comm: &Communicator) -> Map<String, Value> {
    let mut all = Map::new();
    if let Some(nonce) = nonce.filter(|_| comm.has_owners()) {
        let names: Vec<String> = (0..comm.size()).map(|rank| comm.name_of(rank)).collect();
        all.insert(NONCE.into(), nonce.text().into());
        all.insert(SITES.into(), names.join(", ").into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_decides_the_seed_and_survives_its_text() {
        let [a, b] = [RunNonce([1; 32]), RunNonce([2; 32])];
        assert_eq!(RunNonce::parse(&a.text()), Some(a.clone()));
        assert_eq!(RunNonce::parse("12"), None);
        assert_ne!(a.seed(0), b.seed(0));
        assert_ne!(a.seed(0), a.seed(1));
    }

    #[test]
    fn a_share_fits_the_commitment_of_its_rank_alone() {
        assert_ne!(commitment(0, &[5; 32]), commitment(1, &[5; 32]), "a copy of another site's");
        assert_ne!(commitment(0, &[5; 32]), commitment(0, &[6; 32]));
    }
}
