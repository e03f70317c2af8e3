//! What the targets share: a communicator of one rank, a temporary file, and a run of a reader.

use std::path::PathBuf;

use fednmf_comm::Communicator;
use fednmf_data::{Layout, Loaded};
use fednmf_files as data;
use fednmf_files::{InputSpec, TableFormat};

/// Of a matrix with more rows or columns than this, only the header is read: the memory for so many would be legitimate,
/// but would stop the fuzzer.
const MOST: usize = 200_000;
/// Likewise for the entries of a dense matrix.
const ENTRIES: usize = 4_000_000;
/// The extension of files that are read as triples.
pub const TRIPLES: &str = "data";

thread_local! {
    static COMM: Communicator = Communicator::local();
}

/// Path of a file of this process in memory.
fn place(ending: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/fednmf-fuzz-{}.{ending}", std::process::id()))
}

/// Writes `bytes` to a file with that extension and calls `f` with its path.
pub fn with_file(ending: &str, bytes: &[u8], f: impl FnOnce(&str)) {
    let path = place(ending);
    std::fs::write(&path, bytes).expect("there is room in /dev/shm");
    f(&path.to_string_lossy());
    let _ = std::fs::remove_file(path);
}

/// Reads `bytes` as a matrix file with that extension; the matrix, if there is one, must be consistent.
pub fn read(ending: &str, bytes: &[u8], narrow: bool, transpose: bool) {
    with_file(ending, bytes, |path| {
        COMM.with(|comm| {
            let Ok(mut spec) = InputSpec::parse(path) else { return };
            spec.transpose = transpose;
            if ending == TRIPLES {
                spec.table.format = TableFormat::Triples;
            }
            spec.allow_negative = narrow;
            let Ok(input) = data::open(&spec, comm) else { return };
            let header = input.header().clone();
            let dense = if header.sparse { 0 } else { header.rows.saturating_mul(header.cols) };
            if header.rows.max(header.cols) > MOST || dense > ENTRIES {
                return;
            }
            let layout = Layout::RowsAndColumns { ranks: 1 };
            if narrow {
                check(input.load::<f32>(&layout, comm, &mut |_| ()), header.rows, header.cols);
            } else {
                check(input.load::<f64>(&layout, comm, &mut |_| ()), header.rows, header.cols);
            }
        });
    });
}

fn check<T: fednmf_linalg::Real>(loaded: fednmf_base::error::SharedResult<Loaded<T>>, rows: usize, cols: usize) {
    let Ok(loaded) = loaded else { return };
    assert_eq!((loaded.header.rows, loaded.header.cols), (rows, cols));
    let statistics = loaded.statistics;
    assert!(
        statistics.nonzeros > 0
            && statistics.min <= statistics.max
            && statistics.max.is_finite()
            && statistics.min.is_finite()
    );
    for block in &loaded.blocks {
        let (r, c) = block.shape();
        assert!((r, c) == (rows, cols) || (c, r) == (rows, cols));
    }
}
