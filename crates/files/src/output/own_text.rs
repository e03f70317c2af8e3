//! Text files that fednmf recognises as its own, so that replacing them loses no line that a user wrote.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::formats::fields::{fields, number};
use crate::output::checksum::crc_of;

/// The first bytes of a report.
const REPORT: &str = "<!DOCTYPE html>\n<!-- A report of fednmf -->\n";

/// The first line of an order of merges; each further line is a number.
const ORDER: &str = "# order of merges, a party on each line\n";

/// A report: `html` between the lines by which it is recognised; the last line has its checksum.
pub fn report(html: &str) -> String {
    let page = format!("{REPORT}{html}");
    let end = end_of_report(&page);
    page + &end
}

fn end_of_report(page: &str) -> String {
    format!("<!-- crc32 {:08x} -->\n", crc_of(page.as_bytes()))
}

/// Whether a file is an unchanged report.
pub fn is_report(path: &Path) -> bool {
    let starts = File::open(path).and_then(|file| starts_with(BufReader::new(file), REPORT));
    if !starts.unwrap_or(false) {
        return false;
    }
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    let page = text.trim_end_matches('\n').rfind('\n').map_or("", |end| &text[..=end]);
    text[page.len()..] == end_of_report(page)
}

/// The text of an order of merges.
pub fn order(merged: &str) -> String {
    format!("{ORDER}{merged}")
}

/// Whether a file is an order of merges and nothing else.
pub fn is_order(path: &Path) -> bool {
    each_line(path, |number, line| if number == 0 { line == ORDER } else { line.trim_end().parse::<usize>().is_ok() })
}

/// Whether a file is a trace without lines of another kind; after a killed run, the last line may be incomplete.
pub fn is_trace(path: &Path) -> bool {
    const START: &str = "{\"event\":\"start\",\"version\":";
    let is_event = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|event| event["event"].is_string());
    each_line(path, |number, line| match number {
        0 => line.starts_with(START),
        _ => is_event(line) || !line.ends_with('\n') && line.starts_with('{'),
    })
}

/// Whether a file is a table between tabs with this header and nothing else, as `fednmf top` and `clusters` print it: all
/// columns but `name` have numbers, as fednmf writes them.
pub fn is_table(path: &Path, header: &str) -> bool {
    let titles: Vec<&str> = header.split('\t').collect();
    let is_number = |field: &[u8]| field.is_empty() || number(field).is_some_and(|x| x.to_string().as_bytes() == field);
    each_line(path, |number, line| {
        let Some(line) = line.strip_suffix('\n') else { return false };
        if number == 0 {
            return line == header;
        }
        // A name may have a tab within quotation marks.
        let fields: Vec<&[u8]> = fields(line.as_bytes(), b'\t').collect();
        fields.len() == titles.len()
            && fields.iter().zip(&titles).all(|(field, title)| *title == "name" || is_number(field))
    })
}

/// Whether `expected` accepts the number and the text, with its line end, of each line of a file.
fn each_line(path: &Path, expected: impl Fn(usize, &str) -> bool) -> bool {
    let lines = || -> io::Result<bool> {
        let mut file = BufReader::new(File::open(path)?);
        let mut line = String::new();
        for number in 0.. {
            line.clear();
            if file.read_line(&mut line)? == 0 {
                break;
            }
            if !expected(number, &line) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    lines().unwrap_or(false)
}

fn starts_with(mut file: impl io::Read, text: &str) -> io::Result<bool> {
    let mut start = vec![0; text.len()];
    file.read_exact(&mut start)?;
    Ok(start == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_recognised_and_what_was_added_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let recognised = |is: fn(&Path) -> bool, text: &str| {
            std::fs::write(&path, text).unwrap();
            is(&path)
        };
        let page = report("<html>\n<p>a</p>\n</html>\n");
        assert!(recognised(is_report, &page));
        for changed in
            [page.replace("<p>a", "<p>b"), format!("{page}note\n"), page.replace("crc32", "crc"), REPORT.into()]
        {
            assert!(!recognised(is_report, &changed), "{changed}");
        }
        assert!(recognised(is_order, &order("0\n2\n1\n")) && recognised(is_order, &order("")));
        assert!(!recognised(is_order, &order("0\n# mine\n")) && !recognised(is_order, "0\n1\n"));
        let trace = "{\"event\":\"start\",\"version\":\"0\"}\n{\"event\":\"iter\"}\n";
        for end in ["", "{\"event\":\"it", "{\"ev", "{\"iter\":3,\"event\":\"lost\"}\n"] {
            assert!(recognised(is_trace, &format!("{trace}{end}")), "{end}");
        }
        for end in ["note\n", "note", "{}\n", "\n"] {
            assert!(!recognised(is_trace, &format!("{trace}{end}")), "{end}");
        }
        assert!(!recognised(is_trace, "{\"event\":\"iter\"}\n"));
        let table = "name\tcluster\tshare\nc1\t0\t0.75\n\"c\t2\"\t\t0\n";
        let is_clusters = |path: &Path| is_table(path, "name\tcluster\tshare");
        std::fs::write(&path, table).unwrap();
        assert!(is_clusters(&path));
        for changed in [
            table.replace("\t0\t0.75", "\tB cells\t0.75"),
            table.replace("0.75", "0.750"),
            format!("{table}# mine\n"),
            format!("# mine\n{table}"),
            table.replace("share", "weight"),
        ] {
            std::fs::write(&path, &changed).unwrap();
            assert!(!is_clusters(&path), "{changed}");
        }
    }
}
