//! The reference as Markdown, made from parser and registry: `docs/reference.md` and the table in `docs/guide/algorithms.md`.

use std::fmt::Write as _;

use clap::CommandFactory as _;

use fednmf_methods::description::{COMMON_MESSAGES, Description, MessageSpec, RANK_MESSAGES};
use fednmf_methods::registry;

use super::revealed::revealed;
use super::{Cli, options};
use crate::commands::list;
use crate::commands::list::owner;

/// The table of all algorithms.
pub fn algorithms() -> String {
    let mut out = String::from("| `--algo` | what it is | data | paper |\n| --- | --- | --- | --- |\n");
    for m in registry::descriptions() {
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
    for arg in Cli::command().get_arguments().filter(|a| a.get_long().is_some()) {
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
    for option in options::all() {
        let takers = option.defaults.iter().map(|(method, default)| format!("{method}: `{}`", cell(default)));
        let defaults = takers.collect::<Vec<_>>().join("<br>");
        let value = option.value_name().map_or_else(String::new, |value| format!(" {value}"));
        let words = option.words();
        let words = if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) };
        let _ = writeln!(out, "| `--{}{}` | {}{words} | {defaults} |", option.name, cell(&value), cell(&option.help()));
    }
    out.push_str("\n## What each method reveals\n\n");
    out.push_str(&revealed());
    out.push_str("\n## What leaves a rank or a party\n\nWith every algorithm, while loading:\n\n");
    message_table(&mut out, None, COMMON_MESSAGES.iter());
    out.push_str("\nWith the algorithms without parties also:\n\n");
    message_table(&mut out, None, RANK_MESSAGES.iter());
    for list::Joint { description, messages } in &list::JOINT {
        let _ = writeln!(out, "\nWith `{}` of the files of parties, from each party:\n", description.name);
        message_table(&mut out, Some(description), messages().into_iter());
    }
    out.push_str("\nAnd with each of the algorithms:\n");
    let all = options::all();
    for m in registry::descriptions() {
        let _ = writeln!(out, "\n### {}\n", m.name);
        let own: Vec<String> = all
            .iter()
            .flat_map(|option| {
                option.defaults.iter().filter(|(taker, _)| *taker == m.name).map(move |d| (option, &d.1))
            })
            .map(|(option, default)| format!("`--{}` ({})", option.name, cell(default)))
            .collect();
        if !own.is_empty() {
            let _ = writeln!(out, "Options of its own, with defaults: {}.\n", own.join(", "));
        }
        let _ = writeln!(out, "From each {}:\n", owner(m));
        message_table(&mut out, Some(m), m.messages.iter());
        if let Some([first, second]) = m.limits {
            let _ = writeln!(out, "\nLimits: {first} {second}");
        }
    }
    out
}

fn message_table<'a>(out: &mut String, method: Option<&Description>, rows: impl Iterator<Item = &'a MessageSpec>) {
    out.push_str("| message | payload | shape | when | protection |\n| --- | --- | --- | --- | --- |\n");
    for w in rows {
        let protection = method.map_or_else(|| "in the clear".into(), |m| m.protection(w));
        let _ = writeln!(out, "| {} | {} | {} | {} | {protection} |", w.kind, w.payload, w.shape, w.when);
    }
}

/// Text escaped for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
