//! Calls of the library with matrices of Python, which are not copied.
//!
//! The library has no lifetime for matrices that it borrows: their type says `'static`, though they end with the call. So no
//! [`Matrix`] leaves this file: its functions take NumPy arrays and return results that own their values.

use ndarray::{Array2, ArrayView2};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use fednmf::library;
use fednmf::library::{Context, ContextOptions, Factorization, Penalty, Search, SearchResult, Task};
use fednmf_base::error::Result;
use fednmf_data::Matrix;
use fednmf_linalg::{CowSlice, CsrMatrix};
use fednmf_methods::Measures;
use fednmf_methods::precision::Precision;

/// The parts of a CSR matrix: data, int32 indices that ascend in each row, int64 indptr, and shape.
type Parts<'py, T> = (PyReadonlyArray1<'py, T>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i64>, (usize, usize));

/// A matrix as Python gives it.
enum Given<'py, T: Element> {
    Dense(PyReadonlyArray2<'py, T>),
    Sparse(Parts<'py, T>),
}

/// Factorises matrices of Python as [`library::factorize`] does, with as many threads. `task` is called without the lock of
/// the interpreter, as is everything else.
pub fn factorize<'a, T: Element + Precision>(
    py: Python<'_>,
    given: &[Bound<'_, PyAny>],
    threads: usize,
    task: impl FnOnce() -> Task<'a, T> + Send,
) -> PyResult<Result<Factorization<T>>> {
    with_matrices(py, given, threads, |matrices| library::factorize(matrices, task()))
}

/// Projects a matrix of Python as [`library::project`] does, with as many threads.
pub fn project<T: Element + Precision>(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    threads: usize,
    v: &ArrayView2<'_, T>,
    penalty: Penalty,
) -> PyResult<Result<Array2<T>>> {
    let given = std::slice::from_ref(given);
    with_matrices(py, given, threads, |mut given| library::project(given.swap_remove(0), v, penalty))
}

/// Searches a number of components for a matrix of Python as [`library::choose_k`] does, with as many threads.
pub fn choose_k(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    threads: usize,
    search: &Search,
    observer: &mut (dyn FnMut(usize, usize, usize, &Measures) -> bool + Send),
) -> PyResult<Result<SearchResult>> {
    let given = std::slice::from_ref(given);
    with_matrices(py, given, threads, |mut given| library::choose_k(given.swap_remove(0), search, observer))
}

/// Calls `f` with the given matrices, two-dimensional arrays or tuples of the parts of a CSR matrix, without the lock of the
/// interpreter and with as many threads. The matrices borrow the arrays, but their type does not say so: `f` must drop them.
/// Only the functions above call this, and what they return owns its values.
fn with_matrices<T: Element + Precision, R: Send>(
    py: Python<'_>,
    given: &[Bound<'_, PyAny>],
    threads: usize,
    f: impl FnOnce(Vec<Matrix<T>>) -> Result<R> + Send,
) -> PyResult<Result<R>> {
    let held = given.iter().map(given_as::<T>).collect::<PyResult<Vec<_>>>()?;
    let matrices = held.iter().map(matrix).collect::<PyResult<Vec<_>>>()?;
    let options = ContextOptions { threads, ..ContextOptions::default() };
    let result = py.detach(|| Context::new(options).and_then(|context| context.install(|| f(matrices))));
    drop(held);
    Ok(result)
}

fn given_as<'py, T: Element>(given: &Bound<'py, PyAny>) -> PyResult<Given<'py, T>> {
    match given.cast::<PyTuple>() {
        Ok(parts) => Ok(Given::Sparse(parts.extract()?)),
        Err(_) => Ok(Given::Dense(given.extract()?)),
    }
}

/// The matrix; only for [`with_matrices`], which keeps the arrays for as long as it exists.
fn matrix<T: Element + Precision>(given: &Given<'_, T>) -> PyResult<Matrix<T>> {
    match given {
        Given::Dense(array) => {
            // SAFETY: as above. NumPy lets other threads write to the array meanwhile, which the documentation forbids.
            let view = unsafe { std::mem::transmute::<ArrayView2<'_, T>, ArrayView2<'static, T>>(array.as_array()) };
            Ok(Matrix::Dense(view.into()))
        }
        Given::Sparse((data, indices, indptr, shape)) => {
            let starts = indptr.as_array().iter().map(|&start| usize::try_from(start)).collect::<std::result::Result<Vec<_>, _>>();
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
