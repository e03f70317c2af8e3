//! The programmes of cNMF (Kotliar et al., eLife 2019; step `consensus` of its package 1.7) from the components of all runs
//! with one k. Outlying components are left out, a programme is the median of a cluster, and usages and spectra are refitted
//! by exact nonnegative least squares. The matrices of cells are read a panel at a time if memory does not hold them. Owners of
//! different cells need only sums over all cells ([`CellSums`]).

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, Axis, s};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::{Loaded, Panels};
use fednmf_linalg::nls::{Penalty, project};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::{Block, Cholesky};

use super::consensus::{gram_of, solve};
use crate::by_weight;

const SPECTRA: MessageTag = MessageTag::new("programmes: spectra", Payload::SharedFactor);
const USAGES: MessageTag = MessageTag::new("programmes: usages", Payload::SharedFactor);
const SUMS: MessageTag = MessageTag::new("programmes: sums over cells", Payload::Product);

/// Sums over the cells of all owners, which need not show them to each other. A rank may have the cells of several.
pub trait CellSums {
    /// The ranks that share the cells of each owner here.
    fn ranks(&self) -> &Communicator;

    /// The number of cells of all owners.
    fn cells(&self) -> usize;

    /// The sum of what each owner here has, over all ranks and owners. Collective.
    ///
    /// # Errors
    /// If the sum fails.
    fn sum(&mut self, own: Vec<Vec<f64>>) -> Result<Vec<f64>>;

    /// The same, for products that are at most `bounds` in magnitude, as is their sum. Collective.
    ///
    /// # Errors
    /// If the sum fails.
    fn sum_products(&mut self, own: Vec<Vec<f64>>, bounds: &[f64]) -> Result<Vec<f64>>;
}

/// The cells of one owner, shared by all ranks.
pub struct OneOwner<'a> {
    pub ranks: &'a Communicator,
    pub cells: usize,
}

impl CellSums for OneOwner<'_> {
    fn ranks(&self) -> &Communicator {
        self.ranks
    }

    fn cells(&self) -> usize {
        self.cells
    }

    fn sum(&mut self, own: Vec<Vec<f64>>) -> Result<Vec<f64>> {
        let mut sum = own.into_iter().next().unwrap_or_default();
        self.ranks.sum(SUMS, &mut sum);
        Ok(sum)
    }

    fn sum_products(&mut self, own: Vec<Vec<f64>>, _: &[f64]) -> Result<Vec<f64>> {
        self.sum(own)
    }
}

/// Starts of k-means, and the most passes of each.
const STARTS: u64 = 10;
const PASSES: usize = 300;
/// Spectra whose distances to all others are computed together.
const STEP: usize = 256;
/// A standard deviation below this share of the mean is a rounding error.
const ROUNDING: f64 = 1e-12;
/// A pivot of a Gram matrix below this share of its diagonal is a rounding error.
const FLOOR: f64 = 1e-13;

/// The components of all runs with one k.
pub struct Spectra {
    /// Normalised, run after run (runs·k × n).
    pub values: Array2<f64>,
    k: usize,
    /// Mean distance of each to its nearest neighbours.
    pub density: Vec<f64>,
}

/// What the clusters of spectra are: their medians, each with sum 1 (k × n), and how well they are separated.
pub struct Clusters {
    /// Of all spectra.
    pub all: Array2<f64>,
    /// Of those that are not outlying.
    pub kept: Array2<f64>,
    /// Mean silhouette of all spectra; NaN with a single cluster.
    pub silhouette: f64,
}

impl Spectra {
    /// The number of neighbours in the local density of a spectrum, for this number of runs, as in cNMF.
    pub fn neighbours(runs: usize) -> usize {
        runs * 3 / 10
    }

    /// The number of those whose density is not below a threshold.
    pub fn outlying(&self, threshold: f64) -> usize {
        self.density.iter().filter(|density| **density >= threshold).count()
    }

