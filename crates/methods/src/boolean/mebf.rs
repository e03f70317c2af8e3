//! MEBF (Wan, Chang, Zhao, Li, Cao, Zhang: Fast and Efficient Boolean Matrix Factorization by Geometric Segmentation).
//! One iteration grows a component from the middle one of the columns (ordered by their ones left) and all columns that
//! share more than `--tau` of it, or likewise from the middle row, whichever fits what is left better. Where that does
//! not lessen the error, from what the two heaviest columns, or rows, have in common. It ends when that does not help
//! either, or the share `--cover-limit` of the ones is covered.

use ndarray::Array2;

use fednmf_base::error::Result;
use fednmf_linalg::{Bits, Real};

use super::Client;
use super::vote;
use crate::boolean::cover::count;
use crate::boolean::greedy_state::{Found, common, each};
use crate::boolean::vote::{Local, VoteParams};
use crate::description::{Description, Unit};
use crate::method::Method;
use crate::parameters::number;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of MEBF.
    pub struct Mebf {
        /// Share of a pattern that a row or column needs to join it
        pub tau: f64 = 0.5, "X", number(0.0, 1.0);
        /// Share of the ones from which on no component is added
        pub cover_limit: f64 = 0.95, "X", number(0.0, 1.0);
        group vote: VoteParams;
    }
}

impl Method for Mebf {
    const DESCRIPTION: &'static Description = &vote::describe(
        "mebf",
        "Boolean factorisation by geometric segmentation at each party, components joined by vote",
        "Wan, Chang, Zhao, Li, Cao, Zhang: Fast and Efficient Boolean Matrix Factorization by Geometric Segmentation",
        Unit::Component,
    );

    fn check(&self) -> Result<()> {
        self.vote.check()
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

/// Rows and columns of a component, a bit each.
struct Pattern {
    rows: Vec<u64>,
    columns: Vec<u64>,
}

struct MebfMiner<T> {
    found: Found<T>,
    tau: f64,
    cover_limit: f64,
    total: usize,
    /// `found.left` by columns.
    left: Bits,
    by_column: Pattern,
    by_row: Pattern,
    /// Rows or columns by their ones left: (ones, index).
    order: Vec<(usize, usize)>,
}

fn build<T: Real>(args: &Mebf, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let (k, tau, cover_limit) = (problem.k, args.tau, args.cover_limit);
    vote::build(problem, &args.vote, Some(k), move |client, _| {
        let found = Found::new(client, k);
        let (rows, n) = client.x.shape();
        let none = || Pattern { rows: vec![0; rows.div_ceil(64)], columns: vec![0; n.div_ceil(64)] };
        MebfMiner {
            total: found.ones.count(),
            left: found.left.transposed(),
            by_column: none(),
            by_row: none(),
            order: Vec::with_capacity(rows.max(n)),
            tau,
            cover_limit,
            found,
        }
    })
}

/// The rows of `lines` that have ones, by decreasing number of ones; ties keep their order.
fn heaviest(lines: &Bits, order: &mut Vec<(usize, usize)>) {
    order.clear();
    order.extend((0..lines.shape().0).map(|i| (count(lines.row(i)), i)).filter(|(ones, _)| *ones > 0));
    order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
}

/// The rows of `lines` that share more than `tau` of `pattern`, into `out`.
fn joining(lines: &Bits, pattern: &[u64], tau: f64, out: &mut [u64]) {
    out.fill(0);
    let size = count(pattern);
    for i in 0..lines.shape().0 {
        if size > 0 && common(lines.row(i), pattern) as f64 > tau * size as f64 {
            out[i / 64] |= 1 << (i % 64);
        }
    }
}

impl<T: Real> MebfMiner<T> {
    /// The decrease of the number of wrong entries by a pattern.
    fn gain(&self, pattern: &Pattern) -> isize {
        let mut gain = 0;
        each(&pattern.rows, |i| {
            gain += common(self.found.left.row(i), &pattern.columns) as isize;
            gain -= common(self.found.clear.row(i), &pattern.columns) as isize;
        });
        gain
    }

    /// The better of the patterns that grow from columns and from rows: from the middle one, or, where the signal is
    /// weak, from what the two heaviest have in common. Its gain, and whether it came from a column.
    fn grow(&mut self, weak: bool) -> (isize, bool) {
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
        seed(&self.left, &mut self.order, &mut self.by_column.rows);
        joining(&self.left, &self.by_column.rows, self.tau, &mut self.by_column.columns);
        seed(&self.found.left, &mut self.order, &mut self.by_row.columns);
        joining(&self.found.left, &self.by_row.columns, self.tau, &mut self.by_row.rows);
        let (by_column, by_row) = (self.gain(&self.by_column), self.gain(&self.by_row));
        (by_column.max(by_row), by_column >= by_row)
    }

    fn take(&mut self, t: usize, by_column: bool) {
        let pattern = if by_column { &self.by_column } else { &self.by_row };
        self.found.set(t, &pattern.rows, &pattern.columns);
        each(&pattern.columns, |j| {
            self.left.row_mut(j).iter_mut().zip(&pattern.rows).for_each(|(left, rows)| *left &= !rows);
        });
    }
}

impl<T: Real> Local<T> for MebfMiner<T> {
    fn iterate(&mut self, _: &Client<T>, t: usize) {
        let covered = self.total - self.found.left.count();
        if t >= self.found.k() || covered as f64 >= self.cover_limit * self.total as f64 {
            return;
        }
        for weak in [false, true] {
            let (gain, by_column) = self.grow(weak);
            if gain > 0 {
                return self.take(t, by_column);
            }
        }
    }

    fn boolean(&self, _: &Client<T>) -> (Bits, Bits) {
        self.found.boolean()
    }

    fn state(&self) -> Vec<(&'static str, &Array2<T>)> {
        self.found.state()
    }

    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)> {
        self.found.state_mut()
    }

    fn restored(&mut self) {
        self.found.restored();
        self.left = self.found.left.transposed();
    }
}
