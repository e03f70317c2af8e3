//! Faults of a cluster: single ranks that are killed, hang or fail; full disks. The job ends with a message and an exit
//! code, no file is incomplete under its final name, and the last good checkpoint can be resumed.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use fednmf_base::error::Error;
use fednmf_comm as comm;
use fednmf_comm::Communicator;
use fednmf_linalg::random::{Purpose, Stream};

use crate::common::processes::{ranks_of, send, signal, wait_for, wait_until_gone};
use crate::common::{data, factor, fednmf, finish, input_for, launch, lines, matrix, session};

/// A run without an end.
const ENDLESS: &str = "--input synthetic:planted,m=1500,n=400 -k 10 --eval-every 0 --max-iters 1000000000";

#[test]
fn a_stalled_rank_ends_the_job_and_the_others_report_where_they_are() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let child = fednmf(3, &format!("--algo dsanls {ENDLESS} --stall-timeout 2 --checkpoint-every 20 --checkpoint"))
        .arg(&checkpoint)
        .spawn();
    wait_for(&checkpoint);
    // Most probably rank 2.
    signal("STOP", &ranks_of(child.id())[2..]);
    let start = Instant::now();
    let output = finish(child, Duration::from_secs(30), "a job with a rank that stands still");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    wait_until_gone(&checkpoint);
    assert!(output.code != Some(0) && output.code != Some(75), "{output:?}");
    // The stopped rank may report as well: the launcher continues it before it ends it.
    let report = |rank: u32| format!("rank {rank} has made no progress for 1 s: waiting for other ranks in '");
    let reporting = (0..3).filter(|&rank| output.stderr.contains(&report(rank))).count();
    assert!(reporting >= 2, "{}", output.stderr);
    assert!(
        output.stderr.contains("has made no progress for 2 s") && output.stderr.contains("after iteration"),
        "{output:?}"
    );
}

/// Writing into a full pipe blocks, like an unresponsive file system.
#[test]
fn an_unresponsive_file_system_ends_the_job() {
    let dir = tempdir().unwrap();
    let pipe = dir.path().join("t.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Linux's O_NONBLOCK.
    let mut full = OpenOptions::new().read(true).write(true).custom_flags(0o4000).open(&pipe).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
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
        let report = format!("rank {rank} has made no progress for 0.5 s: waiting for other ranks in 'agreement'");
        assert!(output.stderr.contains(&report), "{report}\n{}", output.stderr);
    }
}

/// The variable with the way in which a rank of the test below fails.
const FAILURE: &str = "FEDNMF_TEST_FAILURE";

#[test]
#[ignore = "started by the test below, under the launcher"]
fn one_rank_fails() {
    let Ok(how) = std::env::var(FAILURE) else { return };
    comm::abort_on_panic();
    let comm = Communicator::start().expect("the ranks connect");
    if comm.rank() == 1 {
        match how.as_str() {
            "panic" => panic!("for the test"),
            "error" => {
                eprintln!("error: {}", Error::input("for the test"));
                comm::end_job(2);
            }
            _ => std::process::exit(0), // without finalizing MPI
        }
    }
    comm.barrier();
}

#[test]
fn a_rank_that_fails_alone_ends_the_job() {
    for (how, code, words) in [
        ("panic", Some(1), "internal error: for the test"),
        ("error", Some(2), "error: for the test"),
        ("exit", None, ""),
    ] {
        let mut command = launch(3, &std::env::current_exe().unwrap());
        command
            .args(["faults::one_rank_fails", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(FAILURE, how);
        let start = Instant::now();
        let output = finish(command.spawn().unwrap(), Duration::from_secs(30), how);
        assert!(start.elapsed() < Duration::from_secs(30), "{how}: {:?}", start.elapsed());
        assert!(output.code != Some(0) && (code.is_none() || output.code == code), "{how}: {output:?}");
        assert!(words.is_empty() || output.stderr.matches(words).count() == 1, "{how}: {output:?}");
    }
}

/// Runs the binary on one rank with a limit of `kib` KiB per file: longer writes fail as on a full disk.
fn on_a_full_disk(kib: usize, line: &str) -> crate::common::Output {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_fednmf")).args(line.split_whitespace());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child, Duration::from_secs(60), line)
}

#[test]
fn a_full_disk_destroys_neither_checkpoint_nor_run() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // The factors take 14 MB, more than the files that an MPI library creates for itself.
    let run = "--algo dsanls -k 30 --eval-every 0 --input synthetic:sparse,m=60000,n=400,density=0.001,seed=4";
    let line = |iterations: usize| {
        format!("{run} --max-iters {iterations} --checkpoint-every 2 --checkpoint {}", file("c.h5").display())
    };
    fednmf(0, &line(4)).ok();
    let good = std::fs::read(file("c.h5")).unwrap();
    for mib in [7, 13] {
        let output = on_a_full_disk(mib << 10, &format!("{} --resume", line(10)));
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.matches("warning: no checkpoint: ").count() >= 3, "{output:?}");
        assert!(output.stderr.contains("c.h5: cannot be written"), "{output:?}");
        assert!(output.stderr.contains("came to its end, but the last checkpoint is not"), "{output:?}");
        assert!(std::fs::read(file("c.h5")).unwrap() == good, "the last good checkpoint was changed");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "an incomplete file is left");
    }
    // No incomplete output is left.
    let output = on_a_full_disk(7 << 10, &format!("{run} --max-iters 1 --output {}", file("o.h5").display()));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("o.h5: cannot be written") && !file("o.h5").exists(), "{output:?}");
    let prepared = format!("prepare tf-idf --memory 1M {} -o", file("x.npz").display());
    fednmf(0, "generate sparse,m=20000,n=300,density=0.15,values=counts -o").arg(file("x.npz")).own_process().run();
    for name in ["p.npz", "p.h5ad", "p.npy"] {
        let output = on_a_full_disk(7 << 10, &format!("{prepared} {}", file(name).display()));
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("in each pass") && output.stderr.contains(": cannot be written"), "{output:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{name}: an incomplete file is left");
    }
    std::fs::remove_file(file("x.npz")).unwrap();
    // With space again the run resumes.
    let rest = fednmf(0, &format!("{} --resume --output", line(10))).arg(file("rest.h5")).ok();
    assert_eq!(rest["resumed_from"], 4);
    fednmf(0, &format!("{run} --max-iters 10 --output")).arg(file("whole.h5")).ok();
    assert_eq!(matrix(&file("rest.h5"), "U"), matrix(&file("whole.h5"), "U"));
}

