//! Opens an input: reads its header, with the same result on all ranks.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::Stack;
use fednmf_data::header::{Header, check_dimensions};
use fednmf_data::messages::HEADERS;
use fednmf_data::synthetic::Synthetic;
use fednmf_data::values::Values;

use crate::align::aligned;
use crate::distribute::files::{PlacedFile, file_of_rows};
use crate::features;
use crate::formats::detect;
use crate::formats::detect::read_header;
use crate::formats::file::MatrixFile;
use crate::formats::fimi::Items;
use crate::names;
use crate::names::Names;
use crate::same_file;
use crate::same_file::Sample;
use crate::spec::{InputSpec, PARTY, Source, party_path, party_paths};

/// An input whose header has been read, and whose entries have not.
pub struct Input {
    pub(super) spec: InputSpec,
    pub(super) header: Header,
    pub(super) origin: Origin,
}

pub(super) enum Origin {
    Synthetic(Synthetic),
    Files {
        files: Vec<PlacedFile>,
        /// Whether the entries of some file have positions.
        by_position: bool,
    },
}

impl Origin {
    /// The files; none of a generated matrix.
    pub fn files(&self) -> &[PlacedFile] {
        if let Origin::Files { files, .. } = self { files } else { &[] }
    }
}

impl Input {
    /// Shape and format, known before the entries are read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The rows of each `{party}` file, or its columns if the files are stacked by columns; empty without such files.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let files = if self.spec.by_party() { self.origin.files() } else { &[] };
        let by_rows = self.spec.stack == Stack::Rows;
        files.iter().map(|file| if by_rows { file.rows.clone() } else { file.cols.clone() }).collect()
    }

    /// The names in the file of a party that this rank reads, as far as they are used.
    pub fn names_of_party(&self, party: usize) -> Names {
        let file = self.origin.files().get(party).and_then(|file| file.content.as_ref());
        let mut spec = self.spec.clone();
        spec.complete(&self.header);
        file.map_or_else(Names::default, |file| names::of_path(file.path(), &spec))
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
                by_rows: false,
                values: Values::Double,
                format,
                items: None,
                files: None,
                labels: None,
                notes,
                warnings,
                common: None,
                image: None,
            };
            return Ok(Input { spec: spec.clone(), header, origin: Origin::Synthetic(synthetic.clone()) });
        }
        Source::File { path, dataset } => (path, dataset.as_deref()),
    };
    let mut spec = spec.clone();
    let Found { files, joint, warning } = if spec.by_party() {
        let parties = Parties { count: count_of_files(&spec, path, comm)?, ranks: comm.size() };
        if spec.common_columns {
            spec = aligned(&spec, path, parties, comm)?;
        }
        party_files(&spec, path, dataset, parties, comm)?
    } else {
        let mut file =
            vec![FileFacts { owner: None, ..FileFacts::of(single_file(&spec, path, dataset, comm)?, None, 0) }];
        let joint = JointFacts::of(&file, &spec);
        joint.widen(&mut file);
        Found { files: file, joint, warning: None }
    };
    let (files, mut header) = stack(&spec, files, joint.items, comm.size()).map_err(Error::on_all_ranks)?;
    header.warnings.extend(warning);
    header.common.clone_from(&spec.common);
    let origin = Origin::Files { files, by_position: joint.by_position };
    Ok(Input { spec, header, origin })
}

fn single_file(spec: &InputSpec, path: &str, dataset: Option<&str>, comm: &Communicator) -> SharedResult<MatrixFile> {
    let found = || {
        let mut file = read_header(path, dataset, spec.table, spec.private)?;
        file.names_warning = names::check(path, dataset, file.rows, file.cols)?;
        if spec.allow_nan {
            file.check_blank_lines()?;
        }
        file.select(spec, path, dataset)?;
        let sample =
            (comm.size() > 1).then(|| Sample::read(file.path()).map_err(|e| file.file.io_error(&e))).transpose()?;
        Ok(Some((file, sample)))
    };
    let found = if comm.is_root() { found() } else { Ok(None) };
    let Some((mut file, sample)) = comm.broadcast_value(HEADERS, comm.agree_on_error(found)?) else {
        return Err(Error::failed("rank 0 did not read the header").on_all_ranks());
    };
    if let Some(sample) = sample {
        comm.agree_on_error(same_file::check(file.path(), &sample, comm))?;
    }
    if file.needs_counts() {
        let parts = if file.divisible() { comm.size() } else { 1 };
        let count =
            if comm.rank() < parts { file.count(comm.rank(), parts, spec.ask_values).map(Some) } else { Ok(None) };
        let counts = comm.all_gather_value(HEADERS, &comm.agree_on_error(count)?).into_iter().flatten().collect();
        file.set_counts(counts).map_err(Error::on_all_ranks)?;
    }
    Ok(file)
}

