//! `fednmf predict`: entries of U Vᵀ for pairs of a row and a column, such as users and items, and their error if the table has
//! the observed values.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ndarray::{Array2, Axis};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::units::{counted, precise};
use fednmf_base::warning::{note, warn};
use fednmf_comm::Communicator;
use fednmf_driver::progress::Progress;
use fednmf_files::formats::fields::{
    FirstLines, fields, integer, is_missing, next_line, number as number_of, quoted, text_of,
};
use fednmf_files::formats::io::InputFile;
use fednmf_files::formats::refusal::not_a_number;
use fednmf_files::formats::text::TextBlocks;
use fednmf_files::formats::triple_columns::{contradict_order, items_first};
use fednmf_files::output::matrices::check_writable;
use fednmf_files::output::targets::check_new;

use super::matched_input::{StoredFactors, whole};

/// `fednmf predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// File with U and V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// Table in text of two columns, row and column of the matrix: their names, where the factors have names, else positions
    /// from 0. A third column has observed values, such as the ratings of a test set, and the RMSE to them is printed. A first
    /// line that is neither is a header. Pairs with a name that the factors do not have get no value and are counted
    pub pairs: String,
    /// Write row, column and predicted value of each pair to this new .csv instead of printing them
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Finds the rows of a factor that a table names.
struct Lookup {
    /// `row` or `column`.
    what: &'static str,
    count: usize,
    /// Position of each name; `None` for a name that occurs twice.
    places: Option<HashMap<String, Option<usize>>>,
}

impl Lookup {
    fn new(what: &'static str, count: usize, names: Option<Vec<String>>) -> Lookup {
        let places = names.map(|names| {
            let mut places = HashMap::with_capacity(names.len());
            for (i, name) in names.into_iter().enumerate() {
                places.entry(name).and_modify(|place| *place = None).or_insert(Some(i));
            }
            places
        });
        Lookup { what, count, places }
    }

    /// Whether a field is a known name, possibly of several items.
    fn knows(&self, field: &[u8]) -> bool {
        self.place(field).is_ok() || self.places.as_ref().is_some_and(|places| places.contains_key(&text_of(field)))
    }

    /// Whether the factors have names here, and not this one: a user or an item that the run did not know.
    fn is_new(&self, field: &[u8]) -> bool {
        self.places.as_ref().is_some_and(|places| !places.contains_key(&text_of(field)))
    }

    /// The position of a field, or the error.
    fn place(&self, field: &[u8]) -> std::result::Result<usize, String> {
        let (text, what) = (text_of(field), self.what);
        let Some(places) = &self.places else {
            let place = integer(field).and_then(|x| usize::try_from(x).ok()).filter(|x| *x < self.count);
            return place.ok_or_else(|| {
                format!(
                    "{text} is no {what}: the factors have no names of {what}s, so give positions from 0 to {}",
                    self.count - 1
                )
            });
        };
        match places.get(&text) {
            Some(Some(place)) => Ok(*place),
            Some(None) => Err(format!("{text} is the name of several {what}s of the factors")),
            None => Err(format!("{text} is no {what} of the factors")),
        }
    }
}

