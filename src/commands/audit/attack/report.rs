//! The findings in a table or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::Finding;
use super::pooled_view::PooledView;

/// Colluding parties, method, findings.
pub fn as_json(pooled: &PooledView, findings: &[Finding]) -> Value {
    let each = |f: &Finding| {
        json!({"attack": f.attack, "assumed": f.assumed, "of": f.of, "recovered": f.recovered.map(|r| r.0),
               "total": f.recovered.map(|r| r.1), "rel_error": f.error, "baseline": f.baseline, "auc": f.auc, "note": f.note})
    };
    json!({"algo": pooled.method.description().name, "ranks": pooled.ranks(), "parties": pooled.own, "hidden_parties": pooled.hidden_parties(),
           "findings": findings.iter().map(each).collect::<Vec<_>>()})
}

/// A line for each finding, and its assumption and remark below.
pub fn table(pooled: &PooledView, findings: &[Finding]) -> String {
    let list = |all: &[usize]| all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut out = format!("{}, seen by rank(s) {}", pooled.method.description().name, list(&pooled.ranks()));
    if !pooled.private() {
        out.push_str("\n\nIts ranks are one domain of trust and see all of the data: there is nothing to attack.\n");
        return out;
    }
    let _ = write!(out, " with party(ies) {}; hidden: {}\n\n", list(&pooled.own), list(&pooled.hidden_parties()));
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
