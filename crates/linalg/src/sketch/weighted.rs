//! Importance sampling: index j is drawn with a probability p_j that increases with its score ‖X_j‖ ‖y_j‖, the norm of row j
//! of the data times that of row j of the factor. Such probabilities minimise the variance of XᵀS SᵀY (Drineas, Kannan,
//! Mahoney 2006). Half of p_j is uniform, so no weight exceeds twice that of uniform sampling.
//!
//! The d draws are stratified, one in each of d equal parts of the cumulative probability. An index may be drawn several
//! times; it is drawn ⌊d p_j⌋ or ⌈d p_j⌉ times or one more, with mean d p_j, so its weight (draws)/(d p_j) has mean 1. The
//! variance is at most that of independent draws, and rows with p_j > 1/d are always taken.
//!
//! No rank knows all scores: each rank accumulates those of its own rows, the totals are gathered, and the rank that owns a
//! draw resolves it. This costs four integers per rank and two words per draw, compared with N words for all scores. Scores
//! are rounded to powers of two and accumulated as integers. The draws therefore do not depend on the number of ranks, nor
//! on rounding errors in the scores, unless a score lies at the border between two powers.

use std::ops::Range;

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::Real;
use crate::random::Stream;

/// Integers that a rank contributes to the gather of totals.
pub const TOTALS: usize = 4;
/// Words per draw in a message, in addition to the row of the factor.
pub const WORDS: usize = 2;

/// Scores are powers of two between 2⁰ and 2^MAX_POWER, where 2^UNIT represents the unit.
const MAX_POWER: i32 = 60;
const UNIT: i32 = 40;
/// Units of a typical squared norm.
const UNITS: f64 = (1u64 << 40) as f64;
/// The largest squared norm in these units: 2³² of them add up without overflow.
const MAX_NORM2: f64 = (1u128 << 90) as f64;
/// Bits of an index in the second of its words; f32 holds integers of 24 bits.
const LOW: u32 = 13;

/// Draws indices of 0..N by the scores of the rows of a factor; each rank has one for the rows that it owns.
pub struct WeightedSampler {
    n: usize,
    d: usize,
    own: Range<usize>,
    /// Norms of the own rows of the data.
    norms: Vec<f64>,
    /// The score that 2^UNIT represents.
    unit: f64,
    /// The unit of squared norms of the factor.
    square: f64,
    squares: Vec<f64>,
    /// Prefix sums of the rounded scores of the own rows, with their total at the end.
    before: Vec<u128>,
    /// Draws of own rows: the number of the draw and the row, counted from the first own one.
    drawn: Vec<(usize, usize)>,
    /// Sum of the rounded scores of all ranks.
    total: u128,
    sample: Vec<usize>,
    weights: Vec<f64>,
    /// The first draw of each index of the sample.
    first: Vec<usize>,
}

impl WeightedSampler {
    /// A sampler of d of 0..n on the rank that owns the rows `own`, with the norms of their data. `typical` is the norm of a
    /// typical row of the data, and of the factor, the same on all ranks.
    pub fn new(n: usize, d: usize, own: Range<usize>, norms: Vec<f64>, typical: [f64; 2]) -> Self {
        assert_eq!(norms.len(), own.len());
        let [data, factor] = typical.map(|x| if x > 0.0 && x.is_finite() { x } else { 1.0 });
        WeightedSampler {
            n,
            d,
            squares: vec![0.0; own.len()],
            before: vec![0; own.len() + 1],
            drawn: Vec::with_capacity(d),
            total: 0,
            sample: Vec::with_capacity(d),
            weights: Vec::with_capacity(d),
            first: Vec::with_capacity(d),
            own,
            norms,
            unit: data * factor,
            square: factor * factor / UNITS,
        }
    }

    /// As [`WeightedSampler::new`], for scores that are given directly ([`WeightedSampler::score_each`]); `typical` is a
    /// typical score.
    pub fn by_scores(n: usize, d: usize, own: Range<usize>, typical: f64) -> Self {
        let norms = vec![1.0; own.len()];
        WeightedSampler::new(n, d, own, norms, [typical, 1.0])
    }

    /// Number of draws.
    pub fn size(&self) -> usize {
        self.d
    }

