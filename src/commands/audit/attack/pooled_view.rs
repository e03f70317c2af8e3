//! The combined views of colluding ranks: their own data, what is hidden from them, and what they received in each
//! iteration.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ndarray::{Array2, ShapeBuilder as _, s};
use serde_json::Value;

use fednmf_audit::{lattice, ratios};
use fednmf_base::error::{Error, Result};
use fednmf_comm::Knowledge;
use fednmf_comm::party_sum::SUMMED;
use fednmf_driver::view::DATA;
use fednmf_files::output::view::RecordedView;
use fednmf_methods::federated::rows::divergence::{FedBeta, FedKl, TERMS};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;

use super::finding::Finding;

/// Kinds of sums of the parties' terms, which are factors or products with the private factor, of k vectors. `true` if the entries are
/// in the memory order of the run, otherwise they are in that of the own terms.
const SUMS_OF_TERMS: [(&str, bool); 4] =
    [("sum V_j", false), ("sum V_i", false), ("average of U_r", true), ("sum of X_r'U_r - W_r U_r'U_r", true)];

/// The hidden rows' part of an update of V for a β-divergence.
pub struct Numerators {
    pub beta: f64,
    /// V before the update.
    pub v: Array2<f64>,
    /// The sum of the numerators, n × k.
    pub sum: Array2<f64>,
}

/// The combined knowledge of these ranks.
pub struct PooledView {
    pub views: Vec<RecordedView>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub seed: u64,
    /// Whether parties hold columns; otherwise rows.
    pub by_columns: bool,
    /// Columns or rows of each party.
    pub cuts: Vec<Range<usize>>,
    /// The parties of these ranks.
    pub own: Vec<usize>,
    pub method: Arc<dyn ConfiguredMethod>,
}

/// The method of a recorded run.
fn method_of(view: &RecordedView) -> Result<Arc<dyn ConfiguredMethod>> {
    let name = view.about().get("algo").and_then(Value::as_str).unwrap_or_default();
    let method = registry::find(name).ok_or_else(|| {
        Error::input(format!("{}: {name:?} is not a method of this version; record it again", view.path.display()))
    })?;
    Ok(method.recorded(&|name| match view.param(name) {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }))
}

impl PooledView {
    /// Opens the views of one run.
    ///
    /// # Errors
    /// When one cannot be read, or they are of different runs.
    pub fn open(paths: &[PathBuf]) -> Result<PooledView> {
        let views = paths.iter().map(|path| RecordedView::open(path)).collect::<Result<Vec<_>>>()?;
        let first = &views[0];
        let same = ["algo", "seed", "m", "n", "k", "params", "cuts"];
        for view in &views[1..] {
            let differs = same.iter().find(|name| view.about().get(**name) != first.about().get(**name));
            if let Some(name) = differs {
                return Err(Error::input(format!(
                    "{}: is of another run than {} (its {name} is another); give views of the ranks of one run",
                    view.path.display(),
                    first.path.display()
                )));
            }
        }
        let broken = || Error::input(format!("{}: its list of parties is damaged", first.path.display()));
        let list = |view: &RecordedView, name: &str| view.about().get(name).cloned().ok_or_else(broken);
        let cuts: Vec<[usize; 2]> = serde_json::from_value(list(first, "cuts")?).map_err(|_| broken())?;
        let mut own = Vec::new();
        for view in &views {
            let hosted: Vec<usize> = serde_json::from_value(list(view, "hosted")?).map_err(|_| broken())?;
            own.extend(hosted);
        }
        own.sort_unstable();
        own.dedup();
        let ground_truth = |name: &str| first.about().get(name).is_some_and(|x| x.as_bool().unwrap_or(*x == 1));
        Ok(PooledView {
            m: first.count("m")?,
            n: first.count("n")?,
            k: first.count("k")?,
            seed: first.count("seed")? as u64,
            by_columns: ground_truth("by_columns"),
            cuts: cuts.into_iter().map(|[start, end]| start..end).collect(),
            own,
            method: method_of(first)?,
            views,
        })
    }

    /// A public parameter of the run.
    pub fn about(&self, name: &str) -> &Value {
        self.views[0].about().get(name).unwrap_or(&Value::Null)
    }

    /// A parameter of the run that is not one of the method.
    pub fn param(&self, name: &str) -> &Value {
        self.views[0].param(name)
    }

