//! `fednmf list`: the registry's description of all methods, or of one.

use std::fmt::Write as _;
use std::os::fd::AsFd;

use fednmf_base::error::{Error, Result};
use fednmf_base::terminal::{fitted, width_of, wrapped};
use fednmf_methods::description::{Description, MessageSpec, Partition};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use super::prepare::sums;
use super::programs;
use crate::cli::parameters;

/// One method, or with `wire` only its message table.
///
/// # Errors
/// When there is no such method.
pub fn one(name: &str, wire: bool) -> Result<String> {
    if let Some(joint) = joint(name) {
        return Ok(joint.describe(wire));
    }
    let method = registry::find(name).ok_or_else(|| Error::input(format!("{name}: {}", registry::unknown(name))))?;
    Ok(if wire { message_table(method.description()) } else { describe(&**method) })
}

/// What the method, or another joint computation, with this name declares.
pub fn description(name: &str) -> Option<&'static Description> {
    let method = registry::find(name).map(|entry| entry.description());
    method.or_else(|| joint(name).map(|joint| joint.description))
}

/// What parties compute together beside factorisations.
pub struct Joint {
    pub description: &'static Description,
    pub messages: fn() -> Vec<&'static MessageSpec>,
}

/// All of them.
pub static JOINT: [Joint; 2] = [
    Joint { description: &sums::DESCRIPTION, messages: sums::messages },
    Joint { description: &programs::DESCRIPTION, messages: programs::messages },
];

fn joint(name: &str) -> Option<&'static Joint> {
    JOINT.iter().find(|joint| joint.description.is_called(name))
}

impl Joint {
    /// The description; with `wire` only the message table.
    fn describe(&self, wire: bool) -> String {
        let m = self.description;
        let rows: Vec<[String; 5]> = (self.messages)().into_iter().map(|w| row(m, w)).collect();
        if wire {
            return table(rows.into_iter(), std::io::stdout());
        }
        let [first, second] = m.limits.unwrap_or_default();
        let messages = messages_to_read(HEADING, &rows, std::io::stdout());
        format!(
            "{0}: {1}; 'fednmf {0} --help' shows its options\n\nLimits: {first}\n{second}\n\nWhat leaves a party:\n{messages}",
            m.name, m.summary
        )
    }
}

/// All methods, one line each.
pub fn all() -> String {
    let methods: Vec<&Description> =
        [&*registry::AUTO].into_iter().chain(registry::ALL.iter()).map(|method| method.description()).collect();
    let width = methods.iter().map(|m| m.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    type Group = (&'static str, fn(Partition) -> bool);
    let groups: [Group; 3] = [
        ("One matrix, divided among the ranks", |partition| !partition.is_private()),
        ("Private columns: each party has its own", |partition| partition == Partition::PartyColumns),
        ("Private rows: each party has its own", |partition| partition == Partition::PartyRows),
    ];
    for (heading, is_of) in groups {
        let _ = writeln!(out, "{heading}");
        for m in methods.iter().filter(|m| is_of(m.partition)) {
            let _ = writeln!(out, "  {:width$}  {}", m.name, m.summary);
        }
        out.push('\n');
    }
    out.push_str("'fednmf list NAME' shows the options, limits and messages of a method.\n");
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
    let _ = writeln!(out, "when to use it, costs and risks: docs/guide/algorithms/{}.md in the source", m.name);
    let _ = writeln!(out, "data: {}, {}", m.partition.describe(), forms.join(" or "));
    let _ = writeln!(out, "an iteration: {}", m.unit.describe());
    if let Some(unit) = m.protects() {
        let _ = writeln!(out, "--dp hides: {}", unit.of_input(false).replaced());
    }
    let options = parameters::args(method);
    if !options.is_empty() {
        let command = clap::Command::new("fednmf").disable_help_flag(true).args(options);
        let help = command.clone().help_template("{options}").render_long_help().to_string();
        let _ = write!(out, "\n{}", help.trim_end());
        out.push('\n');
    }
    if let Some([first, second]) = m.limits {
        let _ = writeln!(out, "\nLimits: {first}\n{second}");
    }
    let _ = writeln!(out, "\nWhat leaves a {}:", owner(m));
    let rows: Vec<[String; 5]> = m.all_messages().map(|w| row(m, w)).collect();
    if m.partition.is_private() {
        out += "Of these, the options of a run send some only: 'fednmf join --propose' lists them. Between sites 'load counts' and 'load \
                entries' are never sent.";
        if method.takes("secure-sum") {
            out += " With --secure-sum each party computes the shared factor itself, and no 'output' has it.";
        }
        out.push('\n');
    }
    out + "Shapes are in words of 8 bytes, or 4 in f32, unless they say bytes.\n\n"
        + &messages_to_read(HEADING, &rows, std::io::stdout())
}

/// The message table of a method as text.
fn message_table(m: &Description) -> String {
    table(m.all_messages().map(|w| row(m, w)), std::io::stdout())
}

/// The cells of a message.
fn row(m: &Description, w: &MessageSpec) -> [String; 5] {
    let [shape, when] = m.in_words(w);
    [w.kind.into(), w.payload.name().into(), shape, when, m.protection(w)]
}

/// The columns of a table of messages.
const HEADING: [&str; 5] = ["what", "payload", "shape", "how often", "protection"];
/// The width of text that does not go to a terminal but will be read.
const WIDTH: usize = 100;

/// Messages as text, a line each, and on a terminal as in [`by_protection`]. `stream` is where the text goes.
fn table(messages: impl Iterator<Item = [String; 5]>, stream: impl AsFd) -> String {
    let rows: Vec<[String; 5]> = messages.collect();
    match width_of(stream) {
        Some(width) => by_protection(HEADING, &rows, width),
        None => {
            let rows: Vec<Vec<&str>> = std::iter::once(HEADING.to_vec())
                .chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()))
                .collect();
            aligned(&rows, usize::MAX).concat()
        }
    }
}