#[test]
fn a_sweep_on_a_full_disk_keeps_the_runs_that_it_has() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let line = |ks: &str| {
        let input = "--input synthetic:sparse,m=20000,n=400,density=0.01,seed=4";
        format!("sweep {input} -k {ks} --runs 2 --max-iters 5 --holdout 0 --quiet --output {}", out.display())
    };
    let runs = || -> Vec<_> {
        let all = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let mut runs: Vec<_> = all.filter(|path| path.to_string_lossy().contains("-run")).collect();
        runs.sort();
        runs.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect()
    };
    assert_eq!(fednmf(0, &line("10")).run().code, Some(0));
    let before = runs();
    // A file of 30 components does not fit.
    let output = on_a_full_disk(4000, &line("10,30"));
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("k0030-run") && output.stderr.contains("cannot be written"), "{output:?}");
    assert!(runs() == before, "the runs that were there are unchanged, and no incomplete one is left");
    assert_eq!(fednmf(0, &line("10,30")).run().code, Some(0));
    assert_eq!((before.len(), runs().len()), (2, 4));
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
    // Blocks the next generation of the file of party 2, which the second rank hosts.
    let own = before.iter().filter_map(|n| n.to_str()).find(|n| n.contains("party-02")).unwrap();
    let number: u64 = own.split(".g").nth(1).unwrap().trim_end_matches(".h5").parse().unwrap();
    let blocked = file(&own.replace(&format!(".g{number}"), &format!(".g{}", number + 1)));
    std::fs::create_dir(&blocked).unwrap();
    let output = fednmf(2, &format!("{} --resume", line(20))).run();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("warning: no checkpoint: ") && output.stderr.contains("party-02"), "{output:?}");
    std::fs::remove_dir(blocked).unwrap();
    let left = names();
    assert!(before.iter().all(|name| left.contains(name)), "{left:?}");
    assert_eq!(fednmf(2, &format!("{} --resume", line(20))).ok()["resumed_from"], 5);
}

#[test]
fn divergence_leaves_the_last_good_factors_and_checkpoint() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // The steps are far too long; each iteration is followed by a checkpoint.
    let line =
        "--algo dsanls --solver pgd --mu absolute --mu-alpha 1e5 --mu-beta 0 --max-iters 60 --eval-every 1 --input";
    let run = fednmf(2, line).arg(data("digits.npy")).args(["--checkpoint-every", "1", "--checkpoint"]);
    let output = run.arg(file("c.h5")).arg("--output").arg(file("o.h5")).run();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("no longer finite numbers"), "{output:?}");
    assert!(output.stderr.contains("the last good ones, are in "), "{output:?}");
    for name in ["o.h5", "c.h5"] {
        assert!(["U", "V"].iter().all(|f| matrix(&file(name), f).iter().all(|x| x.is_finite())), "{name}");
    }
    let error: f64 = hdf5::File::open(file("o.h5")).unwrap().attr("rel_error").unwrap().read_scalar().unwrap();
    assert!(error <= 1.0, "{error} is not good");
}

