//! Rare entries: entries that only one or a few of the hidden vectors have, such as a rare diagnosis among rows.
//!
//! Row j of a sum M_hᵀ W (d × k) is the sum over the hidden vectors i of their entry j times w_i. If none has the entry, the
//! row is zero, or decays from the start, so the sum shows whether anyone has it. If one vector has it, row j is that vector's
//! loadings w_i up to a factor. As the sums are nearly a factorisation of the data, sums times these loadings estimate its
//! other entries.

use ndarray::{Array1, ArrayView2, Axis, s};

use super::membership::auc;

/// An entry is rare if at most this many hidden vectors have it.
pub const FEW: usize = 3;

/// Entries that no known vector has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rare {
    /// Entries that 1 to [`FEW`] hidden vectors have, each with the first of these.
    pub carried: Vec<(usize, usize)>,
    /// Entries that no hidden vector has.
    pub absent: Vec<usize>,
}

impl Rare {
    /// The entries of hidden vectors (h × d) that no known one (r × d) has.
    pub fn of(hidden: &ArrayView2<f64>, known: &ArrayView2<f64>) -> Rare {
        let mut rare = Rare::default();
        for (j, (hidden, known)) in hidden.columns().into_iter().zip(known.columns()).enumerate() {
            if known.iter().any(|x| *x != 0.0) {
                continue;
            }
            let carriers: Vec<usize> = (0..hidden.len()).filter(|&i| hidden[i] != 0.0).collect();
            match carriers[..] {
                [] => rare.absent.push(j),
                [first, ..] if carriers.len() <= FEW => rare.carried.push((j, first)),
                _ => {}
            }
        }
        rare
    }

    /// The probability that a carried entry has a larger row in the last sum (d × k) than an absent one. `None` without both.
    pub fn presence(&self, last: &ArrayView2<f64>) -> Option<f64> {
        let sizes = last.map_axis(Axis(1), |row| -row.dot(&row));
        let carried: Vec<f64> = self.carried.iter().map(|(j, _)| sizes[*j]).collect();
        let absent: Vec<f64> = self.absent.iter().map(|j| sizes[*j]).collect();
        auc(&carried, &absent)
    }
}

/// Estimates the vector that has entry `rare`, up to a factor, from the columns of all sums (d × q). The entry itself, which is
/// known, is 0. Each column counts alike.
pub fn carrier(sums: &ArrayView2<f64>, rare: usize) -> Array1<f64> {
    let sizes = sums.map_axis(Axis(0), |x| x.dot(&x).max(f64::MIN_POSITIVE));
    let mut found = sums.dot(&(&sums.slice(s![rare, ..]) / &sizes));
    found[rare] = 0.0;
    found
}

/// The cosine of the angle between two vectors without entry `rare`; 0 for zeros.
pub fn cosine(a: &Array1<f64>, b: &Array1<f64>, rare: usize) -> f64 {
    let without = |x: &Array1<f64>| {
        let mut x = x.clone();
        x[rare] = 0.0;
        x
    };
    let (a, b) = (without(a), without(b));
    let norms = (a.dot(&a) * b.dot(&b)).sqrt();
    if norms > 0.0 { a.dot(&b) / norms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};
    use ndarray::Array2;

    use super::*;

    /// Vectors of two groups, one of which has a rare entry; another entry nobody has.
    #[test]
    fn a_rare_entry_is_seen_and_shows_the_vector_that_has_it() {
        let mut draws = Stream::new(9, Purpose::Probe, 1).at(0);
        let mut hidden =
            Array2::from_shape_fn(
                (20, 12),
                |(i, j)| {
                    if j < 10 && (j < 5) == (i % 2 == 0) { draws.uniform() } else { 0.0 }
                },
            );
        hidden[(4, 10)] = 1.0;
        let known = hidden.slice(s![10.., ..]);
        let rare = Rare::of(&hidden.slice(s![..10, ..]), &known);
        assert_eq!(rare, Rare { carried: vec![(10, 4)], absent: vec![11] });
        let weights = Array2::from_shape_fn((10, 2), |(i, l)| f64::from(u8::from(i % 2 == l)) + 0.1 * draws.uniform());
        let sums = hidden.slice(s![..10, ..]).t().dot(&weights);
        assert_eq!(rare.presence(&sums.view()), Some(1.0));
        let found = carrier(&sums.view(), 10);
        let (own, other) = (hidden.row(4).to_owned(), hidden.row(5).to_owned());
        assert!(cosine(&found, &own, 10) > 0.8 && cosine(&found, &other, 10) < 0.3);
        assert_eq!(cosine(&found, &Array1::zeros(12), 10), 0.0);
        assert_eq!(Rare::default().presence(&sums.view()), None);
    }
}
