//! What parties keep of a run: signed transcripts of what they sent, and the privacy budget over all runs on their data.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::{data, fednmf};
use serde_json::Value;
use tempfile::tempdir;

fn verified(transcript: &Path, more: &[&Path]) -> Vec<Value> {
    let mut verify = fednmf(0, "audit verify --json").arg(transcript);
    for path in more {
        verify = verify.arg(path);
    }
    let output = verify.run();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_transcript_has_every_message_of_the_ledger_and_no_change_goes_unnoticed() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = "--algo felb --binarize 0.5 --secure-sum --parties 4 -k 3 --max-iters 3 --input";
    let run = || fednmf(2, line).arg(data("digits.npy")).arg("--transcript").arg(file("t.jsonl"));
    let summary = run().ok();
    run().refused(&["t.rank-00.jsonl", "exists already"]);
    for rank in 0..2 {
        let path = file(&format!("t.rank-0{rank}.jsonl"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let told = verified(&path, &[]);
        let sent = told[0]["sent"].as_array().unwrap();
        for row in summary["wire"].as_array().unwrap().iter().filter(|row| row["party_bytes"] != 0) {
            let same = |other: &&Value| ["purpose", "payload", "protection"].iter().all(|key| row[*key] == other[*key]);
            // What rank 0 alone reads or decides it alone sends.
            assert!(sent.iter().any(|other| same(&other)) || row["payload"] == "Control", "{row} in {sent:?}");
        }
        let masked = sent.iter().find(|row| row["purpose"] == "sum V_i").unwrap();
        assert_eq!((&masked["protection"], &masked["messages"]), (&"masked".into(), &3.into()));
    }
    let text = std::fs::read_to_string(file("t.rank-00.jsonl")).unwrap();
    std::fs::write(file("changed.jsonl"), text.replacen("masked", "noised", 1)).unwrap();
    fednmf(0, "audit verify").arg(file("changed.jsonl")).refused(&["changed.jsonl", "signature does not fit"]);
    let cut: String = text.lines().take(5).map(|line| format!("{line}\n")).collect();
    std::fs::write(file("cut.jsonl"), cut).unwrap();
    fednmf(0, "audit verify").arg(file("cut.jsonl")).refused(&["cut.jsonl", "line 5", "no signature"]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn runs_on_the_same_data_share_a_budget() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |epsilon: &str, more: &str| {
        let line = format!(
            "--algo felb-mu --binarize 0.5 --parties 3 -k 2 --max-iters 2 --eval-every 0 --dp gaussian --epsilon {epsilon} {more}"
        );
        fednmf(2, &line).arg("--input").arg(data("digits.npy")).arg("--budget").arg(file("b{party}.json"))
    };
    run("2", "").refused(&["b0.json", "--budget-limit"]);
    run("2", "--budget-limit 5").arg("--transcript").arg(file("t.jsonl")).ok();
    let budget = |party: usize| -> Value {
        serde_json::from_str(&std::fs::read_to_string(file(&format!("b{party}.json"))).unwrap()).unwrap()
    };
    for party in 0..3 {
        let runs = budget(party)["runs"].as_array().unwrap().clone();
        let epsilon = runs[0]["epsilon"].as_f64().unwrap();
        assert!(runs.len() == 1 && epsilon > 1.5 && epsilon <= 2.0 && runs[0]["ended"] == true, "{runs:?}");
    }
    verified(&file("t.rank-00.jsonl"), &[Path::new("--budget"), &file("b0.json")]);
    run("2", "").ok();
    run("2", "").refused(&["2 earlier run(s)", "epsilon of 5", "is left"]);
    assert_eq!(budget(1)["runs"].as_array().unwrap().len(), 2);
    run("0.5", "--budget-limit 9").refused(&["its limit is 5"]);
    // What is not in the budget is noticed.
    std::fs::write(file("empty.json"), r#"{"fednmf_budget": 1, "limit": 5, "runs": []}"#).unwrap();
    let other = fednmf(0, "audit verify").arg(file("t.rank-00.jsonl")).arg("--budget").arg(file("empty.json")).run();
    assert!(other.code == Some(1) && other.stderr.contains("not in the budget"), "{}", other.stderr);
    fednmf(0, "--algo fnmf").arg("--budget").arg(file("x.json")).refused(&["--budget", "--dp and --epsilon"]);
}