    /// Computes the scores of the own rows of the factor y. Returns the contribution of this rank to the totals: the sum of
    /// the scores, and ‖y‖_F² in units that add up exactly.
    pub fn score<T: Real>(&mut self, y: &ArrayView2<T>) -> [u64; TOTALS] {
        self.squares.fill(0.0);
        // Along the contiguous dimension of the factor; the sum for a row has the same order in both cases.
        if y.strides()[0] == 1 {
            for y in y.columns() {
                self.squares.iter_mut().zip(y).for_each(|(sum, &y)| *sum += y.as_f64() * y.as_f64());
            }
        } else {
            for (sum, y) in self.squares.iter_mut().zip(y.rows()) {
                *sum = y.iter().fold(0.0, |sum, &y| sum + y.as_f64() * y.as_f64());
            }
        }
        let norm2 = self.squares.iter().map(|square| (square / self.square).min(MAX_NORM2) as u128).sum();
        let scores = self.squares.iter().zip(&self.norms).map(|(square, norm)| norm * square.sqrt());
        let sum = accumulate(scores.map(|score| score / self.unit), &mut self.before);
        totals(sum, norm2)
    }

    /// Sets the score of each own row. Returns the contribution of this rank to the totals.
    pub fn score_each(&mut self, scores: &[f64]) -> [u64; TOTALS] {
        assert_eq!(scores.len(), self.own.len());
        let sum = accumulate(scores.iter().map(|score| score / self.unit), &mut self.before);
        totals(sum, 0)
    }

    /// Draws from a public stream, given the totals of all ranks in order. Returns ‖Y‖_F² of the whole factor.
    pub fn draw(&mut self, stream: &Stream, totals: &[u64], rank: usize) -> f64 {
        let (totals, _) = totals.as_chunks::<TOTALS>();
        let wide = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        let scores = |totals: &[[u64; TOTALS]]| totals.iter().map(|t| wide(t[0], t[1])).sum::<u128>();
        self.total = scores(totals).max(1);
        let (total, n) = (self.total, self.n as u128);
        // 2 N total p_j = total + N score_j, summed over the rows before the own row.
        let start = self.own.start as u128 * total + n * scores(&totals[..rank]);
        let below = |row: usize, before: &[u128]| start + row as u128 * total + n * before[row];
        let end = below(self.own.len(), &self.before);
        let step = 2 * n * total / self.d.max(1) as u128;
        let mut cursor = stream.at(0);
        self.drawn.clear();
        let mut row = 0;
        for i in 0..self.d {
            let random = u128::from(cursor.bits());
            let within = (step >> 64) * random + ((((step as u64) as u128) * random) >> 64);
            let point = i as u128 * step + within;
            if point >= start && point < end {
                row += largest(self.own.len() - row, |more| below(row + more, &self.before) <= point);
                self.drawn.push((i, row));
            }
        }
        totals.iter().map(|t| wide(t[2], t[3])).sum::<u128>() as f64 * self.square
    }

    /// Weight w_j of a draw: Σ w_j X_jᵀ y_j over all draws has the mean XᵀY.
    fn weight(&self, score: u128) -> f64 {
        let (total, n) = (self.total as f64, self.n as f64);
        2.0 * n * total / (self.d as f64 * (total + n * score as f64))
    }

    fn score_of(&self, row: usize) -> u128 {
        self.before[row + 1] - self.before[row]
    }

    /// The draws of own rows: number of the draw, row counted from the first own one, weight.
    pub fn own_draws(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        self.drawn.iter().map(|&(i, row)| (i, row, self.weight(self.score_of(row))))
    }

    /// Writes the drawn own rows of y into a message of d (k + [`WORDS`]) words, with zeros elsewhere. The sum of the
    /// messages of all ranks is the argument of [`WeightedSampler::collect`].
    pub fn fill<T: Real>(&self, y: &ArrayView2<T>, message: &mut [T]) {
        let k = y.ncols();
        message.fill(T::zero());
        let (rows, codes) = message.split_at_mut(self.d * k);
        if y.strides()[0] == 1 {
            for (c, y) in y.columns().into_iter().enumerate() {
                self.drawn.iter().for_each(|&(i, row)| rows[i * k + c] = y[row]);
            }
        } else {
            for &(i, row) in &self.drawn {
                rows[i * k..(i + 1) * k].iter_mut().zip(y.row(row)).for_each(|(to, &y)| *to = y);
            }
        }
        let (codes, _) = codes.as_chunks_mut::<WORDS>();
        for &(i, row) in &self.drawn {
            let (index, score) = ((self.own.start + row) as u64, u64::from(self.score_of(row).ilog2()));
            let high = (score << (31 - LOW)) | (index >> LOW);
            codes[i] = [high, index & ((1 << LOW) - 1)].map(|word| T::from_f64(word as f64));
        }
    }

