//! The matrices that the library takes: views of the caller's, and files.

use std::any::TypeId;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ndarray::{Array2, ArrayBase, ArrayView2, CowArray, Data, Ix2};
use sprs::{CsMatBase, CsMatI, SpIndex};

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::assemble::LocalBlock;
use fednmf_data::panels::{Counts, Filled, OpenRows, RowSource};
use fednmf_data::policy::EntryPolicy;
use fednmf_data::{Header, Layout, Loaded, NanRemedy};
use fednmf_driver::plan::Footprint;
use fednmf_driver::spec::Precision;
use fednmf_files as files;
use fednmf_files::InputSpec;
use fednmf_linalg::{Block, CowSlice, CsrMatrix};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use super::Real;

/// A matrix that is borrowed for the time of a call: dense in any memory order, or compressed sparse rows.
///
/// Made by `into()` from `ndarray` arrays and views, `sprs` matrices and views (CSR or CSC, with any index type), or a
/// [`Matrix`]. A dense matrix, and a sparse one in CSR with `i32` column indices, is not copied; CSC and other index types
/// are converted.
///
/// ```
/// use fednmf::MatrixView;
/// use ndarray::array;
///
/// let x = array![[1.0, 0.0], [2.0, 3.0]];
/// assert_eq!(MatrixView::from(&x).shape(), (2, 2));
/// let x = sprs::CsMat::csc_from_dense(x.view(), 0.0);
/// assert_eq!(MatrixView::from(&x).shape(), (2, 2));
/// ```
#[derive(Clone)]
pub struct MatrixView<'a, T: Real>(Kind<'a, T>);

#[derive(Clone)]
enum Kind<'a, T: Real> {
    Dense(ArrayView2<'a, T>),
    Sparse {
        shape: (usize, usize),
        starts: Vec<usize>,
        indices: Entries<'a, i32>,
        values: Entries<'a, T>,
    },
    /// Read by rows in each pass.
    Rows(Arc<Rows<T>>),
    /// It cannot be represented.
    Refused(Error, (usize, usize)),
}

/// A matrix whose rows are read.
pub(super) struct Rows<T> {
    shape: (usize, usize),
    sparse: bool,
    at_once: usize,
    read: Box<dyn Fn(Range<usize>) -> Result<Matrix<T>> + Send + Sync>,
}

/// Entries that are borrowed, or were converted.
#[derive(Clone)]
enum Entries<'a, E> {
    Borrowed(&'a [E]),
    Converted(Vec<E>),
}

