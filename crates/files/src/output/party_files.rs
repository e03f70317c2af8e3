//! The parties' files that belong to a shared file, by name: `F.party-03.h5`, for a checkpoint `F.party-03.g17.h5`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use fednmf_base::unfinished::directory;

use crate::output::stored::{GENERATION, PARTY, PARTY_FILES, Stored};

/// The contents of a party's file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartyName {
    pub party: usize,
    /// Generation of a checkpoint.
    pub generation: Option<u64>,
}

impl PartyName {
    /// Parses `path`, if its name is that of a party's file of `shared`; the directory does not matter.
    pub fn of(shared: &Path, path: &Path) -> Option<Self> {
        if shared.extension() != path.extension() {
            return None;
        }
        let (stem, name) = (shared.file_stem()?.to_str()?, path.file_stem()?.to_str()?);
        let number = name.strip_prefix(stem)?.strip_prefix(".party-")?;
        let (party, generation) = number.split_once(".g").map_or((number, None), |(party, g)| (party, Some(g)));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(party) || !generation.is_none_or(digits) {
            return None;
        }
        Some(PartyName { party: party.parse().ok()?, generation: generation.map(str::parse).transpose().ok()? })
    }

    /// Whether the file at `path`, which has this name, is the party's file that fednmf wrote, and unchanged.
    pub fn is_own(self, path: &Path) -> bool {
        let Ok(stored) = Stored::open(path) else { return false };
        let number = |name: &str| stored.attributes().get(name).and_then(Value::as_u64);
        stored.is_unchanged()
            && stored.attributes().contains_key(PARTY_FILES)
            && number(PARTY) == Some(self.party as u64)
            && number(GENERATION) == self.generation
    }
}

/// Existing files with the names of parties' files of `shared`.
pub fn beside(shared: &Path) -> Vec<(PathBuf, PartyName)> {
    let all = fs::read_dir(directory(shared)).into_iter().flatten().flatten();
    all.filter_map(|entry| PartyName::of(shared, &entry.path()).map(|name| (entry.path(), name))).collect()
}

/// Removes the parties' files that an earlier run left for the output at `shared`: those whose names are not among
/// `written`. Files that fednmf did not write stay. A file that cannot be removed does no harm: readers recognise that it
/// does not belong to the output.
pub fn remove_stale(shared: &Path, written: &[String]) {
    for (path, name) in beside(shared) {
        let current = path.file_name().is_some_and(|file| written.iter().any(|name| **name == *file));
        if name.generation.is_none() && !current && name.is_own(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised() {
        let name = |path: &str| PartyName::of(Path::new("out/F.h5"), Path::new(path)).map(|n| (n.party, n.generation));
        assert_eq!(name("F.party-03.h5"), Some((3, None)));
        assert_eq!(name("out/F.party-3.h5"), Some((3, None)));
        assert_eq!(name("F.party-103.g17.h5"), Some((103, Some(17))));
        for other in [
            "F.h5",
            "F.party-03.npz",
            "G.party-03.h5",
            "F.party-.h5",
            "F.party-x.h5",
            "F.party-03.g.h5",
            "F.party-03.x.h5",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
