//! Reads matrices with the HDF5 library.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hdf5::dataset::Layout;
use hdf5::filters::Filter;
use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, File, Group, LocationType};
use ndarray::{Array, Dimension, s};

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::{EntryPolicy, position};
use fednmf_data::values::Values;
use fednmf_linalg::Real;

use crate::formats::compressed::{Compressed, CompressedArrays, Step};
use crate::formats::hdf5::chunks::{PackedArray, Packing, Unpackers};
use crate::formats::hdf5::text::word;
use crate::formats::hdf5::{CHUNK_CACHE, Chunks, Hdf5Matrix, Numbers, Storage, real};
use crate::formats::io;
use crate::formats::limits::{check_shape, unpacked_bytes};
use crate::formats::raw::{NumberType, RawArray, index};
use crate::formats::reader::DenseReader;
use crate::hdf5_probe;
use crate::hdf5_probe::Content;

/// The name of the Boolean type, which HDF5 does not convert to numbers.
const BOOLEAN: &str = "bool";

fn wrong(path: &str, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{path}: {what}"))
}

/// An error of the library, reduced to its first cause.
fn library(path: &str, what: &str, e: &hdf5::Error) -> Error {
    let text = e.to_string();
    let reason = text.rsplit(": ").next().unwrap_or(&text);
    wrong(path, format!("{what} (HDF5: {reason})"))
}

fn open(path: &str) -> Result<File> {
    open_with(path, CHUNK_CACHE)
}

/// Opens a file with `cache` bytes of memory for the unpacked chunks of each dataset.
fn open_with(path: &str, cache: usize) -> Result<File> {
    io::open(path)?;
    let file = File::with_options().with_fapl(|p| p.chunk_cache(12_289, cache, 0.75)).open(path);
    file.map_err(|e| library(path, "cannot be opened as HDF5: no such file, or damaged or truncated", &e))
}

/// Maximum size of a file, in bytes, of which a probe reads all numbers, whatever their filters.
const PROBED_BYTES: u64 = 16 << 20;
/// Numbers that a probe reads at once.
const PROBED_AT_ONCE: usize = 4 << 20;

/// Reads, in the process of a probe, everything that [`header`] reads, including the index of all chunks. The numbers are
/// read as well if the file is small, or if they have a filter that may crash on invalid data: any compression but gzip.
///
/// # Errors
/// As [`header`], or if numbers cannot be read.
pub fn probe(path: &str, dataset: Option<&str>) -> Result<()> {
    let names = match find(path, dataset)? {
        Hdf5Matrix::Dense(_, _, name, ..) => vec![name],
        Hdf5Matrix::Sparse(_, name, ..) => ["indptr", "indices", "data"].map(|array| format!("{name}/{array}")).into(),
    };
    let file = open(path)?;
    for name in names {
        let read = || -> hdf5::Result<()> {
            let data = file.dataset(&name)?;
            let robust =
                data.filters().iter().all(|f| matches!(f, Filter::Deflate(_) | Filter::Shuffle | Filter::Fletcher32));
            if robust && file.size() > PROBED_BYTES {
                return Ok(());
            }
            let shape = data.shape();
            let (rows, width) = (shape[0], shape.get(1).copied().unwrap_or(1));
            let step = (PROBED_AT_ONCE / width.max(1)).max(1);
            for first in (0..rows).step_by(step) {
                let lines = first..rows.min(first + step);
                if shape.len() == 2 {
                    data.read_slice_2d::<f64, _>(s![lines, ..])?;
                } else {
                    data.read_slice_1d::<f64, _>(s![lines])?;
                }
            }
            Ok(())
        };
        read().map_err(|e| library(path, &format!("{name} cannot be read"), &e))?;
    }
    Ok(())
}

/// Finds the matrix: the given dataset or group, or else AnnData's `/X`, the group of 10x, or the only dataset with two
/// dimensions. A probe reads the file first.
///
/// # Errors
/// If the file is damaged, or has no such matrix or several.
pub fn header(path: &str, dataset: Option<&str>) -> Result<Hdf5Matrix> {
    io::open(path)?;
    hdf5_probe::run(Content::Matrix, path, dataset)?;
    find(path, dataset)
}

fn find(path: &str, dataset: Option<&str>) -> Result<Hdf5Matrix> {
    let file = open(path)?;
    let name = match dataset {
        Some(name) => name.to_string(),
        None => choose(path, &file)?,
    };
    match file.loc_type_by_name(&name) {
        Ok(LocationType::Dataset) => dense(path, &file, name),
        Ok(LocationType::Group) => sparse(path, &file, &name),
        _ => Err(wrong(path, format!("has no dataset or group {name}; it has {}", listed(members(&file))))),
    }
}

