//! Generates the entries of a synthetic matrix, rectangle by rectangle.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2};

use crate::data::synthetic::pattern::Pattern;
use crate::data::synthetic::spec::{Synthetic, SyntheticKind};
use crate::data::synthetic::tiles::PlantedTiles;
use crate::linalg::Real;
use crate::random::{Purpose, Stream};

/// Generates rectangles of a synthetic matrix.
pub struct Generator {
    spec: Synthetic,
    model: Model,
    noise: Stream,
}

enum Model {
    /// U (m × k), Vᵀ (k × n) and the standard deviation of the noise; negative entries become 0 unless `signed`.
    Product {
        u: Array2<f64>,
        vt: Array2<f64>,
        sigma: f64,
        signed: bool,
    },
    Blocks,
    Tiles(PlantedTiles),
    Sparse(Pattern),
}

impl Generator {
    /// Prepares what all rectangles share: (m + n)·k numbers for the kinds with factors.
    pub fn new(spec: &Synthetic) -> Self {
        let model = match spec.kind {
            SyntheticKind::Planted => {
                let u = factor(spec, Purpose::SyntheticU, spec.m);
                let vt = factor(spec, Purpose::SyntheticV, spec.n).reversed_axes().as_standard_layout().into_owned();
                // mean(UVᵀ) = Σ_l mean(U_l) mean(V_l), added up in the same order on every rank.
                let mean: f64 = (0..spec.k)
                    .map(|l| {
                        let u: f64 = u.column(l).iter().sum();
                        let v: f64 = vt.row(l).iter().sum();
                        u / spec.m as f64 * (v / spec.n as f64)
                    })
                    .sum();
                Model::Product { u, vt, sigma: spec.noise * mean, signed: false }
            }
            SyntheticKind::Exponential => {
                let draw = |purpose, rows: usize, mean: f64| {
                    let mut cursor = Stream::new(spec.seed, purpose, 0).at(0);
                    Array2::from_shape_simple_fn((rows, spec.k), || -mean * (1.0 - cursor.uniform()).ln())
                };
                let vt = draw(Purpose::SyntheticV, spec.n, 0.8).reversed_axes().as_standard_layout().into_owned();
                let u = draw(Purpose::SyntheticU, spec.m, 0.033);
                Model::Product { u, vt, sigma: spec.noise.sqrt(), signed: true }
            }
            SyntheticKind::Blocks => Model::Blocks,
            SyntheticKind::Tiles => Model::Tiles(PlantedTiles::draw(spec)),
            SyntheticKind::Sparse => Model::Sparse(Pattern::new(spec)),
        };
        Generator { spec: spec.clone(), model, noise: Stream::new(spec.seed, Purpose::SyntheticNoise, 0) }
    }

    /// Passes the nonzeros of `rows` × `cols` to `sink`, row by row; for sparse kinds.
    pub fn entries(&self, rows: Range<usize>, cols: Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        if let Model::Sparse(pattern) = &self.model {
            pattern.entries(rows, cols, sink);
        }
    }

    /// Fills `out` with the rectangle that begins at (`first_row`, `first_col`); for dense kinds.
    pub fn fill<T: Real>(&self, first_row: usize, first_col: usize, out: &mut ArrayViewMut2<T>) {
        let mut row = vec![0.0; out.ncols()];
        for (i, mut out) in out.rows_mut().into_iter().enumerate() {
            self.row(first_row + i, first_col, &mut row);
            out.iter_mut().zip(&row).for_each(|(out, &x)| *out = T::from_f64(x));
        }
    }

