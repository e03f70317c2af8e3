//! The reference as Markdown, made from parser and registry: pages, and tables for other pages.

use std::fmt::Write as _;

use clap::{Arg, CommandFactory as _};

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

/// A page of the reference, or a table for another page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Page {
    /// docs/reference.md: what each method takes and sends
    Methods,
    /// docs/reference/command-line.md: all commands and options
    CommandLine,
    /// The table of methods in docs/guide/algorithms.md
    Algorithms,
    /// The table in docs/privacy/what-leaves.md
    Revealed,
}

impl Page {
    /// Its text.
    pub fn text(self) -> String {
        match self {
            Page::Methods => methods(),
            Page::CommandLine => command_line(),
            Page::Algorithms => algorithms(),
            Page::Revealed => revealed(),
        }
    }
}

/// All commands and options, each option of a run with a heading of its own.
fn command_line() -> String {
    let command = Cli::command();
    let mut out = String::from(
        "# Command line\n\nMade by `fednmf list --markdown=command-line`; a test keeps it up to date.\n\n`fednmf FILE [OPTIONS]` \
         factorises a matrix. `fednmf COMMAND [OPTIONS]` does something else. `mpirun -n 16` before either starts 16 ranks.\n\n\
         ## Options of a run\n",
    );
    let is_option = |arg: &&Arg| arg.get_long().is_some() && !arg.is_hide_set();
    for arg in command.get_arguments().filter(is_option) {
        option(&mut out, arg);
    }
    out.push_str("\n## Options of some methods\n\nThese belong to the methods that are named with them.\n");
    for one in options::all() {
        let value = one.value_name().map_or_else(String::new, |value| format!(" {value}"));
        let _ = write!(out, "\n### `--{}`\n\n`--{}{value}`:", one.name, one.name);
        match &one.meanings[..] {
            [meaning] => {
                let _ = writeln!(out, " {}.", meaning.help());
                let values = values(meaning);
                if !values.is_empty() {
                    let _ = writeln!(out, "\n{values}");
                }
            }
            several => {
                out.push_str("\n\n");
                for meaning in several {
                    let text = format!("- {}: {}. {}", links(&meaning.methods), meaning.help(), values(meaning));
                    let _ = writeln!(out, "{}", text.trim_end());
                }
            }
        }
        let _ = writeln!(out, "\n{}", takers(&one));
    }
    out.push_str("\n## Commands\n");
    for sub in command.get_subcommands() {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(out, "\n### `fednmf {}`\n\n{about}.", sub.get_name());
        // `join` and `estimate` take the options of a run.
        let of_a_run = |arg: &Arg| command.get_arguments().any(|other| other.get_id() == arg.get_id());
        let takes_all = sub.get_arguments().filter(|arg| of_a_run(arg)).count() > 20;
        if takes_all {
            out.push_str("\nIt also takes the options of a run.\n");
        }
        let own: Vec<&Arg> = sub
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && arg.get_id() != "color" && !(takes_all && of_a_run(arg)))
            .collect();
        if !own.is_empty() {
            out.push_str("\n| option | default | meaning |\n| --- | --- | --- |\n");
        }
        for arg in own {
            let help = with_values(arg);
            let _ = writeln!(out, "| `{}` | {} | {} |", typed(arg), cell(&default(arg)), cell(&help));
        }
        for sub in sub.get_subcommands() {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(out, "\n`{}`: {about}.", sub.get_name());
        }
    }
    out
}

/// An option of a run: a heading, how it is typed, what it means.
fn option(out: &mut String, arg: &Arg) {
    let _ = writeln!(out, "\n### `--{}`\n", arg.get_long().unwrap_or_default());
    let _ = writeln!(out, "`{}`: {}", typed(arg), sentence(&with_values(arg)));
    let default = default(arg);
    if !default.is_empty() {
        let _ = writeln!(out, "\nDefault: `{default}`.");
    }
}

/// Which methods take an option, by their defaults.
fn takers(option: &options::MethodOption) -> String {
    let mut by_default: Vec<(&str, Vec<&str>)> = Vec::new();
    for (method, default) in &option.defaults {
        match by_default.iter_mut().find(|(other, _)| *other == default.as_str()) {
            Some((_, methods)) => methods.push(method),
            None => by_default.push((default, vec![method])),
        }
    }
    let methods = |(default, methods): &(&str, Vec<&str>)| {
        let names = links(methods);
        if default.is_empty() || option.value_name().is_none() { names } else { format!("`{default}` for {names}") }
    };
    let has_default = option.value_name().is_some() && by_default.iter().any(|(default, _)| !default.is_empty());
    let what = if has_default { "Default" } else { "Methods" };
    format!("{what}: {}.", by_default.iter().map(methods).collect::<Vec<_>>().join("; "))
}

