//! AnnData files, written with the HDF5 library.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::str::FromStr;

use hdf5::types::{TypeDescriptor, VarLenUnicode};
use hdf5::{Dataset, File, Group, Location, LocationType};
use ndarray::s;
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::Access;
use fednmf_linalg::Real;

use crate::formats::detect;
use crate::formats::detect::FileKind;
use crate::formats::hdf5::text::word;
use crate::hdf5_probe;
use crate::hdf5_probe::Content;
use crate::output::anndata::{ABOUT, Annotations, ENTRIES, NUMBERED_COLUMNS, NUMBERED_ROWS, OBS, VAR, place};
use crate::output::csr::{NamedRows, Push};
use crate::output::hdf5::writer::{Rows, Writer};
use crate::output::part::Part;
use crate::output::plan::Matrix;
use crate::output::values::Scalar;

type Outcome<T> = std::result::Result<T, hdf5::Error>;

/// An AnnData file being written.
pub struct Sheet<'a> {
    rows: Option<Rows>,
    writer: Writer,
    annotations: &'a Annotations,
    /// Numbers of observations and variables.
    lengths: [usize; 2],
}

impl<'a> Sheet<'a> {
    /// Creates the file that will be `path`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path, attributes: &Map<String, Value>, annotations: &'a Annotations) -> Result<Self> {
        let writer = if annotations.add { Writer::copy(path)? } else { Writer::create(path, annotations.access())? };
        let mut about = attributes.clone();
        about.insert("U".into(), place(annotations.transposed, "U").into());
        about.insert("V".into(), place(annotations.transposed, "V").into());
        // An index without names contains running numbers; only this entry distinguishes it from an index with names.
        let unnamed = [(NUMBERED_ROWS, &annotations.rows), (NUMBERED_COLUMNS, &annotations.columns)];
        for (name, _) in unnamed.into_iter().filter(|(_, names)| names.is_none() && !annotations.add) {
            about.insert(name.into(), true.into());
        }
        if !annotations.history.is_empty() {
            about.insert("trace".into(), annotations.history.clone().into());
        }
        let own: Vec<String> =
            about.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.clone()).collect();
        about.insert(ENTRIES.into(), own.into_iter().chain([ENTRIES.to_string()]).collect());
        let write = || -> Outcome<()> {
            let file = writer.file();
            if annotations.add {
                for old in [OBS, VAR].into_iter().filter(|place| exists(file, place)) {
                    file.unlink(old)?;
                }
                remove_entries(file)?;
            } else {
                label(file, "anndata", "0.1.0")?;
            }
            for name in
                ["layers", "obsm", "obsp", "uns", "varm", "varp"].into_iter().filter(|name| !file.link_exists(name))
            {
                let group = file.create_group(name)?;
                label(&group, "dict", "0.1.0")?;
            }
            if exists(file, ABOUT) {
                return entries(&file.group(ABOUT)?, &about);
            }
            tree(&file.create_group(ABOUT)?, &about)
        };
        write().map_err(|e| writer.failed(e))?;
        Ok(Sheet { rows: None, writer, annotations, lengths: [0; 2] })
    }

    /// Begins U or V.
    ///
    /// # Errors
    /// If the file cannot be written, or the matrix is neither U nor V.
    pub fn begin<T: Real>(&mut self, matrix: &Matrix) -> Result<()> {
        let at = place(self.annotations.transposed, &matrix.name);
        let length = match at {
            OBS => &mut self.lengths[0],
            VAR => &mut self.lengths[1],
            _ => {
                return Err(Error::input(format!(
                    "AnnData has no place for the matrix {} of this run; let the name of the output end in .h5",
                    matrix.name
                )));
            }
        };
        *length = matrix.rows;
        self.rows = Some(self.writer.matrix_at::<T>(at, matrix)?);
        Ok(())
    }

    /// Appends rows, given row by row.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push<T: Real>(&mut self, values: &[T]) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), |rows| rows.push(values))
    }

    /// Ends the matrix.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(&mut self) -> Result<()> {
        let Some(rows) = self.rows.take() else { return Ok(()) };
        label(rows.dataset(), "array", "0.2.0").map_err(|e| self.writer.failed(e))?;
        rows.end()
    }

    /// Adds the names and closes the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(self) -> Result<Part> {
        let Annotations { rows, columns, transposed, add, .. } = self.annotations;
        if *add {
            return self.writer.close();
        }
        let (obs, var) = if *transposed { (columns, rows) } else { (rows, columns) };
        let write = || -> Outcome<()> {
            for (name, names, length) in [("obs", obs, self.lengths[0]), ("var", var, self.lengths[1])] {
                frame(&self.writer.file().create_group(name)?, names.as_deref(), length)?;
            }
            Ok(())
        };
        write().map_err(|e| self.writer.failed(e))?;
        self.writer.close()
    }
}

