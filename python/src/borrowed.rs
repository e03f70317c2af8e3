//! Python's matrices without a copy: NumPy arrays as matrices of the library.

use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use fednmf::{MatrixView, Real};

/// The parts of a CSR matrix: data, int32 indices that ascend in each row, int64 indptr, and shape.
type Parts<'py, T> = (PyReadonlyArray1<'py, T>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i64>, (usize, usize));

/// A matrix as Python gives it: a two-dimensional array, or a tuple of the parts of a CSR matrix.
pub enum Given<'py, T: Element> {
    Dense(PyReadonlyArray2<'py, T>),
    Sparse(Parts<'py, T>),
}

impl<'py, T: Element + Real> Given<'py, T> {
    /// The arrays of an object, borrowed while this exists. NumPy lets other threads write to them meanwhile, which the
    /// documentation forbids.
    pub fn of(given: &Bound<'py, PyAny>) -> PyResult<Self> {
        match given.cast::<PyTuple>() {
            Ok(parts) => Ok(Given::Sparse(parts.extract()?)),
            Err(_) => Ok(Given::Dense(given.extract()?)),
        }
    }

    fn view(&self) -> PyResult<MatrixView<'_, T>> {
        match self {
            Given::Dense(array) => Ok(array.as_array().into()),
            Given::Sparse((data, indices, indptr, shape)) => {
                let starts =
                    indptr.as_array().iter().map(|&start| usize::try_from(start)).collect::<Result<Vec<_>, _>>();
                let starts =
                    starts.map_err(|_| PyValueError::new_err("the sparse matrix has a negative index pointer"))?;
                MatrixView::from_csr(*shape, starts, indices.as_slice()?, data.as_slice()?)
                    .map_err(|e| PyValueError::new_err(e.message))
            }
        }
    }
}

/// The matrices of several objects.
pub fn views<'a, T: Element + Real>(given: &'a [Given<'_, T>]) -> PyResult<Vec<MatrixView<'a, T>>> {
    given.iter().map(Given::view).collect()
}
