//! What goes wrong on a cluster: ranks that are killed, that hang, that fail alone; disks that are full. The job ends, with
//! a message and a code; nothing is half written under its final name; the last good checkpoint leads on.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::processes::{ranks_of, send, signal, wait_for, wait_until_gone};
use common::{batch, data, factor, fednmf, finish, launch, lines, matrix};
use fednmf::comm;
use fednmf::comm::Communicator;
use fednmf::error::Error;
use fednmf::random::{Purpose, Stream};
use tempfile::tempdir;

batch_of_lines!();

/// A run that never ends by itself.
const ENDLESS: &str = "--input synthetic:planted,m=1500,n=400 -k 10 --eval-every 0 --max-iters 1000000000";

#[test]
fn a_rank_that_stands_still_ends_the_job_and_all_say_where_they_were() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let child = fednmf(3, &format!("--algo dsanls {ENDLESS} --stall-timeout 2 --checkpoint-every 20 --checkpoint"))
        .arg(&checkpoint)
        .spawn();
    wait_for(&checkpoint);
    // The last one: rank 2, most probably, and one that cannot say anything any more.
    signal("STOP", &ranks_of(child.id())[2..]);
    let start = Instant::now();
    let output = finish(child, Duration::from_secs(30), "a job with a rank that stands still");
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    wait_until_gone(&checkpoint);
    assert!(output.code != Some(0) && output.code != Some(75), "{output:?}");
    let told = output.stderr.matches("has made no progress for 1 s: waiting for other ranks in '").count();
    assert_eq!(told, 2, "{}", output.stderr);
    assert!(
        output.stderr.contains("has made no progress for 2 s") && output.stderr.contains("after iteration"),
        "{output:?}"
    );
}

/// A named pipe that nobody reads hangs whoever opens it, as a file system does that does not answer.
#[test]
fn a_file_system_that_does_not_answer_ends_the_job() {
    let dir = tempdir().unwrap();
    let pipe = dir.path().join("t.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = fednmf(3, "--algo hals --input synthetic:planted,m=40,n=30 -k 2 --stall-timeout 1 --trace")
        .arg(&pipe)
        .limit(20)
        .run();
    assert!(output.code != Some(0), "{output:?}");
    assert!(
        output.stderr.contains("rank 0 has made no progress for 0.5 s: working on 'opening the trace'"),
        "{output:?}"
    );
    for rank in 1..3 {
        let told = format!("rank {rank} has made no progress for 0.5 s: waiting for other ranks in 'agreement'");
        assert!(output.stderr.contains(&told), "{told}\n{}", output.stderr);
    }
}

/// How a rank goes wrong, to the processes of the test below.
const WRONG: &str = "FEDNMF_TEST_WRONG";

#[test]
#[ignore = "started by the test below, under the launcher"]
fn one_rank_goes_wrong() {
    let Ok(how) = std::env::var(WRONG) else { return };
    comm::abort_on_panic();
    let comm = Communicator::start().expect("MPI starts");
    if comm.rank() == 1 {
        match how.as_str() {
            "panic" => panic!("for the test"),
            "error" => {
                eprintln!("fednmf: {}", Error::input("for the test"));
                comm::end_job(2);
            }
            _ => std::process::exit(0), // without a word to the MPI library
        }
    }
    comm.barrier();
}

#[test]
fn a_rank_that_fails_alone_ends_the_job() {
    for (how, code, words) in [
        ("panic", Some(1), "internal error: for the test"),
        ("error", Some(2), "fednmf: for the test"),
        ("exit", None, ""),
    ] {
        let mut command = launch(3, &std::env::current_exe().unwrap());
        command
            .args(["one_rank_goes_wrong", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(WRONG, how);
        let start = Instant::now();
        let output = finish(command.spawn().unwrap(), Duration::from_secs(30), how);
        assert!(start.elapsed() < Duration::from_secs(10), "{how}: {:?}", start.elapsed());
        assert!(output.code != Some(0) && (code.is_none() || output.code == code), "{how}: {output:?}");
        assert!(words.is_empty() || output.stderr.matches(words).count() == 1, "{how}: {output:?}");
    }
}

/// The binary as one rank, no file of which may grow beyond `kib`: as on a full disk, a write fails.
fn on_a_full_disk(kib: usize, line: &str) -> common::Output {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_fednmf")).args(line.split_whitespace());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child, Duration::from_secs(60), line)
}

#[test]
fn a_full_disk_costs_no_checkpoint_and_no_run() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // Factors of 14 MB: the files that an MPI library makes for itself have to fit.
    let run = "--algo dsanls -k 30 --eval-every 0 --input synthetic:sparse,m=60000,n=400,density=0.001,seed=4";
    let line = |iterations: usize| {
        format!("{run} --max-iters {iterations} --checkpoint-every 2 --checkpoint {}", file("c.h5").display())
    };
    fednmf(0, &line(4)).ok();
    let good = std::fs::read(file("c.h5")).unwrap();
    for mib in [7, 13] {
        let output = on_a_full_disk(mib << 10, &format!("{} --resume", line(10)));
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.matches("fednmf: warning: no checkpoint: ").count() >= 3, "{output:?}");
        assert!(output.stderr.contains("c.h5: cannot be written"), "{output:?}");
        assert!(output.stderr.contains("came to its end, but the last checkpoint is not"), "{output:?}");
        assert!(std::fs::read(file("c.h5")).unwrap() == good, "the last good one is another one now");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something half written is left");
    }
    // An output that does not fit is no output.
    let output = on_a_full_disk(7 << 10, &format!("{run} --max-iters 1 --output {}", file("o.h5").display()));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("o.h5: cannot be written") && !file("o.h5").exists(), "{output:?}");
    // With room again it goes on from where the disk was full.
    let rest = fednmf(0, &format!("{} --resume --output", line(10))).arg(file("rest.h5")).ok();
    assert_eq!(rest["resumed_from"], 4);
    fednmf(0, &format!("{run} --max-iters 10 --output")).arg(file("whole.h5")).ok();
    assert_eq!(matrix(&file("rest.h5"), "U"), matrix(&file("whole.h5"), "U"));
}

