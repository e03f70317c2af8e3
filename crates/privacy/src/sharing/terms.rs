//! Each party's terms of sums of products of secret words, which need no message.

use std::ops::Range;

use super::{Components, Computation, Shared, ring};

/// The parties' terms of secret sums, before they are masked.
#[derive(Default)]
pub struct Terms {
    pub(super) length: usize,
    pub(super) parts: Vec<Vec<u64>>,
    /// y_i + y_{i+1} of the factor of a product: x y = x_i (y_i + y_{i+1}) + x_{i+1} y_i at party i.
    sums: Vec<u64>,
}

impl Components {
    fn slices(&self, range: Range<usize>) -> (&[u64], &[u64]) {
        (&self.own[range.clone()], &self.next[range])
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
        let Terms { parts, sums, .. } = self;
        for (terms, (x, y)) in parts.iter_mut().zip(x.parts.iter().zip(&y.parts)) {
            let (own, next) = y.slices(in_y.clone());
            ring::add(sums, own, next);
            ring::products(&mut terms[at..at + in_x.len()], x.slices(in_x.clone()), (sums, own));
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
            let (own, next) = (y.own[place], y.next[place]);
            let y = (own.wrapping_add(next), own);
            let y = if subtract { (y.0.wrapping_neg(), y.1.wrapping_neg()) } else { y };
            ring::scaled(&mut terms[at..at + range.len()], x.slices(range.clone()), y);
        }
    }

    /// Adds the products of the rows of X (rows × width, row-major) with the vectors of F (k × width): entry (l, i) of the
    /// k × rows result is x_i · f_l.
    pub fn add_rows_times(&mut self, at: usize, x: &Shared, f: &Shared, (rows, width, k): (usize, usize, usize)) {
        self.add_by(at, k * rows, x, f, |out, x, f| ring::rows_times(out, x, f, (rows, width, k)));
    }

    /// Adds Σ_i h_li x_i: the k × width result for the rows of X (rows × width) and H (k × rows).
    pub fn add_combined_rows(&mut self, at: usize, x: &Shared, h: &Shared, (rows, width, k): (usize, usize, usize)) {
        self.add_by(at, k * width, x, h, |out, x, h| ring::combined_rows(out, x, h, (rows, width, k)));
    }

    /// Adds the lower triangle, row by row, of the Gram matrix of the k vectors of F (k × width).
    pub fn add_gram(&mut self, at: usize, f: &Shared, (width, k): (usize, usize)) {
        self.add_by(at, k * (k + 1) / 2, f, f, |out, x, y| ring::triangle(out, x, y, (width, k)));
    }

    /// Adds a product to `length` terms of each party.
    fn add_by(
        &mut self,
        at: usize,
        length: usize,
        x: &Shared,
        y: &Shared,
        product: impl Fn(&mut [u64], ring::Pair<'_>, ring::Pair<'_>),
    ) {
        let Terms { parts, sums, .. } = self;
        for (terms, (x, y)) in parts.iter_mut().zip(x.parts.iter().zip(&y.parts)) {
            ring::add(sums, &y.own, &y.next);
            product(&mut terms[at..at + length], (&x.own, &x.next), (sums, &y.own));
        }
    }
}
