//! A matrix that is not held in memory: each pass over it reads the rows of a rank from the file, a panel at a time.
//!
//! A [`RowSource`] reads panels, on a thread of its own. [`Panels`] hands them to the computation and the memory
//! back to the thread: two panels exist, one is read while the other is worked on. As the order of panels is always the
//! same, the thread begins with the next pass before it is requested.
//!
//! The file is read and not mapped: mapped pages would count as memory of the process, and one that a shorter file no
//! longer has would end it by a signal instead of a message.

use std::ops::Range;
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

/// Where the rows of a matrix are read from, as a plan: nothing is open.
pub trait RowSource<T: Real>: Send {
    /// Number of columns of the matrix.
    fn cols(&self) -> usize;

    fn is_sparse(&self) -> bool;

    /// Opens the source, on the thread that reads it.
    ///
    /// # Errors
    /// If it cannot be opened, or is damaged.
    fn open(&self) -> Result<Box<dyn OpenRows<T> + '_>>;
}

/// An open source of rows.
pub trait OpenRows<T: Real> {
    /// The rows `rows` of the matrix, in the memory of another panel.
    ///
    /// # Errors
    /// If the source does not hold them, has changed, or has an entry that is not accepted.
    fn fill(&mut self, rows: &Range<usize>, memory: LocalBlock<T>) -> Result<Filled<T>>;
}

/// What the entries of a pass were like before they were put in order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Entries that were added to another one in the same position.
    pub duplicates: u64,
    /// Zeros that the file stores.
    pub stored_zeros: u64,
}

/// A panel that was read, and what its entries were like.
pub struct Filled<T: Real> {
    pub panel: LocalBlock<T>,
    pub counts: Counts,
}

/// Panels in memory at a time: the one that is worked on, and the one that is read.
const BUFFERS: usize = 2;

/// The rows of a rank, in panels that are read from a file in each pass.
pub struct Panels<T: Real> {
    /// The rows of each panel, counted from the first of the rank.
    cuts: Vec<Range<usize>>,
    /// Number of columns.
    cols: usize,
    /// The panel that is worked on.
    block: Block<T>,
    /// `None` once reading has failed.
    reader: Option<Reader<T>>,
}

/// The reading thread, which runs as long as it has a receiver.
struct Reader<T: Real> {
    empty: Sender<LocalBlock<T>>,
    filled: Receiver<Result<Filled<T>>>,
    thread: JoinHandle<()>,
}

impl<T: Real> Panels<T> {
    /// Starts to read panels of the rows `first ..` of the matrix, `cuts` counting from there.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(source: Box<dyn RowSource<T>>, first: usize, cuts: Vec<Range<usize>>) -> Result<Self> {
        let (cols, sparse) = (source.cols(), source.is_sparse());
        let nothing = || -> LocalBlock<T> {
            match sparse {
                true => LocalBlock::Sparse(empty(cols)),
                false => LocalBlock::Dense(Array2::zeros((0, cols)).into()),
            }
        };
        let block = nothing().finish();
        if cuts.is_empty() {
            return Ok(Panels { cuts, cols, block, reader: None });
        }
        let (empty, to_fill) = channel();
        let (out, filled) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            // The receiver is here.
            let _ = empty.send(nothing());
        }
        let rows: Vec<Range<usize>> = cuts.iter().map(|rows| first + rows.start..first + rows.end).collect();
        let thread =
            std::thread::Builder::new().name("reader".into()).spawn(move || read(&*source, &rows, &to_fill, &out));
        let thread = thread.map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
        Ok(Panels { cuts, cols, block, reader: Some(Reader { empty, filled, thread }) })
    }

    /// A block without rows, of the same kind as the panels.
    pub fn empty_block(&self) -> Block<T> {
        match &self.block {
            Block::Sparse(_) => Block::Sparse(Csr::from_rows(empty(self.cols))),
            _ => Block::Dense(Array2::zeros((0, self.cols)).into()),
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

    /// The rows of this rank's blocks one after the other: all of a block that is in memory at once, or a panel at a time,
    /// as [`Panels::pass`]. Collective.
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

    /// Reads all panels in order and calls `f` with the rows of each, counted from the rank's first, and the panel. The
    /// time that passes until a panel is there is recorded as [`WAITING`].
    ///
    /// # Errors
    /// If the file cannot be read, has changed, or `f` fails; then no other pass is possible. Only on this rank.
    pub fn pass(
        &mut self,
        comm: &Communicator,
        f: impl FnMut(Range<usize>, &Block<T>) -> Result<()>,
    ) -> Result<Counts> {
        comm.span(PASS, || self.read_all(comm, f))
    }

    fn read_all(
        &mut self,
        comm: &Communicator,
        mut f: impl FnMut(Range<usize>, &Block<T>) -> Result<()>,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        for rows in self.cuts.clone() {
            let Some(reader) = &self.reader else { return Err(Error::failed("the input could not be read")) };
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
        if let Some(Reader { empty, filled, thread }) = self.reader.take() {
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

/// Replaces a panel by another one and returns the memory of the old one.
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

/// The body of the thread: fills buffers with the next panel until there is no buffer, or an error has been passed on.
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

/// A sparse matrix without rows.
pub fn empty<T: Real>(cols: usize) -> CsrMatrix<T> {
    CsrMatrix::new((0, cols), vec![0], Vec::new().into(), Vec::new().into())
}
