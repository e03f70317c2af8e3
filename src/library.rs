//! Factorisations in one process of matrices that the caller has in memory: what bindings to other languages are made from.

use std::sync::Arc;

use clap::Command;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, Entry, MessageTag};
use fednmf_data::state::{Owner, ReadRows};
use fednmf_data::{Loaded, Matrix, PartySplit, parties_in_memory};
use fednmf_driver::model_selection;
pub use fednmf_driver::model_selection::{Choice, Consensus, Point, Similarities, Stability, SweepMethod};
use fednmf_driver::model_selection::{Matched, SweepMissing, Trial, check_sizes, choose, point};
use fednmf_driver::progress::Progress;
use fednmf_driver::trace::Trace;
use fednmf_driver::{Checkpointer, Driver, Stop, Trajectory, arrange};
pub use fednmf_driver::{FactorScale, Limits, Observer};
use fednmf_linalg::Real;
use fednmf_linalg::nls;
pub use fednmf_linalg::nls::Penalty;
pub use fednmf_linalg::{Context, ContextOptions};
use fednmf_methods::description::Partition;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::parameters::Missing;
use fednmf_methods::precision::Precision;
use fednmf_methods::shared::grid;
use fednmf_methods::shared::regularization::RegularizationParams;
use fednmf_methods::{Measures, Problem, registry};

use crate::cli::parameters;

/// The factorisation to run on a matrix.
pub struct Task<'a, T> {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Number of components.
    pub k: usize,
    pub seed: u64,
    pub limits: Limits,
    /// U (m × k) and V (n × k) to start from, for the methods that take a start.
    pub initial: Option<(ArrayView2<'a, T>, ArrayView2<'a, T>)>,
    pub scale: FactorScale,
    pub observer: Option<Observer<'a>>,
}

/// The result of a factorisation.
pub struct Factorization<T> {
    /// U and V; if factors are private, those of each party, and further matrices of the method.
    pub factors: Vec<Factor<T>>,
    pub iterations: usize,
    /// Seconds in the algorithm, its start included.
    pub seconds: f64,
    /// Why the run ended, as in a trace.
    pub stopped_by: &'static str,
    /// Of the last evaluation.
    pub measures: Measures,
    /// What the parties sent, all together, by message kind.
    pub ledger: Vec<Sent>,
    /// What one party sent to another, in methods whose parties have neighbours.
    pub edges: Vec<Edge>,
}

/// The messages of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub kind: &'static str,
    /// What they carry, and how it is protected, as in a trace.
    pub payload: String,
    pub protection: &'static str,
    /// How often all parties sent one.
    pub rounds: u64,
    /// Bytes that they sent and received.
    pub bytes: u64,
}

/// The messages from one party to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub messages: u64,
    pub bytes: u64,
}

/// A matrix of the result.
pub struct Factor<T> {
    pub name: &'static str,
    /// The owner; `None` if all parties share it.
    pub party: Option<usize>,
    pub values: Array2<T>,
}

/// The method `name` with options as on the command line (`--inner-sweeps 3`), its defaults for the rest.
///
/// # Errors
/// Naming what is wrong: there is no such method, or option, or a value is not accepted.
pub fn method(name: &str, options: &[String]) -> Result<Arc<dyn ConfiguredMethod>> {
    let Some(entry) = registry::find(name) else {
        let names: Vec<&str> = registry::descriptions().map(|description| description.name).collect();
        return Err(Error::input(format!("{name}: no such method; the methods are {}", names.join(", "))));
    };
    let command = Command::new(entry.description().name).no_binary_name(true).args(parameters::args(entry));
    let matches = command.try_get_matches_from(options).map_err(|e| {
        // Its first paragraph; usage and hints are those of a command line.
        let text = e.render().to_string();
        let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        Error::input(format!("{name}: {text}"))
    })?;
    parameters::configure(entry, &matches)
}

