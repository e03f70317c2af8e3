//! The parties' records: signed transcripts of their messages, and the privacy budget over all runs on their data.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use fednmf_privacy::{BudgetFile, BudgetKey};

use crate::common::{data, fednmf};

/// The names that signed transcripts have had since the first of them.
#[test]
fn payloads_have_the_names_of_old_transcripts() {
    use fednmf_comm::Payload;
    let names = [
        (Payload::Data, "Data"),
        (Payload::Sketch, "Sketch"),
        (Payload::SharedFactor, "SharedFactor"),
        (Payload::SketchedFactor, "SketchedFactor"),
        (Payload::Gram, "Gram"),
        (Payload::Product, "Product"),
        (Payload::Scalar, "Scalar"),
        (Payload::Ciphertext, "Ciphertext"),
        (Payload::Masked, "Masked"),
        (Payload::Shares, "Shares"),
        (Payload::Metadata, "Metadata"),
        (Payload::Control, "Control"),
    ];
    for (payload, name) in names {
        assert_eq!(payload.name(), name);
    }
}

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
    let line = "--algo felb --binarize 0.5 --secure-sum --accept-risk few-rows,membership --parties 4 -k 3 --max-iters 3 --input";
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
            // Only rank 0 sends what only it reads or decides.
            assert!(
                sent.iter().any(|other| same(&other))
                    || ["Control", "Metadata"].contains(&row["payload"].as_str().unwrap()),
                "{row} in {sent:?}"
            );
        }
        let masked = sent.iter().find(|row| row["purpose"] == "sum V_i").unwrap();
        assert_eq!((&masked["protection"], &masked["messages"]), (&"masked".into(), &3.into()));
    }
    let text = std::fs::read_to_string(file("t.rank-00.jsonl")).unwrap();
    let heading: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let settings = &heading["settings"];
    assert_eq!(
        (&settings["accept_risk"], &settings["colluding"]),
        (&"few-rows,membership".into(), &1.into()),
        "{heading}"
    );
    std::fs::write(file("changed.jsonl"), text.replacen("masked", "noised", 1)).unwrap();
    fednmf(0, "audit verify").arg(file("changed.jsonl")).refused(&["changed.jsonl", "signature does not fit"]);
    let cut: String = text.lines().take(5).map(|line| format!("{line}\n")).collect();
    std::fs::write(file("cut.jsonl"), cut).unwrap();
    fednmf(0, "audit verify").arg(file("cut.jsonl")).refused(&["cut.jsonl", "line 5", "no signature"]);
}

/// The messages of an output and a report are in the message table, also if ranks are one trust domain.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn transcripts_of_runs_with_all_outputs_are_verified() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (algo, more) in [("hals", ""), ("kl-cd", ""), ("dsanls", ""), ("fnmf", "--parties 2")] {
        let at = |end: &str| file(&format!("{algo}.{end}"));
        let run = fednmf(2, &format!("--algo {algo} {more} -k 3 --max-iters 3 --input")).arg(data("digits.npy"));
        let run = run.arg("--transcript").arg(at("jsonl")).arg("--output").arg(at("h5"));
        run.arg("--report").arg(at("html")).arg("--checkpoint").arg(at("ckpt.h5")).ok();
        for rank in 0..2 {
            verified(&at(&format!("rank-0{rank}.jsonl")), &[]);
        }
    }
}