#[test]
fn a_party_that_cannot_write_is_named_and_the_last_good_checkpoint_stays() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = |iterations: usize| {
        let input = "--algo syn-sd --parties 3 --input synthetic:planted,m=40,n=30 -k 3";
        format!("{input} --max-iters {iterations} --checkpoint-every 5 --checkpoint {}", file("c.h5").display())
    };
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fednmf(2, &line(5)).ok();
    let before = names();
    // In the way of the next generation of party 2, which the second rank hosts.
    let own = before.iter().filter_map(|n| n.to_str()).find(|n| n.contains("party-02")).unwrap();
    let number: u64 = own.split(".g").nth(1).unwrap().trim_end_matches(".h5").parse().unwrap();
    let blocked = file(&own.replace(&format!(".g{number}"), &format!(".g{}", number + 1)).replace(".h5", ".h5.part"));
    std::fs::create_dir(&blocked).unwrap();
    let output = fednmf(2, &format!("{} --resume", line(20))).run();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("warning: no checkpoint: ") && output.stderr.contains("party-02"), "{output:?}");
    std::fs::remove_dir(blocked).unwrap();
    assert_eq!(names(), before);
    assert_eq!(fednmf(2, &format!("{} --resume", line(20))).ok()["resumed_from"], 5);
}

#[test]
fn numbers_that_run_away_leave_the_last_good_factors_and_checkpoint() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // Steps far too long, and a checkpoint after each iteration.
    let line =
        "--algo dsanls --solver pgd --mu absolute --mu-alpha 1e5 --mu-beta 0 --max-iters 60 --eval-every 1 --input";
    let run = fednmf(2, line).arg(data("digits.npy")).args(["--checkpoint-every", "1", "--checkpoint"]);
    let output = run.arg(file("c.h5")).arg("--output").arg(file("o.h5")).run();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("no longer finite numbers"), "{output:?}");
    assert!(output.stderr.contains("the last good ones, are in "), "{output:?}");
    for kept in ["o.h5", "c.h5"] {
        assert!(["U", "V"].iter().all(|name| matrix(&file(kept), name).iter().all(|x| x.is_finite())), "{kept}");
    }
    let error: f64 = hdf5::File::open(file("o.h5")).unwrap().attr("rel_error").unwrap().read_scalar().unwrap();
    assert!(error <= 1.0, "{error} is not good");
}

