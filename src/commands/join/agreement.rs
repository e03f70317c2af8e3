//! What limits a run of this site: its policy, and the proposal that a person here has approved.

use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_comm::SendFilter;
use fednmf_sites::file_digest;

use super::policy::{Hold, Intended, Policy};
use super::proposal::Approved;
use super::work::Work;

/// Whose rules are in `--policy`.
pub const POLICY: &str = "the policy of this site";

/// The rules of a site for a run.
#[derive(Default)]
pub struct Agreement {
    pub policy: Policy,
    pub approved: Option<Approved>,
}

impl Agreement {
    /// The rules, and whose they are.
    fn rules(&self) -> impl Iterator<Item = (&'static str, &Policy)> {
        let approved = self.approved.as_ref().and_then(|approved| approved.proposal.rules.as_ref());
        std::iter::once((POLICY, &self.policy)).chain(approved.map(|rules| ("the approved proposal", rules)))
    }

    /// Who has approved the run.
    pub fn approved_by(&self) -> Option<&str> {
        self.approved.as_ref().map(|approved| approved.by.as_str())
    }

    /// Checks what is known of a run before `site` connects: whether the run is `logged`, and what happens to its results.
    ///
    /// # Errors
    /// If the rules forbid the run, or the own data cannot be read.
    pub fn check(&self, work: &Work, site: &str, logged: bool, hold: Hold) -> Result<()> {
        let own = if self.rules().any(|(_, rules)| rules.asks_shape()) { work.own_shape()? } else { None };
        let run = Intended { work, site, own, approved: self.approved.is_some(), logged, hold };
        self.rules().try_for_each(|(whose, rules)| rules.check(whose, &run))
    }

    /// Checks the sites that take part.
    ///
    /// # Errors
    /// As [`Policy::check_sites`].
    pub fn check_sites(&self, sites: &[String], computing: &[String]) -> Result<()> {
        self.rules().try_for_each(|(whose, rules)| rules.check_sites(whose, sites, computing))
    }

    /// A function that decides whether a message may be sent.
    pub fn send_filter(&self) -> SendFilter {
        let approved = self.approved.as_ref().map(Approved::send_filter);
        let filters: Vec<SendFilter> =
            self.rules().filter_map(|(whose, rules)| rules.send_filter(whose)).chain(approved).collect();
        Box::new(move |tag| filters.iter().try_for_each(|filter| filter(tag)))
    }
}

/// SHA-256 of the file of a policy.
///
/// # Errors
/// If it cannot be read.
pub fn digest_of(policy: &Path) -> Result<String> {
    file_digest(policy).map_err(|e| Error::input(format!("--policy {}: cannot be read ({e})", policy.display())))
}
