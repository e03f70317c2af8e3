//! What leaves a party against the message tables, in both directions: everything in the ledger is in the table, under a
//! protection that the table allows, and everything in the table leaves in some run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{fednmf, npy};
use fednmf::algorithms::description::{COMMON_MESSAGES, Description};
use fednmf::algorithms::registry;
use serde_json::Value;
use tempfile::tempdir;

/// A message of the ledger: kind, payload, protection.
type Message = (String, String, String);

fn messages(summary: &Value) -> BTreeSet<Message> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_else(|| panic!("no {name} in {row}")).to_string();
    let rows = summary["wire"].as_array().expect("a ledger").iter();
    rows.map(|row| (text(row, "purpose"), text(row, "payload"), text(row, "protection"))).collect()
}

/// The runs of a method that use every option which changes what leaves a party.
fn runs(method: &Description) -> Vec<String> {
    let options = registry::find(method.name).expect("a method").options();
    let has = |name: &str| options.iter().any(|option| option.get_long() == Some(name));
    let mut all = vec![String::new()];
    if has("secure-sum") {
        let shared = if method.name == "fnmf" { "--start shared --barycenter mean" } else { "" };
        all.push(format!("{shared} --secure-sum"));
        if has("secure-threshold") {
            all.push(format!("{shared} --secure-sum --secure-threshold 3"));
        }
    }
    if has("dp") {
        // Votes are Boolean: their noise is flipped bits.
        let noise = if has("aggregate") { "--dp xor --dp-noise 0.1" } else { "--dp gaussian --dp-noise 0.1 --clip 2" };
        all.push(noise.to_string());
        all.push(format!("{noise} --secure-sum {}", if method.name == "fnmf" { "--start shared" } else { "" }));
    }
    if has("clock") {
        all.push("--clock real".into());
    }
    if method.name == "fnmf" {
        all.extend(["tree", "greedy"].map(|barycenter| format!("--barycenter {barycenter}")));
    }
    if has("plain") {
        all.extend(["--plain --admm-tol 1e-3".to_string(), "--key-bits 128 --insecure-key".to_string()]);
    }
    all
}

/// Runs with files of parties, or one file for all, with everything that is written, evaluated and resumed.
fn everything(method: &Description, dir: &Path, line: &str, ranks: usize, split: bool) -> BTreeSet<Message> {
    let input = if split { dir.join("part-{party}.npy") } else { dir.join("all.npy") };
    let turned = if split && method.partition.describe().contains("columns") { "--transpose" } else { "" };
    let binary = if method.is_boolean() { "--binarize 0.5" } else { "" };
    let k = if method.name == "ppdnmf" { 1 } else { 2 };
    let all = format!("--algo {} {line} --parties 4 {binary} {turned} -k {k} --secret-seed 3 --tol 1e-9", method.name);
    let known = registry::find(method.name).expect("a method").options();
    let seeded = known.iter().any(|option| option.get_long() == Some("secret-seed"));
    let all = if seeded { all } else { all.replace("--secret-seed 3", "") };
    let run = |iters: usize, more: &str| {
        let file = |name: &str| dir.join(format!("{}{ranks}{split}.{name}", method.name));
        let run = fednmf(ranks, &format!("{all} --max-iters {iters} {more}")).arg("--input").arg(&input);
        run.arg("--checkpoint")
            .arg(file("c.h5"))
            .arg("--output")
            .arg(file("o.h5"))
            .arg("--trace")
            .arg(file("t.jsonl"))
            .ok()
    };
    let mut seen = messages(&run(2, ""));
    seen.extend(messages(&run(3, "--resume")));
    for entry in
        std::fs::read_dir(dir).unwrap().flatten().filter(|e| !e.file_name().to_string_lossy().ends_with(".npy"))
    {
        std::fs::remove_file(entry.path()).unwrap();
    }
    seen
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn what_leaves_a_party_is_the_message_table() {
    let dir = tempdir().unwrap();
    npy(dir.path(), "all.npy", 0..24);
    (0..4).for_each(|party| drop(npy(dir.path(), &format!("part-{party}.npy"), party * 6..party * 6 + 6)));
    let mut common = BTreeMap::new();
    for method in registry::descriptions().filter(|m| m.partition.is_private()) {
        let mut seen: BTreeSet<Message> = BTreeSet::new();
        for line in runs(method) {
            for (ranks, split) in [(2, true), (3, false)] {
                let now = everything(method, dir.path(), &line, ranks, split);
                for (kind, payload, protection) in &now {
                    let spec = COMMON_MESSAGES.iter().chain(method.messages);
                    let spec = spec.filter(|w| w.kind == kind && format!("{:?}", w.payload) == *payload);
                    let allowed = spec.clone().any(|w| method.allows(w, protection));
                    println!("UNKNOWN {} {line}: {kind} ({payload}, {protection}) {allowed}", method.name);
                }
                seen.extend(now);
            }
        }
        for w in method.messages {
            let found = seen.iter().any(|(kind, payload, _)| kind == w.kind && *payload == format!("{:?}", w.payload));
            println!("UNSEEN {} {} {:?} {found}", method.name, w.kind, w.payload);
        }
        for w in COMMON_MESSAGES {
            *common.entry(w.kind).or_insert(false) |= seen.iter().any(|(kind, _, _)| kind == w.kind);
        }
    }
    println!("{common:?}");
}