/// The algorithm families, each with a run of about a second.
const FAMILIES: &[&str] = &[
    "--algo dsanls --input synthetic:planted,m=2000,n=600 -k 10 --max-iters 600",
    "--algo hals --input synthetic:planted,m=2000,n=600 -k 10 --max-iters 80",
    "--algo secure-hals --parties 5 --secure-sum --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 150",
    "--algo syn-ssd-uv --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 150",
    "--algo asyn-sd --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 400",
    "--algo fnmf --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 60",
    "--algo felb --parties 5 --input synthetic:planted,m=1000,n=200 --binarize 0.6 -k 8 --max-iters 100",
    "--algo ppdnmf --parties 5 --plain --secret-seed 1 --input synthetic:planted,m=300,n=200 -k 5 --max-iters 60 --admm-iters 4",
];

/// What a kill left.
struct Fault {
    family: usize,
    after: Duration,
    gone: Duration,
    code: Option<i32>,
    /// The iteration that the run went on from.
    resumed_from: Option<u64>,
}

/// Kills a rank `after` the start, and goes on from what is left. None where the run was over by then.
fn kill_one(family: usize, after: Duration, which: usize) -> Option<Fault> {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = || {
        fednmf(3, FAMILIES[family])
            .arg("--checkpoint")
            .arg(file("c.h5"))
            .args(["--checkpoint-every", "0.05s"])
            .arg("--output")
            .arg(file("o.h5"))
    };
    let start = Instant::now();
    let child = run().spawn();
    std::thread::sleep(after);
    // On a busy machine a rank may come late.
    let mut ranks = ranks_of(child.id());
    while ranks.is_empty() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
        ranks = ranks_of(child.id());
    }
    let hit = ranks.get(which % ranks.len().max(1)).is_some_and(|pid| send("KILL", *pid));
    let killed = Instant::now();
    let limit = Duration::from_secs(if hit { 30 } else { 120 });
    let output = finish(child, limit, &format!("{}, killed: {hit}, of {ranks:?}", FAMILIES[family]));
    let gone = killed.elapsed();
    let what = format!("{}, rank {which} killed after {after:?} ({:?})", FAMILIES[family], start.elapsed());
    // What has its final name is whole, whatever happened.
    if file("o.h5").exists() {
        assert!(["U", "V"].iter().all(|name| factor(&file("o.h5"), name).iter().all(|x| x.is_finite())), "{what}");
    }
    if output.code == Some(0) {
        // No rank was there yet or any more, or it had nothing left to do.
        assert!(file("o.h5").exists(), "{what}");
        return None;
    }
    assert!(hit, "{what}: ended by itself: {output:?}");
    assert!(gone < Duration::from_secs(10), "{what}: gone after {gone:?}");
    wait_until_gone(&file("c.h5"));
    // MPICH's launcher says it on the other stream.
    let told = (output.stdout.clone() + &output.stderr).to_lowercase();
    // Of a rank that was gone before MPI was up, Open MPI says the exit code alone.
    let words = ["killed", "signal 9", "lost", "job has been aborted"];
    assert!(words.iter().any(|w| told.contains(w)), "{what}: {output:?}");
    let rest = run().arg("--resume").ok();
    let resumed_from = rest["resumed_from"].as_u64();
    assert!(file("o.h5").exists() && rest["stopped_by"] == "max_iters", "{what}: {rest}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().ends_with(".part")), "{what}: {left:?}");
    Some(Fault { family, after, gone, code: output.code, resumed_from })
}

