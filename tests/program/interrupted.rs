//! Runs that are stopped, killed and resumed: the result is that of the uninterrupted run, bit for bit.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::common::processes::{ranks_of, signal, wait_for, wait_until_gone};
use crate::common::{distance, errors, events, factor, fednmf, finish, input_for, lines, npy, number, session};

fn same_bits(a: &Path, b: &Path) {
    for name in ["U", "V"] {
        let (x, y) = (factor(a, name), factor(b, name));
        assert!(x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits()), "{name} differs");
    }
}

/// For every algorithm, but those on secret shares, which open their result after a number of iterations that is fixed (`mpc`): a
/// run of 15 iterations on `ranks` ranks, one of 3 iterations with a checkpoint, and for each
/// number of ranks in `later` one that resumes from a copy of it. Calls `compare(line, private, whole, rest)` with the
/// outputs.
fn resumed(ranks: usize, precision: &str, later: &[usize], compare: impl Fn(&str, bool, &Path, &Path)) {
    let dir = tempdir().unwrap();
    let file = |i: usize, name: &str| dir.path().join(i.to_string()).join(name);
    let all: Vec<_> = lines().into_iter().filter(|(method, _)| !method.on_shares).collect();
    let digits = npy(dir.path(), "digits.npy", 0..400).display().to_string();
    let line = |i: usize, iterations: usize, out: &str| {
        let (method, words) = &all[i];
        let (input, out) = (input_for(method, &digits), file(i, out));
        format!(
            "--algo {} -k 5 --seed 2 --precision {precision} {words} --input {} --max-iters {iterations} --output {}",
            method.name,
            input,
            out.display()
        )
    };
    let mut begun = Vec::new();
    for i in 0..all.len() {
        std::fs::create_dir(dir.path().join(i.to_string())).unwrap();
        begun.push(line(i, 15, "whole.h5"));
        begun.push(format!("{} --checkpoint {}", line(i, 3, "half.h5"), file(i, "c.h5").display()));
    }
    let begun = session::ok(ranks, &begun);
    for (turn, &ranks) in later.iter().enumerate() {
        let trace = |i| file(i, &format!("{turn}.jsonl"));
        let rest: Vec<String> = (0..all.len())
            .map(|i| {
                // The checkpoint and the files of its parties as the first run left them: a resumed run overwrites
                // them.
                let copy = file(i, &format!("turn-{turn}"));
                std::fs::create_dir(&copy).unwrap();
                for entry in std::fs::read_dir(file(i, "")).unwrap().flatten() {
                    let name = entry.file_name().into_string().unwrap();
                    if name == "c.h5" || name.starts_with("c.party-") {
                        std::fs::copy(entry.path(), copy.join(name)).unwrap();
                    }
                }
                let (checkpoint, trace) = (copy.join("c.h5"), trace(i));
                let out = format!("rest-{turn}.h5");
                format!(
                    "{} --checkpoint {} --resume --trace {}",
                    line(i, 15, &out),
                    checkpoint.display(),
                    trace.display()
                )
            })
            .collect();
        for (i, summary) in session::ok(ranks, &rest).iter().enumerate() {
            assert_eq!(
                (&begun[2 * i + 1]["iter"], &summary["iter"]),
                (&3.into(), &begun[2 * i]["iter"]),
                "{}",
                rest[i]
            );
            assert_eq!(events(&trace(i))[0]["resumed_from"], 3, "{}", rest[i]);
            let private = all[i].0.partition.is_private();
            compare(&rest[i], private, &file(i, "whole.h5"), &file(i, &format!("rest-{turn}.h5")));
        }
    }
}

#[test]
fn a_resumed_run_has_the_bits_of_an_uninterrupted_run() {
    resumed(3, "f32", &[3], |_, _, whole, rest| same_bits(whole, rest));
}

/// From 3 ranks to 2 and to 4, and without mpirun: the parties move to other ranks, and the blocks change.
#[test]
fn a_run_resumes_on_another_number_of_ranks() {
    resumed(0, "f64", &[0], |_, _, whole, rest| same_bits(whole, rest));
    resumed(3, "f64", &[2, 4], |line, private, whole, rest| {
        for name in ["U", "V"] {
            let (a, b) = (factor(whole, name), factor(rest, name));
            // sums over parties are exact, so all bits are the same
            let far = if private { f64::from(u8::from(a != b)) } else { distance(&a, &b) };
            assert!(far < 1e-7, "{line}: {name} is off by {far}");
        }
    });
}

/// A run that takes some seconds and writes a checkpoint every few iterations.
const LONG: &str = "--algo dsanls -k 10 --input synthetic:planted,m=3000,n=800 --seed 4 --eval-every 0";