impl<'a, T: Real> MatrixView<'a, T> {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match &self.0 {
            Kind::Dense(x) => x.dim(),
            Kind::Sparse { shape, .. } | Kind::Refused(_, shape) => *shape,
            Kind::Rows(rows) => rows.shape,
        }
    }

    pub(super) fn is_sparse(&self) -> bool {
        match &self.0 {
            Kind::Sparse { .. } => true,
            Kind::Rows(rows) => rows.sparse,
            Kind::Dense(_) | Kind::Refused(..) => false,
        }
    }

    /// The source of a matrix that is not in memory.
    pub(super) fn rows(&self) -> Option<Arc<Rows<T>>> {
        if let Kind::Rows(rows) = &self.0 { Some(rows.clone()) } else { None }
    }

    /// A matrix that is not in memory: each pass over it calls `read` with `at_once` rows after the other, on a thread of its own
    /// and ahead of the computation. `sparse` says what `read` returns: a sparse matrix in CSR, whose columns ascend in each row
    /// and which has no zeros, or a dense one. A run holds three of these parts and the factors. It is for `hals`, `bpp`, `mu`,
    /// `kl-mu` and the online methods, and for [`Search`](super::Search) without held-out entries.
    ///
    /// ```
    /// use fednmf::prelude::*;
    /// use fednmf::MatrixView;
    /// use ndarray::Array2;
    ///
    /// let entry = |i: usize, j: usize| ((i % 3 + 1) * (j + 1)) as f64;
    /// let read = move |rows: std::ops::Range<usize>| {
    ///     Ok(Matrix::Dense(Array2::from_shape_fn((rows.len(), 8), |(i, j)| entry(rows.start + i, j))))
    /// };
    /// let fit = Hals::new(1).fit(MatrixView::from_rows((100, 8), false, 20, read))?;
    /// assert!(fit.relative_error() < 1e-6);
    /// # Ok::<(), fednmf::Error>(())
    /// ```
    pub fn from_rows(
        shape: (usize, usize),
        sparse: bool,
        at_once: usize,
        read: impl Fn(Range<usize>) -> Result<Matrix<T>> + Send + Sync + 'static,
    ) -> Self {
        MatrixView(Kind::Rows(Arc::new(Rows { shape, sparse, at_once, read: Box::new(read) })))
    }

    /// A matrix in compressed sparse rows: `starts` (rows + 1) bounds the entries of each row in `columns`, which ascend
    /// in each row, and `values`.
    ///
    /// # Errors
    /// If the arrays do not describe a matrix of this shape.
    pub fn from_csr(shape: (usize, usize), starts: Vec<usize>, columns: &'a [i32], values: &'a [T]) -> Result<Self> {
        sprs::CsMatViewI::<T, i32, usize>::try_new(shape, &starts, columns, values)
            .map_err(|(.., e)| Error::input(format!("the sparse matrix is not valid: {e}")))?;
        let (indices, values) = (Entries::Borrowed(columns), Entries::Borrowed(values));
        Ok(MatrixView(Kind::Sparse { shape, starts, indices, values }))
    }

    /// The matrix as the methods take it, borrowed with an unbounded lifetime.
    ///
    /// # Errors
    /// If it has too many columns for the sparse kernels.
    ///
    /// # Safety
    /// The result, and all that is made from it without a copy, must be dropped before `'a` ends.
    #[expect(unsafe_code, reason = "the lifetime of a borrowed matrix is not in the types of the methods")]
    pub(super) unsafe fn unbounded(self) -> Result<fednmf_data::Matrix<T>> {
        match self.0 {
            Kind::Dense(x) => {
                // SAFETY: the caller drops the view in time.
                let x = unsafe { std::mem::transmute::<ArrayView2<'a, T>, ArrayView2<'static, T>>(x) };
                Ok(fednmf_data::Matrix::Dense(CowArray::from(x)))
            }
            Kind::Sparse { shape, starts, indices, values } => {
                // SAFETY: the caller drops the slices in time.
                let (indices, values) = unsafe { (indices.unbounded(), values.unbounded()) };
                Ok(fednmf_data::Matrix::Sparse(CsrMatrix::new(shape, starts, indices, values)))
            }
            Kind::Rows(_) => Err(Error::input("the matrix must be in memory, and is read by rows")),
            Kind::Refused(error, _) => Err(error),
        }
    }
}

impl<T: Real> Rows<T> {
    /// The data of `method`, for k components.
    ///
    /// # Errors
    /// If the method needs them in memory, they cannot be read, or are refused.
    pub(super) fn load(
        self: Arc<Self>,
        method: &dyn ConfiguredMethod,
        (k, precision): (usize, Precision),
        comm: &Communicator,
    ) -> Result<Loaded<T>> {
        let header = &Header::in_memory(self.shape, self.sparse, None);
        let footprint = Footprint { k, method, header, precision, resuming: false };
        footprint.besides_panels(1, registry::ALL.iter()).map_err(Error::input)?;
        let (rows, at_once) = (self.shape.0, self.at_once);
        Loaded::in_panels(Arc::new(Source(self)), rows, at_once, comm)
    }
}

/// [`Rows`] as a source of panels.
struct Source<T>(Arc<Rows<T>>);

impl<T: Real> RowSource<T> for Source<T> {
    fn cols(&self) -> usize {
        self.0.shape.1
    }

