//! Writes the result of a command to standard output.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use crate::error::{Error, Result};
use crate::printable::printable_lines;
use crate::terminal::{fitted, width_of};
use crate::units::{short, thousands};

/// Prints text. On a terminal its lines fit, and control characters of names in files are shown as escapes.
///
/// # Errors
/// If standard output cannot be written, for example on a full disk. A closed pipe (`fednmf list | head`) is no error.
pub fn print(text: &str) -> Result<()> {
    if std::io::stdout().is_terminal() { print_styled(&printable_lines(text)) } else { print_styled(text) }
}

/// Prints a text of our own, which may be coloured.
///
/// # Errors
/// As [`print`].
pub fn print_styled(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let fitting = width_of(&out).map(|width| fitted(text, width));
    match out.write_all(fitting.as_deref().unwrap_or(text).as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::failed(format!("the result cannot be printed: standard output is not writable ({e})")))
        }
        _ => Ok(()),
    }
}

/// Prints a line.
///
/// # Errors
/// As [`print`].
pub fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Prints a table whose cells are separated by tabs, below a line with titles: as it is to a file or a pipe, for people on a
/// terminal. The cells of the column `name` stay as they are, since names may be numbers.
///
/// # Errors
/// As [`print`].
pub fn print_table(text: &str) -> Result<()> {
    if std::io::stdout().is_terminal() { print(&aligned(text)) } else { print(text) }
}

/// The table in aligned columns, with numbers as in [`for_people`].
fn aligned(text: &str) -> String {
    let names = text.lines().next().and_then(|titles| titles.split('\t').position(|title| title == "name"));
    let cell = |(at, text)| if names == Some(at) { String::from(text) } else { for_people(text) };
    let rows: Vec<Vec<String>> = text.lines().map(|line| line.split('\t').enumerate().map(cell).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A number with four significant digits or commas between thousands; any other text stays.
pub fn for_people(text: &str) -> String {
    match (text.parse::<usize>(), text.parse::<f64>()) {
        (Ok(n), _) if n >= 10_000 && !text.starts_with(['0', '+']) => thousands(n),
        (Err(_), Ok(x)) if x.is_finite() && text.contains('.') => short(x),
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_for_people_has_aligned_columns_and_short_numbers() {
        let table = "name\tcluster\tshare\n400.12345\t12\t0.12345678901\n10042\t1234567\t3.5e-12\n";
        let shown = "name       cluster    share\n400.12345  12         0.1235\n10042      1,234,567  3.500e-12\n";
        assert_eq!(aligned(table), shown);
        for same in ["", "007", "NaN", "1e5", "12", "a.b"] {
            assert_eq!(for_people(same), same);
        }
    }
}