    /// The spectra of V (n × k) of each run, and their density by this number of neighbours.
    pub fn new(runs: &[Array2<f64>], neighbours: usize) -> Self {
        let k = runs.first().map_or(0, Array2::ncols);
        let rows: Vec<_> = runs.iter().flat_map(|v| v.columns()).collect();
        let mut values = Array2::zeros((rows.len(), runs.first().map_or(0, Array2::nrows)));
        for (mut value, row) in values.rows_mut().into_iter().zip(&rows) {
            value.assign(row);
            value /= nonzero(value.dot(&value).sqrt());
        }
        let mut density = Vec::with_capacity(values.nrows());
        each_distances(&values, |_, distances| {
            let mut sorted = distances.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            // The first is the distance to itself.
            density.push(sorted.iter().take(neighbours + 1).sum::<f64>() / neighbours as f64);
        });
        Spectra { values, k, density }
    }

    /// The spectra of the runs with one k, and their clusters.
    ///
    /// # Errors
    /// If there are too few runs to tell which spectra are outlying, or too few others are left.
    pub fn kept(runs: &[Array2<f64>], threshold: f64) -> Result<(Spectra, Clusters)> {
        let (count, k) = (runs.len(), runs.first().map_or(0, Array2::ncols));
        let wrong = |why: String| Error::input(format!("--density-threshold {threshold}: {why}"));
        let neighbours = Spectra::neighbours(count);
        if neighbours == 0 {
            return Err(wrong(format!(
                "{count} runs with k = {k} are too few to find outlying components; at least 4 are needed"
            )));
        }
        let spectra = Spectra::new(runs, neighbours);
        let clusters = spectra.clusters(threshold).map_err(|left| {
            wrong(format!(
                "only {left} of {} components are not outlying, for k = {k}; give a larger threshold or more runs",
                count * k
            ))
        })?;
        Ok((spectra, clusters))
    }

    /// The clusters of all spectra, and of those whose density is below the threshold. `Err` is how many these are, if they
    /// are fewer than clusters.
    pub fn clusters(&self, threshold: f64) -> std::result::Result<Clusters, usize> {
        let kept: Vec<usize> = (0..self.density.len()).filter(|&i| self.density[i] < threshold).collect();
        if kept.len() < self.k {
            return Err(kept.len());
        }
        let labels = k_means(&self.values, self.k);
        let some = self.values.select(Axis(0), &kept);
        Ok(Clusters {
            all: medians(&self.values, &labels, self.k),
            silhouette: silhouette(&self.values, &labels, self.k),
            kept: medians(&some, &k_means(&some, self.k), self.k),
        })
    }
}

