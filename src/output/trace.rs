//! The trace: one JSON object per line, each on disk as soon as it is written.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};

/// A trace file, or none. For rank 0.
#[derive(Debug, Default)]
pub struct Trace {
    to: Option<(File, PathBuf)>,
    events: Option<Vec<Value>>,
}

impl Trace {
    /// Truncates the file, or appends to it after cutting off a last line that a killed run left incomplete. Without a
    /// path, events are dropped.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: Option<&Path>, append: bool) -> Result<Self> {
        let Some(path) = path else { return Ok(Trace::default()) };
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().read(append).write(true).create(true).truncate(!append).open(path)?;
            // Pipes and devices cannot be truncated.
            if append && file.metadata()?.is_file() {
                cut_torn_line(&mut file)?;
            }
            Ok(file)
        };
        let file = open().map_err(|e| {
            Error::input(format!("{}: the trace cannot be opened ({e}); check the directory", path.display()))
        })?;
        Ok(Trace { to: Some((file, path.to_path_buf())), events: None })
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

    /// Adds one event.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, event: &Value) -> Result<()> {
        if let Some(events) = &mut self.events {
            events.push(event.clone());
        }
        let Some((file, path)) = &mut self.to else { return Ok(()) };
        // A single unbuffered call: readers see whole lines.
        file.write_all(format!("{event}\n").as_bytes()).map_err(|e| {
            Error::failed(format!("{}: the trace cannot be written ({e}); check the free space", path.display()))
        })
    }
}

/// Truncates the file after its last line feed and seeks to its end.
fn cut_torn_line(file: &mut File) -> std::io::Result<()> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0u8; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let read = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(read)?;
        if let Some(feed) = read.iter().rposition(|&b| b == b'\n') {
            end = start + feed as u64 + 1;
            break;
        }
        end = start;
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(before: &str, append: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut trace = Trace::open(Some(&path), append).unwrap();
        trace.write(&json!({"event": "iter", "iter": 3})).unwrap();
        std::fs::read_to_string(&path).unwrap()
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
            assert_eq!(after(&before, true), format!("{kept}{line}"));
            assert_eq!(after(&before, false), line);
        }
    }

    #[test]
    fn no_path_no_trace_and_a_wrong_path_is_told() {
        Trace::open(None, false).unwrap().write(&json!({})).unwrap();
        let error = Trace::open(Some(Path::new("/no/such/t.jsonl")), false).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(Trace::open(Some(Path::new("/dev/full")), true).unwrap().write(&json!({})).is_err());
    }
}
