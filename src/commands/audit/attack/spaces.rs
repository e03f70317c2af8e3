//! Attacks on the space that the sums of all iterations span: hidden columns of secure-hals, and membership for all methods with
//! a shared factor.

use std::iter;
use std::time::{Duration, Instant};

use ndarray::{Array2, ArrayView2, Axis, concatenate};

use fednmf_audit::candidates;
use fednmf_audit::deviations::Deviations;
use fednmf_audit::quadratic;
use fednmf_audit::ratios;
use fednmf_audit::space::Space;
use fednmf_audit::sparse_columns;
use fednmf_audit::subset_sums;
use fednmf_base::error::{Error, Result};
use fednmf_base::units::counted;
use fednmf_comm::Knowledge;

use super::finding::{Finding, columns_found};
use super::ground_truth;
use super::inputs::AttackInputs;
use super::pooled_view::{Numerators, PooledView};

/// What is below this part of the largest singular value of shared factors is rounding.
const ROUNDING: f64 = 1e-9;
/// Known entries of a column that is completed, in addition to the rank of the space.
const MORE_ENTRIES: usize = 10;
/// Largest numbers of rows and columns, and the time, for linear programs.
const MOST_PROGRAMS: (usize, usize) = (600, 100);
const PROGRAMS_TIME: Duration = Duration::from_secs(20);
/// Most vectors on a list of candidates.
const MOST_CANDIDATES: usize = 4000;
/// Common directions that are removed, for each component.
const COMMON: usize = 2;

/// All attacks on sums M_h V_t (m × k each) over the hidden columns, of which no V_t is known.
///
/// # Errors
/// When candidates cannot be read.
pub fn of_columns(pooled: &PooledView, sums: &[Array2<f64>], inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let (h, ground_truth) = (pooled.hidden().len(), inputs.ground_truth.hidden(pooled));
    let ground_truth = ground_truth.as_ref();
    let mut findings: Vec<Finding> = subset_sums(pooled, sums, h, ground_truth).into_iter().collect();
    let Some(all) = joined(sums, Axis(1)) else { return Ok(findings) };
    let tolerance = (6.0 - pooled.bits()).exp2();
    let Some(space) = Space::of(&all.view(), h, tolerance) else { return Ok(findings) };
    let rank = space.rank();
    let assumed = format!("{} sums span {rank} dimensions; {h} hidden columns of {} entries", sums.len(), pooled.m);
    findings.extend(membership(pooled, &all, (h, tolerance), &assumed, inputs, &|rows| rows)?);
    if space.is_everything() || (rank < h && rank == all.ncols().min(all.nrows())) {
        return Ok(findings);
    }
    // The sums span all hidden columns.
    findings.extend(completion(&space, &assumed, ground_truth));
    findings.extend(programs(&space, &assumed, ground_truth));
    let prior = pooled.whole_numbers();
    if prior.low == 0.0 && prior.high == 1.0 {
        let began = Instant::now();
        let quadratic = Finding::new("quadratic", format!("{assumed}; entries are 0 and 1"));
        findings.push(match quadratic::zeros_and_ones(&space) {
            Some(found) => {
                let found: Vec<Vec<f64>> = found.into_iter().map(|x| x.to_vec()).collect();
                columns_found(quadratic, &found, ground_truth, 1e-9, false).since(began)
            }
            None => quadratic.note(format!("needs {} rows: not tried", quadratic::needed_rows(rank))),
        });
    }
    let began = Instant::now();
    let lattice = Finding::new("space lattice", format!("{assumed}; whole numbers from 0 to {}", prior.high));
    findings.push(if rank > subset_sums::LARGEST {
        lattice.note(format!("more than {} dimensions: not tried", subset_sums::LARGEST))
    } else {
        let found = subset_sums::in_space(&space.basis.view(), prior);
        columns_found(lattice, &found, ground_truth, 1e-9, false).since(began)
    });
    Ok(findings)
}

/// Concatenates matrices along an axis; `None` without any.
pub fn joined(matrices: &[Array2<f64>], axis: Axis) -> Option<Array2<f64>> {
    let views: Vec<ArrayView2<'_, f64>> = matrices.iter().map(|matrix| matrix.view()).collect();
    concatenate(axis, &views).ok()
}

