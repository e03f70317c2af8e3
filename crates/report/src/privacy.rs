//! What left the parties of a run, in plain words, from the types of its messages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use fednmf_privacy::Protection;

/// How a message was protected, for readers who do not know the terms of the ledger.
pub fn protection(name: &str) -> &str {
    match Protection::from_name(name) {
        Some(Protection::Masked) => "masked: only the sum can be read",
        Some(Protection::MaskedNoised) => "masked, with noise: only the noisy sum can be read",
        Some(Protection::Noised) => "with noise",
        Some(other) => other.name(),
        None => name,
    }
}

/// What a payload is in words.
fn content(payload: &str) -> &str {
    match payload {
        "Data" => "entries of the matrix or counts of them",
        "Sketch" => "sketches of the data",
        "SharedFactor" => "the factor that all parties share",
        "SketchedFactor" => "a sketched factor",
        "Gram" => "Gram matrices of factors",
        "Product" => "products of data and factor",
        "Scalar" => "single numbers such as norms and errors",
        "Metadata" => "sizes, names and flags",
        other => other,
    }
}

/// Sentences on what `parties` sent: whether entries of the data were among it, what was in the clear, what was protected.
pub fn sentences(wire: &Value, parties: usize) -> Vec<String> {
    let rows: Vec<&Value> = wire.as_array().into_iter().flatten().filter(|row| was_sent(row)).collect();
    if parties < 2 || rows.is_empty() {
        return vec!["There is one party, so nothing left a party.".into()];
    }
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let entries: Vec<String> =
        rows.iter().filter(|row| row["payload"] == "Data").map(|row| text(row, "purpose")).collect();
    let mut all = vec![match entries.is_empty() {
        true => {
            "No message of this run carried entries of the matrix. Rows may still follow from what was sent, within the limits \
             of the method (SECURITY.md)."
                .to_string()
        }
        false => format!(
            "Entries of the matrix, or counts of them, passed between the ranks ({}): nothing in this run was private.",
            entries.join(", ")
        ),
    }];
    // What was sent under each protection; in the clear by its content, otherwise by its purpose.
    let mut sent: BTreeMap<Protection, BTreeSet<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["payload"] != "Data") {
        // A protection that this version does not know is none.
        let found = Protection::from_name(&text(row, "protection")).unwrap_or(Protection::Declared);
        let what = match found {
            Protection::Declared => content(&text(row, "payload")).to_string(),
            _ => text(row, "purpose"),
        };
        sent.entry(found).or_default().insert(what);
    }
    let order = [
        (Protection::Declared, "in the clear"),
        (Protection::Masked, "masked, so that others can read only the sum over all parties"),
        (
            Protection::MaskedNoised,
            "masked and with noise, so that others can read only the noisy sum over all parties",
        ),
        (Protection::Noised, "with the noise of differential privacy"),
        (Protection::Encrypted, "encrypted for the receiver"),
        (Protection::Shared, "as secret shares, which are random to each receiver"),
    ];
    for (protection, how) in order {
        if let Some(what) = sent.remove(&protection) {
            all.push(format!("Sent {how}: {}.", what.into_iter().collect::<Vec<_>>().join("; ")));
        }
    }
    all
}

fn was_sent(row: &Value) -> bool {
    ["party_bytes", "mpi_bytes"].iter().any(|key| row[*key].as_u64().unwrap_or(0) > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(purpose: &str, payload: &str, protection: Protection) -> Value {
        let protection = protection.name();
        json!({"purpose": purpose, "payload": payload, "protection": protection, "party_bytes": 8, "mpi_bytes": 0})
    }

    #[test]
    fn the_first_sentence_says_whether_entries_left_a_party() {
        let wire = json!([row("sum M V", "Masked", Protection::Masked), row("norms", "Scalar", Protection::Declared)]);
        let found = sentences(&wire, 3);
        assert!(found[0].starts_with("No message of this run carried entries of the matrix."));
        assert!(found[1].starts_with("Sent in the clear: single numbers"), "{found:?}");
        assert!(found[2].contains("only the sum over all parties: sum M V."), "{found:?}");
        let wire =
            json!([row("load entries", "Data", Protection::Declared), row("step", "Control", Protection::Public)]);
        let found = sentences(&wire, 3);
        assert!(found.len() == 1 && found[0].contains("nothing in this run was private"), "{found:?}");
        assert_eq!(sentences(&wire, 1).len(), 1);
        let silent =
            json!([{"purpose": "load entries", "payload": "Data", "protection": "in the clear", "party_bytes": 0}]);
        assert!(sentences(&silent, 2)[0].contains("nothing left"));
    }

    #[test]
    fn every_protection_has_words_also_under_the_names_of_earlier_versions() {
        for protection in Protection::ALL.into_iter().filter(|one| *one != Protection::Public) {
            let found = sentences(&json!([row("x", "Gram", protection)]), 3);
            assert!(found.len() == 2 && found[1].starts_with("Sent "), "{protection:?}: {found:?}");
        }
        let old = json!([{"purpose": "x", "payload": "Gram", "protection": "declared", "party_bytes": 8}]);
        assert_eq!(sentences(&old, 3)[1], "Sent in the clear: Gram matrices of factors.");
    }
}
