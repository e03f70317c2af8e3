//! Which columns vary most, from the mean and the variance of each.

use ndarray::Array1;

use fednmf_base::error::{Error, Result};

use super::loess::smoothed;
use super::weights::quantile_of;

fednmf_base::words! {
    /// A published rule.
    pub enum Rule {
        /// Variance over mean, divided by what the mean lets expect: A² mean + B² (cNMF)
        Cnmf = "cnmf",
        /// The logarithm of variance over mean, normalised among columns with a similar mean (scanpy's flavor seurat)
        Seurat = "seurat",
        /// The variance of the counts as they are, clipped, over what a smooth curve of the mean lets expect (scanpy's flavor
        /// seurat_v3)
        SeuratV3 = "seurat-v3",
    }
}

impl Rule {
    /// The number of times that it sums over the rows.
    pub fn passes(self) -> usize {
        if self == Rule::SeuratV3 { 2 } else { 1 }
    }
}

/// Number of columns with the largest means that the noise of large means is taken from, as in cNMF.
const LARGEST: usize = 20;
/// Number of intervals of the mean, as in scanpy.
const BINS: usize = 20;

/// Sum and sum of squares of a column.
pub type Moments = [f64; 2];

/// Mean and variance of a column of `rows` entries; `lost`: degrees of freedom that the variance lacks.
fn mean_and_variance([sum, squares]: Moments, rows: usize, lost: usize) -> (f64, f64) {
    let (m, mean) = (rows as f64, sum / rows as f64);
    let variance = (squares / m - mean * mean).max(0.0);
    (mean, variance * m / rows.saturating_sub(lost).max(1) as f64)
}

/// The standard deviation of each column, as scanpy scales by it; 1 for a column of equal entries.
pub fn deviations(columns: &[Moments], rows: usize) -> Vec<f64> {
    let deviation = |column: &Moments| Some(mean_and_variance(*column, rows, 1).1.sqrt()).filter(|x| *x > 0.0);
    columns.iter().map(|column| deviation(column).unwrap_or(1.0)).collect()
}

/// The standardisation of counts by Stuart et al. (2019), scanpy's flavor `seurat_v3`: the standard deviation that the mean of a column
/// lets expect.
pub struct Standard {
    means: Vec<f64>,
    deviations: Vec<f64>,
    rows: usize,
}

impl Standard {
    /// The standard for columns with these sums of counts.
    ///
    /// # Errors
    /// If the columns are too few, or too alike, for a curve.
    pub fn new(columns: &[Moments], rows: usize) -> Result<Standard> {
        let (means, variances): (Vec<f64>, Vec<f64>) =
            columns.iter().map(|column| mean_and_variance(*column, rows, 1)).unzip();
        let varying: Vec<usize> = (0..columns.len()).filter(|&j| variances[j] > 0.0).collect();
        let [x, y] = [&means, &variances].map(|of| varying.iter().map(|&j| of[j].log10()).collect::<Vec<f64>>());
        let curve = smoothed(&x, &y).ok_or_else(|| {
            Error::input("--variable-by seurat-v3: the columns are too few, or their means too alike, for a curve; use another rule")
        })?;
        let mut deviations = vec![1.0; columns.len()];
        varying.iter().zip(curve).for_each(|(&j, variance)| deviations[j] = 10f64.powf(variance).sqrt());
        Ok(Standard { means, deviations, rows })
    }

    /// The count of each column above which counts are clipped.
    pub fn limits(&self) -> Vec<f64> {
        let most = (self.rows as f64).sqrt();
        self.means.iter().zip(&self.deviations).map(|(mean, deviation)| deviation * most + mean).collect()
    }

    /// The score of each column: the variance of the standardised counts, from the sums of the clipped ones.
    pub fn scores(&self, clipped: &[Moments]) -> Vec<f64> {
        let rows = self.rows as f64;
        let score = |([sum, squares], (mean, deviation)): (&Moments, (&f64, &f64))| {
            (rows * mean * mean + squares - 2.0 * sum * mean) / ((rows - 1.0) * deviation * deviation)
        };
        clipped.iter().zip(self.means.iter().zip(&self.deviations)).map(score).collect()
    }
}

