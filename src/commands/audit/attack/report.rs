//! The findings in a table or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::Finding;
use super::pooled_view::PooledView;

/// Colluding parties, method, findings.
pub fn as_json(pooled: &PooledView, findings: &[Finding]) -> Value {
    let each = |f: &Finding| {
        json!({"attack": f.attack, "assumed": f.assumed, "of": f.of, "recovered": f.recovered.map(|r| r.0),
               "total": f.recovered.map(|r| r.1), "rel_error": f.error, "cosine": f.cosine, "baseline": f.baseline, "auc": f.auc,
               "seconds": f.seconds, "note": f.note})
    };
    json!({"algo": pooled.method.description().name, "ranks": pooled.ranks(), "parties": pooled.own, "hidden_parties": pooled.hidden_parties(),
           "findings": findings.iter().map(each).collect::<Vec<_>>()})
}

/// A line for each finding, and its assumption and remark below.
pub fn table(pooled: &PooledView, findings: &[Finding]) -> String {
    let list = |all: &[usize]| all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let ranks = pooled.ranks();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let mut out = format!("{}, seen by {word} {}", pooled.method.description().name, list(&ranks));
    if !pooled.private() {
        out.push_str("\n\nIts ranks are one domain of trust and see all of the data: there is nothing to attack.\n");
        return out;
    }
    let word = if pooled.own.len() == 1 { "party" } else { "parties" };
    let _ = write!(out, " with {word} {}; hidden: {}\n\n", list(&pooled.own), list(&pooled.hidden_parties()));
    out.push_str("attack            found              relative error  cosine        by a guess  AUC    seconds\n");
    for f in findings {
        let recovered = f.recovered.map_or_else(|| "-".into(), |(n, all)| format!("{n} of {all} {}", f.of));
        let number = |x: Option<f64>| match x {
            None => "-".to_string(),
            Some(x) if x == 0.0 || (1e-3..1e3).contains(&x) => format!("{x:.3}"),
            Some(x) => format!("{x:.3e}"),
        };
        let short = |x: Option<f64>| x.map_or_else(|| "-".to_string(), |x| format!("{x:.3}"));
        let (error, guess, cosine, auc) = (number(f.error), number(f.baseline), short(f.cosine), short(f.auc));
        let seconds = f.seconds.map_or_else(|| "-".to_string(), |x| format!("{x:.1}"));
        let _ = writeln!(
            out,
            "{:16}  {recovered:17}  {error:>14}  {cosine:>6}  {guess:>16}  {auc:5}  {seconds:>7}",
            f.attack
        );
        if !f.assumed.is_empty() {
            let _ = writeln!(out, "    assumes: {}", f.assumed);
        }
        if !f.note.is_empty() {
            let _ = writeln!(out, "    {}", f.note);
        }
    }
    out
}
