//! The trace: one JSON object per line, each on disk as soon as it is written.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::{Access, open_to_write};
use fednmf_base::warning::warn;

/// A trace file, or none. For rank 0.
#[derive(Debug, Default)]
pub struct Trace {
    to: Option<(File, PathBuf)>,
    events: Option<Vec<Value>>,
    evaluated_at: Option<u64>,
}

impl Trace {
    /// Truncates the file or, for a run that continues from the iteration `resumed_from`, appends to it. A killed run
    /// may have left evaluations of later iterations, which the resumed run repeats, and an incomplete last line; they
    /// are removed. Without a path, events are dropped.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: Option<&Path>, resumed_from: Option<usize>, access: Access) -> Result<Self> {
        let Some(path) = path else { return Ok(Trace::default()) };
        let append = resumed_from.is_some();
        let open = || -> std::io::Result<(File, Option<u64>)> {
            let mut options = OpenOptions::new();
            options.read(append).write(true).create(true).truncate(!append);
            let mut file = match access {
                Access::Default => open_to_write(path, &mut options)?,
                Access::OwnerOnly => open_to_write(path, options.mode(0o600))?,
            };
            // It may have been there.
            if access == Access::OwnerOnly && file.metadata()?.is_file() {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            let evaluated_at = match resumed_from {
                // Pipes and devices cannot be truncated.
                Some(iteration) if file.metadata()?.is_file() => remove_later(&mut file, iteration as u64)?,
                _ => None,
            };
            Ok((file, evaluated_at))
        };
        let (file, evaluated_at) = open().map_err(|e| {
            Error::input(format!("{}: the trace cannot be opened ({e}); check the directory", path.display()))
        })?;
        Ok(Trace { to: Some((file, path.to_path_buf())), evaluated_at, ..Trace::default() })
    }

    /// The last iteration whose evaluation the file had when it was opened.
    pub fn evaluated_at(&self) -> Option<usize> {
        self.evaluated_at.map(|iteration| iteration as usize)
    }

    /// Holds the events in memory too, for [`Trace::events`].
    #[must_use]
    pub fn in_memory(self) -> Self {
        Trace { events: Some(Vec::new()), ..self }
    }

    /// The events held in memory.
    pub fn events(&self) -> &[Value] {
        self.events.as_deref().unwrap_or_default()
    }

    /// Adds one event. A file that cannot be written is given up with a warning: a log must not end a run of days.
    pub fn write(&mut self, event: &Value) {
        if let Some(events) = &mut self.events {
            events.push(event.clone());
        }
        let Some((file, path)) = &mut self.to else { return };
        // A single unbuffered call: readers see whole lines.
        if let Err(e) = file.write_all(format!("{event}\n").as_bytes()) {
            warn(&format!(
                "--trace {}: cannot be written ({e}); the run continues, and its trace ends here",
                path.display()
            ));
            self.to = None;
        }
    }
}

/// Removes evaluations after this iteration and an incomplete last line, and seeks to the end. Returns the last iteration
/// whose evaluation remains.
fn remove_later(file: &mut File, iteration: u64) -> std::io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    bytes.truncate(bytes.iter().rposition(|&b| b == b'\n').map_or(0, |feed| feed + 1));
    let (mut kept, mut evaluated_at) = (Vec::with_capacity(bytes.len()), None);
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let evaluated = event["iter"].as_u64().filter(|_| event["event"] == "iter");
        if evaluated.is_none_or(|at| at <= iteration) {
            kept.extend_from_slice(line);
            evaluated_at = evaluated_at.max(evaluated);
        }
    }
    // The unchanged beginning is not rewritten, so that a kill in between cannot lose it.
    let same = kept.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
    file.set_len(same as u64)?;
    file.seek(SeekFrom::Start(same as u64))?;
    file.write_all(&kept[same..])?;
    Ok(evaluated_at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_named_pipe_without_a_reader_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for access in [Access::Default, Access::OwnerOnly] {
            let refused = Trace::open(Some(&path), None, access).unwrap_err();
            assert!(refused.message.contains("nobody reads"), "{refused}");
        }
    }

    fn after(before: &str, resumed_from: Option<usize>) -> (String, Option<usize>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut trace = Trace::open(Some(&path), resumed_from, Access::Default).unwrap();
        trace.write(&json!({"event": "iter", "iter": 3}));
        (std::fs::read_to_string(&path).unwrap(), trace.evaluated_at())
    }

    #[test]
    fn a_resumed_trace_continues_after_the_last_whole_line() {
        let line = "{\"event\":\"iter\",\"iter\":3}\n";
        let long = "y".repeat(10_000);
        for (before, kept) in [
            (String::new(), String::new()),
            ("{\"a\":1}\n".into(), "{\"a\":1}\n".into()),
            ("{\"a\":1}\n{\"b\":".into(), "{\"a\":1}\n".into()),
            ("{\"b\":".into(), String::new()),
            (format!("{{\"a\":1}}\n{long}"), "{\"a\":1}\n".into()),
            (format!("{long}\n{long}"), format!("{long}\n")),
            (long.clone(), String::new()),
        ] {
            assert_eq!(after(&before, Some(2)), (format!("{kept}{line}"), None));
            assert_eq!(after(&before, None), (line.to_string(), None));
        }
    }

    #[test]
    fn a_resumed_trace_loses_the_evaluations_that_are_repeated() {
        let lines = |iterations: &[u64]| -> String {
            iterations.iter().map(|i| format!("{{\"event\":\"iter\",\"iter\":{i}}}\n")).collect()
        };
        let (start, end) = ("{\"event\":\"start\"}\n", "{\"event\":\"end\",\"iter\":20}\n");
        let before = format!("{start}{}{start}{}{end}", lines(&[0, 5, 10]), lines(&[15, 20]));
        let kept = format!("{start}{}{start}{end}{}", lines(&[0, 5, 10]), lines(&[3]));
        assert_eq!(after(&before, Some(14)), (kept, Some(10)));
        assert_eq!(after(&before, Some(20)), (before.clone() + &lines(&[3]), Some(20)));
    }

    #[test]
    fn no_path_no_trace_and_a_wrong_path_is_reported() {
        Trace::open(None, None, Access::Default).unwrap().write(&json!({}));
        let error = Trace::open(Some(Path::new("/no/such/t.jsonl")), None, Access::Default).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let mut full = Trace::open(Some(Path::new("/dev/full")), Some(0), Access::Default).unwrap();
        full.write(&json!({}));
        assert!(full.to.is_none(), "given up");
    }
}