/// The matrix of all genes that the programmes are described by, with the mean and the sum of squares about it of each gene.
pub struct Genes<'a> {
    /// The cells of each owner here.
    pub cells: &'a [Loaded<f64>],
    /// The place among all genes of each one that was factorised.
    pub places: &'a [usize],
    /// The number of cells of all owners.
    count: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl<'a> Genes<'a> {
    /// Computes the moments. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read; if a sum fails.
    pub fn new(cells: &'a [Loaded<f64>], places: &'a [usize], all: &mut dyn CellSums) -> Result<Self> {
        let (m, n) = (all.cells() as f64, cells.first().map_or(0, |cells| cells.header.cols));
        let of_owner = |cells: &Loaded<f64>| {
            let mut sums = vec![0.0; n];
            visit(cells, all.ranks(), |_, block| {
                (0..block.shape().0).for_each(|i| block.for_each_nonzero(i, |j, x| sums[j] += x));
            })?;
            Ok(sums)
        };
        let own = cells.iter().map(of_owner).collect::<Result<Vec<_>>>()?;
        let mean: Vec<f64> = all.sum(own)?.iter().map(|sum| sum / m).collect();
        // Those of the entries that are not zero, and their number.
        let of_owner = |cells: &Loaded<f64>| {
            let mut squares = vec![0.0; 2 * n];
            visit(cells, all.ranks(), |_, block| {
                for i in 0..block.shape().0 {
                    block.for_each_nonzero(i, |j, x| {
                        squares[j] += (x - mean[j]).powi(2);
                        squares[n + j] += 1.0;
                    });
                }
            })?;
            Ok(squares)
        };
        let own = cells.iter().map(of_owner).collect::<Result<Vec<_>>>()?;
        let mut squares = all.sum(own)?;
        let (nonzeros, stored) = (squares.split_off(n), squares);
        let all = stored.iter().zip(&nonzeros).zip(&mean).map(|((sum, count), mean)| sum + (m - count) * mean * mean);
        let squares = all.collect();
        Ok(Genes { cells, places, count: m, mean, squares })
    }

    /// The standard deviation of each gene, 0 if it is constant, with a divisor of the number of cells less `less`.
    pub fn deviations(&self, less: f64) -> Array1<f64> {
        let count = (self.count - less).max(1.0);
        let all = self.squares.iter().zip(&self.mean).map(|(squares, mean)| {
            let deviation = (squares / count).sqrt();
            if deviation > ROUNDING * mean { deviation } else { 0.0 }
        });
        all.collect()
    }

    /// The norm of each gene.
    fn norms(&self) -> Vec<f64> {
        let square = |(squares, mean): (&f64, &f64)| (squares + self.count * mean * mean).sqrt();
        self.squares.iter().zip(&self.mean).map(square).collect()
    }

    /// The numbers of this rank's cells, from those of all cells of each owner here.
    fn own(&self, u: &[Array2<f64>], ranks: &Communicator) -> Vec<Array2<f64>> {
        let part = |(u, cells): (&Array2<f64>, &Loaded<f64>)| {
            u.slice(s![cells.cuts.rows[ranks.rank()].clone(), ..]).to_owned()
        };
        u.iter().zip(self.cells).map(part).collect()
    }
}

/// The programmes of one k, the most used one first. The same on all ranks.
pub struct Programs {
    /// Usages of each owner here (cells × k).
    pub usages: Vec<Array2<f64>>,
    /// The genes that were factorised; each row has sum 1 (k × n).
    pub spectra: Array2<f64>,
    /// All genes: contribution to the transcripts per million, and regression on their z-scores (k × genes).
    pub per_million: Array2<f64>,
    pub scores: Array2<f64>,
    /// Squared error of the medians of all spectra.
    pub error: f64,
}

impl Programs {
    /// Refits usages and spectra. Of the ranks of an owner only the first has the `clusters`; every rank knows k. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read; if a sum fails.
    pub fn new(
        clusters: Option<&Clusters>,
        k: usize,
        counts: &[Loaded<f64>],
        genes: &Genes<'_>,
        owners: &mut dyn CellSums,
    ) -> Result<Self> {
        let comm = owners.ranks().clone();
        let shared = |of: fn(&Clusters) -> &Array2<f64>| {
            let mut medians = Array2::zeros((k, counts.first().map_or(0, |counts| counts.header.cols)));
            if let Some(clusters) = clusters {
                medians.assign(of(clusters));
            }
            // The other ranks add zeros.
            comm.sum(SPECTRA, medians.as_slice_mut().expect("made in row order"));
            medians
        };
        let (all, kept) = (shared(|clusters| &clusters.all), shared(|clusters| &clusters.kept));
        let (mut usages, mut errors) = (Vec::new(), Vec::new());
        for counts in counts {
            let mut error = 0.0;
            usages.push(of_all_cells(counts, k, &comm, |block| {
                let fitted = project(block, &all.t(), Penalty::NONE);
                error += block.residual2(&fitted.view(), &all.t());
                project(block, &kept.t(), Penalty::NONE)
            })?);
            errors.push(vec![error]);
        }
        let error = owners.sum(errors)?[0];
        let mut shares = usages.clone();
        for mut row in shares.iter_mut().flat_map(|shares| shares.rows_mut()) {
            row /= nonzero(row.sum());
        }
        let own = genes.own(&shares, &comm).iter().map(|shares| shares.sum_axis(Axis(0)).to_vec()).collect();
        let weights = owners.sum(own)?;
        let order = by_weight(&weights);
        let [usages, shares] =
            [usages, shares].map(|all| all.iter().map(|x| x.select(Axis(1), &order)).collect::<Vec<_>>());
        let spectra = kept.select(Axis(0), &order);

        let per_million = spectra_of(&shares, genes, owners)?;
        let scores = regression(&usages, genes, owners)?;
        let usages = usages_of(&per_million, genes, &comm)?;
        Ok(Programs { usages, spectra, per_million, scores, error })
    }