    /// The method, if its parameters are of this type.
    pub fn method<M: 'static>(&self) -> Option<&M> {
        self.method.as_any().downcast_ref()
    }

    pub fn private(&self) -> bool {
        self.about("private").as_bool().unwrap_or(*self.about("private") == 1)
    }

    /// Whether the run computed in single precision.
    pub fn is_single(&self) -> bool {
        self.about("precision") == "f32"
    }

    /// A statistic of the whole matrix, shared while loading.
    pub fn statistic(&self, name: &str) -> f64 {
        self.about("statistics").get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    pub fn ranks(&self) -> Vec<usize> {
        let rank = |view: &RecordedView| view.about().get("rank").and_then(Value::as_u64).unwrap_or(0) as usize;
        self.views.iter().map(rank).collect()
    }

    pub fn hidden_parties(&self) -> Vec<usize> {
        (0..self.cuts.len()).filter(|party| !self.own.contains(party)).collect()
    }

    /// The columns, or rows, of the attacked parties. If the views are those of all parties, these are all: every party
    /// is then a victim of the messages that all receive.
    pub fn hidden(&self) -> Vec<usize> {
        let parties = if self.is_all() { (0..self.cuts.len()).collect() } else { self.hidden_parties() };
        parties.into_iter().flat_map(|party| self.cuts[party].clone()).collect()
    }

    /// Whether no party is left to attack; the views then show what an outsider would see of the messages that all
    /// receive.
    pub fn is_all(&self) -> bool {
        self.hidden_parties().is_empty()
    }

    /// The prior of whole-number entries between the smallest and the largest entry of the matrix.
    pub fn whole_numbers(&self) -> lattice::Prior {
        let (low, high) = (self.statistic("min").min(0.0).floor(), self.statistic("max").ceil());
        let mean = self.statistic("sum") / (self.m as f64 * self.n as f64);
        lattice::Prior { low, high, mean: mean.clamp(low, high) }
    }

    /// Whether sums have the precision of single-precision numbers, as those of fixed-point numbers have.
    pub fn is_coarse(&self) -> bool {
        self.is_single() || self.method.description().on_shares
    }

    /// Relative precision of a sum in bits.
    pub fn bits(&self) -> f64 {
        if self.is_coarse() { 17.0 } else { 44.0 }
    }

    /// A message as a matrix, rows × cols in the memory order of the run.
    ///
    /// # Errors
    /// When the values cannot be read.
    pub fn shaped(&self, view: &RecordedView, at: usize, (rows, cols): (usize, usize)) -> Result<Option<Array2<f64>>> {
        Ok(in_order(view, view.values(at)?, (rows, cols)))
    }

    /// As [`PooledView::shaped`], for the entries of an m × k message.
    pub fn shaped_like(&self, view: &RecordedView, values: &Array2<f64>) -> Option<Array2<f64>> {
        in_order(view, values.clone(), (self.m, self.k))
    }

    /// The results of the sums of a kind, opened or in the clear, in order: all ranks get the same.
    pub fn sums(&self, kind: &str) -> Vec<usize> {
        let view = &self.views[0];
        let opened: Vec<usize> = view.of_kind(Knowledge::Opened, kind).collect();
        if opened.is_empty() { view.of_kind(Knowledge::Received, kind).collect() } else { opened }
    }

    /// A matrix that a party of these ranks knows after `iteration` iterations.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn known(&self, kind: &str, party: Option<usize>, iteration: usize) -> Result<Option<Array2<f64>>> {
        for view in &self.views {
            let at = view
                .of_kind(Knowledge::Own, kind)
                .find(|&at| view.records[at].to == party && view.records[at].iteration == iteration);
            if let Some(at) = at {
                return view.values(at).map(Some);
            }
        }
        Ok(None)
    }

    /// The own block of a party of these ranks.
    ///
    /// # Errors
    /// When it cannot be read, or was too large to be recorded.
    pub fn own_data(&self, party: usize) -> Result<Array2<f64>> {
        self.known(DATA, Some(party), 0)?.ok_or_else(|| {
            Error::input(format!(
                "{}: the data of party {party} was too large to be recorded; use a smaller matrix",
                self.views[0].path.display()
            ))
        })
    }

    /// Subtracts the terms of the own parties from a sum; `term` computes the term of a party from its index and its
    /// data.
    ///
    /// # Errors
    /// As [`PooledView::own_data`].
    pub fn without_own(
        &self,
        mut sum: Array2<f64>,
        mut term: impl FnMut(usize, &Array2<f64>) -> Result<Option<Array2<f64>>>,
    ) -> Result<Array2<f64>> {
        if self.is_all() {
            return Ok(sum);
        }
        for &party in &self.own {
            let data = self.own_data(party)?;
            if let Some(term) = term(party, &data)? {
                sum -= &term;
            }
        }
        Ok(sum)
    }

    /// A sum of this kind in the shape of an own term of it; `None` if it has more or fewer entries.
    pub fn like_term(
        &self,
        view: &RecordedView,
        kind: &str,
        sum: Array2<f64>,
        shape: (usize, usize),
    ) -> Option<Array2<f64>> {
        let by_run = SUMS_OF_TERMS.iter().any(|(name, by_run)| *name == kind && *by_run);
        if by_run { in_order(view, sum, shape) } else { sum.into_shape_with_order(shape).ok() }
    }

    /// The number of entries of each private row or column.
    pub fn length(&self) -> usize {
        if self.by_columns { self.m } else { self.n }
    }

    /// For methods that sum a term of k vectors for each party: the sums over the hidden parties (n × k, or m × k if columns are
    /// private), each with its number of complete iterations. The terms of the own parties are subtracted.
    ///
    /// # Errors
    /// When values cannot be read.
    pub fn hidden_parts(&self) -> Result<Vec<(usize, Array2<f64>)>> {
        let (view, mut found) = (&self.views[0], Vec::new());
        let (length, k) = (self.length(), self.k);
        let own: &[usize] = if self.is_all() { &[] } else { &self.own };
        for (at, in_order) in
            SUMS_OF_TERMS.iter().flat_map(|(kind, order)| self.sums(kind).into_iter().map(|at| (at, *order)))
        {
            let iteration = view.records[at].iteration;
            let shaped = if in_order { self.shaped(view, at, (length, k))? } else { Some(view.values(at)?) };
            let Some(mut sum) = shaped else { continue };
            for &party in own {
                // A party without rows, or that does not take part, adds nothing.
                if let Some(own) = self.known(SUMMED, Some(party), iteration)?
                    && let Ok(shaped) = sum.clone().into_shape_with_order(own.dim())
                {
                    sum = shaped - own;
                }
            }
            // Components are columns here, and rows of what fnmf and its baselines send.
            found.extend(if sum.dim() == (length, k) {
                Some((iteration, sum))
            } else if sum.dim() == (k, length) {
                Some((iteration, sum.reversed_axes()))
            } else {
                None
            });
        }
        Ok(found)
    }

    /// The numerators of the last iteration, for methods that minimise a divergence over private rows.
    ///
    /// # Errors
    /// When values cannot be read.
    pub fn numerators(&self) -> Result<Option<Numerators>> {
        let beta = match (self.method::<FedKl>(), self.method::<FedBeta>()) {
            (Some(_), _) => 1.0,
            (_, Some(method)) => method.beta.0,
            _ => return Ok(None),
        };
        let (view, (n, k)) = (&self.views[0], (self.n, self.k));
        let Some(at) = self.sums(TERMS.kind).pop() else { return Ok(None) };
        let iteration = view.records[at].iteration;
        let width = if beta == 1.0 { k } else { 2 * k };
        let terms = view.values(at)?.into_shape_with_order((n, width));
        let (Some(v), Ok(terms)) = (self.known("V", None, iteration)?, terms) else { return Ok(None) };
        let sum = match beta == 1.0 {
            true => ratios::without_factor(&terms, &v.view()),
            false => terms.slice(s![.., ..k]).to_owned(),
        };
        // U is updated before its terms are sent.
        let sum = self.without_own(sum, |party, data| {
            let u = self.known("U", Some(party), iteration + 1)?;
            Ok(u.map(|u| ratios::sum(&data.view(), &u, &v.view(), beta)))
        })?;
        Ok(Some(Numerators { beta, v, sum }))
    }

    /// The kinds and numbers of messages that arrived unprotected.
    pub fn in_the_clear(&self) -> Option<Finding> {
        let mut kinds: BTreeMap<(String, String), usize> = BTreeMap::new();
        for record in self.views.iter().flat_map(|view| &view.records) {
            let payload = record.payload.as_deref().unwrap_or("Control");
            if record.knowledge == Knowledge::Received
                && !["Control", "Masked", "Ciphertext", "Shares"].contains(&payload)
            {
                *kinds.entry((record.kind.clone(), payload.into())).or_default() += 1;
            }
        }
        let list: Vec<String> =
            kinds.into_iter().map(|((kind, payload), times)| format!("{kind} ({payload}, {times} times)")).collect();
        (self.private() && !list.is_empty()).then(|| Finding::new("received in the clear", "").note(list.join("; ")))
    }
}

/// The entries of a message as a matrix, in the memory order of the run; `None` if there are more or fewer.
fn in_order(view: &RecordedView, values: Array2<f64>, (rows, cols): (usize, usize)) -> Option<Array2<f64>> {
    let by_rows = view.about().get("entries_by_rows").is_some_and(|x| x.as_bool().unwrap_or(*x == 1));
    Array2::from_shape_vec((rows, cols).set_f(!by_rows), values.into_raw_vec_and_offset().0).ok()
}
