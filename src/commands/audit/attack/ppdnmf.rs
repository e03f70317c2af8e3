//! `ppdnmf`: answers of neighbours, g (U_j − U_i) with unknown g. A party with several neighbours receives them masked, and
//! their sum without masks.

use ndarray::Array2;

use fednmf_audit::neighbour::{State, Weights, column_error, copy, products};
use fednmf_base::error::Result;
use fednmf_comm::Knowledge;
use fednmf_files::output::view::RecordedView;
use fednmf_methods::federated::graph::ppdnmf::Ppdnmf;
use fednmf_methods::federated::graph::ppdnmf::exchange::{ANSWER, OWN_COPY, OWN_WEIGHTS, PLAIN_ANSWER, SUM_OF_ANSWERS};
use fednmf_methods::shared::init;

use super::finding::{Finding, distance};
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// The answers that a party received from one neighbour, or from all together (`neighbour` is then the party itself),
/// step by step.
#[derive(Default)]
struct Edge {
    party: usize,
    neighbour: usize,
    iterations: Vec<usize>,
    /// Estimates of the neighbour's copy of X.
    copies: Vec<Array2<f64>>,
    /// Σ ρ (U_i − U_j), as the neighbour gets it.
    pulls: Vec<Array2<f64>>,
    own: Vec<Array2<f64>>,
}

/// The attacks on each neighbour of the own parties.
pub fn attacks(pooled: &PooledView, method: &Ppdnmf, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for view in &pooled.views {
        let edges = edges(pooled, method, view)?;
        for edge in edges.iter().filter(|edge| edge.neighbour != edge.party) {
            let sum = edges.iter().find(|sum| sum.party == edge.party && sum.neighbour == sum.party);
            findings.push(one_answer(pooled, method, edge, edge.neighbour, inputs)?);
            findings.extend(sum.map(|sum| one_answer(pooled, method, sum, edge.neighbour, inputs)).transpose()?);
            findings.extend(if sum.is_none() { rounds(pooled, method, edge, inputs)? } else { None });
        }
    }
    Ok(findings)
}

/// All answers that the parties of a view decrypted, by neighbour.
fn edges(pooled: &PooledView, method: &Ppdnmf, view: &RecordedView) -> Result<Vec<Edge>> {
    let (scale, g_scale) = (method.quantization as f64, method.g_scale as f64);
    let g_max = (method.g_max.given().unwrap_or(1.0) * g_scale).floor();
    let shape = (pooled.m, pooled.k);
    let mut copies: Vec<(usize, Array2<f64>)> = Vec::new();
    let mut edges: Vec<Edge> = Vec::new();
    for (at, record) in view.records.iter().enumerate() {
        let Some(to) = record.to else { continue };
        match (record.knowledge, record.kind.as_str()) {
            (Knowledge::Own, OWN_COPY) => {
                copies.retain(|(party, _)| *party != to);
                copies.extend(pooled.shaped(view, at, shape)?.map(|values| (to, values / scale)));
            }
            (Knowledge::Opened, kind) if [ANSWER.kind, PLAIN_ANSWER.kind, SUM_OF_ANSWERS.kind].contains(&kind) => {
                let (Some(from), Some((_, own))) = (record.from, copies.iter().find(|(party, _)| *party == to)) else {
                    continue;
                };
                let (Some(answer), true) = (pooled.shaped(view, at, shape)?, at + 1 < view.records.len()) else {
                    continue;
                };
                // The own weights follow their answer.
                let weights =
                    if view.records[at + 1].kind == OWN_WEIGHTS { pooled.shaped(view, at + 1, shape)? } else { None };
                let Some(weights) = weights else { continue };
                let place = edges.iter().position(|edge| (edge.party, edge.neighbour) == (to, from));
                let place = place.unwrap_or_else(|| {
                    edges.push(Edge { party: to, neighbour: from, ..Edge::default() });
                    edges.len() - 1
                });
                // The sum reveals the mean of the neighbours, whose answers precede it.
                let together = edges.iter().filter(|edge| edge.party == to && edge.neighbour != to).count();
                let terms = if from == to { together as f64 } else { 1.0 };
                let edge = &mut edges[place];
                edge.iterations.push(record.iteration);
                edge.copies.push(copy(own, &(&answer / scale), g_max * terms));
                edge.pulls.push(&answer * &weights * (-1.0 / (scale * g_scale * g_scale)));
                edge.own.push(own.clone());
            }
            _ => {}
        }
    }
    Ok(edges)
}

/// The neighbour's copies in its own view, step by step.
fn true_copies(
    pooled: &PooledView,
    method: &Ppdnmf,
    inputs: &AttackInputs<'_>,
    party: usize,
) -> Result<Vec<Array2<f64>>> {
    let Some(victim) = &inputs.victim else { return Ok(Vec::new()) };
    let scale = method.quantization as f64;
    let mut all = Vec::new();
    for at in victim.of_kind(Knowledge::Own, OWN_COPY).filter(|&at| victim.records[at].to == Some(party)) {
        all.extend(pooled.shaped(victim, at, (pooled.m, pooled.k))?.map(|values| values / scale));
    }
    Ok(all)
}

