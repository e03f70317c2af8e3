//! Reads outputs and checkpoints: matrices by rows, each rank its own rows; private matrices from the parties' files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::{Array2, ArrayViewMut2};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_data::state::{Owner, ReadRows, SavedState};
use fednmf_linalg::Real;

use super::anndata;
use super::checksum;
use crate::formats::detect;
use crate::formats::detect::FileKind;
use crate::hdf5_probe;
use crate::hdf5_probe::Content;
use crate::names;
use crate::names::Names;
use crate::output::checksum::Integrity;
use crate::output::hdf5::Container;
use crate::output::npz::Matrices;
use crate::output::sink::Format;

/// The root attribute with the pattern of the parties' file names: a file name with `{party}` in it.
pub const PARTY_FILES: &str = "party_files";
/// The root attribute with the number of digits of `{party}`.
pub const PARTY_WIDTH: &str = "party_width";
/// The root attribute with the generation of a checkpoint.
pub const GENERATION: &str = "generation";
/// The root attribute of a party's file with that party's number.
pub const PARTY: &str = "party";
/// The root attribute that the shared file and the parties' files have in common if they were written together.
pub const SET: &str = "set";
/// The root attribute with the scalars of a checkpoint's owner.
pub const STATE: &str = "state";

/// The root attributes with the names of the matrix's rows and columns; AnnData files have them in obs and var.
pub const ROW_NAMES: &str = "row_names";
pub const COLUMN_NAMES: &str = "column_names";

/// Attributes that are texts, or sets of parameters. In another form, as another program may write them, they are there, but null.
pub(super) const TEXTS: [&str; 4] = [ROW_NAMES, COLUMN_NAMES, "algo", "params"];

/// A file of named matrices, open for reading, and the parties' files in the same directory.
#[derive(Debug)]
pub struct Stored {
    path: PathBuf,
    source: Source,
    attributes: Map<String, Value>,
    sealed: bool,
    /// The selected party and its file; `None` to read the private factors of all parties.
    party: Option<(usize, PathBuf)>,
}

/// The open file.
#[derive(Debug)]
enum Source {
    Hdf5(Container),
    Npz(Matrices),
}

impl Stored {
    /// Opens the shared file of an output or a checkpoint.
    ///
    /// # Errors
    /// If it is missing, has no known format, is truncated, or does not match its checksums.
    pub fn open(path: &Path) -> Result<Self> {
        Stored::open_as(path, false)
    }

    /// Opens an output to read its factors. If `path` is a party's file, only the shared factor and that party's private
    /// factor are read, since an institution has no other files of a joint run.
    ///
    /// # Errors
    /// As [`Stored::open`], if the factors or their names do not fit together, and if the shared file is not in the directory of
    /// the party's file, or is of another run.
    pub fn open_factors(path: &Path) -> Result<Self> {
        let stored = Stored::open(path)?;
        stored.check_factors()?;
        let party = stored.attributes.get(PARTY).and_then(Value::as_u64).and_then(|party| usize::try_from(party).ok());
        let files = stored.attributes.get(PARTY_FILES).and_then(Value::as_str);
        let (Some(party), Some(files)) = (party, files) else { return Ok(stored) };
        let then = shared_file(files);
        let now = shared_beside(path, party).unwrap_or_else(|| then.clone());
        let open = |shared: &Path| {
            let shared = Stored { party: Some((party, path.to_path_buf())), ..Stored::open(shared)? };
            shared.check_factors()?;
            shared.of_party(party)?;
            shared.check_names_of_party(party)?;
            Ok(shared)
        };
        open_either([&now, &then].map(|name| path.with_file_name(name)), open, |shared, e| {
            Error::input(format!(
                "{}: is the file of party {party} with its private factors; what all parties share is in {}, which cannot be \
                 read ({e}); put it beside it{}",
                path.display(),
                shared.display(),
                renamed(&now, &then)
            ))
        })
    }

