//! Products of a dense block with thin factors, by loops of our own.
//!
//! MKL reaches two thirds to three quarters of the machine's peak with a factor of some ten columns. Here a register
//! tile of accumulators is filled from panels that stay in the caches, cut so that no number of columns wastes lanes:
//! X·B in [`mul`], XᵀU (of all rows, or of those that a sketch has chosen) in [`tmul`].

mod mul;
mod tmul;

use ndarray::ArrayViewMut1;

use super::Real;
use crate::linalg::threads::even_part;
pub(super) use mul::mul;
pub(super) use tmul::{Rows, tmul};

/// 0..k as (first, size) of blocks of at most `most`, of nearly equal size.
#[inline(always)]
fn blocks(k: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = k.div_ceil(most);
    (0..count).map(move |i| {
        let part = even_part(k, count, i);
        (part.start, part.len())
    })
}

/// `length` elements of a buffer that begin at a cache line.
#[inline(always)]
fn lined<T: Real>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    let line = 64 / size_of::<T>();
    if buffer.len() < length + line {
        buffer.resize(length + line, T::zero());
    }
    let start = buffer.as_ptr().align_offset(64).min(line);
    &mut buffer[start..start + length]
}

/// Overwrites a piece of a column with the first of `from`, or adds them.
#[inline(always)]
fn write<T: Real>(mut column: ArrayViewMut1<T>, from: &[T], add: bool) {
    let put = |(to, &from): (&mut T, &T)| *to = if add { *to + from } else { from };
    match column.as_slice_mut() {
        Some(column) => column.iter_mut().zip(from).for_each(put),
        None => column.iter_mut().zip(from).for_each(put),
    }
}
