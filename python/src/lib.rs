//! The native part of the Python package: NumPy arrays and the parts of SciPy's CSR matrices in, factors out. Names,
//! defaults and checks of Python's side are in `fednmf/*.py`.

mod borrowed;

use borrowed::{Given, raised, views};
use numpy::ndarray::Array2;
use numpy::{Element, PyArray2, PyReadonlyArray2};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use fednmf::{
    Beta, Criterion, Error, ErrorKind, FactorScale, JointBatch, JointRows, JointSet, JointStep, KlOnlineState,
    Majorant, OnlineState, OnlineStep, Options, Point, ProductKernel, Real, Resample, Search, SearchResult, Start,
    Surrogate,
};

/// The message of the library as Python's exception.
fn raise(error: &Error) -> PyErr {
    let message = in_python(&error.message);
    match error.kind {
        ErrorKind::Input => PyValueError::new_err(message),
        ErrorKind::Memory => PyMemoryError::new_err(message),
        ErrorKind::Failed => PyRuntimeError::new_err(message),
    }
}

/// A message in which options of the command line have the names of parameters: `--own-penalty 2` is `own_penalty=2`.
fn in_python(message: &str) -> String {
    // The package has no such parameter.
    let message = message.replace(" (--scale max)", "").replace("--precision f", "float");
    let mut parts = message.split("--");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        match name {
            "" => text.push_str("--"),
            "max-iters" => text.push_str("max_iter"),
            "loss" => text.push_str("beta_loss"),
            "alpha-u" => text.push_str("alpha_W"),
            "alpha-v" => text.push_str("alpha_H"),
            name => text.push_str(&name.replace('-', "_")),
        }
        match rest.strip_prefix(' ').filter(|value| value.starts_with(|c: char| c.is_ascii_digit())) {
            Some(value) => text.extend(["=", value]),
            None => text.push_str(rest),
        }
    }
    text
}

fn in_python_all(messages: &[String]) -> Vec<String> {
    messages.iter().map(|message| in_python(message)).collect()
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

fn kernel(name: &str) -> PyResult<Option<ProductKernel>> {
    match name {
        "native" => Ok(Some(ProductKernel::Native)),
        "mkl" => ProductKernel::mkl().map(Some).map_err(|e| raise(&e)),
        "auto" => Ok(None),
        _ => Err(PyValueError::new_err(format!("kernel={name:?}: must be one of native, mkl, auto"))),
    }
}

/// What to do, apart from the matrices.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    algo: String,
    /// Parameters of the method by name and text: `inner_sweeps`, `3`.
    options: Vec<(String, String)>,
    k: usize,
    seed: u64,
    max_iters: usize,
    tol: Option<f64>,
    target_error: Option<f64>,
    time_limit: Option<f64>,
    eval_every: usize,
    scale: String,
    threads: usize,
    kernel: String,
    mixed_precision: bool,
    /// Called with the iteration and a dictionary of measures, about four times a second.
    callback: Option<Py<PyAny>>,
}

/// The result of a factorisation, for `factorize`.
type Found = (Vec<(String, Option<usize>, Py<PyAny>)>, Py<PyDict>);

