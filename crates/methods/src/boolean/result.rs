//! Output and measures of the Boolean factors, common to all methods.

use ndarray::Array2;

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_data::Loaded;
use fednmf_data::state::Piece;
use fednmf_linalg::{Bits, Block, Real};
use fednmf_privacy::Private;

use crate::Measures;
use crate::boolean::cover::{Components, Counts, Signal, rounded};
use crate::boolean::party_block::Ones;

fednmf_base::words! {
    /// Rows of U for the shared components.
    pub enum Refit {
        /// Each row of the data takes those that cover it best
        Greedy = "greedy",
        /// Those of the factorisation itself
        None = "none",
    }
}
/// Numbers of wrong, covered and correctly covered entries, summed over the parties.
pub const COUNTS: MessageTag = MessageTag::of_evaluation("evaluation: counts and RMSD", Payload::Scalar);

/// A party's index and data.
pub struct Client<T: Real> {
    pub party: usize,
    pub x: Private<Ones<T>>,
    signal: Option<Signal>,
}

/// The hosted parties with their blocks. Collective.
///
/// # Errors
/// On all ranks, if an entry is neither 0 nor 1; the message names the party.
pub fn clients<T: Real>(data: Loaded<T>, parties: Parties, comm: &PartyCommunicator) -> SharedResult<Vec<Client<T>>> {
    let hosted = parties.hosted(comm.rank());
    let n = data.header.cols;
    let client = |(party, block): (usize, Block<T>)| {
        let signal = data.signal.as_ref().map(|tiles| {
            let count = tiles.cols.iter().flatten().max().map_or(0, |&t| t as usize + 1);
            let mut bits = Bits::zeros(count, n);
            for (j, of) in tiles.cols.iter().enumerate() {
                of.iter().for_each(|&t| bits.set(t as usize, j));
            }
            Signal { rows: tiles.rows[data.cuts.rows[party].clone()].to_vec(), tiles: Components::new(bits) }
        });
        let x = Ones::new(block).map_err(|e| e.at(format!("the data of party {party}")))?;
        Ok(Client { party, x: Private::new(x), signal })
    };
    comm.agree_on_error(hosted.zip(data.blocks).map(client).collect::<Result<_>>())
}

/// Measures of a Boolean fit from the numbers of ones: of the data, of the product, and of both.
pub fn agreement(ones: f64, covered: f64, both: f64) -> Measures {
    let share = |a: f64, of: f64| if of > 0.0 { a / of } else { 1.0 };
    vec![
        ("rel_error", share(ones + covered - 2.0 * both, ones).sqrt()),
        ("f1", share(2.0 * both, ones + covered)),
        ("recall", share(both, ones)),
        ("similarity", share(both, ones + covered - both)),
    ]
}

/// The fit of the factors to one party's rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fits {
    /// V̂ with the U_i of the factorisation itself.
    pub local: Counts,
    /// V̂ with U_i refitted.
    pub refit: Counts,
    /// The party's own components, before the merge, with its own U_i.
    pub own: Option<Counts>,
}

/// The Boolean factors of the output, and their fit.
pub struct Outcome<T> {
    /// (m, n)
    shape: (usize, usize),
    refit: bool,
    /// V̂, n × k.
    v: Array2<T>,
    /// U_i of each hosted party, rows × k.
    u: Vec<Array2<T>>,
    fits: Vec<Fits>,
}

impl<T: Real> Outcome<T> {
    /// Zero factors for m × n data. With `refit` the output contains the refitted U_i.
    pub fn new(clients: &[Client<T>], shape: (usize, usize), k: usize, refit: bool) -> Self {
        let u = clients.iter().map(|c| Array2::zeros((c.x.shape().0, k))).collect();
        Outcome { shape, refit, v: Array2::zeros((shape.1, k)), u, fits: vec![Fits::default(); clients.len()] }
    }

