//! The exact answer for a block of few different rows or columns, which relaxations and greedy searches may miss.

use std::collections::HashMap;

use fednmf_linalg::{Bits, Real};

use crate::boolean::party_block::Ones;

/// U (rows × k) and V (k × columns) whose Boolean product is the block, if it has at most `most` ≤ k different rows, or
/// columns, with ones.
pub fn factors<T: Real>(x: &Ones<T>, most: usize, k: usize) -> Option<(Bits, Bits)> {
    let (rows, cols) = x.shape();
    if let Some((which, patterns)) = distinct((0..rows).map(|i| x.row(i)), most) {
        return Some((members(&which, rows, k), contents(&patterns, k, cols)));
    }
    let (which, patterns) = distinct((0..cols).map(|j| x.column(j)), most)?;
    Some((contents(&patterns, k, rows).transposed(), members(&which, cols, k).transposed()))
}

/// The number of the pattern of each line with ones, and the patterns in the order in which they appear.
type Distinct<'a> = (Vec<Option<usize>>, Vec<&'a [i32]>);

fn distinct<'a>(lines: impl Iterator<Item = &'a [i32]>, most: usize) -> Option<Distinct<'a>> {
    let (mut numbers, mut patterns, mut which) = (HashMap::new(), Vec::new(), Vec::new());
    for line in lines {
        if line.is_empty() {
            which.push(None);
            continue;
        }
        let number = *numbers.entry(line).or_insert_with(|| {
            patterns.push(line);
            patterns.len() - 1
        });
        if patterns.len() > most {
            return None;
        }
        which.push(Some(number));
    }
    Some((which, patterns))
}

/// lines × k, with a one for the pattern of each line.
fn members(which: &[Option<usize>], lines: usize, k: usize) -> Bits {
    let mut bits = Bits::zeros(lines, k);
    which
        .iter()
        .enumerate()
        .filter_map(|(i, number)| Some((i, (*number)?)))
        .for_each(|(i, number)| bits.set(i, number));
    bits
}

/// k × length, with a pattern in each row.
fn contents(patterns: &[&[i32]], k: usize, length: usize) -> Bits {
    let mut bits = Bits::zeros(k, length);
    for (number, pattern) in patterns.iter().enumerate() {
        pattern.iter().for_each(|&at| bits.set(number, at as usize));
    }
    bits
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::Block;
    use ndarray::Array2;

    use super::*;
    use crate::boolean::cover::Components;

    #[test]
    fn few_different_rows_or_columns_are_exact() {
        let rows = Array2::from_shape_fn((9, 7), |(i, j)| f64::from(u8::from(i % 3 > 0 && (i % 3 + j) % 4 < 2)));
        for x in [rows.clone(), rows.t().to_owned()] {
            let ones = Ones::new(Block::Dense(x.into())).unwrap();
            let (u, v) = factors(&ones, 2, 3).unwrap();
            assert_eq!(Components::new(v).fit(&ones, &u, None).errors(), 0);
            assert!(factors(&ones, 1, 3).is_none());
        }
    }
}
