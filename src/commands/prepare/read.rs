//! Reads the matrices of a preparation: that of one owner, or those of the hosted parties, which have the same columns, or are given
//! the columns that all have, or those that any has.

use std::collections::{HashMap, HashSet};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::warning::note;
use fednmf_comm::{Communicator, MessageTag, Parties, Payload};
use fednmf_data::messages::HEADERS;
use fednmf_data::split::PartySplit;
use fednmf_data::{Layout, Loaded};
use fednmf_driver::progress::Progress;
use fednmf_driver::streaming;
use fednmf_files as data;
use fednmf_files::names::Names;
use fednmf_files::{InputSpec, PARTY, Source, common_names, common_places, highest_party, names, party_path};

use super::matrix::{Matrix, Places};

/// The names of a party's columns, which all parties learn (`--all-columns`).
pub const COLUMN_NAMES: MessageTag = MessageTag::new("names of columns", Payload::Metadata);

/// What identifies the columns that all parties use.
pub const USED_COLUMNS: MessageTag = MessageTag::new("columns that are used", Payload::Metadata);

/// The matrices that this rank has read.
pub struct Matrices {
    pub own: Vec<Matrix>,
    pub parties: Parties,
    /// Rows and columns of the matrices of all parties together.
    pub shape: (usize, usize),
}

/// What is asked of the matrices of parties.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// Accepts the number of rows of each party, and the number of columns, when nothing else is known of the others.
    pub shapes: &'a dyn Fn(&[usize], usize) -> Result<()>,
    /// Accepts the entries of a matrix that this rank has read.
    pub entries: &'a dyn Fn(&Matrix) -> Result<()>,
    /// Why a matrix of one owner that memory does not hold cannot be read in panels, if it cannot.
    pub streaming: std::result::Result<(), &'a str>,
}

/// Reads the matrix of one owner, or the files of the hosted parties, which have the same columns. Collective.
///
/// # Errors
/// On all ranks, if a file cannot be used, or the `checks` refuse it.
pub fn matrices(
    spec: &InputSpec,
    comm: &Communicator,
    progress: &mut Progress,
    checks: Checks<'_>,
) -> SharedResult<Matrices> {
    let input = data::open(spec, comm)?;
    progress.notes(&input.header().notes);
    progress.warnings(&input.header().warnings);
    let shape = (input.header().rows, input.header().cols);
    let counts: Vec<usize> = input.parts().iter().map(|part| part.len()).collect();
    let parties = Parties { count: counts.len().max(1), ranks: comm.size() };
    let show = &mut |part| progress.loading(part);
    let (matrices, names) = if spec.by_party() {
        (checks.shapes)(&counts, shape.1).map_err(Error::on_all_ranks)?;
        let names = parties.hosted(comm.rank()).map(|party| input.names_of_party(party)).collect();
        // The files determine the parts.
        let layout = Layout::PartyRows { parties, split: PartySplit::Even };
        let blocks = input.load::<f64>(&layout, comm, show)?.blocks;
        (blocks.into_iter().map(Matrix::of_block).collect::<Vec<_>>(), names)
    } else {
        let mut spec = spec.clone();
        spec.complete(input.header());
        // Where each row begins in the file that is written.
        let beside = (size_of::<i64>() * shape.0) as f64;
        let loaded = streaming::load_rows::<f64>(input, beside, checks.streaming.map_err(String::from), comm, show)?;
        let (Loaded { blocks, panels, .. }, note) = loaded;
        note.iter().for_each(|note| progress.note(note));
        let streamed = panels.map(|panels| Matrix::of_panels(panels, shape));
        (blocks.into_iter().map(Matrix::of_block).chain(streamed).collect(), vec![names::of_input(&spec)])
    };
    progress.finish();
    let named = |(matrix, names): (Matrix, Names)| matrix.named(names.rows, names.columns);
    let own: Vec<Matrix> = matrices.into_iter().zip(names).map(named).collect();
    let accepted = own.iter().zip(parties.hosted(comm.rank())).try_for_each(|(matrix, party)| {
        let accepted = (checks.entries)(matrix);
        if spec.by_party() { accepted.map_err(|e| e.at(format!("party {party}"))) } else { accepted }
    });
    comm.agree_on_error(accepted)?;
    Ok(Matrices { own, parties, shape })
}

/// Which columns the matrices of parties are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Those that all have, in the order of party 0. The parties compare digests of the names.
    Common,
    /// Those that any has, in the order of the parties: a party has zeros in those that it lacks. All parties learn all names.
    All,
}

impl Columns {
    fn option(self) -> &'static str {
        match self {
            Columns::Common => "--common-columns",
            Columns::All => "--all-columns",
        }
    }
}

