//! Joint NMF of several matrices with the same columns: integrative NMF (Yang and Michailidis, "A non-negative matrix
//! factorization method for detecting modules in heterogeneous omics multi-modal data", Bioinformatics 32, 2016), as in
//! LIGER (Welch et al., Cell 177, 2019). Party i holds rows X_i, and the objective
//!
//! ½ Σ_i ‖X_i − U_i (V + W_i)ᵀ‖² + ½ λ Σ_i ‖U_i W_iᵀ‖²
//!
//! is minimised over U_i, V, W_i ≥ 0. The components V are shared, and W_i is the deviation of party i from them. An
//! iteration updates U_i, W_i and V, each by a row-wise nonnegative least-squares problem ([`joint`](crate::shared::joint)).
//!
//! U_i and W_i never leave their party. V needs two sums over parties, which can be masked. V is the last block, so that
//! the first sums contain U_i that were fitted to private data instead of a start that others know.

use std::ops::Range;

use ndarray::Array2;

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::party_sum::{Joint, KEYS, PartySum, masked, show_term};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::OWN_PART;
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Block, Order, Real, gram};
use fednmf_privacy::Private;

use super::{EXACT_SUMS, UNBOUNDED};
use crate::cost::{Cost, Kernel, Shape, Workload};
use crate::description::{Description, LARGEST_TERM, MessageSpec, Partition};
use crate::method::Method;
use crate::metrics;
use crate::metrics::{Measure, not_negative};
use crate::parameters::{count, number};
use crate::shared::disclosure::OpenedSums;
use crate::shared::extrapolation::inner;
use crate::shared::init;
use crate::shared::joint::{combine, subtract_product};
use crate::shared::least_squares::{LeastSquaresUpdate, Update};
use crate::shared::secure_sum::{SURVIVING, SecureSumParams, ThresholdParams, party_sum};
use crate::{Algorithm, Measures, Problem};

/// The largest λ. W_i is of the order of 1/λ, and the squares of its entries must be representable in f32.
const MAX_PENALTY: f64 = 1e12;

fednmf_base::parameters! {
    /// Parameters of integrative NMF.
    pub struct Inmf {
        /// Weight of the penalty on the parties' own parts, the lambda of LIGER: the larger, the more is shared
        pub own_penalty: f64 = 5.0, "X", number(0.0, MAX_PENALTY);
        /// Update of a factor from its Gram matrix and right-hand side
        pub update: Update = Update::Bpp, "NAME";
        /// Sweeps of a factor in an iteration, with --update hals
        #[unless(|p| p.update == Update::Bpp, "counts steps of --update hals; --update bpp solves for the factor")]
        pub local_iters: usize = 1, "N", count(1);
        group secure_sum: SecureSumParams;
        group threshold: ThresholdParams;
    }
}

impl Method for Inmf {
    const DESCRIPTION: &'static Description = &Description {
        name: "inmf",
        summary: "joint NMF (LIGER): components that all share, and each party's own part of them",
        paper: "Yang and Michailidis 2016; Welch et al. 2019 (LIGER)",
        partition: Partition::PartyRows,
        measure: Measure::Objective,
        dp: UNBOUNDED,
        limits: Some(EXACT_SUMS),
        messages: &[
            MessageSpec::new(PRODUCT, "n x k", "each iteration"),
            MessageSpec::new(
                masked(PRODUCT),
                "n x k and k x k, the Gram matrix, as one",
                "each iteration, with --secure-sum",
            ),
            MessageSpec::new(GRAM, "k x k", "each iteration"),
            MessageSpec::new(metrics::RESIDUAL, "2", "each evaluation"),
            MessageSpec::new(masked(metrics::RESIDUAL), "2", "the same, with --secure-sum"),
            LARGEST_TERM,
            MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum"),
            SURVIVING[0],
            SURVIVING[1],
            SURVIVING[2],
        ],
        ..Description::USUAL
    };

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored: all_stored, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = workload.part(rows, n);
        let mut cost = Cost::default();
        let (product, square) = (2.0 * k as f64, 2.0 * (k * k) as f64);
        cost.add(Kernel::Mul, product * stored, product * all_stored);
        cost.add(Kernel::Tmul, product * stored, product * all_stored);
        let own_grams = if self.own_penalty > 0.0 { 2 } else { 1 };
        let grams = |rows: usize, parties: usize| square * (rows + own_grams * parties * n) as f64;
        cost.add(Kernel::Gram, grams(rows, hosted), grams(m, parties));
        let (kernel, passes) = match self.update {
            Update::Bpp => (Kernel::Pivot, 1.0),
            Update::Hals => (Kernel::Sweep, self.local_iters as f64),
        };
        // Every rank updates the whole V.
        let updates =
            |rows: usize, parties: usize, ranks: usize| passes * square * (rows + (parties + ranks) * n) as f64;
        cost.add(kernel, updates(rows, hosted, 1), updates(m, parties, ranks));
        // V UᵀU and W UᵀU are loops over rows and k × k matrices, as in a sweep.
        let between = 2.0 * square * n as f64;
        cost.add(Kernel::Sweep, between * hosted as f64, between * parties as f64);
        let sums = [(PRODUCT, n * k), (GRAM, k * k)];
        self.secure_sum.add_cost(Some(&self.threshold), &mut cost, (ranks, parties), &sums, (word, 1));
        cost.data = workload.block(rows, stored);
        let own = rows / hosted;
        cost.shape = Shape { block: (own, n), updated: own.max(n), gram: own.max(n), ..Shape::default() };
        cost.factors = workload.bytes((2 * rows + (2 * hosted + 4) * n) * k) + (16 * n * k) as f64;
        Ok(Some(cost))
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(OpenedSums::ExactProducts(1))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

