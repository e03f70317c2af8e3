//! The file of `--record-view`: everything that one rank received and knew, in order. A `.npz` archive with a matrix for
//! each message (named by its number), a list of their descriptions, and the public parameters of the run.
//!
//! The file is as confidential as the data that the rank may see, including its own.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ndarray::Array2;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::Access;
use fednmf_comm::{Knowledge, Recorder, ViewRecord};
use fednmf_linalg::ElementType;

use crate::output::npz::{Archive, Matrices};

/// The attribute with the list of records.
const RECORDS: &str = "records";
/// The attribute by which a view is recognised, with the version of its layout.
const MARK: &str = "view_of_a_rank";

/// The description of one matrix of a view; the matrix's number is its index in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub knowledge: Knowledge,
    /// The message kind, or the name of the known quantity.
    pub kind: String,
    /// The payload of the message; `None` for a quantity that is known without a message.
    #[serde(default)]
    pub payload: Option<String>,
    /// Number of completed iterations; 0 while loading and in the first iteration.
    pub iteration: usize,
    #[serde(default)]
    pub from: Option<usize>,
    #[serde(default)]
    pub to: Option<usize>,
    pub element: String,
    pub rows: usize,
    pub cols: usize,
}

/// A view that is being recorded.
pub struct ViewFile {
    archive: Option<Archive>,
    records: Vec<Record>,
    iteration: usize,
    /// The first error; nothing is written after it.
    failed: Option<Error>,
}

/// The file of a rank: `F.rank-03.npz` for `F.npz`, `F.rank-03` for any other name.
pub fn file_of(path: &Path, rank: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(match name.strip_suffix(".npz") {
        Some(stem) => format!("{stem}.rank-{rank:02}.npz"),
        None => format!("{name}.rank-{rank:02}"),
    })
}

fn numpy(element: ElementType) -> (&'static str, &'static str) {
    match element {
        ElementType::U8 => ("u8", "|u1"),
        ElementType::U32 => ("u32", "<u4"),
        ElementType::U64 => ("u64", "<u8"),
        ElementType::F32 => ("f32", "<f4"),
        ElementType::F64 => ("f64", "<f8"),
    }
}

impl ViewFile {
    /// Creates the file of `rank`, which only its owner may read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path, rank: usize) -> Result<Rc<RefCell<Self>>> {
        let archive = Some(Archive::create(&file_of(path, rank), Map::new(), Access::OwnerOnly)?);
        Ok(Rc::new(RefCell::new(ViewFile { archive, records: Vec::new(), iteration: 0, failed: None })))
    }

    /// Sets the number of completed iterations.
    pub fn turn_to(&mut self, iteration: usize) {
        self.iteration = iteration;
    }

    /// Completes the file, with the public parameters of the run.
    ///
    /// # Errors
    /// The first error since the file was created.
    pub fn finish(&mut self, mut about: Map<String, Value>) -> Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let Some(mut archive) = self.archive.take() else { return Ok(()) };
        about.insert(MARK.into(), 1.into());
        about.insert(RECORDS.into(), serde_json::to_value(&self.records).expect("plain data"));
        archive.set_attributes(about);
        archive.finish()?.publish()
    }
}

impl Recorder for ViewFile {
    fn saw(&mut self, record: &ViewRecord<'_>) {
        let (Some(archive), None) = (&mut self.archive, &self.failed) else { return };
        let (element, descr) = numpy(record.element);
        // The list is written at the end; the index in it is the number.
        let name = format!("{:06}", self.records.len());
        let ViewRecord { knowledge, kind, tag, from, to, shape: (rows, cols), bytes, .. } = *record;
        match archive.array(&name, descr, &[rows, cols], bytes) {
            Ok(()) => self.records.push(Record {
                knowledge,
                kind: kind.into(),
                payload: tag.map(|tag| tag.payload.name().into()),
                iteration: self.iteration,
                from,
                to,
                element: element.into(),
                rows,
                cols,
            }),
            Err(e) => self.failed = Some(e),
        }
    }
}

/// A recorded view, open for reading.
#[derive(Debug)]
pub struct RecordedView {
    pub path: PathBuf,
    matrices: Matrices,
    about: Map<String, Value>,
    pub records: Vec<Record>,
}