/// The algorithm families, each with a run of about a second.
const FAMILIES: &[&str] = &[
    "--algo dsanls --input synthetic:planted,m=2000,n=600 -k 10 --max-iters 600",
    "--algo hals --input synthetic:planted,m=2000,n=600 -k 10 --max-iters 80",
    "--algo secure-hals --parties 5 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 150",
    "--algo syn-ssd-uv --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 150",
    "--algo asyn-sd --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 400",
    "--algo fnmf --parties 5 --input synthetic:planted,m=1000,n=600 -k 8 --max-iters 60",
    "--algo felb --parties 5 --input synthetic:planted,m=1000,n=200 --binarize 0.6 -k 8 --max-iters 100",
    "--algo ppdnmf --parties 5 --plain --secret-seed 1 --input synthetic:planted,m=300,n=200 -k 5 \
     --max-iters 60 --admm-iters 4",
];

/// Outcome of a kill.
struct Fault {
    family: usize,
    after: Duration,
    gone: Duration,
    code: Option<i32>,
    /// The iteration from which the run resumed.
    resumed_from: Option<u64>,
}

/// Kills a rank `after` the start and resumes the run; `None` if the run ended before.
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
    // On a busy machine a rank may start late.
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
    // A file under its final name is always complete.
    if file("o.h5").exists() {
        assert!(["U", "V"].iter().all(|name| factor(&file("o.h5"), name).iter().all(|x| x.is_finite())), "{what}");
    }
    if output.code == Some(0) {
        // There was no rank to kill, or it had finished its work.
        assert!(file("o.h5").exists(), "{what}");
        return None;
    }
    assert!(hit, "{what}: ended by itself: {output:?}");
    assert!(gone < Duration::from_secs(10), "{what}: gone after {gone:?}");
    wait_until_gone(&file("c.h5"));
    // MPICH's launcher reports it on stdout.
    let text = (output.stdout.clone() + &output.stderr).to_lowercase();
    // For a rank that ended before MPI_Init, Open MPI reports only the exit code.
    let words = ["killed", "signal 9", "lost", "job has been aborted"];
    assert!(words.iter().any(|w| text.contains(w)), "{what}: {output:?}");
    let rest = run().arg("--resume").ok();
    let resumed_from = rest["resumed_from"].as_u64();
    assert!(file("o.h5").exists() && rest["stopped_by"] == "max_iters", "{what}: {rest}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().ends_with(".fednmf-part")), "{what}: {left:?}");
    Some(Fault { family, after, gone, code: output.code, resumed_from })
}

/// `FEDNMF_FAULTS=100 cargo test a_killed_rank -- --nocapture` kills 100 ranks and prints a table.
#[test]
fn a_killed_rank_ends_the_job_and_it_can_be_resumed() {
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
        assert!(over < 20 + 2 * asked.unwrap_or(4), "the runs end before a rank can be killed");
    }
    if asked.is_some() {
        println!(
            "| run | kills | before the first checkpoint | end after at most, s | exit codes |\n|---|---|---|---|---|"
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
        println!("\n{over} runs ended before; kills {first:.2} to {last:.2} s after the start");
    }
}

/// Repeats every algorithm in the same processes, with all files that a run writes: neither memory nor open files grow.
/// `FEDNMF_SOAK=40` makes it 40 rounds; 6 are enough to find a leak per run.
#[test]
fn many_runs_leak_nothing() {
    let rounds: usize = std::env::var("FEDNMF_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (out, trace) = (file("o.h5"), file("t.jsonl"));
    let round: Vec<String> = lines()
        .iter()
        .enumerate()
        .map(|(i, (method, words))| {
            // The checkpoint of one run is not replaced by that of another.
            let checkpoint = file(&format!("c{i}.h5"));
            let input = input_for(method, "synthetic:planted,m=90,n=60");
            let evaluated = if method.on_shares { "" } else { "--eval-every 2" };
            let input = format!("--input {input} -k 5 --max-iters 6 {evaluated} --checkpoint-every 2");
            let files = format!("--output {out} --checkpoint {checkpoint} --trace {trace}");
            format!("--algo {} {words} {input} {files}", method.name)
        })
        .collect();
    let all: Vec<String> = (0..rounds).flat_map(|_| round.iter().cloned()).collect();
    let done = session::all(2, &all);
    assert!(done.iter().all(|d| d.code == 0), "{:?}", done.iter().find(|d| d.code != 0));
    let ends: Vec<(u64, u64)> =
        done.chunks(round.len()).map(|r| (r[r.len() - 1].memory, r[r.len() - 1].files)).collect();
    if rounds > 4 {
        println!("after rounds of {} runs, KiB and open files: {ends:?}", round.len());
    }
    // The first rounds allocate pools and buffers of the libraries.
    let ((before, files_before), (after, files_after)) = (ends[1], ends[rounds - 1]);
    assert_eq!(files_before, files_after, "{ends:?}");
    assert!(after < before + 4096, "{ends:?}");
}

/// Far more parties than ranks and cores.
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
    let (one, two) = (session::ok(0, &asked), session::ok(2, &asked));
    for ((one, two), line) in one.iter().zip(&two).zip(&asked) {
        assert_eq!((&two["parties"], &one["rel_error"]), (&512.into(), &two["rel_error"]), "{line}");
    }
}
