//! Generates the entries of a synthetic matrix, rectangle by rectangle.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2};

use fednmf_linalg::Real;
use fednmf_linalg::random::{Cursor, Purpose, Stream};

use crate::synthetic::graph::Graph;
use crate::synthetic::pattern::Pattern;
use crate::synthetic::spec::{NoiseLaw, Placement, Synthetic, SyntheticKind};
use crate::synthetic::tiles::PlantedTiles;

/// Generates rectangles of a synthetic matrix.
pub struct Generator {
    spec: Synthetic,
    model: Model,
    noise: Stream,
}

enum Model {
    /// U (m × k), Vᵀ (k × n), the noise parameter σ and a scale of the noise; negative entries become 0 unless `signed`.
    Product {
        u: Array2<f64>,
        vt: Array2<f64>,
        sigma: f64,
        scale: f64,
        signed: bool,
    },
    Blocks,
    /// Blocks at random places, and the random streams of kept entries and of the noise.
    RandomBlocks {
        blocks: PlantedTiles,
        kept: Stream,
        noise: Stream,
    },
    Tiles(PlantedTiles),
    Sparse(Pattern),
    Graph(Graph),
}

impl Generator {
    /// Prepares the data shared by all rectangles: (m + n)·k numbers for the kinds with factors.
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
                Model::Product { u, vt, sigma: spec.noise, scale: mean, signed: false }
            }
            SyntheticKind::Exponential => {
                let draw = |purpose, rows: usize, mean: f64| {
                    let mut cursor = Stream::new(spec.seed, purpose, 0).at(0);
                    Array2::from_shape_simple_fn((rows, spec.k), || -mean * (1.0 - cursor.uniform()).ln())
                };
                let vt = draw(Purpose::SyntheticV, spec.n, 0.8).reversed_axes().as_standard_layout().into_owned();
                let u = draw(Purpose::SyntheticU, spec.m, 0.033);
                Model::Product { u, vt, sigma: spec.noise.sqrt(), scale: 1.0, signed: true }
            }
            SyntheticKind::Blocks if spec.place == Placement::Random => Model::RandomBlocks {
                blocks: PlantedTiles::draw(spec),
                kept: Stream::new(spec.seed, Purpose::SyntheticValues, 0),
                noise: Stream::new(spec.seed, Purpose::SyntheticValues, 1),
            },
            SyntheticKind::Blocks => Model::Blocks,
            SyntheticKind::Tiles => Model::Tiles(PlantedTiles::draw(spec)),
            SyntheticKind::Sparse => Model::Sparse(Pattern::new(spec)),
            SyntheticKind::Graph => Model::Graph(Graph::draw(spec)),
        };
        Generator { spec: spec.clone(), model, noise: Stream::new(spec.seed, Purpose::SyntheticNoise, 0) }
    }

    /// Passes the nonzeros of `rows` × `cols` to `sink`, row by row; for sparse kinds.
    pub fn entries(&self, rows: Range<usize>, cols: Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        match &self.model {
            Model::Sparse(pattern) => pattern.entries(rows, cols, sink),
            Model::Graph(graph) => graph.entries(rows, &cols, sink),
            _ => {}
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
        let place = i as u128 * self.spec.n as u128 + first_col as u128;
        let mut cursor = self.noise.at(place);
        match &self.model {
            Model::Product { u, vt, sigma, scale, signed } => {
                out.fill(0.0);
                for (l, &u) in u.row(i).iter().enumerate() {
                    if u != 0.0 {
                        let v = vt.slice(ndarray::s![l, first_col..first_col + out.len()]);
                        out.iter_mut().zip(v).for_each(|(x, v)| *x += u * v);
                    }
                }
                if *sigma > 0.0 {
                    out.iter_mut().for_each(|x| *x += noise(&mut cursor, self.spec.noise_law, *sigma, *scale));
                }
                if !signed {
                    out.iter_mut().for_each(|x| *x = x.max(0.0));
                }
            }
            Model::Blocks => {
                let block = |at: usize, total: usize| (at as u128 * self.spec.k as u128 / total as u128) as usize;
                let own = block(i, self.spec.m);
                // Only blocks with gaps need a second draw.
                let mut kept = (self.spec.density < 1.0)
                    .then(|| Stream::new(self.spec.seed, Purpose::SyntheticValues, 0).at(place));
                for (j, x) in out.iter_mut().enumerate() {
                    let keeps = kept.as_mut().is_none_or(|kept| kept.uniform() < self.spec.density);
                    // One draw per entry: the value inside, the background outside.
                    *x = if block(first_col + j, self.spec.n) == own {
                        let value = 0.5 + cursor.uniform();
                        if keeps { value } else { 0.0 }
                    } else {
                        noise(&mut cursor, self.spec.noise_law, self.spec.noise, 1.0).abs()
                    };
                }
            }
            Model::RandomBlocks { blocks: PlantedTiles { rows, cols }, kept, noise: background } => {
                let (mut kept, mut background) = (kept.at(place), background.at(place));
                for (j, x) in out.iter_mut().enumerate() {
                    let both = rows[i].iter().filter(|&t| cols[first_col + j].contains(t)).count() as f64;
                    let (value, keeps) = (0.5 + cursor.uniform(), kept.uniform() < self.spec.density);
                    let noise = noise(&mut background, self.spec.noise_law, self.spec.noise, 1.0).abs();
                    *x = if keeps { both * value } else { 0.0 } + noise;
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
            Model::Sparse(_) | Model::Graph(_) => out.fill(0.0),
        }
    }
}

/// `scale` times a draw of noise with parameter σ.
fn noise(cursor: &mut Cursor, law: NoiseLaw, sigma: f64, scale: f64) -> f64 {
    match law {
        NoiseLaw::Gaussian => sigma * scale * cursor.normal(),
        NoiseLaw::Exponential => -sigma * scale * (1.0 - cursor.uniform()).ln(),
        NoiseLaw::Binomial if cursor.uniform() < sigma => scale,
        NoiseLaw::Binomial => 0.0,
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
        for text in [
            "planted,m=30,n=20,k=3",
            "planted,m=30,n=20,k=3,noise-law=exponential",
            "blocks,m=30,n=20",
            "blocks,m=30,n=20,density=0.5,noise-law=binomial",
            "blocks,m=30,n=20,place=random,density=0.5,noise-law=exponential",
            "tiles,m=30,n=20",
            "exponential,n=20",
        ] {
            let generator = Generator::new(&Synthetic::parse(text).unwrap());
            let mut whole = Array2::<f64>::zeros((30, 20));
            generator.fill(0, 0, &mut whole.view_mut());
            let mut part = Array2::<f64>::zeros((5, 11));
            generator.fill(7, 4, &mut part.view_mut());
            assert_eq!(whole.slice(ndarray::s![7..12, 4..15]), part, "{text}");
            // Generated directly into a transposed tile.
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
    fn only_kinds_that_say_so_have_negative_entries() {
        for (text, negative) in [
            ("planted,m=60,n=40,noise=3", false),
            ("blocks,m=60,n=40,noise=3", false),
            ("blocks,m=60,n=40,place=random,noise=3", false),
            ("tiles,m=60,n=40", false),
            ("exponential", true),
            ("exponential,noise=0", false),
        ] {
            assert_eq!(Synthetic::parse(text).unwrap().may_be_negative(), negative, "{text}");
            assert_eq!(generated(text).iter().any(|x| *x < 0.0), negative, "{text}");
        }
    }

    fn generated(text: &str) -> Array2<f64> {
        let spec = Synthetic::parse(text).unwrap();
        let mut out = Array2::<f64>::zeros((spec.m, spec.n));
        Generator::new(&spec).fill(0, 0, &mut out.view_mut());
        out
    }

    /// Mean and mean square of a million draws agree with the law.
    #[test]
    fn noise_has_its_law() {
        for (law, mean, square) in [
            ("gaussian", 0.2 * (2.0 / std::f64::consts::PI).sqrt(), 0.04),
            ("exponential", 0.2, 0.08),
            ("binomial", 0.2, 0.2),
        ] {
            // One block of a thousandth of the rows: nearly all is background.
            let all = generated(&format!("blocks,m=1000,n=1000,k=1000,noise=0.2,noise-law={law}"));
            let background: Vec<f64> = all.indexed_iter().filter(|((i, j), _)| i != j).map(|(_, x)| *x).collect();
            let count = background.len() as f64;
            let found = background.iter().sum::<f64>() / count;
            let found_square = background.iter().map(|x| x * x).sum::<f64>() / count;
            assert!(
                (found - mean).abs() < 2e-3 && (found_square - square).abs() < 2e-3,
                "{law}: {found} {found_square}"
            );
        }
        let binomial = generated("planted,m=300,n=300,k=2,noise=0.1,noise-law=binomial")
            - generated("planted,m=300,n=300,k=2,noise=0");
        let raised = binomial.iter().filter(|x| **x > 1e-9).count() as f64 / 90_000.0;
        assert!((raised - 0.1).abs() < 0.01, "{raised}");
    }

    #[test]
    fn random_blocks_have_the_density_asked_for() {
        let filled = |text: &str| generated(text).mapv(|x| f64::from(u8::from(x > 0.0)));
        for density in [0.3, 0.9] {
            let place = "blocks,m=400,n=300,k=4,noise=0,place=random";
            let (all, some) = (filled(place), filled(&format!("{place},density={density}")));
            let covered = all.mean().unwrap();
            assert!(covered > 0.02 && covered < 0.25, "{covered}");
            assert!(all.iter().zip(&some).all(|(all, some)| some <= all));
            assert!((some.sum() / all.sum() - density).abs() < 0.02, "{density}");
        }
        // Four blocks on the diagonal cover a quarter.
        let gaps = filled("blocks,m=400,n=300,k=4,noise=0,density=0.5");
        assert!((gaps.mean().unwrap() - 0.125).abs() < 0.01);
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