    fn is_sparse(&self) -> bool {
        self.0.sparse
    }

    fn open(&self) -> Result<Box<dyn OpenRows<T> + '_>> {
        Ok(Box::new(Reader(&self.0)))
    }
}

struct Reader<'a, T>(&'a Rows<T>);

impl<T: Real> OpenRows<T> for Reader<'_, T> {
    fn fill(&mut self, rows: &Range<usize>, _memory: LocalBlock<T>) -> Result<Filled<T>> {
        let part = (self.0.read)(rows.clone())?;
        let (shape, expected) = (part.shape(), (rows.len(), self.0.shape.1));
        if shape != expected {
            return Err(Error::input(format!(
                "rows {} to {} are {} x {}, not {} x {}",
                rows.start, rows.end, shape.0, shape.1, expected.0, expected.1
            )));
        }
        let part = match part {
            Matrix::Dense(x) if !self.0.sparse => fednmf_data::Matrix::Dense(x.into()),
            Matrix::Sparse(x) if self.0.sparse && x.is_csr() => {
                let (starts, columns, values) = x.into_raw_storage();
                fednmf_data::Matrix::Sparse(CsrMatrix::new(expected, starts, columns.into(), values.into()))
            }
            _ => return Err(Error::input("some rows are stored otherwise than others: dense, in CSR or in CSC")),
        };
        let panel = part.checked_panel(rows.start, EntryPolicy::default())?;
        Ok(Filled { panel, counts: Counts::default() })
    }
}

impl<'a, E: Copy> Entries<'a, E> {
    /// # Safety
    /// As [`MatrixView::unbounded`].
    #[expect(unsafe_code, reason = "as MatrixView::unbounded")]
    unsafe fn unbounded(self) -> CowSlice<E> {
        match self {
            // SAFETY: the caller drops the slice in time.
            Entries::Borrowed(all) => CowSlice::Borrowed(unsafe { std::mem::transmute::<&'a [E], &'static [E]>(all) }),
            Entries::Converted(all) => CowSlice::Owned(all),
        }
    }
}

impl<'a, T: Real> From<ArrayView2<'a, T>> for MatrixView<'a, T> {
    fn from(x: ArrayView2<'a, T>) -> Self {
        MatrixView(Kind::Dense(x))
    }
}

impl<'a, T: Real, S: Data<Elem = T>> From<&'a ArrayBase<S, Ix2>> for MatrixView<'a, T> {
    fn from(x: &'a ArrayBase<S, Ix2>) -> Self {
        MatrixView(Kind::Dense(x.view()))
    }
}

impl<'a, T: Real, I, Iptr, IptrS, IndS, DataS> From<&'a CsMatBase<T, I, IptrS, IndS, DataS, Iptr>> for MatrixView<'a, T>
where
    I: SpIndex + 'static,
    Iptr: SpIndex,
    IptrS: std::ops::Deref<Target = [Iptr]>,
    IndS: std::ops::Deref<Target = [I]>,
    DataS: std::ops::Deref<Target = [T]>,
{
    fn from(x: &'a CsMatBase<T, I, IptrS, IndS, DataS, Iptr>) -> Self {
        let shape = x.shape();
        if i32::try_from(shape.1).is_err() {
            let what = format!("a sparse matrix has at most {} columns, not {}", i32::MAX, shape.1);
            return MatrixView(Kind::Refused(Error::input(what), shape));
        }
        let starts = |indptr: &[Iptr]| indptr.iter().map(|start| start.index()).collect();
        let narrow = |indices: &[I]| indices.iter().map(|j| j.index() as i32).collect();
        if x.is_csr() {
            let indices = match as_i32(x.indices()) {
                Some(indices) => Entries::Borrowed(indices),
                None => Entries::Converted(narrow(x.indices())),
            };
            let starts = starts(&x.indptr().to_proper());
            return MatrixView(Kind::Sparse { shape, starts, indices, values: Entries::Borrowed(x.data()) });
        }
        let rows = x.to_csr();
        let (starts, indices) = (starts(&rows.indptr().to_proper()), Entries::Converted(narrow(rows.indices())));
        MatrixView(Kind::Sparse { shape, starts, indices, values: Entries::Converted(rows.data().to_vec()) })
    }
}

