//! State of the greedy baselines: the components found so far, and the entries of the party's rows not yet covered.

use ndarray::Array2;

use fednmf_linalg::{Bits, Real};

use super::Client;

/// The components found so far, and the party's entries that they do not cover: ones to cover and zeros to avoid.
pub struct Found<T> {
    /// rows × k and n × k, of 0 and 1
    pub u: Array2<T>,
    pub v: Array2<T>,
    /// The data.
    pub ones: Bits,
    /// Ones that no component covers yet.
    pub left: Bits,
    /// Zeros that no component covers yet.
    pub clear: Bits,
}

impl<T: Real> Found<T> {
    pub fn new(client: &Client<T>, k: usize) -> Self {
        let (rows, n) = client.x.shape();
        let ones = client.x.bits();
        let mut clear = Bits::zeros(rows, n);
        for i in 0..rows {
            clear.row_mut(i).iter_mut().zip(ones.row(i)).for_each(|(clear, ones)| *clear = !ones);
            if let Some(last) = clear.row_mut(i).last_mut().filter(|_| n % 64 != 0) {
                *last &= (1 << (n % 64)) - 1;
            }
        }
        Found { u: Array2::zeros((rows, k)), v: Array2::zeros((n, k)), left: ones.clone(), ones, clear }
    }

    /// Number of components asked for.
    pub fn k(&self) -> usize {
        self.u.ncols()
    }

    /// Component c is the columns of `columns` (n bits) in the rows of `rows` (a bit each).
    pub fn set(&mut self, c: usize, rows: &[u64], columns: &[u64]) {
        each(rows, |i| self.u[[i, c]] = T::one());
        each(columns, |j| self.v[[j, c]] = T::one());
        self.cover(rows, columns);
    }

    fn cover(&mut self, rows: &[u64], columns: &[u64]) {
        each(rows, |i| {
            self.left.row_mut(i).iter_mut().zip(columns).for_each(|(left, c)| *left &= !c);
            self.clear.row_mut(i).iter_mut().zip(columns).for_each(|(clear, c)| *clear &= !c);
        });
    }

    /// U (rows × k) and Vᵀ (k × n).
    pub fn boolean(&self) -> (Bits, Bits) {
        (crate::boolean::round_rows(&self.u), crate::boolean::rounded(&self.v.view()))
    }

    pub fn state(&self) -> Vec<(&'static str, &Array2<T>)> {
        vec![("U", &self.u), ("V", &self.v)]
    }

    pub fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)> {
        vec![("U", &mut self.u), ("V", &mut self.v)]
    }

    /// Covers again what the components of the state cover.
    pub fn restored(&mut self) {
        let (u, v) = (crate::boolean::rounded(&self.u.view()), crate::boolean::rounded(&self.v.view()));
        (0..self.k()).for_each(|c| self.cover(u.row(c), v.row(c)));
    }
}

/// Calls `f` with the places of the ones.
pub fn each(words: &[u64], mut f: impl FnMut(usize)) {
    for (w, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            f(w * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

/// Ones of a AND b.
pub fn common(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).map(|(a, b)| (a & b).count_ones() as usize).sum()
}
