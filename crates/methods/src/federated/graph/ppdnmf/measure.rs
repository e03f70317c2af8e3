//! Evaluation of the agents' factors. It is not part of the method: it sums over all parties, including the agents' X,
//! and `--eval-every 0` disables it.

use ndarray::Array2;

use fednmf_base::error::Result;
use fednmf_comm::party_sum::{Joint, PartySum};
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_linalg::nls::Pivoting;
use fednmf_linalg::{Real, gram};
use fednmf_privacy::DeclaredMut;

use crate::federated::graph::ppdnmf::local::Agent;
use crate::metrics::not_negative;

pub const SUM_X: MessageTag = MessageTag::of_evaluation("evaluation and output: sum of X", Payload::SharedFactor);
pub const RESIDUALS: MessageTag = MessageTag::of_evaluation("evaluation: squared residual and NMSE", Payload::Scalar);
pub const DISAGREEMENT: MessageTag = MessageTag::of_evaluation("evaluation: largest disagreement", Payload::Scalar);

/// The mean of all agents' X (m × k), on every rank; `largest` is the expected size of its largest entry. Collective.
///
/// # Errors
/// If an entry is not finite, or too large for a masked sum.
pub fn mean_x<T: Real>(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    parties: Parties,
    agents: &[Agent<T>],
    (m, k, largest): (usize, usize, f64),
) -> Result<Array2<T>> {
    // Row-major for any order of the blocks, because ranks without a party have no block.
    let shares: Vec<Vec<T>> = agents.iter().map(|agent| agent.x.x.iter().copied().collect()).collect();
    let mut sum = vec![T::zero(); m * k];
    party_sum.sum(comm, SUM_X, largest, shares.iter().map(Vec::as_slice), &mut sum)?;
    let scale = T::from_f64(1.0 / parties.count as f64);
    let mean = Array2::from_shape_vec((m, k), sum.into_iter().map(|x| x * scale).collect()).expect("m k numbers");
    let Some(agent) = agents.first() else { return Ok(mean) };
    let mut ordered = agent.block.order().zeros(m, k);
    ordered.assign(&mean);
    Ok(ordered)
}

/// ‖Z_i − X_i Y_i‖/‖Z_i‖ of one agent with this X; 0 where both are 0.
pub fn own_error<T: Real>(agent: &Agent<T>, x: &Array2<T>) -> f64 {
    let residual = not_negative(agent.block.residual2(&x.view(), &agent.y.x.view()));
    if agent.norm2 > 0.0 { (residual / agent.norm2).sqrt() } else { 0.0 }
}

/// The Y ≥ 0 of one agent that fits its data best for this X, transposed (its columns × k): its rows of V.
pub fn refitted<T: Real>(agent: &Agent<T>, x: &Array2<T>, solver: &mut Pivoting) -> Array2<T> {
    let k = x.ncols();
    let order = agent.block.order();
    let mut h = Array2::zeros((k, k));
    gram(&x.view(), &mut h.view_mut());
    let mut right = order.zeros(agent.y.x.nrows(), k);
    agent.block.tmul(&x.view(), &mut right.view_mut());
    let mut y = agent.y.x.clone();
    solver.solve(&mut y.view_mut(), &right.view(), &h.view());
    y
}

/// The sums over parties of (squared residual, NMSE), one pair from each: relative error and mean NMSE. Collective.
///
/// # Errors
/// If a value is not finite, or too large for a masked sum.
pub fn errors(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    parties: Parties,
    pairs: &[[f64; 2]],
    norm2: f64,
) -> Result<(f64, f64)> {
    let mut sums = [0.0; 2];
    let [residual, nmse] = &mut sums;
    party_sum.sum_together(
        comm,
        &mut [
            Joint { tag: RESIDUALS, expected: norm2, term: &|i| &pairs[i][..1], out: std::slice::from_mut(residual) },
            Joint { tag: RESIDUALS, expected: 1.0, term: &|i| &pairs[i][1..], out: std::slice::from_mut(nmse) },
        ],
    )?;
    let relative = match (norm2 > 0.0, sums[0] > 0.0) {
        (true, _) => (sums[0] / norm2).sqrt(),
        (false, true) => f64::INFINITY,
        (false, false) => 0.0,
    };
    Ok((relative, sums[1] / parties.count as f64))
}

/// max |X_i − X̄| / max X, over all agents. Collective.
pub fn disagreement<T: Real>(comm: &PartyCommunicator, agents: &[Agent<T>], mean: &Array2<T>) -> f64 {
    let mut largest = [0.0, 0.0];
    for agent in agents {
        for (x, mean) in agent.x.x.iter().zip(mean) {
            largest[0] = f64::max(largest[0], (*x - *mean).as_f64().abs());
            largest[1] = f64::max(largest[1], x.as_f64());
        }
    }
    comm.max(DISAGREEMENT, agents.len(), DeclaredMut(&mut largest));
    if largest[1] > 0.0 { largest[0] / largest[1] } else { 0.0 }
}