/// Factorises a matrix, or the blocks of several parties.
///
/// # Errors
/// When the data or the parameters are refused, or the iterations fail.
pub fn factorize<T: Precision>(parts: Vec<Matrix<T>>, task: Task<'_, T>) -> Result<Factorization<T>> {
    let comm = Communicator::local();
    let Task { method, k, seed, limits, initial, scale, observer } = task;
    let parties = parties_in_memory(parts.len());
    let sparse = parts.iter().any(Matrix::is_sparse);
    let (m, n) = shape(&parts, method.description().partition);
    let method = match method.choose(Some(MatrixShape { m, n, k, sparse, streamed: false })) {
        Some(choice) => choice.method,
        None => method,
    };
    let description = method.description();
    if method.groups().is_regularized() && !description.partition.is_private() && !scale.keeps() {
        return Err(Error::input(format!(
            "scale {}: another scale of the components changes the penalties; use sorted or as-found",
            scale.name()
        )));
    }
    if description.partition == Partition::Symmetric && matches!(scale, FactorScale::UnitU | FactorScale::UnitV) {
        return Err(Error::input(format!(
            "scale {}: the factors of {} are equal, and another scale of one of them ends that; use balanced, sorted or \
             as-found",
            scale.name(),
            description.name
        )));
    }
    if parts.len() > 1 && !description.partition.is_private() {
        return Err(Error::input(format!(
            "{} takes one matrix, not those of {} parties",
            description.name,
            parts.len()
        )));
    }
    let layout = grid::plan(description.partition, (m, n), 1, parties, PartySplit::Even, None);
    let loaded = Loaded::in_memory(parts, &layout, description.allows_negative, &comm)?;
    let initial = initial.map(|(u, v)| Given { u, v });
    let problem = Problem {
        data: loaded,
        k,
        seed,
        parties,
        max_iters: limits.max_iters,
        initial: initial.as_ref().map(|given| given as &dyn ReadRows<T>),
        missing: None,
        resuming: false,
        continue_on_loss: false,
        comm: comm.clone(),
    };
    let mut driver = Driver {
        algorithm: T::build(&*method, problem)?,
        trajectory: Trajectory::default(),
        limits,
        leading: method.groups().measure(description),
        signals: None,
        trace: Trace::default(),
        progress: Progress::new(false, None),
        checkpointer: Checkpointer::none(&comm),
        view: None,
        comm: comm.clone(),
    };
    let stop = driver.iterate_observed(observer)?;
    let Driver { algorithm, trajectory, .. } = driver;
    let found = algorithm.factors();
    let arranged = if description.partition.is_private() { None } else { arrange(&comm, scale, &found) };
    let pieces = match &arranged {
        Some(arranged) => arranged.iter().map(|piece| piece.view()).collect(),
        None => found,
    };
    let mut factors: Vec<Factor<T>> = Vec::new();
    for piece in &pieces {
        let party = match piece.owner {
            Owner::Shared => None,
            Owner::Party(party) => Some(party),
        };
        let at = factors.iter().position(|factor| factor.name == piece.name && factor.party == party);
        let at = at.unwrap_or_else(|| {
            let values = Array2::zeros((piece.total_rows, piece.values.ncols()));
            factors.push(Factor { name: piece.name, party, values });
            factors.len() - 1
        });
        let rows = piece.first_row..piece.first_row + piece.values.nrows();
        factors[at].values.slice_mut(ndarray::s![rows, ..]).assign(&piece.values);
    }
    Ok(Factorization {
        factors,
        iterations: trajectory.iteration,
        seconds: trajectory.seconds,
        stopped_by: stop.name(),
        measures: trajectory.measures,
        ledger: sent(&comm),
        edges: edges(&comm),
    })
}

fn sent(comm: &Communicator) -> Vec<Sent> {
    let row = |(tag, entry): (&MessageTag, &Entry)| Sent {
        kind: tag.kind,
        payload: tag.payload.name().to_string(),
        protection: tag.protection().name(),
        rounds: entry.calls,
        bytes: entry.party_bytes,
    };
    comm.ledger().messages().filter(|(_, entry)| entry.party_bytes > 0).map(row).collect()
}

fn edges(comm: &Communicator) -> Vec<Edge> {
    let row = |((from, to), entry): ((usize, usize), &Entry)| Edge {
        from,
        to,
        messages: entry.calls,
        bytes: entry.party_bytes,
    };
    comm.ledger().edges().map(row).collect()
}

/// The shape of the matrix that the parts make up.
fn shape<T: Real>(parts: &[Matrix<T>], partition: Partition) -> (usize, usize) {
    let by_columns = partition == Partition::PartyColumns;
    let (first_m, first_n) = parts.first().map_or((0, 0), Matrix::shape);
    let total = |length: fn((usize, usize)) -> usize| parts.iter().map(|part| length(part.shape())).sum();
    if by_columns { (first_m, total(|(_, n)| n)) } else { (total(|(m, _)| m), first_n) }
}

