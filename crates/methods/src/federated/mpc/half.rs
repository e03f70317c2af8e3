//! The update of one factor on shares: a HALS sweep with a ridge, one component after the other.
//!
//! With the right-hand side R and the Gram matrix G of the other factor, all components are first divided by G_ll + λ at
//! once: R'_l = R_l / (G_ll + λ) and C_jl = G_jl / (G_ll + λ). Component l is then a_l ← max(0, R'_l − Σ_{j≠l} a_j C_jl), one product,
//! whose truncation is made during the circuit that finds its sign. A half takes 30 + 10 k rounds ([`rounds`]).

use fednmf_privacy::sharing::{
    Computation, Reciprocals, Shared, Terms, Wire, rectify_words, select_words, truncate_words,
};

use super::format::{Format, RIDGE};

/// The range of the inverted numbers, as powers of two: from λ to B² + λ, with a margin for rounding.
const INVERTED: std::ops::Range<i32> = -RIDGE..12;

/// The factor that is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Shared,
    Private,
}

/// Data and factors as shares, and buffers for the updates.
pub struct Shares {
    pub items: usize,
    pub width: usize,
    pub k: usize,
    format: Format,
    /// M/σ (items × width).
    pub data: Shared,
    /// F (k × width) and H (k × items), component by component.
    pub shared: Shared,
    pub private: Shared,
    terms: Terms,
    /// R and the lower triangle of G; then R' and C.
    sums: Shared,
    divided: Shared,
    diagonal: Shared,
    inverses: Shared,
    reciprocals: Reciprocals,
    truncated: Shared,
    component: Shared,
}

/// The place of (a, b), a ≥ b, in a lower triangle.
fn triangle(a: usize, b: usize) -> usize {
    a * (a + 1) / 2 + b
}

/// Rounds of an update with k components.
pub fn rounds(k: usize) -> usize {
    30 + 10 * k
}

/// The words that the three parties together send in the update of a factor with `rows` rows.
pub fn words(rows: usize, k: usize) -> usize {
    let steps = (INVERTED.end - INVERTED.start - 1) as usize;
    truncate_words(k * rows + triangle(k, 0))
        + select_words(k * steps)
        + 8 * truncate_words(k)
        + truncate_words(k * (rows + k))
        + k * rectify_words(rows)
}

impl Shares {
    /// Zeros for the data and the factors.
    pub fn new(computation: &Computation, (items, width): (usize, usize), k: usize, format: Format) -> Self {
        Shares {
            items,
            width,
            k,
            format,
            data: computation.zeros(items * width),
            shared: computation.zeros(k * width),
            private: computation.zeros(k * items),
            terms: Terms::default(),
            sums: Shared::default(),
            divided: Shared::default(),
            diagonal: computation.zeros(k),
            inverses: Shared::default(),
            reciprocals: Reciprocals::new(computation, k, format.bits, INVERTED),
            truncated: Shared::default(),
            component: Shared::default(),
        }
    }

    /// Updates a factor.
    pub fn update(&mut self, side: Side, computation: &mut Computation, wire: &mut dyn Wire) {
        let Shares { items, width, k, format, data, shared, private, terms, sums, divided, .. } = self;
        let (items, width, k, bits) = (*items, *width, *k, format.bits);
        let (rows, other_rows) = if side == Side::Shared { (width, items) } else { (items, width) };
        let (own, other) = if side == Side::Shared { (shared, &*private) } else { (private, &*shared) };

        terms.clear(computation, k * rows + triangle(k, 0));
        match side {
            Side::Shared => terms.add_combined_rows(0, data, other, (items, width, k)),
            Side::Private => terms.add_rows_times(0, data, other, (items, width, k)),
        }
        terms.add_gram(k * rows, other, (other_rows, k));
        computation.truncate(terms, bits, sums, wire);

        let gram = |a: usize, b: usize| k * rows + triangle(a.max(b), a.min(b));
        for l in 0..k {
            self.diagonal.copy_from(l, sums, gram(l, l)..gram(l, l) + 1);
        }
        computation.add_public(&mut self.diagonal, 0..k, format.ridge());
        self.reciprocals.invert(computation, &self.diagonal, &mut self.inverses, wire);

        terms.clear(computation, k * (rows + k));
        for l in 0..k {
            terms.add_scaled(l * rows, (sums, l * rows..(l + 1) * rows), (&self.inverses, l), false);
            for j in 0..k {
                terms.add_scaled(k * rows + l * k + j, (sums, gram(j, l)..gram(j, l) + 1), (&self.inverses, l), false);
            }
        }
        computation.truncate(terms, bits, divided, wire);

        for l in 0..k {
            terms.clear(computation, rows);
            terms.add_shifted(0, divided, l * rows..(l + 1) * rows, bits);
            for j in (0..k).filter(|j| *j != l) {
                terms.add_scaled(0, (own, j * rows..(j + 1) * rows), (divided, k * rows + l * k + j), true);
            }
            computation.rectify(terms, bits, (&mut self.truncated, &mut self.component), wire);
            own.copy_from(l * rows, &self.component, 0..rows);
        }
    }
}
