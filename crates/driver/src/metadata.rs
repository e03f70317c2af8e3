//! Metadata of the factors in an output: names of rows and columns, and the history of evaluations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::warning::warn;
use fednmf_comm::{Communicator, Parties};
use fednmf_data::{NAMES, Stack};
use fednmf_files::names::{Match, Names};
use fednmf_files::output::matrices;
use fednmf_files::output::matrices::{Annotations, Format, PartyNames};
use fednmf_files::{InputSpec, Source, names};
use fednmf_methods::description::Partition;

use super::plan::Planned;
use super::report;
use super::spec::Outputs;
use crate::trace::Trace;

/// Where factors are written, and which of their names are private.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    pub path: &'a Path,
    /// Whether they are added to a file that exists.
    pub add: bool,
    /// The parties of this rank with their rows or columns of the matrix, where these are private: their names stay with them.
    pub private: Option<&'a [(usize, Range<usize>)]>,
}

/// Names and orientation for an output of the factors of an m × n matrix. Rank 0 has the names; the private names of a party
/// are on its rank. Collective.
///
/// # Errors
/// On all ranks, if the factors are to be added to a file that has another shape or other names.
pub fn annotations(
    to: Option<Destination<'_>>,
    input: &InputSpec,
    shape: (usize, usize),
    comm: &Communicator,
) -> SharedResult<Annotations> {
    let Some(Destination { path, add, private }) = to else { return Ok(Annotations::default()) };
    let names = names_of(input, private.is_some(), comm);
    let transposed = names.turned;
    let mut annotations = Annotations {
        rows: names.rows,
        columns: names.columns,
        of_parties: private.map(|hosted| private_names(input, hosted)).unwrap_or_default(),
        transposed,
        history: Map::new(),
        add,
        owner_only: false,
    };
    if add {
        let checked = if comm.is_root() {
            fit(path, shape, &annotations).map(|(turned, unmatched)| {
                unmatched.iter().for_each(|text| warn(text));
                turned
            })
        } else {
            Ok(transposed)
        };
        annotations.transposed = comm.broadcast_value(NAMES, comm.agree_on_error(checked)?);
    }
    Ok(annotations)
}

/// Refuses names of the rows and columns of a matrix that must be symmetric which are in different orders.
///
/// # Errors
/// With the first names that differ.
pub fn check_symmetric(partition: Partition, names: &Names) -> Result<()> {
    let (Partition::Symmetric, Some(rows), Some(columns)) = (partition, &names.rows, &names.columns) else {
        return Ok(());
    };
    let differs = rows.iter().zip(columns).position(|(row, column)| row != column);
    match (names::compare(Some(rows), Some(columns)), differs) {
        (Match::Reordered(_), Some(at)) => Err(Error::input(format!(
            "row {at} is {} and column {at} is {}, but a symmetric factorisation takes rows and columns in one order; sort both by \
             their names",
            rows[at], columns[at]
        ))),
        _ => Ok(()),
    }
}

/// The names of an input, on rank 0. Each owner reads its own `{party}` file; names of the private dimension stay with
/// their party. Collective.
pub fn names_of(input: &InputSpec, private: bool, comm: &Communicator) -> Names {
    let Source::File { path, .. } = &input.source else { return Names::default() };
    if !input.by_party() {
        let names = if comm.is_root() { names::of_input(input) } else { Names::default() };
        return match (private, input.stack) {
            (false, _) => names,
            (true, Stack::Rows) => Names { rows: None, ..names },
            (true, Stack::Columns) => Names { columns: None, ..names },
        };
    }
    let parties = Parties { count: input.parties.unwrap_or(comm.size()), ranks: comm.size() };
    let own = |party| {
        let Names { columns, rows, turned } = names::of_party(path, party, input);
        let (common, parts) = if input.stack == Stack::Rows { (columns, rows) } else { (rows, columns) };
        (common.filter(|_| party == 0), parts.filter(|_| !private), turned)
    };
    let own: Vec<_> = parties.hosted(comm.rank()).map(own).collect();
    let all: Vec<_> = comm.all_gather_value(NAMES, &own).into_iter().flatten().collect();
    let turned = all.iter().any(|(.., turned)| *turned);
    let common = all.iter().find_map(|(common, ..)| common.clone());
    let parts: Option<Vec<Vec<String>>> = all.into_iter().map(|(_, parts, _)| parts).collect();
    let parts = parts.map(|parts| parts.concat());
    match input.stack {
        Stack::Rows => Names { rows: parts, columns: common, turned },
        Stack::Columns => Names { rows: common, columns: parts, turned },
    }
}

