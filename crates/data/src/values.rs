//! The element type of an input, as far as it determines the required precision.

use serde::{Deserialize, Serialize};

/// The kind of the entries, in ascending order of the precision that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Values {
    /// Whole numbers: counts, pixels, patterns. f32 holds those up to 2²⁴ exactly, and larger ones to 24 bits.
    Whole,
    /// Numbers in f32 or f16.
    Single,
    /// Numbers in f64, or in text with decimals.
    Double,
}