/// A refusal on one rank leaves no new file on another, and removes no existing one.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_refused_run_leaves_nothing_on_any_rank() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let left = || {
        let mut all: Vec<String> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    };
    let line = "--algo felb-mu --binarize 0.5 --parties 3 -k 2 --max-iters 2 --eval-every 0 --dp gaussian --epsilon 1";
    let run = || fednmf(3, line).arg("--input").arg(data("digits.npy")).arg("--transcript").arg(file("t.jsonl"));
    // A key of one rank is none.
    std::fs::write(file("t.rank-01.jsonl.key"), "no key\n").unwrap();
    run().refused(&["t.rank-01.jsonl.key", "64 hexadecimal digits"]);
    assert_eq!(left(), ["t.rank-01.jsonl.key"]);
    // A budget of one party has too little left; the key that was there stays.
    let key = "ab".repeat(32) + "\n";
    std::fs::write(file("t.rank-01.jsonl.key"), &key).unwrap();
    let budget = r#"{"fednmf_budget": 3, "limit": 2,
        "protects": {"unit": "party", "covers": "one-party",
            "division": {"cut": {"parties": 3, "along": "rows", "sizes": "3 x 599"}}},
        "runs": [{"run": "other", "method": "felb", "epsilon": 1.5, "delta": 1e-6, "ended": true}]}"#;
    std::fs::write(file("b2.json"), budget).unwrap();
    run().arg("--budget").arg(file("b{party}.json")).arg("--budget-limit").arg("2").refused(&["b2.json", "is left"]);
    assert_eq!(left(), ["b2.json", "t.rank-01.jsonl.key"]);
    assert_eq!(std::fs::read_to_string(file("t.rank-01.jsonl.key")).unwrap(), key);
    assert_eq!(std::fs::read_to_string(file("b2.json")).unwrap(), budget);
    // A budget with an unknown privacy unit is refused, too.
    let budget = r#"{"fednmf_budget": 2, "limit": 2, "runs": [
        {"run": "other", "method": "felb", "epsilon": 0.5, "delta": 1e-6, "ended": true}]}"#;
    std::fs::write(file("b2.json"), budget).unwrap();
    let run = run().arg("--budget").arg(file("b{party}.json")).arg("--budget-limit").arg("2");
    run.refused(&["b2.json", "earlier version", "another --budget file", "0.500000"]);
    assert_eq!(left(), ["b2.json", "t.rank-01.jsonl.key"]);
    assert_eq!(std::fs::read_to_string(file("b2.json")).unwrap(), budget);
}

#[test]
fn a_file_that_is_no_key_of_a_transcript_is_refused_and_kept() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("a.jsonl.key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    let run = || {
        let line = "--algo fnmf --parties 2 -k 2 --max-iters 2 --input synthetic:planted,m=20,n=9";
        fednmf(0, line).arg("--transcript").arg(file("a.jsonl"))
    };
    run().refused(&[
        "--transcript ",
        "a.jsonl",
        "a.jsonl.key",
        "64 hexadecimal digits",
        "--transcript-key",
        "another name",
    ]);
    run().arg("--transcript-key").arg(file("a.jsonl.key")).refused(&[
        "--transcript-key ",
        "a.jsonl.key",
        "name another file",
    ]);
    std::fs::write(file("a.csv"), "1,2\n3,4\n").unwrap();
    let line = "--algo fnmf --parties 2 -k 1 --max-iters 2 --input";
    let over = fednmf(0, line).arg(file("a.csv")).arg("--transcript").arg(file("a.jsonl"));
    over.arg("--transcript-key").arg(file("a.csv")).refused(&["--transcript-key ", "would overwrite", "a.csv"]);
    assert!(!file("a.jsonl").exists());
    run().arg("--transcript-key").arg(file("signing.key")).ok();
    assert!(file("a.jsonl").exists() && file("signing.key").exists());
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
    run("2", "--budget-limit 3.2").arg("--transcript").arg(file("t.jsonl")).ok();
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
    run("2", "").refused(&["2 earlier runs", "epsilon of 3.2", "is left"]);
    assert_eq!(budget(1)["runs"].as_array().unwrap().len(), 2);
    run("0.5", "--budget-limit 9").refused(&["its limit is 3.2"]);
    // A run that is not in the budget is detected.
    std::fs::write(file("empty.json"), r#"{"fednmf_budget": 1, "limit": 3.2, "runs": []}"#).unwrap();
    let other = fednmf(0, "audit verify").arg(file("t.rank-00.jsonl")).arg("--budget").arg(file("empty.json")).run();
    assert!(other.code == Some(1) && other.stderr.contains("not in the budget"), "{}", other.stderr);
    let told = fednmf(0, "account").arg("--budget").arg(file("b{party}.json")).run().stdout;
    let simple = budget(0)["runs"][0]["epsilon"].as_f64().unwrap() + budget(0)["runs"][1]["epsilon"].as_f64().unwrap();
    assert_eq!(told.matches("2 runs").count(), 3, "{told}");
    let sum =
        told.split("and of deltas: ").nth(1).and_then(|rest| rest.split(',').next()?.parse::<f64>().ok()).unwrap();
    assert!((simple..simple + 2e-6).contains(&sum) && told.contains("felb-mu  "), "{told}");
    let told = fednmf(0, "account --json").arg("--budget").arg(file("b1.json")).run().stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    // Two equal Gaussian runs have √2 of the noise-to-signal ratio of one, so three of them fit where a sum allows two.
    let mu: f64 = (0..2).map(|at| told["runs"][at]["loss"]["loss"]["gaussian"]["mu"].as_f64().unwrap().powi(2)).sum();
    let account = format!("account --json --noise {} --delta 1e-5", mu.sqrt().recip());
    let closed: Value = serde_json::from_str(&fednmf(0, &account).run().stdout).unwrap();
    let (composed, closed) = (told["epsilon"].as_f64().unwrap(), closed["epsilon"].as_f64().unwrap());
    assert!((composed - closed).abs() < 1e-4 && composed < 0.8 * simple, "{composed} {closed} {simple}");
    assert!((told["epsilon_simple"].as_f64().unwrap() - simple).abs() < 1e-9, "{told}");
    assert!((told["left"].as_f64().unwrap() - (3.2 - composed)).abs() < 1e-9 && told["limit"] == 3.2, "{told}");
    fednmf(0, "account").arg("--budget").arg(file("none.json")).refused(&["none.json", "cannot be read"]);
    fednmf(0, "account --noise 1").arg("--budget").arg(file("b1.json")).refused(&["--budget", "--noise"]);
    fednmf(0, "--algo fnmf").arg("--budget").arg(file("x.json")).refused(&["--budget", "--dp and --epsilon"]);
}

