//! `secure-hals --dp`: the sums of `secure-hals` under differential privacy for single columns.
//!
//! A row v of V starts at 0, so it is a function of its own column m and of the previous U's, which are public. The sums
//! for U's update therefore have one term per column, and noise that hides one term hides one column. The parties release
//! (R, G) = (Σ r vᵀ, Σ v vᵀ) with the residual r = m − U v instead of (Σ m vᵀ, Σ v vᵀ); everybody computes
//! Σ m vᵀ = R + U G. Residuals are small, so their terms need half as much noise. With the right-hand side R + U G and the
//! Gram matrix G, the minimiser is U + R G⁻¹, so the noise of G has less and less effect as R decreases.
//!
//! **Sensitivity.** Each column counts with a weight c² such that c‖m‖ ≤ C and c²(‖r‖² + ‖v‖²) ≤ C², with C the norm of
//! `--clip`. Let r and v stand for c r and c v. The release is (R, G/√2), whose Euclidean norm is that of R and, from the
//! triangle of G, its diagonal by 1/√2 and the other entries as they are. For two columns with x = ‖v‖², x' = ‖v'‖² and
//! s = v·v', their terms have the squared distance
//!
//! ```text
//! ‖r‖²x + x²/2 + ‖r'‖²x' + x'²/2 − 2 (r·r') s − s²
//!   ≤ (C² − x) x + x²/2 + (C² − x') x' + x'²/2 + 2 a |s| − s²,   a² = (C² − x)(C² − x'),
//!   ≤ C² (x + x') − (x² + x'²)/2 + a²  =  C⁴ − (x − x')²/2,
//! ```
//!
//! since 2 a |s| − s² ≤ a². Replacing one column by any other moves the release by at most C². Two columns that are
//! multiples of different components, U v and U v' with v·v' = 0, attain it. 1/√2 is the largest factor of G with which
//! R has the same noise as without G.
//!
//! Nothing is assumed about how v was found. For the exact v ≥ 0 and U ≥ 0 with columns of norm 1, ‖v‖² ≤ ‖U v‖² and
//! ‖r‖² + ‖U v‖² = ‖m‖², so the second condition follows from the first: c is 1 for columns of norm at most C.
//!
//! The terms of a party are summed in floating point, where a column also changes the rounding of the others;
//! [`rounding`] bounds that, and is part of the sensitivity. Its bound assumes that nothing overflows and that what
//! underflows is negligible, so a column counts only if all its numbers have a magnitude for which this holds
//! ([`magnitudes`]); the weight of any other is 0, which satisfies both conditions. In single precision the bound exceeds
//! C² from about a thousand columns on, so the program refuses it.

use std::ops::RangeInclusive;

use ndarray::{Array2, ArrayView2};

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::party_sum::{PartySum, masked, show_term};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Piece, SavedState, State};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Block, Cholesky, Order, Real, gram};
use fednmf_privacy::{Bound, ColumnBound, NoisePlan, Private, Releases};

use super::{PRODUCT, Party, PublicInfo, Refitted, hosted_parties, pieces, relative_error, restore};
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected, Messages};
use crate::shared::init;
use crate::shared::least_squares::LeastSquaresUpdate;
use crate::shared::missing::PartyMissing;
use crate::shared::secure_sum::{SecureSumParams, party_sum};
use crate::{Algorithm, Measures, Problem};

/// R and the triangle of G, of all parties.
pub const RELEASE: MessageTag = MessageTag::new("sums of r v' and v v'", Payload::Product);

/// A party's data and its contribution to a release.
struct NoisedParty<T: Real> {
    party: Party<T>,
    /// ‖m‖² of every column.
    norms2: Vec<f64>,
    /// The party's term: R in the memory order of U, then the triangle of G/√2 by rows.
    message: Vec<T>,
    /// c v, then c² v, of every column.
    weighted: Array2<T>,
    /// R_r, m × k.
    product: Array2<T>,
}

/// `secure-hals` with `--dp`.
pub struct NoisedHals<T: Real> {
    comm: PartyCommunicator,
    party_sum: PartySum,
    releases: Releases,
    bound: ColumnBound,
    /// The first hosted party.
    first: usize,
    parties: usize,
    public: PublicInfo,
    update: LeastSquaresUpdate,
    members: Vec<NoisedParty<T>>,
    /// U, with columns of norm 1.
    u: Array2<T>,
    refitted: Refitted<T>,
    iteration: usize,
}

/// Number of entries of a release.
pub fn release_length(m: usize, k: usize) -> usize {
    m * k + k * (k + 1) / 2
}