fn is_compressed(group: &Group) -> bool {
    ["data", "indices", "indptr"].iter().all(|name| group.link_exists(name))
}

fn choose(path: &str, file: &File) -> Result<String> {
    let names = file.member_names().map_err(|e| library(path, "cannot be listed", &e))?;
    if names.iter().any(|n| n == "X") {
        return Ok("/X".into());
    }
    match &modalities(file)[..] {
        [] => {}
        [only] => return Ok(format!("/{MODALITIES}/{only}/X")),
        several => {
            let all: Vec<String> = several.iter().map(|name| format!("{path}:/{MODALITIES}/{name}/X")).collect();
            return Err(wrong(path, format!("has several modalities; give the matrix of one: {}", all.join(", "))));
        }
    }
    if is_biom(file) {
        return Ok(format!("/{}", BIOM[0]));
    }
    let fits = |name: &&String| match file.loc_type_by_name(name) {
        Ok(LocationType::Group) => file.group(name).is_ok_and(|g| is_compressed(&g)),
        Ok(LocationType::Dataset) => file.dataset(name).is_ok_and(|d| d.ndim() == 2),
        _ => false,
    };
    let mut found = names.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(format!("/{only}")),
        _ => {
            let dimensions =
                |name: &String| file.dataset(name).map(|data| data.ndim()).ok().filter(|count| *count != 2);
            let mut matrices = members(file);
            let other = matrices.iter().find_map(|name| Some((name.clone(), dimensions(name)?)));
            matrices.retain(|name| dimensions(name).is_none());
            Err(wrong(
                path,
                match other {
                    Some((name, count)) if matrices.is_empty() => {
                        format!("has no matrix: {name} has {count} dimensions, and a matrix has two")
                    }
                    _ => format!("say which matrix is meant, as in {path}:/name; it has {}", listed(matrices)),
                },
            ))
        }
    }
}

/// The matrix of a BIOM table, observations × samples, by observations and by samples.
const BIOM: [&str; 2] = ["observation/matrix", "sample/matrix"];

/// Whether a file is a BIOM table of version 2.
pub fn is_biom(file: &File) -> bool {
    file.attr("format-version").is_ok() && BIOM.iter().all(|name| exists(file, name))
}

/// The group in which MuData has an AnnData object for each modality.
const MODALITIES: &str = "mod";

fn modalities(file: &File) -> Vec<String> {
    let group = file.link_exists(MODALITIES).then(|| file.group(MODALITIES).ok()).flatten();
    group.and_then(|group| group.member_names().ok()).unwrap_or_default()
}

/// Where the AnnData object begins that has a matrix, and the name of the matrix in it: `mod/rna/` and `X` in MuData, otherwise
/// nothing and the whole name.
pub fn in_modality(file: &File, dataset: Option<&str>) -> (String, String) {
    let name = match (dataset, &modalities(file)[..]) {
        (Some(name), _) => name.trim_start_matches('/').to_string(),
        (None, [only]) if !file.link_exists("X") => format!("{MODALITIES}/{only}/X"),
        (None, _) => "X".to_string(),
    };
    let modality = name.strip_prefix(MODALITIES).and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
    match modality {
        Some((modality, rest)) => (format!("{MODALITIES}/{modality}/"), rest.to_string()),
        None => (String::new(), name),
    }
}

/// Whether there is a member of this name, as `obs/_index`. HDF5 prints its own error for a link in a missing group.
pub fn exists(group: &Group, name: &str) -> bool {
    let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end]).all(|part| group.link_exists(part))
}

/// The group of a 10x matrix, with lists of its genes and cells: the given one, or else the first. Its name is `matrix`, or
/// in files of Cell Ranger 2 that of the genome.
pub fn tenx_group(file: &File, dataset: Option<&str>) -> Option<Group> {
    let names = match dataset {
        Some(name) => vec![name.trim_matches('/').to_string()],
        None => file.member_names().unwrap_or_default(),
    };
    let is_group = |name: &&String| {
        exists(file, name) && file.loc_type_by_name(name).is_ok_and(|kind| kind == LocationType::Group)
    };
    let has_lists = |group: &Group| {
        is_compressed(group) && ["barcodes", "features", "genes", "gene_names"].iter().any(|x| group.link_exists(x))
    };
    names.iter().filter(is_group).filter_map(|name| file.group(name).ok()).find(has_lists)
}

/// The names of datasets and compressed matrices, and of the groups on the lowest of some levels: a group may contain itself.
fn members(file: &File) -> Vec<String> {
    const LEVELS: usize = 6;
    let mut all = Vec::new();
    below(file, "", LEVELS, &mut all);
    all
}