    /// Opens a file that must have been written with checksums.
    ///
    /// # Errors
    /// As [`Stored::open`], and if it has no checksums.
    pub(super) fn open_sealed(path: &Path) -> Result<Self> {
        Stored::open_as(path, true)
    }

    fn open_as(path: &Path, must_be_sealed: bool) -> Result<Self> {
        let shown = path.display();
        if !must_be_sealed {
            recognise(path)?;
        }
        if !must_be_sealed && Format::of(path) == Ok(Format::Npz) {
            let (matrices, attributes) =
                Matrices::open(path).map_err(|e| Error::input(format!("{shown}: cannot be read as .npz ({e})")))?;
            let source = Source::Npz(matrices);
            return Ok(Stored { path: path.to_path_buf(), source, attributes, sealed: false, party: None });
        }
        let state = checksum::check(path)
            .map_err(|e| Error::input(format!("{shown}: cannot be opened ({e}); check the name")))?;
        match state {
            Integrity::Damaged => return Err(damaged(path, "its contents do not match their checksum")),
            Integrity::Unsealed if must_be_sealed => {
                return Err(Error::input(format!(
                    "{shown}: is no complete checkpoint: it was cut short or changed, or is another kind of file (perhaps the --output of a run); use a backup copy, or start again without --resume"
                )));
            }
            // Written by another version, or changed by another program.
            Integrity::Unsealed => hdf5_probe::run(Content::Factors, &path.to_string_lossy(), None)?,
            Integrity::Good => {}
        }
        let (container, attributes) = Container::open(path)?;
        let source = Source::Hdf5(container);
        Ok(Stored { path: path.to_path_buf(), source, attributes, sealed: state == Integrity::Good, party: None })
    }

    /// The path of the shared file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The party whose private factors are read, if one was selected.
    pub fn party(&self) -> Option<usize> {
        self.party.as_ref().map(|(party, _)| *party)
    }

    /// The attributes of the shared file, with objects and lists parsed.
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// Names of the rows and columns of the factorised matrix, from the file or from the files of the selected parties,
    /// party 0 first; `None` if unknown.
    pub fn names(&self) -> Names {
        match &self.source {
            Source::Hdf5(container) if container.is_anndata() => {
                let Names { rows, columns, turned } = names::of_file(&self.path.to_string_lossy(), None);
                let turned_over = anndata::find(&self.attributes, "U") == anndata::find(&Map::new(), "V");
                let (rows, columns, turned) =
                    if turned_over { (columns, rows, !turned) } else { (rows, columns, turned) };
                let named = |name: &str| self.attributes.get(name).is_none_or(|yes| *yes != true && *yes != 1);
                Names {
                    rows: rows.filter(|_| named(anndata::NUMBERED_ROWS)),
                    columns: columns.filter(|_| named(anndata::NUMBERED_COLUMNS)),
                    turned,
                }
            }
            Source::Hdf5(_) | Source::Npz(_) => {
                let list = |name| self.list(name).or_else(|| self.list_of_parties(name));
                Names { rows: list(ROW_NAMES), columns: list(COLUMN_NAMES), turned: false }
            }
        }
    }