/// Writes an AnnData file of a matrix, whose entries `write` passes on, under its temporary name.
///
/// # Errors
/// Those of `write`, and if the file cannot be written.
pub fn write_csr(
    path: &Path,
    matrix: &NamedRows<'_>,
    access: Access,
    write: &mut dyn FnMut(&mut Push<'_>) -> Result<()>,
) -> Result<Part> {
    let writer = Writer::create(path, access)?;
    let wide = i32::try_from(matrix.entries()).is_err();
    let begin = || -> Outcome<[Dataset; 2]> {
        let file = writer.file();
        label(file, "anndata", "0.1.0")?;
        let (rows, cols) = (matrix.count(), matrix.cols);
        let x = file.create_group("X")?;
        label(&x, "csr_matrix", "0.1.0")?;
        x.new_attr::<i64>().shape(2).create("shape")?.write(&[rows as i64, cols as i64])?;
        let values = x.new_dataset::<f64>().shape(matrix.entries()).create("data")?;
        // SciPy's and scikit-learn's kernels take both in one type, and some in i32 only.
        let (starts, columns) = (x.new_dataset_builder(), x.new_dataset_builder());
        let columns = if wide {
            starts.with_data(matrix.starts).create("indptr")?;
            columns.empty::<i64>().shape(matrix.entries()).create("indices")?
        } else {
            let short: Vec<i32> = matrix.starts.iter().map(|start| *start as i32).collect();
            starts.with_data(&short).create("indptr")?;
            columns.empty::<i32>().shape(matrix.entries()).create("indices")?
        };
        frame(&file.create_group("obs")?, matrix.row_names, rows)?;
        frame(&file.create_group("var")?, matrix.column_names, cols)?;
        ["layers", "obsm", "obsp", "uns", "varm", "varp"]
            .into_iter()
            .try_for_each(|name| label(&*file.create_group(name)?, "dict", "0.1.0"))?;
        Ok([values, columns])
    };
    let [values, columns] = begin().map_err(|e| writer.failed(e))?;
    let mut next = 0;
    write(&mut |new_columns, new_values| {
        let place = s![next..next + new_values.len()];
        next += new_values.len();
        let push = || -> Outcome<()> {
            if wide {
                columns.write_slice(&new_columns.iter().map(|&j| i64::from(j)).collect::<Vec<_>>(), place)?;
            } else {
                columns.write_slice(new_columns, place)?;
            }
            values.write_slice(new_values, place)
        };
        if new_values.is_empty() { Ok(()) } else { push().map_err(|e| writer.failed(e)) }
    })?;
    if next != matrix.entries() {
        return Err(writer.failed(format!("{next} of {} entries were written", matrix.entries())));
    }
    drop([values, columns]);
    writer.close()
}

fn text(text: &str) -> Outcome<VarLenUnicode> {
    // HDF5 text ends at the first NUL.
    VarLenUnicode::from_str(&text.replace('\0', "\u{fffd}")).map_err(|e| hdf5::Error::Internal(e.to_string()))
}

/// Writes the encoding attributes of a group or dataset.
fn label(of: &Location, kind: &str, version: &str) -> Outcome<()> {
    of.new_attr::<VarLenUnicode>().create("encoding-type")?.write_scalar(&text(kind)?)?;
    of.new_attr::<VarLenUnicode>().create("encoding-version")?.write_scalar(&text(version)?)
}

/// A data frame with an index and no columns. If the number of names is not `length`, the index counts from 0, as in
/// AnnData itself.
fn frame(group: &Group, names: Option<&[String]>, length: usize) -> Outcome<()> {
    label(group, "dataframe", "0.2.0")?;
    group.new_attr::<VarLenUnicode>().create("_index")?.write_scalar(&text("_index")?)?;
    group.new_attr::<VarLenUnicode>().shape(0).create("column-order")?;
    let names = names.filter(|names| names.len() == length);
    let line = |i: usize| names.map_or_else(|| text(&i.to_string()), |names| text(&names[i]));
    strings(group, "_index", &(0..length).map(line).collect::<Outcome<Vec<_>>>()?)
}

fn strings(group: &Group, name: &str, all: &[VarLenUnicode]) -> Outcome<()> {
    let dataset = group.new_dataset::<VarLenUnicode>().shape(all.len()).create(name)?;
    dataset.write(all)?;
    label(&dataset, "string-array", "0.2.0")
}

/// Removes the provenance entries that fednmf wrote for an earlier run; entries that a user added stay.
fn remove_entries(file: &File) -> Outcome<()> {
    if !exists(file, ABOUT) {
        return Ok(());
    }
    let own =
        if file.loc_type_by_name(ABOUT)? == LocationType::Group { own_entries(&file.group(ABOUT)?) } else { None };
    // Earlier versions did not list their entries.
    let Some(own) = own else { return file.unlink(ABOUT) };
    let group = file.group(ABOUT)?;
    own.iter().filter(|name| group.link_exists(name)).try_for_each(|name| group.unlink(name))
}

/// The entries that fednmf wrote, if they are listed.
fn own_entries(about: &Group) -> Option<Vec<String>> {
    let list =
        about.link_exists(ENTRIES).then(|| about.dataset(ENTRIES).and_then(|list| read_value(&list)))?.ok()??;
    list.as_array()?.iter().map(|name| name.as_str().map(str::to_string)).collect()
}

/// Writes objects as groups, lists as arrays, numbers, Booleans and text as scalars; null is omitted.
fn tree(group: &Group, map: &Map<String, Value>) -> Outcome<()> {
    label(group, "dict", "0.1.0")?;
    entries(group, map)
}

fn entries(group: &Group, map: &Map<String, Value>) -> Outcome<()> {
    for (name, value) in map {
        match value {
            Value::Null => {}
            Value::Object(inner) => tree(&group.create_group(name)?, inner)?,
            Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_string) => {
                let all = list.iter().map(|x| text(x.as_str().unwrap_or_default()));
                strings(group, name, &all.collect::<Outcome<Vec<_>>>()?)?;
            }
            // A missing value of a measure is NaN.
            Value::Array(list) if list.iter().all(|x| x.is_number() || x.is_null()) => {
                let all: Vec<f64> = list.iter().map(|x| x.as_f64().unwrap_or(f64::NAN)).collect();
                let dataset = group.new_dataset::<f64>().shape(all.len()).create(name.as_str())?;
                dataset.write(&all[..])?;
                label(&dataset, "array", "0.2.0")?;
            }
            Value::Bool(yes) => {
                let dataset = group.new_dataset::<bool>().create(name.as_str())?;
                dataset.write_scalar(yes)?;
                label(&dataset, "numeric-scalar", "0.2.0")?;
            }
            _ => scalar(group, name, value)?,
        }
    }
    Ok(())
}

