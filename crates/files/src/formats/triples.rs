//! Triples (`--format triples`): each line of a text table is an entry of a sparse matrix users × items: user, item and
//! value, which is 1 if the lines have no third field. Users and items are any text. Whole numbers are put in ascending
//! order, other names in the order of their first appearance.
//!
//! Edges (`--format edges`): the same with the nodes of an undirected graph as users and as items. The matrix is symmetric, whether
//! the lines have each edge once or in both directions.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use fednmf_base::error::Result;
use fednmf_data::Labels;
use fednmf_data::values::Values;

use crate::formats::fields::{FirstLines, fields, has_decimal_comma, integer, is_missing, next_line, number, text_of};
use crate::formats::header::{Header, LabelDetection};
use crate::formats::io::InputFile;
use crate::formats::limits::check_shape;
use crate::formats::options::{Names, Presence, TableFormat, TableOptions};
use crate::formats::reader::EntrySink;
use crate::formats::refusal::{Refusal, not_a_number};
use crate::formats::table::check_excel;
use crate::formats::text::{TextBlocks, error_at};
use crate::formats::triple_columns::Columns;

/// The layout of the triples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triples {
    pub header: Header,
    /// Fields of each line.
    width: usize,
    columns: Columns,
    /// Each line is an edge, whose other direction is an entry too.
    mirrored: bool,
    /// Only on the rank that read the header; the others need no names.
    #[serde(skip)]
    keys: Option<Arc<Keys>>,
}

/// The rows of the users and the columns of the items.
#[derive(Debug, PartialEq, Eq)]
struct Keys {
    users: Index,
    items: Index,
}

/// Names and their positions.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Index {
    places: HashMap<Vec<u8>, u32>,
    /// Whether any name is not a whole number.
    words: bool,
}

impl Index {
    fn insert(&mut self, name: &[u8]) {
        if !self.places.contains_key(name) {
            self.places.insert(name.to_vec(), self.places.len() as u32);
            self.words |= integer(name).is_none();
        }
    }

    /// Puts whole numbers in ascending order.
    fn sort(&mut self) {
        if !self.words {
            let mut all: Vec<(Option<i64>, &mut u32)> =
                self.places.iter_mut().map(|(name, place)| (integer(name), place)).collect();
            all.sort_unstable_by_key(|(number, _)| *number);
            (0..).zip(all).for_each(|(at, (_, place))| *place = at);
        }
    }

    /// The names in order.
    fn names(&self) -> Vec<String> {
        let mut all: Vec<(u32, &Vec<u8>)> = self.places.iter().map(|(name, &place)| (place, name)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, name)| text_of(name)).collect()
    }
}

/// A matrix in triples: the layout of the lines, its shape, and the number of its entries.
pub struct Contents {
    pub triples: Triples,
    pub shape: (usize, usize),
    pub entries: u64,
    /// The kind of the values.
    pub values: Values,
}

/// The edges of a graph, to find out whether a file has each of them once or in both directions.
#[derive(Default)]
struct Edges {
    nodes: Index,
    /// With their weights.
    seen: HashMap<(u32, u32), f64>,
    loops: u64,
    /// Edges whose other direction came before.
    turned: u64,
}

impl Edges {
    fn insert(&mut self, from: &[u8], to: &[u8], weight: f64) -> std::result::Result<(), String> {
        let edge = [from, to].map(|node| {
            self.nodes.insert(node);
            self.nodes.places[node]
        });
        let (from, to) = (edge[0], edge[1]);
        if self.seen.insert((from, to), weight).is_some() {
            return Err("has an edge that a line above has already; a graph has each edge once, with one weight".into());
        }
        self.loops += u64::from(from == to);
        let other = self.seen.get(&(to, from)).filter(|_| from != to);
        if other.is_some_and(|other| *other != weight) {
            return Err(
                "has an edge with another weight than in the other direction; both directions are one edge".into()
            );
        }
        self.turned += u64::from(other.is_some());
        Ok(())
    }

    /// Whether each edge is there once.
    fn once(&self) -> std::result::Result<bool, String> {
        let edges = self.seen.len() as u64 - self.loops;
        match self.turned {
            0 => Ok(true),
            turned if 2 * turned == edges => Ok(false),
            turned => Err(format!(
                "--format edges: {turned} edges are there in both directions, and {} in one; write all of them once, or all in \
                 both directions",
                edges - 2 * turned
            )),
        }
    }
}

