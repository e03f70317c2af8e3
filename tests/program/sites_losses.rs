//! Sites that are lost from a run with `--secure-threshold`: the others continue, with the result of the drop-out
//! protocol for the same loss.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::sites::{NAMES, NONCE, Stage, end_of, text};
use crate::common::{factor, fednmf};

const SUMS: &str = "--secure-sum --secure-threshold 3 --accept-risk few-rows,membership,rare-entries";

/// The shared factor that mpirun computes when a party drops out.
fn by_mpi(stage: &Stage, words: &str, name: &str, drop: &str) -> ndarray::Array2<f64> {
    let output = stage.at("mpi.h5");
    let input = stage.at("rows-{party}.npy");
    let run = fednmf(2, words)
        .env(NONCE.0, NONCE.1)
        .arg("--input")
        .arg(&input)
        .arg("--output")
        .arg(&output)
        .env("FEDNMF_DROP", drop);
    run.ok();
    factor(&output, name)
}

fn events(stage: &Stage, site: &str) -> Vec<Value> {
    text(&stage.at(site).join("t.jsonl")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Party 2, or another one, is killed before its message in stage 1, 2 or 3 of a sum, so its values are not in that
/// sum.
#[test]
fn a_site_that_is_killed_is_a_party_that_dropped_out() {
    for (words, name, lost, stage_of_sum) in [
        ("--algo fnmf --start shared --barycenter mean", "V", 2, "5:1"),
        ("--algo syn-sd --transpose", "U", 2, "5:2"),
        ("--algo secure-hals --transpose --start public --accept-risk few-values", "U", 3, "5:3"),
        ("--algo mur --start shared", "V", 0, "5:3"),
    ] {
        let words = format!("{words} {SUMS} -k 4 --max-iters 6 --eval-every 3 --seed 3");
        let mut stage = Stage::new();
        stage.start_hub("--patience 1");
        let line =
            format!("{words} --json --output {{site}}/f.h5 --trace {{site}}/t.jsonl --transcript {{site}}/s.jsonl");
        let start = |(party, site): (usize, &&str)| {
            let mut command = stage.join(site, &line);
            if party == lost {
                command.env("FEDNMF_DROP", format!("{lost}@{stage_of_sum}:kill"));
            }
            command.spawn().unwrap()
        };
        stage.sites = NAMES.iter().enumerate().map(start).collect();
        let ends = stage.finish_sites();
        assert_eq!(stage.finish_hub(), Some(0), "{}", stage.hub_says());
        let gone = NAMES[lost];
        let says =
            format!("site {gone} was lost: it had no connection to the hub for 1 s; the run goes on with 3 of 4");
        assert!(stage.hub_says().contains(&says), "{}", stage.hub_says());
        let expected = by_mpi(&stage, &words, name, &format!("{lost}@{stage_of_sum}"));
        for (party, site) in NAMES.iter().enumerate().filter(|(party, _)| *party != lost) {
            let (code, out) = &ends[party];
            let says = stage.says(site);
            assert_eq!(*code, Some(0), "{words}: {site}: {says}");
            for part in [
                format!(
                    "site {gone} was lost: it had no connection to the hub for 1 s; the run goes on without it, with \
                     3 of 4"
                ),
                format!("party {lost} dropped out; sums continue with 3 of 4"),
            ] {
                assert!(says.contains(&part), "{words}: {site}: {says}");
            }
            // Each site has the shared factor itself, so nothing of it is sent, also not to the lost one.
            let sent = text(&stage.at(site).join("s.jsonl"));
            assert!(sent.contains("\"output\"") && !sent.contains("\"SharedFactor\""), "{words}: {site}");
            let summary: Value = serde_json::from_str(out).unwrap();
            assert_eq!(summary["lost_parties"], 1.0, "{summary}");
            assert_eq!(
                (&summary["lost"][0]["party"], &summary["lost"][0]["name"]),
                (&lost.into(), &format!("site {gone}").into())
            );
            let events = events(&stage, site);
            let event = events.iter().find(|event| event["event"] == "lost").expect("an event of the loss");
            assert!(event["party"] == lost && (1..=6).contains(&event["iter"].as_u64().unwrap()), "{event}");
            let found = factor(&stage.at(site).join("f.h5"), name);
            assert!(
                found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()) && found.dim() == expected.dim(),
                "{words}: {site}"
            );
        }
        assert!(!stage.at(gone).join("f.h5").exists());
    }
}

/// Long enough to be killed in.
const LONG: &str = "--algo fnmf --start shared --barycenter mean -k 4 --max-iters 400 --eval-every 10 --secure-sum \
                    --secure-threshold 3";

fn wait_for_events(stage: &mut Stage, site: &str, count: usize) {
    stage.wait_for(|stage| text(&stage.at(site).join("t.jsonl")).lines().count() >= count);
}

/// At whatever moment a site is killed, the others finish with the same shared factor.
#[test]
fn a_site_that_is_killed_at_any_moment_leaves_the_others_with_one_answer() {
    let kills: u64 = std::env::var("FEDNMF_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for kill in 0..kills {
        let mut stage = Stage::new();
        stage.start_hub("--patience 1");
        stage.start_sites(&format!("{LONG} -q --output {{site}}/f.h5 --trace {{site}}/t.jsonl"));
        let lost = (kill % 4) as usize;
        wait_for_events(&mut stage, "d", 3);
        let moment = fednmf_linalg::random::mix(u64::from(std::process::id()) ^ kill) % 300;
        std::thread::sleep(Duration::from_millis(moment));
        stage.sites[lost].kill().unwrap();
        let ends = stage.finish_sites();
        let mut all = Vec::new();
        for (party, site) in NAMES.iter().enumerate().filter(|(party, _)| *party != lost) {
            assert_eq!(ends[party].0, Some(0), "after {moment} ms: {}", stage.says(site));
            all.push(factor(&stage.at(site).join("f.h5"), "V"));
        }
        assert!(all.iter().all(|v| *v == all[0]), "killed after {moment} ms");
    }
}

/// A stopped process does not answer; when it continues, it is informed of its loss.
#[test]
fn a_silent_site_is_left_behind_and_told_so_and_too_many_end_the_run() {
    let mut stage = Stage::new();
    stage.start_hub("--patience 1");
    let line =
        format!("{LONG} --max-iters 100000 -q --patience 20 --trace {{site}}/t.jsonl --checkpoint {{site}}/c.h5");
    stage.start_sites(&line.replacen("--max-iters 400 ", "", 1));
    wait_for_events(&mut stage, "a", 3);
    let signal = |stage: &Stage, site: usize, signal: &str| {
        let id = stage.sites[site].id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    };
    signal(&stage, 2, "-STOP");
    let start = Instant::now();
    stage.wait_for(|stage| stage.says("a").contains("the run goes on without it, with 3 of 4"));
    assert!(start.elapsed() < Duration::from_secs(30));
    let before = text(&stage.at("a").join("t.jsonl")).lines().count();
    wait_for_events(&mut stage, "a", before + 3);
    signal(&stage, 2, "-CONT");
    stage.wait_for(|stage| stage.says("c").contains("the run goes on without site c"));
    let says = stage.says("c");
    assert!(says.contains("SIGTERM") && says.contains("--resume"), "{says}");
    let c = stage.sites.remove(2);
    assert_eq!(end_of(c, "the silent site").0, Some(1));
    // Two of four are not enough.
    stage.sites[2].kill().unwrap();
    let ends = stage.finish_sites();
    for (at, site) in ["a", "b"].iter().enumerate() {
        let says = stage.says(site);
        assert!(ends[at].0 == Some(1) && says.contains("site d was lost") && says.contains("--resume"), "{says}");
    }
    assert_eq!(stage.finish_hub(), Some(1));
}

/// The others stop with a checkpoint, from which the lost site rejoins.
#[test]
fn a_lost_site_comes_back_with_resume() {
    // A run is lost before its first interval ends, too.
    for (words, every) in [
        ("--algo fnmf --start shared --barycenter mean", ""),
        ("--algo secure-hals --transpose --sketch subsample", "--checkpoint-every 10"),
    ] {
        let mut stage = Stage::new();
        stage.start_hub("--patience 1 --keep");
        let line = |iterations: usize| {
            format!(
                "{words} {SUMS} -k 4 --eval-every 10 --max-iters {iterations} --json --output {{site}}/f.h5 \
                 --trace {{site}}/t.jsonl --checkpoint {{site}}/c.h5 {every} --resume"
            )
        };
        stage.start_sites(&line(100_000));
        wait_for_events(&mut stage, "a", 4);
        stage.sites[1].kill().unwrap();
        stage.wait_for(|stage| stage.says("a").contains("the run goes on without it"));
        let before = text(&stage.at("a").join("t.jsonl")).lines().count();
        wait_for_events(&mut stage, "a", before + 3);
        let id = stage.sites[0].id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let ends = stage.finish_sites();
        assert_eq!(
            ends.iter().map(|end| end.0).collect::<Vec<_>>(),
            [Some(75), None, Some(75), Some(75)],
            "{}",
            stage.says("a")
        );
        stage.wait_for(|stage| stage.hub_says().contains("the run has stopped early, with checkpoints"));
        let saved = stage.says("a").len();
        let reached = events(&stage, "a").iter().filter_map(|event| event["iter"].as_u64()).max().unwrap();
        stage.start_sites(&line(reached as usize + 30));
        let ends = stage.finish_sites();
        let mut all = Vec::new();
        for (site, (code, out)) in NAMES.iter().zip(&ends) {
            assert_eq!(*code, Some(0), "{site}: {}", stage.says(site));
            let summary: Value = serde_json::from_str(out).unwrap();
            assert_eq!((&summary["lost_parties"], &summary["lost"]), (&0.0.into(), &Value::Null));
            assert!(summary["resumed_from"].as_u64().unwrap() >= reached - 1, "{summary}");
            assert!(summary["rel_error"].as_f64().unwrap() < 0.9, "{summary}");
            let name = if words.contains("fnmf") { "V" } else { "U" };
            all.push(factor(&stage.at(site).join("f.h5"), name));
        }
        assert!(all.iter().all(|v| *v == all[0]), "{}", &stage.says("a")[saved..]);
        assert!(!stage.at("b").join("c.returned.h5").exists());
    }
}

/// All sites end at a checkpoint and resume; then one is lost at a sum that was opened with it before.
#[test]
fn a_sum_is_not_opened_again_over_fewer_sites() {
    let words = format!("--algo fnmf --start shared --barycenter mean {SUMS} -k 4 --max-iters 30 --eval-every 0");
    let line = format!("{words} -q --checkpoint {{site}}/c.h5 --checkpoint-every 10 --resume");
    let mut stage = Stage::new();
    stage.start_hub("--patience 1 --keep");
    stage.start_sites(&line);
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "{}", stage.says("a"));
    // As if all had been killed after the checkpoint of iteration 20.
    for site in NAMES {
        let of = |name: &str| stage.at(site).join(name);
        std::fs::rename(of("c.previous.h5"), of("c.h5")).unwrap();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(of("c.sums.json")).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    let lost = NAMES.iter().map(|site| {
        let mut command = stage.join(site, &line);
        if *site == "c" {
            command.env("FEDNMF_DROP", "2@3:2:kill");
        }
        command.spawn().unwrap()
    });
    stage.sites = lost.collect();
    let ends = stage.finish_sites();
    for (site, (code, _)) in NAMES.iter().zip(&ends).filter(|(site, _)| **site != "c") {
        assert_eq!(*code, Some(1), "{site}: {}", stage.says(site));
    }
    let all: String = NAMES.iter().map(|site| stage.says(site)).collect();
    assert!(all.contains("was opened before over parties [0, 1, 2, 3], and now it would be over [0, 1, 3]"), "{all}");
    // With all sites the sums are those of before.
    let resumed = NAMES.iter().map(|site| stage.join(site, &line).spawn().unwrap());
    stage.sites = resumed.collect();
    let ends = stage.finish_sites();
    assert!(ends.iter().all(|(code, _)| *code == Some(0)), "with all sites: {}", stage.says("a"));
}
