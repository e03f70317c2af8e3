//! A greedy barycenter: the parties are aligned, one after the other, to the mean of those before them, and merged into it.
//! There is one pass; the running mean is sent from rank to rank.

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;
use fednmf_privacy::{Declared, DeclaredMut};

use super::server::{INSIDE, Server, merge};

/// V̄ ← the running mean after the last active party.
pub fn run<T: Real>(server: &mut Server<T>) -> SharedResult<()> {
    let (k, n) = (server.k, server.n);
    let length = k * n + k;
    let me = server.comm.rank();
    let host = |server: &Server<T>, position: usize| server.parties.host(server.active[position]);
    for position in 0..server.active.len() {
        let Some(at) = server.local(position) else { continue };
        if position == 0 {
            let upload = &mut server.uploads[at];
            upload.share[k * n..].fill(T::one());
            upload.share.iter_mut().zip(&upload.values).for_each(|(x, v)| *x = *v);
        } else {
            let from = host(server, position - 1);
            if from == me {
                let before = server.local(position - 1).expect("hosted here");
                let (left, right) = server.uploads.split_at_mut(at);
                right[0].share[..length].copy_from_slice(&left[before].share[..length]);
            } else {
                server.comm.receive(INSIDE, from, DeclaredMut(&mut server.uploads[at].share[..length]));
            }
            // `total` begins with space for the sent rows and ends with k ones.
            let (moved, ones) = server.total.split_at_mut(k * n);
            ones.fill(T::one());
            let upload = &mut server.uploads[at];
            let share = &mut upload.share[..length];
            let (comm, aligner) = (&server.comm, &mut server.aligner);
            comm.work("align", || merge(aligner, share, &upload.values.view(), &ones[..k], moved));
        }
        if position + 1 < server.active.len() {
            let next = host(server, position + 1);
            if next != me {
                server.comm.send(INSIDE, next, Declared(&server.uploads[at].share[..length]));
            }
        }
    }
    server.publish(server.active.len() - 1)
}
