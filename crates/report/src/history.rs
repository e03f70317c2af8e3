//! The history of a run, read from its trace.

use std::path::{Path, PathBuf};

use serde_json::Value;

use fednmf_base::error::{Error, Result};

/// The history of a run.
#[derive(Debug, Clone)]
pub struct History {
    /// Name of the run in the report.
    pub name: String,
    /// The last start event; a resumed run has several.
    pub start: Value,
    /// The evaluations in order.
    pub evaluations: Vec<Value>,
    /// The end event; `None` if the run has not ended or was killed.
    pub end: Option<Value>,
    /// A second directory for relative paths in the trace.
    pub beside: PathBuf,
}

/// A value of an event, if it is a finite number.
pub fn finite(event: &Value, name: &str) -> Option<f64> {
    event[name].as_f64().filter(|x| x.is_finite())
}

impl History {
    /// Assembles the events of a run.
    ///
    /// # Errors
    /// If there is no start event; the message does not name the file.
    pub fn new(name: String, events: impl IntoIterator<Item = Value>, beside: PathBuf) -> Result<History> {
        let (mut start, mut evaluations, mut end) = (None, Vec::<Value>::new(), None);
        // Each start counts the bytes anew.
        let mut sent_before = 0.0;
        for mut event in events {
            match event["event"].as_str() {
                Some("start") => {
                    (start, end) = (Some(event), None);
                    sent_before = evaluations.last().and_then(|last| finite(last, "bytes_sent")).unwrap_or(0.0);
                }
                Some("iter") => {
                    if let Some(sent) = finite(&event, "bytes_sent") {
                        event["bytes_sent"] = (sent_before + sent).into();
                    }
                    evaluations.push(event);
                }
                Some("end") => end = Some(event),
                _ => {}
            }
        }
        let start = start.ok_or_else(|| {
            Error::input("is not the trace of a run: it has no start event; give the file that --trace wrote")
        })?;
        Ok(History { name, start, evaluations, end, beside })
    }

    /// Reads a trace. An incomplete last line, left by a killed run, is ignored.
    ///
    /// # Errors
    /// If the file cannot be read or is not a trace.
    pub fn read(path: &Path) -> Result<History> {
        let at = |e: Error| e.at(path.display());
        let bytes =
            std::fs::read(path).map_err(|e| at(Error::input(format!("cannot be read ({e}); check the name"))))?;
        if bytes.starts_with(b"\x89HDF") || bytes.starts_with(b"PK") {
            return Err(at(Error::input(
                "is no trace, but perhaps factors; a page is made from the file of --trace, or by a run with --report",
            )));
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut events = Vec::new();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str::<Value>(line) {
                Ok(event) => events.push(event),
                Err(_) if !text.ends_with('\n') && i + 1 == text.lines().count() => {}
                Err(e) => {
                    return Err(at(Error::input(format!(
                        "line {}: is not JSON (column {}); a trace has one object per line",
                        i + 1,
                        e.column()
                    ))));
                }
            }
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let beside = path.parent().map(Path::to_path_buf).unwrap_or_default();
        History::new(name, events, beside).map_err(at)
    }

    /// A parameter of the run; null if it has none of that name.
    pub fn parameter(&self, name: &str) -> &Value {
        &self.start["params"][name]
    }

    pub fn count(&self, name: &str) -> usize {
        self.start[name].as_u64().unwrap_or(0) as usize
    }

    /// The last relative error that was evaluated.
    pub fn error(&self) -> Option<f64> {
        self.evaluations.iter().rev().find_map(|e| finite(e, "rel_error"))
    }

    /// Finds a file that the trace names, under that path or in the trace's directory.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(name);
        let last = path.file_name().map(|name| self.beside.join(name));
        [Some(path.clone()), last].into_iter().flatten().find(|p| p.is_file())
    }

    /// The shell command that repeats the run.
    pub fn command(&self) -> String {
        let mut words = vec!["fednmf".to_string()];
        let typed = self.start["args"].as_array().map_or(&[][..], Vec::as_slice);
        words.extend(typed.iter().skip(1).filter_map(Value::as_str).map(quoted));
        let ranks = self.count("ranks");
        let launch = if ranks > 1 { format!("mpirun -n {ranks} ") } else { String::new() };
        launch + &words.join(" ")
    }
}

/// A word quoted for a POSIX shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Numbers runs of the same name.
pub fn distinguish(histories: &mut [History]) {
    for i in 0..histories.len() {
        let (before, rest) = histories.split_at_mut(i);
        let Some(this) = rest.first_mut() else { continue };
        let name = this.name.clone();
        let mut number = 2;
        while before.iter().any(|c| c.name == this.name) {
            this.name = format!("{name} ({number})");
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn iter(i: u64, error: f64) -> Value {
        json!({"event": "iter", "iter": i, "rel_error": error})
    }

    #[test]
    fn a_resumed_run_has_one_history() {
        let start = |from: u64| json!({"event": "start", "resumed_from": from, "ranks": 2, "args": ["x", "-k", "a b"]});
        let mut events = [start(0), iter(0, 1.0), iter(10, 0.5), iter(15, 0.45), start(15), iter(20, 0.41)];
        (events[3]["bytes_sent"], events[5]["bytes_sent"]) = (150.into(), 50.into());
        let history = History::new("r".into(), events, PathBuf::new()).unwrap();
        let iterations: Vec<u64> = history.evaluations.iter().map(|e| e["iter"].as_u64().unwrap()).collect();
        assert_eq!(iterations, [0, 10, 15, 20]);
        assert_eq!(history.error(), Some(0.41));
        assert_eq!(finite(&history.evaluations[3], "bytes_sent"), Some(200.0));
        assert_eq!(history.command(), "mpirun -n 2 fednmf -k 'a b'");
    }

    #[test]
    fn what_is_no_trace_is_refused_by_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            History::read(&path)
        };
        let start = "{\"event\":\"start\"}\n";
        assert!(read(&format!("{start}{{\"event\":\"it")).is_ok());
        for (text, word) in [("", "no start event"), ("{\"a\":1}\n", "no start"), ("{\"event\":\nx\n", "line 1")] {
            let error = read(text).unwrap_err();
            assert!(error.exit_code() == 2 && error.message.contains(word), "{error}");
        }
        assert!(read(&format!("{start}nonsense\n")).unwrap_err().message.contains("line 2"));
        assert!(History::read(Path::new("/no/such")).unwrap_err().message.contains("cannot be read"));
    }

    #[test]
    fn names_become_unique_and_words_safe() {
        let history = || History::new("a".into(), [json!({"event": "start"})], PathBuf::new()).unwrap();
        let mut all = [history(), history(), history()];
        distinguish(&mut all);
        assert_eq!(all.map(|c| c.name), ["a", "a (2)", "a (3)"]);
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