#[test]
fn a_killed_run_resumes_from_its_checkpoint() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |iters: &str| {
        fednmf(2, LONG)
            .arg("--max-iters")
            .arg(iters)
            .arg("--checkpoint-every")
            .arg("20")
            .arg("--checkpoint")
            .arg(file("c.h5"))
    };
    let mut child = run("1000000").spawn();
    wait_for(&file("c.h5"));
    std::thread::sleep(Duration::from_millis(300));
    // SIGKILL for the launcher, which no handler can catch; its ranks end with it.
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&file("c.h5"));
    let found: u64 = {
        let stored = hdf5::File::open(file("c.h5")).unwrap();
        stored.attr("iteration").unwrap().read_scalar().unwrap()
    };
    assert!(found > 0 && found.is_multiple_of(20), "{found}");
    let goal = (found + 30).to_string();
    run(&goal).arg("--resume").arg("--output").arg(file("rest.h5")).ok();
    fednmf(2, LONG).arg("--max-iters").arg(&goal).arg("--output").arg(file("whole.h5")).ok();
    same_bits(&file("whole.h5"), &file("rest.h5"));
}

/// Without --parties there is one for each rank, and their number is part of the run.
#[test]
fn a_run_with_a_party_for_each_rank_resumes_with_their_number() {
    let dir = tempdir().unwrap();
    let run = |ranks: usize, more: &str| {
        let line = "--algo secure-hals -k 3 --input synthetic:planted,m=20,n=18 --max-iters";
        fednmf(ranks, &format!("{line} {more} --checkpoint")).arg(dir.path().join("c.h5"))
    };
    run(3, "4").ok();
    run(2, "8 --resume").refused(&["parties was 3, now is 2"]);
    assert_eq!(run(2, "8 --resume --parties 3").ok()["resumed_from"], 4);
    assert_eq!(run(3, "12 --resume").ok()["resumed_from"], 8);
}

/// The trace has what the run did after its last checkpoint, until it was killed, and the resumed run repeats that.
#[test]
fn a_resumed_trace_has_each_iteration_once() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |iters: &str| {
        let line = "--algo hals -k 3 --input synthetic:planted,m=40,n=30 --eval-every 1 --max-iters";
        let run = fednmf(2, line).arg(iters).arg("--checkpoint").arg(file("c.h5"));
        run.arg("--trace").arg(file("t.jsonl"))
    };
    run("4").ok();
    std::fs::copy(file("c.h5"), file("early.h5")).unwrap();
    run("8").arg("--resume").ok();
    std::fs::rename(file("early.h5"), file("c.h5")).unwrap();
    run("10").arg("--resume").ok();
    let evaluated: Vec<usize> = errors(&file("t.jsonl")).iter().map(|e| e.0 as usize).collect();
    assert_eq!(evaluated, (0..=10).collect::<Vec<_>>());
}

#[test]
fn a_signal_writes_a_checkpoint_and_requests_a_requeue() {
    for (ranks, name) in [(0, "TERM"), (2, "USR1"), (2, "INT")] {
        let dir = tempdir().unwrap();
        let (checkpoint, trace) = (dir.path().join("c.h5"), dir.path().join("t.jsonl"));
        let child = fednmf(ranks, LONG)
            .arg("--max-iters")
            .arg("1000000")
            .arg("--checkpoint-every")
            .arg("20")
            .arg("--checkpoint")
            .arg(&checkpoint)
            .arg("--trace")
            .arg(&trace)
            .spawn();
        wait_for(&checkpoint);
        signal(name, &ranks_of(child.id()));
        if name == "TERM" {
            // As Slurm sends it at a time limit.
            std::thread::sleep(Duration::from_millis(10));
            signal(name, &ranks_of(child.id()));
        }
        let output = finish(child, Duration::from_secs(30), "a run that got a signal");
        assert_eq!(output.code, Some(75), "{}", output.stderr);
        let resume = format!("repeat the command with --resume (checkpoint {})", checkpoint.display());
        assert!(output.stdout.contains(&resume), "{}", output.stdout);
        let end = events(&trace).pop().unwrap();
        assert_eq!(end["stopped_by"], format!("SIG{name}"));
        let saved: u64 = hdf5::File::open(&checkpoint).unwrap().attr("iteration").unwrap().read_scalar().unwrap();
        assert_eq!(end["iter"].as_u64(), Some(saved), "the checkpoint is the last iteration");
    }
}

