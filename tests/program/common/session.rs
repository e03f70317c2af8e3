//! Sessions: ranks that are started once and then perform one command line after the other, with the calls of `main`.
//! A start of the launcher costs some tenths of a second, which is more than most runs of the tests take.
//!
//! A session is this test program again, started as the ignored test [`process`]. Each rank reads its requests from a
//! socket, where an idle rank costs no processor time. The stdout of rank 0 is another socket: through the launcher, what
//! other ranks print could come between two parts of a long line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use fednmf::cli;
use fednmf_base::error::{EXIT_DONE, Error};
use fednmf_comm as comm;
use fednmf_comm::{Communicator, MessageTag, Payload};

use super::{launch, quiet};

/// Names the socket of the requests to the processes of a session, and that of the answers.
const REQUESTS: &str = "FEDNMF_TEST_REQUESTS";
const ANSWERS: &str = "FEDNMF_TEST_ANSWERS";
/// Begins the line in which rank 0 reports a completed request.
const DONE: &str = "@done ";
/// Begins a request for a function of this program instead of a command line; see [`on_ranks`].
const FUNCTION: &str = "@";
/// Time limit of a command line of a batch.
const LIMIT: Duration = Duration::from_secs(300);
/// Sessions of more ranks than this end after use: they hold memory.
const MOST_RANKS_TO_KEEP: usize = 8;

/// Outcome of a request.
#[derive(Debug)]
pub struct Done {
    pub line: String,
    pub code: i64,
    /// The error message, if there was one.
    pub message: String,
    /// The `--json` summary of a run, or what a function returned.
    pub summary: Value,
    /// Resident memory, in KiB, and open files afterwards: of the rank that has the most.
    pub memory: u64,
    pub files: u64,
}

pub struct Session {
    ranks: usize,
    child: Child,
    requests: Vec<UnixStream>,
    answers: Receiver<String>,
    /// What the processes wrote to stderr.
    errors: Arc<Mutex<String>>,
}

static IDLE: Mutex<BTreeMap<usize, Vec<Session>>> = Mutex::new(BTreeMap::new());