/// A bound on the contribution of rounding to the sensitivity, relative to it, if a party sums at most `columns` terms. Let
/// u be the unit roundoff. The error of a sum of n products is at most n u times the sum of their magnitudes (Higham,
/// Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). This is n u n C² for Σ m vᵀ and, with √k for the
/// norm of U, √k (n + k) u n C² for U G. The weight of a column follows from ‖m‖², m·Uv and ‖Uv‖², which have errors of at
/// most (m + 2k) u (‖m‖ + √k ‖v‖)². Both neighbouring inputs are rounded.
fn rounding<T: Real>(columns: usize, m: usize, k: usize) -> f64 {
    let unit = T::epsilon().as_f64() / 2.0;
    let (n, m, k) = (columns as f64, m as f64, k as f64);
    unit * (4.0 * k.sqrt() * n * (n + k + 4.0) + 4.0 * (1.0 + k.sqrt()).powi(2) * (m + 2.0 * k))
}

/// The squared norms, squared bounds C² and weights c² with which a column counts. With these c, c v, c² v and their products
/// with the column do not overflow, and what underflows is below the unit roundoff of C² by a factor of 2³⁰ or more.
fn magnitudes<T: Real>() -> RangeInclusive<f64> {
    let power = if T::NAME == f32::NAME { 40 } else { 400 };
    libm::ldexp(1.0, -power)..=libm::ldexp(1.0, power)
}

fn bound(args: &DpParams, columns: usize, rounding: f64) -> ColumnBound {
    let clip = args.clip.given();
    ColumnBound { norm: clip.unwrap_or(1.0), all: clip.is_none(), columns, rounding }
}

fn messages(max_iters: usize, length: usize, bound: ColumnBound) -> Messages {
    Messages {
        max_iters: max_iters.min(dp::COLUMN_RELEASES),
        once: false,
        length,
        natural: Some(Bound::Columns(bound)),
        entry: 1.0,
        boolean: false,
    }
}

/// The noise of a run, as far as it is known before.
///
/// # Errors
/// If the requested noise is impossible.
pub fn noise(args: &DpParams, masked: bool, run: Expected) -> Result<Option<NoisePlan>> {
    let Expected { m, n, k, max_iters, parties } = run;
    let bound = bound(args, n, rounding::<f64>(n.div_ceil(parties), m, k));
    dp::plan(args, masked, messages(max_iters, release_length(m, k), bound), parties)
}

/// Builds the algorithm. `update` computes the rows of V, starting from 0.
///
/// # Errors
/// If the requested noise is impossible.
pub fn build<T: Real>(
    args: &DpParams,
    secure_sum: &SecureSumParams,
    update: LeastSquaresUpdate,
    problem: Problem<'_, T>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, max_iters, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let public = PublicInfo::of(&data, k, None);
    let mut u = public.order.zeros(public.m, k);
    // At scale 1, because the sum of the data is not used.
    init::u(seed, &(0..public.m), 1.0, u.view_mut());
    to_unit_columns(&mut u);
    let largest = data.cuts.cols.iter().map(|cols| cols.len()).max().unwrap_or(0);
    let length = release_length(public.m, k);
    let bound = bound(args, public.n, rounding::<T>(largest, public.m, k));
    let messages = messages(max_iters, length, bound);
    let releases = dp::releases(args, secure_sum.secure_sum, messages, parties, &comm)?;
    let hosted = hosted_parties(data, &public, PartyMissing::None, seed, (&comm, parties))?;
    let member = |mut party: Party<T>| {
        party.v.fill(T::zero());
        NoisedParty {
            norms2: party.block.column_norms2(),
            message: vec![T::zero(); length],
            weighted: public.order.zeros(party.cols.len(), k),
            product: public.order.zeros(public.m, k),
            party,
        }
    };
    Ok(Box::new(NoisedHals {
        members: hosted.into_iter().map(member).collect(),
        party_sum: party_sum(&comm, parties, secure_sum, None)?,
        releases: releases.expect("requested"),
        first: parties.hosted(comm.rank()).start,
        parties: parties.count,
        comm,
        bound,
        public,
        update,
        u,
        refitted: Refitted::default(),
        iteration: 0,
    }))
}

/// Scales each column to norm 1. A zero column, whose component has vanished, becomes constant.
fn to_unit_columns<T: Real>(u: &mut Array2<T>) {
    let m = u.nrows() as f64;
    for mut column in u.columns_mut() {
        let norm = column.iter().map(|x| x.as_f64() * x.as_f64()).sum::<f64>().sqrt();
        if norm > 0.0 && norm.is_finite() {
            column.mapv_inplace(|x| T::from_f64(x.as_f64() / norm));
        } else {
            column.fill(T::from_f64(m.sqrt().recip()));
        }
    }
}

