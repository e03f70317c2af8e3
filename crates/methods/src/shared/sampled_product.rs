//! A product with the data, estimated from some rows of the fixed factor ([`SampledProduct`]). Each rank scores its rows.
//! The ranks draw rows in proportion to the scores ([`WeightedSampler`]), sum the rows drawn, and multiply them by their
//! data.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};

use fednmf_comm::{Communicator, MessageTag, Parts};
use fednmf_linalg::random::Stream;
use fednmf_linalg::sketch::{TOTALS, WORDS, WeightedSampler};
use fednmf_linalg::{Block, Order, Real, gram};

/// The tags of the messages: the totals of the scores, and the rows drawn.
#[derive(Debug, Clone, Copy)]
pub struct SampleTags {
    pub scores: MessageTag,
    pub rows: MessageTag,
}

/// Draws rows of a factor Y (N × k) and estimates XᵀY for data X (N × rows) and YᵀY from them.
pub struct SampledProduct<T: Real> {
    pub sampler: WeightedSampler,
    tags: SampleTags,
    parts: Parts,
    totals: Vec<u64>,
    /// What the ranks sum: the rows drawn, d (k + [`WORDS`]) words, and the method's own words.
    message: Vec<T>,
    /// The rows drawn, multiplied by their weights, or by the square roots of these: at most d × k.
    weighted: Array2<T>,
    rooted: Array2<T>,
}

impl<T: Real> SampledProduct<T> {
    /// A product for draws by `sampler` from a factor with k columns in this memory order. The message also sums `own_words`
    /// words of the method.
    pub fn new(
        comm: &Communicator,
        sampler: WeightedSampler,
        tags: SampleTags,
        (k, order): (usize, Order),
        own_words: usize,
    ) -> Self {
        let d = sampler.size();
        let ranks: Vec<Range<usize>> = (0..comm.size()).map(|rank| rank..rank + 1).collect();
        SampledProduct {
            sampler,
            tags,
            parts: Parts::new(&ranks, TOTALS),
            totals: vec![0; TOTALS * comm.size()],
            message: vec![T::zero(); d * (k + WORDS) + own_words],
            weighted: order.zeros(d, k),
            rooted: order.zeros(0, k),
        }
    }

    /// Adds memory for [`SampledProduct::gram`].
    #[must_use]
    pub fn with_gram(mut self, order: Order) -> Self {
        self.rooted = order.zeros(self.sampler.size(), self.weighted.ncols());
        self
    }

    /// Number of draws d.
    pub fn size(&self) -> usize {
        self.sampler.size()
    }

    /// Draws rows from a public stream for the scores of the own rows ([`WeightedSampler::score`]) and sums them. In the
    /// phase `phase`, `fill` writes the own rows drawn ([`WeightedSampler::fill`]) and the method's own words. Returns
    /// ‖Y‖_F² if the scores are those of rows. Collective.
    pub fn draw(
        &mut self,
        comm: &Communicator,
        phase: &'static str,
        scores: [u64; TOTALS],
        stream: &Stream,
        fill: impl FnOnce(&WeightedSampler, &mut [T], &mut [T]),
    ) -> f64 {
        comm.all_gather(self.tags.scores, &scores, &self.parts, &mut self.totals);
        let norm2 = comm.work(phase, || {
            let norm2 = self.sampler.draw(stream, &self.totals, comm.rank());
            let (rows, own_words) = self.message.split_at_mut(self.sampler.size() * (self.weighted.ncols() + WORDS));
            fill(&self.sampler, rows, own_words);
            norm2
        });
        comm.sum(self.tags.rows, &mut self.message);
        norm2
    }

    /// Reads the sample from the summed message.
    pub fn collect(&mut self) {
        let k = self.weighted.ncols();
        self.sampler.collect(&self.message[..self.sampler.size() * (k + WORDS)], k);
    }

    /// The sums of the method's own words.
    pub fn own_words(&self) -> &[T] {
        &self.message[self.sampler.size() * (self.weighted.ncols() + WORDS)..]
    }

    /// The estimate of XᵀY (rows × k), after [`SampledProduct::collect`].
    pub fn multiply(&mut self, data: &Block<T>, rhs: &mut Array2<T>) {
        let sample = self.sampler.sample();
        let mut weighted = self.weighted.slice_mut(s![..sample.len(), ..]);
        self.sampler.rows(&self.message, |weight| weight, &mut weighted);
        data.rows_tmul(sample, &weighted.view(), &mut rhs.view_mut());
    }

    /// The estimate of YᵀY (k × k), after [`SampledProduct::collect`].
    pub fn gram(&mut self, g: &mut Array2<T>) {
        let mut rooted = self.rooted.slice_mut(s![..self.sampler.sample().len(), ..]);
        self.sampler.rows(&self.message, f64::sqrt, &mut rooted);
        gram(&rooted.view(), &mut g.view_mut());
    }

    /// The indices of the sample, ascending, and its rows times the roots of their weights, after [`SampledProduct::gram`].
    pub fn rooted(&self) -> (&[usize], ArrayView2<'_, T>) {
        let sample = self.sampler.sample();
        (sample, self.rooted.slice(s![..sample.len(), ..]))
    }
}