/// Reads the whole file to find users and items; `tabs` fixes the separator.
///
/// # Errors
/// If the file cannot be read, or a line is not a triple.
pub fn contents(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Contents> {
    let mut triples = layout(file, tabs, options)?;
    let mut edges = (options.format == TableFormat::Edges).then(Edges::default);
    let mut keys = Keys { users: Index::default(), items: Index::default() };
    let (mut entries, mut values) = (0, Values::Whole);
    let mut blocks = TextBlocks::open(file, triples.header.start, 0, 1)?;
    while let Some((text, offset)) = blocks.next_block()? {
        triples.each(file, text, offset, |_, user, item, value| {
            match &mut edges {
                Some(edges) => edges.insert(user, item, value)?,
                None => {
                    keys.users.insert(user);
                    keys.items.insert(item);
                }
            }
            entries += 1;
            if value.is_finite() && value.fract() != 0.0 {
                values = Values::Double;
            }
            Ok(())
        })?;
    }
    if let Some(edges) = edges {
        triples.mirrored = edges.once().map_err(|what| file.error(what))?;
        entries += if triples.mirrored { entries - edges.loops } else { 0 };
        (keys.users, keys.items) = (edges.nodes.clone(), edges.nodes);
    }
    let shape = (keys.users.places.len(), keys.items.places.len());
    check_shape(shape.0, shape.1, Some(entries)).map_err(|what| file.error(what))?;
    keys.users.sort();
    keys.items.sort();
    triples.keys = Some(Arc::new(keys));
    Ok(Contents { triples, shape, entries, values })
}

/// The names of items (columns) and users (rows).
///
/// # Errors
/// As [`contents`].
pub fn names(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Names> {
    let keys = contents(file, tabs, options)?.triples.keys;
    Ok((keys.as_ref().map(|keys| keys.items.names()), keys.map(|keys| keys.users.names())))
}

/// Infers the layout from the first lines.
fn layout(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Triples> {
    let lines = FirstLines::read(file, tabs)?;
    check_excel(file, &lines)?;
    let all = lines.fields();
    // It is no name, from which a header could be inferred.
    let comma = |(line, fields): (usize, &Vec<&'_ [u8]>)| {
        let field = fields.get(2..).into_iter().flatten().find(|field| has_decimal_comma(field))?;
        Some(not_a_number(field, |text| format!("line {line}: the value is {text}")))
    };
    if let Some(refusal) = (1..).zip(&all).find_map(comma) {
        return Err(file.error(refusal));
    }
    let detected = LabelDetection::of_triples(&all, options);
    let below = usize::from(detected.labels.header);
    let (Some(entry), Some(start)) = (all.get(below), lines.offset(below)) else {
        return Err(file.error("holds a header, but no entry below it"));
    };
    let Labels { header: has_header, index_col } = detected.labels;
    let (from, width) = (usize::from(index_col), entry.len());
    if width < from + 2 {
        return Err(file.error(Refusal::quoting(lines.first(), |text| {
            format!("--format triples: expected lines of user, item and value, or of user and item; found {text}")
        })));
    }
    let mut titles = all[0].clone();
    // As R's write.table writes it.
    if titles.len() + 1 == width && options.index_col == Presence::Yes {
        titles.insert(0, b"");
    }
    if has_header && titles.len() != width {
        let count = titles.len();
        return Err(file.error(format!(
            "line 1: the header has {count} fields, but the line below it has {width}; give each column a title (a decimal comma \
             divides a value in two)"
        )));
    }
    if !has_header && lines.separator == b',' && may_be_decimals(&all, from) {
        return Err(file.error(
            "the third and fourth columns may be values with decimal commas (4,5): write them with decimal points, or give the columns \
             a header or leave the fourth one out",
        ));
    }
    let columns = match has_header {
        true => Columns::titled(&titles, from).map_err(|why| file.error(format!("line 1: {why}")))?,
        false => Columns::in_order(from, width),
    };
    let others = width > from + 3;
    let in_doubt = has_header && !columns.value_is_named(&titles);
    let roles = || {
        let titles: Vec<String> =
            columns.all().map(|j| if has_header { text_of(titles[j]) } else { j.to_string() }).collect();
        let unused = if others { "; the others are not used" } else { "" };
        format!("the columns {} are user, item and value{unused}", titles.join(", "))
    };
    let roles = (others || in_doubt).then(roles);
    Ok(Triples {
        header: detected.header(file, &lines, start, roles.as_deref())?,
        width,
        columns,
        mirrored: false,
        keys: None,
    })
}

/// Whether whole numbers and one to three digits after them, at the end of all lines, may be numbers with decimal commas.
fn may_be_decimals(lines: &[Vec<&[u8]>], from: usize) -> bool {
    let parts = |line: &Vec<&[u8]>| {
        matches!(line[from.min(line.len())..], [_, _, whole, decimals]
            if integer(whole).is_some() && (1..=3).contains(&decimals.len()) && decimals.iter().all(u8::is_ascii_digit))
    };
    lines.iter().all(parts)
}

impl Triples {
    /// Calls `visit` with the position, user, item and value of each line of a block of text at byte `offset`.
    fn each(
        &self,
        file: &InputFile,
        text: &[u8],
        offset: u64,
        mut visit: impl FnMut(u64, &[u8], &[u8], f64) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let mut at = 0;
        let mut line_fields: Vec<&[u8]> = Vec::new();
        while let Some(line) = next_line(text, &mut at) {
            let place = offset + line.start as u64;
            line_fields.clear();
            line_fields.extend(fields(&text[line], self.header.separator));
            let seen = self.triple(&line_fields);
            let taken = seen.and_then(|(user, item, value)| Ok(visit(place, user, item, value)?));
            taken.map_err(|what| error_at(file, place, what))?;
        }
        Ok(())
    }

    /// User, item and value of a line.
    fn triple<'a>(&self, line: &[&'a [u8]]) -> std::result::Result<(&'a [u8], &'a [u8], f64), Refusal> {
        if line.len() != self.width {
            return Err(format!("has {} fields, but the first line has {}", line.len(), self.width).into());
        }
        let (user, item) = (line[self.columns.user], line[self.columns.item]);
        if user.is_empty() || item.is_empty() {
            return Err(format!("the {} is empty", if user.is_empty() { "user" } else { "item" }).into());
        }
        let value = match self.columns.value.map(|j| line[j]) {
            None => 1.0,
            Some(field) if is_missing(field) => f64::NAN,
            Some(field) => number(field).ok_or_else(|| not_a_number(field, |text| format!("the value is {text}")))?,
        };
        Ok((user, item, value))
    }
}

/// Reads the entries as bytes that any rank can decode; only on the rank that read the header.
pub struct TriplesReader<'a> {
    file: &'a InputFile,
    triples: &'a Triples,
    keys: &'a Keys,
    blocks: TextBlocks,
}