/// Predicts the entries of all pairs, in the units of the run's input. On one rank.
///
/// # Errors
/// If factors or pairs cannot be read, a pair is not one of the matrix, or the output cannot be written.
pub fn predict(args: &PredictArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("predict: works on one rank; start it without mpirun").on_all_ranks().into());
    }
    if let Some(output) = &args.output {
        check_output(output)?;
    }
    let factors = StoredFactors::open(&args.factors)?;
    let (stored_u, stored_v) = (factors.factor("U")?, factors.factor("V")?);
    let (u, v) = (whole(&stored_u)?, whole(&stored_v)?);
    let own_parts = factors.own_parts(&stored_u, &stored_v)?;
    if u.ncols() != v.ncols() {
        return Err(Error::input(format!("{}: U and V are not the factors of one run", args.factors.display())));
    }
    let names = factors.stored.names();
    let of_rows = Lookup::new("row", u.nrows(), names.rows);
    let of_columns = Lookup::new("column", v.nrows(), names.columns);
    let boolean = factors.run.is_boolean();
    let unit = factors.run.unit(&args.factors)?;
    let v_of = |i: usize| own_parts.as_ref().map_or(&v, |own| own.of_row(i));
    let is_empty = |i: usize, j: usize| u.row(i).iter().all(|x| *x == 0.0) || v_of(i).row(j).iter().all(|x| *x == 0.0);
    let value = |i: usize, j: usize| if boolean { covered(&u, &v, (i, j)) } else { unit * dot(&u, v_of(i), (i, j)) };
    let parameters = factors.stored.attributes().get("params").cloned().unwrap_or_default();
    let items_are_rows = (parameters["format"] == "triples").then_some(factors.run.transpose);
    let Predicted { text, squares, observed, unseen, pairs, unknown, first_unknown, empty } = table(
        &args.pairs,
        (&of_rows, &of_columns),
        items_are_rows,
        (value, is_empty, |entry| factors.run.seen(entry)),
    )?;
    if empty > 0 && !boolean {
        warn(&format!(
            "{empty} of {pairs} pairs have a row or column without any weight, as one without an observed entry has; 0 is predicted"
        ));
    }
    if let Some(first) = first_unknown {
        warn(&format!(
            "{unknown} of {pairs} pairs have no prediction, since the factors do not have their names; the first: {first}"
        ));
    }
    let access = Access::as_of([args.factors.as_path(), Path::new(&args.pairs)]);
    match &args.output {
        None => print(&text)?,
        Some(path) => unfinished::replace(path, access, |out| out.write_all(text.as_bytes()))
            .map_err(|e| Error::failed(format!("{}: cannot be written ({e}); check the free space", path.display())))?,
    }
    if unseen > 0 {
        warn(
            "the observed values are not compared: the run made zeros and ones of its entries by a threshold that its file lacks",
        );
    }
    if observed > 0 {
        let rmse = precise((squares / observed as f64).sqrt());
        let values = counted(observed, "observed value", "observed values");
        note(&match factors.run.is_binarized() {
            true => format!(
                "RMSE {rmse} to {values}, of which those from the run's threshold on are 1 and others 0 (--binarize)"
            ),
            false => format!("RMSE {rmse} to {values}"),
        });
    }
    Ok(EXIT_DONE)
}

fn check_output(output: &std::path::Path) -> Result<()> {
    check_writable(output).map_err(|e| e.at("--output"))?;
    if output.extension().is_none_or(|extension| extension != "csv") {
        return Err(Error::input(format!("--output {}: predictions are written to .csv", output.display())));
    }
    check_new("--output", output)
}

fn dot(u: &Array2<f64>, v: &Array2<f64>, (i, j): (usize, usize)) -> f64 {
    u.index_axis(Axis(0), i).iter().zip(v.index_axis(Axis(0), j)).map(|(x, y)| x * y).sum()
}

/// The entry of the Boolean product of the factors rounded at ½.
fn covered(u: &Array2<f64>, v: &Array2<f64>, (i, j): (usize, usize)) -> f64 {
    let both = u.index_axis(Axis(0), i).iter().zip(v.index_axis(Axis(0), j)).any(|(x, y)| *x > 0.5 && *y > 0.5);
    f64::from(u8::from(both))
}

/// The predicted entries.
struct Predicted {
    /// The pairs with their values, below a header.
    text: String,
    /// Sum of the squared errors, and the number of observed values.
    squares: f64,
    observed: usize,
    /// The number of those that the run saw as zeros or ones, by a threshold that is not known.
    unseen: usize,
    pairs: usize,
    /// The number of pairs with a name that the factors do not have, which have no value, and why the first of them has none.
    unknown: usize,
    first_unknown: Option<Error>,
    /// The number of pairs whose row or column has no weight in any component.
    empty: usize,
}

