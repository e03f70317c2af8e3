//! A hierarchical barycenter: neighbours are merged pairwise, then the pairs, up a binary tree over the active parties. Its
//! shape depends only on the parties. A rank holds its own parties' matrices and one matrix of another rank at a time.

use ndarray::ArrayView2;

use fednmf_base::error::SharedResult;
use fednmf_comm::ServerCommunicator;
use fednmf_linalg::{ContiguousMut, Real};
use fednmf_privacy::{Declared, DeclaredMut};

use super::server::{INSIDE, Server, merge};
use crate::federated::rows::fnmf::align::Aligner;

/// V̄ ← the root of the tree.
pub fn run<T: Real>(server: &mut Server<T>) -> SharedResult<()> {
    let (k, n) = (server.k, server.n);
    let length = k * n + k;
    for upload in server.uploads.iter_mut().filter(|u| u.active) {
        upload.share[k * n..].fill(T::one());
        upload.share.iter_mut().zip(&upload.values).for_each(|(x, v)| *x = *v);
    }
    let count = server.active.len();
    let mut step = 1;
    while step < count {
        for left in (0..count - step).step_by(2 * step) {
            let right = left + step;
            match (server.local(left), server.local(right)) {
                (Some(a), Some(b)) => {
                    let (low, high) = server.uploads.split_at_mut(b);
                    fold(
                        &server.comm,
                        &mut server.aligner,
                        &mut server.total,
                        &mut low[a].share,
                        &high[0].share,
                        (k, n),
                    );
                }
                (Some(a), None) => {
                    let from = server.parties.host(server.active[right]);
                    // The values of this upload are in its term by now, so their memory can receive the other upload.
                    let upload = &mut server.uploads[a];
                    let (other, weights) = (upload.values.row_major_mut(), &mut server.total);
                    server.comm.receive(INSIDE, from, DeclaredMut(other));
                    server.comm.receive(INSIDE, from, DeclaredMut(&mut weights[k * n..length]));
                    let (moved, weights) = server.total.split_at_mut(k * n);
                    let (share, values) = (&mut upload.share[..length], upload.values.view());
                    let (comm, aligner) = (&server.comm, &mut server.aligner);
                    comm.work("align", || merge(aligner, share, &values, &weights[..k], moved));
                }
                (None, Some(b)) => {
                    let to = server.parties.host(server.active[left]);
                    let (values, weights) = server.uploads[b].share[..length].split_at(k * n);
                    server.comm.send(INSIDE, to, Declared(values));
                    server.comm.send(INSIDE, to, Declared(weights));
                }
                (None, None) => {}
            }
        }
        step *= 2;
    }
    server.publish(0)
}

/// Merges the term of one upload into that of another of the same rank.
fn fold<T: Real>(
    comm: &ServerCommunicator,
    aligner: &mut Aligner<T>,
    moved: &mut [T],
    a: &mut [T],
    b: &[T],
    (k, n): (usize, usize),
) {
    let (values, weights) = b[..k * n + k].split_at(k * n);
    let values = ArrayView2::from_shape((k, n), values).expect("k x n values");
    comm.work("align", || merge(aligner, &mut a[..k * n + k], &values, weights, moved));
}