/// Messages as people read them, as in [`by_protection`]. A pager is a pipe, and a line for each message would be wider than any
/// screen.
pub(super) fn messages_to_read(heading: [&str; 5], rows: &[[String; 5]], stream: impl AsFd) -> String {
    by_protection(heading, rows, width_of(stream).unwrap_or(WIDTH))
}

/// Messages below their protection, without the payload: what is in the clear first, what is public last. The second column is
/// the payload, and the fifth the protection.
fn by_protection(heading: [&str; 5], rows: &[[String; 5]], width: usize) -> String {
    const PROTECTION: usize = 4;
    let shown = |row: &[&str; 5]| -> Vec<String> {
        let columns = (0..row.len()).filter(|column| ![1, PROTECTION].contains(column));
        columns
            .enumerate()
            .map(|(i, column)| if i == 0 { format!("  {}", row[column]) } else { row[column].into() })
            .collect()
    };
    let mut all = vec![heading];
    all.extend(rows.iter().map(|row| row.each_ref().map(String::as_str)));
    let cells: Vec<Vec<String>> = all.iter().map(shown).collect();
    let cells: Vec<Vec<&str>> = cells.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    let lines = aligned(&cells, width);
    let mut protections: Vec<&str> = Vec::new();
    for row in &all[1..] {
        if !protections.contains(&row[PROTECTION]) {
            protections.push(row[PROTECTION]);
        }
    }
    protections.sort_by_key(|text| (text.starts_with("public"), !text.starts_with("in the clear")));
    let mut out = lines[0].clone();
    for protection in protections {
        let _ = writeln!(out, "\n{}", fitted(protection, width));
        let own = all.iter().zip(&lines).skip(1).filter(|(row, _)| row[PROTECTION] == protection);
        own.for_each(|(_, line)| out.push_str(line));
    }
    out
}

/// Rows in aligned columns with two blanks between them, each as one line or several. The widest columns are wrapped between words
/// until a line has `width` characters. The first has names, which are copied to policies: it is wrapped last.
fn aligned(rows: &[Vec<&str>], width: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    // Blanks before the first word are an indent.
    let indent = |cell: &str| cell.len() - cell.trim_start().len();
    let widest = |column: usize, of: &dyn Fn(&str) -> usize| rows.iter().map(|row| of(row[column])).max().unwrap_or(0);
    let length = |text: &str| text.chars().count();
    let word = |cell: &str| indent(cell) + cell.split(' ').map(length).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(|column| widest(column, &length)).collect();
    let least: Vec<usize> = (0..columns).map(|column| widest(column, &word)).collect();
    while widths.iter().sum::<usize>() + 2 * columns.max(1) - 2 > width
        && let Some(column) = (0..columns).filter(|&c| widths[c] > least[c]).max_by_key(|&c| (c > 0, widths[c]))
    {
        widths[column] -= 1;
    }
    let broken = |(cell, width): (&&str, &usize)| -> Vec<String> {
        let indent = indent(cell);
        let lines = wrapped(cell.trim_start(), width - indent);
        lines.into_iter().map(|line| format!("{:indent$}{line}", "")).collect()
    };
    let text = |row: &Vec<&str>| {
        let cells: Vec<Vec<String>> = row.iter().zip(&widths).map(broken).collect();
        let mut out = String::new();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let part =
                |(cell, width): (&Vec<String>, &usize)| format!("{:width$}", cell.get(line).map_or("", String::as_str));
            let parts: Vec<String> = cells.iter().zip(&widths).map(part).collect();
            let _ = writeln!(out, "{}", parts.join("  ").trim_end());
        }
        out
    };
    rows.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_a_short_line_for_each_method() {
        let text = all();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for name in registry::descriptions().map(|m| m.name).chain(["auto"]) {
            assert_eq!(text.lines().filter(|line| line.split_whitespace().next() == Some(name)).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_method_has_options_then_limits_then_messages() {
        let text = one("dsanls-secure", false).unwrap();
        let places =
            ["dsanls-secure: ", "--sketch-size", "\nLimits: ", "\nWhat leaves a party:"].map(|part| text.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{text}");
    }

    /// Parties have neither starts nor marks of missing entries in a file.
    #[test]
    fn messages_of_parties_are_of_no_option_that_is_refused() {
        for method in registry::descriptions().filter(|method| method.partition.is_private()) {
            for w in method.all_messages() {
                let refused = ["--init", "--missing FILE"].into_iter().find(|option| w.when.contains(option));
                assert_eq!(refused, None, "{}: {}", method.name, w.kind);
            }
        }
    }

    #[test]
    fn tables_of_messages_fit_the_terminal() {
        for method in registry::descriptions() {
            let rows: Vec<[String; 5]> = method.all_messages().map(|w| row(method, w)).collect();
            for width in [80, 100] {
                let text = by_protection(HEADING, &rows, width);
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
                // Each word of each message is there, and each protection once.
                let words: Vec<&str> = text.split_whitespace().collect();
                let shown = rows.iter().flat_map(|row| [&row[0], &row[2], &row[3]]);
                assert!(shown.flat_map(|cell| cell.split(' ')).all(|word| words.contains(&word)), "{text}");
                assert_eq!(text.matches("\npublic: ").count(), 1, "{text}");
            }
        }
    }
}
