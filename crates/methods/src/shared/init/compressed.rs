//! HALS on compressed data (Erichson, Mendible, Wihlborn, Kutz 2018), as a start. The data is replaced by its low-rank
//! approximation M ≈ L Rᵀ. A product M V = L (Rᵀ V) then costs 2 (m + n) l k flops and sends l k words, independently of
//! the number of stored entries.
//!
//! Each iteration is one of accelerated HALS: two sweeps for each product, and extrapolation with restart.

use ndarray::Array2;

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::{Block, Order, Real, gram};

use super::low_rank::LowRank;
use crate::shared::extrapolation::{Momentum, WORDS, extrapolate, inner, split_into_two_words};

pub const SMALL: MessageTag = MessageTag::new("start: compressed products", Payload::SketchedFactor);

/// Sweeps of a factor for each product.
pub const SWEEPS: usize = 2;

/// One side of the approximation, and its factor, on this rank.
struct Side<T: Real> {
    /// Own rows of L or R (× l).
    basis: Block<T>,
    /// Own rows of the factor (× k): the extrapolated point, and the result of the last update.
    factor: Array2<T>,
    new: Array2<T>,
    rhs: Array2<T>,
}

impl<T: Real> Side<T> {
    fn new(basis: Array2<T>, factor: Array2<T>) -> Self {
        let rhs = Order::ColumnMajor.zeros(factor.nrows(), factor.ncols());
        Side { basis: Block::Dense(basis.into()), new: factor.clone(), factor, rhs }
    }
}

/// Buffer for the sums over ranks that an update needs from one side: FᵀF, and the product of the side's basis with its
/// factor F.
struct Sums<T: Real> {
    gram: Array2<T>,
    product: Array2<T>,
    message: Vec<T>,
}

impl<T: Real> Sums<T> {
    /// Sums both matrices of `side`, and some words.
    fn sum(&mut self, comm: &Communicator, side: &Side<T>, words: [T; WORDS]) -> f64 {
        let Sums { gram: g, product, message } = self;
        comm.work("start: compressed", || {
            gram(&side.factor.view(), &mut g.view_mut());
            side.basis.tmul(&side.factor.view(), &mut product.view_mut());
        });
        message.clear();
        message.extend(g.iter().chain(product.iter()));
        message.extend(words);
        comm.sum(SMALL, message);
        let (squares, rest) = message.split_at(g.len());
        g.iter_mut().zip(squares).for_each(|(x, &sum)| *x = sum);
        product.iter_mut().zip(rest).for_each(|(x, &sum)| *x = sum);
        rest[product.len()].as_f64() + rest[product.len() + 1].as_f64()
    }
}

fn update<T: Real>(comm: &Communicator, side: &mut Side<T>, sums: &Sums<T>) {
    let Side { basis, factor, rhs, .. } = side;
    comm.work("start: compressed", || {
        basis.mul(&sums.product.view(), &mut rhs.view_mut());
        let (r, g) = (rhs.view(), sums.gram.view());
        sweep(&mut factor.view_mut(), &r, &g, Sweep { mu: T::zero(), passes: SWEEPS, penalty: Penalty::NONE });
    });
}

/// Improves this rank's rows of U and V (column-major) by `iterations` iterations. Collective.
pub fn iterate<T: Real>(
    comm: &Communicator,
    low_rank: LowRank<T>,
    [u, v]: [Array2<T>; 2],
    norm2: f64,
    iterations: usize,
) -> [Array2<T>; 2] {
    let k = u.ncols();
    let [left, right] = low_rank.sides;
    let l = left.ncols();
    let mut u = Side::new(left, u);
    let mut v = Side::new(right, v);
    let mut momentum = Momentum::default();
    let zeros = |rows| Order::ColumnMajor.zeros(rows, k);
    let mut of_v = Sums { gram: zeros(k), product: zeros(l), message: Vec::new() };
    let mut of_u = Sums { gram: zeros(k), product: zeros(l), message: Vec::new() };
    for _ in 0..iterations {
        of_v.sum(comm, &v, [T::zero(); WORDS]);
        update(comm, &mut u, &of_v);
        let objective = comm.work("start: compressed", || {
            gram(&u.factor.view(), &mut of_u.gram.view_mut());
            let cross = inner(&u.factor.view(), &u.rhs.view());
            let objective = inner(&of_u.gram.view(), &of_v.gram.view()) - 2.0 * cross;
            extrapolate(&mut u.factor, &mut u.new, momentum.beta());
            objective
        });
        let objective = norm2 + of_u.sum(comm, &u, split_into_two_words(objective, norm2));
        if !momentum.accept(objective) {
            u.factor.assign(&u.new);
            v.factor.assign(&v.new);
            of_u.sum(comm, &u, [T::zero(); WORDS]);
        }
        update(comm, &mut v, &of_u);
        comm.work("start: compressed", || extrapolate(&mut v.factor, &mut v.new, momentum.beta()));
    }
    // The extrapolated U, and the V that was fitted to it.
    [u.factor, v.new]
}