/// What this rank knows of a file.
struct FileFacts {
    shown: Shown,
    /// For messages: its path, or of which party it is.
    name: String,
    /// The only rank that may read it; `None` if all may.
    owner: Option<usize>,
    /// `None` if only its owner knows more.
    content: Option<MatrixFile>,
}

/// What the other ranks learn of a file that stays with its rank: what they must know to place it, and what must be equal
/// for all files.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shown {
    rows: usize,
    cols: usize,
    sparse: bool,
    image: Option<(usize, usize)>,
    /// A digest of the names that all files have in common.
    names: Option<String>,
}

/// What several files have together.
#[derive(Debug, Clone, Copy)]
struct JointFacts {
    /// Whether the entries of any of them have positions.
    by_position: bool,
    /// The range of the items of transactions, which have the same numbers in all files, although a file may contain only
    /// some of them.
    items: Option<Items>,
}

/// The files of an input.
struct Found {
    files: Vec<FileFacts>,
    joint: JointFacts,
    warning: Option<String>,
}

impl JointFacts {
    fn of(files: &[FileFacts], spec: &InputSpec) -> Self {
        let known = || files.iter().filter_map(|file| file.content.as_ref());
        let items = known().filter_map(MatrixFile::items).reduce(Items::merge);
        let given = spec.items.as_ref().and_then(Items::new);
        let items = items.map(|items| given.map_or(items, |given| items.merge(given)));
        JointFacts { by_position: known().any(MatrixFile::has_positions), items }
    }

    /// Those of all ranks' files. Nobody learns which file has which. Collective.
    fn joined(self, comm: &Communicator) -> Self {
        let columns = self.items.map_or(0..0, Items::columns);
        let from_zero = self.items.is_some() && columns.start == 0;
        let mut words = [u64::from(self.by_position), columns.end, u64::from(from_zero)];
        comm.max(HEADERS, &mut words);
        let [by_position, end, from_zero] = words;
        JointFacts { by_position: by_position > 0, items: Items::new(&(1 - from_zero..end)) }
    }

    /// Extends transactions to the items of all.
    fn widen(self, files: &mut [FileFacts]) {
        let Some(items) = self.items else { return };
        for file in files {
            if let Some(content) = &mut file.content {
                content.widen(items);
                file.shown.cols = content.cols;
            }
        }
    }
}

impl FileFacts {
    fn of(content: MatrixFile, names: Option<String>, owner: usize) -> Self {
        let MatrixFile { rows, cols, image, .. } = content;
        let shown = Shown { rows, cols, sparse: content.sparse(), image, names };
        FileFacts { shown, name: content.path().to_string(), owner: Some(owner), content: Some(content) }
    }
}

/// The path of a party's file.
///
/// # Errors
/// If there is no such file.
pub(super) fn own_path(spec: &InputSpec, pattern: &str, party: usize, parties: Parties) -> Result<String> {
    party_path(pattern, party).ok_or_else(|| {
        if spec.own_disk && !pattern.contains(PARTY) {
            return Error::input(format!("{pattern}: there is no such file; check the name"));
        }
        Error::input(format!(
            "{pattern}: there is no file {}; there must be one for {}, numbered from 0 (--parties)",
            pattern.replace(PARTY, &party.to_string()),
            match parties.count {
                1 => "the party".to_string(),
                count => format!("each of the {count} parties"),
            }
        ))
    })
}

