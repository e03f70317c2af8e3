//! Protection of the parties' V_j before the upload: alignment, noise, masks.

use ndarray::ArrayViewMut2;

use fednmf_base::error::Result;
use fednmf_comm::PartyCommunicator;
use fednmf_comm::party_sum::PartySum;
use fednmf_linalg::{Contiguous, ContiguousMut, Real};
use fednmf_privacy::{Declared, Protection, Releases, Seeded};

use super::server::{SUM_V, Server, UPLOAD};
use crate::federated::rows::fnmf::align::Aligner;

impl<T: Real> Server<T> {
    /// The upload of a hosted party ← P_j V_j, aligned to V̄ by the party itself.
    pub fn align_to_mean(&mut self, party: usize, aligner: &mut Aligner<T>) {
        let (k, n) = (self.k, self.n);
        for upload in self.uploads.iter_mut().filter(|u| u.party == party) {
            let mut moved = ArrayViewMut2::from_shape((k, n), &mut upload.share[..k * n]).expect("k x n values");
            aligner.reset();
            aligner.align(&self.mean.view(), &upload.values.view());
            aligner.apply(&upload.values.view(), &mut moved);
            upload.values.assign(&moved);
        }
    }

    /// Sends the uploads of the hosted parties to the server: with noise, if there are `releases`; if `relative`, the
    /// difference from V̄ is released. If they are not `trained`, they are public starts. Returns the protection.
    pub fn upload(
        &mut self,
        comm: &PartyCommunicator,
        releases: Option<&mut Releases>,
        trained: bool,
        relative: bool,
    ) -> Protection {
        let known = relative.then(|| self.mean.row_major());
        let active = self.uploads.iter_mut().enumerate().filter(|(_, upload)| upload.active);
        let values = active.map(|(hosted, upload)| (hosted, upload.values.row_major_mut()));
        match releases {
            Some(releases) => {
                let noised: Vec<_> = comm
                    .work("noise", || values.map(|(hosted, values)| releases.release(hosted, values, known)).collect());
                comm.record_upload(UPLOAD, noised.iter())
            }
            None if trained => comm.record_upload(UPLOAD, values.map(|(_, values)| Declared(values))),
            None => comm.record_upload(UPLOAD, values.map(|(_, values)| Seeded(values))),
        }
    }

    /// V̄ ← max(V̄, 0): noise may have made entries negative.
    pub fn clamp_nonnegative(&mut self) {
        self.mean.mapv_inplace(|x| x.max(T::zero()));
    }

    /// V̄ ← mean of the uploads, by a masked sum over all parties: those that do not participate in this round add zeros,
    /// and every party adds its share of the noise. `scale` is the expected size of an entry. Collective.
    ///
    /// # Errors
    /// As [`PartySum::sum`].
    pub fn masked_mean(
        &mut self,
        comm: &PartyCommunicator,
        party_sum: &mut PartySum,
        releases: Option<&mut Releases>,
        relative: bool,
        scale: f64,
    ) -> Result<()> {
        let Server { uploads, mean, active, total, k, n, .. } = self;
        let total = &mut total[..*k * *n];
        match releases {
            Some(releases) => {
                let known = relative.then(|| mean.row_major());
                let fill = |hosted: usize, out: &mut [u64]| {
                    let upload = &uploads[hosted];
                    let message = upload.active.then(|| upload.values.row_major());
                    releases.release_words(hosted, message, known, out)
                };
                let sum = party_sum.sum_noised_words(comm, SUM_V, total.len(), fill);
                let count = active.len().max(1) as f64;
                // The sum is of differences from V̄, or of the V_j.
                let known = if releases.is_relative() && relative { T::one() } else { T::zero() };
                for (x, sum) in mean.iter_mut().zip(sum) {
                    *x = (known * *x + T::from_f64(releases.decode(*sum) / count)).max(T::zero());
                }
            }
            None => {
                uploads.iter_mut().filter(|u| !u.active).for_each(|u| u.values.fill(T::zero()));
                let shares = uploads.iter().map(|u| u.values.row_major());
                party_sum.sum(comm, SUM_V, scale, shares, total)?;
                // If no party of this round is in the sum, V̄ stays.
                let count = active.iter().filter(|&&party| party_sum.includes(party)).count();
                if count > 0 {
                    mean.iter_mut().zip(&*total).for_each(|(x, sum)| *x = *sum / T::from_f64(count as f64));
                }
            }
        }
        Ok(())
    }
}
