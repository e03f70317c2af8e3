//! `--precision mixed`: iterations in f32 for as long as they lower the error, by `--tol` at least, then in f64.
//!
//! Far from convergence, a factorisation needs no more digits than f32 has, and an iteration in f32 reads half the
//! bytes. The data are held in both precisions until the change to f64, and in f64 only afterwards. The change depends
//! on the measured errors, which are the same on all ranks, never on a clock.

use ndarray::{Array2, ArrayViewMut2};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Interrupt;
use fednmf_data::state::{OwnedPiece, Owner, Piece, ReadRows, SavedState, State};
use fednmf_linalg::Real;

use super::method::ConfiguredMethod;
use super::{Algorithm, Forecast, Measures, Problem};
use crate::decision::Decision;

/// Changes of the error below this fraction of its first value may be rounding errors of f32.
pub const RESOLUTION: f64 = 1e-6;

/// Builds the method in both precisions. Collective.
///
/// # Errors
/// As the method's own.
pub fn build(method: &dyn ConfiguredMethod, problem: Problem<'_, f64>) -> SharedResult<Box<dyn Algorithm<f64>>> {
    let initial = problem.initial.map(Narrowed);
    let single = method.build_f32(Problem {
        data: problem.data.converted(),
        k: problem.k,
        seed: problem.seed,
        max_iters: problem.max_iters,
        parties: problem.parties,
        continue_on_loss: problem.continue_on_loss,
        initial: initial.as_ref().map(|rows| rows as &dyn ReadRows<f32>),
        resuming: problem.resuming,
        missing: problem.missing.clone(),
        comm: problem.comm.clone(),
    })?;
    // Its state is restored from the f32 algorithm, as from a checkpoint.
    let double = method.build_f64(Problem { initial: None, resuming: true, ..problem })?;
    let measure = method.description().measure.key();
    let mut mixed = Mixed { single: Some(single), double, widened: Vec::new(), measure, progress: Progress::default() };
    mixed.widen();
    Ok(Box::new(mixed))
}

struct Mixed {
    /// The f32 algorithm, until the change to f64.
    single: Option<Box<dyn Algorithm<f32>>>,
    double: Box<dyn Algorithm<f64>>,
    /// The state of `single`, for output and checkpoint.
    widened: Vec<OwnedPiece<f64>>,
    /// The measure whose decrease is monitored.
    measure: &'static str,
    progress: Progress,
}

/// The state that decides when the precision changes.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Progress {
    /// The first value of the measure, and the last.
    first: Option<f64>,
    last: Option<f64>,
    measured_at: Option<usize>,
    /// The most iterations between two values.
    #[serde(default)]
    interval: usize,
    /// Iterations in f32, once they have ended.
    changed_at: Option<usize>,
}

/// Keys of the checkpoint's values: the state of the method, and [`Progress`].
const METHOD: &str = "method";
const MIXED: &str = "mixed";

impl Mixed {
    /// Copies the state of `single` to f64, in place if it has the same matrices as before.
    fn widen(&mut self) {
        let Some(single) = &self.single else { return };
        let pieces = single.state().matrices;
        let alike = |(kept, piece): (&OwnedPiece<f64>, &Piece<'_, f32>)| {
            kept.name == piece.name && kept.values.dim() == piece.values.dim()
        };
        if self.widened.len() != pieces.len() || !self.widened.iter().zip(&pieces).all(alike) {
            self.widened = pieces
                .iter()
                .map(|piece| OwnedPiece {
                    name: piece.name,
                    owner: piece.owner,
                    total_rows: piece.total_rows,
                    first_row: piece.first_row,
                    values: Array2::zeros(piece.values.dim()),
                })
                .collect();
        }
        for (kept, piece) in self.widened.iter_mut().zip(&pieces) {
            kept.values.zip_mut_with(&piece.values, |to, &from| *to = f64::from(from));
        }
    }

    /// Continues in f64.
    fn change(&mut self) -> Result<()> {
        let Some(single) = self.single.take() else { return Ok(()) };
        let iteration = single.iteration();
        let scalars = single.state().scalars;
        self.double.restore(&InMemory { matrices: &self.widened, scalars }, iteration)?;
        self.double.refresh();
        self.widened = Vec::new();
        self.progress.changed_at = Some(iteration);
        Ok(())
    }
}

impl Algorithm<f64> for Mixed {
    fn advance(&mut self, n: usize) -> Result<()> {
        let Some(single) = &mut self.single else { return self.double.advance(n) };
        single.advance(n)?;
        self.widen();
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.single.as_ref().map_or_else(|| self.double.iteration(), |single| single.iteration())
    }

    fn measure(&mut self) -> Result<Measures> {
        let Some(single) = &mut self.single else { return self.double.measure() };
        let (measures, iteration) = (single.measure()?, single.iteration());
        let watched = measures.iter().find(|(name, _)| *name == self.measure).or(measures.first());
        let Progress { first, last, measured_at, interval, .. } = &mut self.progress;
        let since = measured_at.map_or(usize::MAX, |at| iteration - at);
        // A run may end between two evaluations, and the first one after a resume repeats the last one: after few iterations the
        // measure hardly changes.
        if let Some((_, now)) = watched.copied().filter(|_| since > 0 && since >= *interval) {
            if measured_at.is_some() {
                *interval = since;
            }
            *measured_at = Some(iteration);
            let first = *first.get_or_insert(now);
            // For some measures, larger is better, so absolute values are compared.
            let stalled = last.is_some_and(|last| (last - now).abs() < RESOLUTION * first.abs());
            *last = Some(now);
            if stalled {
                self.change()?;
            }
        }
        Ok(measures)
    }