fn scalar(group: &Group, name: &str, value: &Value) -> Outcome<()> {
    fn number<N: hdf5::H5Type>(group: &Group, name: &str, x: N) -> Outcome<()> {
        let dataset = group.new_dataset::<N>().create(name)?;
        dataset.write_scalar(&x)?;
        label(&dataset, "numeric-scalar", "0.2.0")
    }
    match Scalar::from_json(value) {
        None => Ok(()),
        Some(Scalar::Int(x)) => number(group, name, x),
        Some(Scalar::Uint(x)) => number(group, name, x),
        Some(Scalar::Float(x)) => number(group, name, x),
        Some(Scalar::Text(x)) => {
            let dataset = group.new_dataset::<VarLenUnicode>().create(name)?;
            dataset.write_scalar(&text(&x)?)?;
            label(&dataset, "string", "0.2.0")
        }
    }
}

/// Whether a path of two names exists. HDF5 prints its own error for a link in a missing group.
fn exists(file: &File, path: &str) -> bool {
    path.split('/').next().is_some_and(|group| file.link_exists(group)) && file.link_exists(path)
}

/// Numbers of observations and variables of an AnnData file to which factors can be added.
///
/// # Errors
/// If the file cannot be read, is not an AnnData file, or has factors under the same names that fednmf did not write.
pub fn appendable_shape(path: &Path) -> Result<(usize, usize)> {
    let shown = path.display();
    let found = std::fs::File::open(path).and_then(|file| file.metadata()).map_err(|e| {
        let kind = e.kind() == std::io::ErrorKind::NotFound;
        let what = if kind { "there is no such file".to_string() } else { format!("cannot be read ({e})") };
        Error::input(format!(
            "{shown}: {what}; factors are added to an AnnData file that exists, --output writes one of its own"
        ))
    })?;
    if let Err(e) = std::fs::File::options().append(true).open(path) {
        return Err(Error::input(format!(
            "{shown}: cannot be written to ({e}); change the rights of the file, or use --output for one of its own"
        )));
    }
    if found.nlink() > 1 {
        return Err(Error::input(format!(
            "{shown}: has {} names (hard links), of which the others would keep the old contents; copy it, or use --output for \
             a file of its own",
            found.nlink()
        )));
    }
    match detect::kind(path) {
        Some(FileKind::Hdf5) | None => {}
        Some(found) => return Err(Error::input(format!("{shown}: is no AnnData file but {found}"))),
    }
    hdf5_probe::run(Content::Factors, &path.to_string_lossy(), None)?;
    let open = || File::open(path).and_then(|file| about(&file).map(|about| (file, about)));
    let (file, about) = open()
        .map_err(|e| Error::input(format!("{shown}: cannot be opened as an AnnData file ({e}); check the name")))?;
    let foreign =
        [OBS, VAR, ABOUT].into_iter().find(|place| exists(&file, place)).filter(|_| !about.contains_key("version"));
    if ["obs", "var"].into_iter().any(|frame| is_record_table(&file, frame)) {
        return Err(Error::input(format!(
            "{shown}: was written by a version of AnnData before 0.7, to which nothing is added; write it again \
             (anndata.read_h5ad(...).write_h5ad(...) in Python), or use --output for a file of its own"
        )));
    }
    let [Some(observations), Some(variables)] = ["obs", "var"].map(|frame| length_of(&file, frame)) else {
        return Err(Error::input(format!(
            "{shown}: is no AnnData file: it lacks obs or var; use --output for a file of its own"
        )));
    };
    if let Some(place) = foreign {
        return Err(Error::input(format!(
            "{shown}: has {place}, which fednmf did not write; rename it, or use --output for a file of its own"
        )));
    }
    Ok((observations, variables))
}

