//! The number of components.

use std::sync::Arc;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::policy::EntryPolicy;
use fednmf_data::{Loaded, Resample, Sharing};
use fednmf_driver::model_selection::{
    Choice, Consensus, Criterion, Matched, Point, Similarities, SweepMissing, Trial, check_settings, check_sizes,
    choose, choose_by_rows, configure, considered, drops, errors_of_rows, inertias, iterations, layout, left_out,
    point, requested, sweepable_method,
};
use fednmf_driver::spec::Precision;
use fednmf_driver::{Observer, Stop, check_size};
use fednmf_linalg::{Context, ContextOptions};
use fednmf_methods::Measures;
use fednmf_methods::distributed::divergence::beta::Beta;
use fednmf_methods::distributed::divergence::volume::VolumeParams;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape, SweepSettings};
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Missing;
use fednmf_methods::shared::regularization::RegularizationParams;

use super::MatrixView;
use super::run::check_memory;

/// A search for the number of components k: several factorisations for each k, from different starts, scored by the error
/// on held-out entries and by how similar their components are (as NMFk, Alexandrov and Vesselinov 2014).
///
/// The numbers are those of `fednmf sweep` for the same matrix, settings and seed.
///
/// ```
/// use fednmf::prelude::*;
///
/// let x = ndarray::Array2::from_shape_fn((60, 40), |(i, j)| {
///     let noise = ((7 * i + 13 * j + i * j) % 17) as f64 / 170.0;
///     if i / 15 == j / 10 { (1 + (3 * i) % 7) as f64 * (2 + (5 * j) % 11) as f64 / 40.0 + noise } else { noise }
/// });
/// let found = Search::over([2, 4]).runs(3).max_iters(100).fit(&x)?;
/// assert_eq!(found.choice.unwrap().k, 4);
/// assert_eq!(found.consensus.unwrap().v.dim(), (40, 4));
/// # Ok::<(), fednmf::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Search {
    ks: Vec<usize>,
    runs: usize,
    method: Option<Arc<dyn ConfiguredMethod>>,
    loss: Option<Beta>,
    holdout: Option<f64>,
    resample: Option<Resample>,
    criterion: Option<Criterion>,
    max_iters: Option<usize>,
    tol: f64,
    seed: u64,
    threads: usize,
}

/// The result of a [`Search`].
pub struct SearchResult {
    /// Errors and stability for each k.
    pub points: Vec<Point>,
    /// For each k how similar the components of all runs are, cluster by cluster.
    pub similarities: Vec<Similarities>,
    /// The recommended k and its reasons; `None` if nothing supports a choice.
    pub choice: Option<Choice>,
    /// The mean of the matched components of the runs with the chosen k: V (n × k), and U (m × k) fitted to it.
    pub consensus: Option<Consensus>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(=> $wrap:path)?;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $($wrap)? ($name);
                self
            }
        )*
    };
}

impl Search {
    /// These numbers of components, in ascending order, with the defaults of `fednmf sweep`.
    pub fn over(ks: impl IntoIterator<Item = usize>) -> Self {
        Search {
            ks: ks.into_iter().collect(),
            runs: 5,
            method: None,
            loss: None,
            holdout: None,
            resample: None,
            criterion: None,
            max_iters: None,
            tol: 1e-4,
            seed: 0,
            threads: 1,
        }
    }

    setters! {
        /// Factorisations for each k.
        runs: usize;
        /// Share of the entries that a run does not see.
        holdout: f64 => Some;
        /// Factorise in each run a copy of the counts, drawn by its seed. Errors are those on the counts themselves.
        resample: Resample => Some;
        /// Choose k by the rule of another program.
        criterion: Criterion => Some;
        /// Loss to minimise, by the method that `auto` chooses for it unless one is named.
        loss: Beta => Some;
        /// Largest number of iterations of a factorisation; by default 200, and 1000 for divergences.
        max_iters: usize => Some;
        /// End a factorisation when its measure falls by less than this share of its first value, a divergence of its last value.
        tol: f64;
        /// Seed of the first run for each k; the next ones count on.
        seed: u64;
        /// Threads of the products with the data.
        threads: usize;
    }

    /// The method of the factorisations, by its name: `hals` (the default without a loss), `auto`, `mu`, `kl-mu` and others.
    ///
    /// # Errors
    /// If a search cannot run it; the message names those that it can.
    pub fn method(mut self, name: &str) -> Result<Self> {
        self.method = Some(sweepable_method(name)?);
        Ok(self)
    }