/// A start in memory.
struct Given<'a, T> {
    u: ArrayView2<'a, T>,
    v: ArrayView2<'a, T>,
}

impl<T: Real> ReadRows<T> for Given<'_, T> {
    fn rows(&self, name: &str, _owner: Owner, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let factor = if name == "U" { &self.u } else { &self.v };
        let rows = first_row..first_row + out.nrows();
        if rows.end > factor.nrows() || factor.ncols() != out.ncols() {
            let ((m, k), (need, columns)) = (factor.dim(), (rows.end, out.ncols()));
            return Err(Error::input(format!("init: {name} is {m} x {k}, not {need} x {columns}")));
        }
        out.assign(&factor.slice(ndarray::s![rows, ..]));
        Ok(())
    }
}

/// The exact U ≥ 0 (rows of `matrix` × k) that minimises ½‖M − U Vᵀ‖_F² and the penalty on U for a given V (columns of
/// `matrix` × k).
///
/// # Errors
/// If V does not fit, or the matrix has entries that are negative or not finite.
pub fn project<T: Real>(matrix: Matrix<T>, v: &ArrayView2<'_, T>, penalty: Penalty) -> Result<Array2<T>> {
    let (_, n) = matrix.shape();
    if v.nrows() != n {
        return Err(Error::input(format!("V has {} rows, but the matrix has {n} columns", v.nrows())));
    }
    Ok(nls::project(&matrix.checked_block()?, v, penalty))
}

/// A search for the number of components.
pub struct Search {
    /// The numbers of components to try, in ascending order.
    pub ks: Vec<usize>,
    /// Factorisations for each, from different starts.
    pub runs: usize,
    pub method: SweepMethod,
    /// Share of the entries that a run does not see; `None`: that of the method.
    pub holdout: Option<f64>,
    pub max_iters: usize,
    pub tol: f64,
    /// Of the first run; the next ones count on.
    pub seed: u64,
}

/// What a [`Search`] found.
pub struct SearchResult {
    pub points: Vec<Point>,
    /// For each k how similar the components of all runs are, cluster by cluster.
    pub similarities: Vec<Similarities>,
    /// `None` if nothing supports a choice.
    pub choice: Option<Choice>,
    /// That of the runs with the chosen k.
    pub consensus: Option<Consensus>,
}

/// Called after each block of iterations with k, the run and what an [`Observer`] gets; `false` ends the search.
pub type SearchObserver<'a> = &'a mut dyn FnMut(usize, usize, usize, &Measures) -> bool;

/// Tries several numbers of components: the numbers are those of `fednmf sweep` for the same matrix and seed.
///
/// # Errors
/// When the data or the parameters are refused, the iterations fail, or the observer ends the search.
pub fn choose_k(matrix: Matrix<f64>, search: &Search, observer: SearchObserver<'_>) -> Result<SearchResult> {
    let comm = Communicator::local();
    let (shape, sparse) = (matrix.shape(), matrix.is_sparse());
    let left_out = search.method.left_out(Missing::None, search.holdout)?;
    let Some(&first) = search.ks.first().filter(|_| search.runs > 0) else {
        return Err(Error::input("there must be at least one number of components and one run"));
    };
    check_sizes(&search.ks, shape)?;
    let methods =
        search.method.configure(&search.ks, (shape.0, shape.1, sparse), &left_out, &RegularizationParams::NONE);
    let layout = model_selection::layout(&*methods[&first], &left_out, shape, &comm);
    let loaded = Loaded::in_memory(vec![matrix], &layout, false, &comm)?;
    let (mut points, mut all_matched) = (Vec::new(), Vec::new());
    for &k in &search.ks {
        let (mut errors, mut components) = (Vec::new(), Vec::new());
        for run in 0..search.runs {
            let trial = Trial {
                method: &*methods[&k],
                k,
                seed: search.seed.wrapping_add(run as u64),
                max_iters: search.max_iters,
                tol: search.tol,
            };
            let of_run: Observer<'_> = Box::new(|iteration, measures| observer(k, run, iteration, measures));
            let found = trial.run(&loaded, &left_out, Some(of_run), &comm);
            let found = found.map_err(|e| e.at(format!("k = {k}, run {run}")))?;
            if found.stop == Stop::Observer {
                return Err(Error::failed("the search was ended"));
            }
            errors.push(found.errors());
            components.extend(found.factors.into_iter().filter(|factor| factor.name == "V").map(|v| v.values));
        }
        points.push(point(k, &errors, &components));
        all_matched.extend(Matched::new(&components));
    }
    let choice = choose(&points, shape.0.min(shape.1));
    let consensus = choice.as_ref().and_then(|choice| {
        let matched = search.ks.iter().zip(&all_matched).find(|(k, _)| **k == choice.k)?.1;
        Some(Consensus::new(Some(matched), choice.k, (&loaded, &layout, SweepMissing::None), &comm))
    });
    let similarities = all_matched.iter().map(Matched::similarities).collect();
    Ok(SearchResult { points, similarities, choice, consensus: consensus.transpose()? })
}

