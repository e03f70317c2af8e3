//! The results of a factorisation.

use std::fmt;
use std::sync::Arc;

use ndarray::{Array2, ArrayView2};

use fednmf_base::error::{Error, Result};
use fednmf_comm::Payload;
use fednmf_driver::{Evaluation, Stop};
use fednmf_linalg::nls;
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Context, ContextOptions};
use fednmf_methods::Measures;
use fednmf_methods::distributed::divergence::beta::{Beta, check_zeros};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::metrics::Measure;
use fednmf_privacy::Protection;

use super::run::check_memory;
use super::{MatrixView, Real};

/// A factorisation M ≈ U Vᵀ of an m × n matrix M, with U (m × k) and V (n × k).
///
/// ```
/// use fednmf::prelude::*;
///
/// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
/// let fit = Hals::new(4).max_iters(40).fit(&x)?;
/// assert_eq!((fit.u().dim(), fit.v().dim()), ((30, 4), (20, 4)));
/// assert!(fit.history().last().unwrap().iteration == 40 && fit.stopped_by() == Stop::MaxIters);
/// assert!(fit.relative_error() < 0.5 && fit.seconds() >= 0.0);
/// # Ok::<(), fednmf::Error>(())
/// ```
pub struct Fit<T> {
    pub(super) factors: Vec<Factor<T>>,
    pub(super) iterations: usize,
    pub(super) seconds: f64,
    pub(super) stop: Stop,
    pub(super) measures: Measures,
    pub(super) history: Vec<Evaluation>,
    pub(super) decisions: Vec<Decision>,
    pub(super) ledger: Vec<Sent>,
    pub(super) edges: Vec<Edge>,
    pub(super) refused_between_owners: Option<String>,
    pub(super) shape: (usize, usize),
    pub(super) method: Arc<dyn ConfiguredMethod>,
}

/// A value that the method chose by the data, such as the number of sweeps or the start, by name.
pub type Decision = (&'static str, String);

/// A matrix of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor<T> {
    /// `U`, `V`, or the name of a further matrix of the method.
    pub name: &'static str,
    /// The party that owns it; `None` if all parties share it.
    pub party: Option<usize>,
    /// The values, a row for each row (of U) or column (of V) of the matrix or of the party's block.
    pub values: Array2<T>,
}

/// The messages of one kind that all parties sent.
///
/// `Display` writes it as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The kind of the messages.
    pub kind: &'static str,
    /// Their payload.
    pub payload: Payload,
    /// The protection of the payload.
    pub protection: Protection,
    /// How often all parties sent such a message.
    pub rounds: u64,
    /// Bytes that they sent and received.
    pub bytes: u64,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sent { kind, payload, protection, rounds, bytes } = self;
        write!(f, "{kind}: {}, {}, {rounds} times, {bytes} bytes", payload.name(), protection.name())
    }
}

/// The messages from one party to another, in methods whose parties have neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Number of messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to, messages, bytes } = self;
        write!(f, "party {from} to party {to}: {messages} messages, {bytes} bytes")
    }
}

impl<T: Real> Fit<T> {
    /// U (m × k), a row for each row of the matrix.
    ///
    /// # Panics
    /// If U is private to the parties of a [`Federated`](super::Federated) run, which hands out their rows by party.
    pub fn u(&self) -> &Array2<T> {
        self.factor("U", None).expect("all parties share U")
    }

    /// V (n × k), a row for each column of the matrix.
    ///
    /// # Panics
    /// As [`Fit::u`], if V is private.
    pub fn v(&self) -> &Array2<T> {
        self.factor("V", None).expect("all parties share V")
    }

    /// The matrix of that name, shared or of a party; `None` if there is none.
    pub fn factor(&self, name: &str, party: Option<usize>) -> Option<&Array2<T>> {
        let found = self.factors.iter().find(|factor| factor.name == name && factor.party == party);
        found.map(|factor| &factor.values)
    }

    /// All matrices of the result.
    pub fn factors(&self) -> &[Factor<T>] {
        &self.factors
    }

    /// All matrices of the result, without a copy.
    pub fn into_factors(self) -> Vec<Factor<T>> {
        self.factors
    }

    /// ‖M − U Vᵀ‖_F / ‖M‖_F at the last evaluation, of the observed entries where some are missing; NaN without an
    /// evaluation.
    pub fn relative_error(&self) -> f64 {
        self.measure(Measure::RelativeError.key()).unwrap_or(f64::NAN)
    }

    /// A measure of the last evaluation by its name, such as `kl_divergence`, `objective` (with penalties) or
    /// `heldout_rmse` (with held-out entries).
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.measures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The measures of the last evaluation by name, the relative error first; none without an evaluation.
    pub fn measures(&self) -> &[(&'static str, f64)] {
        &self.measures
    }

    /// The number of iterations.
    pub fn iterations(&self) -> usize {
        self.iterations
    }

    /// Seconds in the start and the iterations, without evaluations.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Why the run ended.
    pub fn stopped_by(&self) -> Stop {
        self.stop
    }

    /// All evaluations, the start's first.
    pub fn history(&self) -> &[Evaluation] {
        &self.history
    }

    /// The values that the method chose by the data.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The name of the method; for `auto`, that of the chosen method.
    pub fn method(&self) -> &'static str {
        self.method.description().name
    }