impl<T: Real> NoisedParty<T> {
    /// Computes the party's term (R_r, G_r/√2) for V fitted to U, where `g` is UᵀU. Returns the number of columns longer
    /// than the bound.
    fn term(&mut self, u: &ArrayView2<T>, g: &ArrayView2<T>, bound: ColumnBound) -> u64 {
        let NoisedParty { party, norms2, message, weighted, product } = self;
        let k = u.ncols();
        let weights: Vec<f64> =
            norms2.iter().enumerate().map(|(j, &norm2)| weight(party, j, g, norm2, bound)).collect();
        for ((mut row, v), c2) in weighted.rows_mut().into_iter().zip(party.v.rows()).zip(&weights) {
            // Where a column does not count, its v may be infinite.
            row.zip_mut_with(&v, |x, v| *x = T::from_f64(if *c2 > 0.0 { c2.sqrt() * v.as_f64() } else { 0.0 }));
        }
        let mut own = Array2::zeros((k, k));
        gram(&weighted.view(), &mut own.view_mut());
        for (mut row, c2) in weighted.rows_mut().into_iter().zip(&weights) {
            row.mapv_inplace(|x| T::from_f64(c2.sqrt() * x.as_f64()));
        }
        party.block.mul(&weighted.view(), &mut product.view_mut());
        add_product(product, -1.0, u, &own);
        let (residuals, triangle) = message.split_at_mut(product.len());
        residuals.copy_from_slice(product.entries());
        for (x, (a, b)) in triangle.iter_mut().zip(triangle_of(k)) {
            *x = T::from_f64(own[[a, b]].as_f64() * triangle_weight(a, b));
        }
        let limit = bound.norm * bound.norm;
        norms2.iter().filter(|&&norm2| norm2 > limit).count() as u64
    }
}

/// X ← X + sign · U G in f64, for X and U m × k, and G k × k.
fn add_product<T: Real, G: Real>(x: &mut Array2<T>, sign: f64, u: &ArrayView2<T>, g: &Array2<G>) {
    for (mut row, u) in x.rows_mut().into_iter().zip(u.rows()) {
        for (a, x) in row.iter_mut().enumerate() {
            let product: f64 = u.iter().zip(g.column(a)).map(|(u, g)| u.as_f64() * g.as_f64()).sum();
            *x = T::from_f64(x.as_f64() + sign * product);
        }
    }
}

/// Entries of the triangle of a k × k matrix, by rows.
fn triangle_of(k: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..k).flat_map(move |a| (a..k).map(move |b| (a, b)))
}

/// Weight of an entry of G in the triangle, such that the triangle has the norm of G/√2.
fn triangle_weight(a: usize, b: usize) -> f64 {
    if a == b { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 }
}

/// c² for column j of a party; 0 if the column does not count.
fn weight<T: Real>(party: &Party<T>, j: usize, g: &ArrayView2<T>, norm2: f64, bound: ColumnBound) -> f64 {
    let (v, rhs) = (party.v.row(j), party.rhs.row(j));
    let (mut fit2, mut cross, mut v2) = (0.0, 0.0, 0.0);
    for (a, x) in v.iter().map(|x| x.as_f64()).enumerate() {
        let along: f64 = v.iter().zip(g.row(a)).map(|(v, g)| v.as_f64() * g.as_f64()).sum();
        fit2 += x * along;
        cross += x * rhs[a].as_f64();
        v2 += x * x;
    }
    let residual2 = norm2 - 2.0 * cross + fit2;
    // `max` passes over a NaN.
    if !(residual2 + v2).is_finite() {
        return 0.0;
    }
    let length2 = norm2.max(residual2.max(0.0) + v2);
    let limit2 = bound.norm * bound.norm;
    let scaling = limit2 / length2;
    let c2 = if bound.all { scaling } else { scaling.min(1.0) };
    let counts = [length2, limit2, c2].iter().all(|x| magnitudes::<T>().contains(x));
    if counts { c2 } else { 0.0 }
}

/// The smallest of 0, step, 1.5 step, … that makes G positive definite when it is added to the diagonal. Noise may
/// destroy definiteness.
fn shift(g: &Array2<f64>, step: f64) -> f64 {
    let (k, mut cholesky, mut shift) = (g.nrows(), Cholesky::default(), 0.0);
    while !cholesky.factorise(k, 0.0, |a, b| g[[a, b]] + if a == b { shift } else { 0.0 }) {
        shift = if shift == 0.0 { step } else { 1.5 * shift };
    }
    shift
}

