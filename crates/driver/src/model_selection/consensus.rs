//! The consensus of the runs with one k: V has the mean of each cluster of matched components, and U is the exact minimiser of the
//! loss of the method for it.

use ndarray::{Array2, ArrayView2, Axis, s};

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::{Layout, Loaded, Panels};
use fednmf_linalg::nls::divergence::{project_on, unit};
use fednmf_linalg::nls::{Penalty, Pivoting};
use fednmf_linalg::{Block, gram};
use fednmf_methods::distributed::divergence::beta::Beta;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::shared::factor_side::{FactorTags, GRAM_V};
use fednmf_methods::shared::grid;
use fednmf_methods::shared::grid::Grid;
use fednmf_methods::shared::missing::Observed;
use fednmf_methods::shared::rank_data::rank_data;

use super::method::SweepMissing;
use super::stability::{Matched, Repeated};
use crate::by_weight;

const MEANS: MessageTag = MessageTag::new("consensus: V", Payload::SharedFactor);
const GATHER: MessageTag = MessageTag::new("consensus: gather a factor", Payload::SharedFactor);
const PRODUCT: MessageTag = MessageTag::new("consensus: sum M V", Payload::Product);
const SUMS: MessageTag = MessageTag::new("consensus: error and weights", Payload::Scalar);

/// Rows that are solved at a time: the solver keeps its state for each.
const STEP: usize = 4096;
/// Columns named for each component.
const COLUMNS: usize = 8;

/// One component of the consensus.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Component {
    /// Its column of U and V, from 0.
    pub component: usize,
    /// `None` with a single run.
    pub silhouette: Option<f64>,
    pub cosine: Option<f64>,
    /// Its share of the sum of all entries of U Vᵀ.
    pub share: f64,
    /// The columns of the matrix with the largest entries, from 0, in descending order.
    pub columns: Vec<usize>,
}

/// The consensus of several runs, by descending weight.
pub struct Consensus {
    /// The first row of the matrix that is in `u`.
    pub first: usize,
    /// This rank's rows of U.
    pub u: Array2<f64>,
    /// All of V, normalised.
    pub v: Array2<f64>,
    /// Root mean squared error on the entries that count, those held out by runs included.
    pub rmse: f64,
    /// The divergence from these entries, if the method minimises one.
    pub divergence: Option<f64>,
    pub components: Vec<Component>,
    /// The cluster of the runs' components that each component is the mean of.
    pub clusters: Vec<usize>,
}

impl Consensus {
    /// The consensus of matched runs, which only rank 0 of the group has. Every rank knows `k` and `method` of the runs.
    /// Collective in a group, which has the whole matrix.
    ///
    /// # Errors
    /// On all ranks of the group, if the matrix does not suit the kernels, or cannot be read.
    pub fn new(
        matched: Option<&Matched>,
        (k, method): (usize, &dyn ConfiguredMethod),
        (loaded, missing): (&Loaded<f64>, SweepMissing),
        group: &Communicator,
    ) -> SharedResult<Self> {
        let v = shared_means(matched, (loaded.header.cols, k), group);
        let repeated = matched.and_then(Matched::repeated);
        let of_divergence = method.description().measure != Measure::RelativeError;
        let fit = match (Beta::of_method(method).filter(|_| of_divergence), &loaded.layout) {
            (Some(beta), _) => fit_by_divergence(loaded, missing, (&v, beta), group)?,
            (None, Layout::RowsAndColumns { .. }) => fit_rows(loaded, missing, &v, group)?,
            (None, _) => fit_grid(loaded, &v, group)?,
        };
        let mut sums = vec![fit.squared, fit.count, fit.divergence];
        sums.extend(fit.u.columns().into_iter().map(|u| u.dot(&u)));
        sums.extend(fit.u.columns().into_iter().map(|u| u.sum()));
        group.sum(SUMS, &mut sums);
        let (squares, sums_of_u) = sums[3..].split_at(k);
        // V is normalised, so the norm of a term is that of its column of U.
        let weights: Vec<f64> = squares.iter().map(|x| x.sqrt()).collect();
        let order = by_weight(&weights);
        let totals: Vec<f64> = order.iter().map(|&j| sums_of_u[j] * v.column(j).sum()).collect();
        let v = v.select(Axis(1), &order);
        let repeated: Option<Vec<Repeated>> = repeated.map(|all| order.iter().map(|&j| all[j]).collect());
        Ok(Consensus {
            first: fit.first,
            u: fit.u.select(Axis(1), &order),
            components: components(&v, &totals, repeated.as_deref()),
            v,
            rmse: (sums[0] / sums[1]).sqrt(),
            divergence: of_divergence.then(|| metrics::not_negative(sums[2])),
            clusters: order,
        })
    }
}

