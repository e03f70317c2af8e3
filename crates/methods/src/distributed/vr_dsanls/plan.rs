//! Parameters derived from the sizes: sketches, sweeps, epochs.

use fednmf_base::error::Result;
use fednmf_linalg::sketch;

use super::arguments::VrDsanls;
use crate::distributed::dsanls::sketch_sizes;
use crate::shared::alternating::Sizes;

/// Maximum length of an epoch that `auto` chooses.
pub const MOST: usize = 12;
/// Length of the first epoch, which follows the exact iterations at the start.
const FIRST: usize = 4;
/// Number of exact iterations at the start, where the error decreases most.
pub const EXACT_FIRST: usize = 2;

/// Number of words that the ranks sum for one half of a sampled iteration.
pub fn message_words(d: usize, k: usize) -> usize {
    d * (k + sketch::WORDS) + 2 * k * k
}

/// The quantities that follow from the sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Number of draws for U's and for V's update.
    pub draws: [usize; 2],
    /// Number of sweeps of U and of V.
    pub exact_sweeps: [usize; 2],
    pub sampled_sweeps: [usize; 2],
    /// Flops of an exact and of a sampled iteration.
    pub flops: [f64; 2],
    /// The given epoch length, or that of the first epoch.
    pub epoch: usize,
    pub adapts: bool,
}

impl VrDsanls {
    /// The plan for a matrix.
    ///
    /// # Errors
    /// If a sketch size exceeds the number of rows to draw from.
    pub fn plan(&self, sizes: &Sizes) -> Result<Plan> {
        /// Sampled iterations that cost more than this fraction of an exact one are not worth their noise.
        const WORTH: f64 = 0.6;
        let Sizes { m, n, entries, k } = *sizes;
        let draws = match self.sketch_size.given() {
            Some(sizes) => {
                let (d_u, d_v) = sketch_sizes(Some(sizes), (m, n), k)?;
                [d_u, d_v]
            }
            None => [n, m].map(|total| (total / 20).max(5 * k).clamp(1, total.max(1))),
        };
        let shares = [draws[0] as f64 / n.max(1) as f64, draws[1] as f64 / m.max(1) as f64];
        let exact_sweeps = self.inner_sweeps.given().map_or_else(|| sizes.sweeps(), |n| [n; 2]);
        // As many sweeps as cost as much as the sampled product, up to three: later ones gain little with a noisy
        // right-hand side.
        let [u, v] = [(m, shares[0]), (n, shares[1])]
            .map(|(rows, share)| (share * entries / (rows as f64 * k as f64)).clamp(1.0, 3.0) as usize);
        let fewer = [u.min(exact_sweeps[0]), v.min(exact_sweeps[1])];
        let sampled_sweeps = self.inner_sweeps.given().map_or(fewer, |n| [n; 2]);
        let rows = [m as f64, n as f64];
        let row_wise = |sweeps: [usize; 2], grams: [f64; 2]| -> f64 {
            let square = 2.0 * (k * k) as f64;
            (0..2).map(|i| square * rows[i] * (sweeps[i] as f64 + grams[i])).sum()
        };
        let product = 2.0 * entries * k as f64;
        let exact = 2.0 * product + row_wise(exact_sweeps, [2.0, 1.0]);
        let sampled = product * (shares[0] + shares[1]) + row_wise(sampled_sweeps, [3.0; 2]);
        let worth = sampled < WORTH * exact;
        let epoch = self.epoch.given().unwrap_or(if worth { FIRST } else { 1 });
        let adapts = self.epoch.given().is_none() && worth;
        Ok(Plan { draws, exact_sweeps, sampled_sweeps, flops: [exact, sampled], epoch, adapts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_is_for_products_that_cost_more_than_sweeps() {
        let plan = |m, n, entries| VrDsanls::default().plan(&Sizes { m, n, entries, k: 20 }).expect("fits");
        let dense = plan(10_000, 784, 7_840_000.0);
        assert_eq!((dense.epoch, dense.adapts, dense.draws), (FIRST, true, [100, 500]));
        let words = plan(3430, 6906, 353_160.0);
        assert_eq!((words.epoch, words.adapts), (1, false));
    }
}
