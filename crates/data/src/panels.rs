//! A matrix that is not held in memory: each pass over it reads the rows of a rank from the file, a panel at a time.
//!
//! A [`RowSource`] reads panels on a separate thread. There are two buffers: one panel is read while the other is used.
//! [`Panels`] passes each panel to the computation and its memory back to the thread. As the order of panels is always the
//! same, the thread begins with the next pass before it is requested. It is started by the first pass.
//!
//! The file is read and not mapped: mapped pages would count as memory of the process, and if the file became shorter,
//! access to a lost page would end the process by a signal instead of an error message.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, watchdog};
use fednmf_linalg::{Block, Csr, CsrMatrix, Real};

use crate::assemble::LocalBlock;

/// The phase in which a rank waits for its reader.
pub const WAITING: &str = "wait for the file";
/// The span of a pass over the rows of a rank.
pub const PASS: &str = "pass over the file";

/// The place from which the rows of a matrix are read; not open yet.
pub trait RowSource<T: Real>: Send + Sync {
    /// Number of columns of the matrix.
    fn cols(&self) -> usize;

    fn is_sparse(&self) -> bool;

    /// Opens the source; called on the reading thread.
    ///
    /// # Errors
    /// If it cannot be opened, or is damaged.
    fn open(&self) -> Result<Box<dyn OpenRows<T> + '_>>;
}

/// An open source of rows.
pub trait OpenRows<T: Real> {
    /// Reads the rows `rows` of the matrix into the memory of an old panel.
    ///
    /// # Errors
    /// If the source does not hold them, has changed, or has an entry that is not accepted.
    fn fill(&mut self, rows: &Range<usize>, memory: LocalBlock<T>) -> Result<Filled<T>>;
}

/// Counts of duplicates and stored zeros in the file, which the panels no longer contain.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Entries that were added to another one at the same position.
    pub duplicates: u64,
    /// Zeros that the file stores.
    pub stored_zeros: u64,
}

/// A panel that was read, and its counts.
pub struct Filled<T: Real> {
    pub panel: LocalBlock<T>,
    pub counts: Counts,
}

/// Panels in memory at a time: the one in use, and the one that is being read.
const BUFFERS: usize = 2;

/// The rows of a rank, in panels that are read from a file in each pass.
pub struct Panels<T: Real> {
    source: Arc<dyn RowSource<T>>,
    /// The rank's first row.
    first: usize,
    /// The rows of each panel, counted from the rank's first row, in the order in which they are read.
    cuts: Vec<Range<usize>>,
    /// The panel that is read next.
    next: usize,
    /// The panel in use.
    block: Block<T>,
    reader: State<T>,
}

/// Whether the rows are being read.
enum State<T: Real> {
    Idle,
    Reading(Reader<T>),
    Failed,
}

/// The reading thread, which runs until its channels are closed.
struct Reader<T: Real> {
    empty: Sender<LocalBlock<T>>,
    filled: Receiver<Result<Filled<T>>>,
    thread: JoinHandle<()>,
}

impl<T: Real> Panels<T> {
    /// The rows `first ..` of the matrix in panels. `cuts` are the rows of each, counted from `first`.
    pub fn new(source: Arc<dyn RowSource<T>>, first: usize, cuts: Vec<Range<usize>>) -> Self {
        let block = no_rows(&*source).finish();
        Panels { source, first, cuts, next: 0, block, reader: State::Idle }
    }

