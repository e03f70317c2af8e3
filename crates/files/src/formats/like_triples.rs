//! Recognises text tables that are probably triples (user, item, value), which would otherwise be read as rows of a matrix.

use std::collections::BTreeSet;

use crate::formats::fields::{integer, is_name, text_of};
use crate::formats::refusal::Refusal;

/// Number of lines that are examined.
pub const LOOK: usize = 1000;
/// Maximum number of fields of a triple: running number, user, item, value and time.
pub const MAX_FIELDS: usize = 5;
/// Minimum number of lines for a conclusion.
const MIN_LINES: usize = 3;

/// The reason why a table looks like triples; `None` if it does not. `has_header`: whether its first line names the columns.
pub fn why(lines: &[Vec<&[u8]>], has_header: bool) -> Option<Refusal> {
    let rows = &lines[usize::from(has_header)..];
    let width = rows.first()?.len();
    let ids = |j: usize| -> Option<Vec<i64>> {
        let id = |row: &Vec<&[u8]>| integer(row.get(j)?).filter(|&id| id >= 0);
        rows.iter().map(id).collect()
    };
    let are_names = |j: usize| rows.iter().all(|row| row.get(j).is_some_and(|field| is_name(field)));
    if has_header {
        let names = &lines[0];
        let offset = width.saturating_sub(names.len());
        let called = names.windows(2).position(|pair| pair.iter().all(|name| names_one_of_a_pair(name)));
        if let Some(at) =
            called.filter(|&at| at + offset <= 1 && (ids(at + offset + 1).is_some() || are_names(at + offset + 1)))
        {
            let [user, item] = [names[at], names[at + 1]].map(text_of);
            let full = format!("columns are called {user} and {item}");
            return Some(Refusal::new(full, "two columns are called so"));
        }
    }
    if !(2..=4).contains(&width) || rows.len() < MIN_LINES {
        return None;
    }
    // A row of a matrix has at most one name.
    if width > 2 && are_names(1) && !are_names(2) {
        return Some("the second column holds names".into());
    }
    let (users, items) = (ids(0)?, ids(1)?);
    let timed = width < 4 || ids(3).is_some_and(|times| times.iter().all(|&time| time >= FIRST_TIME));
    let repeated = users.iter().collect::<BTreeSet<_>>().len() < users.len();
    // Triples contain no entry twice. A few lines of counts may do so by chance; triples are then required to be sorted.
    let distinct = users.iter().zip(&items).collect::<BTreeSet<_>>().len() == rows.len();
    let likely = rows.len() >= ENOUGH || users.is_sorted();
    // Only zeros and ones: data.
    let large = users.iter().chain(&items).any(|&id| id > 1);
    (timed && repeated && distinct && likely && large).then(|| {
        "the first two columns hold whole numbers, the first one repeats some, and no pair occurs twice".into()
    })
}

/// Number of rows for which distinct pairs are unlikely to be a coincidence.
const ENOUGH: usize = 10;
/// The smallest number taken as the time of a rating, in seconds since 1970.
const FIRST_TIME: i64 = 100_000_000;

/// Whether this column name in a header denotes the numbers of users, items or the like.
pub fn names_one_of_a_pair(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let of_a_pair =
        ["user", "item", "movie", "book", "product", "customer", "row", "col", "column", "i", "j", "source", "target"];
    of_a_pair.contains(&name.as_str()) || name.len() > 2 && name.ends_with("id")
}
