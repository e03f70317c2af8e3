//! MEBF (Wan, Chang, Zhao, Li, Cao, Zhang: Fast and Efficient Boolean Matrix Factorization by Geometric Segmentation). Each
//! iteration grows two patterns. The column pattern consists of the middle column in the order of uncovered ones and of all
//! columns that contain more than the share `--tau` of it; the row pattern is defined likewise. The better pattern becomes
//! a component. If neither reduces the error, the patterns grow from the intersection of the two columns, or rows, with the
//! most uncovered ones. The search ends if these do not reduce the error either, or if the share `--cover-limit` of the
//! ones is covered.

use fednmf_linalg::{Bits, Real};

use super::Client;
use crate::boolean::cover::count;
use crate::boolean::greedy::{Component, ComponentSearch, Coverage, Greedy, count_common, for_each_one};
use crate::boolean::vote::{self, LocalMethod, LocalProblem};
use crate::description::{Description, Unit};
use crate::parameters::number;

fednmf_base::parameters! {
    /// Parameters of MEBF.
    pub struct Mebf {
        /// Share of a pattern that a row or column needs to join it
        pub tau: f64 = 0.5, "X", number(0.0, 1.0);
        /// Share of the ones from which on no component is added
        pub cover_limit: f64 = 0.95, "X", number(0.0, 1.0);
    }
}

impl LocalMethod for Mebf {
    const DESCRIPTION: &'static Description = &vote::describe(
        "mebf",
        "Boolean factors by geometric segmentation, components joined by vote",
        "Wan, Chang, Zhao, Li, Cao, Zhang: Fast and Efficient Boolean Matrix Factorization by Geometric Segmentation",
        Unit::Component,
    );

    type Local<T: Real> = Greedy<T, MebfSearch>;

    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Greedy<T, MebfSearch> {
        let (rows, n) = client.x.shape();
        let empty = || Pattern { rows: vec![0; rows.div_ceil(64)], columns: vec![0; n.div_ceil(64)] };
        Greedy::new(client, problem.k, |data| MebfSearch {
            tau: self.tau,
            cover_limit: self.cover_limit,
            total: data.ones.count(),
            uncovered_by_column: data.uncovered_ones.transposed(),
            by_column: empty(),
            by_row: empty(),
            order: Vec::with_capacity(rows.max(n)),
        })
    }
}

/// Rows and columns of a component, one bit each.
struct Pattern {
    rows: Vec<u64>,
    columns: Vec<u64>,
}

/// The search for the better one of the patterns that grow from columns and from rows.
pub struct MebfSearch {
    tau: f64,
    cover_limit: f64,
    /// Number of ones in the data.
    total: usize,
    /// The uncovered ones, n × rows.
    uncovered_by_column: Bits,
    by_column: Pattern,
    by_row: Pattern,
    /// Rows or columns, ordered by uncovered ones: (ones, index).
    order: Vec<(usize, usize)>,
}

/// The rows of `lines` that have ones, in descending order of their number of ones; ties keep their order.
fn heaviest(lines: &Bits, order: &mut Vec<(usize, usize)>) {
    order.clear();
    order.extend((0..lines.shape().0).map(|i| (count(lines.row(i)), i)).filter(|(ones, _)| *ones > 0));
    order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
}

/// Writes the rows of `lines` that contain more than the share `tau` of `pattern` into `out`.
fn joining(lines: &Bits, pattern: &[u64], tau: f64, out: &mut [u64]) {
    out.fill(0);
    let size = count(pattern);
    for i in 0..lines.shape().0 {
        if size > 0 && count_common(lines.row(i), pattern) as f64 > tau * size as f64 {
            out[i / 64] |= 1 << (i % 64);
        }
    }
}

/// The decrease in the number of wrong entries by a pattern.
fn gain(data: &Coverage, pattern: &Pattern) -> isize {
    let mut gain = 0;
    for_each_one(&pattern.rows, |i| {
        gain += count_common(data.uncovered_ones.row(i), &pattern.columns) as isize;
        gain -= count_common(data.uncovered_zeros.row(i), &pattern.columns) as isize;
    });
    gain
}

impl MebfSearch {
    /// Grows a pattern from columns and one from rows: from the middle one or, if `weak`, from the intersection of the two
    /// with the most ones. Returns the gain of the better pattern, and whether it grew from columns.
    fn grow(&mut self, data: &Coverage, weak: bool) -> (isize, bool) {
        let seed = |lines: &Bits, order: &mut Vec<(usize, usize)>, out: &mut [u64]| {
            heaviest(lines, order);
            out.fill(0);
            match (weak, order.as_slice()) {
                (true, [(_, first), (_, second), ..]) => {
                    let both = lines.row(*first).iter().zip(lines.row(*second));
                    out.iter_mut().zip(both).for_each(|(out, (a, b))| *out = a & b);
                }
                (false, [_, ..]) => out.copy_from_slice(lines.row(order[order.len() / 2].1)),
                _ => (),
            }
        };
        let MebfSearch { tau, uncovered_by_column, by_column, by_row, order, .. } = self;
        seed(uncovered_by_column, order, &mut by_column.rows);
        joining(uncovered_by_column, &by_column.rows, *tau, &mut by_column.columns);
        seed(&data.uncovered_ones, order, &mut by_row.columns);
        joining(&data.uncovered_ones, &by_row.columns, *tau, &mut by_row.rows);
        let (by_column, by_row) = (gain(data, by_column), gain(data, by_row));
        (by_column.max(by_row), by_column >= by_row)
    }

    /// Selects the pattern to be covered.
    fn choose(&mut self, by_column: bool) -> Component<'_> {
        let Pattern { rows, columns } = if by_column { &self.by_column } else { &self.by_row };
        for_each_one(columns, |j| {
            self.uncovered_by_column.row_mut(j).iter_mut().zip(rows).for_each(|(ones, rows)| *ones &= !rows);
        });
        (rows, columns)
    }
}

impl ComponentSearch for MebfSearch {
    fn find(&mut self, data: &Coverage) -> Option<Component<'_>> {
        let covered = self.total - data.uncovered_ones.count();
        if covered as f64 >= self.cover_limit * self.total as f64 {
            return None;
        }
        for weak in [false, true] {
            let (gain, by_column) = self.grow(data, weak);
            if gain > 0 {
                return Some(self.choose(by_column));
            }
        }
        None
    }

    fn restored(&mut self, data: &Coverage) {
        self.uncovered_by_column = data.uncovered_ones.transposed();
    }
}
