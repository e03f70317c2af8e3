//! Methods on secret shares: the messages of the computation, read as the sums that other methods open. Words that were not random
//! would be such sums, or parts of them.

use std::collections::BTreeMap;

use ndarray::{Array2, Axis, s};

use fednmf_base::error::Result;
use fednmf_comm::Knowledge;
use fednmf_methods::federated::mpc::{Format, SHARES, to_unit_norm};
use fednmf_privacy::sharing::COMPUTING;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::PooledView;
use super::{secure_hals, spaces};

/// The most standard deviations of a bit that are taken for chance: of a million bits, one is beyond 5.
const CHANCE: f64 = 6.5;

/// A place in the messages of an iteration at which a sum would stand: the number of messages after it, and of the sums in its own
/// message. Counted from the end, because the first iteration may have fewer messages.
type Place = (usize, usize);

/// The words at each place, with the iteration.
type Words = BTreeMap<Place, Vec<(usize, Vec<u64>)>>;

/// The words of each message in parts that are as long as a sum, or whole where they are shorter.
fn received(pooled: &PooledView) -> Result<Words> {
    let mut found = Words::new();
    for view in &pooled.views {
        let of_iteration = |at: &usize| view.records[*at].iteration;
        let all: Vec<usize> = view.of_kind(Knowledge::Received, SHARES.kind).collect();
        for messages in all.chunk_by(|a, b| of_iteration(a) == of_iteration(b)) {
            for (after, at) in messages.iter().rev().enumerate() {
                let words = view.words(*at)?;
                let parts = (words.len() / (pooled.k * pooled.length())).max(1);
                for (part, words) in words.chunks_exact((words.len() / parts).max(1)).take(parts).enumerate() {
                    found.entry((after, part)).or_default().push((of_iteration(at), words.to_vec()));
                }
            }
        }
    }
    Ok(found)
}

/// The largest deviation of a bit from being 1 in half of the words, in standard deviations.
fn deviation<'a>(words: impl Iterator<Item = &'a u64>) -> f64 {
    let (mut ones, mut count) = ([0u64; 64], 0u64);
    for word in words {
        count += 1;
        ones.iter_mut().enumerate().for_each(|(bit, ones)| *ones += (word >> bit) & 1);
    }
    let count = count as f64;
    ones.iter().map(|ones| (*ones as f64 - count / 2.0).abs() / (count.sqrt() / 2.0)).fold(0.0, f64::max)
}

/// The words as products of M with columns of the private factor (length × at most k), before they are divided by a power of two.
fn as_sum(pooled: &PooledView, words: &[u64]) -> Option<Array2<f64>> {
    let (length, k) = (pooled.length(), pooled.k);
    let format = Format::for_components(k);
    let sigma = pooled.statistic("norm2").sqrt();
    let [_, to_private] = to_unit_norm(sigma, (pooled.m + pooled.n - length, length));
    let unit = sigma / to_private / 2f64.powi(format.bits as i32);
    let columns = k.min(words.len() / length);
    let components = Array2::from_shape_vec((columns, length), words[..columns * length].to_vec()).ok()?;
    Some(components.reversed_axes().mapv(|word| unit * format.decode(word)))
}

/// How random the received words are, and all attacks on those that are the least so.
///
/// # Errors
/// When the views cannot be read.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let own = (0..COMPUTING).filter(|computing| pooled.own.contains(&(computing % pooled.cuts.len())));
    if own.count() > 1 {
        let both = Finding::new("shares", "computing parties put their shares together");
        return Ok(vec![
            both.note("two of them hold all three components of each number, and so see all data: not computed"),
        ]);
    }
    let words = received(pooled)?;
    let deviations: BTreeMap<Place, f64> =
        words.iter().map(|(place, all)| (*place, deviation(all.iter().flat_map(|(_, words)| words)))).collect();
    let Some(largest) = deviations.values().copied().reduce(f64::max) else {
        return Ok(vec![
            Finding::new("shares", "").note("no computing party is on these ranks: they received no shares"),
        ]);
    };
    let count: usize = words.values().flatten().map(|(_, words)| words.len()).sum();
    let verdict = if largest > CHANCE { "not random" } else { "chance" };
    let random = Finding::new("shares", "words that depend on the data are not uniformly random").of("words");
    let mut findings = vec![
        random.note(format!("{count} words; a bit deviates by up to {largest:.1} standard deviations: {verdict}")),
    ];
    // The other half of an iteration is missing in the first one, and its products are of single columns.
    let start = words.values().map(|all| all[0].0).min();
    let is_sum = |place: &Place| {
        words[place]
            .first()
            .is_some_and(|(iteration, words)| Some(*iteration) == start && words.len() >= pooled.length())
    };
    let places = deviations.iter().filter(|(place, _)| is_sum(place));
    let Some((place, _)) = places.max_by(|a, b| a.1.total_cmp(b.1)) else { return Ok(findings) };
    let sums = words[place].iter().filter_map(|(iteration, words)| Some((*iteration, as_sum(pooled, words)?)));
    let mut sums: Vec<(usize, Array2<f64>)> = sums.collect();
    if pooled.by_columns
        && let Some((0, first)) = sums.first_mut()
    {
        // The private factor starts as everybody knows.
        let start = secure_hals::start::<f64>(pooled);
        let start = start.slice(s![.., ..first.ncols()]);
        let own = |party: usize, data: &Array2<f64>| {
            let columns: Vec<usize> = pooled.cuts[party].clone().collect();
            Ok(Some(data.dot(&start.select(Axis(0), &columns))))
        };
        *first = pooled.without_own(std::mem::take(first), own)?;
        let (equations, truth) = (start.select(Axis(0), &pooled.hidden()), inputs.ground_truth.hidden(pooled));
        let assumed = "V starts as everybody knows; the first sum";
        let found = secure_hals::on_equations(&equations.t(), &first.t(), pooled, truth.as_ref(), assumed);
        findings.extend(found);
    }
    let sums: Vec<Array2<f64>> = sums.into_iter().map(|(_, sum)| sum).collect();
    let on_sums = if pooled.by_columns { spaces::of_columns } else { spaces::of_rows };
    let found = on_sums(pooled, &sums, inputs)?;
    findings.extend(found);
    for finding in findings.iter_mut().skip(1) {
        finding.assumed = format!("received shares are sums; {}", finding.assumed);
    }
    Ok(findings)
}
