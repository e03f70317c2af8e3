//! One rank's part of the server.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::SharedResult;
use fednmf_comm::party_sum::SUMMED;
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload, ServerCommunicator};
use fednmf_linalg::Real;
use fednmf_privacy::Declared;

use crate::federated::rows::fnmf::align::{Aligner, Alignment};

/// A party sends V_j to the server.
pub const UPLOAD: MessageTag = MessageTag::new("V_j to the server", Payload::SharedFactor);
/// The server sends V̄ to a party.
pub const DOWNLOAD: MessageTag = MessageTag::new("mean V to the party", Payload::SharedFactor);
/// Messages between the ranks that implement the server.
pub const INSIDE: MessageTag = MessageTag::new("inside the server", Payload::SharedFactor);

/// The masked sum of all V_j.
pub const SUM_V: MessageTag = MessageTag::new("sum V_j", Payload::SharedFactor);

/// One party's upload, at the part of the server on its rank.
pub(super) struct Upload<T> {
    pub(super) party: usize,
    pub(super) active: bool,
    /// V_j, k × n.
    pub(super) values: Array2<T>,
    /// Its term of the next sum: k × n values, k weights, one loss.
    pub(super) share: Vec<T>,
}

/// The part of the server that runs on one rank.
pub struct Server<T: Real> {
    /// The communicator of the server: what its ranks exchange has already left the parties.
    pub(super) comm: ServerCommunicator,
    pub(super) parties: Parties,
    pub(super) seed: u64,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) uploads: Vec<Upload<T>>,
    /// The parties that participate in this round, equal on all ranks.
    pub(super) active: Vec<usize>,
    pub(super) total: Vec<T>,
    pub(super) aligner: Aligner<T>,
    /// The one-to-one alignment with which the first V̄ is found.
    pub(super) first_aligner: Aligner<T>,
    /// V̄ (k × n), equal on all ranks.
    pub mean: Array2<T>,
}

impl<T: Real> Server<T> {
    /// The part of `comm`'s rank, for k components over n columns.
    pub fn new(
        comm: &PartyCommunicator,
        parties: Parties,
        seed: u64,
        (k, n): (usize, usize),
        aligner: Aligner<T>,
    ) -> Self {
        let length = k * n + k + 1;
        let upload =
            |party| Upload { party, active: false, values: Array2::zeros((k, n)), share: vec![T::zero(); length] };
        Server {
            comm: comm.server(),
            parties,
            seed,
            k,
            n,
            uploads: parties.hosted(comm.rank()).map(upload).collect(),
            active: Vec::with_capacity(parties.count),
            total: vec![T::zero(); length],
            aligner,
            first_aligner: Aligner::new(Alignment::Lap, k),
            mean: Array2::zeros((k, n)),
        }
    }

    /// Opens a round in which the parties of `active` participate; equal on all ranks.
    pub fn open(&mut self, active: impl Iterator<Item = usize>) {
        self.active.clear();
        self.active.extend(active);
        self.active.sort_unstable();
        let active = &self.active;
        self.uploads.iter_mut().for_each(|u| u.active = active.binary_search(&u.party).is_ok());
    }

    /// Whether a party takes part in the open round.
    pub fn participates(&self, party: usize) -> bool {
        self.active.binary_search(&party).is_ok()
    }

    /// Stores V_j (k × n) of a hosted party, and returns true, if it participates in the round. Its `own` components are not
    /// uploaded; they are set to 0.
    pub fn take(&mut self, party: usize, values: &ArrayView2<T>, own: impl Fn(usize) -> bool) -> bool {
        let upload = self.uploads.iter_mut().find(|u| u.party == party && u.active);
        let taken = upload.is_some();
        if let Some(upload) = upload {
            upload.values.assign(values);
            (0..self.k).filter(|&l| own(l)).for_each(|l| upload.values.row_mut(l).fill(T::zero()));
        }
        taken
    }

    /// Records the hosted parties' uploads in the view.
    pub fn show(&self, comm: &PartyCommunicator) {
        for upload in self.uploads.iter().filter(|u| u.active) {
            comm.knows(SUMMED, Some(upload.party), upload.values.dim(), upload.values.as_slice().unwrap_or_default());
        }
    }

    /// Σ_j ½‖V̄ − P_j V_j‖² over the uploads, with P_j by the server's alignment. Collective.
    ///
    /// # Errors
    /// On all ranks, when the values cannot be summed.
    pub fn loss(&mut self) -> SharedResult<f64> {
        self.align_all();
        self.sum()?;
        Ok(self.total[self.k * self.n + self.k].as_f64())
    }

