//! The report at the end of a run (`--report`).

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::Map;

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::{CONTROL, Communicator};
use fednmf_data::messages::SAMPLE;
use fednmf_data::state::{Owner, Piece};
use fednmf_data::{Loaded, Tile};
use fednmf_files::output::matrices;
use fednmf_files::output::matrices::Stored;
use fednmf_files::{InputSpec, names};
use fednmf_linalg::{Block, ContiguousMut, Real};
use fednmf_methods::parameters::Missing as MissingEntries;
use fednmf_privacy::Public;
use fednmf_report as report;
use fednmf_report::{Display, History, Lines, Run, Sample};

use super::plan::Planned;
use super::spec::Outputs;
use crate::trace::Trace;

/// The field of the start event with the party whose part of the matrix is the input; null if the input is the whole
/// matrix.
pub const OWN_INPUT_OF: &str = "own_input_of";

/// Sample lines of a run's data, from which the report chooses; `None` if the data is private to parties, or no report is
/// requested. Collective.
///
/// # Errors
/// On all ranks, if data that are read in panels cannot be read.
pub fn sample_of<T: Real>(
    planned: &Planned,
    loaded: &mut Loaded<T>,
    comm: &Communicator,
) -> SharedResult<Option<Sample>> {
    let report = planned.outputs.report.as_ref().zip(planned.lines).filter(|_| !planned.is_private());
    let Some(((_, display), lines)) = report else { return Ok(None) };
    let mut sample = sample(lines, display.rows, loaded, comm)?;
    if planned.method.groups().missing.is_some_and(|group| group.missing == MissingEntries::ZeroUnobserved) {
        hide_zeros(&mut sample);
    }
    Ok(Some(sample))
}

/// Marks the zeros of a sample as missing.
pub fn hide_zeros(sample: &mut Sample) {
    sample.values.mapv_inplace(|x| if x == 0.0 { f64::NAN } else { x });
}

/// Marks the entries of a sample at these places as missing; a rank knows those in its rows. Collective.
pub fn hide_marked(sample: &mut Sample, marks: &[(usize, usize)], comm: &Communicator) {
    let mut hidden = Array2::zeros(sample.values.raw_dim());
    for &(i, j) in marks {
        let (line, entry) = if sample.lines == Lines::Rows { (i, j) } else { (j, i) };
        if let Some(shown) = sample.at.iter().position(|at| *at == line) {
            hidden[[shown, entry]] = 1.0;
        }
    }
    comm.sum(SAMPLE, hidden.row_major_mut());
    sample.values.zip_mut_with(&hidden, |x, hidden| *x = if *hidden > 0.0 { f64::NAN } else { *x });
}

/// Lines of the matrix from which a report chooses `shown`, assembled from all ranks' blocks or panels. Collective.
///
/// # Errors
/// On all ranks, if data that are read in panels cannot be read.
pub fn sample<T: Real>(
    lines: Lines,
    shown: usize,
    loaded: &mut Loaded<T>,
    comm: &Communicator,
) -> SharedResult<Sample> {
    let shape = (loaded.header.rows, loaded.header.cols);
    let mut own = OwnLines::new(lines, shown, shape);
    if let Some(panels) = &mut loaded.panels {
        let first = loaded.cuts.rows[comm.rank()].start;
        let read = panels.pass(comm, |rows, block| {
            own.take(block, &Tile { rows: first + rows.start..first + rows.end, cols: 0..shape.1, transposed: false });
            Ok(())
        });
        comm.agree_on_error(read)?;
    }
    // If two blocks each cover the matrix, the second one is stored untransposed.
    let tiles = loaded.layout.tiles(&loaded.cuts, comm.rank());
    if let (Some(block), Some(tile)) = (loaded.blocks.last(), tiles.last()) {
        own.take(block, tile);
    }
    Ok(own.sum(comm))
}

/// A rank's part of the lines of a sample; zeros elsewhere.
struct OwnLines {
    lines: Lines,
    total: usize,
    at: Vec<usize>,
    values: Array2<f64>,
}

impl OwnLines {
    /// Zeros for the lines of a matrix from which a report chooses `shown`.
    fn new(lines: Lines, shown: usize, shape: (usize, usize)) -> Self {
        let (total, length) = lines.shape(shape);
        let at = report::candidates(shown, (total, length));
        let values = Array2::zeros((at.len(), length));
        OwnLines { lines, total, at, values }
    }

