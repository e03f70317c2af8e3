//! `fednmf -h`: what most users need, on one screen; `--help` prints everything.

use std::fmt::Write as _;

use clap::{Arg, Command};
use fednmf_methods::registry;

use super::command_of;

/// The commands that are described, in groups.
static GROUPS: [(&str, &[&str]); 2] = [
    ("Factorise", &["sweep", "choose", "programs", "project", "predict", "estimate"]),
    ("Data and results", &["inspect", "prepare", "evaluate", "top", "clusters", "report"]),
];

/// Commands with a few words only: of private parties, and of the program.
static NAMED: [(&str, &[(&str, &str)]); 2] = [
    (
        "Between sites",
        &[
            ("join", "take part"),
            ("serve", "the hub"),
            ("approve", "agree to a run"),
            ("audit", "verify, attack, report"),
            ("account", "budgets"),
            ("keygen", "test keys"),
        ],
    ),
    ("The program", &[("list", "methods"), ("generate", "a matrix"), ("completions", ""), ("man", "")]),
];
/// The default width of a terminal.
const WIDTH: usize = 80;

/// The options that most runs have.
const OPTIONS: [&str; 8] = ["input", "components", "loss", "algo", "output", "max_iters", "threads", "seed"];

/// The text of `-h`.
fn short() -> String {
    let command = command_of(&**registry::AUTO);
    let mut out = String::from(
        "Nonnegative and Boolean matrix factorisation over MPI ranks and private parties\n\n\
         Usage: fednmf FILE [OPTIONS]\n       fednmf COMMAND [OPTIONS]\n\n\
         Examples:\n  \
         fednmf counts.mtx -k 20 --output factors.h5 --report report.html\n  \
         mpirun -n 16 fednmf sweep --k 5..50 --input counts.mtx --output sweep\n",
    );
    for (heading, names) in GROUPS {
        let _ = writeln!(out, "\n{heading}:");
        for name in names {
            if let Some(command) = command.find_subcommand(name) {
                let _ = writeln!(out, "  {name:10} {}", clause(&command.get_about().map(ToString::to_string)));
            }
        }
    }
    out.push('\n');
    for (heading, names) in NAMED {
        let there = names.iter().filter(|(name, _)| command.find_subcommand(name).is_some());
        let mut line = format!("{heading}:");
        for (name, words) in there {
            let item = if words.is_empty() { format!(" {name};") } else { format!(" {name} ({words});") };
            if line.len() + item.len() > WIDTH {
                let _ = writeln!(out, "{line}");
                line = " ".into();
            }
            line += &item;
        }
        let _ = writeln!(out, "{}", line.trim_end_matches(';'));
    }
    out.push_str("\nOptions:\n");
    for id in OPTIONS {
        if let Some(arg) = command.get_arguments().find(|arg| arg.get_id() == id) {
            let _ = writeln!(out, "  {:22} {}", typed(arg), clause(&arg.get_help().map(ToString::to_string)));
        }
    }
    out.push_str("\nAll options: 'fednmf --help', 'fednmf COMMAND -h'; methods: 'fednmf list'\n");
    out
}

/// How an option is typed: `-k, --components <K>`.
fn typed(arg: &Arg) -> String {
    let short = arg.get_short().map_or_else(|| "    ".to_string(), |letter| format!("-{letter}, "));
    let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    format!("{short}--{} {value}", arg.get_long().unwrap_or_default())
}

/// The first clause of a help text.
fn clause(help: &Option<String>) -> &str {
    let text = help.as_deref().unwrap_or_default();
    let text = text.split(". ").next().unwrap_or(text);
    text.split([':', ';', '(']).next().unwrap_or(text).trim_end()
}

/// The command, whose `-h` prints [`short`].
pub fn with_short(command: Command) -> Command {
    command.override_help(short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_help_fits_a_screen_and_names_every_command() {
        let text = short();
        assert!(text.lines().count() <= 40, "{} lines\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let named = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
        let named: Vec<&str> =
            named.chain(NAMED.iter().flat_map(|(_, names)| names.iter().map(|(name, _)| *name))).collect();
        let command = command_of(&**registry::AUTO);
        for command in command.get_subcommands() {
            assert!(named.contains(&command.get_name()), "{}", command.get_name());
        }
        assert!(OPTIONS.iter().all(|id| command.get_arguments().any(|arg| arg.get_id() == id)));
        // A first clause that ends so was cut off.
        assert!(!text.lines().any(|line| line.ends_with(" the") || line.ends_with(" of")), "{text}");
    }
}