    /// V̄ ← mean of all V_j.
    pub(super) fn average(&mut self) -> SharedResult<()> {
        for upload in self.uploads.iter_mut().filter(|u| u.active) {
            let (values, rest) = upload.share.split_at_mut(self.k * self.n);
            values.iter_mut().zip(&upload.values).for_each(|(x, v)| *x = *v);
            rest.fill(T::one());
        }
        self.sum()?;
        self.divide();
        Ok(())
    }

    /// Every active party's term ← P_j V_j, its aligned rows and its loss.
    pub(super) fn align_all(&mut self) {
        let Server { uploads, aligner, mean, comm, k, n, .. } = self;
        let (k, n) = (*k, *n);
        comm.work("align", || {
            for upload in uploads.iter_mut().filter(|u| u.active) {
                aligner.reset();
                aligner.align(&mean.view(), &upload.values.view());
                let (values, rest) = upload.share.split_at_mut(k * n);
                let mut moved = ArrayViewMut2::from_shape((k, n), values).expect("k x n values");
                aligner.apply(&upload.values.view(), &mut moved);
                let mut loss = 0.0;
                for r in 0..k {
                    let aligned = aligner.is_aligned(r);
                    rest[r] = if aligned { T::one() } else { T::zero() };
                    if aligned {
                        let pairs = mean.row(r).into_iter().zip(moved.row(r));
                        loss += 0.5 * pairs.map(|(a, b)| (a.as_f64() - b.as_f64()).powi(2)).sum::<f64>();
                    }
                }
                rest[k] = T::from_f64(loss);
            }
        });
    }

    /// `total` ← sum of the active parties' terms.
    pub(super) fn sum(&mut self) -> SharedResult<()> {
        let shares = self.uploads.iter().filter(|u| u.active).map(|u| Declared(u.share.as_slice()));
        self.comm.sum_parties(INSIDE, self.parties.count, shares, &mut self.total)
    }

    /// V̄ ← the sums divided by their weights; a row of weight 0 is unchanged. Returns the summed loss, and whether V̄ has
    /// changed.
    pub(super) fn divide(&mut self) -> (f64, bool) {
        let (values, rest) = self.total.split_at(self.k * self.n);
        let mut moved = false;
        for ((mut row, values), weight) in self.mean.rows_mut().into_iter().zip(values.chunks_exact(self.n)).zip(rest) {
            if *weight > T::zero() {
                for (x, v) in row.iter_mut().zip(values) {
                    let new = *v / *weight;
                    moved |= *x != new;
                    *x = new;
                }
            }
        }
        (rest[self.k].as_f64(), moved)
    }

    /// V̄ ← the k × n values in the term of the active party at `position`, on all ranks.
    pub(super) fn publish(&mut self, position: usize) -> SharedResult<()> {
        let party = self.active[position];
        let shares = self.uploads.iter().filter(|u| u.party == party).map(|u| Declared(u.share.as_slice()));
        self.comm.sum_parties(INSIDE, self.parties.count, shares, &mut self.total)?;
        self.mean.iter_mut().zip(&self.total).for_each(|(x, v)| *x = *v);
        Ok(())
    }

    /// The index among this rank's uploads of the active party at `position`, if it is hosted here.
    pub(super) fn local(&self, position: usize) -> Option<usize> {
        let party = self.active[position];
        self.uploads.iter().position(|u| u.party == party)
    }
}

/// Merges B (k × n, with k weights) into A: aligned rows become the weighted mean, the others are unchanged.
pub(super) fn merge<T: Real>(
    aligner: &mut Aligner<T>,
    a: &mut [T],
    b: &ArrayView2<T>,
    b_weights: &[T],
    moved: &mut [T],
) {
    let (k, n) = b.dim();
    let (values, weights) = a.split_at_mut(k * n);
    let mut a = ArrayViewMut2::from_shape((k, n), values).expect("k x n values");
    let mut moved = ArrayViewMut2::from_shape((k, n), &mut moved[..k * n]).expect("k x n values");
    aligner.reset();
    aligner.align(&a.view(), b);
    aligner.apply(b, &mut moved);
    for r in 0..k {
        let plan = aligner.plan();
        let weight: T = plan.row(r).iter().zip(b_weights).map(|(&p, &w)| p * w).sum();
        let both = weights[r] + weight;
        if weight > T::zero() && both > T::zero() {
            let (own, other) = (weights[r] / both, weight / both);
            a.row_mut(r).iter_mut().zip(moved.row(r)).for_each(|(a, &b)| *a = own * *a + other * b);
            weights[r] = both;
        }
    }
}