/// Adds the names below a group with this path.
fn below(group: &Group, path: &str, levels: usize, all: &mut Vec<String>) {
    for name in group.member_names().unwrap_or_default() {
        let path = format!("{path}/{name}");
        let is_group = group.loc_type_by_name(&name).is_ok_and(|t| t == LocationType::Group);
        let inside = group.group(&name).ok().filter(|inside| {
            let categorical = || word(inside, "encoding-type").is_some_and(|kind| kind == "categorical");
            is_group && levels > 1 && !is_compressed(inside) && !categorical()
        });
        match inside {
            Some(inside) => below(&inside, &path, levels - 1, all),
            None => all.push(path),
        }
    }
}

/// Names, for a message.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(20);
    all.truncate(20);
    if all.is_empty() { "nothing".into() } else { all.join(", ") + if more > 0 { ", …" } else { "" } }
}

/// The number type of a dataset.
fn number_type(path: &str, name: &str, data: &Dataset) -> Result<Numbers> {
    let described = data.dtype().and_then(|t| t.to_descriptor());
    let (name, values) = match described {
        Ok(TypeDescriptor::Integer(size)) => (format!("i{}", 8 * size as usize), Values::Whole),
        Ok(TypeDescriptor::Unsigned(size)) => (format!("u{}", 8 * size as usize), Values::Whole),
        Ok(TypeDescriptor::Float(size)) => {
            let bytes = size as usize;
            (format!("f{}", 8 * bytes), if bytes <= size_of::<f32>() { Values::Single } else { Values::Double })
        }
        Ok(TypeDescriptor::Boolean) => (BOOLEAN.into(), Values::Whole),
        Ok(other) => return Err(wrong(path, format!("{name} holds {other}, not numbers"))),
        Err(_) => {
            return Err(wrong(
                path,
                format!("{name} holds something other than numbers of 8 to 64 bits; store it as float32 or float64"),
            ));
        }
    };
    Ok(Numbers { name, values })
}

/// Refuses a dataset that was packed by a filter that this program does not contain.
fn check_filters(path: &str, name: &str, data: &Dataset) -> Result<()> {
    // The library itself requests a plugin only when it unpacks.
    let lacking = data.filters().into_iter().find(|filter| !filter.is_available());
    lacking.map_or(Ok(()), |filter| {
        let filter = name_of_filter(filter.id());
        Err(wrong(
            path,
            format!(
                "{name} is compressed with {filter}; write it with gzip: adata.write_h5ad(FILE, compression='gzip') after reading it in \
                 Python with hdf5plugin imported, or h5repack -f GZIP=4 with the plugin"
            ),
        ))
    })
}

/// The name of a filter, or its number.
fn name_of_filter(number: i32) -> String {
    match FILTERS.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => format!("{name}, which this HDF5 library cannot unpack"),
        None => format!("filter {number}, which this HDF5 library does not have"),
    }
}

/// The numbers of filters that are registered with the HDF Group and used for matrices.
const FILTERS: [(i32, &str); 7] = [
    (307, "bzip2"),
    (32_001, "Blosc"),
    (32_004, "LZ4"),
    (32_008, "bitshuffle"),
    (32_013, "zfp"),
    (32_015, "Zstandard (zstd)"),
    (32_026, "Blosc2"),
];

/// Refuses a dataset that declares more numbers than the file can hold.
fn check_size(path: &str, name: &str, data: &Dataset) -> Result<()> {
    let promised = data.shape().iter().try_fold(8u64, |all, &d| all.checked_mul(d as u64)).unwrap_or(u64::MAX);
    let held = unpacked_bytes(data.storage_size(), true).saturating_add(64 << 20);
    if promised > held.saturating_mul(8) {
        return Err(wrong(
            path,
            format!("{name} promises {:?} numbers, but stores only {} bytes", data.shape(), data.storage_size()),
        ));
    }
    Ok(())
}

/// Refuses numbers in other files: they would be read without having been named, and HDF5 gives zeros where one is missing.
pub fn check_own(path: &str, name: &str, file: &File, data: &Dataset) -> Result<()> {
    let created = data.create_plist().map_err(|e| library(path, &format!("{name} cannot be opened"), &e))?;
    let map = if created.layout() == Layout::Virtual { created.virtual_map() } else { Vec::new() };
    // The bindings cannot read some maps, and then return none of their sources.
    let unknown =
        (created.layout() == Layout::Virtual && map.is_empty()).then(|| "which its virtual layout names".to_string());
    let sources = map.into_iter().map(|source| source.src_filename).filter(|source| source != ".").chain(unknown);
    let stored = created.external().into_iter().map(|file| file.name);
    let linked = Some(data.filename()).filter(|of_data| *of_data != file.filename());
    match linked.into_iter().chain(stored).chain(sources).next() {
        None => Ok(()),
        Some(other) => Err(wrong(
            path,
            format!(
                "{name} has its contents in another file, {other}, and no file is read that was not named; copy them into one file, \
                 or give that file"
            ),
        )),
    }
}

