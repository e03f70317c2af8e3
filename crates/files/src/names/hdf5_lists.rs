//! The lists of names in HDF5 files of AnnData, 10x and loom.

use std::cell::RefCell;

use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, File, Group, H5Type, LocationType};

use fednmf_base::error::{Error, Result};

use super::{MOST_BYTES, Names};
use crate::formats::fields::decoded;
use crate::formats::hdf5::text::{texts, word};
use crate::formats::hdf5::{check_own, exists, in_modality, is_biom, tenx_group};

/// The names stored in an HDF5 file, for one of its matrices (X by default).
pub fn of_file(path: &str, dataset: Option<&str>) -> Names {
    read(path, dataset).map(|(names, _)| names).unwrap_or_default()
}

/// Whether the format says which side of the matrix are the observations: AnnData, 10x, loom, BIOM.
pub fn has_observations(path: &str) -> bool {
    File::open(path).is_ok_and(|file| {
        ["obs", "matrix"].iter().any(|name| file.link_exists(name))
            || tenx_group(&file, None).is_some()
            || is_biom(&file)
    })
}

/// The names, and which lists of names cannot be read, if all are in the file itself: others would be read from a file that was
/// not named.
fn read(path: &str, dataset: Option<&str>) -> Result<(Names, Vec<String>)> {
    let Ok(file) = File::open(path) else { return Ok((Names::default(), Vec::new())) };
    let refused = RefCell::new(None);
    let lost = RefCell::new(Vec::new());
    let own = |data: Dataset| match check_own(path, "a list of names", &file, &data) {
        Ok(()) => Some(data),
        Err(e) => {
            *refused.borrow_mut() = Some(e);
            None
        }
    };
    // A list that exists is read, or the user learns that it is not.
    let told = |place: String, list: Option<Vec<String>>| {
        if list.is_none() {
            lost.borrow_mut().push(place);
        }
        list
    };
    let list_of = |data: Dataset| list_of(&own(data)?);
    let index = |frame: String| {
        if !exists(&file, &frame) {
            return None;
        }
        // Before version 0.7 AnnData wrote a table of records.
        if file.loc_type_by_name(&frame).is_ok_and(|kind| kind == LocationType::Dataset) {
            let records = file.dataset(&frame).ok().and_then(list_of);
            return told(frame, records);
        }
        let group = file.group(&frame).ok()?;
        let name = title_of_index(&group);
        if !group.link_exists(&name) {
            return None;
        }
        let place = format!("{frame}/{name}");
        let names = column(&own, &group, &name);
        let nullable = group.loc_type_by_name(&name).is_ok_and(|kind| kind == LocationType::Group);
        if nullable && names.iter().flatten().any(String::is_empty) {
            *refused.borrow_mut() =
                Some(Error::input(format!("{path}: {place} lacks some of the names; give each row and column a name")));
        }
        told(place, names)
    };
    let tenx_group = tenx_group(&file, dataset);
    let tenx = |name: &str| {
        let matrix = tenx_group.as_ref().filter(|matrix| exists(matrix, name))?;
        told(format!("{}/{name}", matrix.name()), matrix.dataset(name).ok().and_then(list_of))
    };
    let attribute = |group: &str, names: [&str; 2]| {
        let members = if exists(&file, group) { file.group(group).ok()?.member_names().ok()? } else { Vec::new() };
        match names.into_iter().find(|name| members.iter().any(|member| member == name)) {
            Some(name) => {
                let place = format!("{group}/{name}");
                told(place.clone(), file.dataset(&place).ok().and_then(list_of))
            }
            None if members.is_empty() => None,
            None => told(format!("{group} (neither {} nor {} is in it)", names[0], names[1]), None),
        }
    };
    // 10x and loom store genes × cells, and BIOM observations × samples.
    let biom = is_biom(&file);
    let turned = !file.link_exists("obs") && (file.link_exists("matrix") || tenx_group.is_some() || biom);
    let in_biom = |axis: &str| {
        let place = format!("{axis}/ids");
        (biom && exists(&file, &place))
            .then(|| told(place.clone(), file.dataset(&place).ok().and_then(list_of)))
            .flatten()
    };
    // In AnnData the location of a matrix determines the names of its rows and columns; raw has its own variables.
    let (modality, name) = in_modality(&file, dataset);
    let (rows, columns) = match place(&name) {
        "raw" => (Some("obs"), Some("raw/var")),
        "obsm" => (Some("obs"), None),
        "varm" => (Some("var"), None),
        "obsp" => (Some("obs"), Some("obs")),
        "varp" => (Some("var"), Some("var")),
        _ => (Some("obs"), Some("var")),
    };
    // The second name of each is the one that scanpy writes.
    let in_loom = |group, names| (turned && !biom).then(|| attribute(group, names)).flatten();
    let index = |frame: &str| index(format!("{modality}{frame}"));
    let columns = columns.and_then(index).or_else(|| tenx("barcodes"));
    let columns = columns.or_else(|| in_loom("col_attrs", ["CellID", "obs_names"])).or_else(|| in_biom("sample"));
    // Cell Ranger 2 has the names of the genes in addition to their identifiers.
    let rows = rows
        .and_then(index)
        .or_else(|| ["features/name", "features/id", "gene_names", "genes"].into_iter().find_map(tenx));
    let rows = rows.or_else(|| in_loom("row_attrs", ["Gene", "var_names"])).or_else(|| in_biom("observation"));
    match refused.take() {
        Some(e) => Err(e),
        None => Ok((Names { columns, rows, turned }, lost.take())),
    }
}