/// R (m × k) and G (k × k) of a release.
pub fn unpacked<T: Real>(release: &[f64], order: Order, (m, k): (usize, usize)) -> (Array2<T>, Array2<f64>) {
    let (residuals, triangle) = release.split_at(m * k);
    let mut g = Array2::<f64>::zeros((k, k));
    for (x, (a, b)) in triangle.iter().zip(triangle_of(k)) {
        g[[a, b]] = x / triangle_weight(a, b);
        g[[b, a]] = g[[a, b]];
    }
    let mut r = order.zeros(m, k);
    r.entries_mut().iter_mut().zip(residuals).for_each(|(r, x)| *r = T::from_f64(*x));
    (r, g)
}

/// U's update for R and G with noise of this standard deviation. A multiple of I is added to G, and the same
/// multiple of U to the right-hand side: a proximal term that limits the step of U where G is as small as its noise.
fn step<T: Real>(update: &mut LeastSquaresUpdate, u: &mut Array2<T>, mut r: Array2<T>, mut g: Array2<f64>, noise: f64) {
    let k = g.nrows();
    let largest = g.diag().iter().fold(0.0, |a: f64, x| a.max(*x));
    // A quarter of the spectral norm of G's noise.
    let step = (0.5 * noise * (k as f64).sqrt()).max(1e-12 * largest).max(1e-100);
    let shift = shift(&g, step) + step;
    g.diag_mut().mapv_inplace(|x| x + shift);
    let g: Array2<T> = g.mapv(T::from_f64);
    add_product(&mut r, 1.0, &u.view(), &g);
    update.apply(u, &r, &g, Penalty::NONE);
    to_unit_columns(u);
}

/// The message for columns (m × n) with the exact V for U, as a party computes it. An adversary who knows the columns can
/// compute and subtract it.
pub fn term_of(columns: &Array2<f64>, u: &Array2<f64>, clip: Option<f64>) -> Vec<f64> {
    let bound = ColumnBound { norm: clip.unwrap_or(1.0), all: clip.is_none(), columns: columns.ncols(), rounding: 0.0 };
    message(columns, u, bound, |v, rhs, g| LeastSquaresUpdate::new(true, 1, u.ncols()).apply(v, rhs, g, Penalty::NONE))
}

/// The message of a party with these columns (m × n), whose V (n × k) `fit` finds from MᵀU and UᵀU.
fn message<T: Real>(
    columns: &Array2<T>,
    u: &Array2<T>,
    bound: ColumnBound,
    fit: impl FnOnce(&mut Array2<T>, &Array2<T>, &Array2<T>),
) -> Vec<T> {
    let ((m, n), k) = (columns.dim(), u.ncols());
    let mut party = Party {
        index: 0,
        cols: 0..n,
        block: Private::new(Block::Dense(columns.as_standard_layout().into_owned().into())),
        missing: None,
        v: Private::new(Order::ColumnMajor.zeros(n, k)),
        rhs: Order::ColumnMajor.zeros(n, k),
    };
    let mut g = Array2::zeros((k, k));
    gram(&u.view(), &mut g.view_mut());
    party.block.tmul(&u.view(), &mut party.rhs.view_mut());
    fit(&mut party.v, &party.rhs, &g);
    let mut member = NoisedParty {
        norms2: party.block.column_norms2(),
        message: vec![T::zero(); release_length(m, k)],
        weighted: Order::ColumnMajor.zeros(n, k),
        product: Order::ColumnMajor.zeros(m, k),
        party,
    };
    member.term(&u.view(), &g.view(), bound);
    member.message
}

impl<T: Real> NoisedHals<T> {
    /// Fits V of all parties to U; returns UᵀU.
    fn fit(&mut self) -> Array2<T> {
        let NoisedHals { comm, public, update, members, u, .. } = self;
        let mut g = Array2::zeros((public.k, public.k));
        comm.work("product", || {
            gram(&u.view(), &mut g.view_mut());
            for NoisedParty { party, .. } in members.iter_mut() {
                party.block.tmul(&u.view(), &mut party.rhs.view_mut());
            }
        });
        comm.work("update", || {
            members.iter_mut().for_each(|x| update.apply(&mut x.party.v, &x.party.rhs, &g, Penalty::NONE));
        });
        g
    }