fn dense(path: &str, file: &File, name: String) -> Result<Hdf5Matrix> {
    let data = file.dataset(&name).map_err(|e| library(path, &format!("{name} cannot be opened"), &e))?;
    let number = number_type(path, &name, &data)?;
    check_own(path, &name, file, &data)?;
    check_filters(path, &name, &data)?;
    check_size(path, &name, &data)?;
    check_conventions(path, &name, &data)?;
    let (rows, cols) = match data.shape()[..] {
        [rows] => (rows, 1),
        [rows, cols] => (rows, cols),
        ref shape => return Err(wrong(path, format!("{name} has {} dimensions; a matrix has two", shape.len()))),
    };
    check_shape(rows, cols, None).map_err(|what| wrong(path, format!("{name}: {what}")))?;
    let end = |raw: &RawArray| raw.start.checked_add(rows as u64 * cols as u64 * raw.number.size() as u64);
    let raw = in_place(&data).filter(|raw| end(raw).is_some_and(|end| end <= file.size()));
    let storage = raw.map_or_else(|| Storage::ByLibrary(chunks_of(&data)), Storage::InPlace);
    Ok(Hdf5Matrix::Dense(rows, cols, name, number, storage))
}

/// Refuses a dataset whose numbers stand for others, by the conventions of netCDF.
fn check_conventions(path: &str, name: &str, data: &Dataset) -> Result<()> {
    let marks = ["_FillValue", "missing_value"];
    let number = |attribute: &str| -> Option<f64> {
        let attribute = data.attr(attribute).ok()?;
        attribute.read_scalar().ok().or_else(|| attribute.read_raw().ok()?.first().copied())
    };
    let limits = ["valid_min", "valid_max", "valid_range", "_Unsigned"];
    let is_text = |name: &str| data.attr(name).is_ok() && number(name).is_none();
    if let Some(attribute) =
        limits.into_iter().find(|name| data.attr(name).is_ok()).or(marks.into_iter().find(|name| is_text(name)))
    {
        return Err(wrong(
            path,
            format!(
                "{name} has the attribute {attribute}, which says what its numbers mean; write the decoded numbers without \
                 it"
            ),
        ));
    }
    let packed = [("scale_factor", 1.0), ("add_offset", 0.0)];
    if let Some((attribute, _)) = packed.iter().find(|(name, none)| number(name).is_some_and(|x| x != *none)) {
        return Err(wrong(
            path,
            format!(
                "{name} has the attribute {attribute}, so its numbers stand for others; write the unpacked numbers, as xarray reads them"
            ),
        ));
    }
    match marks.iter().find_map(|name| Some((name, number(name).filter(|x| x.is_finite())?))) {
        Some((attribute, mark)) => Err(wrong(
            path,
            format!(
                "{name} has the attribute {attribute}, so entries of {mark} are missing; write NaN instead (and use --missing nan), or \
                 delete the attribute if there are none"
            ),
        )),
        None => Ok(()),
    }
}

/// The type of numbers that have this machine's representation; `None` if the library must convert them.
pub fn number_in_place(data: &Dataset) -> Option<NumberType> {
    let stored = data.dtype().ok()?;
    let known = [
        (stored.is::<bool>(), NumberType::Bool),
        (stored.is::<i8>(), NumberType::I8),
        (stored.is::<i16>(), NumberType::I16),
        (stored.is::<i32>(), NumberType::I32),
        (stored.is::<i64>(), NumberType::I64),
        (stored.is::<u8>(), NumberType::U8),
        (stored.is::<u16>(), NumberType::U16),
        (stored.is::<u32>(), NumberType::U32),
        (stored.is::<u64>(), NumberType::U64),
        (stored.is::<f32>(), NumberType::F32),
        (stored.is::<f64>(), NumberType::F64),
    ];
    known.into_iter().find_map(|(same, number)| same.then_some(number))
}

/// The location of a dataset whose numbers are contiguous in the file and have this machine's representation. They are read
/// like those of a .npy file, without the library's copies. `None` if the library must convert, unpack or assemble them.
fn in_place(data: &Dataset) -> Option<RawArray> {
    let number = number_in_place(data)?;
    // A dataset that is chunked, in other files or not yet written has no offset.
    let start = data.offset().filter(|_| data.layout() == Layout::Contiguous && data.filters().is_empty())?;
    Some(RawArray { number, big_endian: cfg!(target_endian = "big"), by_columns: false, start })
}

