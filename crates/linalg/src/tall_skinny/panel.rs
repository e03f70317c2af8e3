//! Blocks of columns, aligned buffers and the write-back of results, for both products.

use ndarray::ArrayViewMut1;

use crate::real::Real;
use crate::threads::even_part;

/// Splits 0..k into blocks (first, size) of nearly equal size, at most `max`.
#[inline(always)]
pub fn column_blocks(k: usize, max: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = k.div_ceil(max);
    (0..count).map(move |i| {
        let part = even_part(k, count, i);
        (part.start, part.len())
    })
}

/// `length` elements of a buffer, aligned to a cache line.
#[inline(always)]
pub fn aligned<T: Real>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    let line = 64 / size_of::<T>();
    if buffer.len() < length + line {
        buffer.resize(length + line, T::zero());
    }
    let start = buffer.as_ptr().align_offset(64).min(line);
    &mut buffer[start..start + length]
}

/// Writes `from` to a part of a column, or adds it.
#[inline(always)]
pub fn write<T: Real>(mut column: ArrayViewMut1<T>, from: &[T], add: bool) {
    let put = |(to, &from): (&mut T, &T)| *to = if add { *to + from } else { from };
    match column.as_slice_mut() {
        Some(column) => column.iter_mut().zip(from).for_each(put),
        None => column.iter_mut().zip(from).for_each(put),
    }
}