#[cfg(test)]
mod tests {
    use ndarray::{CowArray, ShapeBuilder, array};

    use fednmf_linalg::Block;
    use fednmf_linalg::owned_rows;

    use super::*;

    fn task<'a>(name: &str, k: usize, max_iters: usize) -> Task<'a, f64> {
        Task {
            method: method(name, &[]).unwrap(),
            k,
            seed: 0,
            limits: Limits { max_iters, tol: None, target_error: None, time_limit: None, eval_every: 1 },
            initial: None,
            scale: FactorScale::AsFound,
            observer: None,
        }
    }

    #[test]
    fn every_method_without_parties_begins_with_the_given_start() {
        let u = Array2::from_shape_fn((40, 2), |(i, j)| (1 + (i * (j + 2)) % 7) as f64);
        let v = Array2::from_shape_fn((30, 2), |(i, j)| (1 + (i * (j + 3)) % 5) as f64);
        let given = u.dot(&v.t());
        for name in ["auto", "hals", "bpp", "mu", "kl-mu", "dsanls", "vr-dsanls"] {
            let task = Task { initial: Some((u.view(), v.view())), ..task(name, 2, 1) };
            let found = factorize(vec![Matrix::Dense(given.clone().into())], task).unwrap();
            let product = found.factors[0].values.dot(&found.factors[1].values.t());
            let off = (&product - &given).mapv(|x| x * x).sum().sqrt() / given.mapv(|x| x * x).sum().sqrt();
            assert!(off < 0.05, "{name} is off by {off} after one iteration from the solution");
        }
    }

    /// A start and a run of a method with penalties, as in
    ///
    /// ```python
    /// m, n, k = 12, 9, 3
    /// X = np.array([[float((7*i + 3*j*j + i*j) % 11) for j in range(n)] for i in range(m)])
    /// W = np.array([[(1 + (i*(j+2)) % 5)/4 for j in range(k)] for i in range(m)])
    /// H = np.array([[(1 + (i*(j+3)) % 7)/4 for i in range(n)] for j in range(k)])
    /// NMF(k, init="custom", solver=solver, beta_loss=loss, alpha_W=a, alpha_H=b, l1_ratio=r, max_iter=its, tol=0)
    ///     .fit_transform(X, W=W, H=H)
    /// ```
    fn penalized(name: &str, [a, b, r]: [f64; 3], max_iters: usize) -> Factorization<f64> {
        let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
        let u = Array2::from_shape_fn((12, 3), |(i, j)| (1 + (i * (j + 2)) % 5) as f64 / 4.0);
        let v = Array2::from_shape_fn((9, 3), |(i, j)| (1 + (i * (j + 3)) % 7) as f64 / 4.0);
        let options = [format!("--alpha-u={a}"), format!("--alpha-v={b}"), format!("--l1-ratio={r}")];
        let task = Task {
            method: method(name, &options).unwrap(),
            initial: Some((u.view(), v.view())),
            ..task(name, 3, max_iters)
        };
        factorize(vec![Matrix::Dense(x.into())], Task { limits: Limits { eval_every: 0, ..task.limits }, ..task })
            .unwrap()
    }

