//! The number of components by the rule of SigProfilerExtractor, as its version 1.4.1 applies it (`stabVsRError`; Islam et al. 2022,
//! "Uncovering novel mutational signatures by de novo extraction with SigProfilerExtractor").

use ndarray::{Array2, Axis};

use fednmf_audit::membership::{auc, chance_of, misfits};
use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::{Loaded, Panels};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::parameters::Missing;

use super::choice::{Choice, Chosen, Point, recommended};
use super::consensus::{rows_in_memory, shared_means};
use super::method::is_for_squared_error;
use super::stability::Matched;

fednmf_base::words! {
    /// The rule by which k is chosen, instead of that of `choose`.
    pub enum Criterion {
        /// The smallest k with stable components that fits the samples as well as the largest such k
        SigProfiler = "sigprofiler",
    }
}

const MISFITS: MessageTag = MessageTag::new("sweep: errors of the rows", Payload::Scalar);

/// The least mean silhouette, and that of the least stable component, in hundredths.
const STABLE: [i64; 2] = [80, 20];
/// Two samples of errors differ if their difference is less likely than this by chance.
const SIGNIFICANT: f64 = 0.05;
/// Errors are compared to three decimals of a percent. So no rounding of other ranks decides.
const DECIMALS: f64 = 1e5;
/// Rows that are fitted at a time.
const STEP: usize = 256;

impl Criterion {
    /// Refuses methods and data whose rows it does not compare.
    ///
    /// # Errors
    /// Naming the option.
    pub fn check(self, method: &dyn ConfiguredMethod, missing: &Missing) -> Result<()> {
        if is_for_squared_error(method) {
            return Err(Error::input(format!(
                "--criterion {self}: is for counts, fitted by a divergence; add --loss kl"
            )));
        }
        if *missing != Missing::None {
            return Err(Error::input(format!("--criterion {self}: compares whole rows; leave out --missing")));
        }
        Ok(())
    }
}

/// Mean and least silhouette in hundredths, to which the program rounds them.
fn stability(point: &Point) -> Option<[i64; 2]> {
    point.stability.map(|s| [s.mean, s.least].map(|x| (100.0 * x).round() as i64))
}

/// The points among which the errors decide, in ascending order of k: those with stable components, on average at least as stable
/// as those of the largest such k.
pub fn considered(points: &[Point]) -> Vec<&Point> {
    let stable = |least: [i64; 2]| {
        move |point: &&Point| stability(point).is_some_and(|found| found[0] >= least[0] && found[1] >= least[1])
    };
    let largest = points.iter().rfind(stable(STABLE)).and_then(stability);
    largest.map_or_else(Vec::new, |[mean, _]| points.iter().filter(stable([mean, STABLE[1]])).collect())
}

/// The relative error of each row of the matrix that is not zero, which the consensus of the runs fits by nonnegative least squares.
/// Only rank 0 has the runs; all ranks know k and get the errors. Collective in a group, whose ranks have whole rows.
///
/// # Errors
/// On all ranks, if a file cannot be read.
pub fn errors_of_rows(
    matched: Option<&Matched>,
    k: usize,
    loaded: &Loaded<f64>,
    group: &Communicator,
) -> SharedResult<Vec<f64>> {
    let v = shared_means(matched, (loaded.header.cols, k), group);
    let block = rows_in_memory(loaded);
    let mut panels = loaded.panels.as_ref().map(Panels::copy);
    let mut own = Vec::new();
    Panels::pass_over(&mut panels, block.as_ref(), group, |rows, block| {
        for first in (0..rows.len()).step_by(STEP) {
            let mut dense = Array2::zeros((STEP.min(rows.len() - first), v.nrows()));
            for (i, mut row) in dense.rows_mut().into_iter().enumerate() {
                block.for_each_nonzero(first + i, |j, x| row[j] = x);
            }
            // A row of zeros has no relative error; the program leaves out samples without mutations.
            let some: Vec<usize> = (0..dense.nrows()).filter(|&i| dense.row(i).iter().any(|x| *x != 0.0)).collect();
            let dense = dense.select(Axis(0), &some);
            own.extend(misfits(&dense.view(), &v.view()).into_iter().map(|error| (DECIMALS * error).round()));
        }
    })?;
    let all = group.all_gather_value(MISFITS, &own);
    Ok(all.into_iter().flatten().map(|error| error / DECIMALS).collect())
}