/// Bytes of an entry in a chunk: row, column, value, and position in the text.
const ENTRY_BYTES: usize = 24;

impl<'a> TriplesReader<'a> {
    /// Starts at the first entry.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(file: &'a InputFile, triples: &'a Triples) -> Result<Self> {
        let Some(keys) = triples.keys.as_deref() else {
            return Err(file.error("only the rank that read the header can read the entries"));
        };
        Ok(TriplesReader { file, triples, keys, blocks: TextBlocks::open(file, triples.header.start, 0, 1)? })
    }

    /// The fraction of the file that was read.
    pub fn done(&self) -> f64 {
        self.blocks.done()
    }

    /// The next entries, or `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let place_of = |index: &Index, name: &[u8]| index.places.get(name).copied();
        let mut chunk = Vec::new();
        // An empty chunk would mean the end, but a block may hold only comments.
        while chunk.is_empty() {
            let Some((text, offset)) = self.blocks.next_block()? else { return Ok(None) };
            self.triples.each(self.file, text, offset, |place, user, item, value| {
                let (Some(row), Some(col)) = (place_of(&self.keys.users, user), place_of(&self.keys.items, item))
                else {
                    return Err("has changed since the file was first read".to_string());
                };
                let turned = (self.triples.mirrored && row != col).then_some((col, row));
                for (row, col) in std::iter::once((row, col)).chain(turned) {
                    chunk.extend_from_slice(&row.to_le_bytes());
                    chunk.extend_from_slice(&col.to_le_bytes());
                    chunk.extend_from_slice(&value.to_le_bytes());
                    chunk.extend_from_slice(&place.to_le_bytes());
                }
                Ok(())
            })?;
        }
        Ok(Some(chunk))
    }
}

