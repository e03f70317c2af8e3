//! Python's matrices without a copy: NumPy arrays as matrices of the library.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use fednmf::{Error, Matrix, MatrixView, Real};

/// The parts of a CSR matrix: data, int32 indices that ascend in each row, int64 indptr, and shape.
type Parts<'py, T> = (PyReadonlyArray1<'py, T>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i64>, (usize, usize));

/// A matrix as Python gives it: a two-dimensional array, a tuple of the parts of a CSR matrix, or an object whose `read` returns
/// some of its rows as one of these.
pub enum Given<'py, T: Element> {
    Dense(PyReadonlyArray2<'py, T>),
    Sparse(Parts<'py, T>),
    Rows(Rows),
}

/// The rows of a matrix that is not in memory.
pub struct Rows {
    shape: (usize, usize),
    sparse: bool,
    at_once: usize,
    read: Arc<Py<PyAny>>,
    raised: Raised,
}

/// What `read` has raised, on the thread that reads.
type Raised = Arc<Mutex<Option<PyErr>>>;

impl<'py, T: Element + Real> Given<'py, T> {
    /// The arrays of an object, borrowed while this exists. NumPy lets other threads write to them meanwhile, which the
    /// documentation forbids.
    pub fn of(given: &Bound<'py, PyAny>) -> PyResult<Self> {
        match given.cast::<PyTuple>() {
            Ok(parts) => Ok(Given::Sparse(parts.extract()?)),
            Err(_) if given.hasattr("read")? => Ok(Given::Rows(Rows {
                shape: given.getattr("shape")?.extract()?,
                sparse: given.getattr("sparse")?.extract()?,
                at_once: given.getattr("at_once")?.extract()?,
                read: Arc::new(given.getattr("read")?.unbind()),
                raised: Arc::default(),
            })),
            Err(_) => Ok(Given::Dense(given.extract()?)),
        }
    }

    fn view(&self) -> PyResult<MatrixView<'_, T>> {
        match self {
            Given::Dense(array) => Ok(array.as_array().into()),
            Given::Sparse((data, indices, indptr, shape)) => {
                MatrixView::from_csr(*shape, starts(indptr)?, indices.as_slice()?, data.as_slice()?)
                    .map_err(|e| PyValueError::new_err(e.message))
            }
            Given::Rows(Rows { shape, sparse, at_once, read, raised }) => {
                let (read, raised) = (read.clone(), raised.clone());
                Ok(MatrixView::from_rows(*shape, *sparse, *at_once, move |rows: Range<usize>| {
                    let found = Python::attach(|py| {
                        let found = read.call1(py, (rows.start, rows.end))?;
                        Given::<T>::of(found.bind(py))?.copied()
                    });
                    found.map_err(|e| {
                        let failed = Error::failed(format!("rows {} to {}: {e}", rows.start, rows.end));
                        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                        failed
                    })
                }))
            }
        }
    }

    /// A copy of a matrix in memory.
    fn copied(&self) -> PyResult<Matrix<T>> {
        match self {
            Given::Dense(array) => Ok(Matrix::Dense(array.as_array().to_owned())),
            Given::Sparse((data, indices, indptr, shape)) => {
                let (columns, values) = (indices.as_slice()?.to_vec(), data.as_slice()?.to_vec());
                Matrix::from_csr(*shape, starts(indptr)?, columns, values).map_err(|e| PyValueError::new_err(e.message))
            }
            Given::Rows(_) => Err(PyTypeError::new_err("rows must be an array or the parts of a CSR matrix")),
        }
    }
}

fn starts(indptr: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    let starts = indptr.as_array().iter().map(|&start| usize::try_from(start)).collect::<Result<Vec<_>, _>>();
    starts.map_err(|_| PyValueError::new_err("the sparse matrix has a negative index pointer"))
}

/// What reading the rows of one of the matrices has raised.
pub fn raised<T: Element>(given: &[Given<'_, T>]) -> Option<PyErr> {
    let of = |given: &Given<'_, T>| match given {
        Given::Rows(rows) => rows.raised.lock().unwrap_or_else(PoisonError::into_inner).take(),
        Given::Dense(_) | Given::Sparse(_) => None,
    };
    given.iter().find_map(of)
}

/// The matrices of several objects.
pub fn views<'a, T: Element + Real>(given: &'a [Given<'_, T>]) -> PyResult<Vec<MatrixView<'a, T>>> {
    given.iter().map(Given::view).collect()
}