/// Chooses among the [`considered`] points, whose rows have these `errors`: the largest k, or the smallest from which on the errors
/// are not significantly larger. The smallest k that was tried is never accepted so, as in the program, which starts at 1.
/// `most` is the largest k that the matrix allows.
pub fn choose_by_rows(points: &[Point], errors: &[Vec<f64>], most: usize) -> Option<Choice> {
    let considered = considered(points);
    let ((&largest, smaller), (of_largest, others)) = (considered.split_last()?, errors.split_last()?);
    let percent = |errors: &[f64]| 100.0 * median(errors);
    let mut reasons = vec![format!(
        "k = {} is the largest with stable components by the rule of SigProfilerExtractor (at least {:.2} on average, and {:.2} \
         each), with a median error of {:.2} % of a row",
        largest.k,
        STABLE[0] as f64 / 100.0,
        STABLE[1] as f64 / 100.0,
        percent(of_largest)
    )];
    let mut chosen = largest;
    for (point, errors) in smaller.iter().zip(others).rev().take_while(|(point, _)| point.k > points[0].k) {
        let p = by_chance(errors, of_largest);
        let is_worse = p < SIGNIFICANT && median(errors) > median(of_largest);
        let how = if is_worse { "significantly larger" } else { "not significantly larger" };
        reasons.push(format!("k = {}: {:.2} %, {how} (p = {p:.2e})", point.k, percent(errors)));
        if is_worse {
            break;
        }
        chosen = point;
    }
    reasons.push(chosen.describe_by_k());
    let interpretation = Some(chosen.k);
    let chosen =
        Chosen { point: chosen, reasons, best: chosen, warnings: Vec::new(), prediction: None, interpretation };
    Some(recommended(chosen, points, most))
}