    #[test]
    fn penalties_are_those_of_scikit_learn() {
        // scikit-learn 1.9.1: after seven iterations of "cd", from the same start, the same numbers.
        let found = penalized("hals", [0.3, 0.1, 0.5], 7);
        let [w, h] = [0, 1].map(|i| found.factors[i].values.row(0).to_vec());
        let near = |a: &[f64], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near(&w, [0.9475892814309188, 2.2768877763515243, 0.0]), "{w:?}");
        assert!(near(&h, [1.9226779498258115, 0.0, 2.395255891909871]), "{h:?}");
        // After five of "mu" with L1 alone for the divergence.
        let found = penalized("kl-mu", [0.02, 0.03, 1.0], 5);
        let [w, h] = [0, 1].map(|i| found.factors[i].values.row(0).to_vec());
        assert!(near(&w, [0.7603795273269266, 2.475640138720847, 1.2466647663843655]), "{w:?}");
        assert!(near(&h, [1.034530455613926, 0.7730616564834449, 0.9203233389523848]), "{h:?}");
        // After 20000 of "cd" and 200000 of "mu": the objective.
        for (name, weights, iterations, objective) in [
            ("hals", [0.3, 0.1, 0.5], 20_000, 343.4680764993931),
            ("hals", [0.2, 0.2, 0.0], 20_000, 361.2717590621196),
            ("hals", [0.5, 0.25, 1.0], 20_000, 485.5233469296543),
            ("mu", [0.3, 0.1, 0.5], 50_000, 342.6435938285858),
            ("kl-mu", [0.02, 0.03, 0.5], 50_000, 70.80900414086639),
            ("kl-mu", [0.05, 0.05, 0.0], 50_000, 91.57603214922239),
        ] {
            let found = penalized(name, weights, iterations);
            let told = objective_of(&found, name == "kl-mu", weights);
            assert!((told / objective - 1.0).abs() < 1e-4, "{name} {weights:?}: {told} {objective}");
        }
    }

    /// A case of tests/data/beta.json, which tests/data/beta.py makes with scikit-learn.
    #[derive(serde::Deserialize)]
    struct BetaCase {
        beta: f64,
        shape: [usize; 3],
        x: Vec<f64>,
        u: Vec<f64>,
        v: Vec<f64>,
        alpha_u: f64,
        alpha_v: f64,
        l1_ratio: f64,
        iterations: usize,
        u_end: Vec<f64>,
        v_end: Vec<f64>,
    }

    #[test]
    fn iterates_for_beta_divergences_are_those_of_scikit_learn() {
        let cases: Vec<BetaCase> = serde_json::from_str(include_str!("../tests/data/beta.json")).unwrap();
        assert!(cases.len() > 15);
        for case in cases {
            let [m, n, k] = case.shape;
            let matrix = |x: &[f64], rows, cols| Array2::from_shape_vec((rows, cols), x.to_vec()).unwrap();
            let x = matrix(&case.x, m, n);
            let (u, v) = (matrix(&case.u, m, k), matrix(&case.v, n, k));
            let BetaCase { beta, alpha_u, alpha_v, l1_ratio, .. } = case;
            let mut options =
                vec![format!("--beta={beta}"), format!("--alpha-u={alpha_u}"), format!("--alpha-v={alpha_v}")];
            options.extend((l1_ratio > 0.0).then(|| format!("--l1-ratio={l1_ratio}")));
            let sparse = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
            for data in [Matrix::Dense(x.into()), Matrix::Sparse(owned_rows(sparse))] {
                let task = Task {
                    method: method("beta-mu", &options).unwrap(),
                    initial: Some((u.view(), v.view())),
                    ..task("beta-mu", k, case.iterations)
                };
                let found = factorize(vec![data], task).unwrap();
                for (factor, end) in found.factors.iter().zip([&case.u_end, &case.v_end]) {
                    let far = factor
                        .values
                        .iter()
                        .zip(end)
                        .fold(0.0, |most: f64, (a, b)| most.max((a - b).abs() / (1.0 + b)));
                    assert!(far < 1e-9, "beta {beta}, {alpha_u}: {far:e}");
                }
            }
        }
    }

    /// The objective of [`penalized`], by its definition.
    fn objective_of(found: &Factorization<f64>, divergence: bool, [a, b, r]: [f64; 3]) -> f64 {
        let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
        let (u, v) = (&found.factors[0].values, &found.factors[1].values);
        let one = |(m, f): (&f64, &f64)| match divergence {
            false => 0.5 * (m - f).powi(2),
            true => (if *m > 0.0 { m * (m / f).ln() } else { 0.0 }) - m + f,
        };
        let penalty = |x: &Array2<f64>| r * x.sum() + 0.5 * (1.0 - r) * x.mapv(|x| x * x).sum();
        x.iter().zip(&u.dot(&v.t())).map(one).sum::<f64>() + 9.0 * a * penalty(u) + 12.0 * b * penalty(v)
    }

    #[test]
    fn every_method_with_penalties_comes_to_the_same_minimum() {
        let weights = [0.3, 0.1, 0.5];
        let best = penalized("mu", weights, 50_000);
        let objective = objective_of(&best, false, weights);
        let x = Array2::from_shape_fn((12, 9), |(i, j)| ((7 * i + 3 * j * j + i * j) % 11) as f64);
        let [u, v] = [0, 1].map(|i| best.factors[i].values.mapv(|x| 1.02 * x + 0.005));
        let common = ["--alpha-u=0.3", "--alpha-v=0.1", "--l1-ratio=0.5"];
        for (name, more) in [
            ("auto", &[][..]),
            ("bpp", &["--extrapolation=restart"]),
            ("mu", &[]),
            ("dsanls", &["--sketch-size=100%"]),
            ("dsanls", &["--sketch-size=100%", "--solver=pgd"]),
            ("vr-dsanls", &["--epoch=4", "--sketch-size=80%"]),
            ("vr-dsanls", &[]),
        ] {
            let options: Vec<String> = common.iter().chain(more).map(ToString::to_string).collect();
            let task = Task {
                method: method(name, &options).unwrap(),
                initial: Some((u.view(), v.view())),
                limits: Limits { eval_every: 20_000, ..task(name, 3, 20_000).limits },
                ..task(name, 3, 20_000)
            };
            let found = factorize(vec![Matrix::Dense(x.clone().into())], task).unwrap();
            let told = objective_of(&found, false, weights);
            assert!((told / objective - 1.0).abs() < 1e-4, "{name} {more:?}: {told} {objective}");
            let measured = found.measures.iter().find(|(name, _)| *name == "objective").unwrap().1;
            assert!((measured / told - 1.0).abs() < 1e-9, "{name} {more:?}: {measured} {told}");
        }
    }

    #[test]
    fn another_scale_of_the_components_is_refused_with_penalties() {
        let options = ["--alpha-u=1".to_string()];
        let task = |scale| Task { method: method("hals", &options).unwrap(), scale, ..task("hals", 2, 1) };
        let x = || vec![Matrix::Dense(Array2::ones((4, 3)).into())];
        let refused = factorize(x(), task(FactorScale::UnitV)).err().unwrap().message;
        assert!(refused.contains("unit-v") && refused.contains("sorted"), "{refused}");
        assert!(factorize(x(), task(FactorScale::Sorted)).is_ok());
    }

    /// Four blocks with noise.
    fn blocks() -> Array2<f64> {
        Array2::from_shape_fn((60, 40), |(i, j)| {
            let noise = ((7 * i + 13 * j + i * j) % 17) as f64 / 170.0;
            if i / 15 == j / 10 { (1 + (3 * i) % 7) as f64 * (2 + (5 * j) % 11) as f64 / 40.0 + noise } else { noise }
        })
    }

    fn search(ks: &[usize]) -> Search {
        let method = SweepMethod::Hals;
        Search { ks: ks.to_vec(), runs: 3, method, holdout: None, max_iters: 100, tol: 1e-4, seed: 0 }
    }

    #[test]
    fn the_consensus_of_a_search_is_fitted_exactly() {
        let found =
            choose_k(Matrix::Dense(blocks().into()), &search(&[2, 4]), &mut |_, _, _, _: &Measures| true).unwrap();
        assert_eq!(found.points.iter().map(|point| point.k).collect::<Vec<_>>(), [2, 4]);
        let (choice, consensus) = (found.choice.unwrap(), found.consensus.unwrap());
        assert_eq!((choice.k, consensus.u.dim(), consensus.v.dim()), (4, (60, 4), (40, 4)));
        let u = project(Matrix::Dense(blocks().into()), &consensus.v.view(), Penalty::NONE).unwrap();
        assert!((&u - &consensus.u).iter().all(|x| x.abs() < 1e-9));
        let rmse = (&blocks() - &u.dot(&consensus.v.t())).mapv(|x| x * x).mean().unwrap().sqrt();
        assert!((consensus.rmse / rmse - 1.0).abs() < 1e-6, "{} {rmse}", consensus.rmse);
        assert_eq!(found.similarities[1].clusters, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn an_observer_sees_every_run_of_a_search_and_ends_it() {
        let mut seen = std::collections::BTreeSet::new();
        let x = || Matrix::Dense(blocks().into());
        let observe = &mut |k, run, _, _: &Measures| {
            seen.insert((k, run));
            true
        };
        assert!(choose_k(x(), &search(&[1, 2]), observe).is_ok());
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
        let ended = choose_k(x(), &search(&[1]), &mut |_, _, _, _: &Measures| false);
        assert!(ended.err().unwrap().message.contains("ended"));
        let refused = choose_k(x(), &search(&[1, 41]), &mut |_, _, _, _: &Measures| true).err().unwrap().message;
        assert!(refused.contains("41 components are more than the 60 x 40 matrix"), "{refused}");
    }

    #[test]
    fn borrowed_matrices_are_not_copied_and_have_the_same_factors() {
        let all: &'static [f64] = Box::leak(blocks().into_raw_vec_and_offset().0.into_boxed_slice());
        let borrowed = ArrayView2::from_shape((60, 40), all).unwrap();
        let copy = Matrix::Dense(CowArray::from(borrowed)).checked_block().unwrap();
        let Block::Dense(same) = &copy else { panic!("dense") };
        assert_eq!(same.as_ptr(), all.as_ptr());
        let product = |matrix| {
            let found = factorize(vec![matrix], task("hals", 4, 20)).unwrap();
            found.factors[0].values.dot(&found.factors[1].values.t())
        };
        let turned = ArrayView2::from_shape((60, 40).f(), all).unwrap();
        assert_eq!(product(Matrix::Dense(borrowed.into())), product(Matrix::Dense(blocks().into())));
        assert_eq!(product(Matrix::Dense(turned.into())), product(Matrix::Dense(turned.to_owned().into())));
        // Every other column: neither by rows nor by columns, and checked all the same.
        let mut negative = blocks();
        negative[[3, 4]] = -1.0;
        let negative: &'static Array2<f64> = Box::leak(Box::new(negative));
        let sliced = Matrix::Dense(negative.slice(ndarray::s![.., ..;2]).into());
        let refused = factorize(vec![sliced], task("hals", 2, 1)).err().unwrap().message;
        assert!(refused.contains("row 3, column 2"), "{refused}");
    }

    #[test]
    fn an_observer_ends_a_run() {
        let x = Array2::from_shape_fn((20, 10), |(i, j)| ((i * j) % 7) as f64);
        let mut seen = Vec::new();
        let observer: Observer<'_> = Box::new(|iteration, measures| {
            seen.push((iteration, measures.len()));
            seen.len() < 2
        });
        let task = Task { observer: Some(observer), ..task("hals", 2, 1000) };
        let found = factorize(vec![Matrix::Dense(x.into())], task).unwrap();
        assert_eq!(found.stopped_by, "observer");
        assert!(found.iterations < 1000 && seen.len() == 2 && seen.iter().all(|(_, measures)| *measures > 0));
    }

    #[test]
    fn wrong_options_are_named_without_the_hints_of_a_command_line() {
        let message = |name: &str, option: &str| method(name, &[option.to_string()]).unwrap_err().message;
        let told = message("hals", "--inner-sweeps=0");
        assert!(told.starts_with("hals: ") && told.contains("--inner-sweeps"), "{told}");
        let told = message("hals", "--sweeps=1");
        assert!(told.contains("--sweeps") && !told.contains("Usage") && !told.contains("--help"), "{told}");
        assert!(message("nmf", "--x").starts_with("nmf: no such method; the methods are "));
    }

    #[test]
    fn projections_are_the_exact_solution() {
        let v = array![[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]];
        let u = array![[1.0, 2.0], [0.0, 3.0]];
        let found = project(Matrix::Dense(u.dot(&v.t()).into()), &v.view(), Penalty::NONE).unwrap();
        assert!((&found - &u).iter().all(|x: &f64| x.abs() < 1e-10), "{found}");
        let refused =
            project(Matrix::Dense(array![[1.0, -1.0, 0.0]].into()), &v.view(), Penalty::NONE).unwrap_err().message;
        assert!(refused.contains("row 0, column 1"), "{refused}");
        let refused = project(Matrix::Dense(array![[1.0]].into()), &v.view(), Penalty::NONE).unwrap_err().message;
        assert!(refused.contains("V has 3 rows"), "{refused}");
    }
}
