//! The reference as Markdown, made from parser and registry: `docs/reference.md` and the table in the README.

use std::fmt::Write as _;

use super::command;
use crate::algorithms::options;
use crate::algorithms::registry;
use crate::algorithms::registry::Method;
use crate::algorithms::shared::limits;

/// The table of all algorithms.
pub fn algorithms() -> String {
    let mut out = String::from("| `--algo` | what it is | data | paper |\n| --- | --- | --- | --- |\n");
    for m in registry::ALL {
        let aliases: String = m.aliases.iter().map(|a| format!(", `{a}`")).collect();
        let _ = writeln!(out, "| `{}`{aliases} | {} | {} | {} |", m.name, m.summary, m.partition.describe(), m.paper);
    }
    out
}

/// The whole page.
pub fn reference() -> String {
    let mut out = String::from(
        "# Reference\n\nMade by `fednmf list --markdown`; a test keeps it up to date.\n\n## Algorithms\n\n",
    );
    out.push_str(&algorithms());
    out.push_str("\n## Options of every algorithm\n\n| option | default | meaning |\n| --- | --- | --- |\n");
    let parser = command();
    let own = |name: &str| options::ALL.iter().any(|o| o.name == name);
    for arg in parser.get_arguments().filter(|a| !own(a.get_id().as_str()) && a.get_long().is_some()) {
        let short = arg.get_short().map_or_else(String::new, |c| format!("`-{c}`, "));
        let values: Vec<&str> = arg.get_value_names().into_iter().flatten().map(|v| v.as_str()).collect();
        let takes = arg.get_action().takes_values() && !values.is_empty();
        let value = if takes { format!(" {}", values.join(" ")) } else { String::new() };
        let defaults: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
        let default = if takes { defaults.join(", ") } else { String::new() };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(
            out,
            "| {short}`--{}{value}` | {} | {} |",
            arg.get_long().unwrap_or_default(),
            cell(&default),
            cell(&help)
        );
    }
    out.push_str("\n## Options of some algorithms\n\n| option | meaning | default |\n| --- | --- | --- |\n");
    for opt in options::ALL {
        let takers = registry::ALL.iter().filter_map(|m| {
            let taken = m.options.iter().find(|t| t.opt.name == opt.name)?;
            Some(format!("{}: `{}`", m.name, taken.default))
        });
        let defaults = takers.collect::<Vec<_>>().join("<br>");
        let _ = writeln!(out, "| `--{} {}` | {} | {defaults} |", opt.name, opt.value, cell(opt.help));
    }
    out.push_str("\n## What leaves a rank or a party\n\nWith every algorithm, while loading:\n\n");
    wire(&mut out, None, registry::COMMON_MESSAGES);
    out.push_str("\nAnd with each of them:\n");
    for m in registry::ALL {
        let _ = writeln!(out, "\n### {}\n", m.name);
        let own: Vec<String> = m.options.iter().map(|t| format!("`--{}` ({})", t.opt.name, cell(t.default))).collect();
        if !own.is_empty() {
            let _ = writeln!(out, "Options of its own, with defaults: {}.\n", own.join(", "));
        }
        let _ = writeln!(out, "From each {}:\n", owner(m));
        wire(&mut out, Some(m), m.messages);
        if let Some([first, second]) = limits::of(m) {
            let _ = writeln!(out, "\nLimits: {first} {second}");
        }
    }
    out
}

fn owner(m: &Method) -> &'static str {
    if m.partition.is_private() { "party" } else { "rank" }
}

fn wire(out: &mut String, method: Option<&Method>, rows: &[registry::MessageSpec]) {
    out.push_str("| purpose | payload | shape | when | protection |\n| --- | --- | --- | --- | --- |\n");
    for w in rows {
        let protection = method.map_or_else(|| "in the clear".into(), |m| m.protection(w));
        let _ = writeln!(out, "| {} | {:?} | {} | {} | {protection} |", w.kind, w.payload, w.shape, w.when);
    }
}

/// Text that keeps its table cell together.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