/// Predicts the entries of all pairs of a table; `items_are_rows` is known of runs on triples.
fn table(
    path: &str,
    (rows, columns): (&Lookup, &Lookup),
    items_are_rows: Option<bool>,
    (value, is_empty, seen): (impl Fn(usize, usize) -> f64, impl Fn(usize, usize) -> bool, impl Fn(f64) -> Option<f64>),
) -> Result<Predicted> {
    let file = InputFile { path: path.to_string(), gz: path.ends_with(".gz"), private: false };
    let tabs = [".tsv", ".tsv.gz"].iter().any(|end| path.ends_with(end));
    let first = FirstLines::read(&file, tabs)?;
    let mut blocks = TextBlocks::open(&file, first.offset(0).unwrap_or(0), 0, 1)?;
    let notes: Vec<String> = first.note().into_iter().map(|note| format!("{path}: {note}")).collect();
    Progress::new(true, None).notes(&notes);
    let mut found = Predicted {
        text: String::new(),
        squares: 0.0,
        observed: 0,
        unseen: 0,
        pairs: 0,
        unknown: 0,
        first_unknown: None,
        empty: 0,
    };
    let (mut number, mut width) = (0, 0);
    let (mut header, mut turned) = (None, None);
    while let Some((block, _)) = blocks.next_block()? {
        let mut at = 0;
        while let Some(line) = next_line(block, &mut at) {
            number += 1;
            let cells: Vec<&[u8]> = fields(&block[line], first.separator).collect();
            let wrong = |why: String| file.error(format!("row {number}: {why}"));
            if number == 1 {
                width = cells.len();
            }
            if ![2, 3].contains(&cells.len()) || cells.len() != width {
                let count = cells.len();
                return Err(wrong(format!(
                    "has {count} fields; give two on each line, row and column, or three, with the observed value"
                )));
            }
            let (row, column) = (cells[0], cells[1]);
            let places = (rows.place(row), columns.place(column));
            if number == 1 {
                let is_header = !rows.knows(row) && !columns.knows(column);
                let usual: [&[u8]; 3] = [b"row", b"column", b"observed"];
                let titles = if is_header { &cells[..] } else { &usual[..width] };
                let titles: Vec<String> = titles.iter().map(|title| text_of(title)).collect();
                // The observed values may be those that an earlier run predicted.
                let shown = titles
                    .iter()
                    .map(String::as_str)
                    .map(|title| if title == "predicted" { "observed" } else { title });
                let quoted: Vec<String> = shown.map(|title| quoted(title, ',')).collect();
                let _ = writeln!(found.text, "{},predicted", quoted.join(","));
                if is_header {
                    if contradict_order(&cells) {
                        let titles = titles.join(", ");
                        return Err(wrong(format!(
                            "the titles are {titles}; the columns hold the row, the column and, if there are three, the observed value"
                        )));
                    }
                    let in_other_order = items_first(row, column);
                    turned = items_are_rows
                        .is_some_and(|rows| rows != in_other_order && (in_other_order || items_first(column, row)))
                        .then(|| titles[0].clone());
                    if rows.knows(column) && columns.knows(row) {
                        return Err(wrong(format!(
                            "{} is a column and {} is a row; give the row first",
                            titles[0], titles[1]
                        )));
                    }
                    if is_number(row) || is_number(column) {
                        return Err(wrong(places.0.err().or(places.1.err()).unwrap_or_default()));
                    }
                    header = Some(titles);
                    continue;
                }
            }
            if let Some(titles) = header.take() {
                let note = format!("{path}: the first line, {}, is taken as a header", titles.join(","));
                Progress::new(true, None).notes(&[note]);
            }
            // The title alone may be one of a third kind.
            if let Some(title) = turned.as_ref().filter(|_| columns.knows(row) && rows.knows(column)) {
                return Err(file.error(format!(
                    "row 1: {title} are in the columns of the factors, not in the rows; exchange the first two columns"
                )));
            }
            let quoted: Vec<String> = cells.iter().map(|cell| quoted(&text_of(cell), ',')).collect();
            found.pairs += 1;
            if rows.is_new(row) || columns.is_new(column) {
                found.unknown += 1;
                let why = places.0.err().or(places.1.err()).unwrap_or_default();
                found.first_unknown.get_or_insert_with(|| wrong(why));
                let _ = writeln!(found.text, "{},", quoted.join(","));
                continue;
            }
            let (i, j) = (places.0.map_err(wrong)?, places.1.map_err(wrong)?);
            let predicted = value(i, j);
            found.empty += usize::from(is_empty(i, j));
            if let Some(&observed) = cells.get(2).filter(|field| !is_missing(field)) {
                let observed = number_of(observed).ok_or_else(|| {
                    file.error(not_a_number(observed, |text| format!("row {number}: the observed value is {text}")))
                })?;
                match seen(observed) {
                    Some(observed) => {
                        found.squares += (predicted - observed).powi(2);
                        found.observed += 1;
                    }
                    None => found.unseen += 1,
                }
            }
            let _ = writeln!(found.text, "{},{predicted}", quoted.join(","));
        }
    }
    if let Some(titles) = header {
        let (row, column) = (&titles[0], &titles[1]);
        return Err(file.error(format!(
            "has no pair of the factors: {row} is no row and {column} no column, and nothing is below them as below a \
             header"
        )));
    }
    if found.text.is_empty() {
        return Err(file.error("has no pairs"));
    }
    if found.unknown == found.pairs
        && let Some(first) = found.first_unknown
    {
        return Err(first);
    }
    Ok(found)
}