    /// The spectra per million of the genes that were factorised, each divided by its standard deviation (k × n): a reference
    /// for the usages of other cells.
    pub fn reference(&self, genes: &Genes<'_>) -> Array2<f64> {
        let deviations = genes.deviations(0.0);
        let scale = |j: usize| if deviations[j] > 0.0 { 1e6 / deviations[j] } else { 0.0 };
        let scales: Array1<f64> = genes.places.iter().map(|&j| scale(j)).collect();
        let mut reference = self.per_million.select(Axis(1), genes.places);
        for (mut row, all) in reference.rows_mut().into_iter().zip(self.per_million.rows()) {
            row *= &scales;
            row /= nonzero(all.sum());
        }
        reference
    }
}

/// Calls `f` with the rows of this rank and their numbers, counted from its first row. Collective.
fn visit(cells: &Loaded<f64>, comm: &Communicator, f: impl FnMut(Range<usize>, &Block<f64>)) -> SharedResult<()> {
    let mut panels = cells.panels.as_ref().map(Panels::copy);
    Panels::pass_over(&mut panels, cells.blocks.first(), comm, f)
}

/// Rows of k numbers for all cells, from those that `f` returns for the cells of a block: two matrices of the same cells may
/// be divided among the ranks at different rows. Collective.
fn of_all_cells(
    cells: &Loaded<f64>,
    k: usize,
    comm: &Communicator,
    mut f: impl FnMut(&Block<f64>) -> Array2<f64>,
) -> SharedResult<Array2<f64>> {
    let first = cells.cuts.rows[comm.rank()].start;
    let mut all = Array2::zeros((cells.header.rows, k));
    visit(cells, comm, |rows, block| {
        all.slice_mut(s![first + rows.start..first + rows.end, ..]).assign(&f(block));
    })?;
    // The other ranks add zeros.
    comm.sum(USAGES, all.as_slice_mut().expect("made in row order"));
    Ok(all)
}

/// Sums over all cells of k numbers of each.
struct Products {
    /// With each gene (genes × k).
    genes: Array2<f64>,
    /// With each other (k × k).
    gram: Array2<f64>,
    sums: Vec<f64>,
}

/// The sums over all cells of k numbers of each, given for those of this owner. Collective.
fn products(u: &[Array2<f64>], genes: &Genes<'_>, owners: &mut dyn CellSums) -> Result<Products> {
    let (n, k) = (genes.mean.len(), u.first().map_or(0, Array2::ncols));
    let own = genes.own(u, owners.ranks());
    let small = |u: &Array2<f64>| gram_of(u).into_iter().chain(u.sum_axis(Axis(0))).collect();
    let mut small = owners.sum(own.iter().map(small).collect())?;
    let sums = small.split_off(k * k);
    let gram = Array2::from_shape_vec((k, k), small).expect("k rows");
    let of_owner = |(u, cells): (&Array2<f64>, &Loaded<f64>)| {
        let mut product = Array2::zeros((n, k));
        visit(cells, owners.ranks(), |rows, block| {
            let order = block.order();
            let (mut part, mut sum) = (order.zeros(rows.len(), k), order.zeros(n, k));
            part.assign(&u.slice(s![rows, ..]));
            block.tmul(&part.view(), &mut sum.view_mut());
            product += &sum;
        })?;
        Ok(product.into_raw_vec_and_offset().0)
    };
    let terms = own.iter().zip(genes.cells).map(of_owner).collect::<Result<Vec<_>>>()?;
    // By Cauchy and Schwarz.
    let norms = genes.norms();
    let bounds: Vec<f64> = norms.iter().flat_map(|norm| gram.diag().map(|square| norm * square.sqrt())).collect();
    let product = owners.sum_products(terms, &bounds)?;
    Ok(Products { genes: Array2::from_shape_vec((n, k), product).expect("n rows"), gram, sums })
}

