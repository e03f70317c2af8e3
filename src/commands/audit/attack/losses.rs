//! Sums that were repeated without a party that dropped out (`--secure-threshold`), in a run or in a run that was started again.

use std::collections::BTreeSet;

use ndarray::{Array2, Axis};

use fednmf_audit::differencing::{Sum, pairs};
use fednmf_audit::linear::outside;
use fednmf_base::error::Result;
use fednmf_comm::Knowledge;
use fednmf_comm::party_sum::SUMMED;

use super::finding::{Finding, distance};
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// Searches the opened sums of all views for two whose difference is a term.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let (mut sums, mut places) = (Vec::new(), Vec::new());
    let threshold = pooled.method.groups().threshold.is_some_and(|group| group.secure_threshold.as_ref().is_some());
    for (number, view) in pooled.views.iter().enumerate() {
        let mut parties: BTreeSet<usize> = (0..pooled.cuts.len()).collect();
        for (at, record) in view.records.iter().enumerate() {
            if record.knowledge == Knowledge::Received && record.payload.as_deref() == Some("Masked") && threshold {
                // A flag for each party precedes the masked words.
                let flags = view.values(at)?;
                let flags = flags.iter().take(pooled.cuts.len()).enumerate();
                parties = flags.filter(|(_, x)| **x == 1.0).map(|(p, _)| p).collect();
            }
            if record.knowledge == Knowledge::Opened && record.from.is_none() {
                places.push(at);
                let earlier =
                    |sum: &&Sum| sum.view == number && sum.kind == record.kind && sum.iteration == record.iteration;
                let order = sums.iter().filter(earlier).count();
                sums.push(Sum {
                    view: number,
                    kind: record.kind.clone(),
                    iteration: record.iteration,
                    order,
                    length: record.cols,
                    parties: parties.clone(),
                });
            }
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
        let (with, without) = (&sums[pair.with], &sums[pair.without]);
        let (view, other) = (&pooled.views[with.view], &pooled.views[without.view]);
        let difference = view.values(places[pair.with])? - other.values(places[pair.without])?;
        let again = if with.view == without.view { "" } else { ", in a run that was started again" };
        notes.push(format!("'{}' of party {} in iteration {}{again}", with.kind, pair.party, with.iteration));
        // What the lost party added, if its own view, or the attackers', tells.
        if let Some(term) = summed(pooled, inputs, pair.party, with.iteration)?.filter(|x| x.len() == difference.len())
        {
            let Some(difference) = pooled.like_term(view, &with.kind, difference, term.dim()) else { continue };
            let means = term.mean_axis(Axis(1)).unwrap_or_default().insert_axis(Axis(1));
            let guess = &means + &Array2::<f64>::zeros(term.dim());
            found.error = Some(distance(&difference.view(), &term.view()));
            found.baseline = Some(distance(&guess.view(), &term.view()));
            continue;
        }
        // A term M_r V_r lies in the span of the party's columns.
        let is_product = pooled.by_columns && difference.len() == pooled.m * pooled.k;
        let ground_truth = inputs.ground_truth.matrix.as_ref().filter(|_| is_product);
        if let (Some(matrix), Some(term)) = (ground_truth, pooled.shaped_like(view, &difference)) {
            let columns = matrix.slice(ndarray::s![.., pooled.cuts[pair.party].clone()]).to_owned();
            found.error = Some(outside(&term, &columns));
            found.baseline = Some(outside(&Array2::ones(term.dim()), &columns));
        }
    }
    Ok(vec![found.note(notes.join("; "))])
}

/// The V that a party added to a sum, by the victim's view or the attackers' own.
fn summed(
    pooled: &PooledView,
    inputs: &AttackInputs<'_>,
    party: usize,
    iteration: usize,
) -> Result<Option<Array2<f64>>> {
    if let Some(victim) = &inputs.victim {
        let is = |at: &usize| victim.records[*at].to == Some(party) && victim.records[*at].iteration == iteration;
        if let Some(at) = victim.of_kind(Knowledge::Own, SUMMED).find(is) {
            return victim.values(at).map(Some);
        }
    }
    pooled.known(SUMMED, Some(party), iteration)
}
