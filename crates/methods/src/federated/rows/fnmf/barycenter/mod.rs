//! The server (`SERVER` of Alg. 2): one V̄ from the uploads of the parties.
//!
//! The ranks together implement the server. Each rank runs the part of the server for its own parties: a party's upload
//! stays on its rank and is aligned there, and only sums are sent between ranks. No rank ever holds all V_j. A party
//! sends and receives k n words per round, however many iterations the server takes.

mod fixed_point;
mod fuzzy;
mod greedy;
mod kmeans;
mod private;
mod server;
mod tree;

pub use server::{DOWNLOAD, INSIDE, SUM_V, Server, UPLOAD};

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;

fednmf_base::words! {
    /// How the server finds V̄.
    pub enum Barycenter {
        /// Align and average until V̄ converges
        FixedPoint = "fixed-point",
        /// One party after the other
        Greedy = "greedy",
        /// Pairs, then pairs of pairs
        Tree = "tree",
        /// On all components
        Kmeans = "kmeans",
        /// On all components
        Fuzzy = "fuzzy-cmeans",
        /// Parties align their own, and only the mean is needed: for --secure-sum
        Mean = "mean",
    }
}

impl<T: Real> Server<T> {
    /// Computes the new V̄ from the uploads. `round` counts from 0. Collective.
    ///
    /// # Errors
    /// On all ranks, if the values cannot be summed.
    pub fn aggregate(&mut self, kind: Barycenter, round: usize) -> SharedResult<()> {
        if self.active.is_empty() {
            return Ok(());
        }
        match kind {
            Barycenter::Mean => self.average(),
            Barycenter::FixedPoint => fixed_point::run(self, round == 0),
            Barycenter::Greedy => greedy::run(self),
            Barycenter::Tree => tree::run(self),
            Barycenter::Kmeans => kmeans::run(self, round),
            Barycenter::Fuzzy => fuzzy::run(self, round == 0),
        }
    }
}
