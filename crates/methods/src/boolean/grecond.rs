//! GRECOND (Belohlavek, Vychodil: Discovery of optimal factors in binary matrices via a novel method of matrix
//! decomposition). A component is a formal concept: rows and columns whose rectangle is full of ones and that cannot be
//! enlarged. One iteration grows a concept greedily: it adds the column with which the concept contains the most uncovered
//! ones, until no column increases this number.

use fednmf_linalg::{Bits, Real};

use super::Client;
use crate::boolean::cover::count;
use crate::boolean::greedy::{Component, ComponentSearch, Coverage, Greedy, count_common, for_each_one};
use crate::boolean::vote::{self, LocalMethod, LocalProblem};
use crate::description::{Description, Unit};

fednmf_base::parameters! {
    /// Parameters of GRECOND: it has none of its own.
    pub struct Grecond {}
}

impl LocalMethod for Grecond {
    const DESCRIPTION: &'static Description = &vote::describe(
        "grecond",
        "Boolean factors by formal concepts, components joined by vote",
        "Belohlavek, Vychodil: Discovery of Optimal Factors in Binary Matrices via a Novel Method of Matrix Decomposition",
        Unit::Component,
    );

    type Local<T: Real> = Greedy<T, GrecondSearch>;

    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Greedy<T, GrecondSearch> {
        let (rows, n) = client.x.shape();
        let empty = Concept { rows: vec![0; rows.div_ceil(64)], columns: vec![0; n.div_ceil(64)], covers: 0 };
        Greedy::new(client, problem.k, |data| GrecondSearch {
            by_column: data.ones.transposed(),
            best: empty.clone(),
            next: empty.clone(),
            candidate: empty,
            uncovered_in_row: vec![0; rows],
        })
    }
}

/// Rows and columns of a concept, one bit each, and the number of uncovered ones in it.
#[derive(Clone)]
struct Concept {
    rows: Vec<u64>,
    columns: Vec<u64>,
    covers: usize,
}

/// The search for a concept with many uncovered ones.
pub struct GrecondSearch {
    /// The data, n × rows.
    by_column: Bits,
    best: Concept,
    next: Concept,
    candidate: Concept,
    /// Number of uncovered ones in each row.
    uncovered_in_row: Vec<usize>,
}

impl Concept {
    fn copy(&mut self, from: &Concept) {
        self.rows.copy_from_slice(&from.rows);
        self.columns.copy_from_slice(&from.columns);
        self.covers = from.covers;
    }
}

impl ComponentSearch for GrecondSearch {
    fn find(&mut self, data: &Coverage) -> Option<Component<'_>> {
        let Coverage { ones, uncovered_ones, .. } = data;
        let GrecondSearch { by_column, best, next, candidate, uncovered_in_row } = self;
        let (rows, n) = ones.shape();
        uncovered_in_row.iter_mut().enumerate().for_each(|(i, sum)| *sum = count(uncovered_ones.row(i)));
        best.columns.fill(0);
        best.covers = 0;
        best.rows.fill(0);
        (0..rows).for_each(|i| best.rows[i / 64] |= 1 << (i % 64));
        loop {
            next.covers = best.covers;
            for j in (0..n).filter(|j| best.columns[j / 64] >> (j % 64) & 1 == 0) {
                let mut bound = 0;
                for ((rows, all), column) in candidate.rows.iter_mut().zip(&best.rows).zip(by_column.row(j)) {
                    *rows = all & column;
                }
                for_each_one(&candidate.rows, |i| bound += uncovered_in_row[i]);
                // A concept covers at most the uncovered ones in its rows.
                if bound <= next.covers {
                    continue;
                }
                let Concept { rows, columns, covers } = &mut *candidate;
                columns.fill(u64::MAX);
                for_each_one(rows, |i| columns.iter_mut().zip(ones.row(i)).for_each(|(c, ones)| *c &= ones));
                *covers = 0;
                for_each_one(rows, |i| *covers += count_common(uncovered_ones.row(i), columns));
                if *covers > next.covers {
                    next.copy(candidate);
                }
            }
            if next.covers == best.covers {
                break;
            }
            best.copy(next);
        }
        (best.covers > 0).then_some((&best.rows, &best.columns))
    }
}
