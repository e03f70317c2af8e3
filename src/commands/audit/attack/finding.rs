//! What an attack found, in a table or as JSON, beside what a guess of the columns' means would give.

use std::fmt::Write as _;

use ndarray::{Array2, ArrayView2, Axis};
use serde_json::{Value, json};

use super::seen::Seen;

/// The result of an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub attack: &'static str,
    /// What it takes for granted.
    pub assumed: String,
    /// What was looked for, and found of how many, exactly.
    pub of: &'static str,
    pub recovered: Option<(usize, usize)>,
    /// Relative to the norm of what was looked for.
    pub error: Option<f64>,
    /// The error of a guess without the attack.
    pub baseline: Option<f64>,
    /// The probability that a member is told from another row.
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
    pub fn compared(mut self, estimate: &ArrayView2<f64>, truth: &ArrayView2<f64>, tolerance: f64) -> Finding {
        let largest = truth.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
        let exact = |(a, b): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * largest)
        };
        let rows = estimate.rows().into_iter().zip(truth.rows());
        self.recovered = Some((rows.filter(|pair| exact(*pair)).count(), truth.nrows()));
        self.error = Some(distance(estimate, truth));
        self.baseline = Some(of_means(truth));
        self
    }
}

/// ‖A − B‖/‖B‖.
pub fn distance(a: &ArrayView2<f64>, b: &ArrayView2<f64>) -> f64 {
    let norm2 = |x: &Array2<f64>| x.iter().map(|x| x * x).sum::<f64>();
    (norm2(&(a - b)) / b.iter().map(|x| x * x).sum::<f64>().max(f64::MIN_POSITIVE)).sqrt()
}

/// The error of guessing the mean of each column.
fn of_means(truth: &ArrayView2<f64>) -> f64 {
    let Some(means) = truth.mean_axis(Axis(0)) else { return 0.0 };
    let guess = Array2::from_shape_fn(truth.dim(), |(_, j)| means[j]);
    distance(&guess.view(), truth)
}

/// Colluding parties, method, findings.
pub fn as_json(seen: &Seen, findings: &[Finding]) -> Value {
    let each = |f: &Finding| {
        json!({"attack": f.attack, "assumed": f.assumed, "of": f.of, "recovered": f.recovered.map(|r| r.0),
               "total": f.recovered.map(|r| r.1), "rel_error": f.error, "baseline": f.baseline, "auc": f.auc, "note": f.note})
    };
    json!({"algo": seen.algorithm(), "ranks": seen.ranks(), "parties": seen.own, "hidden_parties": seen.hidden_parties(),
           "findings": findings.iter().map(each).collect::<Vec<_>>()})
}

/// A line for each finding, and its assumption and remark below.
pub fn table(seen: &Seen, findings: &[Finding]) -> String {
    let list = |all: &[usize]| all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut out = format!("{}, seen by rank(s) {}", seen.algorithm(), list(&seen.ranks()));
    if !seen.private() {
        out.push_str("\n\nIts ranks are one domain of trust and see all of the data: there is nothing to attack.\n");
        return out;
    }
    let _ = write!(out, " with party(ies) {}; hidden: {}\n\n", list(&seen.own), list(&seen.hidden_parties()));
    out.push_str("attack            recovered exactly  relative error  a guess's  AUC\n");
    for f in findings {
        let recovered = f.recovered.map_or_else(|| "-".into(), |(n, all)| format!("{n} of {all} {}", f.of));
        let number = |x: Option<f64>| x.map_or_else(|| "-".to_string(), |x| format!("{x:.3e}"));
        let auc = f.auc.map_or_else(|| "-".to_string(), |x| format!("{x:.3}"));
        let _ =
            writeln!(out, "{:16}  {recovered:17}  {:>14}  {:>9}  {auc}", f.attack, number(f.error), number(f.baseline));
        if !f.assumed.is_empty() {
            let _ = writeln!(out, "    takes for granted: {}", f.assumed);
        }
        if !f.note.is_empty() {
            let _ = writeln!(out, "    {}", f.note);
        }
    }
    out
}