    /// Sets the shared components and, for each hosted party, its Boolean U_i (rows × k) and, if there are any, the fit of
    /// its own components.
    pub fn set(
        &mut self,
        clients: &[Client<T>],
        shared: &Components,
        locals: impl Iterator<Item = (Bits, Option<Counts>)>,
    ) {
        write(&shared.bits().transposed(), &mut self.v);
        let all = clients.iter().zip(locals).zip(&mut self.u).zip(&mut self.fits);
        for (((client, (mut u, own)), out), fits) in all {
            let signal = client.signal.as_ref();
            let local = shared.fit(&client.x, &u, signal);
            if !self.refit {
                write(&u, out);
            }
            let refit = shared.refit(&client.x, &mut u, signal);
            if self.refit {
                write(&u, out);
            }
            *fits = Fits { local, refit, own };
        }
    }

    /// The statistics of all parties together. Collective.
    ///
    /// # Errors
    /// As [`PartySum::sum`].
    pub fn measures(&self, party_sum: &mut PartySum, comm: &PartyCommunicator, parties: usize) -> Result<Measures> {
        let shares: Vec<[f64; 9]> = self.fits.iter().zip(&self.u).map(|(f, u)| self.share(f, u.nrows())).collect();
        let mut sum = [0.0; 9];
        // No statistic of a party exceeds the number of entries, so no headroom is needed above it.
        let max = party_sum.without_headroom(self.shape.0 as f64 * self.shape.1 as f64);
        party_sum.sum(comm, COUNTS, max, shares.iter().map(<[f64; 9]>::as_slice), &mut sum)?;
        let [ones, covered, both, signal, signal_both, local, refit, own, own_parties] = sum;
        let errors = ones + covered - 2.0 * both;
        let mut all = agreement(ones, covered, both);
        all.extend([
            ("rmsd", local),
            ("rmsd_refit", refit),
            ("rmsd_mean", (if self.refit { refit } else { local }) / parties as f64),
            ("rmsd_overall", (errors / (self.shape.0 as f64 * self.shape.1 as f64)).sqrt()),
        ]);
        if own_parties > 0.0 {
            all.push(("rmsd_own", own));
        }
        if signal > 0.0 {
            all.push(("f1_signal", 2.0 * signal_both / (signal + covered)));
        }
        Ok(all)
    }

    /// The contribution of a party with this number of rows to the sums.
    fn share(&self, f: &Fits, rows: usize) -> [f64; 9] {
        let out = if self.refit { &f.refit } else { &f.local };
        let entries = rows as f64 * self.shape.1 as f64;
        let rmsd = |c: &Counts| if entries > 0.0 { (c.errors() as f64 / entries).sqrt() } else { 0.0 };
        [
            out.ones as f64,
            out.covered as f64,
            out.both as f64,
            out.signal as f64,
            out.signal_both as f64,
            rmsd(&f.local),
            rmsd(&f.refit),
            f.own.as_ref().map_or(0.0, rmsd),
            f64::from(u8::from(f.own.is_some())),
        ]
    }

    /// The pieces of the output: the shared `V` (n × k), which all ranks know, and each party's own `U` (rows × k).
    pub fn factors(&self, clients: &[Client<T>]) -> Vec<Piece<'_, T>> {
        let mut all = vec![Piece::shared("V", self.v.nrows(), 0, self.v.view())];
        all.extend(clients.iter().zip(&self.u).map(|(client, u)| Piece::private("U", client.party, u.view())));
        all
    }
}

fn write<T: Real>(bits: &Bits, out: &mut Array2<T>) {
    out.fill(T::zero());
    for (i, mut row) in out.rows_mut().into_iter().enumerate() {
        bits.ones(i).for_each(|c| row[c] = T::one());
    }
}

/// Rounds a factor (rows × k) at ½ to bits of the same shape.
pub fn round_rows<T: Real>(u: &Array2<T>) -> Bits {
    rounded(&u.t())
}
