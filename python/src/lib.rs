//! The native part of the Python package: NumPy arrays and the parts of SciPy's CSR matrices in, factors out. Names,
//! defaults and checks of Python's side are in `fednmf/*.py`.

mod borrowed;

use ndarray::Array2;
use numpy::{Element, PyArray2, PyReadonlyArray2};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use fednmf::library::{FactorScale, Factorization, Limits, Observer, Penalty, Point, Search, SearchResult, SweepMethod, Task};
use fednmf::library;
use fednmf_base::error::{Error, ErrorKind};
use fednmf_methods::description::Partition;
use fednmf_methods::precision::Precision;
use fednmf_methods::{Measures, registry};

/// The message of the library as Python's exception.
fn raise(error: &Error) -> PyErr {
    match error.kind {
        ErrorKind::Input => PyValueError::new_err(error.message.clone()),
        ErrorKind::Failed => PyRuntimeError::new_err(error.message.clone()),
    }
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
    let start = start.map(|(u, v)| Ok::<_, PyErr>((array::<T>(&u)?, array::<T>(&v)?))).transpose()?;
    let method = library::method(&settings.algo, &settings.options).map_err(|e| raise(&e))?;
    let scale = scale(&settings.scale)?;
    let Settings { k, seed, max_iters, tol, target_error, time_limit, eval_every, threads, callback, .. } = settings;
    let mut raised: Option<PyErr> = None;
    let (error, callback) = (&mut raised, callback.as_ref());
    let task = || {
        let observer: Observer<'_> = Box::new(move |iteration, measures| {
            *error = Python::attach(|py| observe(py, callback, iteration, measures)).err();
            error.is_none()
        });
        Task {
            method,
            k,
            seed,
            limits: Limits { max_iters, tol, target_error, time_limit, eval_every },
            initial: start.as_ref().map(|(u, v)| (u.view(), v.view())),
            scale,
            observer: Some(observer),
        }
    };
    let found = borrowed::factorize::<T>(py, parts, threads, task)?;
    if let Some(raised) = raised {
        return Err(raised);
    }
    let found = found.map_err(|e| raise(&e))?;
    let Factorization { factors, iterations, seconds, stopped_by, measures, ledger, edges } = found;
    let about = PyDict::new(py);
    about.set_item("iterations", iterations)?;
    about.set_item("seconds", seconds)?;
    about.set_item("stopped_by", stopped_by)?;
    about.set_item("measures", dictionary(py, &measures)?)?;
    let sent = ledger.iter().map(|sent| (sent.kind, &sent.payload, sent.protection, sent.rounds, sent.bytes));
    about.set_item("ledger", sent.collect::<Vec<_>>())?;
    let edges = edges.iter().map(|edge| (edge.from, edge.to, edge.messages, edge.bytes));
    about.set_item("edges", edges.collect::<Vec<_>>())?;
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
    let v = array::<T>(v)?;
    let u = borrowed::project::<T>(py, given, threads, &v.view(), penalty)?.map_err(|e| raise(&e))?;
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

/// What to try, apart from the matrix.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SearchSettings {
    ks: Vec<usize>,
    runs: usize,
    method: String,
    holdout: Option<f64>,
    max_iters: usize,
    tol: f64,
    seed: u64,
    threads: usize,
    /// Called with k, the run, the iteration and a dictionary of measures.
    callback: Option<Py<PyAny>>,
}

/// Factorises with several numbers of components, as `fednmf sweep` does: (points, similarities by k, choice or None,
/// consensus or None).
#[pyfunction]
fn choose_k(py: Python<'_>, given: &Bound<'_, PyAny>, settings: SearchSettings) -> PyResult<Py<PyDict>> {
    let SearchSettings { ks, runs, method, holdout, max_iters, tol, seed, threads, callback } = settings;
    let method = SweepMethod::from_name(&method).map_err(|e| raise(&e))?;
    let search = Search { ks, runs, method, holdout, max_iters, tol, seed };
    let mut raised: Option<PyErr> = None;
    let mut observer = |k: usize, run: usize, iteration: usize, measures: &Measures| {
        let told = Python::attach(|py| {
            py.check_signals()?;
            if let Some(callback) = &callback {
                callback.call1(py, (k, run, iteration, dictionary(py, measures)?))?;
            }
            Ok(())
        });
        raised = told.err();
        raised.is_none()
    };
    let found = borrowed::choose_k(py, given, threads, &search, &mut observer)?;
    if let Some(raised) = raised {
        return Err(raised);
    }
    let found = found.map_err(|e| raise(&e))?;
    search_result(py, found)
}

fn search_result(py: Python<'_>, found: SearchResult) -> PyResult<Py<PyDict>> {
    let all = PyDict::new(py);
    let points = found.points.iter().map(|p| point(py, p)).collect::<PyResult<Vec<_>>>()?;
    all.set_item("points", points)?;
    let similarities = found.similarities.into_iter();
    let similarities = similarities.map(|s| (PyArray2::from_owned_array(py, s.cosines), s.clusters));
    all.set_item("similarities", similarities.collect::<Vec<_>>())?;
    all.set_item("choice", found.choice.map(|choice| (choice.k, choice.reasons, choice.warnings)))?;
    let consensus = found.consensus.map(|consensus| {
        let table = consensus.components.iter().map(|c| (c.silhouette, c.cosine, c.share)).collect::<Vec<_>>();
        let (u, v) = (PyArray2::from_owned_array(py, consensus.u), PyArray2::from_owned_array(py, consensus.v));
        (u, v, consensus.rmse, table)
    });
    all.set_item("consensus", consensus)?;
    Ok(all.unbind())
}

/// The results for one k; what is not known is None.
fn point<'py>(py: Python<'py>, point: &Point) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("k", point.k)?;
    all.set_item("rmse", point.rmse)?;
    all.set_item("divergence", point.divergence)?;
    all.set_item("heldout", point.heldout.map(|(mean, _)| mean))?;
    all.set_item("heldout_se", point.heldout.map(|(_, deviation)| deviation))?;
    all.set_item("silhouette", point.stability.map(|s| s.mean))?;
    all.set_item("least_silhouette", point.stability.map(|s| s.least))?;
    all.set_item("cosine", point.stability.map(|s| s.cosine))?;
    Ok(all)
}

/// Name, summary, and whose blocks the parties have: "rows", "columns", or None where a method has no parties.
#[pyfunction]
fn methods() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let parties = |partition| match partition {
        Partition::PartyRows => Some("rows"),
        Partition::PartyColumns => Some("columns"),
        Partition::Grid | Partition::RowsAndColumns | Partition::Symmetric => None,
    };
    registry::descriptions().map(|d| (d.name, d.summary, parties(d.partition))).collect()
}

#[pymodule]
fn _fednmf(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(factorize, module)?)?;
    module.add_function(wrap_pyfunction!(project, module)?)?;
    module.add_function(wrap_pyfunction!(choose_k, module)?)?;
    module.add_function(wrap_pyfunction!(methods, module)?)
}