    /// Checks that the factors in this file have as many components, and a name for each row where they have names. Another program
    /// may have written or changed them.
    ///
    /// # Errors
    /// If not.
    pub fn check_factors(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::input(format!("{}: {why}", self.path.display())));
        let in_anndata = matches!(&self.source, Source::Hdf5(container) if container.is_anndata());
        let mut components = None;
        for (factor, name) in [("U", ROW_NAMES), ("V", COLUMN_NAMES)] {
            let names = if in_anndata { None } else { self.attributes.get(name) };
            let texts = names.map(|_| self.list(name));
            if let Some(None) = texts {
                return wrong(format!(
                    "its {name} are no list of names as fednmf writes them; store them as one text in JSON, json.dumps([...])"
                ));
            }
            if !self.has(factor) {
                continue;
            }
            let (rows, k) = self.matrix(factor)?;
            match (*components.get_or_insert(k), texts.flatten()) {
                // A party may have no rows or columns.
                _ if (rows == 0 && !self.attributes.contains_key(PARTY)) || k == 0 => {
                    return wrong(format!("its {factor} is empty ({rows} x {k})"));
                }
                (other, _) if other != k => {
                    return wrong(format!(
                        "its U has {other} columns and its V {k}; they are not the factors of one run"
                    ));
                }
                (_, Some(names)) if names.len() != rows => {
                    return wrong(format!(
                        "its {name} are {} names for the {rows} rows of {factor}; give one for each",
                        names.len()
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the selected party's names are those of whole factors: if all columns are in the shared file, as of a method that
    /// protects nothing, the names of some are no names of its rows.
    fn check_names_of_party(&self, party: usize) -> Result<()> {
        let in_shared = |factor: &str| self.has(factor).then(|| self.matrix(factor)).transpose();
        for (factor, name) in [("U", ROW_NAMES), ("V", COLUMN_NAMES)] {
            let (Some((rows, _)), Some(names)) = (in_shared(factor)?, self.list_of_parties(name)) else { continue };
            if names.len() != rows {
                return Err(Error::input(format!(
                    "{}: has the names of party {party} alone, and {factor} has the rows of all parties; give {}",
                    self.path_of_party(),
                    self.path.display()
                )));
            }
        }
        Ok(())
    }

    /// The file of the selected party, for messages.
    fn path_of_party(&self) -> std::path::Display<'_> {
        self.party.as_ref().map_or(&self.path, |(_, path)| path).display()
    }

    /// A list of names among the attributes.
    fn list(&self, name: &str) -> Option<Vec<String>> {
        let list = self.attributes.get(name)?.as_array()?;
        list.iter().map(|name| name.as_str().map(str::to_string)).collect()
    }

    /// The lists of the selected parties, one after the other; `None` if one of them has none or cannot be read.
    fn list_of_parties(&self, name: &str) -> Option<Vec<String>> {
        let lists = self.parties()?.map(|party| self.of_party(party).ok()?.list(name));
        Some(lists.collect::<Option<Vec<_>>>()?.concat())
    }

    /// Whether the whole file is an output of fednmf, and not another program's file with added factors, or an output to
    /// which something was added.
    pub fn is_output(&self) -> bool {
        self.is_unchanged() && ["version", "git"].iter().all(|name| self.attributes.contains_key(*name))
    }

    /// Whether the file is unchanged since it was written.
    pub(super) fn is_unchanged(&self) -> bool {
        match &self.source {
            Source::Hdf5(container) if container.is_anndata() => container.holds_only_factors(),
            // Any change invalidates the checksum.
            Source::Hdf5(_) => self.sealed,
            Source::Npz(matrices) => matrices.is_own(),
        }
    }

    /// Rows and columns of a matrix in the shared file.
    ///
    /// # Errors
    /// If there is no such matrix.
    pub fn matrix(&self, name: &str) -> Result<(usize, usize)> {
        match &self.source {
            Source::Npz(matrices) => matrices.matrix(name).map(|(shape, _)| shape).ok_or_else(|| self.lacks(name)),
            Source::Hdf5(container) => container.shape(name, self.place(container, name)?),
        }
    }

    /// The element type of a matrix in the shared file: `f32`, `f64`, or HDF5's name for another.
    ///
    /// # Errors
    /// If there is no such matrix.
    pub fn precision(&self, name: &str) -> Result<String> {
        match &self.source {
            Source::Npz(matrices) => matrices.matrix(name).map(|(_, kind)| kind.into()).ok_or_else(|| self.lacks(name)),
            Source::Hdf5(container) => {
                let place = self.place(container, name)?;
                container.shape(name, place)?;
                container.element_type(place)
            }
        }
    }

    /// Whether the shared file has such a matrix.
    pub fn has(&self, name: &str) -> bool {
        match &self.source {
            Source::Hdf5(container) => container.has(self.place_in(container, name)),
            Source::Npz(matrices) => matrices.matrix(name).is_some(),
        }
    }

    fn lacks(&self, name: &str) -> Error {
        let files = self.attributes.get(PARTY_FILES).and_then(Value::as_str);
        if let (Some(files), Some(party)) = (files, self.attributes.get(PARTY)) {
            return Error::input(format!(
                "{}: has no matrix {name}: it is the file of party {party} with its private factors alone; give {}, \
                 which the run wrote beside it",
                self.path.display(),
                self.path.with_file_name(shared_file(files)).display()
            ));
        }
        if let Some(files) = files {
            return Error::input(format!(
                "{}: its {name} is private and in the files of the parties ({files}); this needs both factors in one file",
                self.path.display()
            ));
        }
        let shown = self.path.display();
        Error::input(match &self.source {
            Source::Hdf5(container) if container.is_anndata() => format!(
                "{shown}: has no factors (varm/NMF); 'fednmf --input {shown} --add-to {shown}' adds them, as fednmf.tl.nmf does"
            ),
            _ => format!("{shown}: has no matrix {name}; was it written by this program and algorithm?"),
        })
    }

    /// Fills `out` with rows `first_row ..` of a matrix of the shared file, stored in either precision.
    ///
    /// # Errors
    /// If there is no such matrix, it has another shape, or an entry that no run writes: of another type, negative, not finite.
    pub fn as_f64(&self, name: &str, first_row: usize, mut out: ArrayViewMut2<'_, f64>) -> Result<()> {
        let found = self.precision(name)?;
        if ![f32::NAME, f64::NAME].contains(&found.as_str()) {
            return Err(Error::input(format!(
                "{}: {name} is stored as {found}; factors are stored as f32 or f64",
                self.path.display()
            )));
        }
        if found == f32::NAME {
            let mut narrow = Array2::<f32>::zeros(out.dim());
            self.read(name, first_row, narrow.view_mut())?;
            out.zip_mut_with(&narrow, |out, &x| *out = x.as_f64());
        } else {
            self.read(name, first_row, out.view_mut())?;
        }
        match out.indexed_iter().find(|(_, x)| !(x.is_finite() && **x >= 0.0)) {
            None => Ok(()),
            Some(((row, component), _)) => Err(Error::input(format!(
                "{}: the entry of {name} in row {}, component {component} is no finite number of at least 0; use the file as its run wrote it",
                self.path.display(),
                first_row + row
            ))),
        }
    }

    /// The path that a matrix of this name would have in the file.
    fn place_in<'a>(&'a self, container: &Container, name: &'a str) -> &'a str {
        if container.is_anndata() { anndata::find(&self.attributes, name) } else { name }
    }

    /// The path of the matrix in the file.
    fn place<'a>(&'a self, container: &Container, name: &'a str) -> Result<&'a str> {
        let place = self.place_in(container, name);
        if container.has(place) { Ok(place) } else { Err(self.lacks(name)) }
    }

    /// The selected parties, if this is the shared file of an output with party files.
    pub(super) fn parties(&self) -> Option<Range<usize>> {
        let count = self.attributes.get("parties").and_then(Value::as_u64)?;
        let is_shared = self.attributes.contains_key(PARTY_FILES) && !self.attributes.contains_key(PARTY);
        is_shared.then_some(self.party().map_or(0..count as usize, |party| party..party + 1))
    }

    /// The patterns of the parties' file names: by the present name of this file, and as written. `None` without such
    /// files.
    fn patterns(&self) -> Option<[String; 2]> {
        let then = self.attributes.get(PARTY_FILES)?.as_str()?;
        let generation = self.attributes.get(GENERATION).and_then(Value::as_u64);
        Some([pattern(&self.path, generation), then.to_string()])
    }

    /// The paths that the file of `party` may have, as [`Stored::patterns`].
    fn paths_of_party(&self, party: usize) -> Option<[PathBuf; 2]> {
        let width = self.attributes.get(PARTY_WIDTH)?.as_u64()? as usize;
        Some(self.patterns()?.map(|pattern| self.path.with_file_name(party_file(&pattern, party, width))))
    }

    /// The existing files of the selected parties, party 0 first. A site has that of its own party alone.
    pub fn files_of_parties(&self) -> Vec<PathBuf> {
        let file = |party| self.paths_of_party(party)?.into_iter().find(|path| path.exists());
        self.parties().into_iter().flatten().filter_map(file).collect()
    }

    /// Opens and checks the file of `party`.
    pub(super) fn of_party(&self, party: usize) -> Result<Stored> {
        let Some([now, then]) = self.paths_of_party(party) else {
            return Err(Error::input(format!(
                "{}: was written without private files, but party {party} needs its own; was it written by another algorithm?",
                self.path.display()
            )));
        };
        if let Some((_, path)) = self.party.as_ref().filter(|(named, _)| *named == party) {
            return self.open_party(party, path);
        }
        let [pattern_now, pattern_then] = self.patterns().unwrap_or_default();
        open_either(
            [now, then],
            |path| self.open_party(party, path),
            |path, e| {
                // A site has the file of its own party.
                let own = self
                    .files_of_parties()
                    .first()
                    .map_or_else(String::new, |own| format!("give {} for the part of that party, or ", own.display()));
                Error::input(format!(
                    "{}: the part of party {party}, in {}, cannot be read ({e}); {own}put the files of all parties next to it \
                     where you may read them{}",
                    self.path.display(),
                    path.display(),
                    renamed(&shared_file(&pattern_now), &shared_file(&pattern_then))
                ))
            },
        )
    }

    /// Opens the file of `party` at `path`, which must be of the same run.
    fn open_party(&self, party: usize, path: &Path) -> Result<Stored> {
        let stored = Stored::open_as(path, self.sealed)?;
        let common = |name: &'static str| (name, self.attributes.get(name).cloned());
        for (key, expected) in [common(GENERATION), (PARTY, Some(Value::from(party))), common(SET)] {
            if stored.attributes.get(key) != expected.as_ref() {
                return Err(Error::input(format!(
                    "{}: does not belong to {}: its {key} is {}, not {}; put the files of one run back together",
                    stored.path.display(),
                    self.path.display(),
                    stored.attributes.get(key).unwrap_or(&Value::Null),
                    expected.unwrap_or(Value::Null)
                )));
            }
        }
        stored.check_factors()?;
        Ok(stored)
    }

    /// Fills `out` with rows `first_row ..` of a matrix of this file.
    fn read<T: Real>(&self, name: &str, first_row: usize, out: ArrayViewMut2<'_, T>) -> Result<()> {
        let shown = self.path.display();
        let (found, (rows, cols)) = (self.precision(name)?, self.matrix(name)?);
        if found != T::NAME {
            return Err(Error::input(format!(
                "{shown}: {name} is stored as {found}, but this run computes in {}; give --precision {found} or another file",
                T::NAME
            )));
        }
        let wanted = first_row..first_row.saturating_add(out.nrows());
        if wanted.end > rows || out.ncols() != cols {
            return Err(Error::input(format!(
                "{shown}: {name} is {rows} x {cols}, but rows {}..{} of {} columns are needed; is it of another matrix or k?",
                wanted.start,
                wanted.end,
                out.ncols()
            )));
        }
        match &self.source {
            Source::Npz(matrices) => matrices.read(name, first_row, out).map_err(|e| e.at(shown)),
            Source::Hdf5(container) => container.read((name, self.place(container, name)?), wanted, out),
        }
    }
}

impl<T: Real> ReadRows<T> for Stored {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, T>) -> Result<()> {
        match owner {
            Owner::Shared => self.read(name, first_row, out),
            Owner::Party(party) => self.of_party(party)?.read(name, first_row, out),
        }
    }
}

impl<T: Real> SavedState<T> for Stored {
    fn scalars(&self, owner: Owner) -> Result<Value> {
        let scalars = |stored: &Stored| stored.attributes.get(STATE).cloned().unwrap_or_default();
        match owner {
            Owner::Shared => Ok(scalars(self)),
            Owner::Party(party) => self.of_party(party).map(|stored| scalars(&stored)),
        }
    }
}

/// Refuses a file whose content does not match its extension.
fn recognise(path: &Path) -> Result<()> {
    let wanted = if Format::of(path) == Ok(Format::Npz) { FileKind::Zip } else { FileKind::Hdf5 };
    match detect::kind(path) {
        Some(found) if found != wanted => Err(Error::input(format!(
            "{}: is {found}; factors are in a file that --output wrote (.h5, .h5ad, .npz), under the name that it had",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Opens the first of two files that belongs to the set: at the name derived from the current name of another file of the
/// set, since all may have been renamed together, or at its original name. `missing` is the error if neither exists.
fn open_either(
    [now, then]: [PathBuf; 2],
    open: impl Fn(&Path) -> Result<Stored>,
    missing: impl FnOnce(&Path, std::io::Error) -> Error,
) -> Result<Stored> {
    match std::fs::File::open(&now) {
        Ok(_) => {
            open(&now).or_else(|failure| if now == then { Err(failure) } else { open(&then).map_err(|_| failure) })
        }
        Err(_) if std::fs::File::open(&then).is_ok() => open(&then),
        Err(e) => Err(missing(&now, e)),
    }
}

/// The addition to the error about a file that exists neither at its current name nor at its original name.
fn renamed(now: &str, then: &str) -> String {
    if now == then { String::new() } else { format!("; was it renamed? It was written as {then}") }
}

/// The pattern of the parties' file names: `F.party-{party}.h5`, with a generation `F.party-{party}.g17.h5`.
pub fn pattern(path: &Path, generation: Option<u64>) -> String {
    let part = |text: Option<&std::ffi::OsStr>| text.map(|t| t.to_string_lossy().into_owned());
    let stem = part(path.file_stem()).unwrap_or_default();
    let generation = generation.map_or_else(String::new, |g| format!(".g{g}"));
    let extension = part(path.extension()).map_or_else(String::new, |e| format!(".{e}"));
    format!("{stem}.party-{{party}}{generation}{extension}")
}

/// The file name of a party, from the pattern with `{party}`.
pub fn party_file(pattern: &str, party: usize, width: usize) -> String {
    // Only a damaged file needs more digits than a usize has.
    let number = format!("{party:0width$}", width = width.min(20));
    match pattern.rsplit_once("{party}") {
        Some((before, after)) => format!("{before}{number}{after}"),
        None => pattern.to_string(),
    }
}

/// The name of the shared file, from the pattern of the parties' file names.
fn shared_file(pattern: &str) -> String {
    let (stem, rest) = pattern.rsplit_once(".party-{party}").unwrap_or((pattern, ""));
    // A checkpoint's generation is not in the name of its shared file.
    rest.rsplit_once('.').map_or_else(|| stem.to_string(), |(_, extension)| format!("{stem}.{extension}"))
}

/// The name of the shared file, from the current name of the file of `party`, if that is still a party's file name.
fn shared_beside(own: &Path, party: usize) -> Option<String> {
    let (before, after) = own.file_name()?.to_str()?.rsplit_once(".party-")?;
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = after.split_at(digits);
    (number.parse() == Ok(party)).then(|| shared_file(&format!("{before}.party-{{party}}{rest}")))
}

pub(super) fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{}: is damaged: {what}; use a backup copy, or start again without it", path.display()))
}
