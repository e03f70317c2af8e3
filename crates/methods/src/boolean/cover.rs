//! Boolean products on packed bits: the choice of the components that cover a row best, and the fit of a product to the
//! data. Counting uses the ones of the data and 64-bit words of the components; no product is formed.

use ndarray::ArrayView2;

use fednmf_linalg::{Bits, Real};

use crate::boolean::party_block::Ones;

/// Boolean components: the rows of V̂ᵀ (k × n).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    /// k × n
    by_component: Bits,
    /// n × k
    by_column: Bits,
    sizes: Vec<usize>,
}

/// The signal of synthetic data in a party's rows: the tiles that each row belongs to, and the tiles as components.
pub struct Signal {
    pub rows: Vec<Vec<u32>>,
    pub tiles: Components,
}

/// The fit of a Boolean product R to the data A, and to the signal S if it is known, in numbers of ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ones of A.
    pub ones: u64,
    /// Ones of R.
    pub covered: u64,
    /// Ones of A ∧ R.
    pub both: u64,
    /// Ones of S.
    pub signal: u64,
    /// Ones of S ∧ R.
    pub signal_both: u64,
}

impl Counts {
    /// Number of entries in which A and R differ.
    pub fn errors(&self) -> u64 {
        self.ones + self.covered - 2 * self.both
    }
}

/// The transpose as bits, with ones where an entry exceeds ½.
pub fn rounded<T: Real>(v: &ArrayView2<T>) -> Bits {
    let half = T::from_f64(0.5);
    let mut bits = Bits::zeros(v.ncols(), v.nrows());
    for (j, row) in v.rows().into_iter().enumerate() {
        row.iter().enumerate().filter(|(_, x)| **x > half).for_each(|(c, _)| bits.set(c, j));
    }
    bits
}

impl Components {
    /// Creates components from k × n bits.
    pub fn new(by_component: Bits) -> Self {
        let k = by_component.shape().0;
        let sizes = (0..k).map(|c| count(by_component.row(c))).collect();
        Components { by_column: by_component.transposed(), by_component, sizes }
    }

    /// The components as k × n bits.
    pub fn bits(&self) -> &Bits {
        &self.by_component
    }

    /// The union of `chosen` components, into `out`.
    fn union(&self, chosen: impl Iterator<Item = usize>, out: &mut [u64]) {
        out.fill(0);
        for c in chosen {
            out.iter_mut().zip(self.by_component.row(c)).for_each(|(out, v)| *out |= v);
        }
    }

    /// The fit of the Boolean product of `u` (rows × k) and these components to the data.
    pub fn fit<T: Real>(&self, x: &Ones<T>, u: &Bits, signal: Option<&Signal>) -> Counts {
        let mut covered = vec![0; x.shape().1.div_ceil(64)];
        let mut truth = Vec::new();
        let mut counts = Counts::default();
        for i in 0..x.shape().0 {
            self.union(u.ones(i), &mut covered);
            counts.add_row(x.row(i), &covered, signal.map(|s| s.row(i, &mut truth)));
        }
        counts
    }

    /// Chooses components for each row of the data greedily: the one that corrects the most entries of the row, until none
    /// corrects any. Overwrites `u` (rows × k).
    pub fn refit<T: Real>(&self, x: &Ones<T>, u: &mut Bits, signal: Option<&Signal>) -> Counts {
        let k = self.sizes.len();
        let mut covered = vec![0u64; x.shape().1.div_ceil(64)];
        let mut truth = Vec::new();
        let mut counts = Counts::default();
        // For each component, the number of the row's ones in it that are not yet covered.
        let mut gains = vec![0usize; k];
        for i in 0..x.shape().0 {
            u.row_mut(i).fill(0);
            covered.fill(0);
            gains.fill(0);
            let row = x.row(i);
            for &j in row {
                self.by_column.ones(j as usize).for_each(|c| gains[c] += 1);
            }
            let mut first = true;
            while let Some(best) = self.best(&gains, &covered, first) {
                u.set(i, best);
                for &j in row {
                    let j = j as usize;
                    if covered[j / 64] >> (j % 64) & 1 == 0 && self.by_component.get(best, j) {
                        self.by_column.ones(j).for_each(|c| gains[c] -= 1);
                    }
                }
                covered.iter_mut().zip(self.by_component.row(best)).for_each(|(out, v)| *out |= v);
                first = false;
            }
            counts.add_row(row, &covered, signal.map(|s| s.row(i, &mut truth)));
        }
        counts
    }

    /// The component that corrects the most entries; `None` if none corrects any. It covers `gains` uncovered ones
    /// correctly and all other newly covered entries wrongly.
    fn best(&self, gains: &[usize], covered: &[u64], nothing_covered: bool) -> Option<usize> {
        let mut best = (0, None);
        for (c, &gain) in gains.iter().enumerate() {
            // The newly covered entries include the gain.
            if gain <= best.0 {
                continue;
            }
            let fresh = if nothing_covered {
                self.sizes[c]
            } else {
                self.by_component.row(c).iter().zip(covered).map(|(v, c)| (v & !c).count_ones() as usize).sum()
            };
            if 2 * gain > fresh + best.0 {
                best = (2 * gain - fresh, Some(c));
            }
        }
        best.1
    }
}