/// Whether a data frame is a table of records, as before version 0.7 of AnnData.
fn is_record_table(file: &File, frame: &str) -> bool {
    file.link_exists(frame) && file.loc_type_by_name(frame).is_ok_and(|kind| kind == LocationType::Dataset)
}

/// The length of the index of a data frame.
fn length_of(file: &File, frame: &str) -> Option<usize> {
    let group = file.link_exists(frame).then(|| file.group(frame).ok()).flatten()?;
    let index = word(&group, "_index").unwrap_or_else(|| "_index".to_string());
    if !group.link_exists(&index) {
        return None;
    }
    match group.loc_type_by_name(&index).ok()? {
        // Text that may be missing is a group of values and a mask.
        LocationType::Group => group.group(&index).ok()?.dataset("values").ok().map(|d| d.size()),
        _ => group.dataset(&index).ok().map(|d| d.size()),
    }
}

/// Whether an AnnData file contains only the factors, their provenance, and the names of observations and variables.
pub fn holds_only_factors(file: &File) -> bool {
    let own: [(&str, &[&str]); 8] = [
        ("obs", &["_index"]),
        ("var", &["_index"]),
        ("obsm", &["X_nmf"]),
        ("varm", &["NMF"]),
        ("uns", &["nmf"]),
        ("layers", &[]),
        ("obsp", &[]),
        ("varp", &[]),
    ];
    let known = |group: &String| {
        let members = file.group(group).and_then(|group| group.member_names());
        let own = own.iter().find(|(name, _)| name == group);
        own.zip(members.ok()).is_some_and(|((_, own), members)| members.iter().all(|name| own.contains(&&**name)))
    };
    let groups = [file.member_names().unwrap_or_default(), vec!["/".into(), ABOUT.into()]].concat();
    let labelled = |group: &String| {
        let names = file.group(group).and_then(|group| group.attr_names());
        names.is_ok_and(|names| names.iter().all(|name| OWN_ATTRIBUTES.contains(&&**name)))
    };
    let is_complete = |about: Group| {
        let (own, members) = (own_entries(&about), about.member_names());
        own.zip(members.ok()).is_some_and(|(own, members)| members.iter().all(|name| own.contains(name)))
    };
    file.member_names().is_ok_and(|groups| groups.iter().all(known))
        && groups.iter().all(labelled)
        && file.group(ABOUT).is_ok_and(is_complete)
}

