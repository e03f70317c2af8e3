//! The files of parties stay with their ranks: what others receive of them does not depend on the number of their entries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use fednmf_comm::Knowledge;
use fednmf_files::output::view::RecordedView;

use crate::common::{events, fednmf};

/// A file of 20 × 9 entries for each of three parties. In that of party 1, the first `dropped` entries are left out, and
/// the first `zeros` zeros are stored.
fn files(dir: &Path, dropped: usize, zeros: usize) {
    for party in 0..3 {
        let (mut entries, mut stored, mut left_out) = (String::new(), 0, 0);
        let mut kept_zeros = if party == 1 { zeros } else { 0 };
        for (i, j) in (0..20).flat_map(|i| (0..9).map(move |j| (i, j))) {
            let mixed = (i * 31 + j * 17 + party * 7) % 11;
            let value = if mixed < 5 || i == j { mixed + 1 } else { 0 };
            if party == 1 && value > 0 && i != j && left_out < dropped {
                left_out += 1;
                continue;
            }
            if value == 0 && kept_zeros == 0 {
                continue;
            }
            kept_zeros -= usize::from(value == 0);
            writeln!(entries, "{} {} {value}", i + 1, j + 1).unwrap();
            stored += 1;
        }
        let text = format!("%%MatrixMarket matrix coordinate integer general\n20 9 {stored}\n{entries}");
        std::fs::write(dir.join(format!("part-{party}.mtx")), text).unwrap();
    }
}

/// What a rank received, in order: kind, payload, and values.
type Received = Vec<(String, String, Vec<f64>)>;

/// Runs `line` on three ranks with [`files`] and noise, if any, that is the same each time. Returns what each rank received, and
/// the ledger.
fn run(line: &str, [dropped, zeros]: [usize; 2]) -> (Vec<Received>, BTreeMap<String, Value>) {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    files(dir, dropped, zeros);
    let line = format!("{line} --parties 3 -k 2 --max-iters 3 --seed 5 --kernel native --input");
    let run = fednmf(3, &line).arg(dir.join("part-{party}.mtx")).arg("--trace").arg(dir.join("t.jsonl"));
    let summary = run.arg("--output").arg(dir.join("o.h5")).arg("--record-view").arg(dir.join("v.npz")).ok();
    let views = (0..3).map(|rank| {
        let view = RecordedView::open(&dir.join(format!("v.rank-0{rank}.npz"))).unwrap();
        let received = view.records.iter().enumerate().filter(|(_, r)| r.knowledge == Knowledge::Received);
        let received = received.map(|(at, record)| {
            let values = view.values(at).unwrap().into_raw_vec_and_offset().0;
            (record.kind.clone(), record.payload.clone().unwrap(), values)
        });
        received.collect()
    });
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let rows = summary["wire"].as_array().unwrap().iter();
    let rows = rows.filter(|row| !varies(&text(&row["purpose"]), &text(&row["payload"])));
    let kind = |row: &Value| format!("{} {} {}", row["purpose"], row["payload"], row["protection"]);
    let ledger = rows.map(|row| (kind(row), row.clone())).collect();
    let end = events(&dir.join("t.jsonl")).pop().unwrap();
    for (name, phase) in end["phases"].as_object().unwrap() {
        assert_eq!(phase["seconds_by_rank"].as_array().unwrap().len(), 1, "{name}: {phase}");
    }
    (views.collect(), ledger)
}

/// Masks, keys, decisions of clocks and the mark of an output are other ones each time.
fn varies(kind: &str, payload: &str) -> bool {
    payload == "Masked" || ["control", "public keys"].contains(&kind) || kind == "output" && payload == "Control"
}