/// The same indices, if they are of this type.
#[expect(unsafe_code, reason = "the type of a generic index is known only when the program runs")]
fn as_i32<I: 'static>(indices: &[I]) -> Option<&[i32]> {
    if TypeId::of::<I>() != TypeId::of::<i32>() {
        return None;
    }
    // SAFETY: I is i32.
    Some(unsafe { std::slice::from_raw_parts(indices.as_ptr().cast(), indices.len()) })
}

impl<'a, T: Real> From<&'a Matrix<T>> for MatrixView<'a, T> {
    fn from(x: &'a Matrix<T>) -> Self {
        match x {
            Matrix::Dense(x) => x.into(),
            Matrix::Sparse(x) => x.into(),
        }
    }
}

/// A matrix in memory, as it was read from a file.
///
/// ```
/// use fednmf::prelude::*;
///
/// let path = std::env::temp_dir().join(format!("fednmf-doc-{}.csv", std::process::id()));
/// std::fs::write(&path, "2,0,4\n1,0,2\n")?;
/// let x = Matrix::<f64>::open(&path)?;
/// assert_eq!(x.shape(), (2, 3));
/// assert!(Hals::new(1).fit(&x)?.relative_error() < 1e-6);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix<T> {
    /// All entries.
    Dense(Array2<T>),
    /// The nonzeros, in compressed sparse rows.
    Sparse(CsMatI<T, i32, usize>),
}

impl<T: Real> Matrix<T> {
    /// Reads a file: MatrixMarket (`.mtx`), NumPy (`.npy`), SciPy (`.npz`), tables and triples in text (`.csv`, `.tsv`,
    /// `.txt`), idx, FIMI transactions (`.dat`), and with the feature `hdf5` HDF5, AnnData and loom (`.h5`, `.h5ad`,
    /// `.loom`; `FILE.h5:/name` for one of several matrices).
    ///
    /// # Errors
    /// If the file is missing, damaged or of another format, or an entry is not finite.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let comm = Communicator::local();
        let mut input = InputSpec::parse(&path.as_ref().to_string_lossy())?;
        input.allow_negative = true;
        input.nan_remedy = NanRemedy::FillIn;
        let mut loaded = files::open(&input, &comm)?.load::<T>(&Layout::Grid { pr: 1, pc: 1 }, &comm, &mut |_| {})?;
        match loaded.blocks.pop() {
            Some(Block::Dense(x)) => Ok(Matrix::Dense(x.into_owned())),
            Some(Block::Sparse(x)) => {
                let (starts, indices, values) = x.into_matrix().into_raw_storage();
                let shape = (loaded.header.rows, loaded.header.cols);
                Ok(Matrix::Sparse(CsMatI::new(shape, starts, indices.into_vec(), values.into_vec())))
            }
            _ => Err(Error::failed(format!("{}: has no entries", path.as_ref().display()))),
        }
    }

    /// A matrix in compressed sparse rows, as [`MatrixView::from_csr`].
    ///
    /// # Errors
    /// As [`MatrixView::from_csr`].
    pub fn from_csr(shape: (usize, usize), starts: Vec<usize>, columns: Vec<i32>, values: Vec<T>) -> Result<Self> {
        CsMatI::try_new(shape, starts, columns, values)
            .map(Matrix::Sparse)
            .map_err(|(.., e)| Error::input(format!("the sparse matrix is not valid: {e}")))
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Matrix::Dense(x) => x.dim(),
            Matrix::Sparse(x) => x.shape(),
        }
    }
}