/// What a budget file says is what runs have written there, and under one name.
#[test]
fn a_budget_file_that_something_else_changed_is_refused() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line =
        "--algo fnmf --parties 3 -k 2 --max-iters 2 --dp gaussian --epsilon 1 --input synthetic:planted,m=30,n=12";
    let run = |name: &str, more: &str| fednmf(0, &format!("{line} {more}")).arg("--budget").arg(file(name));
    run("b.json", "--budget-limit 3").ok();
    let mode = std::fs::metadata(file("b.json.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let [good, key] = ["b.json", "b.json.key"].map(|name| std::fs::read_to_string(file(name)).unwrap());
    // A change would replace the link by a file, and leave the one that it points to.
    std::os::unix::fs::symlink(file("b.json"), file("soft.json")).unwrap();
    run("soft.json", "").refused(&["soft.json", "symbolic link"]);
    std::fs::hard_link(file("b.json"), file("hard.json")).unwrap();
    run("hard.json", "").refused(&["hard.json", "hard link"]);
    run("b.json", "").refused(&["b.json", "hard link"]);
    std::fs::remove_file(file("hard.json")).unwrap();
    let start = good.find("\"runs\": [").unwrap();
    let end = good.find("],\n  \"code\"").unwrap();
    for edited in [
        good.replace("\"limit\": 3.0", "\"limit\": 30.0"),
        format!("{}{}", &good[..start + 9], &good[end..]),
        r#"{"fednmf_budget": 3, "limit": 3, "runs": []}"#.to_string(),
    ] {
        assert_ne!(edited, good);
        std::fs::write(file("b.json"), edited).unwrap();
        run("b.json", "").refused(&["b.json", "changed", "backup"]);
        fednmf(0, "account").arg("--budget").arg(file("b.json")).refused(&["b.json", "changed"]);
    }
    std::fs::remove_file(file("b.json")).unwrap();
    run("b.json", "--budget-limit 3").refused(&["b.json", "was removed", "b.json.key"]);
    std::fs::write(file("b.json"), &good).unwrap();
    std::fs::remove_file(file("b.json.key")).unwrap();
    run("b.json", "").refused(&["b.json.key is missing"]);
    std::fs::write(file("b.json.key"), &key).unwrap();
    std::fs::set_permissions(file("b.json.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    run("b.json", "").refused(&["b.json.key", "chmod 600"]);
    std::fs::set_permissions(file("b.json.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    run("b.json", "").ok();
    // One of version 3 has neither key nor code.
    let old = serde_json::from_str::<Value>(&good).unwrap();
    let mut old = old.as_object().unwrap().clone();
    old.remove("code");
    old.insert("fednmf_budget".into(), 3.into());
    old["runs"][0].as_object_mut().unwrap().remove("releases");
    std::fs::write(file("old.json"), Value::from(old).to_string()).unwrap();
    let taken = run("old.json", "").run();
    assert!(taken.code == Some(0) && taken.stderr.contains("taken over"), "{}", taken.stderr);
    let again = run("old.json", "").run();
    assert!(again.code == Some(0) && !again.stderr.contains("taken over"), "{}", again.stderr);
    let now: Value = serde_json::from_str(&std::fs::read_to_string(file("old.json")).unwrap()).unwrap();
    assert!(now["fednmf_budget"] == 4 && now["runs"].as_array().unwrap().len() == 3, "{now}");
}

/// A stopped run counts with all that it may still spend when it is resumed; no other command releases noise.
#[test]
fn neither_a_resume_nor_a_sweep_gets_around_the_budget() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line =
        "--algo felb-mu --binarize 0.5 --parties 3 -k 2 --eval-every 0 --dp gaussian --dp-releases 4 --max-iters";
    let run = |more: &str, name: &str| {
        let run = fednmf(0, &format!("{line} {more}")).arg("--input").arg(data("digits.npy"));
        run.arg("--checkpoint").arg(file(name))
    };
    let left = || -> f64 {
        let told = fednmf(0, "account --json").arg("--budget").arg(file("b.json")).run().stdout;
        serde_json::from_str::<Value>(&told).unwrap()["left"].as_f64().unwrap()
    };
    let budget = |more: &str, name: &str| run(more, name).arg("--budget").arg(file("b.json"));
    // A limit is set once; the first run spends so little that it does not matter.
    budget("1 --epsilon 0.01 --budget-limit 2.05", "first.h5").ok();
    budget("1 --epsilon 2", "a.h5").ok();
    let first = left();
    assert!(first > 1.0, "one release of four spent only its part: {first} is left");
    // The same run without the file, or with another one.
    run("4 --epsilon 2 --resume", "a.h5").refused(&["budget was"]);
    run("4 --epsilon 2 --budget-limit 2.05 --resume", "a.h5")
        .arg("--budget")
        .arg(file("other.json"))
        .refused(&["another run", "budget was"]);
    assert!(!file("other.json").exists());
    // Another run takes what the first one left; resumed, the first would need it.
    budget("4 --epsilon 1", "b.h5").ok();
    budget("4 --epsilon 2 --resume", "a.h5").refused(&["earlier run", "is left"]);
    assert!(left() > 0.0 && left() < first);
    // A sweep runs only methods of one trust domain.
    for algo in ["felb-mu", "fnmf", "syn-sd"] {
        let sweep = fednmf(0, &format!("sweep --algo {algo} -k 2 --input synthetic:planted"));
        sweep.arg("--output").arg(file("sweep")).refused(&["--algo", algo]);
    }
    let sweep = fednmf(0, "sweep -k 2 --input synthetic:planted").arg("--budget").arg(file("b.json"));
    sweep.arg("--output").arg(file("sweep")).refused(&["--budget"]);
    assert!(!file("sweep").exists());
}

/// A sum over different units would protect neither: each has a file of its own.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_budget_adds_up_what_protects_the_same() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |budget: &str, more: &str| {
        let line = format!("-k 2 --max-iters 3 --eval-every 0 --dp gaussian --epsilon 3 {more}");
        let given = ["--input", "--parties"].map(|option| more.contains(option));
        let run = fednmf(2, &line).arg("--budget").arg(file(budget));
        let run = if given[0] { run } else { run.arg("--input").arg("synthetic:planted,m=40,n=12") };
        if given[1] { run } else { run.arg("--parties").arg("4") }
    };
    let refused = |budget: &str, more: &str, parts: &[&str]| {
        let before = std::fs::read_to_string(file(budget)).unwrap();
        run(budget, more).refused(&[&[budget, "another --budget file"], parts].concat());
        assert_eq!(std::fs::read_to_string(file(budget)).unwrap(), before);
    };
    let account = |budget: &str| fednmf(0, "account").arg("--budget").arg(file(budget)).run().stdout;

    run("c.json", "--algo secure-hals --budget-limit 9").ok();
    refused("c.json", "--algo fnmf", &["one column of your file", "the whole data of a party"]);
    refused("c.json", "--algo secure-hals --transpose", &["one column of your file", "one row of your file"]);
    // A column is the same privacy unit whichever party has it.
    run("c.json", "--algo secure-hals --parties 3").ok();
    let told = account("c.json");
    assert!(told.contains("protects: one column of your file; one budget") && told.contains("2 runs"), "{told}");

    run("p.json", "--algo fnmf --budget-limit 9").ok();
    refused("p.json", "--algo secure-hals", &["one column of your file", "the whole data of a party"]);
    refused("p.json", "--algo fnmf --parties 3", &["4 parties with rows", "3 parties with rows"]);
    refused("p.json", "--algo fnmf --skew 0.4", &["(4 x 10)", "(1 x 16 + 3 x 8)"]);
    refused("p.json", "--algo fnmf --transpose", &["4 parties with rows", "4 parties with columns"]);
    refused("p.json", "--algo syn-sd --clip 1", &["4 parties with rows", "4 parties with columns"]);
    run("p.json", "--algo fnmf").ok();
    // The columns of the transposed matrix are its rows.
    run("p.json", "--algo syn-sd --clip 1 --transpose").ok();
    let told = account("p.json");
    assert!(told.contains("protects: the whole data of a party, 4 parties with rows of one matrix (4 x 10)"), "{told}");
    assert!(told.contains("3 runs"), "{told}");

    // A party with a file of its own is the same party, whatever the others do.
    for party in 0..3 {
        let line = |i: usize| (0..6).map(|j| format!("{}.5", (i * j + i + party) % 7)).collect::<Vec<_>>().join(",");
        let text: String = (0..6).map(|i| line(i) + "\n").collect();
        std::fs::write(file(&format!("d{party}.csv")), text).unwrap();
    }
    let input = format!("--header no --index-col no --input {}", file("d{party}.csv").display());
    run("own{party}.json", &format!("--algo fnmf --parties 3 --budget-limit 9 {input}")).ok();
    std::fs::remove_file(file("d2.csv")).unwrap();
    run("own{party}.json", &format!("--algo syn-sd --clip 1 --parties 2 {input}")).ok();
    let told = account("own{party}.json");
    let each = "a party, each party with a file of its own; the budget of one party";
    assert_eq!([told.matches(each).count(), told.matches("2 runs").count()], [3, 2], "{told}");
    refused("own1.json", &format!("--algo fnmf --parties 2 {input}"), &["one budget for all parties"]);
}

#[test]
fn account_tells_that_a_run_was_resumed() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |more: &str| {
        let line = "--algo fnmf --parties 3 -k 2 --input synthetic:planted,m=30,n=12 --eval-every 0 --dp gaussian \
                    --epsilon 2 --dp-releases 4 --budget-limit 5 --max-iters";
        let run = fednmf(0, &format!("{line} {more}")).arg("--checkpoint").arg(file("c.h5"));
        run.arg("--budget").arg(file("b.json")).ok();
        let told = fednmf(0, "account").arg("--budget").arg(file("b.json")).run().stdout;
        told.lines().find(|line| line.contains("fnmf  ")).unwrap().to_string()
    };
    assert!(run("1").ends_with("-5  ended"));
    assert!(run("2 --resume").ends_with("  resumed, ended"));
    // A killed run leaves this.
    let [text, key] = ["b.json", "b.json.key"].map(|name| std::fs::read_to_string(file(name)).unwrap());
    let key = BudgetKey::parse(&key).unwrap();
    let mut budget = BudgetFile::read(&text, Some(&key)).unwrap();
    budget.runs[0].ended = false;
    std::fs::write(file("b.json"), budget.text(&key)).unwrap();
    let told = run("3 --resume");
    assert!(told.ends_with("  killed, resumed, ended: all that it reserved counts"), "{told}");
}

/// One budget for all parties is in the name of party 0, which the first rank hosts.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_budget_of_all_parties_covers_the_transcripts_of_all_ranks() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = "--algo fnmf --secure-sum --dp gaussian --epsilon 2 --parties 3 --max-iters 2 --eval-every 0 -k 3 \
                --budget-limit 3 --input synthetic:planted,m=30,n=12";
    fednmf(2, line).arg("--budget").arg(file("b.json")).arg("--transcript").arg(file("t.jsonl")).ok();
    let verify = |ranks: &[usize]| {
        let run = fednmf(0, "audit verify --budget").arg(file("b.json"));
        ranks.iter().fold(run, |run, rank| run.arg(file(&format!("t.rank-0{rank}.jsonl")))).run()
    };
    assert_eq!(verify(&[0, 1]).code, Some(0), "{}", verify(&[0, 1]).stderr);
    let alone = verify(&[1]);
    assert!(alone.code == Some(1) && alone.stderr.contains("transcript of rank 0"), "{}", alone.stderr);
}