const LINES: [&str; 14] = [
    "--algo fnmf --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start shared --barycenter mean",
    "--algo fnmf --secure-sum --start shared --dp gaussian --dp-noise 0.1 --clip 2 --secret-seed 7 --eval-every 0",
    "--algo felb --binarize 0.5 --secure-sum --dp xor --dp-noise 0.1 --secret-seed 7 --eval-every 0",
    "--algo inmf --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo syn-sd --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo secure-hals --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo secure-hals --secure-sum --dp gaussian --epsilon 8 --secret-seed 7 --eval-every 0",
    "--algo fed-kl --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo fed-beta --beta 2 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo syn-ssd-uv --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo fedprox --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo mur --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo felb-mu --binarize 0.5 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
    "--algo mpc-rows --secret-seed 7",
];

#[test]
fn no_message_depends_on_the_number_of_stored_entries() {
    for line in LINES {
        // The same matrix, of which one party stores some zeros.
        let [(few, few_ledger), (many, many_ledger)] = [0, 23].map(|zeros| run(line, [0, zeros]));
        assert_eq!(few_ledger, many_ledger, "{line}");
        for rank in [0, 2] {
            let [few, many] = [&few[rank], &many[rank]]
                .map(|all| all.iter().filter(|(kind, payload, _)| !varies(kind, payload)).collect::<Vec<_>>());
            assert_eq!(few.len(), many.len(), "{line}");
            for (few, many) in few.iter().zip(&many) {
                assert_eq!(few, many, "{line}: rank {rank}");
            }
        }
    }
}

#[test]
fn control_and_metadata_do_not_depend_on_the_entries() {
    for line in LINES {
        let [(few, few_ledger), (many, many_ledger)] = [29, 0].map(|dropped| run(line, [dropped, 0]));
        assert_eq!(few_ledger, many_ledger, "{line}");
        for rank in [0, 2] {
            let [few, many] = [&few[rank], &many[rank]].map(|all| {
                let beside = |payload: &str| ["Control", "Metadata"].contains(&payload);
                let kept = all.iter().filter(|(kind, payload, _)| beside(payload) && !varies(kind, payload));
                kept.collect::<Vec<_>>()
            });
            assert_eq!(few, many, "{line}: rank {rank}");
            assert!(few.iter().any(|(kind, ..)| kind == "load headers"), "{line}");
        }
    }
}

/// Files and hosts are not named in what others may see, which is for the owner alone under masks.
#[test]
fn what_a_run_of_parties_writes_names_no_file() {
    for (line, mode) in [
        ("--algo fnmf", None),
        (
            "--algo fnmf --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start shared",
            Some(0o600),
        ),
    ] {
        let dir = tempdir().unwrap();
        files(dir.path(), 0, 0);
        let at = |name: &str| dir.path().join(name);
        let run = fednmf(2, &format!("{line} --parties 3 -k 2 --max-iters 2 --input")).arg(at("part-{party}.mtx"));
        let run = run.arg("--trace").arg(at("t.jsonl")).arg("--report").arg(at("r.html"));
        run.arg("--output").arg(at("o.npz")).arg("--transcript").arg(at("w.jsonl")).ok();
        for name in ["t.jsonl", "r.html", "o.npz", "w.rank-00.jsonl", "w.rank-01.jsonl"] {
            let bytes = std::fs::read(at(name)).unwrap();
            let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!has("part-") && !has(".mtx"), "{line}: {name}");
            let found = std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
            assert!(name.starts_with('w') || mode.is_none_or(|mode| found == mode), "{line}: {name} {found:o}");
        }
        // What follows from such a file is for the owner alone too.
        let weights = fednmf(0, "project").arg(at("o.npz")).arg("--input").arg(at("part-0.mtx"));
        assert_eq!(weights.arg("--output").arg(at("u.npz")).run().code, Some(0));
        for (line, name) in [("clusters --of columns", "c.tsv"), ("top", "n.tsv")] {
            let from = at(if name == "c.tsv" { "u.npz" } else { "o.npz" });
            assert_eq!(fednmf(0, line).arg(from).arg("--output").arg(at(name)).run().code, Some(0), "{line}");
        }
        for name in ["u.npz", "c.tsv", "n.tsv"] {
            let found = std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
            assert!(mode.is_none_or(|mode| found == mode), "{line}: {name} {found:o}");
        }
    }
}
