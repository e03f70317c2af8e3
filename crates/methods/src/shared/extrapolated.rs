//! The exact methods with extrapolation and restart ([`super::extrapolation`]). Each factor is extrapolated after its
//! update. The next update of the factor starts at the extrapolated point, and the other factor is fitted to it.

use std::mem::swap;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use fednmf_base::error::{Result, SharedResult};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::{Real, gram};

use super::alternating::{Exact, Factor};
use super::extrapolation::{Momentum, WORDS, extrapolate, extrapolate_rows, inner, rounding, split_into_two_words};
use super::grid::Grid;
use crate::{Algorithm, Measures};

/// An exact method whose factors hold the extrapolated points.
pub struct Extrapolated<T: Real> {
    exact: Exact<T>,
    momentum: Momentum,
    /// The factors after their last updates.
    u: Array2<T>,
    v: Array2<T>,
    /// UᵀU of this rank's rows.
    gram: Array2<T>,
    /// Message buffer: the Gram matrix to sum, and [`WORDS`] words for each of two objectives.
    message: Vec<T>,
}

impl<T: Real> Extrapolated<T> {
    /// `exact` in its initial state, without extrapolation yet.
    pub fn new(exact: Exact<T>) -> Self {
        let k = exact.gram.nrows();
        Extrapolated {
            momentum: Momentum::default(),
            u: exact.grid.u.own.clone(),
            v: exact.grid.v.own.clone(),
            gram: Array2::zeros((k, k)),
            message: vec![T::zero(); k * k + 2 * WORDS],
            exact,
        }
    }

    /// Called after U's update at V_y: sums the Gram matrix of the extrapolated U and the objectives of both U in one message, and
    /// computes the right-hand side of V. If the objective rose, or that of the extrapolated U is far above it, both factors first
    /// return to their state after the last updates.
    fn prepare_v_extrapolated(&mut self) -> SharedResult<()> {
        let Extrapolated { exact, momentum, u: new, v: new_v, gram: own_gram, message } = self;
        let Exact { comm, grid: Grid { data, u, v, .. }, gram: g, norm2, penalties, .. } = exact;
        let k = g.nrows();
        let (entries, words) = message.split_at_mut(k * k);
        comm.work("Gram", || {
            let objective = |x: &Array2<T>, own_gram: &ArrayView2<'_, T>| {
                let fit = inner(own_gram, &g.view()) - 2.0 * inner(&x.view(), &u.rhs.view());
                split_into_two_words::<T>(fit + 2.0 * penalties.value(&x.view(), &v.own.view()), *norm2)
            };
            gram(&new.view(), &mut own_gram.view_mut());
            words[..WORDS].copy_from_slice(&objective(new, &own_gram.view()));
            let mut beyond = ArrayViewMut2::from_shape((k, k), entries).expect("k x k");
            gram(&u.own.view(), &mut beyond);
            words[WORDS..].copy_from_slice(&objective(&u.own, &beyond.view()));
        });
        comm.sum(u.tags.gram, message);
        let [objective, beyond] = [0, WORDS].map(|at| {
            let words = &message[k * k + at..][..WORDS];
            *norm2 + words.iter().map(|word| word.as_f64()).sum::<f64>()
        });
        if momentum.accept_unless_far(objective, beyond, rounding::<T>(*norm2)) {
            g.row_major_mut().copy_from_slice(&message[..k * k]);
            data.product_for_v_after_update(comm, u, v)
        } else {
            u.own.assign(new);
            v.own.assign(new_v);
            exact.prepare(Factor::V)
        }
    }

    fn iterate(&mut self) -> Result<()> {
        let beta = self.momentum.beta();
        let new = &mut self.u;
        self.exact.update_u(|rows, x| extrapolate_rows(x, new.slice_mut(s![rows, ..]), beta))?;
        self.prepare_v_extrapolated()?;
        self.exact.rhs_is_current = true;
        self.exact.update_v()?;
        let Extrapolated { exact: Exact { comm, grid, iteration, .. }, momentum, v, .. } = self;
        comm.work("update", || extrapolate(&mut grid.v.own, v, momentum.beta()));
        *iteration += 1;
        Ok(())
    }

    /// Swaps V with the V of its last update. This V was fitted to the extrapolated U, so the two are the result.
    fn swap_v(&mut self) {
        swap(&mut self.exact.grid.v.own, &mut self.v);
    }
}

impl<T: Real> Algorithm<T> for Extrapolated<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.exact.iteration()
    }

    fn measure(&mut self) -> Result<Measures> {
        self.swap_v();
        let found = self.exact.measure();
        self.swap_v();
        found
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let Grid { u, v, .. } = &self.exact.grid;
        vec![u.piece(), v.piece_of(v.tags.name, &self.v)]
    }

    fn state(&self) -> State<'_, T> {
        let Grid { u, v, .. } = &self.exact.grid;
        let mut state = State::from(self.factors()).with(Owner::Shared, &self.momentum);
        state.matrices.push(u.piece_of("U_new", &self.u));
        state.matrices.push(v.piece_of("V_beyond", &v.own));
        state
    }

    fn refresh(&mut self) {
        // Rounding makes the objective rise, and each rise reduces the weight.
        self.momentum = Momentum::default();
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        self.exact.restore(saved, iteration)?;
        let Grid { u, v, .. } = &mut self.exact.grid;
        self.v.assign(&v.own);
        saved.rows("U_new", Owner::Shared, u.own_rows.start, self.u.view_mut())?;
        saved.rows("V_beyond", Owner::Shared, v.own_rows.start, v.own.view_mut())?;
        self.momentum = saved.read(Owner::Shared)?;
        Ok(())
    }

    fn decisions(&self) -> Vec<crate::decision::Decision> {
        self.exact.decisions()
    }
}
