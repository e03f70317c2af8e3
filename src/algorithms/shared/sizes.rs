//! The sizes that decisions are made from.

/// What decisions are made from, the same on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    /// Entries that a product visits: the nonzeros of sparse data, else m·n.
    pub entries: f64,
    pub k: usize,
}