fn factorize_in<T: Element + Real>(
    py: Python<'_>,
    parts: &[Bound<'_, PyAny>],
    settings: Settings,
    start: Option<(PyReadonlyArray2<'_, T>, PyReadonlyArray2<'_, T>)>,
) -> PyResult<Found> {
    let given: Vec<(&str, &str)> = settings.options.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let method = fednmf::named(&settings.algo, &given).map_err(|e| raise(&e))?;
    let options = options(&settings)?;
    let held = parts.iter().map(Given::<T>::of).collect::<PyResult<Vec<_>>>()?;
    let parts = views(&held)?;
    let start: Option<Start<'_, T>> = start.as_ref().map(|(u, v)| (u.as_array(), v.as_array()));
    let mut told: Option<PyErr> = None;
    let observer = |iteration: usize, measures: &Vec<(&'static str, f64)>| {
        told = Python::attach(|py| observe(py, settings.callback.as_ref(), iteration, measures)).err();
        told.is_none()
    };
    let found = py.detach(|| fednmf::run(method, parts, &options, start, Some(Box::new(observer))));
    if let Some(raised) = told.or_else(|| raised(&held)) {
        return Err(raised);
    }
    let found = found.map_err(|e| raise(&e))?;
    let about = PyDict::new(py);
    about.set_item("iterations", found.iterations())?;
    about.set_item("seconds", found.seconds())?;
    about.set_item("stopped_by", found.stopped_by().name())?;
    about.set_item("measures", dictionary(py, found.measures())?)?;
    let sent = |sent: &fednmf::Sent| (sent.kind, sent.payload.name(), sent.protection.name(), sent.rounds, sent.bytes);
    about.set_item("ledger", found.ledger().iter().map(sent).collect::<Vec<_>>())?;
    about.set_item("refused_between_owners", found.refused_between_owners().map(in_python))?;
    let edges = found.edges().iter().map(|edge| (edge.from, edge.to, edge.messages, edge.bytes));
    about.set_item("edges", edges.collect::<Vec<_>>())?;
    let arrays = found.into_factors().into_iter().map(|factor| {
        let values = PyArray2::from_owned_array(py, factor.values).into_any().unbind();
        (factor.name.to_string(), factor.party, values)
    });
    Ok((arrays.collect(), about.unbind()))
}

fn options(settings: &Settings) -> PyResult<Options> {
    let &Settings { k, seed, max_iters, tol, target_error, time_limit, eval_every, threads, mixed_precision, .. } =
        settings;
    let (kernel, scale) = (kernel(&settings.kernel)?, Some(scale(&settings.scale)?));
    Ok(Options {
        seed,
        max_iters: Some(max_iters),
        tol,
        target_error,
        time_limit,
        eval_every,
        threads,
        kernel,
        mixed_precision,
        scale,
        ..Options::new(k)
    })
}

/// Lets Ctrl-C and the caller's function end a run.
fn observe(
    py: Python<'_>,
    callback: Option<&Py<PyAny>>,
    iteration: usize,
    measures: &[(&'static str, f64)],
) -> PyResult<()> {
    py.check_signals()?;
    if let Some(callback) = callback {
        callback.call1(py, (iteration, dictionary(py, measures)?))?;
    }
    Ok(())
}

fn dictionary<'py>(py: Python<'py>, measures: &[(&'static str, f64)]) -> PyResult<Bound<'py, PyDict>> {
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
        factorize_in::<f32>(py, &parts, settings, extracted(start)?)
    } else {
        factorize_in::<f64>(py, &parts, settings, extracted(start)?)
    }
}

/// The arrays of a start.
type StartArrays<'py, T> = (PyReadonlyArray2<'py, T>, PyReadonlyArray2<'py, T>);

fn extracted<'py, T: Element>(
    start: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
) -> PyResult<Option<StartArrays<'py, T>>> {
    start.map(|(u, v)| Ok((u.extract()?, v.extract()?))).transpose()
}

fn project_in<T: Element + Real>(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    ((l1, l2), beta): ((f64, f64), Option<f64>),
    (min_gain, threads): (Option<f64>, usize),
) -> PyResult<Py<PyAny>> {
    let (v, held): (PyReadonlyArray2<'_, T>, _) = (v.extract()?, [Given::<T>::of(given)?]);
    let (v, rows) = (v.as_array(), views(&held)?.swap_remove(0));
    let u = py.detach(|| fednmf::project(rows, &v, beta, [l1, l2], min_gain, threads)).map_err(|e| raise(&e))?;
    Ok(PyArray2::from_owned_array(py, u).into_any().unbind())
}

/// The U ≥ 0 (rows × k) that minimises ½‖M − U Vᵀ‖², or the β-divergence for `beta`, plus λ₁‖U‖₁ + ½λ₂‖U‖² for a given V
/// (columns × k); `penalty` is (λ₁, λ₂). With `min_gain` a row has few components.
#[pyfunction]
#[pyo3(signature = (given, dtype, v, penalty, threads, beta=None, min_gain=None))]
fn project(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    dtype: &str,
    v: &Bound<'_, PyAny>,
    penalty: (f64, f64),
    threads: usize,
    beta: Option<f64>,
    min_gain: Option<f64>,
) -> PyResult<Py<PyAny>> {
    if is_single(dtype)? {
        project_in::<f32>(py, given, v, (penalty, beta), (min_gain, threads))
    } else {
        project_in::<f64>(py, given, v, (penalty, beta), (min_gain, threads))
    }
}

/// The settings of a step of online NMF: ρ, (λ₁, λ₂) on a row of U, (λ₁, λ₂) on V for each row of the data, and threads.
type Step = (f64, (f64, f64), (f64, f64), usize);

/// V, A, B and the rows that they hold, then the cost of the batch.
type Stepped = (Py<PyAny>, Py<PyAny>, Py<PyAny>, f64, f64);

fn copied<T: Element + Real>(array: &Bound<'_, PyAny>) -> PyResult<Array2<T>> {
    let array: PyReadonlyArray2<'_, T> = array.extract()?;
    Ok(array.as_array().to_owned())
}

fn online_step_in<T: Element + Real>(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    (v, a, b): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>),
    (rows, divergence): (f64, bool),
    (rho, (u1, u2), (v1, v2), threads): Step,
) -> PyResult<Stepped> {
    let [v, a, b] = [copied::<T>(&v)?, copied(&a)?, copied(&b)?];
    let step = OnlineStep { rho, penalty_u: [u1, u2], penalty_v: [v1, v2], threads };
    let held = [Given::<T>::of(given)?];
    let batch = views(&held)?.swap_remove(0);
    let (v, a, b, rows, cost) = if divergence {
        let majorant = Majorant { a: b, b: a.iter().map(|x| x.as_f64()).collect(), rows };
        let mut state = KlOnlineState { v, majorant };
        let cost = py.detach(|| step.add_kl(batch, &mut state)).map_err(|e| raise(&e))?;
        let KlOnlineState { v, majorant: Majorant { a: b, b: sums, rows } } = state;
        let a = Array2::from_shape_fn((1, sums.len()), |(_, l)| T::from_f64(sums[l]));
        (v, a, b, rows, cost)
    } else {
        let mut state = OnlineState { v, surrogate: Surrogate { a, b, rows } };
        let cost = py.detach(|| step.add(batch, &mut state)).map_err(|e| raise(&e))?;
        let OnlineState { v, surrogate: Surrogate { a, b, rows } } = state;
        (v, a, b, rows, cost)
    };
    let [v, a, b] = [v, a, b].map(|x| PyArray2::from_owned_array(py, x).into_any().unbind());
    Ok((v, a, b, rows, cost))
}

/// Adds a batch (rows × columns) to the statistics A (k × k) and B (columns × k) of online NMF, and updates V (columns × k). For
/// the Kullback-Leibler `divergence` A has the sums of U (1 × k).
#[pyfunction]
fn online_step(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    dtype: &str,
    state: (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>),
    rows: f64,
    step: Step,
    divergence: bool,
) -> PyResult<Stepped> {
    if is_single(dtype)? {
        online_step_in::<f32>(py, given, state, (rows, divergence), step)
    } else {
        online_step_in::<f64>(py, given, state, (rows, divergence), step)
    }
}

/// λ of the own parts, and threads.
type Joint = (f64, usize);

/// A data set of joint NMF: its own part W (columns × k), A (k × k) and B (columns × k).
type Set<A> = (A, A, A);

/// V, the data sets, and the part of the objective that the batches had.
type JointStepped = (Py<PyAny>, Vec<Set<Py<PyAny>>>, f64);

fn joint_step_in<T: Element + Real>(
    py: Python<'_>,
    batches: Vec<(usize, Bound<'_, PyAny>, f64)>,
    v: &Bound<'_, PyAny>,
    sets: Vec<Set<Bound<'_, PyAny>>>,
    (own_penalty, threads): Joint,
) -> PyResult<JointStepped> {
    let mut v = copied::<T>(v)?;
    let in_set = |(own, a, b): Set<_>| Ok(JointSet { own: copied(&own)?, a: copied(&a)?, b: copied(&b)? });
    let mut sets = sets.into_iter().map(in_set).collect::<PyResult<Vec<JointSet<T>>>>()?;
    let held = batches.iter().map(|(_, given, _)| Given::<T>::of(given)).collect::<PyResult<Vec<_>>>()?;
    let of_set = |(&(set, _, rho), rows)| JointBatch { set, rows, rho };
    let batches = batches.iter().zip(views(&held)?).map(of_set).collect();
    let step = JointStep { own_penalty, threads };
    let cost = py.detach(|| step.add(batches, &mut v, &mut sets)).map_err(|e| raise(&e))?;
    let array = |x| PyArray2::from_owned_array(py, x).into_any().unbind();
    let sets = sets.into_iter().map(|set| (array(set.own), array(set.a), array(set.b))).collect();
    Ok((array(v), sets, cost))
}

/// Adds batches (data set, rows × columns, ρ) to the statistics of joint NMF, and updates the own parts of their data sets and V
/// (columns × k).
#[pyfunction]
fn joint_step(
    py: Python<'_>,
    batches: Vec<(usize, Bound<'_, PyAny>, f64)>,
    dtype: &str,
    v: &Bound<'_, PyAny>,
    sets: Vec<Set<Bound<'_, PyAny>>>,
    settings: Joint,
) -> PyResult<JointStepped> {
    if is_single(dtype)? {
        joint_step_in::<f32>(py, batches, v, sets, settings)
    } else {
        joint_step_in::<f64>(py, batches, v, sets, settings)
    }
}

fn joint_rows_in<T: Element + Real>(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    (v, own): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (own_penalty, threads): Joint,
) -> PyResult<(Py<PyAny>, f64, f64)> {
    let (v, own, held) = (copied::<T>(v)?, copied(own)?, [Given::<T>::of(given)?]);
    let rows = views(&held)?.swap_remove(0);
    let step = JointStep { own_penalty, threads };
    let JointRows { u, residual2, own2 } = py.detach(|| step.rows(rows, &v, &own)).map_err(|e| raise(&e))?;
    let u = u.as_standard_layout().into_owned();
    Ok((PyArray2::from_owned_array(py, u).into_any().unbind(), residual2, own2))
}

/// U (rows × k) for rows of a data set, V and its own part (columns × k), with the squares of the residual and of the own part.
#[pyfunction]
fn joint_rows(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    dtype: &str,
    v: &Bound<'_, PyAny>,
    own: &Bound<'_, PyAny>,
    settings: Joint,
) -> PyResult<(Py<PyAny>, f64, f64)> {
    if is_single(dtype)? {
        joint_rows_in::<f32>(py, given, (v, own), settings)
    } else {
        joint_rows_in::<f64>(py, given, (v, own), settings)
    }
}

/// The rows of each batch of about `size` of m rows, as pairs (first, end).
#[pyfunction]
fn batches(m: usize, size: usize) -> Vec<Vec<(usize, usize)>> {
    let batches = fednmf::batches(m, size).into_iter();
    batches.map(|batch| batch.into_iter().map(|rows| (rows.start, rows.end)).collect()).collect()
}

#[pyfunction]
fn has_logarithms(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let held = [Given::<f64>::of(given)?];
    fednmf::has_logarithms(views(&held)?.swap_remove(0)).map_err(|e| raise(&e))
}

/// What to try, apart from the matrix.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SearchSettings {
    ks: Vec<usize>,
    runs: usize,
    method: Option<String>,
    loss: Option<f64>,
    holdout: Option<f64>,
    resample: Option<String>,
    criterion: Option<String>,
    max_iters: Option<usize>,
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
    let SearchSettings {
        ks,
        runs,
        method,
        loss,
        holdout,
        resample,
        criterion,
        max_iters,
        tol,
        seed,
        threads,
        callback,
    } = settings;
    let mut search = Search::over(ks).runs(runs).tol(tol).seed(seed).threads(threads);
    if let Some(method) = method {
        search = search.method(&method).map_err(|e| raise(&e))?;
    }
    if let Some(loss) = loss {
        search = search.loss(Beta(loss));
    }
    if let Some(max_iters) = max_iters {
        search = search.max_iters(max_iters);
    }
    if let Some(share) = holdout {
        search = search.holdout(share);
    }
    search = match resample.as_deref() {
        None => search,
        Some("poisson") => search.resample(Resample::Poisson),
        Some("multinomial") => search.resample(Resample::Multinomial),
        Some(other) => {
            return Err(PyValueError::new_err(format!("resample={other:?}: must be 'poisson', 'multinomial' or None")));
        }
    };
    search = match criterion.as_deref() {
        None => search,
        Some("sigprofiler") => search.criterion(Criterion::SigProfiler),
        Some(other) => {
            return Err(PyValueError::new_err(format!("criterion={other:?}: must be 'sigprofiler' or None")));
        }
    };
    let mut told: Option<PyErr> = None;
    let observer = |k: usize, run: usize, iteration: usize, measures: &Vec<(&'static str, f64)>| {
        told = Python::attach(|py| {
            py.check_signals()?;
            if let Some(callback) = &callback {
                callback.call1(py, (k, run, iteration, dictionary(py, measures)?))?;
            }
            Ok(())
        })
        .err();
        told.is_none()
    };
    let held = [Given::<f64>::of(given)?];
    let matrix = views(&held)?.swap_remove(0);
    let found = py.detach(|| search.fit_observed(matrix, observer));
    if let Some(raised) = told.or_else(|| raised(&held)) {
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
    let choice = found.choice;
    let choice = choice.map(|c| (c.k, c.prediction, c.interpretation, c.reasons, in_python_all(&c.warnings)));
    all.set_item("choice", choice)?;
    let consensus = found.consensus.map(|consensus| {
        let table = consensus.components.iter().map(|c| (c.silhouette, c.cosine, c.share)).collect::<Vec<_>>();
        let (u, v) = (PyArray2::from_owned_array(py, consensus.u), PyArray2::from_owned_array(py, consensus.v));
        (u, v, consensus.rmse, consensus.divergence, table)
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
    // One run does not tell it.
    all.set_item("heldout_se", point.heldout.filter(|_| point.runs > 1).map(|(_, deviation)| deviation))?;
    all.set_item("silhouette", point.stability.map(|s| s.mean))?;
    all.set_item("least_silhouette", point.stability.map(|s| s.least))?;
    all.set_item("cosine", point.stability.map(|s| s.cosine))?;
    Ok(all)
}

/// Name, summary, and whose blocks the parties have: "rows", "columns", or None where a method has no parties.
#[pyfunction]
fn methods() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    fednmf::methods().collect()
}

#[pymodule]
fn _fednmf(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(factorize, module)?)?;
    module.add_function(wrap_pyfunction!(project, module)?)?;
    module.add_function(wrap_pyfunction!(online_step, module)?)?;
    module.add_function(wrap_pyfunction!(joint_step, module)?)?;
    module.add_function(wrap_pyfunction!(joint_rows, module)?)?;
    module.add_function(wrap_pyfunction!(batches, module)?)?;
    module.add_function(wrap_pyfunction!(has_logarithms, module)?)?;
    module.add_function(wrap_pyfunction!(choose_k, module)?)?;
    module.add_function(wrap_pyfunction!(methods, module)?)
}
