//! The result of an attack, compared with guessing the mean of each column.

use ndarray::{Array2, ArrayView2, Axis};

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
    /// The error of a guess without the attack.
    pub baseline: Option<f64>,
    /// The probability that a member is distinguished from another row.
    pub auc: Option<f64>,
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
            baseline: None,
            auc: None,
            note: String::new(),
        }
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
