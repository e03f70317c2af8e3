//! Methods for rows: the rows of hidden parties with few of them, from the factors of all rounds.

use std::time::Instant;

use ndarray::{Array2, Axis};

use fednmf_audit::row_spans;
use fednmf_audit::space::Space;
use fednmf_base::error::Result;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;

/// Most hidden rows whose span is sought.
const MOST: usize = 10;
/// From this cosine on a row is recovered.
const RECOVERED: f64 = 0.99;

/// Seeks the span of the hidden rows, or components that equal them.
///
/// # Errors
/// When the views cannot be read.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let count = pooled.hidden().len();
    if pooled.by_columns || pooled.is_all() || count == 0 || count > MOST {
        return Ok(Vec::new());
    }
    let (began, mut rounds) = (Instant::now(), Vec::new());
    for (iteration, part) in pooled.hidden_parts()? {
        if let Some(before) = pooled.known("V", None, iteration)? {
            rounds.push((before, part));
        }
    }
    // One round has nothing in common with another.
    if rounds.len() < 2 {
        return Ok(Vec::new());
    }
    let assumed = format!("the parts of the hidden parties in {} rounds", rounds.len());
    let found = Finding::new("rows of few", assumed);
    let Some(rows) = inputs.ground_truth.hidden(pooled) else {
        return Ok(vec![found.note("needs --truth, the matrix of the run")]);
    };
    let own = pooled.own.iter().map(|&party| pooled.own_data(party)).collect::<Result<Vec<_>>>()?;
    let total: usize = own.iter().map(Array2::nrows).sum();
    let mean = own.iter().map(|data| data.sum_axis(Axis(0))).reduce(|a, b| a + b).map(|sum| sum / total.max(1) as f64);
    let Some(mean) = mean else { return Ok(vec![found.note("no rows of the own parties")]) };
    let average = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let mut found = found;
    if pooled.method.description().is_boolean() {
        let parts: Vec<Array2<f64>> = rounds.into_iter().map(|(_, part)| part).collect();
        let shares = row_spans::agreements(&rows.view(), &parts);
        let guess = mean.mapv(|x| f64::from(u8::from(x >= 0.5))).insert_axis(Axis(1));
        found.recovered = Some((shares.iter().filter(|&&share| share == 1.0).count(), count));
        found.error = Some(1.0 - average(&shares));
        found.baseline = Some(1.0 - average(&row_spans::agreements(&rows.view(), &[guess])));
        return Ok(vec![
            found.note("share of entries in which no component agrees; a guess's: the majority").since(began),
        ]);
    }
    let Some(space) = row_spans::common(&rounds, count) else { return Ok(vec![found.note("too few rounds")]) };
    let cosines = row_spans::cosines(&rows.view(), &space);
    let norm = mean.dot(&mean).sqrt().max(f64::MIN_POSITIVE);
    let guess = Space { basis: (mean / norm).insert_axis(Axis(1)) };
    found.recovered = Some((cosines.iter().filter(|&&cosine| cosine > RECOVERED).count(), count));
    found.cosine = Some(average(&cosines));
    found.error = Some(average(&space.distances(&rows.view())));
    found.baseline = Some(average(&guess.distances(&rows.view())));
    let mean_cosine = average(&row_spans::cosines(&rows.view(), &guess));
    Ok(vec![
        found.note(format!("up to a factor, or their span; the mean row has cosine {mean_cosine:.3}")).since(began),
    ])
}
