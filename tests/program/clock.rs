//! The asynchronous methods in real time: runs differ, but each can be replayed from its order of merges, and a silent
//! rank is reported instead of awaited.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{Output, events, factor, fednmf, finish, matrix};

const LINE: &str = "--input synthetic:planted,m=400,n=900,k=4 -k 4 --local-iters 4 --seed 5";

/// The parties in a file of `--record-order`, one per line below the first, which says what it is.
fn order(path: &Path) -> Vec<usize> {
    std::fs::read_to_string(path).unwrap().lines().skip(1).map(|line| line.parse().unwrap()).collect()
}

fn same(a: &Path, b: &Path) {
    assert_eq!(matrix(a, "U"), matrix(b, "U"));
    assert_eq!(factor(a, "V"), factor(b, "V"));
}

#[test]
fn a_real_time_order_is_replayed_bit_for_bit() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // The server on a rank with parties, on a rank of its own, and on the only rank.
    for (algo, ranks) in [("asyn-sd", 2), ("asyn-ssd-v", 5), ("asyn-sd", 1)] {
        let line = format!("--algo {algo} {LINE} --parties 4 --skew 0.8 --max-iters 60 --eval-every 20");
        let real = fednmf(ranks, &format!("{line} --clock real")).arg("--record-order").arg(file("order.txt"));
        let real = real.arg("--output").arg(file("real.h5")).arg("--trace").arg(file("t.jsonl")).ok();
        let parties = order(&file("order.txt"));
        assert_eq!(parties.len(), 60);
        let count = |party: usize| parties.iter().filter(|&&p| p == party).count();
        assert_eq!((0..4).map(count).sum::<usize>(), 60, "{parties:?}");
        // Party 0 has twelve times as many columns, so it merges less often than the others on average. On busy cores
        // this holds only if one rank hosts all parties, because it orders them by the time that each took.
        assert!(ranks > 1 || 2 * count(0) < (60 - count(0)) / 3, "{parties:?}");
        let traced: Vec<Value> =
            events(&file("t.jsonl")).iter().filter_map(|e| e["order"].as_array().cloned()).flatten().collect();
        assert!(traced.iter().map(|p| p.as_u64().unwrap() as usize).eq(parties.iter().copied()));
        assert!(real["rel_error"].as_f64().unwrap() < 0.4, "{real}");
        // The message table holds in real time too.
        let method = fednmf_methods::registry::find(algo).unwrap().description();
        for row in real["wire"].as_array().unwrap() {
            let known = fednmf_methods::description::COMMON_MESSAGES
                .iter()
                .chain(method.messages)
                .any(|w| w.kind == row["purpose"]);
            assert!(known, "{row}");
        }
        for ranks in [0, 3] {
            let replay =
                fednmf(ranks, &line).arg("--replay").arg(file("order.txt")).arg("--output").arg(file("again.h5"));
            assert_eq!(replay.ok()["rel_error"], real["rel_error"], "{algo} {ranks} ranks");
            same(&file("real.h5"), &file("again.h5"));
        }
    }
    // A replay stops at the end of its order. A run in virtual time records its order too.
    let line = format!("--algo asyn-sd {LINE} --parties 4");
    let over = fednmf(2, &format!("{line} --max-iters 100")).arg("--replay").arg(file("order.txt")).ok();
    assert_eq!((over["iter"].as_u64(), over["stopped_by"].as_str()), (Some(60), Some("done")));
    fednmf(2, &format!("{line} --max-iters 8")).arg("--record-order").arg(file("virtual.txt")).ok();
    assert_eq!(order(&file("virtual.txt")), [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_run_in_real_time_resumes_between_turns() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = format!("--algo asyn-ssd-v {LINE} --parties 3 --eval-every 7");
    let run = |iters: &str| {
        fednmf(2, &format!("{line} --clock real --max-iters {iters}")).arg("--checkpoint").arg(file("c.h5"))
    };
    run("13").ok();
    let rest =
        run("40").arg("--resume").arg("--output").arg(file("real.h5")).arg("--record-order").arg(file("order.txt"));
    let rest = rest.arg("--trace").arg(file("t.jsonl")).ok();
    assert_eq!(rest["resumed_from"], 13);
    assert_eq!(order(&file("order.txt")).len(), 40);
    // A replay can be interrupted too, but its order must not change.
    let replay = |iters: &str| {
        fednmf(3, &format!("{line} --max-iters {iters}"))
            .arg("--replay")
            .arg(file("order.txt"))
            .arg("--checkpoint")
            .arg(file("r.h5"))
    };
    replay("20").ok();
    let again = replay("40").arg("--resume").arg("--output").arg(file("again.h5")).ok();
    assert_eq!(again["rel_error"], rest["rel_error"]);
    same(&file("real.h5"), &file("again.h5"));
    let mut other = order(&file("order.txt"));
    other[0] = (other[0] + 1) % 3;
    std::fs::write(file("order.txt"), other.iter().map(|p| format!("{p}\n")).collect::<String>()).unwrap();
    replay("40").arg("--resume").refused(&["another order"]);
}

#[test]
fn contradictory_options_are_refused() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("order.txt");
    std::fs::write(&file, "0\n1\n4\n").unwrap();
    let line = format!("--algo asyn-sd {LINE} --parties 4");
    fednmf(2, &line).arg("--replay").arg(&file).refused(&["order.txt", "line 3", "'4'", "0 to 3"]);
    fednmf(2, &format!("{line} --clock real")).arg("--replay").arg(&file).refused(&["--replay", "--clock real"]);
    fednmf(0, &format!("{line} --on-lost-party continue")).refused(&["--on-lost-party", "--clock real"]);
    fednmf(2, &format!("{line} --replay /no/such.txt")).refused(&["/no/such.txt", "cannot be read"]);
    fednmf(2, &format!("{line} --record-order /no/such/o.txt")).refused(&["--record-order"]);
    fednmf(0, "--algo syn-sd --clock real").refused(&["--clock", "asyn-sd"]);
}

