//! Factorisations of data that several parties hold.

use ndarray::Array2;

use fednmf_base::error::{Error, Result};
use fednmf_driver::{Evaluation, Stop};
use fednmf_methods::shared::dp::DpParams;
use fednmf_methods::shared::secure_sum::SecureSumParams;

use super::estimator::{Estimator, Parties};
use super::fit::{Decision, Edge, Factor, Fit, Sent};
use super::run::run;
use super::{MatrixView, Real};

/// A method of parties, simulated in one process: each party has a block of the matrix, and the ledger records what
/// leaves it. The settings of the method are those of the estimator inside; this adds how its messages are protected. Since
/// all parties are in this process, none is protected from another, and no run is refused for what it would tell them.
///
/// ```
/// use fednmf::prelude::*;
///
/// let x = ndarray::Array2::from_shape_fn((30, 8), |(i, j)| (1 + (i * j) % 5) as f64);
/// let parties: Vec<_> = x.axis_chunks_iter(ndarray::Axis(0), 10).collect();
/// let shared = Federated::new(Fnmf::new(3).max_iters(5)).secure_sum(true).fit(&parties)?;
/// assert_eq!(shared.v().unwrap().dim(), (8, 3));
/// assert_eq!(shared.u_of(2).unwrap().dim(), (10, 3));
/// assert!(shared.ledger().iter().any(|sent| sent.protection == Protection::Masked));
/// # Ok::<(), fednmf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Federated<M> {
    estimator: Estimator<M>,
}

/// Parameters of methods whose sums over parties can be masked.
pub trait SecureSums: Parties {
    /// The parameters of masked sums.
    fn secure_sums(&mut self) -> &mut SecureSumParams;
}

/// Parameters of methods that offer differential privacy.
pub trait Noise: Parties {
    /// The parameters of the noise.
    fn noise(&mut self) -> &mut DpParams;
}

impl<M: Parties> Federated<M> {
    /// The parties run this method.
    #[must_use]
    pub fn new(estimator: Estimator<M>) -> Self {
        Federated { estimator }
    }

    /// Factorises the matrix whose blocks the parties have, party 0 first: blocks of rows or of columns, depending on
    /// the method ([`Fnmf`](super::Fnmf): rows). The other dimension is the same for all blocks.
    ///
    /// # Errors
    /// If a parameter or an entry is refused, naming it, or the blocks do not fit together.
    pub fn fit<'a, T: Real, B>(&self, blocks: &'a [B]) -> Result<FederatedFit<T>>
    where
        &'a B: Into<MatrixView<'a, T>>,
    {
        let Estimator { options, .. } = &self.estimator;
        let parts = blocks.iter().map(Into::into).collect();
        run(self.estimator.configured(), parts, options, None, None).map(|fit| FederatedFit { fit })
    }
}

impl<M: SecureSums> Federated<M> {
    /// Masks every party's term of a sum, so that only the sum is seen (Bonawitz et al. 2017). With two parties, each
    /// obtains the other's term from the sum; take three or more.
    #[must_use]
    pub fn secure_sum(mut self, masked: bool) -> Self {
        self.estimator.method.secure_sums().secure_sum = masked;
        self
    }
}

impl<M: Noise> Federated<M> {
    /// Adds the noise of differential privacy to what a party releases. The parameters are those of `--dp`, which
    /// [`DpParams`] describes.
    #[must_use]
    pub fn noise(mut self, change: impl FnOnce(&mut DpParams)) -> Self {
        change(Noise::noise(&mut self.estimator.method));
        self
    }
}

/// A factorisation of the matrix of several parties: shared factors, private factors, and the ledger of their messages.
pub struct FederatedFit<T> {
    fit: Fit<T>,
}

impl<T: Real> FederatedFit<T> {
    /// U (m × k), if all parties share it.
    pub fn u(&self) -> Option<&Array2<T>> {
        self.fit.factor("U", None)
    }

    /// V (n × k), if all parties share it.
    pub fn v(&self) -> Option<&Array2<T>> {
        self.fit.factor("V", None)
    }

    /// The rows of U of a party's block (rows × k), which are its own; `None` if all share U or there is no such party.
    pub fn u_of(&self, party: usize) -> Option<&Array2<T>> {
        self.fit.factor("U", Some(party))
    }

    /// The rows of V of a party's block (columns × k), which are its own; `None` if all share V or there is no such
    /// party.
    pub fn v_of(&self, party: usize) -> Option<&Array2<T>> {
        self.fit.factor("V", Some(party))
    }

    /// All matrices of the result, with those that only some methods have.
    pub fn factors(&self) -> &[Factor<T>] {
        self.fit.factors()
    }

    /// The messages that left the parties, by kind.
    pub fn ledger(&self) -> &[Sent] {
        self.fit.ledger()
    }

    /// Why parties that own their blocks would refuse this run, as `fednmf join` does; `None` if they would not.
    pub fn refused_between_owners(&self) -> Option<&str> {
        self.fit.refused_between_owners()
    }

    /// The messages from each party to each neighbour, in methods on a graph.
    pub fn edges(&self) -> &[Edge] {
        self.fit.edges()
    }

    /// ‖M − U Vᵀ‖_F / ‖M‖_F of all parties' data at the last evaluation; NaN without one.
    pub fn relative_error(&self) -> f64 {
        self.fit.relative_error()
    }

    /// A measure of the last evaluation by its name.
    pub fn measure(&self, name: &str) -> Option<f64> {
        self.fit.measure(name)
    }

    /// The number of iterations; of rounds, if the parties work in rounds.
    pub fn iterations(&self) -> usize {
        self.fit.iterations()
    }

    /// Seconds in the start and the iterations, without evaluations.
    pub fn seconds(&self) -> f64 {
        self.fit.seconds()
    }

    /// Why the run ended.
    pub fn stopped_by(&self) -> Stop {
        self.fit.stopped_by()
    }

    /// All evaluations, the start's first.
    pub fn history(&self) -> &[Evaluation] {
        self.fit.history()
    }

    /// The values that the method chose by the data.
    pub fn decisions(&self) -> &[Decision] {
        self.fit.decisions()
    }

    /// The U (rows × k) of new rows for the shared V; see [`Fit::project`].
    ///
    /// # Errors
    /// As [`Fit::project`], and if V is private.
    pub fn project<'a>(&self, rows: impl Into<MatrixView<'a, T>>) -> Result<Array2<T>> {
        match self.v() {
            Some(_) => self.fit.project(rows),
            None => Err(Error::input("V is private to the parties, so new rows cannot be projected")),
        }
    }
}
