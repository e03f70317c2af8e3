//! Boolean methods that find one component in each iteration. They differ in their [`ComponentSearch`].

use ndarray::Array2;

use fednmf_linalg::{Bits, Real};

use super::{Client, round_rows, rounded};
use crate::boolean::vote::LocalFactorization;

/// A party's entries (rows × n), and the ones that are not covered by the components found so far.
pub struct Coverage {
    /// The ones of the data.
    pub ones: Bits,
    pub uncovered_ones: Bits,
    pub uncovered_zeros: Bits,
}

/// A component as bits: its rows of the party's data, and its columns.
pub type Component<'a> = (&'a [u64], &'a [u64]);

/// The search for the next component.
pub trait ComponentSearch {
    /// The next component, or `None` if no further one reduces the error.
    fn find(&mut self, data: &Coverage) -> Option<Component<'_>>;

    /// Recomputes values that depend on the components found so far, after a resume.
    fn restored(&mut self, _data: &Coverage) {}
}

/// The components of one party, of which `S` finds one in each iteration.
pub struct Greedy<T, S> {
    /// U (rows × k) and V (n × k), with entries 0 and 1.
    u: Array2<T>,
    v: Array2<T>,
    data: Coverage,
    search: S,
}

impl Coverage {
    fn new(ones: Bits) -> Self {
        let (rows, n) = ones.shape();
        let mut uncovered_zeros = Bits::zeros(rows, n);
        for i in 0..rows {
            uncovered_zeros.row_mut(i).iter_mut().zip(ones.row(i)).for_each(|(zeros, ones)| *zeros = !ones);
            if let Some(last) = uncovered_zeros.row_mut(i).last_mut().filter(|_| n % 64 != 0) {
                *last &= (1 << (n % 64)) - 1;
            }
        }
        Coverage { uncovered_ones: ones.clone(), ones, uncovered_zeros }
    }

    fn cover(&mut self, (rows, columns): Component<'_>) {
        for_each_one(rows, |i| {
            self.uncovered_ones.row_mut(i).iter_mut().zip(columns).for_each(|(ones, c)| *ones &= !c);
            self.uncovered_zeros.row_mut(i).iter_mut().zip(columns).for_each(|(zeros, c)| *zeros &= !c);
        });
    }
}

impl<T: Real, S: ComponentSearch> Greedy<T, S> {
    /// Memory for k components, none of them found yet; `search` creates the search from the data.
    pub fn new(client: &Client<T>, k: usize, search: impl FnOnce(&Coverage) -> S) -> Self {
        let (rows, n) = client.x.shape();
        let data = Coverage::new(client.x.bits());
        Greedy { u: Array2::zeros((rows, k)), v: Array2::zeros((n, k)), search: search(&data), data }
    }
}

impl<T: Real, S: ComponentSearch> LocalFactorization<T> for Greedy<T, S> {
    fn iterate(&mut self, _: &Client<T>, t: usize) {
        let Greedy { u, v, data, search } = self;
        if t >= u.ncols() {
            return;
        }
        if let Some((rows, columns)) = search.find(data) {
            for_each_one(rows, |i| u[[i, t]] = T::one());
            for_each_one(columns, |j| v[[j, t]] = T::one());
            data.cover((rows, columns));
        }
    }

    fn boolean(&self, _: &Client<T>) -> (Bits, Bits) {
        (round_rows(&self.u), rounded(&self.v.view()))
    }

    fn state(&self) -> Vec<(&'static str, &Array2<T>)> {
        vec![("U", &self.u), ("V", &self.v)]
    }

    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)> {
        vec![("U", &mut self.u), ("V", &mut self.v)]
    }

    fn restored(&mut self) {
        let (u, v) = (rounded(&self.u.view()), rounded(&self.v.view()));
        (0..self.u.ncols()).for_each(|c| self.data.cover((u.row(c), v.row(c))));
        self.search.restored(&self.data);
    }
}

/// Calls `f` with the position of each one.
pub fn for_each_one(words: &[u64], mut f: impl FnMut(usize)) {
    for (w, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(w * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// The number of ones that a and b have in common.
pub fn count_common(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).map(|(a, b)| (a & b).count_ones() as usize).sum()
}