/// As [`matrices`], for files of parties that may have other columns, in another order, and in another format. Collective.
///
/// # Errors
/// As [`matrices`], and if a file has no names of columns, or a name twice.
pub fn aligned(
    columns: Columns,
    spec: &InputSpec,
    comm: &Communicator,
    progress: &mut Progress,
    checks: Checks<'_>,
) -> SharedResult<Matrices> {
    let found = || comm.broadcast_value(HEADERS, spec.files().len().max(comm.size()));
    let parties = Parties { count: spec.parties.unwrap_or_else(found), ranks: comm.size() };
    let read = |party| {
        let matrix =
            own_file(spec, party).and_then(|file| named(&file, progress)).map_err(|e| e.at(columns.option()))?;
        // Before anything of the file leaves.
        (checks.entries)(&matrix).map_err(|e| e.at(format!("party {party}")))?;
        Ok(matrix)
    };
    let own = check_number(spec, parties.count).and_then(|()| parties.hosted(comm.rank()).map(read).collect());
    let mut own: Vec<Matrix> = comm.agree_on_error(own)?;
    let shapes: Vec<(usize, usize)> = own.iter().map(|matrix| (matrix.rows, matrix.cols)).collect();
    let shapes: Vec<(usize, usize)> = comm.all_gather_value(HEADERS, &shapes).into_iter().flatten().collect();
    let counts: Vec<usize> = shapes.iter().map(|(rows, _)| *rows).collect();
    let widest = shapes.iter().map(|(_, columns)| *columns).max().unwrap_or(0);
    (checks.shapes)(&counts, widest).map_err(Error::on_all_ranks)?;
    let names: Vec<Vec<String>> = own.iter().map(|matrix| matrix.column_names.clone().unwrap_or_default()).collect();
    let used = match columns {
        Columns::Common => {
            let common = common_names(&names, comm)?;
            own.iter_mut().zip(&names).for_each(|(matrix, names)| matrix.select(&common_places(&common, names)));
            common.digests.len()
        }
        Columns::All => {
            let all = union(comm.all_gather_value(COLUMN_NAMES, &names).into_iter().flatten().flatten());
            own.iter_mut().zip(&names).for_each(|(matrix, names)| widen(matrix, names, &all));
            all.len()
        }
    };
    let used_names = own.first().and_then(|matrix| matrix.column_names.as_deref()).unwrap_or_default();
    let broken = "so one of them does not follow the protocol; start again with programs of one version";
    compare_used(used_names, broken, comm)?;
    Ok(Matrices { own, parties, shape: (counts.iter().sum(), used) })
}

/// Makes sure that all parties use the same columns in the same order, and says how they can be recognised. If they do not, `why`
/// ends the message. Collective.
///
/// # Errors
/// On all ranks, if they do not.
pub fn compare_used(used: &[String], why: &str, comm: &Communicator) -> SharedResult<()> {
    let own = (used.len(), names::digest(used));
    let all = comm.all_gather_value(USED_COLUMNS, &own);
    if let Some(other) = (1..all.len()).find(|&rank| all[rank] != all[0]) {
        let why = format!("{} uses other columns than {}, {why}", comm.name_of(other), comm.name_of(0));
        return Err(Error::input(why).on_all_ranks());
    }
    comm.note_agreed(USED_COLUMNS.kind, used.iter().map(String::as_str));
    if comm.reports() {
        note(&format!("all matrices have {} columns; the SHA-256 of their names is {}", own.0, own.1));
    }
    Ok(())
}

/// The names, each once, in the order in which they come first.
fn union(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Gives a matrix with these names of columns the columns `all`.
fn widen(matrix: &mut Matrix, names: &[String], all: &[String]) {
    let places: HashMap<&String, usize> = all.iter().enumerate().map(|(place, name)| (name, place)).collect();
    let places = Places(names.iter().map(|name| places.get(name).copied()).collect());
    matrix.set_columns(places, all.len(), Some(all.to_vec()));
}

/// Refuses files beyond those of the parties.
fn check_number(spec: &InputSpec, parties: usize) -> Result<()> {
    let Source::File { path, .. } = &spec.source else { return Ok(()) };
    match highest_party(path).filter(|last| !spec.own_disk && *last >= parties) {
        Some(last) => Err(Error::input(format!(
            "{path}: there is a file for party {last}, but there are {parties} parties; number the files from 0 without gaps, and \
             give --parties for all of them"
        ))),
        None => Ok(()),
    }
}

/// The specification of a party's file.
fn own_file(spec: &InputSpec, party: usize) -> Result<InputSpec> {
    let Source::File { path: pattern, dataset } = &spec.source else {
        return Err(Error::input("needs a file for each party; leave the option out"));
    };
    let path = if spec.own_disk { Some(pattern.clone()) } else { party_path(pattern, party) };
    let Some(path) = path else {
        let name = pattern.replace(PARTY, &party.to_string());
        return Err(Error::input(format!("{name}: there is no such file for party {party}; number the files from 0")));
    };
    let source = Source::File { path, dataset: dataset.clone() };
    let alone = InputSpec { source, own_disk: false, kept: false, parties: None, ..spec.clone() };
    Ok(InputSpec { common_columns: false, ..alone })
}

/// Reads a file whose columns have names.
fn named(spec: &InputSpec, progress: &mut Progress) -> Result<Matrix> {
    // Only the owner may learn what its file needs.
    let streaming = Err("it is the file of a party");
    let unchecked = Checks { shapes: &|_, _| Ok(()), entries: &|_| Ok(()), streaming };
    let read = matrices(spec, &Communicator::local(), progress, unchecked)?;
    let matrix = read.own.into_iter().next().ok_or_else(|| Error::failed("a file has no matrix"))?;
    let Some(names) = &matrix.column_names else {
        return Err(Error::input(
            "a file has no names of columns; give files that have them (.h5ad, .csv with a header, 10x), or leave the option out",
        ));
    };
    let mut seen = HashSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        // Not the name itself: the message reaches all parties.
        Some(at) => Err(Error::input(format!(
            "column {} of a file has the name of an earlier one; give each a name of its own",
            at + 1
        ))),
        None => Ok(matrix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::prepare::matrix::Transform;

    #[test]
    fn a_party_has_zeros_in_the_columns_that_it_lacks() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
        let all = union([list(&["a", "b"]), list(&["c", "a"])].into_iter().flatten());
        assert_eq!(all, ["a", "b", "c"]);
        let mut matrix = Matrix::of_rows(vec![vec![(0, 5.0), (1, 7.0)]], 2);
        widen(&mut matrix, &list(&["c", "a"]), &all);
        assert_eq!((&matrix.written(&Transform::none(&matrix))[0], matrix.cols), (&vec![(0, 7.0), (2, 5.0)], 3));
    }
}