/// The places of the `count` columns with the largest scores, ascending; of equal scores, the first. All columns have a positive
/// mean.
pub fn largest(scores: &[f64], count: usize) -> Vec<usize> {
    // The last digits of a score depend on the order in which ranks or parties are summed.
    let score = |j: &usize| if scores[*j].is_nan() { f32::NEG_INFINITY } else { scores[*j] as f32 };
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| score(b).total_cmp(&score(a)));
    order.truncate(count);
    order.sort_unstable();
    order
}

/// cNMF's rule (Kotliar et al. 2019): the Fano factor over A² mean + B². A is the least coefficient of variation of the columns
/// with the largest means, and B² the median Fano factor of columns that are typical in it and in the mean.
pub fn above_expectation(columns: &[Moments], rows: usize) -> Vec<f64> {
    let (means, variances): (Vec<f64>, Vec<f64>) =
        columns.iter().map(|column| mean_and_variance(*column, rows, 0)).unzip();
    let fano: Vec<f64> = means.iter().zip(&variances).map(|(mean, variance)| variance / mean).collect();
    let mut by_mean: Vec<usize> = (0..means.len()).collect();
    by_mean.sort_by(|a, b| means[*b].total_cmp(&means[*a]));
    let noise = by_mean.iter().take(LARGEST).map(|&j| variances[j].sqrt() / means[j]).fold(f64::INFINITY, f64::min);
    let [of_fano, of_means] = [&fano, &means].map(|values| {
        let sorted = sorted(values.iter().copied());
        [0.1, 0.9].map(|q| quantile_of(&sorted, sorted.len(), q))
    });
    let within = |x: f64, [low, high]: [f64; 2]| x > low && x < high;
    let typical =
        sorted(fano.iter().zip(&means).filter(|(f, m)| within(**f, of_fano) && within(**m, of_means)).map(|(f, _)| *f));
    // Few columns may all be at the edges.
    let typical = if typical.is_empty() { sorted(fano.iter().copied()) } else { typical };
    let median = quantile_of(&typical, typical.len(), 0.5);
    fano.iter().zip(&means).map(|(fano, mean)| fano / (noise * noise * mean + median)).collect()
}

/// scanpy's flavor `seurat` (Satija et al. 2015).
pub fn within_bins(columns: &[Moments], rows: usize) -> Vec<f64> {
    let (means, dispersions): (Vec<f64>, Vec<f64>) = columns
        .iter()
        .map(|column| {
            let (mean, variance) = mean_and_variance(*column, rows, 1);
            let dispersion = variance / mean;
            (mean.ln_1p(), if dispersion > 0.0 { dispersion.ln() } else { f64::NAN })
        })
        .unzip();
    let edges = edges(&means);
    let bin = |mean: f64| edges.partition_point(|edge| *edge < mean).clamp(1, BINS) - 1;
    let mut members = vec![Vec::new(); BINS];
    for (mean, dispersion) in means.iter().zip(&dispersions).filter(|(_, dispersion)| !dispersion.is_nan()) {
        members[bin(*mean)].push(*dispersion);
    }
    let of_bins: Vec<(f64, f64)> = members.into_iter().map(|members| centre_and_width(Array1::from(members))).collect();
    let score = |(mean, dispersion): (&f64, &f64)| {
        let (centre, width) = of_bins[bin(*mean)];
        (dispersion - centre) / width
    };
    means.iter().zip(&dispersions).map(score).collect()
}

/// Mean and standard deviation of the dispersions of a bin. A single one has the score 1.
fn centre_and_width(dispersions: Array1<f64>) -> (f64, f64) {
    match dispersions.len() {
        0 => (0.0, f64::NAN),
        1 => (0.0, dispersions[0]),
        _ => (dispersions.mean().unwrap_or(0.0), dispersions.std(1.0)),
    }
}