/// Hidden subset sums from the first sum, then from the first sums together.
fn subset_sums(
    pooled: &PooledView,
    sums: &[Array2<f64>],
    h: usize,
    ground_truth: Option<&Array2<f64>>,
) -> Option<Finding> {
    let (prior, k) = (pooled.whole_numbers(), pooled.k);
    let began = Instant::now();
    let assumed = format!("entries are whole numbers from 0 to {}; nothing of V", prior.high);
    let found = Finding::new("subset sums", assumed);
    if h > subset_sums::LARGEST || pooled.m <= h {
        return Some(found.of("columns").note(format!("{h} hidden columns of {} entries: not tried", pooled.m)));
    }
    let mut best: (usize, Vec<Vec<f64>>) = (1, Vec::new());
    for count in 1..=h.div_ceil(k).min(sums.len()).min(3) {
        let values = joined(&sums[..count], Axis(1))?;
        let columns = subset_sums::columns(&values.view(), h, prior, pooled.bits());
        if columns.len() > best.1.len() {
            best = (count, columns);
        }
        if best.1.len() == h {
            break;
        }
    }
    let found = found.note(format!("{} of {k} numbers for each row; ", counted(best.0, "sum", "sums")));
    Some(columns_found(found, &best.1, ground_truth, 1e-9, false).since(began))
}

/// The entries of hidden columns of which some are known.
fn completion(space: &Space, assumed: &str, ground_truth: Option<&Array2<f64>>) -> Option<Finding> {
    let ground_truth = ground_truth?;
    let (began, m) = (Instant::now(), space.basis.nrows());
    let count = space.rank() + MORE_ENTRIES;
    if count >= m {
        return None;
    }
    let places: Vec<usize> = (0..count).map(|i| i * m / count).collect();
    let others: Vec<usize> = (0..m).filter(|i| places.binary_search(i).is_err()).collect();
    let mut estimate = Array2::zeros((others.len(), ground_truth.ncols()));
    for (column, mut to) in ground_truth.columns().into_iter().zip(estimate.columns_mut()) {
        let known = places.iter().map(|&i| column[i]).collect();
        to.assign(&space.complete(&places, &known)?.select(Axis(0), &others));
    }
    let hidden = ground_truth.select(Axis(0), &others);
    let found = Finding::new("completion", format!("{assumed}; {count} entries of a column are known"));
    let found = found.compared(&estimate.t(), &hidden.t(), 1e-6).of("columns");
    Some(found.note(format!("the other {} entries", others.len())).since(began))
}

/// Sparse columns by linear programs.
fn programs(space: &Space, assumed: &str, ground_truth: Option<&Array2<f64>>) -> Option<Finding> {
    let (began, (m, rank)) = (Instant::now(), space.basis.dim());
    let found = Finding::new("linear programs", format!("{assumed}; many entries are 0"));
    if m > MOST_PROGRAMS.0 || rank > MOST_PROGRAMS.1 {
        return Some(found.of("columns").note(format!("{m} rows: not tried")));
    }
    let columns: Vec<Vec<f64>> =
        sparse_columns::sparse(space, PROGRAMS_TIME).into_iter().map(|column| column.to_vec()).collect();
    let found = found.note("up to a factor; ");
    Some(columns_found(found, &columns, ground_truth, 1e-4, true).since(began))
}

/// Membership by the distance from the space of all sums of a run, or of its shared factors, for all methods but secure-hals.
///
/// # Errors
/// As [`of_columns`].
pub fn of_factors(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    if let Some(Numerators { beta, v, sum }) = pooled.numerators()? {
        let assumed = format!(
            "the last sum for V's update, {} vectors of {} entries, each relative to its fit",
            pooled.k, pooled.n
        );
        let relative = |rows: Array2<f64>| ratios::fitted(&rows.view(), &v.view(), beta);
        return membership(pooled, &sum, (usize::MAX, ROUNDING), &assumed, inputs, &relative);
    }
    of_rows(pooled, &factors(pooled)?, inputs)
}

/// The same for these sums.
///
/// # Errors
/// As [`of_columns`].
pub fn of_rows(pooled: &PooledView, sums: &[Array2<f64>], inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let Some(all) = joined(sums, Axis(1)) else { return Ok(Vec::new()) };
    let assumed = format!("{} sums or shared factors, {} vectors of {} entries", sums.len(), all.ncols(), all.nrows());
    membership(pooled, &all, (usize::MAX, ROUNDING), &assumed, inputs, &|rows| rows)
}

/// The hidden parties' part of each sum of a run; if there are no such sums, the shared factors that a party receives.
fn factors(pooled: &PooledView) -> Result<Vec<Array2<f64>>> {
    let view = &pooled.views[0];
    if !pooled.sums("sum of M_r V_r").is_empty() {
        return Ok(Vec::new());
    }
    let parts = pooled.hidden_parts()?;
    if !parts.is_empty() {
        return Ok(parts.into_iter().map(|(_, part)| part).collect());
    }
    let name = if pooled.by_columns { "U" } else { "V" };
    let shared = view.of_kind(Knowledge::Own, name).filter(|&at| view.records[at].to.is_none());
    // Before the first iteration it is the start.
    let values = shared.filter(|&at| view.records[at].iteration > 0).map(|at| view.values(at));
    values.filter(|v| v.as_ref().is_ok_and(|v| v.nrows() == pooled.length())).collect()
}

