//! Known labels of rows or columns: a column of a table or of an AnnData file, or numbers in a binary file.

use std::path::Path;

use ndarray::ArrayView1;

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::layout::Layout;
use fednmf_linalg::Block;

use super::{Names, column_of, hdf5_lists, hint_at_header, lines_of, list, of_file, order_beside};
use crate::formats::fields;
use crate::formats::hdf5;
use crate::formats::hdf5::is_hdf5_name;
use crate::open::open;
use crate::spec::InputSpec;

/// The labels that `option` names for items with these names, in their order: `FILE.h5ad:obs/COLUMN`, `FILE:COLUMN` with the
/// title or the number of a column of a text table, `.npy`, idx, or a text file with a label on each line. Labels of an AnnData file
/// or of a table whose first column has the same names in another order are matched by name.
///
/// # Errors
/// If the file cannot be read, has no such column, or its number of labels is not `count`.
pub fn labels(option: &str, text: &str, known: Option<&[String]>, count: usize) -> Result<Vec<String>> {
    let wrong = |what: String| Error::input(format!("{option} {text}: {what}"));
    let (all, order) = match text.rsplit_once(':') {
        Some((path, place)) if is_hdf5_name(path) => {
            let (all, names) = in_anndata(path, place).map_err(wrong)?;
            let order = match super::compare(known, names.as_deref()) {
                super::Match::Reordered(order) => Some(order),
                _ => None,
            };
            (all, order)
        }
        Some((path, title)) if column_of(text).0 == text && Path::new(path).is_file() => {
            titled(option, path, title, known)?
        }
        _ if is_hdf5_name(text) => {
            return Err(wrong("which column? Give it as FILE.h5ad:obs/COLUMN".into()));
        }
        _ if is_numbers(text) => (numbers(text).map_err(|e| e.at(option))?, None),
        _ => (list(option, text)?, order_beside(option, text, known)?),
    };
    if all.len() != count {
        return Err(wrong(format!(
            "has {} labels, and there are {count} rows; give one for each{}",
            all.len(),
            hint_at_header(all.len(), count)
        )));
    }
    Ok(match order {
        Some(order) => order.into_iter().map(|i| all[i].clone()).collect(),
        None => all,
    })
}

/// A column of a data frame, with the names of its rows.
fn in_anndata(path: &str, place: &str) -> std::result::Result<(Vec<String>, Option<Vec<String>>), String> {
    let place = place.trim_start_matches('/');
    let (frame, title) = place.split_once('/').unwrap_or(("obs", place));
    if let Some(refusal) = hdf5::refusal(Path::new(path)) {
        return Err(refusal.message);
    }
    if !Path::new(path).is_file() {
        return Err("there is no such file; check the name".into());
    }
    if !["obs", "var"].contains(&frame) {
        return Err("give a column as FILE.h5ad:obs/COLUMN or FILE.h5ad:var/COLUMN".into());
    }
    crate::hdf5_probe::run(crate::hdf5_probe::Content::Names, path, None).map_err(|e| e.message)?;
    let Names { rows, columns, .. } = of_file(path, None);
    let names = if frame == "obs" { rows } else { columns };
    match hdf5_lists::column_of_frame(path, frame, title) {
        Some(labels) => Ok((labels, names)),
        None => {
            let there = hdf5_lists::columns_of_frame(path, frame).join(", ");
            Err(format!("{frame} has no such column; it has {}", if there.is_empty() { "none" } else { &there }))
        }
    }
}

/// The column of a text table with this title, and the order of the items `known` if the first column has their names.
fn titled(
    option: &str,
    path: &str,
    title: &str,
    known: Option<&[String]>,
) -> Result<(Vec<String>, Option<Vec<usize>>)> {
    let wrong = |what: String| Error::input(format!("{option} {path}:{title}: {what}"));
    let lines = lines_of(option, path)?;
    let mut lines = lines.lines();
    let header = lines.next().unwrap_or_default();
    let separator = [b'\t', b',', b';'].into_iter().find(|&separator| header.as_bytes().contains(&separator));
    let separator = separator.ok_or_else(|| wrong("the table has a single column; name the file alone".into()))?;
    let cells =
        |line: &str| -> Vec<String> { fields::fields(line.as_bytes(), separator).map(fields::text_of).collect() };
    let titles = cells(header);
    let at = titles
        .iter()
        .position(|known| known == title)
        .ok_or_else(|| wrong(format!("there is no such column; there are {}", titles.join(", "))))?;
    let (mut names, mut all) = (Vec::new(), Vec::new());
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut cells = cells(line);
        // R leaves out the title of the names of rows.
        let shift = usize::from(cells.len() == titles.len() + 1);
        if cells.len() <= at + shift {
            return Err(wrong(format!(
                "line {} has {} columns, and the first line {}",
                number + 2,
                cells.len(),
                titles.len()
            )));
        }
        names.push(cells[0].clone());
        all.push(cells.swap_remove(at + shift));
    }
    let order = match super::compare(known, Some(&names)) {
        super::Match::Reordered(order) => Some(order),
        _ => None,
    };
    Ok((all, order))
}

/// Whether the name, or the first bytes, are those of .npy or idx.
fn is_numbers(path: &str) -> bool {
    let name = path.strip_suffix(".gz").unwrap_or(path);
    name.ends_with(".npy") || ["idx1-ubyte", ".idx", "-ubyte"].iter().any(|end| name.ends_with(end))
}

/// A vector of numbers.
fn numbers(path: &str) -> Result<Vec<String>> {
    let spec = InputSpec { allow_negative: true, ..InputSpec::parse(path)? };
    let comm = Communicator::local();
    let input = open(&spec, &comm)?;
    let loaded = input.load_any::<f64>(&Layout::Grid { pr: 1, pc: 1 }, &comm, &mut |_| ())?;
    match loaded.blocks.first() {
        Some(Block::Dense(x)) if x.ncols() == 1 || x.nrows() == 1 => {
            let text = |line: ArrayView1<'_, f64>| line.iter().map(f64::to_string).collect();
            Ok(if x.ncols() == 1 { text(x.column(0)) } else { text(x.row(0)) })
        }
        _ => Err(Error::input(format!("{path}: is a matrix; labels are a vector with one number for each row"))),
    }
}
