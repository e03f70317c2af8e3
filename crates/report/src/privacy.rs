//! What left the parties of a run, in plain words, from the types of its messages.

use serde_json::Value;

/// How a message was protected, for readers who do not know the terms of the ledger.
pub fn protection(name: &str) -> &str {
    match name {
        "declared" => "in the clear",
        "masked" => "masked: only the sum can be read",
        "masked and noised" => "masked, with noise: only the noisy sum can be read",
        "noised" => "with noise",
        "shared" => "secret shares",
        other => other,
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
        true => "No entry of a party's data left the party.".to_string(),
        false => format!(
            "Entries of the matrix, or counts of them, passed between the ranks ({}): nothing in this run was private.",
            entries.join(", ")
        ),
    }];
    let kept = |row: &&&Value| row["payload"] != "Data" && row["protection"] != "public";
    let mut clear: Vec<String> = Vec::new();
    let mut protected: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(kept) {
        let (name, purpose) = (text(row, "protection"), text(row, "purpose"));
        if name == "declared" {
            let words = content(&text(row, "payload")).to_string();
            if !clear.contains(&words) {
                clear.push(words);
            }
            continue;
        }
        match protected.iter_mut().find(|(other, _)| *other == name) {
            Some((_, purposes)) if purposes.contains(&purpose) => {}
            Some((_, purposes)) => purposes.push(purpose),
            None => protected.push((name, vec![purpose])),
        }
    }
    if !clear.is_empty() {
        all.push(format!("Sent in the clear: {}.", clear.join("; ")));
    }
    for (name, purposes) in protected {
        let how = match &*name {
            "masked" => "masked, so that others can read only the sum over all parties",
            "masked and noised" => "masked and with noise, so that others can read only the noisy sum over all parties",
            "noised" => "with the noise of differential privacy",
            "encrypted" => "encrypted for the receiver",
            "shared" => "as secret shares, which are random to each receiver",
            other => other,
        };
        all.push(format!("Sent {how}: {}.", purposes.join("; ")));
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

    fn row(purpose: &str, payload: &str, protection: &str) -> Value {
        json!({"purpose": purpose, "payload": payload, "protection": protection, "party_bytes": 8, "mpi_bytes": 0})
    }

    #[test]
    fn the_first_sentence_says_whether_entries_left_a_party() {
        let wire = json!([row("sum M V", "Masked", "masked"), row("norms", "Scalar", "declared")]);
        let found = sentences(&wire, 3);
        assert_eq!(found[0], "No entry of a party's data left the party.");
        assert!(found[1].starts_with("Sent in the clear: single numbers"), "{found:?}");
        assert!(found[2].contains("only the sum over all parties: sum M V."), "{found:?}");
        let wire = json!([row("load entries", "Data", "declared"), row("step", "Control", "public")]);
        let found = sentences(&wire, 3);
        assert!(found.len() == 1 && found[0].contains("nothing in this run was private"), "{found:?}");
        assert_eq!(sentences(&wire, 1).len(), 1);
        let silent =
            json!([{"purpose": "load entries", "payload": "Data", "protection": "declared", "party_bytes": 0}]);
        assert!(sentences(&silent, 2)[0].contains("nothing left"));
    }
}
