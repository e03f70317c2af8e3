//! One factorisation of a sweep, and the scores of those with one k.

use std::ops::AddAssign as _;

use ndarray::{Array2, Axis};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Parties, Payload, Signals};
use fednmf_data::state::{OwnedPiece, ReadRows};
use fednmf_data::{Layout, Loaded, PartySplit, Resample, Tile};
use fednmf_linalg::Block;
use fednmf_methods::description::Unit;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::metrics::Measure;
use fednmf_methods::precision::Precision;
use fednmf_methods::shared::missing::{Counted, Holdout, MissingParams};
use fednmf_methods::{Measures, Problem};

use super::choice::{Point, standard_error};
use super::method::sweepable_method;
use super::stability::stability;
use crate::plan;
use crate::{Driver, FactorScale, Limits, Observer, Stop, arrange};

/// Iterations between two evaluations, and batches, of which as many are a pass over the rows.
const EVAL_EVERY: [usize; 2] = [10, 20];

/// The least entry of a factor where a divergence from resampled counts is measured, as a share of the mean of its component.
const LEAST: f64 = 1e-3;
const MEANS: MessageTag = MessageTag::new("resampled: sums of the components", Payload::Scalar);

/// Method and settings of a factorisation.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    pub method: &'a dyn ConfiguredMethod,
    pub k: usize,
    pub seed: u64,
    pub max_iters: usize,
    pub tol: f64,
    /// Factorise a copy of the counts, drawn by the seed. The errors are those of its factors on the counts themselves.
    pub resample: Option<Resample>,
}

/// A factorisation that has ended.
pub struct Finished {
    pub iterations: usize,
    pub stop: Stop,
    pub measures: Measures,
    /// This rank's rows of U and V, by descending weight, with V at norm 1 where no penalty determines the scale.
    pub factors: Vec<OwnedPiece<f64>>,
}

/// The errors of one factorisation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Errors {
    /// Root mean squared error on observed entries.
    pub rmse: Option<f64>,
    /// That on held-out entries, or the mean divergence of the fit from them if that is what is minimised.
    pub heldout: Option<f64>,
    pub divergence: Option<f64>,
}

impl Errors {
    /// The errors that `value` returns for their keys.
    pub fn named(value: impl Fn(&str) -> Option<f64>) -> Self {
        let of = |measure: Measure| value(measure.key());
        let heldout = of(Measure::HeldoutDivergence).or_else(|| of(Measure::HeldoutRmse));
        let divergence = of(Measure::Divergence).or_else(|| of(Measure::BetaDivergence));
        Errors { rmse: value("rmse"), heldout, divergence }
    }
}

/// Refuses numbers of components that an m × n matrix does not allow.
///
/// # Errors
/// Naming the number.
pub fn check_sizes(ks: &[usize], (m, n): (usize, usize)) -> Result<()> {
    match ks.iter().find(|&&k| k > m.min(n)) {
        Some(k) => Err(Error::input(format!("{k} components are more than the {m} x {n} matrix has rows or columns"))),
        None => Ok(()),
    }
}

/// The blocks that the factorisations of an m × n matrix need.
pub fn layout(method: &dyn ConfiguredMethod, shape: (usize, usize), ranks: usize) -> Layout {
    plan::layout(method, shape, ranks, Parties { count: ranks, ranks }, PartySplit::Even)
}