/// The part of AnnData in which a matrix is: `X`, `layers`, `raw`, …
fn place(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// The title of the column of names in a data frame.
fn title_of_index(frame: &Group) -> String {
    word(frame, "_index").unwrap_or_else(|| "_index".into())
}

/// A member of a group, if it exists.
fn member(group: &Group, name: &str) -> Option<Dataset> {
    group.link_exists(name).then(|| group.dataset(name).ok()).flatten()
}

/// The data frame of this name in AnnData (from version 0.7 on); `obs`, `var`, `raw/var`.
fn frame(file: &File, name: &str) -> Option<Group> {
    (exists(file, name) && file.loc_type_by_name(name).is_ok_and(|kind| kind == LocationType::Group))
        .then(|| file.group(name).ok())
        .flatten()
}

/// The frame of the features that are the columns of a matrix in AnnData.
fn features_of(file: &File, dataset: Option<&str>) -> Option<Group> {
    let (modality, name) = in_modality(file, dataset);
    match place(&name) {
        "raw" => frame(file, &format!("{modality}raw/var")),
        "X" | "layers" => frame(file, &format!("{modality}var")),
        _ => None,
    }
}

/// Text, or numbers or truth values as text.
fn as_text(data: &Dataset) -> Option<Vec<String>> {
    fn read<T: H5Type + ToString>(data: &Dataset) -> Option<Vec<String>> {
        Some(data.read_raw::<T>().ok()?.iter().map(T::to_string).collect())
    }
    if data.ndim() != 1 {
        return None;
    }
    match data.dtype().and_then(|kind| kind.to_descriptor()) {
        Ok(TypeDescriptor::Boolean) => read::<bool>(data),
        Ok(TypeDescriptor::Integer(_)) => read::<i64>(data),
        Ok(TypeDescriptor::Unsigned(_)) => read::<u64>(data),
        Ok(TypeDescriptor::Float(_)) => read::<f64>(data),
        _ => list_of(data),
    }
}

/// A column of a data frame of AnnData as text: text, categories, numbers or truth values. A missing one is empty. `own` passes
/// the data of this file.
fn column(own: &dyn Fn(Dataset) -> Option<Dataset>, frame: &Group, name: &str) -> Option<Vec<String>> {
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
        let mut values = as_text(&own(member(&inner, "values")?)?)?;
        if let Some(mask) = member(&inner, "mask") {
            // Below the mask is any value.
            let mask = own(mask)?.read_raw::<bool>().ok()?;
            if mask.len() != values.len() {
                return None;
            }
            values.iter_mut().zip(mask).filter(|(_, masked)| *masked).for_each(|(value, _)| value.clear());
        }
        return Some(values);
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

/// A column of this frame, if it is in the file itself.
fn own_column(file: &File, frame: &Group, name: &str) -> Option<Vec<String>> {
    let path = file.filename();
    column(&|data| check_own(&path, name, file, &data).is_ok().then_some(data), frame, name)
}

/// The column of a data frame of an AnnData file, `obs` or `var`, as text.
pub fn column_of_frame(path: &str, name_of_frame: &str, name: &str) -> Option<Vec<String>> {
    let file = File::open(path).ok()?;
    own_column(&file, &frame(&file, name_of_frame)?, name)
}

/// The titles of the columns of a data frame.
pub fn columns_of_frame(path: &str, name: &str) -> Vec<String> {
    let names = || frame(&File::open(path).ok()?, name)?.member_names().ok();
    let shown = names().unwrap_or_default().into_iter().filter(|name| !name.starts_with('_'));
    // The bindings take them as UTF-8 without a check.
    shown.map(|name| decoded(name.as_bytes())).collect()
}

/// The types of the features in a file of 10x (in its rows) or AnnData (in the columns of the matrix), and whether they are rows.
pub fn feature_types(path: &str, dataset: Option<&str>) -> Option<(bool, Vec<String>)> {
    let file = File::open(path).ok()?;
    if !file.link_exists("obs") {
        let matrix = tenx_group(&file, dataset)?;
        let features = matrix.link_exists("features").then(|| matrix.group("features").ok()).flatten()?;
        return Some((true, own_column(&file, &features, "feature_type")?));
    }
    Some((false, own_column(&file, &features_of(&file, dataset)?, "feature_types")?))
}

/// Whether each column of a matrix in AnnData is marked in `var/highly_variable`, or the first mark that is neither true nor false.
pub fn highly_variable(path: &str, dataset: Option<&str>) -> Option<std::result::Result<Vec<bool>, String>> {
    let file = File::open(path).ok()?;
    let marks = own_column(&file, &features_of(&file, dataset)?, "highly_variable")?;
    let truth = |mark: String| match mark.to_ascii_lowercase().as_str() {
        "true" | "1" | "1.0" => Ok(true),
        "false" | "0" | "0.0" => Ok(false),
        _ => Err(mark),
    };
    Some(marks.into_iter().map(truth).collect())
}

/// The places of the lists of names that cannot be read.
///
/// # Errors
/// If names are in other files, or some are missing.
pub fn unreadable(path: &str, dataset: Option<&str>) -> Result<Vec<String>> {
    read(path, dataset).map(|(_, lost)| lost)
}

/// The text of a list.
fn list_of(data: &Dataset) -> Option<Vec<String>> {
    let bytes = (data.size() as u64).saturating_mul(data.dtype().ok()?.size() as u64);
    if data.ndim() != 1 || bytes > MOST_BYTES { None } else { texts(data) }
}

#[cfg(test)]
mod tests {
    use hdf5::types::{FixedAscii, VarLenUnicode};

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

    #[test]
    fn a_biom_table_has_the_names_of_its_observations_and_samples() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.biom").display().to_string();
        let file = hdf5::File::create(&path).unwrap();
        file.new_attr_builder().with_data(&[2i32, 1]).create("format-version").unwrap();
        file.new_attr_builder().with_data(&[2i32, 3]).create("shape").unwrap();
        // [[5, 0, 1], [0, 2, 0]]
        for (axis, ids, [starts, indices, values]) in [
            ("observation", &["O1", "O2"][..], [&[0, 2, 3][..], &[0, 2, 1], &[5, 1, 2]]),
            ("sample", &["S1", "S2", "S3"], [&[0, 1, 2, 3], &[0, 1, 0], &[5, 2, 1]]),
        ] {
            let ids: Vec<VarLenUnicode> = ids.iter().map(|name| name.parse().unwrap()).collect();
            let group = file.create_group(axis).unwrap();
            group.new_dataset_builder().with_data(&ids).create("ids").unwrap();
            let matrix = group.create_group("matrix").unwrap();
            for (array, numbers) in [("indptr", starts), ("indices", indices), ("data", values)] {
                matrix.new_dataset_builder().with_data(numbers).create(array).unwrap();
            }
        }
        drop(file);
        for (name, transpose) in [("", false), (":/sample/matrix", false), ("", true), (":/sample/matrix", true)] {
            let mut spec = InputSpec::parse(&format!("{path}{name}")).unwrap();
            spec.transpose = transpose;
            let names = of_input(&spec);
            let (observations, samples) =
                if transpose { (names.columns, names.rows) } else { (names.rows, names.columns) };
            assert_eq!((observations.unwrap()[1].as_str(), samples.unwrap()[2].as_str()), ("O2", "S3"), "{name}");
            assert_eq!(names.turned, !transpose);
            let comm = fednmf_comm::Communicator::local();
            let input = crate::open(&spec, &comm).unwrap();
            let layout = fednmf_data::Layout::Grid { pr: 1, pc: 1 };
            let loaded = input.load::<f64>(&layout, &comm, &mut |_| ()).unwrap();
            let fednmf_linalg::Block::Sparse(x) = &loaded.blocks[0] else { panic!("sparse") };
            let expected = ndarray::arr2(&[[5.0, 0.0, 1.0], [0.0, 2.0, 0.0]]);
            let found = x.matrix().to_dense();
            assert_eq!(if transpose { found.reversed_axes() } else { found }, expected, "{name} {transpose}");
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
        // Where nothing says so, the observations are the rows as they are factorised.
        for name in ["table.h5", "table.txt", "counts.mtx"] {
            let mut spec = InputSpec::parse(&file(name)).unwrap();
            for transpose in [false, true] {
                spec.transpose = transpose;
                assert!(!of_input(&spec).turned, "{name}");
            }
        }
        assert_eq!(of_input(&InputSpec::parse(&file("counts.mtx")).unwrap()), Names::default());
    }
}
