//! What fednmf tells of itself: the list of algorithms, the man page, completions. All made from parser and registry.

use std::fmt::Write as _;

use super::{Command, command, reference};
use crate::algorithms::registry;
use crate::algorithms::registry::{Method, Unit};
use crate::algorithms::shared::limits;
use crate::error::{Error, Result};

/// The text of a command that needs no data; `None` for the others.
///
/// # Errors
/// When `list` is asked for an algorithm that does not exist.
pub fn print_info(asked: &Command) -> Result<Option<String>> {
    Ok(Some(match asked {
        Command::List { name: None, markdown: true, .. } => reference::reference(),
        Command::List { name: None, .. } => list(),
        Command::List { name: Some(name), wire, .. } => {
            let method = registry::find(name)
                .ok_or_else(|| Error::input(format!("{name}: no such algorithm; 'fednmf list' shows them all")))?;
            if *wire { wire_table(method) } else { describe(method) }
        }
        Command::Account(asked) => asked.answer()?,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command(), "fednmf", &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
        Command::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command())
                .render(&mut text)
                .map_err(|e| Error::failed(format!("cannot make the man page: {e}")))?;
            String::from_utf8_lossy(&text).into_owned()
        }
        _ => return Ok(None),
    }))
}

fn list() -> String {
    let width = registry::ALL.iter().map(|m| m.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for m in registry::ALL {
        let leaves: Vec<String> = m.messages.iter().map(|w| format!("{} ({})", w.kind, w.shape)).collect();
        let _ = writeln!(out, "{:width$}  {}", m.name, m.summary);
        let _ = writeln!(out, "{:width$}  paper: {}", "", m.paper);
        let _ = writeln!(
            out,
            "{:width$}  data: {}; leaves a {}: {}",
            "",
            m.partition.describe(),
            owner(m),
            leaves.join("; ")
        );
    }
    out.push_str("\n'fednmf list NAME' shows an algorithm's options and their defaults.\n");
    out
}

fn owner(m: &Method) -> &'static str {
    if m.partition.is_private() { "party" } else { "rank" }
}

fn describe(m: &Method) -> String {
    let mut out = format!("{}: {}\n", m.name, m.summary);
    if !m.aliases.is_empty() {
        let _ = writeln!(out, "also called: {}", m.aliases.join(", "));
    }
    let forms: Vec<String> = m.forms.iter().map(|f| format!("{f:?}").to_lowercase()).collect();
    let unit = match m.unit {
        Unit::Update => "one update of U and one of V",
        Unit::Round => "one round of exchange between the parties",
        Unit::Merge => "one party's turn and its merge at the server",
        Unit::Local => "one update of U and one of V at every party; they exchange at the end",
        Unit::Component => "one component at every party; they exchange at the end",
    };
    let _ = writeln!(out, "paper: {}", m.paper);
    let _ = writeln!(out, "data: {}, {}", m.partition.describe(), forms.join(" or "));
    let _ = writeln!(out, "an iteration: {unit}");
    if !m.options.is_empty() {
        out.push_str("\nOptions of its own:\n");
    }
    for t in m.options {
        let _ = writeln!(out, "  --{} {}  [default: {}]\n      {}", t.opt.name, t.opt.value, t.default, t.opt.help);
    }
    let _ = writeln!(out, "\nWhat leaves a {}:", owner(m));
    for w in registry::COMMON_MESSAGES.iter().chain(m.messages) {
        let _ = writeln!(out, "  {} ({:?}, {}): {}; {}", w.kind, w.payload, w.shape, w.when, m.protection(w));
    }
    if let Some([first, second]) = limits::of(m) {
        let _ = writeln!(out, "\nLimits: {first}\n{second}");
    }
    out
}

/// What leaves a party, as a table.
fn wire_table(m: &Method) -> String {
    let mut rows = vec![["what", "payload", "shape", "how often", "protection"].map(String::from)];
    rows.extend(registry::COMMON_MESSAGES.iter().chain(m.messages).map(|w| {
        let payload = format!("{:?}", w.payload);
        [w.kind.into(), payload, w.shape.into(), w.when.into(), m.protection(w)]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    let mut out = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(out, "{cell:width$}  ");
        }
        let _ = writeln!(out, "{}", row[4]);
    }
    out
}