    /// Copies the entries of the sampled lines from the block of a tile.
    fn take<T: Real>(&mut self, block: &Block<T>, tile: &Tile) {
        for (&line, mut out) in self.at.iter().zip(self.values.rows_mut()) {
            match self.lines {
                Lines::Rows if tile.rows.contains(&line) => {
                    let mut part = vec![0.0; tile.cols.len()];
                    block.widen_row(line - tile.rows.start, 0, &mut part);
                    out.iter_mut().skip(tile.cols.start).zip(part).for_each(|(out, x)| *out = x);
                }
                Lines::Columns if tile.cols.contains(&line) => {
                    for (i, out) in out.iter_mut().skip(tile.rows.start).take(tile.rows.len()).enumerate() {
                        block.widen_row(i, line - tile.cols.start, std::slice::from_mut(out));
                    }
                }
                _ => {}
            }
        }
    }

    /// The sample, summed over all ranks. Collective.
    fn sum(mut self, comm: &Communicator) -> Sample {
        comm.sum(SAMPLE, self.values.row_major_mut());
        Sample { lines: self.lines, total: self.total, at: self.at, values: self.values }
    }
}

/// The history of a run so far.
///
/// # Errors
/// If the trace of a resumed run cannot be read.
pub fn history(planned: &Planned, trace: &Trace) -> Result<History> {
    match planned.spec.trace.as_ref().filter(|p| p.is_file() && planned.spec.resume) {
        // The file also contains the part before the resume.
        Some(trace) => History::read(trace),
        None => History::new(planned.description().name.to_string(), trace.events().iter().cloned(), PathBuf::new()),
    }
}

/// Whether a file of factors is missing.
struct Missing([u32; 1]);

impl Public for Missing {
    const WHY: &'static str = "an option, and whether a file can be read";
}

impl AsMut<[u32]> for Missing {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

/// Writes the report of a run if one is requested. Collective.
///
/// # Errors
/// On all ranks, if it cannot be written.
pub fn of_run<T: Real>(
    planned: &Planned,
    outputs: &Outputs,
    comm: &Communicator,
    trace: &Trace,
    factors: &[Piece<'_, T>],
    sample: Option<Sample>,
) -> SharedResult<()> {
    let Some((path, display)) = &outputs.report else { return Ok(()) };
    // The plots read a file of factors, so that no rank needs to hold all of them.
    let lacks = comm.reports() && outputs.factors.as_ref().is_none_or(|p| Stored::open(p).is_err());
    let mut missing = Missing([u32::from(lacks)]);
    comm.max_public(CONTROL, &mut missing);
    let output = outputs.factors.clone().filter(|_| missing.0[0] == 0);
    let file = output.clone().unwrap_or_else(|| temporary(path));
    if output.is_none() {
        let shared = |p: &&Piece<'_, T>| p.owner == Owner::Shared;
        let shared: Vec<Piece<'_, T>> = factors
            .iter()
            .filter(shared)
            .map(|p| Piece::shared(p.name, p.total_rows, p.first_row, p.values.view()))
            .collect();
        matrices::write(comm, &file, &shared, &Map::new())?;
    }
    let write = || {
        let history = history(planned, trace)?;
        let display = with_names(display, &planned.input, (history.count("m"), history.count("n")));
        let private = || "The rows of the matrix are the parties' own: they are not shown.".to_string();
        let (sample, notes) = (sample.ok_or_else(private), Vec::new());
        let factors = Stored::open(&file).map_err(|e| e.to_string());
        report::write(path, vec![Run { history, factors, sample, display, notes }], planned.results_access())
    };
    let written = if comm.reports() { write() } else { Ok(()) };
    if output.is_none() && comm.reports() {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(&file);
    }
    comm.agree_on_error(written)
}

/// The name of a temporary file of factors in the directory of the report.
fn temporary(report: &Path) -> PathBuf {
    let mut name = report.file_name().unwrap_or_default().to_os_string();
    name.push(".factors.h5");
    report.with_file_name(name)
}

/// The display options for an m × n matrix, completed with the input's names of what is shown with its reconstruction, and of its
/// columns if neither names nor an image was requested.
pub fn with_names(display: &Display, input: &InputSpec, (m, n): (usize, usize)) -> Display {
    let mut display = display.clone();
    let names = names::of_input(input);
    let (rows, columns) = (names.rows.filter(|names| names.len() == m), names.columns.filter(|names| names.len() == n));
    if matches!(display.lines((m, n)), Ok(Some(Lines::Columns))) {
        display.line_names = columns;
        return display;
    }
    if display.image.is_none() && display.names.is_none() {
        display.names = columns;
    }
    display.line_names = rows;
    display
}
