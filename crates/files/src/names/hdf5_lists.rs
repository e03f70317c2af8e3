//! The lists of names in HDF5 files of AnnData, 10x and loom.

use std::cell::RefCell;

use hdf5::types::{FixedAscii, VarLenAscii, VarLenUnicode};
use hdf5::{Dataset, File, Group, H5Type, LocationType};

use fednmf_base::error::Result;

use super::{MOST_BYTES, Names};
use crate::formats::hdf5::{check_own, tenx_group};

/// The names stored in an HDF5 file, for one of its matrices (X by default).
pub fn of_file(path: &str, dataset: Option<&str>) -> Names {
    read(path, dataset).unwrap_or_default()
}

/// The names, if all are in the file itself: others would be read from a file that was not named.
fn read(path: &str, dataset: Option<&str>) -> Result<Names> {
    let Ok(file) = File::open(path) else { return Ok(Names::default()) };
    let foreign = RefCell::new(None);
    let own = |data: Dataset| match check_own(path, "a list of names", &file, &data) {
        Ok(()) => Some(data),
        Err(e) => {
            *foreign.borrow_mut() = Some(e);
            None
        }
    };
    let list_of = |data: Dataset| list_of(&own(data)?);
    let index = |group: &str| {
        let place = group.split('/').next().unwrap_or(group);
        if !file.link_exists(place) || !file.link_exists(group) {
            return None;
        }
        // Before version 0.7 AnnData wrote a table of records.
        if file.loc_type_by_name(group).is_ok_and(|kind| kind == LocationType::Dataset) {
            return file.dataset(group).ok().and_then(own).and_then(|records| {
                strings::<Record<VarLenUnicode>, Record<VarLenAscii>, Record<FixedAscii<256>>>(&records)
            });
        }
        let group = file.group(group).ok()?;
        let named = group.attr("_index").ok();
        let name = named
            .and_then(|a| a.read_scalar::<VarLenUnicode>().ok())
            .map_or_else(|| "_index".into(), |s| s.to_string());
        if !group.link_exists(&name) {
            return None;
        }
        // Text that may be missing is stored as a group of values and a mask.
        if let Ok(inner) = group.group(&name) {
            return inner.link_exists("values").then(|| inner.dataset("values").ok()).flatten().and_then(list_of);
        }
        group.dataset(&name).ok().and_then(list_of)
    };
    let tenx_group = tenx_group(&file, dataset);
    let tenx = |name: &str| {
        let matrix = tenx_group.as_ref()?;
        let (first, rest) = name.split_once('/').unwrap_or((name, ""));
        let there = matrix.link_exists(first)
            && (rest.is_empty() || matrix.group(first).is_ok_and(|group| group.link_exists(rest)));
        there.then(|| matrix.dataset(name).ok()).flatten().and_then(list_of)
    };
    let attribute = |names: [&str; 2]| {
        let found = names.into_iter().find(|name| {
            let (group, list) = name.split_once('/').unwrap_or((name, ""));
            file.link_exists(group) && file.group(group).is_ok_and(|group| group.link_exists(list))
        })?;
        list_of(file.dataset(found).ok()?)
    };
    // 10x and loom store genes × cells.
    let turned = !file.link_exists("obs") && (file.link_exists("matrix") || tenx_group.is_some());
    // In AnnData the location of a matrix determines the names of its rows and columns; raw has its own variables.
    let place = dataset.map_or("X", |name| name.trim_start_matches('/').split('/').next().unwrap_or_default());
    let (rows, columns) = match place {
        "raw" => (Some("obs"), Some("raw/var")),
        "obsm" => (Some("obs"), None),
        "varm" => (Some("var"), None),
        "obsp" => (Some("obs"), Some("obs")),
        "varp" => (Some("var"), Some("var")),
        _ => (Some("obs"), Some("var")),
    };
    // The second name of each is the one that scanpy writes.
    let in_loom = |names| turned.then(|| attribute(names)).flatten();
    let columns = columns.and_then(index).or_else(|| tenx("barcodes"));
    let columns = columns.or_else(|| in_loom(["col_attrs/CellID", "col_attrs/obs_names"]));
    // Cell Ranger 2 has the names of the genes in addition to their identifiers.
    let rows = rows
        .and_then(index)
        .or_else(|| ["features/name", "features/id", "gene_names", "genes"].into_iter().find_map(tenx));
    let rows = rows.or_else(|| in_loom(["row_attrs/Gene", "row_attrs/var_names"]));
    match foreign.take() {
        Some(e) => Err(e),
        None => Ok(Names { columns, rows, turned }),
    }
}