/// The right-hand side of V's update, summed over parties.
const PRODUCT: MessageTag = MessageTag::new("sum of X_r'U_r - W_r U_r'U_r", Payload::Product);
const GRAM: MessageTag = MessageTag::new("sum of U_r'U_r", Payload::Gram);

/// A party: its rows, its factors, and its terms of the sums.
struct PartyState<T: Real> {
    index: usize,
    /// X_i, rows × n
    block: Private<Block<T>>,
    /// U_i, rows × k
    u: Private<Array2<T>>,
    /// The right-hand side of U_i's update, rows × k
    rhs: Array2<T>,
    /// W_i, n × k
    own: Private<Array2<T>>,
    /// X_iᵀU_i − W_i U_iᵀU_i, n × k
    product: Array2<T>,
    /// U_iᵀU_i, k × k
    gram: Array2<T>,
}

/// Scratch memory that the parties of a rank share.
struct Scratch<T> {
    /// V + W_i, and then the right-hand side of W_i's update; n × k
    combined: Array2<T>,
    /// k × k
    gram: Array2<T>,
    /// W_iᵀW_i, k × k
    own_gram: Array2<T>,
}

struct InmfRun<T: Real> {
    comm: PartyCommunicator,
    party_sum: PartySum,
    update: LeastSquaresUpdate,
    members: Vec<PartyState<T>>,
    /// V, n × k
    v: Array2<T>,
    /// The sums that V is updated from, n × k and k × k
    rhs: Array2<T>,
    gram: Array2<T>,
    scratch: Scratch<T>,
    /// λ
    own_penalty: f64,
    norm2: f64,
    /// Expected sizes of the entries of both sums.
    expected: [f64; 2],
    iteration: usize,
}

fn build<T: Real>(args: &Inmf, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n, norm2) = (data.header.rows, data.header.cols, data.statistics.norm2);
    let scale = init::scale(data.statistics.sum, (m, n), k);
    let order = if data.header.sparse { Order::RowMajor } else { Order::ColumnMajor };
    let member = |(mut block, index): (Block<T>, usize)| {
        block.prepare(k)?;
        let rows: Range<usize> = data.cuts.rows[index].clone();
        let mut u = order.zeros(rows.len(), k);
        init::u(seed, &rows, scale, u.view_mut());
        Ok(PartyState {
            index,
            block: Private::new(block),
            rhs: order.zeros(rows.len(), k),
            u: Private::new(u),
            own: Private::new(order.zeros(n, k)),
            product: order.zeros(n, k),
            gram: Array2::zeros((k, k)),
        })
    };
    let members = data.blocks.into_iter().zip(parties.hosted(comm.rank())).map(member).collect::<Result<_>>();
    let members = comm.agree_on_error(members)?;
    let mut v = order.zeros(n, k);
    init::v(seed, &(0..n), scale, v.view_mut());
    let rows = m as f64;
    Ok(Box::new(InmfRun {
        party_sum: party_sum(&comm, parties, &args.secure_sum, Some((&args.threshold, &data.cuts.rows)))?,
        comm,
        update: LeastSquaresUpdate::new(args.update == Update::Bpp, args.local_iters, k),
        members,
        v,
        rhs: order.zeros(n, k),
        gram: Array2::zeros((k, k)),
        scratch: Scratch { combined: order.zeros(n, k), gram: Array2::zeros((k, k)), own_gram: Array2::zeros((k, k)) },
        own_penalty: args.own_penalty,
        norm2,
        // The expected sizes with U as large as at its start.
        expected: [rows * (norm2 / (rows * n as f64)).sqrt() * scale, rows * scale * scale],
        iteration: 0,
    }))
}

