//! `fednmf list`: the registry's description of all methods, or of one.

use std::fmt::Write as _;

use fednmf_base::error::{Error, Result};
use fednmf_methods::description::Description;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use crate::cli::parameters;

/// One method, or with `wire` only its message table.
///
/// # Errors
/// When there is no such method.
pub fn one(name: &str, wire: bool) -> Result<String> {
    let method = registry::find(name)
        .ok_or_else(|| Error::input(format!("{name}: no such method; 'fednmf list' shows them all")))?;
    Ok(if wire { message_table(method.description()) } else { describe(&**method) })
}

/// All methods.
pub fn all() -> String {
    let width = registry::ALL.iter().map(|entry| entry.description().name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for m in registry::descriptions() {
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
    out.push_str("\n'fednmf list NAME' shows a method's options and their defaults.\n");
    out
}

/// The sender of the messages in the table of a method.
pub fn owner(m: &Description) -> &'static str {
    if m.partition.is_private() { "party" } else { "rank" }
}

fn describe(method: &'static dyn ConfiguredMethod) -> String {
    let m = method.description();
    let mut out = format!("{}: {}\n", m.name, m.summary);
    if !m.aliases.is_empty() {
        let _ = writeln!(out, "also called: {}", m.aliases.join(", "));
    }
    let forms: Vec<String> = m.forms.iter().map(|f| format!("{f:?}").to_lowercase()).collect();
    let _ = writeln!(out, "paper: {}", m.paper);
    let _ = writeln!(out, "data: {}, {}", m.partition.describe(), forms.join(" or "));
    let _ = writeln!(out, "an iteration: {}", m.unit.describe());
    if let Some(unit) = m.protects() {
        let _ = writeln!(out, "--dp hides: {}", unit.describe());
    }
    let options = parameters::args(method);
    if !options.is_empty() {
        let command = clap::Command::new("fednmf").disable_help_flag(true).args(options);
        let help = command.clone().help_template("{options}").render_long_help().to_string();
        let _ = write!(out, "\n{}", help.trim_end());
        out.push('\n');
    }
    let _ = writeln!(out, "\nWhat leaves a {}:", owner(m));
    for w in m.all_messages() {
        let _ = writeln!(out, "  {} ({}, {}): {}; {}", w.kind, w.payload, w.shape, w.when, m.protection(w));
    }
    if let Some([first, second]) = m.limits {
        let _ = writeln!(out, "\nLimits: {first}\n{second}");
    }
    out
}

/// The message table of a method as text.
fn message_table(m: &Description) -> String {
    table(m.all_messages().map(|w| {
        let payload = w.payload.name();
        [w.kind.into(), payload.into(), w.shape.into(), w.when.into(), m.protection(w)]
    }))
}

/// Messages as text: what, payload, shape, how often, protection.
pub(super) fn table(messages: impl Iterator<Item = [String; 5]>) -> String {
    let heading = ["what", "payload", "shape", "how often", "protection"].map(String::from);
    let rows: Vec<[String; 5]> = std::iter::once(heading).chain(messages).collect();
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