/// The means of matched runs (n × k), which only rank 0 has. Collective.
pub fn shared_means(matched: Option<&Matched>, shape: (usize, usize), group: &Communicator) -> Array2<f64> {
    let mut v = matched.map_or_else(|| Array2::zeros(shape), Matched::means);
    // The other ranks add zeros, so the sum has the bits of the means.
    group.sum(MEANS, v.as_slice_mut().expect("made in row order"));
    v
}

/// The components of V, the sums of whose terms u_j v_jᵀ are `totals`.
fn components(v: &Array2<f64>, totals: &[f64], repeated: Option<&[Repeated]>) -> Vec<Component> {
    let total: f64 = totals.iter().sum();
    let of = |component: usize| {
        let column = v.column(component);
        let mut columns: Vec<usize> = (0..column.len()).filter(|&i| column[i] > 0.0).collect();
        columns.sort_by(|&a, &b| column[b].total_cmp(&column[a]).then(a.cmp(&b)));
        columns.truncate(COLUMNS);
        Component {
            component,
            silhouette: repeated.map(|all| all[component].silhouette),
            cosine: repeated.map(|all| all[component].cosine),
            share: if total > 0.0 { totals[component] / total } else { 0.0 },
            columns,
        }
    };
    (0..totals.len()).map(of).collect()
}

/// This rank's rows of U, and its term of the squared error, of the number of entries and of the divergence.
struct Fit {
    first: usize,
    u: Array2<f64>,
    squared: f64,
    count: f64,
    /// 0 for the squared error.
    divergence: f64,
}

/// X ← the minimiser for each row of the right-hand side.
pub fn solve(u: &mut Array2<f64>, rhs: &Array2<f64>, g: &Array2<f64>) {
    let mut solver = Pivoting::new(g.nrows());
    for first in (0..u.nrows()).step_by(STEP) {
        let part = s![first..(first + STEP).min(rhs.nrows()), ..];
        solver.solve(&mut u.slice_mut(part), &rhs.slice(part), &g.view());
    }
}

/// FᵀF of a factor F.
pub fn gram_of(v: &Array2<f64>) -> Array2<f64> {
    let mut g = Array2::zeros((v.ncols(), v.ncols()));
    if v.is_empty() {
        return g;
    }
    gram(&v.view(), &mut g.view_mut());
    g
}

/// The fit on a grid, where every entry counts.
fn fit_grid(loaded: &Loaded<f64>, v: &Array2<f64>, group: &Communicator) -> SharedResult<Fit> {
    let k = v.ncols();
    let Loaded { layout, cuts, blocks, panels, .. } = loaded.copy();
    let mut data = rank_data(blocks, panels, None);
    group.agree_on_error(data.prepare(k))?;
    let [_, rows_v] = grid::own_rows(group, &cuts);
    let tile = &layout.tiles(&cuts, group.rank())[0];
    let tags = FactorTags { name: "consensus", gather: GATHER, rhs: PRODUCT, gram: GRAM_V };
    let mut grid = Grid::new(group, data, &cuts, k, [tags; 2]);
    grid.v.own.assign(&v.slice(s![rows_v, ..]));
    grid.product_for_u(group)?;
    solve(&mut grid.u.own, &grid.u.rhs, &gram_of(v));
    let squared = grid.residual2(group)?;
    let count = tile.rows.len() as f64 * tile.cols.len() as f64;
    Ok(Fit { first: grid.u.own_rows.start, u: grid.u.own, squared, count, divergence: 0.0 })
}