/// The attributes of groups that the AnnData format defines.
const OWN_ATTRIBUTES: [&str; 4] = ["encoding-type", "encoding-version", "_index", "column-order"];

/// The contents of `uns/nmf`, which other formats have as root attributes.
///
/// # Errors
/// If the file is damaged.
pub fn about(file: &File) -> Outcome<Map<String, Value>> {
    if !file.link_exists("uns") || !file.group("uns").is_ok_and(|uns| uns.link_exists("nmf")) {
        return Ok(Map::new());
    }
    if file.loc_type_by_name(ABOUT)? == LocationType::Group { read_tree(&file.group(ABOUT)?) } else { Ok(Map::new()) }
}

fn read_tree(group: &Group) -> Outcome<Map<String, Value>> {
    let mut map = Map::new();
    for name in group.member_names()? {
        let value = match group.loc_type_by_name(&name)? {
            LocationType::Group => Some(read_tree(&group.group(&name)?)?.into()),
            LocationType::Dataset => read_value(&group.dataset(&name)?)?,
            _ => None,
        };
        map.extend(value.map(|value| (name, value)));
    }
    Ok(map)
}

/// A scalar or a short list; `None` for anything else.
fn read_value(dataset: &Dataset) -> Outcome<Option<Value>> {
    const LONGEST: usize = 1 << 20;
    if dataset.ndim() == 1 && dataset.size() <= LONGEST {
        return Ok(match dataset.dtype()?.to_descriptor()? {
            TypeDescriptor::Float(_) | TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_) => {
                Some(dataset.read_raw::<f64>()?.into())
            }
            TypeDescriptor::VarLenUnicode => {
                let all = dataset.read_raw::<VarLenUnicode>()?;
                Some(all.iter().map(|s| String::from_utf8_lossy(s.as_bytes()).into_owned()).collect())
            }
            _ => None,
        });
    }
    Ok(Scalar::of(dataset)?.map(|scalar| scalar.to_json()))
}
