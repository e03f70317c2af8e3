//! Opens an input: reads its header, with the same result on all ranks.

use std::ops::Range;
use std::path::Path;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::Stack;
use fednmf_data::header::{Header, check_dimensions};
use fednmf_data::messages::HEADERS;
use fednmf_data::synthetic::Synthetic;
use fednmf_data::values::Values;

use crate::distribute::files::PlacedFile;
use crate::formats::detect::read_header;
use crate::formats::file::MatrixFile;
use crate::formats::fimi::Items;
use crate::names;
use crate::spec::{InputSpec, PARTY, Source, party_path, party_paths};

/// An input whose header has been read, and whose entries have not.
pub struct Input {
    pub(super) spec: InputSpec,
    pub(super) header: Header,
    pub(super) origin: Origin,
}

pub(super) enum Origin {
    Synthetic(Synthetic),
    Files(Vec<PlacedFile>),
}

impl Input {
    /// Shape and format, known before the entries are read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The rows of each `{party}` file, or its columns if the files are stacked by columns; empty without such files.
    pub fn parts(&self) -> Vec<Range<usize>> {
        match &self.origin {
            Origin::Files(files) if self.spec.by_party() => {
                let by_rows = self.spec.stack == Stack::Rows;
                files.iter().map(|file| if by_rows { file.rows.clone() } else { file.cols.clone() }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The specification from which it was opened.
    pub fn spec(&self) -> &InputSpec {
        &self.spec
    }
}

/// Reads the header: rank 0 reads the header of a single file, and each owner the headers of its `{party}` files. Entries
/// are not read, except that the lines of formats without a header are counted.
///
/// # Errors
/// The same on all ranks, if a file is missing, unreadable, damaged or of an unknown format.
pub fn open(spec: &InputSpec, comm: &Communicator) -> SharedResult<Input> {
    spec.check().map_err(Error::on_all_ranks)?;
    let (path, dataset) = match &spec.source {
        Source::Synthetic(synthetic) => {
            let &Synthetic { m, n, .. } = synthetic;
            let (rows, cols) = if spec.transpose { (n, m) } else { (m, n) };
            let format = format!("synthetic {}", synthetic.name());
            let sparse = synthetic.sparse();
            let (notes, warnings) = (Vec::new(), Vec::new());
            let header = Header {
                rows,
                cols,
                sparse,
                stored: None,
                values: Values::Double,
                format,
                items: None,
                files: None,
                labels: None,
                notes,
                warnings,
                image: None,
            };
            return Ok(Input { spec: spec.clone(), header, origin: Origin::Synthetic(synthetic.clone()) });
        }
        Source::File { path, dataset } => (path, dataset.as_deref()),
    };
    let (files, warning) = if spec.by_party() {
        party_files(spec, path, dataset, comm)?
    } else {
        (vec![(single_file(spec, path, dataset, comm)?, None)], None)
    };
    let (placed, mut header) = stack(spec, files).map_err(Error::on_all_ranks)?;
    header.warnings.extend(warning);
    Ok(Input { spec: spec.clone(), header, origin: Origin::Files(placed) })
}

fn single_file(spec: &InputSpec, path: &str, dataset: Option<&str>, comm: &Communicator) -> SharedResult<MatrixFile> {
    let found = || {
        let mut file = read_header(path, dataset, spec.table, spec.private)?;
        names::check(path, dataset, file.rows, file.cols)?;
        file.select(&spec.features, path, dataset, spec.private)?;
        Ok(Some(file))
    };
    let found = if comm.is_root() { found() } else { Ok(None) };
    let Some(mut file) = comm.broadcast_value(HEADERS, comm.agree_on_error(found)?) else {
        return Err(Error::failed("rank 0 did not read the header").on_all_ranks());
    };
    if file.needs_counts() {
        let parts = if file.divisible() { comm.size() } else { 1 };
        let count =
            if comm.rank() < parts { file.count(comm.rank(), parts, spec.ask_values).map(Some) } else { Ok(None) };
        let counts = comm.all_gather_value(HEADERS, &comm.agree_on_error(count)?).into_iter().flatten().collect();
        file.set_counts(counts).map_err(Error::on_all_ranks)?;
    }
    Ok(file)
}

/// A file, and the only rank that may read it.
type OwnedFile = (MatrixFile, Option<usize>);

/// The files of all parties, each opened only by its owner, and a warning if only some of them have names.
fn party_files(
    spec: &InputSpec,
    pattern: &str,
    dataset: Option<&str>,
    comm: &Communicator,
) -> SharedResult<(Vec<OwnedFile>, Option<String>)> {
    let parties = Parties { count: count_of_files(spec, pattern, comm)?, ranks: comm.size() };
    let read_own = || {
        let mut files = Vec::new();
        for party in parties.hosted(comm.rank()) {
            let Some(path) = party_path(pattern, party) else {
                if spec.own_disk && !pattern.contains(PARTY) {
                    return Err(Error::input(format!("{pattern}: there is no such file; check the name")));
                }
                return Err(Error::input(format!(
                    "{pattern}: no file for party {party} ({}); there must be one for each of the {} parties, numbered \
                     from 0 (--parties)",
                    pattern.replace(PARTY, &party.to_string()),
                    parties.count
                )));
            };
            let spellings = party_paths(pattern, party).count();
            if spellings > 1 && pattern.contains(PARTY) {
                return Err(Error::input(format!(
                    "{pattern}: {spellings} files have the number {party}, with leading zeros and without; remove all \
                     but one"
                )));
            }
            let mut file = read_header(&path, dataset, spec.table, spec.private)?;
            if file.needs_counts() {
                // The element type of a party's data is private.
                let count = file.count(0, 1, false)?;
                file.set_counts(vec![count])?;
            }
            names::check(&path, dataset, file.rows, file.cols)?;
            file.select(&spec.features, &path, dataset, spec.private)?;
            let names = shared_names(spec, &path);
            files.push((file, names.as_deref().map(names::digest)));
        }
        let numbered = pattern.contains(PARTY) && !spec.own_disk;
        if numbered && parties.hosted(comm.rank()).end == parties.count && party_path(pattern, parties.count).is_some()
        {
            return Err(Error::input(format!(
                "{pattern}: there are more files than the {} parties (--parties, or one for each rank); give a party \
                 for each of them, or move the others away",
                parties.count
            )));
        }
        Ok(files)
    };
    let own = comm.agree_on_error(read_own())?;
    let mut all = comm.all_gather_value(HEADERS, &shown(&own, comm));
    all[comm.rank()] = own;
    let mut files = Vec::with_capacity(parties.count);
    let what = if spec.stack == Stack::Rows { "columns" } else { "rows" };
    let mut nameless: Option<String> = None;
    let mut named: Option<(String, usize, String)> = None;
    let shared = |file: &MatrixFile| if (spec.stack == Stack::Rows) != spec.transpose { file.cols } else { file.rows };
    for (rank, (file, digest)) in
        all.into_iter().enumerate().flat_map(|(r, files)| files.into_iter().map(move |f| (r, f)))
    {
        if digest.is_none() {
            nameless.get_or_insert_with(|| file.path().to_string());
        }
        if let Some(digest) = digest {
            let count = shared(&file);
            let (first, first_count, known) =
                named.get_or_insert_with(|| (file.path().to_string(), count, digest.clone()));
            // Different numbers say more, and are refused below.
            if *known != digest && *first_count == count {
                return Err(Error::input(format!(
                    "{first} and {}: their {what} have different names, or another order; every party's file must have the \
                     same {what} in the same order, so select and sort them by a list that all parties have",
                    file.path()
                ))
                .on_all_ranks());
            }
        }
        files.push((file, Some(rank)));
    }
    let warning = named.zip(nameless).map(|((with, ..), without)| {
        format!("{with} has names of {what}, and {without} has none: the {what} of the parties are matched by position")
    });
    Ok((files, warning))
}

/// The hosted parties' files as the other ranks see them: other owners see only the last part of the path.
fn shown(own: &[(MatrixFile, Option<String>)], comm: &Communicator) -> Vec<(MatrixFile, Option<String>)> {
    let mut shown = own.to_vec();
    if comm.has_owners() {
        for (file, _) in &mut shown {
            let name = Path::new(file.path()).file_name().unwrap_or_default().to_string_lossy().into_owned();
            file.rename(&format!("{name} of {}", comm.name_of(comm.rank())));
        }
    }
    shown
}

/// The number of `{party}` files: the given number, or the number of files that rank 0 finds, but at least one per rank.
fn count_of_files(spec: &InputSpec, pattern: &str, comm: &Communicator) -> SharedResult<usize> {
    if let Some(given) = spec.parties {
        return Ok(given);
    }
    let seen = if comm.is_root() { spec.files().len() } else { 0 };
    let count = comm.broadcast_value(HEADERS, seen).max(comm.size());
    let beyond = if comm.is_root() { highest_party(pattern).filter(|&last| last >= count) } else { None };
    let beyond = beyond.and_then(|last| Some((last, (0..last).find(|&party| party_path(pattern, party).is_none())?)));
    match comm.broadcast_value(HEADERS, beyond) {
        Some((last, lacking)) => Err(Error::input(format!(
            "{pattern}: there is a file for party {last}, but none for party {lacking}; number the files from 0 \
             without gaps, or give their number (--parties)"
        ))
        .on_all_ranks()),
        None => Ok(count),
    }
}

/// The largest number in place of `{party}` in the name of an existing file.
pub fn highest_party(pattern: &str) -> Option<usize> {
    let path = Path::new(pattern);
    let name = path.file_name()?.to_str()?;
    let (before, after) = name.split_once(PARTY)?;
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let number = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let digits = name.strip_prefix(before)?.strip_suffix(after)?.to_string();
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    std::fs::read_dir(directory).ok()?.flatten().filter_map(number).max()
}

/// The names of the dimension that all parties share: the columns if each party has its own rows, otherwise the rows.
fn shared_names(spec: &InputSpec, path: &str) -> Option<Vec<String>> {
    // The set of items in a file of transactions may differ.
    let names = names::of_path(path, &InputSpec { items: None, ..spec.clone() });
    if spec.stack == Stack::Rows { names.columns } else { names.rows }
}

/// Places the files in the matrix, and determines its header.
fn stack(spec: &InputSpec, mut files: Vec<(MatrixFile, Option<usize>)>) -> Result<(Vec<PlacedFile>, Header)> {
    // The items of transactions have the same numbers in all files, although a file may contain only some of them.
    let items = files.iter().filter_map(|(file, _)| file.items()).reduce(Items::merge);
    let given = spec.items.as_ref().and_then(Items::new);
    let items = items.map(|items| given.map_or(items, |given| items.merge(given)));
    if let Some(items) = items {
        files.iter_mut().for_each(|(file, _)| file.widen(items));
    }
    let mut placed: Vec<PlacedFile> = Vec::with_capacity(files.len());
    let (mut rows, mut cols) = (0, 0);
    let mut stored = Some(0u64);
    for (content, owner) in files {
        let (r, c) = if spec.transpose { (content.cols, content.rows) } else { (content.rows, content.cols) };
        if let Some(first) = placed.first() {
            let (mine, theirs, what) = match spec.stack {
                Stack::Rows => (c, first.cols.len(), "columns"),
                Stack::Columns => (r, first.rows.len(), "rows"),
            };
            if mine != theirs {
                return Err(Error::input(format!(
                    "{} has {mine} {what}, but {} has {theirs}: the parties' files must have the same {what}; select them by a list that all \
                     parties have",
                    content.path(),
                    first.content.path()
                )));
            }
            if content.sparse() != first.content.sparse() {
                return Err(Error::input(format!(
                    "{} and {}: one is sparse, the other dense; the parties' files must be of one kind, so convert one \
                     (scipy.sparse.save_npz writes a sparse matrix, numpy.save a dense one)",
                    content.path(),
                    first.content.path()
                )));
            }
        }
        stored = stored.zip(content.stored).and_then(|(a, b)| a.checked_add(b));
        let place = match spec.stack {
            Stack::Rows => (rows..rows + r, 0..c),
            Stack::Columns => (0..r, cols..cols + c),
        };
        (rows, cols) = (place.0.end, place.1.end);
        placed.push(PlacedFile { content, owner, rows: place.0, cols: place.1 });
    }
    let Some(first) = placed.first() else { return Err(Error::input("no input files")) };
    let count = spec.by_party().then_some(placed.len());
    let items = items.map(Items::columns);
    let mut notes_of_files = notes(spec, &placed);
    if let (Source::File { path, .. }, Some(items)) = (&spec.source, &items) {
        let what = if spec.transpose { "rows" } else { "columns" };
        notes_of_files.push(format!("{path}: the {what} are items {} to {}", items.start, items.end - 1));
    }
    let header = Header {
        rows,
        cols,
        sparse: first.content.sparse(),
        stored,
        values: placed.iter().map(|file| file.content.values).max().unwrap_or(Values::Double),
        format: first.content.format.clone(),
        files: count,
        labels: first.content.labels(),
        notes: notes_of_files,
        warnings: Vec::new(),
        items,
        image: first.content.image,
    };
    check_dimensions((rows, cols), header.sparse)?;
    Ok((placed, header))
}

/// Notes on how text tables were interpreted. A note that applies to all `{party}` files is printed once.
fn notes(spec: &InputSpec, files: &[PlacedFile]) -> Vec<String> {
    let all: Vec<Option<&str>> = files.iter().map(|file| file.content.note()).collect();
    match (&spec.source, all.first()) {
        (Source::File { path, .. }, Some(Some(note))) if all.iter().all(|other| *other == Some(*note)) => {
            vec![format!("{path}: {note}")]
        }
        _ => files
            .iter()
            .zip(all)
            .filter_map(|(file, note)| Some(format!("{}: {}", file.content.path(), note?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_dense_dimension_of_more_than_31_bits_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tall.npy");
        let shape = "{'descr': '|u1', 'fortran_order': False, 'shape': (2147483648, 1), }";
        let header = [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{shape:117}\n").as_bytes()].concat();
        let mut file = File::create(&path).unwrap();
        file.write_all(&header).unwrap();
        // A sparse file, which takes no space.
        file.set_len(header.len() as u64 + (1 << 31)).unwrap();
        let refused = open(&InputSpec::parse(path.to_str().unwrap()).unwrap(), &Communicator::local()).err().unwrap();
        assert!(refused.message.contains("2147483648 × 1: a dense matrix may have up to 2147483647"), "{refused:?}");
    }
}
