//! The hub's persistent state of its run: the participating sites and their keys. With it, a hub that was killed
//! continues.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::{Access, replace};

use super::frame::SiteKey;

/// The version of this format.
const FORMAT: u32 = 2;

/// The contents of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    pub fednmf_hub_journal: u32,
    pub version: String,
    pub run: String,
    pub sites: Vec<String>,
    /// The sites' keys by rank, once all have joined.
    pub roster: Vec<SiteKey>,
    /// Sites that have left in good order, by rank.
    pub left: Vec<bool>,
    /// Lost sites without which the others continue, by rank, with the reason.
    #[serde(default, rename = "gone")]
    pub lost: Vec<Option<String>>,
    /// The minimum number of sites with which each site continues, by rank; `None` if it does not.
    #[serde(default, rename = "goes_on")]
    pub min_sites: Vec<Option<usize>>,
    /// The worst exit code of those that have left.
    #[serde(default)]
    pub worst_end: i32,
}

impl Journal {
    /// The journal of a new run.
    pub fn new(version: &str, run: String, sites: &[String]) -> Journal {
        Journal {
            fednmf_hub_journal: FORMAT,
            version: version.into(),
            run,
            sites: sites.to_vec(),
            roster: Vec::new(),
            left: vec![false; sites.len()],
            lost: vec![None; sites.len()],
            min_sites: vec![None; sites.len()],
            worst_end: 0,
        }
    }

    /// The journal in a file; `None` if there is none.
    ///
    /// # Errors
    /// If the file is no journal, or that of another version or of other sites.
    pub fn read(path: &Path, version: &str, sites: &[String]) -> Result<Option<Journal>> {
        let wrong = |why: String| Err(Error::input(format!("--journal {}: {why}", path.display())));
        let text = match fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => return Ok(None),
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return wrong(format!("cannot be read ({e})")),
        };
        let Ok(journal) = serde_json::from_str::<Journal>(&text) else {
            return wrong("exists and is no journal of a hub; give another name".into());
        };
        if journal.fednmf_hub_journal != FORMAT || journal.version != version {
            return wrong(format!(
                "is of a run of fednmf {}, and this is {version}; finish it with that version, or remove the file",
                journal.version
            ));
        }
        let lengths = [journal.left.len(), journal.lost.len(), journal.min_sites.len()];
        if journal.sites != sites || lengths.iter().any(|length| *length != sites.len()) {
            return wrong(format!(
                "is of a run of sites {}, not {}; give the same --sites, or remove the file",
                journal.sites.join(","),
                sites.join(",")
            ));
        }
        Ok(Some(journal))
    }

    /// Replaces the file by this journal in one step.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).expect("plain data");
        let written = replace(path, Access::OwnerOnly, |file| file.write_all(text.as_bytes()));
        written.map_err(|e| {
            Error::input(format!(
                "--journal {}: cannot be written ({e}); choose a directory of your own",
                path.display()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_of_its_sites_and_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.journal");
        let sites = ["a".to_string(), "b".to_string()];
        assert_eq!(Journal::read(&path, "1", &sites), Ok(None));
        let journal = Journal::new("1", "run".into(), &sites);
        journal.write(&path).unwrap();
        assert_eq!(Journal::read(&path, "1", &sites), Ok(Some(journal)));
        assert!(Journal::read(&path, "2", &sites).unwrap_err().message.contains("fednmf 1"));
        assert!(Journal::read(&path, "1", &sites[..1]).unwrap_err().message.contains("a,b"));
        std::fs::write(&path, "notes").unwrap();
        assert!(Journal::read(&path, "1", &sites).unwrap_err().message.contains("no journal"));
    }
}