/// A member of a group, if it exists.
fn member(group: &Group, name: &str) -> Option<Dataset> {
    group.link_exists(name).then(|| group.dataset(name).ok()).flatten()
}

/// The data frame of this name in AnnData (from version 0.7 on); `obs`, `var`, `raw/var`.
fn frame(file: &File, name: &str) -> Option<Group> {
    let place = name.split('/').next().unwrap_or(name);
    let there = file.link_exists(place) && file.link_exists(name);
    (there && file.loc_type_by_name(name).is_ok_and(|kind| kind == LocationType::Group))
        .then(|| file.group(name).ok())
        .flatten()
}

/// The frame of the features that are the columns of a matrix in AnnData.
fn features_of(file: &File, dataset: Option<&str>) -> Option<Group> {
    match dataset.map_or("X", |name| name.trim_start_matches('/').split('/').next().unwrap_or_default()) {
        "raw" => frame(file, "raw/var"),
        "X" | "layers" => frame(file, "var"),
        _ => None,
    }
}

/// Text, or numbers or truth values as text.
fn as_text(data: &Dataset) -> Option<Vec<String>> {
    if data.ndim() != 1 {
        return None;
    }
    if data.dtype().is_ok_and(|kind| kind.is::<bool>()) {
        return Some(data.read_raw::<bool>().ok()?.iter().map(bool::to_string).collect());
    }
    list_of(data).or_else(|| Some(data.read_raw::<f64>().ok()?.iter().map(f64::to_string).collect()))
}

/// A column of a data frame of AnnData as text: text, categories, numbers or truth values.
fn column(file: &File, frame: &Group, name: &str) -> Option<Vec<String>> {
    let path = file.filename();
    let own = |data: Dataset| check_own(&path, name, file, &data).is_ok().then_some(data);
    if !frame.link_exists(name) {
        return None;
    }
    let of_codes = |codes: Dataset, categories: Dataset| -> Option<Vec<String>> {
        let categories = as_text(&own(categories)?)?;
        // A missing value has the code −1.
        let text = |code: &i64| usize::try_from(*code).ok().and_then(|code| categories.get(code).cloned());
        Some(own(codes)?.read_raw::<i64>().ok()?.iter().map(|code| text(code).unwrap_or_default()).collect())
    };
    if frame.loc_type_by_name(name).is_ok_and(|kind| kind == LocationType::Group) {
        let inner = frame.group(name).ok()?;
        if let Some((codes, categories)) = member(&inner, "codes").zip(member(&inner, "categories")) {
            return of_codes(codes, categories);
        }
        return as_text(&own(member(&inner, "values")?)?);
    }
    let data = member(frame, name)?;
    // Versions before 0.8 of AnnData have the categories of all columns in a group beside them.
    if frame.link_exists("__categories")
        && let Some(categories) = member(&frame.group("__categories").ok()?, name)
    {
        return of_codes(data, categories);
    }
    as_text(&own(data)?)
}

/// The column of a data frame of an AnnData file, `obs` or `var`, as text.
pub fn column_of_frame(path: &str, name_of_frame: &str, name: &str) -> Option<Vec<String>> {
    let file = File::open(path).ok()?;
    column(&file, &frame(&file, name_of_frame)?, name)
}

/// The titles of the columns of a data frame.
pub fn columns_of_frame(path: &str, name: &str) -> Vec<String> {
    let names = || frame(&File::open(path).ok()?, name)?.member_names().ok();
    names().unwrap_or_default().into_iter().filter(|name| !name.starts_with('_')).collect()
}

/// The types of the features in a file of 10x (in its rows) or AnnData (in the columns of the matrix), and whether they are rows.
pub fn feature_types(path: &str, dataset: Option<&str>) -> Option<(bool, Vec<String>)> {
    let file = File::open(path).ok()?;
    if !file.link_exists("obs") {
        let matrix = tenx_group(&file, dataset)?;
        let features = matrix.link_exists("features").then(|| matrix.group("features").ok()).flatten()?;
        return Some((true, column(&file, &features, "feature_type")?));
    }
    Some((false, column(&file, &features_of(&file, dataset)?, "feature_types")?))
}