/// The edges of equal intervals over the range of some numbers, each without its lower edge, as `pandas.cut` makes them.
fn edges(values: &[f64]) -> Vec<f64> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let step = (most - least) / BINS as f64;
    let mut edges: Vec<f64> = (0..BINS).map(|i| least + step * i as f64).chain([most]).collect();
    edges[0] -= (most - least) * 0.001;
    edges
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of columns with these means and variances (over m), of m rows.
    fn moments(m: usize, columns: &[(f64, f64)]) -> Vec<Moments> {
        let m = m as f64;
        columns.iter().map(|(mean, variance)| [m * mean, m * (variance + mean * mean)]).collect()
    }

    fn most_variable(columns: &[Moments], rows: usize, count: usize, rule: Rule) -> Vec<usize> {
        let scores = if rule == Rule::Seurat { within_bins } else { above_expectation };
        largest(&scores(columns, rows), count)
    }

    /// tests/data/seurat_v3.py makes the file: counts, and the score that scanpy computes for each column.
    #[test]
    fn scores_of_counts_are_those_of_scanpy() {
        let file: serde_json::Value = serde_json::from_str(include_str!("../../../tests/data/seurat_v3.json")).unwrap();
        let counts: Vec<Vec<f64>> = serde_json::from_value(file["counts"].clone()).unwrap();
        let expected: Vec<f64> = serde_json::from_value(file["variances_norm"].clone()).unwrap();
        let sums = |limits: Option<Vec<f64>>| -> Vec<Moments> {
            let clipped = |row: &[f64], j: usize| limits.as_ref().map_or(row[j], |limits| row[j].min(limits[j]));
            let column = |j| counts.iter().map(|row| clipped(row, j)).fold([0.0; 2], |[s, q], x| [s + x, q + x * x]);
            (0..expected.len()).map(column).collect()
        };
        let standard = Standard::new(&sums(None), counts.len()).unwrap();
        let found = standard.scores(&sums(Some(standard.limits())));
        let off = found.iter().zip(&expected).map(|(x, y)| (x - y).abs() / y.abs().max(1.0)).fold(0.0, f64::max);
        assert!(off < 1e-9, "{off}");
    }

    #[test]
    fn the_variance_has_one_degree_of_freedom_less() {
        // numpy.var([0, 1, 5], ddof=1) = 7
        let columns = [[6.0, 26.0], [3.0, 3.0]];
        let found = deviations(&columns, 3);
        assert!((found[0] - 7.0f64.sqrt()).abs() < 1e-12 && found[1] == 1.0, "{found:?}");
    }

    /// Columns with four means, ten of each, and little more variance than a Poisson number has; three have much more.
    #[test]
    fn columns_above_the_common_curve_are_found_by_both_rules() {
        let mut columns: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(10 * (1 + i % 4)), f64::from(i / 4))).collect();
        columns.iter_mut().for_each(|(mean, variance)| *variance = *mean * (1.0 + *variance / 100.0));
        for (j, factor) in [(3, 9.0), (14, 5.0), (28, 7.0)] {
            columns[j].1 *= factor;
        }
        for rule in [Rule::Cnmf, Rule::Seurat] {
            assert_eq!(most_variable(&moments(500, &columns), 500, 3, rule), [3, 14, 28], "{rule:?}");
        }
        let all: Vec<usize> = (0..40).collect();
        assert_eq!(most_variable(&moments(500, &columns), 500, 99, Rule::Cnmf), all);
    }

    #[test]
    fn of_scores_that_differ_by_rounding_the_first_is_taken() {
        assert_eq!(largest(&[1.0, 2.0, 2.0 + 1e-12, f64::NAN, 2.0], 2), [1, 2]);
    }

    #[test]
    fn columns_that_do_not_vary_come_last() {
        let same = moments(10, &[(2.0, 0.0), (2.0, 1.0), (2.0, 0.0)]);
        for rule in [Rule::Cnmf, Rule::Seurat] {
            assert_eq!(most_variable(&same, 10, 1, rule), [1], "{rule:?}");
        }
    }

    /// `pandas.cut([0, 1, 10], 20, retbins=True)`
    #[test]
    fn intervals_are_those_of_pandas() {
        let edges = edges(&[0.0, 1.0, 10.0]);
        assert_eq!((edges.len(), edges[1], edges[20]), (21, 0.5, 10.0));
        assert!((edges[0] + 0.01).abs() < 1e-15);
    }
}
