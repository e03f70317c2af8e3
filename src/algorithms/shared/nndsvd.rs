//! NNDSVD (Boutsidis and Gallopoulos 2008): a start from the leading singular vectors, which are those of a low-rank
//! approximation.
//!
//! Of each pair of singular vectors the parts with the larger product of norms are kept, the positive or the negative
//! ones: U_j = √(σ_j ν) x/‖x‖, V_j = √(σ_j ν) y/‖y‖ with ν = ‖x‖‖y‖.

use ndarray::{Array2, ArrayView2, s};

use super::low_rank::{self, LowRank, wide};
use crate::comm::{Communicator, MessageTag, Payload};
use crate::error::Result;
use crate::linalg::Real;

pub const NORMS: MessageTag = MessageTag::new("start: norms of both parts", Payload::Scalar);

/// This rank's rows of U (× k) and of V (× k), without zeros of both: components beyond the data's rank are `fill`
/// throughout, since no step leaves a pair of zeros. Collective.
///
/// # Errors
/// When the small eigenproblem is no numbers.
pub fn factors<T: Real>(comm: &Communicator, low_rank: &LowRank<T>, k: usize, fill: f64) -> Result<[Array2<f64>; 2]> {
    // With orthonormal R: L Rᵀ = (L W S⁻¹) S (R W)ᵀ with LᵀL = W S² Wᵀ; likewise with orthonormal L.
    let short = low_rank.orthonormal;
    let long = wide(&low_rank.sides[1 - short]);
    let (squares, basis) = low_rank::eigen(comm, &long)?;
    let basis = basis.slice(s![.., ..k]).to_owned();
    let singular: Vec<f64> = squares.iter().map(|s| s.max(0.0).sqrt()).collect();
    let mut long = low_rank::product(&long, &basis);
    for (mut column, &s) in long.columns_mut().into_iter().zip(&singular) {
        column *= if s > 0.0 { 1.0 / s } else { 0.0 };
    }
    let short_vectors = low_rank::product(&wide(&low_rank.sides[short]), &basis);
    let [left, right] = if short == 1 { [&long, &short_vectors] } else { [&short_vectors, &long] };
    let (u, v) = parts(comm, left.view(), right.view(), &singular, fill);
    Ok([u, v])
}

/// The nonnegative parts that are kept, scaled.
fn parts(
    comm: &Communicator,
    left: ArrayView2<'_, f64>,
    right: ArrayView2<'_, f64>,
    singular: &[f64],
    fill: f64,
) -> (Array2<f64>, Array2<f64>) {
    let k = left.ncols();
    let positive = |x: f64| x.max(0.0);
    let negative = |x: f64| (-x).max(0.0);
    let mut norms = vec![0.0; 4 * k];
    for j in 0..k {
        for (place, (side, part)) in
            [(left, positive as fn(f64) -> f64), (right, positive), (left, negative), (right, negative)]
                .into_iter()
                .enumerate()
        {
            norms[4 * j + place] = side.column(j).iter().map(|&x| part(x) * part(x)).sum();
        }
    }
    comm.sum(NORMS, &mut norms);
    norms.iter_mut().for_each(|x| *x = x.sqrt());
    let (mut u, mut v) = (Array2::zeros(left.dim()), Array2::zeros(right.dim()));
    for j in 0..k {
        let [xp, yp, xn, yn] = std::array::from_fn(|place| norms[4 * j + place]);
        let (x, y, part) = if xp * yp >= xn * yn {
            (xp, yp, positive as fn(f64) -> f64)
        } else {
            (xn, yn, negative as fn(f64) -> f64)
        };
        let weight = (singular.get(j).copied().unwrap_or(0.0) * x * y).sqrt();
        if weight <= 0.0 {
            u.column_mut(j).fill(fill);
            v.column_mut(j).fill(fill);
            continue;
        }
        for (out, side, norm) in [(&mut u, left, x), (&mut v, right, y)] {
            let scale = weight / norm;
            out.column_mut(j).zip_mut_with(&side.column(j), |out, &x| *out = scale * part(x));
        }
    }
    (u, v)
}
