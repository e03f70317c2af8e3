//! The releases of parties against the message tables, in both directions: everything in the ledger is in the table, under a
//! protection that the table allows, and everything in the table leaves in some run.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec, Partition};
use fednmf_methods::registry;

use crate::common::{fednmf, npy};

/// A message of the ledger: kind, payload, protection.
type Message = (String, String, String);

fn messages(summary: &Value) -> BTreeSet<Message> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_else(|| panic!("no {name} in {row}")).to_string();
    let rows = summary["wire"].as_array().expect("a ledger").iter();
    rows.map(|row| (text(row, "purpose"), text(row, "payload"), text(row, "protection"))).collect()
}

/// The runs of a method that use every option which changes what leaves a party.
fn runs(method: &Description) -> Vec<String> {
    let entry = registry::find(method.name).expect("a method");
    let has = |name: &str| entry.takes(name);
    let mut all = vec![String::new()];
    if has("secure-sum") {
        let shared = if method.name == "fnmf" { "--start shared --barycenter mean" } else { "" };
        all.push(format!("{shared} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries"));
        if has("secure-threshold") {
            all.push(format!(
                "{shared} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secure-threshold 3 --scale max"
            ));
        }
    }
    if has("dp") {
        // Votes are Boolean: their noise is flipped bits.
        let noise = if has("aggregate") { "--dp xor --dp-noise 0.1" } else { "--dp gaussian --dp-noise 0.1 --clip 2" };
        let noise = format!("{noise} --eval-every 10");
        all.push(noise.clone());
        all.push(format!("{noise} --secure-sum {}", if method.name == "fnmf" { "--start shared" } else { "" }));
    }
    if has("clock") {
        all.push("--clock real".into());
    }
    if method.name == "fnmf" {
        all.extend(["tree", "greedy"].map(|barycenter| format!("--barycenter {barycenter}")));
    }
    if method.name == "fed-beta" {
        all.push("--beta 1".into());
    }
    if method.name == "fed-kl" {
        let held = "--holdout 0.3";
        all.push(format!("{held} --accept-risk rare-entries"));
        all.push(format!("{held} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries"));
    }
    if has("plain") {
        all.extend(["--plain --admm-tol 1e-3".to_string(), "--key-bits 128 --insecure-key".to_string()]);
    }
    all
}

/// Who runs, and on what.
#[derive(Clone, Copy)]
struct Setting {
    ranks: usize,
    /// Files of the parties, or one file for all.
    input: &'static str,
    /// Everything that is written, and a resume.
    everything: bool,
}

const SETTINGS: [Setting; 3] = [
    Setting { ranks: 2, input: "part-{party}.npy", everything: true },
    Setting { ranks: 3, input: "all.npy", everything: true },
    Setting { ranks: 3, input: "all.mtx", everything: false },
];

