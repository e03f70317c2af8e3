//! NNDSVD (Boutsidis and Gallopoulos 2008): a start from the leading singular vectors, computed from a low-rank
//! approximation.
//!
//! Each pair of singular vectors has a pair of positive parts and a pair of negative parts. The pair (x, y) with the larger
//! ν = ‖x‖‖y‖ is kept: U_j = √(σ_j ν) x/‖x‖, V_j = √(σ_j ν) y/‖y‖.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2, s};

use fednmf_base::error::SharedResult;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::{Order, Real};

use super::low_rank::{self, LowRank, wide};
use super::uniform;

/// Entries below this share of the root of the largest singular value are rounding errors of the singular vectors. They count as
/// zeros, which multiplicative updates would not leave.
const ROUNDING: f64 = 1e-7;

pub const NORMS: MessageTag = MessageTag::new("start: norms of both parts", Payload::Scalar);

/// The given rows of U (× k) and V (× k), which are this rank's. Components in excess of the data's rank are random with the mean
/// `fill`: no step changes a pair of zero columns, and of equal columns the second would be fitted to rounding errors. Both factors
/// have the same random numbers, so that the transpose has the same start. Collective.
///
/// # Errors
/// On all ranks, if the small eigenproblem has non-finite entries.
pub fn factors<T: Real>(
    comm: &Communicator,
    low_rank: &LowRank<T>,
    k: usize,
    fill: f64,
    (seed, rows): (u64, [&Range<usize>; 2]),
    order: Order,
) -> SharedResult<[Array2<T>; 2]> {
    // With orthonormal R: L Rᵀ = (L W S⁻¹) S (R W)ᵀ with LᵀL = W S² Wᵀ; likewise with orthonormal L.
    let short = low_rank.orthonormal;
    let long = wide(&low_rank.sides[1 - short]);
    let (squares, basis) = low_rank::eigen(comm, &long)?;
    let basis = basis.slice(s![.., ..k]).to_owned();
    let singular: Vec<f64> = squares.iter().map(|s| s.max(0.0).sqrt()).collect();
    let short_vectors = low_rank::product(&wide(&low_rank.sides[short]), &basis);
    let mut scaled = basis;
    for (mut column, &s) in scaled.columns_mut().into_iter().zip(&singular) {
        column *= if s > 0.0 { 1.0 / s } else { 0.0 };
    }
    let long_vectors = low_rank::product(&long, &scaled);
    let vectors = if short == 1 { [long_vectors, short_vectors] } else { [short_vectors, long_vectors] };
    Ok(parts(comm, &vectors, &singular, |place, out| uniform::u(seed, rows[place], 2.0 * fill, out), order))
}

/// The selected nonnegative parts, scaled. `random` starts the rows of one factor.
fn parts<T: Real>(
    comm: &Communicator,
    vectors: &[Array2<f64>; 2],
    singular: &[f64],
    random: impl Fn(usize, ArrayViewMut2<'_, T>),
    order: Order,
) -> [Array2<T>; 2] {
    let k = vectors[0].ncols();
    // Squared norms of the positive parts of both sides, then of the negative parts.
    let mut norms = vec![0.0; 4 * k];
    let (positive, negative) = norms.split_at_mut(2 * k);
    for ((side, positive), negative) in vectors.iter().zip(positive.chunks_mut(k)).zip(negative.chunks_mut(k)) {
        for row in side.rows() {
            for ((&x, positive), negative) in row.iter().zip(&mut *positive).zip(&mut *negative) {
                let (above, below) = (x.max(0.0), x.min(0.0));
                *positive += above * above;
                *negative += below * below;
            }
        }
    }
    comm.sum(NORMS, &mut norms);
    let least = ROUNDING * singular.first().map_or(0.0, |largest| largest.sqrt());
    let of = |j: usize| part([0, 1, 2, 3].map(|i| norms[i * k + j]), singular.get(j).copied(), least);
    let scales: Vec<Option<[f64; 2]>> = (0..k).map(of).collect();
    [0, 1].map(|place| {
        let side = &vectors[place];
        let mut out = order.zeros(side.nrows(), k);
        if scales.contains(&None) {
            random(place, out.view_mut());
        }
        for (mut out, row) in out.rows_mut().into_iter().zip(side.rows()) {
            for ((out, &x), scales) in out.iter_mut().zip(row).zip(&scales) {
                if let Some(scales) = scales {
                    let x = scales[place] * x;
                    *out = T::from_f64(if x > least { x } else { 0.0 });
                }
            }
        }
        out
    })
}

/// By what the left and the right vector are multiplied, so that the part to keep is positive, from the squared norms of the positive
/// parts (left and right) and of the negative ones; `None` if both parts are at most `least`.
fn part(squares: [f64; 4], singular: Option<f64>, least: f64) -> Option<[f64; 2]> {
    let [xp, yp, xn, yn] = squares.map(f64::sqrt);
    let (x, y, sign) = if xp * yp >= xn * yn { (xp, yp, 1.0) } else { (xn, yn, -1.0) };
    let weight = (singular.unwrap_or(0.0) * x * y).sqrt();
    (weight > least).then(|| [x, y].map(|norm| sign * weight / norm))
}