    /// Reads the sample from the sum of the messages; it is the same on all ranks.
    pub fn collect<T: Real>(&mut self, message: &[T], k: usize) {
        self.sample.clear();
        self.weights.clear();
        self.first.clear();
        let (codes, _) = message[self.d * k..].as_chunks::<WORDS>();
        for (i, code) in codes[..self.d].iter().enumerate() {
            let [high, low] = code.map(|word| word.as_f64() as u64);
            let index = ((high & ((1 << (31 - LOW)) - 1)) << LOW | low) as usize;
            let weight = self.weight(1u128 << (high >> (31 - LOW)).min(MAX_POWER as u64));
            if self.sample.last() == Some(&index) {
                if let Some(sum) = self.weights.last_mut() {
                    *sum += weight;
                }
            } else {
                self.sample.push(index);
                self.weights.push(weight);
                self.first.push(i);
            }
        }
    }

    /// The distinct indices that were drawn, ascending.
    pub fn sample(&self) -> &[usize] {
        &self.sample
    }

    /// The rows of the sample, |sample| × k, each multiplied by `scale` of its weight.
    pub fn rows<T: Real>(&self, message: &[T], scale: impl Fn(f64) -> f64, out: &mut ArrayViewMut2<T>) {
        let k = out.ncols();
        for ((&i, &weight), mut out) in self.first.iter().zip(&self.weights).zip(out.rows_mut()) {
            let scale = T::from_f64(scale(weight));
            out.iter_mut().zip(&message[i * k..(i + 1) * k]).for_each(|(to, &y)| *to = scale * y);
        }
    }
}

/// Writes the prefix sums of the rounded scores into `before`, after its first entry, and returns the total.
fn accumulate(scores: impl Iterator<Item = f64>, before: &mut [u128]) -> u128 {
    let mut sum = 0;
    for (score, before) in scores.zip(&mut before[1..]) {
        sum += 1u128 << power(score);
        *before = sum;
    }
    sum
}

/// The contribution of a rank to the totals, from its sum of scores and ‖y‖_F².
fn totals(sum: u128, norm2: u128) -> [u64; TOTALS] {
    let halves = |x: u128| [x as u64, (x >> 64) as u64];
    let ([a, b], [c, d]) = (halves(sum), halves(norm2));
    [a, b, c, d]
}