    fn ends_at_tolerance(&mut self) -> Result<bool> {
        if self.single.is_some() {
            self.change()?;
        }
        // The last decrease was still one of f32.
        Ok(self.progress.changed_at != Some(self.double.iteration()))
    }

    fn watch(&mut self, interrupt: &Interrupt) {
        if let Some(single) = &mut self.single {
            single.watch(interrupt);
        }
        self.double.watch(interrupt);
    }

    fn forecast(&mut self) -> Result<Option<Forecast>> {
        match &mut self.single {
            Some(single) => single.forecast(),
            None => self.double.forecast(),
        }
    }

    fn done(&self) -> bool {
        self.single.as_ref().map_or_else(|| self.double.done(), |single| single.done())
    }

    fn conclude(&mut self) -> Result<()> {
        match &mut self.single {
            Some(single) => {
                single.conclude()?;
                self.widen();
                Ok(())
            }
            None => self.double.conclude(),
        }
    }

    fn factors(&self) -> Vec<Piece<'_, f64>> {
        let Some(single) = &self.single else { return self.double.factors() };
        let names: Vec<&str> = single.factors().iter().map(|piece| piece.name).collect();
        self.widened.iter().filter(|piece| names.contains(&piece.name)).map(OwnedPiece::view).collect()
    }

    fn state(&self) -> State<'_, f64> {
        let (matrices, mut scalars) = match &self.single {
            Some(single) => (self.widened.iter().map(OwnedPiece::view).collect(), single.state().scalars),
            None => {
                let State { matrices, scalars } = self.double.state();
                (matrices, scalars)
            }
        };
        let shared = scalars.iter().position(|(owner, _)| *owner == Owner::Shared).map(|at| scalars.remove(at).1);
        scalars.push((Owner::Shared, json!({METHOD: shared.unwrap_or_default(), MIXED: self.progress})));
        State { matrices, scalars }
    }

    fn restore(&mut self, saved: &dyn SavedState<f64>, iteration: usize) -> Result<()> {
        let progress = saved.scalars(Owner::Shared)?[MIXED].clone();
        self.progress = serde_json::from_value(progress).map_err(|e| {
            Error::input(format!(
                "the checkpoint does not tell the precision of its state ({e}); start again without --resume"
            ))
        })?;
        let saved = OfMethod(saved);
        if self.progress.changed_at.is_some() {
            self.single = None;
            self.widened = Vec::new();
            return self.double.restore(&saved, iteration);
        }
        if let Some(single) = &mut self.single {
            single.restore(&Narrowed(&saved), iteration)?;
        }
        self.widen();
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        self.single.as_ref().map_or_else(|| self.double.decisions(), |single| single.decisions())
    }

    fn outcome(&self) -> Vec<Decision> {
        let in_f32 = self.progress.changed_at.unwrap_or_else(|| self.iteration());
        vec![Decision::IterationsInF32(in_f32)]
    }
}

/// Rows or a state in f64, read in f32.
struct Narrowed<S>(S);

impl<S: AsRows> ReadRows<f32> for Narrowed<S> {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, mut out: ArrayViewMut2<'_, f32>) -> Result<()> {
        let mut wide = Array2::zeros(out.dim());
        self.0.source().rows(name, owner, first_row, wide.view_mut())?;
        out.zip_mut_with(&wide, |to, &from| *to = f32::from_f64(from));
        Ok(())
    }
}

impl SavedState<f32> for Narrowed<&OfMethod<'_>> {
    fn scalars(&self, owner: Owner) -> Result<Value> {
        self.0.scalars(owner)
    }
}

/// A source of rows.
trait AsRows {
    fn source(&self) -> &dyn ReadRows<f64>;
}

impl AsRows for &dyn ReadRows<f64> {
    fn source(&self) -> &dyn ReadRows<f64> {
        *self
    }
}

impl AsRows for &OfMethod<'_> {
    fn source(&self) -> &dyn ReadRows<f64> {
        *self
    }
}

/// The method's part of a checkpoint.
struct OfMethod<'a>(&'a dyn SavedState<f64>);

impl ReadRows<f64> for OfMethod<'_> {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, f64>) -> Result<()> {
        self.0.rows(name, owner, first_row, out)
    }
}

impl SavedState<f64> for OfMethod<'_> {
    fn scalars(&self, owner: Owner) -> Result<Value> {
        let all = self.0.scalars(owner)?;
        Ok(if owner == Owner::Shared { all[METHOD].clone() } else { all })
    }
}

/// The f32 state of the method on this rank.
struct InMemory<'a> {
    matrices: &'a [OwnedPiece<f64>],
    scalars: Vec<(Owner, Value)>,
}

impl ReadRows<f64> for InMemory<'_> {
    fn rows(&self, name: &str, owner: Owner, first_row: usize, out: ArrayViewMut2<'_, f64>) -> Result<()> {
        self.matrices.rows(name, owner, first_row, out)
    }
}

impl SavedState<f64> for InMemory<'_> {
    fn scalars(&self, owner: Owner) -> Result<Value> {
        Ok(self.scalars.iter().find(|(of, _)| *of == owner).map(|(_, value)| value.clone()).unwrap_or_default())
    }
}
