//! The interface of a sketch S: the product SᵀF with a factor whose rows are distributed over ranks, and the right-hand
//! side (MS)(SᵀV) of the sketched subproblem.

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::random::Stream;
use crate::{Block, Real};

/// A sketch S (N × d) with E[SSᵀ] = I, drawn anew in each iteration.
pub trait Sketch<T: Real> {
    /// Number of columns d of S.
    fn size(&self) -> usize;

    /// Draws S from a public stream.
    fn draw(&mut self, stream: &Stream);

    /// The selected rows of the last draw, ascending, if S selects rows without mixing them: column j of S then has a single
    /// entry, in row `picked()[j]`.
    fn picked(&self) -> Option<&[usize]> {
        None
    }

    /// out (d × k) = S[rows, :]ᵀ F for the rows `first_row ..` of S that correspond to the rows F of the factor.
    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>);

    /// out (cols × k) = Xᵀ S B for X (N × cols) and B (d × k); B and out in the order of the block.
    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>);
}