/// The spectra of all genes for given usages (k × genes). Collective.
fn spectra_of(usages: &[Array2<f64>], genes: &Genes<'_>, owners: &mut dyn CellSums) -> Result<Array2<f64>> {
    let Products { genes: product, gram, .. } = products(usages, genes, owners)?;
    let mut spectra = Array2::zeros(product.dim());
    solve(&mut spectra, &product, &gram);
    Ok(spectra.reversed_axes().as_standard_layout().into_owned())
}

/// The coefficients of ordinary least squares of the genes' z-scores on the usages (k × genes). Collective.
fn regression(usages: &[Array2<f64>], genes: &Genes<'_>, owners: &mut dyn CellSums) -> Result<Array2<f64>> {
    let Products { genes: mut scores, gram, sums } = products(usages, genes, owners)?;
    let mut cholesky = Cholesky::default();
    // A programme that no cell uses has coefficients of zero.
    cholesky.factorise(sums.len(), FLOOR, |i, j| if i == j { nonzero(gram[[i, i]]) } else { gram[[i, j]] });
    for ((mut row, mean), deviation) in scores.rows_mut().into_iter().zip(&genes.mean).zip(genes.deviations(0.0)) {
        row.iter_mut().zip(&sums).for_each(|(x, sum)| *x = (*x - sum * mean) / nonzero(deviation));
        cholesky.solve(row.as_slice_mut().expect("a row of a matrix in row order"));
    }
    Ok(scores.reversed_axes().as_standard_layout().into_owned())
}

/// The usages of each owner here (cells × k) of the genes that were factorised, each divided by its standard deviation, for given
/// spectra of all genes. Collective.
fn usages_of(per_million: &Array2<f64>, genes: &Genes<'_>, comm: &Communicator) -> SharedResult<Vec<Array2<f64>>> {
    let (n, k) = (genes.mean.len(), per_million.nrows());
    let (of_all, of_sample) = (genes.deviations(0.0), genes.deviations(1.0));
    let (mut spectra, mut operand) = (Array2::zeros((genes.places.len(), k)), Array2::zeros((n, k)));
    for (mut row, &j) in spectra.rows_mut().into_iter().zip(genes.places) {
        row.assign(&(&per_million.column(j) / nonzero(of_all[j])));
        operand.row_mut(j).assign(&(&row / nonzero(of_sample[j])));
    }
    let gram = gram_of(&spectra);
    let fit = |block: &Block<f64>| {
        let (order, rows) = (block.order(), block.shape().0);
        let (mut v, mut product) = (order.zeros(n, k), order.zeros(rows, k));
        v.assign(&operand);
        block.mul(&v.view(), &mut product.view_mut());
        let mut own = Array2::zeros((rows, k));
        solve(&mut own, &product, &gram);
        own
    };
    genes.cells.iter().map(|cells| of_all_cells(cells, k, comm, fit)).collect()
}

/// x, or 1 in place of 0, to divide by.
fn nonzero(x: f64) -> f64 {
    if x > 0.0 { x } else { 1.0 }
}

/// Calls `f` with each row and its distances to all rows.
fn each_distances(rows: &Array2<f64>, mut f: impl FnMut(usize, &[f64])) {
    let norms: Vec<f64> = rows.rows().into_iter().map(|row| row.dot(&row)).collect();
    for first in (0..rows.nrows()).step_by(STEP) {
        let part = rows.slice(s![first..rows.nrows().min(first + STEP), ..]);
        for (a, products) in part.dot(&rows.t()).rows().into_iter().enumerate() {
            let i = first + a;
            let distance = |(j, product): (usize, &f64)| {
                if i == j { 0.0 } else { (norms[i] + norms[j] - 2.0 * product).max(0.0).sqrt() }
            };
            f(i, &products.iter().enumerate().map(distance).collect::<Vec<_>>());
        }
    }
}

