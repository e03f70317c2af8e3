//! The V of each party, for methods in which parties have private parts of V: their rows are U_i (V + W_i)ᵀ, or U_i V_iᵀ
//! with some components of V replaced.

use std::ops::Range;

use ndarray::{Array2, Axis, s};

use fednmf_base::error::{Error, Result};
use fednmf_data::state::{OWN_COMPONENTS, OWN_PART};

use crate::output::factor::Factor;
use crate::output::stored::Stored;

/// The V of each party, and the rows of U to which it belongs.
#[derive(Debug)]
pub struct OwnParts {
    /// The rows of the whole U of each party.
    rows: Vec<Range<usize>>,
    /// The V of each party, n × k.
    v: Vec<Array2<f64>>,
    /// WᵀW of each party's W, which is added to V, k × k; zero if components are replaced instead.
    grams: Vec<Array2<f64>>,
}

impl OwnParts {
    /// Reads the private parts of V of an output that has them.
    ///
    /// # Errors
    /// If a file of a party is missing, damaged or of another run, or U is not in these files.
    pub fn read(stored: &Stored, u: &Factor<'_>, v: &Factor<'_>) -> Result<Self> {
        let rows = u.parts().filter(|rows| !rows.is_empty()).ok_or_else(|| {
            Error::input(format!(
                "{}: each party has a part of V of its own, but U is not in files of the parties; give the output as it was \
                 written",
                stored.path().display()
            ))
        })?;
        let shared = v.rows(None, 0..v.shape().0)?;
        let k = shared.ncols();
        let of_party = |party: usize| -> Result<[Array2<f64>; 2]> {
            let file = stored.of_party(party)?;
            let mut own = Array2::zeros(shared.dim());
            if file.has(OWN_PART) {
                file.as_f64(OWN_PART, 0, own.view_mut())?;
                let gram = own.t().dot(&own);
                return Ok([own + &shared, gram]);
            }
            file.as_f64(OWN_COMPONENTS, 0, own.view_mut())?;
            for (mut own, shared) in own.columns_mut().into_iter().zip(shared.columns()) {
                if own.iter().all(|x| *x == 0.0) {
                    own.assign(&shared);
                }
            }
            Ok([own, Array2::zeros((k, k))])
        };
        let (mut v, mut grams) = (Vec::new(), Vec::new());
        for (party, _) in rows {
            let [of_v, gram] = of_party(*party)?;
            v.push(of_v);
            grams.push(gram);
        }
        Ok(OwnParts { rows: rows.iter().map(|(_, rows)| rows.clone()).collect(), v, grams })
    }

    /// The V of row i of U, n × k.
    pub fn of_row(&self, i: usize) -> &Array2<f64> {
        &self.v[self.party_of(i)]
    }

    /// Σ ‖U_i W_iᵀ‖_F² over the parties i, for some rows of U: row a of `u` is row `row(a)` of the whole U.
    pub fn norm2(&self, u: &Array2<f64>, row: impl Fn(usize) -> usize) -> f64 {
        let each = u.rows().into_iter().enumerate();
        each.map(|(a, u)| u.dot(&self.grams[self.party_of(row(a))].dot(&u))).sum()
    }

    fn party_of(&self, i: usize) -> usize {
        self.rows.partition_point(|rows| rows.end <= i)
    }

    /// A pair of factors whose product is that of some rows of U with the V of their parties; row a of `u` is row `row(a)`
    /// of the whole U. Each party with some of these rows has k columns of both factors. The rows of V are in the given
    /// order, by default as stored.
    pub fn widened(
        &self,
        u: &Array2<f64>,
        row: impl Fn(usize) -> usize,
        order: Option<&[usize]>,
    ) -> (Array2<f64>, Array2<f64>) {
        let k = u.ncols();
        let of_rows: Vec<usize> = (0..u.nrows()).map(|a| self.party_of(row(a))).collect();
        let mut present = of_rows.clone();
        present.sort_unstable();
        present.dedup();
        if present.is_empty() {
            present.push(0);
        }
        let mut wide_u = Array2::zeros((u.nrows(), k * present.len()));
        for (a, party) in of_rows.iter().enumerate() {
            let at = k * present.partition_point(|other| other < party);
            wide_u.slice_mut(s![a, at..at + k]).assign(&u.row(a));
        }
        let mut wide_v = Array2::zeros((self.v[0].nrows(), k * present.len()));
        for (at, &party) in present.iter().enumerate() {
            let mut columns = wide_v.slice_mut(s![.., k * at..k * (at + 1)]);
            match order {
                Some(order) => columns.assign(&self.v[party].select(Axis(0), order)),
                None => columns.assign(&self.v[party]),
            }
        }
        (wide_u, wide_v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_meets_the_v_of_its_party() {
        let v = |party: usize| Array2::from_shape_fn((4, 2), |(j, l)| (10 * party + 3 * j + l) as f64);
        let w = |party: usize| v(party + 1).mapv(|x| x - 9.0);
        let grams = (0..3).map(|party| w(party).t().dot(&w(party))).collect();
        let own = OwnParts { rows: vec![0..2, 2..2, 2..5], v: vec![v(0), v(1), v(2)], grams };
        let u = Array2::from_shape_fn((5, 2), |(i, l)| (i + 2 * l) as f64);
        let (rows, columns) = ([4, 1, 2, 0], [2, 0, 3, 1]);
        let some = u.select(Axis(0), &rows);
        let (wide_u, wide_v) = own.widened(&some, |a| rows[a], Some(&columns));
        let found = wide_u.dot(&wide_v.t());
        for (a, &i) in rows.iter().enumerate() {
            let party = if i < 2 { 0 } else { 2 };
            assert_eq!(own.of_row(i), &v(party));
            for (b, &j) in columns.iter().enumerate() {
                assert_eq!(found[[a, b]], u.row(i).dot(&v(party).row(j)));
            }
        }
        assert_eq!(wide_u.ncols(), 4);
        let products = [u.slice(s![..1, ..]).dot(&w(0).t()), u.slice(s![1..2, ..]).dot(&w(0).t())];
        let products = products.into_iter().chain([u.select(Axis(0), &[4, 2]).dot(&w(2).t())]);
        let expected: f64 = products.map(|product| (&product * &product).sum()).sum();
        assert_eq!(own.norm2(&some, |a| rows[a]), expected);
        let (none, v) = own.widened(&Array2::zeros((0, 2)), |a| a, None);
        assert_eq!((none.dim(), v.dim()), ((0, 2), (4, 2)));
    }
}
