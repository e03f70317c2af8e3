//! GRECOND (Belohlavek, Vychodil: Discovery of optimal factors in binary matrices via a novel method of matrix
//! decomposition). A component is a formal concept: rows and columns whose rectangle is full of ones and that cannot be
//! made larger. One iteration grows a concept greedily, always by the column that leaves the concept covering most of the
//! ones not covered so far, until no column helps.

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
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of GRECOND.
    pub struct Grecond {
        group vote: VoteParams;
    }
}

impl Method for Grecond {
    const DESCRIPTION: &'static Description = &vote::describe(
        "grecond",
        "Boolean factorisation by formal concepts at each party, components joined by vote",
        "Belohlavek, Vychodil: Discovery of Optimal Factors in Binary Matrices via a Novel Method of Matrix Decomposition",
        Unit::Component,
    );

    fn check(&self) -> Result<()> {
        self.vote.check()
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

/// Rows and columns of a concept, a bit each, and the ones left that it covers.
#[derive(Clone)]
struct Concept {
    rows: Vec<u64>,
    columns: Vec<u64>,
    covers: usize,
}

struct GrecondMiner<T> {
    found: Found<T>,
    by_column: Bits,
    best: Concept,
    next: Concept,
    tried: Concept,
    /// Ones left in each row.
    left_in: Vec<usize>,
}

fn build<T: Real>(args: &Grecond, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let k = problem.k;
    vote::build(problem, &args.vote, Some(k), move |client, _| {
        let found = Found::new(client, k);
        let (rows, n) = client.x.shape();
        let none = Concept { rows: vec![0; rows.div_ceil(64)], columns: vec![0; n.div_ceil(64)], covers: 0 };
        let by_column = found.ones.transposed();
        GrecondMiner { found, by_column, best: none.clone(), next: none.clone(), tried: none, left_in: vec![0; rows] }
    })
}

impl Concept {
    fn copy(&mut self, from: &Concept) {
        self.rows.copy_from_slice(&from.rows);
        self.columns.copy_from_slice(&from.columns);
        self.covers = from.covers;
    }
}

impl<T: Real> Local<T> for GrecondMiner<T> {
    fn iterate(&mut self, _: &Client<T>, t: usize) {
        if t >= self.found.k() {
            return;
        }
        let Found { ones, left, .. } = &self.found;
        let (rows, n) = ones.shape();
        self.left_in.iter_mut().enumerate().for_each(|(i, sum)| *sum = count(left.row(i)));
        let GrecondMiner { by_column, best, next, tried, left_in, .. } = self;
        best.columns.fill(0);
        best.covers = 0;
        best.rows.fill(0);
        (0..rows).for_each(|i| best.rows[i / 64] |= 1 << (i % 64));
        loop {
            next.covers = best.covers;
            for j in (0..n).filter(|j| best.columns[j / 64] >> (j % 64) & 1 == 0) {
                let mut bound = 0;
                for ((rows, all), column) in tried.rows.iter_mut().zip(&best.rows).zip(by_column.row(j)) {
                    *rows = all & column;
                }
                each(&tried.rows, |i| bound += left_in[i]);
                // A concept covers no more than what is left in its rows.
                if bound <= next.covers {
                    continue;
                }
                tried.columns.fill(u64::MAX);
                each(&tried.rows, |i| tried.columns.iter_mut().zip(ones.row(i)).for_each(|(c, ones)| *c &= ones));
                tried.covers = 0;
                each(&tried.rows, |i| tried.covers += common(left.row(i), &tried.columns));
                if tried.covers > next.covers {
                    next.copy(tried);
                }
            }
            if next.covers == best.covers {
                break;
            }
            best.copy(next);
        }
        if best.covers > 0 {
            self.found.set(t, &self.best.rows, &self.best.columns);
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
    }
}