/// The files of all parties, each opened only by its owner, and a warning if only some of them have names.
fn party_files(
    spec: &InputSpec,
    pattern: &str,
    dataset: Option<&str>,
    parties: Parties,
    comm: &Communicator,
) -> SharedResult<Found> {
    let read_own = || {
        let mut files = Vec::new();
        for party in parties.hosted(comm.rank()) {
            let path = own_path(spec, pattern, party, parties)?;
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
            file.names_warning = names::check(&path, dataset, file.rows, file.cols)?;
            if spec.allow_nan {
                file.check_blank_lines()?;
            }
            file.select(spec, &path, dataset)?;
            let names = shared_names(spec, &path);
            files.push(FileFacts::of(file, names.as_deref().map(names::digest), comm.rank()));
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
    let (files, joint) = if spec.kept { kept(own, spec, comm) } else { shared(own, spec, comm) };
    let what = if spec.stack == Stack::Rows { "columns" } else { "rows" };
    let common = |file: &FileFacts| match (spec.stack == Stack::Rows) != spec.transpose {
        true => file.shown.cols,
        false => file.shown.rows,
    };
    let named = files.iter().find_map(|file| Some((file, file.shown.names.as_ref()?)));
    // Different numbers say more, and are refused below.
    let other = |(first, known): &(&FileFacts, &String)| {
        let differs = |file: &&FileFacts| file.shown.names.as_ref().is_some_and(|digest| digest != *known);
        files.iter().find(|file| differs(file) && common(file) == common(first))
    };
    if let Some((first, other)) = named.and_then(|named| Some((named.0, other(&named)?))) {
        let cure = if what == "columns" { "; --common-columns uses those that all have, in one order" } else { "" };
        return Err(Error::input(format!(
            "{} and {}: their {what} have different names, or another order; every party's file must have the same {what} in \
             the same order{cure}",
            first.name, other.name
        ))
        .on_all_ranks());
    }
    let nameless = files.iter().find(|file| file.shown.names.is_none());
    let warning = named.zip(nameless).map(|((FileFacts { name: with, .. }, _), FileFacts { name: without, .. })| {
        format!("{with} has names of {what}, and {without} has none: the {what} of the parties are matched by position")
    });
    Ok(Found { files, joint, warning })
}

/// The files of all parties, of which each rank knows its own.
fn kept(mut own: Vec<FileFacts>, spec: &InputSpec, comm: &Communicator) -> (Vec<FileFacts>, JointFacts) {
    let joint = JointFacts::of(&own, spec).joined(comm);
    joint.widen(&mut own);
    let shown: Vec<Shown> = own.iter().map(|file| file.shown.clone()).collect();
    let mut own = own.into_iter();
    let all = comm.all_gather_value(HEADERS, &shown);
    let all = all.into_iter().enumerate().flat_map(|(rank, files)| files.into_iter().map(move |shown| (rank, shown)));
    let facts = all.enumerate().map(|(party, (rank, shown))| {
        let content = if rank == comm.rank() { own.next().and_then(|file| file.content) } else { None };
        FileFacts { shown, name: format!("the file of party {party}"), owner: Some(rank), content }
    });
    (facts.collect(), joint)
}

/// The files of all parties, of which each rank knows everything: their entries do not stay where they are read.
fn shared(own: Vec<FileFacts>, spec: &InputSpec, comm: &Communicator) -> (Vec<FileFacts>, JointFacts) {
    let own: Vec<_> = own.into_iter().filter_map(|file| Some((file.content?, file.shown.names))).collect();
    let all = comm.all_gather_value(HEADERS, &own).into_iter().enumerate();
    let of_rank = |(rank, files): (usize, Vec<(MatrixFile, Option<String>)>)| {
        files.into_iter().map(move |(file, names)| FileFacts::of(file, names, rank))
    };
    let mut files: Vec<FileFacts> = all.flat_map(of_rank).collect();
    let joint = JointFacts::of(&files, spec);
    joint.widen(&mut files);
    (files, joint)
}

/// The number of `{party}` files: the given number, or the largest number of files that a rank finds; for methods over parties at
/// least one per rank.
fn count_of_files(spec: &InputSpec, pattern: &str, comm: &Communicator) -> SharedResult<usize> {
    if let Some(given) = spec.parties {
        return Ok(given);
    }
    let mut seen = [spec.files().len() as u64];
    comm.max(HEADERS, &mut seen);
    let count = (seen[0] as usize).max(if spec.kept { comm.size() } else { 1 });
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

/// Places the files in the matrix, and determines its header; `items` are those of transactions.
fn stack(
    spec: &InputSpec,
    files: Vec<FileFacts>,
    items: Option<Items>,
    ranks: usize,
) -> Result<(Vec<PlacedFile>, Header)> {
    let Some(first) = files.first() else { return Err(Error::input("no input files")) };
    let turned = |file: &FileFacts| match (spec.transpose, &file.shown) {
        (false, &Shown { rows, cols, .. }) => (rows, cols),
        (true, &Shown { rows, cols, .. }) => (cols, rows),
    };
    let (mut rows, mut cols) = (0, 0);
    let mut places = Vec::with_capacity(files.len());
    for file in &files {
        let (r, c) = turned(file);
        let (mine, theirs, what) = match spec.stack {
            Stack::Rows => (c, turned(first).1, "columns"),
            Stack::Columns => (r, turned(first).0, "rows"),
        };
        if mine != theirs {
            return Err(Error::input(format!(
                "{} has {mine} {what}, but {} has {theirs}: the parties' files must have the same {what}{}",
                file.name,
                first.name,
                if what == "columns" {
                    "; with names of columns, --common-columns uses those that all have"
                } else {
                    ""
                }
            )));
        }
        if file.shown.sparse != first.shown.sparse {
            return Err(Error::input(format!(
                "{} and {}: one is sparse, the other dense; the parties' files must be of one kind, so convert one \
                 (scipy.sparse.save_npz writes a sparse matrix, numpy.save a dense one)",
                file.name, first.name
            )));
        }
        let place = match spec.stack {
            Stack::Rows => (rows..rows + r, 0..c),
            Stack::Columns => (0..r, cols..cols + c),
        };
        (rows, cols) = (place.0.end, place.1.end);
        places.push(place);
    }
    let items = items.map(Items::columns);
    let known: Vec<&MatrixFile> = files.iter().filter_map(|file| file.content.as_ref()).collect();
    let mut notes_of_files = notes(spec, &known);
    if let (Source::File { path, .. }, Some(items)) = (&spec.source, &items) {
        let what = if spec.transpose { "rows" } else { "columns" };
        notes_of_files.push(format!("{path}: the {what} are items {} to {}", items.start, items.end - 1));
    }
    // Only where all files are known, so that all ranks have the same number.
    let all_known = known.len() == files.len();
    let stored = || known.iter().try_fold(0u64, |sum, file| sum.checked_add(file.stored?));
    let mut header = Header {
        rows,
        cols,
        sparse: first.shown.sparse,
        stored: if all_known { stored() } else { None },
        by_rows: false,
        values: known.iter().map(|file| file.values).max().unwrap_or(Values::Double),
        format: known.first().map_or_else(String::new, |file| file.format.clone()),
        files: spec.by_party().then_some(files.len()),
        labels: known.first().and_then(|file| file.labels()),
        notes: notes_of_files,
        warnings: known.iter().filter_map(|file| file.names_warning.clone()).chain(of_mixed_types(spec)).collect(),
        items,
        common: None,
        image: first.shown.image,
    };
    check_dimensions((rows, cols), header.sparse)?;
    let placed: Vec<PlacedFile> = files
        .into_iter()
        .zip(places)
        .map(|(FileFacts { owner, content, .. }, (rows, cols))| PlacedFile { content, owner, rows, cols })
        .collect();
    header.by_rows = file_of_rows(&placed, spec.transpose).is_some_and(|file| ranks == 1 || file.divisible());
    Ok((placed, header))
}

/// A warning if a file of a 10x directory is named in place of the directory, whose lists say that its features are of several
/// types.
fn of_mixed_types(spec: &InputSpec) -> Option<String> {
    let Source::File { path, .. } = &spec.source else { return None };
    let file = Path::new(path);
    let directory = match file.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    let (matrix, _) = detect::matrix_of_tenx(directory)?;
    let types = (matrix.file_name() == file.file_name()).then(|| names::types_in_directory(directory))??;
    let types: Vec<&str> = features::counts(&types).into_iter().map(|(name, _)| name).collect();
    (types.len() > 1).then(|| {
        format!(
            "{path}: has features of several types ({}), all of which are used; give the directory, {}, to choose by --feature-type",
            types.join(", "),
            directory.display()
        )
    })
}

/// Notes on how text tables were interpreted. A note that applies to all `{party}` files is printed once.
fn notes(spec: &InputSpec, files: &[&MatrixFile]) -> Vec<String> {
    let all: Vec<Option<&str>> = files.iter().map(|file| file.note()).collect();
    match (&spec.source, all.first()) {
        (Source::File { path, .. }, Some(Some(note))) if all.iter().all(|other| *other == Some(*note)) => {
            vec![format!("{path}: {note}")]
        }
        _ => files.iter().zip(all).filter_map(|(file, note)| Some(format!("{}: {}", file.path(), note?))).collect(),
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
