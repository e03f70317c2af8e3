//! Many command lines in one start of the launcher. The processes of a batch do one line after the other, each by the
//! calls of `main` and with books of its own: what a start costs (some tenths of a second) is paid once.

use std::process::Command;
use std::time::Duration;

use fednmf::cli;
use fednmf::comm;
use fednmf::comm::{Communicator, MessageTag, Payload};
use fednmf::commands;
use fednmf::error::Error;
use serde_json::{Value, json};

use super::{finish, launch, quiet};

/// Names the file with the lines, to the processes of a batch.
const LINES: &str = "FEDNMF_TEST_LINES";
/// Begins what rank 0 says of a line that is done.
const DONE: &str = "@done ";

/// What became of a line.
#[derive(Debug)]
pub struct Done {
    pub line: String,
    pub code: i64,
    /// The error's words, if there was one.
    pub message: String,
    /// The `--json` summary of a run.
    pub summary: Value,
    /// Resident memory, in KiB, and open files after it: of the rank that has the most.
    pub memory: u64,
    pub files: u64,
}

/// Does all `lines` (words split at blanks) with that many ranks; 0: without the launcher. The program that calls this
/// needs [`crate::batch_of_lines`].
pub fn all(ranks: usize, lines: &[String]) -> Vec<Done> {
    started(ranks, lines, &[])
}

fn started(ranks: usize, lines: &[String], env: &[(&str, String)]) -> Vec<Done> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("lines.json");
    std::fs::write(&file, json!(lines).to_string()).expect("written");
    let this = std::env::current_exe().expect("this program has a path");
    let mut command = if ranks == 0 { Command::new(this) } else { launch(ranks, &this) };
    quiet(&mut command);
    command.args(["batch_of_lines", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(LINES, &file);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let child = command.spawn().expect("this program starts");
    let limit = Duration::from_secs(400);
    let output = finish(child, limit, &format!("a batch of {} lines on {ranks} ranks", lines.len()));
    let mut done: Vec<Done> = Vec::new();
    let mut summary = Value::Null;
    for text in output.stdout.lines() {
        if let Some(end) = text.find("{\"event\":\"end\"") {
            summary = serde_json::from_str(&text[end..]).unwrap_or_else(|e| panic!("{e}: {text}"));
        } else if let Some((_, said)) = text.split_once(DONE) {
            let said: Value = serde_json::from_str(said).unwrap_or_else(|e| panic!("{e}: {text}"));
            done.push(Done {
                line: lines[done.len()].clone(),
                code: said["code"].as_i64().expect("a code"),
                message: said["message"].as_str().unwrap_or_default().to_string(),
                summary: summary.take(),
                memory: said["memory"].as_u64().expect("KiB"),
                files: said["files"].as_u64().expect("a count"),
            });
        }
    }
    let last = lines.get(done.len()).map_or("", String::as_str);
    assert!(output.code == Some(0) && last.is_empty(), "{ranks} ranks: {last}\n{}\n{}", output.stdout, output.stderr);
    done
}

/// As [`all`], and every line must be done with success; the summaries.
pub fn ok(ranks: usize, lines: &[String]) -> Vec<Value> {
    successes(ranks, all(ranks, lines))
}

/// As [`ok`], with at most `chunk` elements in one call of the MPI library.
pub fn in_pieces(ranks: usize, lines: &[String], chunk: usize) -> Vec<Value> {
    successes(ranks, started(ranks, lines, &[("FEDNMF_CHUNK", chunk.to_string())]))
}

fn successes(ranks: usize, done: Vec<Done>) -> Vec<Value> {
    let summary = |d: Done| {
        assert_eq!(d.code, 0, "{ranks} ranks: {}\n{}", d.line, d.message);
        d.summary
    };
    done.into_iter().map(summary).collect()
}

/// A process of a batch; does nothing where none was asked for.
pub fn serve() {
    let Some(file) = std::env::var_os(LINES) else { return };
    let lines: Vec<String> = serde_json::from_slice(&std::fs::read(file).expect("the lines")).expect("a list");
    comm::abort_on_panic();
    let world = Communicator::start().expect("MPI starts");
    for line in lines {
        let comm = world.with_new_ledger();
        let result = perform(&line, &comm);
        if let Err(e) = &result
            && !e.everywhere
        {
            eprintln!("{line}\nfednmf: {e}");
            comm::end_job(e.exit_code());
        }
        let mine = result.as_ref().map_or_else(|e| (e.exit_code(), e.message.clone()), |code| (*code, String::new()));
        // What is said to be known everywhere must be.
        let all: Vec<(i32, String)> = comm.all_gather_value(MessageTag::new("test", Payload::Control), &mine);
        assert!(all.iter().all(|other| *other == all[0]), "{line}: the ranks disagree: {all:?}");
        let mut held = [memory(), open_files()];
        comm.max(MessageTag::new("test", Payload::Control), &mut held);
        if comm.is_root() {
            let said = json!({"code": mine.0, "message": mine.1, "memory": held[0], "files": held[1]});
            println!("\n{DONE}{said}");
        }
    }
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).expect("Linux says how much memory is held")
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

fn perform(line: &str, comm: &Communicator) -> Result<i32, Error> {
    let quiet = if line.starts_with('-') { ["--json", "--quiet"].as_slice() } else { &["--json"] };
    let words = ["fednmf"].into_iter().chain(line.split_whitespace()).chain(quiet.iter().copied());
    let typed = cli::parse(words.map(Into::into)).map_err(Error::on_all_ranks)?;
    commands::perform(typed, comm)
}

/// The test that is a process of a batch, when it is started as one.
#[macro_export]
macro_rules! batch_of_lines {
    () => {
        #[test]
        #[ignore = "started by the other tests, under the launcher"]
        fn batch_of_lines() {
            common::batch::serve();
        }
    };
}