/// The largest count in 0..below for which `holds(count)` is true; it is true for 0 and up to some count.
fn largest(below: usize, holds: impl Fn(usize) -> bool) -> usize {
    // The next draw lies near the last one: doubling steps, then halves.
    let mut high = 1;
    while high < below && holds(high) {
        high *= 2;
    }
    let (mut low, mut high) = (high / 2, high.min(below));
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// The nearest power of two, on the scale of scores; 2⁰ for zero and NaN.
fn power(score: f64) -> u32 {
    let exponent = ((score * std::f64::consts::SQRT_2).to_bits() >> 52) as i32 & 0x7ff;
    if score.is_finite() { (exponent - 1023 + UNIT).clamp(0, MAX_POWER) as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::sketch::{SketchKind, make, stream};
    use crate::{Block, Order};

    /// Columns of very different norms, as in word counts, and a factor.
    fn data(n: usize, cols: usize, k: usize) -> (Array2<f64>, Array2<f64>) {
        let x = Array2::from_shape_fn((n, cols), |(i, j)| ((i * 7 + j * 3) % 11) as f64 * 20.0 / (1 + i) as f64);
        (x, Array2::from_shape_fn((n, k), |(i, j)| ((i * 5 + j * 2) % 7) as f64 / 7.0))
    }

    fn norms(x: &Array2<f64>) -> Vec<f64> {
        x.rows().into_iter().map(|x| x.dot(&x).sqrt()).collect()
    }

    /// One draw by ranks with these rows: the sample, and the weighted rows.
    fn drawn<T: Real>(
        samplers: &mut [WeightedSampler],
        y: &Array2<T>,
        stream: &Stream,
    ) -> (Vec<usize>, Vec<f64>, Vec<T>) {
        let k = y.ncols();
        let own = |s: &WeightedSampler| y.slice(ndarray::s![s.own.clone(), ..]).to_owned();
        let totals: Vec<u64> = samplers.iter_mut().flat_map(|s| s.score(&own(s).view())).collect();
        let mut sum = vec![T::zero(); samplers[0].d * (k + WORDS)];
        let mut message = sum.clone();
        for (rank, s) in samplers.iter_mut().enumerate() {
            let norm2 = s.draw(stream, &totals, rank);
            let exact: f64 = y.iter().map(|y| y.as_f64() * y.as_f64()).sum();
            assert!((norm2 - exact).abs() <= 1e-9 * exact);
            s.fill(&own(s).view(), &mut message);
            sum.iter_mut().zip(&message).for_each(|(sum, &x)| *sum += x);
        }
        samplers[0].collect(&sum, k);
        (samplers[0].sample.clone(), samplers[0].weights.clone(), sum)
    }

    fn samplers(x: &Array2<f64>, d: usize, cuts: &[usize]) -> Vec<WeightedSampler> {
        let all = norms(x);
        let range = cuts.windows(2).map(|w| w[0]..w[1]);
        range.map(|own| WeightedSampler::new(x.nrows(), d, own.clone(), all[own].to_vec(), [3.0, 1.0])).collect()
    }

    #[test]
    fn the_draws_do_not_depend_on_who_owns_the_rows() {
        let (x, y) = data(50, 6, 3);
        let narrow = y.mapv(|y| y as f32);
        let mut alone = samplers(&x, 17, &[0, 50]);
        for t in 0..40 {
            let one = drawn(&mut alone, &y, &stream(2, true, t));
            assert!(one.0.windows(2).all(|w| w[0] < w[1]));
            for cuts in [&[0, 20, 50][..], &[0, 1, 1, 33, 50]] {
                let several = drawn(&mut samplers(&x, 17, cuts), &y, &stream(2, true, t));
                assert!(one == several, "{cuts:?}");
                // Other rounding errors, the same draws.
                let rounded = drawn(&mut samplers(&x, 17, cuts), &y.mapv(|y| y * (1.0 + 1e-13)), &stream(2, true, t));
                assert_eq!((&rounded.0, &rounded.1), (&one.0, &one.1));
                let single = drawn(&mut samplers(&x, 17, cuts), &narrow, &stream(2, true, t));
                assert_eq!((&single.0, &single.1), (&one.0, &one.1));
            }
        }
    }

    #[test]
    fn the_mean_weight_of_every_index_is_one() {
        let (x, y) = data(40, 6, 3);
        let (mut all, rounds) = (samplers(&x, 9, &[0, 13, 40]), 6000);
        let (mut sums, mut squares) = ([0.0; 40], [0.0; 40]);
        for t in 0..rounds {
            let (sample, weights, _) = drawn(&mut all, &y, &stream(3, true, t));
            for (&j, w) in sample.iter().zip(weights) {
                sums[j] += w;
                squares[j] += w * w;
            }
        }
        let rounds = rounds as f64;
        for (sum, square) in sums.iter().zip(squares) {
            let mean = sum / rounds;
            let deviation = ((square / rounds - mean * mean) / rounds).sqrt();
            assert!((mean - 1.0).abs() < 5.0 * deviation + 1e-9, "{mean} ± {deviation}");
        }
    }

    /// The mean of ‖XᵀSSᵀY − XᵀY‖² is less than with uniform sampling, for the same number of rows.
    #[test]
    fn large_rows_are_drawn_more_often_for_less_variance() {
        let (n, cols, k, d) = (60, 6, 3, 12);
        let (x, y) = data(n, cols, k);
        let exact = x.t().dot(&y);
        let block = Block::Dense(x.clone().into());
        let mut all = samplers(&x, d, &[0, n]);
        let mut uniform = make::<f64>(SketchKind::Subsample, n, d, k, Order::ColumnMajor);
        let (mut b, mut out) = (Order::ColumnMajor.zeros(d, k), Order::ColumnMajor.zeros(cols, k));
        let mut errors = [0.0; 2];
        let far = |out: &Array2<f64>| (out - &exact).mapv(|e| e * e).sum();
        for t in 0..500 {
            let (sample, _, message) = drawn(&mut all, &y, &stream(4, true, t));
            let mut rows = Array2::zeros((sample.len(), k));
            all[0].rows(&message, |weight| weight, &mut rows.view_mut());
            block.rows_tmul(&sample, &rows.view(), &mut out.view_mut());
            errors[0] += far(&out);
            uniform.draw(&stream(4, true, t));
            uniform.sketch_rows(0, &y.view(), &mut b.view_mut());
            uniform.product(&block, &b.view(), &mut out.view_mut());
            errors[1] += far(&out);
        }
        assert!(errors[0] < 0.3 * errors[1], "{errors:?}");
    }

    #[test]
    fn a_factor_of_zeros_and_numbers_out_of_range_are_sampled_uniformly() {
        let (x, _) = data(30, 6, 3);
        for y in [0.0, f64::NAN, f64::INFINITY, 1e-300] {
            let mut all = samplers(&x, 10, &[0, 30]);
            let y = Array2::from_elem((30, 2), y);
            let totals = all[0].score(&y.view());
            all[0].draw(&stream(1, false, 0), &totals, 0);
            let rows: Vec<usize> = all[0].own_draws().map(|(_, row, _)| row / 3).collect();
            assert_eq!(rows, (0..10).collect::<Vec<_>>(), "one draw of each three rows");
        }
    }
}
