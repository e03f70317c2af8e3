//! A factorisation in progress ([`Algorithm`]), and what it is built from ([`Problem`]).

use fednmf_base::error::Result;
use fednmf_comm::{Communicator, Interrupt, Loss, Parties, PartyCommunicator};
use fednmf_data::Loaded;
use fednmf_data::state::{Piece, ReadRows, SavedState, State};
use fednmf_linalg::Real;
use fednmf_privacy::Releases;

use crate::decision::Decision;

/// Everything an algorithm is built from.
pub struct Problem<'a, T: Real> {
    pub data: Loaded<T>,
    /// Number of components.
    pub k: usize,
    /// The public seed.
    pub seed: u64,
    /// Total number of iterations that the run may take.
    pub max_iters: usize,
    /// Which party owns which block; only for algorithms whose blocks belong to parties.
    pub parties: Parties,
    /// Whether the surviving ranks continue when a rank stops responding (`--on-lost-party continue`).
    pub continue_on_loss: bool,
    /// The factors to start from (`--init FILE`), of the right shape; only for algorithms that accept a start.
    pub initial: Option<&'a dyn ReadRows<T>>,
    /// Whether the state comes from a checkpoint, so that no start needs to be computed.
    pub resuming: bool,
    /// Excluded entries (`--missing FILE`) in this rank's rows and columns.
    pub missing: Option<Places>,
    pub comm: Communicator,
}

/// Missing entries of the matrix, as (row, column): those in a rank's rows, and those in its columns.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub rows: Vec<(usize, usize)>,
    pub cols: Vec<(usize, usize)>,
}

/// Named measures of the current factors; `rel_error` comes first.
pub type Measures = Vec<(&'static str, f64)>;

/// The expected duration of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The same on all ranks.
    pub seconds: f64,
    /// The operations that take this time.
    pub what: &'static str,
}

/// A factorisation in progress on one rank.
pub trait Algorithm<T: Real> {
    /// Runs `n` iterations, or fewer if [`Algorithm::done`] earlier, with the algorithm's own communication only.
    ///
    /// # Errors
    /// If the iterate no longer permits an iteration, for example because it is not finite. The error may occur on a
    /// single rank.
    fn advance(&mut self, n: usize) -> Result<()>;

    /// Iterations since the start of the factorisation, including those before a resume.
    fn iteration(&self) -> usize;

    /// Measures of the present factors, equal on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn measure(&mut self) -> Result<Measures>;

    /// Gives the method the interrupt flag. A method whose iterations may take minutes keeps it and polls it: once it
    /// is raised, [`Algorithm::advance`] returns early, on all ranks alike, in the state of the last finished
    /// iteration.
    fn watch(&mut self, _interrupt: &Interrupt) {}

    /// Upper estimate of the seconds of an iteration, measured at the call, and what takes them; `None` if unknown. For
    /// display only. Collective.
    ///
    /// # Errors
    /// If the measurement fails.
    fn forecast(&mut self) -> Result<Option<Forecast>> {
        Ok(None)
    }

    /// Whether no further iteration is useful; equal on all ranks and for any number of ranks. The run then stops.
    fn done(&self) -> bool {
        false
    }

    /// Whether the factors can be evaluated and written: not while they are secret shares, which [`Algorithm::conclude`] opens.
    fn is_open(&self) -> bool {
        true
    }

    /// Whether a decrease of the error below `--tol` ends the run. A method that can go on more exactly does so instead, and is
    /// asked again after the next evaluation.
    ///
    /// # Errors
    /// If it cannot go on.
    fn ends_at_tolerance(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Runs the steps that follow the last iteration, such as a single aggregation, before the last evaluation and the
    /// output. Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn conclude(&mut self) -> Result<()> {
        Ok(())
    }

    /// The factors for the output: `U` (m × k) and `V` (n × k), in pieces. Called on all ranks.
    fn factors(&self) -> Vec<Piece<'_, T>>;

    /// The state that a resume needs in addition to the iteration number; by default the factors.
    fn state(&self) -> State<'_, T> {
        self.factors().into()
    }

    /// Continues from what [`Algorithm::state`] returned at `iteration`.
    ///
    /// # Errors
    /// If the checkpoint does not fit.
    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()>;

    /// Resets parameters that adapted to the previous precision, such as the extrapolation weight.
    fn refresh(&mut self) {}

    /// Decisions made before the first iteration that belong in trace and output, such as effective sketch sizes.
    fn decisions(&self) -> Vec<Decision> {
        Vec::new()
    }

    /// Values that are known only at the end of the run, for the end event of the trace and for the output.
    fn outcome(&self) -> Vec<Decision> {
        Vec::new()
    }

    /// What the parties have released under differential privacy; `None` without it.
    fn private_releases(&self) -> Option<&Releases> {
        None
    }

    /// The same, before the first iteration.
    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        None
    }

    /// The asynchronous interface of the method; `None` if its parties work in lockstep.
    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        None
    }
}

/// The part of the interface that only asynchronous methods have.
pub trait Asynchronous {
    /// The parties whose turns have been merged, in order; empty if the order is not recorded, and on ranks other than
    /// 0.
    fn order(&self) -> &[usize];

    /// The communicator of the surviving ranks once a rank has been lost; only these ranks take part in collectives
    /// from then on.
    fn survivors(&self) -> Option<&PartyCommunicator>;

    /// The parties that have been lost so far, with their ranks.
    fn losses(&self) -> Vec<(usize, Loss)>;
}
