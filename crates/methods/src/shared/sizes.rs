//! The sizes on which decisions are based.

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