    /// The messages of the parties, by kind; none without parties.
    pub fn ledger(&self) -> &[Sent] {
        &self.ledger
    }

    /// Why parties that own their blocks would refuse this run, as `fednmf join` does; `None` if they would not, or there are none.
    pub fn refused_between_owners(&self) -> Option<&str> {
        self.refused_between_owners.as_deref()
    }

    /// The messages from each party to each neighbour, in methods on a graph.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The U ≥ 0 (rows × k) that fits new rows (rows × n) best for this V: the exact minimiser of the method's
    /// objective, with the penalty on U of the run. For squared errors it is found by block principal pivoting (Kim and
    /// Park 2011), for divergences by coordinate descent.
    ///
    /// # Errors
    /// If the rows do not have n entries, or one is negative or not finite.
    ///
    /// # Panics
    /// If V is private to the parties.
    pub fn project<'a>(&self, rows: impl Into<MatrixView<'a, T>>) -> Result<Array2<T>> {
        let groups = self.method.groups();
        let penalty = groups.regularization.map_or(Penalty::NONE, |group| group.penalties(self.shape).u);
        project_on_threads(rows.into(), &self.v().view(), beta(&*self.method), penalty, None)
    }
}

/// The β of the divergence that the method minimises; `None` for the squared error.
fn beta(method: &dyn ConfiguredMethod) -> Option<f64> {
    Beta::of_method(method).filter(|beta| *beta != Beta::FROBENIUS).map(|beta| beta.0)
}

/// The U ≥ 0 (rows × k) that minimises ½‖M − U Vᵀ‖_F², or for a β the β-divergence, and λ₁‖U‖₁ + ½λ₂‖U‖_F², for a given V
/// (columns of M × k). With `min_gain` a row of U has few components: those that lower the loss of the row by more than this share of
/// half the squared norm of the row, or for the Kullback-Leibler divergence of its sum, chosen by single steps.
///
/// ```
/// use ndarray::array;
///
/// let v = array![[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]];
/// let rows = array![[1.0, 4.0, 3.0]]; // (1, 2) Vᵀ
/// let u = fednmf::project((&rows).into(), &v.view(), None, [0.0, 0.0], None, 1)?;
/// assert!((&u - &array![[1.0, 2.0]]).iter().all(|x: &f64| x.abs() < 1e-12));
/// # Ok::<(), fednmf::Error>(())
/// ```
///
/// # Errors
/// If V does not fit, the matrix has entries that are negative or not finite, or zeros for a β of at most 0, or `min_gain` is given for
/// another divergence.
pub fn project<T: Real>(
    matrix: MatrixView<'_, T>,
    v: &ArrayView2<'_, T>,
    beta: Option<f64>,
    [l1, l2]: [f64; 2],
    min_gain: Option<f64>,
    threads: usize,
) -> Result<Array2<T>> {
    let context = Context::new(ContextOptions { threads, ..ContextOptions::default() })?;
    context.install(|| project_on_threads(matrix, v, beta, Penalty { l1, l2 }, min_gain))
}

/// Whether most rows of a matrix are logarithms of counts, for which the Kullback-Leibler divergence is not meant.
///
/// # Errors
/// If an entry is negative or not finite.
pub fn has_logarithms<T: Real>(matrix: MatrixView<'_, T>) -> Result<bool> {
    // SAFETY: the block is dropped before this function returns.
    #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
    let block = unsafe { matrix.unbounded() }?.checked_block()?;
    Ok(fednmf_driver::has_logarithms(&block))
}

fn project_on_threads<T: Real>(
    matrix: MatrixView<'_, T>,
    v: &ArrayView2<'_, T>,
    beta: Option<f64>,
    penalty: Penalty,
    min_gain: Option<f64>,
) -> Result<Array2<T>> {
    let (m, n) = matrix.shape();
    if v.nrows() != n {
        return Err(Error::input(format!("V has {} rows, but the matrix has {n} columns", v.nrows())));
    }
    check_memory((m, n), v.ncols(), size_of::<T>())?;
    // SAFETY: the block is dropped before this function returns.
    #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
    let block = unsafe { matrix.unbounded() }?.checked_block()?;
    Ok(match (beta, min_gain) {
        (Some(beta), Some(_)) if beta != 1.0 => {
            return Err(Error::input("min_gain is for the squared error and the Kullback-Leibler divergence"));
        }
        (beta, Some(gain)) => nls::project_few(&block, v, beta.is_some(), penalty, gain),
        (None, None) => nls::project(&block, v, penalty),
        (Some(beta), None) => {
            let mut zeros = (m * n) as u64;
            (0..m).for_each(|row| block.for_each_nonzero(row, |_, _| zeros -= 1));
            check_zeros(beta, zeros)?;
            nls::divergence::project_on(&block, v, beta, penalty)
        }
    })
}
