//! `secure-hals --dp`: columns from all noised sums, with the variance of the noise known.

use ndarray::{Array1, Array2, ArrayView2, Axis, Zip};

use fednmf_audit::dynamics::matched;
use fednmf_audit::noised;
use fednmf_audit::noised::{NoisedStep, Prior};
use fednmf_base::error::Result;
use fednmf_linalg::Order;
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_methods::federated::columns::noised_hals::{RELEASE, term_of, unpacked};
use fednmf_methods::federated::columns::secure_hals::SecureHals;

use super::finding::{Finding, distance};
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// Maximum numbers of hidden columns that are estimated together, and one by one.
const MOST_TOGETHER: usize = 400;
const MOST_ALONE: usize = 20;
/// An entry within this share of the largest one counts as found.
const TOLERANCE: f64 = 1e-2;

/// A release as matrices: R and G, and what was public before it.
struct Release {
    u: Array2<f64>,
    r: Array2<f64>,
    g: Array2<f64>,
}

impl Release {
    /// Without the terms of columns that are known.
    fn without(&self, columns: &Array2<f64>, clip: Option<f64>) -> Release {
        let (r, g) = unpacked::<f64>(&term_of(columns, &self.u, clip), Order::ColumnMajor, self.u.dim());
        Release { u: self.u.clone(), r: &self.r - &r, g: &self.g - &g }
    }

    fn step(&self, noise: f64) -> NoisedStep {
        NoisedStep { u: self.u.clone(), product: &self.r + &self.u.dot(&self.g), noise }
    }
}

/// Estimates all hidden columns from all releases, and single columns given all others, as differential privacy
/// assumes.
///
/// # Errors
/// When the view cannot be read.
pub fn attacks(pooled: &PooledView, method: &SecureHals, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let privacy = pooled.about("privacy");
    let (Some(noise), false) = (privacy["noise"].as_f64(), pooled.is_all()) else { return Ok(Vec::new()) };
    let masked = privacy["noise_on"] == "the sum of all parties";
    let noise = if masked { noise } else { noise * (pooled.cuts.len() as f64).sqrt() };
    let clip = method.dp.clip.given();
    let order =
        if pooled.about("entries_by_rows").as_bool().unwrap_or(false) { Order::RowMajor } else { Order::ColumnMajor };
    let own = pooled.own.iter().map(|&party| pooled.own_data(party)).collect::<Result<Vec<_>>>()?;
    let mut releases = Vec::new();
    for at in pooled.sums(RELEASE.kind) {
        let Some(u) = pooled.known("U", None, pooled.views[0].records[at].iteration)? else { continue };
        let values = pooled.views[0].values(at)?;
        let (r, g) = unpacked::<f64>(values.as_slice().unwrap_or_default(), order, (pooled.m, pooled.k));
        let all = Release { u, r, g };
        releases.push(own.iter().fold(all, |release, columns| release.without(columns, clip)));
    }
    let own: Vec<_> = own.iter().map(|columns| scaled(columns, clip)).collect();
    let own = ndarray::concatenate(Axis(1), &own.iter().map(|columns| columns.view()).collect::<Vec<_>>());
    let (Ok(own), false) = (own, releases.is_empty()) else { return Ok(Vec::new()) };
    let ground_truth = inputs.ground_truth.hidden(pooled);
    let prior = prior(&own, clip.unwrap_or(1.0));
    let mut findings = vec![together(pooled, &releases, noise, &prior, ground_truth.as_ref().map(|t| scaled(t, clip)))];
    findings.extend(ground_truth.map(|ground_truth| alone(&releases, noise, &prior, &ground_truth, clip)));
    Ok(findings)
}

/// Columns scaled as in a release: to norm 1, or with --clip to that norm if they are longer.
fn scaled(columns: &Array2<f64>, clip: Option<f64>) -> Array2<f64> {
    let mut all = columns.clone();
    for mut column in all.columns_mut() {
        let norm = column.dot(&column).sqrt();
        let factor = clip.map_or(1.0 / norm, |clip| (clip / norm).min(1.0));
        column *= if norm > 0.0 { factor } else { 0.0 };
    }
    all
}