impl Trial<'_> {
    /// Factorises. If `signals` are given, a signal ends the run early. Collective.
    ///
    /// # Errors
    /// If the iterations fail; on all ranks, if the factorisation cannot be built.
    pub fn run(
        &self,
        loaded: &Loaded<f64>,
        left_out: &MissingParams,
        (observer, signals): (Option<Observer<'_>>, Option<Signals>),
        comm: &Communicator,
    ) -> Result<Finished> {
        let data = match self.resample {
            Some(how) => self.resampled(loaded, left_out, how, comm)?,
            None => loaded.copy(),
        };
        let limits = Limits {
            max_iters: self.max_iters,
            tol: Some(self.tol),
            target_error: None,
            time_limit: None,
            eval_every: EVAL_EVERY[usize::from(self.method.description().unit == Unit::Batch)],
        };
        // The tolerance is that of what the method minimises, also where entries are held out.
        let leading =
            if self.method.groups().is_penalized() { Measure::Objective } else { self.method.description().measure };
        let algorithm = f64::build(self.method, self.problem(data, None, comm))?;
        let mut driver = Driver::silent(algorithm, limits, leading, comm);
        driver.signals = signals;
        let stop = driver.iterate_observed(observer)?;
        let Driver { algorithm, trajectory, .. } = driver;
        // Penalties determine the scale.
        let scale = if self.method.groups().is_regularized() { FactorScale::Sorted } else { FactorScale::UnitV };
        // A rank without rows has nothing to arrange.
        let factors = arrange(comm, scale, &algorithm.factors()).unwrap_or_default();
        let mut measures = trajectory.measures.clone();
        if self.resample.is_some() {
            drop(algorithm);
            let measured =
                (self.method.description().measure != Measure::RelativeError).then(|| positive(&factors, self.k, comm));
            let measured = measured.as_deref().unwrap_or(&factors);
            // It would fit the rows of U anew.
            let whole = if self.method.description().name == "online" { Some(sweepable_method("hals")?) } else { None };
            let method = whole.as_deref().unwrap_or(self.method);
            measures = f64::build(method, self.problem(loaded.copy(), Some(&measured), comm))?.measure()?;
        }
        if !left_out.any() {
            let entries = loaded.header.rows as f64 * loaded.header.cols as f64;
            let error = measures.iter().find(|(name, _)| *name == "rel_error").map_or(f64::NAN, |(_, error)| *error);
            measures.push(("rmse", error * (loaded.statistics.norm2 / entries).sqrt()));
        }
        Ok(Finished { iterations: trajectory.iteration, stop, measures, factors })
    }

    fn problem<'a>(
        &self,
        data: Loaded<f64>,
        initial: Option<&'a dyn ReadRows<f64>>,
        comm: &Communicator,
    ) -> Problem<'a, f64> {
        Problem {
            data,
            k: self.k,
            seed: self.seed,
            parties: Parties { count: comm.size(), ranks: comm.size() },
            max_iters: self.max_iters,
            initial,
            missing: None,
            resuming: false,
            continue_on_loss: false,
            comm: comm.clone(),
        }
    }

    /// A copy of the counts, without those of the entries that the run holds out.
    fn resampled(
        &self,
        loaded: &Loaded<f64>,
        left_out: &MissingParams,
        how: Resample,
        comm: &Communicator,
    ) -> SharedResult<Loaded<f64>> {
        let shape = (loaded.header.rows, loaded.header.cols);
        let sparse = matches!(loaded.blocks.first(), Some(Block::Sparse(_)));
        let of = Counted { shape, nonzeros: loaded.statistics.nonzeros, sparse, only_stored: false };
        let holdout = Holdout::new(self.seed, left_out.holdout, of);
        let held = |tile: &Tile| holdout.within(tile.rows.clone(), tile.cols.clone(), shape.1);
        loaded.resampled(how, self.seed, holdout.any().then_some(held), comm)
    }
}

/// The factors with entries of at least [`LEAST`] times the mean of their component: a count that its copy lacks says no more than that
/// it is rare, and an infinite divergence would say that it is impossible. Collective.
fn positive(factors: &[OwnedPiece<f64>], k: usize, comm: &Communicator) -> Vec<OwnedPiece<f64>> {
    let side = |piece: &OwnedPiece<f64>| usize::from(piece.name == "V");
    let mut sums = Array2::<f64>::zeros((2, k));
    factors.iter().for_each(|piece| sums.row_mut(side(piece)).add_assign(&piece.values.sum_axis(Axis(0))));
    comm.sum(MEANS, sums.as_slice_mut().expect("made in row order"));
    let floored = |piece: &OwnedPiece<f64>| {
        let &OwnedPiece { name, owner, total_rows, first_row, ref values } = piece;
        let least = sums.row(side(piece)).mapv(|sum| LEAST * sum / total_rows as f64);
        let mut values = values.clone();
        values.rows_mut().into_iter().for_each(|mut row| row.zip_mut_with(&least, |x, &least| *x = x.max(least)));
        OwnedPiece { name, owner, total_rows, first_row, values }
    };
    factors.iter().map(floored).collect()
}

impl Finished {
    pub fn errors(&self) -> Errors {
        Errors::named(|key| self.measures.iter().find(|(name, _)| *name == key).map(|(_, x)| *x))
    }
}

/// Error and stability of one k from the errors and the components V (n × k) of its runs.
pub fn point(k: usize, runs: &[Errors], components: &[Array2<f64>]) -> Point {
    let of = |error: fn(&Errors) -> Option<f64>| runs.iter().filter_map(error).collect::<Vec<f64>>();
    let (seen, held, divergences) = (of(|e| e.rmse), of(|e| e.heldout), of(|e| e.divergence));
    // NaN of none.
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let heldout = (!held.is_empty()).then(|| (mean(&held), standard_error(&held)));
    let divergence = (!divergences.is_empty()).then(|| mean(&divergences));
    let least = |all: &[f64]| all.iter().copied().reduce(f64::min);
    let best = least(&divergences).or_else(|| least(&seen).map(|rmse| rmse * rmse));
    Point {
        k,
        runs: runs.len(),
        rmse: mean(&seen),
        rmse_error: standard_error(&seen),
        divergence,
        best,
        drop: None,
        heldout,
        heldout_of_runs: held,
        stability: stability(components),
    }
}