fn sparse(path: &str, file: &File, name: &str) -> Result<Hdf5Matrix> {
    let group = file.group(name).map_err(|e| library(path, &format!("{name} cannot be opened"), &e))?;
    if !is_compressed(&group) {
        return Err(wrong(path, format!("{name} is a group, not a matrix; the file has {}", listed(members(file)))));
    }
    let biom = BIOM.iter().position(|known| is_biom(file) && name.trim_matches('/') == *known);
    let kind = word(&group, "encoding-type").or_else(|| word(&group, "h5sparse_format"));
    let kind = biom.map(|at| ["csr", "csc"][at].to_string()).or(kind);
    let shape: Option<Vec<f64>> = ["shape", "h5sparse_shape"]
        .iter()
        .find_map(|a| group.attr(a).ok()?.read_raw::<f64>().ok())
        .or_else(|| biom.and_then(|_| file.attr("shape").ok()?.read_raw::<f64>().ok()))
        .or_else(|| group.dataset("shape").ok()?.read_raw::<f64>().ok());
    let shape = shape.ok_or_else(|| {
        wrong(
            path,
            format!(
                "{name} does not declare its shape; give the group an attribute or a dataset shape, of rows and columns"
            ),
        )
    })?;
    let mut length = [0; 3];
    let mut numbers = Numbers { name: String::new(), values: Values::Double };
    for (length, array) in length.iter_mut().zip(["indptr", "indices", "data"]) {
        let data = group.dataset(array).map_err(|e| library(path, &format!("{name}/{array} cannot be opened"), &e))?;
        // The type of the values comes last, and remains.
        numbers = number_type(path, &format!("{name}/{array}"), &data)?;
        check_own(path, &format!("{name}/{array}"), file, &data)?;
        check_filters(path, &format!("{name}/{array}"), &data)?;
        check_size(path, &format!("{name}/{array}"), &data)?;
        if data.ndim() != 1 {
            return Err(wrong(path, format!("{name}/{array} has {} dimensions instead of one", data.ndim())));
        }
        *length = data.size() as u64;
    }
    let is_10x = ["barcodes", "genes", "features"].iter().any(|name| group.link_exists(name));
    let declared = if biom.is_some() { "BIOM" } else { "AnnData" };
    let (by_columns, writer) = match kind.as_deref() {
        Some("csr_matrix" | "csr") => (false, declared),
        Some("csc_matrix" | "csc") => (true, declared),
        Some(other) => {
            return Err(wrong(path, format!("{name} is encoded as {other}; CSR, CSC and dense are supported")));
        }
        None if shape.len() == 2 && shape[0] == shape[1] && !is_10x => {
            return Err(wrong(
                path,
                format!(
                    "{name} is square and does not declare whether it is compressed by rows or by columns; give the group the \
                     attribute encoding-type with the value csr_matrix or csc_matrix"
                ),
            ));
        }
        // 10x does not declare the order: genes × cells, stored by cells.
        None => {
            let by_columns = shape.get(1).is_some_and(|&cols| cols + 1.0 == length[0] as f64);
            (by_columns, if is_10x { "10x" } else { "undeclared order, by the length of indptr" })
        }
    };
    let matrix = Compressed::new(&shape, by_columns, length).map_err(|what| wrong(path, format!("{name} {what}")))?;
    Ok(Hdf5Matrix::Sparse(matrix, name.to_string(), writer, numbers))
}

/// The chunks of a dataset; `None` if it is not chunked.
fn chunks_of(data: &Dataset) -> Option<Chunks> {
    let chunk = data.chunk()?;
    let size = data.dtype().map_or(size_of::<f64>(), |number| number.size());
    Some(Chunks {
        rows: chunk[0].max(1),
        bytes: chunk.iter().product::<usize>() * size,
        rows_apart: data.filters().is_empty() && chunk[1..] == data.shape()[1..],
    })
}

/// What the chunks of the long arrays of a sparse group need: bytes of the cache of the library for each array, and bytes in all.
///
/// # Errors
/// If they cannot be opened.
pub fn group_memory(path: &str, name: &str) -> Result<(usize, usize)> {
    let (mut largest, mut all) = (0, 0);
    let file = open(path)?;
    for name in ["indices", "data"].map(|array| format!("{name}/{array}")) {
        let data = file.dataset(&name).map_err(|e| library(path, &format!("{name} cannot be opened"), &e))?;
        match Packing::of(&data) {
            Some(packing) => all += packing.memory(),
            // A chunk is read in several steps.
            None => largest = largest.max(chunks_of(&data).map_or(0, |chunks| chunks.bytes)),
        }
    }
    Ok((largest, all + 2 * largest))
}