    /// The sum of all terms with noise, and the standard deviation of the noise of an entry.
    fn release(&mut self) -> Result<(Vec<f64>, f64)> {
        let NoisedHals { comm, party_sum, releases, members, parties, public, u, iteration, .. } = self;
        releases.open(*iteration, u.entries())?;
        let length = release_length(public.m, public.k);
        let noise = releases.plan().noise();
        if party_sum.is_masked() {
            let fill = |hosted: usize, out: &mut [u64]| {
                releases.release_words(hosted, Some(&members[hosted].message), None, out)
            };
            let sum = party_sum.sum_noised_words(comm, RELEASE, length, fill).to_vec();
            return Ok((sum.into_iter().map(|word| releases.decode(word)).collect(), noise));
        }
        let noised: Vec<_> = comm.work("noise", || {
            let members = members.iter_mut().enumerate();
            members.map(|(hosted, x)| releases.release(hosted, &mut x.message, None)).collect()
        });
        let mut sum = vec![T::zero(); length];
        party_sum.sum_noised(comm, RELEASE, 1.0, &noised, &mut sum)?;
        // Each party's message has its own noise.
        Ok((sum.into_iter().map(Real::as_f64).collect(), noise * (*parties as f64).sqrt()))
    }

    fn iterate(&mut self) -> Result<()> {
        let g = self.fit();
        let NoisedHals { comm, releases, bound, members, u, .. } = self;
        comm.work("product", || {
            for (hosted, member) in members.iter_mut().enumerate() {
                let longer = member.term(&u.view(), &g.view(), *bound);
                releases.count_clipped(hosted, if bound.all { 0 } else { longer });
            }
        });
        self.members.iter().for_each(|member| show_term(&self.comm, member.party.index, &member.weighted));
        let (sum, noise) = self.release()?;
        self.comm.opened(masked(RELEASE), None, &sum);
        let (r, g) = unpacked(&sum, self.public.order, self.u.dim());
        self.show_product(&r, &g);
        let NoisedHals { comm, update, u, .. } = self;
        comm.work("update", || step(update, u, r, g, noise));
        self.refitted.forget();
        self.iteration += 1;
        Ok(())
    }

    /// Records in the view Σ m vᵀ and Σ v vᵀ, which everybody can compute.
    fn show_product(&self, r: &Array2<T>, g: &Array2<f64>) {
        let mut product = r.clone();
        add_product(&mut product, 1.0, &self.u.view(), g);
        self.comm.opened(masked(PRODUCT), None, product.entries());
    }
}

