//! What each method reveals, as a table made of the message tables: for the reference and docs/privacy.

use std::fmt::Write as _;

use fednmf_comm::{LARGEST, Payload};
use fednmf_data as data;
use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec};
use fednmf_methods::registry;

/// Kinds of messages about the errors of a run.
const EVALUATION: &str = "evaluation: ";

/// The cells of a row behind the method: what others see, with `--secure-sum`, with `--dp`.
type Cells = [String; 3];

/// The table. Methods that reveal the same share a row.
pub fn revealed() -> String {
    let mut rows: Vec<(Vec<&str>, Cells)> = Vec::new();
    for method in registry::descriptions() {
        let cells = cells(method);
        match rows.iter_mut().find(|(_, others)| *others == cells) {
            Some((methods, _)) => methods.push(method.name),
            None => rows.push((vec![method.name], cells)),
        }
    }
    let mut out =
        String::from("| methods | others see | with `--secure-sum` | with `--dp` |\n| --- | --- | --- | --- |\n");
    for (methods, [clear, masked, noised]) in rows {
        let methods: Vec<String> = methods.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "| {} | {clear} | {masked} | {noised} |", methods.join(", "));
    }
    out
}

fn cells(method: &Description) -> Cells {
    let none = || "-".to_string();
    if !method.partition.is_private() {
        return ["everything: the ranks are one domain of trust".into(), none(), none()];
    }
    let is = |payload: Payload| move |w: &&MessageSpec| w.payload == payload;
    // The largest term is sent with every sum in the clear.
    let clear = |w: &&MessageSpec| {
        let hidden = matches!(w.payload, Payload::Control | Payload::Ciphertext | Payload::Masked | Payload::Shares);
        !hidden && !w.is_plain() && w.kind != LARGEST.kind
    };
    let loading = COMMON_MESSAGES.iter().filter(|w| w.kind == data::STATISTICS.kind);
    let all = || method.messages.iter().chain(loading.clone());
    // A method without masked messages does not mask those of loading either.
    let own = method.messages.iter().any(|w| w.payload == Payload::Masked);
    let masks: Vec<&MessageSpec> = all().filter(is(Payload::Masked)).filter(|_| own).collect();
    let masked = |w: &&MessageSpec| !masks.is_empty() && !w.always_shown;
    let optional = registry::find(method.name).is_some_and(|entry| entry.takes("secure-sum"));
    if !optional && !masks.is_empty() {
        // Protected unless that is turned off.
        let encrypted = all().filter(is(Payload::Ciphertext));
        let shares = all().filter(is(Payload::Shares));
        let shown = all().filter(clear).filter(|w| !masked(w));
        let parts = [
            ("encrypted: ", list(encrypted)),
            ("as secret shares: ", list(shares)),
            ("only sums: ", list(masks.iter().copied())),
            ("in the clear: ", list(shown)),
        ];
        return [sentence(&parts), none(), none()];
    }
    let sums = [
        ("only sums: ", list(masks.iter().copied())),
        ("in the clear: ", list(all().filter(clear).filter(|w| !masked(w)))),
    ];
    let noised = |w: &&MessageSpec| method.adds_noise_to(w);
    let noise = list(method.messages.iter().filter(noised).filter(|w| !w.evaluation));
    [
        list(all().filter(clear)),
        if masks.is_empty() { none() } else { sentence(&sums) },
        if noise.is_empty() { none() } else { format!("with noise: {noise}") },
    ]
}

/// The kinds of messages, those of evaluations and of loading last.
fn list<'a>(messages: impl Iterator<Item = &'a MessageSpec>) -> String {
    let (mut own, mut evaluation, mut loading) = (Vec::new(), Vec::new(), "");
    for w in messages {
        let (names, name) = match w.kind.strip_prefix(EVALUATION) {
            _ if w.kind == data::STATISTICS.kind => {
                loading = "while loading sum, norm and number of nonzeros";
                continue;
            }
            Some(name) => (&mut evaluation, name),
            None => (&mut own, w.kind),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let evaluation =
        if evaluation.is_empty() { String::new() } else { format!("at evaluations {}", evaluation.join(", ")) };
    sentence(&[("", own.join(", ")), ("", evaluation), ("", loading.into())])
}

fn sentence(parts: &[(&str, String)]) -> String {
    let given = parts.iter().filter(|(_, text)| !text.is_empty()).map(|(lead, text)| format!("{lead}{text}"));
    given.collect::<Vec<String>>().join("; ")
}