    /// The same panels for another computation, which has a reader and memory of its own as soon as it reads.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut cuts = self.cuts.clone();
        cuts.sort_unstable_by_key(|rows| rows.start);
        Panels::new(self.source.clone(), self.first, cuts)
    }

    /// Starts the thread, which reads the panel `next` first.
    fn begin(&mut self) -> Result<()> {
        let Panels { source, first, cuts, next, .. } = self;
        let (empty, to_fill) = channel();
        let (out, filled) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            // Cannot fail: the receiver is still in this function.
            let _ = empty.send(no_rows(&**source));
        }
        let in_order = cuts[*next..].iter().chain(&cuts[..*next]);
        let rows: Vec<Range<usize>> = in_order.map(|rows| *first + rows.start..*first + rows.end).collect();
        let source = source.clone();
        let thread =
            std::thread::Builder::new().name("reader".into()).spawn(move || read(&*source, &rows, &to_fill, &out));
        let thread = thread.map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
        self.reader = State::Reading(Reader { empty, filled, thread });
        Ok(())
    }

    /// Reads the rank's rows in the order of `parts` from now on, beginning with part `next`. The parts are disjoint, and
    /// cover all rows, counted from the rank's first row. No panel becomes longer than before. Returns the number of panels of
    /// each part.
    pub fn reorder(&mut self, parts: &[Range<usize>], next: usize) -> Vec<usize> {
        self.end();
        self.cuts.sort_unstable_by_key(|rows| rows.start);
        let former = std::mem::take(&mut self.cuts);
        let mut counts = Vec::with_capacity(parts.len());
        for part in parts {
            let from = former.partition_point(|rows| rows.end <= part.start);
            let within = former[from..].iter().take_while(|rows| rows.start < part.end);
            let before = self.cuts.len();
            self.cuts.extend(within.map(|rows| rows.start.max(part.start)..rows.end.min(part.end)));
            counts.push(self.cuts.len() - before);
        }
        self.next = counts[..next].iter().sum::<usize>() % self.cuts.len().max(1);
        self.reader = State::Idle;
        counts
    }

    /// A block without rows, of the same kind as the panels.
    pub fn empty_block(&self) -> Block<T> {
        match &self.block {
            Block::Sparse(_) => Block::Sparse(Csr::from_rows(empty(self.source.cols()))),
            _ => Block::Dense(Array2::zeros((0, self.source.cols())).into()),
        }
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        self.cuts.len()
    }

    /// Rows of the largest panel.
    pub fn rows(&self) -> usize {
        self.cuts.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// Calls `f` with the rows of this rank: the whole block at once if it is in memory, otherwise a panel at a time as in
    /// [`Panels::pass`]. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn pass_over(
        panels: &mut Option<Panels<T>>,
        block: Option<&Block<T>>,
        comm: &Communicator,
        mut f: impl FnMut(Range<usize>, &Block<T>),
    ) -> SharedResult<()> {
        let read = match (panels, block) {
            (Some(panels), _) => panels
                .pass(comm, |rows, block| {
                    f(rows, block);
                    Ok(())
                })
                .map(drop),
            (None, Some(block)) => {
                f(0..block.shape().0, block);
                Ok(())
            }
            (None, None) => Err(Error::failed("a rank has no block")),
        };
        comm.agree_on_error(read)
    }

    /// Reads all panels in order and calls `f` with the rows of each, counted from the rank's first row, and the panel. The
    /// time spent waiting for panels is recorded as [`WAITING`].
    ///
    /// # Errors
    /// If the file cannot be read, has changed, or `f` fails; then no further pass is possible. Only on this rank.
    pub fn pass(
        &mut self,
        comm: &Communicator,
        f: impl FnMut(Range<usize>, &Block<T>) -> Result<()>,
    ) -> Result<Counts> {
        comm.span(PASS, || self.read_next(comm, self.cuts.len(), f))
    }

    /// Reads the next `count` panels; otherwise as [`Panels::pass`]. The panel after the last one is the first.
    ///
    /// # Errors
    /// As [`Panels::pass`].
    pub fn read_next(
        &mut self,
        comm: &Communicator,
        count: usize,
        mut f: impl FnMut(Range<usize>, &Block<T>) -> Result<()>,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        for _ in 0..count {
            if let State::Idle = self.reader {
                self.begin()?;
            }
            let State::Reading(reader) = &self.reader else {
                return Err(Error::failed("the input could not be read"));
            };
            let rows = self.cuts[self.next].clone();
            self.next = (self.next + 1) % self.cuts.len();
            let read = comm.work(WAITING, || reader.filled.recv());
            let done = read.map_err(|_| Error::failed("the reader of the input has ended")).and_then(|read| {
                let Filled { panel, counts: more } = read?;
                counts.duplicates += more.duplicates;
                counts.stored_zeros += more.stored_zeros;
                let used = exchange(&mut self.block, panel);
                f(rows, &self.block)?;
                Ok(used)
            });
            match done {
                Ok(used) => {
                    let _ = reader.empty.send(used);
                }
                Err(e) => {
                    self.end();
                    return Err(e);
                }
            }
            watchdog::step();
        }
        Ok(counts)
    }

    fn end(&mut self) {
        if let State::Reading(Reader { empty, filled, thread }) = std::mem::replace(&mut self.reader, State::Failed) {
            drop((empty, filled));
            // A panic of the thread has already ended the program.
            let _ = thread.join();
        }
    }
}

impl<T: Real> Drop for Panels<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Replaces the panel in use by a new one, and returns the memory of the old one.
fn exchange<T: Real>(block: &mut Block<T>, panel: LocalBlock<T>) -> LocalBlock<T> {
    match (block, panel) {
        (Block::Sparse(block), LocalBlock::Sparse(panel)) => LocalBlock::Sparse(block.replace(panel)),
        (Block::Dense(block), LocalBlock::Dense(panel)) => LocalBlock::Dense(std::mem::replace(block, panel)),
        (block, panel) => {
            *block = panel.finish();
            LocalBlock::Sparse(empty(0))
        }
    }
}

/// The body of the thread: fills buffers with the next panel until the channel is closed or an error has been sent.
fn read<T: Real>(
    source: &dyn RowSource<T>,
    rows: &[Range<usize>],
    to_fill: &Receiver<LocalBlock<T>>,
    out: &SyncSender<Result<Filled<T>>>,
) {
    let all = || -> Result<()> {
        let mut opened = source.open()?;
        for rows in rows.iter().cycle() {
            let Ok(memory) = to_fill.recv() else { return Ok(()) };
            if out.send(Ok(opened.fill(rows, memory)?)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    };
    if let Err(e) = all() {
        let _ = out.send(Err(e));
    }
}

/// The memory of a panel that was not read yet.
fn no_rows<T: Real>(source: &dyn RowSource<T>) -> LocalBlock<T> {
    match source.is_sparse() {
        true => LocalBlock::Sparse(empty(source.cols())),
        false => LocalBlock::Dense(Array2::zeros((0, source.cols())).into()),
    }
}

/// A sparse matrix without rows.
pub fn empty<T: Real>(cols: usize) -> CsrMatrix<T> {
    CsrMatrix::new((0, cols), vec![0], Vec::new().into(), Vec::new().into())
}
