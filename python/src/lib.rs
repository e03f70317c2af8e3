//! The native part of the Python package: NumPy arrays and the parts of SciPy's CSR matrices in, factors out. Names,
//! defaults and checks of Python's side are in `fednmf/*.py`.

use fednmf::algorithms::description::Partition;
use fednmf::algorithms::method::Precision;
use fednmf::algorithms::{Measures, registry};
use fednmf::data::Matrix;
use fednmf::error::{Error, ErrorKind};
use fednmf::library::{self, FactorScale, Factorization, Limits, Observer, Penalty, Task, with_threads};
use ndarray::Array2;
use numpy::{Element, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sprs::CsMatI;

/// The message of the library as Python's exception.
fn raise(error: &Error) -> PyErr {
    match error.kind {
        ErrorKind::Input => PyValueError::new_err(error.message.clone()),
        ErrorKind::Failed => PyRuntimeError::new_err(error.message.clone()),
    }
}

/// A copy of a two-dimensional array, or of (data, indices, indptr, shape) with int32 indices that ascend in each row and an
/// int64 indptr.
fn matrix<T: Element + Precision>(given: &Bound<'_, PyAny>) -> PyResult<Matrix<T>> {
    let Ok(parts) = given.cast::<PyTuple>() else {
        return Ok(Matrix::Dense(array(given)?));
    };
    type Parts<'py, T> =
        (PyReadonlyArray1<'py, T>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i64>, (usize, usize));
    let (data, indices, indptr, shape): Parts<'_, T> = parts.extract()?;
    let starts = indptr.as_array().iter().map(|&start| usize::try_from(start)).collect::<Result<Vec<_>, _>>();
    let starts = starts.map_err(|_| PyValueError::new_err("the sparse matrix has a negative index pointer"))?;
    let (indices, data) = (indices.as_array().to_vec(), data.as_array().to_vec());
    CsMatI::try_new(shape, starts, indices, data)
        .map(Matrix::Sparse)
        .map_err(|(.., e)| PyValueError::new_err(format!("the sparse matrix is not valid: {e}")))
}

fn array<T: Element + Precision>(given: &Bound<'_, PyAny>) -> PyResult<Array2<T>> {
    let array: PyReadonlyArray2<'_, T> = given.extract()?;
    Ok(array.as_array().to_owned())
}

fn scale(name: &str) -> PyResult<FactorScale> {
    use FactorScale::{AsFound, Balanced, Sorted, UnitU, UnitV};
    let all = [UnitV, UnitU, Balanced, Sorted, AsFound];
    let found = all.into_iter().find(|scale| scale.name() == name);
    found.ok_or_else(|| {
        let names = all.map(FactorScale::name).join(", ");
        PyValueError::new_err(format!("scale={name:?}: must be one of {names}"))
    })
}

/// What to do, apart from the matrices.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    algo: String,
    /// As on the command line: --inner-sweeps 3.
    options: Vec<String>,
    k: usize,
    seed: u64,
    max_iters: usize,
    tol: Option<f64>,
    target_error: Option<f64>,
    time_limit: Option<f64>,
    eval_every: usize,
    scale: String,
    threads: usize,
    /// Called with the iteration and a dictionary of measures, about four times a second.
    callback: Option<Py<PyAny>>,
}

/// The result of a factorisation, for `factorize`.
type Found = (Vec<(String, Option<usize>, Py<PyAny>)>, Py<PyDict>);

fn factorize_in<T: Element + Precision>(
    py: Python<'_>,
    parts: &[Bound<'_, PyAny>],
    settings: Settings,
    start: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
) -> PyResult<Found> {
    let parts = parts.iter().map(matrix::<T>).collect::<PyResult<Vec<_>>>()?;
    let start = start.map(|(u, v)| Ok::<_, PyErr>((array::<T>(&u)?, array::<T>(&v)?))).transpose()?;
    let method = library::method(&settings.algo, &settings.options).map_err(|e| raise(&e))?;
    let scale = scale(&settings.scale)?;
    let Settings { k, seed, max_iters, tol, target_error, time_limit, eval_every, threads, callback, .. } = settings;
    let mut raised: Option<PyErr> = None;
    let found = py.detach(|| {
        let observer: Observer<'_> = Box::new(|iteration, measures| {
            let told = Python::attach(|py| observe(py, callback.as_ref(), iteration, measures));
            raised = told.err();
            raised.is_none()
        });
        let task = Task {
            method,
            k,
            seed,
            limits: Limits { max_iters, tol, target_error, time_limit, eval_every },
            initial: start.as_ref().map(|(u, v)| (u.view(), v.view())),
            scale,
            observer: Some(observer),
        };
        with_threads(threads, || library::factorize(parts, task))
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let found = found.and_then(|found| found).map_err(|e| raise(&e))?;
    let Factorization { factors, iterations, seconds, stopped_by, measures } = found;
    let about = PyDict::new(py);
    about.set_item("iterations", iterations)?;
    about.set_item("seconds", seconds)?;
    about.set_item("stopped_by", stopped_by)?;
    about.set_item("measures", dictionary(py, &measures)?)?;
    let arrays = factors.into_iter().map(|factor| {
        let values = PyArray2::from_owned_array(py, factor.values).into_any().unbind();
        (factor.name.to_string(), factor.party, values)
    });
    Ok((arrays.collect(), about.unbind()))
}

/// Lets Ctrl-C and the caller's function end a run.
fn observe(py: Python<'_>, callback: Option<&Py<PyAny>>, iteration: usize, measures: &Measures) -> PyResult<()> {
    py.check_signals()?;
    if let Some(callback) = callback {
        callback.call1(py, (iteration, dictionary(py, measures)?))?;
    }
    Ok(())
}

fn dictionary<'py>(py: Python<'py>, measures: &Measures) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    measures.iter().try_for_each(|(name, value)| all.set_item(*name, *value))?;
    Ok(all)
}