/// The `indptr` of a sparse group, and a reader of its other arrays, with `cache` bytes of memory for the chunks of each.
///
/// # Errors
/// If they cannot be opened.
pub fn open_group(path: &str, name: &str, cache: Option<usize>) -> Result<(Vec<f64>, Box<dyn CompressedArrays>)> {
    let file = open_with(path, cache.unwrap_or(CHUNK_CACHE))?;
    let find = |array: &str| {
        let full = format!("{name}/{array}");
        file.dataset(&full).map_err(|e| library(path, &format!("{full} cannot be opened"), &e))
    };
    let starts =
        find("indptr")?.read_raw::<f64>().map_err(|e| library(path, &format!("{name}/indptr cannot be read"), &e))?;
    let arrays = [find("indices")?, find("data")?];
    let chunked = Arc::new(io::open(path)?);
    let arrays = arrays.map(|data| match (Packing::of(&data), in_place(&data)) {
        (Some(packing), _) => LongArray::Packed(PackedArray::new(data, chunked.clone(), packing)),
        (None, Some(raw)) => LongArray::InPlace(data, chunked.clone(), raw, Vec::new()),
        (None, None) => LongArray::ByLibrary(data),
    });
    Ok((starts, Box::new(GroupReader { path: path.to_string(), arrays, threads: None })))
}

/// An array of a sparse group.
enum LongArray {
    ByLibrary(Dataset),
    Packed(PackedArray),
    /// With memory for its bytes.
    InPlace(Dataset, Arc<std::fs::File>, RawArray, Vec<u8>),
}

impl LongArray {
    fn name(&self) -> String {
        match self {
            LongArray::ByLibrary(data) | LongArray::InPlace(data, ..) => data.name(),
            LongArray::Packed(array) => array.name(),
        }
    }
}

struct GroupReader {
    path: String,
    /// Indices and values.
    arrays: [LongArray; 2],
    /// Started by the first read.
    threads: Option<Unpackers>,
}

impl CompressedArrays for GroupReader {
    fn read(&mut self, step: &mut Step) -> Result<()> {
        let Step { entries, indices, values } = step;
        let entries = entries.start as usize..entries.end as usize;
        indices.resize(entries.len(), 0);
        values.resize(entries.len(), 0.0);
        let big_endian = cfg!(target_endian = "big");
        self.read_array(
            0,
            &entries,
            indices,
            |number, bytes, out| number.decode_indices(bytes, big_endian, out),
            index,
        )?;
        self.read_array(1, &entries, values, |number, bytes, out| number.decode(bytes, big_endian, out), |x| x)
    }
}

impl GroupReader {
    /// Reads some entries of an array: `decode` takes the bytes of some, and `convert` a number from the library.
    fn read_array<N>(
        &mut self,
        array: usize,
        range: &Range<usize>,
        out: &mut [N],
        decode: impl Fn(NumberType, &[u8], &mut [N]),
        convert: impl Fn(f64) -> N,
    ) -> Result<()> {
        let GroupReader { path, arrays, threads } = self;
        let array = &mut arrays[array];
        let name = array.name();
        let damaged = |range: &Range<usize>| {
            let last = range.end.saturating_sub(1);
            format!("{name}, entries {} to {last}, cannot be read: damaged or truncated", range.start)
        };
        match array {
            LongArray::ByLibrary(data) => {
                let read = numbers_1d(data, range.clone()).map_err(|e| library(path, &damaged(range), &e))?;
                out.iter_mut().zip(read).for_each(|(out, x)| *out = convert(x));
                Ok(())
            }
            LongArray::Packed(array) => {
                let threads = match threads {
                    Some(threads) => threads,
                    None => threads.insert(Unpackers::start().map_err(|e| io::io_error(path, &e))?),
                };
                let read = array.read(range.clone(), threads, |number, bytes, at| decode(number, bytes, &mut out[at]));
                read.map_err(|(entries, e)| wrong(path, format!("{} ({e})", damaged(&entries))))
            }
            LongArray::InPlace(_, file, raw, bytes) => {
                let size = raw.number.size();
                bytes.resize(range.len() * size, 0);
                let read = file.read_exact_at(bytes, raw.start + (range.start * size) as u64);
                read.map_err(|e| wrong(path, format!("{} ({e})", damaged(range))))?;
                decode(raw.number, bytes, out);
                Ok(())
            }
        }
    }
}