/// Stops the process of one rank of a job, which is then as silent as one whose machine hangs.
fn silence(launcher: &Child, rank: usize) {
    let mut stack = vec![launcher.id()];
    while let Some(pid) = stack.pop() {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let below = String::from_utf8_lossy(&read(&format!("task/{pid}/children"))).into_owned();
        stack.extend(below.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        let own = |name: &str| read("environ").split(|&b| b == 0).any(|e| e == format!("{name}={rank}").as_bytes());
        if pid != launcher.id()
            && ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].into_iter().any(own)
            && read("comm").starts_with(b"fednmf")
        {
            assert!(std::process::Command::new("kill").arg("-STOP").arg(pid.to_string()).status().unwrap().success());
            return;
        }
    }
    panic!("no process of rank {rank}");
}

#[test]
fn a_time_limit_ends_a_run_of_long_turns() {
    // The first merges follow each other at once, the next ones take as long as turns do.
    let line = "--algo asyn-sd --input synthetic:planted,m=400,n=900,k=4 -k 4 --local-iters 400 --seed 5 --parties 3";
    let run = fednmf(3, &format!("{line} --clock real --max-iters 1000000 --eval-every 0 --time-limit 2")).ok();
    assert_eq!(run["stopped_by"], "time_limit");
    assert!(run["seconds"].as_f64().unwrap() < 12.0, "{run}");
}

/// A run of three ranks of which one falls silent: between evaluations, unless the ranks are slow to leave one.
fn run_with_a_silent_rank(how: &str, trace: &Path, out: &Path) -> Output {
    let line = format!(
        "--algo asyn-sd --input synthetic:planted,m=400,n=900,k=4 -k 4 --local-iters 100 --seed 5 --parties 3 --clock real \
         --party-timeout 2 --max-iters 1000000 --time-limit 6 --eval-every 15 --stall-timeout 10 --on-lost-party {how} --trace"
    );
    let _ = std::fs::remove_file(trace);
    let child = fednmf(3, &line).arg(trace).arg("--output").arg(out).spawn();
    let start = Instant::now();
    while std::fs::read_to_string(trace).unwrap_or_default().lines().count() < 3 {
        assert!(start.elapsed() < Duration::from_secs(30), "no iterations");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    silence(&child, 2);
    finish(child, Duration::from_secs(60), "a run with a silent party")
}

#[test]
fn a_silent_party_is_reported_and_the_others_can_continue() {
    let dir = tempdir().unwrap();
    for (how, code) in [("abort", 1), ("continue", 0)] {
        let trace = dir.path().join(format!("{how}.jsonl"));
        let out = dir.path().join(format!("{how}.h5"));
        let mut output = run_with_a_silent_rank(how, &trace, &out);
        for _ in 0..3 {
            // Within an evaluation all ranks wait for each other, and the watchdog ends the run.
            if !output.stderr.contains("waiting for other ranks") {
                break;
            }
            assert_eq!(output.code, Some(1), "{}", output.stderr);
            output = run_with_a_silent_rank(how, &trace, &out);
        }
        let stderr = &output.stderr;
        assert!(stderr.contains("party 2 (rank 2) has not been heard of for 2 s"), "{stderr}");
        assert_eq!(output.code, Some(code), "{stderr}");
        assert_eq!(out.exists(), code == 0);
        if how == "abort" {
            assert!(stderr.contains("--on-lost-party continue") && stderr.contains("--party-timeout"), "{stderr}");
            continue;
        }
        let all = events(&trace);
        let merged: Vec<u64> =
            all.iter().filter_map(|e| e["order"].as_array()).flatten().map(|p| p.as_u64().unwrap()).collect();
        let last = merged.iter().rposition(|&p| p == 2).unwrap();
        assert!(merged[last..].contains(&0) && merged[last..].contains(&1));
        assert_eq!(all.last().unwrap()["stopped_by"], "time_limit");
        assert!(all.iter().any(|e| e["event"] == "lost" && e["party"] == 2), "{all:?}");
        assert_eq!(all.last().unwrap()["lost"][0]["party"], 2);
        assert!(hdf5::File::open(&out).unwrap().attr("lost").is_ok());
        // Relative to the remaining columns.
        assert!((0.0..0.4).contains(&all.last().unwrap()["rel_error"].as_f64().unwrap()));
        assert!(matrix(&out, "U").nrows() == 400 && dir.path().join("continue.party-01.h5").exists());
        assert!(!dir.path().join("continue.party-02.h5").exists());
    }
}
