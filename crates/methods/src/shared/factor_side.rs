//! One factor on one rank ([`FactorSide`]): the rows that the rank owns, their right-hand side, and the collectives that
//! gather the factor, sum its right-hand side and sum its Gram matrix.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};

use fednmf_base::error::Result;
use fednmf_comm::{Communicator, MessageTag, Parts, Payload};
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::{Order, Real, gram};

use super::row_exchange::{Exchange, Load, RowExchange};

pub const GRAM_V: MessageTag = MessageTag::new("Gram of V", Payload::Gram);
pub const GRAM_U: MessageTag = MessageTag::new("Gram of U", Payload::Gram);
pub const GATHER_V: MessageTag = MessageTag::new("gather V", Payload::SharedFactor);
pub const GATHER_U: MessageTag = MessageTag::new("gather U", Payload::SharedFactor);
pub const RHS_U: MessageTag = MessageTag::new("sum M V", Payload::Product);
pub const RHS_V: MessageTag = MessageTag::new("sum M'U", Payload::Product);

/// The name of a factor in outputs and checkpoints, and the tags of its messages.
#[derive(Debug, Clone, Copy)]
pub struct FactorTags {
    pub name: &'static str,
    pub gather: MessageTag,
    /// Tag of the sum of the right-hand side.
    pub rhs: MessageTag,
    pub gram: MessageTag,
}

/// The factor U (m × k), with the right-hand side M V.
pub const U: FactorTags = FactorTags { name: "U", gather: GATHER_U, rhs: RHS_U, gram: GRAM_U };
/// The factor V (n × k), with the right-hand side MᵀU.
pub const V: FactorTags = FactorTags { name: "V", gather: GATHER_V, rhs: RHS_V, gram: GRAM_V };

/// One factor on one rank. The ranks of `comm` share the rows of a block: each owns some and may gather all.
pub struct FactorSide<T: Real> {
    pub tags: FactorTags,
    comm: Communicator,
    /// Rows of the whole factor.
    total: usize,
    order: Order,
    /// The rows that each rank of `comm` owns, counted from the first row of the block.
    cuts: Vec<Range<usize>>,
    /// Rows of the whole factor that this rank owns.
    pub own_rows: Range<usize>,
    /// The owned rows: |own_rows| × k.
    pub own: Array2<T>,
    /// Right-hand side of the owned rows: |own_rows| × k; empty without [`FactorSide::with_rhs`].
    pub rhs: Array2<T>,
    /// All rows of the block; `None` without [`FactorSide::with_gathered`].
    gathered: Option<Array2<T>>,
    parts: Parts,
    /// Message buffer for components that are contiguous.
    stage: Vec<T>,
    /// Sparse exchange plan of this factor; `None` for dense collectives.
    sparse: Option<RowExchange<T>>,
}

impl<T: Real> FactorSide<T> {
    /// A factor with `total` rows and k columns, initially zero. The ranks of `comm` share the rows `block`; rank r owns
    /// `cuts[r]` of them, counted from the first row of the block.
    pub fn new(
        tags: FactorTags,
        comm: &Communicator,
        (block, total): (&Range<usize>, usize),
        cuts: Vec<Range<usize>>,
        k: usize,
        order: Order,
    ) -> Self {
        let own = cuts[comm.rank()].clone();
        FactorSide {
            tags,
            comm: comm.clone(),
            total,
            order,
            own_rows: block.start + own.start..block.start + own.end,
            own: order.zeros(own.len(), k),
            rhs: order.zeros(0, k),
            gathered: None,
            parts: Parts::new(&cuts, k),
            stage: Vec::new(),
            cuts,
            sparse: None,
        }
    }

    /// A factor whose rows are shared by all ranks: rank r owns `cuts[r]`.
    pub fn of_all_ranks(tags: FactorTags, comm: &Communicator, cuts: &[Range<usize>], k: usize, order: Order) -> Self {
        let total = cuts.last().map_or(0, |last| last.end);
        FactorSide::new(tags, comm, (&(0..total), total), cuts.to_vec(), k, order)
    }

    /// The rows that each rank owns, counted from the first row of the block.
    pub fn cuts(&self) -> &[Range<usize>] {
        &self.cuts
    }

    /// Adds memory for the right-hand side.
    #[must_use]
    pub fn with_rhs(mut self) -> Self {
        self.rhs = self.order.zeros(self.own.nrows(), self.own.ncols());
        self
    }

    /// Adds memory for all rows of the block.
    #[must_use]
    pub fn with_gathered(mut self) -> Self {
        let (rows, k) = (self.cuts.last().map_or(0, |last| last.end), self.own.ncols());
        self.gathered = Some(self.order.zeros(rows, k));
        if self.order == Order::ColumnMajor {
            self.stage = vec![T::zero(); rows * k];
        }
        self
    }

    /// Adds memory for all rows of the block if other ranks own some of them.
    #[must_use]
    pub fn with_gathered_if_shared(self) -> Self {
        if self.comm.size() > 1 { self.with_gathered() } else { self }
    }