/// How well the hidden rows or columns are distinguished from others by their distance from the span of sums (d × q), of at most
/// `most` dimensions above `tolerance`. The others are the candidates if given, otherwise half of those of the own parties.
///
/// Those of the own parties serve to standardise entries and to remove what is common ([`Deviations`]); if there are too few,
/// entries are used as they are. `summed` returns what of a row is in the sums.
fn membership(
    pooled: &PooledView,
    sums: &Array2<f64>,
    (most, tolerance): (usize, f64),
    assumed: &str,
    inputs: &AttackInputs<'_>,
    summed: &dyn Fn(Array2<f64>) -> Array2<f64>,
) -> Result<Vec<Finding>> {
    let began = Instant::now();
    let by_rows = |matrix: Array2<f64>| if pooled.by_columns { matrix.reversed_axes() } else { matrix };
    let Some(members) = inputs.ground_truth.hidden(pooled).map(by_rows).map(summed) else { return Ok(Vec::new()) };
    let own = match pooled.is_all() {
        true => None,
        false => {
            let own = pooled.own.iter().map(|&party| Ok(by_rows(pooled.own_data(party)?)));
            joined(&own.collect::<Result<Vec<_>>>()?, Axis(0)).map(summed)
        }
    };
    let (others, known, whose) = match (inputs.candidates, own) {
        (Some(name), own) => {
            let read = ground_truth::read(pooled, name, true, inputs.alone).map_err(|e| e.at("--candidates"))?;
            let others = by_rows(read);
            if others.ncols() != members.ncols() {
                let (have, want) = (others.ncols(), members.ncols());
                return Err(Error::input(format!(
                    "--candidates {name}: have {have} entries each, and the data of the run {want}"
                )));
            }
            (summed(others), own, "candidates")
        }
        (None, None) => return Ok(Vec::new()),
        (None, Some(own)) => {
            let half = |first: usize| {
                let places: Vec<usize> = (first..own.nrows()).step_by(2).collect();
                own.select(Axis(0), &places)
            };
            (half(0), Some(half(1)), "own")
        }
    };
    let found = Finding::new("membership, sums", assumed).of("members");
    let deviations = known.and_then(|known| Deviations::of(&known.view(), COMMON * pooled.k));
    let space = match &deviations {
        Some(deviations) => deviations.space(&sums.view(), most, tolerance),
        None => Space::of(&sums.view(), most, tolerance),
    };
    let Some(space) = space else { return Ok(Vec::new()) };
    let list = deviations.as_ref().and_then(|known| of_list(known, sums, (&members, &others), assumed, whose));
    if space.is_everything() {
        let found = found.note("they span everything, so that all distances are 0");
        return Ok(iter::once(found).chain(list).collect());
    }
    let distances = |rows: &Array2<f64>| match &deviations {
        Some(deviations) => space.distances(&deviations.from_common(&rows.view()).view()),
        None => space.distances(&rows.view()),
    };
    let (near, far) = (distances(&members), distances(&others));
    let mut found = found;
    let largest = near.iter().copied().fold(0.0, f64::max);
    let smallest = far.iter().copied().fold(f64::INFINITY, f64::min);
    let below = near.iter().filter(|&&x| x < smallest).count();
    found.recovered = Some((below, near.len()));
    // Of all orders of members and others alike.
    let chance = near.len() as f64 / (far.len() + 1) as f64;
    let note = format!(
        "{} dimensions; distance: members at most {largest:.1e}, {} {whose} at least {smallest:.1e}; by chance about {:.0} members are \
         nearer, and up to {:.0} say nothing",
        space.rank(),
        far.len(),
        chance,
        (3.0 * chance).ceil()
    );
    Ok(iter::once(found.note(note).told_apart(&near, &far).since(began)).chain(list).collect())
}

/// How well members are distinguished on a list of all of them and the others, by which of the list make up the sums (d × q).
fn of_list(
    known: &Deviations,
    sums: &Array2<f64>,
    (members, others): (&Array2<f64>, &Array2<f64>),
    assumed: &str,
    whose: &str,
) -> Option<Finding> {
    let began = Instant::now();
    let found = Finding::new("membership, list", assumed).of("members");
    let listed = concatenate(Axis(0), &[members.view(), others.view()]).ok()?;
    if listed.nrows() > MOST_CANDIDATES {
        return Some(found.note(format!("a list of more than {MOST_CANDIDATES}: not tried")));
    }
    let from_common = |vectors: &ArrayView2<'_, f64>| known.from_common(vectors);
    let scores = candidates::scores(&from_common(&listed.view()).view(), &from_common(&sums.t()).view())?;
    let (near, far) = scores.split_at(members.nrows());
    let found = found.note(format!("on a list of all {} members and {} {whose}", near.len(), far.len()));
    Some(found.told_apart(near, far).since(began))
}