/// X of a neighbour from each single answer, or from each sum of answers: the median of the errors.
fn one_answer(
    pooled: &PooledView,
    method: &Ppdnmf,
    edge: &Edge,
    neighbour: usize,
    inputs: &AttackInputs<'_>,
) -> Result<Finding> {
    let (name, from) = if edge.neighbour == edge.party {
        ("sum of answers", "as the mean of its neighbours; g is at least half its limit")
    } else {
        ("one answer", "g is at least half its limit, and nothing masks the answer")
    };
    let mut found = Finding::new(name, format!("party {} of its neighbour {neighbour}; {from}", edge.party));
    found.of = "copies of X";
    let ground_truth = true_copies(pooled, method, inputs, neighbour)?;
    if ground_truth.len() != edge.copies.len() {
        return Ok(
            found.note(format!("{} answers; give --victim, the neighbour's view, to compare", edge.copies.len()))
        );
    }
    let median = |estimates: &[Array2<f64>]| {
        let mut all: Vec<f64> =
            estimates.iter().zip(&ground_truth).map(|(a, b)| distance(&a.view(), &b.view())).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    (found.error, found.baseline) = (median(&edge.copies), median(&edge.own));
    Ok(found.note(format!("{} answers, median error; the guess is the own X", edge.copies.len())))
}

/// The neighbour's products Z Yᵀ, by least squares over the steps of each round; the pulls of the neighbour's other
/// neighbours are ignored.
fn rounds(pooled: &PooledView, method: &Ppdnmf, edge: &Edge, inputs: &AttackInputs<'_>) -> Result<Option<Finding>> {
    let (Some(mu), Some(g_max)) = (method.inner.mu_penalty.given(), method.g_max.given()) else { return Ok(None) };
    // The graph is public: with two parties each has one neighbour.
    let degree = if pooled.cuts.len() == 2 { 1.0 } else { 0.0 };
    let assumed = format!("party {} is the only neighbour of {}; all steps of a round", edge.party, edge.neighbour);
    let mut found = Finding::new("a round", assumed);
    if degree == 0.0 {
        return Ok(Some(found.note("more than two parties: a neighbour's other pulls are not followed here")));
    }
    found.of = "columns";
    let weights = Weights { mu, tau: degree * g_max * g_max };
    let scale = init::scale(pooled.statistic("sum"), (pooled.m, pooled.n), pooled.k);
    let mut first = Array2::<f64>::zeros((pooled.m, pooled.k));
    init::u(pooled.seed, &(0..pooled.m), 3.0 * scale, first.view_mut());
    let mut state = State::start(&first);
    let (mut from, mut best, mut all) = (0, None::<f64>, 0);
    let mut own_error = None::<f64>;
    while from < edge.iterations.len() {
        let iteration = edge.iterations[from];
        let steps = edge.iterations[from..].iter().take_while(|&&i| i == iteration).count();
        let (copies, pulls) = (&edge.copies[from..from + steps], &edge.pulls[from..from + steps]);
        from += steps;
        let known = state.follow(copies, pulls, weights);
        // Y starts at 0, so the first round carries no information.
        let (true, Some((r, _))) = (iteration > 0, products(copies, &known)) else { continue };
        all += 1;
        if let Some(matrix) = &inputs.ground_truth.matrix {
            let columns = pooled.cuts[edge.neighbour].clone();
            if columns.len() == 1 {
                let error = column_error(&r, &matrix.column(columns.start).to_owned());
                best = Some(best.map_or(error, |best| best.min(error)));
                let column = matrix.column(columns.start);
                let mean = column.mean().unwrap_or(0.0);
                own_error = Some(
                    (column.mapv(|x| (x - mean).powi(2)).sum() / column.dot(&column).max(f64::MIN_POSITIVE)).sqrt(),
                );
            }
        }
        if let Some(victim) = &inputs.victim
            && let Some(matrix) = &inputs.ground_truth.matrix
            && pooled.cuts[edge.neighbour].len() > 1
            && let Some(y) = of_victim(victim, edge.neighbour, iteration)?
        {
            let columns = matrix.slice(ndarray::s![.., pooled.cuts[edge.neighbour].clone()]);
            let error = distance(&r.view(), &columns.dot(&y).view());
            best = Some(best.map_or(error, |best| best.min(error)));
        }
    }
    (found.error, found.baseline) = (best, own_error);
    let what = if pooled.cuts[edge.neighbour].len() == 1 { "the neighbour's column, up to its length" } else { "Z Y'" };
    Ok(Some(found.note(format!("{all} rounds; the error is that of {what} in the best round"))))
}

/// Y_jᵀ of the victim at the beginning of an iteration.
fn of_victim(victim: &RecordedView, party: usize, iteration: usize) -> Result<Option<Array2<f64>>> {
    let mut all = victim.of_kind(Knowledge::Own, "V");
    let at = all.find(|&at| victim.records[at].to == Some(party) && victim.records[at].iteration == iteration);
    at.map(|at| victim.values(at)).transpose()
}
