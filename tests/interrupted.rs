//! Runs that are stopped, killed and taken up again: the answer is the one of the uninterrupted run, bit for bit.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{data, events, factor, fednmf, finish, lines};
use tempfile::tempdir;

fn same_bits(a: &Path, b: &Path) {
    for name in ["U", "V"] {
        let (x, y) = (factor(a, name), factor(b, name));
        assert!(x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits()), "{name} differs");
    }
}

#[test]
fn a_resumed_run_gives_the_bits_of_the_whole_one() {
    for (method, words) in lines() {
        for (ranks, precision) in [(0, "f64"), (3, "f32")] {
            let dir = tempdir().unwrap();
            let file = |name: &str| dir.path().join(name);
            let line = format!("--algo {} -k 5 --seed 2 --precision {precision} {words} --input", method.name);
            let run = |iters: &str, out: &Path| {
                fednmf(ranks, &line).arg(data("digits.npy")).arg("--max-iters").arg(iters).arg("--output").arg(out)
            };
            let whole = run("30", &file("whole.h5")).ok();
            let half = run("3", &file("half.h5")).arg("--checkpoint").arg(file("c.h5")).ok();
            assert_eq!(half["iter"], 3);
            let rest = run("30", &file("rest.h5")).arg("--checkpoint").arg(file("c.h5")).arg("--resume");
            let rest = rest.arg("--trace").arg(file("t.jsonl")).ok();
            assert_eq!(rest["iter"], whole["iter"]);
            assert_eq!(events(&file("t.jsonl"))[0]["resumed_from"], 3);
            same_bits(&file("whole.h5"), &file("rest.h5"));
        }
    }
}

/// A run that takes some seconds and writes a checkpoint every few iterations.
const LONG: &str = "--algo dsanls -k 10 --input synthetic:planted,m=3000,n=800 --seed 4 --eval-every 0";

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process works on `path` any more: ranks whose launcher was killed live on for a moment.
fn wait_until_gone(path: &Path) {
    let path = path.to_str().unwrap();
    let start = Instant::now();
    loop {
        let running = std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(path)
        });
        if !running {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "ranks outlive their launcher by more than 10 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_run_goes_on_from_its_checkpoint() {
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
    // SIGKILL for the launcher: no handler, no last words; its ranks go with it.
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

/// Sends a signal to every rank of a launcher's job.
fn signal_ranks(launcher: u32, signal: &str) {
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    let mut stack: Vec<u32> = children.split_whitespace().filter_map(|p| p.parse().ok()).collect();
    stack.push(launcher);
    let mut sent = 0;
    while let Some(pid) = stack.pop() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if pid != launcher {
            let below = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            stack.extend(below.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
        if name.trim() == "fednmf" {
            let status = std::process::Command::new("kill").arg(signal).arg(pid.to_string()).status().unwrap();
            assert!(status.success());
            sent += 1;
        }
    }
    assert!(sent > 0, "no rank found to send {signal} to");
}

#[test]
fn a_signal_saves_and_asks_to_be_queued_again() {
    for (ranks, signal) in [(0, "-TERM"), (2, "-USR1")] {
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
        signal_ranks(child.id(), signal);
        let output = finish(child, Duration::from_secs(30), "a run that got a signal");
        assert_eq!(output.code, Some(75), "{}", output.stderr);
        let end = events(&trace).pop().unwrap();
        assert_eq!(end["stopped_by"], format!("SIG{}", &signal[1..]));
        let kept: u64 = hdf5::File::open(&checkpoint).unwrap().attr("iteration").unwrap().read_scalar().unwrap();
        assert_eq!(end["iter"].as_u64(), Some(kept), "the checkpoint is the last iteration");
    }
}

#[test]
fn a_time_limit_with_a_checkpoint_asks_to_be_queued_again() {
    let dir = tempdir().unwrap();
    let run = fednmf(2, LONG).arg("--max-iters").arg("1000000").arg("--time-limit").arg("0.5");
    let output = run.arg("--checkpoint").arg(dir.path().join("c.h5")).run();
    assert_eq!(output.code, Some(75), "{}", output.stderr);
}

#[test]
fn a_checkpoint_of_something_else_is_refused_with_the_difference() {
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
