//! Blocks of columns, buffers that begin at a cache line, and writing a piece of a column.

use ndarray::ArrayViewMut1;

use crate::linalg::Real;
use crate::linalg::threads::even_part;

/// 0..k as (first, size) of blocks of at most `most`, of nearly equal size.
#[inline(always)]
pub fn blocks(k: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = k.div_ceil(most);
    (0..count).map(move |i| {
        let part = even_part(k, count, i);
        (part.start, part.len())
    })
}

/// `length` elements of a buffer that begin at a cache line.
#[inline(always)]
pub fn lined<T: Real>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    let line = 64 / size_of::<T>();
    if buffer.len() < length + line {
        buffer.resize(length + line, T::zero());
    }
    let start = buffer.as_ptr().align_offset(64).min(line);
    &mut buffer[start..start + length]
}

/// Overwrites a piece of a column with the first of `from`, or adds them.
#[inline(always)]
pub fn write<T: Real>(mut column: ArrayViewMut1<T>, from: &[T], add: bool) {
    let put = |(to, &from): (&mut T, &T)| *to = if add { *to + from } else { from };
    match column.as_slice_mut() {
        Some(column) => column.iter_mut().zip(from).for_each(put),
        None => column.iter_mut().zip(from).for_each(put),
    }
}