/// Whether the arithmetic is f32; all matrices of a call have the same type.
fn is_single(dtype: &str) -> PyResult<bool> {
    match dtype {
        "float32" => Ok(true),
        "float64" => Ok(false),
        other => Err(PyTypeError::new_err(format!("dtype {other}: must be float32 or float64"))),
    }
}

/// Factorises one matrix, or those of several parties: ([(name, party or None, array)], what is known of the run).
#[pyfunction]
#[pyo3(signature = (parts, dtype, settings, start=None))]
fn factorize(
    py: Python<'_>,
    parts: Vec<Bound<'_, PyAny>>,
    dtype: &str,
    settings: Settings,
    start: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
) -> PyResult<Found> {
    if is_single(dtype)? {
        factorize_in::<f32>(py, &parts, settings, start)
    } else {
        factorize_in::<f64>(py, &parts, settings, start)
    }
}

fn project_in<T: Element + Precision>(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    (l1, l2): (f64, f64),
    threads: usize,
) -> PyResult<Py<PyAny>> {
    let penalty = Penalty { l1, l2 };
    let (given, v) = (matrix::<T>(given)?, array::<T>(v)?);
    let found = py.detach(|| with_threads(threads, || library::project(given, &v.view(), penalty)));
    let u = found.and_then(|found| found).map_err(|e| raise(&e))?;
    Ok(PyArray2::from_owned_array(py, u).into_any().unbind())
}

/// The exact U ≥ 0 (rows × k) that minimises ½‖M − U Vᵀ‖² + λ₁‖U‖₁ + ½λ₂‖U‖² for a given V (columns × k); `penalty` is (λ₁, λ₂).
#[pyfunction]
fn project(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    dtype: &str,
    v: &Bound<'_, PyAny>,
    penalty: (f64, f64),
    threads: usize,
) -> PyResult<Py<PyAny>> {
    if is_single(dtype)? {
        project_in::<f32>(py, given, v, penalty, threads)
    } else {
        project_in::<f64>(py, given, v, penalty, threads)
    }
}

/// Name, summary, and whose blocks the parties have: "rows", "columns", or None where a method has no parties.
#[pyfunction]
fn methods() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let parties = |partition| match partition {
        Partition::PartyRows => Some("rows"),
        Partition::PartyColumns => Some("columns"),
        Partition::Grid | Partition::RowsAndColumns => None,
    };
    registry::descriptions().map(|d| (d.name, d.summary, parties(d.partition))).collect()
}

#[pymodule]
fn _fednmf(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(factorize, module)?)?;
    module.add_function(wrap_pyfunction!(project, module)?)?;
    module.add_function(wrap_pyfunction!(methods, module)?)
}