    /// Tries all k.
    ///
    /// # Errors
    /// If the matrix or a setting is refused, or a factorisation fails.
    pub fn fit<'a>(&self, matrix: impl Into<MatrixView<'a, f64>>) -> Result<SearchResult> {
        self.fit_observed(matrix, |_, _, _, _| true)
    }

    /// As [`Search::fit`]; `observe` is called during the factorisations with k, the number of the run, its iterations and
    /// the last measures, and ends the search with `false`.
    ///
    /// # Errors
    /// As [`Search::fit`], and if the search is ended.
    pub fn fit_observed<'a>(
        &self,
        matrix: impl Into<MatrixView<'a, f64>>,
        mut observe: impl FnMut(usize, usize, usize, &Measures) -> bool,
    ) -> Result<SearchResult> {
        let matrix = matrix.into();
        let context = Context::new(ContextOptions { threads: self.threads, ..ContextOptions::default() })?;
        context.install(|| self.search(matrix, &mut observe))
    }

    fn search(
        &self,
        matrix: MatrixView<'_, f64>,
        observe: &mut dyn FnMut(usize, usize, usize, &Measures) -> bool,
    ) -> Result<SearchResult> {
        let comm = Communicator::local();
        let (shape, sparse, rows) = (matrix.shape(), matrix.is_sparse(), matrix.rows());
        let loss = self.loss.map(|Beta(beta)| beta.to_string());
        let method = requested(self.method.as_ref(), loss.as_deref())?;
        let missing = left_out(&*method, Missing::None, self.holdout)?;
        self.criterion.map_or(Ok(()), |criterion| criterion.check(&*method, &missing.missing))?;
        let Some(&first) = self.ks.first().filter(|_| self.runs > 0) else {
            return Err(Error::input("there must be at least one number of components and one run"));
        };
        check_sizes(&self.ks, shape)?;
        check_memory(shape, self.ks.iter().copied().max().unwrap_or(first), size_of::<f64>())?;
        let settings = SweepSettings {
            missing: missing.clone(),
            regularization: RegularizationParams::NONE,
            volume: VolumeParams::NONE,
        };
        check_settings(&*method, &settings)?;
        let matrix_shape = MatrixShape { m: shape.0, n: shape.1, k: first, sparse, streamed: rows.is_some() };
        let methods = configure(&method, &self.ks, matrix_shape, &settings);
        let layout = layout(&*methods[&first], shape, comm.size());
        let loaded = match rows {
            Some(_) if self.resample.is_some() => {
                return Err(Error::input(
                    "resample draws from all counts, which must be in memory for it; leave it out",
                ));
            }
            Some(rows) => rows.load(&*methods[&first], (first, Precision::F64), &comm)?,
            None => {
                // SAFETY: the matrix and what is made from it are dropped before this function returns.
                #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
                let matrix = unsafe { matrix.unbounded() }?;
                Loaded::in_memory(vec![matrix], &layout, EntryPolicy::default(), (None, Sharing::Clear), &comm)?
            }
        };
        check_size(Precision::F64, &loaded.statistics)?;
        if self.resample.is_some() {
            loaded.check_counts(&comm)?;
        }
        let (mut points, mut all_matched) = (Vec::new(), Vec::new());
        for &k in &self.ks {
            let (mut errors, mut components) = (Vec::new(), Vec::new());
            for run in 0..self.runs {
                let trial = Trial {
                    method: &*methods[&k],
                    k,
                    seed: self.seed.wrapping_add(run as u64),
                    max_iters: self.max_iters.unwrap_or_else(|| iterations(&*method)),
                    tol: self.tol,
                    resample: self.resample,
                };
                let of_run: Observer<'_> = Box::new(|iteration, measures| observe(k, run, iteration, measures));
                let found = trial.run(&loaded, &missing, (Some(of_run), None), &comm);
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
        if !missing.any() && methods[&first].description().measure == Measure::RelativeError {
            let last = self.ks.iter().copied().max().unwrap_or(0);
            let drops = drops(&self.ks, &inertias(&loaded, last + 1, &comm)?);
            points.iter_mut().zip(drops).for_each(|(point, drop)| point.drop = Some(drop));
        }
        let matched_of = |k: usize| Some(self.ks.iter().zip(&all_matched).find(|(of, _)| **of == k)?.1);
        let most = shape.0.min(shape.1);
        let choice = match self.criterion {
            None => choose(&points, most),
            Some(Criterion::SigProfiler) => {
                let considered = considered(&points).into_iter();
                let errors = considered.map(|point| errors_of_rows(matched_of(point.k), point.k, &loaded, &comm));
                choose_by_rows(&points, &errors.collect::<SharedResult<Vec<_>>>()?, most)
            }
        };
        let consensus = choice.as_ref().and_then(|choice| {
            let k = choice.of_consensus();
            let matched = matched_of(k)?;
            let of_runs = (k, &*methods[&k]);
            Some(Consensus::new(Some(matched), of_runs, (&loaded, SweepMissing::None), &comm))
        });
        let similarities = all_matched.iter().map(Matched::similarities).collect();
        Ok(SearchResult { points, similarities, choice, consensus: consensus.transpose()? })
    }
}