/// This rank's rows of the matrix, if they are in memory, where each rank has whole rows.
pub fn rows_in_memory(loaded: &Loaded<f64>) -> Option<Block<f64>> {
    match loaded.layout {
        Layout::RowsAndColumns { .. } => loaded.blocks.first().map(Block::transposed),
        _ => loaded.copy().blocks.into_iter().next(),
    }
}

/// The fit by a divergence: each rank has whole rows, in memory or in panels.
fn fit_by_divergence(
    loaded: &Loaded<f64>,
    missing: SweepMissing,
    (v, Beta(beta)): (&Array2<f64>, Beta),
    group: &Communicator,
) -> SharedResult<Fit> {
    let own = loaded.cuts.rows[group.rank()].clone();
    let block = rows_in_memory(loaded);
    if missing != SweepMissing::None {
        let block = group.agree_on_error(block.ok_or_else(|| Error::failed("a rank has no block")))?;
        let observed = Observed::new(block, missing == SweepMissing::ZeroUnobserved, std::iter::empty());
        let u = observed.project_by_divergence(&v.view(), Penalty::NONE);
        let (fit, divergence) = (observed.fit(&u.view(), &v.view()), observed.divergence(&u.view(), &v.view()));
        return Ok(Fit { first: own.start, u, squared: fit.residual2, count: fit.count, divergence });
    }
    let unit = unit(loaded.statistics.norm2, loaded.header.rows as f64 * v.nrows() as f64);
    let mut u = Array2::zeros((own.len(), v.ncols()));
    let (mut squared, mut divergence) = (0.0, 0.0);
    let mut panels = loaded.panels.as_ref().map(Panels::copy);
    Panels::pass_over(&mut panels, block.as_ref(), group, |rows, block| {
        let solved = project_on(block, &v.view(), beta, Penalty::NONE);
        squared += block.residual2(&solved.view(), &v.view());
        divergence += metrics::own_divergence(beta, block, &solved.view(), &v.view(), unit);
        u.slice_mut(s![rows, ..]).assign(&solved);
    })?;
    Ok(Fit { first: own.start, u, squared, count: own.len() as f64 * v.nrows() as f64, divergence })
}

/// The fit if each rank has whole rows of its own.
fn fit_rows(loaded: &Loaded<f64>, missing: SweepMissing, v: &Array2<f64>, group: &Communicator) -> SharedResult<Fit> {
    let k = v.ncols();
    let mut block = loaded.blocks[0].transposed();
    let rows = loaded.cuts.rows[group.rank()].clone();
    let mut u = Array2::zeros((rows.len(), k));
    let g = gram_of(v);
    if missing != SweepMissing::None {
        let (squared, count) = fit_observed(&block, missing, v, &g, &mut u);
        return Ok(Fit { first: rows.start, u, squared, count, divergence: 0.0 });
    }
    group.agree_on_error(block.prepare(k))?;
    let order = block.order();
    let (mut operand, mut rhs) = (order.zeros(v.nrows(), k), order.zeros(rows.len(), k));
    operand.assign(v);
    block.mul(&operand.view(), &mut rhs.view_mut());
    solve(&mut u, &rhs, &g);
    let squared = block.residual2(&u.view(), &v.view());
    let count = rows.len() as f64 * v.nrows() as f64;
    Ok(Fit { first: rows.start, u, squared, count, divergence: 0.0 })
}

/// Each row by the entries that count in it: its Gram matrix is that of their rows of V. Returns the squared error and the
/// number of these entries.
fn fit_observed(
    block: &Block<f64>,
    which: SweepMissing,
    v: &Array2<f64>,
    whole: &Array2<f64>,
    u: &mut Array2<f64>,
) -> (f64, f64) {
    let (n, k) = v.dim();
    let mut solver = Pivoting::new(k);
    let (mut squared, mut count) = (0.0, 0.0);
    for (i, mut row) in u.rows_mut().into_iter().enumerate() {
        let (mut rhs, mut norm2) = (Array2::zeros((1, k)), 0.0);
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        each(block, i, |j, x| {
            if x.is_nan() {
                missing.push(j);
            } else if x != 0.0 {
                stored.push(j);
                norm2 += x * x;
                rhs.row_mut(0).scaled_add(x, &v.row(j));
            }
        });
        let (g, entries) = match which {
            SweepMissing::ZeroUnobserved => (gram_of(&v.select(Axis(0), &stored)), stored.len()),
            _ if 2 * missing.len() <= n => (whole - &gram_of(&v.select(Axis(0), &missing)), n - missing.len()),
            _ => {
                // Few are left: a difference of nearly equal matrices would be mostly rounding.
                let gone: std::collections::BTreeSet<usize> = missing.iter().copied().collect();
                let left: Vec<usize> = (0..n).filter(|j| !gone.contains(j)).collect();
                (gram_of(&v.select(Axis(0), &left)), left.len())
            }
        };
        let mut x = Array2::zeros((1, k));
        solver.solve(&mut x.view_mut(), &rhs.view(), &g.view());
        squared += quadratic(&x.view(), &rhs.view(), &g.view(), norm2);
        count += entries as f64;
        row.assign(&x.row(0));
    }
    (squared, count)
}