/// The names of the rows or columns of each party of this rank, from its own file or its part of the common file. Nothing is
/// sent.
fn private_names(input: &InputSpec, hosted: &[(usize, Range<usize>)]) -> BTreeMap<usize, PartyNames> {
    let Source::File { path, .. } = &input.source else { return BTreeMap::new() };
    let by_rows = input.stack == Stack::Rows;
    let list = |names: Names| if by_rows { names.rows } else { names.columns };
    let all = if input.by_party() || hosted.is_empty() { None } else { list(names::of_input(input)) };
    let own = |(party, part): &(usize, Range<usize>)| {
        let names = match &all {
            Some(all) => all.get(part.clone())?.to_vec(),
            None if input.by_party() => list(names::of_party(path, *party, input))?,
            None => return None,
        };
        let names = Some(names).filter(|names| names.len() == part.len())?;
        Some((*party, if by_rows { PartyNames::Rows(names) } else { PartyNames::Columns(names) }))
    };
    hosted.iter().filter_map(own).collect()
}

/// Whether the columns of the m × n matrix are the observations of the AnnData file at `path`, and warnings of names that
/// one of them lacks.
///
/// # Errors
/// If the file is not one to add factors to, or has another shape or other names.
pub(super) fn fit(path: &Path, (m, n): (usize, usize), annotations: &Annotations) -> Result<(bool, Vec<String>)> {
    let shown = path.display();
    let (observations, variables) = matrices::appendable_shape(path).map_err(|e| e.at("--add-to"))?;
    let turned = match ((m, n) == (observations, variables), (n, m) == (observations, variables)) {
        (true, true) => annotations.transposed,
        (true, false) => false,
        (false, true) => true,
        (false, false) => {
            return Err(Error::input(format!(
                "--add-to {shown}: has {observations} observations and {variables} variables, but the matrix is {m} x {n}; \
                 use --output for a file of its own"
            )));
        }
    };
    let there = names::of_file(&path.to_string_lossy(), None);
    let mut warnings = Vec::new();
    let (rows, columns) = if turned { (&there.columns, &there.rows) } else { (&there.rows, &there.columns) };
    for (what, ours, theirs) in [("row", &annotations.rows, rows), ("column", &annotations.columns, columns)] {
        // AnnData has numbers if no names were given.
        let named = theirs.as_deref().filter(|theirs| ours.is_some() || !names::are_numbers(theirs));
        if let Some(text) = names::unmatched(what, ours.as_deref(), "the file has", named) {
            warnings.push(format!("--add-to {shown}: {text}"));
        }
        let what_differs = match names::compare(ours.as_deref(), theirs.as_deref()) {
            Match::Equal => continue,
            Match::Reordered(_) => format!("its {what}s are those of the matrix in another order"),
            Match::Repeated(name) => names::repeated(what, &name),
            Match::Different(at, ours, theirs) => {
                format!("its {what}s have other names: {what} {at} is {ours} in the matrix, {theirs} in the file")
            }
        };
        return Err(Error::input(format!("--add-to {shown}: {what_differs}; use --output for a file of its own")));
    }
    Ok((turned, warnings))
}

/// Whether an output needs the events of the trace at the end of the run.
pub fn needs_history(outputs: &Outputs) -> bool {
    let output = outputs.factors.as_deref();
    outputs.report.is_some() || output.is_some_and(|path| Format::of(path) == Ok(Format::AnnData))
}

/// The evaluations so far: one list per measure.
pub fn history(planned: &Planned, trace: &Trace) -> Map<String, Value> {
    let Ok(history) = report::history(planned, trace) else { return Map::new() };
    let mut lists = Map::<String, Value>::new();
    let names = history.evaluations.iter().filter_map(Value::as_object).flat_map(Map::iter);
    for name in names.filter(|(_, x)| x.is_number()).map(|(name, _)| name) {
        if !lists.contains_key(name) {
            lists.insert(name.clone(), history.evaluations.iter().map(|e| e[name].clone()).collect());
        }
    }
    lists
}