/// Reads numbers of any type, and Booleans, which HDF5 does not convert.
fn numbers_1d(data: &Dataset, range: Range<usize>) -> hdf5::Result<Vec<f64>> {
    if matches!(data.dtype()?.to_descriptor()?, TypeDescriptor::Boolean) {
        return Ok(data.read_slice_1d::<bool, _>(s![range])?.iter().map(|&b| f64::from(u8::from(b))).collect());
    }
    Ok(data.read_slice_1d::<f64, _>(s![range])?.to_vec())
}

/// Reader of a dense dataset: a hyperslab at a time.
pub struct DatasetReader<'a> {
    path: &'a str,
    data: Dataset,
    boolean: bool,
    /// Number of rows that are read together: all rows of a chunk, which might otherwise be unpacked several times.
    together: usize,
    policy: EntryPolicy,
}

impl<'a> DatasetReader<'a> {
    /// Opens the dataset, with `cache` bytes of memory for its chunks.
    ///
    /// # Errors
    /// If it cannot be opened, or holds no numbers.
    pub fn open(path: &'a str, name: &str, cache: usize, policy: EntryPolicy) -> Result<Self> {
        let file = open_with(path, cache)?;
        let data = file.dataset(name).map_err(|e| library(path, &format!("{name} cannot be opened"), &e))?;
        let boolean = number_type(path, name, &data)?.name == BOOLEAN;
        let together = chunks_of(&data).filter(|chunks| !chunks.rows_apart).map_or(1, |chunks| chunks.rows);
        Ok(DatasetReader { path, data, boolean, together, policy })
    }

    fn numbers<T: Real>(&self, lines: &Range<usize>, within: &Range<usize>, out: &mut [T]) -> hdf5::Result<()> {
        let two = self.data.ndim() == 2;
        if self.boolean {
            let number = |b: &bool| if *b { T::one() } else { T::zero() };
            if two {
                let part = self.data.read_slice_2d::<bool, _>(s![lines.clone(), within.clone()])?;
                copy(&part.map(number), out)
            } else {
                copy(&self.data.read_slice_1d::<bool, _>(s![lines.clone()])?.map(number), out)
            }
        } else if two {
            copy(&real::read(&self.data, s![lines.clone(), within.clone()])?, out)
        } else {
            copy(&real::read(&self.data, s![lines.clone()])?, out)
        }
    }
}

/// Copies an array that the library returned.
fn copy<T: Real, D: Dimension>(part: &Array<T, D>, out: &mut [T]) -> hdf5::Result<()> {
    out.copy_from_slice(part.as_slice().ok_or("the array is not contiguous")?);
    Ok(())
}

/// Bytes requested from the library at once, unless chunks are larger.
const PIECE: usize = 256 << 10;