impl<T: Real> PartyState<T> {
    /// Updates U_i and W_i, and computes the terms of the sums for V's update.
    fn step(
        &mut self,
        comm: &PartyCommunicator,
        update: &mut LeastSquaresUpdate,
        v: &Array2<T>,
        scratch: &mut Scratch<T>,
        lambda: T,
    ) {
        let PartyState { block, u, rhs, own, product, gram: gram_u, .. } = self;
        let Scratch { combined, gram: g, own_gram } = scratch;
        comm.work("product X (V + W)", || {
            combine(v, own, combined);
            gram(&combined.view(), &mut g.view_mut());
            if lambda > T::zero() {
                gram(&own.view(), &mut own_gram.view_mut());
                g.scaled_add(lambda, own_gram);
            }
            block.mul(&combined.view(), &mut rhs.view_mut());
        });
        comm.work("update", || update.apply(u, rhs, g, Penalty::NONE));
        comm.work("product X'U", || {
            gram(&u.view(), &mut gram_u.view_mut());
            block.tmul(&u.view(), &mut product.view_mut());
            combined.assign(product);
            subtract_product(combined, v, gram_u);
            // Divided by 1 + λ, so that the Gram matrix is that of the sum.
            let share = (T::one() + lambda).recip();
            combined.mapv_inplace(|x| x * share);
        });
        comm.work("update", || {
            update.apply(own, combined, gram_u, Penalty::NONE);
            subtract_product(product, own, gram_u);
        });
    }

    /// ‖X_i − U_i (V + W_i)ᵀ‖² and ‖U_i W_iᵀ‖².
    fn errors(&self, v: &Array2<T>, scratch: &mut Scratch<T>) -> [f64; 2] {
        let Scratch { combined, gram: g, own_gram } = scratch;
        combine(v, &self.own, combined);
        gram(&self.u.view(), &mut g.view_mut());
        gram(&self.own.view(), &mut own_gram.view_mut());
        let residual2 = self.block.residual2(&self.u.view(), &combined.view());
        [residual2, inner(&g.view(), &own_gram.view())].map(not_negative)
    }
}

impl<T: Real> InmfRun<T> {
    fn iterate(&mut self) -> Result<()> {
        let InmfRun { comm, party_sum, update, members, v, rhs, gram, scratch, own_penalty, expected, .. } = self;
        let lambda = T::from_f64(*own_penalty);
        members.iter_mut().for_each(|member| member.step(comm, update, v, scratch, lambda));
        members.iter().for_each(|member| show_term(comm, member.index, &member.product));
        let product = |hosted: usize| members[hosted].product.entries();
        let gram_term = |hosted: usize| members[hosted].gram.entries();
        let [product_size, gram_size] = *expected;
        party_sum.sum_together(
            comm,
            &mut [
                Joint { tag: PRODUCT, expected: product_size, term: &product, out: rhs.entries_mut() },
                Joint { tag: GRAM, expected: gram_size, term: &gram_term, out: gram.entries_mut() },
            ],
        )?;
        comm.work("update", || update.apply(v, rhs, gram, Penalty::NONE));
        self.iteration += 1;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for InmfRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let InmfRun { comm, party_sum, members, v, scratch, own_penalty, norm2, .. } = self;
        let each: Vec<[f64; 2]> = members.iter().map(|member| member.errors(v, scratch)).collect();
        let mut sums = [0.0; 2];
        party_sum.sum(comm, metrics::RESIDUAL, *norm2, each.iter().map(<[f64; 2]>::as_slice), &mut sums)?;
        let [residual2, own2] = sums.map(not_negative);
        let norm2 = *norm2 * party_sum.share_left();
        let mut all = vec![
            ("rel_error", metrics::relative(residual2, norm2)),
            (Measure::Objective.key(), 0.5 * (residual2 + *own_penalty * own2)),
            ("own_part", metrics::relative(own2, norm2)),
        ];
        all.extend(party_sum.losses());
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let mut pieces = vec![Piece::shared("V", self.v.nrows(), 0, self.v.view())];
        for member in &self.members {
            pieces.push(Piece::private("U", member.index, member.u.view()));
            pieces.push(Piece::private(OWN_PART, member.index, member.own.view()));
        }
        pieces
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("V", Owner::Shared, 0, self.v.view_mut())?;
        for member in &mut self.members {
            let owner = Owner::Party(member.index);
            saved.rows("U", owner, 0, member.u.view_mut())?;
            saved.rows(OWN_PART, owner, 0, member.own.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }
}
