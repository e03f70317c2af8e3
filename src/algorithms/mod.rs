//! The algorithms, each in a file named as in its paper, and the registry that knows them all.
//!
//! An algorithm is a value with [`Algorithm::advance`]; everything around it (limits, evaluation, trace, checkpoint,
//! output) is the driver's. To add one: a file here, and one line in [`registry::ALL`].

pub mod boolean;
pub mod centralized;
pub mod columns;
pub mod network;
pub mod cost;
pub mod description;
pub mod method;
pub mod parameters;
pub mod registry;
pub mod rows;
pub mod shared;

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::comm::{Communicator, Parties};
use crate::data::Loaded;
use crate::error::Result;
use crate::linalg::{Real, SparseKernels};
use crate::privacy::Releases;


/// Everything an algorithm is built from.
pub struct Problem<'a, T: Real> {
    pub data: Loaded<T>,
    /// Number of components.
    pub k: usize,
    /// The public seed.
    pub seed: u64,
    pub kernel: SparseKernels,
    /// Iterations that the run may have in all.
    pub max_iters: usize,
    /// Who owns which block, for the algorithms whose blocks are parties'.
    pub parties: Parties,
    /// Whether those that are left go on when a rank keeps silent (`--on-lost-party continue`).
    pub carry_on: bool,
    /// The factors to start from (`--init FILE`), of the right shape; for the algorithms that take them.
    pub initial: Option<&'a dyn Restore<T>>,
    /// Places that do not count (`--missing FILE`), of this rank's rows and columns.
    pub missing: Option<shared::missing::Places>,
    pub comm: Communicator,
}

/// Named statistics of the current factors; `rel_error` comes first.
pub type Measures = Vec<(&'static str, f64)>;

/// Who may see a piece of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Part of the shared result: goes to the output file.
    Shared,
    /// One party's own: written by its host into a file of its own.
    Party(usize),
}

/// Rows of a named matrix that this rank contributes to output or checkpoint.
pub struct Piece<'a, T> {
    pub name: &'static str,
    pub owner: Owner,
    /// Rows of the whole named matrix (of this owner).
    pub total_rows: usize,
    /// Where `values` begins in it.
    pub first_row: usize,
    pub values: ArrayView2<'a, T>,
}

impl<'a, T> Piece<'a, T> {
    /// Rows of a matrix that is part of the shared result.
    pub fn shared(name: &'static str, total_rows: usize, first_row: usize, values: ArrayView2<'a, T>) -> Self {
        Piece { name, owner: Owner::Shared, total_rows, first_row, values }
    }
}

/// What a checkpoint gives back.
pub trait Restore<T> {
    /// Fills `out` with rows `first_row ..` of the named matrix.
    ///
    /// # Errors
    /// When the checkpoint has no such matrix, or it has another shape.
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, T>) -> Result<()>;
}

/// A factorisation in progress on one rank.
pub trait Algorithm<T: Real> {
    /// Runs `n` iterations, or fewer when [`Algorithm::done`] before, with the algorithm's own communication only.
    ///
    /// # Errors
    /// When the numbers can no longer be carried on with. Such an error may be known on one rank only.
    fn advance(&mut self, n: usize) -> Result<()>;

    /// Iterations done since the start of the factorisation, those before a resume included.
    fn iteration(&self) -> usize;

    /// Statistics of the present factors, equal on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn measure(&mut self) -> Result<Measures>;

    /// Whether there is nothing left to do, equal on all ranks and whatever the number of ranks: the run then stops.
    fn done(&self) -> bool {
        false
    }

    /// What is left to do once no iteration follows, such as a single aggregation: before the last evaluation and the
    /// output. Collective.
    ///
    /// # Errors
    /// As [`Algorithm::advance`].
    fn conclude(&mut self) -> Result<()> {
        Ok(())
    }

    /// The factors as they go to the output: `U` (m × k) and `V` (n × k), by pieces. Called on all ranks at once.
    fn factors(&self) -> Vec<Piece<'_, T>>;

    /// All that a later resume needs beside the iteration; the factors unless more is asked for.
    fn state(&self) -> Vec<Piece<'_, T>> {
        self.factors()
    }

    /// Takes up where [`Algorithm::state`] was at `iteration`.
    ///
    /// # Errors
    /// When the checkpoint does not fit.
    fn restore(&mut self, from: &dyn Restore<T>, iteration: usize) -> Result<()>;

    /// What the parties have released under differential privacy, where that was asked for.
    fn releases(&self) -> Option<&Releases> {
        None
    }

    /// What every party has seen of the others' data, for `--record-releases`.
    fn seen(&self) -> Vec<Piece<'_, T>> {
        Vec::new()
    }

    /// The order in which the parties' turns were merged so far, as rank 0 knows it, where it is kept.
    fn order(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The comm of those that are left, when ranks were lost and the others go on: from then on only these meet.
    fn left(&self) -> Option<&Communicator> {
        None
    }

    /// What was decided on the way and belongs into trace and output, such as effective sketch sizes.
    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }
}