    /// Chooses the exchange for products with a sparse block that references the `touched` rows, identically on all
    /// ranks of `all`: by the load of the busiest rank, unless `requested` is explicit. Collective.
    pub fn choose_exchange(&mut self, all: &Communicator, touched: &[bool], requested: Exchange) {
        let (ranks, k) = (self.comm.size(), self.own.ncols());
        if ranks == 1 || requested == Exchange::Dense {
            return;
        }
        let others = (touched.len() - self.own.nrows()) * k * size_of::<T>();
        let dense = Load::of_collective(ranks, others as u64).busiest(all);
        let sparse = RowExchange::new(&self.comm, touched, &self.cuts, k);
        if sparse.load().busiest(all).is_worthwhile(dense) || requested == Exchange::Sparse {
            self.sparse = Some(sparse);
        }
    }

    /// The exchange of this factor; `None` if no rows are exchanged.
    pub fn exchange(&self) -> Option<Exchange> {
        let exchange = if self.sparse.is_some() { Exchange::Sparse } else { Exchange::Dense };
        (self.comm.size() > 1).then_some(exchange)
    }

    /// The rows of the block after the last gather; the owned rows if there are no others.
    pub fn gathered(&self) -> ArrayView2<'_, T> {
        self.gathered.as_ref().unwrap_or(&self.own).view()
    }

    /// Gathers the rows of the block that its products need: all, or only those that it references. Other rows have
    /// arbitrary finite values. Collective over the ranks that share them.
    pub fn gather_needed(&mut self) -> ArrayView2<'_, T> {
        let first = self.cuts[self.comm.rank()].start;
        if let (Some(sparse), Some(whole)) = (&mut self.sparse, &mut self.gathered) {
            sparse.gather((&self.comm, self.tags.gather), &self.own, first, whole);
            return self.gathered();
        }
        self.gather()
    }

    /// Gathers all rows of the block. Collective over the ranks that share them.
    pub fn gather(&mut self) -> ArrayView2<'_, T> {
        let FactorSide { tags, comm, own, gathered, parts, stage, cuts, .. } = self;
        let Some(whole) = gathered else { return self.gathered() };
        let own = own.entries();
        if stage.is_empty() {
            comm.all_gather(tags.gather, own, parts, whole.entries_mut());
        } else {
            comm.all_gather(tags.gather, own, parts, stage);
            for (r, rows) in cuts.iter().enumerate() {
                for (j, from) in stage[parts.range(r)].chunks_exact(rows.len().max(1)).enumerate() {
                    let mut to = whole.slice_mut(s![rows.clone(), j]);
                    to.row_major_mut().copy_from_slice(from);
                }
            }
        }
        self.gathered()
    }

    /// All rows of the block in a new row-major matrix, for evaluations. Collective.
    pub fn gather_copy(&self) -> Array2<T> {
        let rows = self.cuts.last().map_or(0, |last| last.end);
        let mut all = Array2::zeros((rows, self.own.ncols()));
        let own = self.own.as_standard_layout();
        self.comm.all_gather(self.tags.gather, own.row_major(), &self.parts, all.entries_mut());
        all
    }

    /// Computes the right-hand side of the owned rows. `product` computes this rank's term for all rows of the block.
    /// Collective.
    pub fn sum_rhs(&mut self, product: impl FnOnce(&mut Array2<T>)) {
        let FactorSide { tags, comm, rhs, gathered, parts, stage, cuts, sparse, .. } = self;
        let Some(whole) = gathered else { return product(rhs) };
        product(whole);
        if let Some(sparse) = sparse {
            return sparse.scatter((comm, tags.rhs), whole, cuts[comm.rank()].start, rhs);
        }
        let rhs = rhs.entries_mut();
        if stage.is_empty() {
            comm.reduce_scatter(tags.rhs, whole.entries_mut(), parts, rhs);
        } else {
            for (r, rows) in cuts.iter().enumerate() {
                for (j, to) in stage[parts.range(r)].chunks_exact_mut(rows.len().max(1)).enumerate() {
                    let from = whole.slice(s![rows.clone(), j]);
                    to.copy_from_slice(from.row_major());
                }
            }
            comm.reduce_scatter(tags.rhs, stage, parts, rhs);
        }
    }

    /// Gram matrix of the owned rows.
    pub fn own_gram(&self, all: &Communicator, g: &mut Array2<T>) {
        all.work("Gram", || gram(&self.own.view(), &mut g.view_mut()));
    }

    /// Gram matrix of the whole factor. Collective over `all` ranks.
    pub fn gram(&self, all: &Communicator, g: &mut Array2<T>) {
        self.own_gram(all, g);
        all.sum(self.tags.gram, g.entries_mut());
    }

    /// As [`FactorSide::gram`], overlapped with `work`, which must not use the sum.
    pub fn gram_while<R>(&mut self, all: &Communicator, g: &mut Array2<T>, work: impl FnOnce(&mut Self) -> R) -> R {
        self.own_gram(all, g);
        all.sum_while(self.tags.gram, g.entries_mut(), || work(self))
    }

    /// The owned rows, as a piece of an output or a checkpoint.
    pub fn piece(&self) -> Piece<'_, T> {
        self.piece_of(self.tags.name, &self.own)
    }

    /// The owned rows of another matrix with as many rows as this factor.
    pub fn piece_of<'a>(&self, name: &'static str, own: &'a Array2<T>) -> Piece<'a, T> {
        Piece::shared(name, self.total, self.own_rows.start, own.view())
    }

    /// Reads the owned rows from a checkpoint.
    ///
    /// # Errors
    /// If the checkpoint does not fit.
    pub fn restore(&mut self, saved: &dyn SavedState<T>) -> Result<()> {
        saved.rows(self.tags.name, Owner::Shared, self.own_rows.start, self.own.view_mut())
    }
}