impl<T: Real> DenseReader<T> for DatasetReader<'_> {
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        // Small requests, so that the arrays returned by the library stay in cache, or at least in memory that it reuses.
        let step = (PIECE / (within.len() * size_of::<T>()).max(1)).max(1).next_multiple_of(self.together);
        let (mut first, mut rest) = (lines.start, &mut *out);
        while first < lines.end {
            let end = lines.end.min((first / step + 1) * step);
            let (piece, later) = rest.split_at_mut((end - first) * within.len());
            self.numbers(&(first..end), &within, piece).map_err(|e| {
                let what = format!("{}, rows {first} to {}", self.data.name(), end - 1);
                library(self.path, &format!("{what}, cannot be read: damaged or truncated"), &e)
            })?;
            (first, rest) = (end, later);
        }
        Ok(())
    }

    fn policy(&self) -> EntryPolicy {
        self.policy
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        wrong(self.path, format!("the entry in {} {why}", position(line, at)))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::formats::io::InputFile;
    use crate::formats::raw::RawReader;

    /// The matrix as read by the library, and as read directly from the file if that is possible.
    fn read(path: &str, name: &str) -> (Vec<f64>, Option<Vec<f64>>) {
        let policy = EntryPolicy { allow_negative: true, ..EntryPolicy::default() };
        let Hdf5Matrix::Dense(rows, cols, name, _, storage) = find(path, Some(name)).unwrap() else { panic!("{name}") };
        let (mut by_library, mut in_file) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
        let mut reader = DatasetReader::open(path, &name, CHUNK_CACHE, policy).unwrap();
        reader.fill(0..rows, 0..cols, &mut by_library).unwrap();
        let file = InputFile { path: path.to_string(), gz: false, private: false };
        let Storage::InPlace(raw) = storage else { return (by_library, None) };
        RawReader::open(&file, &raw, (rows, cols), policy).unwrap().fill(0..rows, 0..cols, &mut in_file).unwrap();
        (by_library, Some(in_file))
    }

    #[test]
    fn a_filter_that_is_lacking_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5").display().to_string();
        let all = Array2::from_shape_fn((40, 30), |(i, j)| (i * j) as f64);
        File::create(&path)
            .unwrap()
            .new_dataset_builder()
            .chunk((10, 30))
            .deflate(3)
            .with_data(&all)
            .create("x")
            .unwrap();
        // The filter message: version 1, one filter; then its number, the length of its name, its flags and its parameters.
        let mut bytes = std::fs::read(&path).unwrap();
        let message = [1, 1, 0, 0, 0, 0, 0, 0, 1, 0];
        let at = bytes.windows(message.len()).position(|part| part == message).expect("the message of the filter");
        for (number, name) in [(32_015u16, "Zstandard (zstd)"), (32_001, "Blosc"), (32_777, "filter 32777")] {
            bytes[at + 8..at + 10].copy_from_slice(&number.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let refused = find(&path, Some("x")).err().unwrap().message;
            assert!(refused.contains(name) && refused.contains("gzip"), "{refused}");
        }
    }

    #[test]
    fn only_matrices_are_offered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5").display().to_string();
        let refused = || find(&path, None).err().unwrap().message;
        File::create(&path).unwrap().new_dataset::<f64>().shape((2, 3, 4)).create("x").unwrap();
        assert!(refused().contains("has no matrix: /x has 3 dimensions"), "{}", refused());
        for name in ["a", "b"] {
            File::open_rw(&path).unwrap().new_dataset::<f64>().shape((4, 3)).create(name).unwrap();
        }
        assert!(refused().ends_with("it has /a, /b"), "{}", refused());
    }

    #[test]
    fn chunks_are_read_in_steps_that_begin_anywhere() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        // A step has fewer rows than the dataset, and for narrow chunks as many as a chunk.
        let all = Array2::from_shape_fn((40, 9000), |(i, j)| (3 * i + 2 * j) as f64 % 1013.0);
        {
            let file = File::create(path).unwrap();
            let new = || file.new_dataset_builder();
            new().chunk((7, 9000)).with_data(&all).create("wide").unwrap();
            new().chunk((7, 4000)).with_data(&all).create("narrow").unwrap();
            new().chunk((7, 4000)).deflate(1).with_data(&all).create("packed").unwrap();
        }
        let policy = EntryPolicy::default();
        for (name, rows_apart) in [("wide", true), ("narrow", false), ("packed", false)] {
            let Hdf5Matrix::Dense(.., storage) = find(path, Some(name)).unwrap() else { panic!("{name}") };
            let Storage::ByLibrary(Some(chunks)) = storage else { panic!("{name}") };
            assert_eq!((chunks.rows, chunks.rows_apart), (7, rows_apart), "{name}");
            for cache in [0, CHUNK_CACHE] {
                let mut reader = DatasetReader::open(path, name, cache, policy).unwrap();
                let mut out = vec![0.0; 33 * 9000];
                reader.fill(5..38, 0..9000, &mut out).unwrap();
                assert_eq!(out, all.slice(s![5..38, ..]).as_slice().unwrap(), "{name}");
            }
        }
    }

    #[test]
    fn a_contiguous_dataset_is_read_in_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let all = Array2::from_shape_fn((7, 5), |(i, j)| (3 * i + 2 * j) as f64 % 11.0);
        {
            let file = File::create(path).unwrap();
            let new = || file.new_dataset_builder();
            new().with_data(&all).create("f64").unwrap();
            new().with_data(&all.mapv(|x| x as f32)).create("f32").unwrap();
            new().with_data(&all.mapv(|x| x as u8)).create("u8").unwrap();
            new().with_data(&all.mapv(|x| -(x as i16))).create("i16").unwrap();
            new().with_data(&all.mapv(|x| x as u64)).create("u64").unwrap();
            new().with_data(&all.mapv(|x| x > 5.0)).create("bool").unwrap();
            new().with_data(&all.column(0).to_owned()).create("column").unwrap();
            new().chunk((2, 5)).with_data(&all).create("chunks").unwrap();
            new().chunk((7, 5)).deflate(3).with_data(&all).create("packed").unwrap();
            new().empty::<f64>().shape((7, 5)).create("unwritten").unwrap();
        }
        for name in ["f64", "f32", "u8", "i16", "u64", "bool", "column"] {
            let (by_library, in_file) = read(path, name);
            assert_eq!(in_file, Some(by_library), "{name}");
        }
        for name in ["chunks", "packed", "unwritten"] {
            assert_eq!(read(path, name).1, None, "{name}");
        }
        assert_eq!(read(path, "chunks").0, read(path, "f64").0);
    }
}
