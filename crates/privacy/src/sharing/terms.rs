//! Each party's terms of sums of products of secret words, which need no message.

use std::ops::Range;

use super::{Components, Computation, Shared};

/// The parties' terms of secret sums, before they are masked.
#[derive(Default)]
pub struct Terms {
    pub(super) length: usize,
    pub(super) parts: Vec<Vec<u64>>,
}

/// Party i's term of x y: x_i (y_i + y_{i+1}) + x_{i+1} y_i.
#[inline(always)]
fn product(x: (u64, u64), y: (u64, u64)) -> u64 {
    x.0.wrapping_mul(y.0.wrapping_add(y.1)).wrapping_add(x.1.wrapping_mul(y.0))
}

/// Σ x y over two pairs of component vectors.
fn dot(x: (&[u64], &[u64]), y: (&[u64], &[u64])) -> u64 {
    let pairs = x.0.iter().zip(x.1).zip(y.0.iter().zip(y.1));
    pairs.fold(0, |sum, ((a, b), (c, d))| sum.wrapping_add(product((*a, *b), (*c, *d))))
}

/// out ← out + x y for a word y.
fn axpy(out: &mut [u64], x: (&[u64], &[u64]), (own, next): (u64, u64)) {
    let sum = own.wrapping_add(next);
    for (out, (a, b)) in out.iter_mut().zip(x.0.iter().zip(x.1)) {
        *out = out.wrapping_add(a.wrapping_mul(sum)).wrapping_add(b.wrapping_mul(own));
    }
}

impl Components {
    fn slices(&self, range: Range<usize>) -> (&[u64], &[u64]) {
        (&self.own[range.clone()], &self.next[range])
    }

    fn at(&self, place: usize) -> (u64, u64) {
        (self.own[place], self.next[place])
    }
}

impl Terms {
    /// Sets `length` zeros for each computing party of this rank.
    pub fn clear(&mut self, computation: &Computation, length: usize) {
        self.length = length;
        self.parts.resize_with(computation.parties.len(), Vec::new);
        for part in &mut self.parts {
            part.clear();
            part.resize(length, 0);
        }
    }

    /// Adds 2^`bits` times the words of `x` in `range`, from `at` on.
    pub fn add_shifted(&mut self, at: usize, x: &Shared, range: Range<usize>, bits: u32) {
        for (terms, x) in self.parts.iter_mut().zip(&x.parts) {
            for (term, x) in terms[at..].iter_mut().zip(&x.own[range.clone()]) {
                *term = term.wrapping_add(x << bits);
            }
        }
    }

    /// Adds a public word to the `count` terms from `at` on.
    pub fn add_public(&mut self, computation: &Computation, at: usize, count: usize, word: u64) {
        for (party, terms) in computation.parties.iter().zip(&mut self.parts) {
            if party.index == 0 {
                terms[at..at + count].iter_mut().for_each(|term| *term = term.wrapping_add(word));
            }
        }
    }

    /// Adds the products x_j y_j, for j in the two ranges.
    pub fn add_products(&mut self, at: usize, (x, in_x): (&Shared, Range<usize>), (y, in_y): (&Shared, Range<usize>)) {
        for (terms, (x, y)) in self.parts.iter_mut().zip(x.parts.iter().zip(&y.parts)) {
            let ((a, b), (c, d)) = (x.slices(in_x.clone()), y.slices(in_y.clone()));
            for (term, ((a, b), (c, d))) in terms[at..].iter_mut().zip(a.iter().zip(b).zip(c.iter().zip(d))) {
                *term = term.wrapping_add(product((*a, *b), (*c, *d)));
            }
        }
    }

    /// Adds ± x_j y for the words of `x` in `range` and the word y at `place`.
    pub fn add_scaled(
        &mut self,
        at: usize,
        (x, range): (&Shared, Range<usize>),
        (y, place): (&Shared, usize),
        subtract: bool,
    ) {
        for (terms, (x, y)) in self.parts.iter_mut().zip(x.parts.iter().zip(&y.parts)) {
            let (own, next) = y.at(place);
            let y = if subtract { (own.wrapping_neg(), next.wrapping_neg()) } else { (own, next) };
            axpy(&mut terms[at..at + range.len()], x.slices(range.clone()), y);
        }
    }

    /// Adds the products of the rows of X (rows × width, row-major) with the vectors of F (k × width): entry (l, i) of the
    /// k × rows result is x_i · f_l.
    pub fn add_rows_times(&mut self, at: usize, x: &Shared, f: &Shared, (rows, width, k): (usize, usize, usize)) {
        for (terms, (x, f)) in self.parts.iter_mut().zip(x.parts.iter().zip(&f.parts)) {
            for i in 0..rows {
                let row = x.slices(i * width..(i + 1) * width);
                for l in 0..k {
                    let term = &mut terms[at + l * rows + i];
                    *term = term.wrapping_add(dot(row, f.slices(l * width..(l + 1) * width)));
                }
            }
        }
    }

    /// Adds Σ_i h_li x_i: the k × width result for the rows of X (rows × width) and H (k × rows).
    pub fn add_combined_rows(&mut self, at: usize, x: &Shared, h: &Shared, (rows, width, k): (usize, usize, usize)) {
        for (terms, (x, h)) in self.parts.iter_mut().zip(x.parts.iter().zip(&h.parts)) {
            for i in 0..rows {
                let row = x.slices(i * width..(i + 1) * width);
                for l in 0..k {
                    axpy(&mut terms[at + l * width..at + (l + 1) * width], row, h.at(l * rows + i));
                }
            }
        }
    }

    /// Adds the lower triangle, row by row, of the Gram matrix of the k vectors of F (k × width).
    pub fn add_gram(&mut self, at: usize, f: &Shared, (width, k): (usize, usize)) {
        for (terms, f) in self.parts.iter_mut().zip(&f.parts) {
            let mut place = at;
            for a in 0..k {
                for b in 0..=a {
                    let vector = |l: usize| f.slices(l * width..(l + 1) * width);
                    terms[place] = terms[place].wrapping_add(dot(vector(a), vector(b)));
                    place += 1;
                }
            }
        }
    }
}