/// Σ (m − x·v)² over the entries of a row from their norm, right-hand side and Gram matrix.
fn quadratic(x: &ArrayView2<'_, f64>, rhs: &ArrayView2<'_, f64>, g: &ArrayView2<'_, f64>, norm2: f64) -> f64 {
    let fitted = (&x.dot(g) * x).sum() - 2.0 * (x * rhs).sum();
    (norm2 + fitted).max(0.0)
}

/// Calls `f` with column and value of each stored entry of a row.
fn each(block: &Block<f64>, row: usize, mut f: impl FnMut(usize, f64)) {
    match block {
        Block::Dense(x) => x.row(row).iter().enumerate().for_each(|(j, &x)| f(j, x)),
        Block::Sparse(x) => {
            if let Some(row) = x.matrix().outer_view(row) {
                row.iter().for_each(|(j, &x)| f(j, x));
            }
        }
        Block::Bits(x) => x.ones(row).for_each(|j| f(j, 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};

    use super::*;

    fn random(seed: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor(&Stream::new(seed, Purpose::Probe, 0), 0..rows, k, 1.0)
    }

    #[test]
    fn only_entries_that_count_are_fitted() {
        let (u, v) = (random(1, 6, 3), random(2, 20, 3));
        let mut m = u.dot(&v.t());
        // Few, half and most of a row are missing.
        for (row, gone) in [(0, 3), (1, 10), (2, 16)] {
            m.slice_mut(s![row, ..gone]).fill(f64::NAN);
        }
        let mut found = Array2::zeros((6, 3));
        let whole = gram_of(&v);
        let (squared, count) = fit_observed(&Block::Dense(m.clone().into()), SweepMissing::Nan, &v, &whole, &mut found);
        assert!((&found - &u).iter().all(|e| e.abs() < 1e-6), "exact where the entries are");
        assert!(squared < 1e-9 && count == (6 * 20 - 29) as f64, "{squared} {count}");

        let zeros = m.mapv(|x| if x.is_nan() { 0.0 } else { x });
        let (squared, count) =
            fit_observed(&Block::Dense(zeros.into()), SweepMissing::ZeroUnobserved, &v, &whole, &mut found);
        assert!((&found - &u).iter().all(|e| e.abs() < 1e-6) && squared < 1e-9 && count == 91.0, "{squared} {count}");
    }

    #[test]
    fn the_error_of_a_row_is_that_of_its_entries() {
        let (x, v, m) = (random(3, 1, 4), random(4, 9, 4), random(5, 1, 9));
        let residual: f64 = (&m - &x.dot(&v.t())).mapv(|e| e * e).sum();
        let found = quadratic(&x.view(), &m.dot(&v).view(), &gram_of(&v).view(), m.mapv(|e| e * e).sum());
        assert!((found - residual).abs() < 1e-12, "{found} {residual}");
    }

    #[test]
    fn components_are_numbered_from_zero_and_name_their_columns() {
        let v = ndarray::array![[0.0, 0.6], [0.8, 0.0], [0.6, 0.8]];
        let found = components(&v, &[3.0, 1.0], None);
        assert_eq!(found.iter().map(|c| (c.component, c.share)).collect::<Vec<_>>(), [(0, 0.75), (1, 0.25)]);
        assert_eq!((&found[0].columns[..], &found[1].columns[..]), (&[1, 2][..], &[2, 0][..]));
    }
}
