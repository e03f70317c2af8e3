//! The result of an attack, compared with guessing the mean of each column.

use std::time::Instant;

use ndarray::{Array1, Array2, ArrayView2, Axis};

use fednmf_audit::membership::{auc, deviation};

/// The result of an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub attack: &'static str,
    /// The assumption of the attack.
    pub assumed: String,
    /// Kind of the unknowns, and how many of them were recovered exactly, of how many.
    pub of: &'static str,
    pub recovered: Option<(usize, usize)>,
    /// Error relative to the norm of the unknowns.
    pub error: Option<f64>,
    /// The mean cosine of the angles between the unknowns and what was found of them.
    pub cosine: Option<f64>,
    /// The error of a guess without the attack, or its cosine, or its AUC.
    pub baseline: Option<f64>,
    /// The probability that a member is distinguished from another row.
    pub auc: Option<f64>,
    /// What the attack took.
    pub seconds: Option<f64>,
    pub note: String,
}

impl Finding {
    pub fn new(attack: &'static str, assumed: impl Into<String>) -> Finding {
        Finding {
            attack,
            assumed: assumed.into(),
            of: "rows",
            recovered: None,
            error: None,
            cosine: None,
            baseline: None,
            auc: None,
            seconds: None,
            note: String::new(),
        }
    }

    /// Of other unknowns than rows.
    #[must_use]
    pub fn of(mut self, unknowns: &'static str) -> Finding {
        self.of = unknowns;
        self
    }

    /// With the time since `began`.
    #[must_use]
    pub fn since(mut self, began: Instant) -> Finding {
        self.seconds = Some(began.elapsed().as_secs_f64());
        self
    }

    /// With the AUC of a guess by these scores, lower for members, and the range that it has by chance.
    #[must_use]
    pub fn told_apart(mut self, members: &[f64], others: &[f64]) -> Finding {
        self.auc = auc(members, others);
        self.baseline = Some(0.5);
        self.by_chance(members.len(), others.len())
    }

    /// With the range that its AUC has by chance, if it has one.
    #[must_use]
    pub fn by_chance(mut self, members: usize, others: usize) -> Finding {
        if self.auc.is_some() {
            let by = 2.0 * deviation(members, others);
            self.note += &format!("; by chance AUC {:.2} to {:.2}", (0.5 - by).max(0.0), (0.5 + by).min(1.0));
        }
        self
    }

    /// With a remark.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Finding {
        self.note = note.into();
        self
    }

    /// Compares an estimate of the hidden columns with them: rows that are exact within `tolerance` times the largest entry.
    #[must_use]
    pub fn compared(mut self, estimate: &ArrayView2<f64>, ground_truth: &ArrayView2<f64>, tolerance: f64) -> Finding {
        let largest = ground_truth.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
        let exact = |(a, b): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * largest)
        };
        let rows = estimate.rows().into_iter().zip(ground_truth.rows());
        self.recovered = Some((rows.filter(|pair| exact(*pair)).count(), ground_truth.nrows()));
        self.error = Some(distance(estimate, ground_truth));
        self.baseline = Some(of_means(ground_truth));
        self
    }
}

/// How many of the hidden columns are recovered by one of the columns found, within `tolerance` times its largest entry, up to a
/// factor if `scaled`; with the error of the nearest ones, and of the mean of each row for those that have none.
#[must_use]
pub fn columns_found(
    finding: Finding,
    found: &[Vec<f64>],
    ground_truth: Option<&Array2<f64>>,
    tolerance: f64,
    scaled: bool,
) -> Finding {
    let mut finding = finding.of("columns");
    let Some(ground_truth) = ground_truth else {
        finding.note += &format!("{} columns found", found.len());
        return finding;
    };
    let means = ground_truth.mean_axis(Axis(1)).unwrap_or_default();
    let (mut recovered, mut estimate) = (0, Array2::zeros(ground_truth.dim()));
    for (column, mut to) in ground_truth.columns().into_iter().zip(estimate.columns_mut()) {
        let largest = column.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
        let candidates = found.iter().map(|x| {
            let x = Array1::from(x.clone());
            if scaled { &x * (x.dot(&column) / x.dot(&x).max(f64::MIN_POSITIVE)) } else { x }
        });
        let worst = |x: &Array1<f64>| x.iter().zip(&column).fold(0.0, |w: f64, (a, b)| w.max((a - b).abs()));
        match candidates.min_by(|a, b| worst(a).total_cmp(&worst(b))) {
            Some(best) if worst(&best) <= tolerance * largest => {
                recovered += 1;
                to.assign(&best);
            }
            _ => to.assign(&means),
        }
    }
    finding.recovered = Some((recovered, ground_truth.ncols()));
    finding.error = Some(distance(&estimate.view(), &ground_truth.view()));
    let guess = Array2::from_shape_fn(ground_truth.dim(), |(i, _)| means[i]);
    finding.baseline = Some(distance(&guess.view(), &ground_truth.view()));
    finding
}

/// ‖A − B‖/‖B‖.
pub fn distance(a: &ArrayView2<f64>, b: &ArrayView2<f64>) -> f64 {
    let norm2 = |x: &Array2<f64>| x.iter().map(|x| x * x).sum::<f64>();
    (norm2(&(a - b)) / b.iter().map(|x| x * x).sum::<f64>().max(f64::MIN_POSITIVE)).sqrt()
}

/// The error of guessing the mean of each column.
fn of_means(ground_truth: &ArrayView2<f64>) -> f64 {
    let Some(means) = ground_truth.mean_axis(Axis(0)) else { return 0.0 };
    let guess = Array2::from_shape_fn(ground_truth.dim(), |(_, j)| means[j]);
    distance(&guess.view(), ground_truth)
}