/// Methods, with links to what they send.
fn links(methods: &[&str]) -> String {
    // `auto` takes the messages of the method that it chooses, and has no section of its own.
    let link = |name: &&str| match *name == registry::AUTO.description().name {
        true => format!("[{name}](../guide/algorithms/{name}.md)"),
        false => format!("[{name}](../reference.md#{name})"),
    };
    methods.iter().map(link).collect::<Vec<_>>().join(", ")
}

/// The words that an option takes, as a sentence; empty if it takes others.
fn values(meaning: &options::Meaning) -> String {
    let words: Vec<String> =
        meaning.values().iter().map(|word| value(word.name, word.help.as_deref().unwrap_or_default())).collect();
    if words.is_empty() { String::new() } else { format!("Values: {}.", words.join("; ")) }
}

/// A value with its meaning, if it has one.
fn value(name: &str, help: &str) -> String {
    if help.is_empty() { format!("`{name}`") } else { format!("`{name}`: {}", help.trim_end_matches('.')) }
}

/// `-k, --components K`, or the name of an argument.
fn typed(arg: &Arg) -> String {
    let values: Vec<&str> = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let value = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let Some(long) = arg.get_long() else { return value };
    let short = arg.get_short().map_or_else(String::new, |letter| format!("-{letter}, "));
    format!("{short}--{long} {value}").trim_end().to_string()
}

/// What an option means, with the words that it takes.
fn with_values(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<String> = match arg.get_action().takes_values() && !arg.is_hide_possible_values_set() {
        true => arg
            .get_possible_values()
            .iter()
            .map(|word| value(word.get_name(), &word.get_help().map(ToString::to_string).unwrap_or_default()))
            .collect(),
        false => Vec::new(),
    };
    if words.is_empty() { help } else { format!("{} Values: {}", sentence(&help), words.join("; ")) }
}

/// The text with a full stop.
fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_string() } else { format!("{text}.") }
}

fn default(arg: &Arg) -> String {
    let values: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() { values.join(", ") } else { String::new() }
}

/// What each method takes and sends.
fn methods() -> String {
    let mut out = String::from(
        "# Methods and messages\n\nMade by `fednmf list --markdown`; a test keeps it up to date. [Choosing an \
         algorithm](guide/algorithms.md) has a page for each method, [What leaves a party](privacy/what-leaves.md) a summary of the \
         messages, the [command line](reference/command-line.md) what the options mean. Shapes are in words of 8 bytes, or 4 in f32, unless they say bytes.\n\n## What leaves a rank \
         or a party\n\nWith every method, while loading:\n\n",
    );
    // The protection of these messages is the same in all methods with parties, and in all without.
    let any = |private| registry::descriptions().find(|method| method.partition.is_private() == private);
    message_table(&mut out, any(true), COMMON_MESSAGES.iter());
    out.push_str("\nWith the methods without parties also:\n\n");
    message_table(&mut out, any(false), RANK_MESSAGES.iter());
    for list::Joint { description, messages } in &list::JOINT {
        let _ = writeln!(out, "\nWith `{}` of the files of parties, from each party:\n", description.name);
        message_table(&mut out, Some(description), messages().into_iter());
    }
    out.push_str("\n## Each method\n\nThe messages of its own, in addition to those above.\n");
    let all = options::all();
    for m in registry::descriptions() {
        let _ = writeln!(out, "\n### {}\n", m.name);
        let own: Vec<String> = all
            .iter()
            .flat_map(|option| {
                option.defaults.iter().filter(|(taker, _)| *taker == m.name).map(move |d| (option, &d.1))
            })
            .map(|(option, default)| {
                let name = &option.name;
                let link = format!("[`--{name}`](reference/command-line.md#--{name})");
                if default.is_empty() { link } else { format!("{link} ({})", cell(default)) }
            })
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
        let [shape, when] = w.in_words(false);
        let _ = writeln!(out, "| {} | {} | {shape} | {when} | {protection} |", w.kind, w.payload);
    }
}

/// Text escaped for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_the_text_of_each_method() {
        let page = command_line();
        for method in registry::ALL.iter() {
            for parameter in method.parameters() {
                let (name, help) = (parameter.option(), parameter.help());
                let (_, section) = page.split_once(&format!("\n### `--{name}`\n")).expect("a section of its own");
                let section = section.split("\n### ").next().unwrap_or_default();
                assert!(section.contains(&help), "--{name} of {}: {help}", method.description().name);
            }
        }
        let line = "- [mebf](../reference.md#mebf): Share of a pattern that a row or column needs to join it.\n";
        assert!(page.contains(line), "{page}");
    }
}