impl<T: Real> Algorithm<T> for NoisedHals<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.done() {
                break;
            }
            self.iterate()?;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let NoisedHals { comm, party_sum, releases, public, members, u, refitted, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view(), public));
        let error = relative_error(comm, party_sum, public.norm2, fitted, &u.view())?;
        let mut all = vec![("rel_error", error)];
        dp::measure(Some(releases), party_sum, comm, &mut all)?;
        Ok(all)
    }

    fn done(&self) -> bool {
        self.releases.is_spent()
    }

    fn private_releases(&self) -> Option<&Releases> {
        Some(&self.releases)
    }

    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        Some(&mut self.releases)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let each = || self.members.iter().map(|x| &x.party);
        pieces(&self.u, each().zip(self.refitted.get(each(), &self.u.view(), &self.public)))
    }

    fn state(&self) -> State<'_, T> {
        let factors = pieces(&self.u, self.members.iter().map(|x| (&x.party, &*x.party.v)));
        dp::save(factors.into(), Some(&self.releases), self.first)
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        restore(saved, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        dp::restore(saved, Some(&mut self.releases), self.first)?;
        self.refitted.forget();
        self.iteration = iteration;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fednmf_audit::distinguishing::lower_bound;
    use fednmf_linalg::random::{Cursor, Purpose, Stream};
    use fednmf_privacy::{Mechanism, NoisePlan, NoiseRequest, PrivacyLoss};

    use super::*;

    const SHAPE: (usize, usize, usize) = (12, 7, 4);

    fn draws(seed: u64) -> Cursor {
        Stream::new(seed, Purpose::Probe, 0).at(0)
    }

    /// How V is found: by one of the updates, or arbitrary.
    #[derive(Debug, Clone, Copy)]
    enum Fit {
        Exact,
        Sweep,
        Anything,
    }

    /// The term of a party with these columns, m × n.
    fn term<T: Real>(columns: &Array2<T>, u: &Array2<T>, fit: Fit, bound: ColumnBound) -> Vec<T> {
        message(columns, u, bound, |v, rhs, g| {
            let mut anything = draws(99);
            match fit {
                Fit::Exact => LeastSquaresUpdate::new(true, 1, u.ncols()).apply(v, rhs, g, Penalty::NONE),
                Fit::Sweep => LeastSquaresUpdate::new(false, 1, u.ncols()).apply(v, rhs, g, Penalty::NONE),
                Fit::Anything => v.iter_mut().for_each(|x| *x = T::from_f64(9.0 * anything.uniform() - 4.0)),
            }
        })
    }

    fn distance<T: Real>(a: &[T], b: &[T]) -> f64 {
        a.iter().zip(b).map(|(x, y)| (x.as_f64() - y.as_f64()).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn another_column_moves_a_release_by_at_most_the_sensitivity() {
        let (m, n, k) = SHAPE;
        let mut largest: f64 = 0.0;
        for (trial, fit) in (0..300).zip([Fit::Exact, Fit::Sweep, Fit::Anything].into_iter().cycle()) {
            let mut random = draws(trial);
            let bound = ColumnBound { norm: 1.3, all: trial % 2 == 0, columns: n, rounding: 0.0 };
            // Components with and without overlap.
            let overlap = trial % 5 > 0;
            let mut u =
                Array2::from_shape_fn((m, k), |(i, a)| if overlap || i % k == a { random.uniform() } else { 0.0 });
            to_unit_columns(&mut u);
            let mut columns = Array2::from_shape_fn((m, n), |_| random.uniform().powi(4));
            let before = term(&columns, &u, fit, bound);
            // Long and short columns, multiples of a component, zero columns.
            for kind in 0..5 {
                let size = 10f64.powf(4.0 * random.uniform() - 2.0);
                columns.column_mut(3).assign(&match kind {
                    0 => Array2::from_shape_fn((m, 1), |_| size * random.uniform().powi(6)).column(0).to_owned(),
                    1 => &u.column(0) * 5.0,
                    2 => &u.column(1) * 5.0,
                    3 => &u.column(2) * size + &u.column(3) * random.uniform(),
                    _ => Array2::zeros((m, 1)).column(0).to_owned(),
                });
                let after = term(&columns, &u, fit, bound);
                let ratio = distance(&before, &after) / bound.norm.powi(2);
                assert!(ratio <= 1.0 + 1e-12, "{trial} {kind} {fit:?}: {ratio}");
                largest = largest.max(ratio);
            }
            let [first, second] = [1, 2].map(|a| {
                columns.column_mut(3).assign(&(&u.column(a) * 5.0));
                term(&columns, &u, fit, bound)
            });
            let ratio = distance(&first, &second) / bound.norm.powi(2);
            assert!(ratio <= 1.0 + 1e-12, "{trial} {fit:?}: {ratio}");
            largest = largest.max(ratio);
        }
        assert!(largest > 0.999, "the bound is not attained: {largest}");
    }

    /// Columns whose norms, weights or products underflow or overflow in T, and harmless ones.
    fn hostile<T: Real>(u: &Array2<T>) -> Vec<Vec<T>> {
        let m = u.nrows();
        let sizes = [
            0.0, 5e-324, 1e-320, 1e-200, 3e-162, 1e-154, 1e-100, 1e-61, 3e-43, 1e-40, 1e-38, 1e-30, 1e-19, 1e-9, 1.0,
            1e9, 1e18, 1e19, 2e19, 1e30, 3e38, 1e61, 1e100, 1e153, 1.3e154, 1e160, 1e200, 1e300, 1.7e308,
        ];
        let mut all = Vec::new();
        for size in sizes {
            all.push(vec![size; m]);
            all.push((0..m).map(|i| if i == 2 { size } else { 0.0 }).collect());
            // Its norm is that of one entry, whatever the others are.
            all.push((0..m).map(|i| if i == 2 { size } else { 1e-300 }).collect());
            all.push((0..m).map(|i| if i == 2 { size } else { 1.0 }).collect());
            all.push(u.column(1).iter().map(|x| size * x.as_f64()).collect());
        }
        let rounded = all.into_iter().map(|column: Vec<f64>| column.into_iter().map(T::from_f64).collect::<Vec<T>>());
        // The program reads no infinite entry.
        rounded.filter(|column| column.iter().all(|x| x.is_finite())).collect()
    }

    /// The largest move of a release by another column, as a fraction of the claimed sensitivity.
    fn largest_move<T: Real>(n: usize) -> f64 {
        let (m, k) = (SHAPE.0, SHAPE.2);
        let mut largest: f64 = 0.0;
        for (trial, fit) in (0..12).zip([Fit::Exact, Fit::Sweep, Fit::Anything].into_iter().cycle()) {
            let mut random = draws(trial);
            let rounding = rounding::<T>(n, m, k);
            let bound = ColumnBound { norm: 1.3, all: trial % 2 == 0, columns: n, rounding };
            let mut u = Array2::from_shape_fn((m, k), |_| T::from_f64(random.uniform()));
            to_unit_columns(&mut u);
            let mut columns = Array2::from_shape_fn((m, n), |_| T::from_f64(random.uniform()));
            let hostile = hostile(&u);
            // The other columns may be hostile, too, or all equal.
            for other in (0..n / 2).filter(|_| trial >= 6) {
                let column = &hostile[(7 * other + trial as usize) % hostile.len()];
                columns.column_mut(n / 2 + other).iter_mut().zip(column).for_each(|(x, y)| *x = *y);
            }
            let before = term(&columns, &u, fit, bound);
            for column in &hostile {
                columns.column_mut(1).iter_mut().zip(column).for_each(|(x, y)| *x = *y);
                let after = term(&columns, &u, fit, bound);
                assert!(after.iter().all(|x| x.is_finite()), "{trial} {fit:?} {column:?}");
                let moved = distance(&before, &after) / (bound.norm.powi(2) * (1.0 + rounding));
                assert!(moved <= 1.0, "{trial} {fit:?} {column:?}: {moved}");
                largest = largest.max(moved);
            }
        }
        largest
    }

    #[test]
    fn hostile_columns_move_a_release_by_at_most_the_sensitivity() {
        // The bounds are not so wide that they hold for anything.
        let (double, single) = (largest_move::<f64>(60), largest_move::<f32>(60));
        assert!(double > 0.7 && single > 0.6, "{double} {single}");
    }

    #[test]
    fn columns_beyond_the_range_count_with_weight_0() {
        let (m, n, k) = SHAPE;
        let mut random = draws(3);
        let mut u = Array2::from_shape_fn((m, k), |_| random.uniform());
        to_unit_columns(&mut u);
        let bound = ColumnBound { norm: 1.0, all: true, columns: n, rounding: 0.0 };
        let mut columns = Array2::from_shape_fn((m, n), |_| random.uniform());
        columns.column_mut(3).fill(0.0);
        let without = term(&columns, &u, Fit::Exact, bound);
        for size in [5e-324, 1e-160, 1e-100, 1e100, 1e200] {
            columns.column_mut(3).fill(size);
            assert_eq!(term(&columns, &u, Fit::Exact, bound), without, "{size:e}");
        }
        columns.column_mut(3).fill(1e-50);
        assert_ne!(term(&columns, &u, Fit::Exact, bound), without);
    }

    #[test]
    fn the_release_without_noise_has_the_sums_of_secure_hals() {
        let (m, n, k) = SHAPE;
        let mut random = draws(5);
        let mut u = Array2::from_shape_fn((m, k), |_| random.uniform());
        to_unit_columns(&mut u);
        let columns = Array2::from_shape_fn((m, n), |_| random.uniform());
        // No column reaches the bound.
        let bound = ColumnBound { norm: 100.0, all: false, columns: n, rounding: 0.0 };
        let message = term(&columns, &u, Fit::Exact, bound);
        let mut v = Array2::zeros((n, k));
        LeastSquaresUpdate::new(true, 1, k).apply(&mut v, &columns.t().dot(&u), &u.t().dot(&u), Penalty::NONE);
        let (product, g) = (columns.dot(&v), v.t().dot(&v));
        let residual = &product - &u.dot(&g);
        let expected: Vec<f64> = residual.t().iter().copied().collect();
        assert!(distance(&message[..m * k], &expected) < 1e-12);
        let triangle: Vec<f64> = triangle_of(k).map(|(a, b)| g[[a, b]] * triangle_weight(a, b)).collect();
        assert!(distance(&message[m * k..], &triangle) < 1e-12);
        // The norm of the triangle is that of G/√2.
        let norm = triangle.iter().map(|x| x * x).sum::<f64>();
        assert!((norm - 0.5 * g.iter().map(|x| x * x).sum::<f64>()).abs() < 1e-12 * norm);
    }

    /// The score of a run: the log-likelihood ratio of its releases between the second and the first data set. Both are
    /// known, and differ in column 0 of the first of three parties. `which` is the set that the run uses.
    fn score(sets: [&Array2<f64>; 2], which: usize, request: NoiseRequest, seed: u64) -> f64 {
        let ((m, n), k, parties) = (sets[0].dim(), 2, 3);
        let bound = ColumnBound { norm: 1.0, all: true, columns: n, rounding: 1e-9 };
        let plan = NoisePlan::new(request, Bound::Columns(bound), release_length(m, k), Some(parties)).unwrap();
        let keys = (0..parties).map(|party| std::array::from_fn(|i| (seed >> (8 * (i % 8))) as u8 ^ party as u8));
        let mut releases = Releases::new(plan, keys.collect());
        let mut u = Array2::from_shape_fn((m, k), |(i, a)| f64::from(u8::from(i % k == a)));
        to_unit_columns(&mut u);
        let mut update = LeastSquaresUpdate::new(true, 1, k);
        let (mut words, mut total) = (vec![0u64; release_length(m, k)], 0.0);
        while !releases.is_spent() && releases.done() < RELEASES {
            releases.open(0, u.row_major()).unwrap();
            let cut = |set: &Array2<f64>, party: usize| {
                set.slice(ndarray::s![.., party * n / parties..(party + 1) * n / parties]).to_owned()
            };
            let [first, second] = sets.map(|set| term_of(&cut(set, 0), &u, None));
            let mut sum = vec![0u64; words.len()];
            let mut others = vec![0.0; words.len()];
            for party in 0..parties {
                let term = term_of(&cut(sets[which], party), &u, None);
                releases.release_words(party, Some(&term), None, &mut words);
                sum.iter_mut().zip(&words).for_each(|(s, w)| *s = s.wrapping_add(*w));
                if party > 0 {
                    others.iter_mut().zip(&term).for_each(|(x, t)| *x += t);
                }
            }
            let sum: Vec<f64> = sum.into_iter().map(|word| releases.decode(word)).collect();
            for (i, x) in sum.iter().enumerate() {
                total += (second[i] - first[i]) * (x - others[i] - 0.5 * (first[i] + second[i]));
            }
            let (r, g) = unpacked(&sum, Order::ColumnMajor, (m, k));
            step(&mut update, &mut u, r, g, releases.plan().noise());
        }
        total
    }

    /// Numbers of releases and columns of an audited run.
    const RELEASES: u64 = 4;
    const COLUMNS: usize = 60;

    /// An audit of whole runs by their likelihood ratio. This is the best attack by an adversary who knows everything
    /// except which of two columns is in the data. The same audit detects noise that is ten times too small.
    #[test]
    fn an_audit_of_whole_runs_stays_below_epsilon_and_detects_too_little_noise() {
        // Column 0 is a multiple of one of two components; the other columns determine where the components are.
        let set = |which: usize| {
            Array2::from_shape_fn((4, COLUMNS), |(i, j)| {
                let component = if j == 0 { which } else { j % 2 };
                f64::from(u8::from(i % 2 == component))
            })
        };
        let (first, second) = (set(0), set(1));
        let request = NoiseRequest {
            mechanism: Mechanism::Gaussian,
            epsilon: Some(8.0),
            delta: 1e-5,
            noise: None,
            classic: false,
            releases: RELEASES,
        };
        let bound = ColumnBound { norm: 1.0, all: true, columns: COLUMNS, rounding: 1e-9 };
        let plan = NoisePlan::new(request, Bound::Columns(bound), release_length(4, 2), Some(3)).unwrap();
        let audit = |request: NoiseRequest| {
            let scores = |which: usize| -> Vec<f64> {
                (0..3000).map(|run| score([&first, &second], which, request, 1 + 2 * run + which as u64)).collect()
            };
            lower_bound(&scores(1), &scores(0), 1e-5, 1e-4)
        };
        let claimed = plan.epsilon(RELEASES);
        let whole = audit(request);
        let by_mu = |mu: f64| PrivacyLoss::Gaussian { mu }.epsilon(1, 1e-5);
        assert!(whole.epsilon < claimed && by_mu(whole.mu) < claimed, "{whole:?} {claimed}");
        assert!(whole.epsilon > 0.15 * claimed && by_mu(whole.mu) > 0.4 * claimed, "{whole:?} {claimed}");
        let broken =
            audit(NoiseRequest { epsilon: None, noise: Some(0.1 * plan.noise()), releases: u64::MAX, ..request });
        // This number of runs cannot prove an ε above 5, but it can prove μ.
        assert!(by_mu(broken.mu) > claimed && broken.mu > 2.0 * whole.mu, "{broken:?} {claimed}");
    }

    #[test]
    fn a_shift_makes_what_noise_has_left_definite() {
        let g = ndarray::arr2(&[[1.0, 3.0], [3.0, 1.0]]);
        let found = shift(&g, 0.3);
        // Eigenvalues 4 and −2.
        assert!(found > 2.0 && found < 3.1, "{found}");
        assert_eq!(shift(&ndarray::arr2(&[[2.0, 1.0], [1.0, 2.0]]), 0.3), 0.0);
        assert!(shift(&Array2::zeros((2, 2)), 0.3) == 0.3);
    }
}