/// `FEDNMF_FAULTS=100 cargo test --release --test faults killed -- --nocapture` for the long form, with a table.
#[test]
fn a_killed_rank_takes_the_job_along_and_nothing_is_lost() {
    let asked: Option<usize> = std::env::var("FEDNMF_FAULTS").ok().and_then(|n| n.parse().ok());
    let seed = std::env::var("FEDNMF_FAULTS_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut random = Stream::new(seed, Purpose::StartU, 0).at(0);
    let mut faults = Vec::new();
    let mut over = 0;
    while faults.len() < asked.unwrap_or(4) {
        let family = (faults.len() + over) % FAMILIES.len();
        let after = Duration::from_secs_f64(0.2 + 1.6 * random.uniform());
        match kill_one(family, after, (3.0 * random.uniform()) as usize) {
            Some(fault) => faults.push(fault),
            None => over += 1,
        }
        assert!(over < 20 + 2 * asked.unwrap_or(4), "the runs are over before a rank can be killed");
    }
    if asked.is_some() {
        println!(
            "| run | kills | before the first checkpoint | gone after at most, s | exit codes |\n|---|---|---|---|---|"
        );
        for (family, line) in FAMILIES.iter().enumerate() {
            let of: Vec<&Fault> = faults.iter().filter(|f| f.family == family).collect();
            let early = of.iter().filter(|f| f.resumed_from == Some(0)).count();
            let latest = of.iter().map(|f| f.gone.as_secs_f64()).fold(0.0, f64::max);
            let mut codes: Vec<String> = of.iter().map(|f| f.code.map_or("signal".into(), |c| c.to_string())).collect();
            codes.sort();
            codes.dedup();
            println!("| `{line}` | {} | {early} | {latest:.2} | {} |", of.len(), codes.join(", "));
        }
        let moments = faults.iter().map(|f| f.after.as_secs_f64());
        let (first, last) = moments.fold((f64::MAX, 0.0f64), |(a, b), x| (a.min(x), b.max(x)));
        println!("\n{over} runs were over before; kills {first:.2} to {last:.2} s after the start");
    }
}

/// Every algorithm again and again in the same processes, with all that a run writes: neither memory nor open files grow.
/// `FEDNMF_SOAK=40` makes it 40 rounds; 6 are enough to see what each run leaves behind.
#[test]
fn many_runs_leave_nothing_behind() {
    let rounds: usize = std::env::var("FEDNMF_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (out, kept, trace) = (file("o.h5"), file("c.h5"), file("t.jsonl"));
    let round: Vec<String> = lines()
        .iter()
        .map(|(method, words)| {
            let input = "--input synthetic:planted,m=300,n=200 -k 5 --max-iters 6 --eval-every 2 --checkpoint-every 2";
            let files = format!("--output {out} --checkpoint {kept} --trace {trace}");
            format!("--algo {} {words} {input} {files}", method.name)
        })
        .collect();
    let all: Vec<String> = (0..rounds).flat_map(|_| round.iter().cloned()).collect();
    let done = batch::all(2, &all);
    assert!(done.iter().all(|d| d.code == 0), "{:?}", done.iter().find(|d| d.code != 0));
    let ends: Vec<(u64, u64)> =
        done.chunks(round.len()).map(|r| (r[r.len() - 1].memory, r[r.len() - 1].files)).collect();
    if rounds > 6 {
        println!("after rounds of {} runs, KiB and open files: {ends:?}", round.len());
    }
    // The first rounds grow what is kept once: pools, buffers of the libraries.
    let ((before, files_before), (after, files_after)) = (ends[1], ends[rounds - 1]);
    assert_eq!(files_before, files_after, "{ends:?}");
    assert!(after < before + 4096, "{ends:?}");
}

/// Far more parties than ranks, and far more than cores.
#[test]
fn hundreds_of_parties_work_on_two_ranks() {
    let rows = "--parties 512 --input synthetic:planted,m=1024,n=60,k=3 -k 3 --max-iters 3";
    let columns = "--parties 512 --input synthetic:planted,m=60,n=1024,k=3 -k 3 --max-iters 3";
    let asked = [
        format!("--algo fnmf {rows}"),
        format!("--algo fedavg {rows}"),
        format!("--algo felb --binarize 0.5 {rows}"),
        format!("--algo syn-sd {columns}"),
        format!("--algo secure-hals {columns}"),
        format!("--algo asyn-sd {columns}"),
        format!("--algo ppdnmf --plain --secret-seed 1 --admm-iters 2 {columns}"),
    ];
    let (one, two) = (batch::ok(0, &asked), batch::ok(2, &asked));
    for ((one, two), line) in one.iter().zip(&two).zip(&asked) {
        assert_eq!((&two["parties"], &one["rel_error"]), (&512.into(), &two["rel_error"]), "{line}");
    }
}
