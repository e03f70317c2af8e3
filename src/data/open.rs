//! What the header tells, on all ranks alike.

use std::ops::Range;
use std::path::Path;

use super::{HEADERS, Header};
use crate::comm::{Communicator, Parties};
use crate::data::formats::detect::probe;
use crate::data::formats::file::FileInfo;
use crate::data::spec::{InputSpec, PARTY, Source, Stack};
use crate::data::synthetic::Synthetic;
use crate::error::{Error, Result};

/// An input whose header is known and whose entries are not read yet.
pub struct Input {
    pub(super) spec: InputSpec,
    pub(super) header: Header,
    pub(super) origin: Origin,
}

pub(super) enum Origin {
    Synthetic(Synthetic),
    Files(Vec<Placed>),
}

/// A file and its place in the matrix.
pub(super) struct Placed {
    pub info: FileInfo,
    /// The one rank that may read it; none where all ranks may.
    pub owner: Option<usize>,
    /// Its rectangle of the matrix, after transposing.
    pub rows: Range<usize>,
    pub cols: Range<usize>,
}

impl Input {
    /// What is known before the entries are read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was asked for.
    pub fn spec(&self) -> &InputSpec {
        &self.spec
    }
}

/// Reads the header: rank 0 that of a single file, each owner its own `{party}` files'. The entries stay unread, but for
/// formats without a header, whose lines must be counted.
///
/// # Errors
/// The same on all ranks: a missing, unreadable or damaged file, or one of an unknown format.
pub fn open(spec: &InputSpec, comm: &Communicator) -> Result<Input> {
    look(spec, comm).map_err(Error::on_all_ranks)
}

fn look(spec: &InputSpec, comm: &Communicator) -> Result<Input> {
    spec.check()?;
    let (path, dataset) = match &spec.source {
        Source::Synthetic(made) => {
            let (rows, cols) = if spec.transpose { (made.n, made.m) } else { (made.m, made.n) };
            let format = format!("synthetic {}", made.name());
            let header = Header { rows, cols, sparse: made.sparse(), stored: None, format, files: None };
            return Ok(Input { spec: spec.clone(), header, origin: Origin::Synthetic(made.clone()) });
        }
        Source::File { path, dataset } => (path, dataset.as_deref()),
    };
    let infos = if spec.by_party() {
        party_files(spec, path, dataset, comm)?
    } else {
        vec![(single_file(path, dataset, comm)?, None)]
    };
    let (placed, header) = stack(spec, infos)?;
    Ok(Input { spec: spec.clone(), header, origin: Origin::Files(placed) })
}

fn single_file(path: &str, dataset: Option<&str>, comm: &Communicator) -> Result<FileInfo> {
    let found = if comm.is_root() { probe(path, dataset).map(Some) } else { Ok(None) };
    let Some(mut info) = comm.broadcast_value(HEADERS, comm.agree_on_error(found)?) else {
        return Err(Error::failed("rank 0 did not read the header"));
    };
    if info.needs_survey() {
        let parts = if info.divisible() { comm.size() } else { 1 };
        let survey = if comm.rank() < parts { info.survey(comm.rank(), parts).map(Some) } else { Ok(None) };
        let surveys = comm.all_gather_value(HEADERS, &comm.agree_on_error(survey)?).into_iter().flatten().collect();
        info.settle(surveys)?;
    }
    Ok(info)
}

/// The files of all parties, each looked into by its owner alone.
fn party_files(
    spec: &InputSpec,
    pattern: &str,
    dataset: Option<&str>,
    comm: &Communicator,
) -> Result<Vec<(FileInfo, Option<usize>)>> {
    let parties = Parties { count: spec.parties.unwrap_or(comm.size()), ranks: comm.size() };
    let look = || {
        let mut infos = Vec::new();
        for party in parties.hosted(comm.rank()) {
            let Some(path) = party_path(pattern, party) else {
                return Err(Error::input(format!(
                    "{pattern}: no file for party {party} ({}); there should be one for each of the {} parties, counted \
                     from 0 (--parties)",
                    pattern.replace(PARTY, &party.to_string()),
                    parties.count
                )));
            };
            let mut info = probe(&path, dataset)?;
            if info.needs_survey() {
                let survey = info.survey(0, 1)?;
                info.settle(vec![survey])?;
            }
            infos.push(info);
        }
        if parties.hosted(comm.rank()).end == parties.count && party_path(pattern, parties.count).is_some() {
            return Err(Error::input(format!(
                "{pattern}: there are more files than the {} parties; say how many (--parties)",
                parties.count
            )));
        }
        Ok(infos)
    };
    let all = comm.all_gather_value(HEADERS, &comm.agree_on_error(look())?);
    Ok(all.into_iter().enumerate().flat_map(|(rank, infos)| infos.into_iter().map(move |i| (i, Some(rank)))).collect())
}

/// The file of a party: its number plain, or with leading zeros.
fn party_path(pattern: &str, party: usize) -> Option<String> {
    [format!("{party}"), format!("{party:02}"), format!("{party:03}"), format!("{party:04}")]
        .iter()
        .map(|number| pattern.replace(PARTY, number))
        .find(|path| Path::new(path).exists())
}

/// Gives each file its place, and the whole its header.
fn stack(spec: &InputSpec, infos: Vec<(FileInfo, Option<usize>)>) -> Result<(Vec<Placed>, Header)> {
    let mut placed: Vec<Placed> = Vec::with_capacity(infos.len());
    let (mut rows, mut cols) = (0, 0);
    let mut stored = Some(0u64);
    for (info, owner) in infos {
        let (r, c) = if spec.transpose { (info.cols, info.rows) } else { (info.rows, info.cols) };
        if let Some(first) = placed.first() {
            let (mine, theirs, what) = match spec.stack {
                Stack::Rows => (c, first.cols.len(), "columns"),
                Stack::Columns => (r, first.rows.len(), "rows"),
            };
            if mine != theirs {
                return Err(Error::input(format!(
                    "{} has {mine} {what}, but {} has {theirs}: the parties' files must agree in them",
                    info.path, first.info.path
                )));
            }
            if info.sparse() != first.info.sparse() {
                return Err(Error::input(format!(
                    "{} and {}: one is sparse, the other dense; the parties' files must be alike",
                    info.path, first.info.path
                )));
            }
        }
        stored = stored.zip(info.stored).and_then(|(a, b)| a.checked_add(b));
        let place = match spec.stack {
            Stack::Rows => (rows..rows + r, 0..c),
            Stack::Columns => (0..r, cols..cols + c),
        };
        (rows, cols) = (place.0.end, place.1.end);
        placed.push(Placed { info, owner, rows: place.0, cols: place.1 });
    }
    let Some(first) = placed.first() else { return Err(Error::input("no input files")) };
    let files = spec.by_party().then_some(placed.len());
    let header = Header { rows, cols, sparse: first.info.sparse(), stored, format: first.info.format.clone(), files };
    if header.sparse && rows.max(cols) > i32::MAX as usize {
        return Err(Error::input(format!(
            "{rows} × {cols}: a sparse matrix may have up to 2147483647 rows and columns"
        )));
    }
    Ok((placed, header))
}
