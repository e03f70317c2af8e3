//! NMF with private columns (Qian et al. 2022, section 4): party r holds the columns M[:, J_r], which no other party may
//! see. U is shared; V[J_r] stays with party r.
//!
//! * `syn-sd`, `syn-ssd-u`, `syn-ssd-v`, `syn-ssd-uv` ([`syn`]): local copies of U, averaged after each round;
//! * `asyn-sd`, `asyn-ssd-v` ([`asyn`]): the same with a server, where no party waits for another;
//! * `dsanls-secure` ([`dsanls_secure`]): sums of sketches of the data, which is safe for a few iterations only;
//! * `secure-hals` ([`secure_hals`]): exact HALS without copies of U, from the sums that U's update needs. With `--dp`
//!   ([`noised_hals`]), noise on the sums hides single columns.
//!
//! With `--missing` the parties of `syn-*` and `asyn-*` complete their columns ([`MissingEntries`]) before each step; their
//! messages have the same form as with complete columns.
//!
//! Every sum over parties goes through a [`PartySum`], so that all of them can be masked (`--secure-sum`). The
//! asynchronous methods have no such sums.

pub mod asyn;
pub mod dsanls_secure;
mod local;
pub mod noised_hals;
mod row_subsample;
pub mod secure_hals;
pub mod syn;

use std::cell::OnceCell;
use std::ops::Range;

use ndarray::{Array2, ArrayView2};

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::party_sum::{PartySum, masked};
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::Loaded;
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::nls::{Penalty, Pivoting};
use fednmf_linalg::{Block, Order, Real, gram};
use fednmf_privacy::Private;

use crate::Measures;
use crate::description::MessageSpec;
use crate::metrics;
use crate::metrics::not_negative;
use crate::shared::init;
use crate::shared::missing::{MissingEntries, PartyMissing, Side};
use crate::shared::regularization::{Penalties, RegularizationParams};

const PAPER: &str =
    "Qian, Tan, Ding, Li, Mamoulis: Fast and Secure Distributed Nonnegative Matrix Factorization, section 4";

/// The right-hand side of U's update, summed over parties.
const PRODUCT: MessageTag = MessageTag::new("sum of M_r V_r", Payload::Product);

/// The two lines of a message table for a sum over parties.
const fn summed(tag: MessageTag, shape: &'static str, when: &'static str) -> [MessageSpec; 2] {
    [MessageSpec::new(tag, shape, when), MessageSpec::new(masked(tag), shape, "the same, with --secure-sum")]
}

/// The private state of a party: its columns of the data and its rows of V.
struct Party<T: Real> {
    index: usize,
    /// J_r
    cols: Range<usize>,
    /// M[:, J_r], m × |J_r|
    block: Private<Block<T>>,
    /// The missing entries, for which the block contains zeros; `None` if nothing is missing.
    missing: Option<Private<MissingEntries<T>>>,
    /// V[J_r], |J_r| × k
    v: Private<Array2<T>>,
    /// The right-hand side of V's update, |J_r| × k
    rhs: Array2<T>,
}

impl<T: Real> Party<T> {
    /// Σ (m_ij − u_i·v_j)² over the observed entries.
    fn residual2(&self, u: &ArrayView2<T>, v: &ArrayView2<T>) -> f64 {
        match &self.missing {
            Some(missing) => missing.residual2(&self.block, u, v),
            None => self.block.residual2(u, v),
        }
    }
}

/// Shape and statistics of the whole matrix, the penalties, and quantities derived from them; all public.
#[derive(Debug, Clone, Copy)]
struct PublicInfo {
    m: usize,
    n: usize,
    k: usize,
    norm2: f64,
    penalties: Penalties,
    /// Upper bounds of the entries of the start of U and of V.
    scales: [f64; 2],
    /// Memory order of factors and right-hand sides, the same on every rank.
    order: Order,
}

impl PublicInfo {
    fn of<T: Real>(data: &Loaded<T>, k: usize, regularization: Option<&RegularizationParams>) -> Self {
        let (m, n) = (data.header.rows, data.header.cols);
        let order = if data.header.sparse { Order::RowMajor } else { Order::ColumnMajor };
        let penalties = regularization.map_or_else(Penalties::default, |args| args.penalties((m, n)));
        let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, 2.0);
        PublicInfo { m, n, k, norm2: data.statistics.norm2, penalties, scales, order }
    }
}

/// The start of the shared U.
fn start_u<T: Real>(public: &PublicInfo, seed: u64) -> Array2<T> {
    let mut u = public.order.zeros(public.m, public.k);
    init::u(seed, &(0..public.m), public.scales[0], u.view_mut());
    u
}

/// The hosted parties, each with its start of V. Collective.
fn hosted_parties<T: Real>(
    data: Loaded<T>,
    public: &PublicInfo,
    missing: PartyMissing,
    seed: u64,
    (comm, parties): (&PartyCommunicator, Parties),
) -> SharedResult<Vec<Party<T>>> {
    let hosted = parties.hosted(comm.rank());
    let cuts = data.cuts.cols;
    let each = hosted.zip(data.blocks).map(|(index, block)| {
        let (mut block, missing) = missing.separate(block, public.k);
        block.prepare(public.k)?;
        let cols = cuts[index].clone();
        let mut v = public.order.zeros(cols.len(), public.k);
        init::v(seed, &cols, public.scales[1], v.view_mut());
        if let Some(missing) = &missing {
            missing.clear_unobserved(Side::Columns, &mut v, public.m);
        }
        Ok(Party {
            index,
            missing,
            rhs: public.order.zeros(cols.len(), public.k),
            cols,
            block: Private::new(block),
            v: Private::new(v),
        })
    });
    comm.agree_on_error(each.collect::<Result<_>>())
}

