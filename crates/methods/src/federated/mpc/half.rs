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

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use fednmf_linalg::random::{mix, secret_rng};
    use fednmf_privacy::sharing::{COMPUTING, Keys, Mail, Purpose, shares_of};

    use super::*;

    /// All three parties are here.
    struct Here;

    impl Wire for Here {
        fn exchange(&mut self, mail: &mut Mail, _: Purpose) {
            (0..COMPUTING * COMPUTING).for_each(|pair| mail.deliver(pair / COMPUTING, pair % COMPUTING));
        }
    }

    /// One sweep of HALS with the ridge in floating point: f from h, for the products `rhs` of the data with h.
    fn sweep(f: &mut Array2<f64>, h: &Array2<f64>, rhs: &Array2<f64>) {
        let g = h.dot(&h.t());
        let ridge = 2f64.powi(-RIDGE);
        for l in 0..f.nrows() {
            for i in 0..f.ncols() {
                let others: f64 = (0..f.nrows()).filter(|j| *j != l).map(|j| f[(j, i)] * g[(j, l)]).sum();
                f[(l, i)] = ((rhs[(l, i)] - others) / (g[(l, l)] + ridge)).max(0.0);
            }
        }
    }

    /// The objective, ½ ‖X − HᵀF‖² + λ/2 (‖F‖² + ‖H‖²).
    fn objective(x: &Array2<f64>, f: &Array2<f64>, h: &Array2<f64>) -> f64 {
        let squares = |a: &Array2<f64>| a.iter().map(|x| x * x).sum::<f64>();
        0.5 * (squares(&(x - &h.t().dot(f))) + 2f64.powi(-RIDGE) * (squares(f) + squares(h)))
    }

    /// For data that come near the bounds of the proof all numbers are within them, and the objective is not above that of floating
    /// point: a number that overflowed would be negative, or 2¹⁴ and more.
    #[test]
    fn extreme_data_do_not_overflow() {
        let (items, width) = (12, 9);
        let at = |i: usize, j: usize| i * width + j;
        let alone = |big: f64| {
            let mut x = vec![1.0; items * width];
            x[at(3, 4)] = big;
            x
        };
        let column =
            |j: usize| (0..items * width).map(move |place| if place % width == j { 1.0 } else { 0.0 }).collect();
        let random: Vec<f64> = (0..items * width).map(|place| (mix(place as u64) >> 40) as f64).collect();
        let cases: Vec<Vec<f64>> = vec![alone(1e6), alone(0.0), vec![1.0; items * width], column(2), random];
        for (case, mut x) in cases.into_iter().enumerate() {
            let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
            x.iter_mut().for_each(|x| *x /= norm);
            // A factor of norm 2⁻⁶ = √λ gives the other one its largest norm.
            for (k, length) in [(1, 2f64.powi(-6)), (3, 2f64.powi(-6)), (3, 1.0), (128, 0.1)] {
                let format = Format::for_components(k);
                let entry = length / (items as f64).sqrt();
                let mut computation =
                    Computation::new(&Keys::draw(0..COMPUTING, Some(case as u64)).unwrap(), &mut Here);
                let mut shares = Shares::new(&computation, (items, width), k, format);
                let words: Vec<u64> = x.iter().map(|x| format.encode_entry(*x).unwrap()).collect();
                let mut rng = secret_rng(Some(1), 2).unwrap();
                for (index, message) in shares_of(&words, &mut rng).iter().enumerate() {
                    computation.accept(index, message, &mut shares.data, 0..words.len());
                }
                shares.private = computation.public(&vec![format.encode(entry).unwrap(); k * items]);
                let data = Array2::from_shape_vec((items, width), x.clone()).unwrap();
                let (mut f, mut h) = (Array2::zeros((k, width)), Array2::from_elem((k, items), entry));
                for (iteration, side) in
                    [Side::Shared, Side::Private, Side::Shared, Side::Private].into_iter().enumerate()
                {
                    computation.begin(iteration);
                    shares.update(side, &mut computation, &mut Here);
                    match side {
                        Side::Shared => sweep(&mut f, &h, &h.dot(&data)),
                        Side::Private => sweep(&mut h, &f, &f.dot(&data.t())),
                    }
                }
                let [found_f, found_h] = [(&shares.shared, width), (&shares.private, items)].map(|(found, rows)| {
                    let words = computation.open(found, &mut Here).unwrap();
                    let numbers: Vec<f64> = words.iter().map(|word| format.decode(*word)).collect();
                    assert!(numbers.iter().all(|x| (0.0..=64.0).contains(x)), "case {case}, k = {k}: {numbers:?}");
                    Array2::from_shape_vec((k, rows), numbers).unwrap()
                });
                let [exact, found] = [objective(&data, &f, &h), objective(&data, &found_f, &found_h)];
                assert!(found < exact + 1e-3, "case {case}, k = {k}: {found} {exact}");
            }
        }
    }
}