/// The cluster of each row: the best of several starts by k-means++ (Arthur and Vassilvitskii 2007), the same in each call.
fn k_means(rows: &Array2<f64>, k: usize) -> Vec<usize> {
    let all = (0..STARTS).map(|start| {
        let mut centres = spread_centres(rows, k, &Stream::new(1, Purpose::Probe, start));
        let (mut labels, mut inertia) = nearest(rows, &centres.view());
        for _ in 0..PASSES {
            let before = labels.clone();
            move_centres(rows, &labels, &mut centres);
            (labels, inertia) = nearest(rows, &centres.view());
            if labels == before {
                break;
            }
        }
        (labels, inertia)
    });
    all.reduce(|best, other| if other.1 < best.1 { other } else { best }).map(|(labels, _)| labels).unwrap_or_default()
}

/// k rows, each drawn in proportion to the squared distance from those before it.
fn spread_centres(rows: &Array2<f64>, k: usize, stream: &Stream) -> Array2<f64> {
    let mut numbers = stream.at(0);
    let mut centres = Array2::zeros((k, rows.ncols()));
    let mut distances = vec![f64::INFINITY; rows.nrows()];
    let mut next = numbers.below(rows.nrows() as u64) as usize;
    for c in 0..k {
        centres.row_mut(c).assign(&rows.row(next));
        for (distance, row) in distances.iter_mut().zip(rows.rows()) {
            let off = &row - &centres.row(c);
            *distance = distance.min(off.dot(&off));
        }
        let mut rest = numbers.uniform() * distances.iter().sum::<f64>();
        let drawn = distances.iter().position(|distance| {
            rest -= distance;
            rest < 0.0
        });
        next = drawn.unwrap_or(0);
    }
    centres
}

/// The nearest centre of each row, and the sum of the squared distances.
fn nearest(rows: &Array2<f64>, centres: &ArrayView2<'_, f64>) -> (Vec<usize>, f64) {
    let norms: Vec<f64> = centres.rows().into_iter().map(|row| row.dot(&row)).collect();
    let mut sum = 0.0;
    let products = rows.dot(&centres.t());
    let labels = products.rows().into_iter().zip(rows.rows()).map(|(products, row)| {
        let off = |c: usize| norms[c] - 2.0 * products[c];
        let best = (1..norms.len()).fold(0, |best, c| if off(c) < off(best) { c } else { best });
        sum += row.dot(&row) + off(best);
        best
    });
    (labels.collect(), sum)
}

/// Each centre to the mean of its rows; one without rows to the row that is farthest from its own centre.
fn move_centres(rows: &Array2<f64>, labels: &[usize], centres: &mut Array2<f64>) {
    let mut counts = vec![0.0; centres.nrows()];
    let mut sums = Array2::<f64>::zeros(centres.dim());
    for (row, &label) in rows.rows().into_iter().zip(labels) {
        let mut sum = sums.row_mut(label);
        sum += &row;
        counts[label] += 1.0;
    }
    let mut off: Vec<(f64, usize)> = labels
        .iter()
        .enumerate()
        .map(|(i, &label)| {
            let off = &rows.row(i) - &centres.row(label);
            (off.dot(&off), i)
        })
        .collect();
    off.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    for (mut centre, (sum, count)) in centres.rows_mut().into_iter().zip(sums.rows().into_iter().zip(counts)) {
        match off.last() {
            Some(&(_, farthest)) if count == 0.0 => {
                centre.assign(&rows.row(farthest));
                off.pop();
            }
            _ => centre.assign(&(&sum / nonzero(count))),
        }
    }
}

