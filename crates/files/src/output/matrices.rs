//! Files of named matrices: the factors of a run, with their provenance.
//!
//! Shared matrices are written to one file. The private matrices of each party are written by its host to a separate file in
//! the same directory (`F.party-03.h5`).

use std::collections::BTreeMap;
use std::path::Path;

use ndarray::Array2;
use serde_json::{Map, Value};

use fednmf_base::error::{Error, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_base::warning::warn;
use fednmf_comm::Communicator;
use fednmf_data::messages::OUTPUT;
use fednmf_data::state::Piece;
use fednmf_linalg::Real;

use crate::output::gather::Job;
use crate::output::sink::Encoding;
use crate::output::stored::{COLUMN_NAMES, ROW_NAMES};

pub use crate::output::anndata::{Annotations, PartyNames};
pub use crate::output::factor::Factor;
pub use crate::output::hdf5::appendable_shape;
pub use crate::output::own_parts::OwnParts;
pub use crate::output::part::check_writable;
pub use crate::output::sink::Format;
pub use crate::output::stored::{SET, Stored};

/// Reads, in the process of a probe, what is read of factors.
pub fn probe(path: &Path) {
    let Ok(stored) = Stored::open(path) else { return };
    for name in ["U", "V"] {
        if let Ok((rows, cols)) = stored.matrix(name) {
            // Whole blocks of rows are compared with their checksums.
            let _ = stored.as_f64(name, 0, Array2::zeros((rows.min(1), cols)).view_mut());
        }
    }
}

/// Maximum size of a list of names that is stored as an attribute, in bytes.
const MOST_NAMES: usize = 1 << 24;

/// Writes each named matrix (total rows × columns, dtype of T, C order) and the root attributes as HDF5. No rank holds
/// more than a block of another rank's rows. Files get their final names when all are complete. Collective.
///
/// # Errors
/// On all ranks, if a file of any rank cannot be written; existing files are then unchanged.
pub fn write<T: Real>(
    comm: &Communicator,
    path: &Path,
    pieces: &[Piece<'_, T>],
    attributes: &Map<String, Value>,
) -> SharedResult<()> {
    let (encoding, access) = (Encoding::Hdf5, Access::Default);
    let of_parties = &BTreeMap::new();
    Job { path, pieces, scalars: &[], attributes, of_parties, generation: None, tag: OUTPUT, access, encoding }
        .write(comm)?
        .publish(comm)
}

/// As [`write`], for the factors of a run or a projection, in the format of the file extension. AnnData needs
/// `annotations` on rank 0. Names that are private to a party are only in its own file.
///
/// # Errors
/// As [`write`].
pub fn write_factors<T: Real>(
    comm: &Communicator,
    path: &Path,
    pieces: &[Piece<'_, T>],
    attributes: &Map<String, Value>,
    annotations: &Annotations,
) -> SharedResult<()> {
    let encoding = Format::of(path).map_err(Error::on_all_ranks)?.encoding(annotations);
    let mut attributes = attributes.clone();
    if !matches!(encoding, Encoding::AnnData(_)) {
        for (name, list) in [(ROW_NAMES, &annotations.rows), (COLUMN_NAMES, &annotations.columns)] {
            attributes.extend(list.as_deref().and_then(|list| kept(name, list)));
        }
    }
    let of_party = |(party, names): (&usize, &PartyNames)| {
        let attribute = match names {
            PartyNames::Rows(list) => kept(ROW_NAMES, list),
            PartyNames::Columns(list) => kept(COLUMN_NAMES, list),
        };
        (*party, attribute.into_iter().collect())
    };
    let of_parties = &annotations.of_parties.iter().map(of_party).collect();
    let (attributes, access) = (&attributes, annotations.access());
    Job { path, pieces, scalars: &[], attributes, of_parties, generation: None, tag: OUTPUT, access, encoding }
        .write(comm)?
        .publish(comm)
}

/// A list of names as an attribute, unless it is too long.
fn kept(name: &str, list: &[String]) -> Option<(String, Value)> {
    let bytes: usize = list.iter().map(String::len).sum();
    if bytes > MOST_NAMES {
        warn(&format!(
            "{name}: these names have {} MiB, more than the {} MiB that the output takes, and are not in it; write it as .h5ad, \
             which takes them",
            bytes >> 20,
            MOST_NAMES >> 20
        ));
        return None;
    }
    Some((name.to_string(), list.to_vec().into()))
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ShapeBuilder, s};
    use serde_json::json;

    use fednmf_data::state::{Owner, ReadRows};

    use super::*;
    use fednmf_base::unfinished::Access;

    use crate::output::gather::write_alone;
    use crate::output::npz::Archive;

    fn numbers(rows: usize, cols: usize) -> Array2<f64> {
        // Column-major, like the factors of the dense kernels.
        Array2::from_shape_fn((rows, cols).f(), |(i, j)| (i * cols + j) as f64 + 0.25)
    }

    #[test]
    fn rows_come_back_from_any_range() {
        let dir = tempfile::tempdir().unwrap();
        // Wide rows, so that there are several blocks.
        let (u, v) = (numbers(300, 5000), numbers(7, 3));
        let path = dir.path().join("o.h5");
        let Value::Object(attributes) = json!({"algo": "hals", "k": 3}) else { unreachable!() };
        let pieces = [
            Piece::shared("V", 7, 0, v.view()),
            Piece::shared("E", 0, 0, v.slice(s![..0, ..])),
            Piece::shared("U", 300, 130, u.slice(s![130.., ..])),
            Piece::shared("U", 300, 0, u.slice(s![..130, ..])),
        ];
        let part = write_alone(&path, &pieces.iter().collect::<Vec<_>>(), &attributes).unwrap();
        part.publish().unwrap();
        let stored = Stored::open(&path).unwrap();
        assert_eq!(stored.attributes(), &attributes);
        assert_eq!((stored.matrix("U").unwrap(), stored.matrix("V").unwrap()), ((300, 5000), (7, 3)));
        assert_eq!(stored.matrix("E").unwrap(), (0, 3));
        stored.rows("E", Owner::Shared, 0, Array2::<f64>::zeros((0, 3)).view_mut()).unwrap();
        assert_eq!(stored.precision("U").unwrap(), "f64");
        for rows in [0..300, 100..107, 104..105, 299..300, 5..5, 209..211] {
            let mut out = Array2::<f64>::zeros((rows.len(), 5000));
            stored.rows("U", Owner::Shared, rows.start, out.view_mut()).unwrap();
            assert_eq!(out, u.slice(s![rows, ..]));
        }
    }

    /// Files that other programs wrote or changed.
    #[test]
    fn factors_that_do_not_fit_their_names_or_each_other_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let opened = |u: &Array2<f64>, v: &Array2<f64>, about: Value| {
            let path = dir.path().join("o.h5");
            let Value::Object(about) = about else { unreachable!() };
            let pieces = [Piece::shared("U", u.nrows(), 0, u.view()), Piece::shared("V", v.nrows(), 0, v.view())];
            write_alone(&path, &pieces.iter().collect::<Vec<_>>(), &about).unwrap().publish().unwrap();
            Stored::open_factors(&path).map(|_| ()).map_err(|e| e.message)
        };
        let (u, v) = (numbers(4, 2), numbers(3, 2));
        let (rows, columns) = (["a", "b", "c", "d"], ["x", "y", "z"]);
        assert_eq!(opened(&u, &v, json!({})), Ok(()));
        assert_eq!(opened(&u, &v, json!({"row_names": rows, "column_names": columns})), Ok(()));
        for (u, v, about, why) in [
            (&u, &v, json!({"column_names": rows}), "4 names for the 3 rows of V"),
            (&u, &v, json!({"row_names": columns}), "3 names for the 4 rows of U"),
            (&u, &v, json!({"column_names": [1, 2, 3]}), "column_names are no list of names"),
            (&u, &v, json!({"column_names": "x,y,z"}), "column_names are no list of names"),
            (&u, &numbers(3, 1), json!({}), "U has 2 columns and its V 1"),
            (&u, &numbers(0, 2), json!({}), "V is empty (0 x 2)"),
        ] {
            let found = opened(u, v, about).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        // Arrays of names, as attribute, as dataset, and in .npz.
        for as_dataset in [false, true] {
            opened(&u, &v, json!({})).unwrap();
            let path = dir.path().join("o.h5");
            let file = hdf5::File::append(&path).unwrap();
            if as_dataset {
                file.new_dataset_builder().with_data(&[1, 2, 3]).create("column_names").unwrap();
            } else {
                file.new_attr_builder().with_data(&[1, 2, 3]).create("column_names").unwrap();
            }
            file.close().unwrap();
            let found = Stored::open_factors(&path).unwrap_err().message;
            assert!(found.contains("column_names are no list of names"), "{found}");
        }
        let path = dir.path().join("o.npz");
        let mut archive = Archive::create(&path, Map::new(), Access::Default).unwrap();
        archive.array("V", "<f8", &[1, 1], &1f64.to_le_bytes()).unwrap();
        archive.texts("column_names", &["x".to_string()]).unwrap();
        archive.finish().unwrap().publish().unwrap();
        let found = Stored::open_factors(&path).unwrap_err().message;
        assert!(found.contains("column_names are no list of names"), "{found}");
    }

    #[test]
    fn errors_name_what_does_not_fit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.h5");
        let u = numbers(4, 2).mapv(|x| x as f32);
        write_alone(&path, &[&Piece::shared("U", 4, 0, u.view())], &Map::new()).unwrap().publish().unwrap();
        let stored = Stored::open(&path).unwrap();
        let read = |name: &str, first_row, shape: (usize, usize)| {
            stored.rows(name, Owner::Shared, first_row, Array2::<f32>::zeros(shape).view_mut()).unwrap_err().message
        };
        assert!(read("W", 0, (4, 2)).contains("no matrix W"));
        assert!(read("U", 1, (4, 2)).contains("4 x 2"));
        assert!(read("U", 0, (4, 3)).contains("3 columns"));
        assert!(read("U", usize::MAX, (1, 2)).contains("4 x 2"));
        let wide = stored.rows("U", Owner::Shared, 0, Array2::<f64>::zeros((4, 2)).view_mut()).unwrap_err().message;
        assert!(wide.contains("stored as f32") && wide.contains("computes in f64"), "{wide}");
        assert!(Stored::open(&dir.path().join("no.h5")).unwrap_err().message.contains("cannot be opened"));
        let other = dir.path().join("other.h5");
        std::fs::write(&other, "not HDF5").unwrap();
        assert!(Stored::open(&other).unwrap_err().message.contains("is text"));
    }
}
