//! Methods with private rows: whether a row was in the data that the shared V was fitted to.

use ndarray::Array2;

use fednmf_audit::membership::misfits;
use fednmf_base::error::{Error, Result};
use fednmf_base::units::counted;
use fednmf_comm::Knowledge;
use fednmf_comm::party_sum::SUMMED;
use fednmf_methods::federated::rows::fnmf::Fnmf;
use fednmf_methods::federated::rows::fnmf::barycenter::Barycenter;
use fednmf_methods::federated::rows::fnmf::federated::RoundParams;
use fednmf_methods::parameters::{Auto, group};

use super::finding::Finding;
use super::ground_truth;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// The sum of the Boolean methods.
const SUM_V: &str = "sum V_i";

/// Membership inference by the last shared V, and by what is left of it without the own parties' part.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    if pooled.by_columns {
        return Ok(Vec::new());
    }
    let view = &pooled.views[0];
    let shared = view.of_kind(Knowledge::Own, "V").filter(|&at| view.records[at].to.is_none()).last();
    let Some(at) = shared else { return Ok(Vec::new()) };
    let v = view.values(at)?;
    let found = Finding::new("membership", "rows that V fits better were in the data");
    let Some(members) = inputs.ground_truth.hidden(pooled) else {
        return Ok(vec![found.note("needs --truth, the matrix of the run")]);
    };
    let Some(name) = inputs.candidates else {
        return Ok(vec![found.note("needs --candidates: rows that were in nobody's data")]);
    };
    let others: Array2<f64> = ground_truth::read(pooled, name, true, inputs.alone).map_err(|e| e.at("--candidates"))?;
    if others.ncols() != pooled.n {
        return Err(Error::input(format!(
            "--candidates {name}: has {} columns, and the data of the run {}",
            others.ncols(),
            pooled.n
        )));
    }
    // A row that is also in the data carries no information.
    let known: std::collections::BTreeSet<Vec<u64>> =
        inputs.ground_truth.matrix.iter().flat_map(|m| m.rows().into_iter().map(bits).collect::<Vec<_>>()).collect();
    let fresh: Vec<usize> = (0..others.nrows()).filter(|&i| !known.contains(&bits(others.row(i)))).collect();
    let others = others.select(ndarray::Axis(0), &fresh);
    let described = |found: Finding, v: &Array2<f64>| {
        let found = found.note(format!("{} members, {} other rows", members.nrows(), others.nrows())).of("members");
        found.told_apart(&misfits(&members.view(), &v.view()), &misfits(&others.view(), &v.view()))
    };
    let mut findings = vec![described(found, &v)];
    if let Some(rest) = without_own(pooled, &v)? {
        let (own, hidden) = (pooled.own.len(), pooled.hidden_parties().len());
        let assumed = format!(
            "what is left of the sum without the part of {}: that of {hidden}",
            counted(own, "party", "parties")
        );
        findings.push(described(Finding::new("membership, pooled", assumed), &rest));
    }
    Ok(findings)
}

/// The mean V of the hidden parties (n × k): the last sum less what the own parties added to it, where V is a plain
/// mean.
fn without_own(pooled: &PooledView, shared: &Array2<f64>) -> Result<Option<Array2<f64>>> {
    let (view, shape) = (&pooled.views[0], shared.dim());
    let is_boolean = pooled.method.description().is_boolean();
    let aligned = pooled.method::<Fnmf>().map(|fnmf| fnmf.aggregate.barycenter);
    let plain = aligned.is_none_or(|barycenter| barycenter == Auto::Given(Barycenter::Mean));
    let rounds: Option<&RoundParams> = group(&*pooled.method);
    let all_take_part = rounds.is_none_or(|rounds| rounds.participation >= 1.0);
    if pooled.is_all() || !plain || !all_take_part {
        return Ok(None);
    }
    let with_rows = |party: &usize| !pooled.cuts[*party].is_empty();
    let mut sum = if is_boolean {
        let Some(&at) = pooled.sums(SUM_V).last() else { return Ok(None) };
        view.values(at)?.into_shape_with_order(shape).ok()
    } else {
        Some(shared * (0..pooled.cuts.len()).filter(with_rows).count() as f64)
    };
    for party in pooled.own.iter().filter(|party| with_rows(party)) {
        let mut own = None;
        for view in &pooled.views {
            let last = view.of_kind(Knowledge::Own, SUMMED).filter(|&at| view.records[at].to == Some(*party)).last();
            own = own.or(last.map(|at| view.values(at)).transpose()?);
        }
        // Components are rows of what fnmf and its baselines send.
        let own = own.map(|own| if is_boolean { own } else { own.reversed_axes() });
        sum = sum.zip(own).filter(|(sum, own)| sum.dim() == own.dim()).map(|(sum, own)| sum - own);
    }
    let hidden = pooled.hidden_parties().iter().filter(|party| with_rows(party)).count();
    Ok(sum.filter(|_| hidden > 0).map(|sum| sum.mapv(|x| (x / hidden as f64).max(0.0))))
}

fn bits(row: ndarray::ArrayView1<'_, f64>) -> Vec<u64> {
    row.iter().map(|x| x.to_bits()).collect()
}
