//! The sizes on which decisions are based.

use fednmf_base::error::{Error, SharedResult};
use fednmf_data::Statistics;

/// Sizes of entries (root of the mean square of those that are not zero) for which methods work that add constants to products
/// of factors.
pub const MODERATE: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// Refuses data of another size than in `range`, for methods whose result depends on the scale of the data.
///
/// # Errors
/// On all ranks, with the size of the entries.
pub fn check_scale(statistics: &Statistics, range: &std::ops::RangeInclusive<f64>) -> SharedResult<()> {
    let size = (statistics.norm2 / statistics.nonzeros.max(1) as f64).sqrt();
    if range.contains(&size) {
        return Ok(());
    }
    let (wrong, least, most) = (if size < *range.start() { "small" } else { "large" }, range.start(), range.end());
    Err(Error::input(format!(
        "the entries are of the order of {size:.0e}, too {wrong} for this method, which takes {least:.0e} to {most:.0e}; divide the \
         data by the largest entry (--scale max)"
    ))
    .on_all_ranks())
}

/// The inputs of decisions, identical on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    /// Entries that a product visits: the nonzeros of sparse data, else m·n.
    pub entries: f64,
    pub k: usize,
}

impl Sizes {
    /// Number of sweeps of U and of V that pay off for one product. They take up to a quarter of its flops. If a product
    /// costs no more than a few sweeps, the first sweep achieves most. More than eight were no improvement on any data
    /// tried.
    pub fn sweeps(&self) -> [usize; 2] {
        const SHARE: f64 = 0.25;
        const MOST: f64 = 8.0;
        let Sizes { m, n, entries, k } = *self;
        [m, n].map(|rows| {
            let ratio = entries / (rows as f64 * k as f64);
            (1.0 + SHARE * ratio).clamp(1.0, MOST) as usize
        })
    }
}