/// The result of hours is not lost if a directory is.
#[test]
fn a_result_whose_directory_is_gone_goes_next_to_the_checkpoint() {
    let shared = format!("{LONG} --report");
    let private = "--algo syn-sd --parties 2 -k 3 --input synthetic:planted,m=400,n=90 --eval-every 0 --report";
    for (ranks, line, party) in [(0, &*shared, None), (2, &*shared, None), (2, private, Some("o.party-01.h5"))] {
        let dir = tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let gone = file("gone");
        std::fs::create_dir(&gone).unwrap();
        let child = fednmf(ranks, line)
            .arg(gone.join("r.html"))
            .arg("--output")
            .arg(gone.join("o.h5"))
            .arg("--max-iters")
            .arg("1000000")
            .args(["--time-limit", "30", "--checkpoint-every", "20", "--checkpoint"])
            .arg(file("c.h5"))
            .spawn();
        wait_for(&file("c.h5"));
        std::fs::remove_dir_all(&gone).unwrap();
        signal("TERM", &ranks_of(child.id()));
        let output = finish(child, Duration::from_secs(30), line);
        assert_eq!(output.code, Some(1), "{line}: {output:?}");
        let said = format!("the result is in {} instead", file("o.h5").display());
        for words in [&*said, "gone/o.h5", "r.html", "fednmf report"] {
            assert!(output.stderr.contains(words), "{line}: {words} is not in {}", output.stderr);
        }
        assert!(factor(&file("o.h5"), "U").iter().all(|x| x.is_finite()), "{line}");
        assert!(party.is_none_or(|name| file(name).exists()), "{line}");
    }
}

#[test]
fn a_time_limit_with_a_checkpoint_requests_a_requeue() {
    let dir = tempdir().unwrap();
    let run = fednmf(2, LONG).arg("--max-iters").arg("1000000").arg("--time-limit").arg("0.5");
    let output = run.arg("--checkpoint").arg(dir.path().join("c.h5")).run();
    assert_eq!(output.code, Some(75), "{}", output.stderr);
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_the_difference() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let run = |line: &str| fednmf(2, &format!("--algo hals --max-iters 3 {line} --checkpoint")).arg(&checkpoint);
    let same = "--input synthetic:planted,m=40,n=30 -k 4";
    run(same).ok();
    run(&format!("{same} --seed 8 --resume")).refused(&["c.h5", "seed"]);
    run(&format!("{same} --precision f32 --resume")).refused(&["c.h5", "precision"]);
    run("--input synthetic:planted,m=40,n=30,seed=3 -k 4 --resume").refused(&["c.h5", "checksum"]);
    run("--input synthetic:planted,m=40,n=30 -k 5 --resume").refused(&["c.h5", "k"]);
    let mut bytes = std::fs::read(&checkpoint).unwrap();
    let middle = bytes.len() / 2;
    bytes.truncate(middle);
    std::fs::write(&checkpoint, &bytes).unwrap();
    run(&format!("{same} --resume")).refused(&["c.h5"]);
}

/// An interrupted command that writes a matrix leaves no part of it.
#[test]
fn an_unfinished_matrix_is_removed_on_a_signal() {
    for (line, name) in [
        ("generate planted,m=40000,n=5000,k=2 --output", "m.npy"),
        ("prepare tf-idf synthetic:sparse,m=20000,n=50000,density=1e-5 --output", "m.csv"),
    ] {
        let dir = tempdir().unwrap();
        let child = fednmf(0, line).arg(dir.path().join(name)).spawn();
        let files = || std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.metadata().unwrap().len());
        let start = Instant::now();
        while files().all(|length| length == 0) {
            assert!(start.elapsed() < Duration::from_secs(60), "{line}: nothing is written");
            std::thread::sleep(Duration::from_millis(5));
        }
        signal("TERM", &[child.id()]);
        let output = finish(child, Duration::from_secs(60), line);
        assert!(output.code == Some(1) && output.stderr.contains("stopped by SIGTERM"), "{line}: {output:?}");
        assert_eq!(files().count(), 0, "{line}");
    }
}

/// The tolerance compares the same evaluations, and a run that it has ended has nothing left to do.
#[test]
fn a_resumed_run_stops_where_an_uninterrupted_one_does() {
    let dir = tempdir().unwrap();
    let digits = npy(dir.path(), "digits.npy", 0..200);
    for method in ["hals --tol 1e-3 --eval-every 4", "kl-mu --tol 1e-3 --eval-every 7", "auto --tol 1e-4"] {
        let file = |name: &str| dir.path().join(name);
        let run = |out: &str, more: &str| {
            let line = format!("--algo {method} -k 4 --max-iters 2000 {more} --output");
            fednmf(0, &line).arg(file(out)).arg("--input").arg(&digits)
        };
        let whole = run("whole.h5", "").ok();
        let end = number(&whole, "iter");
        assert!(end > 20.0 && whole["stopped_by"] == "tol", "{method}: {whole}");
        for stop in [0.3, 0.6, 0.9].map(|part| (part * end) as usize) {
            let checkpoint = format!("--checkpoint {}", file(&format!("c{stop}.h5")).display());
            run("half.h5", &format!("{checkpoint} --max-iters {stop}")).ok();
            for again in 0..2 {
                let rest = run("rest.h5", &format!("{checkpoint} --resume")).ok();
                assert_eq!(number(&rest, "iter"), end, "{method} stopped at {stop}, resumed {again}: {rest}");
                same_bits(&file("whole.h5"), &file("rest.h5"));
            }
        }
        for stop in [0.3, 0.6, 0.9].map(|part| (part * end) as usize) {
            std::fs::remove_file(file(&format!("c{stop}.h5"))).unwrap();
        }
    }
}