/// The exact V[J_r] for the final U on the observed entries, with this penalty on V; each party computes it locally.
fn refit<'a, T: Real>(
    parties: impl Iterator<Item = &'a Party<T>>,
    u: &ArrayView2<T>,
    penalty: Penalty,
) -> Vec<Array2<T>> {
    let k = u.ncols();
    let mut g = Array2::zeros((k, k));
    gram(u, &mut g.view_mut());
    let mut solver = Pivoting::new(k);
    let mut one = |party: &Party<T>| {
        let (mut v, mut rhs) = (party.v.clone(), party.rhs.clone());
        party.block.tmul(u, &mut rhs.view_mut());
        match &party.missing {
            Some(missing) => missing.solve(Side::Columns, &mut v, &rhs.view(), u, &mut solver, penalty),
            None => solver.solve_penalized(&mut v.view_mut(), &rhs.view(), &g.view(), penalty),
        }
        v
    };
    parties.map(&mut one).collect()
}

/// V refitted to U: computed on demand, and cached until U changes.
#[derive(Default)]
struct Refitted<T>(OnceCell<Vec<Array2<T>>>);

impl<T: Real> Refitted<T> {
    fn get<'a, 'p>(
        &'a self,
        parties: impl Iterator<Item = &'p Party<T>>,
        u: &ArrayView2<T>,
        public: &PublicInfo,
    ) -> &'a [Array2<T>] {
        self.0.get_or_init(|| refit(parties, u, public.penalties.v))
    }

    fn forget(&mut self) {
        self.0.take();
    }
}

/// The relative error for these rows of V of the hosted parties. If parties have dropped out, the error is over the
/// remaining ones, relative to their share of ‖M‖² under the assumption that all columns have equal norms. Their own
/// norms stay unknown, because the difference from the norm of all data would reveal that of the lost parties.
/// Collective.
fn relative_error<'a, T: Real>(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    norm2: f64,
    parts: impl Iterator<Item = (&'a Party<T>, &'a Array2<T>)>,
    u: &ArrayView2<T>,
) -> Result<f64> {
    let each: Vec<[f64; 1]> = parts.map(|(p, v)| [p.residual2(u, &v.view())]).collect();
    let mut sum = [0.0];
    party_sum.sum(comm, metrics::RESIDUAL, norm2, each.iter().map(<[f64; 1]>::as_slice), &mut sum)?;
    Ok(metrics::relative(sum[0], norm2 * party_sum.share_left()))
}

/// The relative error, as [`relative_error`], and with penalties the objective. The parties' penalties on V are summed
/// with the residuals. Collective.
fn fit<'a, T: Real>(
    comm: &PartyCommunicator,
    party_sum: &mut PartySum,
    public: &PublicInfo,
    parts: impl Iterator<Item = (&'a Party<T>, &'a Array2<T>)>,
    u: &ArrayView2<T>,
) -> Result<Measures> {
    let PublicInfo { norm2, penalties, .. } = *public;
    if !penalties.any() {
        return Ok(vec![("rel_error", relative_error(comm, party_sum, norm2, parts, u)?)]);
    }
    let term = |(p, v): (&Party<T>, &Array2<T>)| [p.residual2(u, &v.view()), penalties.v.value(&v.view())];
    let each: Vec<[f64; 2]> = parts.map(term).collect();
    let mut sum = [0.0; 2];
    party_sum.sum(comm, metrics::RESIDUAL, norm2, each.iter().map(<[f64; 2]>::as_slice), &mut sum)?;
    let [residual2, penalty_v] = sum;
    let mut found = vec![("rel_error", metrics::relative(residual2, norm2 * party_sum.share_left()))];
    found.extend(penalties.objective(0.5 * not_negative(residual2), penalties.u.value(u) + penalty_v));
    Ok(found)
}

/// U as part of the shared result, and each hosted party's V as its own.
fn pieces<'a, T: Real>(
    u: &'a Array2<T>,
    parts: impl Iterator<Item = (&'a Party<T>, &'a Array2<T>)>,
) -> Vec<Piece<'a, T>> {
    let mut all = vec![Piece::shared("U", u.nrows(), 0, u.view())];
    all.extend(parts.map(|(p, v)| Piece::private("V", p.index, v.view())));
    all
}

/// Restores what [`pieces`] returned.
fn restore<'a, T: Real>(
    saved: &dyn SavedState<T>,
    u: &mut Array2<T>,
    parties: impl Iterator<Item = &'a mut Party<T>>,
) -> Result<()> {
    saved.rows("U", Owner::Shared, 0, u.view_mut())?;
    for party in parties {
        saved.rows("V", Owner::Party(party.index), 0, party.v.view_mut())?;
    }
    Ok(())
}

/// Normalises a weighted sum by the total weight of the parties in it, if some have dropped out.
fn normalize_by_survivors<T: Real>(party_sum: &PartySum, weights: &[f64], sum: &mut Array2<T>) {
    let weight = party_sum.weight(weights.iter().copied());
    if weight > 0.0 && weight != 1.0 {
        sum.mapv_inplace(|x| x / T::from_f64(weight));
    }
}