/// Whether each column of a matrix in AnnData is marked in `var/highly_variable`.
pub fn highly_variable(path: &str, dataset: Option<&str>) -> Option<Vec<bool>> {
    let file = File::open(path).ok()?;
    let marks = column(&file, &features_of(&file, dataset)?, "highly_variable")?;
    Some(marks.iter().map(|mark| mark.eq_ignore_ascii_case("true") || mark == "1").collect())
}

/// Refuses names that are in other files.
///
/// # Errors
/// If some are.
pub fn check_own_names(path: &str, dataset: Option<&str>) -> Result<()> {
    read(path, dataset).map(drop)
}

/// The names of a record of a data frame, as AnnData wrote it before version 0.7.
#[derive(H5Type)]
#[repr(C)]
struct Record<T: H5Type> {
    index: T,
}

impl<T: H5Type + Text> Text for Record<T> {
    fn text(&self) -> String {
        self.index.text()
    }
}

/// A text type of HDF5.
trait Text {
    fn text(&self) -> String;
}

impl Text for VarLenUnicode {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for VarLenAscii {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for FixedAscii<256> {
    fn text(&self) -> String {
        self.as_str().trim_end_matches('\0').to_string()
    }
}

/// The text of a list.
fn list_of(data: &Dataset) -> Option<Vec<String>> {
    strings::<VarLenUnicode, VarLenAscii, FixedAscii<256>>(data)
}

/// The text of a list, read as the first of three types that HDF5 can convert it to.
fn strings<A: H5Type + Text, B: H5Type + Text, C: H5Type + Text>(data: &Dataset) -> Option<Vec<String>> {
    fn read<T: H5Type + Text>(data: &Dataset) -> Option<Vec<String>> {
        Some(data.read_raw::<T>().ok()?.iter().map(Text::text).collect())
    }
    if data.ndim() != 1 || data.storage_size() > MOST_BYTES {
        return None;
    }
    read::<A>(data).or_else(|| read::<B>(data)).or_else(|| read::<C>(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::of_input;
    use crate::spec::InputSpec;

    fn file(name: &str) -> String {
        format!("{}/../../tests/data/formats/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    /// The names of a matrix in an AnnData file depend on its location.
    #[test]
    fn names_are_those_of_the_matrix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.h5ad").display().to_string();
        let file = hdf5::File::create(&path).unwrap();
        for (frame, names) in [("obs", ["c1", "c2"]), ("var", ["g1", "g2"]), ("raw/var", ["h1", "h2"])] {
            if frame == "raw/var" {
                file.create_group("raw").unwrap();
            }
            let names: Vec<VarLenUnicode> = names.iter().map(|name| name.parse().unwrap()).collect();
            file.create_group(frame).unwrap().new_dataset_builder().with_data(&names).create("_index").unwrap();
        }
        drop(file);
        let first = |names: Option<Vec<String>>| names.map(|names| names[0].clone());
        for (dataset, rows, columns) in [
            (None, Some("c1"), Some("g1")),
            (Some("layers/counts"), Some("c1"), Some("g1")),
            (Some("raw/X"), Some("c1"), Some("h1")),
            (Some("/varm/PCs"), Some("g1"), None),
            (Some("obsp/distances"), Some("c1"), Some("c1")),
        ] {
            let found = of_file(&path, dataset);
            assert_eq!((first(found.rows).as_deref(), first(found.columns).as_deref()), (rows, columns), "{dataset:?}");
        }
    }

    /// Loom stores genes × cells; its names are readable even if the file name does not indicate the format.
    #[test]
    fn loom_has_names_under_any_file_name() {
        let dir = tempfile::tempdir().unwrap();
        for (file, [genes, cells]) in
            [("a.loom", ["Gene", "CellID"]), ("b.loom", ["var_names", "obs_names"]), ("c.old", ["Gene", "CellID"])]
        {
            let path = dir.path().join(file).display().to_string();
            let file = hdf5::File::create(&path).unwrap();
            for (group, name, list) in [("row_attrs", genes, ["g1", "g2"]), ("col_attrs", cells, ["c1", "c2"])] {
                let list: Vec<VarLenUnicode> = list.iter().map(|name| name.parse().unwrap()).collect();
                file.create_group(group).unwrap().new_dataset_builder().with_data(&list).create(name).unwrap();
            }
            file.new_dataset_builder().with_data(&ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0]])).create("matrix").unwrap();
            drop(file);
            let names = of_input(&InputSpec::parse(&path).unwrap());
            assert_eq!((names.rows.unwrap()[1].as_str(), names.columns.unwrap()[1].as_str()), ("g2", "c2"));
            assert!(names.turned, "{path}");
        }
    }

    /// Cell Ranger 2 has the lists next to the matrix, in a group with the name of the genome.
    #[test]
    fn files_of_cell_ranger_2_have_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v2.h5").display().to_string();
        let file = hdf5::File::create(&path).unwrap();
        let text = |name: &str| FixedAscii::<16>::from_ascii(name).unwrap();
        for (genome, cell) in [("GRCh38", "c"), ("mm10", "d")] {
            let group = file.create_group(genome).unwrap();
            let new = || group.new_dataset_builder();
            new().with_data(&["ENS1", "ENS2"].map(text)).create("genes").unwrap();
            new().with_data(&["G1", "G2"].map(text)).create("gene_names").unwrap();
            new()
                .with_data(&[format!("{cell}1"), format!("{cell}2")].map(|name| text(&name)))
                .create("barcodes")
                .unwrap();
            for (array, values) in
                [("data", &[3, 1][..]), ("indices", &[0, 1]), ("indptr", &[0, 1, 2]), ("shape", &[2, 2])]
            {
                new().with_data(values).create(array).unwrap();
            }
        }
        drop(file);
        for (name, cell) in [("", "c2"), (":GRCh38", "c2"), (":/mm10", "d2")] {
            let names = of_input(&InputSpec::parse(&format!("{path}{name}")).unwrap());
            assert_eq!((names.rows.unwrap()[1].as_str(), names.columns.unwrap()[1].as_str()), ("G2", cell), "{name}");
            assert!(names.turned);
        }
    }