impl Signal {
    /// The ones of row i.
    fn row<'a>(&self, i: usize, memory: &'a mut Vec<u64>) -> &'a [u64] {
        memory.resize(self.tiles.by_component.shape().1.div_ceil(64), 0);
        self.tiles.union(self.rows[i].iter().map(|&t| t as usize), memory);
        memory
    }
}

impl Counts {
    fn add_row(&mut self, ones: &[i32], covered: &[u64], signal: Option<&[u64]>) {
        self.ones += ones.len() as u64;
        self.covered += count(covered) as u64;
        self.both += ones.iter().filter(|&&j| covered[j as usize / 64] >> (j % 64) & 1 == 1).count() as u64;
        if let Some(signal) = signal {
            self.signal += count(signal) as u64;
            self.signal_both += signal.iter().zip(covered).map(|(s, c)| u64::from((s & c).count_ones())).sum::<u64>();
        }
    }
}

/// The number of ones in some words.
pub fn count(words: &[u64]) -> usize {
    words.iter().map(|w| w.count_ones() as usize).sum()
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use fednmf_linalg::Block;
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    fn random(rows: usize, cols: usize, share: f64, seed: u64) -> Array2<f64> {
        let mut cursor = Stream::new(seed, Purpose::Probe, 0).at(0);
        Array2::from_shape_simple_fn((rows, cols), || f64::from(u8::from(cursor.uniform() < share)))
    }

    fn product(u: &Array2<f64>, v: &Array2<f64>) -> Array2<f64> {
        u.dot(&v.t()).mapv(|x| x.min(1.0))
    }

    fn dense(u: &Bits) -> Array2<f64> {
        u.to_dense()
    }

    #[test]
    fn counts_are_those_of_the_product_written_out() {
        for (m, n, k, seed) in [(9, 70, 3, 1), (20, 130, 66, 2), (5, 64, 1, 3)] {
            let (a, u, v) = (random(m, n, 0.4, seed), random(m, k, 0.3, seed + 10), random(n, k, 0.2, seed + 20));
            let s = random(m, n, 0.3, seed + 30);
            let components = Components::new(rounded(&v.view()));
            let signal =
                Signal { rows: (0..m).map(|i| vec![i as u32]).collect(), tiles: Components::new(rounded(&s.t())) };
            let x = Ones::new(Block::Dense(a.clone().into())).unwrap();
            let bits = rounded(&u.view()).transposed();
            let found = components.fit(&x, &bits, Some(&signal));
            let r = product(&u, &v);
            let sum = |x: Array2<f64>| x.sum() as u64;
            let expected = Counts {
                ones: sum(a.clone()),
                covered: sum(r.clone()),
                both: sum(&a * &r),
                signal: sum(s.clone()),
                signal_both: sum(&s * &r),
            };
            assert_eq!(found, expected);
            assert_eq!(found.errors(), sum((&a - &r).mapv(f64::abs)));
        }
    }

    #[test]
    fn refitting_is_the_greedy_cover() {
        for (m, n, k, seed) in [(12, 90, 4, 1), (30, 40, 7, 2)] {
            let (u, v) = (random(m, k, 0.4, seed), random(n, k, 0.3, seed + 20));
            let mut a = product(&u, &v);
            a.zip_mut_with(&random(m, n, 0.1, seed + 5), |a, flip| *a = (*a - flip).abs());
            let components = Components::new(rounded(&v.view()));
            let x = Ones::new(Block::Dense(a.clone().into())).unwrap();
            let mut bits = Bits::zeros(m, k);
            let counts = components.refit(&x, &mut bits, None);
            assert_eq!(counts, components.fit(&x, &bits, None));
            // The reference tries every component on the dense row.
            let found = dense(&bits);
            for i in 0..m {
                let mut chosen = Array2::<f64>::zeros((1, k));
                let errors = |u: &Array2<f64>| (&product(u, &v).row(0) - &a.row(i)).mapv(f64::abs).sum();
                loop {
                    let now = errors(&chosen);
                    let with = |c: usize| {
                        let mut u = chosen.clone();
                        u[[0, c]] = 1.0;
                        errors(&u)
                    };
                    let best = (0..k).rev().min_by(|&a, &b| with(a).total_cmp(&with(b)).then(a.cmp(&b))).unwrap();
                    if with(best) >= now {
                        break;
                    }
                    chosen[[0, best]] = 1.0;
                }
                assert_eq!(found.row(i), chosen.row(0), "row {i}");
            }
        }
    }

    #[test]
    fn other_entries_than_0_and_1_are_refused() {
        let error = Ones::new(Block::Dense(ndarray::arr2(&[[0.0, 1.0], [2.0, 0.0]]).into())).err().unwrap();
        assert!(error.message.contains("--binarize") && error.exit_code() == 2);
    }
}