/// Whether a field is a number, which is no title of a column.
fn is_number(field: &[u8]) -> bool {
    number_of(field).is_some()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    fn predicted(text: &str, names: Option<[&str; 2]>) -> Result<String> {
        predicted_of(text, names, None)
    }

    fn predicted_of(text: &str, names: Option<[&str; 2]>, items: Option<bool>) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        std::fs::write(&path, text).unwrap();
        let (u, v) = (array![[1.0, 2.0], [3.0, 0.0]], array![[1.0, 1.0], [0.5, 0.0], [0.0, 4.0]]);
        let names = names.map(|names| names.map(String::from).to_vec());
        let (rows, columns) = (Lookup::new("row", 2, names), Lookup::new("column", 3, None));
        let found = table(
            &path.display().to_string(),
            (&rows, &columns),
            items,
            (|i, j| dot(&u, &v, (i, j)), |_, _| false, Some),
        )?;
        Ok(format!("{}{} of {}", found.text, found.squares, found.observed))
    }

    #[test]
    fn pairs_are_found_by_name_or_position() {
        assert_eq!(predicted("user,item\n0,0\n1,2\n", None).unwrap(), "user,item,predicted\n0,0,3\n1,2,0\n0 of 0");
        assert_eq!(predicted("0,2\n", None).unwrap(), "row,column,predicted\n0,2,8\n0 of 0");
        let named = predicted("\"b, c\",0\na,1\n", Some(["a", "b, c"])).unwrap();
        assert_eq!(named, "row,column,predicted\n\"b, c\",0,3\na,1,0.5\n0 of 0");
        let observed = predicted("user,item,stars\n0,0,5\n1,2,\n0,2,7\n", None).unwrap();
        assert_eq!(observed, "user,item,stars,predicted\n0,0,5,3\n1,2,,0\n0,2,7,8\n5 of 2");
        let again = predicted("user,item,predicted\n0,0,5\n", None).unwrap();
        assert_eq!(again, "user,item,observed,predicted\n0,0,5,3\n4 of 1");
        // A user that the run did not know has no prediction.
        let some = predicted("a,0,5\nc,1,2\n", Some(["a", "b"])).unwrap();
        assert_eq!(some, "row,column,observed,predicted\na,0,5,3\nc,1,2,\n4 of 1");
    }

    #[test]
    fn titles_in_another_order_than_the_factors_are_refused() {
        for (titles, items_are_rows) in [("item,user", false), ("user,item", true)] {
            let wrong = predicted_of(&format!("{titles}\n0,1\n"), None, Some(items_are_rows)).unwrap_err();
            assert!(wrong.message.contains("exchange the first two columns"), "{wrong}");
            assert!(predicted_of(&format!("{titles}\n0,1\n"), None, Some(!items_are_rows)).is_ok());
        }
        assert!(predicted_of("a,b\n0,1\n", None, Some(true)).is_ok());
        let other = predicted_of("time,user,item\n9,0,1\n", Some(["0", "1"]), Some(false)).unwrap_err().message;
        assert!(other.contains("row 1: the titles are time, user, item"), "{other}");
    }

    #[test]
    fn pairs_of_another_matrix_are_refused() {
        for (text, names, why) in [
            ("0,0\n2,0\n", None, "row 2: 2 is no row"),
            ("0,0\n0,3\n", None, "row 2: 3 is no column"),
            ("0,0\nuser,item\n", None, "row 2: user is no row"),
            ("0\n", None, "has 1 fields"),
            ("0,0,3\n0,1\n", None, "row 2: has 2 fields"),
            ("0,0,good\n", None, "row 1: the observed value is 'good'"),
            ("a,0\nc,1\n", Some(["c", "c"]), "row 2: c is the name of several rows"),
            ("b,0\nd,1\n", Some(["a", "c"]), "row 1: b is no row of the factors"),
            // A first pair that the factors do not have is no header if it is the only one, swapped, or a pair of numbers.
            ("user,item\n", None, "no pair of the factors: user is no row"),
            ("timestamp,user,item\n1,ann,film\n", None, "row 1: the titles are timestamp, user, item"),
            ("user,item,timestamp\nann,film,1\n", None, "row 1: the titles are user, item, timestamp"),
            ("rating,user,item\n1,ann,film\n", None, "row 1: the titles are rating, user, item"),
            ("c,7\n", Some(["a", "b"]), "row 1: c is no row"),
            ("1,a\na,0\n", Some(["a", "b"]), "row 1: 1 is a column and a is a row"),
            ("9,9\n0,0\n", None, "row 1: 9 is no row"),
        ] {
            let wrong = predicted(text, names).unwrap_err();
            assert!(wrong.message.contains(why), "{text}: {wrong}");
        }
    }
}