impl Session {
    /// Starts that many ranks; 0: one process without the launcher.
    pub fn start(ranks: usize, env: &[(&str, &str)]) -> Session {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [for_requests, for_answers] = ["requests", "answers"].map(|name| dir.path().join(name));
        let [listener, of_answers] =
            [&for_requests, &for_answers].map(|path| UnixListener::bind(path).expect("a socket"));
        listener.set_nonblocking(true).expect("a socket that does not block");
        let this = std::env::current_exe().expect("this program has a path");
        let mut command = if ranks == 0 { Command::new(this) } else { launch(ranks, &this) };
        quiet(&mut command);
        command.args(["common::session::process", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(REQUESTS, &for_requests).env(ANSWERS, &for_answers).envs(env.iter().copied());
        let mut child = command.stdout(Stdio::null()).spawn().expect("this program starts");
        let (sender, answers) = channel();
        let errors = Arc::new(Mutex::new(String::new()));
        let (mut stderr, all) = (child.stderr.take().expect("a pipe"), Arc::clone(&errors));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut bytes) {
                all.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        let mut session = Session { ranks, child, requests: Vec::new(), answers, errors };
        let begun = Instant::now();
        while session.requests.len() < ranks.max(1) {
            match listener.accept() {
                Ok((stream, _)) => session.requests.push(stream),
                Err(_) => {
                    let ended = session.child.try_wait().expect("a child can be waited for");
                    assert!(ended.is_none() && begun.elapsed() < LIMIT, "{}", session.failed("no start"));
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
        // Rank 0 has connected for its answers before it did for its requests.
        let stdout = BufReader::new(of_answers.accept().expect("rank 0 has connected").0);
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        session
    }

    /// Performs a request on all ranks. The session must not be used again after an error.
    ///
    /// # Errors
    /// If the ranks end or exceed the time limit; the text holds what they wrote.
    pub fn perform(&mut self, words: &[String], limit: Duration) -> Result<Done, String> {
        let request = format!("{}\n", json!(words));
        for rank in &mut self.requests {
            if rank.write_all(request.as_bytes()).is_err() {
                return Err(self.failed("a rank has ended"));
            }
        }
        let (begun, mut summary, mut text) = (Instant::now(), Value::Null, String::new());
        loop {
            let line = match self.answers.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(line) => line,
                Err(why) => {
                    let why = if why == RecvTimeoutError::Timeout { "no end in time" } else { "the ranks have ended" };
                    return Err(self.failed(&format!("{}: {why}\n{text}", words.join(" "))));
                }
            };
            if let Some(end) = line.find("{\"event\":\"end\"") {
                summary = serde_json::from_str(&line[end..]).unwrap_or_else(|e| panic!("{e}: {line}"));
            } else if let Some((_, done)) = line.split_once(DONE) {
                let done: Value = serde_json::from_str(done).unwrap_or_else(|e| panic!("{e}: {line}"));
                return Ok(Done {
                    line: words.join(" "),
                    code: done["code"].as_i64().expect("a code"),
                    message: done["message"].as_str().unwrap_or_default().to_string(),
                    summary: if done["result"].is_null() { summary } else { done["result"].clone() },
                    memory: done["memory"].as_u64().expect("KiB"),
                    files: done["files"].as_u64().expect("a count"),
                });
            }
            text = text + &line + "\n";
        }
    }

    /// Ends the processes; the message with what they wrote to stderr.
    fn failed(&mut self, why: &str) -> String {
        self.requests.clear();
        std::thread::sleep(Duration::from_millis(100));
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = self.errors.lock().expect("no panic");
        format!("{} ranks: {why}\n{errors}", self.ranks)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without requests the ranks finalize MPI and end.
        self.requests.clear();
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Performs a command line in an idle session of that many ranks, or in a new one.
///
/// # Errors
/// If the ranks end or exceed the time limit.
pub fn perform(ranks: usize, words: &[String], limit: Duration) -> Result<Done, String> {
    // Threads are started once in a process.
    if words.iter().any(|word| word.starts_with("--threads")) {
        return Session::start(ranks, &[]).perform(words, limit);
    }
    let idle = IDLE.lock().expect("no panic").get_mut(&ranks).and_then(Vec::pop);
    let mut session = idle.unwrap_or_else(|| Session::start(ranks, &[]));
    let done = session.perform(words, limit)?;
    if ranks <= MOST_RANKS_TO_KEEP {
        IDLE.lock().expect("no panic").entry(ranks).or_default().push(session);
    }
    Ok(done)
}

/// Performs all `lines` (words split at blanks) in one new session.
pub fn all(ranks: usize, lines: &[String]) -> Vec<Done> {
    in_one(Session::start(ranks, &[]), lines)
}

/// As [`all`], but every line must succeed; the summaries.
pub fn ok(ranks: usize, lines: &[String]) -> Vec<Value> {
    successes(ranks, all(ranks, lines))
}

/// As [`ok`], with at most `chunk` elements in one call of the MPI library.
pub fn in_pieces(ranks: usize, lines: &[String], chunk: usize) -> Vec<Value> {
    successes(ranks, in_one(Session::start(ranks, &[("FEDNMF_CHUNK", &chunk.to_string())]), lines))
}

fn in_one(mut session: Session, lines: &[String]) -> Vec<Done> {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    lines.iter().map(|line| session.perform(&words(line), LIMIT).unwrap_or_else(|why| panic!("{why}"))).collect()
}

fn successes(ranks: usize, done: Vec<Done>) -> Vec<Value> {
    let summary = |d: Done| {
        assert_eq!(d.code, 0, "{ranks} ranks: {}\n{}", d.line, d.message);
        d.summary
    };
    done.into_iter().map(summary).collect()
}

/// Declares tests inside the ranks: each function runs in one process and, with MPI, on 1, 2, 3 and 4 ranks; what it
/// returns must not depend on their number. Defines `call`, with which the ranks find the function.
macro_rules! on_ranks {
    ($($name:ident: $function:path,)*) => {
        $(#[test]
        fn $name() {
            $crate::common::session::on_any_number_of_ranks(concat!(module_path!(), "::", stringify!($name)));
        })*

        pub fn call(name: &str, comm: &fednmf_comm::Communicator) -> Option<serde_json::Value> {
            $(if name == concat!(module_path!(), "::", stringify!($name)) {
                return Some($function(comm).into());
            })*
            None
        }
    };
}
pub(crate) use on_ranks;

pub fn on_any_number_of_ranks(function: &str) {
    // 0: one process without the launcher.
    let ranks: &[usize] = if cfg!(feature = "mpi") { &[0, 1, 2, 3, 4] } else { &[0] };
    let call = |&ranks: &usize| {
        let done = perform(ranks, &[format!("{FUNCTION}{function}")], LIMIT);
        done.unwrap_or_else(|why| panic!("{why}")).summary
    };
    let returned: Vec<Value> = ranks.iter().map(call).collect();
    assert!(returned.iter().all(|r| *r == returned[0]), "the result depends on the number of ranks: {returned:?}");
}

/// A rank of a session; does nothing unless it was started as one.
#[test]
#[ignore = "a rank of a session, started by other tests"]
fn process() {
    let [Some(requests), Some(answers)] = [REQUESTS, ANSWERS].map(std::env::var_os) else { return };
    comm::abort_on_panic();
    let world = Communicator::start().expect("the ranks connect");
    if world.is_root() {
        let answers = UnixStream::connect(answers).expect("the test listens");
        rustix::stdio::dup2_stdout(answers).expect("stdout can be replaced");
    }
    let requests = UnixStream::connect(requests).expect("the test listens");
    for request in BufReader::new(requests).lines().map_while(Result::ok) {
        let words: Vec<String> = serde_json::from_str(&request).expect("a list of words");
        let comm = world.with_new_ledger();
        let mut returned = Value::Null;
        let result = match words.first().and_then(|word| word.strip_prefix(FUNCTION)) {
            Some(function) => {
                let found = crate::ranks::call(function, &comm).or_else(|| crate::data_ranks::call(function, &comm));
                returned = found.expect("a function of this program");
                Ok(0)
            }
            None => command(&words, &comm),
        };
        if let Err(e) = &result
            && !e.is_shared()
        {
            eprintln!("{}\nerror: {e}", words.join(" "));
            comm::end_job(e.exit_code());
        }
        let own = result.as_ref().map_or_else(|e| (e.exit_code(), e.message.clone()), |code| (*code, String::new()));
        // An error that claims to be the same on all ranks must be.
        let all: Vec<(i32, String)> = comm.all_gather_value(MessageTag::new("test", Payload::Metadata), &own);
        assert!(all.iter().all(|other| *other == all[0]), "{words:?}: the ranks disagree: {all:?}");
        let mut held = [memory(), open_files()];
        comm.max(MessageTag::new("test", Payload::Metadata), &mut held);
        if comm.is_root() {
            let done = json!({
                "code": own.0, "message": own.1, "memory": held[0], "files": held[1], "result": returned,
            });
            println!("\n{DONE}{done}");
        }
    }
}

/// Resident memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).expect("Linux reports the resident memory")
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

/// Processes a command line as `main` does.
fn command(words: &[String], comm: &Communicator) -> Result<i32, Error> {
    let run = words.first().is_none_or(|word| word.starts_with('-'));
    let quiet = if run { ["--json", "--quiet"].as_slice() } else { &[] };
    let quiet = quiet.iter().filter(|word| !words.iter().any(|w| w == *word));
    let words = ["fednmf"].into_iter().chain(words.iter().map(String::as_str)).chain(quiet.copied());
    let request = cli::parse(words.map(Into::into)).map_err(Error::on_all_ranks)?;
    if cli::answer(&request).map_err(Error::on_all_ranks)?.is_some() {
        return Ok(EXIT_DONE);
    }
    cli::perform(request, comm)
}