    /// Entries (i, first_col …) of row i.
    fn row(&self, i: usize, first_col: usize, out: &mut [f64]) {
        let mut cursor = self.noise.at(i as u128 * self.spec.n as u128 + first_col as u128);
        match &self.model {
            Model::Product { u, vt, sigma, signed } => {
                out.fill(0.0);
                for (l, &u) in u.row(i).iter().enumerate() {
                    if u != 0.0 {
                        let v = vt.slice(ndarray::s![l, first_col..first_col + out.len()]);
                        out.iter_mut().zip(v).for_each(|(x, v)| *x += u * v);
                    }
                }
                if *sigma > 0.0 {
                    out.iter_mut().for_each(|x| *x += sigma * cursor.normal());
                }
                if !signed {
                    out.iter_mut().for_each(|x| *x = x.max(0.0));
                }
            }
            Model::Blocks => {
                let block = |at: usize, total: usize| (at as u128 * self.spec.k as u128 / total as u128) as usize;
                let own = block(i, self.spec.m);
                for (j, x) in out.iter_mut().enumerate() {
                    // One draw per entry: the value inside, the background outside.
                    *x = if block(first_col + j, self.spec.n) == own {
                        0.5 + cursor.uniform()
                    } else {
                        (self.spec.noise * cursor.normal()).abs()
                    };
                }
            }
            Model::Tiles(PlantedTiles { rows, cols }) => {
                for (j, x) in out.iter_mut().enumerate() {
                    let j = first_col + j;
                    // Tiles with both this row and this column; each keeps the cell independently.
                    let both = rows[i].iter().filter(|&t| cols[j].contains(t)).count() as i32;
                    let on = 1.0 - (1.0 - self.spec.density).powi(both);
                    // One draw decides both the cell and its flip: P(1) = on (1 − noise) + (1 − on) noise.
                    let one = on * (1.0 - self.spec.noise) + (1.0 - on) * self.spec.noise;
                    *x = f64::from(u8::from(cursor.uniform() < one));
                }
            }
            Model::Sparse(_) => out.fill(0.0),
        }
    }
}

/// A rows × k factor with entries from U(0, 1), each kept with probability `density`.
fn factor(spec: &Synthetic, purpose: Purpose, rows: usize) -> Array2<f64> {
    let mut value = Stream::new(spec.seed, purpose, 0).at(0);
    let mut kept = Stream::new(spec.seed, Purpose::SyntheticPattern, purpose as u64).at(0);
    Array2::from_shape_simple_fn((rows, spec.k), || {
        let (value, kept) = (value.uniform(), kept.uniform());
        if kept < spec.density { value } else { 0.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_does_not_depend_on_the_rank() {
        for text in ["planted,m=30,n=20,k=3", "blocks,m=30,n=20", "tiles,m=30,n=20", "exponential,n=20"] {
            let generator = Generator::new(&Synthetic::parse(text).unwrap());
            let mut whole = Array2::<f64>::zeros((30, 20));
            generator.fill(0, 0, &mut whole.view_mut());
            let mut part = Array2::<f64>::zeros((5, 11));
            generator.fill(7, 4, &mut part.view_mut());
            assert_eq!(whole.slice(ndarray::s![7..12, 4..15]), part, "{text}");
            // Directly into a transposed tile.
            let mut turned = Array2::<f64>::zeros((11, 5));
            generator.fill(7, 4, &mut turned.view_mut().reversed_axes());
            assert_eq!(turned.t(), part);
        }
    }

    #[test]
    fn planted_has_the_given_rank_and_noise() {
        let make = |noise: f64| {
            let text = format!("planted,m=40,n=30,k=2,noise={noise}");
            let mut out = Array2::<f64>::zeros((40, 30));
            Generator::new(&Synthetic::parse(&text).unwrap()).fill(0, 0, &mut out.view_mut());
            out
        };
        let (clean, noisy) = (make(0.0), make(0.05));
        // Every 3 × 3 minor of a rank-2 matrix vanishes.
        for (i, j) in [(0, 0), (10, 20), (30, 7)] {
            let a = clean.slice(ndarray::s![i..i + 3, j..j + 3]);
            let det = a[[0, 0]] * (a[[1, 1]] * a[[2, 2]] - a[[1, 2]] * a[[2, 1]])
                - a[[0, 1]] * (a[[1, 0]] * a[[2, 2]] - a[[1, 2]] * a[[2, 0]])
                + a[[0, 2]] * (a[[1, 0]] * a[[2, 1]] - a[[1, 1]] * a[[2, 0]]);
            assert!(det.abs() < 1e-12);
        }
        let mean = clean.mean().unwrap();
        let off = (&noisy - &clean).mapv(|x| x * x).mean().unwrap().sqrt() / mean;
        assert!(off > 0.02 && off < 0.06, "{off}");
        assert!(noisy.iter().all(|&x| x >= 0.0));
    }

    #[test]
    fn tiles_flip_nothing_without_noise() {
        let mut out = Array2::<f64>::zeros((1000, 200));
        let spec = Synthetic::parse("tiles,noise=0,density=1").unwrap();
        Generator::new(&spec).fill(0, 0, &mut out.view_mut());
        let share = out.mean().unwrap();
        assert!(out.iter().all(|&x| x == 0.0 || x == 1.0) && share > 0.08 && share < 0.5, "{share}");
    }
}
