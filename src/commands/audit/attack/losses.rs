//! Sums that were repeated without a party that dropped out (`--secure-threshold`).

use std::collections::BTreeSet;

use ndarray::Array2;

use fednmf_audit::differencing::{Sum, pairs};
use fednmf_audit::linear::outside;
use fednmf_base::error::Result;
use fednmf_comm::Knowledge;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// Searches the opened sums for two whose difference is a term.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let view = &pooled.views[0];
    let (mut sums, mut places, mut parties) = (Vec::new(), Vec::new(), (0..pooled.cuts.len()).collect::<BTreeSet<_>>());
    let threshold = pooled.method.groups().threshold.is_some_and(|group| group.secure_threshold.as_ref().is_some());
    for (at, record) in view.records.iter().enumerate() {
        if record.knowledge == Knowledge::Received && record.payload.as_deref() == Some("Masked") && threshold {
            // A flag for each party precedes the masked words.
            let flags = view.values(at)?;
            parties =
                flags.iter().take(pooled.cuts.len()).enumerate().filter(|(_, x)| **x == 1.0).map(|(p, _)| p).collect();
        }
        if record.knowledge == Knowledge::Opened && record.from.is_none() {
            places.push(at);
            sums.push(Sum {
                kind: record.kind.clone(),
                iteration: record.iteration,
                length: record.cols,
                parties: parties.clone(),
            });
        }
    }
    if sums.is_empty() {
        return Ok(Vec::new());
    }
    let all = pairs(&sums);
    let lost: BTreeSet<usize> = all.iter().map(|pair| pair.party).collect();
    let smallest = sums.iter().map(|sum| sum.parties.len()).min().unwrap_or(0);
    let mut found = Finding::new("differencing", "values of an iteration that are summed twice are the same");
    found.of = "lost parties' terms";
    found.recovered = Some((lost.len(), pooled.cuts.len() - smallest));
    let mut notes = vec![format!("{} masked sums", sums.len())];
    for pair in &all {
        let difference = view.values(places[pair.with])? - view.values(places[pair.without])?;
        notes.push(format!(
            "'{}' of party {} in iteration {}",
            sums[pair.with].kind, pair.party, sums[pair.with].iteration
        ));
        // A term M_r V_r lies in the span of the party's columns.
        let ground_truth = inputs
            .ground_truth
            .matrix
            .as_ref()
            .filter(|_| pooled.by_columns && difference.len() == pooled.m * pooled.k);
        if let (Some(matrix), Some(term)) = (ground_truth, pooled.shaped_like(view, &difference)) {
            let columns = matrix.slice(ndarray::s![.., pooled.cuts[pair.party].clone()]).to_owned();
            found.error = Some(outside(&term, &columns));
            found.baseline = Some(outside(&Array2::ones(term.dim()), &columns));
        }
    }
    Ok(vec![found.note(notes.join("; "))])
}
