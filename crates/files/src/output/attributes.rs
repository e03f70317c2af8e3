//! Provenance of a result: program version, git revision, time and machine.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use fednmf_base::host;

pub use fednmf_base::clock::now;

/// The program's version, as in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

static REVISION: OnceLock<&str> = OnceLock::new();

/// Sets the git revision that the program was built from. The first call counts.
pub fn set_revision(revision: &'static str) {
    let _ = REVISION.set(revision);
}

/// The git revision that the program was built from, or `unknown`.
pub fn revision() -> &'static str {
    REVISION.get().copied().unwrap_or("unknown")
}

/// `version`, `git`, `date` (now, UTC) and `host` of this process.
pub fn provenance() -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("version".into(), VERSION.into());
    map.insert("git".into(), revision().into());
    map.insert("date".into(), now().into());
    map.insert("host".into(), hostname().into());
    map
}

/// The name of this machine, or `unknown`.
pub fn hostname() -> String {
    host::name().unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_is_complete() {
        let map = provenance();
        for key in ["version", "git", "date", "host"] {
            assert!(map[key].as_str().is_some_and(|s| !s.is_empty()), "{key}");
        }
    }
}