/// Passes the entries of a chunk to `sink`, and returns their number.
///
/// # Errors
/// If `sink` refuses an entry; the message has its line.
pub fn decode(file: &InputFile, chunk: &[u8], sink: &mut impl EntrySink) -> Result<u64> {
    let entries = chunk.as_chunks::<ENTRY_BYTES>().0;
    for entry in entries {
        let [position, value, place] = [0, 8, 16].map(|at| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&entry[at..at + 8]);
            u64::from_le_bytes(bytes)
        });
        let (row, col) = (position & 0xffff_ffff, position >> 32);
        let taken = sink(row as usize, col as usize, f64::from_bits(value));
        taken.map_err(|what| error_at(file, place, what))?;
    }
    Ok(entries.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::formats::options::{Presence, Repeated};

    const OPTIONS: TableOptions = TableOptions {
        header: Presence::Auto,
        index_col: Presence::Auto,
        format: TableFormat::Triples,
        repeated: Repeated::Refuse,
    };

    /// The entries in a text, the names of users and items, and the note.
    type Found = (Vec<(usize, usize, f64)>, [String; 2], Option<String>);

    fn read(text: &str, options: TableOptions) -> Result<Found> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let file = InputFile {
            path: file.into_temp_path().keep().unwrap().to_str().unwrap().to_string(),
            gz: false,
            private: false,
        };
        let done = (|| {
            let Contents { triples, shape, entries, .. } = contents(&file, false, options)?;
            let mut found = Vec::new();
            let mut reader = TriplesReader::open(&file, &triples)?;
            while let Some(chunk) = reader.next_chunk()? {
                decode(&file, &chunk, &mut |i, j, value| {
                    found.push((i, j, value));
                    Ok(())
                })?;
            }
            assert_eq!(found.len() as u64, entries);
            let (items, users) = names(&file, false, options)?;
            let (users, items) = (users.unwrap(), items.unwrap());
            assert_eq!(shape, (users.len(), items.len()));
            Ok((found, [users.join(" "), items.join(" ")], triples.header.note))
        })();
        std::fs::remove_file(&file.path).unwrap();
        done
    }

    #[test]
    fn numbers_are_sorted_and_names_in_order_of_appearance() {
        let (entries, names, _) = read("10,b,2\n9,a,0.5\n10,a,3\n-1,b,1\n", OPTIONS).unwrap();
        assert_eq!(entries, [(2, 0, 2.0), (1, 1, 0.5), (2, 1, 3.0), (0, 0, 1.0)]);
        assert_eq!(names, ["-1 9 10", "b a"]);
        // One name that is not a whole number makes all of them text, and 07 is a different name from 7.
        let (entries, names, _) = read("7,1\n3,2\n07,1\n", OPTIONS).unwrap();
        assert_eq!((entries, names), (vec![(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0)], ["7 3 07".into(), "1 2".into()]));
    }

    #[test]
    fn headers_and_indices_are_left_out() {
        let plain = read("1,7,2.5\n2,8,3\n5,7,1\n", OPTIONS).unwrap();
        assert_eq!(plain.2, None);
        for (text, words) in [
            ("user,item,value\n1,7,2.5\n2,8,3\n5,7,1\n", "as a header"),
            ("\u{feff}user,item,value\n1,7,2.5\n2,8,3\n5,7,1\n", "as a header"),
            ("user\titem\tvalue\ttime\n1\t7\t2.5\t9\n2\t8\t3\t9\n5\t7\t1\t9\n", "the others are not used"),
            (
                "time,value,user,item\n9,2.5,1,7\n9,3,2,8\n9,1,5,7\n",
                "the columns user, item, value are user, item and value",
            ),
            (",user,item,value\n0,1,7,2.5\n1,2,8,3\n2,5,7,1\n", "as an index"),
            ("0 1 7 2.5\n1 2 8 3\n2 5 7 1\n", "as an index"),
        ] {
            let (entries, names, note) = read(text, OPTIONS).unwrap();
            assert_eq!((&entries, &names), (&plain.0, &plain.1), "{text:?}");
            assert!(note.as_ref().is_some_and(|note| note.contains(words)), "{text:?}: {note:?}");
        }
        assert!(read("bob,tea\nann,pen\n", OPTIONS).unwrap_err().message.contains("--header yes"));
        let (entries, names, _) = read("bob,tea\nann,pen\n", TableOptions { header: Presence::No, ..OPTIONS }).unwrap();
        assert_eq!((entries.len(), names[0].as_str()), (2, "bob ann"));
        let (entries, ..) = read("bob,tea\nann,pen\n", TableOptions { header: Presence::Yes, ..OPTIONS }).unwrap();
        assert_eq!(entries, [(0, 0, 1.0)]);
        let (entries, ..) = read("user,item\nann,pen\n", OPTIONS).unwrap();
        assert_eq!(entries, [(0, 0, 1.0)]);
        let (_, names, _) = read("user,item\n1,2\n", OPTIONS).unwrap();
        assert_eq!(names, ["1", "2"]);
        let (_, names, _) = read("user,item\n1,2\n", TableOptions { header: Presence::No, ..OPTIONS }).unwrap();
        assert_eq!(names, ["user 1", "item 2"]);
    }

    #[test]
    fn edges_are_those_of_one_symmetric_matrix() {
        let options = TableOptions { format: TableFormat::Edges, header: Presence::No, ..OPTIONS };
        let sorted = |text: &str| {
            let (mut entries, names, _) = read(text, options).unwrap();
            entries.sort_by_key(|entry| (entry.0, entry.1));
            (entries, names)
        };
        let (entries, names) = sorted("ann bob 2\nbob eve 0.5\nann ann 3\n");
        assert_eq!(entries, [(0, 0, 3.0), (0, 1, 2.0), (1, 0, 2.0), (1, 2, 0.5), (2, 1, 0.5)]);
        assert_eq!(names, ["ann bob eve", "ann bob eve"]);
        // The same graph in both directions, which need not be in the same order.
        assert_eq!(sorted("ann ann 3\nann bob 2\neve bob 0.5\nbob eve 0.5\nbob ann 2\n").0.len(), 5);
        assert_eq!(sorted("5 3\n3 9\n").1, ["3 5 9", "3 5 9"]);
        let refused = |text: &str| read(text, options).unwrap_err().message;
        assert!(refused("a b 1\nb a 1\nb c 1\n").contains("1 edges are there in both directions, and 1 in one"));
        assert!(refused("a b 1\na c 1\na b 2\n").contains("line 3: has an edge that a line above has already"));
        assert!(
            refused("a b 2\nb a 5\n").contains("line 2: has an edge with another weight than in the other direction")
        );
    }

    #[test]
    fn lines_that_are_no_triples_are_refused() {
        for (text, words) in [
            ("1,2,3\n1,2\n", "line 2: has 2 fields, but the first line has 3"),
            ("1,2,3\n1,2,x\n", "line 2: the value is 'x', not a number"),
            ("1,2,3\n,2,3\n", "line 2: the user is empty"),
            (",i1,5\nu2,i2,3\n", "line 1: the user is empty"),
            ("1,2,3\n1,,3\n", "line 2: the item is empty"),
            ("user,item,value\nu1,a,4,5\n", "the header has 3 fields, but the line below it has 4"),
            ("u1,a,4,5\nu2,b,3,0\n", "may be values with decimal commas"),
            ("u1;a;4,5\n", "line 1: the value is '4,5', not a number; write decimal points"),
            ("user;item;value\nu1;a;4,5\n", "line 2: the value is '4,5', not a number; write decimal points"),
            ("time,user,item,grade\n1,2,3,4\n", "line 1: the titles of the columns do not say"),
            ("1\n2\n", "expected lines of user, item and value"),
            ("", "no line"),
        ] {
            let message = read(text, OPTIONS).unwrap_err().message;
            assert!(message.contains(words), "{text:?}: {message}");
        }
        let only_header = read("user,item,value\n", TableOptions { header: Presence::Yes, ..OPTIONS });
        assert!(only_header.unwrap_err().message.contains("no entry"));
        let (entries, ..) = read("1,2,NA\n1,3,\n", OPTIONS).unwrap();
        assert!(entries.iter().all(|entry| entry.2.is_nan()));
    }
}