impl RecordedView {
    /// Opens a file of `--record-view`.
    ///
    /// # Errors
    /// If it cannot be read, or is another kind of file.
    pub fn open(path: &Path) -> Result<Self> {
        let no_view = |why: &str| {
            Error::input(format!("{}: is no view of a rank ({why}); give a file of --record-view", path.display()))
        };
        if !path.exists() {
            return Err(Error::input(format!(
                "{}: there is no such file; --record-view writes one for each rank, with its number in the name",
                path.display()
            )));
        }
        let (matrices, mut about) = Matrices::open(path).map_err(|e| no_view(&e))?;
        if about.get(MARK).and_then(Value::as_u64) != Some(1) {
            return Err(no_view("it does not say that it is one"));
        }
        let records = about.remove(RECORDS).unwrap_or_default();
        let records: Vec<Record> = serde_json::from_value(records).map_err(|e| no_view(&e.to_string()))?;
        for (at, record) in records.iter().enumerate() {
            if matrices.matrix(&format!("{at:06}")).map(|(shape, _)| shape) != Some((record.rows, record.cols)) {
                return Err(no_view(&format!("record {at} is missing")));
            }
        }
        Ok(RecordedView { path: path.to_path_buf(), matrices, about, records })
    }

    /// The public parameters of the run.
    pub fn about(&self) -> &Map<String, Value> {
        &self.about
    }

    /// A parameter of the method.
    pub fn param(&self, name: &str) -> &Value {
        self.about.get("params").map_or(&Value::Null, |params| &params[name])
    }

    /// A public count or size.
    ///
    /// # Errors
    /// If the view does not have it.
    pub fn count(&self, name: &str) -> Result<usize> {
        let found = self.about.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        found.ok_or_else(|| Error::input(format!("{}: does not tell {name}; record it again", self.path.display())))
    }

    /// The values of a record.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn values(&self, at: usize) -> Result<Array2<f64>> {
        let Record { rows, cols, element, .. } = &self.records[at];
        let mut out = Array2::zeros((*rows, *cols));
        let name = format!("{at:06}");
        if element == "f32" {
            let mut narrow = Array2::<f32>::zeros((*rows, *cols));
            self.matrices.read(&name, 0, narrow.view_mut()).map_err(|e| e.at(self.path.display()))?;
            out.assign(&narrow.mapv(f64::from));
        } else {
            self.matrices.read(&name, 0, out.view_mut()).map_err(|e| e.at(self.path.display()))?;
        }
        Ok(out)
    }

    /// The values of a record of 64-bit words.
    ///
    /// # Errors
    /// If they cannot be read, or are of another type.
    pub fn words(&self, at: usize) -> Result<Vec<u64>> {
        self.matrices.words(&format!("{at:06}")).map_err(|e| e.at(self.path.display()))
    }

    /// The numbers of the records of a kind, in order.
    pub fn of_kind<'a>(&'a self, knowledge: Knowledge, kind: &'a str) -> impl Iterator<Item = usize> + 'a {
        let all = self.records.iter().enumerate();
        all.filter(move |(_, r)| r.knowledge == knowledge && r.kind == kind).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use fednmf_comm::{Communicator, MessageTag, Payload};

    use super::*;

    const TAG: MessageTag = MessageTag::new("a sum", Payload::Product);

    #[test]
    fn what_is_received_comes_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.npz");
        let comm = Communicator::local();
        let file = ViewFile::create(&path, 3).unwrap();
        comm.record_view(file.clone());
        let mut sum = [1.5, -2.0];
        comm.clone().sum(TAG, &mut sum);
        file.borrow_mut().turn_to(4);
        comm.split(0).all_to_all(TAG, &[vec![7u64]]);
        comm.opened(TAG, Some((1, 0)), &[0.25f32]);
        comm.knows("V", Some(2), (2, 3), &[0u8, 1, 2, 3, 4, 5]);
        comm.end_view();
        comm.sum(TAG, &mut sum);
        file.borrow_mut().finish(Map::new()).unwrap();

        let written = file_of(&path, 3);
        assert_eq!(written, dir.path().join("v.rank-03.npz"));
        assert_eq!(std::fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600);
        let view = RecordedView::open(&written).unwrap();
        let all: Vec<_> =
            view.records.iter().map(|r| (r.knowledge, r.kind.as_str(), r.iteration, r.from, r.to)).collect();
        assert_eq!(
            all,
            [
                (Knowledge::Received, "a sum", 0, None, None),
                (Knowledge::Opened, "a sum", 4, Some(1), Some(0)),
                (Knowledge::Own, "V", 4, None, Some(2)),
            ]
        );
        assert_eq!(view.values(0).unwrap(), ndarray::array![[1.5, -2.0]]);
        assert_eq!(view.values(1).unwrap(), ndarray::array![[0.25]]);
        assert_eq!(view.values(2).unwrap(), ndarray::array![[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        assert_eq!(view.records[0].payload.as_deref(), Some("Product"));
    }

    #[test]
    fn an_unfinished_view_leaves_nothing_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        drop(ViewFile::create(&path, 0).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(&path, "text").unwrap();
        let refused = RecordedView::open(&path).unwrap_err();
        assert!(refused.exit_code() == 2 && refused.message.contains("--record-view"), "{refused}");
    }
}
