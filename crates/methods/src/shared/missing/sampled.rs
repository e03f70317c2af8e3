//! Completion of the rows that a sketch selects (see [`completed`](super::completed)). Let S select some rows J of the data
//! M (N × rows of X), and let B = SᵀY. The right-hand side of the completed matrix is M'ᵀS B = MᵀS B + Σ_J P(b_j·x) b_j,
//! where M has zeros at missing entries and P is the projection onto these. The weights of S enter through both factors B,
//! as they must. Only entries in the selected rows are visited. The expectation over draws is the completion of all rows,
//! so the expected gradient is that of the observed entries.

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::{Block, Real, over_rows};

use super::lists::{Listed, Lists};

/// The missing entries of a block (N × rows of X), in the rows that a sketch selects.
pub struct SampledMissing<T: Real> {
    listed: Listed,
    lists: Lists<T>,
    /// Both operands of a completion in row order.
    x: Vec<T>,
    b: Vec<T>,
}

/// See [`SampledMissing::complete`]; both operands are copied to `space`.
pub(super) fn complete<T: Real>(
    (listed, lists): (Listed, &Lists<T>),
    x: &ArrayView2<'_, T>,
    (sample, b): (&[usize], &ArrayView2<'_, T>),
    g: &ArrayView2<'_, T>,
    rhs: &mut Array2<T>,
    space: [&mut [T]; 2],
) {
    let k = x.ncols();
    let [x_space, b_space] = space;
    copy(x, x_space);
    copy(b, b_space);
    let (x, b) = (&*x_space, &*b_space);
    over_rows(&mut rhs.view_mut(), &|first, mut rhs| {
        let end = first + rhs.nrows();
        if listed == Listed::Observed {
            for (mut rhs, x) in rhs.rows_mut().into_iter().zip(x[first * k..].chunks_exact(k)) {
                rhs.iter_mut().zip(g.rows()).for_each(|(rhs, g)| {
                    *rhs += g.iter().zip(x).fold(T::zero(), |sum, (&g, &x)| sum + g * x);
                });
            }
        }
        for (&j, b) in sample.iter().zip(b.chunks_exact(k)) {
            let (all, _) = lists.row(j);
            let from = all.partition_point(|&a| (a as usize) < first);
            let to = all.partition_point(|&a| (a as usize) < end);
            for &a in &all[from..to] {
                let a = a as usize;
                let x = &x[a * k..(a + 1) * k];
                let fit = x.iter().zip(b).fold(T::zero(), |sum, (&x, &b)| sum + x * b);
                let fit = if listed == Listed::Observed { -fit } else { fit };
                rhs.row_mut(a - first).iter_mut().zip(b).for_each(|(rhs, &b)| *rhs += fit * b);
            }
        }
    });
}

/// Copies a matrix into row-major order.
pub(super) fn copy<T: Copy>(from: &ArrayView2<'_, T>, to: &mut [T]) {
    from.rows().into_iter().flatten().zip(to).for_each(|(from, to)| *to = *from);
}

impl<T: Real> SampledMissing<T> {
    /// From the lists of the rows of X, of a matrix with N columns, for sketches that select at most `picked` of these.
    pub fn new(listed: Listed, of_x: &Lists<T>, (rows, n): (usize, usize), picked: usize, k: usize) -> Self {
        let zeros = |rows: usize| vec![T::zero(); rows * k];
        SampledMissing { listed, lists: of_x.transposed(n), x: zeros(rows), b: zeros(picked) }
    }

    /// Adds to the right-hand side of X the terms of the missing entries in the rows that a sketch selected. `picked` holds
    /// the indices of these rows, ascending, and their rows of B; `g` is BᵀB. Work ∝ missing entries in them × k; if the
    /// observed entries are listed, ∝ observed entries in them × k + rows of X × k².
    pub fn complete(
        &mut self,
        x: &ArrayView2<'_, T>,
        picked: (&[usize], &ArrayView2<'_, T>),
        g: &ArrayView2<'_, T>,
        rhs: &mut Array2<T>,
    ) {
        complete((self.listed, &self.lists), x, picked, g, rhs, [&mut self.x, &mut self.b]);
    }

    /// The same for all rows of Y, with memory allocated in the call: for evaluations.
    pub fn complete_all(&self, x: &Array2<T>, y: &Array2<T>, g: &ArrayView2<'_, T>, rhs: &mut Array2<T>) {
        let all: Vec<usize> = (0..y.nrows()).collect();
        let [mut of_x, mut of_y] = [x, y].map(|factor| vec![T::zero(); factor.len()]);
        let picked = (&all[..], &y.view());
        complete((self.listed, &self.lists), &x.view(), picked, g, rhs, [&mut of_x, &mut of_y]);
    }

    /// Σ (m_ji − y_j·x_i)² over the observed entries of a block that has zeros at the others.
    pub fn residual2(&self, block: &Block<T>, y: &ArrayView2<'_, T>, x: &ArrayView2<'_, T>) -> f64 {
        self.lists.residual2(self.listed, block, y, x)
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::Order;
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};
    use fednmf_linalg::sketch;
    use fednmf_linalg::sketch::{SketchKind, WeightedSampler};

    use super::*;

    fn random(seed: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor(&Stream::new(seed, Purpose::Probe, 0), 0..rows, k, 1.0)
    }

    /// A 60 × 90 matrix (rows of X × rows of Y) with NaN at this share of its entries.
    fn matrix(share: f64) -> Array2<f64> {
        let (mut m, hidden) = (random(1, 60, 90) + 0.1, random(2, 60, 90));
        m.zip_mut_with(&hidden, |m, &hidden| *m = if hidden < share { f64::NAN } else { *m });
        m
    }

    /// Lists of the observed entries, or of the missing ones.
    fn lists(m: &Array2<f64>, listed: Listed) -> Lists<f64> {
        let wanted = |x: f64| x.is_nan() == (listed == Listed::Missing);
        let places = m.indexed_iter().filter(|(_, x)| wanted(**x)).map(|((a, b), _)| (a as u32, b as u32));
        Lists::of_places(m.nrows(), places.collect())
    }

    #[test]
    fn sampled_completion_is_the_sketch_of_the_completed_matrix() {
        let k = 4;
        let (x, y) = (random(3, 60, k), random(4, 90, k));
        for share in [0.3, 0.9] {
            let m = matrix(share);
            let zeros = m.mapv(|x| if x.is_nan() { 0.0 } else { x });
            let completed =
                ndarray::Zip::from(&m).and(&x.dot(&y.t())).map_collect(|&m, &f| if m.is_nan() { f } else { m });
            for listed in [Listed::Missing, Listed::Observed] {
                let mut gaps = SampledMissing::new(listed, &lists(&m, listed), (60, 90), 90, k);
                for t in 0..5 {
                    let mut sampler = sketch::make::<f64>(SketchKind::Subsample, 90, 20, k, Order::RowMajor);
                    sampler.draw(&sketch::stream(7, true, t));
                    let mut b = Array2::zeros((20, k));
                    sampler.sketch_rows(0, &y.view(), &mut b.view_mut());
                    let mut expected = Array2::zeros((60, k));
                    let turned = Block::Dense(completed.t().as_standard_layout().into_owned().into());
                    let mut by_components = Order::ColumnMajor.zeros(20, k);
                    by_components.assign(&b);
                    let mut product = Order::ColumnMajor.zeros(60, k);
                    sampler.product(&turned, &by_components.view(), &mut product.view_mut());
                    expected.assign(&product);
                    let mut rhs = Array2::zeros((60, k));
                    for (place, &j) in sampler.picked().unwrap().iter().enumerate() {
                        let weight = (90.0f64 / 20.0).sqrt();
                        for i in 0..60 {
                            rhs.row_mut(i).scaled_add(weight * zeros[[i, j]], &b.row(place));
                        }
                    }
                    let picked = (sampler.picked().unwrap(), &b.view());
                    gaps.complete(&x.view(), picked, &b.t().dot(&b).view(), &mut rhs);
                    assert!((&rhs - &expected).iter().all(|e| e.abs() < 1e-12 * 90.0), "{listed:?}, {share}");
                }
            }
        }
    }

    /// For each sketch that selects rows, the mean gradient on completed samples is the gradient on the observed entries.
    #[test]
    fn the_mean_gradient_is_that_of_the_observed_entries() {
        let (k, d, rounds) = (3, 25, 4000);
        let (x, y) = (random(5, 60, k), random(6, 90, k));
        let m = matrix(0.4);
        let residual =
            ndarray::Zip::from(&m).and(&x.dot(&y.t())).map_collect(|&m, &f| if m.is_nan() { 0.0 } else { f - m });
        let whole = residual.dot(&y);
        let zeros = m.mapv(|x| if x.is_nan() { 0.0 } else { x });
        let norms = zeros.columns().into_iter().map(|c| c.dot(&c).sqrt()).collect();
        let mut gaps = SampledMissing::new(Listed::Missing, &lists(&m, Listed::Missing), (60, 90), d, k);
        let mut sampler = WeightedSampler::new(90, d, 0..90, norms, [5.0, 1.0]);
        let mut plain = sketch::make::<f64>(SketchKind::Subsample, 90, d, k, Order::RowMajor);
        for weighted in [true, false] {
            let (mut sum, mut squares) = (Array2::<f64>::zeros((60, k)), Array2::<f64>::zeros((60, k)));
            for t in 0..rounds {
                let stream = sketch::stream(9, true, t);
                let (sample, b) = if weighted {
                    let totals = sampler.score(&y.view());
                    sampler.draw(&stream, &totals, 0);
                    let mut message = vec![0.0; d * (k + sketch::WORDS)];
                    sampler.fill(&y.view(), &mut message);
                    sampler.collect(&message, k);
                    let mut b = Array2::zeros((sampler.sample().len(), k));
                    sampler.rows(&message, f64::sqrt, &mut b.view_mut());
                    (sampler.sample().to_vec(), b)
                } else {
                    plain.draw(&stream);
                    let mut b = Array2::zeros((d, k));
                    plain.sketch_rows(0, &y.view(), &mut b.view_mut());
                    (plain.picked().unwrap().to_vec(), b)
                };
                let g = b.t().dot(&b);
                let mut rhs = Array2::zeros((60, k));
                for (b, &j) in b.rows().into_iter().zip(&sample) {
                    let weight = (b.dot(&b) / y.row(j).dot(&y.row(j))).sqrt();
                    for i in 0..60 {
                        rhs.row_mut(i).scaled_add(weight * zeros[[i, j]], &b);
                    }
                }
                gaps.complete(&x.view(), (&sample, &b.view()), &g.view(), &mut rhs);
                let gradient = x.dot(&g) - rhs;
                squares += &gradient.mapv(|g| g * g);
                sum += &gradient;
            }
            let rounds = rounds as f64;
            for ((&sum, &squares), &whole) in sum.iter().zip(&squares).zip(&whole) {
                let mean = sum / rounds;
                let deviation = ((squares / rounds - mean * mean) / rounds).sqrt();
                assert!((mean - whole).abs() < 5.0 * deviation, "{weighted}: {mean}, not {whole} (± {deviation})");
            }
        }
    }
}
