//! `fednmf list`: the registry's description of all methods, or of one.

use std::fmt::Write as _;
use std::os::fd::AsFd;

use fednmf_base::error::{Error, Result};
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
        let table = table((self.messages)().into_iter().map(|w| row(m, w)), std::io::stdout());
        let [first, second] = m.limits.unwrap_or_default();
        match wire {
            true => table,
            false => format!(
                "{0}: {1}; 'fednmf {0} --help' shows its options\n\nLimits: {first}\n{second}\n\nWhat leaves a party:\n{table}",
                m.name, m.summary
            ),
        }
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
    for w in m.all_messages() {
        let line = format!("{} ({}, {}): {}; {}", w.kind, w.payload, w.shape, w.when, m.protection(w));
        let mut indent = "  ";
        for part in wrapped(&line, width_of(std::io::stdout()).map_or(usize::MAX, |width| width.saturating_sub(4))) {
            let _ = writeln!(out, "{indent}{part}");
            indent = "    ";
        }
    }
    out
}

/// The message table of a method as text.
fn message_table(m: &Description) -> String {
    table(m.all_messages().map(|w| row(m, w)), std::io::stdout())
}

/// The cells of a message.
fn row(m: &Description, w: &MessageSpec) -> [String; 5] {
    [w.kind.into(), w.payload.name().into(), w.shape.into(), w.when.into(), m.protection(w)]
}

/// Messages as text: what, payload, shape, how often, protection. On a terminal, cells are wrapped to its width; `stream` is where
/// the text goes.
fn table(messages: impl Iterator<Item = [String; 5]>, stream: impl AsFd) -> String {
    let heading = ["what", "payload", "shape", "how often", "protection"].map(String::from);
    aligned(&std::iter::once(heading).chain(messages).collect::<Vec<_>>(), stream)
}

/// Rows in aligned columns, as wide as the terminal that `stream` may be.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]], stream: impl AsFd) -> String {
    fitted(rows, width_of(stream).unwrap_or(usize::MAX))
}

/// Rows in aligned columns with two blanks between them. The widest columns are wrapped until a line has `width` characters, or no
/// column is wider than eight.
fn fitted<const N: usize>(rows: &[[String; N]], width: usize) -> String {
    const NARROWEST: usize = 8;
    let longest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: [usize; N] = std::array::from_fn(longest);
    while widths.iter().sum::<usize>() + 2 * N - 2 > width
        && let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST)
    {
        *widest -= 1;
    }
    let mut out = String::new();
    for row in rows {
        let cells: Vec<Vec<String>> = row.iter().zip(widths).map(|(cell, width)| wrapped(cell, width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let parts = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{:width$}", cell.get(line).map_or("", String::as_str)));
            let _ = writeln!(out, "{}", parts.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
    out
}

/// Breaks text into lines of at most `width` characters, between words if possible. At least one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + letters.len() > width {
            lines.push(String::new());
            length = 0;
        } else if length > 0 {
            lines.last_mut().expect("a line").push(' ');
            length += 1;
        }
        for letter in letters {
            if length == width {
                lines.push(String::new());
                length = 0;
            }
            lines.last_mut().expect("a line").push(letter);
            length += 1;
        }
    }
    lines
}

/// The width of the terminal, if a stream is one.
fn width_of(stream: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into())
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

    #[test]
    fn tables_fit_the_terminal() {
        assert_eq!(wrapped("to be or not", 5), ["to be", "or", "not"]);
        assert_eq!(wrapped("abcdefg hi", 4), ["abcd", "efg", "hi"]);
        assert_eq!(wrapped("", 4), [""]);
        let m = registry::find("secure-hals").unwrap().description();
        let rows: Vec<[String; 5]> = m.all_messages().map(|w| row(m, w)).collect();
        let narrow = fitted(&rows, 100);
        assert!(narrow.lines().all(|line| line.chars().count() <= 100), "{narrow}");
        // Nothing is lost, and a pipe gets one line for each message.
        let letters = |text: &str| {
            let mut all: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
            all.sort_unstable();
            all
        };
        let wide = fitted(&rows, usize::MAX);
        assert_eq!((wide.lines().count(), letters(&narrow)), (rows.len(), letters(&wide)));
    }
}
