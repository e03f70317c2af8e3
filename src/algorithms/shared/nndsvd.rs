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
    let inverse: Vec<f64> = singular.iter().map(|&s| if s > 0.0 { 1.0 / s } else { 0.0 }).collect();
    for mut row in long.rows_mut() {
        row.iter_mut().zip(&inverse).for_each(|(x, &inverse)| *x *= inverse);
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
    // Of the positive parts of both sides, then of the negative ones.
    let mut norms = vec![[0.0; 4]; k];
    for (place, side) in [left, right].into_iter().enumerate() {
        for row in side.rows() {
            for (norms, &x) in norms.iter_mut().zip(row) {
                norms[if x > 0.0 { place } else { place + 2 }] += x * x;
            }
        }
    }
    comm.sum(NORMS, norms.as_flattened_mut());
    let kept: Vec<Kept> = (0..).zip(&norms).map(|(j, norms)| Kept::of(norms, singular.get(j).copied())).collect();
    let nonnegative = |side: ArrayView2<'_, f64>, place: usize| {
        let mut out = Array2::zeros(side.dim());
        for (mut out, row) in out.rows_mut().into_iter().zip(side.rows()) {
            for ((out, &x), kept) in out.iter_mut().zip(row).zip(&kept) {
                *out = match kept {
                    Kept::Nothing => fill,
                    Kept::Part(scales) => (scales[place] * x).max(0.0),
                };
            }
        }
        out
    };
    (nonnegative(left, 0), nonnegative(right, 1))
}

/// What is kept of a pair of singular vectors.
enum Kept {
    Nothing,
    /// The parts that are positive after multiplication by these, of the left and of the right vector.
    Part([f64; 2]),
}

impl Kept {
    /// By the squared norms of the positive parts, left and right, and of the negative ones.
    fn of(squares: &[f64; 4], singular: Option<f64>) -> Kept {
        let [xp, yp, xn, yn] = squares.map(f64::sqrt);
        let (x, y, sign) = if xp * yp >= xn * yn { (xp, yp, 1.0) } else { (xn, yn, -1.0) };
        let weight = (singular.unwrap_or(0.0) * x * y).sqrt();
        if weight > 0.0 { Kept::Part([x, y].map(|norm| sign * weight / norm)) } else { Kept::Nothing }
    }
}