/// The probability of errors that differ at least as much, if they do not differ (the rank-sum test of Wilcoxon, by the normal
/// approximation). 1 without any.
fn by_chance(some: &[f64], others: &[f64]) -> f64 {
    auc(some, others).map_or(1.0, |auc| (2.0 * chance_of(auc.max(1.0 - auc), some.len(), others.len())).min(1.0))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => sorted.get(half).map_or(f64::NAN, |upper| f64::midpoint(sorted[half - 1], *upper)),
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::super::stability::Stability;
    use super::*;

    fn point(k: usize, mean: f64, least: f64) -> Point {
        let stability = Some(Stability { mean, least, cosine: mean });
        let rmse = 1.0 / k as f64;
        Point {
            k,
            runs: 5,
            rmse,
            rmse_error: 0.0,
            divergence: None,
            best: None,
            drop: None,
            heldout: None,
            heldout_of_runs: Vec::new(),
            stability,
        }
    }

    fn chosen(points: &[Point], errors: &[Vec<f64>]) -> Option<usize> {
        let of = |point: &&Point| points.iter().position(|other| other.k == point.k).unwrap();
        let errors: Vec<Vec<f64>> = considered(points).iter().map(|point| errors[of(point)].clone()).collect();
        choose_by_rows(points, &errors, 90).map(|choice| choice.k)
    }

    /// The rule in other words: all pairs instead of ranks, and the critical value of the normal distribution instead of p.
    fn by_the_paper(points: &[Point], errors: &[Vec<f64>]) -> Option<usize> {
        let rounded = |x: f64| format!("{x:.2}").parse::<f64>().unwrap();
        let table: Vec<(usize, f64, f64)> = points
            .iter()
            .map(|p| (p.k, rounded(p.stability.unwrap().mean), rounded(p.stability.unwrap().least)))
            .collect();
        let is_stable = |i: &usize| table[*i].1 >= 0.8 && table[*i].2 >= 0.2 && table[*i].1 + table[*i].2 >= 1.0;
        let stable: Vec<usize> = (0..table.len()).filter(is_stable).collect();
        let largest = *stable.last()?;
        let middle = |i: usize| {
            let mut sorted = errors[i].clone();
            sorted.sort_by(f64::total_cmp);
            (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
        };
        let mut found = largest;
        for i in stable.into_iter().rev().filter(|&i| i < largest && table[i].1 >= table[largest].1) {
            let (a, b) = (&errors[i], &errors[largest]);
            let above = |x: f64, y: f64| if x > y { 1.0 } else { f64::from(u8::from(x == y)) / 2.0 };
            let pairs: f64 = a.iter().flat_map(|&x| b.iter().map(move |&y| above(x, y))).sum();
            let (n, m) = (a.len() as f64, b.len() as f64);
            let z = (pairs - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt();
            if i == 0 || (z.abs() > 1.959_963_984_540_054 && middle(i) > middle(largest)) {
                break;
            }
            found = i;
        }
        Some(table[found].0)
    }

    #[test]
    fn the_choice_is_that_of_the_rule_in_other_words() {
        let stream = Stream::new(1, Purpose::Probe, 0);
        let mut cursor = stream.at(0);
        let mut found = std::collections::BTreeMap::<Option<usize>, usize>::new();
        for _ in 0..500 {
            let mut draw = |k: usize| {
                let mean = 0.7 + 0.3 * cursor.uniform();
                let shift = 0.05 * (8 - k) as f64 * cursor.uniform().powi(4);
                let errors = (0..20).map(|_| ((0.1 + shift + 0.05 * cursor.uniform()) * 1e3).round() / 1e3).collect();
                (point(k, mean, mean * cursor.uniform().sqrt()), errors)
            };
            let (points, errors): (Vec<Point>, Vec<Vec<f64>>) = (1..8).map(&mut draw).unzip();
            let expected = by_the_paper(&points, &errors);
            assert_eq!(chosen(&points, &errors), expected, "{points:?}");
            *found.entry(expected).or_default() += 1;
        }
        assert!(found.len() >= 5, "{found:?}");
    }

    #[test]
    fn a_smaller_k_has_to_fit_as_well_and_be_as_stable() {
        let points =
            |second: f64| [point(1, 1.0, 1.0), point(2, second, 0.9), point(3, 0.95, 0.9), point(4, 0.79, 0.7)];
        let errors = |of_two: f64| {
            let around = |middle: f64| (0..40).map(|i| middle + 1e-3 * f64::from(i)).collect::<Vec<f64>>();
            vec![around(0.9), around(of_two), around(0.1), around(0.0)]
        };
        assert_eq!(chosen(&points(0.99), &errors(0.101)), Some(2), "k = 4 is not stable, and 2 fits as well as 3");
        assert_eq!(chosen(&points(0.99), &errors(0.2)), Some(3), "2 fits worse");
        assert_eq!(chosen(&points(0.94), &errors(0.101)), Some(3), "2 is less stable than 3");
        assert_eq!(chosen(&points(0.9461), &errors(0.101)), Some(2), "as stable to two decimals");
        assert_eq!(chosen(&points(0.99)[3..], &errors(0.1)[3..]), None);
        // Even if it fits as well, the smallest is not accepted; it is chosen if no other is stable.
        assert_eq!(chosen(&points(0.99)[1..3], &errors(0.101)[1..3]), Some(3));
        assert_eq!(chosen(&[point(1, 1.0, 1.0), point(2, 0.9, 0.1)], &errors(0.2)[..2]), Some(1));
    }

    #[test]
    fn the_test_is_that_of_wilcoxon() {
        // scipy.stats.ranksums([1, 2, 3, 4, 5, 6], [4, 5, 6, 7, 8, 9, 10]).pvalue
        let (a, b): (Vec<f64>, Vec<f64>) = ((1..7).map(f64::from).collect(), (4..11).map(f64::from).collect());
        assert!((by_chance(&a, &b) - 0.018_416_160_576_303_96).abs() < 1e-9, "{}", by_chance(&a, &b));
        assert!((by_chance(&a, &b) - by_chance(&b, &a)).abs() < 1e-12, "either way");
        assert_eq!((by_chance(&a, &a), by_chance(&[], &[])), (1.0, 1.0));
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}