fn run(method: &Description, dir: &Path, line: &str, setting: Setting) -> BTreeSet<Message> {
    let columns = method.partition == Partition::PartyColumns;
    let turned = if setting.input.contains("{party}") && columns { "--transpose" } else { "" };
    let binary = match method.name {
        "dsanls-secure" => "--accept-risk sketches",
        _ if method.is_boolean() => "--binarize 0.5",
        _ => "",
    };
    let k = if method.name == "ppdnmf" { 1 } else { 2 };
    let tol = if method.on_shares { "" } else { "--tol 1e-9" };
    let all = format!("--algo {} {line} --parties 4 {binary} {turned} -k {k} {tol}", method.name);
    let file = |name: &str| dir.join(name);
    let run = |iters: usize, more: &str| {
        let run =
            fednmf(setting.ranks, &format!("{all} --max-iters {iters} {more}")).arg("--input").arg(file(setting.input));
        if !setting.everything {
            return messages(&run.ok());
        }
        let run = run.arg("--checkpoint").arg(file("c.h5")).arg("--output").arg(file("o.h5"));
        messages(&run.arg("--trace").arg(file("t.jsonl")).arg("--report").arg(file("r.html")).ok())
    };
    let mut seen = run(2, "");
    if setting.everything {
        // On shares the iteration of the result is fixed.
        seen.extend(run(if method.on_shares { 2 } else { 3 }, "--resume"));
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(".npy") && !name.ends_with(".mtx") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
    seen
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn what_leaves_a_party_is_the_message_table() {
    let dir = tempdir().unwrap();
    npy(dir.path(), "all.npy", 0..24);
    (0..4).for_each(|party| drop(npy(dir.path(), &format!("part-{party}.npy"), party * 6..party * 6 + 6)));
    let entries: String = (0..24).map(|i| format!("{} {} {}\n", i + 1, i % 5 + 1, i % 7 + 1)).collect();
    let mtx = format!("%%MatrixMarket matrix coordinate integer general\n24 5 24\n{entries}");
    std::fs::write(dir.path().join("all.mtx"), mtx).unwrap();
    let same = |w: &MessageSpec, kind: &str, payload: &str| w.kind == kind && w.payload.name() == payload;
    let mut all: BTreeSet<Message> = BTreeSet::new();
    for method in registry::descriptions().filter(|m| m.partition.is_private()) {
        let mut seen: BTreeSet<Message> = BTreeSet::new();
        for (number, line) in runs(method).into_iter().enumerate() {
            // What is written and read does not depend on how the parties' messages are protected.
            let settings = if number == 0 { &SETTINGS[..] } else { &SETTINGS[..1] };
            for &setting in settings {
                let setting = Setting { everything: setting.everything && number == 0, ..setting };
                let now = run(method, dir.path(), &line, setting);
                for (kind, payload, protection) in &now {
                    let mut table = COMMON_MESSAGES.iter().chain(method.messages).filter(|w| same(w, kind, payload));
                    let allowed = table.any(|w| method.allows(w, protection));
                    assert!(allowed, "{} {line}: {kind} ({payload}, {protection}) is not in the table", method.name);
                    // Under masks or noise no message of the method leaves in the clear, unless its name says so.
                    let bare = protection == "in the clear";
                    let own = method.messages.iter().any(|w| same(w, kind, payload));
                    let masked = line.contains("--secure-sum") || line.contains("--key-bits");
                    let shown = method.messages.iter().any(|w| same(w, kind, payload) && w.always_shown)
                        // Between the ranks of the server, which received it from the parties.
                        || kind == "inside the server"
                        // Its first exchange is of the starts, which are public.
                        || method.name == "fedprox" && payload == "SharedFactor";
                    assert!(!(bare && own && masked) || shown, "{} {line}: {kind} leaves in the clear", method.name);
                    let figures = kind == "statistics of the matrix" || kind == "load counts";
                    let alone = setting.input.contains("{party}");
                    assert!(!(bare && figures && masked && alone), "{} {line}: {kind} leave in the clear", method.name);
                    // Evaluations are exact sums, whose largest terms leave too.
                    let evaluates = kind.starts_with("evaluation") || kind == "largest term of an exact sum";
                    let released = line.contains("--dp") && !evaluates;
                    assert!(!(bare && own && released) || shown, "{} {line}: {kind} leaves without noise", method.name);
                }
                seen.extend(now);
            }
        }
        // These data allow no release, so that there is no limit without --accept-risk sketches.
        let limits = |w: &&MessageSpec| w.kind == "limits of releases";
        for w in method.messages.iter().filter(|w| !w.after_loss && !limits(w)) {
            let sent = seen.iter().any(|(kind, payload, _)| same(w, kind, payload));
            assert!(sent, "{}: no run sends '{}' ({:?})", method.name, w.kind, w.payload);
        }
        all.extend(seen);
    }
    (0..4).for_each(|party| {
        let rows: String = (0..6).map(|i| format!("{},{},{}\n", (i * i + party) % 5, 1 + i % 3, (i * 3) % 4)).collect();
        std::fs::write(dir.path().join(format!("named-{party}.csv")), format!("one,two,three\n{rows}")).unwrap();
    });
    let named = Setting { ranks: 2, input: "named-{party}.csv", everything: false };
    all.extend(run(registry::find("fnmf").expect("a method").description(), dir.path(), "--common-columns", named));
    // The ledger is summed up before the summary itself is sent.
    for w in COMMON_MESSAGES.iter().filter(|w| w.kind != "summary") {
        assert!(all.iter().any(|(kind, payload, _)| same(w, kind, payload)), "no run sends '{}'", w.kind);
    }
}