/// The median of each cluster, divided by its sum (k × n).
fn medians(rows: &Array2<f64>, labels: &[usize], k: usize) -> Array2<f64> {
    let mut medians = Array2::zeros((k, rows.ncols()));
    for (label, mut median) in medians.rows_mut().into_iter().enumerate() {
        let members: Vec<usize> = (0..labels.len()).filter(|&i| labels[i] == label).collect();
        for (j, median) in median.iter_mut().enumerate() {
            let mut values: Vec<f64> = members.iter().map(|&i| rows[[i, j]]).collect();
            values.sort_unstable_by(f64::total_cmp);
            let half = values.len() / 2;
            *median = match values.len() {
                0 => 0.0,
                length if length % 2 == 1 => values[half],
                _ => 0.5 * (values[half - 1] + values[half]),
            };
        }
        median /= nonzero(median.sum());
    }
    medians
}

/// The mean silhouette by Euclidean distance; NaN with a single cluster, or if each row is one.
fn silhouette(rows: &Array2<f64>, labels: &[usize], k: usize) -> f64 {
    let mut counts = vec![0.0; k];
    labels.iter().for_each(|&label| counts[label] += 1.0);
    let clusters = counts.iter().filter(|&&count| count > 0.0).count();
    if clusters < 2 || clusters >= labels.len() {
        return f64::NAN;
    }
    let mut total = 0.0;
    each_distances(rows, |i, distances| {
        let mut sums = vec![0.0; k];
        distances.iter().zip(labels).for_each(|(distance, &label)| sums[label] += distance);
        let own = labels[i];
        if counts[own] < 2.0 {
            return;
        }
        let within = sums[own] / (counts[own] - 1.0);
        let others = (0..k).filter(|&c| c != own && counts[c] > 0.0).map(|c| sums[c] / counts[c]);
        let other = others.fold(f64::INFINITY, f64::min);
        total += (other - within) / nonzero(within.max(other));
    });
    total / labels.len() as f64
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    /// Three runs of two components, and a run with an outlying one.
    fn runs() -> Vec<Array2<f64>> {
        let v = array![[1.0, 0.0], [0.8, 0.0], [0.0, 1.0], [0.1, 0.7], [0.0, 0.0]];
        let mut runs = vec![v.clone(), v.select(Axis(1), &[1, 0]) * 3.0, &v + 0.01, v];
        runs[3].column_mut(1).assign(&array![0.0, 0.0, 0.0, 0.0, 1.0]);
        runs
    }

    #[test]
    fn outlying_spectra_are_left_out() {
        let spectra = Spectra::new(&runs(), 1);
        assert!(spectra.density.iter().enumerate().all(|(i, density)| (*density > 1.0) == (i == 7)));
        let Ok(clusters) = spectra.clusters(0.5) else { panic!("seven are kept") };
        assert!(clusters.kept.rows().into_iter().all(|row| (row.sum() - 1.0).abs() < 1e-12 && row[4] < 0.01));
        assert!(clusters.silhouette > 0.5 && clusters.silhouette < 1.0, "{}", clusters.silhouette);
        assert_eq!(spectra.clusters(0.0).err(), Some(0), "no distance is below 0");
        assert_eq!(Spectra::new(&runs()[3..], 1).clusters(0.5).err(), Some(0));
    }

    #[test]
    fn clusters_are_those_of_groups_and_the_silhouette_that_of_scikit_learn() {
        let rows = array![[0.0, 1.0], [0.1, 1.0], [5.0, 5.0], [5.0, 5.2], [9.0, 0.0]];
        let labels = k_means(&rows, 3);
        assert!(labels[0] == labels[1] && labels[2] == labels[3]);
        assert!(labels[0] != labels[2] && labels[2] != labels[4] && labels[0] != labels[4]);
        // sklearn.metrics.silhouette_score(rows, [0, 0, 1, 1, 2])
        let found = silhouette(&rows, &[0, 0, 1, 1, 2], 3);
        assert!((found - 0.781_330_284_760_518_5).abs() < 1e-9, "{found}");
        assert!(silhouette(&rows, &[0; 5], 1).is_nan());
    }
}
