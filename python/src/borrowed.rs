//! Matrices of Python without a copy: NumPy arrays as matrices of the library, for the time of a call.

use ndarray::ArrayView2;
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use fednmf_data::Matrix;
use fednmf_linalg::{CowSlice, CsrMatrix};
use fednmf_methods::precision::Precision;

/// The parts of a CSR matrix: data, int32 indices that ascend in each row, int64 indptr, and shape.
type Parts<'py, T> = (PyReadonlyArray1<'py, T>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i64>, (usize, usize));

/// A matrix as Python gives it.
enum Given<'py, T: Element> {
    Dense(PyReadonlyArray2<'py, T>),
    Sparse(Parts<'py, T>),
}

/// Calls `f` with the given matrices, two-dimensional arrays or tuples of the parts of a CSR matrix, which borrow the
/// arrays. What `f` returns has nothing of them.
pub fn with_matrices<T: Element + Precision, R>(
    given: &[Bound<'_, PyAny>],
    f: impl FnOnce(Vec<Matrix<T>>) -> R,
) -> PyResult<R> {
    let held = given.iter().map(given_as::<T>).collect::<PyResult<Vec<_>>>()?;
    let matrices = held.iter().map(matrix).collect::<PyResult<Vec<_>>>()?;
    let result = f(matrices);
    drop(held);
    Ok(result)
}

fn given_as<'py, T: Element>(given: &Bound<'py, PyAny>) -> PyResult<Given<'py, T>> {
    match given.cast::<PyTuple>() {
        Ok(parts) => Ok(Given::Sparse(parts.extract()?)),
        Err(_) => Ok(Given::Dense(given.extract()?)),
    }
}

/// The matrix; for [`with_matrices`] alone, which keeps the arrays for as long as it exists.
fn matrix<T: Element + Precision>(given: &Given<'_, T>) -> PyResult<Matrix<T>> {
    match given {
        Given::Dense(array) => {
            // SAFETY: as above. NumPy lets other threads write to the array meanwhile, which the documentation forbids.
            let view = unsafe { std::mem::transmute::<ArrayView2<'_, T>, ArrayView2<'static, T>>(array.as_array()) };
            Ok(Matrix::Dense(view.into()))
        }
        Given::Sparse((data, indices, indptr, shape)) => {
            let starts = indptr.as_array().iter().map(|&start| usize::try_from(start)).collect::<Result<Vec<_>, _>>();
            let starts = starts.map_err(|_| PyValueError::new_err("the sparse matrix has a negative index pointer"))?;
            CsrMatrix::try_new(*shape, starts, slice(indices), slice(data))
                .map(Matrix::Sparse)
                .map_err(|(.., e)| PyValueError::new_err(format!("the sparse matrix is not valid: {e}")))
        }
    }
}

/// The elements of an array; a copy if they are not one after the other. As [`matrix`].
fn slice<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> CowSlice<T> {
    match array.as_slice() {
        // SAFETY: as in `matrix`.
        Ok(all) => CowSlice::Borrowed(unsafe { std::mem::transmute::<&[T], &'static [T]>(all) }),
        Err(_) => CowSlice::Owned(array.as_array().to_vec()),
    }
}
