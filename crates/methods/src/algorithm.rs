//! A factorisation in progress ([`Algorithm`]), and what it is built from ([`Problem`]).

use fednmf_base::error::Result;
use fednmf_comm::{Communicator, Interrupt, Parties, PartyCommunicator};
use fednmf_data::Loaded;
use fednmf_data::state::{Piece, ReadRows, SavedState, State};
use fednmf_linalg::{ProductKernels, Real};
use fednmf_privacy::Releases;

/// Everything an algorithm is built from.
pub struct Problem<'a, T: Real> {
    pub data: Loaded<T>,
    /// Number of components.
    pub k: usize,
    /// The public seed.
    pub seed: u64,
    pub kernel: ProductKernels,
    /// Iterations that the run may have in all.
    pub max_iters: usize,
    /// Who owns which block, for the algorithms whose blocks are parties'.
    pub parties: Parties,
    /// Whether the surviving ranks continue when a rank stops responding (`--on-lost-party continue`).
    pub carry_on: bool,
    /// The factors to start from (`--init FILE`), of the right shape; for the algorithms that take them.
    pub initial: Option<&'a dyn ReadRows<T>>,
    /// Whether the state comes from a checkpoint, so that no start needs to be computed.
    pub resuming: bool,
    /// Places that do not count (`--missing FILE`), of this rank's rows and columns.
    pub missing: Option<Places>,
    pub comm: Communicator,
}

/// Places of the matrix (row, column) that a rank's rows, and its columns, lack.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub rows: Vec<(usize, usize)>,
    pub cols: Vec<(usize, usize)>,
}

/// Named measures of the current factors; `rel_error` comes first.
pub type Measures = Vec<(&'static str, f64)>;

/// What an iteration is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The same on all ranks.
    pub seconds: f64,
    /// What takes them.
    pub what: &'static str,
}

/// A factorisation in progress on one rank.
pub trait Algorithm<T: Real> {
    /// Runs `n` iterations, or fewer if [`Algorithm::done`] earlier, with the algorithm's own communication only.
    ///
    /// # Errors
    /// If the values no longer allow an iteration. Such an error may be known on one rank only.
    fn advance(&mut self, n: usize) -> Result<()>;

    /// Iterations since the start of the factorisation, including those before a resume.
    fn iteration(&self) -> usize;

    /// Measures of the present factors, equal on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn measure(&mut self) -> Result<Measures>;

    /// Hands over what tells of a stop within an iteration. A method whose iterations may take minutes keeps it: once it is
    /// raised, [`Algorithm::advance`] returns early, alike on all ranks, with the state of the last finished iteration.
    fn watch(&mut self, _interrupt: &Interrupt) {}

    /// Seconds that an iteration is expected to take at most, measured on the spot, and what takes them; `None` where it is
    /// not known. Only for the user to see. Collective.
    ///
    /// # Errors
    /// If the measurement fails.
    fn forecast(&mut self) -> Result<Option<Forecast>> {
        Ok(None)
    }

    /// Whether nothing is left to do; equal on all ranks and for any number of ranks. The run then stops.
    fn done(&self) -> bool {
        false
    }

    /// Whether an error that hardly falls means that little is left to gain; false where the arithmetic has just changed.
    fn is_settled(&self) -> bool {
        true
    }

    /// Runs what follows the last iteration, such as a single aggregation, before the last evaluation and the output.
    /// Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn conclude(&mut self) -> Result<()> {
        Ok(())
    }

    /// The factors as they go to the output: `U` (m × k) and `V` (n × k), by pieces. Called on all ranks at once.
    fn factors(&self) -> Vec<Piece<'_, T>>;

    /// All that a resume needs besides the iteration; the factors unless more is needed.
    fn state(&self) -> State<'_, T> {
        self.factors().into()
    }

    /// Continues from what [`Algorithm::state`] returned at `iteration`.
    ///
    /// # Errors
    /// If the checkpoint does not fit.
    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()>;

    /// Forgets what was adapted to the arithmetic so far, such as the weight of an extrapolation.
    fn refresh(&mut self) {}

    /// Decisions made before the first iteration that belong in trace and output, such as effective sketch sizes.
    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    /// What is known at the end of the run alone, for the end of the trace and the output.
    fn outcome(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    /// What the parties have released under differential privacy; `None` without it.
    fn private_releases(&self) -> Option<&Releases> {
        None
    }

    /// The method as an asynchronous one; `None` if its parties work in step.
    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        None
    }
}

/// What only asynchronous methods have.
pub trait Asynchronous {
    /// The parties whose turns were merged so far, in order; empty where that is not recorded, and on ranks other than 0.
    fn order(&self) -> &[usize];

    /// The communicator of the surviving ranks once some rank was lost: from then on only these meet.
    fn survivors(&self) -> Option<&PartyCommunicator>;
}
