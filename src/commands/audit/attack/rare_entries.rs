//! Entries that a few hidden rows or columns have and no own one has: whether anyone has them, and which row or column it is.

use std::time::Instant;

use ndarray::Axis;

use fednmf_audit::rare;
use fednmf_audit::rare::{FEW, Rare};
use fednmf_base::error::Result;

use super::finding::Finding;
use super::inputs::AttackInputs;
use super::pooled_view::{Numerators, PooledView};
use super::spaces::joined;

/// Looks for rare entries in the hidden parties' part of the sums.
///
/// # Errors
/// When the views cannot be read.
pub fn attacks(pooled: &PooledView, inputs: &AttackInputs<'_>) -> Result<Vec<Finding>> {
    let began = Instant::now();
    if pooled.is_all() {
        return Ok(Vec::new());
    }
    let Some(hidden) = inputs.ground_truth.hidden(pooled) else { return Ok(Vec::new()) };
    let parts: Vec<_> = match pooled.numerators()? {
        // What the update makes of V is nearly a factor of the hidden rows.
        Some(Numerators { v, sum, .. }) => vec![sum * v],
        None => pooled.hidden_parts()?.into_iter().map(|(_, part)| part).collect(),
    };
    let (Some(sums), Some(last)) = (joined(&parts, Axis(1)), parts.last()) else { return Ok(Vec::new()) };
    let own = pooled.own.iter().map(|&party| pooled.own_data(party)).collect::<Result<Vec<_>>>()?;
    let (hidden, own) = match pooled.by_columns {
        true => (hidden.reversed_axes(), joined(&own, Axis(1)).map(|own| own.reversed_axes())),
        false => (hidden, joined(&own, Axis(0))),
    };
    let Some(own) = own else { return Ok(Vec::new()) };
    let rare = Rare::of(&hidden.view(), &own.view());
    if rare.carried.is_empty() {
        return Ok(Vec::new());
    }
    let assumed = format!("an entry that no own row or column has; {} sums", parts.len());
    let mut presence = Finding::new("rare entries", assumed.clone()).of("entries");
    presence.auc = rare.presence(&last.view());
    presence.baseline = Some(0.5);
    let (carried, absent) = (rare.carried.len(), rare.absent.len());
    let none = if absent == 0 { ": nothing to tell them from" } else { "" };
    let presence = presence.note(format!("{carried} that 1 to {FEW} hidden ones have, {absent} that none has{none}"));
    let presence = presence.by_chance(carried, absent).since(began);
    let began = Instant::now();
    let mean = own.mean_axis(Axis(0)).unwrap_or_default();
    let mut nearer = 0;
    let cosines = rare.carried.iter().map(|&(place, carrier)| {
        let whole = hidden.row(carrier).to_owned();
        let found = rare::cosine(&rare::carrier(&sums.view(), place), &whole, place);
        let guess = rare::cosine(&mean, &whole, place);
        nearer += usize::from(found > guess);
        (found, guess)
    });
    let (found, guess) = cosines.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
    let mut carrier = Finding::new("carrier of a rare entry", assumed).of("nearer than the mean");
    carrier.recovered = Some((nearer, carried));
    carrier.cosine = Some(found / carried as f64);
    carrier.baseline = Some(guess / carried as f64);
    let carrier =
        carrier.note("the other entries of the one that has it; the guess is the mean of the own ones").since(began);
    Ok(vec![presence, carrier])
}