    /// Versions before 0.7 of AnnData wrote the frames as tables of records.
    #[test]
    fn old_files_of_anndata_have_names() {
        #[derive(Clone, Copy, H5Type)]
        #[repr(C)]
        struct Fixed {
            index: FixedAscii<30>,
            batch: i32,
        }
        #[derive(H5Type)]
        #[repr(C)]
        struct Variable {
            good: bool,
            index: VarLenUnicode,
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.h5ad").display().to_string();
        let file = hdf5::File::create(&path).unwrap();
        let obs = ["c1", "c2"].map(|name| Fixed { index: FixedAscii::from_ascii(name).unwrap(), batch: 7 });
        file.new_dataset_builder().with_data(&obs).create("obs").unwrap();
        let var: Vec<Variable> =
            ["g1", "gène"].iter().map(|name| Variable { good: true, index: name.parse().unwrap() }).collect();
        file.new_dataset_builder().with_data(&var).create("var").unwrap();
        drop(file);
        let names = of_file(&path, None);
        assert_eq!(names.rows.unwrap(), ["c1", "c2"]);
        assert_eq!(names.columns.unwrap(), ["g1", "gène"]);
        assert!(!names.turned);
    }

    #[test]
    fn anndata_and_10x_have_names() {
        let mut spec = InputSpec::parse(&file("counts.h5ad")).unwrap();
        let names = of_input(&spec);
        assert_eq!(names.columns.as_ref().map(Vec::len), Some(30));
        assert_eq!(names.rows.as_ref().map(|n| n[3].as_str()), Some("3"));
        spec.transpose = true;
        assert_eq!(of_input(&spec).rows, names.columns);
        assert!(!names.turned && of_input(&spec).turned);
        let names = of_input(&InputSpec::parse(&file("counts-10x.h5")).unwrap());
        assert_eq!(names.columns.map(|n| n[7].clone()), Some("cell-7".into()));
        assert!(names.turned);
        assert_eq!(of_input(&InputSpec::parse(&file("counts.mtx")).unwrap()), Names::default());
    }
}