/// Statistics of the own columns as a prior for the others: their mean, and the deviation from it.
fn prior(own: &Array2<f64>, high: f64) -> Prior {
    let mean = own.mean_axis(Axis(1)).unwrap_or_else(|| Array1::zeros(own.nrows()));
    let off = own - &mean.view().insert_axis(Axis(1));
    let variance = off.iter().map(|x| x * x).sum::<f64>() / off.len().max(1) as f64;
    Prior { low: 0.0, high, variance: variance.max(1e-12), mean }
}

/// V for columns and U, as a party computes it.
fn fit(columns: &ArrayView2<f64>, u: &ArrayView2<f64>) -> Array2<f64> {
    let mut v = Array2::zeros((columns.ncols(), u.ncols()));
    Pivoting::new(u.ncols()).solve(&mut v.view_mut(), &columns.t().dot(u).view(), &u.t().dot(u).view());
    v
}

/// The prior's mean for each of n columns.
fn means(prior: &Prior, n: usize) -> Array2<f64> {
    Array2::from_shape_fn((prior.mean.len(), n), |(i, _)| prior.mean[i])
}

fn together(
    pooled: &PooledView,
    releases: &[Release],
    noise: f64,
    prior: &Prior,
    ground_truth: Option<Array2<f64>>,
) -> Finding {
    let n = pooled.hidden().len();
    let found = Finding::new("noised sums", "the noise's variance; mean and variance of the own columns");
    if n > MOST_TOGETHER {
        return found.note(format!("{n} hidden columns: not tried"));
    }
    // Identical guesses would stay identical.
    let mut draws = Stream::new(pooled.seed ^ 0x5eed, Purpose::Probe, 0).at(0);
    let spread = prior.variance.sqrt();
    let first = means(prior, n).mapv(|x| (x + spread * draws.normal()).clamp(prior.low, prior.high));
    let steps: Vec<NoisedStep> = releases.iter().map(|release| release.step(noise)).collect();
    let Some(estimate) = noised::columns(&steps, &first, prior, fit) else { return found.note("no solution") };
    let found = found.note(format!("{} releases, noise {noise:.3}; columns in the best order", releases.len()));
    let Some(ground_truth) = ground_truth else { return found };
    let mut found = found.compared(&matched(&estimate, &ground_truth).view(), &ground_truth.view(), TOLERANCE);
    found.baseline = Some(distance(&means(prior, n).view(), &ground_truth.view()));
    found
}

fn alone(releases: &[Release], noise: f64, prior: &Prior, ground_truth: &Array2<f64>, clip: Option<f64>) -> Finding {
    let counted = scaled(ground_truth, clip);
    let n = ground_truth.ncols().min(MOST_ALONE);
    let rest: Vec<Release> = releases.iter().map(|release| release.without(ground_truth, clip)).collect();
    let mut estimates = Array2::zeros((ground_truth.nrows(), n));
    for (j, mut estimate) in estimates.columns_mut().into_iter().enumerate() {
        let own = ground_truth.column(j).to_owned().insert_axis(Axis(1));
        // The release has this column's own term again.
        let steps: Vec<NoisedStep> = rest
            .iter()
            .map(|release| {
                let (r, g) = unpacked::<f64>(&term_of(&own, &release.u, clip), Order::ColumnMajor, release.u.dim());
                Release { u: release.u.clone(), r: &release.r + &r, g: &release.g + &g }.step(noise)
            })
            .collect();
        estimate.assign(&noised::column(&steps, prior, fit));
    }
    let columns = counted.slice(ndarray::s![.., ..n]);
    let mut found = Finding::new("noised sums, one column", "all other columns; the noise's variance");
    found = found.compared(&estimates.t(), &columns.t(), TOLERANCE);
    found.of = "columns";
    found.baseline = Some(distance(&means(prior, n).view(), &columns));
    let mut correlation = 0.0;
    let guess = means(prior, 1);
    for (estimate, column) in estimates.columns().into_iter().zip(columns.columns()) {
        // Correlation of the parts that the prior does not predict.
        let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
        Zip::from(estimate).and(column).and(guess.column(0)).for_each(|a, b, g| {
            ab += (a - g) * (b - g);
            aa += (a - g) * (a - g);
            bb += (b - g) * (b - g);
        });
        correlation += ab / (aa * bb).sqrt().max(f64::MIN_POSITIVE) / n as f64;
    }
    found.note(format!(
        "{} releases, noise {noise:.3}; mean correlation {correlation:.2} beyond the prior",
        releases.len()
    ))
}
